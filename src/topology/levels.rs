//! Levels whose ends may differ, like `"old>new"`.

use toml::Spanned;

use super::diagnostic::Problems;
use crate::cell::{ends, printable};

/// The client's and the server's part of a level: one name, or two different ones.
pub(super) fn level_ends<'t>(level: &'t Spanned<String>, problems: &mut Problems<'_>) -> Vec<&'t str> {
    let (client, server) = ends(level.get_ref());
    if client == server && level.get_ref().contains('>') {
        let message = format!("`{}` is the same on both ends", printable(level.get_ref()));
        problems.push(level.span(), message, format!("write \"{}\"", printable(client)));
        return vec![client];
    }
    if client == server { vec![client] } else { vec![client, server] }
}

/// Adds the level, unless it is there already.
pub(super) fn push_level(level: Spanned<String>, levels: &mut Vec<String>, problems: &mut Problems<'_>) {
    if levels.contains(level.get_ref()) {
        let message = format!("`{}` is named twice", printable(level.get_ref()));
        problems.push(level.span(), message, "remove one of them; the same thing under two names is an A/A");
        return;
    }
    levels.push(level.into_inner());
}
