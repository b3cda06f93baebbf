//! The published rubric: what each law counts, what it weighs, where it stops. Code, `ken-laws(7)` and the tests read this
//! one table, so none of them can say something else.
//!
//! Points are tenths of a percent throughout, so that every sum is exact and every machine prints the same bytes.

/// The five laws, in the order of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Law {
    Architecture,
    Governance,
    Truth,
    Energy,
    Determinism,
}

/// One row per law.
pub(crate) struct LawRow {
    pub(crate) law: Law,
    /// The name in `scores`.
    pub(crate) field: &'static str,
    pub(crate) title: &'static str,
    /// Its share of `overall_compliance`, in percent.
    pub(crate) share: u32,
    /// The score of a text that shows neither defects nor strengths, in tenths.
    pub(crate) base: i32,
}

pub(crate) const LAWS: [LawRow; 5] = [
    LawRow {
        law: Law::Architecture,
        field: "law1_architectural_intelligence",
        title: "Architectural intelligence",
        share: 25,
        base: 800,
    },
    LawRow {
        law: Law::Governance,
        field: "law2_cognitive_governance",
        title: "Cognitive governance",
        share: 25,
        base: 750,
    },
    LawRow {
        law: Law::Truth,
        field: "law3_truth_foundation",
        title: "Truth foundation",
        share: 25,
        base: 700,
    },
    LawRow {
        law: Law::Energy,
        field: "law4_energy_stewardship",
        title: "Energy stewardship",
        share: 15,
        base: 1000,
    },
    LawRow {
        law: Law::Determinism,
        field: "law5_deterministic_reliability",
        title: "Deterministic reliability",
        share: 10,
        base: 800,
    },
];

impl Law {
    pub(crate) const fn number(self) -> u8 {
        self as u8 + 1
    }
}

/// How strict the verdict is: PASS and CONDITIONAL by the overall score, and the least that every law needs for PASS, in
/// tenths.
pub(crate) struct Bar {
    #[cfg_attr(not(test), expect(dead_code))] // for the manual and its test
    pub(crate) name: &'static str,
    pub(crate) pass: i32,
    pub(crate) conditional: i32,
    pub(crate) each_law: i32,
}

pub(crate) const BARS: [Bar; 3] = [
    Bar {
        name: "lenient",
        pass: 600,
        conditional: 450,
        each_law: 400,
    },
    Bar {
        name: "moderate",
        pass: 700,
        conditional: 550,
        each_law: 500,
    },
    Bar {
        name: "strict",
        pass: 850,
        conditional: 700,
        each_law: 650,
    },
];

/// What a feature does to its law's score.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// A defect. With D claims that have it and C claims without any defect of its law it costs
    /// `weight + (cap - weight) * D / (D + C)`: a single defect never hides in a long text, and a longer text with as
    /// many defects to the page loses as much.
    Violation,
    /// A strength, earned in proportion: `cap * min(1, weight * S / N)` for S of N claims. Claims with a defect of the
    /// law earn none.
    Share,
    /// A strength, earned once: `cap`, whether one claim shows it or a hundred.
    Once,
}

/// How a feature is recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// By its phrases; negated and quoted ones do not count.
    Phrases,
    /// By its phrases, unless the same claim names its source, and a date or a number with it.
    PhrasesUnlessSourced,
    /// By its phrases, unless the same claim has a number with a unit or a source.
    PhrasesUnlessSupported,
    /// By its phrases, unless the same claim has a number.
    PhrasesUnlessNumber,
    /// By its phrases, in an instruction or a claim of change without a number.
    PhrasesWhereNeeded,
    /// By the structure of the text; `says` states the rule.
    Structure,
}

pub(crate) struct Feature {
    pub(crate) law: Law,
    pub(crate) kind: &'static str,
    pub(crate) effect: Effect,
    pub(crate) rule: Rule,
    /// Tenths of a percent for a violation, a factor for a share.
    pub(crate) weight: i32,
    /// Tenths of a percent.
    pub(crate) cap: i32,
    /// What is wrong, or what is good.
    pub(crate) says: &'static str,
    /// What to do about it; empty for a strength.
    pub(crate) advice: &'static str,
    pub(crate) phrases: &'static [&'static str],
}

const fn violation(law: Law, kind: &'static str, weight: i32, cap: i32) -> Feature {
    Feature {
        law,
        kind,
        effect: Effect::Violation,
        rule: Rule::Structure,
        weight,
        cap,
        says: "",
        advice: "",
        phrases: &[],
    }
}

const fn share(law: Law, kind: &'static str, weight: i32, cap: i32) -> Feature {
    Feature {
        effect: Effect::Share,
        ..violation(law, kind, weight, cap)
    }
}

const fn once(law: Law, kind: &'static str, cap: i32) -> Feature {
    Feature {
        effect: Effect::Once,
        rule: Rule::Phrases,
        ..violation(law, kind, 0, cap)
    }
}

impl Feature {
    const fn says(self, says: &'static str, advice: &'static str) -> Feature {
        Feature { says, advice, ..self }
    }

    const fn phrases(self, rule: Rule, phrases: &'static [&'static str]) -> Feature {
        Feature {
            rule,
            phrases,
            ..self
        }
    }
}

/// Word lists that phrases name in braces, and that structural rules read.
pub(crate) struct WordList {
    pub(crate) name: &'static str,
    pub(crate) words: &'static str,
}

/// In the order of the bits that [`crate::lexicon`] gives them.
pub(crate) const WORD_LISTS: &[WordList] = &[
    WordList {
        name: "check",
        words: CHECK,
    },
    WordList {
        name: "hedge",
        words: "perhaps maybe possibly probably potentially presumably conceivably seemingly apparently supposedly arguably",
    },
    WordList {
        name: "soft",
        words: "may might could",
    },
    WordList {
        name: "authority",
        words: "studies study research researchers experts scientists doctors historians analysts economists surveys polls statistics engineers specialists insiders critics academics scholars physicians nutritionists lawyers professionals chemists physicists biologists geologists dentists psychologists archaeologists linguists statisticians mathematicians consultants advisers advisors journalists officials commentators observers philosophers veterinarians pharmacists surgeons",
    },
    WordList {
        name: "say",
        words: "show shows shown showed prove proves proved proven say says said agree agrees agreed believe believes suggest suggests suggested confirm confirms confirmed claim claims recommend recommends recommended indicate indicates found find consider considers regard regards think thinks insist insists warn warns call calls demonstrate demonstrates demonstrated",
    },
    WordList {
        name: "superlative",
        words: "best fastest safest cheapest strongest finest greatest smartest easiest most largest cleanest lightest toughest simplest quickest",
    },
    WordList {
        name: "filler",
        words: "very really quite actually basically literally just simply totally extremely honestly obviously clearly essentially practically somehow rather truly incredibly absolutely completely utterly definitely seriously virtually",
    },
    WordList {
        name: "vague",
        words: "some several few many various numerous enough sufficient plenty lots regularly periodically occasionally frequently often soon shortly sometimes quickly briefly adequate adequately appropriate appropriately reasonable reasonably suitable suitably sufficiently generously eventually",
    },
    WordList {
        name: "amount",
        words: "significantly substantially considerably greatly dramatically markedly noticeably massively hugely drastically tremendously vastly notably enormously",
    },
    WordList {
        name: "change",
        words: "cut cuts fell fall falls rose rise rises grew grow grows drop drops dropped increase increases increased decrease decreases decreased reduce reduces reduced improve improves improved lower lowers lowered raise raises raised shrink shrinks shrank shorten shortens shortened gain gains gained save saves saved lose loses lost faster slower cheaper higher better worse more less climbed climb expanded expand boost boosts boosted worsened declined decline slowed sped",
    },
    WordList {
        name: "everyone",
        words: "everyone everybody nobody",
    },
    WordList {
        name: "marker",
        words: "verified tested checked measured proven sourced reviewed audited confirmed validated documented certain certified evidence evidenced source sources fact facts scope assumption assumptions criteria criterion limits limitation limitations governance governed compliance compliant transparent transparency accountable accountability deterministic determinism truth truthful accurate reliable reliability consistent consistency rigorous rigour rigor systematic structured coherent logical exact precise reproducible traceable explicit efficient optimised optimized integrity quality robust",
    },
    WordList {
        name: "unchecked",
        words: "untested unreviewed unchecked unverified unaudited uninspected unread unproven unexamined unmeasured",
    },
    WordList {
        name: "needless",
        words: "overkill pointless superfluous unnecessary needless excessive redundant",
    },
    WordList {
        name: "go",
        words: "go goes went ship ships shipped release releases released merge merges merged publish publishes published send sends sent deploy deploys deployed pass passes passed leave leaves left deliver delivered install installed",
    },
    WordList {
        name: "utter",
        words: "perfectly completely absolutely totally entirely utterly fully wholly",
    },
    WordList {
        name: "sure",
        words: "safe secure reliable certain sure foolproof correct accurate effective harmless faultless dependable watertight trustworthy",
    },
    WordList {
        name: "cope",
        words: "cope copes handle handles deal deals withstand withstands survive survives solve solves",
    },
    WordList {
        name: "noted",
        words: "noted pointed mentioned remembered stressed emphasised emphasized said added stated explained remarked borne",
    },
    WordList {
        name: "worthy",
        words: "important interesting essential crucial vital necessary helpful noteworthy imperative useful",
    },
    WordList {
        name: "note",
        words: "note notice mention remember understand realise realize recognise recognize recall point stress emphasise emphasize remark state highlight underline",
    },
    WordList {
        name: "noting",
        words: "noting mentioning remembering stressing emphasising emphasizing remarking",
    },
    WordList {
        name: "imagine",
        words: "imagine know guess expect understand recall remember",
    },
    WordList {
        name: "whim",
        words: "like likes prefer prefers wish wishes please pleases feel feels fancy choose chooses want wants",
    },
    WordList {
        name: "flaw",
        words: "weakness weaknesses limitation limitations drawback drawbacks downside downsides disadvantage disadvantages flaw flaws shortcoming shortcomings caveat caveats risk risks danger dangers",
    },
    WordList {
        name: "fail",
        words: "fail fails break breaks crash crashes leak leaks collapse collapses err errs lose malfunction",
    },
    WordList {
        name: "shaped",
        words: "round square oval rectangular triangular circular small large big tiny huge little red green blue yellow white black brown grey gray few many heavy short long tall wide smaller larger bigger heavier shorter taller cheap expensive young old",
    },
    WordList {
        name: "measured",
        words: "shape size colour color number weight length height width price age",
    },
    WordList {
        name: "enumerable",
        words: "reasons causes steps stages phases points parts parameters materials things options ways problems issues questions factors criteria rules goals aims tasks changes types kinds sorts elements methods items risks benefits effects files colours colors countries cities people members groups sites tools symptoms signs fields sizes models ingredients topics documents values tests proposals candidates modes states keys services servers rooms teams modules versions components",
    },
];

const CHECK: &str = "test tests tested testing check checks checked checking verify verifies verified verifying verification review reviews reviewed reviewing \
    inspect inspects inspected inspecting inspection inspections audit audits audited auditing validate validates validated validating validation confirm confirms confirmed confirming confirmation \
    measure measures measured measuring measurement measurements examine examines examined examining examination proofread proofreading recount recounted scrutiny scrutinise scrutinize \
    count counting recount look looking compare compares compared comparing comparison repeat repeated sample sampled trial trials calibrate calibrated calibration evaluate evaluated evaluation assess assessed assessment read";

/// Every feature. A phrase is a row of words: `word` is that word, `word~` any form of it, `{list}` a word of the list, `_` any word;
/// a `?` makes it optional.
pub(crate) const FEATURES: &[Feature] = &[
    // 1. Architectural intelligence
    violation(Law::Architecture, "fragment", 80, 450).says(
        "a sentence without a main clause hangs alone",
        "finish the sentence, or join it to the one it belongs to",
    ),
    violation(Law::Architecture, "step_order", 120, 500)
        .says("a step is out of order, missing or numbered twice", "number the steps in the order in which they are done"),
    violation(Law::Architecture, "circular_reason", 100, 500)
        .says("the reason repeats the claim", "give a reason that says something else than the claim"),
    violation(Law::Architecture, "off_topic", 80, 400).says(
        "a sentence shares no word and no reference with the rest",
        "say how it belongs here, or leave it out",
    ),
    violation(Law::Architecture, "count_mismatch", 80, 400)
        .says("fewer things are listed than announced", "list as many things as announced, or correct the number"),
    violation(Law::Architecture, "loose_connective", 60, 350).says(
        "the text opens with a conclusion or contrast to nothing",
        "state first what it follows from",
    ),
    share(Law::Architecture, "linked", 1, 140).says("sentences take up what was said before", ""),
    share(Law::Architecture, "reasoned", 4, 60).phrases(Rule::Phrases, &[
        "because", "since", "therefore", "so that", "thus", "hence", "for this reason", "as a result", "due to", "the cause is", "the cause was", "which means", "means that", "in order to",
        "came from", "follows from", "so _ _ is", "leads to", "led to", "caused by",
    ]).says("claims are tied to reasons", ""),
    // 2. Cognitive governance
    violation(Law::Governance, "trust_appeal", 120, 600).phrases(Rule::Phrases, &[
        "word should be enough", "word is enough", "word is good enough", "has a good name", "has a good reputation", "be confident in us", "be confident in me", "have confidence in me", "have confidence in our",

        "you can safely trust", "can be trusted", "we can trust", "trust the expert~", "trust our", "trust his", "trust her", "trust their", "rely on our word", "rely on his word", "has always been right", "have always been right", "well respected", "highly respected", "everyone trusts", "nobody doubts", "no one doubts", "not ask questions", "no further questions", "without asking questions", "that should be enough for you", "all you need to know", "beyond reproach", "is proof enough", "is enough proof", "good name of", "we are the experts", "we know what", "they know what", "he knows what", "she knows what", "i know what", "you would not doubt", "take my advice", "listen to the experts", "leave the thinking", "leave it to", "give us the benefit", "the benefit of the doubt", "a man of his word", "a woman of her word", "has never lied", "have never lied", "never lies", "would not mislead", "would never mislead", "honest to a fault", "i give you my word", "sure we are right", "we are always right",
        "personal guarantee", "my guarantee", "our guarantee", "not have to worry", "no need to worry", "no need to be concerned", "not worry", "nothing to worry about", "no reason to worry", "no cause for concern", "not be questioned", "never be questioned", "not be doubted", "is always right", "are always right", "is always correct", "are always correct", "never wrong", "done this for years", "done this for decades", "decades of experience", "years of experience", "said so", "says so", "told us so", "assures us", "assured us", "assures me", "assure you", "assures everyone", "vouch~ for", "put your trust in", "trust in", "place your trust", "have confidence in us", "count on it", "as an expert", "as a professional", "blindly", "unquestioning", "unquestioningly", "say so alone", "good people", "honest people", "serious people", "trusted partner", "a trusted source", "reputation guarantees", "name guarantees", "stands for quality", "too respected to", "too big to", "you will just have to", "take as given", "no reason for doubt", "doubts are out of place", "doubt is out of place",        "trust me", "trust us", "believe me", "believe us", "take my word", "take our word", "take her word", "take his word", "take their word", "rest assured", "be assured", "have faith",
        "has my word", "have my word", "have our word", "i promise you", "we promise you", "i promise that", "i guarantee you", "you can count on us", "you can rely on us", "you can trust", "just trust", "just accept", "just believe",
        "simply trust", "simply accept", "simply believe", "no questions asked", "not question", "not ask why", "because i said so", "because i say so", "who know what they are doing",
        "knows what he is doing", "knows what she is doing", "know what we are doing", "know what they are doing", "know what i am doing", "knows best", "know best", "must be right", "has to be right", "have to be right", "must be correct", "must be true", "can not be wrong", "cannot be wrong",
        "is never wrong", "are never wrong", "in good hands", "in safe hands", "as everyone knows", "as everybody knows", "as we all know", "everyone knows", "everybody knows", "common knowledge",
        "take it from me", "take it from us", "on faith", "take it on trust", "taken on trust", "taking it on trust", "leave it to us", "leave it to the experts", "speaks for itself", "speak for themselves",
        "never let us down", "would not lie", "would never lie", "above suspicion", "years of experience speak", "no reason to doubt", "no reason to question", "nobody should question", "not doubt", "above question", "above criticism",
        "reputation is enough", "good enough for me", "good enough for us", "swear by", "word of honour", "word of honor", "our word for it", "my word for it", "too experienced to",
    ]).says("trust is asked for in place of a check", "say what was checked, how, and by whom"),
    violation(Law::Governance, "waived_check", 120, 600).phrases(Rule::Phrases, &[
        "{check} would be {needless}", "{check} is {needless}", "{check} are {needless}",

        "waste time {check}", "waste time on _? {check}", "wast~ time with _? {check}", "can safely be skipped", "safely skip", "need not be {check}", "need not {check}", "not need to be {check}", "not have to be {check}", "without having _? {check}", "without being {check}", "without _ being {check}", "ignore the warning~", "ignore any warning~", "ignore all warning~", "ignore the alarm~", "ignore the error~", "ignore _ {check}", "turn off _ {check}", "switch off _ {check}", "disable _ {check}", "just ship", "just merge", "just sign", "just approve", "sign it anyway", "approve it anyway", "fine without", "{check} can wait", "{check} may wait", "{check} would take too long", "{check} takes too long", "{check} take too long", "too lazy to {check}", "too busy to {check}", "{check} is optional", "{check} are optional", "{check} is not important", "{check} does not matter", "{check} is a formality", "{check} are a formality", "{check} was a formality", "mere formality", "pure formality", "nobody looks at", "no one looks at", "close our eyes to", "turn a blind eye", "look the other way", "not look too closely", "not look at _ closely", "forget about _? {check}", "forget the {check}", "never mind the {check}", "not {check} anything", "not {check} any further", "{check} nothing", "cut the {check}", "cut out the {check}",
        "no reason to _? {check}", "no point in _? {check}", "{check} _? _? _? _? is a waste", "{check} _? _? _? _? is unnecessary", "{check} _? _? _? _? is pointless", "{check} _? _? _? _? is superfluous", "{check} _? _? _? _? is not needed", "{check} _? _? _? _? is not necessary", "{check} is pointless", "{check} are pointless", "{go} _? _? {unchecked}", "no time to {check}", "no time for _? {check}", "too long to {check}", "too much work to {check}", "who needs _? {check}", "why {check}", "spare yourself the {check}", "save yourself the {check}", "save the {check}", "can do without _? {check}", "could do without _? {check}", "dispense~ with _? _? {check}", "never bother to {check}", "no _? {check} is called for", "no longer {check}", "stop~ {check}", "unseen", "rubber stamp~", "on the nod",        "no need to _? {check}", "no need for _? _? {check}", "not need to _? {check}", "not need _? {check}", "not have to {check}", "needs no _? {check}", "need no _? {check}", "needed no _? {check}",
        "without _? {check}", "without looking", "without a second look", "without opening", "without asking", "skip~ _? _? {check}", "omit~ _? {check}", "leave out the {check}", "left out the {check}", "forgo~ _? {check}", "bypass~ _? {check}", "drop~ the {check}", "waive~ _? {check}",
        "{check} can be skipped", "{check} may be skipped", "{check} was skipped", "{check} is skipped", "{check} were skipped", "{check} are skipped", "{check} is not needed", "{check} is not necessary", "{check} are not needed", "{check} are not necessary",
        "{check} is unnecessary", "{check} are unnecessary", "{check} was unnecessary", "{check} were unnecessary", "{check} would be unnecessary", "{check} was not needed", "{check} is superfluous", "{check} can be omitted", "{check} can be left out",
        "no _? {check} is needed", "no _? {check} is required", "no _? {check} is necessary", "no _? {check} was needed", "no _? {check} are needed", "no _? {check} are required", "nobody has to {check}", "nobody needs to {check}", "nobody must {check}", "no one has to {check}", "no one needs to {check}",
        "not bother~ to? {check}", "not bother with _? {check}", "not worth {check}", "not worth _ {check}", "waste of time to {check}", "{check} is a waste", "{check} it is a waste", "{check} would be a waste", "{check} would only cost", "{check} only costs", "not require _? {check}",
        "too obvious to {check}", "too simple to {check}", "too small to {check}", "assume it works", "just assume", "simply assume", "take for granted", "took for granted", "taken for granted", "sight unseen", "without question", "straight to production",
    ]).says("a check is waived", "name the check that was done, or say openly that none was"),
    violation(Law::Governance, "denied_limits", 120, 600).phrases(Rule::Phrases, &[
        "cannot be _ by anyone", "cannot be _ by anybody", "can not be _ by anyone", "can not be _ by anybody", "nobody can ever _ it", "no one can ever _ it",

        "no {flaw}", "not have any {flaw}", "has not any {flaw}", "without any {flaw}", "free of {flaw}", "free from {flaw}", "zero {flaw}", "nothing to fear", "nothing bad can", "whatever happens", "come what may", "no matter what", "always and everywhere", "is always safe", "are always safe", "will always be safe", "lets you down", "let you down", "can never {fail}", "will never {fail}", "could never {fail}", "can not {fail}", "cannot {fail}", "can not possibly {fail}", "cannot possibly {fail}", "{fail} is impossible", "works always", "works under all", "works for all", "works with all", "on every machine", "in every country", "for every patient", "for everyone alike", "the perfect solution", "a perfect solution", "the perfect answer", "a complete cure", "rules out every", "rules out any", "eliminates every", "eliminates all", "removes every", "removes all risk", "excludes every", "prevents all", "protects against everything", "protects from everything", "protects against every", "guards against everything", "no room for error", "never any problem~", "never a problem",
        "{utter} {sure}", "100 % {sure}", "hundred percent {sure}", "hundred per cent {sure}", "{cope} with everything", "{cope} with anything", "{cope} with every _", "{cope} with all _", "{cope} everything", "{cope} anything", "{cope} every problem", "failure is impossible", "errors are impossible", "impossible to break", "impossible to hack", "impossible to get wrong", "no failure is possible", "no error is possible", "without limits", "without limitation", "no restrictions", "no known problems", "suits everyone", "suits everybody", "suits every", "for every purpose", "fits every", "no possible failure", "immune to", "nothing stands in the way", "there is no scenario", "no scenario", "no situation in which", "no case in which", "without fail", "never go~ wrong", "not a single weakness", "no weak spots", "no weak spot", "airtight", "watertight guarantee",        "nothing can go wrong", "nothing will go wrong", "nothing could go wrong", "nothing can fail", "nothing can happen", "can not go wrong", "cannot go wrong", "can not fail", "cannot fail", "no weakness~", "no weak points", "no limitation~", "no drawback~", "no downside~",
        "no disadvantage~", "no side effects", "no risk", "no risks", "zero risk", "risk free", "without risk", "without any risk", "no danger", "foolproof", "fool proof", "bulletproof", "works in every case", "works in all cases",
        "works in any case", "works for everyone", "works everywhere", "works for everybody", "in all circumstances", "in every situation", "in any situation", "in every conceivable", "perfectly safe", "completely safe", "absolutely safe", "totally safe", "entirely safe", "100 % safe", "100 % reliable",
        "100 % secure", "completely secure", "totally secure", "perfectly secure", "absolutely secure", "unhackable", "unbreakable", "unsinkable", "infallible", "flawless", "no flaw~", "no bugs", "bug free", "guaranteed to work", "guarantees success", "guaranteed success",
        "can not be hacked", "cannot be hacked", "can not be broken", "cannot be broken", "no possible problem", "no conceivable", "no limits", "no shortcoming~", "no caveats", "no exceptions whatsoever", "has no gaps", "no way to fail", "no way it can fail", "every possible case", "covers everything",
    ]).says("limits are denied", "say where it does not hold, or what was not tried"),
    violation(Law::Governance, "gut_decision", 100, 500).phrases(Rule::Phrases, &[
        "sounded about right", "seemed about right", "felt about right", "looked about right", "for no good reason", "for no obvious reason",

        "felt like it", "seemed nice", "seemed nicer", "seemed like fun", "sounded nice", "sounded right", "sounds nice", "looked nice", "looked pretty", "looked prettier", "looks prettier", "looked cool", "looks cool", "prettier", "coolest", "nicest", "pretty logo", "a nice logo", "nice website", "we fancied", "i fancied", "rolled a die", "rolled dice", "rolled the dice", "nobody remembers why", "no one remembers why", "no one knows why", "nobody knows why", "not sure why", "can not say why", "cannot say why", "for whatever reason", "for some reason", "a blind guess", "spur of the moment", "the boss likes", "the boss wanted", "the boss said", "his favourite", "her favourite", "my favourite", "our favourite", "his favorite", "her favorite", "my favorite", "our favorite", "done it that way", "done it this way", "it is tradition", "tradition says", "by rule of thumb", "without giving a reason", "without giving reasons", "without further reason", "without stating why", "without saying why", "no reason was given", "gave no reason", "no reasons were given", "a sudden idea", "a mere feeling", "sheer habit", "by habit", "old habits", "first one we saw", "first one that", "the first name on", "happened to be", "hoped for the best", "in a hurry", "on a dare",
        "because _ like~", "because _ love~", "because _ _ like~", "because _ _ love~", "because _ felt like", "because it sounds", "because it sounded", "because it looks", "because it looked", "because it feels", "because it felt", "her gut", "his gut", "their gut", "the nicest name", "nicest colour", "first that came to mind", "came to mind first", "because why not", "had to start somewhere", "closed our eyes", "threw a dart", "lucky number", "took a fancy", "on impulse", "by intuition", "pure intuition", "intuition told", "intuition says", "my intuition", "our intuition", "a feeling that", "in a good mood", "simply wanted", "just wanted", "just felt", "simply felt", "just like~", "simply like~",        "gut feeling~", "gut feel", "gut instinct", "my gut", "our gut", "gut told", "on a hunch", "a hunch", "feels right", "felt right", "seemed right", "seems right", "feels good", "felt good about", "feel right", "for no particular reason", "for no reason", "for no special reason", "for no real reason", "without any reason",
        "without any criteria", "without criteria", "no criteria", "just because", "on a whim", "because we liked it", "because i liked it", "because we like it", "because they liked it", "because it looked nice", "because it looked nicer", "because it looked better", "because it looks nice", "liked the look", "liked the sound", "liked its name", "liked the name",
        "we just picked", "we just chose", "i just picked", "i just chose", "simply picked", "simply chose", "just picked", "just chose", "tossed a coin", "flipped a coin", "flip a coin", "toss a coin", "drew straws", "by instinct", "on instinct", "trusting our instinct~", "good feeling about", "bad feeling about", "had a feeling",
        "whoever shouts", "shouted loudest", "in the mood", "had to pick something", "took the first one", "picked the first one", "arbitrarily", "out of habit", "had a nice ring",
    ]).says("a decision is made without a criterion", "name the criterion and how the choices meet it"),
    once(Law::Governance, "scope", 50).phrases(Rule::Phrases, &[
        "applies to", "apply to", "applies only", "apply only", "only applies", "cover~", "not include", "not included", "excluded", "leaves out", "left out", "out of scope", "in scope", "limited to", "restricted to", "not count", "for _ only", "only for", "only when", "only if", "only in", "not affected", "as well",
    ]).says("the scope is stated", ""),
    once(Law::Governance, "assumption", 50).phrases(Rule::Phrases, &[
        "assume~ that", "assuming", "we assume", "i assume", "that assumption", "this assumption", "the assumption", "provided that", "given that", "suppose that", "taken as", "based on",
    ]).says("assumptions are stated", ""),
    once(Law::Governance, "check", 50).phrases(Rule::Phrases, &[
        "we {check}", "i {check}", "was {check}", "were {check}", "is {check}", "are {check}", "been {check}", "{check} against", "{check} with", "{check} by", "{check} that", "{check} the", "{check} both", "in the _ {check}", "in a {check} of", "{check} before", "{check} after", "the {check} ran", "counted",
    ]).says("checks are named", ""),
    once(Law::Governance, "criterion", 50).phrases(Rule::Phrases, &[
        "at least", "at most", "no more than", "less than", "more than", "exceeds", "the limit", "a limit", "threshold", "criteria", "criterion", "longer than", "larger than", "higher than", "older than", "under _ %", "stays under", "stays below", "must stay", "weighted", "means the", "counts as", "is above", "is below", "between", "until",
    ]).says("criteria are stated", ""),
    once(Law::Governance, "limit", 50).phrases(Rule::Phrases, &[
        "except", "unless", "limitation~", "caveat~", "drawback~", "depends on", "depend on", "not hold", "not rule", "says little", "say little", "misses", "overstates", "understates", "error of", "could lower", "could raise", "only _ copies", "smaller where", "can look like", "still _ refused", "disagree~", "not every", "not all", "not always", "in some cases", "up to",
    ]).says("limits are stated", ""),
    once(Law::Governance, "unverified", 50).phrases(Rule::Phrases, &[
        "not {check}", "not yet {check}", "not been {check}", "not yet been {check}", "unknown", "not known", "remains open", "remain open", "not recorded", "no data", "not know", "unclear", "not clear", "not been recorded", "not explain", "no record",
    ]).says("what was not verified is said", ""),
    // 3. Truth foundation
    violation(Law::Truth, "absolute_claim", 120, 500).phrases(Rule::PhrasesUnlessSupported, &[

        "no _ ever", "no _ _ ever", "none ever", "not one _ ever", "will never ever", "at no time does", "at no time do", "all people always", "every single _ always", "under all conditions", "in all cases", "without a single exception",        "without exception", "100 % of the time", "every single time", "in every case", "nobody ever", "no one ever", "can not possibly", "there is no way", "cannot possibly", "each and every time", "under no circumstances will", "for all eternity", "at all times and",
    ]).says(
        "an absolute claim (always, never or everyone in the present tense, or a phrase of the list) has no support",
        "give the evidence, or say how often and for whom it holds",
    ),
    violation(Law::Truth, "false_certainty", 120, 550).phrases(Rule::PhrasesUnlessSourced, &[
        "is without question", "are without question", "was without question",

        "once and for all", "the fact is", "the plain fact", "plain truth", "only a fool", "not up for debate", "not open to debate", "case closed", "end of story", "indubitably", "incontrovertible", "incontrovertibly", "100 % true", "hundred percent true", "guaranteed", "know for certain", "know for sure", "know for a fact", "no question about it", "make no mistake", "nothing is more certain", "absolutely no doubt", "leaves no doubt", "leave no doubt", "no room for doubt", "crystal clear that", "clear as day", "unmistakably", "unarguably", "inevitably", "the truth is", "is a certainty", "is an absolute", "can only mean", "can not be denied", "cannot be denied", "can not be disputed", "cannot be disputed", "needs no proof", "no proof is needed", "needs no evidence", "requires no proof", "is simply true", "is simply a fact", "is a fact", "is the truth", "are facts", "there is no other explanation", "the only possible explanation", "every child knows", "goes without any doubt", "bound to be", "as everyone can see", "has been settled", "is settled", "the matter is settled", "proves once", "proven beyond", "proved beyond", "is proof that", "no sane person", "no reasonable person", "every reasonable person",        "proven fact", "proved fact", "established fact", "undisputed fact", "it is a fact that", "simple fact", "scientifically proven", "clinically proven", "medically proven", "historically proven", "been proven beyond", "undoubtedly", "unquestionably", "undeniably", "indisputably", "incontestably", "without a doubt", "without doubt", "without any doubt", "no doubt that",
        "there is no doubt", "there can be no doubt", "no question that", "beyond doubt", "beyond any doubt", "beyond all doubt", "beyond question", "beyond dispute", "certainly", "definitely", "obviously", "it is clear that", "it is obvious that", "it is certain that", "self evident", "absolutely true", "absolutely certain", "irrefutable",
        "irrefutably", "indisputable", "undeniable", "unquestionable", "absolute truth", "absolute certainty", "100 % certain", "100 % sure", "completely certain", "completely sure", "absolutely sure", "we all agree", "nobody can deny", "no one can deny", "as is obvious", "any fool", "anyone can see", "everyone can see", "any sane person", "no serious person", "nobody disputes", "no one disputes", "surely",
    ]).says("certainty is asserted where evidence should stand", "give the source and date, or the measurement"),
    violation(Law::Truth, "unsourced_authority", 120, 500).phrases(Rule::PhrasesUnlessSourced, &[

        "it is agreed that", "there is wide agreement", "there is a consensus", "there is broad consensus", "the consensus is", "most people agree", "most people think", "most people say", "some people say", "many believe", "many people believe", "many people think", "word on the street", "a friend told", "someone told", "somebody told", "i heard", "i have heard", "we heard", "i read somewhere", "read somewhere", "reportedly", "allegedly", "rumours say", "rumors say", "as they say", "legend has it", "tests have shown", "tests show", "tests prove", "science is clear", "science is settled", "science tells", "evidence shows", "the evidence is overwhelming", "the literature shows", "numerous sources", "various sources", "well informed circles", "is said to", "are said to", "was said to", "it is claimed", "it is rumoured", "it is rumored", "internet says", "the internet", "on social media", "online forums", "on a forum", "in the know", "those who know", "{authority} around the world", "{authority} are unanimous", "{authority} are sure", "{authority} are certain", "{authority} are convinced", "{authority} are in agreement", "{authority} from all over", "{authority} also {say}", "{authority} often {say}", "{authority} usually {say}", "{authority} know that", "leading {authority}", "top {authority}", "many {authority}", "most {authority}", "several {authority}", "countless {authority}", "recent {authority}", "numerous {authority}", "new {authority} {say}", "independent {authority}",        "{authority} {say}", "{authority} have _? {say}", "{authority} has _? {say}", "{authority} all {say}", "{authority} widely {say}", "{authority} generally {say}", "{authority} everywhere {say}", "{authority} now {say}", "{authority} tell us", "{authority} tells us", "according to {authority}", "according to most", "according to many", "according to some", "according to _ {authority}",
        "many people say", "people say", "they say that", "it is said that", "it is often said", "it is well known", "it is widely known", "it is widely accepted", "it is generally accepted", "is widely regarded", "are widely regarded", "science says", "science has", "rumour has it", "rumor has it", "word has it", "some say", "many say", "sources say", "history shows", "history teaches",
        "everyone says", "as is well known", "is well known that", "it has been shown that", "it has long been known", "it is believed that", "it is common wisdom", "data prove~",
    ]).says("an authority is named that no reader can find", "name the study, person or document, and its date"),
    violation(Law::Truth, "unsupported_superlative", 100, 450).phrases(Rule::PhrasesUnlessSupported, &[

        "{superlative} _? _? of all", "{superlative} _? _? ever", "{superlative} _? _? you will", "{superlative} _? _? imaginable", "{superlative} _? _? there is", "state of the art", "best of breed", "unsurpassed", "unequalled", "unequaled", "peerless", "matchless", "trailblazing", "next level", "top notch", "top quality", "highest quality", "finest quality", "premium quality", "phenomenal", "mind blowing", "unbelievable", "amazing", "no other _ comes close", "no other _ _ comes close", "no other _ can match", "no other _ matches", "no rival", "no competitor", "without competition", "there is nothing better", "nothing better", "nothing is better", "not a better", "perfect in every", "the gold standard of", "a class of its own", "a league of its own", "leader in its field", "the undisputed", "undisputed leader", "the ultimate", "of unmatched", "of unrivalled", "once in a lifetime", "best choice for everyone", "the one and only", "legendary", "spectacular", "sensational", "breathtaking", "magnificent", "superb",
        "comes close", "come close to it", "has no equal", "have no equal", "without rival", "without peer", "outclasses", "beats all others", "beats every other", "better than any other", "better than anything", "better than all other", "nothing else compares", "nothing compares", "sets the standard", "unique in the world", "of its kind in the world", "leaves all others", "far ahead of everyone", "the envy of",        "world class", "best in class", "cutting edge", "bleeding edge", "revolutionary", "unparalleled", "unmatched", "unrivalled", "unrivaled", "second to none", "game changer", "game changing", "groundbreaking", "ground breaking", "industry leading", "market leading", "world leading", "world beating", "unbeatable", "incomparable", "unprecedented quality", "miracle", "miraculous", "like no other", "without equal", "in a class of its own",
        "{superlative} _? _? _? on the market", "{superlative} _? _? _? in the world", "{superlative} _? _? _? in the industry", "{superlative} _? _? _? of all time", "{superlative} _? _? _? ever made", "{superlative} _? _? _? ever built", "{superlative} _? _? _? ever written", "{superlative} _? _? _? money can buy", "{superlative} _? _? _? on earth", "{superlative} _? _? _? in history", "{superlative} _? _? _? you can buy", "{superlative} _? _? _? in the country", "{superlative} _? _? _? in the business", "{superlative} _? _? _? in existence", "{superlative} _? _? _? anywhere", "{superlative} _? _? _? available today",
        "by far the {superlative}", "the very best", "the absolute best", "simply the best", "number one choice", "puts all others to shame", "blows away the competition",
    ]).says("a superlative has no measure", "give the figure and what it was compared with"),
    violation(Law::Truth, "contradiction", 200, 650)
        .says("two statements of the text contradict each other", "decide which of the two holds and correct the other"),
    violation(Law::Truth, "context_conflict", 200, 650)
        .says("a statement contradicts the context", "correct the statement, or say why the context no longer holds"),
    violation(Law::Truth, "stacked_hedges", 80, 350).phrases(Rule::PhrasesUnlessNumber, &[
        "{hedge} {hedge}", "{hedge} _ {hedge}", "{hedge} or {hedge}", "may possibly", "might possibly", "may perhaps", "might perhaps", "might maybe", "may maybe", "could maybe", "could perhaps possibly", "could conceivably", "might conceivably", "may conceivably", "may or may not", "might or might not", "could perhaps", "perhaps _ {soft}", "maybe _ {soft}", "possibly _ {soft}", "might potentially", "may potentially", "seems _? maybe", "seems _? possibly", "perhaps _ _ {soft}", "maybe _ _ {soft}",
    ]).says("hedges are stacked without a number", "say how likely it is, or in how many cases"),
    share(Law::Truth, "supported", 1, 250)
        .says("claims carry a source, a number with its unit, a date, a quotation or a reason", ""),
    share(Law::Truth, "sourced", 4, 50).phrases(Rule::Phrases, &[
        "according to", "as reported", "reported by", "published in", "published by", "was published", "measured by", "measured with", "measured at", "recorded by", "as set by", "stated in", "states so", "wrote in", "writes of", "in the report", "in the minutes", "diary of", "the census", "in a review of", "a survey of", "in table", "in figure", "see section", "in the _ test", "release notes", "et al", "doi", "in the archive", "books show", "shown in",
    ]).says("sources are named", ""),
    // 4. Energy stewardship
    violation(Law::Energy, "repetition", 150, 600)
        .says("a sentence says again what an earlier one said", "say it once"),
    violation(Law::Energy, "padding", 100, 450).phrases(Rule::Phrases, &[
        "it is _? worth {noting}", "it is _? worth pointing out", "it is the case that", "it was the case that",

        "i just wanted to", "i just want to", "hope this email finds you", "hope this finds you", "hope this message finds you", "please be advised", "please be informed", "kindly be informed", "kindly note", "in a timely fashion", "in the not too distant", "for a period of", "in an effort to", "on account of the fact", "regardless of the fact", "the question as to whether", "it would appear that", "it would seem that", "it can be seen that", "it is evident that", "it is apparent that", "it is understood that", "what this means is", "the point is that", "the point i am making", "needless to add", "not to mention", "believe it or not", "as luck would have it", "strange as it may seem", "after all is said", "at this juncture", "at this stage in time", "going forward", "moving forward", "circle back", "now more than ever", "in the world of today", "in the world we live in", "day in and day out", "each and all", "over the course of time", "as you can imagine", "i must say that", "i have to say that", "i have to admit that", "i dare say", "if i may say so", "if i may", "let it be said", "mark my words", "one could say that", "one might say that", "one may say that", "you could say that", "it could be said", "as it were", "as a rule of thumb", "so on and so forth", "and so on and so forth", "generally speaking", "broadly speaking", "strictly speaking", "honestly speaking", "frankly speaking", "in all honesty", "to be frank", "to be fair", "to be sure", "to be clear", "just to be clear", "for your information", "as a side note", "on a side note", "by the way", "as an aside", "incidentally", "with that in mind", "with this in mind", "bearing that in mind", "in light of this", "in this regard", "in this respect", "in that regard", "as far as that goes", "it is no secret that", "it is no surprise that", "it comes as no surprise", "as it turns out", "as it happens", "when push comes to shove", "the fact remains that", "at any rate", "in a sense", "in some sense", "to a certain extent", "to some extent", "in the same way as before mentioned",
        "it should _? be {noted}", "it must _? be {noted}", "it has to be {noted}", "it can be {noted}", "it may be {noted}", "it is _? _? _? {worthy} to _? _? {note}", "it is {worthy} {noting}", "as you _? _? {imagine}", "as already {noted}", "as {noted} above", "as {noted} before", "as {noted} earlier", "as {noted} previously", "as previously {noted}", "as _ have {noted}", "as was {noted}", "as has been {noted}", "i want to {note} that", "i would like to {note}", "we would like to {note}", "we want to {note} that", "let me {note} that", "let us not forget", "not forget that", "one should not forget", "it need~ hardly be {noted}", "it hardly needs to be", "goes without saying", "of course it goes", "what is more is that", "the long and the short of it", "if truth be told", "in the interest of completeness", "for the sake of completeness", "as a general rule of thumb", "all in all", "when you think about it", "if you think about it", "to put it simply", "to put it bluntly", "simply put", "at its core", "in today's world", "in today's fast", "in our modern world", "since time immemorial", "since the dawn of", "as the case may be", "in and of itself", "for the most part it can", "on the whole it can",        "it is important to note", "it is important to mention", "it is important to remember that", "it is important to understand that", "it is worth noting", "it is worth mentioning", "it should be noted", "it must be noted", "it is interesting to note", "it bears mentioning", "needless to say", "it goes without saying", "at the end of the day", "when all is said and done", "due to the fact", "in light of the fact", "owing to the fact", "despite the fact that", "in spite of the fact", "in view of the fact", "by virtue of the fact", "because of the fact", "given the fact that",
        "the fact of the matter", "as a matter of fact", "for all intents and purposes", "to all intents and purposes", "in today's", "at this point in time", "at the present time", "at the present moment", "at this moment in time", "in this day and age", "in the event that", "for the purpose of", "the reason why is", "the reason is because", "first and foremost", "last but not least", "each and every", "any and all", "in a very real sense",
        "as previously mentioned", "as mentioned above", "as mentioned before", "as mentioned earlier", "as already mentioned", "as i said before", "as stated before", "as stated above", "as has been said", "let me begin by", "let me start by", "take this opportunity", "i am writing to inform you", "i am writing this email to", "come to my attention", "come to our attention", "in the process of", "has the ability to", "have the ability to", "has the capability to", "interestingly enough", "to be honest", "to be perfectly honest", "to tell the truth", "to tell you the truth", "truth be told",
        "in my humble opinion", "as you may know", "as you may be aware", "as you are no doubt aware", "all things considered", "in the final analysis", "when it comes to", "the thing is", "what i mean is", "what i am trying to say", "in a manner of speaking", "so to speak", "if you will", "on a daily basis", "on a weekly basis", "on a monthly basis", "on a yearly basis", "on an annual basis", "until such time as", "there is no denying", "that being said", "having said that", "be that as it may",
        "without further ado", "allow me to", "i would like to point out", "i would like to mention", "i would like to say", "it must be said", "it may be said that", "it can be said that", "for what it is worth", "in actual fact", "in point of fact", "the simple fact is", "it is what it is", "time and time again", "over and over again", "in the grand scheme", "with all due respect", "in a nutshell", "long story short", "to make a long story short", "in other words", "to put it another way", "more often than not", "in one way or another", "the bottom line is", "in the first place", "with respect to the matter of", "in the context of the fact",
        "it is a well known fact", "as far as _ is concerned", "as far as _ _ is concerned", "at the risk of repeating", "i think it is fair to say", "it is fair to say", "in the course of time", "a wide range of different", "in essence", "it is safe to say", "suffice it to say", "suffice to say",
    ]).says("words that carry nothing", "leave them out"),
    violation(Law::Energy, "redundant_pair", 100, 400).phrases(Rule::Phrases, &[

        "{shaped} in {measured}", "completely surrounded", "entirely eliminated", "totally destroy~", "totally eliminate~", "rejoin~ again", "resume~ again", "restart~ again", "reopen~ again", "return~ again", "past tradition~", "end conclusion", "invited guest~", "free complimentary", "complimentary gift~", "cash money", "roughly estimated", "estimated roughly", "approximately about", "about approximately", "roughly about", "around about", "about roughly", "nearly almost", "almost nearly", "equally as", "so therefore", "thus therefore", "therefore consequently", "and therefore consequently", "but nevertheless", "close nearby", "near vicinity", "nearby vicinity", "crisis situation~", "emergency situation~", "final last", "last final", "first initial", "initial first", "very first beginning", "final ending", "final finish", "basic foundation~", "essential necessity", "essential requirement~", "unnecessary and not needed", "fully and completely", "completely and utterly", "totally and completely", "completely and totally", "whole and entire", "full and complete", "plain and simple", "various and sundry", "goals and objectives", "aims and objectives", "hopes and dreams", "first and only", "one and the same", "return journey back", "repeat~ once more", "copy~ again twice", "merge~ into one", "unite~ together", "blend~ together", "attach~ together", "fuse~ together", "group~ together", "collect~ together", "link~ together", "bond~ together", "pair~ together", "add~ an additional", "add~ additional", "additional extra", "extra additional", "also additionally", "in addition also", "also in addition", "again repeat~", "once again repeat~", "reduce~ down", "lower~ down", "raise~ up", "increase~ up", "enter~ in", "exit~ out", "eject~ out", "export~ out", "import~ in", "delete~ away", "erase~ away", "vacillate back and forth", "previously used before", "already previously", "previously already", "before previously", "ever before previously", "never ever", "warn~ in advance", "predict~ in advance", "forecast in advance", "prepare~ in advance", "pre book~", "future to come", "coming future", "past gone", "dry desert", "wet water", "frozen ice", "burning fire", "true reality", "real reality", "actual reality", "real truth", "actual truth", "general consensus", "widespread consensus", "overall consensus", "common consensus", "complete monopoly", "total monopoly", "completely dead", "completely impossible", "absolutely unique", "truly unique", "quite unique", "rather unique", "more unique", "more perfect", "most perfect", "utterly unique", "completely identical", "exactly identical", "exactly the same identical", "totally identical",        "end result~", "final outcome~", "final result of", "past history", "previous history", "prior history", "future plans", "future prospects", "future forecast~", "past precedent~", "free gift~", "added bonus", "additional bonus", "advance planning", "advance preparation", "basic fundamentals", "basic essentials", "close proximity", "completely eliminate~", "completely finished", "completely destroy~", "completely unanimous", "totally unanimous",
        "unexpected surprise~", "revert~ back", "return~ back", "repeat~ again", "reply~ back", "refer~ back", "restore~ back", "absolutely essential", "absolutely necessary", "actual fact~", "true fact~", "collaborat~ together", "cooperat~ together", "combine~ together", "merge~ together", "join~ together", "connect~ together", "gather~ together", "assemble~ together", "share~ together", "meet~ together", "met together", "consensus of opinion", "exact same", "final conclusion~", "first began", "first started", "few in number", "many in number",
        "foreign imports", "new innovation~", "new invention~", "old adage", "over exaggerate~", "past experience~", "past memories", "past achievements", "personal opinion", "plan~ in advance", "postpone~ until later", "round in shape", "square in shape", "red in colour", "red in color", "green in colour", "green in color", "blue in colour", "blue in color", "small in size", "large in size", "big in size", "heavy in weight", "tall in height", "short in length", "same identical", "identical same", "still remain~", "sum total", "surrounded on all sides", "unintentional mistake~", "usual custom",
        "various different", "atm machine~", "pin number~", "lcd display~", "hiv virus", "isbn number", "12 noon", "12 midnight", "twelve noon", "very unique", "most unique", "completely unique", "totally unique", "ascend~ up", "descend~ down", "circle~ around", "tiny little", "whole entire", "entire whole", "mutual cooperation", "joint collaboration", "joint cooperation", "final end", "final completion", "initial start", "necessary requirement~", "necessary prerequisite~", "required prerequisite~", "empty void", "natural instinct",
        "sink~ down", "shrink~ down", "enclosed herein", "continue~ to remain", "proceed~ forward", "proceed~ ahead", "progress~ forward", "advance~ forward", "retreat~ back", "reason is because", "protrude~ out", "period of time", "point in time", "brief moment", "evolve~ over time", "eliminate~ altogether", "eliminate~ entirely", "eradicate~ completely", "current status quo", "depreciate~ in value", "hurry up quickly", "introduce~ for the first time", "kneel~ down", "pre plan~", "reiterate~ again", "sudden impulse", "visible to the eye", "both of them together", "but however", "yet however", "if and when", "null and void", "true and correct",
    ]).says("two words say the same", "keep one of the two"),
    violation(Law::Energy, "doubled_word", 80, 350).says("a word stands twice in a row", "strike one"),
    violation(Law::Energy, "filler", 80, 350).says(
        "three or more fillers in a sentence, or two in a row",
        "strike the fillers, or put a number in their place",
    ),
    violation(Law::Energy, "marker_run", 150, 500).says(
        "five or more words of approval in a row; a row of them shows nothing and gains nothing",
        "say once what was done, and how",
    ),
    // 5. Deterministic reliability
    violation(Law::Determinism, "vague_quantity", 120, 500).phrases(Rule::PhrasesWhereNeeded, &[

        "for hours", "for days", "for weeks", "for minutes", "for ages", "a great deal", "by a lot", "a fair bit", "quite a bit", "quite a lot", "several times", "many times", "a few times", "a couple", "half full or so", "a splash", "a dollop", "a touch of", "a drop of", "a drop or two", "one or two", "two or three", "three or four", "a day or two", "a week or two", "an hour or two", "a minute or two", "a day or so", "an hour or so", "every now and again", "every so _", "now and again", "at times", "at intervals", "in a bit", "in a moment", "in a minute or", "some more", "a few more", "a bit more", "a little more", "much more", "much less", "a lot more", "a lot less", "far more", "far less", "rather high", "rather low", "quite high", "quite low", "very high", "very low", "very hot", "very long", "very short", "really hot", "somewhat _", "slightly _", "medium _", "good and hot", "nice and hot", "nice and", "reasonably _", "sufficiently _", "adequately _", "well enough", "often enough", "soon enough", "fast enough", "hard enough", "tight enough", "deep enough", "for the usual time", "the usual amount", "the usual time", "the usual dose", "the normal amount", "an appropriate _", "a suitable _", "a sensible _", "a decent _", "a proper _",
        "for a bit", "a bit _", "a little _", "a little", "not too long", "not very long", "a good amount", "a good deal", "plenty of", "loads of", "tons of", "a small amount", "as long as needed", "as often as needed", "as often as necessary", "as much as needed", "as much as you can", "whenever needed", "when needed", "when necessary", "where necessary", "if necessary", "for long enough", "every few _", "once in a while", "for as long as", "quite a few", "the odd _", "a fair amount", "a generous _", "next to no", "at regular intervals", "at short intervals", "in good time", "before long", "later on", "as soon as convenient",        "as needed", "as appropriate", "as necessary", "from time to time", "now and then", "every so often", "every now and then", "every once in a while", "on a regular basis", "long enough", "in a timely manner", "in due course", "at some point", "for a while", "for some time", "after a while", "in a while", "after some time", "a bit of", "a little of", "a little bit", "a lot of", "a lot", "a couple of", "a handful", "a number of", "a pinch", "a dash", "not too _", "fairly _", "close to the", "high enough", "low enough", "hot enough", "warm enough", "strong enough", "big enough", "large enough", "small amount~", "large amount~", "right amount", "good amount", "certain amount", "a moderate", "moderate~", "until ready", "some of", "a short time", "a long time", "a moment", "a good while", "large number", "small number",
    ]).says(
        "an instruction, or a change, has a vague quantity and no number",
        "give the number and its unit",
    ),
    violation(Law::Determinism, "undefined_acronym", 80, 350)
        .says("an acronym is not explained", "write it out where it first stands, with the acronym in brackets"),
    violation(Law::Determinism, "conflicting_value", 150, 550)
        .says("one quantity has two values", "keep the value that holds, or say when each holds"),
    violation(Law::Determinism, "coin_toss", 100, 450).phrases(Rule::Phrases, &[

        "someone should", "someone must", "someone needs to", "someone has to", "someone will", "somebody should", "somebody must", "somebody needs to", "somebody has to", "somebody will", "one of you should", "one of us should", "one of them should", "whoever has time", "whoever is free", "whoever is around", "whoever feels", "whoever wants", "if you have time", "if there is time", "when there is time", "do your best", "mix and match", "as desired", "if desired", "to your liking", "to your taste", "you decide", "your choice", "your call", "your own judgment", "your own discretion", "at random", "in random order", "in arbitrary order", "an arbitrary", "any order you", "any value you", "any number you", "a value of your choice", "of your choice", "of your choosing", "of your liking", "either way is fine", "both are fine", "both will do", "both ways work", "one or the other", "this or that", "these or those", "some value", "some number or other", "or not at all", "or leave it", "now or later", "today or later", "tomorrow or later", "and hope", "and see what happens", "see what happens", "see how it goes", "see if it works", "see if that helps", "play with the", "play around with", "fiddle with", "tinker with", "experiment with", "tweak~ _ until", "tweak~ it", "adjust~ it until", "adjust~ _ _ until", "until you feel", "until everyone is happy", "until nobody complains", "until somebody complains", "until it seems fine", "until it is fine", "until it is good", "until it is right", "until things look", "when it looks right", "when it looks good", "when it is right", "when the time is right", "when the moment is right", "when you see fit", "where you see fit", "unless you feel", "if it suits", "as it suits", "as suits you", "what feels right", "what seems right", "what looks right", "what you think", "what you like", "something around", "something near", "somewhere around", "somewhere near", "somewhere between", "somewhere in the", "around there",
        "as _ {whim}", "whatever _ {whim}", "whichever _ {whim}", "however _ {whim}", "wherever _ {whim}", "whenever _ {whim}", "if _ feel~ like", "as _ see~ fit", "or something similar", "or something of the sort", "or the like", "or similar", "or anything else", "or anything similar", "whichever comes to mind", "whichever is handy", "whichever is closest", "whatever is at hand", "whatever is handy", "whatever is around", "whatever you have", "with whatever", "in some way", "some way or other", "by guesswork", "by chance", "at will", "a rough guess", "by guess", "as it comes", "as luck", "roughly like", "kind of like", "sort of like", "it does not matter which", "does not matter much", "if you think it", "when you think it", "when it seems", "if it seems", "if it feels", "when it feels", "once it seems", "once it looks", "once it feels",        "or something", "something like that", "or whatever", "whatever works", "whatever you like", "whatever you prefer", "whatever you want", "whatever seems", "whatever feels", "whatever looks", "whichever you like", "whichever you prefer", "whichever seems", "whichever looks", "whichever feels", "as you like", "as you wish", "as you please", "as you see fit", "as they see fit", "as he sees fit", "as she sees fit", "as one sees fit", "if you feel like", "when you feel like", "whenever you feel like", "use your judgment", "use your judgement", "use your own judgment", "use your own judgement", "use your best judgment", "use your best judgement", "use your discretion", "use your intuition", "use your own",
        "at your discretion", "common sense", "somehow", "one way or another", "one way or the other", "or so", "or thereabouts", "any of them will do", "either will do", "either is fine", "either one is fine", "either works", "either one works", "any will do", "anything will do", "or maybe", "or perhaps", "maybe try", "perhaps try", "try something", "until it works", "until it looks right", "until it looks good", "until it feels", "until it seems", "until it looks", "until satisfied", "until you are happy", "until you are satisfied", "depending on your mood", "up to you",
        "more or less", "roughly in that order", "in any order you", "in no particular order", "play it by ear", "play by ear", "wing it", "improvise", "eyeball~", "by eye", "by feel", "trial and error", "hope for the best", "cross your fingers", "fingers crossed", "with luck", "with a bit of luck", "with any luck", "when convenient", "at a convenient time", "whenever you have time", "when you have time", "whenever convenient", "sooner or later", "one of these days", "you could try", "pick whichever", "choose whichever", "take whichever", "pick any", "choose any", "take your pick", "pick one", "guess the", "guess a", "make something up", "a guess", "best guess", "if you remember", "if in the mood", "as the mood", "in whatever order", "in any order",
    ]).says("an instruction or value leaves the outcome to chance or taste", "say which, when and how"),
    violation(Law::Determinism, "missing_unit", 100, 400)
        .says("a quantity has a number but no unit", "add the unit"),
    share(Law::Determinism, "exact", 2, 200).says("values are exact and have units", ""),
];

/// The place of a feature in [`FEATURES`]; a kind that is not there fails the build.
pub(crate) const fn index_of(kind: &str) -> usize {
    let mut index = 0;
    while !same(FEATURES[index].kind.as_bytes(), kind.as_bytes()) {
        index += 1;
    }
    index
}

const fn same(a: &[u8], b: &[u8]) -> bool {
    let mut index = 0;
    while index < a.len() && index < b.len() && a[index] == b[index] {
        index += 1;
    }
    index == a.len() && index == b.len()
}

/// The bits of a law's violations in a set of features.
pub(crate) fn violations_of(law: Law) -> u64 {
    VIOLATIONS_OF[law as usize]
}

const VIOLATIONS_OF: [u64; 5] = [
    collect_violations(Law::Architecture),
    collect_violations(Law::Governance),
    collect_violations(Law::Truth),
    collect_violations(Law::Energy),
    collect_violations(Law::Determinism),
];

/// The bits of all violations.
pub(crate) const VIOLATIONS: u64 = {
    let [first, second, third, fourth, fifth] = VIOLATIONS_OF;
    first | second | third | fourth | fifth
};

const fn collect_violations(law: Law) -> u64 {
    let (mut index, mut set) = (0, 0);
    while index < FEATURES.len() {
        if FEATURES[index].law as u8 == law as u8 && matches!(FEATURES[index].effect, Effect::Violation) {
            set |= 1 << index;
        }
        index += 1;
    }
    set
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = include_str!("../../../man/man7/ken-laws.7");

    /// The page without line breaks, so that a phrase may stand across two lines.
    fn page() -> String {
        PAGE.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    fn percent(tenths: i32) -> String {
        format!("{}.{}", tenths / 10, tenths % 10)
    }

    #[test]
    fn the_page_has_every_feature_with_its_weight_and_cap() {
        let page = page();
        for feature in FEATURES {
            let row = match feature.effect {
                Effect::Violation => {
                    format!("weight {}, cap {}", percent(feature.weight), percent(feature.cap))
                }
                Effect::Share => format!("factor {}, cap {}", feature.weight, percent(feature.cap)),
                Effect::Once => format!("cap {}", percent(feature.cap)),
            };
            let row = format!(".It Sy {} Pq {row} {}", feature.kind, feature.says);
            assert!(page.contains(&row), "ken-laws(7) lacks {row}");
        }
        assert_eq!(
            page.matches(".It Sy ").count(),
            FEATURES.len(),
            "ken-laws(7) has features that the table lacks"
        );
    }

    #[test]
    fn the_page_has_every_phrase_and_word_list() {
        let page = page();
        for feature in FEATURES.iter().filter(|feature| !feature.phrases.is_empty()) {
            let list = format!(".It Ic {} {}. ", feature.kind, feature.phrases.join("; "));
            assert!(
                page.contains(&list),
                "ken-laws(7) lacks the phrases of {}: {list}",
                feature.kind
            );
        }
        for list in WORD_LISTS {
            let words: Vec<&str> = list.words.split_whitespace().collect();
            let list = format!(".It Va {} {}. ", list.name, words.join(" "));
            assert!(page.contains(&list), "ken-laws(7) lacks the list {list}");
        }
    }

    #[test]
    fn the_page_has_laws_and_bars() {
        let page = page();
        for row in &LAWS {
            let row = format!(".It {} Ta {} % Ta {}", row.title, row.share, percent(row.base));
            assert!(page.contains(&row), "ken-laws(7) lacks {row}");
        }
        for bar in &BARS {
            let row = format!(
                ".It {} Ta {} Ta {} Ta {}",
                bar.name,
                bar.pass / 10,
                bar.conditional / 10,
                bar.each_law / 10
            );
            assert!(page.contains(&row), "ken-laws(7) lacks {row}");
        }
        assert_eq!(LAWS.iter().map(|row| row.share).sum::<u32>(), 100);
    }

    #[test]
    fn the_table_is_sound() {
        assert!(FEATURES.len() <= 60, "a set of features is 64 bits");
        for feature in FEATURES {
            assert!(
                !feature.says.is_empty() && feature.cap > 0 && feature.weight <= feature.cap,
                "{}",
                feature.kind
            );
            assert_eq!(
                feature.effect == Effect::Violation,
                !feature.advice.is_empty(),
                "{}",
                feature.kind
            );
            assert!(
                feature.rule != Rule::Phrases || !feature.phrases.is_empty(),
                "{}",
                feature.kind
            );
            for phrase in feature.phrases {
                assert!(
                    !phrase.starts_with('_')
                        && phrase.split(' ').count() <= 10
                        && phrase.matches('?').count() <= 5,
                    "{phrase}"
                );
                for name in phrase.split(['{', '}']).skip(1).step_by(2) {
                    assert!(WORD_LISTS.iter().any(|list| list.name == name), "{phrase}");
                }
            }
        }
    }
}
