//! Which objects a view could show, and what of that can be decided here.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

use parking_lot::Mutex;
use ringside_ring::{ResourceVersion, cluster_ring::GroupResource};

use crate::request::selector::Selector;

/// What a view shows of a resource of the ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    /// The resource.
    pub resource: GroupResource,
    /// In which API version. Field selectors mean what that version says.
    pub version: String,
    /// In which namespace; `None`: in all.
    pub namespace: Option<String>,
    /// The client's own label selector.
    pub labels: Selector,
    /// The client's own field selector, and the name in the path.
    pub fields: Fields,
}

/// A field selector: the part that every resource has is decided here, the rest only the API server can decide.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields {
    text: String,
    name: Option<String>,
    namespace: Option<String>,
    undecided: bool,
}

/// An object that this shard is asked to release.
#[derive(Debug)]
pub struct DrainingObject {
    /// Its resource.
    pub resource: GroupResource,
    /// Its namespace, if the resource has them.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// Its uid: one deleted and made again under the same name is another object.
    pub uid: Arc<str>,
    /// Its kind.
    pub kind: String,
    /// The drain label's value, unique to the move.
    pub drain: String,
    /// Its labels when it was first seen drained.
    pub labels: BTreeMap<String, String>,
    /// The resourceVersion at which it was first seen drained.
    ///
    /// The write that drained it has this one or a lower one, so a watch that is past this is past that.
    /// A later write to the object needs no waiting: it changes nothing about what the watches show.
    pub version: ResourceVersion,
    /// Whether it is the very write that drained it. Not so when it was drained before our watch began.
    pub is_exact: bool,
    /// Views that never showed it: the API server said so.
    pub(crate) proved_not_shown: Mutex<HashSet<u64>>,
}

impl Scope {
    /// Whether the view can ever show an object of this namespace and name.
    pub(super) fn covers(&self, object: &DrainingObject) -> bool {
        let is = |mine: &Option<String>, its: Option<&str>| mine.as_deref().is_none_or(|mine| Some(mine) == its);
        let namespace = object.namespace.as_deref();
        is(&self.namespace, namespace)
            && is(&self.fields.namespace, namespace)
            && is(&self.fields.name, Some(&object.name))
    }

    /// Whether the view's own label selector selects the object as it was drained.
    pub(super) fn selects(&self, object: &DrainingObject) -> bool {
        self.labels.matches(&object.labels)
    }
}

impl Fields {
    /// Of a `fieldSelector` as it stands in a query, after percent-decoding.
    pub fn parse(text: &str) -> Self {
        let mut fields = Self { text: text.to_owned(), ..Self::default() };
        // A backslash escapes the character behind it, which no name has (`fields.ParseSelector` of k8s.io/apimachinery).
        if text.contains('\\') {
            fields.undecided = true;
            return fields;
        }
        for term in text.split(',').filter(|term| !term.is_empty()) {
            let (key, value) = term.split_once('=').unwrap_or((term, ""));
            let value = value.strip_prefix('=').unwrap_or(value);
            let field = match key {
                "metadata.name" => &mut fields.name,
                "metadata.namespace" => &mut fields.namespace,
                _ => {
                    fields.undecided = true;
                    continue;
                }
            };
            // A second value for the same field: whatever that means.
            fields.undecided |= field.replace(value.to_owned()).is_some();
        }
        fields
    }

    /// With a name that the path says.
    #[must_use]
    pub fn named(self, name: Option<&str>) -> Self {
        match name {
            Some(name) => Self { name: Some(name.to_owned()), ..self },
            None => self,
        }
    }

    /// The name of the one object of this namespace that is selected, where that is decided here.
    pub fn only(&self, namespace: &str) -> Option<&str> {
        let here = !self.undecided && self.namespace.as_deref().is_none_or(|it| it == namespace);
        self.name.as_deref().filter(|name| here && !name.is_empty())
    }

    /// Whether only the API server can say what is selected.
    pub fn is_undecided(&self) -> bool {
        self.undecided
    }

    /// The selector that selects of the same objects this one.
    pub fn and_name(&self, name: &str) -> String {
        let comma = if self.text.is_empty() { "" } else { "," };
        format!("{}{comma}metadata.name={name}", self.text)
    }
}

impl DrainingObject {
    /// This view never showed it.
    pub fn prove_not_shown(&self, view: u64) {
        self.proved_not_shown.lock().insert(view);
    }

    pub(super) fn is_proved_not_shown(&self, view: u64) -> bool {
        self.proved_not_shown.lock().contains(&view)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(text: &str) -> (Option<String>, Option<String>, bool) {
        let Fields { name, namespace, undecided, .. } = Fields::parse(text);
        (name, namespace, undecided)
    }

    #[test]
    fn names_are_decided_here_and_nothing_else() {
        let a = || Some("a".to_owned());
        assert_eq!(fields(""), (None, None, false));
        assert_eq!(fields("metadata.name=a"), (a(), None, false));
        assert_eq!(fields("metadata.name==a,metadata.namespace=a"), (a(), a(), false));
        assert_eq!(fields("metadata.name=a,spec.x=1"), (a(), None, true));
        for undecided in ["metadata.name!=a", "spec.x", "status.phase=Running", "metadata.name=a\\,b"] {
            assert_eq!(fields(undecided), (None, None, true), "{undecided}");
        }
        assert!(fields("metadata.name=a,metadata.name=b").2);
    }

    #[test]
    fn one_object_is_selected_by_its_name_and_nothing_that_only_the_api_server_understands() {
        for (text, one) in [
            ("metadata.name=a", true),
            ("metadata.namespace=ns,metadata.name==a", true),
            ("metadata.namespace=other,metadata.name=a", false),
            ("metadata.name=a,spec.x=1", false),
            ("metadata.name!=a", false),
            ("metadata.name=", false),
            ("", false),
        ] {
            assert_eq!(Fields::parse(text).only("ns"), one.then_some("a"), "{text}");
        }
        assert_eq!(Fields::default().named(Some("a")).only("ns"), Some("a"));
    }

    #[test]
    fn the_question_keeps_what_was_asked_and_adds_the_name() {
        assert_eq!(Fields::default().and_name("a"), "metadata.name=a");
        assert_eq!(Fields::parse("spec.x!=1").and_name("a"), "spec.x!=1,metadata.name=a");
    }
}
