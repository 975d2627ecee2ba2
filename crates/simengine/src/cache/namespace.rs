//! What, besides the tokens, decides whether two prompts may share blocks.

use std::sync::Arc;

/// An adapter that a request uses.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lora {
    /// The adapter's number in this engine, from 1.
    pub id: u32,
    /// The adapter's name, as requests give it.
    pub name: Arc<str>,
}

/// A request's adapter and salt. Prompts of different namespaces share no block.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Namespace {
    /// The adapter; `None`: the base model.
    pub lora: Option<Lora>,
    /// The cache salt, if the request names one.
    pub salt: Option<Arc<str>>,
}

// === impl Namespace ===

impl Namespace {
    /// The extra keys of block `index`: the adapter's name in every block, the salt in the first alone (its children
    /// inherit it through the chain).
    pub fn extra_keys(&self, index: usize) -> Vec<Arc<str>> {
        let lora = self.lora.iter().map(|lora| lora.name.clone());
        let salt = self.salt.iter().filter(|_| index == 0).cloned();
        lora.chain(salt).collect()
    }
}
