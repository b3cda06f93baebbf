//! What is judged at all, and plain sentences that are not to be called anything else.

use crate::program::{CoProcess, defects, judge};

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

#[test]
fn short_plain_texts_are_judged() {
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
        assert!(
            advice
                .iter()
                .all(|line| !line.as_str().unwrap().starts_with("not judged")),
            "{text}: {answer}"
        );
    }
}

/// Verbs that no list has, in plain sentences.
#[test]
fn a_sentence_with_an_unlisted_verb_is_no_fragment() {
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
    for text in [
        "Because of the old queue.",
        "A heap of wet towels on the floor.",
        "Under the bridge with two lamps.",
    ] {
        assert_eq!(defects(&judge(text)), ["fragment"], "{text}");
    }
}
