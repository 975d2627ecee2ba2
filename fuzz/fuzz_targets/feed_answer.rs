//! A feed answer from outside, as the publisher takes it: whatever decodes is whole, of one generation, and reads the
//! same when it is written again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use warmroute_routing::feed::{Answer, AnswerWriter, Request};
use warmroute_routing::page::Page;
use warmroute_routing::pool::Pool;

fuzz_target!(|bytes: &[u8]| {
    // The collector reads the other direction, a query, from whoever asks.
    if let Ok(text) = str::from_utf8(bytes)
        && let Ok(request) = Request::parse_query(text)
    {
        let path = request.path("pool");
        let (_, query) = path.split_once('?').expect("the path has a query");
        assert_eq!(Request::parse_query(query), Ok(request));
    }

    let Ok(answer) = Answer::decode(bytes) else { return };
    assert_eq!(Pool::decode(answer.pool_bytes).as_ref(), Ok(&answer.pool));
    assert_eq!(answer.cursor.generation, answer.pool.generation);
    let _ = answer.cursor.is_complete(answer.pool.page_bits);
    let mut writer = AnswerWriter::new(&answer.pool);
    for (page, stored) in &answer.pages {
        assert_eq!(page.header().generation, answer.pool.generation);
        assert!(page.header().number < answer.pool.page_bits.page_count());
        assert_eq!(Page::parse(stored).and_then(|page| page.verify()), Ok(()));
        writer.page(stored);
    }
    let written = writer.finish(answer.cursor);
    let again = Answer::decode(&written).expect("what was read can be written");
    assert_eq!((again.cursor, &again.pool), (answer.cursor, &answer.pool));
    assert!(again.pages.iter().map(|(_, bytes)| bytes).eq(answer.pages.iter().map(|(_, bytes)| bytes)));
});
