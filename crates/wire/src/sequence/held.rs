//! Live batches that wait for a replay's end.

use std::collections::VecDeque;

use super::step::Frame;

/// Batches in the order in which they came, within bounds. What comes beyond is dropped, and shows as a gap afterwards.
#[derive(Debug, Default)]
pub(super) struct Held {
    frames: VecDeque<Frame>,
    bytes: usize,
}

const MAX_FRAMES: usize = 1 << 16;
pub(super) const MAX_BYTES: usize = 64 << 20;

// === impl Held ===

impl Held {
    pub(super) fn push(&mut self, frame: Frame) {
        if self.frames.len() < MAX_FRAMES && self.bytes + frame.payload.len() <= MAX_BYTES {
            self.bytes += frame.payload.len();
            self.frames.push_back(frame);
        }
    }

    pub(super) fn front(&self) -> Option<&Frame> {
        self.frames.front()
    }

    pub(super) fn drain(&mut self) -> impl Iterator<Item = Frame> {
        self.bytes = 0;
        self.frames.drain(..)
    }
}
