//! A plan as a person reads it: the answer first, then what there is, then the order.

use std::fmt::Write as _;

use super::{EngineSpec, NodePlan, Phase, Plan, Reach, StackPlan, TestPlan, UnderlayPlan, Visit};
use crate::cell::{Factor, printable};
use crate::topology::UnderlayKind;

/// Lists are cut here: the JSON form has all of them.
const LONGEST_LIST: usize = 100;

/// The plan as text. What comes from the file is made printable.
pub fn render_text(plan: &Plan) -> String {
    let mut text = String::new();
    let forecast = &plan.forecast;
    let sees = match forecast.visible_effect {
        None if plan.compare.is_none_or(|factor| factor == Factor::Pair) => String::new(),
        None => ", too few rounds to tell a change from noise".to_owned(),
        Some(effect) if effect.fraction() > 1.0 => ", too few rounds to see less than a doubling".to_owned(),
        Some(effect) => format!(", sees changes of about {effect} or more"),
    };
    // Writing to a String does not fail.
    let most = if plan.precision.is_some() { "at most " } else { "" };
    let switches = match plan.phases.len().saturating_sub(1) {
        0 => String::new(),
        1 => " and the time of 1 switch of stacks".to_owned(),
        switches => format!(" and the time of {switches} switches of stacks"),
    };
    let _ = writeln!(
        text,
        "{most}{} runs in {} visits, {most}about {}{switches}{sees}",
        count(forecast.runs),
        count(plan.visits.len() as u64),
        forecast.time
    );
    if let Some(question) = &plan.question {
        let _ = writeln!(text, "{}: {}", printable(&plan.name), printable(question));
    }
    let _ = writeln!(
        text,
        "profile {}, {most}{} rounds, seed {}, plan {}",
        plan.profile,
        plan.rounds,
        plan.seed,
        &plan.hash()[..16]
    );
    let compared = plan.compared();
    if let (Some(factor), Some((base, others))) = (plan.compare, compared.split_first()) {
        let effect =
            plan.min_effect.map_or_else(String::new, |effect| format!("; the least change worth calling is {effect}"));
        let _ = writeln!(text, "compares {factor}: {base} (baseline) with {}{effect}", others.join(", "));
    }
    if let Some(width) = plan.precision {
        let first = (1..=plan.rounds).find(|round| plan.may_end_after(*round)).unwrap_or(plan.rounds);
        let _ = writeln!(
            text,
            "ends when every judged change is known to within {width} either way; looks from round {first} on"
        );
    }
    section(&mut text, "underlays", underlays(plan));
    section(&mut text, &format!("nodes, {}", plan.nodes.len()), nodes(plan));
    section(&mut text, "engines, stacks, settings", levels(plan));
    let links: usize = plan.tunnels.iter().flat_map(|tunnel| &tunnel.ends).map(|end| end.peers.len()).sum();
    let devices: usize = plan.tunnels.iter().map(|tunnel| tunnel.ends.len()).sum();
    let heading = format!("tunnels, {} between {} devices", count(links as u64 / 2), count(devices as u64));
    section(&mut text, &heading, tunnels(plan));
    section(&mut text, &format!("pairs, {}", count(plan.pairs.len() as u64)), pairs(plan));
    section(&mut text, "phases: the stack under each node", phases(plan));
    section(&mut text, "tests", plan.tests.iter().map(test).collect());
    section(&mut text, "tests that have too few flows for some of the tunnels", spread_less(plan));
    section(&mut text, "left out", plan.left_out().into_iter().map(|line| vec![line]).collect());
    let heading =
        format!("order, {} arrangements in {most}{} rounds", count(plan.arrangements.len() as u64), plan.rounds);
    section(&mut text, &heading, order(plan));
    text
}

/// A heading and its rows in aligned columns; nothing where there are none.
fn section(text: &mut String, heading: &str, rows: Vec<Vec<String>>) {
    if rows.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n{heading}");
    let shown = &rows[..rows.len().min(LONGEST_LIST)];
    let columns = shown.iter().map(Vec::len).max().unwrap_or_default();
    let width = |column: usize| {
        shown.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for row in shown {
        let cells: Vec<String> = row
            .iter()
            .zip(&widths)
            .filter(|(_, width)| **width > 0)
            .map(|(cell, &width)| format!("{cell:width$}"))
            .collect();
        let _ = writeln!(text, "  {}", cells.join("  ").trim_end());
    }
    if rows.len() > shown.len() {
        let _ = writeln!(text, "  and {} more: the JSON form has all", count((rows.len() - shown.len()) as u64));
    }
}

fn underlays(plan: &Plan) -> Vec<Vec<String>> {
    plan.underlays
        .iter()
        .map(|underlay| {
            let bytes = plan.forecast.bytes.get(&underlay.name).copied().unwrap_or_default();
            let assumed = if underlay.nominal.is_some() { "nominal" } else { "assumed" };
            let budget = underlay.budget.map_or_else(String::new, |budget| format!(", budget {budget}"));
            vec![
                underlay.name.clone(),
                underlay.family.to_string(),
                place(underlay),
                mtu(underlay),
                format!("carries about {bytes} at {} ({assumed}){budget}", plan.assumed_rate(underlay)),
            ]
        })
        .collect()
}

/// The MTU of a network made here is set, that of a real one is at first only assumed.
fn mtu(underlay: &UnderlayPlan) -> String {
    let assumed = underlay.network.is_none() && !underlay.mtu_given;
    format!("MTU {}{}", underlay.mtu, if assumed { " (assumed)" } else { "" })
}

fn place(underlay: &UnderlayPlan) -> String {
    match (underlay.network, underlay.kind) {
        (None, _) => "found".to_owned(),
        (Some(network), UnderlayKind::Routed) => format!("routed {network}"),
        (Some(network), UnderlayKind::Bridged) => format!("bridged {network}"),
    }
}

/// One row per attachment; the node's name and reach on its first.
fn nodes(plan: &Plan) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for node in &plan.nodes {
        for (index, attachment) in node.attachments.iter().enumerate() {
            let (name, reach) = if index == 0 { (node.name.clone(), reach(node)) } else { Default::default() };
            let address = attachment.link.as_ref().map_or_else(
                || attachment.address.to_string(),
                |link| match link.gateway {
                    Some(gateway) => format!("{} via {gateway}", link.address),
                    None => link.address.to_string(),
                },
            );
            rows.push(vec![name, reach, attachment.underlay.clone(), address]);
        }
    }
    rows
}

fn reach(node: &NodePlan) -> String {
    match &node.reach {
        Reach::Local { agent: None } => "made here".to_owned(),
        Reach::Local { agent: Some(argv) } => format!("made here, agent by `{}`", command(argv)),
        Reach::Command { argv } => format!("`{}`", command(argv)),
    }
}

/// A command as a shell would take it.
fn command(argv: &[String]) -> String {
    let plain =
        |word: &str| !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "@%_+=:,./-[]".contains(c));
    let quote = |word: &String| {
        let shown = printable(word);
        if plain(&shown) { shown } else { format!("'{}'", shown.replace('\'', "'\\''")) }
    };
    argv.iter().map(quote).collect::<Vec<_>>().join(" ")
}

fn levels(plan: &Plan) -> Vec<Vec<String>> {
    let engines = plan.engines.iter().map(|engine| {
        let (name, spec) = (engine.name.clone(), printable(&engine.spec.to_string()));
        let what = if name == spec { String::new() } else { spec };
        vec!["engine".to_owned(), name, what]
    });
    let stacks = plan.stacks.iter().map(|stack| {
        let delivery = stack.delivery.map_or_else(|| "as found".to_owned(), |delivery| delivery.to_string());
        let queues = match stack.receive_queues {
            None => String::new(),
            Some(1) => ", 1 receive queue".to_owned(),
            Some(queues) => format!(", {queues} receive queues"),
        };
        vec!["stack".to_owned(), stack.name.clone(), format!("{delivery}{queues}")]
    });
    let settings = plan.settings.iter().map(|settings| {
        let sysctl = settings.sysctl.iter().map(|(name, value)| format!("{name} = {}", printable(value)));
        let features = settings.features.iter().map(|(name, on)| format!("{name} {}", if *on { "on" } else { "off" }));
        let rps = settings
            .rps_cpus
            .iter()
            .map(|cpus| format!("rps_cpus {}", cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(",")));
        let mtu = settings.mtu.iter().map(|mtu| format!("mtu {mtu}"));
        let changes: Vec<String> = sysctl.chain(features).chain(rps).chain(mtu).collect();
        let changes = if changes.is_empty() { "nothing changed".to_owned() } else { changes.join("; ") };
        vec!["settings".to_owned(), settings.name.clone(), changes]
    });
    engines.chain(stacks).chain(settings).collect()
}

/// One row per tunnel network; what each of its devices is called. Then those that are there already.
fn tunnels(plan: &Plan) -> Vec<Vec<String>> {
    let found = plan.engines.iter().filter_map(|engine| match &engine.spec {
        EngineSpec::Interface(name) => {
            Some(vec![engine.name.clone(), "as found".to_owned(), name.clone(), "as found".to_owned()])
        }
        EngineSpec::Raw | EngineSpec::Embedded | EngineSpec::Direct | EngineSpec::Kernel | EngineSpec::Daemon(_) => {
            None
        }
    });
    let number_them = plan.tunnels.iter().any(|tunnel| tunnel.number > 0);
    plan.tunnels
        .iter()
        .map(|tunnel| {
            let mut names: Vec<String> =
                tunnel.ends.iter().map(|end| format!("{} port {}", end.interface, end.listen_port)).collect();
            names.sort_unstable();
            names.dedup();
            let links: usize = tunnel.ends.iter().map(|end| end.peers.len()).sum();
            vec![
                tunnel.engine.clone(),
                tunnel.underlay.clone(),
                names.join(", "),
                format!("MTU {}", tunnel.mtu),
                tunnel.network.to_string(),
                format!("{} devices, {} link{}", tunnel.ends.len(), links / 2, if links == 2 { "" } else { "s" }),
                if number_them { format!("number {}", tunnel.number + 1) } else { String::new() },
            ]
        })
        .chain(found)
        .collect()
}

/// Pairs, a few to a line.
fn pairs(plan: &Plan) -> Vec<Vec<String>> {
    let names: Vec<String> = plan.pairs.iter().map(ToString::to_string).collect();
    names.chunks(8).map(<[String]>::to_vec).collect()
}

/// Every phase with its stacks, and who switches to them.
fn phases(plan: &Plan) -> Vec<Vec<String>> {
    let of_phase = |(index, phase): (usize, &Phase)| {
        let on = plan.stacks.iter().filter_map(|stack| {
            let nodes: Vec<&str> =
                phase.stacks.iter().filter(|(_, on)| **on == stack.name).map(|(node, _)| node.as_str()).collect();
            (!nodes.is_empty()).then(|| format!("{} on {}", nodes.join(", "), stack.name))
        });
        let number = format!("phase {}", index + 1);
        [number].into_iter().chain(on).collect()
    };
    let how = |stack: &StackPlan| {
        let hook = |argv: &Option<Vec<String>>, without: &str| {
            argv.as_ref().map_or_else(|| without.to_owned(), |argv| format!("`{}`", command(argv)))
        };
        let (switch, verify) = (hook(&stack.switch, "by hand"), hook(&stack.verify, "by nothing"));
        vec![stack.name.clone(), format!("switched {switch}, verified {verify}")]
    };
    let stacks = plan.stacks.iter().filter(|_| !plan.phases.is_empty()).map(how);
    plan.phases.iter().enumerate().map(of_phase).chain(stacks).collect()
}

fn test(test: &TestPlan) -> Vec<String> {
    let mut factors: Vec<String> = Vec::new();
    for (factor, level) in test.cell().iter().filter(|(factor, _)| *factor != Factor::Test) {
        factors.push(match factor {
            Factor::Streams if level == "1" => "1 stream".to_owned(),
            Factor::Streams => format!("{level} streams"),
            Factor::Pair
            | Factor::Underlay
            | Factor::Engine
            | Factor::Tunnels
            | Factor::Stack
            | Factor::Settings
            | Factor::Direction
            | Factor::Test
            | Factor::Rate
            | Factor::Payload
            | Factor::CongestionControl => level.to_owned(),
        });
    }
    let name = if test.name == test.kind.name() { test.name.clone() } else { format!("{} ({})", test.name, test.kind) };
    let warmup = if test.warmup.duration().is_zero() { String::new() } else { format!(" after {}", test.warmup) };
    let probe = test.probe.map_or_else(String::new, |probe| format!("probe {}", probe.to_string().replace(' ', "")));
    vec![name, factors.join(", "), format!("{}{warmup}", test.duration), probe]
}

fn several(tunnels: u32) -> String {
    if tunnels == 1 { "1 tunnel".to_owned() } else { format!("{tunnels} tunnels") }
}

fn spread_less(plan: &Plan) -> Vec<Vec<String>> {
    let row = |(test, most): (&TestPlan, u32)| {
        let most = if most == 0 { "in no tunnel".to_owned() } else { format!("over {} at most", several(most)) };
        vec![short(test), most]
    };
    plan.spread_less().into_iter().map(row).collect()
}

/// The visits, in order, with their tests.
fn order(plan: &Plan) -> Vec<Vec<String>> {
    // A round more than fits says nothing new: rows beyond the cut are only counted.
    let row = |visit: &Visit| {
        let arrangement = &plan.arrangements[visit.arrangement];
        let tests: Vec<String> = visit.tests.iter().map(|&index| short(&plan.tests[index])).collect();
        let phase = if plan.phases.len() > 1 { format!("phase {}", visit.phase + 1) } else { String::new() };
        vec![
            phase,
            visit.round.to_string(),
            arrangement.pair.to_string(),
            arrangement.underlay.clone(),
            arrangement.engine.clone(),
            arrangement.tunnels.map_or_else(String::new, several),
            arrangement.stack.clone(),
            arrangement.settings.clone().unwrap_or_default(),
            tests.join(", "),
        ]
    };
    let shown = plan.visits.iter().take(LONGEST_LIST).map(row);
    shown.chain(plan.visits.iter().skip(LONGEST_LIST).map(|_| Vec::new())).collect()
}

/// A test's name, with what tells it from others of that name.
fn short(test: &TestPlan) -> String {
    let streams = test.streams.filter(|streams| *streams > 1).map_or_else(String::new, |streams| format!("x{streams}"));
    let direction = match test.direction {
        Some(crate::units::Direction::Reverse) => "-reverse",
        Some(crate::units::Direction::Forward) | None => "",
    };
    let rate = test.rate.map_or_else(String::new, |rate| format!("@{rate}"));
    format!("{}{streams}{direction}{rate}", test.name)
}

/// Thousands apart: 2,340.
fn count(number: u64) -> String {
    let plain = number.to_string();
    let mut text = String::with_capacity(plain.len() + plain.len() / 3);
    for (index, digit) in plain.chars().enumerate() {
        if index > 0 && (plain.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
