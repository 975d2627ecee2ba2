use std::collections::VecDeque;

use bytes::Bytes;

use super::held::MAX_BYTES;
use super::*;

/// A batch of one run of an engine.
fn frame(run: u8, seq: u64) -> Frame {
    Frame { seq, payload: Bytes::from(vec![run, seq as u8]) }
}

fn apply(run: u8, seq: u64) -> Step {
    let frame = frame(run, seq);
    Step::Apply(Applied::of(&frame), frame.payload)
}

/// A sequence that is fed and keeps what it would have applied.
struct Driver {
    sequence: Sequence,
    /// What is known of the worker: the batches since the last reset.
    known: Vec<(u8, u8)>,
    /// What a replay has been asked for and not ended yet.
    asked: Option<u64>,
    /// How many replays have been asked for.
    requests: usize,
    resets: Vec<ResetCause>,
    gaps: Vec<GapOutcome>,
    replays: Vec<ReplayOutcome>,
    retries: usize,
    resumed: usize,
}

impl Driver {
    fn new(can_replay: bool) -> Self {
        Self {
            sequence: Sequence::new(can_replay, 0),
            known: vec![],
            asked: None,
            requests: 0,
            resets: vec![],
            gaps: vec![],
            replays: vec![],
            retries: 0,
            resumed: 0,
        }
    }

    fn with(mut self, feed: impl FnOnce(&mut Sequence, &mut Vec<Step>)) -> Self {
        let mut steps = vec![];
        feed(&mut self.sequence, &mut steps);
        for step in steps {
            match step {
                Step::Apply(_, payload) => self.known.push((payload[0], payload[1])),
                Step::Resumed => self.resumed += 1,
                Step::Reset(cause) => {
                    self.known.clear();
                    self.resets.push(cause);
                }
                Step::Replay { from } => {
                    self.asked = Some(from);
                    self.requests += 1;
                }
                Step::Gap(outcome) => self.gaps.push(outcome),
                Step::Replayed(outcome) => {
                    self.replays.push(outcome);
                }
                Step::RetryLater => self.retries += 1,
            }
        }
        self
    }

    fn connected(self) -> Self {
        self.with(Sequence::connected)
    }

    fn live(self, run: u8, seqs: impl IntoIterator<Item = u64>) -> Self {
        seqs.into_iter()
            .fold(self, |driver, seq| driver.with(|sequence, steps| sequence.live(frame(run, seq), steps)))
    }

    fn replayed(self, run: u8, seqs: impl IntoIterator<Item = u64>) -> Self {
        seqs.into_iter().fold(self, |driver, seq| {
            driver.with(|sequence, steps| sequence.replayed(&frame(run, seq), steps))
        })
    }

    fn ended(mut self) -> Self {
        self.asked = None;
        self.with(|sequence, steps| sequence.replay_ended(true, steps))
    }

    fn failed(mut self) -> Self {
        self.asked = None;
        self.with(|sequence, steps| sequence.replay_ended(false, steps))
    }

    fn retry(self) -> Self {
        self.with(Sequence::retry)
    }

    /// Asserts that exactly these batches of a run are known, each once and in order.
    #[track_caller]
    fn knows(self, run: u8, seqs: impl IntoIterator<Item = u8>) -> Self {
        assert_eq!(self.known, seqs.into_iter().map(|seq| (run, seq)).collect::<Vec<_>>());
        self
    }

    #[track_caller]
    fn asks(self, from: Option<u64>) -> Self {
        assert_eq!(self.asked, from);
        self
    }

    #[track_caller]
    fn was_reset(self, causes: &[ResetCause]) -> Self {
        assert_eq!(self.resets, causes);
        self
    }
}

/// A connected sequence that knows the batches up to `last` of run 1, in step with the live stream.
fn started(last: u64) -> Driver {
    Driver::new(true).connected().asks(Some(0)).replayed(1, 0..last).ended().live(1, [last])
}

#[test]
fn starts_with_all_that_the_engine_has() {
    started(3).live(1, 4..6).knows(1, 0..6).was_reset(&[]).asks(None);
}

#[test]
fn an_engine_that_has_published_nothing_is_complete() {
    let driver = Driver::new(true).connected().ended().live(1, 0..2).knows(1, 0..2);
    assert_eq!(driver.replays, [ReplayOutcome::Complete]);
}

#[test]
fn a_batch_between_an_empty_replay_and_the_live_stream_is_asked_for() {
    let driver = Driver::new(true).connected().ended().live(1, [1]).asks(Some(0)).replayed(1, 0..2).ended();
    driver.knows(1, 0..2).was_reset(&[]).asks(None);
    // An engine that has nothing to replay is not asked for ever.
    let mut driver = Driver::new(true).connected().ended().live(1, [5]);
    while driver.asked.is_some() {
        driver = driver.ended();
    }
    driver.live(1, [6]).knows(1, 5..7).asks(None);
}

#[test]
fn live_batches_during_the_first_replay_are_applied_once_and_in_order() {
    // Batches 3 and 4 come on both ways; 5 only live. Some of the live ones come before the replay's end, some after.
    for before in 3..=6 {
        Driver::new(true)
            .connected()
            .live(1, 3..before)
            .replayed(1, 0..5)
            .ended()
            .live(1, before..6)
            .knows(1, 0..6)
            .was_reset(&[])
            .asks(None);
    }
}

#[test]
fn a_first_replay_that_begins_late_is_taken_as_it_is() {
    let driver = Driver::new(true).connected().replayed(1, 7..9).ended().live(1, 9..10).knows(1, 7..10);
    assert_eq!(driver.replays, [ReplayOutcome::Partial]);
    driver.was_reset(&[]).asks(None);
}

#[test]
fn what_a_replay_leaves_out_in_the_middle_is_asked_for_again() {
    Driver::new(true)
        .connected()
        .replayed(1, [0, 1, 5])
        .asks(Some(2))
        .replayed(1, [2, 3, 5])
        .asks(Some(4))
        .replayed(1, [4, 5, 6])
        .ended()
        .knows(1, 0..=6)
        .was_reset(&[]);
}

#[test]
fn what_a_gaps_replay_leaves_out_is_asked_for_again_from_the_last_batch() {
    started(2)
        .live(1, [9])
        .asks(Some(2))
        .replayed(1, [2, 3, 4, 7])
        .asks(Some(4))
        .replayed(1, [4, 5, 6, 7, 8])
        .ended()
        .knows(1, 0..=9)
        .was_reset(&[]);
}

#[test]
fn what_the_engine_does_not_have_even_when_asked_for_again_resets() {
    Driver::new(true)
        .connected()
        .replayed(1, [0, 1, 5])
        .asks(Some(2))
        .replayed(1, [5, 6])
        .ended()
        .knows(1, 5..=6)
        .was_reset(&[ResetCause::Gap]);
}

#[test]
fn a_first_replay_that_fails_leaves_the_live_stream() {
    let driver = Driver::new(true).connected().live(1, 5..7).failed().live(1, 7..8).knows(1, 5..8);
    assert_eq!((driver.retries, &*driver.replays), (1, &[ReplayOutcome::Failed][..]));
    // Later it succeeds, and takes the place of what is known.
    let driver = driver.retry().asks(Some(0)).live(1, 8..9).knows(1, 5..9).replayed(1, 0..9).live(1, 9..10);
    driver.ended().live(1, 10..11).knows(1, 0..11).was_reset(&[ResetCause::Recovery]).retry().asks(None);
}

#[test]
fn a_retry_that_fails_too_changes_nothing() {
    Driver::new(true)
        .connected()
        .live(1, 5..7)
        .failed()
        .retry()
        .live(1, 7..8)
        .failed()
        .live(1, 8..9)
        .knows(1, 5..9)
        .was_reset(&[]);
}

#[test]
fn a_replay_that_breaks_off_is_as_good_as_what_came() {
    // The live stream goes on where it broke off...
    Driver::new(true).connected().replayed(1, 0..3).live(1, 3..5).failed().knows(1, 0..5).was_reset(&[]);
    // ...or does not.
    Driver::new(true)
        .connected()
        .replayed(1, 0..3)
        .live(1, 7..9)
        .failed()
        .knows(1, 7..9)
        .was_reset(&[ResetCause::Gap]);
}

#[test]
fn a_gap_is_closed_by_a_replay_from_the_last_batch() {
    let driver = started(3).live(1, [6]).asks(Some(3)).knows(1, 0..4).live(1, [7]).replayed(1, 3..7).ended();
    assert_eq!(driver.gaps, [GapOutcome::Recovered]);
    driver.knows(1, 0..8).was_reset(&[]).asks(None).live(1, 8..10).knows(1, 0..10);
}

#[test]
fn a_gap_is_closed_too_where_the_last_batch_is_just_gone() {
    let driver = started(3).live(1, [6]).replayed(1, 4..7).ended().knows(1, 0..7).was_reset(&[]);
    assert_eq!(driver.gaps, [GapOutcome::Recovered]);
}

#[test]
fn an_engine_that_replays_more_than_was_asked_is_heard_from_there_on() {
    started(3).live(1, [6]).replayed(1, 0..7).ended().knows(1, 0..7).was_reset(&[]);
}

#[test]
fn a_gap_that_the_engine_has_forgotten_resets() {
    let driver =
        started(3).live(1, [9]).replayed(1, 7..10).ended().knows(1, 7..10).was_reset(&[ResetCause::Gap]);
    assert_eq!(driver.gaps, [GapOutcome::Unrecovered]);
}

#[test]
fn a_gap_behind_a_gap_is_closed_too() {
    let driver = started(3).live(1, [6, 9]).replayed(1, 3..7).ended().asks(Some(6)).knows(1, 0..7);
    let driver = driver.replayed(1, 6..10).ended().knows(1, 0..10).was_reset(&[]);
    assert_eq!(driver.gaps, [GapOutcome::Recovered; 2]);
}

#[test]
fn a_gap_without_a_replay_resets() {
    let driver = Driver::new(false).connected().live(1, 5..8).live(1, 9..11).knows(1, 9..11);
    assert_eq!(driver.gaps, [GapOutcome::Unrecovered]);
    driver.was_reset(&[ResetCause::Gap]).asks(None);
}

#[test]
fn a_gap_whose_replay_fails_resets_and_the_next_one_waits() {
    let driver = started(3).live(1, [6]).failed().knows(1, 6..7).was_reset(&[ResetCause::Gap]);
    assert_eq!((driver.retries, &*driver.gaps), (1, &[GapOutcome::Unrecovered][..]));
    let driver = driver.asks(None).live(1, [9]).asks(None).knows(1, 9..10);
    driver.retry().asks(Some(0)).replayed(1, 0..10).ended().knows(1, 0..10);
}

#[test]
fn a_replay_that_never_reaches_the_live_stream_is_given_up() {
    let mut driver = started(3).live(1, [6]);
    for _ in 0..10 {
        if driver.asked.is_none() {
            break;
        }
        driver = driver.replayed(1, [3, 4]).ended();
    }
    driver.asks(None).knows(1, 6..7).was_reset(&[ResetCause::Gap]);
}

#[test]
fn a_number_that_goes_back_is_a_restart() {
    let driver = started(3).live(2, [0]).asks(Some(0)).knows(2, []).live(2, [1]).replayed(2, 0..2).ended();
    driver.knows(2, 0..2).was_reset(&[ResetCause::Restart]).live(2, 2..4).knows(2, 0..4);
    // The same number again, too.
    started(3).live(2, [3]).was_reset(&[ResetCause::Restart]).replayed(2, 0..4).ended().knows(2, 0..4);
    Driver::new(false).live(1, 0..3).live(2, 0..2).knows(2, 0..2).was_reset(&[ResetCause::Restart]);
}

#[test]
fn a_restart_during_a_replay_is_seen() {
    let driver = Driver::new(true).connected().replayed(1, 0..3).live(1, [3]).live(2, [0]).ended();
    driver.asks(Some(0)).replayed(2, [0]).ended().knows(2, [0]).was_reset(&[ResetCause::Restart]);
}

#[test]
fn another_process_that_has_counted_further_is_no_gap() {
    // Run 2 has published 0 to 6, of which only 6 was received.
    let driver = started(3).live(2, [6]).asks(Some(3)).replayed(2, [3]).asks(Some(0)).knows(2, []);
    driver.replayed(2, 0..7).ended().knows(2, 0..7).was_reset(&[ResetCause::Restart]);
}

#[test]
fn a_connection_that_comes_back_is_checked() {
    // The same process, nothing missed.
    started(3).connected().asks(Some(3)).replayed(1, [3]).ended().knows(1, 0..4).was_reset(&[]);
    // The same process, batches missed.
    started(3).connected().replayed(1, 3..6).ended().live(1, 6..7).knows(1, 0..7).was_reset(&[]);
    // Another process that has not counted as far: what it has published meanwhile is not missed.
    let driver =
        started(3).connected().live(2, [1]).ended().asks(Some(0)).knows(2, []).replayed(2, 0..2).ended();
    driver.live(2, [2]).knows(2, 0..3).was_reset(&[ResetCause::Restart]).asks(None);
    // Another process that has counted as far.
    let driver = started(3).connected().replayed(2, [3]).asks(Some(0)).replayed(2, 0..4).ended();
    driver.knows(2, 0..4).was_reset(&[ResetCause::Restart]);
    // One that has forgotten how far it was.
    started(3).connected().replayed(1, 4..6).ended().knows(1, 4..6).was_reset(&[ResetCause::Gap]);
    // No answer: the next number might fit by chance.
    let driver =
        started(3).connected().live(1, [4]).failed().knows(1, [4]).was_reset(&[ResetCause::Reconnect]);
    driver.retry().asks(Some(0)).replayed(1, 0..5).ended().knows(1, 0..5).retry().asks(None);
    // An answer that breaks off.
    started(3).connected().replayed(1, [3]).live(1, [4]).failed().knows(1, 0..5).was_reset(&[]);
    // Nobody to ask.
    Driver::new(false).connected().live(1, 0..3).connected().live(2, [3]).knows(2, [3]);
}

#[test]
fn a_connection_that_comes_back_during_a_replay_begins_it_anew() {
    let driver =
        Driver::new(true).connected().replayed(1, 0..3).connected().asks(Some(0)).replayed(2, [0]).ended();
    driver.knows(2, [0]).was_reset(&[ResetCause::Reconnect]).asks(None);
    let driver = started(3).live(1, [6]).connected().asks(Some(3)).replayed(1, 3..6).ended();
    driver.knows(1, 0..7).was_reset(&[]);
}

#[test]
fn silence_is_checked_by_asking_for_the_next_batch() {
    let probe = |driver: Driver| driver.with(Sequence::probe);
    probe(started(3)).asks(Some(4)).ended().knows(1, 0..4).was_reset(&[]);
    let driver = probe(started(3)).replayed(1, [4]).asks(Some(3)).knows(1, 0..4);
    driver.replayed(1, 3..6).ended().live(1, 4..7).knows(1, 0..7).was_reset(&[]);
    probe(started(3)).failed().live(1, [4]).knows(1, 0..5).was_reset(&[]);
    probe(Driver::new(true)).asks(Some(0)).replayed(1, 0..2).ended().knows(1, 0..2);
    probe(Driver::new(false)).asks(None);
}

#[test]
fn what_waits_for_a_replay_is_bounded() {
    let big = |seq| Frame { seq, payload: Bytes::from(vec![0; MAX_BYTES / 2]) };
    let mut sequence = Sequence::new(true, 0);
    let mut steps = vec![];
    sequence.connected(&mut steps);
    for seq in 0..4 {
        sequence.live(big(seq), &mut steps);
    }
    steps.clear();
    sequence.replay_ended(true, &mut steps);
    let applied = steps.iter().filter(|step| matches!(step, Step::Apply(..))).count();
    assert_eq!(applied, 2);
    // The batches that were dropped are a gap for the next one.
    steps.clear();
    sequence.live(big(4), &mut steps);
    assert_eq!(steps, [Step::Replay { from: 1 }]);
}

/// A sequence that goes on from what another process has applied, batches 0 to `last` of the engine's first run.
fn resumed(last: u64) -> Driver {
    let mut driver = Driver::new(true);
    driver.sequence.resume(Applied::of(&frame(1, last)));
    driver.known = (0..=last).map(|seq| (1, seq as u8)).collect();
    driver.connected().asks(Some(last))
}

#[test]
fn what_another_process_has_applied_holds_if_the_engine_still_has_its_last_batch() {
    let driver = resumed(3).live(1, [6]).replayed(1, 3..7).ended().live(1, [7]);
    assert_eq!(driver.resumed, 1);
    driver.knows(1, 0..8).was_reset(&[]);
    let idle = resumed(3).replayed(1, [3]).ended().live(1, [4]);
    assert_eq!(idle.resumed, 1);
    idle.knows(1, 0..5).was_reset(&[]);
}

#[test]
fn what_another_process_has_applied_is_void_if_the_engine_is_another() {
    // It has counted further, and its batch of that number is another one.
    let driver = resumed(3).replayed(2, [3]).asks(Some(0)).replayed(2, 0..6).ended();
    assert_eq!(driver.resumed, 0);
    driver.knows(2, 0..6).was_reset(&[ResetCause::Restart]);
    // It has not counted so far.
    let driver = resumed(3).ended().asks(Some(0)).replayed(2, 0..2).ended();
    assert_eq!(driver.resumed, 0);
    driver.knows(2, 0..2).was_reset(&[ResetCause::Restart]);
    // It does not tell.
    let driver = resumed(3).live(2, [4]).failed();
    assert_eq!(driver.resumed, 0);
    driver.was_reset(&[ResetCause::Reconnect]);
}

#[test]
fn what_another_process_has_applied_is_void_if_the_replay_does_not_reach_back_to_it() {
    let driver = resumed(3).replayed(1, 5..8).ended();
    assert_eq!(driver.resumed, 0);
    driver.knows(1, 5..8).was_reset(&[ResetCause::Gap]);
}

#[test]
fn a_connection_that_is_lost_meanwhile_is_asked_again() {
    let driver = resumed(3).failed().connected();
    assert_eq!(driver.resumed, 0);
    let driver = resumed(3).connected().asks(Some(3)).replayed(1, 3..5).ended();
    assert_eq!(driver.resumed, 1);
    driver.knows(1, 0..5).was_reset(&[]);
}

#[test]
fn without_a_replay_nothing_is_taken_over() {
    let mut driver = Driver::new(false);
    driver.sequence.resume(Applied::of(&frame(1, 3)));
    let driver = driver.connected().live(1, [4]);
    assert_eq!((driver.resumed, driver.requests), (0, 0));
    driver.knows(1, [4]).was_reset(&[]);
}

mod every_order {
    use proptest::prelude::*;

    use super::*;

    /// What an engine and its network may do.
    #[derive(Clone, Debug)]
    enum Move {
        Publish,
        /// The last batch comes again.
        Duplicate,
        Lose,
        Restart,
        Reconnect,
        ReplayStep,
        ReplayFail,
        Retry,
        Probe,
    }

    fn any_move() -> impl Strategy<Value = Move> {
        prop_oneof![
            6 => Just(Move::Publish),
            1 => Just(Move::Duplicate),
            2 => Just(Move::Lose),
            1 => Just(Move::Restart),
            1 => Just(Move::Reconnect),
            6 => Just(Move::ReplayStep),
            1 => Just(Move::ReplayFail),
            1 => Just(Move::Retry),
            1 => Just(Move::Probe),
        ]
    }

    proptest! {
        /// Whatever happens, what is known is a run of consecutive batches of one process. (An engine that keeps few
        /// batches does not restart here: see the window that is believed after a gap.)
        #[test]
        fn what_is_known_is_always_consecutive(
            can_replay in any::<bool>(),
            window in prop_oneof![1..20_u64, Just(u64::MAX)],
            moves in proptest::collection::vec(any_move(), 1..200),
        ) {
            let mut driver = Driver::new(can_replay).connected();
            let (mut run, mut next) = (1_u8, 0_u64);
            // What the engine's replay still has to send, and which request it answers.
            let mut sending: Option<(usize, VecDeque<Frame>)> = None;
            let mut connected = true;
            for step in moves {
                match step {
                    Move::Publish => {
                        if connected {
                            driver = driver.live(run, [next]);
                        }
                        next += 1;
                    }
                    Move::Duplicate if connected && next > 0 => driver = driver.live(run, [next - 1]),
                    Move::Lose => next += 1,
                    Move::Restart if window == u64::MAX => {
                        (run, next) = (run.wrapping_add(1), 0);
                        connected = false;
                        sending = None;
                        if driver.sequence.is_replaying() {
                            driver = driver.failed();
                        }
                    }
                    Move::Reconnect => {
                        connected = true;
                        driver = driver.connected();
                    }
                    Move::ReplayFail if driver.sequence.is_replaying() => {
                        driver = driver.failed();
                        sending = None;
                    }
                    Move::ReplayStep => {
                        let Some(from) = driver.asked else { continue };
                        let request = driver.requests;
                        if sending.as_ref().is_none_or(|(answered, _)| *answered != request) {
                            let oldest = next.saturating_sub(window).max(from);
                            sending = Some((request, (oldest..next).map(|seq| frame(run, seq)).collect()));
                        }
                        let frame = sending.as_mut().and_then(|(_, frames)| frames.pop_front());
                        driver = match frame {
                            Some(frame) => driver.with(|sequence, steps| sequence.replayed(&frame, steps)),
                            None => {
                                sending = None;
                                driver.ended()
                            }
                        };
                    }
                    Move::Retry => driver = driver.retry(),
                    Move::Probe => driver = driver.with(Sequence::probe),
                    Move::ReplayFail | Move::Restart | Move::Duplicate => {}
                }
                for pair in driver.known.windows(2) {
                    prop_assert_eq!((pair[0].0, pair[0].1.wrapping_add(1)), (pair[1].0, pair[1].1));
                }
            }
            // Once the engine answers, all that it still has is known.
            driver = settle(driver.connected(), run, next, window);
            driver = settle(driver.live(run, [next]), run, next + 1, window);
            driver = settle(driver.retry(), run, next + 1, window);
            if can_replay && window == u64::MAX {
                let all: Vec<_> = (0..=next).map(|seq| (run, seq as u8)).collect();
                prop_assert_eq!(driver.known, all);
            }
        }
    }

    /// Answers every replay that is asked for.
    fn settle(mut driver: Driver, run: u8, next: u64, window: u64) -> Driver {
        while let Some(from) = driver.asked {
            let request = driver.requests;
            for seq in next.saturating_sub(window).max(from)..next {
                driver = driver.replayed(run, [seq]);
                if driver.requests != request {
                    break;
                }
            }
            if driver.requests == request {
                driver = driver.ended();
            }
        }
        driver
    }
}

#[test]
fn an_engine_that_counts_from_one_has_nothing_before_it() {
    let mut sequence = Sequence::new(true, 1);
    let mut steps = vec![];
    sequence.live(frame(1, 1), &mut steps);
    assert_eq!(steps, [apply(1, 1)]);
    let mut sequence = Sequence::new(true, 1);
    steps.clear();
    sequence.live(frame(1, 2), &mut steps);
    sequence.replayed(&frame(1, 1), &mut steps);
    sequence.replay_ended(true, &mut steps);
    let applied = [1, 2].map(|seq| apply(1, seq));
    let [first, second] = applied;
    let whole = Step::Replayed(ReplayOutcome::Complete);
    assert_eq!(steps, [Step::Replay { from: 0 }, first, whole, second]);
}
