//! Objects that hold labels of a ring in a template or a selector: copies of the labels come from there.

use kube::{
    Api, Client, ResourceExt as _,
    api::{DynamicObject, ListParams},
};
use ringside_ring::{RingLabels, cluster_ring::GroupResource, partition::controller_of};
use ringside_runtime::explain::code;

use crate::{resources::Resource, target::Target};

/// Whole objects are large.
const PAGE_OBJECTS: u32 = 100;
/// Resources of the core group without a `spec`: what they contain is not read.
const WITHOUT_SPEC: [&str; 3] = ["configmaps", "events", "secrets"];
/// What the sharder itself writes for a ring is in this group.
const POLICIES: &str = "admissionregistration.k8s.io";

/// An object that holds a label of the ring below its `spec`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) resource: GroupResource,
    pub(crate) uid: String,
    /// Namespace and name.
    pub(crate) place: String,
    /// The fields that hold it.
    pub(crate) fields: Vec<String>,
    /// The uid of its controller.
    pub(crate) controller: Option<String>,
}

/// Reads all objects of a resource, page by page.
pub(crate) async fn find(
    client: &Client,
    labels: &RingLabels,
    resource: &Resource,
) -> Result<Vec<Holder>, kube::Error> {
    let GroupResource { group, resource: plural } = &resource.id;
    let mut holders = Vec::new();
    if group == POLICIES || (group.is_empty() && WITHOUT_SPEC.contains(&plural.as_str())) {
        return Ok(holders);
    }
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource.api());
    let mut parameters = ListParams::default().limit(PAGE_OBJECTS);
    loop {
        let page = match api.list(&parameters).await {
            // Its definition is gone, and its objects with it.
            Err(error) if code(&error) == Some(404) => return Ok(holders),
            page => page?,
        };
        holders.extend(page.items.iter().filter_map(|object| holder(&resource.id, object, labels)));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => parameters.continue_token = Some(token),
            None => return Ok(holders),
        }
    }
}

fn holder(resource: &GroupResource, object: &DynamicObject, labels: &RingLabels) -> Option<Holder> {
    let fields = labels.fields_in(object.data.get("spec")?);
    let controller = controller_of(object.metadata.owner_references.as_deref());
    (!fields.is_empty()).then(|| Holder {
        resource: resource.clone(),
        uid: object.uid().unwrap_or_default(),
        place: Target::of(&object.metadata, labels).place(),
        fields: fields.into_iter().map(|field| format!("spec{field}")).collect(),
        controller: controller.map(|controller| controller.uid.clone()),
    })
}
