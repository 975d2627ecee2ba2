//! A completion request's `prompt`, in its four shapes: token ids, lists of token ids, a text, texts.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, SeqAccess, Visitor};

use crate::output::tokenise;

/// The token ids of each prompt; at least one prompt, and none of them empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Prompts(pub(super) Vec<Vec<u32>>);

/// One element of the outer list.
enum Element {
    Token(u32),
    Prompt(Vec<u32>),
}

struct PromptsVisitor;
struct ElementVisitor;

// === impl Prompts ===

impl<'de> Deserialize<'de> for Prompts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Self(prompts) = deserializer.deserialize_any(PromptsVisitor)?;
        if prompts.is_empty() || prompts.iter().any(Vec::is_empty) {
            return Err(de::Error::custom("a prompt must not be empty"));
        }
        Ok(Self(prompts))
    }
}

impl<'de> Visitor<'de> for PromptsVisitor {
    type Value = Prompts;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a text, a list of token ids, or a list of either")
    }

    fn visit_str<E>(self, text: &str) -> Result<Prompts, E> {
        Ok(Prompts(vec![tokenise(text)]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Prompts, A::Error> {
        match elements.next_element()? {
            None => Ok(Prompts(Vec::new())),
            Some(Element::Token(first)) => {
                let mut tokens = vec![first];
                while let Some(token) = elements.next_element()? {
                    tokens.push(token);
                }
                Ok(Prompts(vec![tokens]))
            }
            Some(Element::Prompt(first)) => {
                let mut prompts = vec![first];
                while let Some(element) = elements.next_element()? {
                    let Element::Prompt(prompt) = element else {
                        return Err(de::Error::custom("a list of prompts must not hold token ids"));
                    };
                    prompts.push(prompt);
                }
                Ok(Prompts(prompts))
            }
        }
    }
}

// === impl Element ===

impl<'de> Deserialize<'de> for Element {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ElementVisitor)
    }
}

impl<'de> Visitor<'de> for ElementVisitor {
    type Value = Element;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a token id (0 to 4294967295), a list of token ids, or a text")
    }

    fn visit_u64<E: de::Error>(self, token: u64) -> Result<Element, E> {
        let token = u32::try_from(token);
        token.map(Element::Token).map_err(|_| E::custom("a token id must be at most 4294967295"))
    }

    fn visit_str<E>(self, text: &str) -> Result<Element, E> {
        Ok(Element::Prompt(tokenise(text)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Element, A::Error> {
        let mut tokens = Vec::new();
        while let Some(token) = elements.next_element()? {
            tokens.push(token);
        }
        Ok(Element::Prompt(tokens))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(json: &str) -> Option<Vec<Vec<u32>>> {
        serde_json::from_str::<Prompts>(json).ok().map(|Prompts(prompts)| prompts)
    }

    #[test]
    fn reads_all_four_shapes() {
        assert_eq!(parse("[1,2,3]"), Some(vec![vec![1, 2, 3]]));
        assert_eq!(parse("[[1,2],[3]]"), Some(vec![vec![1, 2], vec![3]]));
        assert_eq!(parse("\"ab\""), Some(vec![vec![97, 98]]));
        assert_eq!(parse("[\"a\",\"b\"]"), Some(vec![vec![97], vec![98]]));
    }

    #[test]
    fn refuses_everything_else() {
        for json in
            ["[]", "\"\"", "[[]]", "[1,-2]", "[1,[2]]", "[[1],2]", "[4294967296]", "[1.5]", "{}", "null", "3"]
        {
            assert_eq!(parse(json), None, "{json}");
        }
    }
}
