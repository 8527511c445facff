//! `stacks` and `[stack]`: how the hosts underneath move packets for the nodes.

use std::collections::BTreeSet;

use toml::Spanned;
use toml::de::DeValue;

use super::diagnostic::Problems;
use super::levels::{level_ends, push_level};
use super::names::check_name;
use super::reader::Table;
use super::words::Delivery;
use super::{DEFAULT_STACK, FOUND_STACK, Stack};
use crate::cell::{did_you_mean, printable};

/// What a provider made here does.
const MADE_KEYS: [&str; 2] = ["delivery", "receive_queues"];
/// What a person's own commands do on real hosts.
const HOOK_KEYS: [&str; 2] = ["switch", "verify"];
pub(super) const KEYS: [&str; 4] = ["delivery", "receive_queues", "switch", "verify"];
const EXAMPLE: &str = "[stack] standard = { delivery = \"merged-tcp\" }";

/// `stacks` and `[stack]`: the stacks and the levels. None named: what the nodes have.
pub(super) fn stacks(root: &Table<'_>, here: bool, problems: &mut Problems<'_>) -> (Vec<Stack>, Vec<String>) {
    let tables = root.tables("stack", EXAMPLE, problems);
    if let Some(value) = root.get("stack")
        && matches!(value.get_ref(), DeValue::Table(table) if table.is_empty())
    {
        problems.push(root.key_span("stack"), "`stack` is an empty table", format!("write `{EXAMPLE}`, or remove it"));
    }
    let mut stacks = Vec::new();
    for (name, table) in &tables {
        if let Err(why) = check_name(name.get_ref()) {
            let message = format!("`{}` cannot name a stack: {why}", printable(name.get_ref()));
            problems.push(name.span(), message, "choose another name");
        }
        stacks.push(stack(name.get_ref(), table, here, problems));
    }
    let levels = root.texts("stacks", "stacks = [\"standard\", \"ebpf\", \"standard>ebpf\"]", problems);
    if stacks.is_empty() {
        if let Some(levels) = levels {
            let span = levels.first().map_or(0..0, Spanned::span);
            problems.push(span, "`stacks` names stacks, but none is defined", format!("write `{EXAMPLE}`"));
        }
        let (name, delivery) = if here { (DEFAULT_STACK.0, Some(DEFAULT_STACK.1)) } else { (FOUND_STACK, None) };
        let stack = Stack { name: name.to_owned(), delivery, receive_queues: None, switch: None, verify: None };
        return (vec![stack], vec![name.to_owned()]);
    }
    let mut names = Vec::new();
    let mut used = BTreeSet::new();
    match levels {
        None => names.extend(stacks.iter().map(|stack| stack.name.clone())),
        Some(levels) => {
            let known: Vec<String> = stacks.iter().map(|stack| stack.name.clone()).collect();
            for level in levels {
                for side in level_ends(&level, problems) {
                    used.insert(side.to_owned());
                    if !known.iter().any(|name| name == side) {
                        let suggestion = did_you_mean(side, known.iter().map(String::as_str));
                        let help = format!("{suggestion}the stacks are {}", known.join(", "));
                        problems.push(level.span(), format!("there is no stack `{}`", printable(side)), help);
                    }
                }
                push_level(level, &mut names, problems);
            }
            for (name, _) in tables.iter().filter(|(name, _)| !used.contains(name.get_ref())) {
                let message =
                    format!("stack `{}` is defined, but `stacks` does not name it", printable(name.get_ref()));
                problems.push(name.span(), message, "add it to `stacks`, or remove it");
            }
        }
    }
    (stacks, names)
}

fn stack(name: &str, table: &Table<'_>, here: bool, problems: &mut Problems<'_>) -> Stack {
    table.only(&KEYS, problems);
    if here && table.get("delivery").is_none() {
        let help = "write delivery = \"merged-tcp\", \"unmerged\" or \"merged-all\"";
        problems.push(table.span(), format!("{} has no delivery", table.what()), help);
    }
    for key in MADE_KEYS.into_iter().filter(|key| !here && table.get(key).is_some()) {
        let message = format!("`{key}` is what a provider made here does, but the nodes are real");
        let help = "a real node's stack is switched by hand or by a `switch` command, not made: remove it";
        problems.push(table.key_span(key), message, help);
    }
    for key in HOOK_KEYS.into_iter().filter(|key| here && table.get(key).is_some()) {
        let message = format!("`{key}` is for real nodes, but the nodes are made here");
        problems.push(table.key_span(key), message, "the provider switches them: remove it");
    }
    let mut command = |key: &str| {
        let words = table.texts(key, &format!("{key} = [\"./stack\", \"{key}\"]"), problems)?;
        Some(words.into_iter().map(Spanned::into_inner).collect())
    };
    let (switch, verify) = (command("switch"), command("verify"));
    Stack {
        name: name.to_owned(),
        delivery: table.parsed::<Delivery>("delivery", problems).map(Spanned::into_inner),
        receive_queues: table.whole("receive_queues", 1..=256, problems).map(|queues| queues.into_inner() as u32),
        switch,
        verify,
    }
}
