//! What commands print: tables for people, JSON or YAML for programs.

use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;

use crate::exit::Exit;

mod table;
mod wrap;

pub use self::{table::Table, wrap::wrap};

/// Seconds, of milliseconds as programs tell them.
pub fn seconds(millis: u64) -> String {
    format!("{:.1}s", Duration::from_millis(millis).as_secs_f64())
}

/// How a result is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A table of at most 100 columns.
    #[default]
    Table,
    /// One JSON document.
    Json,
    /// One YAML document.
    Yaml,
}

/// What a command prints at its end, and how it ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// The text, with or without a line end.
    pub text: String,
    /// The end.
    pub exit: Exit,
}

impl Said {
    /// The end of a command that did its work.
    #[must_use]
    pub fn good(text: impl Into<String>) -> Self {
        Self { text: text.into(), exit: Exit::Good }
    }

    /// The end of a command that found something not well.
    #[must_use]
    pub fn unhealthy(text: impl Into<String>) -> Self {
        Self { text: text.into(), exit: Exit::Unhealthy }
    }
}

/// Renders a result as the format asks; `table` renders it for people.
///
/// # Errors
/// When the result can't be serialized.
pub fn render<T: Serialize>(format: Format, result: &T, table: impl FnOnce(&T) -> String) -> anyhow::Result<String> {
    Ok(match format {
        Format::Table => table(result),
        Format::Json => serde_json::to_string_pretty(result)?,
        Format::Yaml => serde_saphyr::to_string(result)?,
    })
}
