//! What is counted of the configuration.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::labels::ResultLabels;
use crate::server::Load;

/// The configuration's metrics.
#[derive(Clone, Debug, Default)]
pub(super) struct ConfigMetrics {
    loads: Family<ResultLabels, Counter>,
    valid: Gauge,
}

// === impl ConfigMetrics ===

impl ConfigMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let all = Self::default();
        all.valid.set(1);
        registry.register(
            "config_loads",
            "Times that the configuration was read again, by result",
            all.loads.clone(),
        );
        registry.register(
            "config_valid",
            "Whether the configuration file could be used when it was last read",
            all.valid.clone(),
        );
        all
    }

    pub(super) fn load(&self, load: Load) {
        self.loads.get_or_create(&ResultLabels { result: load.as_str() }).inc();
        self.valid.set(i64::from(load != Load::Invalid));
    }
}
