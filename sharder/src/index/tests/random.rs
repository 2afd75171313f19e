//! Random histories of objects, against a naive model.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const OBJECTS: usize = 24;
const NAMESPACES: [&str; 3] = ["always", "sometimes", "perhaps"];
const SHARDS: [&str; 3] = ["a", "b", ""];

/// What happens.
#[derive(Clone, Debug)]
enum Event {
    Put {
        number: usize,
        shard: Option<usize>,
        drain: Option<u8>,
        controller: Option<usize>,
    },
    Delete {
        number: usize,
    },
    /// These go unseen, and then there is a list of all, or of one namespace.
    Relist {
        gone: Vec<usize>,
        namespace: Option<usize>,
    },
    Select {
        namespace: usize,
        selected: Option<bool>,
    },
}

fn event() -> impl Strategy<Value = Event> {
    let number = || 0..OBJECTS;
    // One beyond all objects is foreign.
    let put = (number(), prop::option::of(0..SHARDS.len()), prop::option::weighted(0.2, 0..2_u8))
        .prop_flat_map(|(number, shard, drain)| (Just((number, shard, drain)), prop::option::of(0..=OBJECTS)));
    prop_oneof![
        8 => put.prop_map(|((number, shard, drain), controller)| Event::Put { number, shard, drain, controller }),
        2 => number().prop_map(|number| Event::Delete { number }),
        1 => (prop::collection::vec(number(), 0..6), prop::option::of(0..NAMESPACES.len()))
            .prop_map(|(gone, namespace)| Event::Relist { gone, namespace }),
        1 => (0..NAMESPACES.len(), any::<Option<bool>>())
            .prop_map(|(namespace, selected)| Event::Select { namespace, selected }),
    ]
}

fn resource_of(number: usize) -> ResourceId {
    ResourceId(u8::try_from(number % 3).unwrap())
}

fn namespace_of(number: usize) -> usize {
    number / 3 % NAMESPACES.len()
}

fn uid_of(number: usize) -> String {
    if number % 5 == 4 { format!("uid-{number}") } else { uuid(number) }
}

/// An object as it exists.
#[derive(Clone, Debug, PartialEq)]
struct Existing {
    version: u64,
    shard: Option<usize>,
    drain: Option<u8>,
    controller: Option<usize>,
}

impl Existing {
    fn metadata(&self, number: usize) -> ObjectMeta {
        let kind = |controller: usize| match controller {
            OBJECTS => "Foreign",
            of => ["ConfigMap", "Deployment", "Secret"][of % 3],
        };
        let controller = self.controller.map(|controller| (kind(controller), uid_of(controller)));
        let controller = controller.as_ref().map(|(kind, uid)| (*kind, &**uid));
        let shard = self.shard.map(|shard| SHARDS[shard]);
        let name = format!("o{}", "-long".repeat(number));
        let mut metadata = object((&name, &uid_of(number)), self.version, shard, controller);
        metadata.namespace = Some(NAMESPACES[namespace_of(number)].to_owned());
        if let Some(drain) = self.drain {
            metadata.labels.get_or_insert_default().insert(labels().drain, format!("d{drain}"));
        }
        metadata
    }
}

#[derive(Default)]
struct Model {
    objects: BTreeMap<usize, Existing>,
    selected: BTreeMap<usize, Option<bool>>,
    version: u64,
}

impl Model {
    fn is_root(number: usize) -> bool {
        resource_of(number) == ROOTS
    }

    fn is_lone(&self, number: usize) -> bool {
        !Self::is_root(number) && self.objects[&number].controller.is_none_or(|controller| controller == OBJECTS)
    }

    fn is_labelled(&self, number: usize) -> bool {
        self.objects[&number].shard.is_some() || self.objects[&number].drain.is_some()
    }

    fn is_excluded(&self, number: usize) -> bool {
        self.selected.get(&namespace_of(number)) == Some(&Some(false))
    }

    fn is_kept(&self, number: usize) -> bool {
        self.objects.contains_key(&number)
            && (self.is_labelled(number) || !self.is_lone(number) && !self.is_excluded(number))
    }

    /// The controller that a child has, known or not.
    fn controller(&self, number: usize) -> Option<usize> {
        self.objects[&number].controller.filter(|_| !Self::is_root(number) && !self.is_lone(number))
    }

    /// Whether a controller is known in the namespace of its child.
    fn is_followed(&self, controller: usize, child: usize) -> bool {
        self.is_kept(controller) && namespace_of(controller) == namespace_of(child)
    }

    fn root(&self, number: usize) -> Option<usize> {
        let mut next = number;
        for _ in 0..OBJECTS {
            match self.controller(next) {
                Some(controller) if self.is_followed(controller, next) => next = controller,
                Some(_) => return None,
                None => return Self::is_root(next).then_some(next),
            }
        }
        None
    }

    /// Those that follow a root, with all that counts of them.
    fn family(&self, root: usize) -> BTreeMap<usize, Existing> {
        let kept = self.objects.keys().filter(|number| self.is_kept(**number));
        kept.filter(|number| self.root(**number) == Some(root))
            .map(|number| (*number, self.objects[number].clone()))
            .collect()
    }

    fn families(&self) -> BTreeMap<usize, BTreeMap<usize, Existing>> {
        let roots = self.objects.keys().filter(|number| Self::is_root(**number) && self.is_kept(**number));
        roots.map(|root| (*root, self.family(*root))).collect()
    }
}

/// Carries out an event in both.
fn happen(model: &mut Model, index: &Index, selected: &Selected, event: &Event) {
    model.version += 1;
    let list = |model: &Model, scope: &Scope| {
        for resource in [ROOTS, LINKS, LEAVES] {
            index.begin(resource, scope, Part::All);
            let of_scope = |number: usize| scope.namespace().is_none_or(|of| of == NAMESPACES[namespace_of(number)]);
            for (number, existing) in model.objects.iter().filter(|(number, _)| of_scope(**number)) {
                if resource_of(*number) == resource {
                    index.apply(resource, &existing.metadata(*number));
                }
            }
            index.end(resource, scope, Part::All);
        }
    };
    let scope = |namespace: usize| Scope::Namespace(NAMESPACES[namespace].into());
    match event.clone() {
        Event::Put { number, shard, drain, controller } => {
            let existing = Existing { version: model.version, shard, drain, controller };
            let kept = index.apply(resource_of(number), &existing.metadata(number));
            model.objects.insert(number, existing);
            assert_eq!(kept, model.is_kept(number));
        }
        Event::Delete { number } => {
            if model.objects.remove(&number).is_some() {
                index.remove(resource_of(number), &uid_of(number));
            }
        }
        Event::Relist { gone, namespace } => {
            let of_scope = |number: &usize| namespace.is_none_or(|of| of == namespace_of(*number));
            for number in gone.iter().filter(|number| of_scope(number)) {
                model.objects.remove(number);
            }
            list(model, &namespace.map_or(Scope::Cluster, scope));
        }
        Event::Select { namespace, selected: now } => {
            model.selected.insert(namespace, now);
            selected.lock().insert(NAMESPACES[namespace].to_owned(), now);
            index.select(NAMESPACES[namespace], now);
            list(model, &scope(namespace));
        }
    }
}

/// Compares all that can be asked.
fn compare(model: &Model, objects: Objects<'_>) {
    let slot = |number: usize| objects.find(resource_of(number), &uid_of(number)).map(|object| object.slot);
    let mut drains = BTreeSet::new();
    let mut awaited = BTreeSet::new();
    for number in 0..OBJECTS {
        assert_eq!(slot(number).is_some(), model.is_kept(number), "object {number}");
        let Some(known) = slot(number).and_then(|slot| objects.get(slot)) else { continue };
        let (existing, expected) = (&model.objects[&number], model.objects[&number].metadata(number));
        assert_eq!((known.version(), Some(known.name())), (existing.version, expected.name.as_deref()));
        assert_eq!(Some(known.namespace()), expected.namespace.as_deref());
        assert_eq!(known.shard(), existing.shard.map_or(Shard::Unassigned, |shard| Shard::Named(SHARDS[shard])));
        let drain = existing.drain.map(|drain| format!("d{drain}"));
        assert_eq!(known.drain().map(|drain| &*drain.value), drain.as_deref());
        drains.extend(drain.map(|_| known.slot));
        let selected = model.selected.get(&namespace_of(number)).copied().unwrap_or(Some(true));
        let said = match known.selected() {
            super::super::Selected::Yes => Some(true),
            super::super::Selected::No => Some(false),
            super::super::Selected::Unknown => None,
        };
        assert_eq!(said, selected);
        match (known.role(), model.controller(number)) {
            (Role::Root { .. }, None) => assert!(Model::is_root(number)),
            (Role::Lone { certain }, None) => assert!(certain && model.is_lone(number)),
            (Role::Child { controller }, Some(expected)) => {
                assert_eq!(Some(controller), slot(expected));
                assert!(model.is_followed(expected, number));
            }
            (Role::Waiting, Some(expected)) => {
                assert!(!model.is_followed(expected, number));
                awaited.insert((expected, namespace_of(number)));
            }
            other => panic!("object {number}: {other:?}"),
        }
        // A chain that is longer than any is of no family.
        let root = model.root(number).and_then(slot);
        assert!(objects.root(known.slot) == root || objects.root(known.slot).is_none());
    }
    assert_eq!(objects.drains().map(|(slot, _)| slot).collect::<BTreeSet<_>>(), drains);
    assert_eq!(objects.awaited_controllers(), awaited.len());
    for (root, family) in model.families() {
        let followers = objects.followers(slot(root).unwrap());
        assert!(followers.is_sorted_by(|earlier, later| earlier.distance >= later.distance));
        let followers: BTreeSet<_> = followers.into_iter().map(|member| member.slot).collect();
        let near = |number: &usize| objects.root(slot(*number).unwrap()).is_some();
        let expected =
            family.keys().filter(|number| **number != root && near(number)).map(|number| slot(*number).unwrap());
        assert_eq!(followers, expected.collect());
    }
}

/// Compares the counters.
fn count(model: &Model, objects: Objects<'_>) {
    for resource in [ROOTS, LINKS, LEAVES] {
        let of = || model.objects.iter().filter(move |(number, _)| resource_of(**number) == resource);
        let counted = || of().filter(|(number, _)| model.is_kept(**number) && !model.is_lone(**number));
        for (number, shard) in SHARDS.iter().enumerate() {
            let of_shard = counted().filter(|(_, it)| it.shard == Some(number));
            let (draining, owned): (Vec<_>, Vec<_>) = of_shard.partition(|(_, it)| it.drain.is_some());
            let expected = (owned.len(), draining.len());
            let of_shard = objects.of_shard(resource, shard);
            assert_eq!((of_shard.owned as usize, of_shard.draining as usize), expected);
            let listed = objects.by_shard(resource).find(|(named, _)| *named == Shard::Named(shard));
            assert_eq!(listed.map(|(_, of)| of).unwrap_or_default(), of_shard);
        }
        let unassigned = counted().filter(|(_, it)| it.shard.is_none()).count();
        assert_eq!(objects.unassigned(resource) as usize, unassigned);
        let has_unassigned_roots = resource == ROOTS && unassigned > 0;
        assert_eq!(objects.unassigned_since(resource).is_some(), has_unassigned_roots);
        let is_lone =
            |number: usize| model.is_lone(number) && (model.is_labelled(number) || !model.is_excluded(number));
        let lone = of().filter(|(number, _)| is_lone(**number)).count();
        assert_eq!(usize::try_from(objects.lone(resource).objects()), Ok(lone));
        assert_eq!(objects.len(resource), of().filter(|(number, _)| model.is_kept(**number)).count());
        let roots = if resource == ROOTS { objects.len(resource) } else { 0 };
        assert_eq!(objects.roots(resource).count(), roots);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn index_equals_the_naive_model(events in prop::collection::vec(event(), 1..60)) {
        let (mut model, (index, told, selected)) = (Model::default(), index());
        for event in &events {
            let before = model.families();
            told.lock().changed.clear();
            told.lock().removed.clear();
            happen(&mut model, &index, &selected, event);
            index.read(|objects| compare(&model, objects));
            index.read(|objects| count(&model, objects));
            let mut seen = 0;
            index.walk(|_| seen += 1);
            prop_assert_eq!(seen, (0..OBJECTS).filter(|number| model.is_kept(*number)).count());
            // Who decides by what is told misses no family that changed and is apart.
            for (root, family) in model.families() {
                let slot = index.read(|objects| objects.find(ROOTS, &uid_of(root)).unwrap().slot);
                let is_told = told.lock().changed.contains(&slot);
                let before = before.get(&root);
                let mut news = family.iter().filter(|(number, it)| before.and_then(|of| of.get(number)) != Some(it));
                let is_with = |it: &Existing| it.shard == family[&root].shard && it.drain.is_none();
                let is_whole = news.all(|(number, it)| *number != root && is_with(it));
                prop_assert!(is_told || is_whole, "{} after {:?}", root, event);
            }
        }
    }
}
