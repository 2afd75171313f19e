//! haproxy before the API server: one thread, HTTP/2 and HTTP/1.1 for clients, kept HTTP/1.1 connections upstream.

use std::{path::PathBuf, process::Command};

use super::configuration::Configuration;

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

/// Writes the configuration; returns how it is started.
pub(super) fn command(program: PathBuf, configuration: &Configuration<'_>) -> anyhow::Result<Command> {
    let mut command = Command::new(program);
    command.arg("-db").arg("-f").arg(configuration.write("haproxy.cfg", CONFIGURATION)?);
    Ok(command)
}
