//! Writes `runs.jsonl` as the run goes: a line is whole or not there, and what is written is on its way to the disk.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::record::{End, Header, Run};

/// The file that is the record.
pub const RUNS: &str = "runs.jsonl";

/// The open record.
#[derive(Debug)]
pub struct Recorder {
    directory: PathBuf,
    file: File,
    runs: u32,
}

impl Recorder {
    /// Makes the directory and opens the file: before anything is raised, so that a full disk or a wrong path costs nothing.
    pub fn create(directory: &Path) -> anyhow::Result<Self> {
        let path = directory.join(RUNS);
        fs::create_dir_all(directory).with_context(|| {
            format!("cannot make the record's directory {}; choose another with --out", directory.display())
        })?;
        let file = match OpenOptions::new().create_new(true).write(true).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                bail!(
                    "{} exists already; records are not overwritten: choose another directory with --out",
                    path.display()
                )
            }
            Err(error) => {
                return Err(error)
                    .with_context(|| format!("cannot write {}; choose another directory with --out", path.display()));
            }
        };
        Ok(Self { directory: directory.to_owned(), file, runs: 0 })
    }

    /// Removes the file, into which nothing was written: no run began.
    pub fn discard(self) -> anyhow::Result<()> {
        let path = self.directory.join(RUNS);
        fs::remove_file(&path).with_context(|| format!("cannot remove the empty {}", path.display()))?;
        // The directory may hold what others put there; then it stays.
        let _not_empty = fs::remove_dir(&self.directory);
        Ok(())
    }

    /// The record's directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Lines of runs so far.
    pub const fn runs(&self) -> u32 {
        self.runs
    }

    /// The first line.
    pub fn header(&mut self, header: &Header) -> anyhow::Result<()> {
        let line = header.to_line()?;
        self.line(&line)
    }

    /// A run, as it ends.
    pub fn run(&mut self, run: &Run) -> anyhow::Result<()> {
        let line = run.to_line()?;
        self.line(&line)?;
        self.runs += 1;
        Ok(())
    }

    /// The last line.
    pub fn end(&mut self, end: &End) -> anyhow::Result<()> {
        let line = end.to_line()?;
        self.line(&line)?;
        self.file.sync_all().context("cannot bring the record to the disk")
    }

    /// One write per line: after a crash there is a whole line or a cut last one.
    fn line(&mut self, line: &str) -> anyhow::Result<()> {
        self.file
            .write_all(line.as_bytes())
            .with_context(|| format!("cannot write to {}", self.directory.join(RUNS).display()))
    }
}
