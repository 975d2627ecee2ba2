//! The root contexts: one for each load of a configuration in each VM.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use proxy_wasm::hostcalls;
use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::{BufferType, ContextType, LogLevel};

use super::filter::{RequestContext, free_overdue};
use super::host::{Envoy, call_answer};
use super::publisher::{Publishers, random};
use crate::config::{Config, FilterConfig, PublisherConfig, Role};
use crate::host::CallId;
use crate::request::Filter;

/// How often the filter looks after its requests where there is no publisher's tick, in milliseconds.
const TICK_MS: u64 = 25;

/// A root context. It has nothing until Envoy gives it its configuration.
#[derive(Default)]
pub(super) struct Root {
    id: u32,
    filter: Option<Rc<RefCell<Filter>>>,
    publishers: Publishers,
}

// === impl Root ===

impl Root {
    pub(super) fn new(id: u32) -> Self {
        Self { id, ..Self::default() }
    }

    fn load(&mut self, role: Role) {
        match role {
            Role::Filter(config) => self.load_filter(config),
            Role::Publisher(role) => {
                self.publish(role.pools.iter().map(String::as_str), &role.publisher, true);
            }
        }
    }

    fn load_filter(&mut self, config: FilterConfig) {
        if let Some(publisher) = &config.publisher {
            self.publish(config.pools.iter().map(|pool| pool.name.as_str()), publisher, false);
        }
        if config.publisher.is_none() {
            // Held requests are looked after, and the load is told.
            let _ = hostcalls::set_tick_period(Duration::from_millis(TICK_MS));
        }
        self.filter = Some(Rc::new(RefCell::new(Filter::new(config, &Envoy, random()))));
    }

    fn publish<'a>(
        &mut self,
        pools: impl Iterator<Item = &'a str>,
        config: &PublisherConfig,
        singleton: bool,
    ) {
        self.publishers = Publishers::new(pools, config, singleton);
        // Nothing is asked for here: the canary VM of a new configuration comes this far too, but never ticks.
        let _ = hostcalls::set_tick_period(Duration::from_millis(config.tick_ms));
    }
}

impl Context for Root {
    fn on_http_call_response(
        &mut self,
        token_id: u32,
        num_headers: usize,
        body_size: usize,
        _trailers: usize,
    ) {
        self.publishers.answered(CallId(token_id), &call_answer(num_headers, body_size));
    }
}

impl RootContext for Root {
    fn on_configure(&mut self, size: usize) -> bool {
        let bytes = hostcalls::get_buffer(BufferType::PluginConfiguration, 0, size)
            .ok()
            .flatten()
            .unwrap_or_default();
        match Config::parse(&bytes) {
            Ok(config) => {
                self.load(config.role);
                true
            }
            Err(error) => {
                let _ = hostcalls::log(
                    LogLevel::Error,
                    &format!("warmroute's configuration is refused: {error}"),
                );
                false
            }
        }
    }

    fn on_tick(&mut self) {
        self.publishers.tick();
        if let Some(filter) = &self.filter {
            free_overdue(filter, self.id);
            if let Ok(mut filter) = filter.try_borrow_mut() {
                filter.tick(&Envoy);
            }
        }
    }

    fn create_http_context(&self, id: u32) -> Option<Box<dyn HttpContext>> {
        // Without a filter's configuration there is nothing to do: the request passes through.
        Some(Box::new(RequestContext::new(id, self.id, self.filter.clone())))
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }
}
