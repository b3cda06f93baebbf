//! The answer: scores, verdict, violations, recommendations, strengths, and the evidence for them.

use std::borrow::Cow;
use std::fmt::{self, Write};

use ken_support::{Kind, Opinion, Support, Supported, Verdict};
use ken_tool::{Answer, Verdict as Outcome};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::finding::Finding;
use crate::input::Subject;
use crate::judge::{Judgement, MAX_EVIDENCE_BYTES, Unread};
use crate::review::Review;
use crate::rubric::{BARS, Effect, FEATURES, Feature, LAWS, Set};
use crate::score::{Score, Status, Tally};
use crate::sources::{Compared, Source};

/// The verdict on one text.
#[derive(Serialize)]
pub(crate) struct Report<'a> {
    scores: Scores,
    pass_fail_status: &'static str,
    violations: Vec<String>,
    recommendations: Vec<Cow<'static, str>>,
    strengths: Vec<Cow<'static, str>>,
    evidence: Vec<Evidence<'a>>,
    support: Option<SupportReport<'a>>,
    #[serde(skip)]
    status: Status,
}

/// Maximum number of findings that are listed for a defect, and for a strength. The points of the others are added to the
/// listed ones.
const LISTED: usize = 100;
const LISTED_STRENGTHS: usize = 3;

const UNCHECKED: &str = "not checked: the only evidence is what the text cites; give that with --sources or the field sources, or look it up";

const NOTHING: &str = "not judged: the text shows neither evidence nor a defect; give sources to compare it with";
const OPEN: &str =
    "not judged: a source speaks of the same thing in other words; compare the sentence with its passage";

/// One piece of evidence, with the fields in the order of the contract. `at` is present only for a document.
#[derive(Serialize)]
struct Evidence<'a> {
    law: u8,
    kind: &'static str,
    start: usize,
    end: usize,
    text: &'a str,
    effect: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<&'a str>,
}

/// The field `support` of the answer.
#[derive(Serialize)]
struct SupportReport<'a> {
    score: f64,
    sentences: Vec<SentenceReport<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    judge: Option<JudgeReport<'a>>,
}

/// The field `support.judge`: the verdicts of the model that was asked, in the order of the sentences, and what it took.
#[derive(Serialize)]
struct JudgeReport<'a> {
    model: &'a str,
    verdicts: Vec<VerdictReport<'a>>,
    /// The number of sentences that were judged.
    judged: usize,
    lexical_score: f64,
    calls: u32,
    /// In tokens.
    usage: TokenReport,
    /// In US dollars.
    cost: f64,
    time_ms: u64,
    error: Option<String>,
}

#[derive(Serialize)]
struct TokenReport {
    input: u64,
    output: u64,
}

#[derive(Serialize)]
struct VerdictReport<'a> {
    /// The number of the sentence, counted from 1.
    sentence: usize,
    /// `null` if the sentence is not judged.
    verdict: Option<Verdict>,
    #[serde(skip_serializing_if = "Option::is_none")]
    quote: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    not_judged: Option<&'a str>,
}

impl<'a> JudgeReport<'a> {
    fn new(review: &'a Review) -> JudgeReport<'a> {
        let judged = &review.judged;
        let verdicts = (1..).zip(&judged.opinions).map(|(sentence, opinion)| match opinion {
            Opinion::Judged { verdict, quote } => {
                VerdictReport { sentence, verdict: Some(*verdict), quote: quote.as_deref(), not_judged: None }
            }
            Opinion::NotJudged(reason) => {
                VerdictReport { sentence, verdict: None, quote: None, not_judged: Some(reason) }
            }
        });
        let usage = &judged.usage;
        JudgeReport {
            model: &review.model,
            verdicts: verdicts.collect(),
            judged: judged.count(),
            lexical_score: thousandths(review.lexical_score),
            calls: judged.calls,
            usage: TokenReport { input: usage.input + usage.cache_read + usage.cache_write, output: usage.output },
            cost: usage.cost.total,
            time_ms: u64::try_from(review.time.as_millis()).unwrap_or(u64::MAX),
            error: judged.error.as_ref().map(|error| error.message.clone()),
        }
    }
}

/// The support of one sentence; `start` and `end` are byte offsets as in [`Evidence`]. The passage is absent if no source
/// contains any word of the sentence.
#[derive(Serialize)]
struct SentenceReport<'a> {
    start: usize,
    end: usize,
    score: f64,
    source: Option<&'a str>,
    source_start: Option<usize>,
    source_end: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<&'a str>,
    #[serde(flatten)]
    objection: Option<Objection<'a>>,
}

/// Why the sources do not support a sentence, and the sentence itself, because a shell script cannot cut bytes out of the text.
#[derive(Serialize)]
struct Objection<'a> {
    finding: &'static str,
    text: &'a str,
    #[serde(skip)]
    passage: &'a str,
}

impl fmt::Display for Objection<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: \"{}\"", self.finding.replace('_', " "), Shown(self.text))
    }
}

impl<'a> Report<'a> {
    pub(crate) fn new(
        subject: &'a Subject<'_>,
        judgement: &Judgement,
        score: &Score,
        sources: &'a [Source],
        compared: &'a Compared,
        review: Option<&'a Review>,
    ) -> Report<'a> {
        let listed = listed(judgement, score);
        let is_defect = |tally: &&Tally| tally.feature.effect == Effect::Violation;
        let defects = || score.tallies.iter().filter(is_defect);
        let unread = judgement.unread.map(|unread| match unread {
            Unread::Language => "not judged: the text has no sentence in English",
            Unread::Words => "not judged: most words of the text are unknown",
            Unread::NoClaim => "not judged: no sentence states, asks or commands anything",
            Unread::NothingFound => NOTHING,
        });
        // Where sources were given and could not be compared, their own note says so.
        let unread = unread.filter(|note| *note != NOTHING || compared.missing.is_none());
        let unchecked = judgement.rests_on_citations.then_some(UNCHECKED);
        let open = compared.leaves_open().then_some(OPEN);
        let notes = unread.into_iter().chain(unchecked).chain(open).chain(compared.missing);
        let notes = notes.chain(defects().map(|tally| tally.feature.remedy));
        let strengths = score.tallies.iter().filter(|tally| !is_defect(tally));
        Report {
            scores: Scores(score.laws.map(percent), percent(score.overall)),
            pass_fail_status: score.status.name(),
            violations: defects().map(|tally| violation(tally, &listed, &subject.text)).collect(),
            recommendations: notes.map(Cow::Borrowed).chain(missing(score)).collect(),
            strengths: strengths.map(strength).collect(),
            evidence: listed.iter().map(|(finding, effect)| evidence(subject, finding, *effect)).collect(),
            support: compared.support.as_ref().map(|support| SupportReport {
                judge: review.map(JudgeReport::new),
                ..support_report(support, subject, sources)
            }),
            status: score.status,
        }
    }
}

impl Answer for Report<'_> {
    fn verdict(&self) -> Outcome {
        match self.status {
            Status::Fail => Outcome::Negative,
            Status::Pass | Status::Conditional => Outcome::Positive,
        }
    }

    fn summary(&self, verbose: bool, to: &mut dyn Write) -> fmt::Result {
        let Scores(laws, overall) = &self.scores;
        writeln!(to, "Five laws validation")?;
        writeln!(to, "Overall compliance: {overall:.1} %")?;
        writeln!(to, "Status: {}", self.pass_fail_status)?;
        for (row, points) in LAWS.iter().zip(laws) {
            writeln!(to, "  {}. {:<26} {points:>5.1} %", row.law.number(), row.title)?;
        }
        if let Some(support) = &self.support {
            writeln!(to, "Support by sources: {:.3}", support.score)?;
            if let Some(JudgeReport { model, judged, verdicts, cost, error, .. }) = &support.judge {
                writeln!(to, "  {model} judged {judged} of {} sentences, for ${cost:.4}", verdicts.len())?;
                if let Some(error) = error {
                    writeln!(to, "  the others are not judged: {error}")?;
                }
            }
            objections(to, &support.sentences)?;
        }
        section(to, "Strengths", &self.strengths)?;
        section(to, "Recommendations", &self.recommendations)?;
        if verbose {
            section(to, "Violations", &self.violations)?;
            if !self.evidence.is_empty() {
                writeln!(to, "Evidence:")?;
            }
            for piece in &self.evidence {
                let Evidence { law, kind, start, end, text, effect, .. } = piece;
                writeln!(to, "  {effect:>6.1}  law {law}, {kind}, {start}..{end}: {}", Shown(text))?;
            }
        }
        Ok(())
    }
}

/// Maximum number of sentences that a summary names.
const NAMED: usize = 20;

/// Names the sentences that the sources do not support, each with the passage that comes closest.
fn objections(to: &mut dyn Write, sentences: &[SentenceReport<'_>]) -> fmt::Result {
    let mut objected = sentences.iter().filter_map(|each| Some((each, each.objection.as_ref()?)));
    for (sentence, objection) in objected.by_ref().take(NAMED) {
        match sentence.source {
            Some(source) => writeln!(to, "  {objection}; {source} says \"{}\"", Shown(objection.passage))?,
            None => writeln!(to, "  {objection}")?,
        }
    }
    match objected.count() {
        0 => Ok(()),
        more => writeln!(to, "  and {more} more, which the JSON output has"),
    }
}

fn section<T: fmt::Display>(to: &mut dyn Write, title: &str, lines: &[T]) -> fmt::Result {
    if !lines.is_empty() {
        writeln!(to, "{title}:")?;
    }
    lines.iter().try_for_each(|line| writeln!(to, "  - {line}"))
}

/// The findings to list, in the order of the text, each with its share of the feature's points. If the points cannot be divided
/// evenly, the first findings get more.
fn listed(judgement: &Judgement, score: &Score) -> Vec<(Finding, i32)> {
    let mut listed = Vec::with_capacity(judgement.findings.list.len().min(LISTED));
    for tally in &score.tallies {
        let most = match tally.feature.effect {
            Effect::Violation => LISTED,
            Effect::Share => LISTED_STRENGTHS,
            Effect::Once => 1,
        };
        let (mut left, mut points) = (tally.count.min(most) as i32, tally.points);
        let findings = judgement.findings.list.iter().filter(|finding| finding.feature == tally.place);
        for finding in findings.take(most) {
            let part = (points.abs() + left - 1) / left * points.signum();
            listed.push((*finding, part));
            points -= part;
            left -= 1;
        }
    }
    listed.sort_unstable_by_key(|(finding, _)| (finding.start, finding.end, finding.feature));
    listed
}

fn evidence<'a>(subject: &'a Subject<'_>, finding: &Finding, effect: i32) -> Evidence<'a> {
    let feature = FEATURES.get(finding.feature).unwrap_or(&FEATURES[0]);
    let (at, offset) = subject.part_at(finding.start);
    Evidence {
        law: feature.law.number(),
        kind: feature.kind,
        start: finding.start - offset,
        end: finding.end - offset,
        text: subject.text.get(finding.start..finding.end).unwrap_or_default(),
        effect: percent(effect),
        at,
    }
}

fn support_report<'a>(support: &Support, subject: &'a Subject<'_>, sources: &'a [Source]) -> SupportReport<'a> {
    let sentences = support.sentences.iter().map(|sentence| {
        let (at, offset) = subject.part_at(sentence.span.start);
        let passage = sentence.passage;
        SentenceReport {
            start: sentence.span.start - offset,
            end: sentence.span.end - offset,
            score: thousandths(sentence.score),
            source: passage.and_then(|passage| sources.get(passage.source)).map(|source| source.id.as_str()),
            source_start: passage.map(|passage| passage.span.start),
            source_end: passage.map(|passage| passage.span.end),
            at,
            objection: objection(sentence, &subject.text, sources),
        }
    });
    SupportReport { score: thousandths(support.score), sentences: sentences.collect(), judge: None }
}

fn objection<'a>(sentence: &Supported, text: &'a str, sources: &'a [Source]) -> Option<Objection<'a>> {
    let has = |kind| sentence.findings.iter().any(|finding| finding.kind == kind);
    let named =
        [(Kind::Contradicted, "contradicted"), (Kind::Unsupported, "unsupported"), (Kind::Uncarried, "not_judged")];
    let finding = named.into_iter().find_map(|(kind, name)| has(kind).then_some(name))?;
    let passage = sentence.passage.and_then(|passage| Some((passage.span, sources.get(passage.source)?)));
    Some(Objection {
        finding,
        text: ken_text::head(sentence.span.of(text), MAX_EVIDENCE_BYTES),
        passage: passage.map_or("", |(span, source)| span.of(source.text())),
    })
}

// Sentences about features

fn violation(tally: &Tally, listed: &[(Finding, i32)], text: &str) -> String {
    let first = listed.iter().find(|(finding, _)| finding.feature == tally.place);
    let (start, end) = first.map_or((0, 0), |(finding, _)| (finding.start, finding.end));
    let shown = Shown(text.get(start..end).unwrap_or_default());
    let more = match tally.count {
        0 | 1 => String::new(),
        count => format!(", and {} more", count - 1),
    };
    let line = tally.feature.line;
    format!("{line}, at bytes {start} to {end}: \"{shown}\"{more}")
}

fn strength(tally: &Tally) -> Cow<'static, str> {
    match tally.feature.effect {
        Effect::Once => tally.feature.line.into(),
        _ => format!("{} ({})", tally.feature.line, tally.count).into(),
    }
}

/// For each law below the overall score that the strict verdict needs, a line with the strengths that it lacks.
fn missing(score: &Score) -> impl Iterator<Item = Cow<'static, str>> {
    const HIGH: i32 = BARS[2].pass;
    let found: Set = score.tallies.iter().fold(0, |set, tally| set | 1 << tally.place);
    let low = LAWS.iter().zip(score.laws).filter(|(_, points)| *points < HIGH);
    low.filter_map(move |(row, _)| {
        let is_missing = |(place, feature): &(usize, &Feature)| {
            feature.law == row.law && feature.effect != Effect::Violation && found & 1 << place == 0
        };
        let missing = FEATURES.iter().enumerate().filter(is_missing).map(|(_, feature)| feature.kind);
        let missing = missing.collect::<Vec<_>>().join(", ");
        (!missing.is_empty()).then(|| format!("law {}: not shown: {missing}", row.law.number()).into())
    })
}

/// An excerpt of the text for a line of prose, shortened and without line feeds.
struct Shown<'a>(&'a str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (count, char) in self.0.chars().enumerate() {
            match char {
                _ if count == 80 => return f.write_str("…"),
                '\n' | '\r' | '\t' => f.write_char(' ')?,
                char => f.write_char(char)?,
            }
        }
        Ok(())
    }
}

// Numbers

/// Percent, from tenths of a percent.
fn percent(tenths: i32) -> f64 {
    f64::from(tenths) / 10.0
}

/// A number with at most three decimals.
fn thousandths(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0
}

/// The laws' scores and the overall score, in percent.
struct Scores([f64; 5], f64);

impl Serialize for Scores {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(6))?;
        for (row, points) in LAWS.iter().zip(self.0) {
            map.serialize_entry(row.field, &points)?;
        }
        map.serialize_entry("overall_compliance", &self.1)?;
        map.end()
    }
}
