//! The feed: what a publisher in an Envoy has next of a pool's index. The format and the rules of the cursor are in
//! [`warmroute_routing::feed`].

mod answer;

pub(crate) use self::answer::answer;
pub use self::answer::{Answer, AnswerKind};
