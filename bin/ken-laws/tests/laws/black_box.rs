//! Flags, formats, verdicts, exit codes, bad input.

use serde_json::Value;

use crate::program::{Outcome, defects, judge, overall, run, run_with};
use crate::set::{is_defect, score};

const SOUND: &str = "The pump was replaced on 4 March 2024 because its bearing had worn through. After the change the outlet pressure held at 3.2 bar for six hours. We checked the reading against a second gauge. Rain has not been measured.";
const BAD: &str = "It is a proven fact that this always works, trust me. There is no need to test it. There is no need to test it. Nothing can go wrong, and everyone knows that.";
const MIDDLING: &str = "Trust me, the pump is in order.";

fn assert_error(outcome: &Outcome, code: &str, at: &str, says: &str) {
    assert_eq!((outcome.stdout.as_str(), outcome.status), ("", 2), "{}", outcome.stderr);
    assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.stderr);
    let error = serde_json::from_str::<Value>(&outcome.stderr).unwrap()["error"].clone();
    assert_eq!((error["code"].as_str(), error["at"].as_str()), (Some(code), Some(at)), "{error}");
    assert!(error["message"].as_str().unwrap().contains(says), "{error}");
}

#[test]
fn the_answer_has_its_fields_in_the_order_of_the_contract() {
    let outcome = run(&["--text", BAD, "--format", "compact"]);
    let places: Vec<usize> = [
        "{\"scores\":{\"law1_architectural_intelligence\":",
        "\"law2_cognitive_governance\":",
        "\"law3_truth_foundation\":",
        "\"law4_energy_stewardship\":",
        "\"law5_deterministic_reliability\":",
        "\"overall_compliance\":",
        "\"pass_fail_status\":",
        "\"violations\":",
        "\"recommendations\":",
        "\"strengths\":",
        "\"evidence\":[{\"law\":",
        "\"support\":null",
    ]
    .iter()
    .map(|part| outcome.stdout.find(part).unwrap_or_else(|| panic!("{part} in {}", outcome.stdout)))
    .collect();
    assert!(places.is_sorted());
    let answer: Value = serde_json::from_str(&outcome.stdout).unwrap();
    let keys: Vec<&String> = answer["evidence"][0].as_object().unwrap().keys().collect();
    for key in ["law", "kind", "start", "end", "text", "effect"] {
        assert!(keys.iter().any(|known| *known == key), "{keys:?}");
    }
    for list in ["violations", "recommendations", "strengths"] {
        assert!(answer[list].as_array().unwrap().iter().all(Value::is_string));
    }
}

#[test]
fn verdict_and_exit_code_follow_the_strictness() {
    for (text, strictness, status, code) in [
        (SOUND, "lenient", "PASS", 0),
        (SOUND, "moderate", "PASS", 0),
        (SOUND, "strict", "PASS", 0),
        (MIDDLING, "moderate", "CONDITIONAL", 0),
        (MIDDLING, "strict", "FAIL", 1),
        (BAD, "moderate", "FAIL", 1),
        (BAD, "strict", "FAIL", 1),
    ] {
        let outcome = run(&["-t", text, "-s", strictness, "--format", "compact"]);
        let answer: Value = serde_json::from_str(&outcome.stdout).unwrap();
        assert_eq!(
            (answer["pass_fail_status"].as_str(), outcome.status),
            (Some(status), code),
            "{strictness}: {}",
            outcome.stdout
        );
        assert_eq!(outcome.stderr, "");
    }
}

#[test]
fn overall_is_the_weighted_mean() {
    let answer = judge(BAD);
    let weighted: f64 =
        [25.0, 25.0, 25.0, 15.0, 10.0].iter().enumerate().map(|(law, share)| share * score(&answer, law + 1)).sum();
    assert!((overall(&answer) - weighted / 100.0).abs() < 0.051);
}

#[test]
fn a_summary_reads_in_its_order_and_verbose_adds_the_evidence() {
    let text = run(&["-t", BAD, "--format", "summary"]).stdout;
    let order = [
        "Five laws validation", "Overall compliance: ", "Status: FAIL", "1. Architectural", "5. Deterministic",
        "Recommendations:",
    ];
    let places: Vec<usize> =
        order.iter().map(|part| text.find(part).unwrap_or_else(|| panic!("{part} in {text}"))).collect();
    assert!(places.is_sorted() && !text.contains("Evidence:"));
    let verbose = run(&["-t", BAD, "--format", "summary", "-v"]).stdout;
    assert!(verbose.starts_with(&text) && verbose.contains("Violations:") && verbose.contains("Evidence:"));
}

#[test]
fn bad_documents_and_contexts_are_errors() {
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(128), "]".repeat(128));
    assert_error(&run_with(&[], b"{text}"), "invalid", "", "");
    assert_error(&run_with(&[], b"{\"text\":[1]}"), "invalid", "/text", "not text");
    assert_error(&run_with(&[], b"{\"scores\":{}}"), "invalid", "", "no text to judge");
    assert_error(&run(&["-t", "a", "-c", "{broken"]), "invalid", "--context", "malformed");
    assert_error(&run(&["-t", "a", "-c", "{\"a\":1,\"a\":2}"]), "invalid", "--context", "duplicate");
    assert_error(&run(&["-t", "a", "-c", &deep]), "invalid", "--context", "nested");
    for context in ["[\"The server is running.\"]", "5", "\"text\"", "null", "true"] {
        assert_error(&run(&["-t", "a", "-c", context]), "invalid", "--context", "not a JSON object");
    }
    assert_error(&run(&["-t", "a", "--strictness", "fierce"]), "invalid", "--strictness", "fierce");
    assert_eq!(run(&["-t", "{ not JSON }"]).status, 0, "--text is taken as it is");
}

#[test]
fn the_answers_of_other_tools_are_judged() {
    let rep = r#"{"reasoning_type":"deductive","conclusions":["b"],"explanation":"The pump runs because the valve is open.","validation":{"is_valid":true},"facts":["The valve is not open"]}"#;
    let answer = judge(rep);
    assert_eq!(defects(&answer), ["context_conflict"], "the facts are context: {answer}");
    assert!(answer["evidence"].as_array().unwrap().iter().all(|item| item["at"] == "/explanation"));
    let vvp = r#"{"validation_status":"failure","reason":"Rule 2 contradicts rule 1.","issues":[{"kind":"cycle","message":"Trust me, rule 3 is fine."}]}"#;
    let answer = judge(vvp);
    let trust =
        answer["evidence"].as_array().unwrap().iter().find(|item| item["kind"] == "trust_appeal").unwrap().clone();
    assert_eq!(
        (&trust["at"], &trust["start"], &trust["text"]),
        (&"/issues/0/message".into(), &0.into(), &"Trust me".into())
    );
}

#[test]
fn the_context_binds() {
    let conflict = |context: &str, text: &str| {
        let outcome = run(&["-c", context, "-t", text, "--format", "compact"]);
        defects(&serde_json::from_str(&outcome.stdout).unwrap()).contains(&"context_conflict".to_owned())
    };
    assert!(conflict(r#"{"facts":["The server is running."]}"#, "The server isn't running."));
    assert!(conflict(r#"{"timeout_s":30}"#, "The timeout is 45 s."));
    assert!(conflict(r#"{"disk":{"encrypted":true}}"#, "The disk is not encrypted."));
    assert!(conflict(r#"{"retryLimit":3}"#, "The retry limit is 4."));
    assert!(conflict(r#"{"valve_state":"open","x":null}"#, "The valve is closed."));
    assert!(!conflict(r#"{"timeout_s":30}"#, "The timeout is 30 s."));
    assert!(!conflict(r#"{"facts":["The server is running."]}"#, "The server is running."));
    assert!(!conflict(r#"{"facts":["The blue server is running."]}"#, "The red server is not running."));
}

// Mistakes that similar tools are known to make

#[test]
fn a_sourced_dated_sentence_beats_a_false_one_that_says_proven_fact() {
    let sourced = judge("According to the census of 2021, published on 28 June 2022, the town had 47,240 inhabitants.");
    let asserted = judge("It is a proven fact, verified and documented, that the earth is flat.");
    assert!(overall(&sourced) > overall(&asserted) + 10.0);
    assert!(score(&sourced, 3) > score(&asserted, 3) + 30.0);
}

#[test]
fn twelve_marker_words_in_a_row_gain_nothing() {
    let row = "Verified, tested, measured, proven, sourced, reviewed, checked, audited, confirmed, validated, documented, certain.";
    let (alone, with) = (judge(SOUND), judge(&format!("{SOUND} {row}")));
    for law in 1..=5 {
        assert!(score(&with, law) <= score(&alone, law), "law {law}");
    }
    assert!(overall(&with) < overall(&alone));
}

#[test]
fn a_confidence_interval_is_not_two_values_of_one_quantity() {
    let answer =
        judge("The odds ratio was 2.1, 95 % CI 1.2 to 3.4. In the second group it was 1.9, 95 % CI 1.1 to 3.0.");
    assert_eq!(defects(&answer), [""; 0], "{answer}");
}

#[test]
fn length_alone_is_neither_good_nor_bad() {
    let other = "The bridge deck carries two lanes and a footpath. Its design load is 40 kN per axle, as set by the 2016 load survey. Deck movement was measured at 11 points. The largest movement, 14 mm, lies under the limit of 20 mm, since the deck was stiffened.";
    let (one, both) = (judge(other), judge(&format!("{SOUND} {other}")));
    assert!((score(&one, 3) - score(&both, 3)).abs() < 12.0 && score(&both, 4) == 100.0 && score(&one, 4) == 100.0);
}

#[test]
fn repetition_lowers_the_score() {
    let (once, thrice) = (judge(SOUND), judge(&format!("{SOUND} {SOUND} {SOUND}")));
    assert!(score(&thrice, 4) <= score(&once, 4) - 30.0, "{thrice}");
}

#[test]
fn negation_and_quotation_are_respected_and_words_are_whole() {
    for text in [
        "We do not say that this is a proven fact.",
        "He wrote \"trust me, it is a proven fact\" in the margin of page 12.",
        "Never deploy without testing.",
        "No change goes live without a review.",
        "It is not always warm in the hall.",
        "The trustees of Mesopotamia met in 1901.",
        "The guide says “you can skip the tests” on page 4.",
    ] {
        assert_eq!(defects(&judge(text)), [""; 0], "{text}");
    }
}

#[test]
fn what_contradicts_and_what_does_not() {
    let contradicts = |text: &str| defects(&judge(text)).contains(&"contradiction".to_owned());
    assert!(contradicts("The server is running. The server isn't running."));
    assert!(contradicts("The server is running. The server isn’t running."));
    assert!(contradicts("The red car is fast. The red car is slow."));
    assert!(contradicts("The service stores passwords as hashes. The service does not store passwords."));
    assert!(!contradicts("The red car is fast. The blue car is not slow."));
    assert!(!contradicts("The red car is fast and the blue car is not slow."));
    assert!(!contradicts("The door was open. The door is closed."));
    assert!(!contradicts("If the door is open, call. The door is not open."));
    assert!(!contradicts("The service stores passwords. The service does not store passwords as plain text."));
}

#[test]
fn calibrated_uncertainty_with_numbers_has_no_penalty() {
    let answer =
        judge("About 80 % of the parts, give or take 5 %, probably last ten years. We estimate the error at 3 %.");
    assert!(!answer["evidence"].as_array().unwrap().iter().any(|item| item["law"] == 3 && is_defect(item)), "{answer}");
}

#[test]
fn another_language_is_not_judged_by_english_grammar() {
    let answer = judge(
        "Der Zug fährt um acht Uhr ab. Ein schöner Tag am Meer. Die BVG fährt heute nicht. Wir warten auf dem Bahnsteig.",
    );
    assert_eq!(defects(&answer), [""; 0], "{answer}");
}

/// A command contradicts its negation, and both places are reported. The next step of a procedure and a restriction to
/// a case are no contradictions.
#[test]
fn commands_contradict_each_other() {
    let places = |text: &str| -> Vec<String> {
        let answer = judge(text);
        let evidence = answer["evidence"].as_array().unwrap().iter();
        let found = evidence.filter(|item| item["kind"] == "contradiction");
        found.map(|item| item["text"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(places("Deploy on Friday. Never deploy on Friday."), ["Deploy on Friday", "Never deploy on Friday"]);
    assert_eq!(
        places("Please do not touch the red lever. Touch the red lever."),
        ["do not touch the red lever", "Touch the red lever"]
    );
    assert_eq!(
        places("You must sign the form. You must not sign the form."),
        ["You must sign the form", "You must not sign the form"]
    );
    assert_eq!(
        places("The pump always runs at night. The pump never runs at night."),
        ["The pump always runs at night", "The pump never runs at night"]
    );
    for text in [
        "Open the valve. Wait for 5 s. Close the valve.",
        "If the lamp is green, press the button. Do not press the button.",
        "Do not open the lid until the fan stops. Open the lid.",
        "Never deploy on Friday. Deploy on Monday.",
        "The pump runs at night. The pump does not always run at night.",
    ] {
        assert_eq!(places(text), [""; 0], "{text}");
    }
}

#[test]
fn a_list_that_opens_with_its_second_step_is_out_of_order() {
    let is_found = |text: &str| defects(&judge(text)).contains(&"step_order".to_owned());
    assert!(is_found("Step 2: stop the mixer. Step 1: open the lid."));
    assert!(!is_found("Step 1: stop the mixer. Step 2: open the lid."));
    assert!(!is_found("Step 3: stop the mixer. Step 4: open the lid. Step 1: begin again."));
}

#[test]
fn a_general_statement_has_one_value() {
    let conflicts = |text: &str| defects(&judge(text)).contains(&"conflicting_value".to_owned());
    assert!(conflicts("A ticket costs 4 euros. A ticket costs 6 euros."));
    assert!(conflicts("The hut lies in a wood and sleeps 36 people. The hut sleeps 50 people."));
    assert!(!conflicts("A request took 30 s. A request took 40 s."));
    assert!(!conflicts("The hut lies in a wood and sleeps 36 people. The barn sleeps 50 people."));
}

/// The kinds of all evidence, defects and strengths.
fn kinds(answer: &Value) -> Vec<&str> {
    let evidence = answer["evidence"].as_array().unwrap().iter();
    evidence.map(|item| item["kind"].as_str().unwrap()).collect()
}

/// The texts of the evidence of one kind.
fn texts_of(text: &str, kind: &str) -> Vec<String> {
    let answer = judge(text);
    let evidence = answer["evidence"].as_array().unwrap().iter();
    let found = evidence.filter(|item| item["kind"] == kind);
    found.map(|item| item["text"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_unit_or_a_short_word_before_a_point_ends_the_sentence() {
    let absolute = |text: &str| defects(&judge(text)).contains(&"absolute_claim".to_owned());
    for word in ["h", "min", "ms", "sec", "no", "max", "dec", "mar", "est", "vol", "approx"] {
        let text = format!("It took 5 {word}. It always works.");
        assert!(absolute(&text), "{text}");
    }
    assert!(absolute("I said no. It always works."));
    assert!(absolute("The build takes 5 min. It always works."));
    // The number after the abbreviation belongs to the same sentence and supports it.
    for start in ["No. 5", "Vol. 2", "On Mar. 5", "Approx. 5", "Max. 5", "Est. 1990"] {
        let text = format!("{start} of them always works.");
        assert!(!absolute(&text), "{text}");
    }
    assert!(!absolute("Vol. II of 1990 always works."));
    assert!(!absolute("Ms. Smith of 1990 always works."));
}

#[test]
fn a_hundred_percent_is_not_a_figure() {
    for (text, kind) in [
        ("The product is 100 % safe.", "denied_limits"),
        ("The product is 100% safe.", "denied_limits"),
        ("The product is 100 % reliable.", "denied_limits"),
        ("This is 100 % true.", "false_certainty"),
        ("I am 100 % sure.", "false_certainty"),
        ("I am 100% sure.", "false_certainty"),
        ("It works 100 % of the time.", "absolute_claim"),
    ] {
        let answer = judge(text);
        assert!(defects(&answer).contains(&kind.to_owned()), "{answer}");
        assert!(!kinds(&answer).contains(&"exact"), "{answer}");
    }
    assert!(kinds(&judge("The tank is 90 % full.")).contains(&"exact"));
    assert_eq!(kinds(&judge("Trust no one.")), [""; 0]);
}

#[test]
fn an_unclosed_fence_skips_only_its_own_line() {
    let trusts = |text: &str| defects(&judge(text)).contains(&"trust_appeal".to_owned());
    assert!(trusts("The build runs.\n```\nTrust me on this."));
    assert!(trusts("```\nA name.\n```\nThe build runs.\n```sh\nTrust me on this."));
    assert!(!trusts("The build runs.\n```\nTrust me on this.\n```\nIt ends at noon."));
    assert!(!trusts("The build runs.\n``` Trust me on this."));
}

#[test]
fn a_sign_is_part_of_the_value_and_a_slash_or_a_scale_of_the_unit() {
    for (text, first, second) in [
        ("The mass is 5 kg. The mass is -5 kg.", "mass is 5 kg", "mass is -5 kg"),
        ("The temperature is −5 °C. The temperature is 5 °C.", "temperature is −5 °C", "temperature is 5 °C"),
        ("The speed is 18 km/h. The speed is 20 km/h.", "speed is 18 km/h", "speed is 20 km/h"),
        (
            "The heat is 5 degrees Celsius. The heat is 6 degrees Celsius.",
            "heat is 5 degrees Celsius",
            "heat is 6 degrees Celsius",
        ),
    ] {
        assert_eq!(texts_of(text, "conflicting_value"), [first, second]);
        assert_eq!(texts_of(text, "repetition"), [""; 0]);
    }
    for text in [
        "The speed is 18 km/h. The speed is 5 km/s.",
        "The dose is 5 mg/kg. The dose is 50 mg/L.",
        "The temperature is 20 °C. The temperature is 68 °F.",
        "The heat is 20 degrees Celsius. The heat is 68 degrees Fahrenheit.",
        "The offset is -0 mm. The offset is 0 mm.",
        "The speed is 5 -7 m/s. The speed is 6 m/s.",
    ] {
        assert_eq!(texts_of(text, "conflicting_value"), [""; 0], "{text}");
    }
    assert_eq!(texts_of("The train made 18 km/h at noon.", "exact"), ["18 km/h"]);
    assert_eq!(texts_of("The hall was at -5 °C at noon.", "exact"), ["-5 °C"]);
}

#[test]
fn correct_text_has_no_findings() {
    for text in [
        "Some members are in favour. Some members are not in favour.",
        "Many members are in favour. Many members are not in favour.",
        "One of the members is in favour. One of the members is not in favour.",
        "Another member is in favour. Another member is not in favour.",
        "Most members are in favour. Most members are not in favour.",
        "Python 3.9 or later is required.",
        "The temperature is 20 °C inside. The temperature is 5 °C outside.",
        "Outside, the temperature is 5 °C. Inside, the temperature is 20 °C.",
        "In Berlin, the price is 5 euros. In Paris, the price is 6 euros.",
        "Please never share your password.",
        "However hard he tried, he failed.",
        "However many of them came, the hall was not full.",
        "Add the folder to PATH. Print the ISBN on the cover. List the screws in the BOM.",
        "BERLIN, 3 May - The ministers met for talks on trade.",
        "NEW YORK, May 3 - The ministers met for talks on trade.",
        "1. Open the lid.\n   1. Turn the key.\n   2. Lift the lid.\n2. Close the lid.",
        "The council adjourned. The two ships collided near the port. The road forks at the old mill.",
        "Children under 12 take 5 mg twice a day.",
    ] {
        assert_eq!(defects(&judge(text)), [""; 0], "{text}");
    }
}

/// Texts that differ little from the clean texts above but have a defect.
#[test]
fn a_defect_beside_an_excused_one_is_found() {
    for (text, kind) in [
        ("All members are in favour. All members are not in favour.", "contradiction"),
        ("Do it now or later.", "coin_toss"),
        ("Outside, the temperature is 5 °C. Outside, the temperature is 20 °C.", "conflicting_value"),
        ("In Berlin, the price is 5 euros. The price is 6 euros in Berlin.", "conflicting_value"),
        ("The friends never share a password.", "absolute_claim"),
        ("However, he failed.", "loose_connective"),
        ("However the result shows, the plan failed.", "loose_connective"),
        ("The ZQXB, 3 May and the ministers met.", "undefined_acronym"),
        ("1. Open the lid.\n   1. Turn the key.\n   3. Lift the lid.\n2. Close the lid.", "step_order"),
        ("1. Open the lid.\n   1. Turn the key.\n   2. Lift the lid.\n3. Close the lid.", "step_order"),
        ("Children under 12 without tablets of 5 mg.", "fragment"),
    ] {
        let found = defects(&judge(text));
        assert!(found.contains(&kind.to_owned()), "{text}: {found:?}");
    }
}

#[test]
fn contradictions_in_lists_by_always_or_by_an_opposite() {
    for text in [
        "It is open. It is not open.",
        "She is not ill. She is ill.",
        "The file is never deleted. The file is deleted after 30 days.",
        "The file is deleted after 30 days. The file is never deleted.",
        "Smoking is permitted. Smoking is prohibited.",
        "The price includes tax. The price excludes tax.",
        "The price includes tax. The price does not include tax.",
        "The price excludes tax. The price does not exclude tax.",
    ] {
        assert_eq!(texts_of(text, "contradiction").len(), 2, "{text}");
    }
    for text in [
        "It is open. The lamp is red. It is not open.",
        "It never fails. The lamp is red. It fails.",
        "He is open. She is not open.",
        "The file is not deleted. The file is deleted after 30 days.",
        "The file is never deleted before noon. The file is deleted after noon.",
        "Never open the lid. Open the lid after the fan stops.",
        "The price includes tax. The price excludes the tip.",
    ] {
        assert_eq!(texts_of(text, "contradiction"), [""; 0], "{text}");
    }
}

#[test]
fn a_firm_is_founded_once() {
    let conflicts = |text: &str| texts_of(text, "conflicting_value");
    assert_eq!(
        conflicts("The firm was founded in 1990. The firm was founded in 1995."),
        ["firm was founded in 1990", "firm was founded in 1995"]
    );
    for text in [
        "The firm was founded in 1990. The bank was founded in 1995.",
        "A firm was founded in 1990. A firm was founded in 1995.",
        "His firm was founded in 1990. Her firm was founded in 1995.",
        "The school of music was founded in 1990. The faculty of music was founded in 1995.",
        "The firm was founded in 1990 or 1991. The firm was founded in 1990.",
        "The firm was searched in 1990. The firm was searched in 1995.",
        "The first firm was founded in 1990. The second firm was founded in 1995.",
    ] {
        assert_eq!(conflicts(text), [""; 0], "{text}");
    }
}

#[test]
fn a_bare_number_does_not_raise_the_score() {
    for text in ["It always works 1.", "Page 5: it works.", "See No. 5 and know why it works."] {
        let answer = judge(text);
        let kinds = kinds(&answer);
        assert!(!kinds.contains(&"supported") && !kinds.contains(&"exact"), "{text}: {kinds:?}");
    }
    for text in [
        "It works for 5 h.",
        "It costs €5.",
        "The ratio was 2.1.",
        "We have two options.",
        "It starts at 10:30.",
        "It holds 3 of 4 times.",
        "It opened on Jan. 5, and then closed.",
        "It opened on 5 May, and then closed.",
    ] {
        let answer = judge(text);
        let kinds = kinds(&answer);
        assert!(kinds.contains(&"supported") && kinds.contains(&"exact"), "{text}: {kinds:?}");
    }
}
