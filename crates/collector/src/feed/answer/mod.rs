//! Answers, from the index as it is.

use warmroute_index::Index;
use warmroute_routing::feed::{AnswerWriter, Cursor, Request};
use warmroute_routing::page::Page;
use warmroute_routing::pool::Pool;

/// The most bytes of pages in one answer, whatever the publisher takes.
const MAX_ANSWER_BYTES: usize = 8 << 20;
/// The fewest bytes that a page has: bounds how many pages an answer can hold.
const LEAST_PAGE_BYTES: usize = 32;

/// An answer, encoded.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Pages in it.
    pub pages: u32,
    /// What it holds.
    pub kind: AnswerKind,
}

/// What an answer holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerKind {
    /// A part of a full copy.
    Copy,
    /// Pages that changed.
    Changes,
    /// The pool only.
    Unchanged,
}

/// An answer being written.
struct Draft<'a> {
    index: &'a mut Index,
    writer: AnswerWriter,
    pages: u32,
    most_bytes: usize,
}

/// The answer has no room for another page.
struct Full;

/// Answers a request. `pool` is what is published of the pool now.
pub(crate) fn answer(index: &mut Index, pool: &Pool, request: &Request) -> Answer {
    let start = Cursor { generation: index.generation(), position: index.version(), next_page: 0 };
    let mut cursor = request.cursor;
    // A position ahead of the index is no position of this generation.
    if cursor.generation != start.generation || cursor.position > start.position {
        cursor = start;
    }
    let is_copy = !cursor.is_complete(pool.page_bits);
    let most_bytes = MAX_ANSWER_BYTES.min(request.max_bytes as usize);
    let mut draft = Draft { index, writer: AnswerWriter::new(pool), pages: 0, most_bytes };
    if is_copy {
        draft.copy(&mut cursor, pool.page_bits.page_count());
    } else {
        draft.changes(&mut cursor);
    }
    cursor.next_page = cursor.next_page.min(pool.page_bits.page_count());
    let kind = match draft.pages {
        _ if is_copy => AnswerKind::Copy,
        0 => AnswerKind::Unchanged,
        _ => AnswerKind::Changes,
    };
    Answer { pages: draft.pages, bytes: draft.writer.finish(cursor), kind }
}

// === impl Draft ===

impl Draft<'_> {
    /// Adds pages of a full copy, in the order of their numbers, without those that are empty.
    fn copy(&mut self, cursor: &mut Cursor, page_count: u32) {
        while cursor.next_page < page_count {
            let number = cursor.next_page;
            if self.index.page_version(number) > 0 {
                let page = self.index.page(number);
                let is_empty = Page::parse(&page).is_ok_and(|page| page.is_empty());
                if !is_empty && self.add(&page).is_err() {
                    return;
                }
            }
            cursor.next_page += 1;
        }
    }

    /// Adds pages that changed after the position, the oldest change first.
    fn changes(&mut self, cursor: &mut Cursor) {
        let most_pages = self.most_bytes / LEAST_PAGE_BYTES + 1;
        let changed: Vec<_> = self.index.changed_since(cursor.position).take(most_pages).collect();
        let is_all = changed.len() < most_pages;
        for (version, number) in changed {
            let page = self.index.page(number);
            if self.add(&page).is_err() {
                return;
            }
            cursor.position = version;
        }
        if is_all {
            // The worker table's last change may be newer than any page's.
            cursor.position = self.index.version();
        }
    }

    /// Adds a page. The first has room always, or a page larger than the bound would never be sent.
    fn add(&mut self, page: &[u8]) -> Result<(), Full> {
        if self.pages > 0 && self.writer.page_bytes() + page.len() > self.most_bytes {
            return Err(Full);
        }
        self.writer.page(page);
        self.pages += 1;
        Ok(())
    }
}

// === impl AnswerKind ===

impl AnswerKind {
    /// The kind's name in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Copy => "copy",
            Self::Changes => "changes",
            Self::Unchanged => "unchanged",
        }
    }
}

#[cfg(test)]
mod tests;
