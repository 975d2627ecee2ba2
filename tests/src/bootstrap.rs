//! Envoy's bootstrap: the shipped `envoy/envoy.yaml`, with addresses, paths and the plugin's configuration changed.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use serde_json::{Value, json};

use crate::workspace;

/// The pool that the shipped configurations name.
pub const POOL: &str = "llama";

const LISTENER: &str = "type.googleapis.com/envoy.config.listener.v3.Listener";

/// Who in Envoy fetches the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Publisher {
    /// As shipped: the bootstrap singleton, and the filter's workers stand by.
    #[default]
    Shipped,
    /// The bootstrap singleton alone.
    Singleton,
    /// One of the filter's workers, as where no bootstrap extension can be installed.
    Worker,
    /// Nobody.
    Absent,
}

/// Where Envoy listens.
#[derive(Debug, Clone, Copy)]
pub struct Addresses {
    /// With warmroute.
    pub warmroute: SocketAddr,
    /// Without.
    pub plain: SocketAddr,
    /// The admin interface.
    pub admin: SocketAddr,
}

/// An Envoy configuration in the making.
#[derive(Debug, Clone)]
pub struct Bootstrap(Value);

// === impl Bootstrap ===

impl Bootstrap {
    /// `envoy/envoy.yaml` as it is shipped.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn shipped() -> Result<Self> {
        let path = workspace::root().join("envoy/envoy.yaml");
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(Self(serde_saphyr::from_str(&text).context("envoy/envoy.yaml is not YAML")?))
    }

    /// The file that Envoy is given, as JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        self.0.to_string()
    }

    /// This configuration with its listeners moved to the file `listeners`, which Envoy watches, and what to write there.
    /// `version` tells one content of that file from another.
    ///
    /// # Errors
    /// See [`set_plugin`](Self::set_plugin).
    pub fn split_listeners(&self, listeners: &Path, version: u64) -> Result<(Self, Value)> {
        let mut rest = self.clone();
        let mut resources = at(&mut rest.0, "/static_resources/listeners")?.take();
        for listener in resources.as_array_mut().context("the listeners are no list")? {
            object(listener)?.insert("@type".to_owned(), json!(LISTENER));
        }
        object(at(&mut rest.0, "/static_resources")?)?.remove("listeners");
        let source = json!({ "path_config_source": { "path": listeners }, "resource_api_version": "V3" });
        object(&mut rest.0)?.insert("dynamic_resources".to_owned(), json!({ "lds_config": source }));
        Ok((rest, json!({ "version_info": version.to_string(), "resources": resources })))
    }

    /// The whole of it, for what has no method here.
    pub fn value_mut(&mut self) -> &mut Value {
        &mut self.0
    }

    /// Loads the plugin from `plugin`.
    ///
    /// # Errors
    /// When this configuration has not the shipped shape; so in all methods below.
    pub fn set_plugin(&mut self, plugin: &Path) -> Result<()> {
        *at(self.filter()?, "/vm_config/code/local/filename")? = json!(plugin);
        if let Ok(singleton) = self.singleton() {
            *at(singleton, "/vm_config/code/local/filename")? = json!(plugin);
        }
        Ok(())
    }

    /// Listens on `addresses`.
    ///
    /// # Errors
    /// See [`set_plugin`](Self::set_plugin).
    pub fn set_addresses(&mut self, addresses: &Addresses) -> Result<()> {
        set_address(&mut self.0, "/admin", addresses.admin)?;
        set_address(self.listener("warmroute")?, "", addresses.warmroute)?;
        set_address(self.listener("plain")?, "", addresses.plain)
    }

    /// Makes `endpoints` the members of `cluster`.
    ///
    /// # Errors
    /// See [`set_plugin`](Self::set_plugin).
    pub fn set_endpoints(&mut self, cluster: &str, endpoints: &[SocketAddr]) -> Result<()> {
        let endpoints: Vec<Value> = endpoints
            .iter()
            .map(|address| {
                let address = json!({ "address": address.ip().to_string(), "port_value": address.port() });
                json!({ "endpoint": { "address": { "socket_address": address } } })
            })
            .collect();
        *at(self.cluster(cluster)?, "/load_assignment/endpoints/0/lb_endpoints")? = json!(endpoints);
        Ok(())
    }

    /// Changes the filter's configuration by a JSON merge patch: objects are merged, null removes, the rest replaces.
    ///
    /// # Errors
    /// See [`set_plugin`](Self::set_plugin).
    pub fn patch_filter(&mut self, patch: &Value) -> Result<()> {
        patch_plugin(self.filter()?, patch)
    }

    /// Changes the bootstrap singleton's configuration likewise.
    ///
    /// # Errors
    /// See [`set_plugin`](Self::set_plugin).
    pub fn patch_singleton(&mut self, patch: &Value) -> Result<()> {
        patch_plugin(self.singleton()?, patch)
    }

    /// Chooses who fetches the index.
    ///
    /// # Errors
    /// See [`set_plugin`](Self::set_plugin).
    pub fn set_publisher(&mut self, publisher: Publisher) -> Result<()> {
        if matches!(publisher, Publisher::Singleton | Publisher::Absent) {
            self.patch_filter(&json!({ "publisher": null }))?;
        }
        if matches!(publisher, Publisher::Worker | Publisher::Absent) {
            object(&mut self.0)?.remove("bootstrap_extensions");
        }
        Ok(())
    }

    /// Takes warmroute out of the listener `warmroute` and out of the bootstrap. Everything else stays.
    ///
    /// # Errors
    /// See [`set_plugin`](Self::set_plugin).
    pub fn remove_plugin(&mut self) -> Result<()> {
        object(&mut self.0)?.remove("bootstrap_extensions");
        let filters = at(self.connection_manager("warmroute")?, "/http_filters")?.as_array_mut();
        filters.context("http_filters is no list")?.retain(|filter| !is_named(filter, "warmroute"));
        Ok(())
    }

    /// The listener of that name.
    ///
    /// # Errors
    /// See [`set_plugin`](Self::set_plugin).
    pub fn listener(&mut self, name: &str) -> Result<&mut Value> {
        named(at(&mut self.0, "/static_resources/listeners")?, name)
    }

    /// The cluster of that name.
    ///
    /// # Errors
    /// See [`set_plugin`](Self::set_plugin).
    pub fn cluster(&mut self, name: &str) -> Result<&mut Value> {
        named(at(&mut self.0, "/static_resources/clusters")?, name)
    }

    /// The connection manager of the listener of that name.
    ///
    /// # Errors
    /// See [`set_plugin`](Self::set_plugin).
    pub fn connection_manager(&mut self, listener: &str) -> Result<&mut Value> {
        at(self.listener(listener)?, "/filter_chains/0/filters/0/typed_config")
    }

    /// The filter's `PluginConfig`.
    ///
    /// # Errors
    /// See [`set_plugin`](Self::set_plugin).
    pub fn filter(&mut self) -> Result<&mut Value> {
        let filters = at(self.connection_manager("warmroute")?, "/http_filters")?;
        at(named(filters, "warmroute")?, "/typed_config/config")
    }

    /// The bootstrap singleton's `PluginConfig`.
    ///
    /// # Errors
    /// See [`set_plugin`](Self::set_plugin).
    pub fn singleton(&mut self) -> Result<&mut Value> {
        let extensions = at(&mut self.0, "/bootstrap_extensions")?;
        at(named(extensions, "envoy.bootstrap.wasm")?, "/typed_config/config")
    }
}

fn at<'a>(value: &'a mut Value, pointer: &str) -> Result<&'a mut Value> {
    value.pointer_mut(pointer).with_context(|| format!("the bootstrap has no {pointer}"))
}

fn object(value: &mut Value) -> Result<&mut serde_json::Map<String, Value>> {
    value.as_object_mut().context("the bootstrap is no object")
}

fn is_named(value: &Value, name: &str) -> bool {
    value.get("name").and_then(Value::as_str) == Some(name)
}

fn named<'a>(list: &'a mut Value, name: &str) -> Result<&'a mut Value> {
    let found = list.as_array_mut().and_then(|list| list.iter_mut().find(|value| is_named(value, name)));
    found.ok_or_else(|| anyhow!("the bootstrap has no {name}"))
}

fn set_address(value: &mut Value, parent: &str, address: SocketAddr) -> Result<()> {
    let socket = at(value, &format!("{parent}/address/socket_address"))?;
    *socket = json!({ "address": address.ip().to_string(), "port_value": address.port() });
    Ok(())
}

/// The plugin's own configuration is JSON in a string.
fn patch_plugin(plugin: &mut Value, patch: &Value) -> Result<()> {
    let text = at(plugin, "/configuration/value")?;
    let json = text.as_str().context("the plugin's configuration is no string")?;
    let mut config = serde_json::from_str(json).context("the plugin's configuration is no JSON")?;
    merge(&mut config, patch);
    *text = Value::String(config.to_string());
    Ok(())
}

/// RFC 7396.
fn merge(value: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *value = patch.clone();
        return;
    };
    if !value.is_object() {
        *value = json!({});
    }
    let Value::Object(fields) = value else { return };
    for (key, patch) in patch {
        if patch.is_null() {
            fields.remove(key);
        } else {
            merge(fields.entry(key.as_str()).or_insert(Value::Null), patch);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Bootstrap, Publisher, merge};

    #[test]
    fn merges_as_rfc_7396_says() {
        let mut value = json!({ "a": 1, "b": { "c": 2, "d": 3 }, "e": [1, 2] });
        merge(&mut value, &json!({ "b": { "c": null, "f": { "g": null, "h": 4 } }, "e": [5] }));
        assert_eq!(value, json!({ "a": 1, "b": { "d": 3, "f": { "h": 4 } }, "e": [5] }));
    }

    #[test]
    fn finds_everything_it_changes_in_the_shipped_file() {
        let mut bootstrap = Bootstrap::shipped().unwrap();
        bootstrap.set_plugin("/x/warmroute.wasm".as_ref()).unwrap();
        bootstrap.patch_filter(&json!({ "mode": "observe" })).unwrap();
        bootstrap.patch_singleton(&json!({ "publisher": { "tick_ms": 50 } })).unwrap();
        bootstrap.set_endpoints("workers", &["127.0.0.1:1".parse().unwrap()]).unwrap();
        let filter = bootstrap.filter().unwrap();
        assert_eq!(filter.pointer("/vm_config/code/local/filename"), Some(&json!("/x/warmroute.wasm")));
        let config = filter.pointer("/configuration/value").and_then(Value::as_str).unwrap();
        let config: Value = serde_json::from_str(config).unwrap();
        assert_eq!(config["mode"], "observe");
        assert!(config["publisher"]["cluster"].is_string());
        bootstrap.set_publisher(Publisher::Absent).unwrap();
        assert!(bootstrap.singleton().is_err());
    }
}
