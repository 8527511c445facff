//! The command that measures a row again.

use super::{By, Comparison, Source};
use crate::cell::{Cell, Factor};
use crate::record::Header;

/// The command that measures `cell` of `comparison` again at the baseline and at `level`.
pub fn repeat(sources: &[Source<'_>], comparison: &Comparison, cell: &Cell, level: &str) -> String {
    row(sources, &comparison.by, &comparison.base, cell, level)
}

/// The same for what is not a comparison yet. Of two records it is the newer one that can be measured again, unless only the other
/// has what is to be measured: each was begun with a command of its own.
pub(super) fn row(sources: &[Source<'_>], by: &By, base: &str, cell: &Cell, level: &str) -> String {
    let (candidates, compared): (Vec<&Source<'_>>, _) = match by {
        By::Factor { factor, .. } => (sources.iter().collect(), Some((*factor, [base, level]))),
        By::Record => {
            let named = |name: &str| sources.iter().find(|source| source.name == name);
            ([named(level), named(base)].into_iter().flatten().collect(), None)
        }
    };
    let headers = || candidates.iter().map(|source| &source.record.header);
    let has_cell = |header: &&Header| cell.iter().all(|(factor, level)| knows(header, factor, level));
    let has = |header: &&Header, level: &str| compared.is_none_or(|(factor, _)| knows(header, factor, level));
    let chosen = headers()
        .find(|header| has_cell(header) && has(header, base) && has(header, level))
        .or_else(|| headers().find(|header| has_cell(header) && has(header, level)))
        .or_else(|| headers().find(has_cell))
        .or_else(|| headers().next());
    chosen.map_or_else(String::new, |header| narrowed(header, cell, compared))
}

/// Whether the record's command has this level, as far as its header tells.
fn knows(header: &Header, factor: Factor, level: &str) -> bool {
    header.levels.get(&factor).is_none_or(|levels| levels.iter().any(|known| known == level))
}

/// What `--rounds` takes at most: so many would not decide in a day.
pub(super) const MOST_ROUNDS: u32 = 1000;

/// The record's own command with another number of rounds; `None` where that is more than can be asked for.
pub fn with_rounds(header: &Header, rounds: u32) -> Option<String> {
    (rounds <= MOST_ROUNDS).then(|| with_options(header, &Cell::new(), &[("--rounds", rounds.to_string())]))
}

/// The record's own command, narrowed to `cell`, with these options instead of its own of the same name.
pub(super) fn with_options(header: &Header, cell: &Cell, options: &[(&str, String)]) -> String {
    let mut kept: Vec<String> = Vec::new();
    let mut words = header.command.iter();
    while let Some(word) = words.next() {
        let named = options.iter().any(|(option, _)| word == option || word.starts_with(&format!("{option}=")));
        if !named {
            kept.push(word.clone());
        } else if !word.contains('=') {
            // The option's value is a word of its own.
            words.next();
        }
    }
    let header = Header { command: kept, ..header.clone() };
    let options = options.iter().map(|(option, value)| format!(" {option} {}", quoted(value)));
    narrowed(&header, cell, None) + &options.collect::<String>()
}

/// The record's own command, narrowed to `cell` and, of the compared factor, to two levels.
fn narrowed(header: &Header, cell: &Cell, compared: Option<(Factor, [&str; 2])>) -> String {
    let mut words: Vec<String> = header.command.iter().map(|word| quoted(word)).collect();
    for (factor, level) in cell.iter() {
        // A factor with one level needs no narrowing.
        let several = header.levels.get(&factor).is_none_or(|levels| levels.len() > 1);
        if several && knows(header, factor, level) {
            words.push(format!("--only {}", quoted(&format!("{factor}={level}"))));
        }
    }
    if let Some((factor, levels)) = compared {
        let levels: Vec<&str> = levels.into_iter().filter(|level| knows(header, factor, level)).collect();
        let all = header.levels.get(&factor).is_some_and(|known| known.len() == levels.len());
        if !all && !levels.is_empty() {
            words.push(format!("--only {}", quoted(&format!("{factor}={}", levels.join(",")))));
        }
    }
    words.join(" ")
}

/// An argument vector as a line that a POSIX shell reads back.
pub fn shell(words: &[String]) -> String {
    words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

/// The words of a line that [`shell`] wrote.
pub fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let (mut is_quoted, mut is_escaped) = (false, false);
    for c in line.chars() {
        match c {
            _ if is_escaped => {
                word.get_or_insert_default().push(c);
                is_escaped = false;
            }
            '\'' => {
                is_quoted = !is_quoted;
                word.get_or_insert_default();
            }
            '\\' if !is_quoted => is_escaped = true,
            ' ' if !is_quoted => words.extend(word.take()),
            _ => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// A word as a POSIX shell reads it back.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-=,./:@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}
