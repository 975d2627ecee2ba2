//! The cache's rules, one test each.

use super::*;

fn cache(num_blocks: usize) -> BlockCache {
    BlockCache::new(NonZeroUsize::new(4).unwrap(), num_blocks, 1)
}

fn prompt(first: u32, len: u32) -> Sequence {
    Sequence::new(Namespace::default(), (first..first + len).collect())
}

/// Admits, takes the events, releases.
fn run(cache: &mut BlockCache, mut sequence: Sequence) -> (usize, Vec<CacheEvent>) {
    let cached_tokens = cache.admit(&mut sequence).unwrap();
    let events = cache.take_events();
    cache.release(&mut sequence);
    (cached_tokens, events)
}

fn stored(events: &[CacheEvent]) -> Vec<&StoredBlocks> {
    events
        .iter()
        .filter_map(|event| if let CacheEvent::Stored(blocks) = event { Some(blocks) } else { None })
        .collect()
}

fn removed(events: &[CacheEvent]) -> Vec<BlockHash> {
    events
        .iter()
        .filter_map(|event| if let CacheEvent::Removed(hash) = event { Some(*hash) } else { None })
        .collect()
}

#[test]
fn stores_full_blocks_in_one_event_and_leaves_the_partial_one_out() {
    let mut cache = cache(8);
    let (cached_tokens, events) = run(&mut cache, prompt(0, 11));
    assert_eq!(cached_tokens, 0);
    let [blocks] = stored(&events)[..] else { panic!("one store expected: {events:?}") };
    assert_eq!(blocks.hashes.len(), 2);
    assert_eq!(blocks.tokens, (0..8).collect::<Vec<_>>());
    assert_eq!(blocks.parent, None);
}

#[test]
fn a_prompt_under_one_block_gives_no_event() {
    assert_eq!(run(&mut cache(8), prompt(0, 3)), (0, vec![]));
}

#[test]
fn a_hit_gives_no_event_and_a_longer_prompt_names_the_parent() {
    let mut cache = cache(8);
    let (_, first) = run(&mut cache, prompt(0, 9));
    assert_eq!(run(&mut cache, prompt(0, 9)), (8, vec![]));
    let (cached_tokens, events) = run(&mut cache, prompt(0, 13));
    assert_eq!(cached_tokens, 8);
    assert_eq!(stored(&events)[0].parent, stored(&first)[0].hashes.last().copied());
}

#[test]
fn a_fully_cached_prompt_computes_its_last_block_again() {
    let mut cache = cache(8);
    let (_, first) = run(&mut cache, prompt(0, 8));
    let (cached_tokens, second) = run(&mut cache, prompt(0, 8));
    assert_eq!(cached_tokens, 4, "at least one token must be computed");
    assert_eq!(stored(&second)[0].hashes, stored(&first)[0].hashes[1..], "the same hash is stored twice");
    // Both copies go, one event each.
    let last = stored(&first)[0].hashes[1];
    let (_, third) = run(&mut cache, prompt(100, 32));
    assert_eq!(removed(&third).iter().filter(|hash| **hash == last).count(), 2);
}

#[test]
fn evicts_the_oldest_request_first_and_its_tail_before_its_head() {
    let mut cache = cache(4);
    let (_, first) = run(&mut cache, prompt(0, 8));
    let (_, second) = run(&mut cache, prompt(100, 8));
    let (_, third) = run(&mut cache, prompt(200, 12));
    let [first, second] = [&stored(&first)[0].hashes, &stored(&second)[0].hashes];
    assert_eq!(removed(&third), vec![first[1], first[0], second[1]]);
    assert!(matches!(third.last(), Some(CacheEvent::Stored(_))), "removals come before the store");
}

#[test]
fn shared_blocks_stay_until_their_last_holder_leaves() {
    let mut cache = cache(4);
    let (mut one, mut two) = (prompt(0, 9), prompt(0, 9));
    cache.admit(&mut one).unwrap();
    assert_eq!(cache.admit(&mut two), Ok(8));
    assert_eq!(cache.held_blocks(), 4, "two shared, one partial block each");
    cache.release(&mut one);
    assert_eq!(cache.held_blocks(), 3);
    assert_eq!(cache.admit(&mut prompt(100, 5)), Err(NoRoom));
    cache.release(&mut two);
    assert_eq!(cache.held_blocks(), 0);
}

#[test]
fn hits_in_the_free_queue_are_no_room() {
    let mut cache = cache(4);
    run(&mut cache, prompt(0, 16));
    let mut longer = prompt(0, 17);
    assert_eq!(cache.admit(&mut longer), Err(NoRoom));
    assert_eq!((longer.held_blocks(), cache.take_events()), (0, vec![]));
}

#[test]
fn salt_and_adapter_keep_prompts_apart() {
    let mut cache = cache(16);
    let lora = Some(Lora { id: 1, name: "ad1".into() });
    let salted = Namespace { lora: lora.clone(), salt: Some("tenant".into()) };
    run(&mut cache, prompt(0, 9));
    let (cached_tokens, events) = run(&mut cache, Sequence::new(salted.clone(), (0..9).collect()));
    assert_eq!(cached_tokens, 0);
    let keys = vec![vec!["ad1".into(), "tenant".into()], vec!["ad1".into()]];
    assert_eq!(stored(&events)[0].extra_keys, keys);
    let (cached_tokens, _) = run(&mut cache, Sequence::new(Namespace { lora, salt: None }, (0..9).collect()));
    assert_eq!(cached_tokens, 0);
    let (cached_tokens, _) = run(&mut cache, Sequence::new(salted, (0..9).collect()));
    assert_eq!(cached_tokens, 8);
}

#[test]
fn generated_tokens_fill_blocks() {
    let mut cache = cache(4);
    let mut sequence = prompt(0, 6);
    cache.admit(&mut sequence).unwrap();
    cache.take_events();
    cache.append(&mut sequence, 70).unwrap();
    assert_eq!(cache.take_events(), vec![]);
    cache.append(&mut sequence, 71).unwrap();
    let events = cache.take_events();
    assert_eq!(stored(&events)[0].tokens, vec![4, 5, 70, 71]);
    assert!(stored(&events)[0].parent.is_some());
}

#[test]
fn reset_fails_while_blocks_are_held() {
    let mut cache = cache(4);
    let mut sequence = prompt(0, 9);
    cache.admit(&mut sequence).unwrap();
    assert_eq!(cache.reset(), Err(InUse));
    cache.release(&mut sequence);
    cache.take_events();
    assert_eq!(cache.reset(), Ok(()));
    assert_eq!(cache.take_events(), vec![CacheEvent::Cleared]);
    assert_eq!(run(&mut cache, prompt(0, 9)).0, 0);
}

/// The shape of a run against a real vLLM 0.32.0 (20 blocks of 32 tokens, of which it keeps one for itself): for each
/// request the prompt's namespace and length, the tokens that it generates, and the blocks that the engine announced as
/// stored and removed.
#[test]
fn stores_and_removes_what_a_recorded_vllm_did() {
    let mut cache = BlockCache::new(NonZeroUsize::new(32).unwrap(), 19, 1);
    let salted = Namespace { lora: None, salt: Some("tenant-7".into()) };
    let plain = Namespace::default;
    let a: Vec<u32> = (0..100).collect();
    let b: Vec<u32> = (0..64).chain(1000..1080).collect();
    let fresh = |first: u32, len: u32| (first..first + len).collect::<Vec<_>>();
    let script = [
        ("A", plain(), a.clone(), 1, (3, 0)),
        ("A again", plain(), a.clone(), 1, (0, 0)),
        ("B", plain(), b, 40, (3, 0)),
        ("C, first prompt", plain(), fresh(2000, 40), 1, (1, 0)),
        ("C, second prompt", plain(), fresh(2100, 70), 1, (2, 0)),
        ("A with salt", salted, a.clone(), 1, (3, 0)),
        ("D, under one block", plain(), fresh(2200, 20), 1, (0, 0)),
        ("F", plain(), fresh(2300, 56), 2, (1, 0)),
        ("G0", plain(), fresh(3000, 200), 1, (6, 1)),
        ("G1", plain(), fresh(4000, 200), 1, (6, 6)),
        ("G2", plain(), fresh(5000, 200), 1, (6, 6)),
        ("G3", plain(), fresh(6000, 200), 1, (6, 6)),
    ];
    for (name, namespace, tokens, generated, (stores, removes)) in script {
        let mut sequence = Sequence::new(namespace, tokens);
        cache.admit(&mut sequence).unwrap();
        for token in 1..generated {
            cache.append(&mut sequence, 9000 + token).unwrap();
        }
        cache.release(&mut sequence);
        let events = cache.take_events();
        let stored: usize = stored(&events).iter().map(|blocks| blocks.hashes.len()).sum();
        assert_eq!((stored, removed(&events).len()), (stores, removes), "{name}");
    }
}
