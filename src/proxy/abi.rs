//! The calls into the host that must not panic.
//!
//! The SDK's own wrappers panic at a status that they do not expect: at a header that is not UTF-8, at a property whose
//! value cannot be serialised. A panic kills the VM of the thread, and with it requests that had nothing to do with it.
//! These take any status for "not there" or "not done".

use std::ptr::{null, null_mut};

const OK: u32 = 0;

/// Which map of headers a call is about.
#[derive(Clone, Copy)]
#[repr(u32)]
pub(super) enum HeaderMap {
    Request = 0,
    Response = 2,
    CallResponse = 6,
}

/// Whose body a call is about.
#[derive(Clone, Copy)]
#[repr(u32)]
pub(super) enum Buffer {
    Request = 0,
    Response = 1,
    CallResponse = 4,
}

#[link(wasm_import_module = "env")]
unsafe extern "C" {
    fn proxy_get_current_time_nanoseconds(time: *mut u64) -> u32;
    fn proxy_get_header_map_value(
        map: u32,
        key: *const u8,
        key_len: usize,
        value: *mut *mut u8,
        len: *mut usize,
    ) -> u32;
    fn proxy_get_header_map_pairs(map: u32, value: *mut *mut u8, len: *mut usize) -> u32;
    fn proxy_replace_header_map_value(
        map: u32,
        key: *const u8,
        key_len: usize,
        value: *const u8,
        len: usize,
    ) -> u32;
    fn proxy_remove_header_map_value(map: u32, key: *const u8, key_len: usize) -> u32;
    fn proxy_get_buffer_bytes(
        buffer: u32,
        start: usize,
        max: usize,
        value: *mut *mut u8,
        len: *mut usize,
    ) -> u32;
    fn proxy_set_buffer_bytes(
        buffer: u32,
        start: usize,
        replaced: usize,
        value: *const u8,
        len: usize,
    ) -> u32;
    fn proxy_get_property(path: *const u8, path_len: usize, value: *mut *mut u8, len: *mut usize) -> u32;
    fn proxy_get_shared_data(
        key: *const u8,
        key_len: usize,
        value: *mut *mut u8,
        len: *mut usize,
        cas: *mut u32,
    ) -> u32;
    fn proxy_set_shared_data(key: *const u8, key_len: usize, value: *const u8, len: usize, cas: u32) -> u32;
    fn proxy_set_effective_context(context: u32) -> u32;
    fn proxy_continue_stream(stream: u32) -> u32;
    fn proxy_define_metric(kind: u32, name: *const u8, name_len: usize, id: *mut u32) -> u32;
    fn proxy_increment_metric(id: u32, offset: i64) -> u32;
    fn proxy_record_metric(id: u32, value: u64) -> u32;
}

/// Takes over bytes that the host has put into this VM's memory.
fn taken(status: u32, value: *mut u8, len: usize) -> Option<Vec<u8>> {
    if status != OK {
        return None;
    }
    if value.is_null() || len == 0 {
        return Some(Vec::new());
    }
    // SAFETY: the host has allocated `len` bytes through this module's exported allocator, which is that of `Vec<u8>`,
    // filled them all, and given them away.
    Some(unsafe { Vec::from_raw_parts(value, len, len) })
}

/// The time of day in nanoseconds since 1970; 0 if the host does not tell.
pub(super) fn now_ns() -> u64 {
    let mut time = 0;
    // SAFETY: `time` outlives the call.
    unsafe { proxy_get_current_time_nanoseconds(&raw mut time) };
    time
}

/// A header's first value.
pub(super) fn header(map: HeaderMap, name: &str) -> Option<Vec<u8>> {
    let (mut value, mut len) = (null_mut(), 0);
    // SAFETY: the pointers are valid for the call; what the host gives is taken over once.
    let status = unsafe {
        proxy_get_header_map_value(map as u32, name.as_ptr(), name.len(), &raw mut value, &raw mut len)
    };
    taken(status, value, len)
}

/// All headers of a map, serialised.
pub(super) fn headers(map: HeaderMap) -> Option<Vec<u8>> {
    let (mut value, mut len) = (null_mut(), 0);
    // SAFETY: the pointers are valid for the call; what the host gives is taken over once.
    let status = unsafe { proxy_get_header_map_pairs(map as u32, &raw mut value, &raw mut len) };
    taken(status, value, len)
}

/// Puts one value in place of all values of a header.
pub(super) fn replace_header(map: HeaderMap, name: &str, value: &str) {
    // SAFETY: the host reads both texts during the call only.
    unsafe {
        proxy_replace_header_map_value(map as u32, name.as_ptr(), name.len(), value.as_ptr(), value.len())
    };
}

/// Removes all values of a header.
pub(super) fn remove_header(map: HeaderMap, name: &str) {
    // SAFETY: the host reads the name during the call only.
    unsafe { proxy_remove_header_map_value(map as u32, name.as_ptr(), name.len()) };
}

/// At most `max` bytes of a buffer, from `start` on.
pub(super) fn buffer(buffer: Buffer, start: usize, max: usize) -> Option<Vec<u8>> {
    let (mut value, mut len) = (null_mut(), 0);
    // SAFETY: the pointers are valid for the call; what the host gives is taken over once.
    let status = unsafe { proxy_get_buffer_bytes(buffer as u32, start, max, &raw mut value, &raw mut len) };
    taken(status, value, len)
}

/// Puts bytes in the place of all of a buffer; says whether the host did.
pub(super) fn replace_buffer(buffer: Buffer, bytes: &[u8]) -> bool {
    // The host takes a start of 0 and more bytes than there are for the whole of it.
    const ALL: usize = usize::MAX;
    // SAFETY: the host reads the bytes during the call only.
    unsafe { proxy_set_buffer_bytes(buffer as u32, 0, ALL, bytes.as_ptr(), bytes.len()) == OK }
}

/// A property's serialised value. The path's parts are separated by zero bytes.
pub(super) fn property(path: &str) -> Option<Vec<u8>> {
    let (mut value, mut len) = (null_mut(), 0);
    // SAFETY: the pointers are valid for the call; what the host gives is taken over once.
    let status = unsafe { proxy_get_property(path.as_ptr(), path.len(), &raw mut value, &raw mut len) };
    taken(status, value, len)
}

/// A shared value and the number of its write.
pub(super) fn shared(key: &str) -> Option<(Vec<u8>, u32)> {
    let (mut value, mut len, mut cas) = (null_mut(), 0, 0);
    // SAFETY: the pointers are valid for the call; what the host gives is taken over once.
    let status =
        unsafe { proxy_get_shared_data(key.as_ptr(), key.len(), &raw mut value, &raw mut len, &raw mut cas) };
    taken(status, value, len).map(|bytes| (bytes, cas))
}

/// Writes a shared value if `cas` is the number of its last write, or if there is none; says whether it did.
pub(super) fn set_shared(key: &str, value: &[u8], cas: u32) -> bool {
    let pointer = if value.is_empty() { null() } else { value.as_ptr() };
    // SAFETY: the host reads both during the call only.
    unsafe { proxy_set_shared_data(key.as_ptr(), key.len(), pointer, value.len(), cas) == OK }
}

/// Makes the calls that follow speak for another context; says whether the host knows it.
pub(super) fn speak_for(context: u32) -> bool {
    // SAFETY: numbers only.
    unsafe { proxy_set_effective_context(context) == OK }
}

/// Lets the request of the context that is spoken for go on.
pub(super) fn resume_request() {
    const REQUEST: u32 = 0;
    // SAFETY: numbers only.
    unsafe { proxy_continue_stream(REQUEST) };
}

/// Defines a metric of a kind: 0 counter, 1 gauge, 2 histogram.
pub(super) fn define_metric(kind: u32, name: &str) -> Option<u32> {
    let mut id = 0;
    // SAFETY: the pointers are valid for the call.
    let status = unsafe { proxy_define_metric(kind, name.as_ptr(), name.len(), &raw mut id) };
    (status == OK).then_some(id)
}

/// Adds to a counter.
pub(super) fn add(metric: u32, amount: i64) {
    // SAFETY: numbers only.
    unsafe { proxy_increment_metric(metric, amount) };
}

/// Sets a gauge, or adds to a histogram.
pub(super) fn record(metric: u32, value: u64) {
    // SAFETY: numbers only.
    unsafe { proxy_record_metric(metric, value) };
}
