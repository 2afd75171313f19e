//! The planes that cases share, each with a ring and a namespace of its own. They stay until the program ends.

use std::sync::Arc;

use ringside_e2e::{
    live::{Ability, Shared},
    system::{Plane, Settings},
};

/// What keeps the labels of objects on a shared plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keeps {
    /// The webhook and the policy.
    Both,
    /// The policy alone, as the API server does not reach the webhook.
    Policy,
    /// The webhook alone, as the API server knows no such policy.
    Webhook,
    /// Nothing.
    Nothing,
}

impl Keeps {
    /// The same, of what this API server knows.
    pub(crate) fn here(self) -> Self {
        match self {
            Self::Both if !Ability::LabelPolicies.is_there() => Self::Webhook,
            other => other,
        }
    }

    pub(crate) fn settings(self) -> Settings {
        let settings = match self {
            Self::Both | Self::Policy => Settings::default(),
            Self::Webhook | Self::Nothing => Settings::without_label_policies(),
        };
        Settings { webhook: matches!(self, Self::Both | Self::Webhook), ..settings }
    }
}

static PLANES: [Shared<Arc<Plane>>; 4] = [const { Shared::new() }; 4];

/// Lets the next case that asks for a plane start one: what an earlier try has left on the old one is no ground for the next.
pub(crate) fn end() {
    PLANES.iter().for_each(Shared::end);
}

/// The plane where these keep the labels, with a sharder.
pub(crate) async fn plane(keeps: Keeps) -> Arc<Plane> {
    let start = async || Plane::with_sharders(keeps.settings(), 1).await.unwrap();
    let plane = PLANES[keeps as usize].get(start).await;
    Arc::clone(&plane)
}
