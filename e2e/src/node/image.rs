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

/// An image that holds one program and nothing else, as the Dockerfiles make them.
pub(super) struct Image {
    /// What manifests call it. containerd wants the name in full.
    pub(super) reference: String,
    /// The program's name in the root of the image.
    pub(super) program: &'static str,
    /// Who runs it, as `uid:gid`.
    pub(super) user: &'static str,
}

/// A blob of an image, named by what is in it.
struct Blob {
    media_type: &'static str,
    digest: String,
    bytes: Vec<u8>,
}

impl Blob {
    fn new(media_type: &'static str, bytes: Vec<u8>) -> Self {
        let digest = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        Self { media_type, digest, bytes }
    }

    fn descriptor(&self) -> serde_json::Value {
        json!({"mediaType": self.media_type, "digest": self.name(), "size": self.bytes.len()})
    }

    fn name(&self) -> String {
        format!("sha256:{}", self.digest)
    }

    fn path(&self) -> String {
        format!("blobs/sha256/{}", self.digest)
    }
}

impl Image {
    /// Packs the program at `source` into an OCI image layout, as a tar archive at `archive`.
    pub(super) fn pack(&self, source: &Path, archive: &Path) -> io::Result<()> {
        let layer = tar(&[(self.program, 0o755, &fs::read(source)?)])?;
        let layer = Blob::new("application/vnd.oci.image.layer.v1.tar", layer);
        let config = Blob::new(
            "application/vnd.oci.image.config.v1+json",
            json_bytes(&json!({
                "architecture": architecture(),
                "os": "linux",
                "config": {"Entrypoint": [format!("/{}", self.program)], "User": self.user},
                "rootfs": {"type": "layers", "diff_ids": [layer.name()]},
            })),
        );
        let manifest = Blob::new(
            "application/vnd.oci.image.manifest.v1+json",
            json_bytes(&json!({
                "schemaVersion": 2,
                "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "config": config.descriptor(),
                "layers": [layer.descriptor()],
            })),
        );
        let mut entry = manifest.descriptor();
        entry["platform"] = json!({"architecture": architecture(), "os": "linux"});
        entry["annotations"] = json!({"io.containerd.image.name": self.reference});
        let index = json_bytes(&json!({"schemaVersion": 2, "manifests": [entry]}));
        let packed = tar(&[
            ("oci-layout", 0o644, br#"{"imageLayoutVersion":"1.0.0"}"#),
            ("index.json", 0o644, &index),
            (&layer.path(), 0o644, &layer.bytes),
            (&config.path(), 0o644, &config.bytes),
            (&manifest.path(), 0o644, &manifest.bytes),
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

fn json_bytes(value: &serde_json::Value) -> Vec<u8> {
    value.to_string().into_bytes()
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
    fn every_blob_is_where_its_digest_says() {
        let folder = tempfile::tempdir().unwrap();
        let (source, archive) = (folder.path().join("source"), folder.path().join("archive"));
        fs::write(&source, "a program").unwrap();
        let image = Image { reference: "example.com/a:1".to_owned(), program: "run", user: "1:1" };
        image.pack(&source, &archive).unwrap();
        let files = unpack(&fs::read(&archive).unwrap());
        let json = |name: &str| serde_json::from_slice::<serde_json::Value>(&files[name]).unwrap();
        let blob = |descriptor: &serde_json::Value| {
            let digest = descriptor["digest"].as_str().unwrap();
            let path = digest.replace("sha256:", "blobs/sha256/");
            assert_eq!(descriptor["size"], files[&path].len());
            path
        };
        let entry = &json("index.json")["manifests"][0];
        assert_eq!(entry["annotations"]["io.containerd.image.name"], "example.com/a:1");
        let manifest = json(&blob(entry));
        assert_eq!(json(&blob(&manifest["config"]))["config"]["Entrypoint"], json!(["/run"]));
        assert_eq!(unpack(&files[&blob(&manifest["layers"][0])])["run"], b"a program");
    }
}
