//! The frames around a payload, which vLLM, SGLang and TensorRT-LLM share.
//!
//! ```text
//! live                    topic  seq  payload
//! replay, old engines     ""     seq  payload
//! replay, new engines     ""     topic  seq  payload
//! end of a replay         ...    ff*8   ""
//! ```
//!
//! They differ in front, so they are read from the end. The sequence number is 8 bytes, big-endian, from 0 for each
//! start of the engine.

/// What a multipart message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// A batch of events.
    Batch {
        /// Its number.
        seq: u64,
        /// Its encoded events.
        payload: &'a [u8],
    },
    /// The end of a replay.
    End,
}

/// A multipart message that is none of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Too few frames.
    #[error("message has {0} frames: a sequence number and a payload are needed")]
    Count(usize),
    /// The frame before the payload is no number.
    #[error("message has a sequence number of {0} bytes, not 8")]
    Sequence(usize),
}

// === impl Message ===

impl<'a> Message<'a> {
    /// The number of the end marker: -1.
    const END: u64 = u64::MAX;

    /// Reads a message's frames.
    ///
    /// # Errors
    ///
    /// Fewer than two frames, or a sequence number that is not 8 bytes long.
    pub fn parse(frames: &'a [impl AsRef<[u8]>]) -> Result<Self, FrameError> {
        let [.., seq, payload] = frames else {
            return Err(FrameError::Count(frames.len()));
        };
        let seq = seq.as_ref();
        let number = <[u8; 8]>::try_from(seq).map_err(|_| FrameError::Sequence(seq.len()))?;
        Ok(match u64::from_be_bytes(number) {
            Self::END => Self::End,
            seq => Self::Batch { seq, payload: payload.as_ref() },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_live_and_both_replay_shapes_from_the_end() {
        let seq = 7_u64.to_be_bytes();
        let batch = Message::Batch { seq: 7, payload: b"xy" };
        assert_eq!(Message::parse(&[b"topic".as_slice(), &seq, b"xy"]), Ok(batch));
        assert_eq!(Message::parse(&[b"".as_slice(), &seq, b"xy"]), Ok(batch));
        assert_eq!(Message::parse(&[b"".as_slice(), b"topic", &seq, b"xy"]), Ok(batch));
    }

    #[test]
    fn the_end_marker_is_minus_one() {
        let end = [0xFF; 8];
        assert_eq!(Message::parse(&[b"".as_slice(), &end, b""]), Ok(Message::End));
        assert_eq!(Message::parse(&[b"".as_slice(), b"", &end, b""]), Ok(Message::End));
    }

    #[test]
    fn other_messages_are_refused() {
        assert_eq!(Message::parse(&[] as &[&[u8]]), Err(FrameError::Count(0)));
        assert_eq!(Message::parse(&[b"x"]), Err(FrameError::Count(1)));
        assert_eq!(Message::parse(&[b"topic".as_slice(), b"1234567", b""]), Err(FrameError::Sequence(7)));
    }
}
