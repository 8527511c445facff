//! A plan as a person reads it.

use super::Plan;

/// The plan as text.
pub fn render_text(plan: &Plan) -> String {
    format!("{}\n", plan.name)
}
