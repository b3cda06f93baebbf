//! Answers to questions about ken itself, to greetings and thanks, and to "remember that …".

use super::CANNOT_WRITE;

/// The maximum number of words of a text that is answered here. A longer one has another subject.
const MAX_WORDS: usize = 9;

/// Returns the answer, or `None` if the text is not of this kind.
pub(super) fn answer(question: &str, no_model: &str) -> Option<String> {
    let plain = plain(question);
    if let Some(what) = to_remember(question, &plain) {
        return Some(remember(what));
    }
    if plain.split(' ').count() > MAX_WORDS {
        return None;
    }
    let about = |patterns: &[&str]| patterns.iter().any(|pattern| plain == *pattern);
    if about(&HELLO) {
        return Some(format!(
            "Hello. {no_model}, but I can look things up in your knowledge entries and our past turns."
        ));
    }
    if about(&THANKS) {
        return Some("You are welcome.".to_owned());
    }
    let plain = without_hello(&plain);
    let about = |patterns: &[&str]| patterns.contains(&plain);
    let begins = |patterns: &[&str]| patterns.iter().any(|pattern| begins_with(plain, pattern));
    if begins(&WHO) || begins(&WHAT) || about(&HELP) {
        return Some(abilities(no_model));
    }
    None
}

const HELLO: [&str; 8] = ["hi", "hello", "hey", "hello there", "hi there", "good morning", "good evening", "hello ken"];
const THANKS: [&str; 4] = ["thanks", "thank you", "thank you very much", "thanks a lot"];
const WHO: [&str; 6] = [
    "who are you", "what are you", "what is your name", "what s your name", "introduce yourself",
    "tell me about yourself",
];
const WHAT: [&str; 6] = [
    "what can you do", "what do you do", "how can you help", "how do you work", "what can i ask", "what model are you",
];
const HELP: [&str; 3] = ["help", "help me", "can you help me"];

/// Removes a greeting at the beginning of a text: "hello who are you" becomes "who are you".
fn without_hello(plain: &str) -> &str {
    let greeting = HELLO.iter().filter_map(|hello| plain.strip_prefix(hello)?.strip_prefix(' '));
    greeting.min_by_key(|rest| rest.len()).unwrap_or(plain)
}

fn abilities(no_model: &str) -> String {
    format!(
        "I am ken, an agent that runs on your own machine. {no_model}, so my rules engine answers: it finds the sentences \
         of your knowledge entries and of our past turns that match your question, and names the entry each one comes \
         from. It does not make anything up. Add entries with `ken knowledge add` or POST /api/knowledge; type /help for \
         the commands."
    )
}

/// Returns the text in lower case, without punctuation, and with one space between words.
fn plain(text: &str) -> String {
    // Only short texts are answered here, so the beginning of a long one is enough.
    let head = ken_text::head(text, 400).to_lowercase();
    let words = head.split(|char: char| !char.is_alphanumeric()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(" ")
}

/// Whether a text begins with whole words.
fn begins_with(plain: &str, words: &str) -> bool {
    plain.strip_prefix(words).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
}

/// The words before what is to be remembered. The longer one comes first.
const REMEMBER: [&str; 5] =
    ["please remember that", "please remember this", "please remember", "remember that", "remember this"];

/// Returns the text after these words, as the user wrote it.
fn to_remember<'a>(question: &'a str, plain: &str) -> Option<&'a str> {
    let begin = REMEMBER.iter().find(|begin| begins_with(plain, begin))?;
    let is_word = char::is_alphanumeric;
    let after = |rest: &'a str| rest.trim_start_matches(|char| !is_word(char)).trim_start_matches(is_word);
    let what = begin.split(' ').fold(question, |rest, _| after(rest));
    let what = what.trim_start_matches([':', ',', ' ', '\n']).trim_end();
    Some(what).filter(|what| what.contains(is_word))
}

fn remember(what: &str) -> String {
    let title: String = what.chars().take(60).collect();
    let entry = serde_json::json!({ "title": title, "content": what });
    format!(
        "{CANNOT_WRITE}. What you said stays a turn of this conversation, which I can find again. \
         To make it an entry that every answer may rest on, add it with `ken knowledge add`, or send this to POST \
         /api/knowledge:\n\n{entry}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simple_questions_about_itself() {
        for question in ["Who are you?", "what can you do", "What can you do for me?", "Help!", "Hi", "Thanks a lot!"] {
            assert!(answer(question, "No language model is configured").is_some(), "{question}");
        }
        for question in [
            "What are your opening hours?",
            "Who are your suppliers?",
            "What do you doubt?",
            "What can the pump do?",
            "Help me find the door code of the lab in the old house over there",
            "",
            "?",
        ] {
            assert_eq!(answer(question, ""), None, "{question}");
        }
        let who = answer("Hello, who are you?", "No model").unwrap();
        assert!(who.starts_with("I am ken"), "{who}");
        assert_eq!(answer("Hello, when is the site deployed?", "No model"), None);
    }

    #[test]
    fn to_remember_is_answered_with_the_way_to_do_it() {
        for (question, what) in [
            ("Please remember that the door code is \"77\".", "the door code is \"77\"."),
            ("Please remember my code is 77, not that old one.", "my code is 77, not that old one."),
            ("  PLEASE, remember this: that man knows.", "that man knows."),
            ("Remember that that is so", "that is so"),
            ("Remember this -- and that", "-- and that"),
        ] {
            let text = answer(question, "").unwrap();
            let content = serde_json::to_string(what).unwrap();
            assert!(text.contains(&format!(r#""content":{content}"#)), "{text}");
            assert!(text.starts_with("I cannot write knowledge entries myself."));
        }
        for question in ["Remember thatcher", "Please remembering it", "Remember this.", "Please remember!"] {
            assert_eq!(answer(question, ""), None, "{question}");
        }
    }
}
