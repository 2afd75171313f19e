//! Who this replica is in the election, and whether who led before it can still be there.
//!
//! A new leader waits for the old one's Lease to run out, by its own clock. After an outage of all replicas no leader
//! is left to wait for. A replica in the Pod of the old leader takes the Lease at once. Another replica frees it when
//! the API server says that the leader's Pod is gone. Both are what a StatefulSet relies on, too: a container is not
//! started again before it ended, and a Pod's object is there until its containers ended. A user that deletes a Pod by
//! force gives that up. Then two may lead until the older one's next renewal, a fifth of the Lease's duration.

use k8s_openapi::api::{authentication::v1::SelfSubjectReview, coordination::v1::Lease, core::v1::Pod};
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use rand::distr::{Alphanumeric, SampleString};
use ringside_ring::lease::holder;
use ringside_runtime::explain::{code, explain};
use serde_json::json;

use crate::pauses::Pauses;

/// What the API server puts into `extra` for a token that is bound to a pod (CONTROL-PLANE, 5).
const POD: [&str; 2] = ["authentication.kubernetes.io/pod-name", "authentication.kubernetes.io/pod-uid"];
/// Random characters after the name of a replica that is no Pod: a restarted one is another.
const SUFFIX: usize = 8;
/// The Lease of the election.
pub const ELECTION: &str = "ringside-sharder";
/// Between the name and what makes it unique. No Pod's name has it.
const BORDER: char = '_';

/// The holder that this replica is: its Pod's name and uid where its token is bound to one, else `name` and a random suffix.
pub(crate) async fn holder_of(client: &Client, name: &str) -> String {
    let api: Api<SelfSubjectReview> = Api::all(client.clone());
    let mut pauses = Pauses::new();
    let reviewed = loop {
        match api.create(&PostParams::default(), &SelfSubjectReview::default()).await {
            Ok(review) => break Some(review),
            Err(error) if code(&error).is_some_and(|code| (400..500).contains(&code) && code != 429) => {
                tracing::info!(error = %explain(&error), "the API server does not say which Pod this is");
                break None;
            }
            Err(error) => {
                tracing::warn!(error = %explain(&error), "can't ask the API server which Pod this is; trying again");
                pauses.next().await;
            }
        }
    };
    let extra = reviewed.and_then(|review| review.status?.user_info?.extra).unwrap_or_default();
    let said = POD.map(|key| extra.get(key).and_then(|values| values.first()));
    match said {
        [Some(pod), Some(uid)] => format!("{pod}{BORDER}{uid}"),
        _ => format!("{name}{BORDER}{}", Alphanumeric.sample_string(&mut rand::rng(), SUFFIX).to_lowercase()),
    }
}

/// The name of the Pod in a holder of the election's Lease, and what makes it unique: the Pod's uid.
pub fn parts_of(holder: &str) -> Option<(&str, &str)> {
    holder.split_once(BORDER)
}

/// Frees the Lease of the election if its holder is a Pod that is gone. Whatever fails here costs only time.
pub(crate) async fn free_from_who_is_gone(client: &Client, namespace: &str, lease: &str, own: &str) {
    match free(client, namespace, lease, own).await {
        Ok(Some(gone)) => {
            tracing::info!(namespace, lease, holder = gone, "the Pod that led is gone; freed its Lease");
        }
        Ok(None) => {}
        Err(error) => {
            tracing::warn!(namespace, lease, error = %explain(&error), "can't tell whether the leader is still there");
        }
    }
}

async fn free(client: &Client, namespace: &str, name: &str, own: &str) -> Result<Option<String>, kube::Error> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), namespace);
    let Some(lease) = leases.get_opt(name).await? else { return Ok(None) };
    let Some(holder) = holder(lease.spec.as_ref()).filter(|holder| *holder != own) else { return Ok(None) };
    let Some((pod, uid)) = parts_of(holder).filter(|(_, uid)| is_uid(uid)) else { return Ok(None) };
    let found = Api::<Pod>::namespaced(client.clone(), namespace).get_opt(pod).await?;
    let there = found.filter(|found| found.metadata.uid.as_deref() == Some(uid));
    let phase = there.as_ref().map(|pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()));
    // In these phases all containers have ended, as after an eviction.
    if !matches!(phase, None | Some(Some("Succeeded" | "Failed"))) {
        return Ok(None);
    }
    // Only as it was read: a replica that renewed it meanwhile is there.
    let freed =
        json!({"metadata": {"resourceVersion": lease.metadata.resource_version}, "spec": {"holderIdentity": ""}});
    match leases.patch(name, &PatchParams::default(), &Patch::Merge(freed)).await {
        Ok(_) => Ok(Some(holder.to_owned())),
        Err(error) if code(&error) == Some(409) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether that is an object's uid, and no random suffix.
fn is_uid(text: &str) -> bool {
    text.len() == 36 && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use http::StatusCode;
    use serde_json::Value;

    use super::*;
    use crate::fixtures::FakeApi;

    const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/ringside-system/leases/election";
    const UID: &str = "11111111-2222-3333-4444-555555555555";

    fn lease(holder: &str) -> Value {
        json!({"metadata": {"name": "election", "resourceVersion": "7"}, "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15}})
    }

    async fn holder_after(pod: Option<(&str, Value)>, holder: &str) -> String {
        let api = FakeApi::default();
        api.put(LEASE, lease(holder));
        if let Some((name, pod)) = pod {
            api.put(&format!("/api/v1/namespaces/ringside-system/pods/{name}"), pod);
        }
        free_from_who_is_gone(&api.client(), "ringside-system", "election", "own_1").await;
        api.get(LEASE).unwrap()["spec"]["holderIdentity"].as_str().unwrap().to_owned()
    }

    fn pod(uid: &str, phase: &str) -> Value {
        json!({"metadata": {"name": "a", "uid": uid}, "status": {"phase": phase}})
    }

    #[tokio::test]
    async fn a_lease_is_freed_from_a_pod_that_is_gone_and_from_nobody_else() {
        let held = format!("a_{UID}");
        for gone in [None, Some(pod("another", "Running")), Some(pod(UID, "Failed")), Some(pod(UID, "Succeeded"))] {
            assert_eq!(holder_after(gone.clone().map(|pod| ("a", pod)), &held).await, "", "{gone:?}");
        }
        for there in ["Running", "Pending", "Unknown", ""] {
            assert_eq!(holder_after(Some(("a", pod(UID, there))), &held).await, held, "{there}");
        }
        for nobody_knows in ["a_x7k2m9q1", "a", "", "own_1"] {
            assert_eq!(holder_after(None, nobody_knows).await, nobody_knows);
        }
    }

    #[tokio::test]
    async fn a_lease_that_is_renewed_meanwhile_stays() {
        let api = FakeApi::default();
        let held = format!("a_{UID}");
        api.put(LEASE, lease(&held));
        api.intercept(|asked, _| (asked.method == http::Method::PATCH).then_some(StatusCode::CONFLICT));
        free_from_who_is_gone(&api.client(), "ringside-system", "election", "own_1").await;
        assert_eq!(api.get(LEASE).unwrap()["spec"]["holderIdentity"], held);
        let patch = api.asked().pop().unwrap();
        assert_eq!(patch.body["metadata"]["resourceVersion"], "7");
    }

    #[tokio::test]
    async fn a_pod_is_itself_after_a_restart_and_anything_else_is_not() {
        let api = FakeApi::default();
        let reviews = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
        let review = |extra: Value| json!({"metadata": {}, "status": {"userInfo": {"username": "u", "extra": extra}}});
        api.put(reviews, review(json!({POD[0]: ["a"], POD[1]: [UID]})));
        let pod = holder_of(&api.client(), "host").await;
        assert_eq!((pod.as_str(), holder_of(&api.client(), "host").await), (format!("a_{UID}").as_str(), pod.clone()));
        api.put(reviews, review(json!({})));
        let other = holder_of(&api.client(), "host").await;
        assert!(other.starts_with("host_") && other.len() == "host_".len() + SUFFIX && !is_uid(&other[5..]));
        assert_ne!(other, holder_of(&api.client(), "host").await);
        api.intercept(|_, _| Some(StatusCode::FORBIDDEN));
        assert!(holder_of(&api.client(), "host").await.starts_with("host_"));
    }
}
