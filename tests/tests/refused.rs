//! A wrong configuration is refused, and what runs stays.

use anyhow::{Result, ensure};
use serde_json::json;
use warmroute_e2e::Stack;

#[tokio::test]
async fn envoy_refuses_a_wrong_configuration_with_our_message_and_goes_on_with_the_old_one() -> Result<()> {
    let mut stack = Stack::builder("refused").reloadable().start().await?;
    stack.wait_until_steering().await?;
    let wrong = [
        (json!({ "max_destinations": 9 }), "max_destinations"),
        (json!({ "colour": "red" }), "colour"),
        (json!({ "publisher": { "cluster": "c", "tick_ms": 4000 } }), "publisher.lease_ms"),
        (json!({ "pools": [{ "name": "No Spaces" }] }), "pools[0].name"),
    ];
    for (patch, field) in wrong {
        let reloaded = stack.reload(|bootstrap| bootstrap.patch_filter(&patch)).await;
        ensure!(reloaded.is_err(), "{patch} was accepted");
        let told = format!("warmroute's configuration is refused: {field}");
        ensure!(stack.envoy.log().contains(&told), "{field} is not named:\n{}", stack.envoy.log());
        stack.wait_until_steering().await?;
    }
    stack.reload(|bootstrap| bootstrap.patch_filter(&json!({ "max_destinations": 3 }))).await?;
    stack.wait_until_steering().await?;
    stack.stop().await
}
