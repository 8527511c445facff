//! The command that measures a row again.

use crate::cell::{Cell, Factor};
use crate::record::Header;

/// The record's own command, narrowed to `cell` and, of the compared factor, to `levels`.
pub(super) fn repeat(header: &Header, cell: &Cell, compared: Option<(Factor, &[&str])>) -> String {
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

/// A word as a POSIX shell reads it back.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-=,./:@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}
