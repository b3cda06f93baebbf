//! The answer to a question: the sentences that were found, each with the id of its source, or a statement that
//! none was found.

use std::fmt::Write;

use ken_types::ops::model::Generate;

use super::search::{Hit, Origin, search};

pub(super) fn of(request: &Generate, question: &str, no_model: &str) -> String {
    let hits = search(request, question);
    if !hits.is_empty() {
        let found = quote(&hits);
        return format!("{found}\n\n{no_model}; this is what matches by its words.");
    }
    if is_statement(question) {
        return format!(
            "I keep that as a turn of this conversation and find it again by its words. {no_model}, so I cannot say \
             more about it."
        );
    }
    format!(
        "I found nothing about that in the knowledge entries or in past turns. {no_model}, so I have nothing else to \
         answer from. An entry can be added with `ken knowledge add` or POST /api/knowledge."
    )
}

/// Quotes the sentences. The source of consecutive sentences is named only once.
fn quote(hits: &[Hit<'_>]) -> String {
    let mut text = String::new();
    for (index, hit) in hits.iter().enumerate() {
        let goes_on = index > 0 && hits.get(index - 1).is_some_and(|last| last.origin == hit.origin);
        let before = match (index, goes_on) {
            (0, _) => "",
            (_, true) => " ",
            (_, false) => "\n",
        };
        let ends = hits.get(index + 1).is_none_or(|next| next.origin != hit.origin);
        // Writing to a String cannot fail.
        _ = write!(text, "{before}{}", sentence(hit, goes_on));
        if let (true, Origin::Source(source) | Origin::PastPrompt(source)) = (ends, hit.origin) {
            _ = write!(text, " [{}]", source.id);
        }
    }
    text
}

fn sentence(hit: &Hit<'_>, goes_on: bool) -> String {
    let text = &hit.text;
    match hit.origin {
        Origin::Source(_) => text.clone(),
        _ if goes_on => format!("“{text}”"),
        Origin::PastPrompt(_) => format!("You told me in a past turn: “{text}”"),
        Origin::EarlierMessage => format!("You said earlier in this conversation: “{text}”"),
        Origin::CurrentMessage => format!("Your message says: “{text}”"),
    }
}

/// Whether a text is a statement, neither a question nor a request.
fn is_statement(question: &str) -> bool {
    let first = question.split_whitespace().next().unwrap_or_default();
    let first = first.trim_matches(|char: char| !char.is_alphanumeric()).to_lowercase();
    !first.is_empty() && !question.trim_end().ends_with('?') && STATEMENT_OPENERS.contains(&first.as_str())
}

/// First words of statements. Any other text counts as a request, to which "nothing found" is a suitable answer.
const STATEMENT_OPENERS: [&str; 20] = [
    "i", "my", "our", "we", "the", "this", "these", "those", "it", "he", "she", "they", "his", "her", "their", "there",
    "today", "yesterday", "tomorrow", "i'm",
];

#[cfg(test)]
mod tests {
    use super::super::tests::{knowledge, memory, request};
    use super::*;

    const NONE: &str = super::super::NO_MODEL;

    #[test]
    fn sentences_that_do_not_match_are_not_quoted() {
        let mut request = request("What is the capital of the Mars colony?");
        request.sources = vec![knowledge("kb-1", "France", "The capital of France is Paris.")];
        let text = of(&request, "What is the capital of the Mars colony?", NONE);
        assert!(text.starts_with("I found nothing") && !text.contains("kb-1"), "{text}");
    }

    #[test]
    fn statements_of_the_user_are_found_in_past_turns_and_in_this_conversation() {
        let mut first = request("What is my dog called?");
        first.sources = vec![memory("sub-1", "My dog is called Rex.", "I keep that. No language model is configured.")];
        let text = of(&first, "What is my dog called?", NONE);
        assert!(text.contains("past turn: “My dog is called Rex.” [sub-1]"), "{text}");
        // The advice on how to store a statement repeats it, and is not quoted.
        let advice = crate::rules::itself::answer("Remember that my dog is called Rex.", NONE).unwrap();
        first.sources = vec![memory("sub-1", "Remember that my dog is called Rex.", &advice)];
        let text = of(&first, "What is my dog called?", NONE);
        assert_eq!(text.matches("Rex").count(), 1, "{text}");
        let mut here = request("My dog is called Rex.");
        here.messages.extend(request("What is my dog called?").messages);
        let text = of(&here, "What is my dog called?", NONE);
        assert!(text.contains("earlier in this conversation: “My dog is called Rex.”"), "{text}");
    }

    #[test]
    fn what_accompanies_a_question_is_a_source() {
        for question in [
            "Our pump P7 runs at 40 bar. It is blue.\n\nWhich pressure has pump P7?",
            "Which pressure has pump P7?\n\nAttached file \"pump.txt\":\n\n```\nOur pump P7 runs at 40 bar.\nIt is blue.\n```",
        ] {
            let text = of(&request(question), question, NONE);
            assert!(text.starts_with("Your message says: “Our pump P7 runs at 40 bar.”\n\n"), "{text}");
        }
        // A statement alone is not quoted back, and the sentences beside a question are not treated as questions.
        for (question, begin) in
            [("Our pump P7 runs at 40 bar.", "I keep that"), ("The pump is loud. Who is Ada?", "I found nothing")]
        {
            let text = of(&request(question), question, NONE);
            assert!(text.starts_with(begin), "{text}");
        }
    }

    #[test]
    fn a_question_without_a_topic_has_that_of_its_message() {
        let question = "The door code of the lab, please. Do you know?";
        let mut request = request(question);
        request.sources = vec![knowledge("kb-1", "Lab", "The door code of the lab is 77.")];
        let text = of(&request, question, NONE);
        assert!(text.starts_with("The door code of the lab is 77. [kb-1]"), "{text}");
    }

    #[test]
    fn a_contraction_is_no_topic() {
        for question in ["What's my name?", "what’s my name", "I've forgotten: what's my name?"] {
            let mut request = request(question);
            request.sources =
                vec![memory("sub-1", "My name is Vera.", "I keep that. No language model is configured.")];
            let text = of(&request, question, NONE);
            assert_eq!(
                text.contains("“My name is Vera.” [sub-1]"),
                !question.contains("forgotten"),
                "{question}: {text}"
            );
        }
    }

    #[test]
    fn an_earlier_answer_that_cites_is_not_a_source_of_its_own() {
        let mut request = request("What is the door code?");
        request.sources = vec![memory("sub-1", "What is the door code?", "The door code is 77. [kb-9]")];
        assert!(!of(&request, "What is the door code?", NONE).contains("77"));
    }

    #[test]
    fn the_sentence_with_the_rarer_words_wins_and_a_question_is_no_evidence() {
        let question = "When is web23 backed up?";
        let mut request = request(question);
        request.sources = vec![
            knowledge("kb-1", "Host web23", "web23 has 64 GB of RAM. It runs Debian."),
            knowledge("kb-2", "Backups", "The backup of web23 starts at 03:15."),
            knowledge("kb-3", "Backups", "The backup of web24 starts at 04:15."),
            memory("sub-1", question, "I found nothing about that. No language model is configured."),
            memory("sub-2", "When is web23 backed up", "Nobody knows."),
        ];
        let text = of(&request, question, NONE);
        assert!(text.starts_with("The backup of web23 starts at 03:15. [kb-2]\n\n"), "{text}");
        request.sources.remove(1);
        let text = of(&request, question, NONE);
        assert!(text.starts_with("I found nothing"), "{text}");
    }

    #[test]
    fn all_entries_of_a_list_are_quoted() {
        let question = "Which hosts are owned by team-3?";
        let mut request = request(question);
        let host = |number: usize| {
            let text = format!("Owner: team-{}. Rack {number}.", 3 + number / 8);
            knowledge(&format!("kb-{number}"), &format!("web{number}"), &text)
        };
        request.sources = (0..10).map(host).collect();
        let text = of(&request, question, NONE);
        assert_eq!(text.matches("Owner: team-3").count(), 8, "{text}");
        assert!(text.contains("web7: Owner: team-3. [kb-7]"), "{text}");
        let host = |number: usize| {
            let text = format!("web{number} is owned by team-{}.", 3 + number / 8);
            knowledge(&format!("kb-{number}"), &format!("web{number}"), &text)
        };
        request.sources = (0..10).map(host).collect();
        let text = of(&request, question, NONE);
        assert_eq!(text.matches("owned by team-3. [kb-").count(), 8, "{text}");
        assert!(!text.contains("team-4"), "{text}");
    }

    #[test]
    fn the_answer_to_a_question_in_an_entry_is_quoted() {
        let mut request = request("How do I reset the router?");
        request.sources = vec![knowledge(
            "kb-1",
            "FAQ",
            "Who pays? Nobody. How do I reset the router? Hold the button for ten seconds.",
        )];
        let text = of(&request, "How do I reset the router?", NONE);
        assert!(text.starts_with("Hold the button for ten seconds. [kb-1]"), "{text}");
    }

    #[test]
    fn a_list_answers_by_its_item() {
        let mut request = request("Which port does staging use?");
        request.sources = vec![knowledge("kb-3", "Ports", "Ports:\n- production: 80\n- staging: 8080\n- test: 9090")];
        let text = of(&request, "Which port does staging use?", NONE);
        assert!(text.contains("staging: 8080 [kb-3]") && !text.contains("9090"), "{text}");
    }

    #[test]
    fn a_statement_is_acknowledged_honestly() {
        let text = of(&request("My dog is called Rex."), "My dog is called Rex.", NONE);
        assert!(text.starts_with("I keep that"), "{text}");
    }
}
