//! The images that a node has from the start: ours under the names that `deploy/` gives them, and one for test pods.

use std::path::{Path, PathBuf};

use super::image::Image;
use crate::{
    files::failed,
    toolchain::{self, Environment},
};

/// What test pods run: many small programs in one, see `e2e/guest`.
pub const GUEST: &str = "guest:1";

/// The user in our Dockerfiles.
const NONROOT: &str = "65532:65532";

/// An image as a file.
#[derive(Debug)]
pub(super) struct Archive {
    /// The image's full name.
    pub(super) reference: String,
    /// The file.
    pub(super) path: PathBuf,
}

/// Builds the programs and packs each into an archive in `folder`. The first time this takes minutes.
pub(super) fn pack(environment: &Environment, folder: &Path) -> anyhow::Result<Vec<Archive>> {
    let ringside = toolchain::ringside_static(environment)?;
    let version = env!("CARGO_PKG_VERSION");
    let images = [
        (GUEST.to_owned(), "guest", "0:0", toolchain::guest(environment)?),
        (format!("ringside-proxy:{version}"), "ringside-proxy", NONROOT, ringside.proxy),
        (format!("ringside-sharder:{version}"), "ringside-sharder", NONROOT, ringside.sharder),
        ("website-controller:1.0.0".to_owned(), "website-operator", NONROOT, toolchain::operator(environment)?),
    ];
    let pack_one = |(name, program, user, source): (String, _, _, PathBuf)| {
        let image = Image { reference: full(&name), program, user };
        let path = folder.join(format!("{program}.tar"));
        image.pack(&source, &path).map_err(failed("pack an image of", &source))?;
        Ok(Archive { reference: image.reference, path })
    };
    images.into_iter().map(pack_one).collect()
}

/// The name that the kubelet looks for when a manifest names no registry.
pub(super) fn full(name: &str) -> String {
    format!("docker.io/library/{name}")
}
