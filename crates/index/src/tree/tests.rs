use super::*;

fn local(n: u64) -> LocalHash {
    LocalHash(n)
}

fn root(tree: &mut Tree, n: u64) -> BlockId {
    tree.root(local(n), Namespace::default()).unwrap()
}

fn child(tree: &mut Tree, parent: BlockId, n: u64) -> Option<BlockId> {
    tree.child(parent, |_| local(n))
}

/// A chain of `blocks` blocks from a prompt's start.
fn chain(tree: &mut Tree, blocks: usize) -> Vec<BlockId> {
    let mut chain = vec![root(tree, 1)];
    while chain.len() < blocks {
        chain.push(child(tree, chain[chain.len() - 1], 2).unwrap());
    }
    chain
}

#[test]
fn equal_chains_are_one_and_others_fork() {
    let mut tree = Tree::default();
    let first = root(&mut tree, 1);
    let left = child(&mut tree, first, 2).unwrap();
    let right = child(&mut tree, first, 3).unwrap();
    assert_eq!(root(&mut tree, 1), first);
    assert_eq!((child(&mut tree, first, 2), child(&mut tree, first, 3)), (Some(left), Some(right)));
    assert_eq!(
        (left.chunk(), tree.parent(left), tree.parent(right)),
        (first.chunk(), Some(first), Some(first))
    );
    assert_eq!(tree.children(first).collect::<Vec<_>>(), [right.chunk()]);
    assert_eq!((tree.len(), tree.capacity()), (3, 2 * PLACES));
}

#[test]
fn a_chunk_ends_with_its_run() {
    let mut tree = Tree::default();
    let blocks = chain(&mut tree, 40);
    assert_eq!((tree.len(), tree.capacity()), (40, 3 * PLACES));
    for (number, pair) in blocks.windows(2).enumerate() {
        assert_eq!(tree.parent(pair[1]), Some(pair[0]));
        assert_eq!(pair[0].chunk() == pair[1].chunk(), !(number + 1).is_multiple_of(PLACES));
        assert_eq!(tree.head(pair[1].chunk()), pair[1].chunk());
    }
}

#[test]
fn a_fork_keeps_its_places_in_the_run() {
    let mut tree = Tree::default();
    let blocks = chain(&mut tree, 16);
    let mut fork = blocks[4];
    for n in 0..12 {
        fork = child(&mut tree, fork, 100 + n).unwrap();
    }
    let head = blocks[0].chunk();
    assert_eq!((fork.place(), tree.head(fork.chunk())), (0, fork.chunk()), "a run of its own");
    let branch = tree.parent(fork).unwrap();
    assert_eq!((branch.place(), tree.head(branch.chunk())), (15, head));
    assert_eq!(tree.run(head).as_slice(), [head, branch.chunk()]);
}

#[test]
fn pruning_goes_up_to_the_first_block_that_is_needed() {
    let mut tree = Tree::default();
    let blocks = chain(&mut tree, 40);
    let fork = child(&mut tree, blocks[20], 9).unwrap();
    tree.prune(blocks[0].chunk());
    assert_eq!(tree.len(), 41, "a block with another below it stays");
    tree.prune(blocks[39].chunk());
    assert_eq!(tree.len(), 22, "up to where the fork hangs");
    tree.prune(blocks[39].chunk());
    tree.prune(fork.chunk());
    assert_eq!((tree.len(), tree.capacity()), (0, 4 * PLACES));
    chain(&mut tree, 64);
    assert_eq!((tree.len(), tree.capacity()), (64, 4 * PLACES));
}

#[test]
fn a_branch_that_came_later_is_found_where_the_first_one_is_gone() {
    let mut tree = Tree::default();
    let first = root(&mut tree, 1);
    let gone = child(&mut tree, first, 2).unwrap();
    let fork = child(&mut tree, first, 3).unwrap();
    tree.prune(gone.chunk());
    assert_eq!(tree.hash(gone), None);
    assert_eq!(child(&mut tree, first, 3), Some(fork));
    assert_eq!(child(&mut tree, first, 4), Some(gone), "its place is free");
    assert_eq!(child(&mut tree, first, 3), Some(fork));
}

#[test]
fn a_list_survives_taking_out_any_of_its_chunks() {
    for out in 0..3 {
        let mut tree = Tree::default();
        let ids: Vec<_> = (0..3).map(|n| root(&mut tree, n).chunk()).collect();
        let first = ids.iter().rev().fold(None, |first, id| tree.push_front(List::Page, first, *id));
        let first = tree.unlink(List::Page, first, ids[out]);
        let left: Vec<_> = ids.iter().copied().filter(|id| *id != ids[out]).collect();
        assert_eq!(tree.list(List::Page, first).collect::<Vec<_>>(), left);
    }
}

#[test]
fn colliding_hashes_make_no_cycle() {
    let mut tree = Tree::default();
    let first = root(&mut tree, 1);
    let later = child(&mut tree, first, 2).unwrap();
    // A feeder that tells local hashes can name a first block as a later one is named.
    let hash = tree.hash(later).unwrap();
    let same = root(&mut tree, hash.0);
    assert_eq!(tree.hash(same), tree.hash(later));
    assert_eq!((tree.parent(same), tree.parent(later)), (None, Some(first)));
}
