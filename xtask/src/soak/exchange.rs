//! One request and its answer.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tokio::time::{Instant, timeout};
use warmroute_e2e::{Client, RawClient};

use super::request::{Kind, Request};
use super::shared::Shared;
use super::tally::Fate;
use warmroute_e2e::Dice;

const PATH: &str = "/v1/completions";

/// What came of a request, and the token IDs of its answer.
pub(crate) struct Exchange {
    pub(crate) fate: Fate,
    pub(crate) answer: Vec<u32>,
}

/// Sends a request and waits for what comes of it. `client` and `url` lead to the same listener.
pub(crate) async fn exchange(
    shared: &Shared,
    client: &Client,
    url: &str,
    kind: Kind,
    request: &Request,
    dice: &mut Dice,
) -> Exchange {
    let patience = Duration::from_millis(dice.within(1..60));
    match kind {
        Kind::LeavesWaiting => {
            // Dropping the request closes its connection.
            let _ = timeout(patience, whole_answer(client, request, &mut None)).await;
            return Exchange { fate: Fate::Left, answer: Vec::new() };
        }
        Kind::LeavesSending => {
            // A client that wants to leave may find the door shut.
            let _ = half_a_body(url, request, patience).await;
            return Exchange { fate: Fate::Left, answer: Vec::new() };
        }
        _ => {}
    }
    let (start, mut begun_by) = (Instant::now(), None);
    match whole_answer(client, request, &mut begun_by).await {
        Ok(answer) => Exchange { fate: Fate::Served, answer },
        Err(error) => {
            let was_cut = begun_by.as_deref().is_some_and(|engine| shared.went_down_since(engine, start));
            let at = (start - shared.start).as_secs_f32();
            let lasted = start.elapsed().as_millis();
            let told = format!("at {at:.1} s, after {lasted} ms, answer begun by {begun_by:?}: {error:#}");
            let fate = if was_cut { Fate::Cut } else { Fate::Failed(told) };
            Exchange { fate, answer: Vec::new() }
        }
    }
}

/// The token IDs of a whole answer of status 200. `begun_by` is set to the engine whose answer has begun.
async fn whole_answer(client: &Client, request: &Request, begun_by: &mut Option<String>) -> Result<Vec<u32>> {
    let mut builder = client.post(PATH).header("content-type", request.content_type);
    if let Some(tokens) = &request.tokens {
        builder = builder.header("x-warmroute-tokens", tokens);
    }
    let response = builder.body(request.body.to_string()).send().await.context("no answer")?;
    let status = response.status();
    let decision = response.headers().get("x-warmroute-decision").cloned();
    if status != 200 {
        let text = response.text().await.unwrap_or_default();
        bail!("status {status}, decision {decision:?}: {text}");
    }
    let engine = response.headers().get("x-simengine").and_then(|value| value.to_str().ok());
    *begun_by = engine.map(str::to_owned);
    let body =
        response.bytes().await.with_context(|| format!("the answer broke off, decision {decision:?}"))?;
    let text = if request.body.get("stream").is_some() { streamed_text(&body)? } else { text(&body)? };
    // The simulated engine generates letters, whose bytes are their IDs.
    Ok(text.bytes().map(u32::from).collect())
}

/// The text of a completion or of one chunk of it.
fn text(json: &[u8]) -> Result<String> {
    let value: Value = serde_json::from_slice(json).context("the answer is no JSON")?;
    let text = value.pointer("/choices/0/text").and_then(Value::as_str);
    text.map(str::to_owned).with_context(|| format!("the answer is no completion: {value}"))
}

fn streamed_text(body: &[u8]) -> Result<String> {
    let body = String::from_utf8_lossy(body);
    let mut data = body.lines().filter_map(|line| line.strip_prefix("data: ")).peekable();
    let mut whole = String::new();
    while let Some(event) = data.next() {
        if event == "[DONE]" {
            ensure!(data.peek().is_none(), "the answer goes on after [DONE]");
            return Ok(whole);
        }
        whole.push_str(&text(event.as_bytes())?);
    }
    bail!("the answer ended without [DONE]")
}

/// Sends half of a request and leaves after a while.
async fn half_a_body(url: &str, request: &Request, patience: Duration) -> Result<()> {
    let body = request.body.to_string();
    let head = format!(
        "POST {PATH} HTTP/1.1\r\nhost: soak\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let half = body.as_bytes().get(..body.len() / 2).unwrap_or_default();
    let mut raw = RawClient::connect(url).await?;
    raw.send(head.as_bytes()).await?;
    raw.send(half).await?;
    tokio::time::sleep(patience).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::streamed_text;

    #[test]
    fn a_stream_is_whole_with_its_end() {
        let chunk = "data: {\"choices\":[{\"text\":\"ab\"}]}\n\n";
        assert_eq!(streamed_text(format!("{chunk}{chunk}data: [DONE]\n\n").as_bytes()).unwrap(), "abab");
        assert!(streamed_text(chunk.as_bytes()).is_err());
        assert!(streamed_text(b"data: {\"error\":{}}\n\ndata: [DONE]\n\n").is_err());
    }
}
