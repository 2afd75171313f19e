//! Whether what the webhook labels comes to be. A policy may refuse the labels of new objects alone, and says so only to their creator.
//!
//! Each replica looks for some of the objects that it labelled itself, a while after their review. It can't know why one is missing:
//! so several in a row are told, with the policies that judge them.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use kube::{Api, Client, ResourceExt as _, api::ListParams};
use ringside_ring::{RingName, cluster_ring::GroupResource};
use tokio::time::{Instant, sleep};

use crate::{belonging::MANAGED, lock::Mutex, resources::Resource};

/// How long after its review an object is looked for.
const AFTER: Duration = Duration::from_secs(3);
/// How seldom that is done while they come to be.
const PAUSE: Duration = Duration::from_secs(30);
/// Looks for objects of one resource at once.
const PARALLEL: usize = 4;
/// Objects in a row that have to be missing until people are told: one may be deleted, or refused for itself.
const MISSING: usize = 3;
/// After how long without another one they are not told any more.
const OVER: Duration = Duration::from_secs(600);

/// What is known of the objects of one resource.
#[derive(Default)]
struct Looks {
    under_way: usize,
    /// When the next look may begin.
    next: Option<Instant>,
    /// How many are missing in a row, one of them, and since when no more have been found to be.
    missing: usize,
    example: String,
    last: Option<Instant>,
    /// The policies that judge them.
    policies: Vec<String>,
}

/// The objects that were labelled and may not have been created; clones share them.
#[derive(Clone, Default)]
pub(crate) struct Creates(Arc<Mutex<BTreeMap<(RingName, GroupResource), Looks>>>);

impl Creates {
    /// The webhook labelled an object of this name, which is about to be created.
    pub(super) fn labelled(
        &self,
        client: &Client,
        (ring, resource): (&RingName, &Arc<Resource>),
        (namespace, name): (Option<&str>, &str),
    ) {
        let key = (ring.clone(), resource.id.clone());
        {
            let looks = &mut *self.0.lock();
            let looks = looks.entry(key.clone()).or_default();
            let is_early = looks.next.is_some_and(|next| Instant::now() < next);
            if is_early || looks.under_way >= PARALLEL {
                return;
            }
            looks.under_way += 1;
        }
        let (this, client, resource) = (self.clone(), client.clone(), resource.clone());
        let (namespace, name) = (namespace.map(str::to_owned), name.to_owned());
        tokio::spawn(async move {
            sleep(AFTER).await;
            let found = resource.objects(&client, namespace.as_deref()).get_opt(&name).await;
            let place = namespace.map_or(name.clone(), |namespace| format!("{namespace}/{name}"));
            let policies = match &found {
                Ok(None) => judging(&client, &resource.id).await,
                _ => Vec::new(),
            };
            this.looked(&key, place, found.map(|found| found.is_some()).ok(), policies);
        });
    }

    /// An object was found, or not; none: that is unknown.
    fn looked(&self, key: &(RingName, GroupResource), place: String, found: Option<bool>, policies: Vec<String>) {
        let all = &mut *self.0.lock();
        let looks = all.entry(key.clone()).or_default();
        let (now, under_way) = (Instant::now(), looks.under_way.saturating_sub(1));
        *looks = match found {
            Some(true) => Looks { next: Some(now + PAUSE), ..Looks::default() },
            Some(false) => {
                Looks { missing: looks.missing + 1, example: place, last: Some(now), policies, ..Looks::default() }
            }
            None => std::mem::take(looks),
        };
        looks.under_way = under_way;
    }

    /// The resources of a ring whose labelled objects do not come to be, as sentences.
    pub(crate) fn faults(&self, ring: &RingName) -> Vec<String> {
        let all = self.0.lock();
        let told = all.iter().filter(|((of, _), looks)| {
            let is_recent = looks.last.is_some_and(|last| last.elapsed() < OVER);
            of == ring && looks.missing >= MISSING && is_recent
        });
        let sentence = |((_, resource), looks): (&(RingName, GroupResource), &Looks)| {
            let judged = match looks.policies.is_empty() {
                true => String::new(),
                false => format!("; these policies judge them: {}", looks.policies.join("; ")),
            };
            format!(
                "new objects of '{resource}' are not there after the webhook labelled them, {} in a row, such as '{}': the answer to \
                 their creator says why, and a policy has to admit the ring's labels{judged}",
                looks.missing, looks.example
            )
        };
        told.map(sentence).collect()
    }
}

/// The policies of others that judge new objects of a resource, each with its first message.
async fn judging(client: &Client, resource: &GroupResource) -> Vec<String> {
    let others = ListParams::default().labels(&format!("{}!={}", MANAGED.0, MANAGED.1));
    // Without the right to list them, or on an older API server, none is named.
    let Ok(policies) = Api::<ValidatingAdmissionPolicy>::all(client.clone()).list(&others).await else {
        return Vec::new();
    };
    let names = |list: &Option<Vec<String>>, name: &str| list.iter().flatten().any(|it| it == "*" || it == name);
    let judges = |policy: &ValidatingAdmissionPolicy| {
        let constraints = policy.spec.as_ref().and_then(|spec| spec.match_constraints.as_ref());
        constraints.and_then(|constraints| constraints.resource_rules.as_ref()).into_iter().flatten().any(|rule| {
            names(&rule.operations, "CREATE")
                && names(&rule.api_groups, &resource.group)
                && names(&rule.resources, &resource.resource)
        })
    };
    let told = policies.items.iter().filter(|policy| judges(policy)).map(|policy| {
        let validations = policy.spec.as_ref().and_then(|spec| spec.validations.as_ref()).into_iter().flatten();
        let message = validations.filter_map(|validation| validation.message.as_deref()).next();
        message.map_or_else(|| policy.name_any(), |message| format!("{} ({message})", policy.name_any()))
    });
    told.collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;
    use crate::{fixtures::FakeApi, snapshot::tests::resource};

    #[tokio::test(start_paused = true)]
    async fn objects_that_are_not_created_are_told_with_the_policies_that_judge_them() {
        let (api, creates, ring) = (FakeApi::default(), Creates::default(), "example".parse::<RingName>().unwrap());
        let config_maps = resource("", "ConfigMap", "configmaps");
        let rule =
            json!({"apiGroups": [""], "operations": ["CREATE"], "resources": ["configmaps"], "apiVersions": ["*"]});
        for (name, rules) in [("house-labels", vec![rule]), ("other", vec![])] {
            api.put(
                &format!("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/{name}"),
                json!({"metadata": {"name": name}, "spec": {"matchConstraints": {"resourceRules": rules},
                    "validations": [{"expression": "false", "message": "only app and team are allowed"}]}}),
            );
        }
        let labelled = |name: &str| {
            creates.labelled(&api.client(), (&ring, &config_maps), (Some("default"), name));
            sleep(2 * AFTER)
        };
        labelled("one").await;
        labelled("two").await;
        assert_eq!(creates.faults(&ring), [""; 0], "they may be refused for themselves");
        labelled("three").await;
        let told = creates.faults(&ring).join("");
        for part in ["'configmaps'", "3 in a row", "'default/three'", "house-labels (only app and team are allowed)"] {
            assert!(told.contains(part), "{told}");
        }
        assert!(!told.contains("other ("));
        api.put("/api/v1/namespaces/default/configmaps/four", json!({"metadata": {"name": "four"}}));
        labelled("four").await;
        assert_eq!(creates.faults(&ring), [""; 0]);
        let asked = api.asked().len();
        labelled("five").await;
        assert_eq!(api.asked().len(), asked, "not each is looked for");
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_told_of_what_nobody_could_look_for_or_of_long_ago() {
        let (api, creates, ring) = (FakeApi::default(), Creates::default(), "example".parse::<RingName>().unwrap());
        let config_maps = resource("", "ConfigMap", "configmaps");
        let labelled = async || {
            creates.labelled(&api.client(), (&ring, &config_maps), (Some("default"), "o"));
            sleep(2 * AFTER).await;
        };
        api.is_away(true);
        for _ in 0..MISSING {
            labelled().await;
        }
        assert_eq!(creates.faults(&ring), [""; 0]);
        api.is_away(false);
        for _ in 0..MISSING {
            labelled().await;
        }
        assert_eq!(creates.faults(&ring).len(), 1);
        sleep(OVER).await;
        assert_eq!(creates.faults(&ring), [""; 0]);
    }
}
