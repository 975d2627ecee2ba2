//! The answer as server-sent events.
//!
//! ```text
//! data: {... "choices":[{"index":0,"text":"a",...}]}      one for each token
//! data: {... "choices":[],"usage":{...}}                  with stream_options.include_usage
//! data: [DONE]
//! ```

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_core::Stream;
use serde::Serialize;

use super::super::usage::Usage;
use super::response::{Answer, Choice};
use crate::engine::{Ticket, Update};

/// Dropped with the connection, and the ticket with it.
struct TokenStream {
    ticket: Ticket,
    answer: Answer,
    /// Prompts that are not finished.
    open: usize,
    /// What to report at the end.
    usage: Option<Usage>,
    with_ids: bool,
    /// The last events, once all prompts are finished.
    tail: Option<VecDeque<Bytes>>,
}

/// A response that streams the output of `choices` prompts.
pub(super) fn response(
    ticket: Ticket,
    answer: Answer,
    choices: usize,
    usage: Option<Usage>,
    with_ids: bool,
) -> Response {
    let stream = TokenStream { ticket, answer, open: choices, usage, with_ids, tail: None };
    let headers =
        [(header::CONTENT_TYPE, "text/event-stream; charset=utf-8"), (header::CACHE_CONTROL, "no-cache")];
    (headers, Body::from_stream(stream)).into_response()
}

fn event(body: &impl Serialize) -> Bytes {
    let mut event = b"data: ".to_vec();
    if let Err(error) = serde_json::to_writer(&mut event, body) {
        tracing::error!(%error, "cannot write an event");
    }
    event.extend_from_slice(b"\n\n");
    event.into()
}

// === impl TokenStream ===

impl TokenStream {
    fn token_event(&mut self, update: Update) -> Bytes {
        if let Some(usage) = &mut self.usage {
            usage.add(&update);
        }
        self.open -= usize::from(update.finished);
        if self.open == 0 {
            self.tail = Some(self.tail_events());
        }
        let choice = Choice::new(update.choice, update.tokens, update.finished, self.with_ids);
        event(&self.answer.body(vec![choice], None))
    }

    fn tail_events(&self) -> VecDeque<Bytes> {
        let usage = self.usage.map(|usage| event(&self.answer.body(Vec::new(), Some(usage))));
        usage.into_iter().chain([Bytes::from_static(b"data: [DONE]\n\n")]).collect()
    }
}

impl Stream for TokenStream {
    type Item = Result<Bytes, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(tail) = &mut self.tail {
            return Poll::Ready(tail.pop_front().map(Ok));
        }
        // When the engine stops, the stream ends without its [DONE].
        let update = ready!(self.ticket.poll_next(context));
        Poll::Ready(update.map(|update| Ok(self.token_event(update))))
    }
}
