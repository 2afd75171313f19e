//! Errors of files, with what was tried with which.

use std::{io, path::Path};

use anyhow::{Error, anyhow};

/// Says what was tried with a file that can't be used.
pub(crate) fn failed(action: &str, path: &Path) -> impl FnOnce(io::Error) -> Error + use<> {
    let tried = format!("{action} {}", path.display());
    move |error| anyhow!("{tried}: {error}")
}
