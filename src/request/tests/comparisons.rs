//! Which answers are compared with what was predicted.

use super::*;

const EACH: &str = r#"{"pools":[{"name":"p"}],"compare_every":1}"#;
const ANSWER: &str = r#"{"usage":{"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens":4}}}"#;

/// Steers the prompt to 127.0.0.1:8001, which the index says to hold two blocks of it, and lets `by` answer in pieces.
fn answered(config: &str, by: u16, headers: &[(&str, &str)], step: usize) -> Vec<(String, u64)> {
    let host = host();
    let mut filter = filter(&host, config);
    let mut exchange = Exchange::default();
    exchange.request_headers(&host, &mut filter, false);
    send_body(&mut exchange, &host, &mut filter, PROMPT.as_bytes(), 99);
    *host.upstream.borrow_mut() = Some(format!("127.0.0.1:{by}"));
    host.response_headers.borrow_mut().insert(":status".to_owned(), "200".to_owned());
    for (name, value) in headers {
        host.response_headers.borrow_mut().insert((*name).to_owned(), (*value).to_owned());
    }
    exchange.response_headers(&host, &mut filter);
    for piece in ANSWER.as_bytes().chunks(step) {
        *host.response_body.borrow_mut() = piece.to_vec();
        exchange.response_body(&host, &mut filter, piece.len());
    }
    exchange.done(&host, &mut filter);
    exchange.done(&host, &mut filter);
    let metrics = host.touched_metrics().into_iter();
    metrics.filter(|(name, _)| name.contains("prediction")).collect()
}

#[test]
fn an_answer_is_compared_once_however_it_is_cut() {
    let expected = [
        ("warmroute_prediction_error_blocks;pool=p".to_owned(), 1),
        ("warmroute_predictions_total;outcome=over;pool=p".to_owned(), 1),
    ];
    for step in [1, 7, 1000] {
        let mut counted = answered(EACH, 8001, &[], step);
        counted.sort();
        assert_eq!(counted, expected, "in pieces of {step}");
    }
}

#[test]
fn what_is_not_the_named_workers_own_plain_answer_says_nothing() {
    assert_eq!(answered(EACH, 8009, &[], 1000), []);
    assert_eq!(answered(EACH, 8001, &[(":status", "500")], 1000), []);
    assert_eq!(answered(EACH, 8001, &[("content-encoding", "gzip")], 1000), []);
    assert_eq!(answered(&EACH.replace(":1}", ":0}"), 8001, &[], 1000), []);
    let observes = EACH.replace(r#""compare_every""#, r#""mode":"observe","compare_every""#);
    assert_eq!(answered(&observes, 8001, &[], 1000), []);
}

#[test]
fn only_the_end_of_a_large_part_is_read() {
    let mut usage = UsageReader::default();
    usage.feed(b"\"cached_tok");
    usage.skip();
    usage.feed(b"ens\": 5");
    assert_eq!(usage.cached_tokens(), None);
}
