//! Queries with a selector in them.

use anyhow::{Result, ensure};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::compatibility::changes::{self, part};

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

/// Why the API server does not read a parameter, if so: Go leaves out one with a `;` in it, and one with an escape that
/// is none. (And what is empty says nothing.)
fn unread(pair: &str) -> Option<&'static str> {
    let is_escape = |rest: &str| rest.get(..2).is_some_and(|digits| u8::from_str_radix(digits, 16).is_ok());
    match pair {
        "" => Some(part::EMPTY),
        pair if pair.contains(';') => Some(part::SEMICOLON),
        pair => (!pair.split('%').skip(1).all(is_escape)).then_some(part::BAD_ESCAPE),
    }
}

/// Parameters of which one value can count: the others are left out.
const ONCE: [(&str, &str); 4] = [
    ("watch", part::WATCH_AGAIN),
    (VERSION, part::VERSION_AGAIN),
    (INITIAL, part::INITIAL_AGAIN),
    (BOOKMARKS, part::BOOKMARKS_AGAIN),
];

const VERSION: &str = "resourceVersion";
const MATCH: &str = "resourceVersionMatch";
const INITIAL: &str = "sendInitialEvents";
/// What every watch asks for when it arrives.
const BOOKMARKS: &str = "allowWatchBookmarks";

/// What arrives of a query that is narrowed, but for the selector.
#[derive(Default)]
struct Expected<'a> {
    /// As they were written, in their order.
    parameters: Vec<&'a str>,
    /// Behind the selector: how old the answer may be at most. Of the version only the name, for the proxy knows it.
    age: Vec<&'static str>,
    /// What the proxy changes, in the words of the list.
    changes: Vec<&'static str>,
}

/// Whether a flag is set, as the API server reads it.
fn is_set(pairs: &[&str], flag: &str) -> bool {
    let value = pairs.iter().find_map(|pair| pair.strip_prefix(flag)?.strip_prefix('='));
    value.is_some_and(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
}

impl<'a> Expected<'a> {
    fn of(path: &str, pairs: &[&'a str]) -> Self {
        let (mut expected, mut keys) = (Self::default(), Vec::new());
        for pair in pairs {
            let key = pair.split('=').next().unwrap_or_default();
            let again = ONCE.iter().find(|(once, _)| *once == key && keys.contains(&key)).map(|(_, part)| *part);
            match unread(pair).or(again) {
                Some(change) => expected.changes.push(change),
                None if key == KEY => {}
                None => {
                    keys.push(key);
                    expected.parameters.push(pair);
                }
            }
        }
        let is_watch = path.contains("/watch/") || is_set(&expected.parameters, "watch");
        if is_watch && !is_set(&expected.parameters, BOOKMARKS) {
            expected.parameters.retain(|pair| !pair.starts_with(BOOKMARKS));
            expected.parameters.push("allowWatchBookmarks=true");
            expected.changes.push(part::BOOKMARKS);
        }
        expected.changes.push(part::SELECTOR);
        expected.raise(is_watch);
        expected
    }

    /// A read from 0, or a watch from nothing, may be answered with the past.
    fn raise(&mut self, is_watch: bool) {
        let from = self.parameters.iter().find_map(|pair| pair.strip_prefix(VERSION)?.strip_prefix('='));
        let initial = self.parameters.iter().any(|pair| pair.starts_with(INITIAL));
        let any = from.map_or(is_watch && !initial, |from| from == "0" || (is_watch && from.is_empty()));
        if any {
            self.parameters.retain(|pair| {
                ![VERSION, MATCH, INITIAL, "limit"].contains(&pair.split('=').next().unwrap_or_default())
            });
            self.age = vec![VERSION, "resourceVersionMatch=NotOlderThan"];
            self.changes.push(part::AGE);
            if is_watch {
                self.age.push("sendInitialEvents=true");
            }
        }
    }

    /// Whether this is behind the selector.
    fn ages(&self, pairs: &[&str]) -> bool {
        let is_version =
            |pair: &str| pair.strip_prefix(VERSION).and_then(|it| it.strip_prefix('=')).is_some_and(is_number);
        self.age.len() == pairs.len()
            && self
                .age
                .iter()
                .zip(pairs)
                .all(|(age, pair)| if *age == VERSION { is_version(pair) } else { age == pair })
    }
}

/// A resourceVersion that says something.
fn is_number(version: &str) -> bool {
    version.parse::<u64>().is_ok_and(|version| version > 0)
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
    pairs.retain(|pair| unread(pair).is_none());
    let joined = joined(ours, selector(&pairs).as_deref());
    let selector = format!("{KEY}={}", utf8_percent_encode(&joined, NON_ALPHANUMERIC));
    let pairs: Vec<_> = others(&pairs).into_iter().chain([selector.as_str()]).collect();
    format!("{path}?{}", pairs.join("&"))
}

/// Whether a target arrived with `ours` in front of its labelSelector and else as it was: each parameter as it was
/// written, but for those that the API server leaves out anyway, with bookmarks for every watch, and with one labelSelector
/// at the end.
pub(crate) fn check_narrowed(sent: &str, arrived: &str, ours: &str) -> Result<()> {
    let ((path, before), (arrived_path, mut after)) = (split(sent), split(arrived));
    let expected = Expected::of(path, &before);
    let read: Vec<_> = before.into_iter().filter(|pair| unread(pair).is_none()).collect();
    let narrowed = joined(ours, selector(&read).as_deref());
    let behind = after.split_off(after.len().saturating_sub(expected.age.len()));
    ensure!(expected.ages(&behind), "{sent} arrived as {arrived}");
    let last = after.pop();
    let same = last.and_then(|last| selector(&[last])).is_some_and(|it| squeezed(&it) == squeezed(&narrowed));
    ensure!(same && path == arrived_path && after == expected.parameters, "{sent} arrived as {arrived}");
    expected.changes.iter().for_each(|change| changes::note_query(change));
    Ok(())
}
