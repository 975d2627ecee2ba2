//! A proxy in a test: shared data with Envoy's rules, a clock that stands still, headers and a body.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use super::{
    Call, CallHost, CallId, Headers, Host, Level, MetricId, MetricKind, NotWritten, RequestHost, SharedValue,
    WriteIf,
};

/// The proxy.
#[derive(Debug, Default)]
pub struct FakeHost {
    /// The time of day, in microseconds.
    pub now_us: Cell<u64>,
    /// Shared data: the value and the number of its write.
    pub shared: RefCell<BTreeMap<String, (Vec<u8>, u32)>>,
    writes: Cell<u32>,
    lose_next_write: Cell<bool>,
    /// How often shared data was read.
    pub reads: Cell<u32>,
    /// The request's headers.
    pub request_headers: RefCell<BTreeMap<String, Vec<u8>>>,
    /// What has arrived of the request's body.
    pub body: RefCell<Vec<u8>>,
    /// What has just arrived of the response's body.
    pub response_body: RefCell<Vec<u8>>,
    /// The cluster of the request's route.
    pub cluster: RefCell<Option<String>>,
    /// The host that the request was sent to.
    pub upstream: RefCell<Option<String>>,
    /// The response's headers.
    pub response_headers: RefCell<BTreeMap<String, String>>,
    /// The metrics by name: the sum of what was added or recorded, or what a gauge was last set to, and how often.
    pub metrics: RefCell<Vec<(String, u64, u64)>>,
    gauges: RefCell<BTreeSet<u32>>,
    /// The paths of the calls that were made.
    pub calls: RefCell<Vec<String>>,
    /// The bodies of the POST requests that were made. They are numbered from a million up.
    pub posts: RefCell<Vec<Vec<u8>>>,
    /// The paths that they went to.
    pub post_paths: RefCell<Vec<String>>,
    /// Whether calls are refused.
    pub refuse_calls: Cell<bool>,
    /// The log.
    pub log: RefCell<Vec<String>>,
}

// === impl FakeHost ===

impl FakeHost {
    /// Writes a shared value from outside.
    pub fn put(&self, key: &str, bytes: &[u8]) {
        let cas = self.next_cas();
        self.shared.borrow_mut().insert(key.to_owned(), (bytes.to_vec(), cas));
    }

    /// A request header's value.
    pub fn request_header(&self, name: &str) -> Option<Vec<u8>> {
        self.request_headers.borrow().get(name).cloned()
    }

    /// Makes the next write fail, as if somebody else had been faster.
    pub fn lose_next_write(&self) {
        self.lose_next_write.set(true);
    }

    /// The sum of what a metric was given.
    pub fn metric(&self, name: &str) -> u64 {
        self.metrics.borrow().iter().find(|(known, ..)| known == name).map_or(0, |(_, sum, _)| *sum)
    }

    /// The names and sums of all metrics that were given anything.
    pub fn touched_metrics(&self) -> Vec<(String, u64)> {
        let metrics = self.metrics.borrow();
        metrics.iter().filter(|(.., times)| *times > 0).map(|(name, sum, _)| (name.clone(), *sum)).collect()
    }

    fn next_cas(&self) -> u32 {
        self.writes.set(self.writes.get() + 1);
        self.writes.get()
    }

    fn give(&self, metric: MetricId, amount: u64) {
        if let Some((_, sum, times)) = self.metrics.borrow_mut().get_mut(metric.0 as usize) {
            *sum = if self.gauges.borrow().contains(&metric.0) { amount } else { *sum + amount };
            *times += 1;
        }
    }
}

impl Host for FakeHost {
    fn now_us(&self) -> u64 {
        self.now_us.get()
    }

    fn shared(&self, key: &str) -> Option<SharedValue> {
        self.reads.set(self.reads.get() + 1);
        self.shared.borrow().get(key).map(|(bytes, cas)| SharedValue { bytes: bytes.clone(), cas: *cas })
    }

    fn set_shared(&self, key: &str, bytes: &[u8], condition: WriteIf) -> Result<(), NotWritten> {
        let found = self.shared.borrow().get(key).map(|(_, cas)| *cas);
        // Envoy does not compare where there is no value.
        let holds = match (condition, found) {
            (_, None) => true,
            (WriteIf::Unchanged(expected), Some(found)) => expected == found,
            (WriteIf::Absent, Some(_)) => false,
        };
        if self.lose_next_write.take() || !holds {
            return Err(NotWritten);
        }
        self.put(key, bytes);
        Ok(())
    }

    fn define_metric(&self, kind: MetricKind, name: &str) -> Option<MetricId> {
        let mut metrics = self.metrics.borrow_mut();
        let known = metrics.iter().position(|(known, ..)| known == name);
        let id = known.unwrap_or_else(|| {
            metrics.push((name.to_owned(), 0, 0));
            metrics.len() - 1
        });
        if kind == MetricKind::Gauge {
            self.gauges.borrow_mut().insert(id as u32);
        }
        Some(MetricId(id as u32))
    }

    fn add(&self, metric: MetricId, amount: u64) {
        self.give(metric, amount);
    }

    fn record(&self, metric: MetricId, value: u64) {
        self.give(metric, value);
    }

    fn log(&self, _level: Level, message: &str) {
        self.log.borrow_mut().push(message.to_owned());
    }
}

impl RequestHost for FakeHost {
    fn request_headers(&self) -> Headers {
        let headers = self.request_headers.borrow();
        headers.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect()
    }

    fn set_request_header(&self, name: &str, value: &str) {
        self.request_headers.borrow_mut().insert(name.to_owned(), value.as_bytes().to_vec());
    }

    fn remove_request_header(&self, name: &str) {
        self.request_headers.borrow_mut().remove(name);
    }

    fn request_body(&self, start: usize, len: usize) -> Option<Vec<u8>> {
        let body = self.body.borrow();
        let rest = body.get(start..)?;
        Some(rest.get(..len.min(rest.len()))?.to_vec())
    }

    fn set_request_body(&self, bytes: &[u8]) -> bool {
        *self.body.borrow_mut() = bytes.to_vec();
        true
    }

    fn response_body(&self, start: usize, len: usize) -> Option<Vec<u8>> {
        let body = self.response_body.borrow();
        let rest = body.get(start..)?;
        Some(rest.get(..len.min(rest.len()))?.to_vec())
    }

    fn cluster_name(&self) -> Option<Vec<u8>> {
        self.cluster.borrow().as_ref().map(|name| name.clone().into_bytes())
    }

    fn upstream_address(&self) -> Option<Vec<u8>> {
        self.upstream.borrow().as_ref().map(|address| address.clone().into_bytes())
    }

    fn response_header(&self, name: &str) -> Option<Vec<u8>> {
        self.response_headers.borrow().get(name).map(|value| value.clone().into_bytes())
    }

    fn set_response_header(&self, name: &str, value: &str) {
        self.response_headers.borrow_mut().insert(name.to_owned(), value.to_owned());
    }
}

impl CallHost for FakeHost {
    fn get(&self, call: &Call<'_>) -> Option<CallId> {
        if self.refuse_calls.get() {
            return None;
        }
        self.calls.borrow_mut().push(call.path.to_owned());
        Some(CallId(self.calls.borrow().len() as u32))
    }

    fn post(&self, call: &Call<'_>, body: &[u8]) -> Option<CallId> {
        if self.refuse_calls.get() {
            return None;
        }
        self.posts.borrow_mut().push(body.to_vec());
        self.post_paths.borrow_mut().push(call.path.to_owned());
        Some(CallId(1_000_000 + self.posts.borrow().len() as u32))
    }
}
