use super::*;

const NONE: &[(u16, u32)] = &[];

fn worker(port: u16) -> WorkerKey {
    WorkerKey { address: ([10, 0, 0, 1], port).into(), rank: Some(0) }
}

fn load(requests: u32) -> Load {
    Load { requests, prefill_tokens: 100, blocks: 7 }
}

fn rows(loads: &[(u16, u32)]) -> Vec<(WorkerKey, Load)> {
    loads.iter().map(|(port, requests)| (worker(*port), load(*requests))).collect()
}

/// Reports and answers at once. The answer's requests by port, and its position.
fn exchange(books: &mut Books, proxy: u64, loads: &[(u16, u32)], now: Instant) -> (Vec<(u16, u32)>, u64) {
    let turn = books.report(proxy, rows(loads), now).unwrap();
    let answer = books.answer(proxy, turn.number, now).unwrap();
    let requests = answer.rows.iter().map(|row| (row.worker.address.port(), row.others.requests));
    (requests.collect(), answer.position)
}

#[test]
fn each_is_told_what_the_others_have_and_not_what_it_has_itself() {
    let (mut books, now) = (Books::new(100, 16), Instant::now());
    assert_eq!(exchange(&mut books, 1, &[(1, 3), (2, 5)], now).0, []);
    assert_eq!(exchange(&mut books, 2, &[(2, 1), (9, 4)], now).0, [(1, 3), (2, 5)]);
    assert_eq!(exchange(&mut books, 1, &[(2, 5)], now).0, [(2, 1), (9, 4)]);
    assert_eq!(exchange(&mut books, 3, NONE, now).0, [(2, 6), (9, 4)]);
    exchange(&mut books, 1, NONE, now);
    exchange(&mut books, 2, NONE, now);
    assert!(books.workers.is_empty() && books.rows_in_all == 0 && books.booked.is_none());
}

#[test]
fn news_is_what_others_change_and_what_an_earlier_life_did_not_tell() {
    let (mut books, now) = (Books::new(100, 16), Instant::now());
    assert!(books.has_news(1, 0) && books.has_news(1, 99) && books.has_news(1, u64::MAX));
    let (_, since) = exchange(&mut books, 1, &[(1, 3)], now);
    assert!(!books.has_news(1, since));
    exchange(&mut books, 1, &[(1, 4)], now);
    assert!(!books.has_news(1, since), "its own change is no news to it");
    exchange(&mut books, 2, NONE, now);
    let (_, since) = exchange(&mut books, 1, &[(1, 4)], now);
    exchange(&mut books, 2, NONE, now);
    assert!(!books.has_news(1, since), "the same report again is no news");
    exchange(&mut books, 2, &[(1, 1)], now);
    exchange(&mut books, 1, NONE, now);
    assert!(books.has_news(1, since), "another's change before its own is");
}

#[test]
fn only_the_last_report_of_a_proxy_is_answered_and_not_too_often() {
    let (mut books, now) = (Books::new(100, 16), Instant::now());
    let first = books.report(1, rows(&[(1, 3)]), now).unwrap();
    assert_eq!(first.not_before, now);
    let second = books.report(1, rows(&[(1, 4)]), now).unwrap();
    assert!(books.is_superseded(1, first.number) && books.answer(1, first.number, now).is_none());
    assert!(books.answer(1, second.number, now).is_some());
    let third = books.report(1, rows(&[(1, 5)]), now + PACE / 2).unwrap();
    assert_eq!(third.not_before, now + PACE);
}

#[test]
fn a_proxy_that_is_not_heard_loses_its_say_by_quarters_and_is_forgotten() {
    let (mut books, now) = (Books::new(100, 16), Instant::now());
    exchange(&mut books, 1, &[(1, 8)], now);
    let (told, mut since) = exchange(&mut books, 2, NONE, now);
    assert_eq!(told, [(1, 8)]);
    for (age_ms, requests) in [(1_499, 8), (1_500, 6), (2_000, 4), (2_500, 2)] {
        let (told, position) = exchange(&mut books, 2, NONE, now + Duration::from_millis(age_ms));
        assert_eq!(told, [(1, requests)], "after {age_ms} ms");
        assert_eq!(position > since, requests != 8);
        since = position;
    }
    assert_eq!(exchange(&mut books, 2, NONE, now + Duration::from_millis(3_000)).0, []);
    assert_eq!((books.proxies.len(), books.rows_in_all), (1, 0));
    // It comes back.
    let later = now + Duration::from_millis(3_100);
    exchange(&mut books, 1, &[(1, 2)], later);
    assert_eq!(exchange(&mut books, 2, NONE, later).0, [(1, 2)]);
}

#[test]
fn what_is_kept_is_bounded() {
    let (mut books, now) = (Books::new(100, 16), Instant::now());
    for proxy in 1..=MAX_PROXIES as u64 {
        books.report(proxy, rows(&[(1, 1)]), now).unwrap();
    }
    assert_eq!(books.report(5_000, vec![], now).unwrap_err(), TooMany);
    assert!(books.report(7, vec![], now).is_ok(), "who is known already may go on");
    // Those who are gone make room.
    assert!(books.report(5_000, vec![], now + Duration::from_secs(3)).is_ok());
    assert_eq!(books.proxies.len(), 1);
}

/// Says what an engine has running and waiting; what of it nobody booked.
fn says(books: &mut Books, running: u32, waiting: u32, now: Instant) -> Load {
    books.engine(worker(1), Gauges { running, waiting, kv_permille: 250 }, now)
}

#[test]
fn what_an_engine_has_that_nobody_booked_counts_once_two_looks_agree() {
    let (mut books, now) = (Books::new(100, 16), Instant::now());
    exchange(&mut books, 1, &[(1, 3), (2, 1)], now);
    assert_eq!(says(&mut books, 3, 5, now).requests, 0, "one look proves nothing");
    // 7 blocks for 3 requests and 7 for 1: 3 each.
    let unbooked = Load { requests: 4, prefill_tokens: 3 * 3 * 16, blocks: 12 };
    assert_eq!(says(&mut books, 4, 3, now), unbooked, "the smaller of 5 and 4, of which 3 wait");
    let turn = books.report(2, vec![], now).unwrap();
    let answer = books.answer(2, turn.number, now + Duration::from_millis(70)).unwrap();
    let state = EngineState { running: 4, waiting: 3, kv_permille: 250, age_ms: 70, unbooked };
    assert_eq!((answer.rows[0].others, answer.rows[0].engine), (load(3), Some(state)));
    // Somebody reports them after all.
    exchange(&mut books, 2, &[(1, 4)], now);
    assert!(says(&mut books, 4, 3, now).is_none());
}

#[test]
fn a_change_of_what_nobody_booked_is_news_to_everyone_and_the_rest_is_not() {
    let (mut books, now) = (Books::new(100, 16), Instant::now());
    let (_, since) = exchange(&mut books, 1, NONE, now);
    says(&mut books, 2, 0, now);
    assert!(!books.has_news(1, since));
    assert_eq!(says(&mut books, 1, 1, now).blocks, 2 * TYPICAL_BLOCKS);
    assert!(books.has_news(1, since));
    let turn = books.report(1, vec![], now).unwrap();
    let since = books.answer(1, turn.number, now).unwrap().position;
    says(&mut books, 2, 0, now);
    assert!(!books.has_news(1, since));
}

#[test]
fn an_engine_that_is_silent_is_forgotten_and_begins_anew() {
    let (mut books, now) = (Books::new(100, 16), Instant::now());
    says(&mut books, 5, 0, now);
    assert_eq!(says(&mut books, 5, 0, now).requests, 5);
    let later = now + Duration::from_secs(4);
    let turn = books.report(1, vec![], later).unwrap();
    assert_eq!(books.answer(1, turn.number, later).unwrap().rows, []);
    assert!(says(&mut books, 5, 0, later).is_none());
}

#[test]
fn a_rank_is_not_blamed_for_what_went_to_its_endpoint_without_one() {
    let (mut books, now) = (Books::new(100, 16), Instant::now());
    let unnamed = WorkerKey { rank: None, ..worker(1) };
    let other_rank = WorkerKey { rank: Some(1), ..worker(1) };
    books.report(1, vec![(worker(1), load(2)), (unnamed, load(3)), (other_rank, load(9))], now).unwrap();
    assert_eq!(
        (books.booked_to(worker(1)), books.booked_to(unnamed), books.booked_to(worker(2))),
        (5, 14, 0)
    );
}
