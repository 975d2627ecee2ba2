//! A request's headers, all at once: one call into the host, where each header alone would be a call of its own.

/// Headers as the host hands them over. Names are in lower case; values are any bytes.
///
/// ```text
/// u32 n | n x (u32 length of the name, u32 length of the value) | n x (name, 0, value, 0)      little-endian
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers(Vec<u8>);

// === impl Headers ===

impl Headers {
    /// Takes over the host's bytes. What is cut is as not there.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// A header's value; of a repeated header, the first.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.iter().find(|(known, _)| *known == name.as_bytes()).map(|(_, value)| value)
    }

    fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let (count, rest) = self.0.split_first_chunk().unwrap_or((&[0; 4], &[]));
        let count = u32::from_le_bytes(*count) as usize;
        let (lengths, mut rest) = rest.split_at_checked(count.saturating_mul(8)).unwrap_or_default();
        let (lengths, _) = lengths.as_chunks::<4>();
        let (pairs, _) = lengths.as_chunks::<2>();
        pairs.iter().map_while(move |lengths| {
            let [name, value] = lengths.map(u32::from_le_bytes);
            Some((take(&mut rest, name)?, take(&mut rest, value)?))
        })
    }
}

/// So many bytes, and the zero behind them.
fn take<'a>(rest: &mut &'a [u8], len: u32) -> Option<&'a [u8]> {
    let (taken, after) = rest.split_at_checked(len as usize)?;
    *rest = after.get(1..)?;
    Some(taken)
}

#[cfg(test)]
impl<'a> FromIterator<(&'a str, &'a [u8])> for Headers {
    /// What the host would hand over.
    fn from_iter<T: IntoIterator<Item = (&'a str, &'a [u8])>>(headers: T) -> Self {
        let headers: Vec<_> = headers.into_iter().collect();
        let mut bytes = (headers.len() as u32).to_le_bytes().to_vec();
        for (name, value) in &headers {
            bytes.extend_from_slice(&(name.len() as u32).to_le_bytes());
            bytes.extend_from_slice(&(value.len() as u32).to_le_bytes());
        }
        for (name, value) in headers {
            for part in [name.as_bytes(), value] {
                bytes.extend_from_slice(part);
                bytes.push(0);
            }
        }
        Self(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_first_of_a_name_whatever_bytes_it_has() {
        let headers: Headers = [(":path", &b"/v1"[..]), ("x", b"\xff\x00"), ("x", b"second"), ("empty", b"")]
            .into_iter()
            .collect();
        assert_eq!(headers.get(":path"), Some(&b"/v1"[..]));
        assert_eq!(headers.get("x"), Some(&b"\xff\x00"[..]));
        assert_eq!(headers.get("empty"), Some(&b""[..]));
        assert_eq!(headers.get("absent"), None);
        assert_eq!(headers.get(""), None);
    }

    #[test]
    fn what_is_cut_is_as_not_there() {
        let headers: Headers = [("a", &b"1"[..]), ("b", b"2")].into_iter().collect();
        for cut in 0..headers.0.len() {
            let cut = Headers::new(headers.0[..cut].to_vec());
            assert_eq!(cut.get("b"), None);
        }
        assert_eq!(Headers::new(u32::MAX.to_le_bytes().to_vec()).get("a"), None);
    }
}
