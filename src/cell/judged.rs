//! What is judged, where someone says so: in a topology, in a record's header.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::units::Ratio;

/// Which metrics are judged, and the least changes of single ones.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Judged {
    /// The metrics, by their names in the table; absent for the table's own choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics: Option<Vec<String>>,
    /// The least change of single metrics that is published.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub min_effects: BTreeMap<String, Ratio>,
}
