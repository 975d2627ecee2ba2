//! The prompt in a body that arrives in pieces.

use crate::decision::{PromptSource, Reason};
use crate::host::RequestHost;
use crate::prompt::PromptError;
use crate::prompt::json::{BodyScanner, Name, TokenSink};

/// Reads a held body as it grows.
#[derive(Debug)]
pub(super) struct BodyReader {
    scanner: BodyScanner,
    tokens: Tokens,
    /// Bytes that were read.
    read: usize,
    max_held: usize,
}

#[derive(Debug, Default)]
struct Tokens(Vec<u32>);

impl TokenSink for Tokens {
    fn token(&mut self, id: u32) {
        self.0.push(id);
    }
}

// === impl BodyReader ===

impl BodyReader {
    pub(super) fn new(max_held: usize) -> Self {
        Self { scanner: BodyScanner::new(), tokens: Tokens::default(), read: 0, max_held }
    }

    /// Reads what is new of the `held` bytes; `end`: they are all. None: the prompt may still come.
    pub(super) fn read(
        &mut self,
        host: &impl RequestHost,
        held: usize,
        end: bool,
    ) -> Option<Result<PromptSource, Reason>> {
        let news = held.saturating_sub(self.read);
        if news > 0 {
            // A buffer that cannot be read is as a body that ends here.
            let Some(bytes) = host.request_body(self.read, news) else { return Some(self.finish()) };
            self.read = held;
            self.scanner.feed(&bytes, &mut self.tokens);
        }
        if end {
            return Some(self.finish());
        }
        if let Some(obstacle) = self.scanner.obstacle() {
            return Some(Err(Reason::Prompt(obstacle)));
        }
        (held >= self.max_held).then(|| self.cut())
    }

    /// The prompt of a body that is complete.
    pub(super) fn finish(&mut self) -> Result<PromptSource, Reason> {
        let body = std::mem::take(&mut self.scanner).finish().map_err(Reason::Prompt)?;
        if let Some(reason) = body.prompt.reason() {
            return Err(Reason::Prompt(reason));
        }
        self.source(&body.model, &body.cache_salt, &body.lora_path, &body.extra_key)
    }

    /// The prompt so far, of a body that may not be held any longer: its first blocks are as good as any. What would
    /// have come after counts as not there, the model's name included: a wrong namespace can only cost a better choice.
    fn cut(&mut self) -> Result<PromptSource, Reason> {
        let scanner = std::mem::take(&mut self.scanner);
        if scanner.tokens() == 0 {
            return Err(Reason::Prompt(PromptError::NoTokens));
        }
        self.source(scanner.model(), scanner.cache_salt(), scanner.lora_path(), scanner.extra_key())
    }

    fn source(
        &mut self,
        model: &Name,
        salt: &Name,
        lora: &Name,
        extra: &Name,
    ) -> Result<PromptSource, Reason> {
        // SGLang hashes `extra_key` into its blocks, but does not say it in its events.
        let unknown = |name: &Name| matches!(name, Name::Unknown);
        if extra.is_present() || unknown(model) || unknown(salt) || unknown(lora) {
            return Err(Reason::UnknownNamespace);
        }
        let model = lora.known().or(model.known()).map(str::to_owned);
        let tokens = std::mem::take(&mut self.tokens.0);
        Ok(PromptSource::Tokens { tokens, model, salt: salt.known().map(str::to_owned) })
    }
}
