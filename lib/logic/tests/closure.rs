//! Compares the closure with that of a naive algorithm, which tries all ground instances, on random theories with
//! variables and negation. Also checks every proof step by step.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};

use ken_logic::{Closure, Inference, Literal, Theory};
use proptest::prelude::*;

type Rule = (Vec<String>, String);

fn derive<'a>(theory: &mut Theory<'a>, facts: &'a [String], rules: &'a [Rule]) -> Closure {
    let given: Vec<Literal> = facts.iter().map(|fact| theory.statement(fact).unwrap()).collect();
    for (premises, conclusion) in rules {
        theory.add_rule(premises.iter().map(String::as_str), conclusion).unwrap();
    }
    theory.derive(&given).unwrap()
}

fn all(theory: &Theory<'_>, closure: &Closure) -> BTreeSet<String> {
    closure.steps.iter().map(|step| theory.wording(step.conclusion).into_owned()).collect()
}

fn run(facts: &[&str], rules: &[(&[&str], &str)]) -> Vec<String> {
    let facts: Vec<String> = facts.iter().map(|&fact| fact.to_owned()).collect();
    let owned = |(premises, conclusion): &(&[&str], &str)| {
        (premises.iter().map(|&premise| premise.to_owned()).collect(), (*conclusion).to_owned())
    };
    let rules: Vec<Rule> = rules.iter().map(owned).collect();
    let mut theory = Theory::new();
    let closure = derive(&mut theory, &facts, &rules);
    closure.steps.iter().map(|step| theory.wording(step.conclusion).into_owned()).collect()
}

#[test]
fn the_shallowest_derivation_comes_first() {
    let (facts, rules) = (
        vec!["a".to_owned()],
        vec![
            (vec!["a".to_owned()], "m".to_owned()),
            (vec!["m".to_owned()], "z".to_owned()),
            (vec!["a".to_owned()], "z".to_owned()),
        ],
    );
    let mut theory = Theory::new();
    let closure = derive(&mut theory, &facts, &rules);
    let z = theory.statement("z").unwrap();
    let step = closure.steps[closure.step_of(z).unwrap()];
    assert_eq!((step.rule, step.depth), (2, 1));
}

#[test]
fn ground_rules() {
    assert_eq!(run(&["a", "b"], &[(&["a"], "b")]), [""; 0]);
    assert_eq!(run(&["a"], &[(&["a"], "b"), (&["b"], "a")]), ["b"]);
    assert_eq!(run(&[], &[(&[], "axiom")]), ["axiom"]);
    assert_eq!(run(&["not b"], &[(&["a"], "b")]), ["not a"]);
    assert_eq!(run(&["not c", "a"], &[(&["a", "b"], "c")]), ["not b"]);
    assert_eq!(run(&["not c"], &[(&["a", "b"], "c")]), [""; 0]);
    assert_eq!(run(&["not b"], &[(&["a", "a"], "b")]), ["not a"]);
    assert_eq!(run(&["a"], &[(&["a"], "not a")]), ["not a"]);
    assert_eq!(run(&["a"], &[(&["a"], "a")]), [""; 0]);
    assert_eq!(run(&["Socrates is a man "], &[(&["socrates is a man"], "Socrates is mortal")]), ["Socrates is mortal"]);
}

#[test]
fn variables_bind_words_and_keep_their_wording() {
    let mortal: (&[&str], &str) = (&["?x is a man"], "?x is mortal");
    assert_eq!(run(&["Socrates is a man"], &[mortal]), ["Socrates is mortal"]);
    assert_eq!(run(&["The old King is a man."], &[mortal]), ["The old King is mortal"]);
    assert_eq!(run(&["Zeus is not mortal"], &[mortal]), ["not Zeus is a man"]);
    let rules: [(&[&str], &str); 2] = [
        (&["?x is parent of ?y"], "?x is ancestor of ?y"),
        (&["?x is ancestor of ?y", "?y is ancestor of ?z"], "?x is ancestor of ?z"),
    ];
    let derived = run(&["Ann is parent of Bo", "Bo is parent of Cy", "Cy is parent of Di"], &rules);
    assert_eq!(
        derived,
        [
            "Ann is ancestor of Bo", "Bo is ancestor of Cy", "Cy is ancestor of Di", "Ann is ancestor of Cy",
            "Bo is ancestor of Di", "Ann is ancestor of Di",
        ]
    );
    assert_eq!(run(&["a likes a", "a likes b"], &[(&["?x likes ?x"], "?x is vain")]), ["a is vain"]);
}

/// A round only considers rules that a new statement can trigger, and statements with the same last words as the
/// pattern.
#[test]
fn the_work_is_in_proportion_to_what_can_apply() {
    let rules: Vec<Rule> =
        (0..10_000).map(|place| (vec![format!("?x is s{place}")], format!("?x is s{}", place + 1))).collect();
    let chain = derive(&mut Theory::new(), &["a is s0".to_owned()], &rules);
    assert_eq!(chain.steps.len(), 10_000);
    assert!(chain.work() < 10_000_000, "{}", chain.work());

    let long = ["w "; 1_000].concat() + "and x";
    let rule: Rule = (vec!["?x w ?y and x".to_owned()], "z ?x".to_owned());
    let split = derive(&mut Theory::new(), &[long], &[rule]);
    assert_eq!(split.steps.len(), 998);
    assert!(split.work() < 2_000_000, "{}", split.work());
}

#[test]
fn unbounded_growth_is_refused() {
    let mut theory = Theory::new();
    let given = [theory.statement("p a").unwrap()];
    theory.add_rule(["p ?x"].into_iter(), "p s ?x").unwrap();
    assert!(theory.derive(&given).is_err());
}

#[test]
fn instances_are_found_with_conclusions_given() {
    let mut theory = Theory::new();
    let given = ["a b", "c", "not d", "e b"].map(|wording| theory.statement(wording).unwrap());
    theory.add_rule(["c"].into_iter(), "d").unwrap();
    theory.add_rule(["a ?x"].into_iter(), "e ?x").unwrap();
    theory.add_rule(["z"].into_iter(), "c").unwrap();
    let instances = theory.instances(&given).unwrap();
    let found: Vec<_> =
        instances.steps.iter().map(|step| (step.rule, theory.wording(step.conclusion).into_owned())).collect();
    assert_eq!(found, [(0, "d".to_owned()), (1, "e b".to_owned())]);
}

/// Checks each step: it must be an instance of its rule, and use only earlier statements.
fn check(theory: &mut Theory<'_>, closure: &Closure, given: &[Literal], rules: &[Rule]) {
    let mut held: BTreeSet<Literal> = given.iter().copied().collect();
    for step in &closure.steps {
        let premises = closure.premises(step).to_vec();
        assert!(premises.iter().all(|premise| held.contains(premise)));
        let (rule_premises, rule_conclusion) = &rules[step.rule as usize];
        let mut body: Vec<String> = rule_premises.clone();
        let mut head = rule_conclusion.clone();
        let worded = |literal: Literal| theory.wording(literal).into_owned();
        let (mut facts, mut concluded) =
            (premises.iter().map(|&premise| worded(premise)).collect::<Vec<_>>(), worded(step.conclusion));
        if step.inference == Inference::ModusTollens {
            // Converts the step back into its rule: the refuted statement is a premise, and the refuting one is the
            // conclusion.
            let refuting = facts.remove(0);
            facts.push(opposite(&concluded));
            concluded = opposite(&refuting);
        }
        assert!(
            bindings(&body, &head).iter().any(|binding| {
                let body: BTreeSet<String> = body.iter().map(|part| plain(&bind(part, binding))).collect();
                let facts: BTreeSet<String> = facts.iter().map(|fact| plain(fact)).collect();
                body == facts && plain(&bind(&head, binding)) == plain(&concluded)
            }),
            "{facts:?} |- {concluded} is no instance of {body:?} -> {head}"
        );
        body.clear();
        head.clear();
        held.insert(step.conclusion);
        let deepest = premises.iter().map(|&premise| closure.depth(premise)).max();
        assert_eq!(step.depth, deepest.map_or(0, |depth| depth + 1));
    }
}

const CONSTANTS: [&str; 3] = ["a", "b", "c"];

fn bind(part: &str, binding: &BTreeMap<&str, &str>) -> String {
    part.split(' ').map(|word| binding.get(word).copied().unwrap_or(word)).collect::<Vec<_>>().join(" ")
}

/// Returns every assignment of constants to the variables of a rule.
fn bindings<'r>(body: &'r [String], head: &'r str) -> Vec<BTreeMap<&'r str, &'static str>> {
    let words = body.iter().map(String::as_str).chain([head]).flat_map(|part| part.split(' '));
    let names: BTreeSet<&str> = words.filter(|word| word.starts_with('?')).collect();
    let mut bindings = vec![BTreeMap::new()];
    for name in names {
        let with = |binding: &BTreeMap<&'r str, &'static str>| {
            CONSTANTS.map(|constant| {
                let mut binding = binding.clone();
                binding.insert(name, constant);
                binding
            })
        };
        bindings = bindings.iter().flat_map(with).collect();
    }
    bindings
}

/// Removes double negations: "not not p" becomes "p".
fn plain(text: &str) -> String {
    text.strip_prefix("not not ").unwrap_or(text).to_owned()
}

fn opposite(text: &str) -> String {
    text.strip_prefix("not ").map_or_else(|| format!("not {text}"), str::to_owned)
}

/// Computes the closure by trying every ground instance of every rule and of its contrapositives until nothing changes.
fn naive(facts: &[String], rules: &[Rule]) -> BTreeSet<String> {
    let mut clauses: Vec<(Vec<String>, String)> = Vec::new();
    for (body, head) in rules {
        // A premise that is given twice counts once.
        let body: Vec<String> = body.iter().collect::<BTreeSet<_>>().into_iter().cloned().collect();
        for binding in bindings(&body, head) {
            let body: Vec<String> = body.iter().map(|part| bind(part, &binding)).collect();
            let head = bind(head, &binding);
            for (place, refuted) in body.iter().enumerate() {
                let others = body.iter().enumerate().filter(|&(other, _)| other != place);
                let mut rest: Vec<String> = others.map(|(_, part)| part.clone()).collect();
                rest.push(opposite(&head));
                clauses.push((rest, opposite(refuted)));
            }
            clauses.push((body, head));
        }
    }
    let mut held: BTreeSet<String> = facts.iter().cloned().collect();
    loop {
        let before = held.len();
        for (body, head) in &clauses {
            if body.iter().all(|part| held.contains(part)) {
                held.insert(head.clone());
            }
        }
        if held.len() == before {
            let given: BTreeSet<String> = facts.iter().cloned().collect();
            return held.difference(&given).cloned().collect();
        }
    }
}

fn statement(terms: &'static str) -> impl Strategy<Value = String> + use<> {
    let term = proptest::string::string_regex(terms).unwrap().boxed();
    let atom = prop_oneof![
        (prop_oneof![Just("p"), Just("q"), Just("r")], term.clone()).prop_map(|(name, term)| format!("{name} {term}")),
        (prop_oneof![Just("s"), Just("t")], term.clone(), term)
            .prop_map(|(name, first, second)| format!("{name} {first} {second}")),
    ];
    (atom, 0..4u8).prop_map(|(atom, sign)| if sign == 0 { format!("not {atom}") } else { atom })
}

/// Returns whether the rule and all its contrapositives are safe: every variable of a premise also occurs in the
/// conclusion or in another premise. An unsafe contrapositive cannot be applied, but the naive closure, which knows all
/// constants, would apply it.
fn is_safe(rule: &Rule) -> bool {
    let (body, head) = rule;
    let names = |part: &str| -> BTreeSet<String> {
        part.split(' ').filter(|word| word.starts_with('?')).map(str::to_owned).collect()
    };
    let once: BTreeSet<&String> = body.iter().collect();
    let mut parts: Vec<BTreeSet<String>> = once.into_iter().map(|part| names(part)).collect();
    parts.push(names(head));
    (0..parts.len()).all(|place| {
        let others = parts.iter().enumerate().filter(|&(other, _)| other != place);
        let others: BTreeSet<String> = others.flat_map(|(_, names)| names.iter().cloned()).collect();
        parts[place].is_subset(&others)
    })
}

fn theories() -> impl Strategy<Value = (Vec<String>, Vec<Rule>)> {
    let facts = prop::collection::vec(statement("[abc]"), 0..8);
    let rule = (prop::collection::vec(statement("[abc]|\\?[xyz]|\\?[xy]"), 0..4), statement("[abc]|\\?[xyz]|\\?[xy]"));
    let rules = prop::collection::vec(rule.prop_filter("safe", is_safe), 0..8);
    (facts, rules)
}

/// Theories of a few ground statements, half of them negated. In most of them, rules with several premises refute a
/// statement.
fn refuting_theories() -> impl Strategy<Value = (Vec<String>, Vec<Rule>)> {
    let statement = || {
        (0..5usize, any::<bool>()).prop_map(|(place, is_denied)| {
            let atom = ["a", "b", "c", "d", "e"][place];
            if is_denied { format!("not {atom}") } else { atom.to_owned() }
        })
    };
    let rule = (prop::collection::vec(statement(), 1..4), statement());
    let facts = prop::collection::vec(statement(), 1..5);
    (facts, prop::collection::vec(rule, 1..5))
}

/// All premises but one and the negated conclusion imply the negation of that one, and the proof names all of them.
#[test]
fn a_refutation_rests_on_every_other_premise() {
    for (count, term) in [(1, "a"), (2, "a"), (3, "a"), (5, "a"), (2, "?x"), (4, "?x")] {
        let rule: Rule = ((0..count).map(|place| format!("p{place} {term}")).collect(), format!("c {term}"));
        for missing in 0..count {
            let others = (0..count).filter(|place| *place != missing);
            let mut facts: Vec<String> = others.map(|place| format!("p{place} a")).collect();
            facts.push("not c a".to_owned());
            let mut theory = Theory::new();
            let closure = derive(&mut theory, &facts, std::slice::from_ref(&rule));
            assert_eq!(all(&theory, &closure), BTreeSet::from([format!("not p{missing} a")]));
            let premises = closure.premises(&closure.steps[0]).iter();
            let premises: BTreeSet<String> = premises.map(|&one| theory.wording(one).into_owned()).collect();
            assert_eq!(premises, facts.iter().cloned().collect());
            for left_out in 0..facts.len() {
                let mut fewer = facts.clone();
                fewer.remove(left_out);
                let closure = derive(&mut Theory::new(), &fewer, std::slice::from_ref(&rule));
                assert!(closure.steps.is_empty(), "{fewer:?}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, max_global_rejects: 1_000_000, max_local_rejects: 1_000_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_closure_is_the_naive_one_and_every_step_is_an_instance((facts, rules) in theories()) {
        let mut theory = Theory::new();
        let closure = derive(&mut theory, &facts, &rules);
        prop_assert_eq!(all(&theory, &closure), naive(&facts, &rules));
        let given: Vec<Literal> = facts.iter().map(|fact| theory.statement(fact).unwrap()).collect();
        check(&mut theory, &closure, &given, &rules);
    }

    #[test]
    fn refutations_are_those_of_the_naive_closure((facts, rules) in refuting_theories()) {
        let mut theory = Theory::new();
        let closure = derive(&mut theory, &facts, &rules);
        prop_assert_eq!(all(&theory, &closure), naive(&facts, &rules));
        let given: Vec<Literal> = facts.iter().map(|fact| theory.statement(fact).unwrap()).collect();
        check(&mut theory, &closure, &given, &rules);
    }

    #[test]
    fn the_order_of_facts_and_rules_changes_no_conclusion((facts, rules) in theories()) {
        let mut theory = Theory::new();
        let closure = derive(&mut theory, &facts, &rules);
        let backwards: (Vec<_>, Vec<_>) = (facts.iter().rev().cloned().collect(), rules.iter().rev().cloned().collect());
        let mut other = Theory::new();
        let turned = derive(&mut other, &backwards.0, &backwards.1);
        prop_assert_eq!(all(&theory, &closure), all(&other, &turned));
    }

    #[test]
    fn anything_is_taken_or_refused(
        facts in prop::collection::vec("(not |it is not the case that |\\?x|\\?|[a-c.'’ ]){0,6}", 0..4),
        rules in prop::collection::vec((prop::collection::vec("(not |\\?x|\\?y|[a-c. ]){0,5}", 0..3), "(not |\\?x|[a-c]| ){0,4}"), 0..4),
    ) {
        let mut theory = Theory::new();
        let given: Vec<Literal> = facts.iter().filter_map(|fact| theory.statement(fact).ok()).collect();
        for (premises, conclusion) in &rules {
            let _ = theory.add_rule(premises.iter().map(String::as_str), conclusion);
        }
        if let Ok(closure) = theory.derive(&given) {
            let conclusions: BTreeSet<Literal> = closure.steps.iter().map(|step| step.conclusion).collect();
            prop_assert_eq!(conclusions.len(), closure.steps.len());
        }
    }
}

#[test]
fn the_contradiction_to_repair_is_distinguished_from_its_consequences() {
    let facts: Vec<String> = vec!["a".into()];
    let rules: Vec<Rule> = vec![(vec!["a".into()], "b".into()), (vec!["a".into()], "not b".into())];
    let mut theory = Theory::new();
    let closure = derive(&mut theory, &facts, &rules);
    let found: Vec<(String, bool)> = closure
        .contradictions()
        .iter()
        .map(|contradiction| (theory.wording(contradiction.second).into_owned(), contradiction.is_root))
        .collect();
    assert_eq!(found, [("not b".to_owned(), true), ("not a".to_owned(), false)]);
}
