//! Selectors that the API server accepts and refuses, and that parsing and printing are inverse.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;

#[test]
fn objects_are_selected_by_their_labels() {
    let labels = [("a", "1"), ("b", "x"), ("c", "")].map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    for (text, selected) in [
        ("", true),
        ("a", true),
        ("!a", false),
        ("d", false),
        ("!d,a=1", true),
        ("a=2", false),
        ("a!=2,d!=2", true),
        ("b!=x", false),
        ("b in (x,y),b notin (z)", true),
        ("b notin (x)", false),
        ("d in (x)", false),
        ("d notin (x)", true),
        ("c=", true),
        ("c", true),
        ("d=", false),
        ("a>0,a<2", true),
        ("a>1", false),
        ("b>0", false),
        ("d<5", false),
    ] {
        assert_eq!(Selector::parse(text).unwrap().matches(&labels), selected, "{text}");
    }
}

#[test]
fn what_the_api_server_accepts_is_accepted() {
    let good = [
        ("", ""),
        ("  ", ""),
        ("x=a,y=b,z=c", "x=a,y=b,z=c"),
        ("x==a", "x=a"),
        ("x != a , !y", "x!=a,!y"),
        ("x in (a,b), y notin ( c ),z", "x in (a,b),y notin (c),z"),
        ("x in (),y in (a,,b)", "x in (),y in (a,,b)"),
        ("x=,z= ", "x=,z="),
        ("in in (in,notin)", "in in (in,notin)"),
        ("x>1 , z<5", "x>1,z<5"),
        ("a.example.com/x_y.Z=V-1", "a.example.com/x_y.Z=V-1"),
        ("x>007", "x>7"),
        // Go's lexer and NUL.
        ("x=a\0", "x=a"),
        ("x=\0a,\0y\0 ", "x=a,y"),
        ("x\0\0,,(", "x"),
        ("x in (a)\0 \0,,(", "x in (a)"),
        (" \0(", ""),
    ];
    for (text, printed) in good {
        assert_eq!(Selector::parse(text).unwrap().to_string(), printed, "{text}");
    }
}

#[test]
fn what_the_api_server_refuses_is_refused() {
    let bad = [
        ",",
        "x,",
        ",x",
        "x,,y",
        "x=a y",
        "x in a",
        "x in (a",
        "x in",
        "x notin ((a))",
        "!",
        "!x=a",
        "=a",
        "x=a=b",
        "(a)",
        "x)",
        "x=a!",
        "-x",
        "x=-a",
        "x/y/z",
        "/x",
        "x/",
        "UPPER.com/x",
        "x=ä",
        "x\0y",
        "x,\0\0y",
        "x=\0=a",
        "x in (a\0\0)",
        "x>a",
        // A number, but a value that no label can have.
        "z<-5",
        "x>",
        "x!",
        "x=(a)",
        "!in (a)",
    ];
    for text in bad {
        assert!(Selector::parse(text).is_err(), "{text:?} was accepted: {:?}", Selector::parse(text));
    }
    let long = "a".repeat(64);
    assert_eq!(Selector::parse(&format!("x={long}")), Err(ParseSelector::Value(long.clone())));
    assert_eq!(Selector::parse(&long), Err(ParseSelector::Key(long)));
}

fn requirement() -> impl Strategy<Value = Requirement> {
    let value = "([a-zA-Z0-9]([a-zA-Z0-9._-]{0,8}[a-zA-Z0-9])?)?";
    let values = || proptest::collection::vec(value, 1..4);
    let condition = prop_oneof![
        Just(Condition::Exists),
        Just(Condition::DoesNotExist),
        value.prop_map(Condition::Equals),
        value.prop_map(Condition::NotEquals),
        values().prop_map(Condition::In),
        values().prop_map(Condition::NotIn),
        (0..i64::MAX).prop_map(Condition::GreaterThan),
        (0..i64::MAX).prop_map(Condition::LessThan),
    ];
    let key = "([a-z0-9]{1,5}(\\.[a-z]{1,3})?/)?[a-zA-Z0-9]([a-zA-Z0-9._-]{0,8}[a-zA-Z0-9])?";
    (key, condition).prop_map(|(key, condition)| Requirement { key, condition })
}

proptest! {
    #[test]
    fn printing_and_parsing_are_inverse(requirements in proptest::collection::vec(requirement(), 0..5)) {
        let selector = Selector(requirements);
        prop_assert_eq!(Selector::parse(&selector.to_string()), Ok(selector));
    }

    /// What makes narrowing safe: whatever the client sent, what is sent on is ours and the client's.
    #[test]
    fn joining_with_a_comma_is_and(text in "[a-c=!<>(), in\\t\\x00]{0,20}", ours in requirement()) {
        let Ok(theirs) = Selector::parse(&text) else { return Ok(()) };
        let joined = if theirs.is_empty() { ours.to_string() } else { format!("{ours},{theirs}") };
        prop_assert!(!joined.contains('\0'));
        let expected = Selector(std::iter::once(ours).chain(theirs.0).collect());
        prop_assert_eq!(Selector::parse(&joined), Ok(expected));
    }
}
