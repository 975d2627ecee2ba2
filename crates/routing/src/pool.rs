//! The pool: what a reader must know before it can use the pages, published as one value.
//!
//! # Layout, version 1
//!
//! All numbers are little-endian; a text is its length in one byte, then UTF-8.
//!
//! ```text
//! offset  size  field
//! 0       4     magic, the bytes "WRPL"
//! 4       2     format version, 1
//! 6       1     page bits: the index has 2^bits pages
//! 7       1     flags: bit 0 = namespaced
//! 8       8     generation
//! 16      4     block size, in tokens: 1 to 65,536
//! 20      2     number of base model names
//! 22      2     number of workers
//! 24      ...   base model names: a text each
//! ...     ...   workers, ascending by slot: slot (2), state (1), rank (4), address (text, "ip:port" or "[ip6]:port")
//! ```

use std::net::SocketAddr;

use crate::bytes::{Reader, put_short_text};
use crate::hash::{MAX_BLOCK_SIZE, Namespace};
use crate::page::{Generation, PageBits, Slot};

/// The number of this layout.
pub const FORMAT_VERSION: u16 = 1;

const MAGIC: &[u8; 4] = b"WRPL";

/// A pool of workers that serve the same model, and the shape of the index over their caches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// The generation that the pages belong to.
    pub generation: Generation,
    /// How many pages there are.
    pub page_bits: PageBits,
    /// Tokens in a block; never 0.
    pub block_size: u32,
    /// Model names that mean the base model. Empty: every name does.
    pub base_models: Vec<String>,
    /// Whether some cached block belongs to an adapter or a salt. While none does, the names in a request do not matter:
    /// with them it matches nothing.
    pub namespaced: bool,
    /// The workers, ascending by slot. A slot that is not here is dead: its holdings count for nothing.
    pub workers: Vec<Worker>,
}

/// One rank of one engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Worker {
    /// Its place in the pages.
    pub slot: Slot,
    /// The endpoint, exactly as the proxy knows it.
    pub address: SocketAddr,
    /// The data-parallel rank behind the endpoint.
    pub rank: u32,
    /// Whether requests may be sent to it.
    pub state: WorkerState,
}

/// Whether requests may be sent to a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkerState {
    /// Nothing speaks against it.
    Up,
    /// It is known not to serve.
    Down,
}

/// Why bytes are not a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// The bytes end early or go on too long.
    #[error("pool has the wrong length")]
    Length,
    /// Not a pool at all.
    #[error("pool does not begin with its magic bytes")]
    Magic,
    /// A pool of another layout.
    #[error("pool has format version {0}, not {FORMAT_VERSION}")]
    Version(u16),
    /// A field holds what it cannot.
    #[error("pool has an impossible {0}")]
    Field(&'static str),
}

// === impl Pool ===

impl Pool {
    /// The namespace of a request: any model name that is not the base model's is an adapter's.
    pub fn namespace(&self, model: Option<&str>, salt: Option<&str>) -> Namespace {
        Namespace::new(model.filter(|name| self.is_adapter(name)), salt)
    }

    /// Whether the pool has adapters, so that a request's model decides its namespace.
    pub fn has_adapters(&self) -> bool {
        !self.base_models.is_empty()
    }

    fn is_adapter(&self, model: &str) -> bool {
        self.has_adapters() && self.base_models.iter().all(|base| base != model)
    }

    /// Whether an endpoint has more than its rank 0.
    pub fn has_ranks(&self) -> bool {
        self.workers.iter().any(|worker| worker.rank > 0)
    }

    /// Whether an endpoint has a rank.
    pub fn has_rank(&self, address: SocketAddr, rank: u32) -> bool {
        self.workers.iter().any(|worker| worker.address == address && worker.rank == rank)
    }

    /// The worker in a slot, if it lives.
    pub fn worker(&self, slot: Slot) -> Option<&Worker> {
        let i = self.workers.binary_search_by_key(&slot, |worker| worker.slot).ok()?;
        self.workers.get(i)
    }

    /// The pool's bytes. At most 65,535 names and workers are written; a name is cut at 255 bytes.
    pub fn encode(&self) -> Vec<u8> {
        let names = self.base_models.len().min(usize::from(u16::MAX));
        let workers = self.workers.len().min(usize::from(u16::MAX));
        let mut out = Vec::with_capacity(24 + workers * 32);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        out.extend_from_slice(&[self.page_bits.bits(), u8::from(self.namespaced)]);
        out.extend_from_slice(&self.generation.0.to_le_bytes());
        out.extend_from_slice(&self.block_size.to_le_bytes());
        out.extend_from_slice(&(names as u16).to_le_bytes());
        out.extend_from_slice(&(workers as u16).to_le_bytes());
        for name in self.base_models.iter().take(names) {
            put_short_text(&mut out, name);
        }
        for worker in self.workers.iter().take(workers) {
            worker.encode_into(&mut out);
        }
        out
    }

    /// Reads a pool.
    ///
    /// # Errors
    ///
    /// Anything that [`Pool::encode`] would not have written.
    pub fn decode(bytes: &[u8]) -> Result<Self, PoolError> {
        let mut reader = Reader::new(bytes);
        if reader.take(MAGIC.len()).ok_or(PoolError::Length)? != MAGIC {
            return Err(PoolError::Magic);
        }
        let version = reader.u16().ok_or(PoolError::Length)?;
        if version != FORMAT_VERSION {
            return Err(PoolError::Version(version));
        }
        let pool = Self::decode_fields(&mut reader)?;
        if reader.is_empty() { Ok(pool) } else { Err(PoolError::Length) }
    }

    fn decode_fields(reader: &mut Reader<'_>) -> Result<Self, PoolError> {
        let bits = reader.u8().ok_or(PoolError::Length)?;
        let page_bits = PageBits::new(bits).ok_or(PoolError::Field("number of page bits"))?;
        let namespaced = match reader.u8().ok_or(PoolError::Length)? {
            flags @ 0..=1 => flags == 1,
            _ => return Err(PoolError::Field("flag")),
        };
        let generation = Generation(reader.u64().ok_or(PoolError::Length)?);
        let block_size = reader.u32().ok_or(PoolError::Length)?;
        if !(1..=MAX_BLOCK_SIZE).contains(&block_size) {
            return Err(PoolError::Field("block size"));
        }
        let names = reader.u16().ok_or(PoolError::Length)?;
        let count = reader.u16().ok_or(PoolError::Length)?;
        let base_models = (0..names)
            .map(|_| reader.short_text().map(str::to_owned).ok_or(PoolError::Field("base model name")))
            .collect::<Result<_, _>>()?;
        let workers = (0..count).map(|_| Worker::decode(reader)).collect::<Result<Vec<_>, _>>()?;
        if !workers.is_sorted_by(|a, b| a.slot < b.slot) {
            return Err(PoolError::Field("order of workers"));
        }
        Ok(Self { generation, page_bits, block_size, base_models, namespaced, workers })
    }
}

// === impl Worker ===

impl Worker {
    fn encode_into(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.slot.number().to_le_bytes());
        out.push(self.state.number());
        out.extend_from_slice(&self.rank.to_le_bytes());
        put_short_text(out, &self.address.to_string());
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, PoolError> {
        let slot = Slot::new(reader.u16().ok_or(PoolError::Length)?).ok_or(PoolError::Field("slot"))?;
        let state = WorkerState::from_number(reader.u8().ok_or(PoolError::Length)?)?;
        let rank = reader.u32().ok_or(PoolError::Length)?;
        // Only what parses as an address can reach a header: no line break, no name.
        let address =
            reader.short_text().and_then(|text| text.parse().ok()).ok_or(PoolError::Field("address"))?;
        Ok(Self { slot, address, rank, state })
    }
}

// === impl WorkerState ===

impl WorkerState {
    fn number(self) -> u8 {
        match self {
            WorkerState::Up => 0,
            WorkerState::Down => 1,
        }
    }

    fn from_number(number: u8) -> Result<Self, PoolError> {
        match number {
            0 => Ok(WorkerState::Up),
            1 => Ok(WorkerState::Down),
            _ => Err(PoolError::Field("worker state")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool() -> Pool {
        let worker = |slot, address: &str, rank, state| Worker {
            slot: Slot::new(slot).unwrap(),
            address: address.parse().unwrap(),
            rank,
            state,
        };
        Pool {
            generation: Generation(0x0123_4567_89AB_CDEF),
            page_bits: PageBits::new(12).unwrap(),
            block_size: 16,
            base_models: vec!["llama".into(), "llama-alias".into()],
            namespaced: true,
            workers: vec![
                worker(0, "127.0.0.1:8001", 0, WorkerState::Up),
                worker(7, "[2001:db8::1]:8002", 3, WorkerState::Down),
            ],
        }
    }

    #[test]
    fn reads_what_it_wrote() {
        assert_eq!(Pool::decode(&pool().encode()), Ok(pool()));
    }

    #[test]
    fn bytes_cut_anywhere_or_one_too_many_are_an_error() {
        let mut bytes = pool().encode();
        for cut in 0..bytes.len() {
            assert!(Pool::decode(&bytes[..cut]).is_err(), "cut at {cut}");
        }
        bytes.push(0);
        assert_eq!(Pool::decode(&bytes), Err(PoolError::Length));
    }

    #[test]
    fn refuses_an_address_that_could_split_a_header() {
        let mut bytes = pool().encode();
        let at = bytes.windows(4).position(|window| window == b"127.").unwrap();
        bytes[at..at + 2].copy_from_slice(b"\r\n");
        assert_eq!(Pool::decode(&bytes), Err(PoolError::Field("address")));
    }

    #[test]
    fn refuses_a_block_that_no_memory_could_hold() {
        for block_size in [0, MAX_BLOCK_SIZE + 1, u32::MAX] {
            let bytes = Pool { block_size, ..pool() }.encode();
            assert_eq!(Pool::decode(&bytes), Err(PoolError::Field("block size")), "{block_size}");
        }
        let largest = Pool { block_size: MAX_BLOCK_SIZE, ..pool() };
        assert_eq!(Pool::decode(&largest.encode()), Ok(largest));
    }

    #[test]
    fn finds_workers_by_slot_and_only_those_that_live() {
        let pool = pool();
        assert_eq!(pool.worker(Slot::new(7).unwrap()).map(|worker| worker.rank), Some(3));
        assert!(pool.worker(Slot::new(3).unwrap()).is_none());
    }

    #[test]
    fn any_model_but_the_base_models_is_an_adapter() {
        let mut pool = pool();
        assert_eq!(pool.namespace(Some("llama-alias"), None), Namespace::default());
        assert_eq!(pool.namespace(Some("ad1"), Some("s")), Namespace::new(Some("ad1"), Some("s")));
        pool.base_models.clear();
        assert_eq!(pool.namespace(Some("ad1"), None), Namespace::default());
    }
}
