//! Which requests go to another API server than the others.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use super::{forward::Forward, record::locked};

#[derive(Clone, Debug, Default)]
pub(super) struct Routes(Arc<Mutex<HashMap<String, Forward>>>);

impl Routes {
    pub(super) fn set(&self, mark: &str, forward: Forward) {
        locked(&self.0).insert(mark.to_owned(), forward);
    }

    pub(super) fn of(&self, mark: &str) -> Option<Forward> {
        locked(&self.0).get(mark).cloned()
    }
}
