//! Files that arguments name: topologies, records.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::cell::did_you_mean;
use crate::record::Record;
use crate::run::RUNS;
use crate::topology::{SHIPPED, Topology, TopologyError, shipped};

/// Where records go unless `--out` says otherwise: under the current directory, each in its own.
pub(super) const RECORDS: &str = "wglab-records";

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
    match fs::read_to_string(argument) {
        Ok(text) => parse(argument, &text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
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
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
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
