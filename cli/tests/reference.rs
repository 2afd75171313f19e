//! The generated parts of `docs/src/reference.md` say what the programs and the resource say.
#![allow(clippy::unwrap_used)]

use std::{env, fmt::Write as _, fs, path::PathBuf};

use clap::{Arg, Command, CommandFactory as _};
use kube::CustomResourceExt as _;
use ringside_cli::command::Line;
use ringside_ring::ClusterRing;
use serde_json::Value;

/// Set to write the page instead of comparing it.
const WRITE: &str = "RINGSIDE_WRITE_REFERENCE";

/// A text as the cell of a table.
fn cell(text: &str) -> String {
    let words: Vec<_> = text.split_whitespace().collect();
    words.join(" ").replace('|', "\\|").replace('<', "&lt;")
}

fn first_sentence(text: &str) -> &str {
    let end = [". ", ".\n"].iter().filter_map(|end| text.find(end)).min();
    end.map_or(text, |end| &text[..end]).trim_end_matches('.')
}

fn help(argument: &Arg) -> String {
    let help = argument.get_long_help().or(argument.get_help()).map(ToString::to_string).unwrap_or_default();
    let values: Vec<_> = argument.get_possible_values().iter().map(|value| format!("`{}`", value.get_name())).collect();
    let takes = argument.get_action().takes_values() && !values.is_empty();
    if takes { format!("{}: {}", help.trim_end_matches('.'), values.join(", ")) } else { help }
}

fn named(argument: &Arg) -> String {
    let names = argument.get_value_names().filter(|_| argument.get_action().takes_values());
    let value = names.map(|names| format!(" {}", names.join(" "))).unwrap_or_default();
    match argument.get_long() {
        Some(long) => format!("`--{long}{value}`"),
        None => format!("`{}`", value.trim()),
    }
}

fn shown(command: &Command) -> impl Iterator<Item = &Arg> {
    command.get_arguments().filter(|argument| !argument.is_hide_set())
}

/// The options of a program that is configured once.
fn options(command: &Command) -> String {
    let mut table = "| option | default | meaning |\n| --- | --- | --- |\n".to_owned();
    for argument in shown(command) {
        let defaults: Vec<_> = argument.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
        let default = defaults.join(" ");
        let default = if default.is_empty() { default } else { format!("`{default}`") };
        writeln!(table, "| {} | {default} | {} |", named(argument), cell(&help(argument))).unwrap();
        let (long, variable) = (argument.get_long().unwrap(), argument.get_env());
        let usual = format!("RINGSIDE_{}", long.replace('-', "_").to_uppercase());
        assert!(long == "identity" || variable.is_some_and(|it| *it == *usual), "--{long} is not {usual}");
    }
    table
}

/// Every command below `command` that does something itself, with its whole name.
fn leaves(command: &Command, name: &str) -> Vec<(String, Command)> {
    let below = command.get_subcommands().filter(|below| below.get_name() != "help" && !below.is_hide_set());
    let below = below.flat_map(|below| leaves(below, &format!("{name} {}", below.get_name())));
    let below: Vec<_> = below.collect();
    if below.is_empty() { vec![(name.to_owned(), command.clone())] } else { below }
}

fn commands(line: &Command) -> String {
    let leaves = leaves(line, "ringside");
    let mut table = "| command | what it does |\n| --- | --- |\n".to_owned();
    for (name, command) in &leaves {
        let positional = command.get_positionals().map(|argument| {
            let name = argument.get_value_names().map(|names| names.join(" ")).unwrap_or_default();
            if argument.is_required_set() { format!(" {name}") } else { format!(" [{name}]") }
        });
        let usage: String = std::iter::once(name.clone()).chain(positional).collect();
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        writeln!(table, "| `{usage}` | {} |", cell(&about)).unwrap();
    }
    table.push_str(
        "\nOptions of all commands, then those of one:\n\n| command | option | meaning |\n| --- | --- | --- |\n",
    );
    let all = [(String::new(), line.clone())];
    for (name, command) in all.iter().chain(&leaves) {
        let name = name.trim_start_matches("ringside ");
        let name = if name.is_empty() { "all".to_owned() } else { format!("`{name}`") };
        for argument in shown(command).filter(|argument| !["help", "version"].contains(&argument.get_id().as_str())) {
            writeln!(table, "| {name} | {} | {} |", named(argument), cell(&help(argument))).unwrap();
        }
    }
    table
}

/// The fields below a schema: what Kubernetes itself defines is one field.
fn fields(schema: &Value, above: &str, table: &mut String) {
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let (path, array) = (format!("{above}{name}"), field["type"] == "array");
        let inner = if array { &field["items"] } else { field };
        let kind = match (field["enum"].as_array(), array, inner["type"].as_str()) {
            (Some(values), ..) => {
                let values: Vec<_> = values.iter().filter_map(Value::as_str).map(|it| format!("`{it}`")).collect();
                values.join(", ")
            }
            (None, true, kind) => format!("{}[]", kind.unwrap_or_default()),
            (None, false, kind) => kind.unwrap_or_default().to_owned(),
        };
        let about = field["description"].as_str().unwrap_or_default();
        writeln!(table, "| `{path}` | {kind} | {} |", cell(first_sentence(about))).unwrap();
        if !["namespaceSelector", "selector", "conditions"].contains(&name.as_str()) {
            fields(inner, &format!("{path}{}.", if array { "[]" } else { "" }), table);
        }
    }
}

fn resource(part: &str) -> String {
    let definition = serde_json::to_value(ClusterRing::crd()).unwrap();
    let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"][part];
    let mut table = "| field | type | meaning |\n| --- | --- | --- |\n".to_owned();
    fields(schema, &format!("{part}."), &mut table);
    table
}

#[test]
fn reference_page_has_every_option_and_field() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/src/reference.md");
    let mut page = fs::read_to_string(&path).unwrap();
    let mut stale = Vec::new();
    for (name, text) in [
        ("commands", commands(&Line::command())),
        ("proxy", options(&ringside_proxy::Command::line())),
        ("sharder", options(&ringside_sharder::Options::command())),
        ("spec", resource("spec")),
        ("status", resource("status")),
    ] {
        let (begin, end) = (format!("<!-- generated: {name} -->\n"), format!("<!-- end: {name} -->"));
        let (before, rest) = page.split_once(&begin).unwrap();
        let (was, after) = rest.split_once(&end).unwrap();
        let text = format!("\n{}\n\n", text.trim());
        if was != text {
            stale.push(name);
        }
        page = [before, &begin, &text, &end, after].concat();
    }
    if env::var_os(WRITE).is_some() {
        return fs::write(path, page).unwrap();
    }
    let command = format!("{WRITE}=1 cargo test -p ringside-cli --test reference");
    assert!(stale.is_empty(), "docs/src/reference.md is out of date ({stale:?}); write it again:\n  {command}");
}
