//! An index as bytes that another one is made of.
//!
//! ```text
//! magic     8 bytes, `wrm-indx`
//! version   u32
//! options   block size u32, most orphans of a worker u32
//! workers   u32 count, in the order in which they were added, each:
//!           id u64  rank u32  cache: u32 length, bytes of `warmroute_index::Index::save_worker`
//! checksum  u64, XXH3 of all before it
//! ```
//!
//! Everything is little-endian. The version changes with what is saved of a worker, too. The bytes come from outside: the
//! checksum tells what was damaged, and what has a right one is still read without trust, in memory that its length bounds.

use warmroute_routing::bytes::Reader;
use xxhash_rust::xxh3::xxh3_64;

use super::State;
use crate::bindings::exports::warmroute::routing::prefix_index::{Options, SnapshotError, Worker};

const MAGIC: &[u8; 8] = b"wrm-indx";
const VERSION: u32 = 1;
const CHECKSUM_BYTES: usize = 8;

/// The longest snapshot. What is restored takes some twenty times its bytes at the worst, and a component has 4 GiB.
const MAX_BYTES: usize = 1 << 27;

/// The bytes of an index.
///
/// # Errors
///
/// They are more than are read again.
pub(crate) fn save(state: &State) -> Result<Vec<u8>, SnapshotError> {
    let Options { block_size, max_orphans } = state.options();
    let seated = state.seated();
    let mut out = Vec::new();
    out.extend(MAGIC);
    for number in [VERSION, block_size, max_orphans, seated.len() as u32] {
        out.extend(number.to_le_bytes());
    }
    for worker in seated.into_iter().map(|seated| seated.worker) {
        let cache = state.save_worker(worker).unwrap_or_default();
        check_size(out.len() + cache.len())?;
        out.extend(worker.id.to_le_bytes());
        out.extend(worker.rank.to_le_bytes());
        out.extend((cache.len() as u32).to_le_bytes());
        out.extend(cache);
    }
    let checksum = xxh3_64(&out);
    out.extend(checksum.to_le_bytes());
    check_size(out.len()).map(|()| out)
}

/// The index that the bytes are of.
///
/// # Errors
///
/// They are no snapshot, or one that cannot be taken over.
pub(crate) fn restore(bytes: &[u8]) -> Result<State, SnapshotError> {
    check_size(bytes.len())?;
    let body = bytes.len().checked_sub(CHECKSUM_BYTES).ok_or(SnapshotError::Foreign)?;
    let (content, checksum) = bytes.split_at_checked(body).ok_or(SnapshotError::Foreign)?;
    let mut reader = Reader::new(content);
    if reader.take(MAGIC.len()) != Some(MAGIC) {
        return Err(SnapshotError::Foreign);
    }
    let version = reader.u32().ok_or(SnapshotError::Damaged)?;
    if version != VERSION {
        return Err(SnapshotError::Version(version));
    }
    if checksum != xxh3_64(content).to_le_bytes() {
        return Err(SnapshotError::Damaged);
    }
    read(&mut reader).filter(|_| reader.is_empty()).ok_or(SnapshotError::Damaged)
}

fn read(reader: &mut Reader<'_>) -> Option<State> {
    let options = Options { block_size: reader.u32()?, max_orphans: reader.u32()? };
    let mut state = State::open(options).ok()?;
    for _ in 0..reader.u32()? {
        let worker = Worker { id: reader.u64()?, rank: reader.u32()? };
        if !state.restore_worker(worker, reader.chunk()?) {
            return None;
        }
    }
    Some(state)
}

fn check_size(bytes: usize) -> Result<(), SnapshotError> {
    if bytes > MAX_BYTES { Err(SnapshotError::TooLarge(bytes as u64)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bindings::exports::warmroute::routing::prefix_index::{Content, Event, Match, Stored};
    use crate::bindings::exports::warmroute::routing::types::{Namespace, Prompt, Tier, Tokens};

    const WORKERS: [Worker; 3] =
        [Worker { id: u64::MAX, rank: 1 }, Worker { id: 3, rank: 0 }, Worker { id: 3, rank: u32::MAX }];

    fn stored(hashes: &[u64], parent: Option<u64>, tokens: std::ops::Range<u32>, tier: Tier) -> Event {
        let content = Content::Tokens((Tokens::Ids(tokens.collect()), 2));
        let salt = Some("s".to_owned());
        Event::Stored(Stored { hashes: hashes.to_vec(), parent, content, lora: None, salt, tier, group: 0 })
    }

    /// Two workers that hold blocks, one of them with an orphan, and one that holds nothing.
    fn index() -> State {
        let mut state = State::open(Options { block_size: 2, max_orphans: 9 }).unwrap();
        assert!(WORKERS.iter().all(|worker| state.add_worker(*worker)));
        state.apply(WORKERS[0], vec![stored(&[1, 2], None, 0..4, Tier::Gpu)], 5);
        let late = stored(&[9], Some(8), 4..6, Tier::Cpu);
        state.apply(WORKERS[2], vec![stored(&[7], None, 0..2, Tier::Disk), late], 5);
        state
    }

    fn matches(state: &mut State) -> Vec<Match> {
        let namespace = Namespace { lora: None, salt: Some("s".to_owned()) };
        state.matches(Prompt::Tokens((Tokens::Ids((0..8).collect()), namespace))).unwrap()
    }

    #[test]
    fn an_index_that_was_restored_knows_what_the_other_knew() {
        let mut index = index();
        let mut other = restore(&save(&index).unwrap()).unwrap();
        let workers = |state: &State| state.seated().iter().map(|seated| seated.worker).collect::<Vec<_>>();
        assert_eq!(workers(&other), WORKERS);
        assert_eq!((other.options(), other.stats()), (index.options(), index.stats()));
        assert_eq!(other.heard_at_ms, None);
        // What comes later finds the orphan in both.
        for state in [&mut index, &mut other] {
            let outcome = state.apply(WORKERS[2], vec![stored(&[8], Some(7), 2..4, Tier::Cpu)], 9);
            assert_eq!((outcome.applied.stored, outcome.applied.attached), (1, 1));
        }
        assert_eq!(matches(&mut index).len(), 2);
        assert_eq!(matches(&mut index), matches(&mut other));
    }

    #[test]
    fn an_index_without_workers_is_restored() {
        let empty = State::open(Options { block_size: 16, max_orphans: 0 }).unwrap();
        assert_eq!(restore(&save(&empty).unwrap()).unwrap().stats(), empty.stats());
    }

    #[test]
    fn what_is_cut_or_changed_anywhere_is_refused() {
        let whole = save(&index()).unwrap();
        for len in 0..whole.len() {
            assert!(restore(&whole[..len]).is_err(), "{len}");
        }
        for place in 0..whole.len() {
            let mut changed = whole.clone();
            changed[place] ^= 1;
            assert!(restore(&changed).is_err(), "{place}");
        }
        assert_eq!(restore(&[&whole[..], b"x"].concat()).unwrap_err(), SnapshotError::Damaged);
        assert_eq!(restore(b"something else entirely").unwrap_err(), SnapshotError::Foreign);
        assert_eq!(restore(b"").unwrap_err(), SnapshotError::Foreign);
    }

    fn sealed(mut content: Vec<u8>) -> Vec<u8> {
        content.extend(xxh3_64(&content).to_le_bytes());
        content
    }

    /// Whoever can write a right checksum can write anything: it is refused or taken, and never panics.
    #[test]
    fn nonsense_with_a_right_checksum_is_an_error_value_at_most() {
        let whole = save(&index()).unwrap();
        let content = &whole[..whole.len() - CHECKSUM_BYTES];
        for place in MAGIC.len() + 4..content.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut changed = content.to_vec();
                changed[place] = value;
                let _ = restore(&sealed(changed)).map(|mut state| matches(&mut state));
            }
        }
        let with = |place: usize, number: u32| {
            let mut changed = content.to_vec();
            changed[place..place + 4].copy_from_slice(&number.to_le_bytes());
            restore(&sealed(changed)).unwrap_err()
        };
        assert_eq!(with(MAGIC.len(), 9), SnapshotError::Version(9));
        assert_eq!(with(MAGIC.len() + 4, 0), SnapshotError::Damaged, "a block size of no tokens");
        assert_eq!(with(MAGIC.len() + 12, u32::MAX), SnapshotError::Damaged, "more workers than there are");
        let repeated = [&content[..MAGIC.len() + 12], &2_u32.to_le_bytes()[..]].concat();
        let empty = [&3_u64.to_le_bytes()[..], &[0; 4], &12_u32.to_le_bytes(), &[0; 12]].concat();
        let repeated = sealed([repeated, empty.clone(), empty].concat());
        assert_eq!(restore(&repeated).unwrap_err(), SnapshotError::Damaged, "a worker twice");
    }

    #[test]
    fn what_is_too_large_is_refused_unread() {
        let large = vec![0; MAX_BYTES + 1];
        assert_eq!(restore(&large).unwrap_err(), SnapshotError::TooLarge(MAX_BYTES as u64 + 1));
    }
}
