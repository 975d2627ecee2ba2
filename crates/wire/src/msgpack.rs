//! Finds values in msgpack without reading them: so one damaged event costs only itself.
//!
//! The cursor goes forward only and keeps no stack, so no nesting, however deep, can exhaust anything.

/// A place in msgpack bytes.
#[derive(Clone, Debug)]
pub(crate) struct Cursor<'a> {
    rest: &'a [u8],
}

/// The bytes end inside a value, or a byte is no msgpack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Damaged;

/// What a value begins with.
enum Head {
    /// So many bytes of content follow.
    Bytes(usize),
    /// So many values follow.
    Values(u64),
}

// === impl Cursor ===

impl<'a> Cursor<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The bytes of the next value, which is stepped over.
    pub(crate) fn value(&mut self) -> Result<&'a [u8], Damaged> {
        let whole = self.rest;
        // Each value takes at least a byte, so a promise of many values ends with the bytes.
        let mut missing = 1_u64;
        while missing > 0 {
            missing -= 1;
            match self.head()? {
                Head::Bytes(len) => drop(self.take(len)?),
                Head::Values(count) => missing = missing.saturating_add(count),
            }
        }
        whole.get(..whole.len() - self.rest.len()).ok_or(Damaged)
    }

    /// Enters an array: how many values follow. `None`, and nothing is stepped over, where the next value is none.
    pub(crate) fn array(&mut self) -> Result<Option<u32>, Damaged> {
        let Some(&marker) = self.rest.first() else { return Err(Damaged) };
        match marker {
            0x90..=0x9F | 0xDC | 0xDD => match self.head()? {
                Head::Values(count) => Ok(u32::try_from(count).ok()),
                Head::Bytes(_) => Ok(None),
            },
            _ => Ok(None),
        }
    }

    /// Enters a map: how many pairs follow. `None`, and nothing is stepped over, where the next value is none.
    pub(crate) fn map(&mut self) -> Result<Option<u32>, Damaged> {
        let Some(&marker) = self.rest.first() else { return Err(Damaged) };
        match marker {
            0x80..=0x8F | 0xDE | 0xDF => match self.head()? {
                Head::Values(count) => Ok(u32::try_from(count / 2).ok()),
                Head::Bytes(_) => Ok(None),
            },
            _ => Ok(None),
        }
    }

    /// Steps over the next value; its text, if it is one.
    pub(crate) fn text(&mut self) -> Result<Option<&'a str>, Damaged> {
        let Some(&marker) = self.rest.first() else { return Err(Damaged) };
        if !matches!(marker, 0xA0..=0xBF | 0xD9..=0xDB) {
            self.value()?;
            return Ok(None);
        }
        match self.head()? {
            Head::Bytes(len) => Ok(std::str::from_utf8(self.take(len)?).ok()),
            Head::Values(_) => Ok(None),
        }
    }

    fn head(&mut self) -> Result<Head, Damaged> {
        let marker = self.number(1)? as u8;
        let content = |len: u64| usize::try_from(len).map(Head::Bytes).map_err(|_| Damaged);
        match marker {
            0x00..=0x7F | 0xE0..=0xFF | 0xC0 | 0xC2 | 0xC3 => Ok(Head::Bytes(0)),
            0x80..=0x8F => Ok(Head::Values(u64::from(marker & 0x0F) * 2)),
            0x90..=0x9F => Ok(Head::Values(u64::from(marker & 0x0F))),
            0xA0..=0xBF => Ok(Head::Bytes(usize::from(marker & 0x1F))),
            0xC1 => Err(Damaged),
            // Binary and text: the length in 1, 2 or 4 bytes.
            0xC4 | 0xD9 => content(self.number(1)?),
            0xC5 | 0xDA => content(self.number(2)?),
            0xC6 | 0xDB => content(self.number(4)?),
            // Extensions: the same, and a type's byte.
            0xC7 => content(self.number(1)? + 1),
            0xC8 => content(self.number(2)? + 1),
            0xC9 => content(self.number(4)? + 1),
            0xD4..=0xD8 => Ok(Head::Bytes((1 << (marker - 0xD4)) + 1)),
            // Numbers of 1, 2, 4 and 8 bytes; floats of 4 and 8.
            0xCC | 0xD0 => Ok(Head::Bytes(1)),
            0xCD | 0xD1 => Ok(Head::Bytes(2)),
            0xCE | 0xD2 | 0xCA => Ok(Head::Bytes(4)),
            0xCF | 0xD3 | 0xCB => Ok(Head::Bytes(8)),
            0xDC => Ok(Head::Values(self.number(2)?)),
            0xDD => Ok(Head::Values(self.number(4)?)),
            0xDE => Ok(Head::Values(self.number(2)? * 2)),
            0xDF => Ok(Head::Values(self.number(4)? * 2)),
        }
    }

    fn number(&mut self, bytes: usize) -> Result<u64, Damaged> {
        Ok(self.take(bytes)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], Damaged> {
        let (head, rest) = self.rest.split_at_checked(len).ok_or(Damaged)?;
        self.rest = rest;
        Ok(head)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn steps_over_a_value_of_every_kind() {
        let values: &[&[u8]] = &[
            &[0x05],
            &[0xC0],
            &[0xE1],
            &[0xCF, 0, 0, 0, 0, 0, 0, 0, 1],
            &[0xCB, 0, 0, 0, 0, 0, 0, 0, 1],
            &[0xA2, b'h', b'i'],
            &[0xC4, 2, 1, 2],
            &[0xD5, 9, 1, 2],
            &[0xC7, 1, 9, 1],
            &[0x82, 0xA1, b'a', 0x01, 0xA1, b'b', 0x91, 0xC0],
            &[0xDC, 0, 2, 1, 2],
            &[0xDF, 0, 0, 0, 1, 1, 2],
        ];
        let all = values.concat();
        let mut cursor = Cursor::new(&all);
        for value in values {
            assert_eq!(cursor.value(), Ok(*value));
        }
        assert_eq!(cursor.value(), Err(Damaged));
    }

    #[test]
    fn a_deep_nest_and_an_empty_promise_end() {
        let nest = vec![0x91; 1_000_000];
        assert_eq!(Cursor::new(&nest).value(), Err(Damaged));
        assert_eq!(Cursor::new(&[0xDF, 0xFF, 0xFF, 0xFF, 0xFF]).value(), Err(Damaged));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let mut cursor = Cursor::new(&bytes);
            let _ = cursor.array();
            let _ = cursor.map();
            let _ = cursor.text();
            while cursor.value().is_ok() {}
        }
    }
}
