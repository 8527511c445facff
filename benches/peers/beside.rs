//! What this bench keeps beside a record's `runs.jsonl`, since only the machine that measures, when it measures, can tell it:
//! the cipher's bound, and which programs the peers were.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

const FILE: &str = "peers.json";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Beside {
    /// What the processors could carry if they did nothing but the cipher.
    pub(crate) cipher_bits_per_second: f64,
    pub(crate) peers: BTreeMap<String, Program>,
}

/// A peer's program as it was taken by path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Program {
    pub(crate) path: String,
    pub(crate) sha256: String,
    /// The version as which `benches/fetch-peers` fetched it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) fetched: Option<String>,
    /// Why that is not known, where it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) not_fetched: Option<String>,
}

impl Beside {
    /// What lies beside the record in `directory`; `None` where it was measured without this bench, or by an older one.
    pub(crate) fn read(directory: &Path) -> Result<Option<Self>> {
        let path = directory.join(FILE);
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| path.display().to_string()),
        };
        let beside: Self = serde_json::from_slice(&text).with_context(|| path.display().to_string())?;
        let bound = beside.cipher_bits_per_second;
        ensure!(bound.is_finite() && bound > 0.0, "{}: a cipher bound of {bound} bits/s is none", path.display());
        Ok(Some(beside))
    }

    pub(crate) fn write(&self, directory: &Path) -> Result<()> {
        let path = directory.join(FILE);
        std::fs::create_dir_all(directory).with_context(|| directory.display().to_string())?;
        let text = serde_json::to_string_pretty(self)? + "\n";
        std::fs::write(&path, text).with_context(|| path.display().to_string())
    }
}
