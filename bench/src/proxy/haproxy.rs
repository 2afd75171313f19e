//! haproxy before the API server: one thread, HTTP/2 and HTTP/1.1 for clients, kept HTTP/1.1 connections upstream.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
};

use super::certificates::{Certificates, SERVER};

const CONFIGURATION: &str = "global
  nbthread 1
  maxconn 4096
defaults
  mode http
  timeout connect 5s
  timeout client 1h
  timeout server 1h
  http-reuse always
  option http-keep-alive
frontend controller
  bind LISTEN ssl crt BOTH alpn h2,http/1.1
  http-request set-header Authorization \"Bearer TOKEN\"
  default_backend api
backend api
  server api API ssl verify required ca-file CERTIFICATE sni str(NAME) verifyhost NAME pool-max-conn 1024
";

/// Writes the configuration into its own folder; returns how it is started.
pub(super) fn command(
    program: PathBuf,
    (listen, api): (SocketAddr, SocketAddr),
    certificates: &Certificates,
    token: &str,
    folder: &Path,
) -> anyhow::Result<Command> {
    fs::create_dir_all(folder)?;
    let text = CONFIGURATION
        .replace("LISTEN", &listen.to_string())
        .replace("API", &api.to_string())
        .replace("BOTH", &certificates.both().display().to_string())
        .replace("CERTIFICATE", &certificates.certificate().display().to_string())
        .replace("NAME", SERVER)
        .replace("TOKEN", token);
    let file = folder.join("haproxy.cfg");
    fs::write(&file, text)?;
    let mut command = Command::new(program);
    command.arg("-db").arg("-f").arg(file);
    Ok(command)
}
