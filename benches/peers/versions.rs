//! Which versions the peers are, and whether they are as new as a comparison must have them.
//!
//! What a program says of itself may be older than it is (wireguard-go's constant is not always raised), so what
//! `benches/fetch-peers` noted when it fetched that very program counts before it.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

use crate::beside::{Beside, Program};

/// The least that counts, as in `benches/fetch-peers`.
const LEAST: [(&str, &str); 3] = [("wireguard-go", "0.0.20260522"), ("boringtun-cli", "0.7.1"), ("gotatun", "0.10.2")];

/// The program at `path`, with the version as which it was fetched into `directory`.
pub(crate) fn program(directory: &Path, name: &str, path: &Path) -> Result<Program> {
    let bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
    let sha256: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    let (fetched, not_fetched) = match fetched(directory, name, &sha256) {
        Ok(version) => (Some(version), None),
        Err(why) => (None, Some(why)),
    };
    Ok(Program { path: path.display().to_string(), sha256, fetched, not_fetched })
}

/// What `fetch-peers` noted, if it noted it of this program; or why that cannot be told.
fn fetched(directory: &Path, name: &str, sha256: &str) -> Result<String, String> {
    let note = |file: &str| {
        let places = [Some(directory), directory.parent()].into_iter().flatten();
        let mut texts = places.filter_map(|place| std::fs::read_to_string(place.join("versions").join(file)).ok());
        texts.next().and_then(|text| text.split_whitespace().next().map(str::to_owned))
    };
    let version = note(name).ok_or("benches/fetch-peers did not fetch it")?;
    match note(&format!("{name}.sha256")) {
        Some(sum) if sum == sha256 => Ok(version),
        Some(_) => Err(format!("what was fetched as {version} is another program than this")),
        None => Err(format!("{version} was fetched without its SHA-256: run benches/fetch-peers again")),
    }
}

/// What is known of a peer beside what it says of itself.
pub(crate) fn told(name: &str, beside: Option<&Beside>) -> String {
    match beside.map(|beside| beside.peers.get(name)) {
        None => " (the record does not say what was fetched)".to_owned(),
        Some(None) => String::new(),
        Some(Some(Program { fetched: Some(version), .. })) => format!(" (fetched as {version})"),
        Some(Some(Program { not_fetched, .. })) => {
            format!(" ({})", not_fetched.as_deref().unwrap_or("what was fetched is not known"))
        }
    }
}

/// A complaint where the peer `name`, which says to be `said`, is older than it must be, or nobody can tell.
pub(crate) fn outdated(name: &str, said: &BTreeSet<String>, beside: Option<&Beside>) -> Option<String> {
    let (_, least) = LEAST.into_iter().find(|(peer, _)| *peer == name)?;
    let fetched = beside.and_then(|beside| beside.peers.get(name)?.fetched.clone());
    let known: BTreeSet<String> = fetched.map_or_else(|| said.clone(), |version| BTreeSet::from([version]));
    if known.is_empty() {
        return Some(format!("{name}: its version is not known, and {least} is the least that counts"));
    }
    let old = known.into_iter().find(|version| !at_least(version, least))?;
    Some(format!(
        "{name} IS TOO OLD: it is {old}, and {least} is the least that counts{}; benches/fetch-peers fetches it",
        told(name, beside)
    ))
}

/// Whether the version in `text` is at least `least`: by its numbers, so `v0.0.20260522-1` is `0.0.20260522`.
fn at_least(text: &str, least: &str) -> bool {
    numbers(text).is_some_and(|numbers_here| Some(numbers_here) >= numbers(least))
}

/// The first word that begins like a version (`0.7.1`, `v0.0.20260522`), up to what is no number.
fn numbers(text: &str) -> Option<Vec<u64>> {
    text.split_whitespace().find_map(|word| {
        let word = word.strip_prefix('v').unwrap_or(word);
        let end = word.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(word.len());
        let numbers: Option<Vec<u64>> = word[..end].split('.').map(|number| number.parse().ok()).collect();
        numbers.filter(|numbers| numbers.len() > 1)
    })
}
