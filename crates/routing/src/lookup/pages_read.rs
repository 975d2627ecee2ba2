//! The pages that one call has read.

use smallvec::SmallVec;

use super::{PageStore, Scope};
use crate::hash::SequenceHash;
use crate::page::{Page, PageCuts, RUN_BLOCKS, Record};

/// The pages that were read in a call. What was not there stays so until the call ends.
pub(super) struct PagesRead<B> {
    pages: SmallVec<[Read<B>; 12]>,
    /// The blocks that were asked for: a lookup comes back to some of them.
    asked: SmallVec<[Asked; 16]>,
}

struct Read<B> {
    number: u32,
    bytes: Option<B>,
    /// Where its parts are; none if it counts as absent.
    cuts: Option<PageCuts>,
}

#[derive(Clone, Copy)]
struct Asked {
    block: u32,
    /// The place of its page among those read, and of its record in the page.
    found: Option<(usize, usize)>,
}

/// The reads are used up.
pub(super) struct Capped;

// === impl PagesRead ===

impl<B> Default for PagesRead<B> {
    fn default() -> Self {
        Self { pages: SmallVec::new(), asked: SmallVec::new() }
    }
}

impl<B: AsRef<[u8]>> PagesRead<B> {
    /// What is told of a block, in the page of its run or, if the run is crowded, in its own.
    pub(super) fn record<S: PageStore<Bytes = B>, L>(
        &mut self,
        scope: &mut Scope<'_, S, L>,
        reads: &mut u32,
        hashes: &[SequenceHash],
        block: u32,
    ) -> Result<Option<Record<'_>>, Capped> {
        let known = self.asked.iter().find(|asked| asked.block == block);
        let found = match known {
            Some(asked) => asked.found,
            None => {
                let found = self.find(scope, reads, hashes, block)?;
                self.asked.push(Asked { block, found });
                found
            }
        };
        Ok(found.and_then(|(page, record)| self.page(page)?.record(record)))
    }

    fn find<S: PageStore<Bytes = B>, L>(
        &mut self,
        scope: &mut Scope<'_, S, L>,
        reads: &mut u32,
        hashes: &[SequenceHash],
        block: u32,
    ) -> Result<Option<(usize, usize)>, Capped> {
        let place = block % RUN_BLOCKS;
        let (Some(hash), Some(head)) = (hashes.get(block as usize), hashes.get((block - place) as usize))
        else {
            return Ok(None);
        };
        let bits = scope.shape.page_bits;
        let of_run = self.read(scope, reads, bits.page_of(*head))?;
        let Some(page) = self.page(of_run) else { return Ok(None) };
        if let Some(record) = page.locate(*hash) {
            return Ok(Some((of_run, record)));
        }
        // Most often it is there, so the head's record is asked only where it is not.
        if place == 0 || !page.find(*head).is_some_and(|head| head.crowded) {
            return Ok(None);
        }
        let own = self.read(scope, reads, bits.page_of(*hash))?;
        Ok(self.page(own).and_then(|page| Some((own, page.locate(*hash)?))))
    }

    /// Reads a page, unless that was done before; returns its place in the list.
    fn read<S: PageStore<Bytes = B>, L>(
        &mut self,
        scope: &mut Scope<'_, S, L>,
        reads: &mut u32,
        number: u32,
    ) -> Result<usize, Capped> {
        if let Some(place) = self.pages.iter().position(|read| read.number == number) {
            return Ok(place);
        }
        // The first page is read whatever the cap is.
        if *reads > 0 && *reads >= scope.max_reads {
            return Err(Capped);
        }
        *reads += 1;
        let bytes = scope.store.read(number);
        let page = bytes.as_ref().and_then(|bytes| Page::parse(bytes.as_ref()).ok());
        let counts = |page: &Page<'_>| {
            let header = page.header();
            header.generation == scope.shape.generation && header.number == number
        };
        let cuts = page.filter(counts).map(|page| page.cuts());
        self.pages.push(Read { number, bytes, cuts });
        Ok(self.pages.len() - 1)
    }

    fn page(&self, place: usize) -> Option<Page<'_>> {
        let read = self.pages.get(place)?;
        Page::at_cuts(read.bytes.as_ref()?.as_ref(), read.cuts?)
    }
}
