//! What was made for a ring besides labels: its webhook configuration and its policies.
//!
//! The garbage collector removes them with their ring, a while later, and as long as one is there it may put labels back.

use crate::keep::is_ours;
use kube::{Api, Client, api::DeleteParams, core::DynamicObject};
use ringside_ring::{RingName, cluster_ring::GroupResource};
use ringside_runtime::{
    discovery::{self, LookUpError},
    explain::{code, explain},
};

const GROUP: &str = "admissionregistration.k8s.io";
/// A binding before its policy. All of them have the same name.
const RESOURCES: [&str; 5] = [
    "mutatingwebhookconfigurations",
    "mutatingadmissionpolicybindings",
    "mutatingadmissionpolicies",
    "validatingadmissionpolicybindings",
    "validatingadmissionpolicies",
];

/// Something that was made for a ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Belonging {
    pub(crate) resource: GroupResource,
    pub(crate) name: String,
    pub(crate) outcome: Outcome,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It was removed, or is there where nothing is removed.
    Removed,
    /// It has to stay for now, for this reason.
    Kept(&'static str),
    /// It could not be removed, for this reason.
    Failed(String),
}

impl Outcome {
    /// Whether it is as it should be.
    pub(crate) fn is_clean(&self) -> bool {
        !matches!(self, Self::Failed(_))
    }
}

impl From<Option<String>> for Outcome {
    fn from(fault: Option<String>) -> Self {
        fault.map_or(Self::Removed, Self::Failed)
    }
}

/// Removes what is there, or only looks for it.
pub(crate) async fn remove(client: &Client, ring: &RingName, dry_run: bool) -> Vec<Belonging> {
    let name = ring.made_for();
    let mut found = Vec::new();
    let group = discovery::group(client, GROUP).await;
    for resource in RESOURCES {
        let resource = GroupResource { group: GROUP.to_owned(), resource: resource.to_owned() };
        let outcome = match group.as_ref().map_err(Clone::clone).and_then(|group| group.find(&resource)) {
            Ok(served) => {
                let api: Api<DynamicObject> = Api::all_with(client.clone(), &served.api);
                let done = match api.get_metadata(&name).await {
                    // Another installation's.
                    Ok(there) if !is_ours(&there.metadata) => continue,
                    Ok(_) if !dry_run => api.delete(&name, &DeleteParams::background()).await.map(drop),
                    looked => looked.map(drop),
                };
                match done {
                    Ok(()) => None,
                    Err(error) if code(&error) == Some(404) => continue,
                    Err(error) => Some(explain(&error)),
                }
            }
            Err(LookUpError::NotServed(_)) => continue,
            Err(error @ LookUpError::NoAnswer(_)) => Some(error.to_string()),
        };
        found.push(Belonging { resource, name: name.clone(), outcome: outcome.into() });
    }
    found
}
