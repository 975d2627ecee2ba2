//! A request's callbacks.

use std::cell::RefCell;
use std::rc::Rc;

use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::Action;

use super::abi;
use super::host::Envoy;
use crate::host::{Host, Level};
use crate::request::{Exchange, Filter, Flow, Overdue};

/// What an operator reads, once.
const NOT_SHOWN: &str = "Envoy does not show request bodies to warmroute, so that token IDs in them cannot be used: set \
    allow_on_headers_stop_iteration: true in the plugin's configuration, or \"read_body\": false in warmroute's";

/// One request in this VM.
pub(super) struct RequestContext {
    id: u32,
    filter: Option<Rc<RefCell<Filter>>>,
    exchange: Rc<RefCell<Exchange>>,
}

/// Frees the requests that wait for a body which is not shown.
pub(super) fn free_overdue(filter: &RefCell<Filter>, root: u32) {
    let Ok(mut filter) = filter.try_borrow_mut() else { return };
    let Overdue { requests, conclusive } = filter.waiting.overdue(Envoy.now_us());
    if requests.is_empty() {
        return;
    }
    if conclusive {
        Envoy.log(Level::Warn, NOT_SHOWN);
    }
    let mut freed = Vec::with_capacity(requests.len());
    for (id, exchange) in requests {
        let Some(exchange) = exchange.upgrade() else { continue };
        if abi::speak_for(id)
            && let Ok(mut exchange) = exchange.try_borrow_mut()
        {
            exchange.free(&Envoy, &mut filter);
            freed.push(id);
        }
    }
    // Going on may call back into the plugin: nothing of it is borrowed by then.
    drop(filter);
    for id in freed {
        if abi::speak_for(id) {
            abi::resume_request();
        }
    }
    abi::speak_for(root);
}

// === impl RequestContext ===

impl RequestContext {
    pub(super) fn new(id: u32, filter: Option<Rc<RefCell<Filter>>>) -> Self {
        Self { id, filter, exchange: Rc::default() }
    }

    /// Runs one step with the VM's filter. A VM runs one callback at a time; if one ever ran within another, it would
    /// pass the request on rather than panic.
    fn step(&mut self, step: impl FnOnce(&mut Exchange, &mut Filter) -> Flow) -> Action {
        let Some(Ok(mut filter)) = self.filter.as_ref().map(|filter| filter.try_borrow_mut()) else {
            return Action::Continue;
        };
        let Ok(mut exchange) = self.exchange.try_borrow_mut() else { return Action::Continue };
        let flow = step(&mut exchange, &mut filter);
        #[cfg(feature = "phase-times")]
        super::phase_times::pause();
        match flow {
            Flow::Continue => Action::Continue,
            Flow::Hold => Action::Pause,
        }
    }

    fn note(&mut self, step: impl FnOnce(&mut Exchange, &mut Filter)) -> Action {
        self.step(|exchange, filter| {
            step(exchange, filter);
            Flow::Continue
        })
    }
}

impl Context for RequestContext {}

impl HttpContext for RequestContext {
    fn on_http_request_headers(&mut self, _count: usize, end_of_stream: bool) -> Action {
        #[cfg(feature = "fault-injection")]
        super::fault::on_request();
        let (id, weak) = (self.id, Rc::downgrade(&self.exchange));
        self.step(|exchange, filter| {
            let flow = exchange.request_headers(&Envoy, filter, end_of_stream);
            if flow == Flow::Hold {
                filter.waiting.hold(id, weak, Envoy.now_us());
            }
            flow
        })
    }

    fn on_http_request_body(&mut self, body_size: usize, end_of_stream: bool) -> Action {
        self.step(|exchange, filter| exchange.request_body(&Envoy, filter, body_size, end_of_stream))
    }

    fn on_http_request_trailers(&mut self, _count: usize) -> Action {
        self.step(|exchange, filter| exchange.request_trailers(&Envoy, filter))
    }

    fn on_http_response_headers(&mut self, _count: usize, _end_of_stream: bool) -> Action {
        self.note(|exchange, filter| exchange.response_headers(&Envoy, filter))
    }

    fn on_http_response_body(&mut self, body_size: usize, _end_of_stream: bool) -> Action {
        self.note(|exchange, filter| exchange.response_body(&Envoy, filter, body_size))
    }

    fn on_log(&mut self) {
        let id = self.id;
        self.note(|exchange, filter| {
            exchange.done(&Envoy, filter);
            filter.waiting.done(id);
        });
        #[cfg(feature = "phase-times")]
        super::phase_times::tell();
    }
}

impl Drop for RequestContext {
    /// A stream that ends without a log callback must not stay in the books.
    fn drop(&mut self) {
        self.on_log();
    }
}
