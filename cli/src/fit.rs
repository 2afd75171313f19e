//! Whether a controller can be shared among replicas: rules, what is looked at, and what is found.

pub mod documents;
pub mod evaluate;
pub mod gather;
pub mod grants;
pub mod known;
pub mod page;
pub mod resources;
pub mod rules;
pub mod subject;

pub use self::{
    evaluate::{Finding, Mark, evaluate},
    rules::{Rule, Rules, Verdict},
    subject::Subject,
};
