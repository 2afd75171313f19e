//! Shard Leases: who is there.
//!
//! Every replica observes them ([`book`], [`vanished`], [`watch`]); the leader alone acts on them ([`plan`], [`act`]), and
//! holds those of shards whose objects it takes ([`hold`]).

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    num::NonZeroU32,
    sync::Arc,
    time::Duration,
};

use crate::lock::{Mutex, rank};
use k8s_openapi::{
    api::{coordination::v1::Lease, core::v1::ObjectReference},
    jiff::Timestamp,
};
use kube::{Api, Client, Resource as _, api::ListParams};
use ringside_ring::{
    Grace, Members, Moment, Ring, RingKind, RingName, ShardName,
    labels::{LEASE_ADMITTED, LEASE_RING_GENERATION, LEASE_TOKEN_POD, LEASE_WEIGHT},
};
use ringside_runtime::clock::{Boottime, SharedClock, told_or_at};
use tokio::sync::watch as channel;

mod act;
mod book;
pub(crate) mod hold;
mod names;
mod plan;
mod refusals;
mod returns;
mod rights;
mod vanished;
mod watch;

pub(crate) use act::keep_states;
pub(crate) use hold::Hold;
pub(crate) use rights::ask;
pub(crate) use watch::follow;

use book::{Answer, Book, Change, LeaseKey, OfRing};

/// Where a shard is, by its Lease.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) namespace: String,
    pub(crate) shard: String,
    /// The Pod that the shard's token is bound to, empty for none, as far as the shard says it.
    pub(crate) token_pod: Option<String>,
    /// Which of the Pods that had this name one after the other it is, as far as the shard says it.
    pub(crate) instance: Option<String>,
}

/// A shard whose controller is absent.
#[derive(Clone, Debug)]
pub(crate) struct Absent {
    pub(crate) shard: ShardName,
    /// When this replica first saw it, for people.
    pub(crate) since: Timestamp,
    /// Whether that is longer ago than a controller takes to start.
    pub(crate) lasts: bool,
}

/// The shard Leases as this replica observed them; clones share them.
#[derive(Clone)]
pub(crate) struct Leases {
    /// The kinds of ring that are served.
    kinds: &'static [RingKind],
    book: Arc<Mutex<Book, { rank::LEASES }>>,
    clock: SharedClock,
    /// Shards came, went, or changed between ready, late and gone.
    membership: channel::Sender<()>,
    /// A Lease changed in a way that its state label does not say yet.
    attention: channel::Sender<()>,
    /// The API server shows an older state than before: what is known of versions is void.
    went_back: channel::Sender<()>,
}

impl Leases {
    /// None observed yet.
    pub(crate) fn new(clock: SharedClock) -> Self {
        let signal = || channel::Sender::new(());
        let book = Arc::new(Mutex::new(Book::default()));
        Self { kinds: &RingKind::ALL, book, clock, membership: signal(), attention: signal(), went_back: signal() }
    }

    /// The same for rings of these kinds alone.
    pub(crate) fn serving(self, kinds: &'static [RingKind]) -> Self {
        self.book.lock().serve(kinds);
        Self { kinds, ..self }
    }

    /// Of which those make shards that are where the sharder was granted its rights, and no more than a ring may have: [`ask`] has
    /// to run beside.
    pub(crate) fn where_granted(self, tokens_per_shard: NonZeroU32) -> Self {
        Self { book: Arc::new(Mutex::new(Book::new(true, tokens_per_shard))), ..self }
    }

    /// The Leases of a ring as they are now, for who does not follow them. Where the sharder may write them, the ring's status
    /// says.
    pub(crate) async fn look(
        client: &Client,
        ring: &RingName,
        tokens_per_shard: NonZeroU32,
    ) -> Result<Self, kube::Error> {
        let mut leases = Self::new(Arc::new(Boottime));
        leases.book = Arc::new(Mutex::new(Book::new(false, tokens_per_shard)));
        let of_ring = ListParams::default().labels(&ring.lease_selector());
        let mut list = Api::<Lease>::all(client.clone()).list(&of_ring).await?.items;
        for kind in RingKind::ALL {
            // Those of the other kind are of no concern.
            leases.listed(kind, if kind == ring.kind() { std::mem::take(&mut list) } else { Vec::new() });
        }
        Ok(leases)
    }

    /// Tells when shards come, go, or change between ready, late and gone.
    pub(crate) fn membership(&self) -> channel::Receiver<()> {
        self.membership.subscribe()
    }

    /// Tells when the API server's time went back, as after a restore of etcd: watches must begin again.
    pub(crate) fn went_back(&self) -> channel::Receiver<()> {
        self.went_back.subscribe()
    }

    /// The shards of each ring; `None` until all Leases have been seen: a shard that is missing from half a list is not gone.
    pub(crate) fn members(&self) -> Option<BTreeMap<RingName, Members>> {
        let now = self.clock.now();
        self.book.lock().members(now, Moment::default())
    }

    /// Whether every shard of a ring that reads its Lease knows that there is this generation of the ring.
    pub(crate) fn all_know(&self, ring: &RingName, generation: i64) -> bool {
        self.unaware(ring, generation).is_empty()
    }

    /// The shards of a ring that may work and have not read of this generation.
    pub(crate) fn unaware(&self, ring: &RingName, generation: i64) -> Vec<ShardName> {
        self.book.lock().names().unread(ring, LEASE_RING_GENERATION, Some(&generation.to_string()))
    }

    /// Takes in what each ring says of its shards.
    pub(crate) fn confine<'a>(&self, rings: impl IntoIterator<Item = &'a Ring>) {
        let of_ring = |ring: &Ring| {
            let namespaces = ring.spec.shard_namespaces.iter().cloned().collect();
            let listed = ring.status.as_ref().and_then(|status| status.shard_namespaces.as_ref());
            let listed = listed.map(|listed| listed.iter().cloned().collect());
            let generation = ring.metadata.generation.unwrap_or_default().to_string();
            Some((ring.name().ok()?, OfRing { generation, namespaces, listed }))
        };
        if self.book.lock().confine(rings.into_iter().filter_map(of_ring).collect(), self.clock.now()) {
            self.membership.send_replace(());
            self.attention.send_replace(());
        }
    }

    /// Takes in whether the sharder may write Leases in these namespaces; none where there was no answer.
    fn granted(&self, answers: Vec<(Option<bool>, String)>) {
        if self.book.lock().granted(answers, self.clock.now()) {
            self.membership.send_replace(());
            self.attention.send_replace(());
        }
    }

    /// The namespaces in which Leases make shards of a ring, for its status; none where none is excluded.
    pub(crate) fn namespaces(&self, ring: &RingName) -> Option<BTreeSet<String>> {
        self.book.lock().namespaces_of(ring)
    }

    /// Why objects of shards without Lease can't be taken over, for people.
    pub(crate) fn unmade(&self, ring: &RingName) -> Vec<String> {
        self.book.lock().unmade(ring, self.clock.now())
    }

    /// Which Leases with a ring's label are not as a shard's should be, for people.
    pub(crate) fn faults(&self, ring: &RingName) -> Vec<String> {
        self.book.lock().faults(ring, self.clock.now()).collect()
    }

    /// Which names of a ring have several Leases, for people; none while instances work that have not read whether they are
    /// admitted.
    pub(crate) fn shared_names(&self, ring: &RingName) -> (bool, Vec<String>) {
        let book = self.book.lock();
        let names = book.names();
        (names.unread(ring, LEASE_ADMITTED, None).is_empty(), names.faults(ring))
    }

    /// What can't be read of the weights of a ring's shards, for people.
    pub(crate) fn weight_faults(&self, ring: &RingName) -> Vec<String> {
        let book = self.book.lock();
        let of_ring = book.iter().filter(|(_, seen)| seen.ring == *ring);
        let fault = of_ring.filter_map(|(_, seen)| Some((&seen.shard, seen.weight.as_ref().err()?)));
        fault
            .map(|(shard, fault)| format!("shard '{shard}' counts with weight 1: {LEASE_WEIGHT} on its Lease: {fault}"))
            .collect()
    }

    /// The shards of a ring that hold their Leases and whose controllers are absent.
    pub(crate) fn absent(&self, ring: &RingName) -> Vec<Absent> {
        let (book, now) = (self.book.lock(), self.clock.now());
        let held = book.iter().filter(|(_, seen)| seen.ring == *ring && seen.facts.held_by_shard);
        let absent = held.filter_map(|(_, seen)| {
            let (first, since) = seen.absent?;
            let lasts = now.since(first) >= 2 * seen.facts.duration;
            Some(Absent { shard: seen.shard.clone(), since, lasts })
        });
        absent.collect()
    }

    /// Where the shards of a ring are that hold their Leases.
    pub(crate) fn places(&self, ring: &RingName) -> Vec<Place> {
        let book = self.book.lock();
        let held = book.iter().filter(|(_, seen)| seen.ring == *ring && seen.facts.held_by_shard);
        let place = held.map(|(key, seen)| Place {
            namespace: key.namespace.clone(),
            shard: key.name.clone(),
            token_pod: seen.lease.metadata.labels.as_ref().and_then(|all| all.get(LEASE_TOKEN_POD).cloned()),
            instance: names::instance(&seen.lease).map(str::to_owned),
        });
        place.collect()
    }

    /// The Lease of a shard, for Events about it.
    pub(crate) fn reference(&self, ring: &RingName, shard: &str) -> Option<ObjectReference> {
        let book = self.book.lock();
        let found = book.iter().find(|(key, seen)| key.name == shard && seen.ring == *ring);
        found.map(|(_, seen)| seen.lease.object_ref(&()))
    }

    /// What a shard that holds its Lease promised to keep to: of several Leases of its name, the least.
    pub(crate) fn grace(&self, ring: &RingName, shard: &str) -> Option<Grace> {
        let book = self.book.lock();
        let of_shard =
            book.iter().map(|(_, seen)| seen).filter(|seen| seen.ring == *ring && seen.shard.as_str() == shard);
        of_shard.filter(|seen| seen.facts.held_by_shard).map(|seen| Grace::promised(&seen.lease)).min().flatten()
    }

    /// Tells when there may be something to do about a Lease, or when one is held.
    pub(crate) fn attention(&self) -> channel::Receiver<()> {
        self.attention.subscribe()
    }

    /// The hold on the Lease of a shard that is gone, under which the object of this uid may be taken. None where the shard is not
    /// gone, as far as this replica knows, or where there is none now: then it has been asked for.
    pub(crate) fn hold(&self, ring: &RingName, shard: &str, uid: &str) -> Option<Hold> {
        let (mut book, now) = (self.book.lock(), self.clock.now());
        let keys = book.to_hold(ring, shard, now);
        if keys.is_none() && !book.works_uncounted(ring, shard, false) {
            return None;
        }
        if let Some(held) = keys.as_ref().and_then(|keys| book.holds.all(keys, uid, now)) {
            return Some(Hold::new(shard, held, &self.clock, &self.attention));
        }
        let is_news = book.holds.want((ring.clone(), shard.to_owned()), now);
        drop(book);
        if is_news {
            self.attention.send_replace(());
        }
        if is_news && keys.is_none() {
            // A Lease that makes no shard keeps it from that, which is told.
            self.membership.send_replace(());
        }
        None
    }

    /// Asks the API server itself whether a shard takes part in partitioning now.
    ///
    /// For one that this replica knows nothing of: its own watch may be late (kube-rs waits up to 30 s before it
    /// watches again) while another replica knows the shard already.
    pub(crate) async fn is_there(&self, client: &Client, ring: &RingName, shard: &str) -> Result<bool, kube::Error> {
        if self.unknown_for(ring, shard) > Duration::ZERO {
            return Ok(true);
        }
        let of_shard = ListParams::default().labels(&ring.lease_selector()).fields(&format!("metadata.name={shard}"));
        self.read(client, &of_shard).await?;
        // Unknown is not gone.
        Ok(self.members().is_none_or(|rings| rings.get(ring).is_some_and(|members| members.is_available(shard))))
    }

    /// How long a shard without Lease may still be working: nothing may be taken from it meanwhile.
    pub(crate) fn unknown_for(&self, ring: &RingName, shard: &str) -> Duration {
        self.book.lock().unknown_for(ring, shard, self.clock.now())
    }

    /// Takes in all Leases as they are now. Those that are gone are left to the watch.
    pub(crate) async fn refresh(&self, client: &Client) -> Result<(), kube::Error> {
        for kind in self.kinds {
            self.read(client, &ListParams::default().labels(kind.names().lease_label)).await?;
        }
        Ok(())
    }

    /// Without a resourceVersion, so that no lagging API server answers with the past (CONTROL-PLANE, 10).
    async fn read(&self, client: &Client, which: &ListParams) -> Result<(), kube::Error> {
        for lease in Api::<Lease>::all(client.clone()).list(which).await? {
            self.see(lease);
        }
        Ok(())
    }

    /// Forgets vanished shards when their time is over, and tells when Leases run out.
    async fn expire(&self) -> Infallible {
        let mut membership = self.membership();
        loop {
            membership.borrow_and_update();
            let (expired, next) = self.book.lock().expire(self.clock.now());
            if expired {
                self.membership.send_replace(());
                self.attention.send_replace(());
            }
            // Its sender lives in `self`.
            told_or_at(&mut membership, &*self.clock, next).await;
        }
    }

    /// Takes in what the API server answered about a Lease; none: it is gone, which the watch will say. Returns whether it was
    /// not older than what is known.
    fn take_answer(&self, key: &LeaseKey, answer: Option<Lease>) -> bool {
        let is = self.book.lock().compare(key, answer.as_ref());
        if is == Answer::TimeWentBack {
            let (namespace, lease) = (&key.namespace, &key.name);
            tracing::warn!(namespace, lease, "the API server's state is older than before; listing all Leases again");
            self.went_back.send_replace(());
        }
        if let Some(lease) = answer {
            self.see(lease);
        }
        is == Answer::News
    }

    /// Takes in all Leases of this kind of ring, as listed.
    fn listed(&self, kind: RingKind, list: Vec<Lease>) {
        self.take_in(|book, now| book.listed(kind, list, now));
    }

    /// Takes in a Lease as it is.
    fn see(&self, lease: Lease) {
        self.take_in(|book, now| book.seen(lease, now));
    }

    /// Takes in that a Lease is none of a ring of this kind any more.
    fn gone(&self, kind: RingKind, lease: &Lease) {
        self.take_in(|book, now| book.gone(kind, lease, now));
    }

    fn take_in(&self, take: impl FnOnce(&mut Book, Moment) -> Change) {
        let change = take(&mut self.book.lock(), self.clock.now());
        if change == Change::Membership {
            self.membership.send_replace(());
        }
        if change != Change::Nothing {
            self.attention.send_replace(());
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
