//! A proxy-wasm filter that does nothing, in every callback that warmroute's has: headers, body, trailers, response, log. It
//! makes no call into the host, so what it adds to a request is what the host spends on calling it.

#![no_std]

use core::ptr::null_mut;

const CONTINUE: u32 = 0;
const DONE: u32 = 1;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// The version of the ABI.
#[unsafe(no_mangle)]
extern "C" fn proxy_abi_version_0_2_1() {}

/// The host wants it to be there; it is asked for memory only by those who read something.
#[unsafe(no_mangle)]
extern "C" fn proxy_on_memory_allocate(_size: usize) -> *mut u8 {
    null_mut()
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_vm_start(_context: u32, _size: usize) -> u32 {
    DONE
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_configure(_context: u32, _size: usize) -> u32 {
    DONE
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_context_create(_context: u32, _root: u32) {}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_request_headers(_context: u32, _count: usize, _end: u32) -> u32 {
    CONTINUE
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_request_body(_context: u32, _size: usize, _end: u32) -> u32 {
    CONTINUE
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_request_trailers(_context: u32, _count: usize) -> u32 {
    CONTINUE
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_response_headers(_context: u32, _count: usize, _end: u32) -> u32 {
    CONTINUE
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_response_body(_context: u32, _size: usize, _end: u32) -> u32 {
    CONTINUE
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_response_trailers(_context: u32, _count: usize) -> u32 {
    CONTINUE
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_done(_context: u32) -> u32 {
    DONE
}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_log(_context: u32) {}

#[unsafe(no_mangle)]
extern "C" fn proxy_on_delete(_context: u32) {}
