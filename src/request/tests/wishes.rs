//! What a request wishes of the choice.

use super::bursts::{body, cold_host, send, worker_of};
use super::*;

const WISHES: &str = r#"{"pools":[{"name":"p"}],"decision_header":"x-decision","recent_routes_ms":0,
    "wish_headers":{"subset":"x-subset","session":"x-session","load_scale":"x-scale"},"session_ttl_ms":60000}"#;

/// The same, where what nobody holds is chosen for by load.
fn by_load() -> String {
    WISHES.replace(r#""recent_routes_ms":0"#, r#""recent_routes_ms":1"#)
}

#[test]
fn only_a_worker_of_the_subset_is_chosen() {
    // 8001 holds the prompt, but is not in the subset of the second request.
    let host = host();
    let mut filter = filter(&host, WISHES);
    host.set_request_header("x-subset", "127.0.0.1:8001, 127.0.0.1:9999");
    serve(&host, &mut filter, 8001, "200");
    assert_eq!(destination(&host).as_deref(), Some("127.0.0.1:8001"));
    let cold = cold_host(4);
    let mut filter = super::filter(&cold, &by_load());
    for own in 1..20 {
        cold.set_request_header("x-subset", "127.0.0.1:8003,127.0.0.1:8002");
        let (_, decision) = send(&cold, &mut filter, &body(own, 0), 1 << 20);
        assert!(["127.0.0.1:8002", "127.0.0.1:8003"].contains(&worker_of(&decision)), "{decision}");
        let named = destination(&cold).unwrap();
        assert!(named.split(',').all(|host| host.ends_with("8002") || host.ends_with("8003")), "{named}");
    }
}

#[test]
fn a_subset_without_a_worker_that_may_be_chosen_falls_back() {
    for subset in ["10.0.0.1:1", "", "nonsense", "127.0.0.1:8001,nonsense"] {
        let host = host();
        host.set_request_header("x-subset", subset);
        assert_eq!(decision_on(&host, WISHES, PROMPT), "fallback reason=subset", "{subset}");
    }
}

#[test]
fn wishes_are_removed_and_mean_nothing_where_they_are_not_allowed() {
    let host = host();
    for name in ["x-subset", "x-session", "x-scale"] {
        host.set_request_header(name, "1");
    }
    host.set_request_header(":path", "/not/ours");
    let mut allowed = filter(&host, WISHES);
    Exchange::default().request_headers(&host, &mut allowed, true);
    for name in ["x-subset", "x-session", "x-scale"] {
        assert!(host.request_header(name).is_none(), "{name}");
    }
    let host = super::host();
    host.set_request_header("x-subset", "10.0.0.1:1");
    assert!(decision_on(&host, plain(), PROMPT).starts_with("steered"));
    assert!(host.request_header("x-subset").is_some(), "it is somebody else's header");
}

#[test]
fn a_session_keeps_its_worker_until_it_is_saturated_and_in_every_thread() {
    let host = cold_host(4);
    let (mut one, mut two) = (filter(&host, &by_load()), filter(&host, &by_load()));
    host.set_request_header("x-session", "alice");
    let (_, first) = send(&host, &mut one, &body(1, 0), 1 << 20);
    for own in 2..12 {
        host.set_request_header("x-session", "alice");
        let thread = if own % 2 == 0 { &mut two } else { &mut one };
        let (_, decision) = send(&host, thread, &body(own, 0), 1 << 20);
        assert_eq!(worker_of(&decision), worker_of(&first));
        let named = destination(&host).unwrap();
        assert_eq!(named.split(',').count(), 2, "another is named for a retry: {named}");
    }
    // More in hand than a session is worth waiting for.
    host.set_request_header("x-session", "alice");
    let (_, long) = send(&host, &mut one, &body(500, 70_000), 1 << 20);
    assert_eq!(worker_of(&long), worker_of(&first));
    host.set_request_header("x-session", "alice");
    let (_, moved) = send(&host, &mut one, &body(501, 0), 1 << 20);
    assert_ne!(worker_of(&moved), worker_of(&first));
    // It stays where it has gone.
    host.set_request_header("x-session", "alice");
    let (_, stays) = send(&host, &mut one, &body(502, 0), 1 << 20);
    assert_eq!(worker_of(&stays), worker_of(&moved));
}

#[test]
fn a_request_for_which_load_counts_for_nothing_goes_to_the_warm_worker_and_others_do_not() {
    let config = WISHES.replace(r#"{"name":"p"}"#, r#"{"name":"p","policy":{"name":"cost"}}"#);
    let config = config.replace(r#""recent_routes_ms":0"#, r#""recent_routes_ms":60000"#);
    let host = cold_host(2);
    let mut filter = filter(&host, &config);
    let (_busy, first) = send(&host, &mut filter, &body(1, 400), 1 << 20);
    host.set_request_header("x-scale", "0");
    let (_, patient) = send(&host, &mut filter, &body(2, 400), 1 << 20);
    assert_eq!(worker_of(&patient), worker_of(&first));
    let (_, ordinary) = send(&host, &mut filter, &body(3, 400), 1 << 20);
    assert_ne!(worker_of(&ordinary), worker_of(&first));
}
