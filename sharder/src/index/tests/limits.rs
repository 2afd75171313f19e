//! Large families, many shards, gaps among names, and memory.

use super::*;

#[test]
fn large_family_loses_no_child() {
    let (index, ..) = index();
    let root = uuid(0);
    let child = |number: usize| object(("c", &uuid(number)), 1, None, Some(("ConfigMap", &root)));
    let known = || {
        index.read(|objects| {
            let root = objects.find(ROOTS, &root)?;
            let uid = |member: Member| objects.get(member.slot).unwrap().uid().unwrap();
            Some(objects.followers(root.slot).into_iter().map(uid).collect::<BTreeSet<_>>())
        })
    };
    let awaited = || {
        let count = |objects: Objects<'_>| objects.awaited_controllers();
        index.read(count)
    };
    let numbers: BTreeSet<usize> = (1..=200).collect();
    let uids = |numbers: &BTreeSet<usize>| numbers.iter().map(|number| uuid(*number)).collect::<BTreeSet<_>>();
    // Children first: they wait.
    numbers.iter().for_each(|number| show(&index, LEAVES, &child(*number)));
    assert_eq!(awaited(), 1);
    index.apply(ROOTS, &object(("o", &root), 1, None, None));
    assert_eq!((known(), awaited()), (Some(uids(&numbers)), 0));
    let mut rest = numbers;
    for step in [3, 7, 1] {
        for number in rest.clone().into_iter().step_by(step) {
            index.remove(LEAVES, &uuid(number));
            rest.remove(&number);
            assert_eq!(known().unwrap(), uids(&rest));
        }
        // As many again, which pass the bound once more, and the root goes and comes.
        (1..=100).for_each(|number| {
            index.apply(LEAVES, &child(number + 1000 * step));
            rest.insert(number + 1000 * step);
        });
        index.remove(ROOTS, &root);
        assert_eq!(known(), None);
        index.apply(ROOTS, &object(("o", &root), 1, None, None));
        assert_eq!(known().unwrap(), uids(&rest));
    }
}

#[test]
fn shard_values_beyond_the_bound_have_no_name() {
    let (index, ..) = index();
    let shown = |number: usize| object(("o", &uuid(number)), 1, Some(&format!("s{number}")), None);
    let shard = |number: usize| {
        index.read(|objects| {
            let object = objects.find(ROOTS, &uuid(number)).unwrap();
            assert_eq!(object.target().is_none(), object.shard() == Shard::Unnamed);
            match object.shard() {
                Shard::Named(name) => Some(name.to_owned()),
                _ => None,
            }
        })
    };
    (1..=65_600).for_each(|number| show(&index, ROOTS, &shown(number)));
    assert_eq!((shard(65_534), shard(65_535), shard(65_600)), (Some("s65534".to_owned()), None, None));
    assert_eq!(index.read(|objects| objects.by_shard(ROOTS).map(|(_, of)| of.owned).sum::<u32>()), 65_600);
    index.remove(ROOTS, &uuid(7));
    index.apply(ROOTS, &shown(70_000));
    assert_eq!(shard(70_000), Some("s70000".to_owned()));
    index.remove(ROOTS, &uuid(65_600));
    assert_eq!(index.read(|objects| objects.of_shard(ROOTS, "s7")), OfShard::default());
}

#[test]
fn names_take_the_gaps_of_others_and_stay_what_they_are() {
    let (index, ..) = index();
    let name = |number: usize| format!("{number}-{}", "x".repeat(number % 60));
    let shown = |number: usize| object((&name(number), &uuid(number)), 1, Some("a"), None);
    (0..100_000).for_each(|number| show(&index, ROOTS, &shown(number)));
    let rest = |number: &usize| number.is_multiple_of(8);
    (0..100_000).filter(|number| !rest(number)).for_each(|number| index.remove(ROOTS, &uuid(number)));
    let before = index.bytes();
    let check = |number: usize| {
        let is = index.read(|objects| objects.find(ROOTS, &uuid(number)).unwrap().name().to_owned());
        assert_eq!(is, name(number));
    };
    (0..100_000).filter(rest).for_each(check);
    (100_000..150_000).for_each(|number| show(&index, ROOTS, &shown(number)));
    assert!(index.bytes() <= before, "{} bytes more", index.bytes() - before);
    (0..150_000).filter(|number| rest(number) || *number >= 100_000).for_each(check);
}

/// Roots and twice as many children, with names as long as they usually are.
fn fill(index: &Index, roots: usize) {
    let shard = |number: usize| format!("shard-{}", number % 3);
    for number in 0..roots {
        let name = format!("an-object-with-a-name-{number:08}");
        index.apply(ROOTS, &object((&name, &uuid(number)), 1, Some(&shard(number)), None));
        for child in 1..=2 {
            let name = format!("an-object-with-a-name-{number:08}-chi-{child}");
            let (uid, owner) = (uuid(number + child * roots), uuid(number));
            let child = object((&name, &uid), 1, Some(&shard(number)), Some(("ConfigMap", &owner)));
            index.apply(LEAVES, &child);
        }
    }
}

#[test]
fn object_takes_up_at_most_a_hundred_bytes() {
    let (index, ..) = index();
    fill(&index, 100_000);
    let an_object = index.bytes() / 300_000;
    assert!((48..=100).contains(&an_object), "{an_object} bytes an object");
}
