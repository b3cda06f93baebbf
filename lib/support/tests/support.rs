//! The support of sentences by sources, through the public functions of the library.

use std::time::Instant;

use ken_support::{Kind, Support, support};
use ken_text::Span;

const SOURCE: &str = "The Northgate bridge was closed on 4 March after inspectors found 12 cracks in its main girder. \
    Mayor Ellen Hart said repairs would cost 3.4 million euros and take nine weeks. \
    The contractor, Velden Works, sued Northgate in May because it had not been paid. \
    Ferries replace the bridge until it opens again. The city did not raise its taxes.";

fn of(text: &str) -> Support {
    support(text, &["Nothing of this is here.", SOURCE])
}

/// Returns the kind and the words of the first finding.
fn first(text: &str) -> Option<(Kind, String)> {
    let support = of(text);
    let finding = support.sentences.iter().flat_map(|sentence| &sentence.findings).next()?;
    Some((finding.kind, finding.span.of(text).to_owned()))
}

#[test]
fn what_a_source_says_is_supported_and_its_passage_is_named() {
    for text in [
        "Mayor Ellen Hart said repairs would cost 3.4 million euros.",
        "Mayor Ellen Hart said repairs would take nine weeks.",
        "Ferries replace the bridge until it opens again.",
        "The city did not raise its taxes.",
    ] {
        assert_eq!(first(text), None, "{text}");
    }
    // These are true. Whether they say the same as their passages is not known from their words alone.
    for text in [
        "The Northgate bridge was closed on 4 March.",
        "Inspectors found 12 cracks in the main girder.",
        "Ferries replace the bridge.",
        "Velden Works sued Northgate in May.",
        "Northgate was sued by Velden Works in May.",
        "Inspectors found more than 10 cracks in the main girder.",
    ] {
        assert_eq!(first(text), Some((Kind::Uncarried, text.to_owned())), "{text}");
        let sentence = &of(text).sentences[0];
        let passage = sentence.passage.expect(text);
        assert_eq!(passage.source, 1, "{text}");
        assert!(SOURCE.get(passage.span.start..passage.span.end).is_some());
    }
    let passage = of("Ferries replace the bridge.").sentences[0].passage.unwrap();
    assert_eq!(passage.span.of(SOURCE), "Ferries replace the bridge until it opens again.");
}

#[test]
fn what_no_source_says_is_unsupported() {
    for (text, words) in [
        ("The bridge opened in 1962.", "1962"),
        ("Engineers from Zurich looked at the bridge.", "Zurich"),
        ("Mayor Peter Hart said repairs would take nine weeks.", "Peter"),
        (
            "Fishermen caught a record haul of herring off the coast.",
            "Fishermen caught a record haul of herring off the coast.",
        ),
    ] {
        assert_eq!(first(text), Some((Kind::Unsupported, words.to_owned())), "{text}");
    }
}

#[test]
fn what_a_source_says_otherwise_is_contradicted() {
    for (text, words) in [
        ("Inspectors found 14 cracks in the main girder of the bridge.", "14"),
        ("The bridge was closed on 4 April after inspectors found 12 cracks.", "April"),
        ("The Northgate bridge was opened on 4 March.", "opened"),
        ("The city raised its taxes.", "The city raised its taxes"),
        ("Repairs would cost 3.4 million dollars.", "3.4 million"),
    ] {
        assert_eq!(first(text), Some((Kind::Contradicted, words.to_owned())), "{text}");
        assert!(of(text).score <= ken_support::CONTRADICTED, "{text}");
    }
}

/// Words alone do not tell whether two sentences with the same words in another order say the same.
#[test]
fn exchanged_roles_are_left_open() {
    let text = "Northgate sued Velden in May.";
    assert_eq!(first(text), Some((Kind::Uncarried, text.to_owned())));
}

#[test]
fn a_copy_scores_above_a_paraphrase_and_that_above_an_invention() {
    let score = |text| of(text).score;
    let copy = score("Mayor Ellen Hart said repairs would cost 3.4 million euros and take nine weeks.");
    let paraphrase = score("Repairing the closed bridge takes nine weeks, the mayor said.");
    let invention = score("A storm destroyed the harbour wall and three fishing boats overnight.");
    assert!(copy > paraphrase && paraphrase > invention, "{copy} {paraphrase} {invention}");
}

#[test]
fn odd_input_has_an_answer() {
    assert_eq!(support("", &[""]).score, 0.0);
    assert!(support("", &[SOURCE]).sentences.is_empty());
    assert_eq!(support("It rains.", &[]).sentences[0].passage, None);
    assert_eq!(support("??? !!! …", &[SOURCE]).sentences.len(), 0);
}

/// A text that is eight times as long takes about eight times as long. The worst cases are texts whose words occur in
/// every sentence.
#[test]
fn time_grows_with_the_length() {
    let sentence = "The pump was on and the pump was hot. ";
    let timed = |times: usize| {
        let (text, source) = (sentence.repeat(times), sentence.repeat(times * 4));
        let begun = Instant::now();
        assert_eq!(support(&text, &[&source]).sentences.len(), times);
        begun.elapsed().as_secs_f64()
    };
    timed(100);
    let (short, long) = (timed(250), timed(2000));
    assert!(long < short * 8.0 * 6.0 + 0.5, "{short} s, {long} s");
}

proptest::proptest! {
    #[test]
    fn scores_and_spans_are_in_range(text in "[A-Za-z0-9 .,'é“”-]{0,120}", source in "\\PC{0,120}") {
        for sentence in support(&text, &[&source, SOURCE]).sentences {
            proptest::prop_assert!((0.0..=1.0).contains(&sentence.score));
            let spans = sentence.findings.iter().map(|finding| finding.span).chain([sentence.span]);
            for Span { start, end } in spans {
                proptest::prop_assert!(text.get(start..end).is_some_and(|part| !part.is_empty()));
            }
            if let Some(passage) = sentence.passage {
                let of = if passage.source == 0 { source.as_str() } else { SOURCE };
                proptest::prop_assert!(of.get(passage.span.start..passage.span.end).is_some());
            }
        }
    }
}

/// These sentences were written by someone who did not know this crate.
#[test]
fn errors_of_a_summary_are_found_and_true_sentences_are_not() {
    let source = "On 9 June 2023 the ferry Alma left Dover at 07:40 with 212 passengers and 31 cars on board. \
        Captain Ruth Neri noticed smoke in the engine room twenty minutes later and turned back. The fire brigade of \
        Dover put the fire out within an hour. Nobody was hurt, but two sailors were treated for smoke. The company \
        Blueline sued the shipyard Horn because a fuel pipe had been fitted without a clamp. The court has not decided \
        yet. A second ferry, the Bette, took the passengers to Calais in the afternoon. Tickets were not refunded.";
    let kind = |text: &str| {
        let support = ken_support::support(text, &[source]);
        support.sentences[0].findings.first().map(|finding| finding.kind)
    };
    for text in [
        "The Alma carried 221 passengers.",
        "There were 31 cars and 2,120 passengers on board.",
        "The ferry Alma left Dover on 12 June 2023.",
        "The ferry left Dover at 09:40.",
        "Tickets were refunded.",
        "The court has decided.",
    ] {
        assert_eq!(kind(text), Some(Kind::Contradicted), "{text}");
    }
    for invented in [
        "The insurer paid 2 million euros to the families.",
        "Captain Ruth Nolan noticed smoke in the engine room.",
        "The Bette took the passengers to Ostend.",
    ] {
        assert_eq!(kind(invented), Some(Kind::Unsupported), "{invented}");
    }
    assert_eq!(kind("The shipyard Horn sued the company Blueline."), Some(Kind::Uncarried));
    for text in [
        "The Alma left Dover with 212 passengers.",
        "Smoke was noticed in the engine room by Captain Ruth Neri.",
        "The fire was put out within an hour by the fire brigade.",
        "Nobody was hurt.",
        "Blueline sued Horn because a fuel pipe had no clamp.",
        "The court has not decided.",
        "The Bette took passengers to Calais.",
        "There was no refund of tickets.",
        "Two sailors were treated for smoke.",
        "The ferry turned back after about twenty minutes.",
    ] {
        assert!(matches!(kind(text), None | Some(Kind::Uncarried)), "{text}");
    }
}

/// "It" is about the same thing only behind the same sentence.
#[test]
fn a_reference_is_carried_with_what_it_refers_to() {
    let source = "The pump failed on Monday. It was sold in May. The valve failed on Friday. It was replaced in June.";
    let kinds = |text: &str| -> Vec<Option<Kind>> {
        let support = ken_support::support(text, &[source]);
        support.sentences.iter().map(|sentence| sentence.findings.first().map(|finding| finding.kind)).collect()
    };
    assert_eq!(kinds("The valve failed on Friday. It was replaced in June."), [None, None]);
    assert_eq!(kinds("The pump failed on Monday. It was replaced in June."), [None, Some(Kind::Uncarried)]);
    assert_eq!(kinds("It was replaced in June."), [Some(Kind::Uncarried)]);
}
