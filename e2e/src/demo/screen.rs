//! The live view on stdout.

#![allow(clippy::print_stdout, reason = "the view is what the demo is for")]

use std::{
    convert::Infallible,
    io::{IsTerminal as _, Write as _},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::{Arguments, frame::Frame};
use crate::system::Monitor;

/// Often enough to look alive in a terminal.
const REDRAW: Duration = Duration::from_millis(250);

/// In a log one line a second is enough.
const LINE: Duration = Duration::from_secs(1);

/// The terminal, or whatever stdout is.
#[derive(Debug)]
pub(super) struct Screen {
    arguments: Arguments,
    terminal: bool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    chapter: String,
    /// Lines of the block that is on the screen, to be drawn over.
    drawn: usize,
}

impl Screen {
    pub(super) fn new(arguments: Arguments) -> Self {
        Self { arguments, terminal: std::io::stdout().is_terminal(), state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Prints text that stays.
    pub(super) fn say(&self, text: &str) {
        self.state().drawn = 0;
        println!("{text}");
    }

    /// Names what is going on from now on.
    pub(super) fn chapter(&self, text: &str) {
        text.clone_into(&mut self.state().chapter);
        if !self.terminal {
            println!("== {text}");
        }
    }

    /// Draws what the monitor shows, again and again.
    pub(super) async fn follow(&self, monitor: &Monitor) -> Infallible {
        let period = if self.terminal { REDRAW } else { LINE };
        let mut tick = tokio::time::interval(period);
        let mut last = (Duration::ZERO, 0);
        let mut per_second = 0;
        loop {
            tick.tick().await;
            let mut frame = self.frame(monitor);
            let total = frame.reconciles.values().sum::<usize>();
            let passed = frame.elapsed.saturating_sub(last.0);
            if passed >= LINE {
                // After a new beginning of the count the total is smaller than before.
                let millis = usize::try_from(passed.as_millis()).unwrap_or(usize::MAX);
                per_second = 1000 * total.saturating_sub(last.1) / millis;
                last = (frame.elapsed, total);
            }
            frame.per_second = per_second;
            self.draw(&frame);
        }
    }

    fn frame(&self, monitor: &Monitor) -> Frame {
        let (chapter, elapsed, picture) = (self.state().chapter.clone(), monitor.now(), monitor.picture());
        monitor.judge(|checker| Frame {
            elapsed,
            chapter,
            picture,
            reconciles: checker.reconciles().clone(),
            per_second: 0,
            pending: checker.pending(),
            unowned: checker.unowned(),
            overlaps: checker.overlaps(),
        })
    }

    fn draw(&self, frame: &Frame) {
        let mut state = self.state();
        if state.chapter.is_empty() {
            return;
        }
        if !self.terminal {
            println!("{}", frame.line());
            return;
        }
        let title = format!("Ringside: {} objects, seed {}", self.arguments.objects(), self.arguments.seed);
        let block = format!("\x1b[1m{title}\x1b[0m\n{}", frame.block());
        // Up over the last block, and clear from there: the new one may be shorter.
        let up = if state.drawn > 0 { format!("\x1b[{}A\x1b[J", state.drawn) } else { String::new() };
        // Without wrapping: in a narrow terminal a wrapped line would be two to go up over.
        print!("{up}\x1b[?7l{block}\x1b[?7h");
        // A terminal that is gone is noticed by the signal that comes with it.
        let _ = std::io::stdout().flush();
        state.drawn = block.lines().count();
    }
}
