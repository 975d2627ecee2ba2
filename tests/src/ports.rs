//! Free ports on 127.0.0.1 that nobody else is handed.
//!
//! A port that the kernel picks (bind to 0, close, pass it on) may be taken again before its new owner binds it, and a
//! client that dials such a port while its server is down may even be connected to itself. So ports come from below the
//! kernel's range, in blocks of 100; the first port of a block stays bound as this process's claim on the others.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};

const BLOCK: u16 = 100;
/// Below it live well-known services and the defaults of the shipped configurations.
const FIRST: u16 = 11_000;
/// Linux hands out 32768 and above by itself.
const END: u16 = 32_700;

static CLAIMS: Mutex<Vec<Claim>> = Mutex::new(Vec::new());

struct Claim {
    /// Bound for as long as this process lives.
    _lock: TcpListener,
    next: u16,
    end: u16,
}

/// A port of 127.0.0.1 that is free now, and that this function gives out once.
///
/// # Errors
/// When no block of ports is left.
pub fn free() -> Result<SocketAddr> {
    let mut claims = CLAIMS.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        if let Some(address) = claims.last_mut().and_then(Claim::take) {
            return Ok(address);
        }
        claims.push(claim()?);
    }
}

/// The first block that no process has claimed.
fn claim() -> Result<Claim> {
    (FIRST..END)
        .step_by(usize::from(BLOCK))
        .find_map(|first| {
            let lock = TcpListener::bind(local(first)).ok()?;
            Some(Claim { _lock: lock, next: first + 1, end: first + BLOCK })
        })
        .with_context(|| format!("no free block of ports in {FIRST}..{END}"))
}

fn local(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

// === impl Claim ===

impl Claim {
    /// The block's next port that can be bound.
    fn take(&mut self) -> Option<SocketAddr> {
        while self.next < self.end {
            let address = local(self.next);
            self.next += 1;
            if TcpListener::bind(address).is_ok() {
                return Some(address);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::free;

    #[test]
    fn never_gives_a_port_twice() {
        let ports: Vec<_> = (0..250).map(|_| free().unwrap()).collect();
        assert_eq!(ports.iter().collect::<HashSet<_>>().len(), ports.len());
    }
}
