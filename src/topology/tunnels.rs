//! `tunnels`: how many of them a pair's streams are spread over.

use toml::Spanned;

use super::diagnostic::Problems;
use super::reader::{Table, parse_whole};
use super::{Engine, EngineSpec};

/// The most tunnels of one pair: each is a device on both nodes, and of most engines a process.
const MOST_TUNNELS: u64 = 64;

/// The levels; empty where the file does not say.
pub(super) fn tunnels(root: &Table<'_>, engines: &[Engine], problems: &mut Problems<'_>) -> Vec<u32> {
    let read = root
        .one_or_many("tunnels", problems, |value, problems| parse_whole(value, "tunnels", 1..=MOST_TUNNELS, problems));
    let Some(levels) = read else { return Vec::new() };
    if !engines.is_empty() && engines.iter().all(|engine| engine.spec == EngineSpec::Raw) {
        let help = "name an engine that makes tunnels, or leave `tunnels` out";
        problems.push(root.key_span("tunnels"), "the raw underlay has no tunnels", help);
    }
    levels.into_iter().map(Spanned::into_inner).filter_map(|level| u32::try_from(level).ok()).collect()
}
