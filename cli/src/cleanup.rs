//! The command `cleanup`: takes a ring off the cluster when no sharder does, or looks whether one did.

use ringside_ring::{RingName, cluster_ring::GroupResource};
use ringside_sharder::Cleanup;

use crate::{
    cluster::Global,
    output::{Said, render},
};

/// The arguments of `cleanup`.
#[derive(Clone, Debug, clap::Args)]
pub struct Arguments {
    /// The ring.
    ring: RingName,
    /// Looks only through the objects of this resource, as in `websites.example.com`, and of the ring's own while it is there;
    /// may be repeated. Without it through those of all resources that the API server serves. Of a ring that is gone these are
    /// the resources: labels come off what their objects control.
    #[arg(long = "resource", value_name = "RESOURCE", value_parser = parse_resource)]
    resources: Vec<GroupResource>,
    /// Only says what there is.
    #[arg(long)]
    dry_run: bool,
}

/// Takes the ring off. What could not be taken off is in the report.
///
/// # Errors
/// When it could not begin.
pub async fn run(global: &Global, arguments: Arguments) -> anyhow::Result<Said> {
    let Arguments { ring, resources, dry_run } = arguments;
    let cluster = global.connect().await?;
    let report = Cleanup { ring, resources: resources.into_iter().collect(), dry_run }.run(&cluster.client).await?;
    let text = render(global.output, &report.json(), |_| report.to_string())?;
    Ok(if report.is_clean() { Said::good(text) } else { Said::unhealthy(text) })
}

/// Parses a resource as `kubectl` names it: the plural, and the group after a dot.
fn parse_resource(text: &str) -> Result<GroupResource, String> {
    let (resource, group) = text.split_once('.').unwrap_or((text, ""));
    if resource.is_empty() {
        return Err(format!("'{text}' is no resource: write its plural name, and its group after a dot if it has one"));
    }
    Ok(GroupResource { group: group.to_owned(), resource: resource.to_owned() })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn resource_has_a_plural_name_and_maybe_a_group() {
        assert_eq!(parse_resource("websites.web.example.com").unwrap().to_string(), "websites.web.example.com");
        assert_eq!(parse_resource("secrets").unwrap().group, "");
        assert!(parse_resource(".x").is_err() && parse_resource("").is_err());
    }
}
