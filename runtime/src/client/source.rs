//! Where it stands how to reach the API server: a kubeconfig file, or what is mounted in a pod.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use kube::{
    Config,
    config::{Cluster, Context, Kubeconfig},
};

use super::{ConnectError, connector::host, no_proxy::is_proxied};

/// Where to look.
#[derive(Clone, Debug)]
pub(super) enum Source {
    Kubeconfig(PathBuf),
    Pod,
}

/// Files with what was in them. A token's file is not among them: kube's own layer reads it again, each minute.
pub(super) type Files = Vec<(PathBuf, Vec<u8>)>;

impl Source {
    pub(super) fn new(kubeconfig: Option<&Path>) -> Self {
        kubeconfig.map_or(Self::Pod, |path| Self::Kubeconfig(path.to_owned()))
    }

    /// What the files say now, and the files. Each is read before it is used: what changes in between is seen as changed
    /// the next time.
    pub(super) fn read(&self) -> Result<(Config, Files), ConnectError> {
        let mut files = Files::new();
        let config = match self {
            Self::Kubeconfig(path) => {
                let error = |source| ConnectError::Kubeconfig { path: path.clone(), source };
                // What is wrong with the file itself, the parser says better.
                files.extend(fs::read(path).map(|content| (path.clone(), content)));
                let kubeconfig = Kubeconfig::read_from(path).map_err(error)?;
                for named in named_files(&kubeconfig) {
                    let content = content(&named)?;
                    files.push((named, content));
                }
                let cluster = current_cluster(&kubeconfig);
                if cluster.is_some_and(|cluster| cluster.proxy_url.as_ref().is_some_and(|url| !url.is_empty())) {
                    return Err(ConnectError::ProxyUrl);
                }
                let mut config = Config::try_from(kubeconfig).map_err(error)?;
                if is_proxied(&config.cluster_url, |name| env::var(name).ok()) {
                    return Err(ConnectError::Proxied(host(&config.cluster_url).to_owned()));
                }
                // Of HTTPS_PROXY: kube ignores NO_PROXY.
                config.proxy_url = None;
                config
            }
            Self::Pod => {
                let mut config = Config::incluster()?;
                // Followed here, as all the others are.
                if let Some(bundle) = config.root_cert_file.take() {
                    let content = content(&bundle)?;
                    files.push((bundle, content));
                    config = Config::incluster()?;
                    config.root_cert_file = None;
                }
                config
            }
        };
        match &config {
            Config { root_cert: Some(bundle), .. } if bundle.is_empty() => Err(ConnectError::NoAuthority),
            _ => Ok((config, files)),
        }
    }
}

/// Whether a file has another content than it had.
pub(super) fn changed(files: &Files) -> bool {
    files.iter().any(|(path, content)| !fs::read(path).is_ok_and(|now| now == *content))
}

fn content(path: &Path) -> Result<Vec<u8>, ConnectError> {
    fs::read(path).map_err(|source| ConnectError::File { path: path.to_owned(), source })
}

fn current_context(kubeconfig: &Kubeconfig) -> Option<&Context> {
    let mut contexts = kubeconfig.contexts.iter();
    contexts.find(|named| Some(&named.name) == kubeconfig.current_context.as_ref())?.context.as_ref()
}

fn current_cluster(kubeconfig: &Kubeconfig) -> Option<&Cluster> {
    let name = &current_context(kubeconfig)?.cluster;
    kubeconfig.clusters.iter().find(|named| named.name == *name)?.cluster.as_ref()
}

/// The files with certificates and keys that the current context uses; those of others may be missing.
fn named_files(kubeconfig: &Kubeconfig) -> Vec<PathBuf> {
    let Some(context) = current_context(kubeconfig) else { return Vec::new() };
    let authority = current_cluster(kubeconfig).and_then(|cluster| cluster.certificate_authority.as_ref());
    let user = kubeconfig.auth_infos.iter().find(|named| Some(&named.name) == context.user.as_ref());
    let user = user.and_then(|named| named.auth_info.as_ref());
    let pair = user.map(|user| [user.client_certificate.as_ref(), user.client_key.as_ref()]);
    pair.into_iter().flatten().flatten().chain(authority).map(PathBuf::from).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// As kubeconfigs name a CA bundle by a file, relative to their own folder.
    const KUBECONFIG: &str = r#"
apiVersion: v1
kind: Config
current-context: x
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1", certificate-authority: ca.crt}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: x, context: {cluster: c, user: u, namespace: n}}]
"#;

    fn authority() -> String {
        rcgen::generate_simple_self_signed(["x".to_owned()]).unwrap().cert.pem()
    }

    #[test]
    fn a_file_that_a_kubeconfig_names_is_followed_like_itself() {
        let folder = tempfile::tempdir().unwrap();
        let (kubeconfig, bundle) = (folder.path().join("kubeconfig"), folder.path().join("ca.crt"));
        fs::write(&kubeconfig, KUBECONFIG).unwrap();
        fs::write(&bundle, authority()).unwrap();
        let source = Source::new(Some(&kubeconfig));
        let (config, files) = source.read().unwrap();
        assert_eq!((config.default_namespace.as_str(), config.root_cert.unwrap().len()), ("n", 1));
        assert!(!changed(&files));
        fs::write(&bundle, authority()).unwrap();
        assert!(changed(&files));
        let (_, files) = source.read().unwrap();
        assert!(!changed(&files));
        fs::write(&kubeconfig, KUBECONFIG.replace("token: t", "token: other")).unwrap();
        assert!(changed(&files));
    }

    #[test]
    fn files_of_a_context_that_is_not_the_current_one_may_be_missing() {
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        fs::write(folder.path().join("ca.crt"), authority()).unwrap();
        let others = KUBECONFIG
            .replace(
                "clusters: [",
                "clusters: [{name: d, cluster: {server: \"https://a\", certificate-authority: gone}}, ",
            )
            .replace("users: [", "users: [{name: v, user: {client-certificate: gone, client-key: gone}}, ")
            .replace("contexts: [", "contexts: [{name: y, context: {cluster: d, user: v}}, ");
        fs::write(&kubeconfig, &others).unwrap();
        assert_eq!(Source::new(Some(&kubeconfig)).read().unwrap().1.len(), 2);
        fs::write(&kubeconfig, others.replace("current-context: x", "current-context: y")).unwrap();
        assert!(matches!(Source::new(Some(&kubeconfig)).read(), Err(ConnectError::File { .. })));
    }

    #[test]
    fn what_is_half_written_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (kubeconfig, bundle) = (folder.path().join("kubeconfig"), folder.path().join("ca.crt"));
        fs::write(&kubeconfig, KUBECONFIG).unwrap();
        let source = Source::new(Some(&kubeconfig));
        assert!(matches!(source.read(), Err(ConnectError::File { .. })), "no bundle yet");
        fs::write(&bundle, "").unwrap();
        assert!(matches!(source.read(), Err(ConnectError::NoAuthority)));
        fs::write(&bundle, &authority()[..200]).unwrap();
        assert!(source.read().is_err());
        fs::write(&bundle, authority()).unwrap();
        fs::write(&kubeconfig, &KUBECONFIG[..60]).unwrap();
        assert!(matches!(source.read(), Err(ConnectError::Kubeconfig { .. })));
    }

    #[test]
    fn a_proxy_url_of_another_cluster_does_not_matter_and_of_the_current_one_it_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        fs::write(folder.path().join("ca.crt"), authority()).unwrap();
        let proxied = "clusters: [{name: d, cluster: {server: \"https://a\", proxy-url: \"http://p\"}}, ";
        let text = KUBECONFIG.replace("clusters: [", proxied);
        fs::write(&kubeconfig, &text).unwrap();
        Source::new(Some(&kubeconfig)).read().unwrap();
        fs::write(&kubeconfig, text.replace("cluster: c, user", "cluster: d, user")).unwrap();
        assert!(matches!(Source::new(Some(&kubeconfig)).read(), Err(ConnectError::ProxyUrl)));
    }
}
