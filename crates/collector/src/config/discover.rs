//! Where a pool's workers are listed, apart from the configuration.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use warmroute_wire::Engine;

use super::check::{number, refused};
use super::raw::RawDiscover;
use super::source::SourceText;
use super::{ConfigError, EventSource, WorkerConfig, check, endpoint, raw};

/// Where a pool's workers are listed, apart from the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discover {
    /// What lists them.
    pub from: DiscoverFrom,
    /// The pause between two looks at it.
    pub interval: Duration,
}

/// What lists workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiscoverFrom {
    /// Every address that a name has is a worker's, at this port.
    Dns {
        /// The name.
        host: String,
        /// The port.
        port: u16,
        /// Where each of them publishes, with `*` in the place of its host; none: it is asked.
        source: Option<SourceText>,
    },
    /// A file with a list of entries as in `workers`.
    File(PathBuf),
}

// === impl Discover ===

impl Discover {
    /// The worker at an address that a name has.
    ///
    /// # Errors
    ///
    /// None that is known of: the source has been read for another address.
    pub fn worker(
        source: Option<&SourceText>,
        engine: Engine,
        address: SocketAddr,
    ) -> Result<WorkerConfig, ConfigError> {
        let source = source.map(|source| source.of_worker("discover", engine, address)).transpose()?;
        Ok(WorkerConfig { address, source, block_size: None })
    }

    /// The workers that a file's text lists.
    ///
    /// # Errors
    ///
    /// The text is no list of workers, or has one that cannot be.
    pub fn workers(text: &str, engine: Engine) -> Result<Vec<WorkerConfig>, ConfigError> {
        let raw = raw::parse_workers(text)?;
        check::workers("workers", engine, raw)
    }

    pub(super) fn read(path: &str, engine: Engine, raw: RawDiscover) -> Result<Self, ConfigError> {
        let field = |name: &str| format!("{path}.{name}");
        let RawDiscover { dns, file, interval_ms, events, replay, data_parallel_size } = raw;
        let (from, usual_ms) = match (dns, file) {
            (Some(dns), None) => {
                let (host, port) = endpoint::host_and_port(&dns).ok_or_else(|| {
                    refused(
                        field("dns"),
                        format!("`{dns}`: write `name:port`, with the port of the engines' HTTP"),
                    )
                })?;
                let has_source = events.is_some() || replay.is_some() || data_parallel_size.is_some();
                let source = has_source
                    .then(|| SourceText::new(&field("events"), events, replay, data_parallel_size))
                    .transpose()?;
                if let Some(source) = &source {
                    Self::sample(path, engine, source)?;
                } else if !engine.can_be_asked() {
                    return Err(refused(field("events"), cannot_be_asked(engine)));
                }
                // A name is resolved without the brackets of an address.
                let host = host.trim_matches(['[', ']']).to_owned();
                (DiscoverFrom::Dns { host, port, source }, 5_000)
            }
            (None, Some(file)) => {
                if file.is_empty() {
                    return Err(refused(field("file"), "write the path of a file"));
                }
                if events.is_some() || replay.is_some() || data_parallel_size.is_some() {
                    return Err(refused(field("events"), "the file's entries say that: write it there"));
                }
                (DiscoverFrom::File(file.into()), 1_000)
            }
            _ => return Err(refused(path, "write either `dns` or `file`")),
        };
        let interval_ms = number(field("interval_ms"), interval_ms.unwrap_or(usual_ms), 100..=3_600_000)?;
        Ok(Self { from, interval: Duration::from_millis(interval_ms) })
    }

    /// What the source would be of some worker: whether it can be read at all.
    fn sample(path: &str, engine: Engine, source: &SourceText) -> Result<EventSource, ConfigError> {
        let anyone = SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), 1));
        let read = source.of_worker(path, engine, anyone)?;
        if !source.is_bound() && !source.names_the_worker() {
            let message = "write `*` in the place of the host: each worker has its own";
            return Err(refused(format!("{path}.events"), message));
        }
        Ok(read)
    }

    /// Where engines that are found dial, if they do.
    pub(super) fn bound(&self, engine: Engine) -> Option<EventSource> {
        match &self.from {
            DiscoverFrom::Dns { source: Some(source), .. } if source.is_bound() => {
                Self::sample("discover", engine, source).ok()
            }
            _ => None,
        }
    }
}

/// What to write for an engine that does not tell where it publishes.
pub(super) fn cannot_be_asked(engine: Engine) -> String {
    format!("write where the engine publishes its events: `{engine}` cannot be asked")
}
