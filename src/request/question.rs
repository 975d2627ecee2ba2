//! What the collector is asked about a prompt that is text, and what its answer is worth.
//!
//! A request that waits for an answer is in [`Questions`], by its call, until the answer comes, its time is over, or it ends.
//! Nobody waits for the answer to a call whose request has ended; the call ends at the latest when its time is over.

use std::collections::BTreeMap;
use std::fmt::Write;

use warmroute_routing::prompt_blocks::{MEDIA_TYPE, PromptBlocks};

use super::handover::{self, Place};
use crate::config::PromptsConfig;
use crate::decision::{Inquiry, Reason};
use crate::host::{Call, CallAnswer, CallId};

/// The host ends a call in time. Should it ever not, a request is freed so much later, in microseconds.
const MARGIN_US: u64 = 50_000;

/// Where a pool's text prompts are tokenized.
#[derive(Debug)]
pub(super) struct Tokenizer {
    config: PromptsConfig,
    /// The path of a question, up to the request's own.
    path: String,
}

/// A request that waits for the blocks of its prompt.
#[derive(Debug)]
pub(super) struct Asking {
    pub(super) call: CallId,
    pub(super) inquiry: Inquiry,
    pub(super) pool: usize,
    /// Tokens in a block, as the index has them.
    pub(super) block_size: u32,
    /// Bytes of the body.
    pub(super) bytes: u64,
    /// Where the engine is handed the tokens, if it is.
    pub(super) handover: Option<Place>,
    /// Since when it waits, in microseconds since 1970.
    pub(super) since_us: u64,
    /// The time that was spent on the decision so far, in microseconds.
    pub(super) spent_us: u64,
}

/// The requests that wait for an answer, by its call. `T` is what it takes to let one go on.
#[derive(Debug)]
pub struct Questions<T>(BTreeMap<u32, (u64, T)>);

// === impl Tokenizer ===

impl Tokenizer {
    pub(super) fn new(pool: &str, config: &PromptsConfig) -> Self {
        // A pool's name needs no escapes.
        Self { config: config.clone(), path: format!("/v1/prompt-blocks?pool={pool}&path=") }
    }

    /// How long a body of so many bytes is waited for, in microseconds.
    pub(super) fn budget_us(&self, body_bytes: u64) -> u64 {
        self.config.budget_ms(body_bytes).saturating_mul(1000)
    }

    /// Where a request with this `:path` is handed its tokens, if it is.
    pub(super) fn handover(&self, request_path: &[u8]) -> Option<Place> {
        if self.config.hand_over_tokens { handover::place(request_path) } else { None }
    }

    /// Asks for the blocks of a request with this `:path`, and for its tokens where they are wanted.
    pub(super) fn ask(
        &self,
        request_path: &[u8],
        with_tokens: bool,
        body: &[u8],
        post: impl FnOnce(&Call<'_>, &[u8]) -> Option<CallId>,
    ) -> Option<CallId> {
        let path = request_path.split(|byte| matches!(byte, b'?' | b'#')).next().unwrap_or_default();
        let mut path = self.path.clone() + &escaped(path);
        if with_tokens {
            path.push_str("&tokens=true");
        }
        let call = Call {
            cluster: &self.config.cluster,
            authority: &self.config.authority,
            path: &path,
            accept: Some(MEDIA_TYPE),
            timeout_ms: self.config.budget_ms(body.len() as u64),
        };
        post(&call, body)
    }
}

/// A path as the value of a query's member.
fn escaped(path: &[u8]) -> String {
    let mut text = String::with_capacity(path.len());
    for byte in path {
        if byte.is_ascii_alphanumeric() || b"/-._~".contains(byte) {
            text.push(char::from(*byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

/// The blocks in an answer.
///
/// # Errors
///
/// Why there are none.
pub(super) fn blocks(answer: &CallAnswer, block_size: u32) -> Result<PromptBlocks, Reason> {
    match answer.status {
        Some(200) => {}
        // The proxy's own status for a call whose time is over; the collector has no such.
        Some(504) => return Err(Reason::CollectorLate),
        Some(400..=499) => return Err(Reason::CollectorRefused),
        _ => return Err(Reason::CollectorUnavailable),
    }
    let blocks = PromptBlocks::decode(&answer.body).ok();
    blocks.filter(|blocks| blocks.block_size == block_size).ok_or(Reason::CollectorMalformed)
}

// === impl Questions ===

impl<T> Questions<T> {
    /// A request waits for the answer to a call for so long, from now on.
    pub fn wait(&mut self, call: CallId, request: T, now_us: u64, budget_us: u64) {
        self.0.insert(call.0, (now_us.saturating_add(budget_us).saturating_add(MARGIN_US), request));
    }

    /// Takes out the request that waits for the answer to this call.
    pub fn take(&mut self, call: CallId) -> Option<T> {
        self.0.remove(&call.0).map(|(_, request)| request)
    }

    /// Takes out those that the host should have answered long ago.
    pub fn overdue(&mut self, now_us: u64) -> Vec<T> {
        // Almost always nobody waits.
        if self.0.is_empty() {
            return Vec::new();
        }
        self.0
            .extract_if(.., |_, (until_us, _)| *until_us <= now_us)
            .map(|(_, (_, request))| request)
            .collect()
    }
}

impl<T> Default for Questions<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

#[cfg(test)]
mod tests {
    use warmroute_routing::hash::SequenceHash;
    use warmroute_routing::prompt_blocks::Extent;

    use super::*;

    fn answer(status: Option<u16>, body: &[u8]) -> CallAnswer {
        CallAnswer { status, body: body.to_vec() }
    }

    #[test]
    fn the_path_of_a_request_is_escaped_and_its_query_is_not_sent() {
        assert_eq!(escaped("/v1/completions".as_bytes()), "/v1/completions");
        assert_eq!(escaped("/a b&c=%é+".as_bytes()), "/a%20b%26c%3D%25%C3%A9%2B");
        let config = PromptsConfig {
            cluster: "c".into(),
            authority: "a".into(),
            max_wait_ms: 30,
            max_wait_us_per_kib: 250,
            hand_over_tokens: false,
        };
        let tokenizer = Tokenizer::new("llama", &config);
        let call = tokenizer.ask(b"/x/v1/messages?beta=true", false, &[b' '; 9 << 10], |call, body| {
            assert_eq!(call.path, "/v1/prompt-blocks?pool=llama&path=/x/v1/messages");
            assert_eq!((call.cluster, call.authority, call.accept), ("c", "a", Some(MEDIA_TYPE)));
            assert_eq!((call.timeout_ms, body.len()), (32, 9 << 10));
            Some(CallId(7))
        });
        assert_eq!(call, Some(CallId(7)));
        assert_eq!(tokenizer.budget_us(9 << 10), 32_000);
    }

    #[test]
    fn an_answer_without_usable_blocks_says_why() {
        let body = PromptBlocks {
            extent: Extent::Whole,
            block_size: 4,
            token_count: 5,
            hashes: vec![SequenceHash(1)],
            tokens: None,
        };
        let bytes = body.encode();
        assert_eq!(blocks(&answer(Some(200), &bytes), 4), Ok(body));
        assert_eq!(blocks(&answer(Some(200), &bytes), 16), Err(Reason::CollectorMalformed));
        assert_eq!(blocks(&answer(Some(200), b"{}"), 4), Err(Reason::CollectorMalformed));
        assert_eq!(blocks(&answer(Some(504), &bytes), 4), Err(Reason::CollectorLate));
        for status in [400, 404, 413, 422] {
            assert_eq!(blocks(&answer(Some(status), &bytes), 4), Err(Reason::CollectorRefused));
        }
        for status in [None, Some(500), Some(502), Some(503), Some(204), Some(301)] {
            assert_eq!(blocks(&answer(status, &bytes), 4), Err(Reason::CollectorUnavailable));
        }
    }

    #[test]
    fn whoever_the_host_forgets_is_freed_after_its_time() {
        let mut questions = Questions::default();
        questions.wait(CallId(1), 'a', 0, 30_000);
        questions.wait(CallId(2), 'b', 10_000, 30_000);
        questions.wait(CallId(3), 'c', 0, 30_000);
        assert_eq!(questions.take(CallId(3)), Some('c'));
        assert_eq!(questions.take(CallId(3)), None);
        assert_eq!(questions.overdue(79_999), []);
        assert_eq!(questions.overdue(80_000), ['a']);
        assert_eq!(questions.overdue(80_000), []);
        assert_eq!(questions.take(CallId(1)), None);
        assert_eq!(questions.take(CallId(2)), Some('b'));
    }
}
