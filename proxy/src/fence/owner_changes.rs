//! Objects that were given another owner lately: until that write can't be carried out any more, what an answer shows of them
//! may be of before it.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use ringside_ring::REQUEST_LIFETIME;
use tokio::time::Instant;

use super::writes::Target;

/// Told apart at most; beyond that nothing is learned of any object for a while.
const MAX_ADOPTED: usize = 1_024;

/// How long a write that is about to be sent may be carried out: on its way for longer than [`REQUEST_LIFETIME`] if a connection has to
/// be made first.
pub(super) const WRITE_LIFETIME: Duration = REQUEST_LIFETIME.saturating_add(Duration::from_secs(10));

/// Those objects.
#[derive(Debug, Default)]
pub(super) struct OwnerChanges {
    until: HashMap<Target, Instant>,
    /// These objects, each once: by its time, or an earlier one if it was adopted again.
    order: VecDeque<(Instant, Target)>,
    all_until: Option<Instant>,
    evicted: u64,
}

impl OwnerChanges {
    /// A write that names another owner is about to be sent, or was answered.
    pub(super) fn add(&mut self, target: &Target, now: Instant) {
        self.prune(now);
        if let Some(until) = self.until.get_mut(target) {
            *until = now + WRITE_LIFETIME;
        } else if self.order.len() >= MAX_ADOPTED {
            self.all_until = Some(now + WRITE_LIFETIME);
            self.evicted += 1;
        } else {
            self.until.insert(target.clone(), now + WRITE_LIFETIME);
            self.order.push_back((now + WRITE_LIFETIME, target.clone()));
        }
    }

    /// Whether an answer may show the object as it was before.
    pub(super) fn contains(&mut self, target: &Target, now: Instant) -> bool {
        self.prune(now);
        self.until.get(target).is_some_and(|until| *until > now) || self.all_until.is_some_and(|until| until > now)
    }

    pub(super) fn count(&mut self, now: Instant) -> usize {
        self.prune(now);
        self.until.len()
    }

    pub(super) fn evicted(&self) -> u64 {
        self.evicted
    }

    fn prune(&mut self, now: Instant) {
        while let Some((_, target)) = self.order.pop_front_if(|(until, _)| *until <= now) {
            match self.until.get(&target) {
                Some(until) if *until > now => self.order.push_back((*until, target)),
                _ => drop(self.until.remove(&target)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ringside_ring::cluster_ring::GroupResource;
    use tokio::time::advance;

    use super::*;

    fn named(name: &str) -> Target {
        let resource = GroupResource { group: String::new(), resource: "xs".into() };
        Target { resource, namespace: None, name: Some(name.to_owned()) }
    }

    #[tokio::test(start_paused = true)]
    async fn adopted_expires_with_write_lifetime_and_overflow_marks_all_unknown() {
        let mut owner_changes = OwnerChanges::default();
        owner_changes.add(&named("a"), Instant::now());
        advance(WRITE_LIFETIME / 2).await;
        owner_changes.add(&named("b"), Instant::now());
        owner_changes.add(&named("a"), Instant::now());
        advance(WRITE_LIFETIME / 2).await;
        let now = Instant::now();
        assert!(owner_changes.contains(&named("a"), now), "it was adopted again");
        assert!(owner_changes.contains(&named("b"), now) && !owner_changes.contains(&named("c"), now));
        advance(WRITE_LIFETIME / 2).await;
        assert!(!owner_changes.contains(&named("a"), Instant::now()));
        for number in 0..=MAX_ADOPTED {
            owner_changes.add(&named(&number.to_string()), Instant::now());
        }
        assert!(owner_changes.contains(&named("c"), Instant::now()));
        advance(WRITE_LIFETIME).await;
        assert!(!owner_changes.contains(&named("c"), Instant::now()) && owner_changes.order.is_empty());
    }
}
