//! A look at what the filter knows of a prompt: a request with the prompt's tokens in a header, on a path that the filter is
//! configured to read and that Envoy answers by itself. It waits for no engine and stores nothing.

use anyhow::{Context, Result};
use serde_json::{Value, json};
use warmroute_e2e::bootstrap::POOL;
use warmroute_e2e::{Bootstrap, Client};

/// Where a look goes.
const PATH: &str = "/look";

/// What the filter's configuration says for looks, beside others' `paths`.
pub(super) fn filter(paths: &[&str]) -> Value {
    let paths: Vec<_> = paths.iter().copied().chain([PATH]).collect();
    // What one look did not find must not be what the next one finds.
    json!({ "pools": [{ "name": POOL }], "paths": paths, "recent_routes_ms": 0 })
}

/// Lets Envoy answer looks.
pub(super) fn answer(bootstrap: &mut Bootstrap) -> Result<()> {
    let manager = bootstrap.connection_manager("warmroute")?;
    let routes = manager.pointer_mut("/route_config/virtual_hosts/0/routes").and_then(Value::as_array_mut);
    let look = json!({ "match": { "path": PATH }, "direct_response": { "status": 200 } });
    routes.context("the bootstrap has no routes")?.insert(0, look);
    Ok(())
}

/// A prompt as a look's header has it.
pub(super) fn list(prompt: &[u32]) -> String {
    prompt.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

/// What the filter decides about a prompt.
pub(super) async fn decision(client: &Client, list: &str) -> Result<String> {
    let answer = client.get(PATH).header("x-warmroute-tokens", list).send().await?;
    let decision = answer.headers().get("x-warmroute-decision").and_then(|value| value.to_str().ok());
    Ok(decision.unwrap_or_default().to_owned())
}
