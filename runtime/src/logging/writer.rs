//! Writes log lines on a thread of its own: no task that logs waits for who reads them.

use std::{
    io::{self, Write},
    mem,
    sync::Arc,
    thread,
    time::Duration,
};

use parking_lot::{Condvar, Mutex};

/// What may wait to be written, in bytes. Lines beyond that are dropped and counted.
const WAITING: usize = 1 << 20;
/// How long the end of the process waits for what is not written yet.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// Takes lines, each by one write. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Lines(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    text: Vec<u8>,
    dropped: u64,
    is_writing: bool,
}

impl Lines {
    /// Starts the thread that writes to `output`.
    ///
    /// # Errors
    /// When the system has no thread left.
    pub(super) fn to(output: impl Write + Send + 'static) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let taken = shared.clone();
        thread::Builder::new().name("log".to_owned()).spawn(move || taken.write_to(output))?;
        Ok(Self(shared))
    }
}

impl Shared {
    fn write_to(&self, mut output: impl Write) {
        loop {
            let (text, dropped) = self.take();
            if dropped > 0 {
                tracing::warn!(dropped, "dropped log lines: standard error was not read in time");
            }
            // There is no other place to tell of an error.
            let _ = output.write_all(&text);
        }
    }

    fn take(&self) -> (Vec<u8>, u64) {
        let mut state = self.state.lock();
        state.is_writing = false;
        self.changed.notify_all();
        self.changed.wait_while(&mut state, |state| state.text.is_empty());
        state.is_writing = true;
        (mem::take(&mut state.text), mem::take(&mut state.dropped))
    }
}

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut state = self.0.state.lock();
        if state.text.len() + line.len() > WAITING {
            state.dropped += 1;
        } else {
            state.text.extend_from_slice(line);
            self.0.changed.notify_all();
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Waits when it is dropped, for a second at most, until all lines are written.
#[derive(Debug, Default)]
#[must_use]
pub struct FlushGuard(pub(super) Option<Lines>);

impl Drop for FlushGuard {
    fn drop(&mut self) {
        let Some(Lines(shared)) = &self.0 else { return };
        let unwritten = |state: &mut State| state.is_writing || !state.text.is_empty();
        shared.changed.wait_while_for(&mut shared.state.lock(), unwritten, FLUSH_TIMEOUT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pipe that is full and stays so.
    struct Stuck;

    impl Write for Stuck {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            loop {
                thread::park();
            }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_never_reads_holds_up_neither_who_logs_nor_the_end() {
        let mut lines = Lines::to(Stuck).expect("a thread");
        let guard = FlushGuard(Some(lines.clone()));
        let line = [b'x'; 1 << 10];
        assert_eq!(lines.write(b"the first").ok(), Some(9));
        while !lines.0.state.lock().is_writing {
            thread::yield_now();
        }
        for _ in 0..4 * WAITING / line.len() {
            assert_eq!(lines.write(&line).ok(), Some(line.len()));
        }
        drop(guard);
        let state = lines.0.state.lock();
        assert!(state.text.len() <= WAITING && state.dropped > 0, "{} bytes wait", state.text.len());
    }
}
