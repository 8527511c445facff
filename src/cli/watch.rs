//! Progress for people: a bar on a terminal, a line now and then elsewhere.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use super::output::{Output, is_dumb};
use crate::record::{Run, Status};
use crate::run::{Progress, Watch};
use crate::units::Span;

/// Elsewhere than on a terminal, a line this often.
const LINES_APART: Duration = Duration::from_secs(10);

/// Shows a run's progress on standard error.
pub(super) struct Terminal<'a> {
    output: &'a Output,
    bar: Option<ProgressBar>,
    last_line: Option<Instant>,
}

impl<'a> Terminal<'a> {
    pub(super) fn new(output: &'a Output) -> Self {
        let bar = (std::io::stderr().is_terminal() && !is_dumb() && !output.quiet()).then(|| {
            let bar = ProgressBar::new(0);
            if let Ok(style) = ProgressStyle::with_template("{bar:24} {pos}/{len} {wide_msg}") {
                bar.set_style(style);
            }
            bar
        });
        Self { output, bar, last_line: None }
    }

    /// Removes the bar.
    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn line(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| self.output.note(text)),
            None => self.output.note(text),
        }
    }
}

impl Watch for Terminal<'_> {
    fn waits_for(&mut self, pid: i32) {
        self.line(&format!(
            "another measurement is running (process {pid}); waiting for its end, since both would disturb each other's figures"
        ));
    }

    fn stage(&mut self, what: &str) {
        match &self.bar {
            Some(bar) => {
                bar.set_message(what.to_owned());
                bar.tick();
            }
            None if self.output.verbose() => self.line(what),
            None => {}
        }
    }

    fn still(&mut self, what: &str, since: Duration) {
        let text = format!("still {what}, for {} s", since.as_secs());
        match &self.bar {
            Some(bar) => bar.set_message(text),
            None => self.line(&text),
        }
    }

    fn note(&mut self, text: &str) {
        self.line(text);
    }

    fn begins(&mut self, run: Progress<'_>) {
        // To whole seconds: the forecast is no better than that.
        let left = Span::new(Duration::from_secs(run.left.as_secs() + 1));
        let tunnels = match run.arrangement.tunnels {
            None => String::new(),
            Some(1) => ", 1 tunnel".to_owned(),
            Some(several) => format!(", {several} tunnels"),
        };
        let what = format!(
            "{}{tunnels} over {} on {}, {}, round {}, {}",
            run.arrangement.engine,
            run.arrangement.underlay,
            run.arrangement.stack,
            run.arrangement.pair,
            run.round,
            run.test.name,
        );
        if let Some(bar) = &self.bar {
            bar.set_length(run.runs);
            bar.set_position(run.done);
            bar.set_message(format!("{what}; {left} left"));
        } else if self.last_line.is_none_or(|last| last.elapsed() >= LINES_APART) {
            self.last_line = Some(Instant::now());
            self.line(&format!("run {} of {}: {what}; {left} left", run.done + 1, run.runs));
        }
    }

    fn ended(&mut self, run: &Run) {
        let reason = run.reason.as_deref().unwrap_or_default();
        match run.status {
            Status::Ok if self.output.verbose() => self.line(&format!("{}: ok", run.factors)),
            Status::Ok | Status::Interrupted => {}
            Status::Failed | Status::Invalid | Status::Skipped if self.output.verbose() => {
                self.line(&format!("{}: {}: {reason}", run.factors, run.status.text()));
            }
            Status::Failed | Status::Invalid | Status::Skipped => {}
        }
    }
}
