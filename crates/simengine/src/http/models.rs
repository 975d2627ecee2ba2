//! The models that this engine serves.

use axum::Json;
use axum::extract::State;
use serde::Serialize;

use super::App;
use super::error::ApiError;
use crate::cache::Lora;

/// The base model and its adapters.
#[derive(Debug)]
pub(super) struct Models {
    base: String,
    loras: Vec<Lora>,
}

#[derive(Serialize)]
pub(super) struct ModelList {
    object: &'static str,
    data: Vec<ModelCard>,
}

#[derive(Serialize)]
struct ModelCard {
    id: String,
    object: &'static str,
    /// Seconds since 1970.
    created: u64,
    owned_by: &'static str,
    root: String,
    /// The base model, for an adapter.
    parent: Option<String>,
    /// Tokens of the longest request: the cache's size.
    max_model_len: usize,
}

// === impl Models ===

impl Models {
    pub(super) fn new(base: &str, loras: &[String]) -> Self {
        let loras = (1..).zip(loras).map(|(id, name)| Lora { id, name: name.as_str().into() }).collect();
        Self { base: base.to_owned(), loras }
    }

    /// The adapter that a request's `model` means; `None` for the base model. A request without a model means that too.
    pub(super) fn resolve(&self, model: Option<&str>) -> Result<Option<Lora>, ApiError> {
        let Some(name) = model.filter(|name| *name != self.base) else { return Ok(None) };
        let lora = self.loras.iter().find(|lora| &*lora.name == name);
        lora.cloned().map(Some).ok_or_else(|| ApiError::UnknownModel(name.to_owned()))
    }

    /// The name by which answers call the model.
    pub(super) fn name<'a>(&'a self, lora: Option<&'a Lora>) -> &'a str {
        lora.map_or(&self.base, |lora| &lora.name)
    }
}

/// `GET /v1/models`
pub(super) async fn list(State(app): State<App>) -> Json<ModelList> {
    let max_model_len = app.config.cache_blocks().saturating_mul(app.config.block_tokens().get());
    let card = |id: &str, parent: Option<String>| ModelCard {
        id: id.to_owned(),
        object: "model",
        created: app.started as u64,
        owned_by: "warmroute-simengine",
        root: id.to_owned(),
        parent,
        max_model_len,
    };
    let base = &app.models.base;
    let adapters = app.models.loras.iter().map(|lora| card(&lora.name, Some(base.clone())));
    Json(ModelList { object: "list", data: std::iter::once(card(base, None)).chain(adapters).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolves_base_adapters_and_nothing_else() {
        let models = Models::new("sim", &["ad1".to_owned(), "ad2".to_owned()]);
        assert_eq!(models.resolve(None), Ok(None));
        assert_eq!(models.resolve(Some("sim")), Ok(None));
        assert_eq!(models.resolve(Some("ad2")), Ok(Some(Lora { id: 2, name: "ad2".into() })));
        assert_eq!(models.resolve(Some("x")), Err(ApiError::UnknownModel("x".to_owned())));
    }
}
