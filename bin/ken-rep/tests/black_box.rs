//! Tests of the ken-rep binary through its command line. Each test named "wrong_answer" is for an input to which an
//! earlier tool of this kind gave a wrong answer.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

fn run(args: &[&str], stdin: &[u8]) -> (String, String, i32) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_ken-rep"))
        .args(args)
        .env("KEN_ERRORS", "json")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let _ = child.stdin.take().unwrap().write_all(stdin); // not read if the options are enough
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr), output.status.code().unwrap())
}

/// Returns the answer to a document, after checking its reasoning chain.
fn answer(document: &Value) -> Value {
    let (stdout, stderr, status) = run(&["--format", "compact"], document.to_string().as_bytes());
    assert_eq!((stderr.as_str(), status), ("", 0));
    assert_eq!(stdout.lines().count(), 1);
    let answer: Value = serde_json::from_str(&stdout).unwrap();
    check_chain(&answer);
    answer
}

/// Checks that every step uses only facts or earlier steps, that a step derives every conclusion, and that every
/// conclusion has a confidence.
fn check_chain(answer: &Value) {
    let mut held: BTreeSet<String> = texts(&answer["facts"]).into_iter().map(|text| normal(&text)).collect();
    for step in answer["reasoning_chain"].as_array().unwrap() {
        for premise in texts(&step["premises"]) {
            assert!(held.contains(&normal(&premise)), "{premise} in {answer}");
        }
        held.insert(normal(step["conclusion"].as_str().unwrap()));
        assert!(!step["explanation"].as_str().unwrap().is_empty());
    }
    let conclusions = texts(&answer["conclusions"]);
    assert!(conclusions.iter().all(|conclusion| held.contains(&normal(conclusion))));
    let scores = answer["confidence_scores"].as_object().unwrap();
    assert_eq!(conclusions.len(), scores.len(), "{answer}");
    for conclusion in &conclusions {
        let score = scores.get(conclusion).and_then(Value::as_f64);
        assert!(score.is_some_and(|score| (0.0..=1.0).contains(&score)), "{answer}");
    }
}

fn normal(text: &str) -> String {
    let statement = ken_logic::normalise(text);
    format!("{}{}", if statement.negated { "not " } else { "" }, statement.atom)
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

fn deduce(facts: Value, rules: Value) -> Value {
    answer(&json!({ "facts": facts, "rules": rules }))
}

fn conclusions(answer: &Value) -> Vec<String> {
    texts(&answer["conclusions"])
}

fn assert_error(args: &[&str], stdin: &[u8], code: &str, at: &str) {
    let (stdout, stderr, status) = run(args, stdin);
    let shown = String::from_utf8_lossy(stdin.get(..200).unwrap_or(stdin)).into_owned();
    assert_eq!((stdout.as_str(), status), ("", 2), "{args:?} {shown}");
    assert_eq!(stderr.lines().count(), 1);
    let error = &serde_json::from_str::<Value>(&stderr).unwrap()["error"];
    assert_eq!((error["code"].as_str(), error["at"].as_str()), (Some(code), Some(at)), "{error} for {args:?} {shown}");
}

#[test]
fn wrong_answer_z_by_the_best_derivation() {
    let rules = json!([[["a"], "m"], [["m"], "z"], [["a"], "z"]]);
    let found = answer(&json!({"facts": ["a"], "rules": rules, "options": {"decay": 0.9}}));
    assert_eq!(conclusions(&found), ["m", "z"]);
    assert_eq!(found["confidence_scores"], json!({"m": 0.9, "z": 0.9}));
    assert_eq!(found["reasoning_chain"][1]["rule"], 2);
    assert_eq!(found["reasoning_chain"][1]["premises"], json!(["a"]));
    assert_eq!(deduce(json!(["a"]), rules)["confidence_scores"], json!({"m": 1.0, "z": 1.0}));
}

#[test]
fn wrong_answer_known_facts_are_not_concluded() {
    assert_eq!(conclusions(&deduce(json!(["a", "b"]), json!([[["a"], "b"]]))), [""; 0]);
    assert_eq!(conclusions(&deduce(json!(["a"]), json!([[["a"], "b"], [["b"], "a"]]))), ["b"]);
}

#[test]
fn wrong_answer_an_empty_premise_list_is_an_axiom() {
    let found = deduce(json!([]), json!([[[], "axiom"], [["axiom"], "theorem"]]));
    assert_eq!(conclusions(&found), ["axiom", "theorem"]);
    assert_eq!(found["reasoning_chain"][0]["type"], "axiom");
}

#[test]
fn wrong_answer_premises_as_a_text_are_an_error() {
    assert_error(&["--json", r#"{"facts":["a"],"rules":[["a","b"]]}"#], b"", "invalid", "/rules/0/0");
    assert_error(&["--rules", r#"[["a","b"]]"#, "--facts", "a"], b"", "invalid", "/rules/0/0");
}

#[test]
fn wrong_answer_modus_tollens() {
    let found = deduce(json!(["not b"]), json!([[["a"], "b"]]));
    assert_eq!(conclusions(&found), ["not a"]);
    assert_eq!(found["reasoning_chain"][0]["type"], "modus_tollens");
    assert_eq!(found["reasoning_chain"][0]["premises"], json!(["not b"]));
}

#[test]
fn a_refutation_is_explained_in_the_words_of_the_document() {
    let found =
        deduce(json!(["Bob is not mortal", "Bob is here"]), json!([[["?x is a man", "?x is here"], "?x is mortal"]]));
    assert_eq!(
        found["reasoning_chain"][0]["explanation"],
        "not Bob is a man: else Bob is not mortal could not hold, given Bob is here (rule 0)"
    );
}

#[test]
fn wrong_answer_wordings_of_one_statement_are_equal() {
    let rules = json!([[["socrates is a man"], "Socrates is mortal"]]);
    assert_eq!(conclusions(&deduce(json!(["Socrates is a man "]), rules)), ["Socrates is mortal"]);
}

#[test]
fn wrong_answer_variables_bind() {
    let found = deduce(json!(["Socrates is a man"]), json!([[["?x is a man"], "?x is mortal"]]));
    assert_eq!(conclusions(&found), ["Socrates is mortal"]);
}

#[test]
fn wrong_answer_contradictions() {
    let issues = |facts: Value, rules: Value| deduce(facts, rules)["validation"]["issues"].as_array().unwrap().len();
    assert_eq!(issues(json!(["the red car is fast", "the blue car is not slow"]), json!([])), 0);
    assert_eq!(issues(json!(["the server is running", "the server isn't running"]), json!([])), 1);
    assert_eq!(issues(json!(["the server is running", "the server isn’t running"]), json!([])), 1);
    let found = deduce(json!(["disk is full", "the log is not growing"]), json!([[[], "the log is growing"]]));
    let issue = &found["validation"]["issues"][0];
    assert_eq!(found["validation"]["is_valid"], false);
    assert_eq!((issue["kind"].as_str(), issue["severity"].as_str()), (Some("contradiction"), Some("error")));
    assert_eq!(issue["proofs"].as_array().unwrap().len(), 2);
    assert_eq!(issue["proofs"][0]["steps"], json!([]));
    assert_eq!(issue["proofs"][1]["steps"], json!([0]));
}

#[test]
fn wrong_answer_three_swans() {
    let found = answer(&json!({
        "reasoning_type": "inductive",
        "observations": ["Swans fly.", "Swans swim.", "Swans walk."],
    }));
    assert_eq!(conclusions(&found), ["\"swans\" in 3 of 3 observations"]);
    assert_eq!(found["generalisations"][0]["support"], 3);
    assert_eq!(found["generalisations"][0]["confidence"], 0.438503);
}

#[test]
fn wrong_answer_stop_words_generalise_nothing() {
    let found = answer(&json!({
        "reasoning_type": "inductive",
        "observations": ["the cat is on the mat", "the dog is in the house", "it was the best of them"],
    }));
    assert_eq!(conclusions(&found), [""; 0]);
}

#[test]
fn wrong_answer_rates_that_double_are_a_trend() {
    let found = answer(&json!({
        "reasoning_type": "inductive",
        "observations": ["the rate is 1.1 at 10 C", "the rate is 2.2 at 20 C", "the rate is 4.4 at 30 C"],
    }));
    let trend = &found["trends"][0];
    assert_eq!((trend["direction"].as_str(), trend["fit"].as_str()), (Some("rising"), Some("exponential")));
    assert_eq!((trend["rate"].as_f64(), trend["step"].as_f64()), (Some(2.0), Some(10.0)));
    assert!(conclusions(&found).contains(&"\"rate\" is rising with \"c\": doubles every 10".to_owned()));
}

fn trends(observations: &[&str]) -> Vec<String> {
    let found = answer(&json!({"reasoning_type": "inductive", "observations": observations}));
    let trends = found["trends"].as_array().unwrap().iter();
    trends
        .map(|trend| {
            let word = |field: &str| trend[field].as_str().unwrap().to_owned();
            format!("{} {} with {}", word("of"), word("direction"), word("with"))
        })
        .collect()
}

#[test]
fn a_trend_relates_two_things() {
    for (observations, expected) in [
        (["in 2001 sales were 5", "in 2002 sales were 6", "in 2003 sales were 7"], "sales rising with year"),
        (["day 1: 20 degrees", "day 2: 18 degrees", "day 3: 16 degrees"], "degrees falling with day"),
        (["80 kg in week 1", "79 kg in week 2", "78 kg in week 3"], "kg falling with week"),
        (["5% of x", "6% of x", "7% of x"], "% rising with order"),
        (["sensor 1 reads 5", "sensor 1 reads 6", "sensor 1 reads 7"], "sensor 1 reads rising with order"),
        (
            [
                "Ann bought 3 apples for 6 dollars",
                "Bob bought 5 apples for 10 dollars",
                "Cy bought 7 apples for 14 dollars",
            ],
            "apples rising with dollars",
        ),
    ] {
        assert_eq!(trends(&observations), [expected]);
    }
}

#[test]
fn a_denial_applies_to_its_clause_and_can_be_shared() {
    let found = |observations: &[&str]| {
        let found = answer(&json!({"reasoning_type": "inductive", "observations": observations}));
        let terms = found["generalisations"].as_array().unwrap().iter();
        let single = terms.filter(|found| found["with"].is_null());
        let terms: Vec<String> = single.map(|found| found["term"].as_str().unwrap().to_owned()).collect();
        terms
    };
    assert_eq!(
        found(&["Ann is not tall and eats fish", "Bob is not tall and eats fish"]),
        ["not tall", "eats", "fish"]
    );
    assert_eq!(found(&["x isn't white", "x is not white", "x isn't white"]), ["not white"]);
    assert_eq!(found(&["x is white", "y is not white"]), [""; 0]);
    let one = answer(&json!({"reasoning_type": "inductive", "observations": ["x"]}));
    assert_eq!(one["explanation"], "1 observation is too few to generalise");
}

#[test]
fn different_things_in_a_row_are_not_a_trend() {
    assert_eq!(trends(&["Ann is 30", "Bob is 40", "Cy is 50"]), [""; 0]);
    assert_eq!(trends(&["Ann has 3 apples", "Bob has 4 apples", "Cy has 5 apples"]), [""; 0]);
    assert_eq!(trends(&["the rate is 5 at 1 C", "the level is 6 at 2 C", "the flow is 7 at 3 C"]), [""; 0]);
}

#[test]
fn wrong_answer_an_observation_is_not_its_own_explanation() {
    let document = |rules: Value| {
        json!({"reasoning_type": "abductive", "observations": ["the grass is wet"],
               "hypotheses": ["The grass is wet.", "it rained"], "rules": rules})
    };
    assert_eq!(answer(&document(json!([])))["best_explanation"], Value::Null);
    let found = answer(&document(json!([[["it rained"], "the grass is wet"]])));
    assert_eq!(found["best_explanation"]["hypotheses"], json!(["it rained"]));
    assert_eq!(found["ranked_hypotheses"].as_array().unwrap().len(), 1);
}

#[test]
fn abduction_finds_minimal_sets_by_coverage_then_cost() {
    let found = answer(&json!({
        "reasoning_type": "abductive",
        "observations": ["fever", "cough"],
        "hypotheses": [{"statement": "flu", "cost": 3}, "cold", "sun"],
        "rules": [[["flu"], "fever"], [["flu"], "cough"], [["cold"], "cough"], [["sun", "cold"], "fever"]],
    }));
    let sets: Vec<Value> =
        found["ranked_hypotheses"].as_array().unwrap().iter().map(|set| set["hypotheses"].clone()).collect();
    assert_eq!(sets, [json!(["cold", "sun"]), json!(["flu"]), json!(["cold"])]);
    assert_eq!(found["best_explanation"]["coverage"], 1.0);
}

/// A hypothesis from which the opposite of an observation follows is no explanation, whatever else it explains; nor is one
/// that the rules exclude because of an observation.
#[test]
fn an_observation_refutes_a_hypothesis() {
    let rules = json!([
        [["it rained"], "the lawn is wet"],
        [["it rained"], "the street is wet"],
        [["the sprinkler ran"], "the lawn is wet"],
        [["the street is dusty"], "it is not the case that it rained"]
    ]);
    for seen in ["the street is not wet", "the street is dusty", "it is not the case that it rained"] {
        let found = answer(&json!({"reasoning_type": "abductive", "observations": ["the lawn is wet", seen],
            "hypotheses": ["it rained", "the sprinkler ran"], "rules": rules}));
        assert_eq!(found["best_explanation"]["hypotheses"], json!(["the sprinkler ran"]), "{found}");
        assert_eq!(found["ranked_hypotheses"].as_array().unwrap().len(), 1, "{found}");
        let issues = found["validation"]["issues"].as_array().unwrap();
        assert!(issues.iter().any(|issue| issue["kind"] == "refuted"), "{found}");
    }
}

#[test]
fn the_facts_are_what_was_observed_if_nothing_else_is() {
    let rules = json!([[["it rained"], "the lawn is wet"]]);
    let found = answer(&json!({"reasoning_type": "abductive", "facts": ["the lawn is wet"], "rules": rules}));
    assert_eq!(found["best_explanation"]["hypotheses"], json!(["it rained"]));
}

/// Every field of the document can be given as an option, and then nothing is read.
#[test]
fn every_field_has_an_option() {
    let rules = r#"[[["it rained"],"the lawn is wet"],[["the sprinkler ran"],"the lawn is wet"]]"#;
    for (args, document) in [
        (
            &["--reasoning-type", "abductive", "--facts", "the lawn is wet", "--rules", rules][..],
            json!({"reasoning_type": "abductive", "facts": ["the lawn is wet"], "rules": serde_json::from_str::<Value>(rules).unwrap()}),
        ),
        (
            &[
                "--reasoning-type", "abductive", "--observations", "the lawn is wet", "--hypotheses", "it rained",
                "--rules", rules,
            ],
            json!({"reasoning_type": "abductive", "observations": ["the lawn is wet"], "hypotheses": ["it rained"],
                "rules": serde_json::from_str::<Value>(rules).unwrap()}),
        ),
        (
            &["--reasoning-type", "inductive", "--observations", "swans fly", "swans swim"],
            json!({"reasoning_type": "inductive", "observations": ["swans fly", "swans swim"]}),
        ),
        (
            &["--reasoning-type", "analogical", "--source-case", r#"{"x":1,"y":2}"#, "--target-case", r#"{"x":1}"#],
            json!({"reasoning_type": "analogical", "source_case": {"x": 1, "y": 2}, "target_case": {"x": 1}}),
        ),
        (
            &[
                "--reasoning-type",
                "causal",
                "--events",
                r#"[{"description":"a","time":1},{"description":"b","time":2}]"#,
                "--rules",
                r#"[[["a"],"b"]]"#,
            ],
            json!({"reasoning_type": "causal", "rules": [[["a"], "b"]],
                "events": [{"description": "a", "time": 1}, {"description": "b", "time": 2}]}),
        ),
    ] {
        let expected = run(&["--json", &document.to_string()], b"");
        assert_eq!(expected.2, 0, "{}", expected.1);
        assert_eq!(run(args, b"not read"), expected, "{args:?}");
    }
    assert_error(&["--reasoning-type", "causal", "--events", "{", "--rules", "[]"], b"", "invalid", "--events");
}

#[test]
fn a_set_with_a_better_subset_is_not_minimal() {
    let ranked = |hypotheses: Value| {
        answer(&json!({"reasoning_type": "abductive", "observations": ["a", "b", "z"],
            "hypotheses": hypotheses, "rules": [[["x"], "a"], [["a"], "b"]]}))["ranked_hypotheses"]
            .clone()
    };
    let found = ranked(json!(["x", "a", "b"]));
    let sets: Vec<&Value> = found.as_array().unwrap().iter().map(|set| &set["hypotheses"]).collect();
    assert_eq!(sets, [&json!(["x"]), &json!(["a"])]);
    // A hypothesis that explains nothing by itself gets no share of the confidence.
    assert_eq!(found[0]["confidence"], ranked(json!(["x", "a"]))[0]["confidence"]);
}

#[test]
fn abduction_finds_hypotheses_and_skips_contradicting_ones() {
    let rules = json!([[["?x is outside", "it rains"], "?x is wet"], [["it rains"], "the sky is grey"]]);
    let found = answer(
        &json!({"reasoning_type": "abductive", "observations": ["Bob is wet"], "facts": ["it rains"], "rules": rules}),
    );
    assert_eq!(found["best_explanation"]["hypotheses"], json!(["Bob is outside"]));
    let found = answer(&json!({"reasoning_type": "abductive", "observations": ["Bob is wet"],
        "facts": ["Bob is not outside", "it rains"], "rules": rules}));
    assert_eq!(found["best_explanation"], Value::Null);
}

#[test]
fn abduction_reports_contradictions_and_what_follows_anyway() {
    let found = answer(&json!({"reasoning_type": "abductive", "observations": ["o"],
        "facts": ["o", "a", "not a"], "hypotheses": ["h"], "rules": [[["h"], "o"]]}));
    let validation = &found["validation"];
    assert_eq!(validation["is_valid"], false);
    let issue = &validation["issues"][0];
    assert_eq!((issue["kind"].as_str(), issue["at"].as_str()), (Some("contradiction"), Some("/facts/2")));
    assert_eq!(found["best_explanation"]["hypotheses"], json!(["h"]));
    let explanation = |observations: Value| {
        answer(&json!({"reasoning_type": "abductive", "observations": observations,
            "facts": ["f"], "hypotheses": ["h"], "rules": [[["f"], "o"], [["h"], "p"]]}))["explanation"]
            .clone()
    };
    assert_eq!(explanation(json!(["o"])), "the facts and rules yield 1 observation already");
    assert_eq!(
        explanation(json!(["o", "p"])),
        "\"h\" explains 1 of 1 observation; the facts and rules yield 1 observation already"
    );
    assert_eq!(explanation(json!(["z"])), "no hypothesis explains any of 1 observation");
}

#[test]
fn wrong_answer_a_dogs_bark_does_not_transfer_to_a_shark() {
    let dog = json!({"name": "dog", "legs": 4, "skin": "fur", "home": "land", "breath": "air", "sound": "bark"});
    let shark = json!({"name": "shark", "legs": 0, "skin": "scales", "home": "sea", "breath": "water"});
    let found = answer(&json!({"reasoning_type": "analogical", "source_case": dog, "target_case": shark}));
    assert_eq!(conclusions(&found), [""; 0]);
    let wolf = json!({"name": "wolf", "legs": 4, "skin": "Fur", "home": "land"});
    let found = answer(&json!({"reasoning_type": "analogical", "source_case": dog, "target_case": wolf}));
    assert_eq!(conclusions(&found), ["wolf: breath is air", "wolf: sound is bark"]);
    assert_eq!(found["similarity"], 1.0);
}

#[test]
fn analogy_maps_relations_one_to_one() {
    let found = answer(&json!({
        "reasoning_type": "analogical",
        "source_case": {"name": "sun", "relations": [
            ["causes", ["attracts", "sun", "planet"], ["orbits", "planet", "sun"]], ["heavier", "sun", "planet"]]},
        "target_case": {"name": "atom", "relations": [
            ["causes", ["attracts", "nucleus", "electron"], ["orbits", "electron", "nucleus"]]]},
    }));
    assert_eq!(conclusions(&found), ["atom: heavier(nucleus, electron)"]);
}

fn analogy(source: Value, target: Value) -> Value {
    answer(&json!({"reasoning_type": "analogical", "source_case": source, "target_case": target}))
}

#[test]
fn an_analogy_transfers_nothing_that_the_target_denies() {
    let found = analogy(
        json!({"name": "a", "relations": [["r", "a", "b"], ["s", "a", "b"], ["not t", "a", "b"]]}),
        json!({"name": "p", "relations": [["r", "p", "q"], ["s", "p", "q"], ["t", "p", "q"]]}),
    );
    assert_eq!(conclusions(&found), [""; 0]);
    assert!(found["explanation"].as_str().unwrap().contains("2 of 3 points"));
    let found =
        analogy(json!({"big": true, "round": true, "not red": true}), json!({"big": true, "round": true, "red": true}));
    assert_eq!(conclusions(&found), [""; 0]);
    assert_eq!(found["differences"], json!(["not red in source, red in target"]));
    // Statements with the same meaning in other words agree.
    let found = analogy(
        json!({"isn't red": true, "skin": {"not wet": false}, "likes": ["not milk"]}),
        json!({"is red": false, "skin": {"wet": true}, "likes": ["it is not the case that milk"]}),
    );
    assert_eq!(found["similarity"], 1.0);
    assert_eq!(found["shared"].as_array().unwrap().len(), 3);
}

#[test]
fn equal_values_agree_however_they_are_written() {
    let found = analogy(
        json!({"a": 1, "b": 1e2, "c": "z", "d": 2.5, "e": ["X", 3]}),
        json!({"a": 1.0, "b": 100, "c": "Z.", "d": 2.5, "e": ["x", 3.0]}),
    );
    assert_eq!((&found["similarity"], &found["differences"]), (&json!(1.0), &json!([])));
    let found = analogy(json!({"a": 1, "b": 9007199254740993u64}), json!({"a": 1.5, "b": 9007199254740992u64}));
    assert_eq!(found["differences"].as_array().unwrap().len(), 2);
}

#[test]
fn an_analogy_keeps_the_words_of_the_document() {
    let found = analogy(
        json!({"name": "Ann", "Age": 4, "Home": "Old Town", "relations": [["Likes", "Ann", "Tea"], ["Serves", "Ann", "Tea"]]}),
        json!({"name": "Bob", "age": 4, "relations": [["likes", "Bob", "Milk"]]}),
    );
    assert_eq!(conclusions(&found), ["Bob: Home is Old Town", "Bob: Serves(Bob, Milk)"]);
    assert_eq!(found["mapping"][0], json!({"source": "Ann", "target": "Bob"}));
    let found = analogy(json!(["Bob is kind", "Bob is not tall"]), json!(["bob is kind"]));
    assert_eq!(conclusions(&found), ["target: Bob is not tall"]);
}

#[test]
fn wrong_answer_equal_events_do_not_cause_each_other() {
    let event = json!({"time": 5, "description": "the alarm rang"});
    let rules = json!([[["the alarm rang"], "the alarm rang"]]);
    let found = answer(&json!({"reasoning_type": "causal", "events": [event, event], "rules": rules}));
    assert_eq!(conclusions(&found), [""; 0]);
}

#[test]
fn causes_come_before_effects_in_chains_without_circles() {
    let found = answer(&json!({
        "reasoning_type": "causal",
        "events": [
            {"time": "10:00", "description": "the pump failed"},
            {"time": "10:05", "description": "the pressure dropped"},
            {"time": "10:06", "description": "the alarm rang"},
            {"time": "10:05", "description": "the light went off"},
            {"time": "09:00", "description": "the tank was empty"},
        ],
        "rules": [
            [["the pump failed"], "the pressure dropped"],
            [["the pressure dropped"], "the alarm rang"],
            [["the pump failed"], "the light went off"],
            [["the alarm rang"], "the pump failed"],
            [["the pump failed"], "the tank was empty"],
        ],
    }));
    let chain = &found["causal_chains"][0];
    assert_eq!(chain["events"], json!(["the pump failed", "the pressure dropped", "the alarm rang"]));
    assert_eq!(chain["gaps"], json!([300.0, 60.0]));
    assert_eq!(found["confounders"][0]["effects"], json!(["the pressure dropped", "the light went off"]));
    assert!(!conclusions(&found).iter().any(|text| text.contains("tank")));
}

#[test]
fn what_comes_before_both_is_a_common_cause() {
    let events: Vec<Value> = (0..3)
        .flat_map(|round| {
            ["h", "a", "b"]
                .iter()
                .zip(1..)
                .map(move |(name, place)| json!({"description": name, "time": 10 * round + place}))
        })
        .collect();
    let found =
        |events: &[Value], rules: Value| answer(&json!({"reasoning_type": "causal", "events": events, "rules": rules}));
    let links = ["\"h\" caused \"a\"", "\"h\" caused \"b\""];
    for rules in [json!([]), json!([[["h"], "a"]]), json!([[["h"], "a"], [["h"], "b"]])] {
        let found = found(&events, rules);
        assert_eq!(conclusions(&found), links);
        assert_eq!(found["causal_chains"], json!([]));
        assert_eq!(found["confounders"], json!([{"cause": "h", "effects": ["a", "b"]}]));
    }
    // With rules, "a" can cause "b" although "h" precedes both. Without "h" there is no common cause, so the times show
    // that "a" caused "b".
    let chain = found(&events, json!([[["h"], "a"], [["a"], "b"]]));
    assert_eq!(chain["causal_chains"][0]["events"], json!(["h", "a", "b"]));
    let without_h: Vec<Value> = events.into_iter().filter(|event| event["description"] != "h").collect();
    assert_eq!(conclusions(&found(&without_h, json!([]))), ["\"a\" caused \"b\""]);
}

#[test]
fn flags_mean_the_same_in_a_script_and_on_a_terminal() {
    let expected = run(&["--json", r#"{"facts":["a","b"],"rules":[[["a","b"],"c"]]}"#], b"");
    let rules = r#"[[["a","b"],"c"]]"#;
    for args in [
        &["--facts", "a", "b", "--rules", rules][..],
        &["--facts", "a", "--facts", "b", "--rules", rules],
        &["--facts=a", "--rules", rules, "--facts=b", "--reasoning-type", "deductive"],
    ] {
        assert_eq!(run(args, b"not read"), expected, "{args:?}");
    }
    // The options override the document, whether it comes from an argument, a file or standard input.
    let document = r#"{"reasoning_type":"inductive","facts":["x"],"rules":[[["a","b"],"c"]]}"#;
    let over = ["--reasoning-type", "deductive", "--facts", "a", "b"];
    assert_eq!(run(&over, document.as_bytes()), expected);
    assert_eq!(run(&[&["--json", document][..], &over].concat(), b""), expected);
    assert_eq!(run(&[&["-"][..], &over, &["--rules", rules]].concat(), b"{}"), expected);
}

#[test]
fn a_single_hyphen_among_the_facts_means_standard_input() {
    let document = r#"{"facts":["x"],"rules":[[["a"],"b"]]}"#;
    let expected = run(&["-", "--facts", "a"], document.as_bytes());
    assert!(expected.0.contains("b because a"));
    assert_eq!(run(&["--facts", "a", "-"], document.as_bytes()), expected);
    assert_eq!(run(&["--facts", "-", "a"], document.as_bytes()), expected);
    let rules = r#"[[["a"],"c"]]"#;
    assert_eq!(
        run(&["--rules", rules, "--facts", "a", "-"], document.as_bytes()),
        run(&["-", "--rules", rules, "--facts", "a"], document.as_bytes())
    );
    assert_eq!(run(&["--facts", "-"], document.as_bytes()), run(&["-"], document.as_bytes()));
    // With `-`, standard input is read, so the error is found there.
    assert_error(&["--rules", rules, "--facts", "a", "-"], b"{", "invalid", "");
    assert_error(&["--json", document, "--facts", "a", "-"], b"", "invalid", "--facts");
}

#[test]
fn an_answer_can_be_read_again() {
    for document in [
        json!({"facts": ["a"], "rules": [[["a"], "b"]]}),
        json!({"reasoning_type": "inductive", "observations": ["swans fly", "swans swim"]}),
        json!({"reasoning_type": "abductive", "observations": ["o"], "rules": [[["h"], "o"], [["i"], "o"]]}),
        json!({"reasoning_type": "abductive", "observations": ["o"], "rules": [[["h"], "o"]], "facts": ["a"],
            "hypotheses": [{"statement": "h", "cost": 2}]}),
        json!({"reasoning_type": "analogical", "facts": ["a"], "source_case": {"x": 1, "y": [2], "name": "S"},
            "target_case": {"x": 1.0, "relations": [["r", "a", "b"]]}}),
    ] {
        let first = answer(&document);
        assert_eq!(answer(&first), first);
    }
}

#[test]
fn facts_may_begin_with_a_hyphen() {
    let rules = r#"[[["-5"],"cold"]]"#;
    for facts in [&["--facts", "-5"][..], &["--facts=-5"]] {
        let (stdout, _, status) = run(&[facts, &["--rules", rules]].concat(), b"");
        assert!(status == 0 && stdout.contains("cold because -5"), "{stdout}");
    }
    let (stdout, ..) = run(&["--facts=-5 is cold", "--rules", "[]"], b"");
    assert!(stdout.contains("\"-5 is cold\""));
}

#[test]
fn bad_input_is_an_error_that_says_where() {
    for (document, at) in [
        (r#"{"facts":["a"],"rules":"x"}"#, "/rules"),
        (r#"{"rules":[5]}"#, "/rules/0"),
        (r#"{"rules":[[["a"]]]}"#, "/rules/0"),
        (r#"{"rules":[[["a"],"b","c"]]}"#, "/rules/0"),
        (r#"{"rules":[[["a"],"b"],[["a",7],"b"]]}"#, "/rules/1/0/1"),
        (r#"{"rules":[[["a"],null]]}"#, "/rules/0/1"),
        (r#"{"rules":[[["a",""],"b"]]}"#, "/rules/0/0/1"),
        (r#"{"rules":[[["a"]," . "]]}"#, "/rules/0/1"),
        (r#"{"rules":[[["?x is a"],"?y is b"]]}"#, "/rules/0/1"),
        (r#"{"facts":"a"}"#, "/facts"),
        (r#"{"facts":["a",{}]}"#, "/facts/1"),
        (r#"{"facts":[" "]}"#, "/facts/0"),
        (r#"{"facts":["?x is a"]}"#, "/facts/0"),
        (r#"{"reasoning_type":"magical"}"#, "/reasoning_type"),
        (r#"{"reasoning_type":1}"#, "/reasoning_type"),
        (r#"{"fact":["a"],"rules":[]}"#, "/fact"),
        (r#"{"facts":["a"],"Rules":[]}"#, "/Rules"),
        (r#"{"facts":["a"],"reasoningType":"causal"}"#, "/reasoningType"),
        (r#"{"hypothesis":["a"],"facts":["a"]}"#, "/hypothesis"),
        (r#"{"options":1}"#, "/options"),
        (r#"{"options":{"decay":0}}"#, "/options/decay"),
        (r#"{"options":{"decay":1.5}}"#, "/options/decay"),
        (r#"{"options":{"decay":"x"}}"#, "/options/decay"),
        (r#"{"reasoning_type":"inductive"}"#, "/observations"),
        (r#"{"reasoning_type":"inductive","observations":[1]}"#, "/observations/0"),
        (r#"{"reasoning_type":"abductive"}"#, "/observations"),
        (r#"{"reasoning_type":"abductive","observations":["a"],"hypotheses":[1]}"#, "/hypotheses/0"),
        (r#"{"reasoning_type":"abductive","observations":["a"],"hypotheses":[{}]}"#, "/hypotheses/0/statement"),
        (
            r#"{"reasoning_type":"abductive","observations":["a"],"hypotheses":[{"statement":"b","cost":-1}]}"#,
            "/hypotheses/0/cost",
        ),
        (r#"{"reasoning_type":"analogical"}"#, "/source_case"),
        (r#"{"reasoning_type":"analogical","source_case":{},"target_case":1}"#, "/target_case"),
        (
            r#"{"reasoning_type":"analogical","source_case":{"relations":[1]},"target_case":{}}"#,
            "/source_case/relations/0",
        ),
        (r#"{"reasoning_type":"causal"}"#, "/events"),
        (r#"{"reasoning_type":"causal","events":[1]}"#, "/events/0"),
        (r#"{"reasoning_type":"causal","events":[{"time":1}]}"#, "/events/0/description"),
        (r#"{"reasoning_type":"causal","events":[{"description":"a","time":"soon"}]}"#, "/events/0/time"),
        (r#"{"facts":["a"],"facts":["b"]}"#, ""),
        (r#"{"rules":[],"rules":[]}"#, ""),
        (r#"{"options":{"decay":NaN}}"#, ""),
        (r#"{"facts":["a\u0000b"]}"#, ""),
        ("[]", ""),
        ("7", ""),
        ("{", ""),
        ("{} {}", ""),
    ] {
        assert_error(&[], document.as_bytes(), "invalid", at);
    }
    assert_error(&["--facts", "a", "--rules", "nonsense"], b"", "invalid", "--rules");
    assert_error(&["--reasoning-type", "magical"], b"", "invalid", "--reasoning-type");
}

#[test]
fn unbounded_growth_ends_with_an_error() {
    for rules in [json!([[["p ?x"], "p s ?x"]]), json!([[["p ?x"], "p ?x ?x"]]), json!([[["?x", "?y"], "?x ?y"]])] {
        let document = json!({"facts": ["p a", "p b"], "rules": rules}).to_string();
        assert_error(&[], document.as_bytes(), "too_large", "/rules");
    }
}

/// Each premise of a rule that contradicts the facts is refuted by all the others, so the number of premises of all
/// steps is the square of their number.
#[test]
fn enormous_proofs_are_refused() {
    let contradicted = |count: usize| {
        let premises: Vec<String> = (0..count).map(|number| format!("a{number}")).collect();
        let facts = [premises.clone(), vec!["not z".to_owned()]].concat();
        json!({"facts": facts, "rules": [[premises, "z"]]})
    };
    assert_error(&[], contradicted(4_000).to_string().as_bytes(), "too_large", "/rules");
    let refuted = &answer(&contradicted(3))["conclusions"];
    assert_eq!(*refuted, json!(["z", "not a2", "not a1", "not a0"]));
}

#[test]
fn a_contradiction_in_a_long_chain_is_not_quadratic() {
    let chain = |n: usize| json!([[format!("s{n}")], format!("s{}", n + 1)]);
    let rules: Vec<Value> = (0..5_000).map(chain).collect();
    let (stdout, _, status) =
        run(&["--format", "compact"], json!({"facts": ["s0", "not s5000"], "rules": rules}).to_string().as_bytes());
    assert_eq!(status, 0);
    assert!(stdout.len() < 10_000_000, "{} bytes", stdout.len());
}

/// Each link of a chain is searched for a circle, along all links after it. If the search looked at all links of the input at each
/// step, the time would grow with the cube, to several minutes.
#[test]
fn a_long_chain_of_causes_is_not_cubic() {
    let begun = std::time::Instant::now();
    let events: Vec<String> = (0..2_000).rev().map(|n| format!("e{n}")).collect();
    let rules: Vec<Value> = (0..1_999).map(|n| json!([[format!("e{n}")], format!("e{}", n + 1)])).collect();
    let document = json!({"reasoning_type": "causal", "events": events, "rules": rules});
    let (stdout, stderr, status) = run(&["--format", "compact"], document.to_string().as_bytes());
    assert_eq!((stderr.as_str(), status), ("", 0));
    let found: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(found["causal_chains"][0]["events"].as_array().unwrap().len(), 2_000);
    assert!(begun.elapsed() < std::time::Duration::from_secs(60), "{:?}", begun.elapsed());
}

/// Without limits, these small inputs would take minutes or gigabytes of memory.
#[test]
fn quadratic_results_are_bounded() {
    let words: String = (0..2_000).map(|n| format!("word{}x ", n)).collect();
    let alike = json!({"reasoning_type": "inductive", "observations": vec![words.replace(|c: char| c.is_ascii_digit(), "ab"); 50]});
    let many: Vec<String> = (0..60).map(|n| format!("{words} {n}")).collect();
    let many = json!({"reasoning_type": "inductive", "observations": many});
    let effects: Vec<Value> = (0..2_000).map(|n| json!([[format!("h{}", n % 200)], format!("o{n}")])).collect();
    let observed: Vec<String> = (0..2_000).map(|n| format!("o{n}")).collect();
    let causes: Vec<String> = (0..200).map(|n| format!("h{n}")).collect();
    let rivals =
        json!({"reasoning_type": "abductive", "observations": observed, "hypotheses": causes, "rules": effects});
    let related = |n: usize, a: &str| json!({"relations": (0..n).map(|i| json!(["r", format!("{a}{i}"), "b"])).collect::<Vec<_>>()});
    let cases = |n: usize| json!({"reasoning_type": "analogical", "source_case": related(n, "a"), "target_case": related(n, "c")});
    for (document, max) in [(alike, 20), (many, 80), (rivals, 4), (cases(2_000), 1)] {
        let (stdout, stderr, status) = run(&["--format", "compact"], document.to_string().as_bytes());
        assert_eq!((stderr.as_str(), status), ("", 0));
        assert!(stdout.len() < max * 1_000_000, "{} bytes", stdout.len());
    }
    let document = cases(2_001).to_string();
    assert_error(&[], document.as_bytes(), "too_large", "/source_case/relations");
    let long = format!("{} is here", "W w ".repeat(100_000));
    let document = json!({"facts": [long], "rules": [[["?x is ?y"], "?y was ?x"]]}).to_string();
    assert_eq!(run(&[], document.as_bytes()).2, 0);
    let is_a = json!({"facts": ["A ".to_owned() + &"is a ".repeat(20_000)], "rules": [[["?x is ?y"], "?y was ?x"]]});
    assert_error(&[], is_a.to_string().as_bytes(), "too_large", "/rules");
}

#[test]
fn the_fields_are_in_the_order_of_the_contract() {
    let (stdout, ..) = run(&["--facts", "a", "--rules", r#"[[["a"],"b"]]"#, "--format", "compact"], b"");
    let expected = concat!(
        r#"{"reasoning_type":"deductive","conclusions":["b"],"confidence_scores":{"b":1.0},"reasoning_chain":[{"type":"#,
        r#""modus_ponens","rule":0,"premises":["a"],"conclusion":"b","confidence":1.0,"explanation":"b because a (rule 0)"}],"#,
        r#""explanation":"1 statement follows from 1 fact and 1 rule, in 1 step","#,
        r#""validation":{"is_valid":true,"issues":[],"confidence_score":1.0},"facts":["a"],"rules":[[["a"],"b"]]}"#,
        "\n"
    );
    assert_eq!(stdout, expected);
}
