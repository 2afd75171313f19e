//! What is written of warnings that repeat, by a clock that is paused.
#![allow(clippy::unwrap_used)]

use std::{fs, sync::Arc};

use serde_json::Value;
use tempfile::NamedTempFile;
use tokio::time::advance;
use tracing::dispatcher::{DefaultGuard, set_default};
use tracing_subscriber::fmt::writer::BoxMakeWriter;

use super::*;
use crate::logging::{dispatch, parse_filter};

const SECOND: Duration = Duration::from_secs(1);

/// What this thread logs, for as long as it is there.
struct Log {
    file: NamedTempFile,
    _guard: DefaultGuard,
}

impl Log {
    fn start(format: Format) -> Self {
        let file = NamedTempFile::new().unwrap();
        let writer = BoxMakeWriter::new(Arc::new(file.reopen().unwrap()));
        let _guard = set_default(&dispatch(format, parse_filter("info").unwrap(), writer, false));
        Self { file, _guard }
    }

    fn lines(&self) -> Vec<String> {
        fs::read_to_string(self.file.path()).unwrap().lines().map(str::to_owned).collect()
    }
}

fn fails(ring: impl fmt::Display, error: impl fmt::Display) {
    tracing::warn!(%ring, %error, "can't watch objects");
}

#[tokio::test(start_paused = true)]
async fn repeated_warning_is_written_once_a_minute_with_a_count() {
    let log = Log::start(Format::Text);
    for second in 0..150 {
        fails("a", second);
        advance(SECOND).await;
    }
    let lines = log.lines();
    let ends = ["can't watch objects ring=a error=0", "error=60 repeated=59", "error=120 repeated=59"];
    assert_eq!(lines.len(), ends.len(), "{lines:#?}");
    assert!(lines.iter().zip(ends).all(|(line, end)| line.ends_with(end)), "{lines:#?}");
}

#[tokio::test(start_paused = true)]
async fn what_differs_and_what_is_no_warning_is_written_each_time() {
    let log = Log::start(Format::Text);
    for _ in 0..2 {
        fails("a", "x");
        fails("b", "x");
        for what in ["can't drain objects", "can't assign objects"] {
            tracing::error!(ring = "a", "{what}");
        }
        tracing::info!(ring = "a", "moved object");
    }
    assert_eq!(log.lines().len(), 4 + 2, "{:#?}", log.lines());
}

#[tokio::test(start_paused = true)]
async fn message_about_many_things_names_some_and_counts_the_others() {
    let log = Log::start(Format::Text);
    for minute in 1..=3 {
        for _ in 0..3 {
            (0..1000).for_each(|ring| fails(ring, "x"));
        }
        assert_eq!(log.lines().len(), minute * MAX_THINGS);
        advance(PERIOD).await;
    }
    let others = 3 * (1000 - MAX_THINGS);
    assert!(
        log.lines()[MAX_THINGS].ends_with(&format!("ring=0 error=x repeated=2 others={others}")),
        "{:#?}",
        log.lines()
    );
}

#[tokio::test(start_paused = true)]
async fn counts_are_fields_of_a_json_line() {
    let log = Log::start(Format::Json);
    for _ in 0..3 {
        fails("a", "}");
    }
    advance(PERIOD).await;
    fails("a", "}");
    let last: Value = serde_json::from_str(&log.lines()[1]).unwrap();
    assert_eq!((&last["repeated"], &last["error"], &last["others"]), (&2.into(), &"}".into(), &Value::Null));
}
