//! All that comes of what happens to a watch, in order.
#![allow(clippy::unwrap_used)]

use std::{collections::BTreeMap, time::Duration};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::{body::BoxError, views::fixtures::at};

const ADDED: &str = "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"resourceVersion\":\"11\"}}}\n";
const ASSIGNED: &str =
    "{\"type\":\"ADDED\",\"object\":{\"metadata\":{\"managedFields\":[{\"manager\":\"ringside-sharder\"}]}}}\n";
const MODIFIED: &str = "{\"type\":\"MODIFIED\",\"object\":{}}\n";
const DELETED: &str = "{\"type\":\"DELETED\",\"object\":{\"metadata\":{\"resourceVersion\":\"12\"}}}\n";
const BOOKMARK: &str = "{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"12\"}}}\n";
const TOO_OLD: &str = "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"code\":410}}\n";
const GONE: &str = "send 410";
const IN_ORDER: &str = "End(InOrder)";
const HALF: &str = "End(HalfAnEvent)";

/// Of a main resource of the ring that has children.
fn of_the_ring() -> Traits {
    Traits {
        is_of_ring: true,
        is_websocket: false,
        waits_for_children: true,
        reopens: true,
        marks: false,
        without_lease: EventSet::DeletedOnly,
        form: Form::Object,
        until: Instant::now() + Duration::from_secs(60),
    }
}

/// Of what controllers have beside the ring.
fn outside() -> Traits {
    Traits {
        is_of_ring: false,
        waits_for_children: false,
        reopens: false,
        without_lease: EventSet::Nothing,
        ..of_the_ring()
    }
}

/// Of what objects control.
fn of_children() -> Traits {
    Traits { is_of_ring: true, ..outside() }
}

/// A watch in JSON from 5, without bookmarks.
fn watch(traits: Traits) -> WatchStream {
    let position = traits.is_of_ring.then(|| at(5));
    WatchStream::new(Frames::json(), position, false, traits)
}

fn bytes(text: &'static str) -> Input {
    Input::Bytes(Bytes::from_static(text.as_bytes()))
}

fn reopened(from: u64, has_gap: bool) -> Input {
    Input::Reopened(Reopened { frames: Frames::json(), from: at(from), has_gap })
}

fn gone() -> Input {
    Input::UpstreamEnded(Some(BoxError::from("gone").into()))
}

fn left(name: &str) -> Input {
    Input::Left(Deleted {
        api_version: "x.io/v1".into(),
        kind: "Thing".into(),
        namespace: None,
        name: name.into(),
        uid: "u".into(),
        labels: BTreeMap::new(),
        resource_version: "40".into(),
        whole: None,
    })
}

/// What has to be done, for people.
fn told(effect: Effect) -> String {
    match effect {
        Effect::Send(bytes) => {
            let event: Result<Value, _> = serde_json::from_slice(&bytes);
            let Ok(event) = event else { return format!("send {}", String::from_utf8_lossy(&bytes)) };
            match (&event["type"], &event["object"]["metadata"]["name"]) {
                (kind, _) if kind == "ERROR" => format!("send {}", event["object"]["code"]),
                (kind, Value::String(name)) => format!("send {} {name}", kind.as_str().unwrap()),
                (kind, _) => format!("send {}", kind.as_str().unwrap()),
            }
        }
        Effect::Advance(to) => format!("advance to {to}"),
        Effect::Reopen(Position { at, is_old, .. }) => format!("reopen at {at}{}", if is_old { ", old" } else { "" }),
        Effect::FindOut(Position { at, .. }) => format!("find out since {at}"),
        other => format!("{other:?}"),
    }
}

/// Each input, with all that has to come of it.
fn expect(traits: Traits, steps: Vec<(Input, &[&str])>) {
    let mut stream = watch(traits);
    let mut happened = Vec::new();
    for (input, expected) in steps {
        happened.push(format!("{input:?}"));
        let mut out = Effects::new();
        stream.step(input, Instant::now(), &mut out);
        assert_eq!(out.into_iter().map(told).collect::<Vec<_>>(), expected, "after {happened:#?}");
    }
}

#[test]
fn what_passes_is_the_clients_and_what_it_proves_comes_behind_it() {
    let (first, second) = DELETED.split_at(40);
    let half = format!("send {first}");
    let rest = format!("send {second}");
    expect(
        of_the_ring(),
        vec![
            (bytes(ADDED), &["send ADDED"]),
            (bytes(first), &[&half]),
            (bytes(second), &[&rest, "advance to 12"]),
            (bytes(BOOKMARK), &["advance to 12"]),
        ],
    );
}

#[test]
fn without_the_lease_what_leaves_passes_and_the_client_has_to_list_then() {
    expect(
        of_the_ring(),
        vec![
            (Input::AdmissionOver, &[]),
            (bytes(ADDED), &[]),
            (bytes(MODIFIED), &[]),
            (bytes(BOOKMARK), &[]),
            (bytes(DELETED), &["send DELETED", "advance to 12"]),
            (Input::Regained, &["BreakOff", GONE, IN_ORDER]),
            (bytes(DELETED), &[]),
        ],
    );
}

#[test]
fn the_rest_of_an_event_is_waited_for() {
    let (first, second) = ADDED.split_at(40);
    let (half, rest) = (format!("send {first}"), format!("send {second}"));
    let half = [half.as_str()];
    let begun = || vec![(bytes(first), &half[..]), (Input::AdmissionOver, &["WaitForRest"])];
    let ends = |end: Vec<(Input, &[&str])>| {
        let mut steps = begun();
        steps.extend(end);
        expect(of_the_ring(), steps);
    };
    ends(vec![(bytes(second), &[&rest]), (Input::RestOverdue, &[]), (bytes(ADDED), &[])]);
    ends(vec![(Input::RestOverdue, &["BreakOff", HALF])]);
    ends(vec![(Input::Regained, &["BreakOff", HALF])]);
}

#[test]
fn what_is_no_main_resource_says_nothing_without_the_lease() {
    let over = (Input::AdmissionOver, &["BreakOff", "CloseView", "StopReading"][..]);
    expect(of_children(), vec![over, (Input::Regained, &["BreakOff", GONE, IN_ORDER])]);
    let over = (Input::AdmissionOver, &["BreakOff", "CloseView", "StopReading"][..]);
    expect(outside(), vec![over, (Input::Regained, &["BreakOff", IN_ORDER])]);
    // By WebSocket the end of the watch comes among its bytes.
    let by_websocket = || Traits { is_websocket: true, ..of_children() };
    expect(by_websocket(), vec![(Input::AdmissionOver, &["BreakOff", "CloseView"]), (bytes(DELETED), &[])]);
}

#[test]
fn what_comes_from_another_shard_waits_and_so_does_what_is_behind_it() {
    expect(
        of_the_ring(),
        vec![
            (bytes(ASSIGNED), &["AskAboutChildren"]),
            (bytes(DELETED), &[]),
            (Input::ChildrenShown, &[]),
            (Input::NextHeld, &["send ADDED"]),
            (Input::NextHeld, &["send DELETED", "advance to 12"]),
            (bytes(ASSIGNED), &["AskAboutChildren"]),
            (bytes(ASSIGNED), &[]),
            (bytes(ASSIGNED), &[]),
            (Input::UpstreamEnded(None), &[]),
            (Input::ChildrenShown, &[]),
            (Input::NextHeld, &["AskAboutChildren", "send ADDED"]),
            (Input::ChildrenShown, &[]),
            (Input::NextHeld, &["send ADDED"]),
            (Input::NextHeld, &["send ADDED", "BreakOffUnlessEnded", IN_ORDER]),
        ],
    );
}

#[test]
fn what_waits_is_dropped_without_the_lease() {
    let (first, second) = ASSIGNED.split_at(40);
    let half = format!("send {first}");
    for held in [ASSIGNED, DELETED, first] {
        expect(
            of_the_ring(),
            vec![
                (bytes(ASSIGNED), &["AskAboutChildren"]),
                (bytes(held), &[]),
                (Input::AdmissionOver, &["StopReading", "reopen at 5"]),
                (Input::ChildrenShown, &[]),
                (reopened(5, false), &[]),
                (bytes(DELETED), &["send DELETED", "advance to 12"]),
            ],
        );
    }
    expect(
        of_the_ring(),
        vec![(bytes(first), &[&half]), (bytes(second), &["AskAboutChildren"]), (Input::AdmissionOver, &[HALF])],
    );
}

#[test]
fn what_waits_is_dropped_where_the_watch_ends() {
    for (end, expected) in [
        (End::RingChanged, &["BreakOff", GONE, IN_ORDER][..]),
        (End::Unplaced, &["BreakOff", GONE, IN_ORDER]),
        (End::Closing, &[IN_ORDER]),
    ] {
        expect(of_the_ring(), vec![(bytes(ASSIGNED), &["AskAboutChildren"]), (Input::End(end), expected)]);
        expect(of_the_ring(), vec![(Input::End(end), expected)]);
    }
}

#[test]
fn without_the_lease_it_is_asked_for_again_from_where_it_has_come() {
    expect(
        of_the_ring(),
        vec![
            (bytes(DELETED), &["send DELETED", "advance to 12"]),
            (Input::AdmissionOver, &[]),
            (gone(), &["reopen at 12"]),
            (left("a"), &["send DELETED a"]),
            // What came between is unknown: nothing that it says proves anything of before.
            (reopened(40, true), &[]),
            (bytes(DELETED), &["send DELETED"]),
            (bytes(TOO_OLD), &[]),
            (Input::UpstreamEnded(None), &["reopen at 40, old"]),
            (Input::NotReopened, &[GONE, IN_ORDER]),
        ],
    );
}

#[test]
fn what_left_is_found_out_before_the_end_where_it_was_asked_for_again() {
    let begin = || vec![(Input::AdmissionOver, &[][..]), (Input::UpstreamEnded(None), &["reopen at 5"][..])];
    let end = |since| {
        let since: &'static [&'static str] = since;
        vec![(Input::Regained, since), (left("a"), &["send DELETED a"][..]), (Input::NotReopened, &[GONE, IN_ORDER])]
    };
    expect(of_the_ring(), begin().into_iter().chain(end(&["StopReading", "find out since 5"])).collect());
    let answered = begin().into_iter().chain([(reopened(40, false), &[][..])]);
    expect(of_the_ring(), answered.chain(end(&["StopReading", "find out since 40"])).collect());
}

#[test]
fn the_end_of_the_api_server_is_one_of_the_watch_where_its_client_has_whole_events() {
    let half = &ADDED[..30];
    let sent = format!("send {half}");
    for traits in [of_the_ring, outside] {
        expect(traits(), vec![(gone(), &["BreakOffUnlessEnded", IN_ORDER])]);
        expect(traits(), vec![(Input::UpstreamEnded(None), &["BreakOffUnlessEnded", IN_ORDER])]);
        let late = || Traits { until: Instant::now(), ..traits() };
        expect(late(), vec![(Input::UpstreamEnded(None), &[IN_ORDER])]);
        let error = format!("End(Error({:?}))", BodyError::from(BoxError::from("gone")));
        expect(traits(), vec![(bytes(half), &[&sent]), (gone(), &["BreakOffUnlessEnded", &error])]);
    }
    for (traits, ending) in [(of_the_ring(), HALF), (outside(), IN_ORDER)] {
        let ended = ["BreakOffUnlessEnded", ending];
        expect(traits, vec![(bytes(half), &[&sent]), (Input::UpstreamEnded(None), &ended)]);
    }
}

#[test]
fn what_is_not_understood_ends_a_watch_of_the_ring_alone() {
    let line = "{\n  \"type\": \"DELETED\",\n";
    let sent = format!("send {line}");
    expect(of_the_ring(), vec![(bytes(line), &[&sent, "BreakOff", "End(Malformed)"])]);
    expect(outside(), vec![(bytes(line), &[&sent]), (bytes(line), &[&sent])]);
    expect(of_the_ring(), vec![(bytes(ADDED), &["send ADDED"]), (Input::End(End::NoRoom), &["BreakOff", IN_ORDER])]);
}

/// What may happen, of bytes and of all else.
fn input() -> impl Strategy<Value = fn() -> Input> {
    let all: [fn() -> Input; 20] = [
        || bytes(ADDED),
        || bytes(ASSIGNED),
        || bytes(MODIFIED),
        || bytes(DELETED),
        || bytes(BOOKMARK),
        || bytes(&DELETED[..40]),
        || bytes(&DELETED[40..]),
        || bytes(&ADDED[..40]),
        || bytes(&ADDED[40..]),
        || Input::UpstreamEnded(None),
        gone,
        || Input::AdmissionOver,
        || Input::RestOverdue,
        || Input::ChildrenShown,
        || left("a"),
        || reopened(40, true),
        || Input::Regained,
        || Input::End(End::NoRoom),
        || Input::End(End::Closing),
        || Input::End(End::RingChanged),
    ];
    prop::sample::select(all.to_vec())
}

proptest! {
    /// Of a watch that is not understood any more the rest is cut off, with an error, and nothing is ever changed.
    #[test]
    fn bytes_out_are_bytes_in(pieces in prop::collection::vec(piece(), 0..12)) {
        for traits in [of_children(), outside()] {
            let is_of_ring = traits.is_of_ring;
            let mut stream = WatchStream::new(Frames::json(), None, true, traits);
            let (mut out, mut sent) = (Effects::new(), Vec::new());
            for piece in &pieces {
                stream.step(Input::Bytes(Bytes::copy_from_slice(piece)), Instant::now(), &mut out);
                sent.extend_from_slice(piece);
            }
            stream.step(Input::UpstreamEnded(None), Instant::now(), &mut out);
            let (shown, in_order) = shown(out);
            prop_assert!(sent.starts_with(&shown));
            prop_assert!(is_of_ring || (shown == sent && in_order));
            prop_assert!(!in_order || shown == sent && (!is_of_ring || sent.is_empty() || sent.ends_with(b"\n")));
        }
    }

    /// Whatever happens, in whatever order: nothing comes behind the end, a client with half an event gets no end in order, and
    /// without the Lease none gets an event to act on.
    #[test]
    fn no_order_of_events_leaves_a_client_with_half_of_one(inputs in prop::collection::vec(input(), 0..24)) {
        let mut stream = watch(of_the_ring());
        let (mut all, mut is_over) = (Effects::new(), false);
        for input in inputs {
            let (mut out, input) = (Effects::new(), input());
            // As the body does: no more than it may.
            let is_read = matches!(input, Input::Bytes(_) | Input::UpstreamEnded(_));
            let is_answer = matches!(input, Input::Reopened(_));
            if (is_read && !stream.may_read()) || (is_answer && !matches!(stream.state, State::Reopening { .. })) {
                continue;
            }
            if matches!(input, Input::Left(_)) && !matches!(stream.state, State::Reopening { .. } | State::CatchingUp) {
                continue;
            }
            is_over |= matches!(input, Input::AdmissionOver);
            if matches!(input, Input::AdmissionOver) && stream.is_parted() {
                continue;
            }
            let began = stream.at_frame_boundary();
            stream.step(input, Instant::now(), &mut out);
            while stream.has_next_held() {
                stream.step(Input::NextHeld, Instant::now(), &mut out);
            }
            let acts = |effect: &Effect| matches!(effect, Effect::Send(bytes) if bytes.starts_with(b"{\"type\":\"ADDED"));
            prop_assert!(!is_over || !began || !out.iter().any(acts));
            all.extend(out);
        }
        let ends = all.iter().position(|effect| matches!(effect, Effect::End(_)));
        prop_assert!(ends.is_none_or(|at| at == all.len() - 1));
        let (shown, in_order) = shown(all);
        prop_assert!(!in_order || shown.is_empty() || shown.ends_with(b"\n"));
    }
}

/// What the client gets, and whether that ended in order.
fn shown(effects: Effects) -> (Vec<u8>, bool) {
    let (mut shown, mut in_order) = (Vec::new(), false);
    for effect in effects {
        match effect {
            Effect::Send(bytes) => shown.extend_from_slice(&bytes),
            Effect::End(ending) => in_order = matches!(ending, Ending::InOrder),
            _ => {}
        }
    }
    (shown, in_order)
}

fn piece() -> impl Strategy<Value = Vec<u8>> {
    let event = json!({"type": "DELETED", "object": {"metadata": {"resourceVersion": "12"}}}).to_string();
    let (begins, ends) = (event.clone(), event.clone());
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..20),
        Just(format!("{event}\n").into_bytes()),
        (0..event.len()).prop_map(move |at| begins.as_bytes()[..at].to_vec()),
        (0..event.len()).prop_map(move |at| format!("{}\n", &ends[at..]).into_bytes()),
    ]
}
