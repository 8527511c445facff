//! A file from top to bottom: the document, its sections, and what must hold between them.

use std::path::Path;

use toml::Spanned;

use super::diagnostic::{Problems, TopologyError};
use super::nodes::{self, Nodes};
use super::places::Places;
use super::reader::{Table, document};
use super::{Topology, engines, policy, settings, stacks, tests_and_profiles, tunnels, underlays};
use crate::cell::{Factor, printable};
use crate::units::Ratio;

/// The keys at the top of a file.
pub(super) const KEYS: [&str; 14] = [
    "question",
    "nodes",
    "node",
    "pairs",
    "compare",
    "min_effect",
    "policy",
    "engines",
    "engine",
    "tunnels",
    "underlay",
    "stack",
    "stacks",
    "settings",
];
pub(super) const MORE_KEYS: [&str; 2] = ["test", "profile"];

/// The longest file that is read: a mesh of a thousand nodes, each with a table of its own, is a tenth of it.
const LONGEST_FILE: usize = 4 << 20;

pub(super) fn parse(file: &str, text: &str) -> Result<Topology, TopologyError> {
    let mut problems = Problems::new(text);
    if text.len() > LONGEST_FILE {
        problems.push(0..0, format!("the file has {} bytes", text.len()), "a topology has at most 4 MiB: is this one?");
    }
    let topology = if problems.is_empty() { read(file, text, &mut problems) } else { None };
    match (problems.into_error(file), topology) {
        (None, Some(topology)) => Ok(topology),
        (Some(error), _) => Err(error),
        // INVARIANT: a section is absent only after its problem was noted.
        (None, None) => {
            let mut problems = Problems::new(text);
            problems.push(0..0, "this file cannot be read", "compare it with docs/topology.md");
            Err(problems.into_error(file).unwrap_or_else(|| TopologyError {
                file: file.to_owned(),
                text: text.to_owned(),
                problems: Vec::new(),
            }))
        }
    }
}

fn read(file: &str, text: &str, problems: &mut Problems<'_>) -> Option<Topology> {
    let document = document(text, problems)?;
    let root = Table::root(document.get_ref());
    let keys: Vec<&str> = KEYS.into_iter().chain(MORE_KEYS).collect();
    root.only(&keys, problems);

    let underlays = underlays::underlays(&root, problems);
    let nodes = nodes::nodes(&root, &underlays, problems);
    let pairs = nodes::pairs(&root, &nodes, &underlays, problems);
    let (engines, engine_levels) = engines::engines(&root, problems);
    let tunnels = tunnels::tunnels(&root, &engines, problems);
    let (stacks, stack_levels) = stacks::stacks(&root, nodes.are_here(), problems);
    let settings = settings::settings(&root, nodes.are_here(), problems);
    let tests = tests_and_profiles::tests(&root, problems);
    let profiles = tests_and_profiles::profiles(&root, &tests, problems);
    let compare = root.parsed::<Factor>("compare", problems);
    let min_effect = root.parsed::<Ratio>("min_effect", problems);
    let judged = policy::policy(&root, problems);
    let question = root.text("question", problems).map(Spanned::into_inner).or_else(|| opening_question(text));

    nodes::check_made_here(&root, &nodes, &underlays, problems);
    if let Some(min_effect) = &min_effect
        && !(0.0..1.0).contains(&min_effect.get_ref().fraction())
    {
        problems.push(min_effect.span(), "`min_effect` is out of range", "write a part below one, like \"5%\"");
    }
    if let Some(compare) = &compare
        && problems.is_empty()
    {
        let levels = match compare.get_ref() {
            Factor::Pair => pairs.len(),
            Factor::Underlay => underlays.len(),
            Factor::Engine => engine_levels.len(),
            Factor::Tunnels => tunnels.len(),
            Factor::Stack => stack_levels.len(),
            Factor::Settings => settings.len(),
            // Profiles and options change the levels of these.
            Factor::Direction
            | Factor::Test
            | Factor::Streams
            | Factor::Rate
            | Factor::Payload
            | Factor::CongestionControl => usize::MAX,
        };
        if levels < 2 {
            let help = if *compare.get_ref() == Factor::Tunnels {
                "write two numbers, like `tunnels = [1, 2]`, or compare something else".to_owned()
            } else {
                format!("name a second {}, or compare something else", compare.get_ref())
            };
            problems.push(
                compare.span(),
                format!("there is nothing to compare: {levels} {} named", compare.get_ref()),
                help,
            );
        }
    }
    let Nodes { list, .. } = nodes;
    Some(Topology {
        name: name_of(file),
        question: question.map(|question| printable(&question)),
        compare: compare.map(Spanned::into_inner),
        min_effect: min_effect.map(Spanned::into_inner),
        policy: judged,
        nodes: list,
        pairs,
        underlays: underlays.into_iter().map(Spanned::into_inner).collect(),
        engines,
        engine_levels,
        tunnels,
        stacks,
        stack_levels,
        settings,
        tests: tests.into_iter().map(Spanned::into_inner).collect(),
        profiles,
        places: Places::of(file, text, document.get_ref()),
    })
}

/// `topologies/two-stacks.toml` is `two-stacks`.
fn name_of(file: &str) -> String {
    let stem = Path::new(file).file_stem().map(|stem| stem.to_string_lossy().into_owned());
    printable(&stem.unwrap_or_else(|| file.to_owned()))
}

/// The first line of the opening comment that ends with `?`, without the file's name before it.
fn opening_question(text: &str) -> Option<String> {
    let comment =
        text.trim_start_matches('\u{feff}').lines().take_while(|line| line.starts_with('#') || line.trim().is_empty());
    let line = comment.map(|line| line.trim_start_matches('#').trim()).find(|line| line.ends_with('?'))?;
    let question = line.split_once(": ").filter(|(name, _)| !name.contains(' ')).map_or(line, |(_, question)| question);
    Some(question.to_owned())
}
