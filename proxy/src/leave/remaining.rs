//! Whether the shard has objects left.

use kube::{
    Api, Client,
    api::{DynamicObject, ListParams},
};
use ringside_ring::cluster_ring::GroupResource;
use ringside_runtime::{
    discovery::{self, LookUpError},
    explain::explain,
};
use tokio::{sync::watch, time::timeout};

use crate::policy::{ANSWER, RingState};

/// The main objects with the label of a shard, drained ones among them.
pub(crate) struct Remaining {
    pub(crate) client: Client,
    /// What they are selected by.
    pub(crate) selector: String,
    pub(crate) knowledge: watch::Receiver<RingState>,
}

impl Remaining {
    /// Whether there are any, as far as can be told: what is not known may be there.
    pub(crate) async fn is_any(&self) -> bool {
        let RingState::Known(policy) = self.knowledge.borrow().clone() else { return true };
        for main in policy.families.keys() {
            let found = timeout(ANSWER, self.is_any_of(main)).await;
            match found.unwrap_or_else(|_| Err(format!("no answer within {ANSWER:?}"))) {
                Ok(false) => {}
                Ok(true) => return true,
                Err(error) => {
                    tracing::debug!(resource = %main, error, "can't see whether objects are left");
                    return true;
                }
            }
        }
        false
    }

    async fn is_any_of(&self, main: &GroupResource) -> Result<bool, String> {
        let served = match discovery::resource(&self.client, main).await {
            Ok(served) => served,
            Err(LookUpError::NotServed(_)) => return Ok(false),
            Err(error @ LookUpError::NoAnswer(_)) => return Err(error.to_string()),
        };
        let objects: Api<DynamicObject> = Api::all_with(self.client.clone(), &served.api);
        let one = ListParams::default().labels(&self.selector).limit(1);
        let found = objects.list_metadata(&one).await.map_err(|error| explain(&error))?;
        Ok(!found.items.is_empty())
    }
}
