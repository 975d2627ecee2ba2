//! What all of the proxy's threads have in flight, by worker.
//!
//! Each VM has a row of its own, which it alone writes: what it has sent and not heard the end of. Readers sum the rows of
//! the others. A row carries the time at which it was written; one that is not refreshed is a dead VM's and is dropped by
//! whoever writes next, so nothing leaks. A VM with nothing in flight has no row.
//!
//! # Layout, version 2
//!
//! All numbers are little-endian.
//!
//! ```text
//! offset  size  field
//! 0       4     magic, the bytes "WRLD"
//! 4       2     format version, 2
//! 6       2     number of rows
//! 8       ...   rows: VM (8), written at (8, microseconds since 1970), number of workers (4), workers
//!               a worker: IPv6 or IPv4-mapped address (16), port (2), rank + 1 or 0 for an unnamed one (4), requests (4),
//!               prefill tokens (8), blocks (8)
//! ```

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use warmroute_routing::choose::Load;
use warmroute_routing::loads::WorkerKey;

const FORMAT_VERSION: u16 = 2;
const MAGIC: &[u8; 4] = b"WRLD";

/// A row that was not refreshed for this long is a dead VM's, in microseconds.
pub const ROW_LIFE_US: u64 = 3_000_000;

/// The rows of all VMs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadBook {
    rows: Vec<LoadRow>,
}

/// What one VM has in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadRow {
    /// The VM's random number.
    pub vm: u64,
    /// When it was written, in microseconds since 1970.
    pub written_at_us: u64,
    /// The workers that have anything in hand.
    pub loads: Vec<(WorkerKey, Load)>,
}

// === impl LoadBook ===

impl LoadBook {
    /// What the living VMs but this one have in flight; a worker may come several times.
    pub fn others(&self, vm: u64, now_us: u64) -> impl Iterator<Item = &(WorkerKey, Load)> {
        self.rows.iter().filter(move |row| row.vm != vm && row.lives(now_us)).flat_map(|row| &row.loads)
    }

    /// What all living VMs have in flight; a worker may come several times.
    pub fn all(&self, now_us: u64) -> impl Iterator<Item = &(WorkerKey, Load)> {
        self.rows.iter().filter(move |row| row.lives(now_us)).flat_map(|row| &row.loads)
    }

    /// Puts a VM's row in place of its last, and drops those of dead VMs.
    pub fn put(&mut self, row: LoadRow) {
        self.rows.retain(|other| other.vm != row.vm && other.lives(row.written_at_us));
        if !row.loads.is_empty() {
            self.rows.push(row);
        }
    }

    /// The value's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(8 + self.rows.len() * 128);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        out.extend_from_slice(&u16::try_from(self.rows.len()).unwrap_or(u16::MAX).to_le_bytes());
        for row in self.rows.iter().take(usize::from(u16::MAX)) {
            row.encode_into(&mut out);
        }
        out
    }

    /// Reads the value. What is cut, foreign or of another layout is as nothing: it is written anew.
    pub fn decode(bytes: &[u8]) -> Self {
        Self::read(bytes).unwrap_or_default()
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let (magic, mut rest) = bytes.split_first_chunk::<4>()?;
        let version = u16::from_le_bytes(take(&mut rest)?);
        if magic != MAGIC || version != FORMAT_VERSION {
            return None;
        }
        let count = u16::from_le_bytes(take(&mut rest)?);
        let rows = (0..count).map(|_| LoadRow::read(&mut rest)).collect::<Option<Vec<_>>>()?;
        rest.is_empty().then_some(Self { rows })
    }
}

// === impl LoadRow ===

impl LoadRow {
    /// A row from the future is from before the clock went back, and dead too.
    fn lives(&self, now_us: u64) -> bool {
        self.written_at_us.abs_diff(now_us) < ROW_LIFE_US
    }

    fn encode_into(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.vm.to_le_bytes());
        out.extend_from_slice(&self.written_at_us.to_le_bytes());
        out.extend_from_slice(&u32::try_from(self.loads.len()).unwrap_or(u32::MAX).to_le_bytes());
        for (worker, load) in self.loads.iter().take(u32::MAX as usize) {
            let ip = match worker.address.ip() {
                IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                IpAddr::V6(ip) => ip,
            };
            out.extend_from_slice(&ip.octets());
            out.extend_from_slice(&worker.address.port().to_le_bytes());
            out.extend_from_slice(&worker.rank.map_or(0, |rank| rank.saturating_add(1)).to_le_bytes());
            out.extend_from_slice(&load.requests.to_le_bytes());
            out.extend_from_slice(&load.prefill_tokens.to_le_bytes());
            out.extend_from_slice(&load.blocks.to_le_bytes());
        }
    }

    fn read(rest: &mut &[u8]) -> Option<Self> {
        let vm = u64::from_le_bytes(take(rest)?);
        let written_at_us = u64::from_le_bytes(take(rest)?);
        let count = u32::from_le_bytes(take(rest)?);
        let loads = (0..count).map(|_| read_load(rest)).collect::<Option<Vec<_>>>()?;
        Some(Self { vm, written_at_us, loads })
    }
}

fn read_load(rest: &mut &[u8]) -> Option<(WorkerKey, Load)> {
    let ip = Ipv6Addr::from(take::<16>(rest)?).to_canonical();
    let address = SocketAddr::new(ip, u16::from_le_bytes(take(rest)?));
    let rank = u32::from_le_bytes(take(rest)?).checked_sub(1);
    let requests = u32::from_le_bytes(take(rest)?);
    let prefill_tokens = u64::from_le_bytes(take(rest)?);
    let blocks = u64::from_le_bytes(take(rest)?);
    Some((WorkerKey { address, rank }, Load { requests, prefill_tokens, blocks }))
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = rest.split_first_chunk::<N>()?;
    *rest = tail;
    Some(*head)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    fn load(requests: u32) -> Load {
        Load { requests, prefill_tokens: u64::from(requests) * 100, blocks: 7 }
    }

    fn row(vm: u64, written_at_us: u64, requests: u32) -> LoadRow {
        let loads = vec![
            (WorkerKey { address: "127.0.0.1:8001".parse().unwrap(), rank: Some(3) }, load(requests)),
            (WorkerKey { address: "[2001:db8::1]:8002".parse().unwrap(), rank: None }, load(requests + 1)),
        ];
        LoadRow { vm, written_at_us, loads: if requests == 0 { vec![] } else { loads } }
    }

    fn requests(book: &LoadBook, vm: u64, now_us: u64) -> u32 {
        book.others(vm, now_us).map(|(_, load)| load.requests).sum()
    }

    #[test]
    fn reads_what_it_wrote_and_takes_what_is_cut_for_nothing() {
        let mut book = LoadBook::default();
        book.put(row(1, SECOND, 3));
        book.put(row(2, SECOND, 5));
        let bytes = book.encode();
        assert_eq!(LoadBook::decode(&bytes), book);
        for cut in 0..bytes.len() {
            assert_eq!(LoadBook::decode(&bytes[..cut]), LoadBook::default(), "cut at {cut}");
        }
    }

    #[test]
    fn a_vm_sums_the_others_and_replaces_its_own_row() {
        let mut book = LoadBook::default();
        book.put(row(1, SECOND, 3));
        book.put(row(2, SECOND, 5));
        book.put(row(1, SECOND, 1));
        assert_eq!((requests(&book, 2, SECOND), requests(&book, 1, SECOND)), (3, 11));
    }

    #[test]
    fn what_a_dead_vm_had_in_flight_is_forgotten() {
        let mut book = LoadBook::default();
        book.put(row(1, SECOND, 3));
        assert_eq!(requests(&book, 2, 4 * SECOND), 0);
        book.put(row(2, 5 * SECOND, 1));
        assert_eq!(book.rows.len(), 1);
    }

    #[test]
    fn a_vm_with_nothing_in_flight_has_no_row() {
        let mut book = LoadBook::default();
        book.put(row(1, SECOND, 3));
        book.put(row(1, SECOND, 0));
        assert_eq!(book, LoadBook::default());
    }
}
