//! Replays the corpus of a fuzz target, and seeded changes of it, without a fuzzer.

use std::{fs, panic, path::Path};

use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};

/// How many changed inputs follow the kept ones.
const CHANGES: usize = 2_000;
/// The most edits that make one changed input.
const MAX_EDITS: usize = 4;
/// The most bytes that one edit inserts.
const MAX_INSERTED_BYTES: usize = 16;

/// Runs the body over each file of `fuzz/corpus/NAME`, and over [`CHANGES`] changes of these.
///
/// The changes are the same in every run.
///
/// # Panics
/// When the body panics. The message then shows the input.
pub fn replay(name: &str, body: fn(&[u8])) {
    let kept = corpus(name);
    for (file, input) in &kept {
        run(body, input, || format!("{name}/{file}"));
    }
    let mut random = StdRng::seed_from_u64(1);
    for number in 0..CHANGES {
        let (file, input) = &kept[random.random_range(0..kept.len())];
        let mut input = input.clone();
        for _ in 0..random.random_range(1..=MAX_EDITS) {
            edit(&mut input, &kept, &mut random);
        }
        run(body, &input, || format!("change {number}, of {name}/{file}"));
    }
}

/// The files of the target's corpus, by name.
fn corpus(name: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(name);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let read = entries.map(|entry| {
        let path = entry.expect("an entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        (name, fs::read(path).expect("a file"))
    });
    let mut files: Vec<_> = read.collect();
    files.sort();
    assert!(!files.is_empty(), "{} is empty", folder.display());
    files
}

fn run(body: fn(&[u8]), input: &[u8], title: impl Fn() -> String) {
    if panic::catch_unwind(|| body(input)).is_err() {
        panic!("fails on {}: {}", title(), input.escape_ascii());
    }
}

/// Flips a byte, cuts, joins or inserts.
fn edit(input: &mut Vec<u8>, kept: &[(String, Vec<u8>)], random: &mut StdRng) {
    let at = random.random_range(0..=input.len());
    match random.random_range(0..4) {
        0 => {
            if let Some(byte) = input.get_mut(at) {
                *byte ^= random.random_range(1..=u8::MAX);
            }
        }
        1 => {
            let end = random.random_range(at..=input.len());
            input.drain(at..end);
        }
        2 => {
            let (_, other) = &kept[random.random_range(0..kept.len())];
            input.truncate(at);
            input.extend(&other[random.random_range(0..=other.len())..]);
        }
        _ => {
            let count = random.random_range(1..=MAX_INSERTED_BYTES);
            // A repeated byte reaches further than random ones: lengths, blanks, brackets.
            let repeated = input.get(at).copied().filter(|_| random.random());
            let inserted: Vec<u8> = (0..count).map(|_| repeated.unwrap_or_else(|| random.random())).collect();
            input.splice(at..at, inserted);
        }
    }
}
