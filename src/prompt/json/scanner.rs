//! The top-level object of a body: which member is whose.

use super::skip::Skipper;
use super::summary::{Name, Progress, PromptKind};
use super::text::Text;
use super::tokens::{ListStep, TokenList, TokenSink};
use super::{Step, skip_blanks};
use crate::prompt::PromptError;

/// Enough for every key that is looked for. A longer one is another key.
const KEY_BYTES: usize = 16;

/// Enough for every name: vLLM's salts end at 128 characters, models are named by paths at worst.
const NAME_BYTES: usize = 1024;

/// Reads a JSON body that arrives in pieces, for its token IDs and its namespace.
///
/// ```
/// use warmroute::prompt::json::{BodyScanner, Progress, PromptKind, TokenSink};
///
/// struct Tokens(Vec<u32>);
/// impl TokenSink for Tokens {
///     fn token(&mut self, id: u32) {
///         self.0.push(id);
///     }
/// }
///
/// let mut tokens = Tokens(Vec::new());
/// let mut scanner = BodyScanner::new();
/// assert_eq!(scanner.feed(br#"{"prompt":[5,6"#, &mut tokens), Progress::Reading);
/// assert_eq!(tokens.0, [5]); // 6 may be the beginning of 67
/// assert_eq!(scanner.feed(br#"7],"model":"m"}"#, &mut tokens), Progress::Complete);
/// assert_eq!(tokens.0, [5, 67]);
/// assert_eq!(scanner.finish(), Ok(PromptKind::Tokens { count: 2 }));
/// assert_eq!(scanner.model().known(), Some("m"));
/// ```
#[derive(Debug, Default)]
pub struct BodyScanner {
    state: State,
    failure: Option<PromptError>,
    prompt: Prompt,
    has_embeds: bool,
    /// A member has come that an engine makes a prompt's text from.
    has_text: bool,
    names: Names,
    // The readers of values. One at a time is at work.
    text: Text,
    list: TokenList,
    skipper: Skipper,
}

/// What may come next.
#[derive(Debug, Clone, Copy, Default)]
enum State {
    /// The object's opening brace.
    #[default]
    Start,
    /// A key, or the end of an empty object.
    FirstKey,
    /// A key, after a comma.
    Key,
    /// The rest of a key.
    InKey,
    /// The colon after the key.
    Colon(Member),
    /// The member's value.
    Value(Member),
    /// The rest of the list of token IDs.
    InList,
    /// The rest of a name's string.
    InName(NameKey),
    /// The rest of a value that is passed over.
    Skipping,
    /// A comma, or the object's closing brace.
    AfterMember,
    /// Blanks alone.
    End,
}

/// Whose value follows a key.
#[derive(Debug, Clone, Copy)]
enum Member {
    Prompt,
    Embeds,
    Text,
    Name(NameKey),
    Other,
}

#[derive(Debug, Clone, Copy)]
enum NameKey {
    Model,
    CacheSalt,
    LoraPath,
    ExtraKey,
}

/// What is known of the prompt.
#[derive(Debug, Default)]
struct Prompt {
    /// The keys that have come, by their place in [`PROMPT_KEYS`].
    keys: [bool; PROMPT_KEYS.len()],
    /// What the first of them that is not null has.
    shape: Option<Shape>,
    /// No more token IDs will come from it.
    is_done: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    Tokens,
    Text,
    Other,
}

const PROMPT_KEYS: [&[u8]; 3] = [b"prompt", b"token_ids", b"input_ids"];

#[derive(Debug, Default)]
struct Names {
    model: Name,
    cache_salt: Name,
    lora_path: Name,
    extra_key: Name,
}

// === impl BodyScanner ===

impl BodyScanner {
    /// A scanner before the first byte.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads the next piece of the body, of any size. The token IDs that it completes go to `sink`.
    pub fn feed(&mut self, chunk: &[u8], sink: &mut impl TokenSink) -> Progress {
        if self.failure.is_none() {
            self.failure = self.read(chunk, sink).err();
        }
        match (self.failure, self.state) {
            (Some(failure), _) => Progress::Failed(failure),
            (None, State::End) => Progress::Complete,
            (None, _) => Progress::Reading,
        }
    }

    /// What the prompt is, if the body ends here. The names have come as far as they will.
    ///
    /// # Errors
    ///
    /// What [`Progress::Failed`] told, or that the body has ended within the object or before it. The token IDs that
    /// went to the sink mean nothing then.
    pub fn finish(&self) -> Result<PromptKind, PromptError> {
        match (self.failure, self.state) {
            (Some(failure), _) => Err(failure),
            (None, State::Start) => Err(PromptError::NotJson),
            (None, State::End) if self.is_text() => Ok(PromptKind::Text),
            (None, State::End) => Ok(self.prompt_kind().unwrap_or(PromptKind::Absent)),
            (None, _) => Err(PromptError::MalformedBody),
        }
    }

    /// How many token IDs have gone to the sink.
    pub fn tokens(&self) -> usize {
        self.list.count()
    }

    /// Whether the prompt has come to its end, so that no more token IDs will come. Names may still follow.
    pub fn prompt_done(&self) -> bool {
        self.prompt.is_done
    }

    /// The prompt's kind, as soon as it is known; of token IDs, those that have come so far.
    pub fn prompt_kind(&self) -> Option<PromptKind> {
        if self.has_embeds {
            return Some(PromptKind::Embeds);
        }
        Some(match self.prompt.shape? {
            Shape::Tokens => PromptKind::Tokens { count: self.list.count() },
            Shape::Text => PromptKind::Text,
            Shape::Other => PromptKind::Absent,
        })
    }

    /// Whether the prompt is text, as far as is known: a text in the place of token IDs, or messages and the like, as long as
    /// no token IDs have come beside them.
    pub fn is_text(&self) -> bool {
        match (self.failure, self.prompt_kind()) {
            (Some(_), _) => false,
            (None, Some(kind)) => kind == PromptKind::Text,
            (None, None) => self.has_text,
        }
    }

    /// Why the body will not end in token IDs, as soon as that is certain. It is then no use to hold the request.
    pub fn obstacle(&self) -> Option<PromptError> {
        self.failure.or_else(|| self.prompt_kind().and_then(PromptKind::reason))
    }

    /// `model`, as known so far.
    pub fn model(&self) -> &Name {
        &self.names.model
    }

    /// `cache_salt`, as known so far.
    pub fn cache_salt(&self) -> &Name {
        &self.names.cache_salt
    }

    /// `lora_path`, as known so far.
    pub fn lora_path(&self) -> &Name {
        &self.names.lora_path
    }

    /// `extra_key`, as known so far.
    pub fn extra_key(&self) -> &Name {
        &self.names.extra_key
    }

    fn read(&mut self, mut input: &[u8], sink: &mut impl TokenSink) -> Result<(), PromptError> {
        while !input.is_empty() {
            input = match self.state {
                State::InKey => self.in_key(input)?,
                State::InList => self.in_list(input, sink)?,
                State::InName(key) => self.in_name(key, input)?,
                State::Skipping => self.skip(input)?,
                _ => self.between(skip_blanks(input))?,
            };
        }
        Ok(())
    }

    /// Takes the next byte between keys and values.
    fn between<'a>(&mut self, input: &'a [u8]) -> Result<&'a [u8], PromptError> {
        let Some((&byte, rest)) = input.split_first() else { return Ok(input) };
        self.state = match (self.state, byte) {
            (State::Start, b'{') => State::FirstKey,
            (State::Start, _) => return Err(PromptError::NotJson),
            (State::FirstKey | State::Key, b'"') => {
                self.text.begin(KEY_BYTES);
                State::InKey
            }
            (State::Colon(member), b':') => State::Value(member),
            (State::Value(member), _) => return self.begin_value(member, input),
            (State::AfterMember, b',') => State::Key,
            (State::FirstKey | State::AfterMember, b'}') => State::End,
            _ => return Err(PromptError::MalformedBody),
        };
        Ok(rest)
    }

    /// Begins a member's value, whose first byte is the input's.
    fn begin_value<'a>(&mut self, member: Member, input: &'a [u8]) -> Result<&'a [u8], PromptError> {
        let Some((&byte, rest)) = input.split_first() else { return Ok(input) };
        let is_null = byte == b'n'; // or a typing error, which the skipper will find
        match member {
            Member::Prompt if !is_null => {
                if self.prompt.shape.is_some() {
                    return Err(PromptError::DuplicatePrompt);
                }
                if byte == b'[' {
                    self.prompt.shape = Some(Shape::Tokens);
                    self.state = State::InList;
                    return Ok(rest);
                }
                self.prompt.end(if byte == b'"' { Shape::Text } else { Shape::Other });
            }
            Member::Embeds => self.has_embeds |= !is_null,
            Member::Text => self.has_text |= !is_null,
            Member::Name(key) if byte == b'"' => {
                self.text.begin(NAME_BYTES);
                self.state = State::InName(key);
                return Ok(rest);
            }
            Member::Name(key) => *self.names.get(key) = if is_null { Name::Absent } else { Name::Unknown },
            Member::Prompt | Member::Other => {}
        }
        self.skipper.begin();
        self.state = State::Skipping;
        Ok(input)
    }

    fn in_key<'a>(&mut self, input: &'a [u8]) -> Result<&'a [u8], PromptError> {
        let Step::Done(rest) = self.text.feed(input)? else { return Ok(&[]) };
        let key = self.text.bytes().unwrap_or_default();
        if let Some(place) = PROMPT_KEYS.iter().position(|known| *known == key) {
            self.prompt.take_key(place)?;
        }
        self.state = State::Colon(Member::of(key));
        Ok(rest)
    }

    fn in_name<'a>(&mut self, key: NameKey, input: &'a [u8]) -> Result<&'a [u8], PromptError> {
        let Step::Done(rest) = self.text.feed(input)? else { return Ok(&[]) };
        *self.names.get(key) = match self.text.bytes() {
            None => Name::Unknown,
            Some(bytes) => {
                let name = std::str::from_utf8(bytes).map_err(|_| PromptError::MalformedBody)?;
                Name::Known(name.to_owned())
            }
        };
        self.state = State::AfterMember;
        Ok(rest)
    }

    fn in_list<'a>(&mut self, input: &'a [u8], sink: &mut impl TokenSink) -> Result<&'a [u8], PromptError> {
        let rest = match self.list.feed(input, sink)? {
            ListStep::More => return Ok(&[]),
            ListStep::Done(rest) => {
                self.prompt.is_done = true;
                self.state = State::AfterMember;
                return Ok(rest);
            }
            ListStep::InnerDone(rest) => {
                self.prompt.is_done = true;
                self.skipper.begin_after_item();
                rest
            }
            ListStep::NoTokens(rest) => {
                let is_inner = self.list.is_inner();
                let is_text = !is_inner && rest.first() == Some(&b'"');
                self.prompt.end(if is_text { Shape::Text } else { Shape::Other });
                self.skipper.begin_in_lists(if is_inner { 2 } else { 1 });
                rest
            }
        };
        self.state = State::Skipping;
        Ok(rest)
    }

    fn skip<'a>(&mut self, input: &'a [u8]) -> Result<&'a [u8], PromptError> {
        let Step::Done(rest) = self.skipper.feed(input)? else { return Ok(&[]) };
        self.state = State::AfterMember;
        Ok(rest)
    }
}

// === impl Member ===

impl Member {
    fn of(key: &[u8]) -> Self {
        match key {
            b"prompt" | b"token_ids" | b"input_ids" => Self::Prompt,
            b"prompt_embeds" => Self::Embeds,
            // Of chats (OpenAI's and Anthropic's), of OpenAI's responses, of SGLang's generate.
            b"messages" | b"input" | b"text" => Self::Text,
            b"model" => Self::Name(NameKey::Model),
            b"cache_salt" => Self::Name(NameKey::CacheSalt),
            b"lora_path" => Self::Name(NameKey::LoraPath),
            b"extra_key" => Self::Name(NameKey::ExtraKey),
            _ => Self::Other,
        }
    }
}

// === impl Prompt ===

impl Prompt {
    /// Notes that a key has come, and refuses to see it again.
    fn take_key(&mut self, place: usize) -> Result<(), PromptError> {
        match self.keys.get_mut(place) {
            Some(seen) if !*seen => *seen = true,
            _ => return Err(PromptError::DuplicatePrompt),
        }
        Ok(())
    }

    /// The prompt has no token IDs.
    fn end(&mut self, shape: Shape) {
        self.shape = Some(shape);
        self.is_done = true;
    }
}

// === impl Names ===

impl Names {
    fn get(&mut self, key: NameKey) -> &mut Name {
        match key {
            NameKey::Model => &mut self.model,
            NameKey::CacheSalt => &mut self.cache_salt,
            NameKey::LoraPath => &mut self.lora_path,
            NameKey::ExtraKey => &mut self.extra_key,
        }
    }
}
