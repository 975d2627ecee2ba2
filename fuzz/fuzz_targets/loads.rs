//! A report of load, as the collector takes it from whoever sends one, and the answer, as the publisher takes it: whatever
//! decodes is bounded, names each worker once, and reads the same when it is written again.

#![no_main]

use std::collections::BTreeSet;

use libfuzzer_sys::fuzz_target;
use warmroute_routing::loads::{FleetLoad, LoadReport, MAX_REPORT_BYTES, MAX_ROWS};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(report) = LoadReport::decode(bytes) {
        assert!(report.proxy != 0 && report.rows.len() <= MAX_ROWS);
        let workers: BTreeSet<_> = report.rows.iter().map(|(worker, _)| *worker).collect();
        assert_eq!(workers.len(), report.rows.len());
        let written = report.encode();
        assert!(written.len() <= MAX_REPORT_BYTES);
        assert_eq!(LoadReport::decode(&written).as_ref(), Ok(&report));
    }
    if let Ok(answer) = FleetLoad::decode(bytes) {
        let workers: BTreeSet<_> = answer.rows.iter().map(|row| row.worker).collect();
        assert_eq!(workers.len(), answer.rows.len());
        assert_eq!(FleetLoad::decode(&answer.encode()).as_ref(), Ok(&answer));
    }
});
