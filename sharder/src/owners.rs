//! Which shard works on a child at this moment: the one of its owner, the object at the top of its chain of owners.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Client;
use ringside_ring::{MAX_OWNER_DEPTH, cluster_ring::GroupResource};

use crate::{
    resources::{Object, Resource},
    snapshot::{Above, Main, Place, Snapshot},
};

/// Which object the owner of a child is.
#[derive(Clone, Debug)]
pub(crate) struct Owner<'a> {
    /// Its resource.
    pub(crate) main: &'a Main,
    /// What the child, or the last link above it, calls it.
    pub(crate) reference: OwnerReference,
}

impl Owner<'_> {
    /// Where it belongs; none where it has to be read for that. `namespace` is the child's.
    pub(crate) fn place(&self, snapshot: &Snapshot, namespace: Option<&str>) -> Option<Place> {
        let namespace = namespace.filter(|_| self.main.resource.namespaced).map(str::to_owned);
        let known = ObjectMeta { name: Some(self.reference.name.clone()), namespace, ..ObjectMeta::default() };
        snapshot.is_placed_by_name(self.main).then(|| snapshot.place_of(self.main, &known))
    }
}

/// The object as it is now. None when there is no such object any more.
pub(crate) async fn read(
    client: &Client,
    resource: &Resource,
    reference: &OwnerReference,
    namespace: Option<&str>,
) -> Result<Option<Object>, kube::Error> {
    let api = resource.api();
    let found = resource.objects_as(&api, client, namespace).get_opt(&reference.name).await;
    let found = resource.answered(&api, found)?;
    // One of the same name and another uid is another object.
    Ok(found.filter(|found| found.metadata.uid.as_deref() == Some(&reference.uid)))
}

/// The owner of an object of `child` that `controller` controls. None when the chain does not lead to one of the ring's,
/// or an object in between is gone.
///
/// A child's controller is its owner, which costs nothing to know; each link in between costs a read. Its label is not
/// believed: on a move it gets that before the owner does.
pub(crate) async fn owner<'a>(
    client: &Client,
    snapshot: &'a Snapshot,
    child: &GroupResource,
    controller: &OwnerReference,
    namespace: Option<&str>,
) -> Result<Option<Owner<'a>>, kube::Error> {
    let (mut child, mut reference) = (child.clone(), controller.clone());
    for _ in 0..MAX_OWNER_DEPTH {
        match snapshot.above(&child, &reference) {
            Some(Above::Owner(main)) => return Ok(Some(Owner { main, reference })),
            Some(Above::Link(resource)) => {
                let Some(link) = read(client, resource, &reference, namespace).await? else { return Ok(None) };
                let references = link.metadata.owner_references.as_deref().unwrap_or_default();
                let Some(next) = snapshot.owner(references).one() else { return Ok(None) };
                (child, reference) = (resource.id.clone(), next.clone());
            }
            None => return Ok(None),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Arc;

    use ringside_ring::{PartitionKey, PlacedBy};

    use super::*;
    use crate::snapshot::tests::{resource, snapshot};

    #[test]
    fn a_child_has_its_controllers_key_whatever_version_it_names() {
        let snapshot = snapshot();
        let placed = |resource: Arc<Resource>, api_version: &str, namespace: &str| {
            let main = Main { resource, controlled: Vec::new(), placed_by: PlacedBy::Name };
            let (api_version, kind, name) = (api_version.to_owned(), "Deployment".to_owned(), "web".to_owned());
            let reference =
                OwnerReference { api_version, kind, name, controller: Some(true), ..OwnerReference::default() };
            Owner { main: &main, reference }.place(&snapshot, Some(namespace)).unwrap().key
        };
        let apps = || resource("apps", "Deployment", "deployments");
        let key = PartitionKey::of("apps", "Deployment", "default", "web").point();
        assert_eq!(placed(apps(), "apps/v1", "default"), key);
        assert_eq!(placed(apps(), "apps/v1beta1", "default"), key);
        let namespaced = resource("", "Deployment", "deployments");
        let global = Resource::new(namespaced.id.clone(), namespaced.api(), false);
        let expected = PartitionKey::of("", "Deployment", "", "web");
        assert_eq!(expected.as_str(), "/Deployment//web");
        assert_eq!(placed(Arc::new(global), "v1", "default"), expected.point());
    }
}
