//! Structured logs on standard error, at a rate that people read.

use std::{io::IsTerminal, str::FromStr};

use tracing::Dispatch;
use tracing_subscriber::{
    EnvFilter,
    fmt::{format::JsonFields, writer::BoxMakeWriter},
    util::SubscriberInitExt as _,
};

mod repeats;
mod writer;

use repeats::Repeats;
pub use writer::FlushGuard;
use writer::Lines;

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line, for collectors.
    Json,
}

/// Why logging can't start.
#[derive(Debug, thiserror::Error)]
pub enum LoggingError {
    /// The format is none that we know.
    #[error("'{0}' is not a log format: write 'text' or 'json'")]
    Format(String),
    /// The filter does not parse.
    #[error("'{filter}' is not a log filter ({source}): write a level such as 'info', or 'info,ringside_proxy=debug'")]
    Filter {
        /// The filter as it was given.
        filter: String,
        /// What the parser says.
        source: tracing_subscriber::filter::ParseError,
    },
}

impl FromStr for Format {
    type Err = LoggingError;

    fn from_str(format: &str) -> Result<Self, LoggingError> {
        match format {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            other => Err(LoggingError::Format(other.to_owned())),
        }
    }
}

/// Checks a log filter.
///
/// # Errors
/// When it does not parse.
pub fn parse_filter(filter: &str) -> Result<EnvFilter, LoggingError> {
    EnvFilter::try_new(filter).map_err(|source| LoggingError::Filter { filter: filter.to_owned(), source })
}

/// Starts logging, until the guard is dropped. A second start in one process, as in tests, changes nothing.
pub fn init(format: Format, filter: EnvFilter) -> FlushGuard {
    if tracing::dispatcher::has_been_set() {
        return FlushGuard::default();
    }
    let (colours, lines) = (std::io::stderr().is_terminal(), Lines::to(std::io::stderr()).ok());
    let writer = match lines.clone() {
        Some(lines) => BoxMakeWriter::new(move || lines.clone()),
        None => BoxMakeWriter::new(std::io::stderr),
    };
    // The error says that a subscriber was set already, which then is the one that counts.
    let _already_set = dispatch(format, filter, writer, colours).try_init();
    FlushGuard(lines)
}

/// What takes events and writes lines.
pub fn dispatch(format: Format, filter: EnvFilter, writer: BoxMakeWriter, colours: bool) -> Dispatch {
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer).with_ansi(colours);
    match format {
        Format::Text => {
            let text = tracing_subscriber::fmt::format().with_ansi(colours);
            builder.event_format(Repeats::new(text, format)).into()
        }
        Format::Json => {
            let object = tracing_subscriber::fmt::format().json().flatten_event(true);
            builder.fmt_fields(JsonFields::new()).event_format(Repeats::new(object, format)).into()
        }
    }
}
