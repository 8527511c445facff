//! What is wrong with a file: every problem with its place, and what to do about it.

use std::fmt;
use std::ops::Range;

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};

use crate::cell::printable;

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where, in bytes of the text.
    pub span: Range<usize>,
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1, in characters.
    pub column: usize,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub help: String,
}

/// A file that cannot be used, with everything that was found wrong in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopologyError {
    /// The file's name as given.
    pub file: String,
    /// Its text.
    pub text: String,
    /// The problems, in the order of their places; at least one.
    pub problems: Vec<Problem>,
}

impl TopologyError {
    /// The problems as a person reads them, each with its snippet.
    pub fn render(&self, color: bool) -> String {
        let renderer = if color { Renderer::styled() } else { Renderer::plain() };
        let file = printable(&self.file);
        let rendered: Vec<String> = self
            .problems
            .iter()
            .map(|problem| {
                let title = printable(&problem.message);
                let help = printable(&problem.help);
                let snippet = Snippet::source(self.text.as_str())
                    .path(file.as_str())
                    .annotation(AnnotationKind::Primary.span(problem.span.clone()));
                let group = Level::ERROR.primary_title(title).element(snippet).element(Level::HELP.message(help));
                renderer.render(&[group])
            })
            .collect();
        rendered.join("\n\n")
    }
}

impl fmt::Display for TopologyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

impl std::error::Error for TopologyError {}

/// Collects problems while a file is read, so that one reading reports all of them.
#[derive(Debug)]
pub(super) struct Problems<'a> {
    text: &'a str,
    found: Vec<Problem>,
}

impl<'a> Problems<'a> {
    pub(super) const fn new(text: &'a str) -> Self {
        Self { text, found: Vec::new() }
    }

    /// Notes a problem at `span`.
    pub(super) fn push(&mut self, span: Range<usize>, message: impl Into<String>, help: impl Into<String>) {
        let span = self.on_characters(span);
        let before = &self.text[..span.start];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        self.found.push(Problem {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            span,
            message: message.into(),
            help: help.into(),
        });
    }

    /// `span` cut to the text, on character boundaries, and to its first line: a snippet shows where, not everything.
    fn on_characters(&self, span: Range<usize>) -> Range<usize> {
        let mut start = span.start.min(self.text.len());
        while !self.text.is_char_boundary(start) {
            start -= 1;
        }
        let mut end = span.end.clamp(start, self.text.len());
        while !self.text.is_char_boundary(end) {
            end += 1;
        }
        let end = self.text[start..end].find('\n').map_or(end, |newline| start + newline);
        start..end
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// The error, if anything was found.
    pub(super) fn into_error(mut self, file: &str) -> Option<TopologyError> {
        self.found.sort_by_key(|problem| problem.span.start);
        self.found.dedup();
        let (file, text) = (file.to_owned(), self.text.to_owned());
        (!self.found.is_empty()).then_some(TopologyError { file, text, problems: self.found })
    }
}
