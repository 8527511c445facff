//! Records made up for tests of this module and of those that read records.

use std::collections::BTreeMap;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use serde_json::json;

use super::*;

/// A check that holds.
pub(crate) fn proved() -> Check {
    let bytes = || "1024".to_owned();
    Check { check: "bytes received".to_owned(), expected: bytes(), seen: bytes(), holds: true }
}

/// A complete record with one node pair per entry of the pair factor, and runs added by [`Made::run`].
pub(crate) struct Made {
    pub(crate) record: Record,
    rng: ChaCha8Rng,
}

impl Made {
    /// A record of `wglab run pair`, compared by `compare`, with these levels.
    pub(crate) fn new(compare: Factor, levels: &[(Factor, &[&str])]) -> Self {
        let levels: BTreeMap<Factor, Vec<String>> = levels
            .iter()
            .map(|(factor, levels)| (*factor, levels.iter().map(|level| (*level).to_owned()).collect()))
            .collect();
        let facts = json!({"kernel": "6.18.0", "cpu_model": "Milan", "cpus": 2});
        let header = Header {
            format: FORMAT.to_owned(),
            version: VERSION,
            wglab: "0.1.0".to_owned(),
            started: "2026-08-22T12:00:00Z".to_owned(),
            class: Class::OneMachine,
            command: ["wglab", "run", "pair", "--seed", "7"].map(str::to_owned).to_vec(),
            seed: 7,
            plan_hash: "5b6c".to_owned(),
            compare: Some(compare),
            levels,
            min_effect: None,
            policy: None,
            plan: json!({}),
            nodes: ["a1", "a2"].map(|node| (node.to_owned(), facts.clone())).into(),
            resumes: None,
        };
        let end = End {
            status: EndStatus::Complete,
            reason: None,
            runs: 0,
            duration_ms: 60_000,
            precision: None,
            awaits_phase: None,
        };
        let record = Record {
            header,
            resumed: Vec::new(),
            runs: Vec::new(),
            superseded: Vec::new(),
            end: Some(end),
            cut: None,
            whole_bytes: 0,
            notes: Vec::new(),
        };
        Self { record, rng: ChaCha8Rng::seed_from_u64(1) }
    }

    /// Adds a run with these levels and metrics, and gives it back to be changed.
    pub(crate) fn run(&mut self, round: u32, levels: &[(Factor, &str)], metrics: &[(&str, f64)]) -> &mut Run {
        let run = Run {
            round,
            session: None,
            order: self.record.runs.len() as u32,
            status: Status::Ok,
            reason: None,
            at_ms: None,
            factors: levels.iter().map(|(factor, level)| (*factor, (*level).to_owned())).collect(),
            metrics: metrics.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
            conditions: BTreeMap::from([("tunnel_mtu".to_owned(), json!(1420))]),
            proof: vec![proved()],
            bottleneck: None,
            cautions: Vec::new(),
            meters: None,
            histograms: BTreeMap::new(),
            series: BTreeMap::new(),
        };
        self.record.runs.push(run);
        self.record.runs.last_mut().unwrap()
    }

    /// A normal factor around one with this relative deviation.
    pub(crate) fn noise(&mut self, deviation: f64) -> f64 {
        let mut uniform = || (self.rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        let normal = (-2.0 * (1.0 - uniform()).ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos();
        (deviation * normal).exp()
    }
}
