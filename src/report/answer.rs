//! The first line: a sentence with figures that a stranger would act rightly on.

use std::collections::{BTreeMap, BTreeSet};

use super::lines::{Line, Naming, is_against_raw, level_name, lines};
use super::{Report, escape, ranking, text};
use crate::cell::{Cell, Factor};
use crate::record::{Run, Status};
use crate::stats::Summary;
use crate::verdict::{CellSummary, Comparison, Gate, GateResult, Scale, Verdict, cells};

/// Changes named in the sentence for each verdict; the rest are counted.
const NAMED: usize = 3;
const RAW: &str = "raw";

/// The answer, without a line feed.
pub fn answer(report: &Report<'_>) -> String {
    let compared = compared(report);
    let answer = match (compared, report.judged()) {
        (Some(comparison), Some(gate)) => gated(comparison, &gate),
        (Some(comparison), None) => capitalised(&changes(comparison)),
        (None, _) if report.sources.iter().all(|source| source.record.usable().next().is_none()) => {
            return nothing(report);
        }
        (None, _) => overview(report),
    };
    match not_measured(report, &answer) {
        Some(gone) => format!("{answer} {gone}"),
        None => answer,
    }
}

/// A line for each level, where several are compared with the baseline: the answer is over all of them then.
pub fn level_lines(report: &Report<'_>) -> Vec<String> {
    let Some(comparison) = compared(report).filter(|comparison| comparison.new.len() > 1) else { return Vec::new() };
    let line = |level: &String| capitalised(&level_changes(comparison, level, &lines(comparison, level)));
    comparison.new.iter().map(line).collect()
}

/// The comparison, if its levels are judged.
fn compared<'a>(report: &Report<'a>) -> Option<&'a Comparison> {
    report.comparison.filter(|comparison| !is_against_raw(comparison) && !comparison.rows.is_empty())
}

/// The runs whose figures are not published, each with the reason.
fn gone<'a>(report: &Report<'a>) -> Vec<(&'a Run, String)> {
    let runs = report.sources.iter().flat_map(|source| &source.record.runs);
    let why = |run: &Run| Some(run.reason.clone().filter(|_| run.status != Status::Ok).unwrap_or(run.why_unusable()?));
    runs.filter_map(|run| Some((run, why(run)?))).collect()
}

/// How many runs of what were not measured, and the commonest reason, which names its remedy; nothing where `answer` gives it
/// already.
fn not_measured(report: &Report<'_>, answer: &str) -> Option<String> {
    let gone = gone(report);
    let (why, count) = commonest(&gone)?;
    let known = in_one_line(why);
    if answer.contains(&known) || level_lines(report).iter().any(|line| line.contains(known.trim_end_matches("..."))) {
        return None;
    }
    let runs: usize = report.sources.iter().map(|source| source.record.runs.len()).sum();
    let others = match gone.len() - count {
        0 => String::new(),
        others => format!("; {others} more for other reasons"),
    };
    Some(format!(
        "Not measured: {} of {} ({}): {}{others}.",
        gone.len(),
        text::count(runs, "run"),
        what_is_gone(report, &gone),
        in_one_line(why)
    ))
}

/// The reason of most runs, and of how many.
fn commonest<'a>(gone: &'a [(&Run, String)]) -> Option<(&'a str, usize)> {
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, why) in gone {
        *reasons.entry(why).or_default() += 1;
    }
    reasons.into_iter().max_by_key(|(_, count)| *count)
}

/// What the runs have in common that others have not, or how many cells they are.
fn what_is_gone(report: &Report<'_>, gone: &[(&Run, String)]) -> String {
    let all = || report.sources.iter().flat_map(|source| &source.record.runs);
    let cells: BTreeSet<&Cell> = gone.iter().map(|(run, _)| &run.factors).collect();
    if let [only] = cells.iter().collect::<Vec<_>>().as_slice() {
        return Naming::over(all().map(|run| &run.factors)).label(only);
    }
    let shared = Factor::ALL.into_iter().find_map(|factor| {
        let level = cells.iter().next().and_then(|cell| cell.get(factor))?;
        let has = |cell: &Cell| cell.get(factor) == Some(level);
        let apart = cells.iter().all(|cell| has(cell)) && all().any(|run| !has(&run.factors));
        apart.then(|| format!("{factor} {}", escape::plain(level)))
    });
    match shared {
        Some(shared) => format!("{} of {shared}", text::count(cells.len(), "cell")),
        None => text::count(cells.len(), "cell"),
    }
}

/// A reason in one line, cut where a log begins to be long.
fn in_one_line(why: &str) -> String {
    const MOST: usize = 320;
    let words = text::one_line(why.trim_end().trim_end_matches(['.', ':', ';']));
    match words.char_indices().nth(MOST) {
        Some((at, _)) => format!("{}...", &words[..at]),
        None => words,
    }
}

fn gated(comparison: &Comparison, gate: &Gate<'_>) -> String {
    let sentence = changes(comparison);
    match gate.result {
        GateResult::Invalid if gate.judged == 0 => "Gate invalid: no metric that is judged was measured.".to_owned(),
        GateResult::Inconclusive if sentence.starts_with("inconclusive ") => format!("Gate {sentence}"),
        GateResult::Passed | GateResult::Failed | GateResult::Invalid | GateResult::Inconclusive => {
            format!("Gate {}: {sentence}", gate.result.text())
        }
    }
}

/// What changed between the levels: of two the changes, of more their order.
fn changes(comparison: &Comparison) -> String {
    match comparison.new.as_slice() {
        [level] => level_changes(comparison, level, &lines(comparison, level)),
        _ => ranking::sentence(comparison),
    }
}

/// What changed between the baseline and one level.
fn level_changes(comparison: &Comparison, level: &str, lines: &[Line<'_>]) -> String {
    let (base, new) = (level_name(comparison, &comparison.base), level_name(comparison, level));
    let is = if new.ends_with(" tunnels") { "are" } else { "is" };
    let with = |verdict: Verdict| -> Vec<&Line<'_>> {
        let mut with: Vec<_> = lines.iter().filter(|line| line.verdict == Some(verdict)).collect();
        with.sort_by(|a, b| b.size().total_cmp(&a.size()));
        with
    };
    let (worse, better) = (with(Verdict::Worse), with(Verdict::Better));
    let (unsure, invalid) = (with(Verdict::Inconclusive), with(Verdict::Invalid));
    let (underlay, same): (Vec<_>, Vec<_>) =
        with(Verdict::NoConsistentChange).into_iter().partition(|line| line.is_environment());
    let judged = worse.len() + better.len() + underlay.len() + same.len() + unsure.len() + invalid.len();
    let mut clauses = Vec::new();
    if !worse.is_empty() {
        clauses.push(format!("{new} {is} worse than {base} in {}", named(&worse)));
    }
    if !better.is_empty() {
        let opening = if worse.is_empty() { format!("{new} {is} better than {base}") } else { "better".to_owned() };
        clauses.push(format!("{opening} in {}", named(&better)));
    }
    if !underlay.is_empty() {
        let between = if clauses.is_empty() { format!(" between {base} and {new}") } else { String::new() };
        clauses.push(format!("the raw underlay itself moved{between}: {}", named(&underlay)));
    }
    let between = if clauses.is_empty() { format!(" between {base} and {new}") } else { String::new() };
    if !invalid.is_empty() {
        let (what, why) = (some(&invalid, judged), reason(&invalid));
        clauses.push(format!("no verdict{between} in {what}: {why}"));
    }
    if !same.is_empty() {
        // Where nothing moved, the figure that matters is what would have been seen.
        let (with_it, still): (Vec<_>, Vec<_>) = same.iter().copied().partition(|line| line.moved_with_underlay());
        let visible = visible(&still).filter(|_| worse.is_empty() && better.is_empty());
        let visible = visible.map_or_else(String::new, |size| format!("; one of {size} or more would have shown"));
        let with_it = match (with_it.len(), still.len()) {
            (0, _) => String::new(),
            (_, 0) => ", which moved as the raw underlay did".to_owned(),
            (some, _) => format!(", {some} of which moved as the raw underlay did"),
        };
        clauses.push(format!("no consistent change{between} in {}{with_it}{visible}", some(&same, judged)));
    }
    if !unsure.is_empty() {
        let rounds: Option<Vec<u32>> = unsure.iter().map(|line| line.rounds()).collect();
        let ran = text::count(comparison.rounds, "round");
        let remedy = match rounds.and_then(|rounds| rounds.into_iter().max()) {
            Some(rounds) => format!("{ran} did not decide, about {rounds} would"),
            None => reason(&unsure),
        };
        let what =
            if unsure.len() == judged && judged > 1 { format!("all {judged} metrics") } else { some(&unsure, judged) };
        clauses.push(format!("inconclusive{between} in {what}: {remedy}"));
    }
    if clauses.is_empty() {
        return format!("Nothing that is judged was measured at both {base} and {new}.");
    }
    format!("{}.", clauses.join("; "))
}

/// The first letter in upper case, if the sentence opens with a word of ours and not with a name.
fn capitalised(sentence: &str) -> String {
    let ours =
        ["no ", "inconclusive ", "of ", "against ", "the raw underlay "].iter().any(|word| sentence.starts_with(word));
    let mut letters = sentence.chars();
    match letters.next() {
        Some(first) if ours => first.to_uppercase().chain(letters).collect(),
        _ => sentence.to_owned(),
    }
}

/// The metric and its figures where it is one, else how many of how many.
fn some(lines: &[&Line<'_>], judged: usize) -> String {
    match lines {
        [_] => named(lines),
        _ if lines.len() == judged => format!("any of {judged} metrics"),
        _ => format!("{} of {judged} metrics", lines.len()),
    }
}

/// `throughput (embedded tunnel, tcp-stream, 4 streams): -6.6 % (-7.5 % to -5.7 %)`, the largest changes first.
fn named(lines: &[&Line<'_>]) -> String {
    let mut items: Vec<String> = lines
        .iter()
        .take(NAMED)
        .map(|line| match line.change() {
            Some(_) => format!("{} ({}): {}", line.metric, line.what, line.change_text()),
            None => format!("{} ({})", line.metric, line.what),
        })
        .collect();
    // Once is enough to say what the brackets hold.
    if let Some(first) = items.first_mut() {
        *first = first.replacen(" % (", " % (95 % interval ", 1);
    }
    if lines.len() > NAMED {
        items.push(format!("{} more", lines.len() - NAMED));
    }
    text::listed(&items)
}

/// The reason of most of the lines.
fn reason(lines: &[&Line<'_>]) -> String {
    lines.first().and_then(|line| line.rows.first()).map_or_else(String::new, |row| row.why.clone())
}

/// The change that every one of these lines would have shown: the larger of its minimum and what its interval hides.
fn visible(lines: &[&Line<'_>]) -> Option<String> {
    let mut largest: f64 = 0.0;
    for line in lines {
        let change = line.change().filter(|change| change.scale == Scale::Ratio)?;
        let half = (change.high?.ln_1p() - change.low?.ln_1p()) / 2.0;
        largest = largest.max(line.minimum()).max(half.exp_m1());
    }
    (largest > 0.0).then(|| text::percent(largest))
}

/// What stands in the records where nothing is compared: the tunnels beside the raw underlay.
fn overview(report: &Report<'_>) -> String {
    let Some(source) = report.sources.first() else { return "There is no record to report.".to_owned() };
    let cells = cells(source.record);
    let sentences: Vec<String> = carriers(&cells).iter().filter_map(|carrier| of_carrier(&cells, carrier)).collect();
    if sentences.is_empty() {
        let runs: usize = cells.iter().map(|cell| cell.runs).sum();
        let measured = cells.iter().filter(|cell| cell.runs > 0).count();
        let of = if measured == cells.len() { String::new() } else { format!("{measured} of ") };
        return format!("{} measured in {of}{}.", text::count(runs, "run"), text::count(cells.len(), "cell"));
    }
    sentences.join(" ")
}

/// The answer where nothing may be published.
fn nothing(report: &Report<'_>) -> String {
    let gone = gone(report);
    match commonest(&gone) {
        Some((why, count)) => {
            format!("Nothing could be measured: {count} of {}: {}.", text::count(gone.len(), "run"), in_one_line(why))
        }
        None => only_a_header(report),
    }
}

/// The answer where no run was even tried.
fn only_a_header(report: &Report<'_>) -> String {
    let Some(source) = report.sources.first() else { return "There is no record to report.".to_owned() };
    let ended = source.record.end.as_ref().and_then(|end| end.reason.as_deref());
    let why = match ended {
        Some(reason) => format!(" ({})", in_one_line(reason)),
        None if source.record.end.is_none() => " (it did not end by itself: no end line was written)".to_owned(),
        None => String::new(),
    };
    format!("Nothing was measured: the record holds only its header, and no run{why}.")
}

/// An engine, and over how many tunnels, where that is a factor.
type Carrier = (String, Option<String>);

fn carrier(cell: &CellSummary) -> Option<Carrier> {
    Some((cell.factors.get(Factor::Engine)?.to_owned(), cell.factors.get(Factor::Tunnels).map(str::to_owned)))
}

/// What there are figures of, but for raw; raw alone where there is nothing else.
fn carriers(cells: &[CellSummary]) -> Vec<Carrier> {
    let mut carriers: Vec<Carrier> = Vec::new();
    for carrier in cells.iter().filter(|cell| cell.runs > 0).filter_map(carrier) {
        if !carriers.contains(&carrier) {
            carriers.push(carrier);
        }
    }
    if carriers.iter().any(|(engine, _)| engine != RAW) {
        carriers.retain(|(engine, _)| engine != RAW);
    }
    // Levels are text: 16 comes after 2.
    let number = |tunnels: &Option<String>| tunnels.as_ref().and_then(|level| level.parse::<u32>().ok());
    carriers.sort_by(|(a, several), (b, others)| a.cmp(b).then(number(several).cmp(&number(others))));
    carriers
}

/// A metric of one carrier over all its cells of the test that says most: the one with the highest values of a rate.
struct Headline {
    what: String,
    values: Vec<f64>,
    of_raw: Vec<f64>,
    raw: Vec<f64>,
}

fn headline(cells: &[CellSummary], of_carrier: &Carrier, metric: &str) -> Option<Headline> {
    let of = |cell: &CellSummary| -> Option<Summary> { cell.metrics.get(metric).copied() };
    let own: Vec<&CellSummary> = cells
        .iter()
        .filter(|cell| carrier(cell).as_ref() == Some(of_carrier) && cell.metrics.contains_key(metric))
        .collect();
    // One test of several: the cells that differ from the best one in pair, underlay and stack only.
    let test = |cell: &CellSummary| -> Cell {
        cell.factors
            .iter()
            .filter(|(factor, _)| !factor.is_arranged())
            .map(|(f, level)| (f, level.to_owned()))
            .collect()
    };
    let best = own.iter().max_by(|a, b| {
        of(a).map(|s| s.median).partial_cmp(&of(b).map(|s| s.median)).unwrap_or(std::cmp::Ordering::Equal)
    })?;
    let chosen: Vec<&&CellSummary> = own.iter().filter(|cell| test(cell) == test(best)).collect();
    let beside = |cell: &CellSummary| -> Option<f64> {
        let raw = cell.factors.clone().with(Factor::Engine, RAW).without(Factor::Tunnels);
        cells.iter().find(|other| other.factors == raw).and_then(of).map(|summary| summary.median)
    };
    let values: Vec<f64> = chosen.iter().filter_map(|cell| of(cell)).map(|summary| summary.median).collect();
    let raw: Vec<f64> = chosen.iter().filter_map(|cell| beside(cell)).collect();
    let of_raw = chosen.iter().filter_map(|cell| Some(of(cell)?.median / beside(cell)?)).collect();
    let naming = Naming::over(own.iter().map(|cell| &cell.factors));
    let what = naming.label(&test(best));
    Some(Headline { what, values, of_raw, raw })
}

fn of_carrier(cells: &[CellSummary], carrier: &Carrier) -> Option<String> {
    const RATE: &str = "throughput_bits_per_second";
    const ROUND_TRIP: &str = "rr_p50_ns";
    let range = |metric: &str, values: &[f64]| {
        let low = values.iter().copied().reduce(f64::min)?;
        Some(text::range(metric, low, values.iter().copied().reduce(f64::max)?))
    };
    let (engine, tunnels) = carrier;
    let mut clauses = Vec::new();
    if let Some(rate) = headline(cells, carrier, RATE) {
        let mut clause = format!("{} ({})", range(RATE, &rate.values)?, rate.what);
        if !rate.of_raw.is_empty() && engine != RAW {
            let low = rate.of_raw.iter().copied().fold(f64::INFINITY, f64::min);
            let high = rate.of_raw.iter().copied().fold(0.0, f64::max);
            let share = if text::percent(low) == text::percent(high) {
                text::percent(low)
            } else {
                format!("{} to {}", text::percent(low), text::percent(high))
            };
            clause = format!("{clause}, {share} of the raw underlay's {}", range(RATE, &rate.raw)?);
        }
        clauses.push(clause);
    }
    if let Some(trip) = headline(cells, carrier, ROUND_TRIP) {
        let mut clause = format!("round trip p50 {}", range(ROUND_TRIP, &trip.values)?);
        if !trip.raw.is_empty() && engine != RAW {
            clause = format!("{clause} against {}", range(ROUND_TRIP, &trip.raw)?);
        }
        clauses.push(clause);
    }
    if clauses.is_empty() {
        return None;
    }
    let named = escape::plain(engine);
    let name = match tunnels.as_deref().map(escape::plain) {
        _ if engine == RAW => "The raw underlay".to_owned(),
        None => format!("The {named} tunnel"),
        Some(one) if one == "1" => format!("One {named} tunnel"),
        Some(several) => format!("{several} {named} tunnels"),
    };
    Some(format!("{name}: {}.", clauses.join("; ")))
}
