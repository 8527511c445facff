//! The table of metrics: what each is called, its unit, which way is better, and the change below which nothing is said.

use std::time::Duration;

use crate::units::{BitRate, Bytes, Span};

/// What kind of number a metric is; its base unit is the suffix of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantity {
    /// Bits per second.
    BitRate,
    /// Events per second.
    Frequency,
    /// Nanoseconds.
    Time,
    /// A part of a whole: 0.01 is 1 %.
    Ratio,
    /// Bytes.
    Bytes,
    /// A count of events in a run.
    Count,
    /// Seconds of CPU time per gigabit of payload.
    CpuPerGigabit,
    /// Seconds of CPU time.
    CpuTime,
}

/// Which way a metric is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// More is better.
    Higher,
    /// Less is better.
    Lower,
    /// Neither: it explains, and is never judged.
    Neither,
}

/// One line of the table.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Metric {
    /// The name in records, with its unit as suffix.
    pub name: &'static str,
    /// What a table calls it.
    pub title: &'static str,
    /// What kind of number it is.
    pub quantity: Quantity,
    /// Which way is better.
    pub better: Better,
    /// The absolute change, in the base unit, below which no change is called, whatever its ratio.
    pub floor: f64,
    /// Whether a gate judges it unless the policy says otherwise.
    pub gated: bool,
}

impl Metric {
    /// `value` (in the base unit) as a person reads it: `3.36 Gbit/s`, `172 µs`, `0.3 %`.
    pub fn format(&self, value: f64) -> String {
        format_as(self.quantity, value)
    }
}

/// The line of the table with this name.
pub fn metric(name: &str) -> Option<&'static Metric> {
    super::METRICS.iter().find(|metric| metric.name == name)
}

/// `value`, in the quantity's base unit, as a person reads it. A number that is not finite reads `n/a`.
pub fn format_as(quantity: Quantity, value: f64) -> String {
    if !value.is_finite() {
        return "n/a".to_owned();
    }
    let sign = if value < 0.0 { "-" } else { "" };
    let size = value.abs();
    let text = match quantity {
        Quantity::BitRate => BitRate::from_bits_per_second(size.round() as u64).to_string(),
        Quantity::Frequency => format!("{}/s", digits(size)),
        Quantity::Time => Span::new(Duration::from_secs_f64((size / 1e9).min(1e9))).to_string(),
        Quantity::Ratio => format!("{} %", digits(size * 100.0)),
        // 1,514 and 1,464 bytes per packet are two different findings: small sizes keep every digit.
        Quantity::Bytes if size < 10_000.0 => format!("{} B", digits(size)),
        Quantity::Bytes => Bytes::new(size.round() as u64).to_string(),
        Quantity::Count => digits(size),
        Quantity::CpuPerGigabit => format!("{} s/Gbit", digits(size)),
        Quantity::CpuTime => format!("{} s", digits(size)),
    };
    format!("{sign}{text}")
}

/// Three significant digits, all the integer ones, thousands apart: `14,260`, `86.5`, `0.042`.
fn digits(size: f64) -> String {
    if size >= 1000.0 {
        let plain = format!("{size:.0}");
        let head = plain.len() % 3;
        let mut text = plain[..head].to_owned();
        for (index, digit) in plain[head..].chars().enumerate() {
            if index % 3 == 0 && !text.is_empty() {
                text.push(',');
            }
            text.push(digit);
        }
        return text;
    }
    if size == 0.0 {
        return "0".to_owned();
    }
    let decimals = (2 - size.log10().floor() as i32).clamp(0, 6) as usize;
    let text = format!("{size:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}
