//! A pool from outside: whatever decodes can be asked anything, and encodes to a pool that is equal.

#![no_main]

use libfuzzer_sys::fuzz_target;
use warmroute_routing::page::Slot;
use warmroute_routing::pool::Pool;

fuzz_target!(|bytes: &[u8]| {
    let Ok(pool) = Pool::decode(bytes) else { return };
    assert_ne!(pool.block_size, 0);
    for worker in &pool.workers {
        assert_eq!(pool.worker(worker.slot), Some(worker));
        assert!(pool.has_rank(worker.address, worker.rank));
    }
    let _ = (pool.worker(Slot::new(Slot::MAX).expect("the largest slot is one")), pool.has_ranks());
    for name in pool.base_models.iter().map(String::as_str).chain(["", "another"]) {
        let _ = pool.namespace(Some(name), Some(name));
    }
    // Not the same bytes: an address may be written in more than one way.
    assert_eq!(Pool::decode(&pool.encode()).as_ref(), Ok(&pool));
});
