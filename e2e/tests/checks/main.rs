//! What is looked at without a control plane: texts, manifests and the tree itself keep to what they say.
#![allow(clippy::unwrap_used)]

mod architecture;
mod deploy;
mod docs;
mod modules;
mod monitoring;
mod names;
mod wording;
