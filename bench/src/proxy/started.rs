//! Starts the API server that is none, and all ways to it, a process each.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::Context as _;
use ringside_e2e::{
    eventually::eventually,
    ports::free_port,
    process::{Folder, Process},
    proxy::{Identity, Proxy},
    toolchain::{built, ringside},
};
use serde_json::json;
use tokio::net::TcpStream;

use super::{
    certificates::{Certificates, SERVER},
    configuration::Configuration,
    haproxy, nginx,
    upstream::{SHARD, Shape},
    ways::{INSTALL, WAYS, Way, find},
};
use crate::say;

const STARTS: Duration = Duration::from_secs(20);
/// As long as that of a service account.
const TOKEN_LENGTH: usize = 1_000;

/// What is measured: where it listens, and which process takes the time.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) way: Way,
    pub(super) address: SocketAddr,
    /// The certificate that vouches for it.
    pub(super) authority: PathBuf,
    /// What a client shows.
    pub(super) token: String,
    /// None where nothing is between.
    pub(super) process: Option<u32>,
}

/// All that runs. Gone when dropped.
pub(super) struct Started {
    pub(super) targets: Vec<Target>,
    /// What is not there, and why.
    pub(super) missing: Vec<(Way, String)>,
    processes: Vec<Process>,
    proxies: Vec<Proxy>,
    _folder: Folder,
}

/// What is shown to the API server, as long as a service account's token.
pub(super) fn token() -> String {
    let letters = (b'a'..=b'z').chain(b'A'..=b'Z').chain(b'0'..=b'9').cycle().map(char::from);
    letters.take(TOKEN_LENGTH).collect()
}

impl Started {
    /// Starts everything.
    ///
    /// # Errors
    /// When something of ours can't be started. What the distribution does not have here is left out.
    pub(super) async fn start(shape: Shape, proxy: Option<PathBuf>) -> anyhow::Result<Self> {
        let folder = Folder::create("bench-proxy")?;
        let certificates = Certificates::create(folder.path())?;
        let program = match proxy {
            Some(program) => program,
            None => {
                say(format_args!("building the proxy: minutes the first time"));
                built(ringside).await?.proxy
            }
        };
        let api = free()?;
        let mut started = Self {
            targets: Vec::new(),
            missing: Vec::new(),
            processes: Vec::new(),
            proxies: Vec::new(),
            _folder: folder,
        };
        started.role("upstream", &shape.arguments(), api, &certificates).await?;
        for way in WAYS {
            say(format_args!("starting: {}", way.name()));
            started.add(way, api, &certificates, &program).await.with_context(|| way.name())?;
        }
        Ok(started)
    }

    async fn add(
        &mut self,
        way: Way,
        api: SocketAddr,
        certificates: &Certificates,
        program: &Path,
    ) -> anyhow::Result<()> {
        let (authority, listen) = (certificates.certificate(), free()?);
        let plain = |address, process| Target { way, address, authority, token: "client".to_owned(), process };
        let folder = certificates.folder().join(format!("{way:?}").to_lowercase());
        let target = match way {
            Way::Direct => plain(api, None),
            Way::Nginx | Way::Haproxy => {
                let name = way.program().unwrap_or_default();
                let Some(program) = find(name) else {
                    self.missing.push((way, format!("not installed: {INSTALL}")));
                    return Ok(());
                };
                let configuration = Configuration { listen, api, certificates, folder: &folder };
                let command = if way == Way::Nginx { nginx::command } else { haproxy::command };
                let command = command(program, &configuration)?;
                plain(listen, Some(self.process(name, &command, certificates, listen).await?))
            }
            Way::RelayHttp1 | Way::RelayHttp2 => {
                let mut arguments = vec![format!("--api={api}")];
                if way == Way::RelayHttp2 {
                    arguments.push("--http2".to_owned());
                }
                plain(listen, Some(self.role("relay", &arguments, listen, certificates).await?))
            }
            Way::Outside | Way::Inside => {
                let proxy = proxy(way, api, certificates, program, &folder).await?;
                let token = fs::read_to_string(proxy.access.join("token"))?;
                let (authority, process) = (proxy.access.join("ca.crt"), Some(proxy.process.id()));
                let target = Target { way, address: proxy.address(), authority, token, process };
                self.proxies.push(proxy);
                target
            }
        };
        self.targets.push(target);
        Ok(())
    }

    /// A process of this program.
    async fn role(
        &mut self,
        name: &'static str,
        arguments: &[String],
        listen: SocketAddr,
        certificates: &Certificates,
    ) -> anyhow::Result<u32> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(name).arg(format!("--listen={listen}")).arg("--folder").arg(certificates.folder());
        command.args(arguments);
        self.process(name, &command, certificates, listen).await
    }

    async fn process(
        &mut self,
        name: &str,
        command: &Command,
        certificates: &Certificates,
        listen: SocketAddr,
    ) -> anyhow::Result<u32> {
        let log = certificates.folder().join(format!("{name}-{}.log", listen.port()));
        let process = Process::spawn(name, command, &log)?;
        let what = format!("{name} listens");
        let listens = eventually(&what, STARTS, || async {
            if process.check_running().is_err() {
                return Ok(());
            }
            TcpStream::connect(listen).await.map(drop).map_err(|error| error.to_string())
        });
        listens.await?;
        process.check_running()?;
        let id = process.id();
        self.processes.push(process);
        Ok(id)
    }
}

fn free() -> anyhow::Result<SocketAddr> {
    Ok((Ipv4Addr::LOCALHOST, free_port()?).into())
}

/// A proxy of the ring that has the way's name.
async fn proxy(
    way: Way,
    api: SocketAddr,
    certificates: &Certificates,
    program: &Path,
    folder: &Path,
) -> anyhow::Result<Proxy> {
    let ring = if way == Way::Inside { super::upstream::INSIDE } else { super::upstream::OUTSIDE };
    fs::create_dir_all(folder)?;
    let kubeconfig = folder.join("upstream.kubeconfig");
    let authority = certificates.certificate();
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "bench",
        "clusters": [{"name": "bench", "cluster": {
            "server": format!("https://{SERVER}:{}", api.port()), "certificate-authority": authority,
        }}],
        "users": [{"name": "bench", "user": {"token": token()}}],
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench", "namespace": ring}}],
    });
    fs::write(&kubeconfig, config.to_string())?;
    let mut command = Command::new(program);
    command.arg("--kubeconfig").arg(kubeconfig);
    let proxy = Proxy::start(command, Identity { ring, shard: SHARD, namespace: ring }, folder)?;
    proxy.until_ready().await?;
    Ok(proxy)
}
