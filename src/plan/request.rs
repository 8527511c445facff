//! What a person asks for on top of the file: narrowing and overriding.

use crate::cell::{Factor, ends};
use crate::topology::{Precision, Profile};
use crate::units::{Bytes, Span};

/// What to make of a topology. The default is the file as it is, quick.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Request {
    /// How long and how often.
    pub profile: Profile,
    /// `--only FACTOR=LEVEL,...`: the levels to keep, in this order. Several of one factor add up.
    pub only: Vec<(Factor, Vec<String>)>,
    /// `--engine NAME[=SPEC]`: these engines instead of the file's; `raw` stays if the file has it.
    pub engines: Vec<EngineRequest>,
    /// `--rounds`, instead of the profile's.
    pub rounds: Option<u32>,
    /// `--precision`, instead of the profile's.
    pub precision: Option<Precision>,
    /// `--duration`, the window of every test, instead of the profile's.
    pub duration: Option<Span>,
    /// `--seed`; 1 where none is given, so that a plan is repeatable by default.
    pub seed: Option<u64>,
    /// The memory that the machine has for nodes made here; absent: not checked.
    pub memory: Option<Bytes>,
}

/// `--engine NAME[=SPEC]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineRequest {
    /// The engine's name, or a level of two (`old>new`); without a spec also a spec itself (`embedded`, `./wireguard-go`).
    pub name: String,
    /// What it is; absent: as the topology says, or as the name says.
    pub spec: Option<String>,
}

impl Request {
    /// Where a topology's file says what the engine level `level` is, as [`PlanError::places`](super::PlanError::places); empty
    /// where this request says it.
    pub fn engine_places(&self, level: &str) -> Vec<Vec<String>> {
        let (client, server) = ends(level);
        let said_here = |name: &str| self.engines.iter().any(|engine| engine.name == name && engine.spec.is_some());
        if said_here(client) || said_here(server) {
            return Vec::new();
        }
        let own = |name| ["interface", "path", "kind"].map(|key| vec!["engine", name, key]);
        let places = own(client).into_iter().chain(own(server)).chain([vec!["engines", level]]);
        places.map(|path| path.into_iter().map(str::to_owned).collect()).collect()
    }
}
