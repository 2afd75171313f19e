//! Whether children are beside their owners, as the API server has them.

use std::{collections::HashMap, time::Duration};

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, ListParams, ObjectMeta},
};
use ringside_ring::{RingLabels, partition::owner_of};

use crate::{checker::Apart, eventually::eventually, website::Website};

/// The children that are apart from their owners, once there are none, or at last after `within`: a child that a
/// client just made gets its label a moment later.
pub(super) async fn apart(
    client: &Client,
    namespace: &str,
    labels: &RingLabels,
    within: Duration,
) -> kube::Result<Vec<Apart>> {
    let together = eventually("children are beside their owners", within, || async {
        let apart = look(client, namespace, labels).await.map_err(|error| error.to_string())?;
        if apart.is_empty() { Ok(()) } else { Err(format!("{} are not", apart.len())) }
    });
    match together.await {
        Ok(()) => Ok(Vec::new()),
        Err(_) => look(client, namespace, labels).await,
    }
}

async fn look(client: &Client, namespace: &str, labels: &RingLabels) -> kube::Result<Vec<Apart>> {
    // The owners first: one that is moved in between is looked at again.
    let owners = list(client, namespace, ApiResource::erase::<Website>(&())).await?;
    let maps = list(client, namespace, ApiResource::erase::<ConfigMap>(&())).await?;
    let mut secrets = list(client, namespace, ApiResource::erase::<Secret>(&())).await?;
    lift(&mut secrets, &maps);
    let mut apart = compare(labels, &owners, "ConfigMap", &maps);
    apart.extend(compare(labels, &owners, "Secret", &secrets));
    Ok(apart)
}

async fn list(client: &Client, namespace: &str, resource: ApiResource) -> kube::Result<Vec<ObjectMeta>> {
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    let found = api.list_metadata(&ListParams::default()).await?;
    Ok(found.items.into_iter().map(|object| object.metadata).collect())
}

/// Makes grandchildren children: what one of `links` controls gets that one's controller.
fn lift(children: &mut [ObjectMeta], links: &[ObjectMeta]) {
    let links: HashMap<&str, _> =
        links.iter().filter_map(|link| Some((link.uid.as_deref()?, &link.owner_references))).collect();
    for child in children {
        if let Some(above) = controller(child).and_then(|uid| links.get(uid)) {
            child.owner_references = (*above).clone();
        }
    }
}

/// Each owner has one child of each kind. One that is missing is as bad as one that is elsewhere.
fn compare(labels: &RingLabels, owners: &[ObjectMeta], kind: &str, children: &[ObjectMeta]) -> Vec<Apart> {
    let by_controller: HashMap<&str, &ObjectMeta> =
        children.iter().filter_map(|child| Some((controller(child)?, child))).collect();
    let shard = |object: &ObjectMeta| labels.ownership(object.labels.as_ref()).shard.map(str::to_owned);
    let look = |owner: &ObjectMeta| {
        let child = by_controller.get(owner.uid.as_deref()?);
        let (owner_shard, child_shard) = (shard(owner), child.and_then(|child| shard(child)));
        let beside = child.is_some() && owner_shard.is_some() && owner_shard == child_shard;
        let owner = format!("{}/{}", owner.namespace.as_deref()?, owner.name.as_deref()?);
        (!beside).then(|| Apart { kind: kind.to_owned(), owner, owner_shard, child_shard })
    };
    owners.iter().filter_map(look).collect()
}

fn controller(child: &ObjectMeta) -> Option<&str> {
    owner_of(child.owner_references.as_deref().unwrap_or_default(), |_| true).one().map(|owner| &*owner.uid)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;

    use super::*;

    fn labels() -> RingLabels {
        RingLabels::of(&"websites".parse().expect("a name"))
    }

    fn object(name: &str, shard: Option<&str>) -> ObjectMeta {
        ObjectMeta {
            namespace: Some("default".to_owned()),
            name: Some(name.to_owned()),
            uid: Some(format!("uid-{name}")),
            labels: shard.map(|shard| [(labels().shard, shard.to_owned())].into()),
            ..ObjectMeta::default()
        }
    }

    fn child(owner: &str, shard: Option<&str>) -> ObjectMeta {
        let reference =
            OwnerReference { uid: format!("uid-{owner}"), controller: Some(true), ..OwnerReference::default() };
        ObjectMeta { owner_references: Some(vec![reference]), ..object("child", shard) }
    }

    fn apart(owners: &[ObjectMeta], children: &[ObjectMeta]) -> Vec<(Option<String>, Option<String>)> {
        let apart = compare(&labels(), owners, "Secret", children);
        apart.into_iter().map(|apart| (apart.owner_shard, apart.child_shard)).collect()
    }

    #[test]
    fn a_child_beside_its_owner_is_no_fault_and_one_elsewhere_or_nowhere_is() {
        let owners = [object("a", Some("s")), object("b", Some("t"))];
        let children = [child("b", Some("t")), child("a", Some("s")), object("of nobody", Some("u"))];
        assert_eq!(apart(&owners, &children), []);
        for (owner, child, found) in [
            (object("a", Some("s")), child("a", Some("t")), (Some("s"), Some("t"))),
            (object("a", Some("s")), child("a", None), (Some("s"), None)),
            (object("a", Some("s")), child("another", Some("s")), (Some("s"), None)),
            // A child without shard, of an owner without shard: no shard works on either.
            (object("a", None), child("a", None), (None, None)),
        ] {
            let (owner_shard, child_shard): (Option<&str>, Option<&str>) = found;
            assert_eq!(apart(&[owner], &[child]), [(owner_shard.map(str::to_owned), child_shard.map(str::to_owned))]);
        }
    }

    #[test]
    fn a_grandchild_counts_as_a_child() {
        let (owner, link) = (object("a", Some("s")), child("a", Some("s")));
        let mut leaves = [child("child", Some("t"))];
        lift(&mut leaves, &[link]);
        assert_eq!(apart(&[owner], &leaves), [(Some("s".to_owned()), Some("t".to_owned()))]);
    }
}
