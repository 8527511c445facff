//! Words: errors with their causes, text from anywhere made harmless, names, and what somebody may have meant. Pure.

use std::error::Error;

/// An error and its causes in one line. A cause that its effect quotes already is not said twice.
pub fn with_causes(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.contains(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        cause = error.source();
    }
    text
}

/// `text` for a terminal or a plain line: control characters, and those that turn or hide text, become their code, so that a name
/// from a file cannot move a terminal's cursor or read as what it is not.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if is_unprintable(c) { c.escape_default().to_string() } else { c.to_string() }).collect()
}

/// Control characters; directional marks, overrides and isolates (Unicode TR 9), by which text can read as what it is not
/// (CVE-2021-42574); zero-width characters and line separators.
fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{61c}')
}

/// `text` with its lines broken between words where they are wider than `width` columns; what follows stands two columns further
/// in than its line. A word that is wider stays whole, so that it can be copied.
pub fn wrapped(text: &str, width: usize) -> String {
    text.split('\n').map(|line| wrapped_line(line, width)).collect::<Vec<_>>().join("\n")
}

fn wrapped_line(line: &str, width: usize) -> String {
    let indent = line.len() - line.trim_start_matches(' ').len();
    let mut out = line[..indent].to_owned();
    let mut column = indent;
    let mut gap = 0;
    let mut is_first = true;
    for word in line[indent..].split(' ') {
        if word.is_empty() {
            gap += 1;
            continue;
        }
        let length = word.chars().count();
        if is_first {
            column += length;
        } else if column + gap + length > width {
            column = indent + 2 + length;
            out.push('\n');
            out.push_str(&" ".repeat(indent + 2));
        } else {
            column += gap + length;
            out.push_str(&" ".repeat(gap));
        }
        out.push_str(word);
        (is_first, gap) = (false, 1);
    }
    out
}

/// `"did you mean `x`? "` when one of `known` is close to `text`, else nothing.
pub fn did_you_mean<'a>(text: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(text, known).map_or_else(String::new, |name| format!("did you mean `{name}`? "))
}

/// The one of `known` that `text` most likely means: at most a third of its letters wrong, or a prefix of one name only.
pub fn nearest<'a>(text: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let known: Vec<&str> = known.into_iter().collect();
    let wanted = text.to_lowercase().replace('_', "-");
    // Any letter is one step from any other: a name of one letter suggests nothing.
    let length = wanted.chars().count();
    let allowed = if length < 2 { 0 } else { (length / 3).max(1) };
    let close = known
        .iter()
        .map(|name| (strsim::osa_distance(&wanted, &name.to_lowercase().replace('_', "-")), *name))
        .filter(|(distance, _)| *distance <= allowed)
        .min();
    if let Some((_, name)) = close {
        return Some(name);
    }
    let mut prefixed = known.into_iter().filter(|name| length >= 2 && name.starts_with(text));
    prefixed.next().filter(|_| prefixed.next().is_none())
}

/// The longest interface name that Linux takes, in bytes (`IFNAMSIZ` 16, with its NUL; include/uapi/linux/if.h).
const INTERFACE_NAME_BYTES: usize = 15;

/// Names that no interface can have: directories of sysfs, a file in /sys/class/net, and the wildcards of
/// /proc/sys/net/*/conf.
const RESERVED: [&str; 5] = [".", "..", "all", "default", "bonding_masters"];

/// Whether `name` can be an interface's: wg-quick's character set (`[a-zA-Z0-9_=+.-]`), at most 15 bytes.
///
/// # Errors
/// The reason, as the end of a sentence.
pub fn check_interface(name: &str) -> Result<(), String> {
    check_name(name, INTERFACE_NAME_BYTES, "as it names an interface")
}

/// Whether `name` is safe in paths, text protocols, terminals and files: the character set of interfaces, and at most `longest`
/// bytes, `why` so few.
///
/// # Errors
/// The reason, as the end of a sentence.
pub fn check_name(name: &str, longest: usize, why: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err("it is empty".to_owned());
    }
    if RESERVED.contains(&name) {
        return Err(format!("`{name}` is reserved by the kernel"));
    }
    if let Some(odd) = name.chars().find(|c| !(c.is_ascii_alphanumeric() || "_=+.-".contains(*c))) {
        return Err(format!("`{}` is not one of a-z A-Z 0-9 _ = + . -", odd.escape_debug()));
    }
    if name.starts_with('-') {
        return Err("it begins with `-`, which reads as an option".to_owned());
    }
    if name.len() > longest {
        return Err(format!("it has {} characters, and {longest} is the limit, {why}", name.len()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot read {file}{quote}")]
    struct Unreadable {
        file: &'static str,
        quote: &'static str,
        source: io::Error,
    }

    #[test]
    fn a_cause_is_said_once() {
        let cause = || io::Error::other("no such file");
        let apart = Unreadable { file: "a", quote: "", source: cause() };
        assert_eq!(with_causes(&apart), "cannot read a: no such file");
        let quoted = Unreadable { file: "a", quote: ": no such file; name another", source: cause() };
        assert_eq!(with_causes(&quoted), "cannot read a: no such file; name another");
    }

    #[test]
    fn what_moves_a_cursor_or_turns_text_becomes_its_code() {
        assert_eq!(printable("st\u{1b}[31mack\n\u{202e}ä"), "st\\u{1b}[31mack\\n\\u{202e}ä");
    }

    #[test]
    fn lines_break_between_words_and_stay_where_they_fit() {
        let text = "216 runs in 72 visits, about 1 min 47 s\n\n  public-ipv4  ipv4  carries about 5 GB\n  a1\n";
        assert_eq!(wrapped(text, 39), text);
        assert_eq!(
            wrapped(text, 20),
            "216 runs in 72\n  visits, about 1\n  min 47 s\n\n  public-ipv4  ipv4\n    carries about 5\n    GB\n  a1\n"
        );
        assert_eq!(wrapped("ssh `./a-command-that-is-long` x", 10), "ssh\n  `./a-command-that-is-long`\n  x");
        assert_eq!(wrapped("äöü äöü", 7), "äöü äöü");
        for width in 0..60 {
            let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            assert_eq!(words(&wrapped(text, width)), words(text), "{width}");
        }
    }
}
