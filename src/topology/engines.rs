//! `engines` and `[engine]`: what carries a pair's traffic.

use std::collections::BTreeSet;

use toml::Spanned;

use super::Engine;
use super::diagnostic::Problems;
use super::levels::{level_ends, push_level};
use super::names::{check_interface, check_name};
use super::reader::Table;
use super::words::{EngineSpec, KNOWN_DAEMONS};
use crate::cell::{did_you_mean, printable};

pub(super) const KEYS: [&str; 3] = ["path", "interface", "kind"];
const EXAMPLE: &str = "[engine.wireguard-go] path = \"/usr/bin/wireguard-go\"";

/// The engines that need no table.
const BUILT_IN: [&str; 4] = ["raw", "embedded", "direct", "kernel"];

/// `engines` and `[engine]`: every engine that a level names, and the levels.
pub(super) fn engines(root: &Table<'_>, problems: &mut Problems<'_>) -> (Vec<Engine>, Vec<String>) {
    let mut defined: Vec<(Spanned<String>, Option<EngineSpec>)> = Vec::new();
    for (name, table) in root.tables("engine", EXAMPLE, problems) {
        if let Err(why) = check_name(name.get_ref()) {
            let message = format!("`{}` cannot name an engine: {why}", printable(name.get_ref()));
            let help = if name.get_ref().contains('>') {
                "choose another name; `>` stands between the engines of two ends, as in `engines = [\"old>new\"]`"
            } else {
                "choose another name"
            };
            problems.push(name.span(), message, help);
        }
        let spec = engine(name.get_ref(), &table, problems);
        defined.push((name, spec));
    }
    let levels = root.texts("engines", "engines = [\"raw\", \"embedded\"]", problems);
    let listed = root.get("engines").is_some();
    let levels = match levels {
        Some(levels) => levels,
        None if defined.is_empty() => ["raw", "embedded"].map(|name| Spanned::new(0..0, name.to_owned())).to_vec(),
        None => {
            let own = defined.iter().map(|(name, _)| name.clone()).filter(|name| name.get_ref() != "raw");
            [Spanned::new(0..0, "raw".to_owned())].into_iter().chain(own).collect()
        }
    };
    let mut engines: Vec<Engine> = Vec::new();
    let mut used = BTreeSet::new();
    let mut names: Vec<String> = Vec::new();
    let known: Vec<String> =
        defined.iter().map(|(name, _)| name.get_ref().clone()).chain(BUILT_IN.map(str::to_owned)).collect();
    // A problem already; read as the level of two engines it would be another.
    let misnamed = |name: &str| name.contains('>') && defined.iter().any(|(defined, _)| defined.get_ref() == name);
    for level in levels.into_iter().filter(|level| !misnamed(level.get_ref())) {
        let sides = level_ends(&level, problems);
        for &side in &sides {
            used.insert(side.to_owned());
            if engines.iter().any(|engine| engine.name == side) {
                continue;
            }
            let spec = match defined.iter().find(|(name, _)| name.get_ref() == side) {
                Some((_, spec)) => spec.clone(),
                None if BUILT_IN.contains(&side) => side.parse().ok(),
                None => {
                    let suggestion = did_you_mean(side, known.iter().map(String::as_str));
                    let help = format!("{suggestion}define it, like `{EXAMPLE}`; built in are {}", BUILT_IN.join(", "));
                    problems.push(level.span(), format!("there is no engine `{}`", printable(side)), help);
                    None
                }
            };
            engines.extend(spec.map(|spec| Engine { name: side.to_owned(), spec }));
        }
        if sides.len() > 1 && sides.contains(&"raw") {
            let help = "the raw underlay is the same on both ends: name it alone";
            problems.push(level.span(), "one end of a tunnel cannot be raw", help);
        }
        push_level(level, &mut names, problems);
    }
    for (name, _) in
        defined.iter().filter(|(name, _)| listed && !used.contains(name.get_ref()) && !misnamed(name.get_ref()))
    {
        let message = format!("engine `{}` is defined, but `engines` does not name it", printable(name.get_ref()));
        problems.push(name.span(), message, "add it to `engines`, or remove it");
    }
    (engines, names)
}

/// One `[engine.NAME]` table.
fn engine(name: &str, table: &Table<'_>, problems: &mut Problems<'_>) -> Option<EngineSpec> {
    table.only(&KEYS, problems);
    if BUILT_IN.contains(&name) {
        let message = format!("`{name}` is built in and cannot be another engine");
        problems.push(table.span(), message, "choose another name for it");
        return None;
    }
    let given: Vec<&str> = KEYS.into_iter().filter(|key| table.get(key).is_some()).collect();
    let [key] = given.as_slice() else {
        let message = format!("{} has {} of {}", table.what(), given.len(), KEYS.join(", "));
        problems.push(table.span(), message, "say what it is with exactly one of them");
        return None;
    };
    let text = table.text(key, problems)?;
    let bad = |problems: &mut Problems<'_>, why: String, help: &str| {
        problems.push(text.span(), format!("`{key}`: {why}"), help);
        None
    };
    match *key {
        "interface" => match check_interface(text.get_ref()) {
            Ok(()) => Some(EngineSpec::Interface(text.into_inner())),
            Err(why) => bad(
                problems,
                format!("`{}` is no interface: {why}", printable(text.get_ref())),
                "write it as `ip link` shows it",
            ),
        },
        "path" => match text.get_ref().parse() {
            Ok(spec @ EngineSpec::Daemon(_)) => Some(spec),
            Err(error) if text.get_ref().contains('/') => bad(problems, error.why, "write the path of a program"),
            _ => bad(
                problems,
                format!("`{}` could be anything", printable(text.get_ref())),
                &format!(
                    "{}write a path with a `/` in it, like \"./wireguard-go\"",
                    did_you_mean(text.get_ref(), KNOWN_DAEMONS)
                ),
            ),
        },
        _ => match text.get_ref().parse() {
            Ok(spec @ (EngineSpec::Embedded | EngineSpec::Direct | EngineSpec::Kernel | EngineSpec::Raw)) => Some(spec),
            _ => {
                let help = format!(
                    "{}choose embedded, direct, kernel; a daemon has a `path`, an interface an `interface`",
                    did_you_mean(text.get_ref(), BUILT_IN)
                );
                bad(problems, format!("`{}` is not a kind of engine", printable(text.get_ref())), &help)
            }
        },
    }
}
