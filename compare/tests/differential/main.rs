//! Where `dynamo-kv-router` 1.6.1 and we differ, and that it is nowhere else. Each class of difference stands, with its
//! reason, in `docs/exactness.md`.

mod index;
mod recordings;
mod wire;
