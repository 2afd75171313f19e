//! Keys, certificates and tokens of a control plane.

use std::fs;

use anyhow::Context as _;
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};

use super::{NODE, commands::Layout};
use crate::files::failed;

/// What the names in the API server's certificate are for: loopback, and the in-cluster names.
const SERVER_NAMES: [&str; 7] =
    ["localhost", "127.0.0.1", "127.0.0.2", "kubernetes.default.svc", "kubernetes.default", "kubernetes", "10.0.0.1"];

/// What a client needs.
pub(super) struct Credentials {
    /// The authority of the API server's certificate, as PEM.
    pub(super) ca: String,
    /// The bearer token of a user in `system:masters`.
    pub(super) admin_token: String,
    /// The bearer token of the node's kubelet.
    pub(super) node_token: String,
}

/// Makes all of them and writes the files that [`super::commands`] name.
pub(super) fn write(layout: &Layout) -> anyhow::Result<Credentials> {
    let ca = authority()?;
    let (server, server_key) = server_pair(&ca)?;
    let accounts = key("key of the ServiceAccount tokens")?;
    let (admin_token, node_token) = (token(), token());
    let tokens = format!(
        "{admin_token},admin,admin,system:masters\n{node_token},system:node:{NODE},system:node:{NODE},system:nodes\n"
    );
    for (name, content) in [
        ("ca.crt", ca.pem()),
        ("server.crt", server.pem()),
        ("server.key", server_key.serialize_pem()),
        ("accounts.key", accounts.serialize_pem()),
        ("accounts.pub", accounts.public_key_pem()),
        ("tokens.csv", tokens),
    ] {
        let path = layout.file(name);
        fs::write(&path, content).map_err(failed("write", &path))?;
    }
    Ok(Credentials { ca: ca.pem(), admin_token, node_token })
}

fn token() -> String {
    format!("{:032x}", rand::random::<u128>())
}

fn key(what: &'static str) -> anyhow::Result<KeyPair> {
    KeyPair::generate().with_context(|| format!("make the {what}"))
}

fn authority() -> anyhow::Result<CertifiedIssuer<'static, KeyPair>> {
    let made = "make the certificate authority";
    let mut params = CertificateParams::new(Vec::new()).context(made)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.distinguished_name.push(rcgen::DnType::CommonName, "ringside-e2e");
    CertifiedIssuer::self_signed(params, key("key of the certificate authority")?).context(made)
}

fn server_pair(ca: &CertifiedIssuer<'static, KeyPair>) -> anyhow::Result<(Certificate, KeyPair)> {
    let made = "make the API server's certificate";
    let key = key("API server's key")?;
    let mut params = CertificateParams::new(SERVER_NAMES.map(str::to_owned)).context(made)?;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.distinguished_name.push(rcgen::DnType::CommonName, "kube-apiserver");
    let certificate = params.signed_by(&key, ca).context(made)?;
    Ok((certificate, key))
}
