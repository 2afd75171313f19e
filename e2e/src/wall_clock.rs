//! Processes whose wall clock is wrong, and steps.
//!
//! Time namespaces leave the wall clock as it is, so a library is put before the C library's (`wall_clock.c`), built by
//! the C compiler that links Rust programs too.

use std::{
    fs, io,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    process::Command,
};

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/wall_clock.c");

/// A wall clock of its own for the processes that are started with it.
#[derive(Clone, Debug)]
pub struct WallClock {
    library: PathBuf,
    shift: PathBuf,
}

impl WallClock {
    /// Makes one that is right so far, with its files in `folder`.
    ///
    /// # Errors
    /// When there is no C compiler, or nothing can be written there.
    pub fn create(folder: &Path, name: &str) -> anyhow::Result<Self> {
        let (library, shift) = (folder.join(format!("{name}-clock.so")), folder.join(format!("{name}-clock")));
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(SOURCE);
        let built = compiler.output()?;
        if !built.status.success() {
            anyhow::bail!("cc builds no wall clock: {}", String::from_utf8_lossy(&built.stderr));
        }
        fs::write(&shift, 0_i64.to_ne_bytes())?;
        Ok(Self { library, shift })
    }

    /// A process of this command has this clock.
    pub fn give_to(&self, command: &mut Command) {
        command.env("LD_PRELOAD", &self.library).env("RINGSIDE_WALL_CLOCK", &self.shift);
    }

    /// From now on it is so many seconds ahead, or behind.
    ///
    /// # Errors
    /// When its file is gone.
    pub fn shift(&self, seconds: i64) -> io::Result<()> {
        // In one write: no process reads half of it.
        fs::File::options().write(true).open(&self.shift)?.write_all_at(&seconds.to_ne_bytes(), 0)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn year(clock: &WallClock) -> String {
        let mut date = Command::new("date");
        date.arg("+%Y").env_remove("TZ");
        clock.give_to(&mut date);
        String::from_utf8(date.output().unwrap().stdout).unwrap().trim().to_owned()
    }

    #[test]
    fn a_process_has_the_clock_that_it_was_given() {
        let folder = tempfile::tempdir().unwrap();
        let clock = WallClock::create(folder.path(), "test").unwrap();
        let now = year(&clock).parse::<u32>().unwrap();
        clock.shift(2 * 366 * 24 * 3600).unwrap();
        assert_eq!(year(&clock).parse::<u32>().unwrap(), now + 2);
    }
}
