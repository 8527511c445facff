//! Where words leave the program.

use std::error::Error;
use std::io::{self, IsTerminal, Write};

use anyhow::Context as _;

use super::args::Color;
use crate::sys::terminal::columns;
use crate::text::{printable, with_causes};

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
    pub(super) fn data(&self, text: &str) -> anyhow::Result<()> {
        let mut out = io::stdout().lock();
        let mut write = || {
            out.write_all(text.as_bytes())?;
            if !text.ends_with('\n') {
                out.write_all(b"\n")?;
            }
            out.flush()
        };
        write().context("cannot write to standard output")
    }

    /// Why the exit code is what it is, or what to do next, to standard error: said even where remarks are not wanted.
    pub(super) fn reason(&self, text: &str) {
        say(&format!("wglab: {text}"));
    }

    /// A remark, to standard error.
    pub(super) fn note(&self, text: &str) {
        if !self.quiet {
            say(&format!("wglab: {text}"));
        }
    }

    /// Several lines that are neither data nor an error, to standard error.
    pub(super) fn aside(&self, text: &str) {
        if !self.quiet {
            say(text.trim_end());
        }
    }

    /// An error with its causes, to standard error.
    pub(super) fn error(&self, error: &anyhow::Error) {
        let word = if self.colors(io::stderr().is_terminal()) { "\x1b[1;31merror\x1b[0m" } else { "error" };
        say(&format!("{word}: {}", harmless(&with_causes(error.as_ref()))));
    }

    /// Text that brings its own `error:` (a topology's problems with their snippets).
    pub(super) fn rendered_error(&self, text: &str) {
        say(text.trim_end());
    }

    pub(super) fn colors_stderr(&self) -> bool {
        self.colors(io::stderr().is_terminal())
    }

    /// The columns of the terminal that data goes to; none where it goes elsewhere.
    pub(super) fn columns() -> Option<usize> {
        let out = io::stdout();
        if out.is_terminal() { columns(out) } else { None }
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
            Color::Auto => terminal && !is_dumb() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
        }
    }
}

/// Whether the terminal understands no control sequences (terminfo(5), `dumb`), as in an editor's shell.
pub(super) fn is_dumb() -> bool {
    std::env::var_os("TERM").is_some_and(|term| term == "dumb")
}

/// A line to standard error. Where that is closed or full nobody can be told, and the exit code says it still: `eprintln!`
/// would panic.
fn say(text: &str) {
    let _untold = writeln!(io::stderr().lock(), "{text}");
}

/// An error may quote what a file or an argument holds, and a parser's own words quote it as it is: no control character of
/// theirs reaches the terminal. Lines stay lines.
fn harmless(text: &str) -> String {
    text.split('\n').map(printable).collect::<Vec<_>>().join("\n")
}

/// An error of a process that the program started as a part of itself, for its parent's log.
pub(super) fn report(error: &(dyn Error + 'static)) {
    say(&harmless(&with_causes(error)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_error_quotes_cannot_steer_the_terminal() {
        assert_eq!(
            harmless("line 1: unknown variant `st\x1b[31mack`\nsee docs"),
            "line 1: unknown variant `st\\u{1b}[31mack`\nsee docs"
        );
    }
}
