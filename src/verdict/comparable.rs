//! Whether two records may be compared: the same machines, under the same conditions.
//!
//! Fields are compared, not hashes, so that a refusal can name them. A field that one side lacks differs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;
use serde_json::Value;

use super::{By, Policy, Source, arms};
use crate::cell::{Cell, Factor, did_you_mean, printable};
use crate::record::Run;

/// One field that differs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Difference {
    /// Its path: `node a1 kernel`, `tunnel_mtu of engine=embedded ...`.
    pub field: String,
    /// The word by which `--changed` names it.
    pub name: String,
    /// The baseline's value, as JSON; absent where it has none.
    pub base: Option<String>,
    /// The other's.
    pub new: Option<String>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |value: &Option<String>| value.as_deref().map_or_else(|| "missing".to_owned(), printable);
        write!(f, "{} ({} / {})", printable(&self.field), text(&self.base), text(&self.new))
    }
}

/// The field of a difference between the nodes themselves: the records are of different topologies.
const WHICH_NODES: &str = "which nodes";

/// What to do about them: the words for `--changed`, and another record where the nodes themselves differ.
pub(super) fn remedy(differences: &[Difference]) -> String {
    let (nodes, others): (Vec<_>, Vec<_>) = differences.iter().partition(|difference| difference.field == WHICH_NODES);
    let names: BTreeSet<&str> = others.iter().map(|difference| difference.name.as_str()).collect();
    let names = names.into_iter().collect::<Vec<_>>().join(",");
    match (nodes.is_empty(), names.is_empty()) {
        (true, _) => format!("name what was changed on purpose with --changed {names}"),
        (false, true) => "they are of different topologies: compare records of the same nodes".to_owned(),
        (false, false) => format!(
            "they are of different topologies: compare records of the same nodes, and name what else was changed on purpose with \
             --changed {names}"
        ),
    }
}

/// Facts of a node that say when or which one it was, not what it is: any of these words in a field's name.
const NOT_WHAT_IT_IS: [&str; 12] = [
    // What the generator moved in a moment of calibration: a measurement.
    "generator",
    "time",
    "uptime",
    "load",
    "pid",
    "free",
    "available",
    "address",
    "hostname",
    "boot_id",
    "machine_id",
    "interfaces",
];
/// Facts without which nobody can say that two nodes are alike: absent on both sides is a difference too.
const MUST_BE_KNOWN: [&str; 3] = ["kernel", "cpu_model", "cpus"];
/// Conditions that differ between any two runs: measurements, and the ends of a connection.
const OF_ONE_RUN: [&str; 8] = ["steal", "throttled", "throttling", "load", "port", "lateness", "local", "peer"];

/// What differs between the first of `sources` and the others and is neither explained by `by` nor named in the policy.
pub(super) fn differences(sources: &[Source<'_>], by: &By, policy: &Policy) -> Vec<Difference> {
    let Some((base, others)) = sources.split_first() else { return Vec::new() };
    let mut all = BTreeSet::new();
    for other in others {
        all.extend(of_nodes(&base.record.header.nodes, &other.record.header.nodes));
        all.extend(of_conditions(&conditions(base.record.usable(), by), &conditions(other.record.usable(), by)));
        if base.record.header.class != other.record.header.class {
            all.insert(Difference {
                field: "class of run".to_owned(),
                name: "class".to_owned(),
                base: Some(base.record.header.class.text().to_owned()),
                new: Some(other.record.header.class.text().to_owned()),
            });
        }
    }
    all.retain(|difference| {
        let named = policy.changed.iter().any(|changed| is_called(&difference.name, changed));
        let explained = explains(by).iter().any(|word| is_called(&difference.name, word));
        !named && !explained
    });
    all.into_iter().collect()
}

/// Conditions that follow from the compared factor.
fn explains(by: &By) -> &'static [&'static str] {
    match by {
        By::Factor { factor: Factor::Underlay, .. } => &["mtu", "mss", "family", "underlay", "interface"],
        By::Factor { factor: Factor::Engine, .. } => {
            &["engine", "offload", "offloads", "gso", "gro", "interface", "tunnels"]
        }
        // Settings are read back of every tunnel's device.
        By::Factor { factor: Factor::Tunnels, .. } => &["tunnels", "settings"],
        By::Factor { factor: Factor::Stack, .. } => &["stack", "delivery", "conntrack"],
        By::Factor { factor: Factor::Settings, .. } => {
            &["settings", "sysctl", "rps", "queues", "offload", "offloads", "mtu", "mss"]
        }
        By::Factor { factor: Factor::CongestionControl, .. } => &["congestion_control"],
        By::Factor { .. } | By::Record => &[],
    }
}

/// Whether a field's name is `word`, or holds it between underscores, dots or spaces.
fn is_called(name: &str, word: &str) -> bool {
    let word = word.replace('-', "_");
    name == word || format!("_{}_", name.replace(['.', ' '], "_")).contains(&format!("_{word}_"))
}

/// What differs between the facts of nodes then and now, and is not named in `changed`: what a run that goes on must know.
pub fn changed_facts(
    then: &BTreeMap<String, Value>,
    now: &BTreeMap<String, Value>,
    changed: &[String],
) -> Vec<Difference> {
    let mut differences = of_nodes(then, now);
    differences.retain(|difference| !changed.iter().any(|changed| is_called(&difference.name, changed)));
    differences
}

/// A word for `--changed` that names nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{}` names no condition of these records; {}known are {}",
    printable(.name),
    did_you_mean(.name, .known.iter().map(String::as_str)),
    .known.join(", ")
)]
pub struct UnknownCondition {
    /// What was written.
    pub name: String,
    /// The words that name some.
    pub known: Vec<String>,
}

/// The names of what is no condition of a run and no fact of a node, and may be changed all the same.
const BESIDE: [&str; 3] = ["class", "nodes", "wglab"];

/// Whether every one of `changed` names a condition or a fact of `sources`: a slip of the pen would excuse nothing, unseen.
///
/// # Errors
/// The first that names none of them, with those that would.
pub fn check_changed<'a>(
    sources: &[Source<'_>],
    changed: impl IntoIterator<Item = &'a String>,
) -> Result<(), UnknownCondition> {
    let records = || sources.iter().map(|source| source.record);
    let headers = records().flat_map(|record| [&record.header].into_iter().chain(&record.resumed));
    let runs = records().flat_map(|record| &record.runs);
    check_words(headers.map(|header| &header.nodes), runs, changed)
}

/// The same, of the facts of nodes then and now.
///
/// # Errors
/// The first that names none of them, with those that would.
pub fn check_changed_facts<'a>(
    then: &BTreeMap<String, Value>,
    now: &BTreeMap<String, Value>,
    changed: impl IntoIterator<Item = &'a String>,
) -> Result<(), UnknownCondition> {
    check_words([then, now].into_iter(), std::iter::empty(), changed)
}

fn check_words<'a, 'n>(
    nodes: impl Iterator<Item = &'n Nodes>,
    runs: impl Iterator<Item = &'n Run>,
    changed: impl IntoIterator<Item = &'a String>,
) -> Result<(), UnknownCondition> {
    let mut changed = changed.into_iter().peekable();
    if changed.peek().is_none() {
        return Ok(());
    }
    let mut fields: BTreeSet<String> = BESIDE.into_iter().chain(MUST_BE_KNOWN).map(str::to_owned).collect();
    let mut add = |path: &str, value: &Value, never: &[&str]| {
        let mut leaves = BTreeMap::new();
        flatten(path, value, &mut leaves);
        fields.extend(leaves.into_keys().filter(|key| !never.iter().any(|word| is_called(key, word))));
    };
    nodes.flat_map(BTreeMap::values).for_each(|facts| add("", facts, &NOT_WHAT_IT_IS));
    runs.flat_map(|run| &run.conditions).for_each(|(name, value)| add(name, value, &OF_ONE_RUN));
    match changed.find(|name| !fields.iter().any(|field| is_called(field, name))) {
        None => Ok(()),
        Some(name) => Err(UnknownCondition { name: name.clone(), known: words(&fields) }),
    }
}

/// What to name fields by: their last parts, without the end of a pair that they belong to.
fn words(fields: &BTreeSet<String>) -> Vec<String> {
    let words: BTreeSet<&str> = fields.iter().filter_map(|field| field.rsplit('.').next()).collect();
    words.into_iter().filter(|word| !word.is_empty()).map(printable).collect()
}

/// The facts of nodes by name, as a header has them.
type Nodes = BTreeMap<String, Value>;

fn of_nodes(base: &Nodes, new: &Nodes) -> Vec<Difference> {
    let mut differences = Vec::new();
    if !base.keys().eq(new.keys()) {
        // A node that one side lacks is one difference, not one for each of its facts.
        let names = |nodes: &Nodes| nodes.keys().cloned().collect::<Vec<_>>().join(", ");
        let side = |nodes: &Nodes| Some(names(nodes)).filter(|names| !names.is_empty());
        let (base, new) = (side(base), side(new));
        differences.push(Difference { field: WHICH_NODES.to_owned(), name: "nodes".to_owned(), base, new });
    }
    for node in base.keys().filter(|node| new.contains_key(*node)) {
        let fields = |facts: &Nodes| {
            let mut fields = BTreeMap::new();
            if let Some(facts) = facts.get(node) {
                flatten("", facts, &mut fields);
            }
            fields
        };
        let (before, after) = (fields(base), fields(new));
        let keys: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        let differs = keys
            .into_iter()
            .filter(|key| {
                before.get(*key) != after.get(*key) && !NOT_WHAT_IT_IS.iter().any(|word| is_called(key, word))
            })
            .cloned();
        let unknown = MUST_BE_KNOWN
            .iter()
            .filter(|name| ![&before, &after].iter().any(|fields| fields.keys().any(|key| is_called(key, name))))
            .map(|name| (*name).to_owned());
        differences.extend(differs.chain(unknown).map(|key| Difference {
            field: format!("node {node} {key}"),
            base: before.get(&key).cloned(),
            new: after.get(&key).cloned(),
            name: key,
        }));
    }
    if base.is_empty() && new.is_empty() {
        differences.push(Difference {
            field: "facts of the nodes".to_owned(),
            name: "nodes".to_owned(),
            base: None,
            new: None,
        });
    }
    differences
}

/// Leaves of a JSON value by dotted path.
fn flatten(path: &str, value: &Value, into: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(entries) => {
            for (name, entry) in entries {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                flatten(&path, entry, into);
            }
        }
        Value::Null => {}
        Value::Array(_) | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            into.insert(path.to_owned(), value.to_string());
        }
    }
}

/// The values of every condition in each cell.
type Conditions = BTreeMap<Cell, BTreeMap<String, BTreeSet<String>>>;

/// Conditions of the cells that stand against each other.
fn of_conditions(before: &Conditions, after: &Conditions) -> Vec<Difference> {
    let mut differences: BTreeMap<(String, Option<String>, Option<String>), Cell> = BTreeMap::new();
    for (cell, fields) in before {
        let Some(others) = after.get(cell) else { continue };
        let keys: BTreeSet<&String> = fields.keys().chain(others.keys()).collect();
        for key in keys {
            let text = |values: Option<&BTreeSet<String>>| {
                values.map(|values| values.iter().cloned().collect::<Vec<_>>().join(" or "))
            };
            let (was, is) = (text(fields.get(key)), text(others.get(key)));
            if was != is {
                // The same difference in many cells is named once, with the first of them.
                differences.entry((key.clone(), was, is)).or_insert_with(|| cell.clone());
            }
        }
    }
    differences
        .into_iter()
        .map(|((name, base, new), cell)| Difference { field: format!("{name} of {cell}"), name, base, new })
        .collect()
}

fn conditions<'a>(runs: impl Iterator<Item = &'a Run>, by: &By) -> Conditions {
    let mut cells = Conditions::new();
    for run in runs {
        let mut fields = BTreeMap::new();
        for (name, value) in &run.conditions {
            flatten(name, value, &mut fields);
        }
        let cell = cells.entry(arms::shared(by, &run.factors)).or_default();
        for (name, value) in fields.clone() {
            // A buffer that nobody asked for is the kernel's tuning, and has another size at the end of every run.
            let tuned =
                name.strip_suffix(".granted").is_some_and(|buffer| !fields.contains_key(&format!("{buffer}.asked")));
            if !tuned && !OF_ONE_RUN.iter().any(|word| is_called(&name, word)) {
                cell.entry(name).or_default().insert(value);
            }
        }
    }
    cells
}

/// Conditions that differ between two levels of one record and that the compared factor does not explain: cautions,
/// since both were measured in the same hour.
pub(super) fn between_levels(source: &Source<'_>, by: &By, base: &str, new: &str) -> Vec<Difference> {
    let of = |level: &str| {
        let runs = source.record.usable();
        conditions(runs.filter(|run| arms::level_of(by, source, run).as_deref() == Some(level)), by)
    };
    let mut differences = of_conditions(&of(base), &of(new));
    // A tunnel's packets are smaller than the underlay's own by what the tunnel adds.
    let tunnelled = matches!(by, By::Factor { factor: Factor::Engine, .. }) && [base, new].contains(&"raw");
    let inherent: &[&str] = if tunnelled { &["mtu", "mss"] } else { &[] };
    differences.retain(|difference| !explains(by).iter().chain(inherent).any(|word| is_called(&difference.name, word)));
    differences
}
