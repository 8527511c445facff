//! Text that may come from anywhere, made harmless for where it goes.

pub use crate::text::printable as plain;

/// For Markdown, in a line or in a cell of a table: what would be markup is escaped.
pub fn markdown(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in plain(text).chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '~' | '@' | '#' => {
                escaped.push('\\');
                escaped.push(c);
            }
            _ => escaped.push(c),
        }
    }
    escaped
}

/// For a field of CSV (RFC 4180), quoted where needed. A spreadsheet would run a field that opens like a formula, so that
/// one gets an apostrophe in front (OWASP, CSV injection). For text only: numbers are written as they are.
pub fn csv(text: &str) -> String {
    let text = plain(text);
    let formula = text.starts_with(['=', '+', '-', '@']);
    let text = if formula { format!("'{text}") } else { text };
    if text.contains(['"', ',', ';', '\'']) || text.starts_with(' ') || text.ends_with(' ') {
        return format!("\"{}\"", text.replace('"', "\"\""));
    }
    text
}

/// For the text or an attribute of HTML or XML.
pub fn xml(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in plain(text).chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // XML 1.0 has no word for these two, escaped or not.
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            _ => escaped.push(c),
        }
    }
    escaped
}

/// Several lines for the text of HTML or XML, each escaped by itself so that only the breaks between them break.
pub fn xml_lines(lines: &[String]) -> String {
    lines.iter().map(|line| xml(line)).collect::<Vec<_>>().join("\n")
}

/// For the message of a GitHub workflow command.
pub fn workflow_message(text: &str) -> String {
    plain(text).replace('%', "%25")
}

/// For a property of a GitHub workflow command, which also ends at a comma or a colon.
pub fn workflow_property(text: &str) -> String {
    workflow_message(text).replace(':', "%3A").replace(',', "%2C")
}
