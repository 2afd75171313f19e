//! What the controller was told to lead by, over a restart of the proxy: it runs on meanwhile, and may believe that it leads.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{
    MAX_BELIEF,
    object::{Kind, LockName},
};
use crate::access::Handout;

/// In the access folder, for this container alone.
#[derive(Clone, Debug)]
pub(crate) struct Kept(Handout);

const FILE: &str = "leads";

#[derive(Debug, Serialize, Deserialize)]
struct Lead {
    config_map: bool,
    /// None in what an older proxy wrote: that of the elections then.
    #[serde(default)]
    namespace: Option<String>,
    name: String,
    seconds: f64,
}

impl Kept {
    pub(crate) fn new(folder: Handout) -> Self {
        Self(folder)
    }

    /// What was kept, and for how long each is believed. Those that name no namespace are in this one.
    pub(super) fn read(&self, home: &str) -> Vec<(LockName, Duration)> {
        let Some(text) = self.0.kept(FILE) else { return Vec::new() };
        let leads: Vec<Lead> = serde_json::from_str(&text).unwrap_or_else(|error| {
            tracing::warn!(%error, "can't read which locks the controller leads by");
            Vec::new()
        });
        let known = leads.into_iter().filter_map(|Lead { config_map, namespace, name, seconds }| {
            let kind = if config_map { Kind::ConfigMap } else { Kind::Lease };
            let namespace = namespace.unwrap_or_else(|| home.to_owned());
            Some((LockName { kind, namespace, name }, Duration::try_from_secs_f64(seconds).ok()?.min(MAX_BELIEF)))
        });
        known.collect()
    }

    /// Keeps these; [`Self::written`] says when.
    pub(super) fn write<'a>(&self, leads: impl Iterator<Item = (&'a LockName, Duration)>) {
        let leads: Vec<_> = leads
            .map(|(name, lasts)| Lead {
                config_map: name.kind == Kind::ConfigMap,
                namespace: Some(name.namespace.clone()),
                name: name.name.clone(),
                seconds: lasts.as_secs_f64(),
            })
            .collect();
        self.0.later(move |folder| {
            let kept = serde_json::to_string(&leads).map_err(|error| error.to_string());
            if let Err(error) = kept.and_then(|text| folder.keep(FILE, &text).map_err(|error| error.to_string())) {
                tracing::error!(error, "can't save which locks the controller leads by");
            }
        });
    }

    /// Returns when all that was to be kept by now is.
    pub(super) async fn written(&self) {
        self.0.written().await;
    }

    #[cfg(test)]
    pub(super) fn wait_until_written(&self) {
        self.0.wait_until_written();
    }
}
