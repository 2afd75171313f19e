//! A controller that elects in a namespace of its own choice, as some do in `kube-system`.

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use tokio::time::sleep;

use super::{
    fixture::{Fixture, SERVICE_ACCOUNT},
    life::{Candidate, RING},
    programs::{LEASE, client_go_elsewhere},
};

/// Where it has its lock.
pub(crate) const ELSEWHERE: &str = "kube-system";
const LOCK: &str = "elsewhere-lock";

/// Both shards lead by it, as the proxies are told where it is.
pub(crate) async fn both_lead(fixture: &Fixture) {
    let mut candidates = Vec::new();
    for name in ["elsewhere-0", "elsewhere-1"] {
        let proxy = fixture.shard_of(name, SERVICE_ACCOUNT, &["--election-namespace", ELSEWHERE]).await;
        candidates.push(Candidate::behind(proxy, fixture, name, LOCK, client_go_elsewhere).await);
    }
    for candidate in &candidates {
        candidate.until_said(&["leading"]).await;
    }
    sleep(2 * LEASE).await;
    for candidate in &candidates {
        assert_eq!(candidate.said(), ["leading"]);
    }
    let leases: Api<Lease> = Api::namespaced(fixture.control_plane.client(), ELSEWHERE);
    let holder = leases.get(LOCK).await.unwrap().spec.unwrap().holder_identity;
    assert_eq!(holder.as_deref(), Some(RING));
}
