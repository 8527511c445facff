//! Counting bytes over the measured window: totals, 100 ms intervals, silences.

use super::control::Bounds;
use super::outcome::{Caution, Gap, Series, StreamCounts};
use crate::sys::clock;

/// One stream's bytes within the window.
pub(super) struct Tally {
    bounds: Bounds,
    intervals: Vec<u64>,
    bytes: u64,
    /// The last time that a byte moved, or the window's begin.
    last_ns: u64,
    /// Times without a byte, from and to.
    silences: Vec<(u64, u64)>,
    /// The CPU time of the stream's thread at the window's begin.
    cpu_begin_ns: Option<u64>,
    /// What it used from there to the window's end.
    cpu_ns: Option<u64>,
}

impl Tally {
    pub(super) fn new(bounds: Bounds) -> Self {
        let intervals = (bounds.end_ns - bounds.begin_ns).div_ceil(Series::INTERVAL_NS);
        Self {
            bounds,
            intervals: vec![0; intervals as usize],
            bytes: 0,
            last_ns: bounds.begin_ns,
            silences: Vec::new(),
            cpu_begin_ns: None,
            cpu_ns: None,
        }
    }

    /// `bytes` moved just before `now_ns`, by the calling thread. What lies outside the window is left out.
    pub(super) fn add(&mut self, now_ns: u64, bytes: u64) {
        if !self.bounds.contains(now_ns) {
            if let Some(begin_ns) = self.cpu_begin_ns.filter(|_| self.cpu_ns.is_none()) {
                self.cpu_ns = clock::thread_cpu_ns().checked_sub(begin_ns);
            }
            return;
        }
        if self.cpu_begin_ns.is_none() {
            self.cpu_begin_ns = Some(clock::thread_cpu_ns());
        }
        if bytes == 0 {
            return;
        }
        self.bytes += bytes;
        self.intervals[((now_ns - self.bounds.begin_ns) / Series::INTERVAL_NS) as usize] += bytes;
        self.silence_until(now_ns);
    }

    fn silence_until(&mut self, now_ns: u64) {
        if now_ns.saturating_sub(self.last_ns) >= Gap::THRESHOLD_NS {
            self.silences.push((self.last_ns, now_ns));
        }
        self.last_ns = now_ns;
    }

    /// Closes the tally at the window's end, or before it where the stream ended at `ended_ns`.
    pub(super) fn finish(mut self, ended_ns: u64) -> Finished {
        let end_ns = ended_ns.clamp(self.bounds.begin_ns, self.bounds.end_ns);
        self.silence_until(end_ns);
        Finished { bytes: self.bytes, intervals: self.intervals, silences: self.silences, cpu_ns: self.cpu_ns, end_ns }
    }
}

/// A closed tally.
pub(super) struct Finished {
    pub(super) bytes: u64,
    intervals: Vec<u64>,
    silences: Vec<(u64, u64)>,
    /// CPU time of its thread within the window.
    cpu_ns: Option<u64>,
    /// Where its window ended.
    pub(super) end_ns: u64,
}

/// All streams of a job together.
pub(super) struct Total {
    pub(super) bytes: u64,
    pub(super) streams: Vec<StreamCounts>,
    pub(super) series: Series,
    pub(super) gaps: Vec<Gap>,
    pub(super) length_ns: u64,
}

impl Total {
    /// The caution that the rate of the first half says nothing of the second's.
    pub(super) fn steadiness(&self) -> Option<Caution> {
        // Whole intervals only; one or two have no halves to speak of.
        let whole = &self.series.bytes[..(self.length_ns / Series::INTERVAL_NS) as usize];
        let half = whole.len() / 2;
        if half < 2 {
            return None;
        }
        let rate = |bytes: &[u64]| bytes.iter().sum::<u64>() * 8 * 1_000_000_000 / (half as u64 * Series::INTERVAL_NS);
        let (first_half, second_half) = (rate(&whole[..half]), rate(&whole[whole.len() - half..]));
        let (low, high) = (first_half.min(second_half), first_half.max(second_half));
        (high > low + low / 2).then_some(Caution::NotSteady { first_half, second_half })
    }
}

/// Adds up the streams of a job; its window ends where the first of theirs did.
pub(super) fn total(bounds: Bounds, streams: &[Finished]) -> Total {
    let end_ns = streams.iter().map(|stream| stream.end_ns).min().unwrap_or(bounds.begin_ns);
    let length_ns = end_ns - bounds.begin_ns;
    let count = length_ns.div_ceil(Series::INTERVAL_NS) as usize;
    let bytes: Vec<u64> =
        (0..count).map(|at| streams.iter().map(|stream| stream.intervals.get(at).unwrap_or(&0)).sum()).collect();
    let last_interval_ns = length_ns - (count.saturating_sub(1) as u64) * Series::INTERVAL_NS;
    let mut silent = vec![(bounds.begin_ns, end_ns)];
    for stream in streams {
        silent = intersect(&silent, &stream.silences);
    }
    let gaps = silent
        .into_iter()
        .filter(|(from, to)| to - from >= Gap::THRESHOLD_NS && !streams.is_empty())
        .map(|(from, to)| Gap { at_ns: from - bounds.begin_ns, length_ns: to - from })
        .collect();
    Total {
        bytes: streams.iter().map(|stream| stream.bytes).sum(),
        streams: streams
            .iter()
            .map(|stream| StreamCounts {
                bytes: stream.bytes,
                packets: None,
                socket_drops: None,
                cpu_ns: stream.cpu_ns,
            })
            .collect(),
        series: Series { interval_ns: Series::INTERVAL_NS, last_interval_ns, bytes },
        gaps,
        length_ns,
    }
}

/// The times that lie in an interval of both lists; both ascend and do not overlap themselves.
fn intersect(left: &[(u64, u64)], right: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let (mut left, mut right) = (left.iter().peekable(), right.iter().peekable());
    let mut common = Vec::new();
    while let (Some(&&(a, b)), Some(&&(c, d))) = (left.peek(), right.peek()) {
        let (from, to) = (a.max(c), b.min(d));
        if from < to {
            common.push((from, to));
        }
        if b < d {
            left.next();
        } else {
            right.next();
        }
    }
    common
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn bounds() -> Bounds {
        Bounds { first_ns: 1000 * MS, begin_ns: 1100 * MS, end_ns: 1350 * MS }
    }

    #[test]
    fn only_the_window_counts() {
        let mut tally = Tally::new(bounds());
        for at in [1099, 1100, 1199, 1200, 1349, 1350] {
            tally.add(at * MS, 10);
        }
        let total = total(bounds(), &[tally.finish(1400 * MS)]);
        assert_eq!(total.bytes, 40);
        assert_eq!(total.series.bytes, [20, 10, 10]);
        assert_eq!((total.length_ns, total.series.last_interval_ns), (250 * MS, 50 * MS));
    }

    #[test]
    fn a_gap_is_a_silence_of_all_streams() {
        let stream = |times: &[u64]| {
            let mut tally = Tally::new(bounds());
            times.iter().for_each(|at| tally.add(at * MS, 1));
            tally.finish(1350 * MS)
        };
        // One is silent from 1110 to 1230 and from 1270 on, the other from 1150 to 1300.
        let one = stream(&[1101, 1110, 1230, 1270]);
        let other = stream(&[1101, 1140, 1150, 1300, 1340]);
        let total = total(bounds(), &[one, other]);
        assert_eq!(total.gaps, [Gap { at_ns: 50 * MS, length_ns: 80 * MS }]);
    }

    #[test]
    fn a_window_without_a_byte_is_one_gap() {
        let total = total(bounds(), &[Tally::new(bounds()).finish(1350 * MS)]);
        assert_eq!(total.gaps, [Gap { at_ns: 0, length_ns: 250 * MS }]);
        assert_eq!(total.streams[0].bytes, 0);
    }

    #[test]
    fn a_rate_that_still_grows_is_not_steady() {
        let bounds = Bounds { first_ns: 0, begin_ns: 0, end_ns: 500 * MS };
        let steadiness = |bytes: [u64; 5]| {
            let mut tally = Tally::new(bounds);
            (0..).zip(bytes).for_each(|(at, bytes)| tally.add(at * 100 * MS + 50 * MS, bytes));
            total(bounds, &[tally.finish(500 * MS)]).steadiness()
        };
        assert_eq!(steadiness([100, 100, 0, 110, 130]), None);
        assert_eq!(steadiness([10, 40, 80, 90, 90]), Some(Caution::NotSteady { first_half: 2000, second_half: 7200 }));
        assert!(steadiness([100, 90, 10, 10, 10]).is_some());
    }

    #[test]
    fn a_stream_that_ended_early_shortens_the_window() {
        let mut tally = Tally::new(bounds());
        tally.add(1105 * MS, 7);
        let total = total(bounds(), &[tally.finish(1220 * MS)]);
        assert_eq!((total.length_ns, total.series.bytes.len(), total.series.last_interval_ns), (120 * MS, 2, 20 * MS));
    }
}
