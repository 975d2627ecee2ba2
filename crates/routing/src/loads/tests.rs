use super::*;

fn worker(address: &str, rank: Option<u32>) -> WorkerKey {
    WorkerKey { address: address.parse().unwrap(), rank }
}

fn load(requests: u32) -> Load {
    Load { requests, prefill_tokens: u64::MAX - u64::from(requests), blocks: 300 }
}

fn report() -> LoadReport {
    let rows = vec![
        (worker("127.0.0.1:8001", Some(0)), load(3)),
        (worker("127.0.0.1:8001", None), load(u32::MAX)),
        (worker("[2001:db8::1]:8002", Some(u32::MAX)), load(0)),
    ];
    LoadReport { proxy: 7, position: 1 << 60, wait_ms: 1000, rows }
}

fn fleet() -> FleetLoad {
    let engine = EngineState { running: 5, waiting: 900, kv_permille: 1000, age_ms: 70, unbooked: load(1) };
    let rows = vec![
        FleetRow { worker: worker("127.0.0.1:8001", Some(0)), others: load(3), engine: Some(engine) },
        FleetRow { worker: worker("127.0.0.1:8002", None), others: load(3), engine: None },
        FleetRow { worker: worker("127.0.0.1:8003", Some(1)), others: Load::default(), engine: Some(engine) },
    ];
    FleetLoad { position: 9, rows }
}

#[test]
fn reads_what_it_wrote() {
    assert_eq!(LoadReport::decode(&report().encode()), Ok(report()));
    assert_eq!(FleetLoad::decode(&fleet().encode()), Ok(fleet()));
    let longest = LoadReport {
        rows: (0..MAX_ROWS as u32 + 1).map(|rank| (worker("[::1]:1", Some(rank)), load(u32::MAX))).collect(),
        ..report()
    };
    let bytes = longest.encode();
    assert!(bytes.len() <= MAX_REPORT_BYTES);
    assert_eq!(LoadReport::decode(&bytes).unwrap().rows.len(), MAX_ROWS);
}

#[test]
fn bytes_cut_anywhere_or_one_too_many_are_an_error() {
    let (mut report, mut fleet) = (report().encode(), fleet().encode());
    for cut in 0..report.len() {
        assert!(LoadReport::decode(&report[..cut]).is_err(), "report cut at {cut}");
    }
    for cut in 0..fleet.len() {
        assert!(FleetLoad::decode(&fleet[..cut]).is_err(), "answer cut at {cut}");
    }
    report.push(0);
    fleet.push(0);
    assert_eq!(LoadReport::decode(&report), Err(LoadsError::Length));
    assert_eq!(FleetLoad::decode(&fleet), Err(LoadsError::Length));
}

#[test]
fn refuses_another_version_too_many_rows_and_a_worker_twice() {
    let bytes = report().encode();
    let with = |at: usize, value: u16| {
        let mut bytes = bytes.clone();
        bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
        LoadReport::decode(&bytes).unwrap_err()
    };
    assert_eq!(with(4, 2), LoadsError::Version(2));
    assert_eq!(with(6, MAX_ROWS as u16 + 1), LoadsError::Field("number of rows"));
    assert_eq!(FleetLoad::decode(&bytes), Err(LoadsError::Magic));
    let mut twice = report();
    twice.rows[1].0 = twice.rows[0].0;
    assert_eq!(LoadReport::decode(&twice.encode()), Err(LoadsError::Field("worker that comes twice")));
}

#[test]
fn a_varint_that_says_more_than_64_bits_is_an_error() {
    let mut bytes = FleetLoad::default().encode();
    bytes[6] = 1;
    bytes.extend_from_slice(&[4, 127, 0, 0, 1, 0, 80]);
    bytes.extend_from_slice(&[0xFF; 9]);
    bytes.push(2);
    assert_eq!(FleetLoad::decode(&bytes), Err(LoadsError::Length));
}

#[test]
fn a_part_of_a_load_is_rounded_up_and_a_whole_is_all_of_it() {
    let load = Load { requests: 3, prefill_tokens: 100, blocks: u64::MAX };
    assert_eq!(load.part(4, 4), load);
    assert_eq!(load.part(1, 4), Load { requests: 1, prefill_tokens: 25, blocks: u64::MAX.div_ceil(4) });
    assert_eq!(load.part(0, 4), Load::default());
    assert!(load.minus(load).is_none());
    assert_eq!(load.plus(load), Load { requests: 6, prefill_tokens: 200, blocks: u64::MAX });
}
