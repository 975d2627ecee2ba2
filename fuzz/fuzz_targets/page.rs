//! A page from outside: whatever parses can be looked up in without a panic, and whatever verifies is complete: every
//! record is found, and writing the records again gives the same bytes.

#![no_main]

use libfuzzer_sys::fuzz_target;
use warmroute_routing::hash::SequenceHash;
use warmroute_routing::page::{Holder, Page, PageWriter};

/// The two bytes after the format version, which are written as zero and not read.
const UNREAD: std::ops::Range<usize> = 6..8;

fuzz_target!(|bytes: &[u8]| {
    let Ok(page) = Page::parse(bytes) else { return };
    // The filter looks into pages that it did not verify itself.
    for start in [0, 1 << 63, u64::MAX, page.header().version] {
        let _ = page.find(SequenceHash(start)).map(|record| record.holders.iter().count());
    }
    let records: Vec<(SequenceHash, bool, Vec<Holder>)> = page
        .records()
        .map(|(hash, record)| (hash, record.crowded, record.holders.iter().collect()))
        .collect();
    for (hash, ..) in &records {
        let _ = page.find(*hash).map(|record| record.holders.iter().count());
    }
    if page.verify().is_err() {
        return;
    }
    assert_eq!(records.len(), page.len());
    for (hash, crowded, holders) in &records {
        let found = page.find(*hash).expect("a record of a verified page is found");
        assert_eq!((found.crowded, found.holders.iter().collect::<Vec<_>>()), (*crowded, holders.clone()));
    }
    let mut writer = PageWriter::default();
    for (hash, crowded, holders) in records {
        if crowded { writer.crowded(hash, holders) } else { writer.record(hash, holders) }
    }
    let mut expected = bytes.to_vec();
    expected[UNREAD].fill(0);
    assert_eq!(writer.finish(page.header()), expected);
});
