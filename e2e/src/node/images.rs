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

/// Builds the programs and packs each into an archive in `folder`, but for images that are built already. The first time this
/// takes minutes.
pub(super) fn pack(environment: &Environment, folder: &Path) -> anyhow::Result<Vec<Archive>> {
    let version = env!("CARGO_PKG_VERSION");
    let mut images = vec![
        (GUEST.to_owned(), "guest", "0:0", toolchain::guest(environment)?),
        ("website-controller:1.0.0".to_owned(), "website-operator", NONROOT, toolchain::operator(environment)?),
    ];
    let mut archives = Vec::new();
    if let Some(built) = &environment.images {
        archives.extend(["ringside-proxy", "ringside-sharder"].map(|program| Archive {
            reference: full(&format!("{program}:{version}")),
            path: built.join(format!("{program}.tar")),
        }));
    } else {
        let ringside = toolchain::ringside_static(environment)?;
        images.push((format!("ringside-proxy:{version}"), "ringside-proxy", NONROOT, ringside.proxy));
        images.push((format!("ringside-sharder:{version}"), "ringside-sharder", NONROOT, ringside.sharder));
    }
    for (name, program, user, source) in images {
        let image = Image { reference: full(&name), program, user };
        let path = folder.join(format!("{program}.tar"));
        image.pack(&source, &path).map_err(failed("pack an image of", &source))?;
        archives.push(Archive { reference: image.reference, path });
    }
    Ok(archives)
}

/// The name that the kubelet looks for when a manifest names no registry.
pub(super) fn full(name: &str) -> String {
    format!("docker.io/library/{name}")
}
