//! The embedded engine.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::keys::PublicKey;
use super::status::{EngineStatus, HandshakeCounters};

pub mod serve;

/// The answer to the engine's own `status` request.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Report {
    /// The device's part.
    pub engine: EngineStatus,
    /// The peers' part.
    pub handshakes: BTreeMap<PublicKey, HandshakeCounters>,
}
