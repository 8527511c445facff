//! Files that arguments name: topologies, records.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::cell::{did_you_mean, printable};
use crate::record::Record;
use crate::run::RUNS;
use crate::topology::{PolicyFile, SHIPPED, Topology, TopologyError, shipped};

/// Where records go unless `--out` says otherwise: under the current directory, each in its own.
pub(super) const RECORDS: &str = "wglab-records";

/// As much of a file as is read for a topology, in bytes: above what [`Topology::parse`] takes, so that it says what it takes.
const LONGEST_TOPOLOGY: u64 = 16 << 20;

/// A topology's text that is no topology: shown with its snippets.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Refused(pub(super) Box<TopologyError>);

/// Reads the topology that `argument` names: a shipped one, or a file.
pub(super) fn topology(argument: &str) -> anyhow::Result<Topology> {
    let looks_like_path = argument.contains('/') || argument.ends_with(".toml");
    let parse = |file: &str, text: &str| Topology::parse(file, text).map_err(|error| Refused(error).into());
    if let Some(text) = shipped(argument).filter(|_| !looks_like_path) {
        return parse(argument, text);
    }
    match read_bytes(argument) {
        Ok(bytes) => parse(argument, &text_of(argument, bytes)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let names = SHIPPED.map(|(name, _)| name);
            let shipped = names.join(", ");
            bail!(
                "there is no topology `{argument}`: no file of that name, and none is shipped under it; {}shipped are {shipped}",
                did_you_mean(argument, names)
            )
        }
        Err(error) => Err(error).with_context(|| format!("cannot read the topology {argument}")),
    }
}

/// Reads the policy in the file `path`.
pub(super) fn policy(path: &Path) -> anyhow::Result<PolicyFile> {
    let file = path.display().to_string();
    let bytes = read_bytes(&file).with_context(|| format!("cannot read the policy {file}"))?;
    PolicyFile::parse(&file, &text_of(&file, bytes)?).map_err(|error| Refused(error).into())
}

/// Reads a topology's bytes, and no more of an endless file (`/dev/zero`) than shows that it is none.
fn read_bytes(path: &str) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(LONGEST_TOPOLOGY).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A topology's text; what is no text is refused where it begins to be none.
fn text_of(file: &str, bytes: Vec<u8>) -> anyhow::Result<String> {
    String::from_utf8(bytes).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line_start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        let column = String::from_utf8_lossy(&before[line_start..]).chars().count() + 1;
        anyhow::anyhow!("{}:{line}:{column}: this is not UTF-8, as it must be; save it so", printable(file))
    })
}

/// A new record's directory.
pub(super) fn new_record(out: Option<&Path>, topology: &str, started: &str) -> PathBuf {
    if let Some(out) = out {
        return out.to_owned();
    }
    let stem =
        Path::new(topology).file_stem().map_or_else(|| "run".to_owned(), |stem| stem.to_string_lossy().into_owned());
    // Names sort by time; colons are trouble in scp and make.
    let stamp: String =
        started.chars().filter(|c| !matches!(c, ':' | '-')).map(|c| if c == '.' { '-' } else { c }).collect();
    Path::new(RECORDS).join(format!("{}-{stem}", stamp.trim_end_matches('Z')))
}

/// A record as an argument names it.
pub(super) struct Named {
    pub(super) name: String,
    pub(super) record: Record,
}

/// Reads the records that are named, or the last run.
pub(super) fn records(arguments: &[PathBuf]) -> anyhow::Result<Vec<Named>> {
    if arguments.is_empty() {
        return Ok(vec![last(Path::new(RECORDS))?]);
    }
    arguments.iter().map(|path| read(path)).collect()
}

fn read(path: &Path) -> anyhow::Result<Named> {
    let file = if path.is_dir() { path.join(RUNS) } else { path.to_owned() };
    let bytes = fs::read(&file).with_context(|| format!("cannot read the record {}", file.display()))?;
    let record = Record::parse(bytes).with_context(|| format!("{}", file.display()))?;
    Ok(Named { name: path.display().to_string(), record })
}

/// Beside the records under [`RECORDS`]: which record was measured last, where that is another one.
const LAST: &str = ".last";

/// Remembers `directory` as the last run's, unless it is one of those that are found by their names.
pub(super) fn remember(directory: &Path, resumed: bool) -> anyhow::Result<()> {
    remember_in(Path::new(RECORDS), directory, resumed)
}

fn remember_in(records: &Path, directory: &Path, resumed: bool) -> anyhow::Result<()> {
    if directory.parent() == Some(records) && !resumed {
        return Ok(());
    }
    let (file, unfinished) = (records.join(LAST), records.join(".last.new"));
    let write = || {
        fs::create_dir_all(records)?;
        fs::write(&unfinished, directory.as_os_str().as_bytes())?;
        fs::rename(&unfinished, &file)
    };
    write().with_context(|| format!("`wglab report` alone will not find this record: cannot write {}", file.display()))
}

/// The last run's record: the newest of those under `records` by its name, or the one that was remembered, whichever began later.
fn last(records: &Path) -> anyhow::Result<Named> {
    let remembered = fs::read(records.join(LAST)).ok().map(|bytes| PathBuf::from(OsString::from_vec(bytes)));
    let remembered = remembered.filter(|directory| directory.join(RUNS).is_file());
    match (newest(records)?, remembered) {
        (None, None) => {
            bail!("there is no record yet under ./{}: `wglab run` makes one, or name one", records.display())
        }
        (Some(one), None) | (None, Some(one)) => read(&one),
        (Some(one), Some(other)) => {
            let (one, other) = (read(&one)?, read(&other)?);
            Ok(if began(&other.record) > began(&one.record) { other } else { one })
        }
    }
}

/// When the last sitting began. Times of one form sort as text.
fn began(record: &Record) -> &str {
    &record.resumed.last().unwrap_or(&record.header).started
}

/// The record under `records` whose name sorts last, as names do by time.
fn newest(records: &Path) -> anyhow::Result<Option<PathBuf>> {
    let listed = || format!("cannot list ./{}", records.display());
    let entries = match fs::read_dir(records) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(listed),
    };
    let mut newest = None;
    for entry in entries {
        let path = entry.with_context(listed)?.path();
        if path.join(RUNS).is_file() {
            newest = newest.max(Some(path));
        }
    }
    Ok(newest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endless_file_is_refused_by_its_size() {
        let error = topology("/dev/zero").unwrap_err().to_string();
        assert!(error.contains("at most 4 MiB"), "{error}");
    }

    /// A record with one run, which began at `started`.
    fn make(directory: &Path, started: &str) {
        let mut header = crate::record::fixture::Made::new(crate::cell::Factor::Engine, &[]).record.header;
        header.started = started.to_owned();
        fs::create_dir_all(directory).unwrap();
        fs::write(directory.join(RUNS), header.to_line().unwrap()).unwrap();
    }

    #[test]
    fn the_last_run_is_found_wherever_it_went() {
        let folder = tempfile::tempdir().unwrap();
        let records = folder.path().join("wglab-records");
        let name = || last(&records).map(|named| named.name).map_err(|error| error.to_string());
        assert!(name().unwrap_err().contains("there is no record yet"));
        let (first, elsewhere, second) =
            (records.join("20261130T1-pair"), folder.path().join("out"), records.join("20261130T3-pair"));
        make(&elsewhere, "2026-11-30T12:00:00.000Z");
        remember_in(&records, &elsewhere, false).unwrap();
        assert_eq!(name().unwrap(), elsewhere.display().to_string());
        make(&first, "2026-11-30T11:00:00.000Z");
        remember_in(&records, &first, false).unwrap();
        assert_eq!(name().unwrap(), elsewhere.display().to_string(), "it began later");
        make(&second, "2026-11-30T13:00:00.000Z");
        assert_eq!(name().unwrap(), second.display().to_string());
        // What was gone on with is the last run; what is gone is none.
        make(&first, "2026-11-30T14:00:00.000Z");
        remember_in(&records, &first, true).unwrap();
        assert_eq!(name().unwrap(), first.display().to_string());
        fs::remove_dir_all(&first).unwrap();
        assert_eq!(name().unwrap(), second.display().to_string());
    }

    #[test]
    fn what_is_wrong_with_a_policy_is_shown_at_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("gate.toml");
        let of = |text: &str| {
            fs::write(&file, text).unwrap();
            policy(&file).map_err(|error| error.to_string())
        };
        let right = "metrics = [\"rr_p50_ns\"]\nmin-effect = \"5%\"\n[min-effects]\nrr_p50_ns = \"15%\"\n";
        assert_eq!(of(right).unwrap().judged.metrics.unwrap(), ["rr_p50_ns"]);
        assert_eq!(of("min_effect = \"5%\"").unwrap().min_effect, "5%".parse().ok());
        for (text, parts) in [
            ("# gate\nmetrics = [\"rr_p50_n\"]\n", ["gate.toml:2:12", "did you mean `rr_p50_ns`?"]),
            ("metrics = [\"softirq_ratio\"]\n", ["gate.toml:1:12", "it only explains"]),
            ("min-effect = \"500%\"\n", ["gate.toml:1:14", "a part between 0 and 1"]),
            ("[min-effects]\nrr_p50_ns = \"0%\"\n", ["gate.toml:2:13", "a part between 0 and 1"]),
            ("min-efect = \"5%\"\n", ["gate.toml:1:1", "did you mean `min-effect`?"]),
            ("metrics = \n", ["gate.toml:1:1", "this is not TOML"]),
        ] {
            let error = of(text).unwrap_err();
            assert!(parts.iter().all(|part| error.contains(part)), "{text}: {error}");
            assert!(error.contains("help:"), "{error}");
        }
    }

    #[test]
    fn what_is_no_text_is_refused_where_it_begins() {
        let error = text_of("lab.toml", b"# \xc3\xa4\nnodes = [\"\xe4\"]\n".to_vec()).unwrap_err().to_string();
        assert!(error.starts_with("lab.toml:2:11: "), "{error}");
        assert_eq!(text_of("lab.toml", "# ä\n".into()).unwrap(), "# ä\n");
    }
}
