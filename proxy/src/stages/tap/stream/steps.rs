//! What happens to a watch, and what has to be done then.

use std::collections::VecDeque;

use bytes::Bytes;
use ringside_ring::ResourceVersion;

use super::super::End;
use crate::{
    body::BodyError,
    frames::{Deleted, Frames},
    request::representation::Encoding,
};

/// What happens to a watch.
#[derive(Debug)]
pub(in crate::stages::tap) enum Input {
    /// The API server's next bytes.
    Bytes(Bytes),
    /// The API server ended the watch, or is gone, with that error.
    UpstreamEnded(Option<BodyError>),
    /// An object left that the API server's bytes don't tell of.
    Left(Deleted),
    /// The watches of children have caught up with what was asked about.
    ChildrenShown,
    /// The client's connection has room for the next of what was held.
    NextHeld,
    /// What the watch was admitted by is over.
    AdmissionOver,
    /// The rest of the event under way did not come in time.
    RestOverdue,
    /// The watch that was asked for again begins here.
    Reopened(Reopened),
    /// Nothing more comes of what was asked.
    NotReopened,
    /// The client can open another watch, and all that came was told.
    Regained,
    End(End),
}

/// A watch that was asked for again.
#[derive(Debug)]
pub(in crate::stages::tap) struct Reopened {
    pub(in crate::stages::tap) frames: Frames,
    /// Where it begins.
    pub(in crate::stages::tap) from: ResourceVersion,
    /// Whether something may have passed between that and where the last one ended.
    pub(in crate::stages::tap) has_gap: bool,
}

/// What has to be done. What is behind a [`Effect::Send`] is done once the client's connection took that.
#[derive(Debug)]
pub(in crate::stages::tap) enum Effect {
    /// The client gets this.
    Send(Bytes),
    /// The client has seen everything up to here.
    Advance(ResourceVersion),
    /// To ask whether the watches of children have caught up.
    AskAboutChildren,
    /// To wait for the rest of the event under way, for a moment.
    WaitForRest,
    /// The view ends, and its client would have gone on.
    BreakOff,
    /// The same, unless the client has ended the watch itself.
    BreakOffUnlessEnded,
    /// The watch shows nothing any more, so it holds up no release.
    CloseView,
    /// The API server is read no further.
    StopReading,
    /// To ask for the watch again.
    Reopen(Position),
    /// To find out from lists what left.
    FindOut(Position),
    End(Ending),
}

/// How far a watch has come that is asked for again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::stages::tap) struct Position {
    pub(in crate::stages::tap) at: ResourceVersion,
    /// Whether the API server does not know what was then.
    pub(in crate::stages::tap) is_old: bool,
    /// In which encoding it came.
    pub(in crate::stages::tap) encoding: Option<Encoding>,
}

/// How a watch ends.
#[derive(Debug)]
pub(in crate::stages::tap) enum Ending {
    InOrder,
    /// The client has half an event, whose rest does not come.
    HalfAnEvent,
    /// What the API server sent is not in the format that it announced.
    Malformed,
    /// The API server is gone in the middle of an event.
    Error(BodyError),
}

/// What is done next, in order.
pub(in crate::stages::tap) type Effects = VecDeque<Effect>;
