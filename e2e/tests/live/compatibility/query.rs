//! Queries with a selector in them.

use anyhow::{Context as _, Result, ensure};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::compatibility::changes::{self, part};

const KEY: &str = "labelSelector=";
const VERSION: &str = "resourceVersion=";
/// What every watch asks for when it arrives.
const BOOKMARKS: &str = "allowWatchBookmarks=";
const INITIAL: &str = "sendInitialEvents=";

fn split(target: &str) -> (&str, Vec<&str>) {
    match target.split_once('?') {
        Some((path, query)) => (path, query.split('&').collect()),
        None => (target, Vec::new()),
    }
}

/// The value of the first parameter that begins so.
fn value<'a>(pairs: &[&'a str], key: &str) -> Option<&'a str> {
    pairs.iter().find_map(|pair| pair.strip_prefix(key))
}

/// Whether a flag is set, as the API server reads it.
fn is_set(pairs: &[&str], flag: &str) -> bool {
    value(pairs, flag).is_some_and(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
}

/// `ours`, and what the client selects.
fn joined(ours: &str, pairs: &[&str]) -> String {
    match value(pairs, KEY).filter(|theirs| !theirs.is_empty()) {
        Some(theirs) => format!("{ours},{}", percent_decode_str(&theirs.replace('+', " ")).decode_utf8_lossy()),
        None => ours.to_owned(),
    }
}

/// The target with `ours` in front of its labelSelector.
pub(crate) fn narrowed(target: &str, ours: &str) -> String {
    let (path, mut pairs) = split(target);
    let selector = format!("{KEY}{}", utf8_percent_encode(&joined(ours, &pairs), NON_ALPHANUMERIC));
    pairs.retain(|pair| !pair.starts_with(KEY) && !pair.is_empty());
    pairs.push(&selector);
    format!("{path}?{}", pairs.join("&"))
}

/// A selector without its blanks: around operators they mean nothing, and no test's selector needs others.
fn squeezed(selector: &str) -> String {
    percent_decode_str(&selector.replace('+', " ")).decode_utf8_lossy().split_whitespace().collect()
}

/// Whether a target arrived with `ours` in front of its labelSelector and else as it was: each parameter as it was written,
/// but for those that are left out, with bookmarks for every watch, and with one labelSelector behind all. One that
/// might be answered with the past is of the present, and behind the selector of a watch stands what makes it so.
pub(crate) fn check_narrowed(sent: &str, arrived: &str, ours: &str, left_out: &[(&str, &'static str)]) -> Result<()> {
    let ((path, mut expected), (arrived_path, mut came)) = (split(sent), split(arrived));
    let mut changes = vec![part::SELECTOR];
    for (pair, change) in left_out {
        let at = expected.iter().rposition(|it| it == pair).with_context(|| format!("no `{pair}` in {sent}"))?;
        expected.remove(at);
        changes.push(*change);
    }
    let narrowed = joined(ours, &expected);
    expected.retain(|pair| !pair.starts_with(KEY));
    let is_watch = path.contains("/watch/") || is_set(&expected, "watch=");
    if is_watch && !is_set(&expected, BOOKMARKS) {
        expected.retain(|pair| !pair.starts_with(BOOKMARKS));
        expected.push("allowWatchBookmarks=true");
        changes.push(part::BOOKMARKS);
    }
    // A read from 0, or a watch from nothing, may be answered with the past.
    let may_be_old = match value(&expected, VERSION) {
        None => is_watch && value(&expected, INITIAL).is_none(),
        Some(version) => version == "0",
    };
    if may_be_old {
        expected.retain(|pair| {
            ![VERSION, "resourceVersionMatch=", INITIAL, "limit="].iter().any(|key| pair.starts_with(key))
        });
    }
    expected.push(KEY);
    if may_be_old {
        if is_watch {
            expected.extend(["resourceVersionMatch=NotOlderThan", "sendInitialEvents=true"]);
        }
        changes.push(part::AGE);
    }
    let selector = came.iter_mut().find(|pair| pair.starts_with(KEY)).context("no selector")?;
    let same = squeezed(&selector[KEY.len()..]) == squeezed(&narrowed);
    *selector = KEY;
    ensure!(same && path == arrived_path && came == expected, "{sent} arrived as {arrived}");
    changes.into_iter().for_each(changes::note_query);
    Ok(())
}
