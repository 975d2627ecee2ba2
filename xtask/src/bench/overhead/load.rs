//! The load: requests at a fixed rate, and as many as will go.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use super::http1::Wire;

/// Connections that are kept busy to find the highest rate.
const BUSY: usize = 8;

/// A request that takes longer has failed.
const DEADLINE: Duration = Duration::from_secs(20);

/// Whom requests go to, and which.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub(super) address: SocketAddr,
    /// The requests, sent in turn.
    pub(super) requests: Arc<Vec<Request>>,
}

/// A request as it goes over the wire.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) bytes: Vec<u8>,
    /// The worker that must serve it, if it matters.
    pub(super) holder: Option<usize>,
    /// Where six digits stand that are others each time it is sent, so that nobody has seen its prompt before.
    pub(super) stamp: Option<usize>,
}

/// What a time of load at a fixed rate came to.
#[derive(Debug)]
pub(super) struct Served {
    /// From when a request was meant to be sent to the end of its answer, ascending.
    pub(super) latencies: Vec<Duration>,
    /// How many were served by the worker that had to serve them, of those for which it matters.
    pub(super) by_holder: u64,
}

/// Sends `rate` requests a second for a time. When they are sent does not depend on how long the answers take: one that
/// is late makes those behind it late, and all of that counts.
pub(super) async fn at_rate(target: &Target, rate: u32, time: Duration) -> Result<Served> {
    let count = (time.as_secs_f64() * f64::from(rate)).round() as u32;
    let connections = Arc::new(Mutex::new(Vec::new()));
    let by_holder = Arc::new(AtomicU64::new(0));
    let (handle, sender) = (Handle::current(), target.clone());
    let (pool, held) = (Arc::clone(&connections), Arc::clone(&by_holder));
    // A thread of its own: the runtime's timers are only good to a millisecond.
    let sending = tokio::task::spawn_blocking(move || {
        let mut running = JoinSet::new();
        let start = Instant::now();
        for number in 0..count {
            let due = start + Duration::from_secs_f64(f64::from(number) / f64::from(rate));
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            let (target, pool, held) = (sender.clone(), Arc::clone(&pool), Arc::clone(&held));
            let exchange = async move {
                let free = lock(&pool).pop();
                let mut wire = connected(free, target.address).await?;
                if target.exchange(&mut wire, number as usize).await? {
                    held.fetch_add(1, Ordering::Relaxed);
                }
                lock(&pool).push(wire);
                Ok::<_, anyhow::Error>(due.elapsed())
            };
            running.spawn_on(async move { tokio::time::timeout(DEADLINE, exchange).await }, &handle);
        }
        running
    });
    let mut running = sending.await?;
    let mut latencies = Vec::with_capacity(count as usize);
    while let Some(done) = running.join_next().await {
        latencies.push(done?.map_err(|_| anyhow!("no answer in {DEADLINE:?}"))??);
    }
    latencies.sort_unstable();
    Ok(Served { latencies, by_holder: by_holder.load(Ordering::Relaxed) })
}

/// Requests a second that are answered while [`BUSY`] connections send the next as soon as the last is answered.
pub(super) async fn highest_rate(target: &Target, time: Duration) -> Result<f64> {
    let start = Instant::now();
    let mut running = JoinSet::new();
    for connection in 0..BUSY {
        let target = target.clone();
        running.spawn(async move {
            let mut wire = connected(None, target.address).await?;
            let mut served = 0_u32;
            while start.elapsed() < time {
                let exchange = target.exchange(&mut wire, connection + served as usize);
                tokio::time::timeout(DEADLINE, exchange).await.context("no answer")??;
                served += 1;
            }
            Ok::<_, anyhow::Error>(served)
        });
    }
    let mut served = 0;
    while let Some(done) = running.join_next().await {
        served += done??;
    }
    Ok(f64::from(served) / start.elapsed().as_secs_f64())
}

async fn connected(wire: Option<Wire>, address: SocketAddr) -> Result<Wire> {
    match wire {
        Some(wire) => Ok(wire),
        None => Ok(Wire::new(TcpStream::connect(address).await.context("cannot connect")?)?),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

// === impl Target ===

impl Target {
    /// Sends one request and reads its answer whole. Says whether the worker that had to serve it did.
    pub(super) async fn exchange(&self, wire: &mut Wire, number: usize) -> Result<bool> {
        let count = self.requests.len().max(1);
        let request = self.requests.get(number % count).context("no requests")?;
        match request.stamp {
            None => wire.write(&request.bytes).await?,
            Some(stamp) => wire.write(&request.stamped(stamp)).await?,
        }
        let head = wire.head().await?.context("closed without an answer")?;
        let mut answer = Vec::new();
        wire.body(&head, |part| answer.extend_from_slice(part)).await?;
        ensure!(head.second == "200", "status {}: {}", head.second, String::from_utf8_lossy(&answer));
        Ok(request.holder.is_some() && served_by(&answer) == request.holder)
    }

    /// One exchange on a connection of its own.
    pub(super) async fn once(&self, number: usize) -> Result<bool> {
        let mut wire = connected(None, self.address).await?;
        tokio::time::timeout(DEADLINE, self.exchange(&mut wire, number)).await.context("no answer")?
    }
}

// === impl Request ===

impl Request {
    fn stamped(&self, at: usize) -> Vec<u8> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let mut bytes = self.bytes.clone();
        let number = 100_000 + NEXT.fetch_add(1, Ordering::Relaxed) % 900_000;
        for (place, digit) in bytes.iter_mut().skip(at).zip(number.to_string().bytes()) {
            *place = digit;
        }
        bytes
    }
}

/// Who says to have served. Some routers write the answer's JSON anew, so blanks may stand after the colon.
fn served_by(answer: &[u8]) -> Option<usize> {
    const KEY: &[u8] = b"\"served_by\":";
    let at = answer.windows(KEY.len()).position(|bytes| bytes == KEY)?;
    let rest = answer.get(at + KEY.len()..)?.trim_ascii_start();
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(rest.get(..digits)?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_who_served() {
        assert_eq!(served_by(br#"{"id":"x","served_by": 17,"y":[]}"#), Some(17));
        assert_eq!(served_by(br#"{"served_by":3}"#), Some(3));
        assert_eq!(served_by(b"{}"), None);
    }

    #[test]
    fn a_stamped_request_differs_each_time_in_six_digits() {
        let request = Request { bytes: b"[000000,7]".to_vec(), holder: None, stamp: Some(1) };
        let [one, other] = [request.stamped(1), request.stamped(1)];
        assert_ne!(one, other);
        for bytes in [one, other] {
            assert!(bytes.starts_with(b"[1") && bytes.ends_with(b",7]") && bytes.len() == 10);
        }
    }

    #[tokio::test]
    async fn an_answer_that_is_late_makes_all_behind_it_late() {
        // One connection at a time is served, each answer 50 ms after its request.
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let mut wire = Wire::new(stream).unwrap();
                let head = wire.head().await.unwrap().unwrap();
                wire.body(&head, |_| ()).await.unwrap();
                tokio::time::sleep(Duration::from_millis(50)).await;
                wire.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
            }
        });
        let request = Request { bytes: b"GET / HTTP/1.1\r\n\r\n".to_vec(), holder: None, stamp: None };
        let requests = Arc::new(vec![request]);
        let target = Target { address, requests };
        // Four requests within 40 ms: the last is answered after 200 ms and was meant to be sent at 30 ms.
        let served = at_rate(&target, 100, Duration::from_millis(40)).await.unwrap();
        assert_eq!(served.latencies.len(), 4);
        assert!(*served.latencies.last().unwrap() >= Duration::from_millis(165), "{:?}", served.latencies);
        server.abort();
    }
}
