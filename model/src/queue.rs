//! What is on its way on a watch, in order.

use std::{
    hash::{Hash, Hasher},
    ops::{Deref, DerefMut},
};

use crate::state::Event;

/// More are never on their way, with all the faults that are tried.
const ROOM: usize = 14;

/// Events in order. They stand in the state itself, so that a copy of one allocates nothing: most of the time of a run is
/// spent on copies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queue {
    length: usize,
    events: [Event; ROOM],
}

impl Queue {
    pub(crate) fn push(&mut self, event: Event) {
        // Beyond the room this panics: nothing may get lost unnoticed.
        self.events[self.length] = event;
        self.length += 1;
    }

    pub(crate) fn pop(&mut self) {
        self.length = self.length.saturating_sub(1);
    }

    /// Takes the first one out.
    pub(crate) fn next(&mut self) -> Option<Event> {
        let first = *self.first()?;
        self.events.copy_within(1..self.length, 0);
        self.length -= 1;
        Some(first)
    }
}

impl Default for Queue {
    fn default() -> Self {
        Self { length: 0, events: [Event::Initial(0); ROOM] }
    }
}

impl Deref for Queue {
    type Target = [Event];

    fn deref(&self) -> &[Event] {
        &self.events[..self.length]
    }
}

impl DerefMut for Queue {
    fn deref_mut(&mut self) -> &mut [Event] {
        &mut self.events[..self.length]
    }
}

impl Extend<Event> for Queue {
    fn extend<I: IntoIterator<Item = Event>>(&mut self, events: I) {
        events.into_iter().for_each(|event| self.push(event));
    }
}

impl FromIterator<Event> for Queue {
    fn from_iter<I: IntoIterator<Item = Event>>(events: I) -> Self {
        let mut queue = Self::default();
        queue.extend(events);
        queue
    }
}

// What stands behind the last event is no part of it.
impl PartialEq for Queue {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Queue {}

impl Hash for Queue {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}
