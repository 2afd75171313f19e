//! A label selector that is accepted is printed as one that means the same, alone and behind the shard's.

use ringside_proxy::request::selector::Selector;

/// Panics when a promise is broken.
pub fn run(input: &[u8]) {
    let text = super::text(input);
    let Ok(selector) = Selector::parse(text) else { return };
    let printed = selector.to_string();
    assert!(printed.is_ascii() && !printed.contains('\0'));
    assert_eq!(Selector::parse(&printed).as_ref(), Ok(&selector), "printed as {printed:?}");
    if !selector.is_empty() {
        let joined = Selector::parse(&format!("shard=me,!drain,{printed}"));
        assert_eq!(joined.map(|it| it.to_string()), Ok(format!("shard=me,!drain,{printed}")));
    }
}
