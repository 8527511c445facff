//! Latencies as an HDR histogram that survives JSON: a sparse list of values and counts, mergeable without loss.

use serde::{Deserialize, Serialize};

/// Three significant digits: a value is known to 0.1 %.
const SIGNIFICANT_DIGITS: u8 = 3;
/// Values above are counted as this one: a round trip of a minute is a failure, not a latency.
const HIGHEST_NS: u64 = 60_000_000_000;
/// A percentile is only told with this many samples beyond it: with fewer it is an outlier's value.
pub(super) const SAMPLES_BEYOND: u64 = 10;

/// Nanoseconds and how often they were seen.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Histogram {
    /// `(value in ns, count)`, ascending. A value is the highest that its bucket stands for.
    pub buckets: Vec<(u64, u64)>,
    /// The smallest sample, exactly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_ns: Option<u64>,
    /// The largest sample, exactly.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_ns: Option<u64>,
    /// The sum of all samples, for the mean.
    #[serde(default)]
    pub sum_ns: u64,
}

impl Histogram {
    /// Samples.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }

    /// The arithmetic mean; absent without samples.
    pub fn mean_ns(&self) -> Option<f64> {
        let count = self.count();
        (count > 0).then(|| self.sum_ns as f64 / count as f64)
    }

    /// The value that `quantile` (0 to 1) of the samples do not exceed; absent where fewer than ten samples lie
    /// beyond it, since then it is one outlier's value and no property of the path.
    pub fn quantile_ns(&self, quantile: f64) -> Option<u64> {
        let count = self.count();
        let rank = (quantile.clamp(0.0, 1.0) * count as f64).ceil().max(1.0) as u64;
        (count >= rank + SAMPLES_BEYOND).then(|| self.value_at_rank_ns(rank)).flatten()
    }

    /// The value of the `rank`-th smallest sample, from 1.
    pub(super) fn value_at_rank_ns(&self, rank: u64) -> Option<u64> {
        let mut seen = 0;
        self.buckets.iter().find_map(|(value, in_bucket)| {
            seen += in_bucket;
            (seen >= rank).then_some(*value)
        })
    }

    /// Adds the samples of `other`.
    pub fn merge(&mut self, other: &Self) {
        let mut merged = Vec::with_capacity(self.buckets.len().max(other.buckets.len()));
        let (mut left, mut right) = (self.buckets.iter().peekable(), other.buckets.iter().peekable());
        loop {
            match (left.peek(), right.peek()) {
                (Some(&&(a, n)), Some(&&(b, m))) if a == b => {
                    merged.push((a, n + m));
                    left.next();
                    right.next();
                }
                (Some(&&(a, n)), Some(&&(b, _))) if a < b => {
                    merged.push((a, n));
                    left.next();
                }
                (_, Some(&&bucket)) => {
                    merged.push(bucket);
                    right.next();
                }
                (Some(&&bucket), None) => {
                    merged.push(bucket);
                    left.next();
                }
                (None, None) => break,
            }
        }
        self.buckets = merged;
        self.min_ns = self.min_ns.into_iter().chain(other.min_ns).min();
        self.max_ns = self.max_ns.into_iter().chain(other.max_ns).max();
        self.sum_ns += other.sum_ns;
    }
}

/// Collects samples: constant time, no allocation per sample.
pub(super) struct Recorder {
    counts: hdrhistogram::Histogram<u64>,
    min_ns: Option<u64>,
    max_ns: Option<u64>,
    sum_ns: u64,
}

impl Recorder {
    pub(super) fn new() -> Self {
        // The bounds are constants that satisfy the constructor's rules, and this is tested.
        let counts = hdrhistogram::Histogram::new_with_bounds(1, HIGHEST_NS, SIGNIFICANT_DIGITS)
            .unwrap_or_else(|error| unreachable!("histogram bounds: {error}"));
        Self { counts, min_ns: None, max_ns: None, sum_ns: 0 }
    }

    pub(super) fn record(&mut self, value_ns: u64) {
        self.counts.saturating_record(value_ns);
        self.min_ns = Some(self.min_ns.map_or(value_ns, |min| min.min(value_ns)));
        self.max_ns = Some(self.max_ns.map_or(value_ns, |max| max.max(value_ns)));
        self.sum_ns = self.sum_ns.saturating_add(value_ns);
    }

    pub(super) fn finish(&self) -> Histogram {
        let buckets =
            self.counts.iter_recorded().map(|step| (step.value_iterated_to(), step.count_at_value())).collect();
        Histogram { buckets, min_ns: self.min_ns, max_ns: self.max_ns, sum_ns: self.sum_ns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(values: impl IntoIterator<Item = u64>) -> Histogram {
        let mut recorder = Recorder::new();
        values.into_iter().for_each(|value| recorder.record(value));
        recorder.finish()
    }

    #[test]
    fn a_percentile_needs_ten_samples_beyond_it() {
        let twenty = recorded((1..=20).map(|n| n * 1000));
        assert_eq!(twenty.quantile_ns(0.5).map(|ns| ns / 1000), Some(10));
        assert_eq!(twenty.quantile_ns(0.55), None, "nine samples are beyond the eleventh");
        assert_eq!(recorded([]).quantile_ns(0.5), None);
        assert_eq!(recorded((1..=999).map(|n| n * 1000)).quantile_ns(0.99), None);
        assert!(recorded((1..=1000).map(|n| n * 1000)).quantile_ns(0.99).is_some());
    }

    #[test]
    fn merging_is_as_if_recorded_together() {
        let all = recorded([5, 70_000, 70_001, 123_456_789, 5, 2_000_000]);
        let mut merged = recorded([5, 70_001, 2_000_000]);
        merged.merge(&recorded([123_456_789, 70_000, 5]));
        assert_eq!(merged, all);
        merged.merge(&Histogram::default());
        assert_eq!(merged, all);
    }

    #[test]
    fn values_are_known_to_a_thousandth_and_survive_json() {
        let histogram = recorded([67_123]);
        let (value, count) = histogram.buckets[0];
        assert_eq!(count, 1);
        assert!(value.abs_diff(67_123) <= 67, "{value}");
        assert_eq!(histogram.mean_ns(), Some(67_123.0));
        let json = serde_json::to_string(&histogram).unwrap();
        assert_eq!(serde_json::from_str::<Histogram>(&json).unwrap(), histogram);
    }

    #[test]
    fn absurd_values_saturate_and_the_true_maximum_is_kept() {
        let histogram = recorded([0, u64::MAX]);
        assert_eq!(histogram.count(), 2);
        assert_eq!(histogram.max_ns, Some(u64::MAX));
        assert_eq!(histogram.min_ns, Some(0));
    }
}
