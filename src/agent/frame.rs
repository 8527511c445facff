//! Frames on the byte pipe: a banner may come first, then a magic word, then `length: u32 big-endian | JSON`.
//!
//! Sans-IO: bytes are pushed in as they arrive, whole messages come out. Whatever a shell, `sshd` or a login script prints
//! before the agent starts is skipped up to [`MAGIC`] and kept, so that an agent that never starts can be explained by it.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// What an agent writes first. The zero bytes keep any text from being taken for it.
pub const MAGIC: &[u8; 16] = b"\0wglab-agent-1\0\n";

/// No message is longer: a length above it means that the pipe carries something else.
pub const MAX_FRAME: usize = 64 << 20;

/// The most that may stand before the magic word.
pub const MAX_BANNER: usize = 64 << 10;

/// Why the pipe does not carry messages.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// Too much text before the agent.
    #[error("no agent answered: {MAX_BANNER} bytes came that were not an agent's, beginning with `{start}`")]
    NoMagic {
        /// The first line of it.
        start: String,
    },
    /// A length that no message has.
    #[error(
        "a frame of {0} bytes was announced, and none is longer than {MAX_FRAME}: something else writes into the pipe"
    )]
    TooLong(usize),
    /// A frame that is not a message.
    #[error("a frame is not a message that this version knows: {0}")]
    NotAMessage(#[source] serde_json::Error),
}

/// One message as a frame.
///
/// # Errors
/// The message does not serialise, or is longer than [`MAX_FRAME`].
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, FrameError> {
    let body = serde_json::to_vec(message).map_err(FrameError::NotAMessage)?;
    let length =
        u32::try_from(body.len()).ok().filter(|_| body.len() <= MAX_FRAME).ok_or(FrameError::TooLong(body.len()))?;
    let mut frame = length.to_be_bytes().to_vec();
    frame.extend_from_slice(&body);
    Ok(frame)
}

/// Takes bytes, gives messages.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    /// What came before the magic word; `None` where none is awaited.
    banner: Option<Vec<u8>>,
}

impl Decoder {
    /// For the agent's end: frames from the first byte on.
    pub const fn new() -> Self {
        Self { buffer: Vec::new(), banner: None }
    }

    /// For the conductor's end: skips a banner up to the magic word.
    pub const fn after_banner() -> Self {
        Self { buffer: Vec::new(), banner: Some(Vec::new()) }
    }

    /// Takes what has arrived.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// What came instead of an agent so far, as text; empty once the magic word was seen.
    pub fn banner(&self) -> String {
        let Some(banner) = &self.banner else { return String::new() };
        String::from_utf8_lossy(&[banner.as_slice(), self.buffer.as_slice()].concat()).trim().to_owned()
    }

    /// The next whole message, if there is one.
    ///
    /// # Errors
    /// The pipe carries something else; nothing more can be read from it then.
    pub fn message<T: DeserializeOwned>(&mut self) -> Result<Option<T>, FrameError> {
        if self.banner.is_some() && !self.skip_banner()? {
            return Ok(None);
        }
        let Some(length) = self.buffer.first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_be_bytes(*length) as usize;
        if length > MAX_FRAME {
            return Err(FrameError::TooLong(length));
        }
        let Some(body) = self.buffer.get(4..4 + length) else { return Ok(None) };
        let message = serde_json::from_slice(body).map_err(FrameError::NotAMessage)?;
        self.buffer.drain(..4 + length);
        Ok(Some(message))
    }

    fn skip_banner(&mut self) -> Result<bool, FrameError> {
        if let Some(at) = self.buffer.windows(MAGIC.len()).position(|window| window == MAGIC) {
            self.buffer.drain(..at + MAGIC.len());
            self.banner = None;
            return Ok(true);
        }
        if self.buffer.len() > MAX_BANNER {
            let start = String::from_utf8_lossy(&self.buffer[..200.min(self.buffer.len())]);
            let start = start.lines().next().unwrap_or_default().escape_debug().to_string();
            return Err(FrameError::NoMagic { start });
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_a_banner_and_any_cutting() {
        let mut wire = b"Welcome to fra!\n\x1b[1mlast login\x1b[0m\n".to_vec();
        wire.extend_from_slice(MAGIC);
        for message in ["first", "", "third"] {
            wire.extend(encode(&message).unwrap());
        }
        for chunk in [1, 2, 3, 7, 1000] {
            let mut decoder = Decoder::after_banner();
            let mut seen = Vec::new();
            for part in wire.chunks(chunk) {
                decoder.push(part);
                while let Some(message) = decoder.message::<String>().unwrap() {
                    seen.push(message);
                }
            }
            assert_eq!(seen, ["first", "", "third"]);
        }
    }

    #[test]
    fn what_is_no_agent_is_named_by_what_it_said() {
        let mut decoder = Decoder::after_banner();
        decoder.push(b"sh: wglab: not found\n");
        assert_eq!(decoder.message::<String>().unwrap(), None);
        assert_eq!(decoder.banner(), "sh: wglab: not found");
        decoder.push(&vec![b'x'; MAX_BANNER + 1]);
        let error = decoder.message::<String>().unwrap_err().to_string();
        assert!(error.contains("wglab: not found"), "{error}");
    }

    #[test]
    fn a_length_that_nobody_sends_is_refused_before_memory_is_taken() {
        let mut decoder = Decoder::new();
        decoder.push(b"HTTP/1.1 400 Bad Request\r\n");
        assert!(matches!(decoder.message::<String>(), Err(FrameError::TooLong(_))));
    }
}
