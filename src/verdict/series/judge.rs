//! The rows of a series: searched one by one, adjusted together, put in words.

use std::cell::RefCell;
use std::rc::Rc;

use super::{
    BTreeMap, By, Change, Context, Course, Factor, METRICS, Null, Policy, RAW, Scale, SeriesRow, Step, Test, Unit,
    Verdict, change, command, comparable, family, summary,
};
use crate::stats::CONFIDENCE;
use crate::stats::change::Split;

/// A change that is left without the value that makes most of it must still be this share of the minimum effect.
const LEFT_SHARE: f64 = 0.5;
/// Nothing found is a finding where a change of this many times the least one that is published would have been found. The same
/// holds of a comparison, whose interval reaches that far from no change.
const BLIND: f64 = 2.0;
/// Values of which one may be far from the others.
const ENOUGH: usize = 8;
/// The probability with which the change that is named as visible would have been found.
const POWER: f64 = 0.8;

/// The distributions of the statistic by length of series, each simulated when it is first asked for.
struct Nulls {
    seed: u64,
    known: RefCell<BTreeMap<usize, Option<Rc<Null>>>>,
}

impl Nulls {
    fn of(&self, length: usize) -> Option<Rc<Null>> {
        let mut known = self.known.borrow_mut();
        known.entry(length).or_insert_with(|| Null::of(length, self.seed).map(Rc::new)).clone()
    }
}

impl Context<'_> {
    pub(super) fn rows(&self) -> Vec<SeriesRow> {
        let courses = self.courses();
        let seed = self.sources.first().map_or(0, |source| source.record.header.seed);
        let nulls = Nulls { seed, known: RefCell::default() };
        let firsts: Vec<Option<(Split, f64)>> =
            courses.iter().map(|course| searched(&course.series(), course, &nulls)).collect();
        let tests: Vec<Test> = courses
            .iter()
            .zip(&firsts)
            .filter_map(|(course, first)| {
                let (split, p) = first.as_ref()?;
                Some(Test { p: *p, reach: 1.0, beyond: self.is_beyond(course, split.difference) })
            })
            .collect();
        let mut adjusted = family::adjust(&tests).into_iter();
        let mut rows: Vec<SeriesRow> = courses
            .iter()
            .zip(&firsts)
            .map(|(course, first)| {
                let p = first.as_ref().and_then(|_| adjusted.next());
                self.row(course, first.as_ref().map(|(split, _)| *split), p, tests.len(), &courses, &nulls)
            })
            .collect();
        rows.sort_by_cached_key(|row| {
            let test = [Factor::Test, Factor::Direction, Factor::Streams, Factor::Engine]
                .map(|f| row.cell.get(f).map(str::to_owned));
            (test, METRICS.iter().position(|line| line.name == row.metric), row.cell.clone())
        });
        rows
    }

    fn is_beyond(&self, course: &Course, difference: f64) -> bool {
        course.scale.change(difference).abs() > self.least(course)
    }

    /// The least change that is published, on the printed scale.
    fn least(&self, course: &Course) -> f64 {
        let min_effect = self.min_effect(course.line);
        match course.scale {
            Scale::Ratio => min_effect,
            Scale::Difference => {
                let typical = summary::median(&course.series()).unwrap_or(0.0);
                (min_effect * typical.abs()).max(course.line.floor)
            }
        }
    }

    /// Every change of a course, the oldest first: the largest one, then what is left on either side of it (binary segmentation:
    /// Scott & Knott, "A cluster analysis method for grouping means in the analysis of variance", Biometrics 30 (1974) 507-512).
    fn cuts(&self, course: &Course, first: Option<Split>, p: Option<f64>, tests: usize, nulls: &Nulls) -> Vec<usize> {
        let series = course.series();
        let left = LEFT_SHARE * self.least(course);
        let holds = |values: &[f64], split: &Split| {
            self.is_beyond(course, split.difference)
                && course.scale.change(change::without_extremes(values, split)).abs() >= left
                && (course.shown(split.after(values)) - course.shown(split.before(values))).abs() >= course.line.floor
        };
        let mut cuts = Vec::new();
        let Some(first) = first.filter(|split| p.is_some_and(|p| p < Policy::ALPHA) && holds(&series, split)) else {
            return cuts;
        };
        cuts.push(first.at);
        // What moved little by little would be cut again and again.
        if change::is_gradual(&series, &first) {
            return cuts;
        }
        let mut open = vec![(0, first.at), (first.at, series.len())];
        while let Some((from, to)) = open.pop() {
            let part = &series[from..to];
            let Some((split, p)) = searched(part, course, nulls) else { continue };
            if p * (tests as f64) < Policy::ALPHA && holds(part, &split) {
                cuts.push(from + split.at);
                open.extend([(from, from + split.at), (from + split.at, to)]);
            }
        }
        cuts.sort_unstable();
        cuts
    }

    fn row(
        &self,
        course: &Course,
        first: Option<Split>,
        p: Option<f64>,
        tests: usize,
        all: &[Course],
        nulls: &Nulls,
    ) -> SeriesRow {
        let series = course.series();
        let cuts = self.cuts(course, first, p, tests, nulls);
        let bounds: Vec<usize> = std::iter::once(0).chain(cuts.iter().copied()).chain([series.len()]).collect();
        let steps: Vec<Step> = bounds.windows(3).filter_map(|three| self.step(course, three, p)).collect();
        let last_level = &series[bounds[bounds.len() - 2]..];
        let apart = change::last_apart(last_level, course.resolution())
            .filter(|(apart, p)| *p * tests.max(1) as f64 <= Policy::ALPHA && self.is_beyond(course, *apart))
            .map(|(apart, _)| course.scale.change(apart));
        let net = (!steps.is_empty()).then(|| self.net(&series, &bounds)).flatten();
        let (visible, visible_at_end) = self.visible(course, &bounds, tests, nulls);
        let mut row = SeriesRow {
            metric: course.line.name.to_owned(),
            cell: course.cell.clone(),
            values: course.values.iter().map(|value| value.map(|value| course.shown(value))).collect(),
            units: series.len(),
            net: net.map(|net| course.scale.change(net)),
            apart,
            visible,
            visible_at_end,
            environment: false,
            scale: course.scale,
            verdict: Verdict::NoConsistentChange,
            why: String::new(),
            command: self.sources.last().map_or_else(String::new, |last| {
                command::row(self.sources, &By::Record, self.sources[0].name, &course.cell, last.name)
            }),
            steps,
        };
        let raw = self.environment(course, &bounds, all);
        row.environment = raw.is_some();
        (row.verdict, row.why) = self.verdict(course, &row, net, raw);
        row
    }

    fn net(&self, series: &[f64], bounds: &[usize]) -> Option<f64> {
        let level = |from: usize, to: usize| crate::stats::mean(&series[from..to]);
        let last = bounds.len() - 1;
        Some(level(bounds[last - 1], bounds[last])? - level(bounds[0], bounds[1])?)
    }

    /// The change at the middle one of three bounds.
    fn step(&self, course: &Course, bounds: &[usize], p_adjusted: Option<f64>) -> Option<Step> {
        let series = course.series();
        let [from, at, to] = *bounds else { return None };
        let part = &series[from..to];
        let split = change::split(part, at - from, course.resolution())?;
        let (earliest, latest) = change::places(part, &split, CONFIDENCE);
        let half = split.half_width(CONFIDENCE);
        let first_of = |unit: usize| self.sources[course.units[from + unit].1].name.to_owned();
        let (at_record, before) = (course.units[at].1, course.units[at - 1].2);
        let two = [self.sources[before], self.sources[at_record]];
        let p = crate::stats::t_two_sided(split.t(), split.freedom);
        Some(Step {
            record: first_of(split.at),
            before: self.sources[before].name.to_owned(),
            was: course.shown(split.before(part)),
            is: course.shown(split.after(part)),
            change: Change {
                scale: course.scale,
                value: course.scale.change(split.difference),
                low: Some(course.scale.change(split.difference - half)),
                high: Some(course.scale.change(split.difference + half)),
                p,
                p_adjusted,
            },
            earliest: first_of(earliest),
            latest: first_of(latest),
            gradual: change::is_gradual(part, &split),
            differs: comparable::differences(&two, &By::Record, &Policy::default()),
        })
    }

    /// What would have been found: in the middle of what has stayed level last, and with its last two values.
    fn visible(&self, course: &Course, bounds: &[usize], tests: usize, nulls: &Nulls) -> (Option<f64>, Option<f64>) {
        let series = course.series();
        let length = series.len();
        let Some(null) = nulls.of(length) else { return (None, None) };
        let residuals: f64 = squares(&series, bounds).iter().sum();
        let freedom = length.saturating_sub(bounds.len() - 1).max(1) as f64;
        let deviation = (residuals / freedom).sqrt().max(course.resolution());
        let alpha = Policy::ALPHA / tests.max(1) as f64;
        let at = |before: usize| {
            let found = null.detectable(deviation, before, alpha, POWER)?;
            Some(course.scale.change(found).max(self.least(course)))
        };
        (at(length / 2), at(length - change::LEAST_SIDE))
    }

    /// Whether too little would have been found for nothing found to be a finding. One value far from the others, as a bad night
    /// leaves, does not count where there are enough others.
    fn is_blind(&self, course: &Course, visible: Option<f64>) -> bool {
        let Some(visible) = visible else { return true };
        let series = course.series();
        let all = squares(&series, &[0, series.len()]);
        let farthest = (0..all.len()).max_by(|one, other| all[*one].total_cmp(&all[*other]));
        let calm = match farthest.filter(|_| all.len() >= ENOUGH) {
            Some(farthest) => {
                let mut others = series;
                others.remove(farthest);
                let rest: f64 = squares(&others, &[0, others.len()]).iter().sum();
                let spread = all.iter().sum::<f64>();
                if spread > 0.0 { (rest / spread).sqrt() } else { 1.0 }
            }
            None => 1.0,
        };
        visible * calm > BLIND * self.least(course)
    }

    fn verdict(&self, course: &Course, row: &SeriesRow, net: Option<f64>, raw: Option<f64>) -> (Verdict, String) {
        let unit = self.unit.text();
        if let Some(gone) = self.gone(course) {
            return (Verdict::Invalid, gone);
        }
        if row.units < change::LEAST {
            let have = if row.units == 1 { format!("1 {unit}") } else { format!("{} {unit}s", row.units) };
            let why = match self.unit {
                Unit::Session => format!(
                    "{have} cannot show where a change began: {} or more are needed, an hour or more apart",
                    change::LEAST
                ),
                Unit::Record => {
                    format!("{have} cannot show where a change began: {} or more are needed", change::LEAST)
                }
            };
            return (Verdict::Inconclusive, why);
        }
        if let Some(raw) = raw {
            let why = format!("environment: the raw underlay moved by {:+.0} % at the same record", raw * 100.0);
            return (Verdict::NoConsistentChange, why);
        }
        if row.apart.is_some() {
            let why = format!(
                "the last {unit} alone lies apart, and one {unit} is no second opinion: measure again at another time"
            );
            return (Verdict::Inconclusive, why);
        }
        let Some(net) = net else {
            return if self.is_blind(course, row.visible) {
                (Verdict::Inconclusive, self.blind(course, row.visible))
            } else {
                (Verdict::NoConsistentChange, "no place in the series where it changed".to_owned())
            };
        };
        if !self.is_beyond(course, net) {
            return (Verdict::NoConsistentChange, "it changed and came back".to_owned());
        }
        let up = net > 0.0;
        let is_better = (course.line.better == crate::cell::Better::Higher) == up;
        let why = match row.steps.as_slice() {
            [step] if step.gradual => "it moved little by little, rather than at one record".to_owned(),
            [_] => format!("every {unit} since then, beyond chance over all that is judged"),
            steps => format!("{} changes", steps.len()),
        };
        (if is_better { Verdict::Better } else { Verdict::Worse }, why)
    }

    /// Why nothing found says nothing.
    fn blind(&self, course: &Course, visible: Option<f64>) -> String {
        let amount = |change: f64| match course.scale {
            Scale::Ratio => format!("{:.1} %", change * 100.0),
            Scale::Difference => change.to_string(),
        };
        let (unit, asked) = (self.unit.text(), amount(self.least(course)));
        match visible {
            Some(visible) => {
                let visible = amount(visible);
                format!(
                    "only a change of {visible} or more would have been found, and {asked} is asked for: more {unit}s would show less"
                )
            }
            None => format!(
                "what change would have been found is not known, and {asked} is asked for: more {unit}s would show it"
            ),
        }
    }

    /// Whether the newest record lacks the metric that earlier ones have.
    fn gone(&self, course: &Course) -> Option<String> {
        let has = course.values.iter().rposition(Option::is_some)?;
        let missing = course.values.len() - has - 1;
        let first = self.sources.get(has + 1)?;
        let records = if missing == 1 { "the last record".to_owned() } else { format!("the last {missing} records") };
        Some(format!("missing in {records}, since {}", crate::cell::printable(first.name)))
    }

    /// The raw underlay's change over the same cut, if it explains the last one of the course: for engines only.
    fn environment(&self, course: &Course, bounds: &[usize], all: &[Course]) -> Option<f64> {
        let only_engines =
            self.policy.changed.iter().all(|changed| changed.contains("engine") || changed.contains("offload"));
        if !only_engines || course.scale != Scale::Ratio || bounds.len() < 3 {
            return None;
        }
        let cell = course.cell.clone().with(Factor::Engine, RAW);
        let raw = all.iter().find(|other| other.cell == cell && other.line.name == course.line.name)?;
        let at = course.units.get(bounds[bounds.len() - 2])?.1;
        let cut = raw.units.iter().position(|unit| unit.1 == at)?;
        let moved = change::split(&raw.series(), cut, raw.resolution())?.difference;
        let own = change::split(&course.series(), bounds[bounds.len() - 2], course.resolution())?.difference;
        let minimum = self.min_effect(course.line).ln_1p();
        (moved * own > 0.0 && moved.abs() > minimum / 2.0 && (own - moved).abs() <= minimum).then(|| moved.exp_m1())
    }
}

/// The squared distance of each value from the mean of its level.
fn squares(series: &[f64], bounds: &[usize]) -> Vec<f64> {
    let of_level = |two: &[usize]| {
        let level = &series[two[0]..two[1]];
        let center = crate::stats::mean(level).unwrap_or(0.0);
        level.iter().map(|value| (value - center).powi(2)).collect::<Vec<f64>>()
    };
    bounds.windows(2).flat_map(of_level).collect()
}

/// The largest change of a part of a series and its p-value.
fn searched(values: &[f64], course: &Course, nulls: &Nulls) -> Option<(Split, f64)> {
    let split = change::best_split(values, course.resolution())?;
    Some((split, nulls.of(values.len())?.p_value(split.t())))
}
