//! A request's callbacks.

use std::cell::RefCell;
use std::rc::Rc;

use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::Action;

use super::host::Envoy;
use crate::request::{Exchange, Filter, Flow};

/// One request in this VM.
pub(super) struct RequestContext {
    filter: Option<Rc<RefCell<Filter>>>,
    exchange: Exchange,
}

// === impl RequestContext ===

impl RequestContext {
    pub(super) fn new(filter: Option<Rc<RefCell<Filter>>>) -> Self {
        Self { filter, exchange: Exchange::default() }
    }

    /// Runs one step with the VM's filter. A VM runs one callback at a time; if one ever ran within another, it would
    /// pass the request on rather than panic.
    fn step(&mut self, step: impl FnOnce(&mut Exchange, &mut Filter) -> Flow) -> Action {
        let Some(Ok(mut filter)) = self.filter.as_ref().map(|filter| filter.try_borrow_mut()) else {
            return Action::Continue;
        };
        match step(&mut self.exchange, &mut filter) {
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
        self.step(|exchange, filter| exchange.request_headers(&Envoy, filter, end_of_stream))
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

    fn on_http_response_body(&mut self, _body_size: usize, _end_of_stream: bool) -> Action {
        self.note(Exchange::response_body)
    }

    fn on_log(&mut self) {
        self.note(Exchange::done);
    }
}

impl Drop for RequestContext {
    /// A stream that ends without a log callback must not stay in the books.
    fn drop(&mut self) {
        self.note(Exchange::done);
    }
}
