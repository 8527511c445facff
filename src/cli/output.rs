//! Where words leave the program.

use std::error::Error;
use std::io::{self, IsTerminal, Write};

use super::args::Color;

/// What may be printed, and how.
pub(super) struct Output {
    color: Color,
    quiet: bool,
    verbose: bool,
}

impl Output {
    pub(super) const fn new(color: Color, quiet: bool, verbose: bool) -> Self {
        Self { color, quiet, verbose }
    }

    /// Data, to standard output.
    ///
    /// # Errors
    /// Whatever the write says; a closed pipe ends the program quietly.
    pub(super) fn data(&self, text: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        if !text.ends_with('\n') {
            out.write_all(b"\n")?;
        }
        out.flush()
    }

    /// Why the exit code is what it is, or what to do next, to standard error: said even where remarks are not wanted.
    #[expect(clippy::print_stderr, reason = "reasons leave the program here")]
    pub(super) fn reason(&self, text: &str) {
        eprintln!("wglab: {text}");
    }

    /// A remark, to standard error.
    #[expect(clippy::print_stderr, reason = "remarks leave the program here")]
    pub(super) fn note(&self, text: &str) {
        if !self.quiet {
            eprintln!("wglab: {text}");
        }
    }

    /// An error with its causes, to standard error.
    #[expect(clippy::print_stderr, reason = "errors leave the program here")]
    pub(super) fn error(&self, error: &anyhow::Error) {
        let word = if self.colors(io::stderr().is_terminal()) { "\x1b[1;31merror\x1b[0m" } else { "error" };
        eprintln!("{word}: {error:#}");
    }

    /// Text that brings its own `error:` (a topology's problems with their snippets).
    #[expect(clippy::print_stderr, reason = "errors leave the program here")]
    pub(super) fn rendered_error(&self, text: &str) {
        eprintln!("{}", text.trim_end());
    }

    pub(super) fn colors_stderr(&self) -> bool {
        self.colors(io::stderr().is_terminal())
    }

    pub(super) const fn quiet(&self) -> bool {
        self.quiet
    }

    pub(super) const fn verbose(&self) -> bool {
        self.verbose
    }

    fn colors(&self, terminal: bool) -> bool {
        match self.color {
            Color::Always => true,
            Color::Never => false,
            // https://no-color.org: present and not empty.
            Color::Auto => terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
        }
    }
}

/// An error of a process that the program started as a part of itself, for its parent's log.
#[expect(clippy::print_stderr, reason = "the parent reads standard error")]
pub(super) fn report(error: &dyn Error) {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    eprintln!("{text}");
}
