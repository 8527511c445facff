//! What is wrong or odd in a file, with its place, and never with a secret.

use std::fmt;
use std::ops::Range;

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};

/// So many problems are shown at most; a file that is something else altogether has one per line.
const MOST_SHOWN: usize = 20;

/// One thing that is wrong, or odd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    /// Where, in bytes of the file.
    pub span: Range<usize>,
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1, in characters.
    pub column: usize,
    /// What it is.
    pub message: String,
    /// What to do.
    pub help: String,
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}; {}", self.line, self.message, self.help)
    }
}

/// A file that cannot be used, with everything that was found wrong in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfError {
    /// The file's name as given.
    pub file: String,
    /// Its text, every key and command in it replaced by asterisks.
    text: String,
    /// The problems, in the order of their places; at least one.
    pub problems: Vec<Remark>,
}

impl ConfError {
    pub(super) fn new(file: &str, text: String, problems: Vec<Remark>) -> Self {
        Self { file: file.to_owned(), text, problems }
    }

    /// The problems as a person reads them, each with its snippet.
    #[must_use]
    pub fn render(&self, color: bool) -> String {
        let renderer = if color { Renderer::styled() } else { Renderer::plain() };
        let file = printable(&self.file);
        let mut rendered: Vec<String> = self
            .problems
            .iter()
            .take(MOST_SHOWN)
            .map(|problem| {
                let (text, span) = self.around(problem);
                let snippet = Snippet::source(text)
                    .path(file.as_str())
                    .line_start(problem.line)
                    .annotation(AnnotationKind::Primary.span(span));
                let group = Level::ERROR
                    .primary_title(problem.message.as_str())
                    .element(snippet)
                    .element(Level::HELP.message(problem.help.as_str()));
                renderer.render(&[group])
            })
            .collect();
        if let Some(more @ 1..) = self.problems.len().checked_sub(MOST_SHOWN) {
            rendered.push(format!("and {more} more problems in {file}"));
        }
        rendered.join("\n\n")
    }

    /// The problem's line alone, so that a snippet costs what its line does, not what the file does.
    fn around(&self, problem: &Remark) -> (&str, Range<usize>) {
        let start = self.text[..problem.span.start].rfind('\n').map_or(0, |newline| newline + 1);
        let end = self.text[problem.span.start..].find('\n').map_or(self.text.len(), |at| problem.span.start + at);
        let span = problem.span.start - start..problem.span.end.min(end) - start;
        (&self.text[start..end], span)
    }
}

impl fmt::Display for ConfError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

impl std::error::Error for ConfError {}

/// Collects remarks while a file is read, so that one reading tells all of them.
pub(super) struct Remarks<'a> {
    text: &'a str,
    /// Where each line begins.
    starts: Vec<usize>,
    pub(super) problems: Vec<Remark>,
    pub(super) warnings: Vec<Remark>,
}

impl<'a> Remarks<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let newlines = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1);
        let starts = std::iter::once(0).chain(newlines).collect();
        Self { text, starts, problems: Vec::new(), warnings: Vec::new() }
    }

    /// Notes what makes the file unusable.
    pub(super) fn problem(&mut self, span: Range<usize>, message: impl Into<String>, help: impl Into<String>) {
        let remark = self.remark(span, message.into(), help.into());
        self.problems.push(remark);
    }

    /// Notes what is read, though it is odd.
    pub(super) fn warning(&mut self, span: Range<usize>, message: impl Into<String>, help: impl Into<String>) {
        let remark = self.remark(span, message.into(), help.into());
        self.warnings.push(remark);
    }

    /// The number of the line that holds byte `at`, from 1.
    pub(super) fn line_of(&self, at: usize) -> usize {
        self.starts.partition_point(|start| *start <= at).max(1)
    }

    fn remark(&self, span: Range<usize>, message: String, help: String) -> Remark {
        let start = span.start.min(self.text.len());
        let line = self.line_of(start);
        let line_start = self.starts.get(line - 1).copied().unwrap_or(0);
        let column = self.text.get(line_start..start).map_or(1, |before| before.chars().count() + 1);
        Remark { span: start..span.end.clamp(start, self.text.len()), line, column, message, help }
    }
}

/// Text from a file as it may be printed: control characters are spelled out, and what is long is cut.
pub(super) fn printable(text: &str) -> String {
    const MOST: usize = 60;
    let cut: String = text.chars().take(MOST).flat_map(char::escape_debug).collect();
    if text.chars().count() > MOST { format!("{cut}...") } else { cut }
}

/// The text with everything that is or may be a secret replaced by as many asterisks: values of keys and of hooks, and every
/// long word made of base64's characters, wherever it stands. Lengths stay, so that places do.
pub(super) fn masked(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let value = line.find('=').filter(|at| is_secret(&line[..*at])).map(|at| at + 1);
        match value {
            Some(at) => {
                mask_words(&line[..at], &mut out);
                out.extend(line[at..].chars().flat_map(|c| hidden(c, !c.is_whitespace())));
            }
            None => mask_words(line, &mut out),
        }
    }
    out
}

/// Whether what stands before the `=` names something that may not be shown.
fn is_secret(key: &str) -> bool {
    let key: String = key.chars().filter(|c| c.is_ascii_alphanumeric()).map(|c| c.to_ascii_lowercase()).collect();
    let hook = ["preup", "postup", "predown", "postdown"].iter().any(|hook| key.contains(hook));
    hook || ["key", "psk", "secret", "pass", "token"].iter().any(|word| key.contains(word))
}

/// Hides words that are long enough to be most of a key.
fn mask_words(line: &str, out: &mut String) {
    const SHORTEST: usize = 24;
    // A `=` only ever pads a key's end: what stands before one is a word of its own, and `PersistentKeepalive=70000` two.
    let is_part = |c: char| c.is_ascii_alphanumeric() || "+/_-".contains(c);
    let mut rest = line;
    while !rest.is_empty() {
        let length = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        let word = &rest[..length];
        // A name of a host or a file is long too; no key has so few kinds of characters.
        let keyish = length >= SHORTEST && word.contains(|c: char| c.is_ascii_digit() || c.is_ascii_uppercase());
        out.extend(word.chars().flat_map(|c| hidden(c, keyish)));
        rest = &rest[length..];
        let other = rest.find(is_part).unwrap_or(rest.len());
        out.push_str(&rest[..other]);
        rest = &rest[other..];
    }
}

/// The character, or as many asterisks as it has bytes.
fn hidden(c: char, hide: bool) -> impl Iterator<Item = char> {
    let (shown, times) = if hide { ('*', c.len_utf8()) } else { (c, 1) };
    std::iter::repeat_n(shown, times)
}
