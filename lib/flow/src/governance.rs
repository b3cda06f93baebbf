//! Judges the results of a run.

use crate::definition::Definition;
use crate::outcome::Summary;
use crate::progress::StepResult;
use crate::protocol::Protocols;
use crate::{coherence, quality};

/// Rates every step that ran, and checks whether the results agree.
pub(crate) fn judge(
    definition: &Definition,
    protocols: &Protocols,
    results: &[Option<StepResult>],
    min_quality: f64,
) -> Summary {
    let mut summary = Summary::default();
    for (step, made) in definition.steps().iter().zip(results) {
        let (Some(made), Some(protocol)) = (made, protocols.find(&step.protocol)) else {
            continue;
        };
        let quality = match &made.result {
            Ok(answer) => quality::of(protocol, &made.input, answer),
            Err(_) => 0.0,
        };
        if quality < min_quality {
            summary.warnings.push(format!("step {}: quality {quality} is below {min_quality}", step.id));
        }
        summary.quality_scores.push((step.id.clone(), quality));
    }
    let found = coherence::of(definition, protocols, results);
    if let Some(found) = &found {
        summary.is_coherent = found.issues.is_empty();
        summary.warnings.extend(found.issues.iter().cloned());
    }
    summary.coherence = found;
    summary
}
