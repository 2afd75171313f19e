//! Objects of controlled resources that have no controller of the ring: they get no label, and no shard sees them.

use std::fmt;

use ringside_ring::cluster_ring::GroupResource;

use crate::target::Target;

/// What Kubernetes puts into each namespace. No controller is without it, so it is not counted.
const IN_EACH_NAMESPACE: [(&str, &str); 2] = [("configmaps", "kube-root-ca.crt"), ("serviceaccounts", "default")];

/// Such objects of one resource, as a pass over all of them found them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lone {
    /// Those without any controller.
    pub(crate) uncontrolled: u64,
    /// Those whose controller is outside the ring.
    pub(crate) foreign: u64,
    /// The first of them: whether it has a controller, and where it is.
    first: Option<(bool, String)>,
}

impl Lone {
    /// Counts an object that has no controller of the ring.
    pub(crate) fn count(&mut self, resource: &GroupResource, object: &Target) {
        let known = |(of, name): &(&str, &str)| resource.resource == *of && object.name == *name;
        if resource.group.is_empty() && IN_EACH_NAMESPACE.iter().any(known) {
            return;
        }
        let is_foreign = object.controller.is_some();
        *if is_foreign { &mut self.foreign } else { &mut self.uncontrolled } += 1;
        let this = (is_foreign, object.place());
        if self.first.as_ref().is_none_or(|first| this < *first) {
            self.first = Some(this);
        }
    }

    /// How many there are.
    pub(crate) fn objects(&self) -> u64 {
        self.uncontrolled + self.foreign
    }
}

impl fmt::Display for Lone {
    /// How many have no controller, how many have one outside the ring, and which is the first.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.uncontrolled, self.foreign) {
            (some, 0) => write!(f, "{some} without a controller")?,
            (0, some) => write!(f, "{some} with a controller outside the ring")?,
            (none, foreign) => write!(f, "{none} without a controller and {foreign} with one outside the ring")?,
        }
        self.first.as_ref().map_or(Ok(()), |(_, place)| write!(f, ", such as '{place}'"))
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

    use super::*;

    fn told(objects: &[(&str, bool)]) -> String {
        let resource = GroupResource { group: String::new(), resource: "configmaps".into() };
        let mut lone = Lone::default();
        for (name, is_foreign) in objects {
            let target = Target {
                namespace: Some("default".into()),
                name: (*name).into(),
                controller: is_foreign.then(OwnerReference::default),
                ..Target::default()
            };
            lone.count(&resource, &target);
        }
        format!("{lone}")
    }

    #[test]
    fn they_are_counted_by_what_they_lack_and_one_is_named() {
        assert_eq!(told(&[("b", false), ("a", false)]), "2 without a controller, such as 'default/a'");
        assert_eq!(told(&[("b", true)]), "1 with a controller outside the ring, such as 'default/b'");
        assert_eq!(
            told(&[("a", true), ("b", false)]),
            "1 without a controller and 1 with one outside the ring, such as 'default/b'"
        );
    }

    #[test]
    fn what_each_namespace_has_is_not_counted() {
        assert_eq!(told(&[("kube-root-ca.crt", false)]), "0 without a controller");
    }
}
