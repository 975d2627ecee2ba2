//! A request's callbacks.

use std::cell::RefCell;
use std::rc::{Rc, Weak};

use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::Action;

use super::abi;
use super::host::{Envoy, call_answer};
use crate::host::{CallAnswer, CallHost, CallId, Host, Level};
use crate::request::{Exchange, Filter, Flow, Overdue};

/// What an operator reads, once.
const NOT_SHOWN: &str = "Envoy does not show request bodies to warmroute, so that token IDs in them cannot be used: set \
    allow_on_headers_stop_iteration: true in the plugin's configuration, or \"read_body\": false in warmroute's";

/// One request in this VM.
pub(super) struct RequestContext {
    id: u32,
    /// The root context's number.
    root: u32,
    filter: Option<Rc<RefCell<Filter>>>,
    exchange: Rc<RefCell<Exchange>>,
}

/// A request that is held: the number of its stream, and what is known of it.
type Held = (u32, Weak<RefCell<Exchange>>);

/// Frees the requests that wait for a body which is not shown, or for an answer that the host has forgotten.
pub(super) fn free_overdue(filter: &RefCell<Filter>, root: u32) {
    let Ok(mut borrowed) = filter.try_borrow_mut() else { return };
    let now_us = Envoy.now_us();
    let Overdue { requests: unseen, conclusive } = borrowed.waiting.overdue(now_us);
    let unanswered = borrowed.questions.overdue(now_us);
    drop(borrowed);
    if conclusive {
        Envoy.log(Level::Warn, NOT_SHOWN);
    }
    go_on(filter, root, unseen, |exchange, filter| exchange.free(&Envoy, filter));
    go_on(filter, root, unanswered, |exchange, filter| exchange.answered(&Envoy, filter, None));
}

/// The collector has answered: the request that had asked goes on.
fn answered(filter: &RefCell<Filter>, root: u32, call: CallId, answer: &CallAnswer) {
    let Ok(mut borrowed) = filter.try_borrow_mut() else { return };
    let asker = borrowed.questions.take(call);
    drop(borrowed);
    go_on(filter, root, asker, |exchange, filter| exchange.answered(&Envoy, filter, Some(answer)));
}

/// Takes a step with each of the requests, and lets them go on.
fn go_on(
    filter: &RefCell<Filter>,
    root: u32,
    requests: impl IntoIterator<Item = Held>,
    mut step: impl FnMut(&mut Exchange, &mut Filter),
) {
    for (id, exchange) in requests {
        let Some(exchange) = exchange.upgrade() else { continue };
        if !abi::speak_for(id) {
            continue;
        }
        if let (Ok(mut filter), Ok(mut exchange)) = (filter.try_borrow_mut(), exchange.try_borrow_mut()) {
            step(&mut exchange, &mut filter);
        }
        #[cfg(feature = "phase-times")]
        super::phase_times::pause();
        // Going on may call back into the plugin: nothing of it is borrowed by now.
        abi::resume_request();
        abi::speak_for(root);
    }
}

// === impl RequestContext ===

impl RequestContext {
    pub(super) fn new(id: u32, root: u32, filter: Option<Rc<RefCell<Filter>>>) -> Self {
        Self { id, root, filter, exchange: Rc::default() }
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
            Flow::Hold | Flow::Ask => Action::Pause,
        }
    }

    /// Runs a step after which the collector may have to be asked.
    fn step_or_ask(&mut self, step: impl FnOnce(&mut Exchange, &mut Filter) -> Flow) -> Action {
        let (id, root, weak) = (self.id, self.root, Rc::downgrade(&self.exchange));
        self.step(|exchange, filter| {
            let flow = step(exchange, filter);
            if flow != Flow::Ask {
                return flow;
            }
            let asked = exchange.ask(&Envoy, filter, |call, body| {
                // A call of the request's own would never be answered if the request ended first, and the SDK keeps a
                // note of each call until it is.
                let answer = if abi::speak_for(root) { Envoy.post(call, body) } else { None };
                abi::speak_for(id);
                answer
            });
            let Some((call, budget_us)) = asked else { return Flow::Continue };
            filter.questions.wait(call, (id, weak), Envoy.now_us(), budget_us);
            Flow::Hold
        })
    }

    fn note(&mut self, step: impl FnOnce(&mut Exchange, &mut Filter)) -> Action {
        self.step(|exchange, filter| {
            step(exchange, filter);
            Flow::Continue
        })
    }
}

impl Context for RequestContext {
    /// The SDK hands an answer to the context that was at work when the call was made, if it is still there.
    fn on_http_call_response(
        &mut self,
        token_id: u32,
        num_headers: usize,
        body_size: usize,
        _trailers: usize,
    ) {
        let Some(filter) = &self.filter else { return };
        // To the host, the call is the root context's, and so is its answer.
        if abi::speak_for(self.root) {
            let answer = call_answer(num_headers, body_size);
            answered(filter, self.root, CallId(token_id), &answer);
        }
    }
}

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
        self.step_or_ask(|exchange, filter| exchange.request_body(&Envoy, filter, body_size, end_of_stream))
    }

    fn on_http_request_trailers(&mut self, _count: usize) -> Action {
        self.step_or_ask(|exchange, filter| exchange.request_trailers(&Envoy, filter))
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
