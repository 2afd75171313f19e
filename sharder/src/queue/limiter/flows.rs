//! The order of writes: by priority, then by turns of the rings, then by turns of a ring's resources.

use std::collections::{HashMap, VecDeque};

use ringside_ring::cluster_ring::GroupResource;
use tokio::{sync::oneshot, time::Instant};

use super::{PRIORITIES, Permit, Priority, limit::Limit};

/// Writes of one flow that may be under way while any of them is slow.
///
/// A webhook that blocks all writes of one resource then holds up no other resource or ring.
pub(super) const MAX_WITH_SLOW: usize = 16;
/// Permits in a row that may go to other priorities while one waits: each gets an eighth.
const MAX_PASSED_OVER: usize = 7;

/// The writes of one ring to one resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct FlowId {
    pub(super) ring: u64,
    pub(super) resource: GroupResource,
}

/// A write that may begin.
pub(super) struct Next {
    pub(super) flow: FlowId,
    pub(super) priority: Priority,
    pub(super) sender: oneshot::Sender<Permit>,
}

/// What waits and is under way of one flow.
#[derive(Default)]
pub(super) struct Flow {
    waiting: [VecDeque<oneshot::Sender<Permit>>; PRIORITIES.len()],
    pub(super) under_way: usize,
    /// Those under way that left the count.
    pub(super) slow: usize,
    /// The last turn of its ring, and its own.
    turns: [u64; 2],
}

/// All writes that wait or are under way.
pub(super) struct Flows {
    pub(super) limit: Limit,
    /// Writes under way that count against the limit.
    pub(super) used: usize,
    pub(super) flows: HashMap<FlowId, Flow>,
    /// Permits in a row that went to other priorities, while this one waited.
    passed_over: [usize; PRIORITIES.len()],
    last_turn: u64,
    paused_until: Option<Instant>,
    paused_groups: HashMap<String, Instant>,
}

impl Flows {
    /// None, of so many at once at most.
    pub(super) fn up_to(most: usize) -> Self {
        Self {
            limit: Limit::up_to(most),
            used: 0,
            flows: HashMap::new(),
            passed_over: [0; PRIORITIES.len()],
            last_turn: 0,
            paused_until: None,
            paused_groups: HashMap::new(),
        }
    }

    /// Begins no write before then, or none to the API group.
    pub(super) fn pause(&mut self, group: Option<&str>, until: Instant) {
        let Some(group) = group else {
            self.paused_until = self.paused_until.max(Some(until));
            return;
        };
        let paused = self.paused_groups.entry(group.to_owned()).or_insert(until);
        *paused = until.max(*paused);
    }

    /// Adds a write that waits for a permit.
    pub(super) fn add(&mut self, id: FlowId, priority: Priority, sender: oneshot::Sender<Permit>) {
        self.last_turn += 1;
        let of_ring = self.flows.iter().find(|(other, _)| other.ring == id.ring);
        let turns = [of_ring.map_or(self.last_turn, |(_, flow)| flow.turns[0]), self.last_turn];
        let flow = self.flows.entry(id).or_insert_with(|| Flow { turns, ..Flow::default() });
        flow.waiting[priority as usize].push_back(sender);
    }

    /// Takes the next write that may begin at this time.
    pub(super) fn next(&mut self, now: Instant) -> Option<Next> {
        self.remove_cancelled();
        if self.used >= self.limit.permits() || self.paused_until.is_some_and(|until| until > now) {
            return None;
        }
        self.paused_groups.retain(|_, until| *until > now);
        let mut first = PRIORITIES.map(|priority| self.first(priority));
        let waits = |priority: &Priority| first[*priority as usize].is_some();
        let passed_over = |priority: &Priority| self.passed_over[*priority as usize];
        let due = PRIORITIES.into_iter().filter(|one| waits(one) && passed_over(one) >= MAX_PASSED_OVER);
        let has_room = |priority: &Priority| waits(priority) && self.used < self.limit.of(*priority);
        let priority = due.max_by_key(passed_over).or_else(|| PRIORITIES.into_iter().find(has_room))?;
        for (other, passed_over) in self.passed_over.iter_mut().enumerate() {
            *passed_over = if other == priority as usize || first[other].is_none() { 0 } else { *passed_over + 1 };
        }
        self.begin(first[priority as usize].take()?, priority)
    }

    fn begin(&mut self, id: FlowId, priority: Priority) -> Option<Next> {
        self.last_turn += 1;
        for (_, flow) in self.flows.iter_mut().filter(|(other, _)| other.ring == id.ring) {
            flow.turns[0] = self.last_turn;
        }
        let flow = self.flows.get_mut(&id)?;
        let sender = flow.waiting[priority as usize].pop_front()?;
        flow.turns[1] = self.last_turn;
        flow.under_way += 1;
        self.used += 1;
        Some(Next { flow: id, priority, sender })
    }

    /// Returns the flow of this priority that has the next turn.
    fn first(&self, priority: Priority) -> Option<FlowId> {
        let may_begin = |(id, flow): &(&FlowId, &Flow)| {
            !flow.waiting[priority as usize].is_empty()
                && (flow.slow == 0 || flow.under_way < MAX_WITH_SLOW)
                && !self.paused_groups.contains_key(&id.resource.group)
        };
        let flows = self.flows.iter().filter(may_begin);
        flows.min_by_key(|(_, flow)| flow.turns).map(|(id, _)| id.clone())
    }

    fn remove_cancelled(&mut self) {
        self.flows.retain(|_, flow| {
            for waiting in &mut flow.waiting {
                while waiting.pop_front_if(|first| first.is_closed()).is_some() {}
            }
            flow.under_way > 0 || flow.waiting.iter().any(|waiting| !waiting.is_empty())
        });
    }

    /// Takes a slow write out of the count.
    pub(super) fn mark_slow(&mut self, id: &FlowId) {
        self.used -= 1;
        if let Some(flow) = self.flows.get_mut(id) {
            flow.slow += 1;
        }
    }

    /// Removes a write that has ended.
    pub(super) fn end(&mut self, id: &FlowId, is_slow: bool) {
        self.used -= usize::from(!is_slow);
        if let Some(flow) = self.flows.get_mut(id) {
            flow.under_way -= 1;
            flow.slow -= usize::from(is_slow);
        }
    }
}
