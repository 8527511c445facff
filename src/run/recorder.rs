//! Writes `runs.jsonl` as the run goes: a line is whole or not there, and what is written is on its way to the disk.

use std::fs::{self, File, OpenOptions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::record::{End, Header, Record, Run};

/// The file that is the record.
pub const RUNS: &str = "runs.jsonl";

/// The open record.
#[derive(Debug)]
pub struct Recorder {
    directory: PathBuf,
    file: File,
    runs: u32,
    /// A file that is there already and to which nothing was appended yet.
    untouched: Option<Untouched>,
}

/// A record as it was read: nothing may have been written to it since.
#[derive(Debug, Clone, Copy)]
struct Untouched {
    bytes: u64,
    whole: u64,
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
        Ok(Self { directory: directory.to_owned(), file, runs: 0, untouched: None })
    }

    /// Opens the file of `record`, which was read from its first `bytes`, to append to it.
    pub fn reopen(directory: &Path, record: &Record, bytes: u64) -> anyhow::Result<Self> {
        let path = directory.join(RUNS);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .with_context(|| format!("cannot append to {}", path.display()))?;
        let runs = u32::try_from(record.runs.len() + record.superseded.len())?;
        let untouched = Some(Untouched { bytes, whole: u64::try_from(record.whole_bytes)? });
        Ok(Self { directory: directory.to_owned(), file, runs, untouched })
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

    /// The first line of a sitting.
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
        let feed = match self.untouched.take() {
            Some(untouched) => self.after_the_last_whole_line(untouched)?,
            None => "",
        };
        self.file
            .write_all(format!("{feed}{line}").as_bytes())
            .with_context(|| format!("cannot write to {}", self.directory.join(RUNS).display()))
    }

    /// Cuts off what is no whole line and goes there. Returns the line feed that the last line may lack.
    fn after_the_last_whole_line(&mut self, untouched: Untouched) -> anyhow::Result<&'static str> {
        let path = self.directory.join(RUNS);
        let prepare = |file: &mut File| -> std::io::Result<Option<u8>> {
            if file.metadata()?.len() != untouched.bytes {
                return Ok(None);
            }
            let mut last = [b'\n'];
            if untouched.whole > 0 {
                file.read_exact_at(&mut last, untouched.whole - 1)?;
            }
            file.set_len(untouched.whole)?;
            file.seek(SeekFrom::End(0))?;
            Ok(Some(last[0]))
        };
        match prepare(&mut self.file).with_context(|| format!("cannot append to {}", path.display()))? {
            Some(b'\n') => Ok(""),
            Some(_) => Ok("\n"),
            None => bail!("{} has changed since it was read: another run may be appending to it", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::fixture::Made;
    use crate::record::{EndStatus, Status};

    fn write(directory: &Path, text: &str) -> (Record, u64) {
        fs::write(directory.join(RUNS), text).unwrap();
        (Record::parse(text).unwrap(), text.len() as u64)
    }

    fn header() -> Header {
        Made::new(crate::cell::Factor::Engine, &[]).record.header
    }

    fn a_run(order: u32) -> Run {
        let mut made = Made::new(crate::cell::Factor::Engine, &[]);
        let run = made.run(0, &[], &[("throughput_bits_per_second", 1e9)]);
        run.order = order;
        run.clone()
    }

    /// Wherever the file was cut, what is appended stands behind whole lines.
    #[test]
    fn a_record_goes_on_after_a_cut_at_any_byte() {
        let folder = tempfile::tempdir().unwrap();
        let text = header().to_line().unwrap() + &a_run(0).to_line().unwrap() + &a_run(1).to_line().unwrap();
        let first = header().to_line().unwrap().len();
        let mut later = header();
        later.started = "2026-11-30T18:00:00Z".to_owned();
        for cut in first..=text.len() {
            let (record, bytes) = write(folder.path(), &text[..cut]);
            let there = record.runs.len();
            let mut recorder = Recorder::reopen(folder.path(), &record, bytes).unwrap();
            assert_eq!(fs::read_to_string(folder.path().join(RUNS)).unwrap(), text[..cut], "nothing is written yet");
            recorder.header(&later).unwrap();
            recorder.run(&a_run(7)).unwrap();
            let end = End {
                status: EndStatus::Complete,
                reason: None,
                runs: recorder.runs(),
                duration_ms: 1,
                precision: None,
                awaits_phase: None,
            };
            recorder.end(&end).unwrap();
            let again = Record::parse(fs::read(folder.path().join(RUNS)).unwrap()).unwrap();
            assert_eq!((again.runs.len(), again.resumed.len()), (there + 1, 1), "cut at {cut}");
            assert!(again.is_complete() && again.runs.iter().all(|run| run.status == Status::Ok));
            assert_eq!(again.end.unwrap().runs as usize, there + 1);
        }
    }

    #[test]
    fn a_record_that_somebody_else_writes_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let (record, bytes) = write(folder.path(), &header().to_line().unwrap());
        let mut recorder = Recorder::reopen(folder.path(), &record, bytes).unwrap();
        let longer = header().to_line().unwrap() + &a_run(0).to_line().unwrap();
        fs::write(folder.path().join(RUNS), &longer).unwrap();
        let error = recorder.header(&header()).unwrap_err().to_string();
        assert!(error.contains("has changed since"), "{error}");
        assert_eq!(fs::read_to_string(folder.path().join(RUNS)).unwrap(), longer);
    }
}
