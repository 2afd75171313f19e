//! Scopes and objects for tests.
#![allow(clippy::unwrap_used)]

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;
use ringside_ring::{ResourceVersion, cluster_ring::GroupResource};

use super::{Fields, Kind, Leaving, Scope, View, Views};
use crate::request::selector::Selector;

pub(crate) fn scope(resource: GroupResource, namespace: Option<&str>) -> Scope {
    let (namespace, version) = (namespace.map(str::to_owned), "v1".to_owned());
    Scope { resource, version, namespace, labels: Selector::default(), fields: Fields::default() }
}

pub(crate) fn at(version: u64) -> ResourceVersion {
    version.to_string().parse().unwrap()
}

/// An object called `a` with the label `tier: front`.
pub(crate) fn leaving(resource: GroupResource, namespace: Option<&str>, version: u64) -> Arc<Leaving> {
    let labels = BTreeMap::from([("tier".to_owned(), "front".to_owned())]);
    let (name, uid, kind) = ("a".to_owned(), format!("uid-{version}"), "Thing".to_owned());
    let (namespace, excused) = (namespace.map(str::to_owned), Mutex::default());
    Arc::new(Leaving { resource, namespace, name, uid, kind, labels, version: at(version), is_exact: true, excused })
}

/// A watch on all of a resource, which has begun.
pub(crate) fn watch(views: &Views, resource: GroupResource, from: Option<u64>) -> View {
    let view = views.open(scope(resource, None), Kind::Watch(from.map(at))).unwrap();
    view.begun().inspect(|missed| view.told(missed));
    view
}
