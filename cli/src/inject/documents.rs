//! The documents of a YAML file. Only the one that changes is rewritten; the others are printed byte by byte.

use anyhow::{Context as _, bail};
use ringside_inject::is_workload;
use serde_json::Value;

/// A file's documents, each with the separator before it.
pub(super) struct Documents(Vec<String>);

impl Documents {
    /// Splits a text before each line that begins a document.
    pub(super) fn read(text: &str) -> Self {
        let mut documents = vec![String::new()];
        for line in text.split_inclusive('\n') {
            if is_separator(line) {
                documents.push(String::new());
            }
            if let Some(last) = documents.last_mut() {
                last.push_str(line);
            }
        }
        Self(documents)
    }

    /// The workload of this name, or the only one; with the place of its document.
    pub(super) fn workload(&self, named: Option<&str>) -> anyhow::Result<(usize, Value)> {
        let mut faults = None;
        let mut workloads = Vec::new();
        for (at, text) in self.0.iter().enumerate() {
            match parse(text) {
                Ok(object) if is_workload(&object) => workloads.push((at, object)),
                Ok(_) => {}
                Err(error) => faults = faults.or(Some(error)),
            }
        }
        let names: Vec<_> = workloads.iter().map(|(_, object)| name_of(object)).collect();
        workloads.retain(|(_, object)| named.is_none_or(|named| is_called(object, named)));
        match (workloads.pop(), workloads.is_empty(), faults) {
            (Some(found), true, _) => Ok(found),
            (Some(_), false, _) => bail!("the file has several workloads: name one of {}", names.join(", ")),
            (None, _, Some(error)) => Err(error).context("the file is no YAML"),
            (None, _, None) if names.is_empty() => bail!("the file has no Deployment and no StatefulSet"),
            (None, _, None) => bail!("the file has no such workload: name one of {}", names.join(", ")),
        }
    }

    /// The object of this kind and name.
    pub(super) fn find(&self, kind: &str, name: &str) -> Option<Value> {
        let objects = self.0.iter().filter_map(|text| parse(text).ok());
        objects.into_iter().find(|object| object["kind"] == kind && object["metadata"]["name"] == name)
    }

    /// Rewrites a document, with comments before it.
    pub(super) fn replace(&mut self, at: usize, object: &Value, comments: &[String]) -> anyhow::Result<()> {
        let Some(document) = self.0.get_mut(at) else { return Ok(()) };
        let separator = if document.lines().next().is_some_and(is_separator) { "---\n" } else { "" };
        let comments: String = comments.iter().map(|comment| format!("# {comment}\n")).collect();
        *document = format!("{separator}{comments}{}", emit(object)?);
        Ok(())
    }

    /// Adds a document behind the others.
    pub(super) fn append(&mut self, object: &Value) -> anyhow::Result<()> {
        if let Some(last) = self.0.last_mut()
            && !last.ends_with('\n')
        {
            last.push('\n');
        }
        self.0.push(format!("---\n{}", emit(object)?));
        Ok(())
    }

    /// The file.
    pub(super) fn text(&self) -> String {
        self.0.concat()
    }
}

fn is_separator(line: &str) -> bool {
    line.strip_prefix("---").is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace))
}

/// Reads as kubectl does, by YAML 1.1: 0644 is a file mode.
fn parse(text: &str) -> anyhow::Result<Value> {
    let options = serde_saphyr::options! { legacy_octal_numbers: true };
    Ok(serde_saphyr::from_str_with_options::<Option<Value>>(text, options)?.unwrap_or_default())
}

fn emit(object: &Value) -> anyhow::Result<String> {
    let mut text = serde_saphyr::to_string(object)?;
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}

fn name_of(object: &Value) -> String {
    let metadata = &object["metadata"];
    let name = metadata["name"].as_str().unwrap_or_default();
    metadata["namespace"].as_str().map_or_else(|| name.to_owned(), |namespace| format!("{namespace}/{name}"))
}

fn is_called(object: &Value, named: &str) -> bool {
    let (namespace, name) = named.split_once('/').map_or((None, named), |(namespace, name)| (Some(namespace), name));
    let there = object["metadata"]["namespace"].as_str();
    object["metadata"]["name"] == name && (namespace.is_none() || there.is_none() || there == namespace)
}
