//! Writes a warning that repeats once a minute, and how often it came meanwhile.
//!
//! While an API server is away, whatever is tried again fails again, by the second and in ever new words. A warning repeats
//! when it has the same message and is about the same thing. What it says besides, such as the error, is that of its last line.

use std::{
    collections::HashMap,
    fmt::{self, Debug, Write},
    hash::{DefaultHasher, Hash, Hasher as _},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::{
    Event, Level, Subscriber,
    callsite::Identifier,
    field::{Field, Visit},
};
use tracing_subscriber::{
    fmt::{FmtContext, FormatEvent, FormatFields, format::Writer},
    registry::LookupSpan,
};

use super::Format;

/// How long a warning is only counted after it was written.
const PERIOD: Duration = Duration::from_secs(60);
/// Of how many things a message is written in a period.
const MAX_THINGS: usize = 10;
/// The fields that say what a warning is about. How many lines were dropped is news each time.
const ABOUT: [&str; 12] =
    ["dropped", "folder", "kind", "lease", "lock", "name", "namespace", "resource", "ring", "secret", "shard", "what"];

/// Formats events, and leaves out warnings that repeat.
pub(super) struct Repeats<F> {
    format: F,
    is_json: bool,
    messages: Mutex<HashMap<Identifier, Message>>,
}

/// What was written of a message.
#[derive(Debug, Default)]
struct Message {
    things: Vec<Thing>,
    /// How often it was about things that had no line.
    others: u64,
}

/// What a message was about.
#[derive(Debug)]
struct Thing {
    /// The hash of what names it.
    about: u64,
    written: Instant,
    /// How often it came since then.
    repeated: u64,
}

/// What was not written since the last line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Unwritten {
    repeated: u64,
    others: u64,
}

impl<F> Repeats<F> {
    /// For lines that `format` makes.
    pub(super) fn new(format: F, form: Format) -> Self {
        Self { format, is_json: form == Format::Json, messages: Mutex::default() }
    }

    /// What to write with an event; none if that is not to be written now.
    fn note(&self, event: &Event<'_>) -> Option<Unwritten> {
        if *event.metadata().level() > Level::WARN {
            return Some(Unwritten::default());
        }
        let mut about = About::default();
        event.record(&mut about);
        let mut messages = self.messages.lock();
        messages.entry(event.metadata().callsite()).or_default().note(about.0.finish(), Instant::now())
    }
}

impl Message {
    fn note(&mut self, about: u64, now: Instant) -> Option<Unwritten> {
        let is_over = |thing: &Thing| now.duration_since(thing.written) >= PERIOD;
        let new = Thing { about, written: now, repeated: 0 };
        let (mut repeated, is_full) = (0, self.things.len() == MAX_THINGS);
        match self.things.iter_mut().find(|thing| thing.about == about) {
            Some(thing) if is_over(thing) => repeated = std::mem::replace(thing, new).repeated,
            Some(thing) => {
                thing.repeated += 1;
                return None;
            }
            None if !is_full => self.things.push(new),
            None => match self.things.iter_mut().find(|thing| is_over(thing)) {
                Some(thing) => self.others += std::mem::replace(thing, new).repeated,
                None => {
                    self.others += 1;
                    return None;
                }
            },
        }
        Some(Unwritten { repeated, others: std::mem::take(&mut self.others) })
    }
}

impl<S, N, F> FormatEvent<S, N> for Repeats<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let Some(unwritten) = self.note(event) else { return Ok(()) };
        let counts = [("repeated", unwritten.repeated), ("others", unwritten.others)];
        let mut counts = counts.into_iter().filter(|(_, count)| *count > 0).peekable();
        if counts.peek().is_none() {
            return self.format.format_event(context, writer, event);
        }
        let mut line = String::new();
        self.format.format_event(context, Writer::new(&mut line), event)?;
        let line = line.trim_end();
        if let Some(object) = line.strip_suffix('}').filter(|_| self.is_json) {
            write!(writer, "{object}")?;
            counts.try_for_each(|(name, count)| write!(writer, ",\"{name}\":{count}"))?;
            return writeln!(writer, "}}");
        }
        write!(writer, "{line}")?;
        counts.try_for_each(|(name, count)| write!(writer, " {name}={count}"))?;
        writeln!(writer)
    }
}

/// Hashes what an event is about, and its message.
#[derive(Default)]
struct About(DefaultHasher);

impl Visit for About {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" || ABOUT.contains(&field.name()) {
            field.name().hash(&mut self.0);
            // A hasher takes everything.
            let _ = write!(self, "{value:?}");
        }
    }
}

impl Write for About {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests;
