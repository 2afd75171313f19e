//! Scopes and objects for tests.
#![allow(clippy::unwrap_used)]

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use ringside_ring::{ResourceVersion, cluster_ring::GroupResource};

use super::{DrainingObject, Fields, Kind, Scope, View, Views};
use crate::request::selector::Selector;

pub(crate) fn scope(resource: GroupResource, namespace: Option<&str>) -> Scope {
    let (namespace, version) = (namespace.map(str::to_owned), "v1".to_owned());
    Scope { resource, version, namespace, labels: Selector::default(), fields: Fields::default() }
}

pub(crate) fn at(version: u64) -> ResourceVersion {
    version.to_string().parse().unwrap()
}

/// An object called `a` with the label `tier: front`.
pub(crate) fn drained(resource: GroupResource, namespace: Option<&str>, version: u64) -> DrainingObject {
    DrainingObject {
        resource,
        namespace: namespace.map(str::to_owned),
        name: "a".to_owned(),
        uid: format!("uid-{version}").into(),
        kind: "Thing".to_owned(),
        drain: "m1".to_owned(),
        labels: BTreeMap::from([("tier".to_owned(), "front".to_owned())]),
        version: at(version),
        is_exact: true,
        proved_not_shown: Mutex::default(),
    }
}

/// A drained object in an [`Arc`].
pub(crate) fn leaving(resource: GroupResource, namespace: Option<&str>, version: u64) -> Arc<DrainingObject> {
    Arc::new(drained(resource, namespace, version))
}

/// A watch on all of a resource, which has begun.
pub(crate) fn watch(views: &Views, resource: GroupResource, from: Option<u64>) -> View {
    let view = views.open(scope(resource, None), Kind::Watch(from.map(at))).unwrap();
    view.begun().inspect(|missed| view.mark_notified(missed));
    view
}
