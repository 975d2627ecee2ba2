//! The prompt in a body that arrives in pieces.
//!
//! Token IDs are hashed as they come, so that a decision can fall as soon as what is there is enough. What hashes them
//! is the namespace, and the names that make it may follow the prompt. So as long as the pool has cached blocks of any
//! adapter or salt, the tokens are kept until the names are known, or until nothing more is waited for. While it has
//! none, a prompt with such a name matches nothing, and one without is hashed at once.
//!
//! Text is only waited for: it is somebody else's to tokenize, once it is all there.

use std::rc::Rc;

use warmroute_routing::hash::{Namespace, PromptHasher, SequenceHash};
use warmroute_routing::pool::Pool;

use crate::decision::{Asked, Reason};
use crate::host::{Phase, RequestHost};
use crate::index::PoolView;
use crate::prompt::PromptError;
use crate::prompt::json::{BodyScanner, Name, PromptKind};

/// Between two questions to the index there are at least this many new blocks, and an eighth of those that were there: a
/// client that sends byte by byte must not make a lookup of each.
const LEAST_NEW_BLOCKS: usize = 8;

/// Reads a held body as it grows.
#[derive(Debug)]
pub(super) struct BodyReader {
    scanner: BodyScanner,
    /// The token IDs of the piece that was read last.
    fresh: Vec<u32>,
    tokens: Tokens,
    view: Rc<PoolView>,
    /// Bytes of the body that were read.
    read: usize,
    max_held: usize,
    /// Something of the body was passed over: what comes after it says nothing.
    has_gap: bool,
    /// How long the body says that it is.
    content_length: Option<u64>,
    /// Whether there is somebody to tokenize text.
    takes_text: bool,
    /// Blocks that there must be for the next question.
    next_question: usize,
}

/// What to do after a piece of the body.
#[derive(Debug)]
pub(super) enum Step<'a> {
    /// Wait for more.
    Hold,
    /// See whether what is there is enough.
    Ask(Asked<'a>),
    /// The prompt is text, and all there: have it tokenized.
    Tokenize,
    /// There is nothing to wait for.
    GiveUp(Reason),
}

#[derive(Debug)]
enum Tokens {
    /// Until their namespace is known.
    Kept(Vec<u32>),
    Hashed(PromptHasher),
}

/// What the names say.
enum Names {
    /// They may still come.
    Open,
    Known(Namespace),
    /// Nothing is cached under them.
    Unmatched,
}

// === impl Tokens ===

impl Tokens {
    fn extend(&mut self, fresh: &[u32]) {
        match self {
            Self::Kept(tokens) => tokens.extend_from_slice(fresh),
            Self::Hashed(hasher) => hasher.extend(fresh),
        }
    }
}

// === impl BodyReader ===

impl BodyReader {
    pub(super) fn new(
        view: Rc<PoolView>,
        max_held: usize,
        content_length: Option<u64>,
        takes_text: bool,
    ) -> Self {
        let tokens = if view.pool.namespaced {
            Tokens::Kept(Vec::new())
        } else {
            Tokens::Hashed(PromptHasher::new(view.pool.block_size, Namespace::default()))
        };
        let (scanner, fresh) = (BodyScanner::new(), Vec::new());
        Self {
            scanner,
            fresh,
            tokens,
            view,
            read: 0,
            max_held,
            has_gap: false,
            content_length,
            takes_text,
            next_question: 1,
        }
    }

    /// Reads what is new of the `held` bytes; `end`: they are all.
    pub(super) fn read(&mut self, host: &impl RequestHost, held: usize, end: bool) -> Step<'_> {
        let news = held.saturating_sub(self.read);
        if news > 0 {
            host.begins(Phase::Body);
            // A buffer that cannot be read is as a body that ends here.
            let Some(bytes) = host.request_body(self.read, news) else { return self.finish() };
            self.read = held;
            self.take_in(host, &bytes);
        }
        if end {
            return self.finish();
        }
        if self.takes_text && self.scanner.is_text() {
            return if self.is_too_long() { Step::GiveUp(Reason::BodyTooLarge) } else { Step::Hold };
        }
        if let Some(obstacle) = self.scanner.obstacle() {
            return Step::GiveUp(Reason::Prompt(obstacle));
        }
        self.question(held >= self.max_held)
    }

    fn take_in(&mut self, host: &impl RequestHost, piece: &[u8]) {
        host.begins(Phase::Scan);
        self.scanner.feed(piece, &mut self.fresh);
        host.begins(Phase::Hash);
        self.tokens.extend(&self.fresh);
        self.fresh.clear();
    }

    /// Whether this body is more than may be held, so that its end must not be waited for.
    fn is_too_long(&self) -> bool {
        self.read.max(self.content_length.map_or(0, |length| usize::try_from(length).unwrap_or(usize::MAX)))
            > self.max_held
    }

    /// The body is complete.
    pub(super) fn finish(&mut self) -> Step<'_> {
        match self.scanner.finish().map(PromptKind::reason) {
            Ok(Some(PromptError::TextPrompt)) if self.takes_text => self.tokenize(),
            Err(error) | Ok(Some(error)) => Step::GiveUp(Reason::Prompt(error)),
            Ok(None) => self.question(true),
        }
    }

    /// The prompt is text, and all there.
    fn tokenize(&self) -> Step<'_> {
        match self.names(true) {
            _ if self.is_too_long() => Step::GiveUp(Reason::BodyTooLarge),
            Err(reason) => Step::GiveUp(reason),
            Ok(Names::Unmatched) => Step::GiveUp(Reason::Cold),
            Ok(Names::Open | Names::Known(_)) => Step::Tokenize,
        }
    }

    /// `last`: nothing more is waited for. At the limit of held bytes the prompt's first blocks are as good as any, and
    /// what would have come later counts as not there, the names included: a wrong namespace can only cost a better
    /// choice.
    fn question(&mut self, last: bool) -> Step<'_> {
        if self.scanner.tokens() == 0 {
            return if last { Step::GiveUp(Reason::Prompt(PromptError::NoTokens)) } else { Step::Hold };
        }
        match self.names(last) {
            Err(reason) => return Step::GiveUp(reason),
            Ok(Names::Unmatched) => return Step::GiveUp(Reason::Cold),
            Ok(Names::Open) => return Step::Hold,
            Ok(Names::Known(namespace)) => self.hash(namespace),
        }
        let Tokens::Hashed(hasher) = &self.tokens else { return Step::Hold };
        let blocks = hasher.hashes().len();
        if blocks < self.next_question && !last {
            return Step::Hold;
        }
        self.next_question = blocks + LEAST_NEW_BLOCKS.max(blocks / 8);
        let whole = !self.prompt_is_open();
        Step::Ask(Asked {
            hashes: hasher.hashes(),
            block_size: self.view.pool.block_size,
            tokens: if self.prompt_is_open() { self.expected_tokens() } else { self.tokens_read() },
            whole,
            last: last || whole,
        })
    }

    fn names(&self, last: bool) -> Result<Names, Reason> {
        let (model, salt) = (self.scanner.model(), self.scanner.cache_salt());
        let (lora, extra) = (self.scanner.lora_path(), self.scanner.extra_key());
        // SGLang hashes `extra_key` into its blocks, but does not say it in its events.
        if extra.is_present() || [model, salt, lora].iter().any(|name| matches!(name, Name::Unknown)) {
            return Err(Reason::UnknownNamespace);
        }
        let pool: &Pool = &self.view.pool;
        let namespace = pool.namespace(lora.known().or(model.known()), salt.known());
        if !pool.namespaced {
            return Ok(if namespace == Namespace::default() {
                Names::Known(namespace)
            } else {
                Names::Unmatched
            });
        }
        let complete = salt.is_present() && (model.is_present() || !pool.has_adapters());
        Ok(if complete || last { Names::Known(namespace) } else { Names::Open })
    }

    /// Hashes the tokens that were kept.
    fn hash(&mut self, namespace: Namespace) {
        if let Tokens::Kept(tokens) = &mut self.tokens {
            let mut hasher = PromptHasher::new(self.view.pool.block_size, namespace);
            hasher.extend(tokens);
            self.tokens = Tokens::Hashed(hasher);
        }
    }

    /// Reads on in a body that is no longer held: `len` bytes have come. Whether the prompt's end is there.
    ///
    /// As much is read in all as may be held, and no more: what reading costs stays bounded.
    pub(super) fn follow(&mut self, host: &impl RequestHost, len: usize) -> bool {
        if len > 0 && !self.has_gap && self.prompt_is_open() {
            host.begins(Phase::Body);
            let bytes = if self.read < self.max_held { host.request_body(0, len) } else { None };
            match bytes {
                Some(bytes) => self.take_in(host, &bytes),
                None => self.has_gap = true,
            }
        }
        self.read = self.read.saturating_add(len);
        !self.prompt_is_open()
    }

    /// The hashes of the whole prompt, if its end was read.
    pub(super) fn whole_prompt(&self) -> Option<&[SequenceHash]> {
        match &self.tokens {
            Tokens::Hashed(hasher) if !self.prompt_is_open() => Some(hasher.hashes()),
            _ => None,
        }
    }

    /// How many tokens the prompt has if the rest of the body is like what was read.
    pub(super) fn expected_tokens(&self) -> u64 {
        let read = (self.read as u64).max(1);
        let expected = self.content_length.map(|length| self.tokens_read().saturating_mul(length) / read);
        expected.unwrap_or(0).max(self.tokens_read())
    }

    /// Tokens that were read.
    pub(super) fn tokens_read(&self) -> u64 {
        self.scanner.tokens() as u64
    }

    /// Tokens in a block, as the prompt is to be cut.
    pub(super) fn block_size(&self) -> u32 {
        self.view.pool.block_size
    }

    /// Bytes that were read.
    pub(super) fn bytes_read(&self) -> u64 {
        self.read as u64
    }

    /// Whether more of the prompt may come.
    pub(super) fn prompt_is_open(&self) -> bool {
        !self.scanner.prompt_done()
    }
}
