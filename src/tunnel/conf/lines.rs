//! From bytes to lines and sections: encodings, comments, white space.

use std::ops::Range;

use super::MOST_BYTES;
use super::diagnostic::{Remarks, masked, printable};
use super::words::foreign_section;

/// A `key = value`.
pub(super) struct Entry<'a> {
    /// Without the white space around it.
    pub(super) key: &'a str,
    /// Without the white space around it, and without a comment.
    pub(super) value: &'a str,
    /// Where the key is.
    pub(super) key_span: Range<usize>,
    /// Where the value is; where it is empty, the whole entry.
    pub(super) span: Range<usize>,
    /// The line, from 1.
    pub(super) line: usize,
}

/// What a section is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SectionKind {
    Interface,
    Peer,
}

/// A section and its entries.
pub(super) struct Section<'a> {
    pub(super) kind: SectionKind,
    /// Where its header is.
    pub(super) span: Range<usize>,
    /// The line of its header.
    pub(super) line: usize,
    /// What comments in or right before it call it.
    pub(super) name: Option<String>,
    pub(super) entries: Vec<Entry<'a>>,
}

/// The bytes as text of the same length: a byte that is no UTF-8 becomes `?`, and is a problem later.
pub(super) fn text(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    if bytes.len() > MOST_BYTES {
        return text;
    }
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| '?'));
    }
    text
}

/// The sections of `text`, which is `bytes` as [`text`] gives it.
pub(super) fn sections<'a>(bytes: &[u8], text: &'a str, remarks: &mut Remarks<'_>) -> Vec<Section<'a>> {
    const ENCODE: &str = "save it as UTF-8 or ASCII";
    if bytes.len() > MOST_BYTES {
        remarks.problem(0..0, format!("the file has {} MiB, which is no configuration", bytes.len() >> 20), ENCODE);
        return Vec::new();
    }
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        remarks.problem(0..0, "the file is in UTF-16", ENCODE);
        return Vec::new();
    }
    if text.trim_matches(|c: char| c.is_whitespace() || c == '\u{feff}').is_empty() {
        remarks.problem(0..0, "the file is empty", "write an [Interface], and a [Peer] for each peer");
        return Vec::new();
    }
    let mut sections: Vec<Section<'a>> = Vec::new();
    // Inside a section that is not ours nothing is judged; the header has been.
    let mut foreign = false;
    let mut comment: Option<String> = None;
    let mut start = 0;
    for whole in text.split_inclusive('\n') {
        let begin = start;
        start += whole.len();
        let line = whole.strip_suffix('\n').unwrap_or(whole);
        let line = line.strip_suffix('\r').unwrap_or(line);
        let (begin, line) = match line.strip_prefix('\u{feff}').filter(|_| begin == 0) {
            Some(rest) => {
                remarks.warning(
                    0..0,
                    "the file begins with a byte order mark, which wg refuses",
                    "save it without: plain UTF-8 or ASCII",
                );
                (3, rest)
            }
            None => (begin, line),
        };
        let code = line.split('#').next().unwrap_or_default();
        if let Some((at, length, message, help)) = damage(line, &bytes[begin..begin + line.len()]) {
            let span = begin + at..begin + at + length;
            // Nobody reads a comment. What ends a line, or a text, for some and not for others is another matter.
            if at < code.len() || matches!(bytes[span.start], 0 | b'\r') {
                remarks.problem(span, message, help);
                continue;
            }
            remarks.warning(span, format!("{message}; it is in a comment, which wg passes over"), help);
        }
        if let Some((at, odd)) = code.char_indices().find(|(_, c)| c.is_whitespace() && !c.is_ascii())
            && !is_hook(code)
        {
            // A web page's no-break space, say. To wg it is part of the key or the value.
            let help = "write a plain space, or none";
            remarks.problem(begin + at..begin + at + odd.len_utf8(), "this white space is none to wg", help);
            continue;
        }
        if let Some(said) = line[code.len()..].strip_prefix('#').and_then(comment_name) {
            match sections.last_mut().filter(|section| section.entries.is_empty() && code.trim().is_empty()) {
                Some(section) => section.name = section.name.take().or(Some(said)),
                None if code.trim().is_empty() => comment = Some(said),
                None => {}
            }
        }
        let trimmed = code.trim();
        if trimmed.is_empty() {
            if line.trim().is_empty() {
                comment = None;
            }
            continue;
        }
        let at = begin + (code.len() - code.trim_start().len());
        let span = at..at + trimmed.len();
        let number = remarks.line_of(at);
        if trimmed.starts_with('[') {
            match header(trimmed, span.clone(), remarks) {
                Some(kind) => {
                    foreign = false;
                    sections.push(Section { kind, span, line: number, name: comment.take(), entries: Vec::new() });
                }
                None => foreign = true,
            }
            continue;
        }
        comment = None;
        if foreign {
            continue;
        }
        let Some(entry) = entry(trimmed, span.clone(), number, remarks) else { continue };
        match sections.last_mut() {
            Some(section) => section.entries.push(entry),
            None => remarks.problem(span, "this stands before any section", "write [Interface] or [Peer] above it"),
        }
    }
    if sections.is_empty() && remarks.problems.is_empty() {
        remarks.problem(0..0, "the file configures nothing", "write an [Interface], and a [Peer] for each peer");
    }
    sections
}

/// Whether a line is a hook's: a shell reads it, and takes any text.
fn is_hook(code: &str) -> bool {
    let key = code.split('=').next().unwrap_or_default().trim_matches([' ', '\t']);
    ["PreUp", "PostUp", "PreDown", "PostDown"].iter().any(|hook| key.eq_ignore_ascii_case(hook))
}

/// What a line cannot hold: where, how long, what it is, what to do.
fn damage(line: &str, bytes: &[u8]) -> Option<(usize, usize, &'static str, &'static str)> {
    if let Some(at) = bytes.iter().position(|byte| *byte == 0) {
        return Some((
            at,
            1,
            "the line holds a NUL byte",
            "the file is damaged or no text: remove it, or write it anew",
        ));
    }
    if let Err(error) = std::str::from_utf8(bytes) {
        return Some((error.valid_up_to(), 1, "this is not UTF-8", "save the file as UTF-8, or remove the character"));
    }
    let (at, odd) = line.char_indices().find(|(_, c)| c.is_control() && *c != '\t')?;
    Some(match odd {
        '\r' => (at, 1, "a carriage return stands in the middle of a line", "end lines with a line feed"),
        _ => (at, odd.len_utf8(), "the line holds a control character", "remove it"),
    })
}

/// The section that a header opens. A header of something else is a problem.
fn header(text: &str, span: Range<usize>, remarks: &mut Remarks<'_>) -> Option<SectionKind> {
    const OURS: &str = "wg's sections are [Interface] and [Peer]";
    let Some(name) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) else {
        remarks.problem(span, "the header is not closed", format!("nothing follows `]` in its line; {OURS}"));
        return None;
    };
    let plain: String = name.chars().filter(|c| !c.is_whitespace()).collect();
    let kind = if plain.eq_ignore_ascii_case("Interface") {
        SectionKind::Interface
    } else if plain.eq_ignore_ascii_case("Peer") {
        SectionKind::Peer
    } else {
        let (message, help) = match foreign_section(&plain) {
            Some(owner) => (
                format!("[{}] is a section of {owner}, not of wg", shown(&plain)),
                format!("give the file that wg or wg-quick reads; {OURS}"),
            ),
            None => (format!("there is no section [{}]", shown(&plain)), OURS.to_owned()),
        };
        remarks.problem(span, message, help);
        return None;
    };
    if plain != name {
        remarks.warning(
            span,
            "white space inside the header: wg reads it, wg-quick does not",
            format!("write [{plain}]"),
        );
    }
    Some(kind)
}

/// A line that is neither comment nor header.
fn entry<'a>(text: &'a str, span: Range<usize>, line: usize, remarks: &mut Remarks<'_>) -> Option<Entry<'a>> {
    if text.starts_with(';') || text.starts_with("//") {
        remarks.problem(span, "this is no comment to wg", "begin comments with `#`");
        return None;
    }
    let Some((key, value)) = text.split_once('=') else {
        remarks.problem(span, "this is not `key = value`", "write it so, or make it a comment with `#`");
        return None;
    };
    let (key, value) = (key.trim(), value.trim());
    let key_span = span.start..span.start + key.len();
    if key.is_empty() {
        remarks.problem(span, "there is no key before `=`", "write `key = value`");
        return None;
    }
    let value_start = span.end - value.len();
    let value_span = if value.is_empty() { span } else { value_start..span.end };
    Some(Entry { key, value, key_span, span: value_span, line })
}

/// A name as comments give it: `# fra`, `# Name = fra`, `### Client fra`. One word, so that a sentence is none.
fn comment_name(comment: &str) -> Option<String> {
    let text = comment.trim_start_matches('#').trim();
    let lower = text.to_ascii_lowercase();
    let prefix = ["friendly_name", "name", "client", "peer", "host"]
        .into_iter()
        .find(|word| lower.starts_with(word) && lower[word.len()..].starts_with([' ', '=', ':', '\t']));
    let name = text[prefix.map_or(0, str::len)..].trim_start_matches([' ', '=', ':', '\t']).trim();
    let is_name = (1..=32).contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte));
    // A key in a comment is no name, and nothing to repeat.
    (is_name && masked(name) == name).then(|| name.to_owned())
}

/// A word of the file as it may be printed.
pub(super) fn shown(text: &str) -> String {
    printable(&masked(text))
}
