//! Numbers as people read them.

use crate::cell::{Quantity, format_as, metric};
use crate::verdict::{Change, Scale};

/// From this factor on a change reads better as a multiple: `4.2 x` rather than `+320 %`.
const MULTIPLE: f64 = 3.0;

/// `3.06-3.95 Gbit/s`, or one value where both read the same.
pub(super) fn range(name: &str, low: f64, high: f64) -> String {
    let (low, high) = (value(name, low), value(name, high));
    if low == high {
        return low;
    }
    let digits = |text: &str| text.chars().take_while(|c| c.is_ascii_digit() || ".,-".contains(*c)).count();
    let (low_unit, high_unit) = (&low[digits(&low)..], &high[digits(&high)..]);
    if low_unit == high_unit {
        return format!("{}-{high}", &low[..digits(&low)]);
    }
    format!("{low} - {high}")
}

/// A value of a metric. One that is not in the table reads as a plain number.
pub(super) fn value(name: &str, value: f64) -> String {
    metric(name).map_or_else(|| format_as(Quantity::Count, value), |line| line.format(value))
}

/// What a metric is called. One that is not in the table has only its name.
pub(super) fn title(name: &str) -> String {
    metric(name).map_or_else(|| super::escape::plain(name), |line| line.title.to_owned())
}

/// One change: `+18 %`, `-6.6 %`, `4.2 x`, `+0.3 points` of a share.
pub(super) fn change(name: &str, scale: Scale, size: f64) -> String {
    match scale {
        Scale::Ratio => ratio(size),
        Scale::Difference => {
            let sign = if size < 0.0 { "-" } else { "+" };
            let points = metric(name).is_some_and(|line| line.quantity == Quantity::Ratio);
            let text = value(name, size.abs());
            let text = if points { text.replace(" %", " points") } else { text };
            format!("{sign}{text}")
        }
    }
}

/// A relative change.
pub(super) fn ratio(size: f64) -> String {
    if is_multiple(size) { multiple(size) } else { percentage(size) }
}

fn is_multiple(size: f64) -> bool {
    size + 1.0 >= MULTIPLE
}

fn multiple(size: f64) -> String {
    let times = size + 1.0;
    if times >= 10.0 { format!("{times:.0} x") } else { format!("{times:.1} x") }
}

fn percentage(size: f64) -> String {
    let percent = size * 100.0;
    // A change that would print as zero, or as ten from below, still shows its first digit.
    if percent.abs() >= 9.95 { format!("{percent:+.0} %") } else { format!("{percent:+.1} %") }
}

/// Several changes that stand together, so that all are multiples or none is.
fn alike<const N: usize>(name: &str, scale: Scale, sizes: [f64; N]) -> [String; N] {
    let multiples = scale == Scale::Ratio && sizes.iter().any(|size| is_multiple(*size));
    sizes.map(|size| if multiples { multiple(size) } else { change(name, scale, size) })
}

/// `+28 % (+22 % to +34 %)`.
pub(super) fn with_interval(name: &str, of: &Change) -> String {
    match (of.low, of.high) {
        (Some(low), Some(high)) => {
            let [value, low, high] = alike(name, of.scale, [of.value, low, high]);
            format!("{value} ({low} to {high})")
        }
        _ => change(name, of.scale, of.value),
    }
}

/// `+18 % to +39 %`, or one where both read the same.
pub(super) fn between(name: &str, scale: Scale, low: f64, high: f64) -> String {
    let [low, high] = alike(name, scale, [low, high]);
    if low == high { low } else { format!("{low} to {high}") }
}

/// A part of a whole: `21 %`, `4.2 %`.
pub(super) fn percent(part: f64) -> String {
    let percent = part * 100.0;
    if percent >= 9.95 { format!("{percent:.0} %") } else { format!("{percent:.1} %") }
}

/// A reason without its line breaks: a daemon's last words have them.
pub(super) fn one_line(why: &str) -> String {
    super::escape::plain(&why.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// `one`, `one and two`, `one, two and three`.
pub(super) fn listed(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [one] => one.clone(),
        [init @ .., last] => format!("{} and {last}", init.join(", ")),
    }
}

/// A level of tunnels: `1 tunnel`, `2 tunnels`.
pub(super) fn tunnels(level: &str) -> String {
    if level == "1" { "1 tunnel".to_owned() } else { format!("{level} tunnels") }
}

/// `1 pair`, `2 pairs`.
pub(super) fn count(number: usize, thing: &str) -> String {
    if number == 1 { format!("1 {thing}") } else { format!("{number} {thing}s") }
}
