//! Envoy, as the rest of the plugin sees it.

use std::time::Duration;

use proxy_wasm::hostcalls;
use proxy_wasm::types::LogLevel;

use super::abi::{self, Buffer, HeaderMap};
use crate::host::{
    Call, CallAnswer, CallHost, CallId, Headers, Host, Level, MetricId, MetricKind, NotWritten, RequestHost,
    SharedValue, WriteIf,
};

/// The host of the callback that is running.
#[derive(Clone, Copy, Debug)]
pub(super) struct Envoy;

/// A number of a write that no value has: Envoy's count of writes starts at 1 and is that high only after 4 billion. It
/// is compared only where there is a value, so that a write with it succeeds only where there is none.
const NO_WRITE: u32 = u32::MAX;

// === impl Envoy ===

impl Host for Envoy {
    fn now_us(&self) -> u64 {
        abi::now_ns() / 1000
    }

    fn shared(&self, key: &str) -> Option<SharedValue> {
        abi::shared(key).map(|(bytes, cas)| SharedValue { bytes, cas })
    }

    fn set_shared(&self, key: &str, bytes: &[u8], condition: WriteIf) -> Result<(), NotWritten> {
        let cas = match condition {
            WriteIf::Unchanged(cas) => cas,
            WriteIf::Absent => NO_WRITE,
        };
        if abi::set_shared(key, bytes, cas) { Ok(()) } else { Err(NotWritten) }
    }

    fn define_metric(&self, kind: MetricKind, name: &str) -> Option<MetricId> {
        let kind = match kind {
            MetricKind::Counter => 0,
            MetricKind::Gauge => 1,
            MetricKind::Histogram => 2,
        };
        abi::define_metric(kind, name).map(MetricId)
    }

    fn add(&self, metric: MetricId, amount: u64) {
        // Envoy refuses to add nothing.
        if let Ok(amount @ 1..) = i64::try_from(amount) {
            abi::add(metric.0, amount);
        }
    }

    fn record(&self, metric: MetricId, value: u64) {
        abi::record(metric.0, value);
    }

    fn log(&self, level: Level, message: &str) {
        let level = match level {
            Level::Debug => LogLevel::Debug,
            Level::Info => LogLevel::Info,
            Level::Warn => LogLevel::Warn,
        };
        // A line that the log does not take is lost; there is nobody to tell.
        let _ = hostcalls::log(level, message);
    }

    #[cfg(feature = "phase-times")]
    fn begins(&self, phase: crate::host::Phase) {
        super::phase_times::begins(phase);
    }
}

impl RequestHost for Envoy {
    fn request_headers(&self) -> Headers {
        Headers::new(abi::headers(HeaderMap::Request).unwrap_or_default())
    }

    fn set_request_header(&self, name: &str, value: &str) {
        abi::replace_header(HeaderMap::Request, name, value);
    }

    fn remove_request_header(&self, name: &str) {
        abi::remove_header(HeaderMap::Request, name);
    }

    fn request_body(&self, start: usize, len: usize) -> Option<Vec<u8>> {
        abi::buffer(Buffer::Request, start, len)
    }

    fn set_request_body(&self, bytes: &[u8]) -> bool {
        abi::replace_buffer(Buffer::Request, bytes)
    }

    fn response_body(&self, start: usize, len: usize) -> Option<Vec<u8>> {
        abi::buffer(Buffer::Response, start, len)
    }

    fn cluster_name(&self) -> Option<Vec<u8>> {
        abi::property("xds\0cluster_name")
    }

    fn upstream_address(&self) -> Option<Vec<u8>> {
        abi::property("upstream\0address")
    }

    fn response_header(&self, name: &str) -> Option<Vec<u8>> {
        abi::header(HeaderMap::Response, name)
    }

    fn set_response_header(&self, name: &str, value: &str) {
        abi::replace_header(HeaderMap::Response, name, value);
    }
}

impl CallHost for Envoy {
    fn get(&self, call: &Call<'_>) -> Option<CallId> {
        dispatch(call, "GET", None)
    }

    fn post(&self, call: &Call<'_>, body: &[u8]) -> Option<CallId> {
        dispatch(call, "POST", Some(body))
    }
}

fn dispatch(call: &Call<'_>, method: &str, body: Option<&[u8]>) -> Option<CallId> {
    let mut headers = vec![(":method", method), (":path", call.path), (":authority", call.authority)];
    headers.extend(call.accept.map(|media_type| ("accept", media_type)));
    let timeout = Duration::from_millis(call.timeout_ms);
    hostcalls::dispatch_http_call(call.cluster, headers, body, vec![], timeout).ok().map(CallId)
}

/// The answer to a call, while its callback runs: with so many headers, and a body of so many bytes.
pub(super) fn call_answer(headers: usize, body_len: usize) -> CallAnswer {
    // A call that failed has no headers, and asking for them would be an error.
    if headers == 0 {
        return CallAnswer { status: None, body: Vec::new() };
    }
    let body = abi::buffer(Buffer::CallResponse, 0, body_len).unwrap_or_default();
    #[cfg(feature = "fault-injection")]
    super::fault::on_answer(&body);
    CallAnswer { status: call_status(), body }
}

fn call_status() -> Option<u16> {
    std::str::from_utf8(&abi::header(HeaderMap::CallResponse, ":status")?).ok()?.parse().ok()
}
