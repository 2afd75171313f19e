//! What has to be known before there can be a policy: whether, and in which version, the API server has them, and who it takes
//! the sharder for. The same for all rings.

use std::{convert::Infallible, time::Duration};

use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::{Api, Client, api::PostParams, discovery::ApiResource};
use ringside_ring::cluster_ring::GroupResource;
use ringside_runtime::{
    discovery::{self, LookUpError},
    explain::explain,
};
use tokio::{sync::watch, time::sleep};

use crate::news::tell;

const GROUP: &str = "admissionregistration.k8s.io";
const POLICIES: &str = "mutatingadmissionpolicies";
const BINDINGS: &str = "mutatingadmissionpolicybindings";
/// How soon something that failed is tried again.
const RETRY: Duration = Duration::from_secs(5);

/// What is known of that.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Support {
    /// The API server has no MutatingAdmissionPolicies.
    NotServed,
    /// Why it is not known.
    Unknown(String),
    Served {
        policies: ApiResource,
        /// Who the API server takes the sharder for: the only one who may give an object to another shard.
        sharder: String,
    },
}

/// The bindings of these policies.
pub(crate) fn bindings_of(policies: &ApiResource) -> ApiResource {
    ApiResource { kind: format!("{}Binding", policies.kind), plural: BINDINGS.to_owned(), ..policies.clone() }
}

/// Looks every `period`: the API server may be upgraded, and the sharder get another account.
pub(crate) async fn follow(client: &Client, period: Duration, support: &watch::Sender<Option<Support>>) -> Infallible {
    loop {
        let pause = match look(client).await {
            Ok(now) => {
                tell(support, Some(now));
                period
            }
            Err(why) => {
                tracing::warn!(why, "can't find out how to protect the labels of rings; trying again");
                // While it can't say, what was known counts.
                if !matches!(*support.borrow(), Some(Support::NotServed | Support::Served { .. })) {
                    tell(support, Some(Support::Unknown(why)));
                }
                RETRY
            }
        };
        sleep(pause).await;
    }
}

async fn look(client: &Client) -> Result<Support, String> {
    let name = GroupResource { group: GROUP.to_owned(), resource: POLICIES.to_owned() };
    let policies = match discovery::resource(client, &name).await {
        Ok(served) => served.api,
        Err(LookUpError::NotServed(_)) => return Ok(Support::NotServed),
        Err(error @ LookUpError::NoAnswer(_)) => return Err(error.to_string()),
    };
    let reviews: Api<SelfSubjectReview> = Api::all(client.clone());
    let review = reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await;
    let user = review.map_err(|error| explain(&error))?.status.and_then(|status| status.user_info);
    let sharder = user.and_then(|user| user.username).ok_or("the API server does not say who the sharder is")?;
    Ok(Support::Served { policies, sharder })
}
