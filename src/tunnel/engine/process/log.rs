//! The end of what a process wrote, for the errors that quote it.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Lines of log that are kept, and characters of each.
const LOG_LINES: usize = 50;
const LOG_LINE_BYTES: usize = 500;
/// Stands for the rest of a line that is longer.
const CUT: &str = "...";
/// What a key and the byte behind it take, in hexadecimal.
const KEY_BYTES: usize = 65;
/// What stands in the log for what cannot be read.
const NO_TEXT: &str = "(bytes that are no text)";
/// Lines of log that an error shows.
const SHOWN_LINES: usize = 15;

/// The last lines of a process's output; clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct Log(Arc<Mutex<VecDeque<String>>>);

impl Log {
    /// Copies lines into the ring until the process closes its end.
    pub(super) fn keep(&self, stream: impl Read) {
        let mut reader = BufReader::new(stream);
        let mut line = Vec::new();
        loop {
            line.clear();
            // A line without end must not grow without end; a key that would be cut is read whole, so that it is known as one.
            match (&mut reader).take((LOG_LINE_BYTES + KEY_BYTES) as u64).read_until(b'\n', &mut line) {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            let goes_on = !line.ends_with(b"\n");
            let mut text = without_keys(&plain(&String::from_utf8_lossy(&line)));
            if text.len() > LOG_LINE_BYTES {
                text.truncate(text.floor_char_boundary(LOG_LINE_BYTES));
                text.push_str(CUT);
            }
            if text.is_empty() {
                continue;
            }
            // Some of a line may be in another encoding, but not most of it.
            let strange = text.chars().filter(|character| *character == char::REPLACEMENT_CHARACTER).count();
            let mut lines = self.lines();
            if strange * 4 > text.chars().count() {
                if lines.back().is_some_and(|last| last == NO_TEXT) {
                    continue;
                }
                NO_TEXT.clone_into(&mut text);
            }
            if lines.len() == LOG_LINES {
                lines.pop_front();
            }
            lines.push_back(text);
            drop(lines);
            // One line without end would push all others out.
            if goes_on && skip_line(&mut reader).is_err() {
                return;
            }
        }
    }

    /// The end of its log, or a word that there is none.
    pub(super) fn last_lines(&self) -> String {
        let lines = self.lines();
        if lines.is_empty() {
            return "    (it wrote nothing)".to_owned();
        }
        let skipped = lines.len().saturating_sub(SHOWN_LINES);
        lines.iter().skip(skipped).map(|line| format!("    {line}")).collect::<Vec<_>>().join("\n")
    }

    fn lines(&self) -> MutexGuard<'_, VecDeque<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads to the end of the line, and keeps nothing.
fn skip_line(reader: &mut impl BufRead) -> io::Result<()> {
    loop {
        let bytes = match reader.fill_buf() {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let (used, done) = (end.map_or(bytes.len(), |end| end + 1), end.is_some() || bytes.is_empty());
        reader.consume(used);
        if done {
            return Ok(());
        }
    }
}

/// A line without colours and other control sequences (ECMA-48 section 5.4: CSI, parameters, one final byte).
fn plain(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut characters = line.trim_end().chars().peekable();
    while let Some(character) = characters.next() {
        if character == '\u{1b}' {
            if characters.next_if_eq(&'[').is_some() {
                characters.by_ref().find(|character| ('\u{40}'..='\u{7e}').contains(character));
            }
        } else if !character.is_control() {
            out.push(character);
        }
    }
    out
}

/// A line without what may be a key, in base64 or in hexadecimal: errors and records are shown to others. Some engines log their
/// configuration.
fn without_keys(line: &str) -> String {
    const KEY: &str = "(a key)";
    let is_part = |c: char| c.is_ascii_alphanumeric() || "+/".contains(c);
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while !rest.is_empty() {
        let (word, behind) = rest.split_at(rest.find(|c| !is_part(c)).unwrap_or(rest.len()));
        rest = behind;
        if word.len() == 43 && rest.starts_with('=') {
            out.push_str(KEY);
            rest = &rest[1..];
        } else if word.len() == 64 && word.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            out.push_str(KEY);
        } else {
            out.push_str(word);
            let next = rest.find(is_part).unwrap_or(rest.len());
            out.push_str(&rest[..next]);
            rest = &rest[next..];
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_lose_their_colours() {
        assert_eq!(plain("\u{1b}[2m12:00\u{1b}[0m \u{1b}[32m INFO\u{1b}[0m\tup [1]\r\n"), "12:00  INFOup [1]");
        assert_eq!(plain("\u{1b}"), "");
        assert_eq!(plain("\u{1b}[1;32"), "");
    }

    #[test]
    fn keys_are_not_kept() {
        let (base64, hex) = (format!("{}=", "AQEB".repeat(10) + "AQE"), "4a".repeat(32));
        for (line, kept) in [
            (format!("PrivateKey = {base64}"), "PrivateKey = (a key)"),
            (format!("private_key={hex}"), "private_key=(a key)"),
            (format!("[{hex},{base64}{base64}] x"), "[(a key),(a key)(a key)] x"),
            (
                "/usr/bin/wireguard-go peer(AQEB…QEBA) 10.0.0.1/32".to_owned(),
                "/usr/bin/wireguard-go peer(AQEB…QEBA) 10.0.0.1/32",
            ),
        ] {
            let log = Log::default();
            log.keep(line.as_bytes());
            assert_eq!(*log.lines(), [kept]);
        }
    }

    #[test]
    fn what_is_no_text_is_no_line() {
        let log = Log::default();
        let text = [&b"up\nna\xefve\n"[..], &[0x80; 3000], b"\n", &[0xfe, 1, b'\n'].repeat(100), b"down\n"].concat();
        log.keep(&text[..]);
        assert_eq!(*log.lines(), ["up", "na\u{fffd}ve", NO_TEXT, "down"]);
    }

    #[test]
    fn the_log_keeps_its_end_and_cuts_endless_lines() {
        let log = Log::default();
        let text: String = (0..100).map(|line| format!("line {line}\n")).collect::<String>() + &"x".repeat(2000);
        log.keep(text.as_bytes());
        let lines = log.lines();
        assert_eq!(lines.len(), LOG_LINES);
        assert_eq!(lines.back().unwrap(), &("x".repeat(500) + CUT));
        assert_eq!(lines[LOG_LINES - 2], "line 99");
    }

    #[test]
    fn a_line_without_end_is_one_line() {
        let log = Log::default();
        log.keep([&b"up\n"[..], &[b'x'; 100_000], b"\nshort\n", &[b'y'; 600]].concat().as_slice());
        assert_eq!(*log.lines(), ["up", &("x".repeat(500) + CUT), "short", &("y".repeat(500) + CUT)]);
        // A key at the cut is known as one.
        let log = Log::default();
        log.keep(format!("{} {}", ".".repeat(480), "4a".repeat(32)).as_bytes());
        assert_eq!(*log.lines(), [format!("{} (a key)", ".".repeat(480))]);
    }
}
