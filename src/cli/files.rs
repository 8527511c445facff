//! Files that arguments name: topologies, records.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::cell::{did_you_mean, printable};
use crate::record::Record;
use crate::run::RUNS;
use crate::topology::{SHIPPED, Topology, TopologyError, shipped};

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
        anyhow::anyhow!("{}:{line}:{column}: this is not UTF-8, and a topology is: save it so", printable(file))
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
        return Ok(vec![read(&last()?)?]);
    }
    arguments.iter().map(|path| read(path)).collect()
}

fn read(path: &Path) -> anyhow::Result<Named> {
    let file = if path.is_dir() { path.join(RUNS) } else { path.to_owned() };
    let bytes = fs::read(&file).with_context(|| format!("cannot read the record {}", file.display()))?;
    let record = Record::parse(bytes).with_context(|| format!("{}", file.display()))?;
    Ok(Named { name: path.display().to_string(), record })
}

fn last() -> anyhow::Result<PathBuf> {
    let entries = match fs::read_dir(RECORDS) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            bail!("there is no record yet under ./{RECORDS}: `wglab run` makes one, or name one")
        }
        Err(error) => return Err(error).with_context(|| format!("cannot list ./{RECORDS}")),
    };
    let mut directories = Vec::new();
    for entry in entries {
        let path = entry.with_context(|| format!("cannot list ./{RECORDS}"))?.path();
        if path.join(RUNS).is_file() {
            directories.push(path);
        }
    }
    directories
        .into_iter()
        .max()
        .with_context(|| format!("there is no record under ./{RECORDS}: `wglab run` makes one, or name one"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endless_file_is_refused_by_its_size() {
        let error = topology("/dev/zero").unwrap_err().to_string();
        assert!(error.contains("at most 4 MiB"), "{error}");
    }

    #[test]
    fn what_is_no_text_is_refused_where_it_begins() {
        let error = text_of("lab.toml", b"# \xc3\xa4\nnodes = [\"\xe4\"]\n".to_vec()).unwrap_err().to_string();
        assert!(error.starts_with("lab.toml:2:11: "), "{error}");
        assert_eq!(text_of("lab.toml", "# ä\n".into()).unwrap(), "# ä\n");
    }
}
