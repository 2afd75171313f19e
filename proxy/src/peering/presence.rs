//! The ring as a peer of those who are no shards: an entry in the real peering object, which each shard renews whenever its
//! controller says that it is there. So it lasts for as long as one of them would.

use std::{fmt, time::Duration};

use http::StatusCode;
use k8s_openapi::jiff::Timestamp;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
    core::DynamicObject,
    discovery::ApiResource,
};
use ringside_runtime::explain::{code, explain};
use serde_json::json;
use tokio::time::timeout;

use super::{Peer, PeeringObject, STATUS};

/// How long the API server may take for an entry.
const WRITE_TIMEOUT: Duration = Duration::from_secs(4);

/// Says for the ring that it is there.
pub struct RingPeer {
    client: Client,
    ring: String,
}

/// Why an entry could not be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the ring can't say on the peering object '{name}' that it is there, so the controller is not said to be: {why}"
)]
pub struct NotThere {
    name: String,
    why: String,
    /// The status with which the API server refused the entry, if it did.
    pub refused: Option<StatusCode>,
}

impl NotThere {
    /// Whether there is no such peering object.
    pub(crate) fn is_absent(&self) -> bool {
        self.refused == Some(StatusCode::NOT_FOUND)
    }
}

impl fmt::Debug for RingPeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Presence").field("ring", &self.ring).finish_non_exhaustive()
    }
}

impl RingPeer {
    /// Under this identity.
    pub fn new(client: Client, ring: String) -> Self {
        Self { client, ring }
    }

    /// Says that the ring is there, as of now; returns the peering object with that.
    ///
    /// # Errors
    /// When the API server does not take the entry.
    pub async fn say(&self, place: &PeeringObject, peer: &Peer) -> Result<DynamicObject, NotThere> {
        let not_there = |why, refused| NotThere { name: place.name.clone(), why, refused };
        let lastseen = format!("{:.6}", Timestamp::now());
        let said = json!({"priority": peer.priority, "lifetime": peer.lifetime.as_secs(), "lastseen": lastseen});
        let patch = Patch::Merge(json!({STATUS: {&self.ring: said}}));
        let (objects, parameters) = (self.objects(place), PatchParams::default());
        let write = async {
            let written = objects.patch(&place.name, &parameters, &patch).await?;
            if written.data[STATUS][&self.ring] == said {
                return Ok(written);
            }
            // Its definition has `status` apart.
            objects.patch_status(&place.name, &parameters, &patch).await
        };
        match timeout(WRITE_TIMEOUT, write).await {
            Ok(Ok(written)) => Ok(written),
            Ok(Err(error)) => {
                let refused = code(&error).and_then(|code| StatusCode::from_u16(code).ok());
                Err(not_there(explain(&error), refused.filter(StatusCode::is_client_error)))
            }
            Err(_) => {
                Err(not_there(format!("the API server did not answer within {} s", WRITE_TIMEOUT.as_secs()), None))
            }
        }
    }

    fn objects(&self, place: &PeeringObject) -> Api<DynamicObject> {
        let of = &place.resource;
        let resource = ApiResource {
            group: of.group.clone(),
            version: of.version.clone(),
            api_version: format!("{}/{}", of.group, of.version),
            // Not asked for by what is done here.
            kind: String::new(),
            plural: of.plural.clone(),
        };
        match &place.namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        }
    }
}
