//! The leader's writes to shard Leases: the state label, the acquisition of uncertain ones, holds, the deletion of orphaned ones.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    time::Duration,
};

use futures::{
    StreamExt,
    stream::{self, FuturesUnordered},
};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, Client, Resource as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions},
};
use ringside_ring::{
    labels::{LEASE_ADMITTED, LEASE_STATE, ring_of},
    lease::{ShardState, annotation},
};
use ringside_runtime::clock::{sleep_until, told_or_at};
use serde_json::json;
use tokio::sync::Semaphore;

mod holding;

use self::holding::{acquire, make, release, renew};
use super::{
    Leases,
    book::{LeaseKey, state_label},
    plan::{Action, Todo, plan},
};
use crate::{
    api_error::lasts,
    metrics::Metrics,
    notices::{Notice, Notices},
};
use ringside_runtime::explain::{code, explain};

/// Writes at once in a namespace: many Leases change together when the sharder starts or the network was away.
const PARALLEL_WRITES: usize = 8;
/// The same in all of them.
const ALL_WRITES: usize = 64;
/// How soon a write that failed is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Why a write to a Lease did not do what it should.
#[derive(Debug, thiserror::Error)]
enum WriteError {
    /// The API server refused it, or is away.
    #[error("{}", explain(.0))]
    Request(#[from] kube::Error),
    /// Something takes it off in the same write: trying again at once would never end.
    #[error("the label or annotation is not in the answer; is an admission webhook or policy dropping it?")]
    Dropped,
}

impl WriteError {
    fn code(&self) -> Option<u16> {
        match self {
            Self::Request(error) => code(error),
            Self::Dropped => None,
        }
    }

    /// Whether the same action will fail alike until a person does something about it.
    fn stays(&self, action: &Action) -> bool {
        let tells = matches!(action, Action::Tell);
        match self {
            Self::Request(error) => lasts(error) || tells && matches!(code(error), Some(400 | 422)),
            Self::Dropped => tells,
        }
    }
}

/// Keeps the states of all Leases, for as long as this replica leads.
///
/// It judges by what this replica itself observed, also before it led: a leader that often changes would declare no shard
/// dead otherwise. What it missed costs no shard its Lease, as the acquisition fails after any renewal.
pub(crate) async fn keep_states(client: Client, leases: Leases, metrics: Metrics, notices: Notices) -> Infallible {
    let since = leases.clock.now();
    let mut attention = leases.attention.subscribe();
    let places = Semaphore::new(ALL_WRITES);
    // A webhook may let the writes of one namespace hang, each for a minute. Those of others don't wait for them.
    let mut batches = FuturesUnordered::new();
    // The namespaces with a batch, and the shards that are told something in it. Of two shards of a name one is admitted: the next
    // is decided on what the last write came to.
    let mut busy: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    loop {
        attention.borrow_and_update();
        let now = leases.clock.now();
        let (todos, next) = {
            let book = leases.book.lock();
            metrics.states(&book.members(now, since).unwrap_or_default());
            plan(&book, now, since)
        };
        for (namespace, mut todos) in by_namespace(todos) {
            if busy.contains_key(&namespace) {
                continue;
            }
            let tells = |todo: &Todo| todo.action == Action::Tell;
            todos.retain(|todo| !tells(todo) || !busy.values().any(|told| told.contains(&todo.key.name)));
            if !todos.is_empty() {
                let told = todos.iter().filter(|todo| tells(todo)).map(|todo| todo.key.name.clone()).collect();
                busy.insert(namespace.clone(), told);
                batches.push(carry_out((&client, &places), &leases, &notices, namespace, todos));
            }
        }
        tokio::select! {
            // Its sender lives in `leases`.
            () = told_or_at(&mut attention, &*leases.clock, next) => {}
            Some(namespace) = batches.next() => drop(busy.remove(&namespace)),
        }
    }
}

fn by_namespace(todos: Vec<Todo>) -> BTreeMap<String, Vec<Todo>> {
    let mut namespaces: BTreeMap<String, Vec<Todo>> = BTreeMap::new();
    for todo in todos {
        namespaces.entry(todo.key.namespace.clone()).or_default().push(todo);
    }
    namespaces
}

/// Carries out the actions in a namespace. Returns the namespace once the next may begin there.
async fn carry_out(
    (client, places): (&Client, &Semaphore),
    leases: &Leases,
    notices: &Notices,
    namespace: String,
    todos: Vec<Todo>,
) -> String {
    let outcomes = stream::iter(todos).map(|todo| async move {
        // Closed never.
        let _place = places.acquire().await;
        let outcome = act((client, notices), leases, &todo).await;
        if let Err(error) = &outcome {
            let (namespace, lease, action) = (&todo.key.namespace, &todo.key.name, &todo.action);
            tracing::warn!(namespace, lease, ?action, %error, "can't write to a shard's Lease; trying again");
        }
        let refused = outcome.as_ref().err().filter(|error| error.stays(&todo.action)).map(ToString::to_string);
        let waits = refused.is_some();
        if leases.book.lock().wrote(&todo.key, refused, leases.clock.now()) {
            leases.membership.send_replace(());
        }
        outcome.unwrap_or(waits)
    });
    if !outcomes.buffer_unordered(PARALLEL_WRITES).fold(true, async |all, done| all & done).await {
        // Whatever is seen meanwhile: that may bring about the same conflict.
        sleep_until(&*leases.clock, leases.clock.now() + RETRY).await;
    }
    namespace
}

/// Does it, and tells of it on the Lease; returns whether the Lease was as it was known.
async fn act((client, notices): (&Client, &Notices), leases: &Leases, todo: &Todo) -> Result<bool, WriteError> {
    let api: Api<Lease> = Api::namespaced(client.clone(), &todo.key.namespace);
    let begun = leases.clock.now();
    let outcome = match &todo.action {
        Action::Tell => tell_shard(&api, client, leases, todo).await.map(Some),
        Action::Label(state) => label(&api, todo, *state).await.map(Some),
        Action::Acquire => match acquire(&api, todo).await {
            Err(error) if error.code() != Some(409) && todo.state_label() != Some(ShardState::Uncertain.as_str()) => {
                // That is what the shard remains while the API server does not accept. The answer may show a
                // renewal, which then counts.
                let lease = label(&api, todo, ShardState::Uncertain).await?;
                tell(notices, todo, &lease);
                leases.take_answer(&todo.key, Some(lease));
                Err(error)
            }
            outcome => outcome.map(Some),
        },
        Action::Hold => acquire(&api, todo).await.map(Some),
        Action::Renew => renew(&api, leases, todo, begun).await,
        Action::Make => make((&api, client), leases, todo, begun).await,
        Action::Release => release(&api, leases, todo).await,
        Action::Delete => delete(&api, leases, todo).await.map(|()| None),
    };
    match outcome {
        Ok(None) => Ok(true),
        Ok(Some(lease)) => {
            tell(notices, todo, &lease);
            // Not only by the watch: the next action is decided on the answer, resourceVersion included.
            let is_news = leases.take_answer(&todo.key, Some(lease));
            if matches!(todo.action, Action::Acquire | Action::Hold | Action::Make) {
                leases.book.lock().hold(&todo.key, &todo.lease, begun);
            }
            leases.attention.send_replace(());
            Ok(is_news)
        }
        Err(error) => match error.code() {
            // Deleted or written meanwhile, most likely a renewal: what it says now decides.
            Some(404 | 409) => {
                let lease = api.get_opt(&todo.key.name).await?;
                leases.take_answer(&todo.key, lease);
                Ok(false)
            }
            _ => Err(error),
        },
    }
}

/// Tells on the Lease what has become of its shard. What a shard is, its label says, so that no change is told twice, also
/// when another replica leads.
fn tell(notices: &Notices, todo: &Todo, lease: &Lease) {
    let (before, Some(now)) = (todo.state_label(), state_label(lease)) else { return };
    // A hold changes nothing that people know of the shard.
    if matches!(todo.action, Action::Tell | Action::Make) || before == Some(now) && todo.action != Action::Acquire {
        return;
    }
    let (reason, what) = match now {
        "ready" => ("ShardReady", "the shard holds its Lease"),
        "expired" => ("ShardExpired", "the shard has not renewed its Lease in time; it still takes part"),
        "uncertain" => (
            "ShardUncertain",
            "the shard does not renew its Lease, and the sharder can't acquire it; it still takes part",
        ),
        _ if matches!(todo.action, Action::Acquire) => {
            ("ShardDead", "the shard did not renew its Lease, so the sharder acquired it: its objects go to others")
        }
        _ => ("ShardDead", "the shard has released its Lease: its objects go to others"),
    };
    let before = before.map(|before| format!(" (it was {before})")).unwrap_or_default();
    let released = now == ShardState::Dead.as_str() && !matches!(todo.action, Action::Acquire);
    let warns = now != ShardState::Ready.as_str() && !released;
    let notice = Notice { warns, reason: reason.to_owned(), action: "Judge", note: format!("{what}{before}") };
    notices.tell(lease.object_ref(&()), None, notice);
}

/// Writes on a Lease what its shard has to know: whether it is admitted, by all Leases of its name as the API server has them now. The uid is tested, and
/// the version is not: a renewal in between is as good a Lease to write this on.
async fn tell_shard(api: &Api<Lease>, client: &Client, leases: &Leases, todo: &Todo) -> Result<Lease, WriteError> {
    let LeaseKey { namespace, name } = &todo.key;
    let marks = || {
        let book = leases.book.lock();
        book.marks_for(&book.names(), &todo.key)
    };
    if marks().contains_key(LEASE_ADMITTED)
        && let Some(Ok(ring)) = ring_of(&todo.lease.metadata)
    {
        let of_name =
            ListParams::default().labels(ring.kind().names().lease_label).fields(&format!("metadata.name={name}"));
        leases.read(client, &of_name).await?;
    }
    let marks = marks();
    let patch = json!({"metadata": {"uid": todo.lease.metadata.uid, "annotations": marks}});
    let lease = api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    tracing::info!(namespace, shard = name, ?marks, "annotated a shard's Lease");
    let is_there = marks.iter().all(|(mark, value)| annotation(&lease, mark) == Some(value));
    if is_there { Ok(lease) } else { Err(WriteError::Dropped) }
}

async fn label(api: &Api<Lease>, todo: &Todo, state: ShardState) -> Result<Lease, WriteError> {
    let patch = json!({"metadata": {"labels": {LEASE_STATE: state.as_str()}}});
    let lease = api.patch(&todo.key.name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    if state_label(&lease) != Some(state.as_str()) {
        return Err(WriteError::Dropped);
    }
    tracing::info!(namespace = todo.key.namespace, shard = todo.key.name, %state, "a shard's state changed");
    Ok(lease)
}

async fn delete(api: &Api<Lease>, leases: &Leases, todo: &Todo) -> Result<(), WriteError> {
    let metadata = &todo.lease.metadata;
    let preconditions =
        Preconditions { uid: metadata.uid.clone(), resource_version: metadata.resource_version.clone() };
    api.delete(&todo.key.name, &DeleteParams::default().preconditions(preconditions)).await?;
    // Else it would be deleted once more before the watch shows that.
    if let Some(Ok(ring)) = ring_of(metadata) {
        leases.gone(ring.kind(), &todo.lease);
    }
    tracing::info!(namespace = todo.key.namespace, shard = todo.key.name, "deleted the Lease of a shard that is gone");
    Ok(())
}

#[cfg(test)]
mod tests;
