//! The published rubric: the features of each law, their weights and limits. The features are in `share/laws/features.txt`,
//! and a test compares ken-laws(7) with them.
//!
//! Points are tenths of a percent throughout, so that every sum is exact and every machine prints the same bytes.

include!(concat!(env!("OUT_DIR"), "/features.rs"));

/// The five laws, in the order of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Law {
    Architecture,
    Governance,
    Truth,
    Energy,
    Determinism,
}

impl Law {
    pub(crate) const fn number(self) -> u8 {
        self as u8 + 1
    }
}

/// One row per law.
pub(crate) struct LawRow {
    pub(crate) law: Law,
    /// The name in `scores`.
    pub(crate) field: &'static str,
    pub(crate) title: &'static str,
    /// Its share of `overall_compliance`, in percent.
    pub(crate) share: i32,
    /// The score of a text that shows neither defects nor strengths, in tenths.
    pub(crate) base: i32,
}

const fn law(law: Law, field: &'static str, title: &'static str, share: i32, base: i32) -> LawRow {
    LawRow { law, field, title, share, base }
}

pub(crate) const LAWS: [LawRow; 5] = [
    law(Law::Architecture, "law1_architectural_intelligence", "Architectural intelligence", 25, 800),
    law(Law::Governance, "law2_cognitive_governance", "Cognitive governance", 25, 750),
    law(Law::Truth, "law3_truth_foundation", "Truth foundation", 25, 700),
    law(Law::Energy, "law4_energy_stewardship", "Energy stewardship", 15, 1000),
    law(Law::Determinism, "law5_deterministic_reliability", "Deterministic reliability", 10, 800),
];

/// The bars of a strictness, in tenths: the overall scores for PASS and CONDITIONAL, and the minimum of every law for PASS.
pub(crate) struct Bar {
    pub(crate) pass: i32,
    pub(crate) conditional: i32,
    pub(crate) each_law: i32,
}

const fn bar(pass: i32, conditional: i32, each_law: i32) -> Bar {
    Bar { pass, conditional, each_law }
}

/// Lenient, moderate, strict.
pub(crate) const BARS: [Bar; 3] = [bar(600, 450, 400), bar(700, 550, 500), bar(850, 700, 650)];

/// The effect of a feature on its law's score.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// A defect. If D claims have it and C claims have no defect of its law, it costs `weight + (cap - weight) * D / (D + C)`.
    /// A single defect therefore costs at least `weight` however long the text is, and texts with the same density of defects
    /// lose the same.
    Violation,
    /// A strength, earned in proportion: `cap * min(1, weight * S / N)` for S of N claims. Claims with a defect of the
    /// law earn none.
    Share,
    /// A strength, earned once: it gives `cap`, however many claims show it.
    Once,
}

/// How a feature is recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// By its phrases; negated and quoted ones do not count.
    Phrases,
    /// By its phrases, unless the same claim names its source together with a date or a number.
    UnlessSourced,
    /// By its phrases, unless the same claim has a number with a unit or a source.
    UnlessSupported,
    /// By its phrases, unless the same claim has a number.
    UnlessNumber,
    /// By its phrases, in an instruction or a claim of change without a number.
    WhereNeeded,
    /// By the structure of the text; `line` states the rule.
    Structure,
}

pub(crate) struct Feature {
    pub(crate) law: Law,
    pub(crate) kind: &'static str,
    pub(crate) effect: Effect,
    pub(crate) rule: Rule,
    /// Tenths of a percent for a violation, a factor for a share.
    pub(crate) weight: i32,
    /// Tenths of a percent.
    pub(crate) cap: i32,
    /// The message: law, kind, and the text from `features.txt`.
    pub(crate) line: &'static str,
    /// The advice: law, kind, and the text from `features.txt`.
    pub(crate) remedy: &'static str,
}

/// A set of features, one bit each.
pub(crate) type Set = u64;

pub(crate) fn violations_of(law: Law) -> Set {
    VIOLATIONS[law as usize]
}

static VIOLATIONS: [Set; LAWS.len()] = {
    let (mut place, mut sets) = (0, [0; LAWS.len()]);
    while place < FEATURES.len() {
        if matches!(FEATURES[place].effect, Effect::Violation) {
            sets[FEATURES[place].law as usize] |= 1 << place;
        }
        place += 1;
    }
    sets
};

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = include_str!("../../../man/man7/ken-laws.7");

    /// The page without line breaks, because a phrase can extend over two lines.
    fn page() -> String {
        PAGE.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    fn percent(tenths: i32) -> String {
        format!("{}.{}", tenths / 10, tenths % 10)
    }

    #[test]
    fn the_page_has_every_feature_with_its_weight_and_cap() {
        let page = page();
        for feature in &FEATURES {
            let row = match feature.effect {
                Effect::Violation => {
                    format!("weight {}, cap {}", percent(feature.weight), percent(feature.cap))
                }
                Effect::Share => format!("factor {}, cap {}", feature.weight, percent(feature.cap)),
                Effect::Once => format!("cap {}", percent(feature.cap)),
            };
            let (_, says) = feature.line.split_once(": ").unwrap();
            let row = format!(".It Sy {} Pq {row} {says}", feature.kind);
            assert!(page.contains(&row), "ken-laws(7) lacks {row}");
        }
        assert_eq!(page.matches(".It Sy ").count(), FEATURES.len(), "ken-laws(7) has other features");
    }

    #[test]
    fn the_page_has_laws_and_bars() {
        let page = page();
        for row in &LAWS {
            let row = format!(".It {} Ta {} % Ta {}", row.title, row.share, percent(row.base));
            assert!(page.contains(&row), "ken-laws(7) lacks {row}");
        }
        for (name, bar) in ["lenient", "moderate", "strict"].into_iter().zip(&BARS) {
            let [pass, conditional, each] = [bar.pass, bar.conditional, bar.each_law].map(|tenths| tenths / 10);
            let row = format!(".It {name} Ta {pass} Ta {conditional} Ta {each}");
            assert!(page.contains(&row), "ken-laws(7) lacks {row}");
        }
        assert_eq!(LAWS.iter().map(|row| row.share).sum::<i32>(), 100);
    }
}
