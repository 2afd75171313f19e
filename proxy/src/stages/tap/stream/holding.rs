//! What of a watch waits until children were shown, in the order in which it came.

use std::collections::VecDeque;

use bytes::Bytes;
use ringside_ring::ResourceVersion;

use crate::body::BodyError;

/// So many bytes wait at most: then the API server is read no further.
const MAX_HELD: usize = 256 << 10;

/// Pieces of a watch that wait.
#[derive(Debug)]
pub(super) struct Holding {
    pieces: VecDeque<Piece>,
    bytes: usize,
    /// The first pieces, which were asked about together.
    asked: usize,
    /// Of those, whether they may pass.
    are_free: bool,
    /// How the API server's bytes ended behind them.
    pub(super) ended: Option<Option<BodyError>>,
}

/// What came together.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) bytes: Bytes,
    /// What it proves, once the client has it.
    pub(super) proves: Option<ResourceVersion>,
    /// Whether an object came with it whose children are waited for.
    pub(super) waits: bool,
    /// Whether it begins with an event.
    pub(super) begins: bool,
}

impl Holding {
    /// The first that waits, which is asked about.
    pub(super) fn of(piece: Piece) -> Self {
        let bytes = piece.bytes.len();
        Self { pieces: VecDeque::from([piece]), bytes, asked: 1, are_free: false, ended: None }
    }

    /// This waits behind all that does.
    pub(super) fn hold(&mut self, piece: Piece) {
        self.bytes += piece.bytes.len();
        self.pieces.push_back(piece);
    }

    /// Whether there is more to read, and room for it.
    pub(super) fn may_read(&self) -> bool {
        self.ended.is_none() && self.bytes < MAX_HELD
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Whether what waits begins with an event, so that it can be dropped.
    pub(super) fn begins(&self) -> bool {
        self.pieces.front().is_none_or(|piece| piece.begins)
    }

    /// What was asked about may pass.
    pub(super) fn free(&mut self) {
        self.are_free = true;
    }

    /// Whether the first piece may pass.
    pub(super) fn is_free(&self) -> bool {
        self.are_free
    }

    /// Returns the first piece, and whether those behind it are to be asked about.
    pub(super) fn release(&mut self) -> (Option<Piece>, bool) {
        let piece = self.pieces.pop_front();
        self.bytes -= piece.as_ref().map_or(0, |piece| piece.bytes.len());
        self.asked = self.asked.saturating_sub(1);
        if self.asked > 0 {
            return (piece, false);
        }
        // All that came until now waits together.
        self.asked = self.pieces.len();
        self.are_free = !self.pieces.iter().any(|piece| piece.waits);
        (piece, !self.are_free)
    }
}
