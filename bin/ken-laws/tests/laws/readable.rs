//! Which texts are judged at all, and plain sentences that must not be taken for defects.

use serde_json::{Value, json};

use crate::program::{CoProcess, defects, judge, run_with};

#[test]
fn a_text_without_a_readable_claim_is_not_judged() {
    let mut program = CoProcess::start(&[]);
    for text in [
        "qwop zxcv hjkl",
        "Blorf snarg wibble trundleflug.",
        "Neque porro quisquam est qui dolorem ipsum quia dolor sit amet, consectetur.",
        "pear, plum, cherry, quince, medlar",
        "zebra yak xerus",
        "1 2 3 4 5 6",
        "Summary",
        "?!",
        "🙂 🙂 🙂",
        "Das Wasser ist heute sehr kalt, und wir baden nicht im See.",
        "Le train part à huit heures et nous attendons sur le quai.",
        "La casa de mi hermano es grande, pero no tiene jardín.",
        "De kat zit op de mat en kijkt naar het raam.",
        "the of and in",
    ] {
        let answer = program.ask(text);
        let advice = answer["recommendations"][0].as_str().unwrap_or_default();
        assert_eq!(answer["pass_fail_status"], "CONDITIONAL", "{text}");
        assert!(advice.starts_with("not judged: "), "{text}: {answer}");
    }
}

/// The grammar of these texts is English, but most of their words do not exist.
#[test]
fn a_text_of_unknown_words_is_not_judged() {
    for text in [
        "Glorp finket the draz and moople.",
        "The snib florps a zandle by the quaff.",
        "The wug flims a dax near the toma.",
        "A brillig tove did gyre in the wabe.",
    ] {
        let answer = judge(text);
        assert_eq!(answer["pass_fail_status"], "CONDITIONAL", "{text}: {answer}");
        let advice = answer["recommendations"][0].as_str().unwrap();
        assert_eq!(advice, "not judged: most words of the text are unknown", "{text}");
    }
    for text in [
        "Have you been to Oakland, Hayward, or Richmond?",
        "The vet neutered both cats.",
        "Envoy mirrors a tenth of the traffic.",
        "The hut has a roof.",
    ] {
        let advice = judge(text)["recommendations"][0].to_string();
        assert!(!advice.contains("words of the text are unknown"), "{text}: {advice}");
    }
}

/// A text that is read and shows nothing is not judged, so it does not pass by default. One finding is enough to be judged.
#[test]
fn a_text_in_which_nothing_was_found_is_not_judged() {
    const NOTHING: &str = "not judged: the text shows neither evidence nor a defect; give sources to compare it with";
    let mut program = CoProcess::start(&[]);
    for text in
        ["The earth is flat.", "The pump runs.", "The hut has a roof. The roof is red.", "The moon is made of cheese."]
    {
        let answer = program.ask(text);
        assert_eq!(answer["pass_fail_status"], "CONDITIONAL", "{text}: {answer}");
        assert_eq!(answer["recommendations"][0], NOTHING, "{text}");
    }
    for text in [
        "The earth is flat, because the horizon is.",
        "The pump runs at 3 bar.",
        "Everyone knows that the earth is flat.",
    ] {
        let answer = program.ask(text);
        assert_ne!(answer["recommendations"][0], NOTHING, "{text}: {answer}");
    }
    let document = json!({"text": "The earth is flat.", "sources": ["The earth is flat."]});
    let outcome = run_with(&["--format", "compact"], document.to_string().as_bytes());
    assert!(!outcome.stdout.contains("not judged"), "{}", outcome.stdout);
}

/// A citation alone is no evidence, because nobody has looked it up.
#[test]
fn a_text_based_on_citations_does_not_pass_without_them() {
    let texts = [
        "Honey never spoils in a closed jar, according to Weber 2016. We confirmed it.",
        "Tea shortens colds, as shown by Keller 2021. This was reviewed.",
        "According to Lee (2018), the whales sleep upright.",
        "Glass flows slowly at room temperature [3].",
    ];
    for text in texts {
        let answer = judge(text);
        assert_eq!(answer["pass_fail_status"], "CONDITIONAL", "{text}: {answer}");
        let advice = answer["recommendations"][0].as_str().unwrap();
        assert!(advice.starts_with("not checked: "), "{text}: {advice}");
        let exact = answer["evidence"].as_array().unwrap().iter();
        assert!(!exact.clone().any(|item| item["kind"] == "exact"), "{text}: a citation measures nothing");
    }
    let source = "Whales sleep upright, in groups of five or six, for about twelve minutes.";
    let document = json!({"text": texts[2], "sources": [source]}).to_string();
    let outcome = run_with(&["--format", "compact"], document.as_bytes());
    assert!(!outcome.stdout.contains("not checked"), "{}", outcome.stdout);
    for text in [
        "The bridge carries 40 t, according to Miller 1998.",
        "Lee (2018) writes \"whales sleep upright in groups\".",
        "The pump was replaced in March 2024.",
    ] {
        let advice = judge(text)["recommendations"].to_string();
        assert!(!advice.contains("not checked"), "{text}: {advice}");
    }
}

#[test]
fn short_plain_texts_are_read() {
    let mut program = CoProcess::start(&[]);
    for text in [
        "Close the valve.",
        "The pump runs.",
        "Mayor Ellen Hart said repairs would take nine weeks.",
        "Is the pump on?",
        "Water boils at 100 °C.",
    ] {
        let answer = program.ask(text);
        let advice = answer["recommendations"].as_array().unwrap();
        let is_unread = |line: &Value| {
            let line = line.as_str().unwrap();
            line.starts_with("not judged") && !line.contains("neither evidence nor a defect")
        };
        assert!(!advice.iter().any(is_unread), "{text}: {answer}");
    }
}

/// Plain sentences with verbs that are in no list.
#[test]
fn a_sentence_with_an_unlisted_verb_is_not_a_fragment() {
    for text in [
        "The queue drains within a minute.",
        "The proxy strips two headers.",
        "Our indexer dedupes the entries.",
        "The watchdog respawns each worker.",
        "Envoy mirrors a tenth of the traffic.",
        "The codec quantizes every block.",
        "A trigger denormalizes the totals.",
        "The allocator coalesces free pages.",
        "The vet neutered both cats.",
        "The jury deadlocked on Friday.",
        "Her team outbid two rivals.",
        "The baker glazes the tarts.",
        "My uncle whittles spoons.",
        "The ferry capsized off the coast.",
        "The pianist transposed the song.",
        "Gardeners repotted the ferns.",
        "The moon waxes until Tuesday.",
        "He sharpens knives.",
        "The thermostat cycles.",
        "The editor italicized the title.",
    ] {
        assert_eq!(defects(&judge(text)), [""; 0], "{text}");
    }
    for text in ["Because of the old queue.", "A heap of wet towels on the floor.", "Under the bridge with two lamps."]
    {
        assert_eq!(defects(&judge(text)), ["fragment"], "{text}");
    }
}
