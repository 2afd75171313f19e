//! What the controller was told to lead by, over a restart of the proxy: it runs on meanwhile, and may believe that it leads.

use std::time::Duration;

use super::{MAX_BELIEF, object::LockName};
use crate::access::Handout;

/// In the access folder, for this container alone.
#[derive(Clone, Debug)]
pub(crate) struct Kept(Handout);

const FILE: &str = "leads";

impl Kept {
    pub(crate) fn new(folder: Handout) -> Self {
        Self(folder)
    }

    /// What was kept, and for how long each is believed.
    pub(super) fn read(&self) -> Vec<(LockName, Duration)> {
        let Some(text) = self.0.kept(FILE) else { return Vec::new() };
        let leads: Vec<(LockName, Duration)> = serde_json::from_str(&text).unwrap_or_else(|error| {
            tracing::warn!(%error, "can't read which locks the controller leads by");
            Vec::new()
        });
        leads.into_iter().map(|(name, lasts)| (name, lasts.min(MAX_BELIEF))).collect()
    }

    /// Keeps these; [`Self::written`] says when.
    pub(super) fn write<'a>(&self, leads: impl Iterator<Item = (&'a LockName, Duration)>) {
        let leads: Vec<_> = leads.map(|(name, lasts)| (name.clone(), lasts)).collect();
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
