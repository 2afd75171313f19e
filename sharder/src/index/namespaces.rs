//! The namespaces of all objects, by number, and which of them are selected.

use super::{Selection, names::Interner};

const MAX_NAMESPACES: u32 = (1 << 24) - 1;

/// The namespaces.
pub(super) struct Namespaces {
    names: Interner,
    /// By number less 1, as it was last said.
    selected: Vec<Option<bool>>,
    selection: Selection,
}

impl Namespaces {
    /// None yet; `selection` is asked about each that comes.
    pub(super) fn new(selection: Selection) -> Self {
        Self { names: Interner::new(MAX_NAMESPACES), selected: Vec::new(), selection }
    }

    /// The number of a namespace, which one more object has; 0 for no namespace.
    pub(super) fn acquire(&mut self, namespace: &str) -> u32 {
        if namespace.is_empty() {
            return 0;
        }
        let is_new = self.names.find(namespace).is_none();
        let number = self.names.acquire(namespace).unwrap_or_default();
        if is_new && let Some(at) = number.checked_sub(1) {
            self.selected.resize(self.selected.len().max(at as usize + 1), None);
            self.selected[at as usize] = (self.selection)(namespace);
        }
        number
    }

    /// One object less has the namespace.
    pub(super) fn release(&mut self, number: u32) {
        self.names.release(number);
    }

    /// The name; empty for 0.
    pub(super) fn get(&self, number: u32) -> &str {
        self.names.get(number)
    }

    pub(super) fn find(&self, namespace: &str) -> Option<u32> {
        self.names.find(namespace)
    }

    /// The namespaces of all objects.
    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        self.names.iter()
    }

    /// Whether a namespace is selected, by its number; an object without namespace is.
    pub(super) fn is_selected(&self, number: u32) -> Option<bool> {
        number.checked_sub(1).map_or(Some(true), |at| self.selected.get(at as usize).copied().flatten())
    }

    /// Whether a namespace is known not to be selected.
    pub(super) fn excludes(&self, namespace: &str) -> bool {
        let selected = match self.names.find(namespace) {
            Some(known) => self.is_selected(known),
            None if namespace.is_empty() => Some(true),
            None => (self.selection)(namespace),
        };
        selected == Some(false)
    }

    pub(super) fn select(&mut self, number: u32, selected: Option<bool>) {
        if let Some(known) = number.checked_sub(1).and_then(|at| self.selected.get_mut(at as usize)) {
            *known = selected;
        }
    }

    /// How many bytes all of that takes up, by and large.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.names.bytes()
    }
}
