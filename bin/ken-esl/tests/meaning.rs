//! The meaning of texts, tested with the real program: the rules and the model together.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod esl;

use esl::{feel, feel_lines};
use serde_json::Value;

fn emotions(answer: &Value) -> Vec<&str> {
    let list = answer["detected_emotions"].as_array().unwrap();
    list.iter().map(|emotion| emotion["emotion"].as_str().unwrap()).collect()
}

const JOYS: [&str; 6] = ["joy", "love", "excitement", "amusement", "admiration", "pride"];

/// A text, the states that are allowed, and its valence.
type Case = (&'static str, &'static [&'static str], &'static str);

fn check(cases: &[Case]) {
    let lines: Vec<String> = cases.iter().map(|case| case.0.to_owned()).collect();
    let mut wrong = Vec::new();
    for ((text, states, valence), answer) in cases.iter().zip(feel_lines(&lines)) {
        let state = answer["emotional_state"].as_str().unwrap();
        if !states.contains(&state) || !valence.split('|').any(|valence| answer["valence"] == valence) {
            wrong.push(format!("{text}: {state}, {}", answer["valence"]));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn negation_reverses_or_weakens_an_emotion() {
    check(&[
        ("I'm not angry, just disappointed", &["sadness", "disappointment"], "negative"),
        ("I'm not angry, just disappointed.", &["sadness", "disappointment"], "negative"),
        ("I am neither happy nor sad", &["neutral"], "neutral"),
        ("I'm neither angry nor scared", &["neutral"], "neutral"),
        ("No problem, thanks!", &["gratitude"], "positive"),
        ("No worries, thank you so much!", &["gratitude"], "positive"),
        ("This movie is not good", &["disapproval", "disappointment", "sadness"], "negative"),
        ("I am not happy with this", &["disapproval", "disappointment", "sadness"], "negative"),
        ("Nothing makes me happy", &["sadness", "disappointment"], "negative"),
        ("you are not stupid", &["neutral", "approval", "caring"], "neutral|positive"),
        ("I don't hate you", &["neutral", "approval", "caring"], "neutral|positive"),
        ("I couldn't be happier", &JOYS, "positive"),
        ("I couldn't agree more", &["approval"], "positive"),
        ("I cannot agree more with you.", &["approval"], "positive"),
        ("I couldn't agree", &["disapproval"], "negative"),
        ("It's not bad at all", &["approval", "admiration", "neutral"], "positive|neutral"),
        ("I can't wait to see you!", &["excitement", "joy"], "positive"),
        ("no worries", &["approval", "caring"], "positive"),
        ("There is nothing to fear.", &["neutral", "approval", "caring"], "neutral|positive"),
    ]);
    for (text, muted) in [("No problem, thanks!", "sadness"), ("no worries", "fear"), ("no worries", "nervousness")] {
        assert!(!emotions(&feel(text)).contains(&muted), "{text}: {muted}");
    }
    for text in ["I don't feel happy", "I don\u{2019}t feel happy", "i dont feel happy"] {
        let answer = feel(text);
        assert!(emotions(&answer).iter().all(|emotion| !JOYS.contains(emotion)), "{answer}");
        assert_ne!(answer["valence"], "positive");
    }
    for text in ["I'm not sad anymore", "I am not angry", "She isn't afraid"] {
        let answer = feel(text);
        for muted in ["sadness", "anger", "fear"] {
            assert!(!emotions(&answer).contains(&muted), "{answer}");
        }
    }
}

/// A negation before a comparative, "so" or "enough", or of a word like "stop", does not deny the feeling but
/// strengthens it.
#[test]
fn a_negation_may_strengthen() {
    check(&[
        ("I have never been so happy", &["joy"], "positive"),
        ("Nothing could make me happier", &["joy"], "positive"),
        ("No one is happier than me", &["joy"], "positive"),
        ("I can't thank you enough", &["gratitude"], "positive"),
        ("I can't get enough of this", &JOYS, "positive"),
        ("I couldn't be more proud", &["pride"], "positive"),
        ("I couldn't be more excited", &["excitement"], "positive"),
        ("I could not be happier", &["joy"], "positive"),
        ("It doesn't get any better than this", &["joy", "approval"], "positive"),
        ("I can't stop laughing", &["amusement"], "positive"),
        ("I can't stop smiling", &["joy"], "positive"),
        ("I can't help smiling", &["joy"], "positive"),
        ("I won't stop crying", &["sadness"], "negative"),
        ("I've never seen anything so beautiful", &["admiration"], "positive"),
        ("I couldn't be more disappointed", &["sadness", "disappointment"], "negative"),
        ("I've never been so scared", &["fear"], "negative"),
    ]);
    let others = [
        "It never gets better",
        "This is no better than the old one",
        "I'm not happier than before",
        "I didn't get any better grades than last year",
        "I can't trust him enough to lend him money",
    ];
    for answer in feel_lines(&others.map(str::to_owned)) {
        assert_ne!(answer["valence"], "positive", "{answer}");
    }
}

#[test]
fn a_negated_question_denies_nothing() {
    check(&[
        ("Aren't you happy?", &["joy", "curiosity"], "positive"),
        ("Isn't this beautiful?", &["admiration"], "positive"),
        ("Why aren't you happy?", &["curiosity"], "negative"),
    ]);
}

#[test]
fn plain_feelings_are_named() {
    check(&[
        ("I love this!", &["love"], "positive"),
        ("happy", &["joy"], "positive"),
        ("I am so happy today", &["joy"], "positive"),
        ("Thank you for your help", &["gratitude"], "positive"),
        ("This is disgusting", &["disgust"], "negative"),
        ("I'm scared of the dark", &["fear"], "negative"),
        ("I miss my dad so much", &["sadness", "grief"], "negative"),
        ("I'm furious with you", &["anger"], "negative"),
        ("I hate you", &["anger"], "negative"),
        ("This is hopeless", &["sadness"], "negative"),
        ("I am so proud of my daughter", &["pride", "admiration"], "positive"),
        ("what a relief!", &["relief"], "positive"),
        ("Congratulations, well done!", &["admiration", "gratitude", "approval", "excitement"], "positive"),
        ("lol that's hilarious", &["amusement"], "positive"),
        ("I'm not sure what you mean", &["confusion", "curiosity", "doubt"], "neutral|negative"),
        ("I wonder how that works", &["curiosity", "surprise"], "neutral|positive"),
        ("Wow, I did not expect that!", &["surprise"], "positive|neutral"),
        ("I'm so sorry, I regret what I did", &["remorse"], "negative"),
        ("I feel so guilty about it", &["remorse", "guilt"], "negative"),
        ("I'm jealous of her new car", &["envy", "annoyance"], "negative"),
        ("I hope you feel better soon", &["optimism", "caring", "hope"], "positive"),
        ("I'm so nervous about my exam", &["fear", "nervousness"], "negative"),
        ("That was so embarrassing", &["embarrassment"], "negative"),
    ]);
}

/// These texts must not be read as a wish or a joke.
#[test]
fn despair_is_sadness() {
    check(&[
        ("I want to die", &["sadness"], "negative"),
        ("I want to kill myself", &["sadness"], "negative"),
        ("I wish I were dead", &["sadness"], "negative|neutral"),
        ("Nobody loves me", &["sadness", "disappointment"], "negative"),
    ]);
}

#[test]
fn text_without_emotion_is_neutral() {
    check(&[
        ("The great wall", &["neutral"], "neutral"),
        ("The great wall was long.", &["neutral"], "neutral"),
        ("The Great Wall of China is over 13,000 miles long.", &["neutral"], "neutral"),
        ("The Great Depression began in 1929.", &["neutral"], "neutral"),
        ("He lives near the Great Lakes.", &["neutral"], "neutral"),
        ("They read the Good Book aloud.", &["neutral"], "neutral"),
        ("The meeting is at 3 pm.", &["neutral"], "neutral"),
        ("The train leaves at nine from platform two.", &["neutral"], "neutral"),
        ("The stock price fell by three percent on Monday.", &["neutral"], "neutral"),
        ("He lives in the house next to the station.", &["neutral"], "neutral"),
        ("...", &["neutral"], "neutral"),
        ("42", &["neutral"], "neutral"),
    ]);
}

/// If the text names an emotion, that emotion is the state, and not the label that the training texts have for it. If
/// the text has a valence and an emotion with this valence, the state is not neutral.
#[test]
fn the_state_follows_the_words() {
    check(&[
        ("I hope it rains tomorrow.", &["hope"], "positive"),
        ("I envy your patience.", &["envy"], "positive|negative"),
        ("I feel guilty.", &["guilt"], "negative"),
        ("She feels guilty.", &["guilt", "sadness"], "negative"),
        ("I am confident that we will win.", &["confidence"], "positive"),
        ("Ugh.", &["annoyance", "disgust"], "negative"),
        ("Piss off", &["anger", "annoyance"], "negative"),
    ]);
}

#[test]
fn the_strongest_emotion_is_the_state() {
    for (text, order) in
        [("WHERE ARE YOU", ["curiosity", "neutral"]), ("My grandmother died yesterday", ["sadness", "neutral"])]
    {
        let answer = feel(text);
        assert_eq!(emotions(&answer), order, "{answer}");
        let strengths = [0, 1].map(|place| answer["detected_emotions"][place]["intensity"].as_f64());
        assert!(strengths[0] >= strengths[1], "{answer}");
    }
}

#[test]
fn the_valence_is_that_of_the_state() {
    check(&[
        ("I'm anxious to meet you", &["fear"], "negative"),
        ("I am unhappy", &["sadness"], "negative"),
        ("I am very unhappy with this", &["sadness"], "negative"),
        ("I am so mad at you right now", &["anger"], "negative"),
        ("I'm furious with the airline", &["anger"], "negative"),
    ]);
}

#[test]
fn emoji_and_emoticons_count() {
    check(&[
        ("\u{1F389}\u{1F389}\u{1F389}", &["joy", "excitement"], "positive"),
        ("\u{1F62D}", &["sadness"], "negative"),
        ("\u{2764}\u{FE0F}", &["love"], "positive"),
        ("\u{1F621}", &["anger"], "negative"),
        ("home at last :)", &["joy"], "positive"),
        ("<3", &["love"], "positive"),
    ]);
}

#[test]
fn irony_reverses_praise() {
    check(&[
        ("oh great, another meeting", &["annoyance", "disappointment"], "negative"),
        ("Thanks for nothing", &["annoyance", "disappointment"], "negative"),
        ("yeah right", &["annoyance", "disapproval"], "negative"),
        ("What a wonderful day to lose my keys \u{1F644}", &["annoyance", "anger", "disappointment"], "negative"),
        ("Great, just great, it broke again /s", &["annoyance", "disappointment"], "negative"),
    ]);
}

#[test]
fn a_contrast_weighs_its_sides() {
    let mixed = feel("I was happy yesterday, but now I am sad.");
    assert_eq!(mixed["valence"], "mixed");
    assert!(emotions(&mixed).contains(&"joy") && emotions(&mixed).contains(&"sadness"));
    assert_eq!(mixed["emotional_state"], "sadness");
    assert_eq!(feel("He was sad, but he is happy now.")["emotional_state"], "joy");
    let score = |text: &str| feel(text)["valence_score"].as_f64().unwrap();
    assert!(
        score("The room was dirty but the food was wonderful") > score("The food was wonderful but the room was dirty")
    );
}

/// "But it didn't" takes back what it answers, if it is about the same person or thing.
#[test]
fn a_short_answer_takes_a_feeling_back() {
    check(&[
        ("I was afraid it would hurt, but it didn't.", &["neutral", "relief"], "neutral|positive"),
        ("I was worried that it would rain, but it did not!", &["neutral", "relief"], "neutral|positive"),
        ("I was scared of the exam, but I'm not any more.", &["neutral", "relief"], "neutral|positive"),
        ("I thought it would be horrible, but it wasn't", &["neutral", "relief"], "neutral|positive"),
        ("I hoped it would work, but it didn't.", &["disapproval", "disappointment", "sadness"], "negative"),
        ("I was afraid it would hurt, and it did.", &["fear"], "negative"),
        ("I was afraid, but he wasn't.", &["fear"], "negative"),
        ("I was happy, but he wasn't.", &["joy"], "positive|mixed"),
        ("It is over. I was afraid. But it didn't hurt.", &["fear"], "negative|mixed"),
    ]);
}

/// Who is ill is not cared for by that.
#[test]
fn caring_is_for_somebody_else() {
    for text in ["I have cancer.", "I have cancer", "I've got cancer, too."] {
        let answer = feel(text);
        assert_ne!(answer["valence"], "positive", "{answer}");
        assert!(!emotions(&answer).contains(&"caring"), "{answer}");
    }
    check(&[
        ("I'm here for you, get well soon.", &["caring"], "positive"),
        ("I care about animals.", &["caring"], "positive"),
    ]);
}

fn intensity(text: &str) -> f64 {
    feel(text)["intensity"].as_f64().unwrap()
}

#[test]
fn emphasis_is_intensity() {
    for (weak, strong) in [
        ("happy", "HAPPY!!!"),
        ("happy", "very happy"),
        ("I am happy", "I am HAPPY"),
        ("slightly annoyed", "extremely annoyed"),
        ("a bit sad", "so sad"),
        ("I love it", "I looooove it"),
        ("this is disgusting", "this is disgusting!!!"),
    ] {
        assert!(intensity(weak) < intensity(strong), "{weak}: {}, {strong}: {}", intensity(weak), intensity(strong));
    }
}

#[test]
fn other_languages_have_low_confidence() {
    for (text, language) in [
        ("Ich bin heute sehr glücklich", "de"),
        ("Das ist ein schöner Tag und ich freue mich", "de"),
        ("Je suis très heureux aujourd'hui", "fr"),
        ("Estoy muy triste hoy", "es"),
        ("今日はとても嬉しいです", "und"),
        ("qwzx plorg fnord", "und"),
        ("Сегодня я очень счастлив", "und"),
    ] {
        let answer = feel(text);
        assert_eq!(answer["contextual_factors"]["language"], language, "{answer}");
        assert!(answer["confidence"].as_f64().unwrap() < 0.35, "{answer}");
    }
    assert!(feel("I am very happy today")["confidence"].as_f64().unwrap() > 0.6);
}

#[test]
fn a_typographic_apostrophe_is_an_apostrophe() {
    for text in ["I don't like it", "I'm sad", "can't wait!"] {
        let plain = feel(text);
        let curly = feel(&text.replace('\'', "\u{2019}"));
        for field in ["emotional_state", "valence", "intensity", "confidence", "valence_score"] {
            assert_eq!(plain[field], curly[field], "{text}: {field}");
        }
    }
}

#[test]
fn the_context_is_reported() {
    let answer = feel("Why didn't you call me yesterday?");
    let context = &answer["contextual_factors"];
    assert_eq!(context["is_question"], true);
    assert_eq!(context["has_negation"], true);
    assert_eq!(context["temporal_indicators"], serde_json::json!(["yesterday"]));
    assert_eq!(context["language"], "en");
    assert_eq!(feel("I called.")["contextual_factors"]["is_question"], false);
}

#[test]
fn evidence_has_correct_positions() {
    let text = "Well \u{1F600}, I absolutely LOVE it";
    let answer = feel(text);
    let first = &answer["detected_emotions"][0];
    assert_eq!(first["emotion"], "love");
    let cited = |span: &Value| {
        let place = |end: &str| span[end].as_u64().unwrap() as usize;
        text[place("start")..place("end")].to_owned()
    };
    let evidence: Vec<String> = first["evidence"].as_array().unwrap().iter().map(cited).collect();
    assert!(evidence.iter().any(|cited| cited.contains("LOVE")), "{evidence:?}");
    assert!(answer["explanation"].as_str().unwrap().contains("LOVE"));
}
