//! The index against a naive model, and its limits.

#![allow(clippy::unwrap_used)]

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use ringside_ring::RingLabels;
use serde_json::json;

use super::{counts::OfShard, objects::Member, *};
use crate::{lock::Mutex, reconcile::kinds_of, snapshot::tests::resource};

mod limits;
mod random;

pub(super) const ROOTS: ResourceId = ResourceId(0);
pub(super) const LINKS: ResourceId = ResourceId(1);
pub(super) const LEAVES: ResourceId = ResourceId(2);

/// ConfigMaps, Deployments that follow them, and Secrets that follow either, or each other.
pub(super) fn kinds() -> Vec<Kind> {
    let kind = |group: &str, kind: &str, plural: &str, is_root: bool| Kind {
        resource: resource(group, kind, plural),
        is_root,
        is_controlled: !is_root,
        placed_by: PlacedBy::Name,
        controllers: if is_root { Vec::new() } else { vec![ROOTS, LINKS, LEAVES] },
        unserved_groups: vec!["later.example.com".to_owned()],
    };
    vec![
        kind("", "ConfigMap", "configmaps", true),
        kind("apps", "Deployment", "deployments", false),
        kind("", "Secret", "secrets", false),
    ]
}

pub(super) fn labels() -> RingLabels {
    RingLabels::of(&"example".parse().unwrap())
}

/// What an observer was told.
#[derive(Default)]
pub(super) struct Told {
    pub(super) changed: BTreeSet<Slot>,
    pub(super) removed: Vec<Slot>,
    /// Of each attempt at a list or watch whether it failed.
    pub(super) failed: Vec<bool>,
}

pub(super) type Selected = Arc<Mutex<BTreeMap<String, Option<bool>>>>;

impl Observer for Arc<Mutex<Told>> {
    fn changed(&self, objects: Objects<'_>, slot: Slot) {
        assert!(objects.get(slot).is_some(), "what is gone has not changed");
        self.lock().changed.insert(slot);
    }

    fn removed(&self, slot: Slot, _uid: Option<&str>) {
        self.lock().removed.push(slot);
    }

    fn watched(&self, _: ResourceId, error: Option<&kube::Error>) {
        self.lock().failed.push(error.is_some());
    }
}

/// An index, what it tells, and which namespaces are selected; others are.
pub(super) fn index() -> (Arc<Index>, Arc<Mutex<Told>>, Selected) {
    let (told, selected) = (Arc::<Mutex<Told>>::default(), Selected::default());
    let known = Arc::clone(&selected);
    let selection = move |namespace: &str| known.lock().get(namespace).copied().unwrap_or(Some(true));
    (
        Index::new(kinds(), (labels(), Groups::default()), Box::new(selection), Box::new(Arc::clone(&told))),
        told,
        selected,
    )
}

/// Shows an object in a feed.
pub(super) fn show(index: &Index, resource: ResourceId, seen: &ObjectMeta) {
    index.apply(resource, seen);
}

pub(super) fn uuid(number: usize) -> String {
    format!("00000000-0000-4000-8000-{number:012x}")
}

/// The metadata of an object.
pub(super) fn object(
    (name, uid): (&str, &str),
    version: u64,
    shard: Option<&str>,
    controller: Option<(&str, &str)>,
) -> ObjectMeta {
    let mut object = json!({"name": name, "namespace": "n", "uid": uid, "resourceVersion": version.to_string()});
    if let Some(shard) = shard {
        object["labels"] = json!({labels().shard: shard});
    }
    if let Some((kind, uid)) = controller {
        let api_version = if kind == "Deployment" { "apps/v1" } else { "v1" };
        object["ownerReferences"] =
            json!([{"apiVersion": api_version, "kind": kind, "name": "c", "uid": uid, "controller": true}]);
    }
    serde_json::from_value(object).unwrap()
}

#[test]
fn kinds_of_a_ring_name_their_controllers() {
    let kinds = kinds_of(&crate::snapshot::tests::snapshot());
    let said: Vec<_> = kinds.iter().map(|kind| (&*kind.resource.kind, kind.is_root, &*kind.controllers)).collect();
    assert_eq!(said, [("ConfigMap", true, &[][..]), ("Secret", false, &[ResourceId(0), ResourceId(1)][..])]);
}

#[test]
fn write_relies_on_what_was_shown() {
    let (index, ..) = index();
    let mut seen = object(("o", &uuid(1)), 7, Some("a"), None);
    seen.labels.as_mut().unwrap().insert(labels().drain, "d1".into());
    index.apply(ROOTS, &seen);
    let target = index.read(|objects| objects.find(ROOTS, &uuid(1)).unwrap().target()).unwrap();
    assert_eq!(target, crate::target::Target::of(&seen, &labels()));
    // A uid that is none can't be tested by a write.
    index.apply(ROOTS, &object(("p", "uid-1"), 7, None, None));
    assert!(index.read(|objects| objects.find(ROOTS, "uid-1").unwrap().target().is_none()));
}

/// A Secret `s` with these ConfigMaps as owners, of which none controls it.
fn owned_by(version: u64, shard: Option<&str>, owners: &[usize]) -> ObjectMeta {
    let mut seen = object(("s", &uuid(9)), version, shard, None);
    let reference = |number: &usize| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": format!("o-{number}"), "uid": uuid(*number)});
    seen.owner_references = serde_json::from_value(owners.iter().map(reference).collect()).unwrap();
    seen
}

/// Whom the Secret follows; none where it is lone, or not known.
fn followed(index: &Index) -> Option<String> {
    index.read(|objects| match objects.find(LEAVES, &uuid(9))?.role() {
        Role::Child { controller } => objects.get(controller)?.uid(),
        _ => None,
    })
}

#[test]
fn a_child_follows_its_only_owner_of_the_ring_where_none_controls_it() {
    let (index, ..) = index();
    index.apply(ROOTS, &object(("o-1", &uuid(1)), 1, Some("a"), None));
    index.apply(LEAVES, &owned_by(2, None, &[1]));
    assert_eq!(followed(&index), Some(uuid(1)));
    assert_eq!(index.read(|objects| objects.lone(LEAVES).objects()), 0);
}

#[test]
fn what_has_several_owners_gets_no_shard_and_keeps_the_one_that_it_has() {
    let (index, ..) = index();
    for (number, shard) in [(1, "a"), (2, "b")] {
        index.apply(ROOTS, &object((&format!("o-{number}"), &uuid(number)), 1, Some(shard), None));
    }
    index.apply(LEAVES, &owned_by(2, None, &[1, 2]));
    let lone = index.read(|objects| objects.lone(LEAVES));
    assert_eq!((lone.uncontrolled, lone.several, followed(&index)), (1, 1, None));
    assert!(lone.to_string().contains("1 without a controller (1 have several owners of the ring)"), "{lone}");
    // It is on the shard of one of them, as after a restart of the sharder.
    index.apply(LEAVES, &owned_by(3, Some("b"), &[1, 2]));
    assert_eq!(followed(&index), Some(uuid(2)));
    // It moves with the one that it follows: its label changes first.
    index.apply(LEAVES, &owned_by(4, Some("a"), &[1, 2]));
    assert_eq!(followed(&index), Some(uuid(2)));
    // A second reference that is added to the one that it had.
    index.apply(LEAVES, &owned_by(5, Some("a"), &[1]));
    index.apply(LEAVES, &owned_by(6, Some("a"), &[2, 1]));
    assert_eq!(followed(&index), Some(uuid(1)));
    // Neither is on its shard, and it followed neither.
    index.remove(LEAVES, &uuid(9));
    index.apply(LEAVES, &owned_by(7, Some("c"), &[1, 2]));
    assert_eq!(followed(&index), None);
}

#[test]
fn point_is_that_of_the_key() {
    let (index, ..) = index();
    index.apply(ROOTS, &object(("o", &uuid(1)), 7, None, None));
    let point = ringside_ring::PartitionKey::of("", "ConfigMap", "n", "o").point();
    assert_eq!(index.read(|objects| objects.find(ROOTS, &uuid(1)).unwrap().role()), Role::Root { point });
}

#[test]
fn a_root_that_is_placed_by_a_label_moves_with_its_value() {
    let mut kinds = kinds();
    kinds[0].placed_by = PlacedBy::Label("team".to_owned());
    let told = Arc::<Mutex<Told>>::default();
    let index = Index::new(kinds, (labels(), Groups::default()), Box::new(|_| Some(true)), Box::new(Arc::clone(&told)));
    let mut seen = object(("o", &uuid(1)), 7, Some("a"), None);
    let mut point_of = |version: u64, team: Option<&str>| {
        let labels = seen.labels.get_or_insert_default();
        match team {
            Some(team) => drop(labels.insert("team".to_owned(), team.to_owned())),
            None => drop(labels.remove("team")),
        }
        seen.resource_version = Some(version.to_string());
        told.lock().changed.clear();
        index.apply(ROOTS, &seen);
        assert_eq!(told.lock().changed.len(), 1);
        index.read(|objects| match objects.find(ROOTS, &uuid(1)).unwrap().role() {
            Role::Root { point } => point,
            _ => panic!("a root"),
        })
    };
    let usual = ringside_ring::PartitionKey::of("", "ConfigMap", "n", "o").point();
    let (red, blue) = (point_of(7, Some("red")), point_of(8, Some("blue")));
    assert!(red != blue && red != usual);
    assert_eq!((point_of(9, None), point_of(10, Some("red"))), (usual, red));
}

#[test]
fn what_is_shown_late_does_not_bring_back_the_past() {
    let (index, told, _) = index();
    index.apply(ROOTS, &object(("o", &uuid(1)), 7, Some("b"), None));
    told.lock().changed.clear();
    index.apply(ROOTS, &object(("o", &uuid(1)), 6, Some("a"), None));
    let shard = || index.read(|objects| objects.of_shard(ROOTS, "b").owned);
    assert_eq!((shard(), told.lock().changed.len()), (1, 0));
    // The API server's time went back.
    index.went_back(ROOTS, &Scope::Cluster);
    index.apply(ROOTS, &object(("o", &uuid(1)), 6, Some("a"), None));
    assert_eq!((shard(), told.lock().changed.len()), (0, 1));
}

#[test]
fn list_without_news_tells_nothing() {
    let (index, told, _) = index();
    let all = [object(("o", &uuid(1)), 7, Some("a"), None), object(("p", &uuid(2)), 8, None, None)];
    for list in 0..2 {
        index.begin(ROOTS, &Scope::Cluster, Part::All);
        all.iter().for_each(|seen| show(&index, ROOTS, seen));
        index.end(ROOTS, &Scope::Cluster, Part::All);
        assert_eq!(std::mem::take(&mut told.lock().changed).len(), if list == 0 { 2 } else { 0 });
    }
    assert!(told.lock().removed.is_empty());
}

#[test]
fn list_of_unlabelled_objects_spares_the_others() {
    let (index, ..) = index();
    let root = uuid(1);
    index.apply(ROOTS, &object(("o", &root), 1, Some("a"), None));
    index.apply(LEAVES, &object(("labelled", &uuid(2)), 2, Some("a"), Some(("ConfigMap", &root))));
    index.apply(LEAVES, &object(("gone", &uuid(3)), 3, None, Some(("ConfigMap", &root))));
    index.begin(LEAVES, &Scope::Cluster, Part::Unlabelled);
    index.apply(LEAVES, &object(("new", &uuid(4)), 4, None, Some(("ConfigMap", &root))));
    index.end(LEAVES, &Scope::Cluster, Part::Unlabelled);
    let names = index.read(|objects| {
        let family = objects.followers(objects.find(ROOTS, &root).unwrap().slot);
        family.iter().map(|member| objects.get(member.slot).unwrap().name().to_owned()).collect::<BTreeSet<_>>()
    });
    assert_eq!(names, ["labelled".to_owned(), "new".to_owned()].into());
}

#[tokio::test(start_paused = true)]
async fn since_when_the_oldest_unassigned_root_is_so_is_known() {
    let (began, (index, ..)) = (std::time::SystemTime::now(), index());
    let since = || index.read(|objects| objects.unassigned_since(ROOTS));
    let since = || since().map(|since| since.duration_since(began).unwrap().as_secs());
    let wait = || tokio::time::sleep(std::time::Duration::from_secs(10));
    assert_eq!(since(), None);
    wait().await;
    index.apply(ROOTS, &object(("o", &uuid(1)), 1, None, None));
    wait().await;
    // A change that leaves it unassigned is no new beginning.
    index.apply(ROOTS, &object(("o", &uuid(1)), 2, None, None));
    index.apply(ROOTS, &object(("p", &uuid(2)), 3, None, None));
    wait().await;
    assert_eq!(since(), Some(10));
    index.apply(ROOTS, &object(("o", &uuid(1)), 4, Some("a"), None));
    assert_eq!(since(), Some(20));
    index.remove(ROOTS, &uuid(2));
    assert_eq!(since(), None);
}

/// Who knows the uid of an object in another namespace must not be able to add to its family.
#[test]
fn owner_in_another_namespace_is_not_followed() {
    let (index, ..) = index();
    let elsewhere = |mut seen: ObjectMeta| {
        seen.namespace = Some("other".into());
        seen
    };
    let child = |number| object(("c", &uuid(number)), 1, None, Some(("ConfigMap", &uuid(0))));
    let root = || object(("o", &uuid(0)), 1, None, None);
    let family = || {
        index.read(|objects| {
            let root = objects.find(ROOTS, &uuid(0))?;
            Some(objects.followers(root.slot).iter().filter_map(|it| objects.get(it.slot)?.uid()).collect::<Vec<_>>())
        })
    };
    // One of each comes before the root, and one after it.
    index.apply(LEAVES, &elsewhere(child(1)));
    index.apply(LEAVES, &child(2));
    index.apply(ROOTS, &root());
    assert_eq!(family(), Some(vec![uuid(2)]));
    index.apply(LEAVES, &elsewhere(child(3)));
    index.remove(LEAVES, &uuid(2));
    assert_eq!(family(), Some(vec![]));
    let role = index.read(|objects| objects.find(LEAVES, &uuid(3)).unwrap().role());
    assert_eq!(role, Role::Waiting);
    index.remove(ROOTS, &uuid(0));
    index.apply(ROOTS, &elsewhere(root()));
    assert_eq!(family().map(|family| family.len()), Some(2), "it is theirs now");
}

/// An object without namespace follows none that has one, and others follow it from everywhere.
#[test]
fn owner_without_namespace_is_followed_from_every_namespace() {
    let global = |kind: &str, plural: &str| {
        let namespaced = resource("x.io", kind, plural);
        Arc::new(Resource::new(namespaced.id.clone(), namespaced.api(), false))
    };
    let spec = json!({"resources": [
        {"group": "x.io", "resource": "tenants", "controlledResources": [{"group": "", "resource": "secrets"}]},
        {"group": "", "resource": "configmaps", "controlledResources": [{"group": "x.io", "resource": "tenants"}]},
    ]});
    let catalog =
        [global("Tenant", "tenants"), resource("", "ConfigMap", "configmaps"), resource("", "Secret", "secrets")];
    let snapshot = crate::snapshot::tests::with_catalog(&spec, catalog);
    let kinds = kinds_of(&snapshot);
    let id = |plural: &str| {
        let at = kinds.iter().position(|kind| kind.resource.id.resource == plural).unwrap();
        ResourceId(u8::try_from(at).unwrap())
    };
    let (tenants, secrets) = (id("tenants"), id("secrets"));
    assert!(!kinds[usize::from(tenants.0)].controllers.contains(&id("configmaps")));
    let selection = Box::new(|_: &str| Some(true));
    let told = Arc::<Mutex<Told>>::default();
    let index = Index::new(kinds, (labels(), Groups::default()), selection, Box::new(told));
    let tenant = json!({"name": "t", "uid": uuid(0), "resourceVersion": "1", "labels": {labels().shard: "a"}});
    index.apply(tenants, &serde_json::from_value(tenant).unwrap());
    for (number, namespace) in [(1, "n"), (2, "other")] {
        let mut child = object(("c", &uuid(number)), 1, None, Some(("Tenant", &uuid(0))));
        child.namespace = Some(namespace.into());
        child.owner_references.as_mut().unwrap()[0].api_version = "x.io/v1".into();
        index.apply(secrets, &child);
    }
    let followers = index.read(|objects| objects.followers(objects.find(tenants, &uuid(0)).unwrap().slot).len());
    assert_eq!(followers, 2);
}

/// As the API server has it for webhooks and policies.
#[test]
fn namespace_is_selected_by_its_own_labels() {
    let namespaces = resource("", "Namespace", "namespaces");
    let kind = Kind {
        resource: Arc::new(Resource::new(namespaces.id.clone(), namespaces.api(), false)),
        ..kinds().swap_remove(0)
    };
    let selection = Box::new(|name: &str| Some(name != "kube-system"));
    let told = Arc::<Mutex<Told>>::default();
    let index = Index::new(vec![kind], (labels(), Groups::default()), selection, Box::new(told));
    let show = |name: &str, number, shard: Option<&str>| {
        let seen = object((name, &uuid(number)), number as u64, shard, None);
        index.apply(ROOTS, &ObjectMeta { namespace: None, ..seen })
    };
    assert!(show("team", 1, None) && !show("kube-system", 2, None), "it has nothing to be labelled for");
    assert!(show("kube-system", 3, Some("a")));
    let told = |number| {
        index.read(|objects| {
            let object = objects.find(ROOTS, &uuid(number)).unwrap();
            (object.selected(), object.namespace().to_owned(), object.target().unwrap().namespace)
        })
    };
    assert_eq!(told(1), (super::objects::Selected::Yes, String::new(), None));
    assert_eq!(told(3), (super::objects::Selected::No, String::new(), None), "its label has to be removed");
    index.select("team", Some(false));
    assert!(index.read(|objects| objects.find(ROOTS, &uuid(1)).is_none()));
}
