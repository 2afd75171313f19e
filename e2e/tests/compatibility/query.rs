//! Queries with a selector in them.

use anyhow::{Result, ensure};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

const KEY: &str = "labelSelector";

fn split(target: &str) -> (&str, Vec<&str>) {
    match target.split_once('?') {
        Some((path, query)) => (path, query.split('&').collect()),
        None => (target, Vec::new()),
    }
}

fn selector(pairs: &[&str]) -> Option<String> {
    let value = pairs.iter().find_map(|pair| pair.strip_prefix(KEY)?.strip_prefix('='))?;
    Some(percent_decode_str(&value.replace('+', " ")).decode_utf8_lossy().into_owned())
}

fn others<'a>(pairs: &[&'a str]) -> Vec<&'a str> {
    pairs.iter().copied().filter(|pair| !pair.starts_with(KEY)).collect()
}

/// Whether the API server reads the parameter at all: Go leaves out one with a `;` in it, and one with an escape that is
/// none. (And what is empty says nothing.)
fn is_read(pair: &str) -> bool {
    let escapes = pair.split('%').skip(1);
    let is_escape = |rest: &str| rest.get(..2).is_some_and(|digits| u8::from_str_radix(digits, 16).is_ok());
    !pair.is_empty() && !pair.contains(';') && escapes.into_iter().all(is_escape)
}

/// Parameters of which one value can count: the others are left out.
const ONCE: [&str; 3] = ["watch", "resourceVersion", "sendInitialEvents"];

/// Those that must arrive: as they were written, in their order, but for a second value where only one counts.
fn kept<'a>(pairs: &[&'a str]) -> Vec<&'a str> {
    let mut seen = Vec::new();
    let mut pairs = others(pairs);
    pairs.retain(|pair| {
        let key = pair.split('=').next().unwrap_or_default();
        let again = ONCE.contains(&key) && seen.contains(&key);
        seen.push(key);
        !again
    });
    pairs
}

/// A selector without its blanks: around operators they mean nothing, and no test's selector needs others.
fn squeezed(selector: &str) -> String {
    selector.split_whitespace().collect()
}

fn joined(ours: &str, theirs: Option<&str>) -> String {
    match theirs {
        Some(theirs) if !theirs.is_empty() => format!("{ours},{theirs}"),
        _ => ours.to_owned(),
    }
}

/// The target with `ours` in front of its labelSelector.
pub(crate) fn narrowed(target: &str, ours: &str) -> String {
    let (path, mut pairs) = split(target);
    pairs.retain(|pair| is_read(pair));
    let joined = joined(ours, selector(&pairs).as_deref());
    let selector = format!("{KEY}={}", utf8_percent_encode(&joined, NON_ALPHANUMERIC));
    let pairs: Vec<_> = others(&pairs).into_iter().chain([selector.as_str()]).collect();
    format!("{path}?{}", pairs.join("&"))
}

/// Whether a target arrived with `ours` in front of its labelSelector and else as it was: each parameter as it was
/// written, but for those that the API server leaves out anyway, and with one labelSelector at the end.
pub(crate) fn check_narrowed(sent: &str, arrived: &str, ours: &str) -> Result<()> {
    let ((path, mut before), (arrived_path, mut after)) = (split(sent), split(arrived));
    before.retain(|pair| is_read(pair));
    let expected = joined(ours, selector(&before).as_deref());
    let joined = selector(&after).unwrap_or_default();
    ensure!(squeezed(&joined) == squeezed(&expected), "{sent} arrived as {arrived}");
    let last = after.pop();
    let selectors = after.iter().chain(&last).filter(|pair| pair.starts_with(KEY)).count();
    let at_end = last.is_some_and(|pair| pair.starts_with(KEY));
    ensure!(selectors == 1 && at_end, "{sent} arrived as {arrived}");
    ensure!(path == arrived_path && kept(&before) == others(&after), "{sent} arrived as {arrived}");
    Ok(())
}
