//! Controllers that are known by the name of their image or Deployment.

use k8s_openapi::api::apps::v1::Deployment;
use serde::Deserialize;

use super::subject;

/// A known controller.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Known {
    /// What people call it.
    pub controller: String,
    /// Parts of its image's path, whole between slashes.
    #[serde(default)]
    pub images: Vec<String>,
    /// Names of its Deployment, with `*` at one end or none.
    #[serde(default)]
    pub names: Vec<String>,
    /// The rules that it meets.
    pub rules: Vec<Met>,
    /// The resources of a ring for it, where that was tried. Its others stay out of it.
    #[serde(default)]
    pub ring: Vec<Shared>,
}

/// A resource that a ring shares.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shared {
    /// Its name and group, as `websites.web.example.com`.
    pub resource: String,
    /// What its objects control, directly or through others of these.
    #[serde(default)]
    pub children: Vec<String>,
}

/// A rule that a known controller meets.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Met {
    /// The rule.
    pub id: String,
    /// Arguments with one of which it does not.
    #[serde(default)]
    pub unless: Vec<String>,
}

impl Known {
    /// Whether a Deployment is this controller's.
    #[must_use]
    pub fn is(&self, deployment: &Deployment) -> bool {
        let name = deployment.metadata.name.as_deref().unwrap_or_default();
        let mut images = subject::containers(deployment).filter_map(|container| container.image.as_deref());
        let by_image = images.any(|image| self.images.iter().any(|part| has_part(image, part)));
        by_image || self.names.iter().any(|pattern| matches(name, pattern))
    }
}

impl Met {
    /// Whether the arguments leave the rule standing.
    #[must_use]
    pub fn stands(&self, arguments: &[String]) -> bool {
        let settles = |argument: &String| {
            self.unless.iter().any(|unless| {
                let rest = argument.strip_prefix(unless.as_str());
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('=') && rest != "=false")
            })
        };
        !arguments.iter().any(settles)
    }
}

/// Whether an image's path, without tag and digest, has these parts beside each other.
fn has_part(image: &str, part: &str) -> bool {
    let image = image.split('@').next().unwrap_or_default();
    let image = match image.rsplit_once(':') {
        Some((path, tag)) if !tag.contains('/') => path,
        _ => image,
    };
    format!("/{image}/").contains(&format!("/{part}/"))
}

fn matches(name: &str, pattern: &str) -> bool {
    if let Some(end) = pattern.strip_prefix('*') {
        name.ends_with(end)
    } else if let Some(start) = pattern.strip_suffix('*') {
        name.starts_with(start)
    } else {
        name == pattern
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_match_by_whole_parts_of_their_path() {
        for image in [
            "registry.k8s.io/external-dns/external-dns:v0.15.0",
            "x:5000/external-dns",
            "external-dns@sha256:0",
            "a/external-dns/b:1",
        ] {
            assert!(has_part(image, "external-dns"), "{image}");
        }
        for image in ["a/my-external-dns:1", "external-dns-webhook:1", "a/b:external-dns"] {
            assert!(!has_part(image, "external-dns"), "{image}");
        }
        assert!(has_part("quay.io/strimzi/operator:0.45.0", "strimzi/operator"));
    }

    #[test]
    fn names_match_at_the_end_that_has_no_star() {
        assert!(matches("a-kube-scheduler", "*kube-scheduler") && matches("redis-operator-x", "redis-operator*"));
        assert!(!matches("cert-manager-webhook", "cert-manager"));
    }

    #[test]
    fn a_rule_is_settled_by_its_argument_unless_that_is_false() {
        let met = Met { id: "R01".to_owned(), unless: vec!["--elect".to_owned(), "--policy=a".to_owned()] };
        for settled in ["--elect", "--elect=true", "--policy=a"] {
            assert!(!met.stands(&[settled.to_owned()]), "{settled}");
        }
        for stands in ["--elect=false", "--elected", "--policy=ab"] {
            assert!(met.stands(&[stands.to_owned()]), "{stands}");
        }
    }
}
