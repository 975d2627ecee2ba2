//! What lies in the proxy's shared data: under which keys, and in which layouts.
//!
//! Shared data is common to all threads of the proxy, and under Istio to all plugins. It knows no delete, so the number
//! of keys is fixed by the number of pages and never grows with what is stored:
//!
//! ```text
//! warmroute/1/load                 what all threads have in flight, by worker (see `load`)
//! warmroute/1/proxy                the proxy's random number (see `proxy`)
//! warmroute/1/<pool>/published     the pool and where its pages are (see `published`)
//! warmroute/1/<pool>/lease         who publishes (see `lease`)
//! warmroute/1/<pool>/recent        what was just routed where (see `recent`)
//! warmroute/1/<pool>/s/<nn>        which worker a session was last sent to, in 256 parts (see `sessions`)
//! warmroute/1/<pool>/fleet         what other proxies have in flight (see `fleet`)
//! warmroute/1/<pool>/a/<page>      the pages of one generation, <page> in six hexadecimal digits
//! warmroute/1/<pool>/b/<page>      the pages of the next, until the two change places
//! ```
//!
//! The number after `warmroute/` is the version of this scheme: two versions of the plugin in one proxy do not see each
//! other's values.

mod fleet;
mod keys;
mod lease;
mod load;
mod proxy;
mod published;
mod recent;
mod sessions;

pub use fleet::HeardFleet;
pub use keys::{KeySet, LOAD_KEY, PROXY_KEY, PoolKeys};
pub use lease::{Claim, Lease, Seniority};
pub use load::{LoadBook, LoadRow, ROW_LIFE_US};
pub use proxy::proxy_number;
pub use published::{Published, PublishedError};
pub use recent::{RecentBook, RecentRoute, RouteHead, Shared};
pub use sessions::{BoundSession, SessionPage};
