//! The layouts of [`LoadReport`] and [`FleetLoad`].

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::{EngineState, FORMAT_VERSION, FleetLoad, FleetRow, LoadReport, LoadsError, MAX_ROWS, WorkerKey};
use crate::bytes::{Reader, put_varint};
use crate::choose::Load;

const REPORT: &[u8; 4] = b"WRLR";
const ANSWER: &[u8; 4] = b"WRLA";

const OTHERS: u8 = 1;
const ENGINE: u8 = 2;

// === impl LoadReport ===

impl LoadReport {
    /// The report's bytes. At most [`MAX_ROWS`] rows are written.
    pub fn encode(&self) -> Vec<u8> {
        let rows = self.rows.get(..MAX_ROWS).unwrap_or(&self.rows);
        let mut out = head(REPORT, rows.len());
        out.extend_from_slice(&self.proxy.to_le_bytes());
        out.extend_from_slice(&self.position.to_le_bytes());
        out.extend_from_slice(&self.wait_ms.to_le_bytes());
        for (worker, load) in rows {
            worker.encode_into(&mut out);
            put_load(&mut out, load);
        }
        out
    }

    /// Reads a report.
    ///
    /// # Errors
    ///
    /// Anything that [`LoadReport::encode`] would not have written.
    pub fn decode(bytes: &[u8]) -> Result<Self, LoadsError> {
        let mut reader = Reader::new(bytes);
        let count = read_head(&mut reader, REPORT)?;
        let proxy = reader.u64().ok_or(LoadsError::Length)?;
        if proxy == 0 {
            return Err(LoadsError::Field("proxy"));
        }
        let position = reader.u64().ok_or(LoadsError::Length)?;
        let wait_ms = reader.u32().ok_or(LoadsError::Length)?;
        let row = |reader: &mut Reader<'_>| Ok((WorkerKey::decode(reader)?, read_load(reader)?));
        let rows = rows(&mut reader, count, row, |(worker, _)| *worker)?;
        Ok(Self { proxy, position, wait_ms, rows })
    }
}

// === impl FleetLoad ===

impl FleetLoad {
    /// The answer's bytes. At most [`MAX_ROWS`] rows are written.
    pub fn encode(&self) -> Vec<u8> {
        let rows = self.rows.get(..MAX_ROWS).unwrap_or(&self.rows);
        let mut out = head(ANSWER, rows.len());
        out.extend_from_slice(&self.position.to_le_bytes());
        for row in rows {
            row.encode_into(&mut out);
        }
        out
    }

    /// Reads an answer.
    ///
    /// # Errors
    ///
    /// Anything that [`FleetLoad::encode`] would not have written.
    pub fn decode(bytes: &[u8]) -> Result<Self, LoadsError> {
        let mut reader = Reader::new(bytes);
        let count = read_head(&mut reader, ANSWER)?;
        let position = reader.u64().ok_or(LoadsError::Length)?;
        let rows = rows(&mut reader, count, FleetRow::decode, |row| row.worker)?;
        Ok(Self { position, rows })
    }
}

// === impl FleetRow ===

impl FleetRow {
    fn encode_into(&self, out: &mut Vec<u8>) {
        self.worker.encode_into(out);
        let others = if self.others.is_none() { 0 } else { OTHERS };
        out.push(others | if self.engine.is_some() { ENGINE } else { 0 });
        if others != 0 {
            put_load(out, &self.others);
        }
        if let Some(state) = &self.engine {
            for figure in [state.running, state.waiting, state.kv_permille.into(), state.age_ms] {
                put_varint(out, figure.into());
            }
            put_load(out, &state.unbooked);
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, LoadsError> {
        let worker = WorkerKey::decode(reader)?;
        let flags = reader.u8().ok_or(LoadsError::Length)?;
        if flags & !(OTHERS | ENGINE) != 0 {
            return Err(LoadsError::Field("flag"));
        }
        let others = if flags & OTHERS == 0 { Load::default() } else { read_load(reader)? };
        let engine = if flags & ENGINE == 0 { None } else { Some(read_state(reader)?) };
        Ok(Self { worker, others, engine })
    }
}

// === impl WorkerKey ===

impl WorkerKey {
    fn encode_into(&self, out: &mut Vec<u8>) {
        match self.address.ip() {
            IpAddr::V4(ip) => {
                out.push(4);
                out.extend_from_slice(&ip.octets());
            }
            IpAddr::V6(ip) => {
                out.push(6);
                out.extend_from_slice(&ip.octets());
            }
        }
        out.extend_from_slice(&self.address.port().to_le_bytes());
        put_varint(out, self.rank.map_or(0, |rank| u64::from(rank) + 1));
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, LoadsError> {
        let ip = match reader.u8().ok_or(LoadsError::Length)? {
            4 => Ipv4Addr::from(reader.array::<4>().ok_or(LoadsError::Length)?).into(),
            6 => Ipv6Addr::from(reader.array::<16>().ok_or(LoadsError::Length)?).into(),
            _ => return Err(LoadsError::Field("address family")),
        };
        let address = SocketAddr::new(ip, reader.u16().ok_or(LoadsError::Length)?);
        let rank = reader.varint().ok_or(LoadsError::Length)?;
        let rank =
            rank.checked_sub(1).map(u32::try_from).transpose().map_err(|_| LoadsError::Field("rank"))?;
        Ok(Self { address, rank })
    }
}

fn head(magic: &[u8; 4], rows: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(32 + rows * 20);
    out.extend_from_slice(magic);
    out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    out.extend_from_slice(&u16::try_from(rows).unwrap_or_default().to_le_bytes());
    out
}

/// The number of rows.
fn read_head(reader: &mut Reader<'_>, magic: &[u8; 4]) -> Result<usize, LoadsError> {
    if reader.take(magic.len()).ok_or(LoadsError::Length)? != magic {
        return Err(LoadsError::Magic);
    }
    let version = reader.u16().ok_or(LoadsError::Length)?;
    if version != FORMAT_VERSION {
        return Err(LoadsError::Version(version));
    }
    let count = usize::from(reader.u16().ok_or(LoadsError::Length)?);
    if count > MAX_ROWS { Err(LoadsError::Field("number of rows")) } else { Ok(count) }
}

/// So many rows and nothing after them. What is reserved depends on the rows that are there, not on their number.
fn rows<T>(
    reader: &mut Reader<'_>,
    count: usize,
    read: impl Fn(&mut Reader<'_>) -> Result<T, LoadsError>,
    worker: impl Fn(&T) -> WorkerKey,
) -> Result<Vec<T>, LoadsError> {
    let mut rows = Vec::new();
    for _ in 0..count {
        rows.push(read(reader)?);
    }
    if !reader.is_empty() {
        return Err(LoadsError::Length);
    }
    let mut workers: Vec<_> = rows.iter().map(worker).collect();
    workers.sort_unstable();
    if workers.windows(2).any(|pair| pair.first() == pair.last()) {
        return Err(LoadsError::Field("worker that comes twice"));
    }
    Ok(rows)
}

fn put_load(out: &mut Vec<u8>, load: &Load) {
    put_varint(out, load.requests.into());
    put_varint(out, load.prefill_tokens);
    put_varint(out, load.blocks);
}

fn read_load(reader: &mut Reader<'_>) -> Result<Load, LoadsError> {
    let requests = small(reader)?;
    let prefill_tokens = reader.varint().ok_or(LoadsError::Length)?;
    let blocks = reader.varint().ok_or(LoadsError::Length)?;
    Ok(Load { requests, prefill_tokens, blocks })
}

fn read_state(reader: &mut Reader<'_>) -> Result<EngineState, LoadsError> {
    let (running, waiting) = (small(reader)?, small(reader)?);
    let kv_permille = u16::try_from(small(reader)?).map_err(|_| LoadsError::Field("KV use"))?;
    let age_ms = small(reader)?;
    Ok(EngineState { running, waiting, kv_permille, age_ms, unbooked: read_load(reader)? })
}

fn small(reader: &mut Reader<'_>) -> Result<u32, LoadsError> {
    let number = reader.varint().ok_or(LoadsError::Length)?;
    u32::try_from(number).map_err(|_| LoadsError::Field("number"))
}
