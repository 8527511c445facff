//! Why a verdict is what it is, in words.

use super::decide::{Decision, Evidence, Judgement};
use super::measured::{Measured, Scale};
use crate::cell::{Metric, format_as};

/// The reason, without a full stop. Rounds that would decide stand beside it, not in it.
pub(super) fn sentence(
    decision: &Decision,
    measured: &Measured,
    evidence: &Evidence,
    line: Option<&Metric>,
    underlays: usize,
) -> String {
    let size = |value: f64| match (measured.scale, line) {
        (Scale::Difference, Some(line)) => format_as(line.quantity, value),
        (Scale::Difference, None) => format!("{value}"),
        (Scale::Ratio, _) => percent(value),
    };
    let pairs = match underlays {
        0 | 1 => format!("{} pairs", measured.pairs.len()),
        _ => format!("{} pairs on underlays", measured.pairs.len()),
    };
    let verdicts = if evidence.tests == 1 { "1 verdict".to_owned() } else { format!("{} verdicts", evidence.tests) };
    match decision.why {
        Judgement::Changed => {
            let agreement = match measured.pairs.len() {
                1 => String::new(),
                _ => format!(", and {} of {pairs} agree", decision.agree),
            };
            let beyond = match evidence.tests {
                1 => "and beyond chance".to_owned(),
                _ => format!("beyond chance among {verdicts}"),
            };
            format!("more than the minimum of {}, {beyond}{agreement}", size(decision.minimum))
        }
        Judgement::Small => format!("steady, but less than the minimum of {}", size(decision.minimum)),
        Judgement::BelowFloor => {
            let floor = line.map_or_else(|| evidence.floor.to_string(), |line| line.format(evidence.floor));
            format!("less than {floor} apart, which nobody needs to act on")
        }
        Judgement::WithinNoise => "the interval includes zero, and is narrow enough to have seen a change".to_owned(),
        Judgement::PairsDisagree => format!("{} of {pairs} moved that way", decision.agree),
        Judgement::TooFew if measured.paired == 1 => "1 paired run is too few to tell a change from noise".to_owned(),
        Judgement::TooFew => format!("{} paired runs are too few to tell a change from noise", measured.paired),
        Judgement::TooNoisy => {
            let wanted = size(evidence.min_effect_shown(measured));
            format!("the interval is wider than the change of {wanted} that was asked for")
        }
        Judgement::BelowNoiseFloor => {
            format!("repeated visits of one level differ by up to {}", size(decision.minimum))
        }
        Judgement::AmongMany => format!("among {verdicts}, chance alone makes one look like this too often"),
        Judgement::BootstrapDisagrees => {
            "a few runs carry the change: the bootstrap's interval includes zero".to_owned()
        }
    }
}

/// A share in percent: whole from ten on.
fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent >= 9.95 { format!("{percent:.0} %") } else { format!("{percent:.1} %") }
}
