//! What users are told about their rings, and what the API server is told for them.

mod announce;
mod conditions;
mod figures;
mod filtered;
mod label_policy;
mod reconcile;
mod report;
mod webhook_configuration;

pub(crate) use reconcile::{Told, reconcile};
