//! A lock that the ring can't renew any more, while a candidate without the sidecar waits for it. From before it runs
//! out nothing is done for the controller, which was told shortly before that it leads; later the other leads, and the
//! shard when that is gone.

use std::time::Duration;

use k8s_openapi::{api::admissionregistration::v1::ValidatingAdmissionPolicyBinding, jiff::Timestamp};
use kube::{
    Api,
    api::{DeleteParams, ListParams},
};
use ringside_e2e::{audit::Requests, eventually::eventually, manifests, website::Website};
use tokio::time::{sleep, timeout};

use super::{
    fixture::{DEADLINE, Fixture, NAMESPACE, USER},
    life::{Candidate, Real},
    programs::{LEASE, client_go},
};

/// Keeps the ring from one lock, and no other client.
const DENIED: &str = "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: no-ring}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
    - apiGroups: [coordination.k8s.io]
      apiVersions: [v1]
      operations: [CREATE, UPDATE]
      resources: [leases]
      resourceNames: [doubt-lock]
  validations:
  - expression: \"!has(object.spec.holderIdentity) || !object.spec.holderIdentity.startsWith('ringside-')\"
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: no-ring}
spec: {policyName: no-ring, validationActions: [Deny]}
";

const SHARD: &str = "doubt";
const LOCK: &str = "doubt-lock";

/// A request that is done takes no longer, also on a machine that does much else; one that is not waits, for as long as the
/// controller may believe that it leads.
const PROMPT: Duration = Duration::from_secs(4);

/// Asks for something as the controller does, until that is not done; returns when the API server got it the last time, and when
/// the ring had renewed its lock the last time.
async fn until_refused(fixture: &Fixture, websites: &Api<Website>, real: &Real) -> (Timestamp, Timestamp) {
    let mut renewed = real.renewed().await;
    let refused = async {
        loop {
            match timeout(PROMPT, websites.list(&ListParams::default())).await {
                Ok(Ok(_)) => renewed = real.renewed().await,
                Ok(Err(kube::Error::Api(status))) if status.code != 503 => panic!("{status:?}"),
                _ => break,
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(2 * DEADLINE, refused).await.expect("the controller is kept from acting");
    let asked = Requests::of(fixture.control_plane.audit_log(), USER).since().unwrap().into_iter();
    let of_controller = asked.filter(|one| {
        one.resource == "websites" && one.pod.as_deref() == Some(SHARD) && !one.agent.starts_with("ringside-proxy/")
    });
    let got = of_controller.map(|one| one.received).max();
    got.zip(renewed).expect("it acted before")
}

pub(crate) async fn is_no_lead(fixture: &Fixture) {
    let (client, real) = (fixture.control_plane.client(), Real::within(fixture, NAMESPACE, LOCK));
    let shard = Candidate::start(fixture, SHARD, LOCK, client_go).await;
    shard.until_said(&["leading"]).await;
    let through = shard.proxy.as_ref().unwrap().client().await.unwrap();
    let websites = Api::<Website>::namespaced(through, NAMESPACE);
    let other = Candidate::start_plain(fixture, "doubt-plain", LOCK, client_go).await;

    manifests::apply(&client, &manifests::parse(DENIED).unwrap()).await.unwrap();
    let (got, renewed) = until_refused(fixture, &websites, &real).await;
    let runs_out = renewed + LEASE;
    assert!(got > renewed, "it was kept from acting right after a renewal");
    assert!(got < runs_out, "it acted {:?} after the lock had run out", got.duration_since(runs_out));

    other.until_said(&["leading"]).await;
    shard.until_said(&["leading", "lost"]).await;
    let again = eventually("it may read while it does not lead", DEADLINE, || async {
        websites.list(&ListParams::default()).await.map(drop).map_err(|error| error.to_string())
    });
    again.await.unwrap();
    assert_eq!(shard.said(), ["leading", "lost"], "the other leads");

    let bindings = Api::<ValidatingAdmissionPolicyBinding>::all(client);
    bindings.delete("no-ring", &DeleteParams::default()).await.unwrap();
    drop(other);
    shard.until_said(&["leading", "lost", "leading"]).await;
    websites.list(&ListParams::default()).await.unwrap();
}
