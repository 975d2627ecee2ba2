//! A snapshot's bytes.
//!
//! ```text
//! magic     8 bytes, `wrm-snap`
//! version   u32
//! pool      name, engine: texts with their length in a byte before them;  block size u32
//! workers   u32 count, each:  address text  rank u16  last batch: number u64, fingerprint u64
//!                             cache: u32 length, bytes of `Index::save_worker`
//! checksum  u64, XXH3 of all before it
//! ```
//!
//! Everything is little-endian. The version changes with what is saved of a worker, too.

use bytes::Bytes;
use warmroute_index::Index;
use warmroute_routing::bytes::{Reader, put_short_text};
use warmroute_wire::sequence::Applied;
use xxhash_rust::xxh3::xxh3_64;

use super::SavedWorker;
use crate::config::PoolConfig;

const MAGIC: &[u8; 8] = b"wrm-snap";
const VERSION: u32 = 1;
const CHECKSUM_BYTES: usize = 8;

/// Why a snapshot cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum SnapshotError {
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error("it has {0} bytes; at most {1} are read")]
    TooLarge(u64, u64),
    #[error("it is no snapshot")]
    Foreign,
    #[error("its format is version {0}, and this collector reads version {VERSION}")]
    Version(u32),
    #[error("it is damaged")]
    Damaged,
    #[error("it is of pool `{pool}` of {engine} with blocks of {block_size} tokens")]
    OtherPool { pool: String, engine: String, block_size: u32 },
}

/// The bytes of a pool's snapshot.
pub(super) fn encode(pool: &PoolConfig, workers: &[SavedWorker]) -> Vec<u8> {
    let size: usize = workers.iter().map(|worker| worker.cache.len() + 100).sum();
    let mut out = Vec::with_capacity(size + 200);
    out.extend(MAGIC);
    out.extend(VERSION.to_le_bytes());
    put_short_text(&mut out, &pool.name);
    put_short_text(&mut out, pool.engine.as_str());
    out.extend(pool.block_size.to_le_bytes());
    // A cache of 4 GiB is one of a hundred million blocks: such a worker is left out, and asked for everything.
    let fitting =
        || workers.iter().filter_map(|worker| Some((worker, u32::try_from(worker.cache.len()).ok()?)));
    out.extend((fitting().count() as u32).to_le_bytes());
    for (worker, len) in fitting() {
        put_short_text(&mut out, &worker.address.to_string());
        out.extend(worker.rank.to_le_bytes());
        out.extend(worker.last.seq.to_le_bytes());
        out.extend(worker.last.fingerprint.to_le_bytes());
        out.extend(len.to_le_bytes());
        out.extend(&worker.cache);
    }
    let checksum = xxh3_64(&out);
    out.extend(checksum.to_le_bytes());
    out
}

/// The workers of a snapshot that is the pool's.
pub(super) fn decode(bytes: &Bytes, pool: &PoolConfig) -> Result<Vec<SavedWorker>, SnapshotError> {
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
    let header = |reader: &mut Reader<'_>| {
        Some((reader.short_text()?.to_owned(), reader.short_text()?.to_owned(), reader.u32()?))
    };
    let (name, engine, block_size) = header(&mut reader).ok_or(SnapshotError::Damaged)?;
    if (name.as_str(), engine.as_str(), block_size) != (&pool.name, pool.engine.as_str(), pool.block_size) {
        return Err(SnapshotError::OtherPool { pool: name, engine, block_size });
    }
    let workers = read_workers(&mut reader, bytes).ok_or(SnapshotError::Damaged)?;
    if !reader.is_empty() || workers.iter().any(|worker| Index::check_saved(&worker.cache).is_err()) {
        return Err(SnapshotError::Damaged);
    }
    Ok(workers)
}

fn read_workers(reader: &mut Reader<'_>, bytes: &Bytes) -> Option<Vec<SavedWorker>> {
    let count = reader.u32()?;
    let mut workers = Vec::new();
    for _ in 0..count {
        let (address, rank) = (reader.short_text()?.parse().ok()?, reader.u16()?);
        let last = Applied { seq: reader.u64()?, fingerprint: reader.u64()? };
        // Shared with the file's bytes, not copied.
        let cache = bytes.slice_ref(reader.chunk()?);
        workers.push(SavedWorker { address, rank, last, cache });
    }
    Some(workers)
}

#[cfg(test)]
mod tests {
    use warmroute_index::event::{EngineHash, Event, Group, Stored};
    use warmroute_index::{Options, WorkerIdentity};
    use warmroute_routing::Tier;
    use warmroute_routing::page::{Generation, PageBits};

    use super::*;
    use crate::config::Config;

    fn pool(name: &str, block_size: u32) -> PoolConfig {
        let text = format!(
            "pools: [{{name: {name}, block_size: {block_size}, workers: [{{address: '10.0.0.1:80', events: 'tcp://h:1'}}]}}]"
        );
        Config::parse(&text).unwrap().pools.remove(0)
    }

    fn workers() -> Vec<SavedWorker> {
        let page_bits = PageBits::new(2).unwrap();
        let mut index = Index::new(Options { block_size: 2, page_bits, max_orphans: 9 }, Generation(1));
        let id = index.add_worker(WorkerIdentity { address: "10.0.0.1:80".to_owned(), rank: 0 }).unwrap();
        let stored = |parent, hashes: [u64; 2]| Stored {
            hashes: hashes.map(EngineHash).to_vec(),
            parent,
            tokens: vec![1, 2, 3, 4],
            block_size: 2,
            media: vec![],
            lora: None,
            salt: Some("s".to_owned()),
            tier: Tier::Gpu,
            group: Group(0),
        };
        index.apply(id, &Event::Stored(stored(None, [5, 6]))).unwrap();
        index.apply(id, &Event::Stored(stored(Some(EngineHash(99)), [7, 8]))).unwrap();
        let cache = Bytes::from(index.save_worker(id).unwrap());
        let worker = |rank| SavedWorker {
            address: "10.0.0.1:80".parse().unwrap(),
            rank,
            last: Applied { seq: 7, fingerprint: 8 },
            cache: cache.clone(),
        };
        vec![worker(0), worker(3)]
    }

    #[test]
    fn what_is_written_is_read() {
        let (pool, workers) = (pool("llama", 2), workers());
        assert_eq!(decode(&encode(&pool, &workers).into(), &pool).unwrap(), workers);
        assert_eq!(decode(&encode(&pool, &[]).into(), &pool).unwrap(), []);
    }

    #[test]
    fn a_snapshot_of_another_pool_is_refused() {
        let bytes = Bytes::from(encode(&pool("llama", 2), &workers()));
        for other in [pool("other", 2), pool("llama", 4)] {
            let error = decode(&bytes, &other).unwrap_err();
            assert!(matches!(error, SnapshotError::OtherPool { .. }), "{error}");
        }
    }

    #[test]
    fn a_snapshot_that_is_cut_or_changed_anywhere_is_refused() {
        let pool = pool("llama", 2);
        let whole = encode(&pool, &workers());
        for len in 0..whole.len() {
            assert!(decode(&Bytes::copy_from_slice(&whole[..len]), &pool).is_err(), "{len}");
        }
        for place in 0..whole.len() {
            let mut changed = whole.clone();
            changed[place] ^= 1;
            assert!(decode(&changed.into(), &pool).is_err(), "{place}");
        }
        let longer = [&whole[..], b"x"].concat();
        assert!(decode(&longer.into(), &pool).is_err());
        assert!(matches!(
            decode(&Bytes::from_static(b"something else entirely"), &pool),
            Err(SnapshotError::Foreign)
        ));
    }

    /// Whoever can write a right checksum can write anything: it must not panic.
    #[test]
    fn nonsense_with_a_right_checksum_is_refused() {
        let pool = pool("llama", 2);
        let whole = encode(&pool, &workers());
        let content = &whole[..whole.len() - CHECKSUM_BYTES];
        for place in MAGIC.len() + 4..content.len() {
            let mut changed = content.to_vec();
            changed[place] = 0xff;
            changed.extend(xxh3_64(&changed).to_le_bytes());
            let _ = decode(&changed.into(), &pool);
        }
        let mut future = content.to_vec();
        future[MAGIC.len()] = 9;
        future.extend(xxh3_64(&future).to_le_bytes());
        assert!(matches!(decode(&future.into(), &pool), Err(SnapshotError::Version(9))));
    }
}
