//! Locks of elections that are not answered here.

use super::*;

const ENDPOINTS: &str = "/api/v1/namespaces/ns/endpoints/lock";
const WITHIN: Duration = Duration::from_secs(30);

fn kept_by(holder: &str) -> String {
    annotated("7").replace(r#"\"a\""#, &format!(r#"\"{holder}\""#))
}

fn waiting(lab: &Lab) -> Option<String> {
    lab.shared.locks.waits().waiting(WITHIN).map(|it| it.to_string())
}

/// Old releases of client-go elect by Endpoints.
#[tokio::test(start_paused = true)]
async fn a_lock_that_is_read_again_and_again_is_waited_for_while_another_keeps_it() {
    for uri in [ENDPOINTS, "/api/v1/namespaces/other/configmaps/lock", "/apis/y.io/v1/namespaces/ns/elections/lock"] {
        let holder = Arc::new(Mutex::new("other_1".to_owned()));
        let (now, own_kind) = (holder.clone(), uri.contains("y.io"));
        let lab = Lab::new(move |seen| {
            let holder = if seen.body.is_empty() { now.lock().clone() } else { "a uuid".to_owned() };
            let spec = format!(r#"{{"spec":{{"holderIdentity":"{holder}","renewTime":"x"}}}}"#);
            json(full(if own_kind { spec } else { kept_by(&holder) }))
        });
        let read = async || {
            for _ in 0..2 {
                drop(text(lab.get(uri).await).await);
                tokio::time::advance(Duration::from_secs(2)).await;
            }
        };
        read().await;
        let told = waiting(&lab).unwrap();
        assert!(told.contains("/lock, which other_1 holds"), "{told}");
        drop(text(lab.send(write("PUT", uri, kept_by("a uuid"))).await).await);
        assert_eq!(waiting(&lab), None, "it leads by now");
        "a uuid".clone_into(&mut holder.lock());
        read().await;
        assert_eq!(waiting(&lab), None, "{uri}: so it calls itself");
        "third".clone_into(&mut holder.lock());
        read().await;
        assert!(waiting(&lab).is_some());
        lab.send(write("PUT", "/apis/x.io/v1/namespaces/ns/things/a/status", "{}")).await;
        assert_eq!(waiting(&lab), None, "{uri}: it works");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_no_lock_of_another_is_not_waited_for() {
    let no_record = || r#"{"metadata":{"annotations":{"a":"holderIdentity"}}}"#.to_owned();
    for (uri, says) in [
        (ENDPOINTS, kept_by("me_1")),
        (ENDPOINTS, kept_by("ringside-example")),
        (ENDPOINTS, kept_by("")),
        (ENDPOINTS, no_record()),
        ("/api/v1/namespaces/ns/endpoints", kept_by("other")),
        ("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node", record("node", "7")),
        ("/apis/x.io/v1/namespaces/ns/things/a", kept_by("other")),
    ] {
        let lab = Lab::new(move |_| json(full(says.clone())));
        for _ in 0..3 {
            drop(text(lab.get(uri).await).await);
            tokio::time::advance(Duration::from_secs(2)).await;
        }
        assert_eq!(waiting(&lab), None, "{uri}");
    }
}
