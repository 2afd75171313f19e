//! Which namespaces are the ring's, and what that makes of their objects.

use std::{collections::BTreeSet, convert::Infallible, time::Duration};

use kube::api::ListParams;
use tokio::time::{Instant, sleep};

use super::{rebalance::INCOMPLETE, ring::Ring};
use crate::{
    index::{ResourceId, repair},
    resources::is_namespaces,
};
use ringside_runtime::explain::explain;

/// How soon a list that failed is made again.
const AGAIN: Duration = Duration::from_secs(5);
/// How often labels are looked for in namespaces that are not watched.
const SELDOM: Duration = Duration::from_secs(3600);
/// Namespaces that are relabelled together, as by a policy that is rolled out, are looked at together.
const RELABEL_PAUSE: Duration = Duration::from_millis(500);

/// Watches what the selected namespaces have, and tells the index which these are.
pub(super) async fn follow(ring: &Ring) -> Infallible {
    let mut changes = ring.tools.namespaces.changes();
    let mut selected: Option<BTreeSet<String>> = None;
    // When labels outside of what is watched were looked for, unless something has left since.
    let mut searched: Option<Instant> = None;
    let mut has_left = false;
    loop {
        changes.borrow_and_update();
        let now = ring.selected_namespaces();
        has_left |= selected.as_ref().is_some_and(|before| !before.is_subset(&now));
        tell_index(ring);
        ring.sources.lock().keep(&now);
        let is_cluster = ring.sources.lock().are_of_cluster();
        let gained: Vec<_> = selected.iter().flat_map(|before| now.difference(before)).cloned().collect();
        let mut listed = now.clone();
        // What had no label while it was not the ring's was not kept.
        for namespace in &gained {
            if !list(ring, Some(namespace)).await {
                listed.remove(namespace);
            }
        }
        searched = searched.filter(|at| !std::mem::take(&mut has_left) && at.elapsed() < SELDOM);
        // Labels of before in namespaces that are not watched: after what is waited for.
        if searched.is_none() && !is_cluster && ring.has_listed_what_it_can() {
            searched = list(ring, None).await.then(Instant::now);
            ring.sources.lock().keep(&now);
        }
        let is_done = listed == now && (searched.is_some() || is_cluster) && !ring.sources.lock().are_changing();
        selected = Some(listed);
        tokio::select! {
            // The sender lives in the leader.
            _ = changes.changed() => {
                tell_index(ring);
                // One that is back after the pause has to be listed.
                let now = ring.selected_namespaces();
                has_left |= selected.as_ref().is_some_and(|before| !before.is_subset(&now));
                selected = selected.map(|before| before.intersection(&now).cloned().collect());
                sleep(RELABEL_PAUSE).await;
            }
            () = sleep(if ring.has_listed_what_it_can() { AGAIN } else { INCOMPLETE }), if !is_done => {}
            () = sleep(SELDOM), if is_done && !is_cluster => {}
        }
    }
}

/// Says of each namespace whether it is selected, where the index knows another answer.
fn tell_index(ring: &Ring) {
    let known: Vec<_> = ring
        .index
        .read(|objects| objects.selections().map(|(namespace, selected)| (namespace.to_owned(), selected)).collect());
    let view = ring.judge.view();
    let changed = known.into_iter().filter_map(|(namespace, before)| {
        let now = ring.tools.namespaces.is_selected(&view.namespaces, &namespace);
        (now != before).then_some((namespace, now))
    });
    ring.index.select_each(changed.collect());
}

/// Takes in the objects of a namespace; or those with labels in all namespaces that are not watched. Returns whether all were listed.
async fn list(ring: &Ring, namespace: Option<&str>) -> bool {
    let mut is_whole = true;
    for (at, kind) in ring.kinds.iter().enumerate() {
        let Ok(id) = u8::try_from(at).map(ResourceId) else { break };
        // A Namespace that is selected by now is an object of the ring itself.
        let itself = namespace.filter(|_| is_namespaces(&kind.resource.id)).map(|name| format!("metadata.name={name}"));
        if !kind.resource.namespaced && itself.is_none() {
            continue;
        }
        let source = ring.source(id, namespace);
        let api = kind.resource.objects(ring.client(), namespace);
        let which = match (namespace, itself) {
            (None, _) => outside(ring, id),
            (Some(_), itself) => ListParams { field_selector: itself, ..ListParams::default() },
        };
        if let Err(error) = repair::list(&source, &api, which).await {
            let (of, resource, error) = (&ring.judge.view().ring, &kind.resource.id, explain(&error));
            tracing::warn!(ring = %of, %resource, namespace, error, "can't list objects of a namespace; trying again");
            is_whole = false;
        }
    }
    is_whole
}

/// What has labels of the ring outside of the namespaces that are watched.
fn outside(ring: &Ring, resource: ResourceId) -> ListParams {
    let watched = ring.sources.lock().of(resource, None);
    let namespaces = watched.iter().filter_map(|source| source.scope.namespace());
    let fields: Vec<_> = namespaces.map(|namespace| format!("metadata.namespace!={namespace}")).collect();
    ListParams::default().labels(&ring.labels.shard).fields(&fields.join(","))
}
