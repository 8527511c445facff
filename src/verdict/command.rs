//! The command that measures a row again.

use super::{By, Comparison, Source};
use crate::cell::{Cell, Factor};
use crate::record::Header;

/// The command that measures `cell` of `comparison` again at the baseline and at `level`.
pub fn repeat(sources: &[Source<'_>], comparison: &Comparison, cell: &Cell, level: &str) -> String {
    row(sources, &comparison.by, &comparison.base, cell, level)
}

/// The same for what is not a comparison yet. Of two records it is the newer one that can be measured again.
pub(super) fn row(sources: &[Source<'_>], by: &By, base: &str, cell: &Cell, level: &str) -> String {
    let source = match by {
        By::Factor { .. } => sources.first(),
        By::Record => sources.iter().find(|source| source.name == level),
    };
    let compared = match by {
        By::Factor { factor, .. } => Some((*factor, [base, level])),
        By::Record => None,
    };
    let header = source.map(|source| &source.record.header);
    header.map_or_else(String::new, |header| narrowed(header, cell, compared))
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
        if several {
            words.push(format!("--only {}", quoted(&format!("{factor}={level}"))));
        }
    }
    if let Some((factor, levels)) = compared {
        let all = header.levels.get(&factor).is_some_and(|known| known.len() == levels.len());
        if !all {
            words.push(format!("--only {}", quoted(&format!("{factor}={}", levels.join(",")))));
        }
    }
    words.join(" ")
}

/// An argument vector as a line that a POSIX shell reads back.
pub fn shell(words: &[String]) -> String {
    words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

/// A word as a POSIX shell reads it back.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-=,./:@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}
