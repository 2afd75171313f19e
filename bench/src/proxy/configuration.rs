//! The configuration of a program of the distribution, made from a text with names in capitals.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use super::{
    certificates::{Certificates, SERVER},
    started::token,
};

/// What stands in it.
pub(super) struct Configuration<'a> {
    pub(super) listen: SocketAddr,
    pub(super) api: SocketAddr,
    pub(super) certificates: &'a Certificates,
    /// Of the program alone.
    pub(super) folder: &'a Path,
}

impl Configuration<'_> {
    /// Writes the text with what its names stand for; returns the file.
    pub(super) fn write(&self, name: &str, text: &str) -> anyhow::Result<PathBuf> {
        let Self { listen, api, certificates, folder } = self;
        let file = folder.join(name);
        let text = text
            .replace("FOLDER", &folder.display().to_string())
            .replace("LISTEN", &listen.to_string())
            .replace("API", &api.to_string())
            .replace("BOTH", &certificates.both().display().to_string())
            .replace("CERTIFICATE", &certificates.certificate().display().to_string())
            .replace("KEY", &certificates.key().display().to_string())
            .replace("NAME", SERVER)
            .replace("TOKEN", &token());
        fs::create_dir_all(folder)?;
        fs::write(&file, text)?;
        Ok(file)
    }
}
