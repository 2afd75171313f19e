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
    let made = "make keys and certificates";
    let ca = authority().context(made)?;
    let (server, server_key) = server_pair(&ca).context(made)?;
    let accounts = KeyPair::generate().context(made)?;
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

fn authority() -> Result<CertifiedIssuer<'static, KeyPair>, rcgen::Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.distinguished_name.push(rcgen::DnType::CommonName, "ringside-e2e");
    CertifiedIssuer::self_signed(params, KeyPair::generate()?)
}

fn server_pair(ca: &CertifiedIssuer<'static, KeyPair>) -> Result<(Certificate, KeyPair), rcgen::Error> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(SERVER_NAMES.map(str::to_owned))?;
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.distinguished_name.push(rcgen::DnType::CommonName, "kube-apiserver");
    Ok((params.signed_by(&key, ca)?, key))
}
