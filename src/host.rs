//! What warmroute needs of the proxy that it runs in.
//!
//! No call fails loudly: a proxy-wasm host that refuses a call must never cost a request, so a read that fails is as a
//! read that finds nothing, and a write that fails is reported only where the caller can act on it.

#[cfg(test)]
pub mod fake;
mod headers;

pub use headers::Headers;

/// A value in the proxy's shared data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedValue {
    /// The value. Empty stands for absent: shared data knows no delete.
    pub bytes: Vec<u8>,
    /// The number of the write that stored it, for a compare-and-swap.
    pub cas: u32,
}

/// Under what condition a shared value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteIf {
    /// The value is still the one of this write.
    Unchanged(u32),
    /// There is no value yet.
    Absent,
}

/// A shared value was not written: somebody else wrote it first, or the host refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotWritten;

/// A metric of the proxy's, once it is defined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricId(pub u32);

/// What a metric measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Only ever grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// A distribution.
    Histogram,
}

/// A part of a request's way through the filter, for those who measure what each takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Reading the request's headers, a prompt in them included.
    Headers,
    /// Reading a piece of the body out of the proxy.
    Body,
    /// Finding the token IDs in it.
    Scan,
    /// Hashing the prompt's blocks.
    Hash,
    /// Reading the published pool and what the other threads have in flight.
    Snapshot,
    /// Reading a page.
    Page,
    /// Searching for each worker's depth and the choice among them.
    Choose,
    /// Naming the worker.
    Steer,
    /// Counting, and keeping the books.
    Account,
    /// The response's callbacks, and the end.
    Response,
}

/// How much a line in the log matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// For those who look for it.
    Debug,
    /// A change of state that an operator wants to see.
    Info,
    /// Something is missing or wrong, and requests go to the fallback because of it.
    Warn,
}

/// What is there in every callback.
pub trait Host {
    /// The time of day, in microseconds since 1970.
    fn now_us(&self) -> u64;

    /// A value of the shared data of all of the proxy's threads.
    fn shared(&self, key: &str) -> Option<SharedValue>;

    /// Writes a shared value.
    ///
    /// # Errors
    ///
    /// The condition does not hold, or the host refused.
    fn set_shared(&self, key: &str, bytes: &[u8], condition: WriteIf) -> Result<(), NotWritten>;

    /// Defines a metric; the same name gives the same metric.
    fn define_metric(&self, kind: MetricKind, name: &str) -> Option<MetricId>;

    /// Adds to a counter.
    fn add(&self, metric: MetricId, amount: u64);

    /// Sets a gauge, or adds a value to a histogram.
    fn record(&self, metric: MetricId, value: u64);

    /// Writes a line to the proxy's log.
    fn log(&self, level: Level, message: &str);

    /// A phase begins, and with it ends the one before. Only a plugin that is built to be measured listens.
    #[inline]
    fn begins(&self, _phase: Phase) {}
}

/// What is there in the callbacks of one request.
pub trait RequestHost: Host {
    /// The request's headers, as they are now.
    fn request_headers(&self) -> Headers;

    /// Sets a request header in place of all that it was.
    fn set_request_header(&self, name: &str, value: &str);

    /// Removes a request header.
    fn remove_request_header(&self, name: &str);

    /// At most `len` bytes of the request's held body, from `start` on.
    fn request_body(&self, start: usize, len: usize) -> Option<Vec<u8>>;

    /// Puts these bytes in the place of the request's body, which is held and complete. Whether the host has taken them.
    fn set_request_body(&self, bytes: &[u8]) -> bool;

    /// At most `len` bytes of the part of the response's body that has just come, from `start` on.
    fn response_body(&self, start: usize, len: usize) -> Option<Vec<u8>>;

    /// The name of the cluster that the request's route leads to.
    fn cluster_name(&self) -> Option<Vec<u8>>;

    /// The host that the request was sent to, as `ip:port`, once it is known.
    fn upstream_address(&self) -> Option<Vec<u8>>;

    /// A response header's value, as bytes. Of a repeated header, the first.
    fn response_header(&self, name: &str) -> Option<Vec<u8>>;

    /// Sets a response header.
    fn set_response_header(&self, name: &str, value: &str);
}

/// An HTTP request that the host makes for us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call<'a> {
    /// The proxy's cluster to send it to.
    pub cluster: &'a str,
    /// The request's `:authority`.
    pub authority: &'a str,
    /// The request's `:path`.
    pub path: &'a str,
    /// What the answer's body is to be, as a media type, where there is a choice.
    pub accept: Option<&'a str>,
    /// When the host gives up, in milliseconds; never 0, which would be never.
    pub timeout_ms: u64,
}

/// Names a call until its answer comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallId(pub u32);

/// What came back from a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallAnswer {
    /// The HTTP status; none if the call failed before there was one. A call that timed out is a 504.
    pub status: Option<u16>,
    /// The body.
    pub body: Vec<u8>,
}

/// Makes calls.
pub trait CallHost: Host {
    /// Sends a GET request. Its answer comes in a callback of its own.
    fn get(&self, call: &Call<'_>) -> Option<CallId>;

    /// Sends a POST request with a body of bytes. Its answer comes likewise.
    fn post(&self, call: &Call<'_>, body: &[u8]) -> Option<CallId>;
}
