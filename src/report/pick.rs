//! Picks: the sentence, then what every underlay carries.

use std::fmt::Write as _;

use super::{Cost, escape, priced, table, text};
use crate::cell::{Cell, Factor};
use crate::units::BitRate;
use crate::verdict::{Candidate, Order, Pick, Picks};

const RATE: &str = "throughput_bits_per_second";
const LOADED: &str = "probe_p99_ns";

/// Picks for a terminal of `width` columns, if it is for one. The first line is the answer for the first pair; each further pair has
/// its own; `cost` tells how long the next run will take.
pub fn pick_table(picks: &Picks, width: Option<usize>, cost: Option<Cost>) -> String {
    if picks.picks.is_empty() {
        return "No pick: the record holds no run over an underlay.\n".to_owned();
    }
    let mut out = String::new();
    for pick in &picks.picks {
        let _ = writeln!(out, "{}", sentence(pick, picks.need_bits_per_second));
    }
    for pick in &picks.picks {
        let _ = write!(
            out,
            "\n{}\n{}\n",
            escape::plain(&name(&pick.cell)),
            table::aligned(&rows(pick), &[3, 4, 5, 6], width)
        );
        for order in &pick.orders {
            let _ = writeln!(out, "  {}", order_text(order));
        }
    }
    let mut commands: Vec<&String> = picks.picks.iter().filter_map(|pick| pick.command.as_ref()).collect();
    commands.dedup();
    if !commands.is_empty() {
        out.push('\n');
    }
    for command in commands {
        let _ = writeln!(out, "Next: {}", priced(command, cost));
    }
    out
}

/// Picks for other tools.
pub fn pick_json(picks: &Picks) -> String {
    // Nothing in it can fail to serialise.
    let mut text = serde_json::to_string_pretty(picks).unwrap_or_else(|error| format!("{{\"error\": \"{error}\"}}"));
    text.push('\n');
    text
}

/// `a1>a2, embedded tunnel`.
fn name(cell: &Cell) -> String {
    let words = [
        cell.get(Factor::Pair).map(str::to_owned),
        cell.get(Factor::Engine)
            .map(|name| if name == "raw" { "raw underlay".to_owned() } else { format!("{name} tunnel") }),
        cell.get(Factor::Tunnels).map(text::tunnels),
        cell.get(Factor::Stack).map(|name| format!("stack {name}")),
        cell.get(Factor::Settings).map(|name| format!("settings {name}")),
    ];
    words.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn sentence(pick: &Pick, need: Option<u64>) -> String {
    let whom = escape::plain(&name(&pick.cell));
    if !pick.missing.is_empty() {
        let lacks = escape::plain(&text::listed(&pick.missing));
        let remedy = match pick.command {
            Some(_) => "",
            None => "; give its topology a `tcp-stream` test with direction = \"both\" and a probe",
        };
        return format!("No pick for {whom} yet: the record lacks {lacks}{remedy}.");
    }
    let Some(first) = pick.tiers.first() else {
        let reasons: Vec<String> = pick.unfit.iter().map(|(c, why)| format!("{}: {why}", c.underlay)).collect();
        return format!("No underlay can be used for {whom}: {}.", escape::plain(&reasons.join("; ")));
    };
    let names: Vec<String> = first.iter().map(|candidate| escape::plain(&candidate.underlay)).collect();
    let opening = match first.as_slice() {
        [only] => {
            let lead = lead(only, pick);
            format!("Use {} for {whom}: {}{lead}", names.join(""), carries(only))
        }
        _ => {
            let tie = pick.orders.iter().filter(|order| {
                let within = |name: &str| first.iter().any(|candidate| candidate.underlay == name);
                within(&order.of) && within(&order.to)
            });
            let rounds = tie.filter_map(|order| order.rounds_needed).max();
            let breaks = match rounds {
                Some(rounds) => format!("about {rounds} rounds would break it"),
                None => "they differ by less than is worth choosing for, so choose by latency or cost".to_owned(),
            };
            format!("{} are a tie for {whom}: {breaks}; {}", text::listed(&names), carries(weakest(first)))
        }
    };
    let safest = weakest(first);
    let mut clauses = vec![opening];
    let rate = |bits: f64| text::value(RATE, bits);
    let safe: Vec<String> = [(safest.safe_tcp, "TCP"), (safest.safe_udp, "UDP")]
        .iter()
        .filter_map(|(safe, what)| Some(format!("{} over {what}", rate((*safe)?))))
        .collect();
    if !safe.is_empty() {
        clauses.push(format!("safe are {}", text::listed(&safe)));
    }
    if let Some(need) = need {
        let wanted = BitRate::from_bits_per_second(need);
        clauses.push(match &safest.streams_for_need {
            Some(streams) => format!("{wanted} fits with {} or more", stream_count(streams)),
            None => format!("{wanted} does not fit safely"),
        });
    }
    format!("{}.", clauses.join("; "))
}

/// The member of a tie that carries least: what is said of a tie must hold for every one of them.
fn weakest(tier: &[Candidate]) -> &Candidate {
    let rate = |candidate: &Candidate| candidate.rate.map_or(0.0, |rate| rate.median);
    tier.iter().min_by(|a, b| rate(a).total_cmp(&rate(b))).unwrap_or(&tier[0])
}

fn carries(candidate: &Candidate) -> String {
    let rate = candidate.rate.map_or_else(|| "an unknown rate".to_owned(), |rate| text::value(RATE, rate.median));
    let weaker = candidate.weaker.as_deref().map_or_else(|| "one".to_owned(), escape::plain);
    let streams =
        candidate.streams.as_deref().map_or_else(String::new, |streams| format!(", {}", stream_count(streams)));
    format!("{rate} in the weaker direction ({weaker}{streams})")
}

fn stream_count(streams: &str) -> String {
    if streams == "1" { "1 stream".to_owned() } else { format!("{} streams", escape::plain(streams)) }
}

/// `, 25 % more than public-ipv4`, for the best of what it beats.
fn lead(only: &Candidate, pick: &Pick) -> String {
    let beats = pick.orders.iter().filter(|order| order.decided).filter_map(|order| {
        if order.of == only.underlay {
            Some((order.to.as_str(), order.change))
        } else if order.to == only.underlay {
            Some((order.of.as_str(), 1.0 / (1.0 + order.change) - 1.0))
        } else {
            None
        }
    });
    match beats.min_by(|a, b| a.1.total_cmp(&b.1)) {
        Some((other, change)) => {
            let more = text::ratio(change);
            format!(", {} against {}", more, escape::plain(other))
        }
        None => String::new(),
    }
}

fn order_text(order: &Order) -> String {
    let interval = order
        .interval
        .map_or_else(String::new, |(low, high)| format!(" ({} to {})", text::ratio(low), text::ratio(high)));
    let decided = match (order.decided, order.rounds_needed) {
        (true, _) => "decided".to_owned(),
        (false, Some(rounds)) => format!("undecided, about {rounds} rounds would decide"),
        (false, None) => "no difference worth choosing for".to_owned(),
    };
    let (of, to) = (escape::plain(&order.of), escape::plain(&order.to));
    format!("{of} against {to}: {}{interval}, {decided}", text::ratio(order.change))
}

fn rows(pick: &Pick) -> Vec<Vec<String>> {
    let head = ["underlay", "rank", "weaker", "rate", "safe TCP", "safe UDP", "p99 under load", "loss", "MTU", ""];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for (tier, candidates) in pick.tiers.iter().enumerate() {
        for candidate in candidates {
            let rank = match (tier, candidates.len(), candidate.behind.as_slice()) {
                _ if !pick.missing.is_empty() => "not yet".to_owned(),
                (0, 1, _) => "first".to_owned(),
                (0, _, _) | (_, _, []) => "tie".to_owned(),
                (_, _, behind) => format!("behind {}", escape::plain(&behind.join(", "))),
            };
            rows.push(row(candidate, rank, String::new()));
        }
    }
    for (candidate, why) in &pick.unfit {
        rows.push(row(candidate, "unfit".to_owned(), escape::plain(why)));
    }
    rows
}

fn row(candidate: &Candidate, rank: String, why: String) -> Vec<String> {
    let or_missing = |text: Option<String>| text.unwrap_or_else(|| "missing".to_owned());
    let rate = |bits: Option<f64>| or_missing(bits.map(|bits| text::value(RATE, bits)));
    let mtus: Vec<String> = candidate.mtu_bytes.iter().map(ToString::to_string).collect();
    vec![
        escape::plain(&candidate.underlay),
        rank,
        or_missing(candidate.weaker.as_deref().map(escape::plain)),
        rate(candidate.rate.map(|rate| rate.median)),
        rate(candidate.safe_tcp),
        rate(candidate.safe_udp),
        or_missing(candidate.loaded_p99_ns.map(|ns| text::value(LOADED, ns))),
        or_missing(candidate.loss_ratio.map(|loss| text::value("loss_ratio", loss))),
        or_missing((!mtus.is_empty()).then(|| mtus.join(", "))),
        why,
    ]
}
