//! An image of one static program, packed into an archive that containerd imports: no registry, no container engine.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::Path,
};

use serde_json::json;
use sha2::{Digest as _, Sha256};
use tar::{Builder, Header};

/// So that the same program makes the same image.
const EPOCH: u64 = 0;

const CONFIG: &str = "config.json";
const LAYER: &str = "layer.tar";

/// An image that holds one program and nothing else, as the Dockerfiles make them.
pub(super) struct Image {
    /// What manifests call it. containerd wants the name in full.
    pub(super) reference: String,
    /// The program's name in the root of the image.
    pub(super) program: &'static str,
    /// Who runs it, as `uid:gid`.
    pub(super) user: &'static str,
}

impl Image {
    /// Packs the program at `source` as `docker save` does, as a tar archive at `archive`.
    pub(super) fn pack(&self, source: &Path, archive: &Path) -> io::Result<()> {
        let layer = tar(&[(self.program, 0o755, &fs::read(source)?)])?;
        let digest: String = Sha256::digest(&layer).iter().map(|byte| format!("{byte:02x}")).collect();
        let config = json!({
            "architecture": architecture(),
            "os": "linux",
            "config": {"Entrypoint": [format!("/{}", self.program)], "User": self.user},
            "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{digest}")]},
        });
        let manifest = json!([{"Config": CONFIG, "RepoTags": [self.reference], "Layers": [LAYER]}]);
        let packed = tar(&[
            ("manifest.json", 0o644, manifest.to_string().as_bytes()),
            (CONFIG, 0o644, config.to_string().as_bytes()),
            (LAYER, 0o644, &layer),
        ])?;
        File::create(archive)?.write_all(&packed)
    }
}

/// Go's name for the architecture, which images use.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn tar(files: &[(&str, u32, &[u8])]) -> io::Result<Vec<u8>> {
    let mut builder = Builder::new(Vec::new());
    for (path, mode, bytes) in files {
        let mut header = Header::new_gnu();
        header.set_size(u64::try_from(bytes.len()).map_err(io::Error::other)?);
        header.set_mode(*mode);
        header.set_mtime(EPOCH);
        builder.append_data(&mut header, path, *bytes)?;
    }
    builder.into_inner()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::{collections::BTreeMap, io::Read as _};

    use super::*;

    fn unpack(archive: &[u8]) -> BTreeMap<String, Vec<u8>> {
        let mut archive = tar::Archive::new(archive);
        let entries = archive.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            (entry.path().unwrap().to_str().unwrap().to_owned(), bytes)
        });
        entries.collect()
    }

    #[test]
    fn an_image_runs_its_program_from_a_layer_with_the_digest_that_it_names() {
        let folder = tempfile::tempdir().unwrap();
        let (source, archive) = (folder.path().join("source"), folder.path().join("archive"));
        fs::write(&source, "a program").unwrap();
        let image = Image { reference: "example.com/a:1".to_owned(), program: "run", user: "1:1" };
        image.pack(&source, &archive).unwrap();
        let files = unpack(&fs::read(&archive).unwrap());
        let json = |name: &str| serde_json::from_slice::<serde_json::Value>(&files[name]).unwrap();
        let manifest = json!([{"Config": CONFIG, "RepoTags": ["example.com/a:1"], "Layers": [LAYER]}]);
        assert_eq!(json("manifest.json"), manifest);
        assert_eq!(json(CONFIG)["config"], json!({"Entrypoint": ["/run"], "User": "1:1"}));
        let digest = format!(
            "sha256:{}",
            Sha256::digest(&files[LAYER]).iter().map(|it| format!("{it:02x}")).collect::<String>()
        );
        assert_eq!(json(CONFIG)["rootfs"]["diff_ids"], json!([digest]));
        assert_eq!(unpack(&files[LAYER])["run"], b"a program");
    }
}
