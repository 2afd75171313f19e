//! nginx before the API server: one process, HTTP/2 and HTTP/1.1 for clients, kept HTTP/1.1 connections upstream.

use std::{path::PathBuf, process::Command};

use super::configuration::Configuration;

/// The configuration. Without buffering, as watches need it, in pieces as large as a list takes.
const CONFIGURATION: &str = "daemon off;
master_process off;
pid FOLDER/nginx.pid;
error_log stderr warn;
events { worker_connections 4096; }
http {
  access_log off;
  client_body_temp_path FOLDER/body;
  proxy_temp_path FOLDER/proxy;
  fastcgi_temp_path FOLDER/fastcgi;
  uwsgi_temp_path FOLDER/uwsgi;
  scgi_temp_path FOLDER/scgi;
  upstream api { server API; keepalive 1024; keepalive_requests 1000000000; }
  server {
    listen LISTEN ssl http2;
    ssl_certificate CERTIFICATE;
    ssl_certificate_key KEY;
    ssl_protocols TLSv1.2 TLSv1.3;
    keepalive_requests 1000000000;
    location / {
      proxy_pass https://api;
      proxy_http_version 1.1;
      proxy_set_header Connection \"\";
      proxy_set_header Host NAME;
      proxy_set_header Authorization \"Bearer TOKEN\";
      proxy_ssl_trusted_certificate CERTIFICATE;
      proxy_ssl_verify on;
      proxy_ssl_name NAME;
      proxy_ssl_server_name on;
      proxy_ssl_protocols TLSv1.2 TLSv1.3;
      proxy_buffering off;
      proxy_buffer_size 64k;
      proxy_buffers 8 64k;
      proxy_read_timeout 1h;
    }
  }
}
";

/// Writes the configuration; returns how it is started.
pub(super) fn command(program: PathBuf, configuration: &Configuration<'_>) -> anyhow::Result<Command> {
    let mut command = Command::new(program);
    command.arg("-p").arg(configuration.folder).arg("-c").arg(configuration.write("nginx.conf", CONFIGURATION)?);
    command.args(["-e", "stderr"]);
    Ok(command)
}
