//! Causality: finds out which events caused which.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use ken_logic::{Literal, Theory};
use ken_tool::{Error, Replied, Reply};
use ken_types::json::kind_of;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::answer::{Found, Issue, Step};
use crate::document::{Document, Kind};
use crate::moment::Moment;
use crate::numbers::{format_count, rounded, wilson};
use crate::rules::text;

/// The confidence of a link that is supported by a rule but not by times. Consistent times can double it.
const RULE_ONLY_CONFIDENCE: f64 = 0.5;

/// How often an event must have followed another one for a link without a rule.
const MIN_REPEATS: usize = 3;

/// The maximum number of different events that are searched for repetitions. The number of pairs grows with its square.
const MAX_COMPARED: usize = 200;

/// The maximum number of events, and of links between them. The time grows with the square of both.
const MAX_EVENTS: usize = 5_000;

/// The maximum number of chains in the answer.
const MAX_CHAINS: usize = 100;

struct Event {
    description: String,
    time: Option<Moment>,
    attributes: Map<String, Value>,
}

/// One or more causes that occur together, and their effect.
struct Link {
    causes: Vec<usize>,
    effect: usize,
    rule: Option<u32>,
    /// The median time from the last of the causes to the effect, and its unit.
    gap: Option<(f64, &'static str)>,
    followed: usize,
    occurred: usize,
    confidence: f64,
}

/// The occurrences of an effect after its causes.
struct Occurrences {
    /// For each occurrence, the time since the last of the causes, and its unit.
    gaps: Vec<(f64, &'static str)>,
    /// How many of the common attributes of cause and effect are equal, from 0 (none) to 1 (all).
    alike: f64,
}

#[derive(Serialize)]
struct Chain {
    events: Vec<String>,
    gaps: Vec<Option<f64>>,
    confidence: f64,
}

#[derive(Serialize)]
struct Confounder {
    cause: String,
    effects: Vec<String>,
}

#[derive(Serialize)]
struct ExtraFields {
    causal_chains: Vec<Chain>,
    confounders: Vec<Confounder>,
}

pub(crate) fn answer(document: &Document<'_>, reply: Reply<'_>) -> Result<Replied, Error> {
    let events = events(document)?;
    if events.is_empty() {
        return Err(Error::invalid("/events", "causal reasoning needs events (or facts)"));
    }
    if events.len() > MAX_EVENTS {
        return Err(Error::too_large(format!("more than {MAX_EVENTS} events")).at("/events"));
    }
    let facts: Vec<Cow<'_, str>> = distinct(document, &events);
    let history = History::of(&events)?;
    let mut links = history.by_rules(document)?;
    links.extend(history.by_repetition(&links));
    let (links, issues) = without_cycles(links, &history);
    let chains = chains(&links);
    let chain = steps(&links, &chains, &history);
    let conclusions: Vec<String> = chain.iter().map(|step| step.conclusion.clone()).collect();
    let found = Found {
        confidence: chain.iter().map(|step| step.confidence).collect::<Vec<f64>>(),
        explanation: format!(
            "{} among {}",
            format_count(links.len(), "causal link"),
            format_count(events.len(), "event")
        ),
        conclusions: &conclusions,
        chain: &chain,
        issues,
        more: ExtraFields {
            causal_chains: chains.iter().map(|path| history.chain(&links, path)).collect(),
            confounders: history.confounders(&links),
        },
    };
    Ok(reply.send(&found.answer(Kind::Causal, &facts, document)))
}

/// Returns the events of the document. If it has none, its facts count as events of unknown time.
fn events(document: &Document<'_>) -> Result<Vec<Event>, Error> {
    if document.events.is_empty() {
        let event = |fact: &Cow<'_, str>| Event { description: fact.to_string(), time: None, attributes: Map::new() };
        return Ok(document.facts.iter().map(event).collect());
    }
    let numbered = document.events.iter().enumerate();
    numbered.map(|(number, value)| event(value, &format!("/events/{number}"))).collect()
}

fn event(value: &Value, at: &str) -> Result<Event, Error> {
    let fields = match value {
        Value::String(description) => {
            return Ok(Event { description: description.clone(), time: None, attributes: Map::new() });
        }
        Value::Object(fields) => fields,
        other => {
            return Err(Error::invalid(at, format!("an event is an object or text, not {}", kind_of(other))));
        }
    };
    let mut names = ["description", "event", "name"].iter();
    let named = names.find_map(|field| fields.get(*field));
    Ok(Event {
        description: text(named.unwrap_or(&Value::Null), &format!("{at}/description"))?,
        time: time(fields, at)?,
        attributes: attributes(fields, at)?,
    })
}

fn time(fields: &Map<String, Value>, at: &str) -> Result<Option<Moment>, Error> {
    let wrong = || Error::invalid(format!("{at}/time"), "must be a number, a clock time (10:05) or an RFC 3339 time");
    match fields.get("time").or_else(|| fields.get("timestamp")) {
        None | Some(Value::Null) => Ok(None),
        Some(time) => Moment::of(time).ok_or_else(wrong).map(Some),
    }
}

fn attributes(fields: &Map<String, Value>, at: &str) -> Result<Map<String, Value>, Error> {
    match fields.get("attributes") {
        None => Ok(Map::new()),
        Some(Value::Object(attributes)) => Ok(attributes.clone()),
        Some(other) => {
            Err(Error::invalid(format!("{at}/attributes"), format!("must be an object, not {}", kind_of(other))))
        }
    }
}

/// Returns the facts and the events of the document, each once.
fn distinct<'a>(document: &'a Document<'_>, events: &'a [Event]) -> Vec<Cow<'a, str>> {
    let facts = document.facts.iter().map(|fact| Cow::Borrowed(fact.as_ref()));
    let texts = events.iter().map(|event| Cow::Borrowed(event.description.as_str()));
    let mut seen = BTreeSet::new();
    facts.chain(texts).filter(|text| seen.insert(text.to_string())).collect()
}

/// The events, grouped by their description. Events with the same description are occurrences of one event.
struct History<'e> {
    kinds: Vec<EventKind<'e>>,
}

struct EventKind<'e> {
    description: &'e str,
    occurrences: Vec<&'e Event>,
}

impl<'e> History<'e> {
    fn of(events: &'e [Event]) -> Result<History<'e>, Error> {
        let mut theory = Theory::new();
        let mut kinds: Vec<EventKind<'e>> = Vec::new();
        let mut by_literal: BTreeMap<Literal, usize> = BTreeMap::new();
        for (number, event) in events.iter().enumerate() {
            let literal = theory
                .statement(&event.description)
                .map_err(|invalid| Error::invalid(format!("/events/{number}"), invalid.to_string()))?;
            let next = kinds.len();
            let kind = *by_literal.entry(literal).or_insert(next);
            match kinds.get_mut(kind) {
                Some(known) => known.occurrences.push(event),
                None => kinds.push(EventKind { description: &event.description, occurrences: vec![event] }),
            }
        }
        Ok(History { kinds })
    }

    fn text(&self, kind: usize) -> &'e str {
        self.kinds.get(kind).map_or("", |happening| happening.description)
    }

    fn occurrences(&self, kind: usize) -> &[&'e Event] {
        self.kinds.get(kind).map_or(&[], |happening| &happening.occurrences)
    }

    /// Returns links from the rules `cause -> effect`. Cause and effect must both have happened and, if their times are
    /// known, in this order.
    fn by_rules(&self, document: &Document<'_>) -> Result<Vec<Link>, Error> {
        let mut theory = Theory::new();
        let mut given = Vec::new();
        for happening in &self.kinds {
            let literal = theory.statement(happening.description);
            given.push(literal.map_err(|invalid| Error::invalid("/events", invalid.to_string()))?);
        }
        document.rules.add_to(&mut theory)?;
        let instances = theory.instances(&given).map_err(|limit| Error::too_large(limit.to_string()).at("/rules"))?;
        if instances.steps.len() > MAX_EVENTS {
            return Err(Error::too_large(format!("the rules link more than {MAX_EVENTS} events")).at("/rules"));
        }
        let kind = |literal: &Literal| given.iter().position(|known| known == literal);
        let mut links: Vec<Link> = Vec::new();
        for step in &instances.steps {
            let causes: Option<Vec<usize>> = instances.premises(step).iter().map(kind).collect();
            let (Some(causes), Some(effect)) = (causes, kind(&step.conclusion)) else {
                continue;
            };
            let is_known = links.iter().any(|link| link.causes == causes && link.effect == effect);
            let is_own_cause = causes.contains(&effect) || causes.is_empty();
            if !is_known && !is_own_cause {
                links.extend(self.link(causes, effect, Some(step.rule)));
            }
        }
        Ok(links)
    }

    /// Returns the link between these events; `None` if their times exclude it.
    fn link(&self, causes: Vec<usize>, effect: usize, rule: Option<u32>) -> Option<Link> {
        let Occurrences { mut gaps, alike } = self.occurrences_after(&causes, effect);
        let is_timed = self.occurrences(effect).iter().any(|event| event.time.is_some());
        if is_timed && gaps.is_empty() && self.all_timed(&causes) {
            return None; // the effect never happened after its cause
        }
        let counts = causes.iter().map(|&cause| self.occurrences(cause).len());
        let occurred = counts.min().unwrap_or(0);
        let followed = gaps.len().min(occurred);
        gaps.sort_by(|a, b| a.0.total_cmp(&b.0));
        let seen = (1.0 - RULE_ONLY_CONFIDENCE) * wilson(followed, occurred) * alike;
        let confidence = rounded(if rule.is_some() { RULE_ONLY_CONFIDENCE + seen } else { seen });
        Some(Link { causes, effect, rule, gap: gaps.get(gaps.len() / 2).copied(), followed, occurred, confidence })
    }

    /// Returns the occurrences of the effect after all of the causes.
    fn occurrences_after(&self, causes: &[usize], effect: usize) -> Occurrences {
        let mut gaps = Vec::new();
        let mut alike = 0.0;
        for event in self.occurrences(effect) {
            let before = causes.iter().map(|&cause| self.last_before(cause, event));
            let (Some(time), Some(before)) = (event.time, before.collect::<Option<Vec<_>>>()) else {
                continue;
            };
            let shortest = before.iter().map(|(gap, _)| *gap).fold(f64::INFINITY, f64::min);
            gaps.push((shortest, time.unit()));
            let agreements = before.iter().map(|(_, cause)| agreement(cause, event));
            alike += agreements.fold(1.0, f64::min);
        }
        let alike = match gaps.len() {
            0 => 1.0,
            count => alike / count as f64,
        };
        Occurrences { gaps, alike }
    }

    fn all_timed(&self, causes: &[usize]) -> bool {
        causes.iter().all(|&cause| self.occurrences(cause).iter().all(|event| event.time.is_some()))
    }

    /// Returns the last occurrence of the cause strictly before the event, and the time between them.
    fn last_before(&self, cause: usize, event: &Event) -> Option<(f64, &'e Event)> {
        let gaps = self.occurrences(cause).iter().filter_map(|&other| Some((event.time?.after(other.time?)?, other)));
        gaps.filter(|(gap, _)| *gap > 0.0).min_by(|a, b| a.0.total_cmp(&b.0))
    }

    /// Returns links between two events of which one always followed the other, and often enough. Pairs that a rule or
    /// a common cause explains are left out. A common cause is an event that always precedes both, by a rule or by
    /// repetition. In that case the times do not show whether one of the two causes the other.
    fn by_repetition(&self, known: &[Link]) -> Vec<Link> {
        let mut causes: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        for link in known {
            causes.entry(link.effect).or_default().extend(&link.causes);
        }
        let pairs = self.repeated();
        let is_linked = |(cause, effect): &(usize, usize)| causes.get(effect).is_some_and(|of| of.contains(cause));
        let new: Vec<(usize, usize)> = pairs.into_iter().filter(|pair| !is_linked(pair)).collect();
        for &(cause, effect) in &new {
            causes.entry(effect).or_default().insert(cause);
        }
        let shares_a_cause = |one: usize, other: usize| match (causes.get(&one), causes.get(&other)) {
            (Some(one), Some(other)) => !one.is_disjoint(other),
            _ => false,
        };
        new.into_iter()
            .filter(|&(cause, effect)| !shares_a_cause(cause, effect))
            .filter_map(|(cause, effect)| self.link(vec![cause], effect, None))
            .collect()
    }

    /// Returns the pairs of events of which the second always followed the first.
    fn repeated(&self) -> Vec<(usize, usize)> {
        let is_frequent = |kind: &usize| self.occurrences(*kind).len() >= MIN_REPEATS;
        let kinds: Vec<usize> = (0..self.kinds.len()).filter(is_frequent).take(MAX_COMPARED).collect();
        let pairs = kinds.iter().flat_map(|&cause| kinds.iter().map(move |&effect| (cause, effect)));
        pairs.filter(|&(cause, effect)| cause != effect && self.always_follows(cause, effect)).collect()
    }

    /// Returns whether the effect follows each occurrence of the cause before the cause occurs again.
    fn always_follows(&self, cause: usize, effect: usize) -> bool {
        let order = |kind: usize| {
            let times = || self.occurrences(kind).iter().map(|event| event.time);
            let zero = times().next().flatten().map(Moment::zero);
            let mut times: Vec<f64> = times().filter_map(|time| time?.after(zero?)).collect();
            times.sort_by(f64::total_cmp);
            times
        };
        let (causes, effects) = (order(cause), order(effect));
        let ends = causes.iter().skip(1).copied().chain([f64::INFINITY]);
        let followed =
            causes.iter().zip(ends).filter(|&(&start, end)| effects.iter().any(|&time| time > start && time < end));
        causes.len() >= MIN_REPEATS && followed.count() == causes.len()
    }

    fn confounders(&self, links: &[Link]) -> Vec<Confounder> {
        let mut effects: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        for link in links {
            for &cause in &link.causes {
                effects.entry(cause).or_default().insert(link.effect);
            }
        }
        let shared = effects.into_iter().filter(|(_, effects)| effects.len() > 1);
        let texts = shared.map(|(cause, effects)| Confounder {
            cause: self.text(cause).to_owned(),
            effects: effects.into_iter().map(|effect| self.text(effect).to_owned()).collect(),
        });
        texts.collect()
    }

    fn chain(&self, links: &[Link], path: &[usize]) -> Chain {
        let steps: Vec<&Link> = path.iter().filter_map(|&link| links.get(link)).collect();
        let first = steps.first().and_then(|link| link.causes.first()).copied();
        let kinds = first.into_iter().chain(steps.iter().map(|link| link.effect));
        Chain {
            events: kinds.map(|kind| self.text(kind).to_owned()).collect(),
            gaps: steps.iter().map(|link| link.gap.map(|(gap, _)| rounded(gap))).collect(),
            confidence: rounded(steps.iter().map(|link| link.confidence).product()),
        }
    }

    fn names(&self, kinds: &[usize]) -> String {
        kinds.iter().map(|&kind| format!("\"{}\"", self.text(kind))).collect::<Vec<_>>().join(" and ")
    }
}

/// Returns the share of the common attributes that are equal, from 0 to 1; 1 if the events have no common attribute.
fn agreement(cause: &Event, effect: &Event) -> f64 {
    let shared = cause.attributes.iter().filter_map(|(key, value)| Some((value, effect.attributes.get(key)?)));
    let (equal, different): (Vec<_>, Vec<_>) = shared.partition(|(value, other)| value == other);
    match equal.len() + different.len() {
        0 => 1.0,
        all => equal.len() as f64 / all as f64,
    }
}

/// Returns the links without cycles, and reports the links that were removed. The links with the highest confidence are
/// added first, and a link that would close a cycle is removed.
fn without_cycles(mut links: Vec<Link>, history: &History<'_>) -> (Vec<Link>, Vec<Issue>) {
    links.sort_by(|a, b| b.confidence.total_cmp(&a.confidence));
    let (mut kept, mut issues): (Vec<Link>, Vec<Issue>) = (Vec::new(), Vec::new());
    let mut effects: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for link in links {
        if has_path(&effects, link.effect, &link.causes) {
            let (causes, effect) = (history.names(&link.causes), history.text(link.effect));
            issues.push(Issue {
                kind: "cycle",
                severity: "warning",
                at: link.rule.map_or_else(|| "/events".to_owned(), |rule| format!("/rules/{rule}")),
                message: format!("{causes} as a cause of \"{effect}\" would close a circle"),
                proofs: Vec::new(),
            });
        } else {
            link.causes.iter().for_each(|&cause| effects.entry(cause).or_default().push(link.effect));
            kept.push(link);
        }
    }
    (kept, issues)
}

/// Returns whether a path leads from an event to one of the others. `effects` holds the effects of each event.
fn has_path(effects: &BTreeMap<usize, Vec<usize>>, from: usize, to: &[usize]) -> bool {
    let mut open = vec![from];
    let mut seen = BTreeSet::from([from]);
    while let Some(kind) = open.pop() {
        if to.contains(&kind) {
            return true;
        }
        let next = effects.get(&kind).into_iter().flatten().copied();
        open.extend(next.filter(|&effect| seen.insert(effect)));
    }
    false
}

/// Returns at most [`MAX_CHAINS`] paths of two or more links. Each begins at an event without a cause.
fn chains(links: &[Link]) -> Vec<Vec<usize>> {
    let is_start = |link: &Link| link.causes.iter().all(|&cause| !links.iter().any(|other| other.effect == cause));
    let mut open: Vec<Vec<usize>> = (0..links.len())
        .rev()
        .filter(|&number| links.get(number).is_some_and(is_start))
        .map(|number| vec![number])
        .collect();
    let mut chains = Vec::new();
    while let Some(path) = open.pop() {
        let effect = path.last().and_then(|&last| links.get(last)).map(|link| link.effect);
        let next: Vec<usize> = (0..links.len())
            .filter(|&number| {
                links.get(number).is_some_and(|link| effect.is_some_and(|effect| link.causes.contains(&effect)))
            })
            .collect();
        if next.is_empty() && path.len() > 1 {
            chains.push(path.clone());
        }
        open.extend(next.into_iter().rev().map(|number| path.iter().copied().chain([number]).collect()));
        if chains.len() == MAX_CHAINS {
            break;
        }
    }
    chains
}

fn steps(links: &[Link], chains: &[Vec<usize>], history: &History<'_>) -> Vec<Step> {
    let mut steps: Vec<Step> = links.iter().map(|link| link_step(link, history)).collect();
    for path in chains {
        let parts: Vec<&Link> = path.iter().filter_map(|&link| links.get(link)).collect();
        let (Some(first), Some(last)) = (parts.first(), parts.last()) else {
            continue;
        };
        let conclusion = format!("{} led to \"{}\"", history.names(&first.causes), history.text(last.effect));
        let texts = history.chain(links, path);
        steps.push(Step {
            kind: "chain",
            rule: None,
            premises: parts.iter().map(|link| link_text(link, history)).collect(),
            explanation: format!("{conclusion}: {}", texts.events.join(" -> ")),
            conclusion,
            confidence: texts.confidence,
        });
    }
    steps
}

fn link_text(link: &Link, history: &History<'_>) -> String {
    format!("{} caused \"{}\"", history.names(&link.causes), history.text(link.effect))
}

fn link_step(link: &Link, history: &History<'_>) -> Step {
    let conclusion = link_text(link, history);
    let by = match link.rule {
        Some(rule) => format!("by rule {rule}"),
        None => "by repetition alone".to_owned(),
    };
    let when = match link.gap {
        Some((gap, unit)) => format!("{}{unit} later, {} of {} times", rounded(gap), link.followed, link.occurred),
        None => "times unknown".to_owned(),
    };
    let events = link.causes.iter().chain([&link.effect]);
    Step {
        kind: "causation",
        rule: link.rule,
        premises: events.map(|&kind| history.text(kind).to_owned()).collect(),
        explanation: format!("{conclusion} {by}, {when}"),
        conclusion,
        confidence: link.confidence,
    }
}
