//! From the messages of an engine's sockets to the index.

use std::cell::RefCell;
use std::rc::Rc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use warmroute_wire::sequence::{Frame, Sequence, Step};
use warmroute_wire::{Adapter, Engine};

use crate::Component;
use crate::bindings::exports::warmroute::routing::events as wit;
use crate::prefix_index::{Index, State};

/// The events of one worker, as the contract has it.
#[derive(Debug)]
pub struct Subscription(RefCell<Desk>);

/// A subscription's state.
#[derive(Debug)]
struct Desk {
    index: Rc<RefCell<State>>,
    worker: wit::Worker,
    adapter: Adapter,
    sequence: Sequence,
    counts: wit::Counts,
}

impl wit::Guest for Component {
    type Subscription = Subscription;
}

impl wit::GuestSubscription for Subscription {
    fn open(
        index: wit::IndexBorrow<'_>,
        worker: wit::Worker,
        engine: wit::Engine,
        can_replay: bool,
    ) -> wit::Subscription {
        let index = index.get::<Index>().state();
        wit::Subscription::new(Self(RefCell::new(Desk::new(index, worker, engine, can_replay))))
    }

    fn connected(&self, now_ms: u64) -> wit::Next {
        self.0.borrow_mut().feed(now_ms, Sequence::connected)
    }

    fn live(&self, sequence: u64, payload: String, now_ms: u64) -> wit::Next {
        self.0.borrow_mut().frame(sequence, &payload, now_ms, Sequence::live)
    }

    fn replayed(&self, sequence: u64, payload: String, now_ms: u64) -> wit::Next {
        self.0
            .borrow_mut()
            .frame(sequence, &payload, now_ms, |order, frame, steps| order.replayed(&frame, steps))
    }

    fn replay_ended(&self, whole: bool, now_ms: u64) -> wit::Next {
        self.0.borrow_mut().feed(now_ms, |order, steps| order.replay_ended(whole, steps))
    }

    fn retry(&self, now_ms: u64) -> wit::Next {
        self.0.borrow_mut().feed(now_ms, Sequence::retry)
    }

    fn probe(&self, now_ms: u64) -> wit::Next {
        self.0.borrow_mut().feed(now_ms, Sequence::probe)
    }

    fn counts(&self) -> wit::Counts {
        self.0.borrow().counts
    }
}

// === impl Desk ===

impl Desk {
    fn new(index: Rc<RefCell<State>>, worker: wit::Worker, engine: wit::Engine, can_replay: bool) -> Self {
        let engine = match engine {
            wit::Engine::Vllm => Engine::Vllm,
            wit::Engine::Sglang => Engine::Sglang,
            wit::Engine::Trtllm => Engine::TrtLlm,
            wit::Engine::LlmdSim => Engine::LlmdSim,
        };
        Self {
            index,
            worker,
            adapter: Adapter::new(engine),
            sequence: Sequence::new(can_replay, engine.first_seq()),
            counts: wit::Counts {
                payloads: 0,
                undecodable: 0,
                events: 0,
                skipped: 0,
                bad: 0,
                gaps: 0,
                resets: 0,
                unsupported: false,
            },
        }
    }

    /// Takes a message in. One whose payload is no base64 is like one that was lost on the way.
    fn frame(
        &mut self,
        seq: u64,
        payload: &str,
        now_ms: u64,
        take: impl FnOnce(&mut Sequence, Frame, &mut Vec<Step>),
    ) -> wit::Next {
        let Ok(payload) = STANDARD.decode(payload).map(Bytes::from) else {
            self.counts.undecodable += 1;
            return wit::Next { replay_from: None, retry: false };
        };
        self.feed(now_ms, |order, steps| take(order, Frame { seq, payload }, steps))
    }

    /// Feeds the sequence and does what it says.
    fn feed(&mut self, now_ms: u64, feed: impl FnOnce(&mut Sequence, &mut Vec<Step>)) -> wit::Next {
        let mut steps = Vec::new();
        feed(&mut self.sequence, &mut steps);
        self.index.borrow_mut().heard(now_ms);
        let mut next = wit::Next { replay_from: None, retry: false };
        for step in steps {
            match step {
                Step::Apply(_, payload) => self.apply(&payload),
                Step::Reset(_) => {
                    self.counts.resets += 1;
                    self.adapter.reset();
                    self.index.borrow_mut().reset_worker(self.worker);
                }
                Step::Replay { from } => next.replay_from = Some(from),
                Step::Gap(_) => self.counts.gaps += 1,
                Step::Replayed(_) | Step::Resumed => {}
                Step::RetryLater => next.retry = true,
            }
        }
        next
    }

    fn apply(&mut self, payload: &[u8]) {
        let Ok(batch) = self.adapter.decode(payload) else {
            self.counts.undecodable += 1;
            return;
        };
        self.counts.payloads += 1;
        self.counts.skipped += batch.skipped.len() as u64;
        self.counts.bad += batch.bad.len() as u64;
        self.counts.unsupported |= batch.unsupported.is_some();
        let applied = self.index.borrow_mut().apply_events(self.worker, &batch.events);
        self.counts.events += applied as u64;
        self.counts.bad += (batch.events.len() - applied) as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A vLLM batch of one stored block of four tokens, numbered by its time.
    fn payload(time: u8) -> String {
        let mut bytes = vec![0x93, time, 0x91];
        bytes.extend_from_slice(b"\x96\xabBlockStored\x91");
        bytes.push(time);
        bytes.extend_from_slice(&[0xc0, 0x94, time, 1, 2, 3, 4, 0xc0, 0]);
        STANDARD.encode(bytes)
    }

    fn desk(can_replay: bool) -> Desk {
        let options = crate::bindings::exports::warmroute::routing::prefix_index::Options {
            block_size: 4,
            max_orphans: 10,
        };
        let mut state = State::open(options).unwrap();
        let worker = wit::Worker { id: 1, rank: 0 };
        assert!(state.add_worker(worker));
        Desk::new(Rc::new(RefCell::new(state)), worker, wit::Engine::Vllm, can_replay)
    }

    fn blocks(desk: &Desk) -> u64 {
        desk.index.borrow().stats().blocks
    }

    #[test]
    fn batches_in_order_are_applied() {
        let mut desk = desk(false);
        desk.feed(0, Sequence::connected);
        for seq in 0..3_u8 {
            let next = desk.frame(seq.into(), &payload(seq), 0, Sequence::live);
            assert_eq!(next, wit::Next { replay_from: None, retry: false });
        }
        assert_eq!((blocks(&desk), desk.counts.events, desk.counts.bad), (3, 3, 0), "{:?}", desk.counts);
    }

    #[test]
    fn a_gap_asks_for_a_replay_that_closes_it() {
        let mut desk = desk(true);
        let next = desk.feed(0, Sequence::connected);
        assert_eq!(next.replay_from, Some(0));
        desk.feed(0, |order, steps| order.replay_ended(true, steps));
        let live = |desk: &mut Desk, seq: u8| desk.frame(seq.into(), &payload(seq), 0, Sequence::live);
        live(&mut desk, 0);
        assert_eq!(live(&mut desk, 2).replay_from, Some(0));
        for seq in 0..3_u8 {
            desk.frame(seq.into(), &payload(seq), 0, |order, frame, steps| order.replayed(&frame, steps));
        }
        desk.feed(0, |order, steps| order.replay_ended(true, steps));
        assert_eq!((blocks(&desk), desk.counts.gaps, desk.counts.resets), (3, 1, 0));
    }

    #[test]
    fn a_gap_without_replay_forgets_what_was_known() {
        let mut desk = desk(false);
        desk.feed(0, Sequence::connected);
        for seq in [0_u8, 1, 5] {
            desk.frame(seq.into(), &payload(seq), 0, Sequence::live);
        }
        assert_eq!((blocks(&desk), desk.counts.gaps, desk.counts.resets), (1, 1, 1));
    }

    #[test]
    fn what_is_no_message_costs_only_itself() {
        let mut desk = desk(false);
        for (seq, payload) in
            [(0, "no base64!".to_owned()), (0, STANDARD.encode(b"no batch")), (1, payload(1))]
        {
            desk.frame(seq, &payload, 0, Sequence::live);
        }
        assert_eq!((blocks(&desk), desk.counts.undecodable), (1, 2));
    }
}
