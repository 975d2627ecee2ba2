//! Whatever a client sends is served as plain Envoy would serve it.

#![allow(clippy::indexing_slicing, reason = "a scenario that is wrong fails")]

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use warmroute_e2e::scripted_feed::{Reply, ScriptedIndex};
use warmroute_e2e::{Proxy, ProxyOptions, RawClient, ScriptedFeed, Upstream, tokens};

/// Envoy with an index, so that bodies are held and read.
async fn proxy(name: &str) -> Result<(Proxy, Upstream, ScriptedFeed)> {
    let worker = Upstream::start().await?;
    let prompt = tokens(1, 64);
    let index = ScriptedIndex::new(101, 4, &[worker.address()]).with(worker.address(), &prompt);
    let feed = ScriptedFeed::start(move |request| {
        if index.is_known_to(&request) { Reply::Hold } else { Reply::Bytes(index.all()) }
    })
    .await?;
    let proxy = ProxyOptions::new(name, &[worker.address()], feed.address())?.start().await?;
    proxy.wait_until_steered_to(worker.address(), &prompt).await?;
    Ok((proxy, worker, feed))
}

/// Bodies that no honest client sends, and some that only look so.
fn hostile_bodies() -> Vec<(String, Vec<u8>)> {
    let sample = r#"{"model":"sim","prompt":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17],"cache_salt":"t"}"#;
    let mut bodies: Vec<(String, Vec<u8>)> = Vec::new();
    let mut add = |name: &str, body: &[u8]| bodies.push((name.to_owned(), body.to_vec()));

    add("deep lists", &[vec![b'['; 100_000], vec![b']'; 100_000]].concat());
    add(
        "deep lists in the prompt",
        format!(r#"{{"prompt":{}1{}}}"#, "[".repeat(5000), "]".repeat(5000)).as_bytes(),
    );
    add("deep objects", format!(r#"{}1{}"#, r#"{"a":"#.repeat(50_000), "}".repeat(50_000)).as_bytes());
    add(
        "deep objects after the prompt",
        format!(r#"{{"prompt":[1],"x":{}"#, r#"{"a":"#.repeat(9000)).as_bytes(),
    );
    add("unclosed lists", &[b"{\"prompt\":".as_slice(), &[b'['; 200_000]].concat());
    for number in [
        "-1",
        "-0",
        "1.5",
        "1e3",
        "1E400",
        "4294967296",
        "99999999999999999999999999",
        "0x10",
        "01",
        "1_000",
        "+1",
        "NaN",
        "Infinity",
        "null",
        "true",
        "\"1\"",
        "{}",
        "[]",
        "1.",
        ".5",
        "- 1",
        "1 2",
    ] {
        add(&format!("{number} as a token"), format!(r#"{{"prompt":[1,2,{number},4]}}"#).as_bytes());
    }
    add("a number of a megabyte", format!(r#"{{"prompt":[{}]}}"#, "9".repeat(1_000_000)).as_bytes());
    add("two prompts", br#"{"prompt":[1,2,3],"prompt":[4,5,6]}"#);
    add("two kinds of prompts", br#"{"prompt":[1,2,3],"input_ids":[4,5,6],"token_ids":[7]}"#);
    add("two models", br#"{"model":"a","model":"b","prompt":[1,2,3]}"#);
    add("an escaped key", br#"{"\u0070rompt":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]}"#);
    add("a broken escape in a key", br#"{"\u00zz":1,"prompt":[1]}"#);
    add("half a surrogate", br#"{"model":"\ud800","prompt":[1]}"#);
    add("a control character in a string", b"{\"model\":\"a\x01b\",\"prompt\":[1]}");
    add("a key of a megabyte", format!(r#"{{"{}":1,"prompt":[1]}}"#, "k".repeat(1_000_000)).as_bytes());
    add(
        "a model of a megabyte",
        format!(r#"{{"model":"{}","prompt":[1]}}"#, "m".repeat(1_000_000)).as_bytes(),
    );
    add("a byte order mark", &[b"\xef\xbb\xbf", sample.as_bytes()].concat());
    add("UTF-16", &sample.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<_>>());
    add("UTF-16 the other way", &sample.encode_utf16().flat_map(u16::to_be_bytes).collect::<Vec<_>>());
    add("bytes that are not UTF-8", b"{\"model\":\"\xff\xfe\",\"prompt\":[1,2,3]}");
    add("rubbish behind the object", format!("{sample} and more").as_bytes());
    add("two objects", format!("{sample}{sample}").as_bytes());
    add("commas at the end", br#"{"prompt":[1,2,3,],}"#);
    add("single quotes", br"{'prompt':[1,2,3]}");
    add("comments", br#"{/* */"prompt":[1,2,3]}"#);
    add("colons missing", br#"{"prompt"[1,2,3]}"#);
    add("a closing bracket of the other kind", br#"{"prompt":[1,2,3}}"#);
    add("nothing but blanks", &vec![b' '; 10_000_000]);
    add("blanks within", format!(r#"{{"prompt":[1,{}2]}}"#, " ".repeat(5_000_000)).as_bytes());
    add("zero bytes", &vec![0; 100_000]);
    add("every byte", &(0..=255).collect::<Vec<u8>>());
    for scalar in ["null", "1", "\"text\"", "[]", "{}", "true"] {
        add(&format!("only {scalar}"), scalar.as_bytes());
    }
    for prompt in
        ["null", "{}", "\"text\"", "[\"text\"]", "[[]]", "[[1,2],[\"x\"]]", "[]", "[[[1]]]", "[{}]", "[null]"]
    {
        add(&format!("a prompt that is {prompt}"), format!(r#"{{"prompt":{prompt}}}"#).as_bytes());
    }
    for cut in 0..sample.len() {
        add(&format!("cut after {cut} bytes"), &sample.as_bytes()[..cut]);
    }
    bodies
}

#[tokio::test]
async fn every_hostile_body_is_served() -> Result<()> {
    let (proxy, worker, _feed) = proxy("hostile-bodies").await?;
    let bodies = hostile_bodies();
    ensure!(bodies.len() >= 60, "{} bodies", bodies.len());
    let client = proxy.client()?;
    for (name, body) in bodies {
        let length = body.len();
        let request = client.post("/v1/completions").header("content-type", "application/json").body(body);
        let response = request.send().await?;
        ensure!(response.status() == 200, "{name}: {}", response.status());
        let echo: Value = response.json().await?;
        ensure!(echo["served_by"] == json!(worker.address()), "{name}: {echo}");
        ensure!(echo["body_bytes"] == json!(length), "{name}: {} of {length} bytes", echo["body_bytes"]);
    }
    ensure!(!proxy.envoy.log().contains("panicked at"), "{}", proxy.envoy.log());
    proxy.wait_until_steered_to(worker.address(), &tokens(1, 64)).await?;
    proxy.stop().await
}

#[tokio::test]
async fn header_values_that_are_not_utf8_are_served() -> Result<()> {
    let (proxy, worker, _feed) = proxy("hostile-headers").await?;
    let body = r#"{"prompt":[1,2,3]}"#;
    let headers = [
        "x-warmroute-tokens",
        "x-warmroute-tokens-base64",
        "x-warmroute-block-hashes",
        "x-warmroute-model",
        "x-warmroute-cache-salt",
        "x-gateway-destination-endpoint",
        "x-data-parallel-rank",
        "content-type",
        "content-encoding",
    ];
    for name in headers {
        for value in [&b"\xff\xfe"[..], b"\xc3\x28", b"", b"\x80", b"1,\xff,3"] {
            let mut request =
                format!("POST /v1/completions HTTP/1.1\r\nhost: t\r\ncontent-length: {}\r\n", body.len());
            if name != "content-type" {
                request.push_str("content-type: application/json\r\n");
            }
            let field = [name.as_bytes(), b": ", value, b"\r\n\r\n"].concat();
            let mut client = RawClient::connect(&proxy.envoy.url()).await?;
            client.send(&[request.as_bytes(), &field, body.as_bytes()].concat()).await?;
            let answer = client.answer().await?;
            ensure!(answer.status == 200, "{name}: {value:?}: {answer:?}");
        }
    }
    // And garbage in the prompt headers, given twice.
    for garbage in ["1,2,x", "99999999999", "-1", "=====", "AQ", "zz", ",,,,", "[1,2"] {
        let headers = [
            ("x-warmroute-tokens", garbage),
            ("x-warmroute-tokens", "7"),
            ("x-warmroute-tokens-base64", garbage),
            ("x-warmroute-block-hashes", garbage),
        ];
        proxy.send(&[1, 2, 3], &headers).await?;
    }
    ensure!(!proxy.envoy.log().contains("panicked at"), "{}", proxy.envoy.log());
    proxy.wait_until_steered_to(worker.address(), &tokens(1, 64)).await?;
    proxy.stop().await
}

#[tokio::test]
async fn upgrades_and_connect_and_grpc_are_never_held() -> Result<()> {
    let (proxy, _worker, _feed) = proxy("upgrades").await?;
    let kinds = [
        ("POST", "content-type: application/json\r\nconnection: upgrade\r\nupgrade: websocket\r\n"),
        ("POST", "content-type: application/grpc\r\n"),
        ("POST", "content-type: multipart/form-data; boundary=x\r\n"),
        ("POST", "content-type: application/json\r\ncontent-encoding: gzip\r\n"),
        ("GET", "connection: upgrade\r\nupgrade: websocket\r\n"),
    ];
    for (method, headers) in kinds {
        let mut client = RawClient::connect(&proxy.envoy.url()).await?;
        let request =
            format!("{method} /v1/completions HTTP/1.1\r\nhost: t\r\n{headers}content-length: 0\r\n\r\n");
        client.send(request.as_bytes()).await?;
        // Envoy refuses upgrades that it is not configured for: that is an answer, too.
        let answer = client.answer().await?;
        ensure!(matches!(answer.status, 200 | 403), "{headers}: {answer:?}");
    }
    proxy.stop().await
}

#[tokio::test]
async fn a_client_that_goes_away_in_the_middle_costs_nobody_else_anything() -> Result<()> {
    let (proxy, worker, _feed) = proxy("gone").await?;
    let body = json!({ "prompt": tokens(1, 64) }).to_string();
    let head = format!(
        "POST /v1/completions HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let request = [head.as_bytes(), body.as_bytes()].concat();
    for cut in (0..request.len()).step_by(17) {
        let mut client = RawClient::connect(&proxy.envoy.url()).await?;
        client.send(&request[..cut]).await?;
        drop(client);
    }
    ensure!(!proxy.envoy.log().contains("panicked at"), "{}", proxy.envoy.log());
    proxy.wait_until_steered_to(worker.address(), &tokens(1, 64)).await?;
    proxy.stop().await
}
