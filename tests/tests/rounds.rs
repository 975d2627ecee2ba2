//! Parts that die again and again under load: see `warmroute_e2e::rounds`. `cargo xtask test --rounds 50` runs more.

use anyhow::{Result, ensure};
use warmroute_e2e::rounds;

#[tokio::test]
async fn what_is_predicted_is_reported_again_after_each_round_of_kills() -> Result<()> {
    let outcome = rounds::run("rounds", 6, 1).await?;
    println!("{outcome}");
    ensure!(outcome.rounds == 6 && outcome.requests > 50, "{outcome:?}");
    Ok(())
}
