//! Children by their controller's slot, and those whose controller is not known (yet).

use hashbrown::HashTable;

use super::{
    record::{Place, Slot, Uid},
    table::Table,
};

/// The children of an object: the first of a list through their records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Children(pub(super) u32);

impl Children {
    pub(super) const NONE: Self = Self(u32::MAX);
}

/// What children name as their controller: its uid, and the namespace in which alone it is theirs; 0 for one without namespace.
pub(super) type Controller = (Uid, u32);

/// Those who wait for the same controller.
#[derive(Clone, Copy)]
struct Group {
    controller: Controller,
    children: Children,
}

/// What does not fit into the records.
#[derive(Default)]
pub(super) struct Families {
    groups: Vec<Group>,
    free_groups: Vec<u32>,
    by_controller: HashTable<u32>,
}

impl Families {
    /// Makes `child` a child of `parent`.
    pub(super) fn link(table: &mut Table, child: Slot, parent: Slot) {
        let link = table.at(parent).children.0;
        table.at_mut(child).set_place(Place::Child { parent, link });
        table.at_mut(parent).children = Children(child.0);
    }

    /// Lets `child` wait for a controller.
    pub(super) fn wait(&mut self, table: &mut Table, child: Slot, controller: Controller) {
        let group = self.group_of(controller).unwrap_or_else(|| self.add_group(controller, Children::NONE));
        let children = &mut self.groups[group as usize].children;
        table.at_mut(child).set_place(Place::Waiting { group, link: children.0 });
        *children = Children(child.0);
    }

    /// Takes a child from its parent, or from those who wait.
    pub(super) fn unlink(&mut self, table: &mut Table, child: Slot) {
        match table.at(child).place() {
            Place::Child { parent, .. } => {
                let children = take(table, table.at(parent).children, child);
                table.at_mut(parent).children = children;
            }
            Place::Waiting { group, .. } => {
                let children = self.groups[group as usize].children;
                let rest = take(table, children, child);
                self.groups[group as usize].children = rest;
                if rest == Children::NONE {
                    self.remove_group(group);
                }
            }
            Place::Root { .. } | Place::Lone => {}
        }
        table.at_mut(child).set_place(Place::Lone);
    }

    /// Gives a new object those who waited for it.
    pub(super) fn adopt(&mut self, table: &mut Table, parent: Slot, known_as: Controller) {
        let Some(group) = self.group_of(known_as) else { return };
        let children = self.groups[group as usize].children;
        self.remove_group(group);
        for child in of(table, children) {
            let link = table.at(child).link();
            table.at_mut(child).set_place(Place::Child { parent, link });
        }
        table.at_mut(parent).children = children;
    }

    /// Lets the children of an object that goes wait for it.
    pub(super) fn orphan(&mut self, table: &mut Table, parent: Slot, known_as: Controller) {
        let children = std::mem::replace(&mut table.at_mut(parent).children, Children::NONE);
        if children == Children::NONE {
            return;
        }
        let group = self.add_group(known_as, children);
        for child in of(table, children) {
            let link = table.at(child).link();
            table.at_mut(child).set_place(Place::Waiting { group, link });
        }
    }

    /// Which controller a child waits for.
    pub(super) fn awaited(&self, group: u32) -> Option<Controller> {
        self.groups.get(group as usize).map(|group| group.controller)
    }

    /// For how many controllers children wait.
    #[cfg(test)]
    pub(super) fn awaited_controllers(&self) -> usize {
        self.by_controller.len()
    }

    fn group_of(&self, controller: Controller) -> Option<u32> {
        let is = |group: &u32| self.groups[*group as usize].controller == controller;
        self.by_controller.find(controller.0.hash(), is).copied()
    }

    fn add_group(&mut self, controller: Controller, children: Children) -> u32 {
        let group = Group { controller, children };
        let number = self.free_groups.pop().unwrap_or(position(self.groups.len()));
        match self.groups.get_mut(number as usize) {
            Some(place) => *place = group,
            None => self.groups.push(group),
        }
        let groups = &self.groups;
        let hash = |group: &u32| groups[*group as usize].controller.0.hash();
        self.by_controller.insert_unique(controller.0.hash(), number, hash);
        number
    }

    fn remove_group(&mut self, number: u32) {
        let hash = self.groups[number as usize].controller.0.hash();
        if let Ok(entry) = self.by_controller.find_entry(hash, |known| *known == number) {
            entry.remove();
        }
        self.free_groups.push(number);
    }

    /// How many bytes all of that takes up.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.groups.capacity() * size_of::<Group>() + self.by_controller.allocation_size()
    }
}

/// The children.
pub(super) fn of(table: &Table, children: Children) -> Vec<Slot> {
    let mut slots = Vec::new();
    let mut next = children;
    while next != Children::NONE {
        slots.push(Slot(next.0));
        next = Children(table.at(Slot(next.0)).link());
    }
    slots
}

/// Takes one of the children out; returns the others.
fn take(table: &mut Table, children: Children, child: Slot) -> Children {
    let link = table.at(child).link();
    if children.0 == child.0 {
        return Children(link);
    }
    let mut before = Slot(children.0);
    while table.at(before).link() != child.0 {
        before = Slot(table.at(before).link());
    }
    table.at_mut(before).set_link(link);
    children
}

/// A number that fits, as there are fewer than 2^31 objects.
fn position(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
