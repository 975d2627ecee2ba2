//! The order of one rank's batches: what to apply, when to forget, what to ask for again.
//!
//! An engine numbers its batches from 0 (llm-d's simulator: from 1) at each start, publishes each once, and may keep the
//! last ones for a replay. The index is right only if every batch is applied once and in order: a removal that is lost
//! leaves a block that is not there. So wherever a batch may have been missed, either a replay closes the gap, or the
//! worker is *reset*: all that is known of it is forgotten. That is always sound, since blocks that are stored later under
//! a forgotten parent wait.
//!
//! ```text
//!              live batch is the next one: apply                  live batch comes: hold
//!             +------------------------------+                     +-----------------+
//!             v                              |   gap, restart,     v                 |
//!           LIVE -----------------------------------------------> REPLAYING ----------
//!             ^                                  connected           |
//!             +------------------------------------------------------+
//!                replay ends: take the held batches as live ones
//! ```
//!
//! Two things are not as simple as they look:
//! * After a replay the live stream brings batches that the replay has brought already. They are not a restart: each
//!   batch of a replay leaves its fingerprint, and a live batch with the same number and fingerprint is passed over. A
//!   batch holds the time at which it was made, so no two are alike.
//! * A number that is ahead may come from another process that has counted so far: a replay over a gap asks from the last
//!   batch that was applied, and whether that batch comes back unchanged tells.
//!
//! No I/O and no clock: the caller feeds what it receives and does what the [`Step`]s say.

mod applied;
mod held;
mod step;

pub use self::applied::Applied;
use self::applied::Replayed;
use self::held::Held;
pub use self::step::{Frame, GapOutcome, ReplayOutcome, ResetCause, Step};

/// The order of one rank's batches.
#[derive(Debug)]
pub struct Sequence {
    can_replay: bool,
    /// The number of an engine's first batch.
    first_seq: u64,
    /// The last batch applied. None: nothing is known of the worker.
    last: Option<Applied>,
    /// The last batch was applied by a process before this one: it is still to be seen whether it is the engine's.
    resuming: bool,
    replay: Option<Replay>,
    /// Batches that replays brought and the live stream may bring too.
    replayed: Replayed,
    /// A replay has failed, and the time for another has not come.
    backing_off: bool,
    /// Replays begun since a live batch was the next one.
    in_a_row: u32,
    /// Batches that the engine may still have are missing.
    incomplete: bool,
}

/// A replay under way.
#[derive(Debug)]
struct Replay {
    purpose: Purpose,
    /// Whether a batch has come.
    begun: bool,
    /// Whether a batch of it was applied.
    brought: bool,
    /// Whether one was missing at the start or in between.
    partial: bool,
    /// Live batches that wait for its end.
    held: Held,
}

/// What a replay is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// All that the engine has; nothing is known of it yet.
    Whole,
    /// All that the engine has, to replace what is known. Live batches are applied until it begins.
    Recovery,
    /// What is missing after the last batch applied, which comes first to show that it is the same process.
    Gap,
    /// The same, after the connection was lost.
    Reconnect,
    /// Whatever the live stream may have failed to bring.
    Probe,
}

/// Replays that may follow upon each other without a live batch that fits: an engine whose replays do not reach its own
/// live stream is not asked for ever.
const MAX_IN_A_ROW: u32 = 3;

// === impl Sequence ===

impl Sequence {
    /// Nothing received yet. `can_replay`: the engine has a replay endpoint; `first_seq`: the number of its first batch.
    pub fn new(can_replay: bool, first_seq: u64) -> Self {
        Self {
            can_replay,
            first_seq,
            last: None,
            resuming: false,
            replay: None,
            replayed: Replayed::default(),
            backing_off: false,
            in_a_row: 0,
            incomplete: false,
        }
    }

    /// Nothing received yet, but a process before this one has applied everything up to a batch, and kept it.
    ///
    /// Whether the engine is still the same is asked as after a lost connection: its replay must begin with that very batch.
    /// [`Step::Resumed`] says so; a reset says otherwise. One of them comes before any batch.
    pub fn resume(&mut self, last: Applied) {
        if self.can_replay && self.last.is_none() {
            self.last = Some(last);
            self.resuming = true;
        }
    }

    /// Whether a replay is under way.
    pub fn is_replaying(&self) -> bool {
        self.replay.is_some()
    }

    /// The live stream is connected, for the first time or again.
    pub fn connected(&mut self, steps: &mut Vec<Step>) {
        if !self.can_replay {
            // Whether it is the same process cannot be asked, and the next number might fit by chance.
            if self.last.is_some() {
                self.forget(ResetCause::Reconnect, steps);
            }
            return;
        }
        self.allow_replays();
        let all = self.incomplete
            || matches!(&self.replay, Some(replay) if matches!(replay.purpose, Purpose::Whole | Purpose::Recovery));
        match self.last {
            Some(last) if !all => self.begin(Purpose::Reconnect, last.seq, steps),
            known => {
                // A whole replay is wanted anyway: it may as well show what process answers now.
                if known.is_some() {
                    self.forget(ResetCause::Reconnect, steps);
                }
                self.begin(Purpose::Whole, 0, steps);
            }
        }
    }

    /// The live stream has been silent for a while: ask whether it should have been.
    pub fn probe(&mut self, steps: &mut Vec<Step>) {
        if self.may_replay() {
            self.in_a_row = 0;
            match self.last {
                Some(last) => self.begin(Purpose::Probe, last.seq + 1, steps),
                None => self.begin(Purpose::Whole, 0, steps),
            }
        }
    }

    /// The time that [`Step::RetryLater`] asked for has passed.
    pub fn retry(&mut self, steps: &mut Vec<Step>) {
        self.allow_replays();
        if self.incomplete && self.replay.is_none() {
            let purpose = if self.last.is_some() { Purpose::Recovery } else { Purpose::Whole };
            self.begin(purpose, 0, steps);
        }
    }

    /// A batch of the live stream.
    pub fn live(&mut self, frame: Frame, steps: &mut Vec<Step>) {
        match &mut self.replay {
            None => self.take_live(frame, steps),
            Some(replay) => {
                let apply_too = replay.purpose == Purpose::Recovery && !replay.begun;
                replay.held.push(frame.clone());
                if apply_too {
                    self.take_live(frame, steps);
                }
            }
        }
    }

    /// A batch of the replay.
    pub fn replayed(&mut self, frame: &Frame, steps: &mut Vec<Step>) {
        let Some(replay) = &mut self.replay else { return };
        let first = !std::mem::replace(&mut replay.begun, true);
        match (replay.purpose, self.last) {
            (Purpose::Recovery, _) if first => {
                self.forget(ResetCause::Recovery, steps);
            }
            (Purpose::Gap | Purpose::Reconnect, Some(last)) if first && frame.seq == last.seq => {
                if last.is(frame) {
                    if std::mem::take(&mut self.resuming) {
                        steps.push(Step::Resumed);
                    }
                    return;
                }
                // Another process has counted as far as this one had.
                self.forget(ResetCause::Restart, steps);
                return self.begin(Purpose::Whole, 0, steps);
            }
            // An engine that sends more than was asked.
            (Purpose::Gap | Purpose::Reconnect | Purpose::Probe, Some(last)) if frame.seq <= last.seq => {
                replay.begun = !first;
                return;
            }
            // The live stream has failed to bring it: perhaps since another process answers now.
            (Purpose::Probe, Some(last)) => return self.begin(Purpose::Reconnect, last.seq, steps),
            // The engine keeps no batch that shows it to be the same process. After a mere gap, a window that begins
            // right where it is needed is believed; a connection that was lost is too good a reason for doubt.
            (Purpose::Reconnect, Some(_)) if first => {
                replay.partial = true;
                self.forget(ResetCause::Gap, steps);
            }
            _ => {}
        }
        self.take_replayed(frame, steps);
    }

    /// The replay has ended, in order (`ended`) or not.
    pub fn replay_ended(&mut self, ended: bool, steps: &mut Vec<Step>) {
        let Some(mut replay) = self.replay.take() else { return };
        let outcome = match (ended, replay.partial) {
            (true, false) => ReplayOutcome::Complete,
            (true, true) => ReplayOutcome::Partial,
            (false, _) => ReplayOutcome::Failed,
        };
        steps.push(Step::Replayed(outcome));
        if ended && !replay.begun && matches!(replay.purpose, Purpose::Gap | Purpose::Reconnect) {
            // The engine has not even the last batch that came from it: it is another process, and has not counted as
            // far. What it has published, it still has.
            if replay.purpose == Purpose::Gap {
                steps.push(Step::Gap(GapOutcome::Unrecovered));
            }
            self.forget(ResetCause::Restart, steps);
            self.replay = Some(replay);
            return self.begin(Purpose::Whole, 0, steps);
        }
        if ended {
            self.conclude(&replay, steps);
        } else {
            self.incomplete |= replay.purpose != Purpose::Probe;
            if replay.purpose == Purpose::Reconnect && !replay.begun {
                // It may be another process, and the next number might fit by chance.
                self.forget(ResetCause::Reconnect, steps);
            }
            self.back_off(steps);
        }
        if replay.purpose == Purpose::Recovery && !replay.begun {
            // What was held has been applied as it came.
            return;
        }
        for frame in replay.held.drain() {
            self.live(frame, steps);
        }
    }

    /// Takes stock of a replay that ended in order.
    fn conclude(&mut self, replay: &Replay, steps: &mut Vec<Step>) {
        match replay.purpose {
            Purpose::Whole | Purpose::Recovery => self.incomplete = false,
            Purpose::Gap if !replay.partial && self.reaches(replay.held.front()) => {
                steps.push(Step::Gap(GapOutcome::Recovered));
            }
            Purpose::Gap | Purpose::Reconnect | Purpose::Probe => {}
        }
    }

    /// Whether no batch is missing before this one.
    fn reaches(&self, frame: Option<&Frame>) -> bool {
        frame.is_none_or(|frame| self.last.is_none_or(|last| frame.seq <= last.seq + 1))
    }

    fn take_live(&mut self, frame: Frame, steps: &mut Vec<Step>) {
        let Some(last) = self.last else { return self.first(frame, steps) };
        let next = last.seq + 1;
        if frame.seq == next {
            self.replayed.clear();
            self.in_a_row = 0;
            self.apply(frame, steps);
        } else if frame.seq > next {
            self.gap(last, frame, steps);
        } else if !last.is(&frame) && !self.replayed.has(&frame) {
            self.restart(frame, steps);
        }
    }

    /// Nothing is known: the engine may have published more before, even since a replay that brought nothing.
    fn first(&mut self, frame: Frame, steps: &mut Vec<Step>) {
        if frame.seq > self.first_seq && self.may_replay() {
            self.begin(Purpose::Whole, 0, steps);
            return self.live(frame, steps);
        }
        self.apply(frame, steps);
    }

    fn gap(&mut self, last: Applied, frame: Frame, steps: &mut Vec<Step>) {
        if self.may_replay() {
            self.begin(Purpose::Gap, last.seq, steps);
            return self.live(frame, steps);
        }
        steps.push(Step::Gap(GapOutcome::Unrecovered));
        self.forget(ResetCause::Gap, steps);
        self.go_on_without_replay(frame, steps);
    }

    fn restart(&mut self, frame: Frame, steps: &mut Vec<Step>) {
        self.forget(ResetCause::Restart, steps);
        if self.may_replay() {
            self.begin(Purpose::Whole, 0, steps);
            return self.live(frame, steps);
        }
        self.go_on_without_replay(frame, steps);
    }

    fn go_on_without_replay(&mut self, frame: Frame, steps: &mut Vec<Step>) {
        if self.can_replay {
            self.incomplete = true;
            self.back_off(steps);
        }
        self.apply(frame, steps);
    }

    fn take_replayed(&mut self, frame: &Frame, steps: &mut Vec<Step>) {
        let Some(replay) = &mut self.replay else { return };
        match self.last {
            // An engine that has published for long has not kept its first batches: what it has is still true.
            None => replay.partial |= frame.seq > self.first_seq,
            Some(last) if frame.seq == last.seq + 1 => {}
            Some(last) if frame.seq > last.seq && replay.brought => {
                // The engine has dropped a part of its own answer, as vLLM before 0.33 does where more is asked for than
                // its socket takes at once. The rest is asked for again; each answer brings at least one batch.
                let (purpose, from) = match replay.purpose {
                    Purpose::Whole | Purpose::Recovery => (Purpose::Whole, last.seq + 1),
                    Purpose::Gap | Purpose::Reconnect | Purpose::Probe => (Purpose::Gap, last.seq),
                };
                self.begin(purpose, from, steps);
                self.in_a_row = 1;
                return;
            }
            Some(last) => {
                replay.partial = true;
                if frame.seq > last.seq {
                    steps.push(Step::Gap(GapOutcome::Unrecovered));
                    self.forget(ResetCause::Gap, steps);
                } else {
                    self.forget(ResetCause::Restart, steps);
                }
            }
        }
        if let Some(replay) = &mut self.replay {
            replay.brought = true;
        }
        self.replayed.push(frame);
        self.apply(frame.clone(), steps);
    }

    fn apply(&mut self, frame: Frame, steps: &mut Vec<Step>) {
        let applied = Applied::of(&frame);
        self.last = Some(applied);
        steps.push(Step::Apply(applied, frame.payload));
    }

    fn forget(&mut self, cause: ResetCause, steps: &mut Vec<Step>) {
        self.last = None;
        self.resuming = false;
        self.replayed.clear();
        steps.push(Step::Reset(cause));
    }

    fn may_replay(&self) -> bool {
        self.can_replay && !self.backing_off && self.in_a_row < MAX_IN_A_ROW && self.replay.is_none()
    }

    fn allow_replays(&mut self) {
        self.backing_off = false;
        self.in_a_row = 0;
    }

    fn back_off(&mut self, steps: &mut Vec<Step>) {
        if !std::mem::replace(&mut self.backing_off, true) {
            steps.push(Step::RetryLater);
        }
    }

    /// Begins a replay, in the place of one under way: what that holds is held on.
    fn begin(&mut self, purpose: Purpose, from: u64, steps: &mut Vec<Step>) {
        let held = self.replay.take().map(|replay| replay.held).unwrap_or_default();
        self.replay = Some(Replay { purpose, begun: false, brought: false, partial: false, held });
        self.in_a_row += 1;
        steps.push(Step::Replay { from });
    }
}

#[cfg(test)]
mod tests;
