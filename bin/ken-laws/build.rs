//! Turns `share/laws/*.txt` into tables at build time, so that the program has nothing to parse when it starts: a hash
//! table of word classes and verbs, the phrases by the words that they can start with, and the features of the rubric.

#[path = "src/hash.rs"]
#[allow(dead_code)] // the other functions are used by the program
mod hash;

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use hash::{bit_of, hash, key_of, tag_of};

type Outcome<T> = Result<T, Box<dyn Error>>;

#[derive(Default, Clone)]
struct Word {
    classes: u128,
    /// The word whose stem it shares, if this is not evident from its spelling: "run" for "ran".
    base: Option<String>,
    /// The value of a numeral or ordinal, or the number of a pair of opposites.
    value: u16,
    /// Phrases that can start with it.
    phrases: BTreeSet<usize>,
}

#[derive(Default)]
struct Lexicon {
    /// The names of the classes. The position of a class is the number of its bit.
    classes: Vec<String>,
    words: BTreeMap<String, Word>,
    /// Rust source of each phrase.
    phrases: Vec<String>,
    /// For each phrase, the bits of the words that can be second, and those of all required words near its beginning.
    following: Vec<(u64, u64)>,
}

/// How far from its start the required words of a phrase are looked for.
const NEAR: usize = 5;

/// Classes that words get from the lists of verbs and opposites.
const VERB_CLASSES: [&str; 6] = ["verb_base", "verb_s", "verb_past", "verb_ing", "opposite", "flipped"];

fn main() -> Outcome<()> {
    let folder = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("../../share/laws");
    println!("cargo::rerun-if-changed={}", folder.display());
    println!("cargo::rerun-if-changed=src/hash.rs");
    let mut lexicon = Lexicon::default();
    lexicon.read_classes(&lines(&folder, "classes.txt")?)?;
    lexicon.read_verbs(&lines(&folder, "verbs.txt")?)?;
    lexicon.read_opposites(&opposites(&folder)?)?;
    let features = Features::read(&lines(&folder, "features.txt")?)?;
    lexicon.read_phrases(&lines(&folder, "phrases.txt")?, &features)?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("topics.rs"), topics(&fs::read(folder.join("topics.bin"))?)?)?;
    fs::write(out.join("lexicon.rs"), lexicon.source()?)?;
    fs::write(out.join("features.rs"), features.source)?;
    Ok(())
}

/// The lines of a file, without comments.
fn lines(folder: &Path, name: &str) -> Outcome<Vec<String>> {
    let text = fs::read_to_string(folder.join(name)).map_err(|error| format!("{name}: {error}"))?;
    Ok(text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).map(str::to_owned).collect())
}

/// The pairs that cannot both hold in one text: those above the third heading.
fn opposites(folder: &Path) -> Outcome<Vec<String>> {
    let text = fs::read_to_string(folder.join("opposites.txt")).map_err(|error| format!("opposites.txt: {error}"))?;
    let pairs = text.lines().take_while(|line| !line.starts_with("# Outcomes"));
    Ok(pairs.filter(|line| !line.starts_with('#')).map(str::to_owned).collect())
}

impl Lexicon {
    fn word(&mut self, word: &str) -> &mut Word {
        self.words.entry(word.to_owned()).or_default()
    }

    fn class(&self, name: &str) -> Outcome<u128> {
        let place = self.classes.iter().position(|class| class == name);
        Ok(1 << place.ok_or_else(|| format!("no class {name} in classes.txt"))?)
    }

    fn put(&mut self, word: &str, class: &str) -> Outcome<()> {
        let class = self.class(class)?;
        self.word(word).classes |= class;
        Ok(())
    }

    /// Reads lines of the form `name word word=value …`.
    fn read_classes(&mut self, lines: &[String]) -> Outcome<()> {
        let names = lines.iter().filter_map(|line| line.split(' ').next());
        self.classes = names.chain(VERB_CLASSES).map(str::to_owned).collect();
        if self.classes.len() > 128 {
            return Err("classes.txt: a set of classes has 128 bits".into());
        }
        for line in lines {
            let (name, words) = line.split_once(' ').ok_or("classes.txt: a class without words")?;
            for word in words.split_whitespace() {
                let (word, value) = word.split_once('=').unwrap_or((word, "0"));
                self.put(word, name)?;
                let value = value.parse()?;
                if value > 0 {
                    self.word(word).value = value;
                }
            }
        }
        Ok(())
    }

    /// Reads lines with the base form of a verb, or with base form, third person, past and participle.
    fn read_verbs(&mut self, lines: &[String]) -> Outcome<()> {
        for line in lines {
            match line.split(' ').collect::<Vec<_>>().as_slice() {
                [base] => self.put_forms(base, true)?,
                [base, third, past, participle] => {
                    self.put_forms(base, false)?;
                    for (form, class) in [(third, "verb_s"), (past, "verb_past"), (participle, "verb_past")] {
                        self.put(form, class)?;
                        self.word(form).base = Some((*base).to_owned());
                    }
                }
                _ => return Err(format!("verbs.txt: {line}: one form or four").into()),
            }
        }
        Ok(())
    }

    /// Adds the forms of a verb by the rules of spelling; `+` after a base form doubles its last letter.
    fn put_forms(&mut self, base: &str, regular: bool) -> Outcome<()> {
        let (base, doubles) = base.strip_suffix('+').map_or((base, false), |base| (base, true));
        self.put(base, "verb_base")?;
        for (form, class) in forms(base, doubles).into_iter().filter(|(_, class)| regular || *class == "verb_ing") {
            self.put(&form, class)?;
            self.word(&form).base.get_or_insert_with(|| base.to_owned());
        }
        Ok(())
    }

    /// Numbers the pairs of opposites. A word gets the number of the first pair that contains it, and so do the words of
    /// later pairs with it.
    fn read_opposites(&mut self, lines: &[String]) -> Outcome<()> {
        let (opposite, flipped) = (self.class("opposite")?, self.class("flipped")?);
        for (pair, line) in lines.iter().enumerate() {
            let (left, right) = line.split_once(' ').ok_or("opposites.txt: not a pair")?;
            let known = self.word(right).clone();
            let number = if known.classes & opposite != 0 { known.value } else { u16::try_from(pair)? };
            for (word, classes) in [(left, opposite), (right, opposite | flipped)] {
                let left = self.word(left).clone();
                let word = self.word(word);
                if word.classes & opposite == 0 {
                    word.classes |= classes;
                    word.value = if left.classes & opposite != 0 { left.value } else { number };
                }
            }
        }
        Ok(())
    }

    /// Reads lines of the form `law kind element element …`.
    fn read_phrases(&mut self, lines: &[String], features: &Features) -> Outcome<()> {
        for (number, line) in lines.iter().enumerate() {
            let wrong = |what: &str| format!("phrases.txt: {line}: {what}");
            let mut words = line.split(' ');
            let (law, kind) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            let feature = features.place(law, kind).ok_or_else(|| wrong("no such feature in features.txt"))?;
            let elements: Vec<&str> = words.collect();
            let optional = elements.iter().filter(|element| element.ends_with('?')).count();
            if elements.is_empty() || elements.len() > 10 || optional > 5 {
                return Err(wrong("a phrase has one to ten words, at most five of them optional").into());
            }
            self.start(elements.first().copied().unwrap_or_default(), number)
                .map_err(|error| wrong(&error.to_string()))?;
            self.following.push((self.second(elements.get(1).copied())?, needs(&elements)));
            let wants = elements.iter().map(|element| self.element(element)).collect::<Outcome<Vec<_>>>()?;
            self.phrases.push(format!("Phrase {{ feature: {feature}, elements: &[{}] }}", wants.join(", ")));
        }
        Ok(())
    }

    /// The bits of the words that a second element matches; all if there is none, or if words outside the lexicon match it too.
    fn second(&self, element: Option<&str>) -> Outcome<u64> {
        let bits = |set, word: &str| set | bit_of(hash(word.as_bytes()));
        Ok(match element {
            Some(element) if is_required(element) => bits(0, element),
            Some(element) if let Some(name) = class_of(element) => {
                self.members(name)?.iter().fold(0, |set, word| bits(set, word))
            }
            _ => u64::MAX,
        })
    }

    /// The words of a class.
    fn members(&self, name: &str) -> Outcome<Vec<String>> {
        let class = self.class(name)?;
        let members = self.words.iter().filter(|(_, word)| word.classes & class != 0);
        Ok(members.map(|(word, _)| word.clone()).collect())
    }

    /// Adds the phrase to the entry of each word that it can start with.
    fn start(&mut self, element: &str, number: usize) -> Outcome<()> {
        if element == "_" || element.ends_with('?') {
            return Err("the first word of a phrase is given".into());
        }
        let starts: Vec<String> = if let Some(name) = class_of(element) {
            self.members(name)?
        } else if let Some(base) = element.strip_suffix('~') {
            let stem = stem(base);
            let same = self.words.iter().filter(|(word, known)| stem_of(word, known) == stem);
            let spelled = forms(base, false).into_iter().map(|(form, _)| form);
            same.map(|(word, _)| word.clone()).chain(spelled).chain([base.to_owned()]).collect()
        } else {
            vec![element.to_owned()]
        };
        for start in starts {
            self.word(&start).phrases.insert(number);
        }
        Ok(())
    }

    fn element(&self, element: &str) -> Outcome<String> {
        let (element, optional) = element.strip_suffix('?').map_or((element, false), |element| (element, true));
        let want = self.want(element)?;
        Ok(format!("Element {{ want: {want}, optional: {optional} }}"))
    }

    fn want(&self, element: &str) -> Outcome<String> {
        let want = match (element, class_of(element), element.strip_suffix('~')) {
            ("_", ..) => "Any".to_owned(),
            (_, Some(name), _) => format!("Class({:#x})", self.class(name)?),
            (_, _, Some(base)) => format!("Stem({:#x})", hash(stem(base).as_bytes())),
            (word, ..) => format!("Word({:#x})", hash(word.as_bytes())),
        };
        Ok(format!("Want::{want}"))
    }

    fn source(&self) -> Outcome<String> {
        let mut text = String::new();
        for (place, class) in self.classes.iter().enumerate() {
            writeln!(text, "#[allow(dead_code)] pub(crate) const {}: u128 = 1 << {place};", class.to_uppercase())?;
        }
        writeln!(text, "/// The hash of each word.\n#[allow(dead_code)]\npub(crate) mod word {{")?;
        for word in self.words.keys().filter(|word| word.bytes().all(|byte| byte.is_ascii_lowercase())) {
            writeln!(text, "pub(crate) const {}: u64 = {:#x};", word.to_uppercase(), hash(word.as_bytes()))?;
        }
        writeln!(text, "}}")?;
        let size = (self.words.len() + self.words.len() / 2).next_power_of_two();
        let mut places = vec![None; size];
        let mut tags = vec![0; size];
        let mut starts: Vec<String> = Vec::new();
        for (word, known) in &self.words {
            let number = hash(word.as_bytes());
            let mut place = number as usize % size;
            while let Some(Some((other, _))) = places.get(place) {
                if *other == number {
                    return Err(format!("{word} has the hash of another word").into());
                }
                place = (place + 1) % size;
            }
            let entry = format!(
                "Entry {{ hash: {number:#x}, stem: {:#x}, classes: {:#x}, value: {}, starts: ({}, {}) }}",
                hash(stem_of(word, known).as_bytes()),
                known.classes,
                known.value,
                starts.len(),
                known.phrases.len(),
            );
            for phrase in &known.phrases {
                let (second, needs) = self.following.get(*phrase).copied().ok_or("a phrase without its words")?;
                starts.push(format!("Start {{ second: {second:#x}, needs: {needs:#x}, phrase: {phrase} }}"));
            }
            if let Some(free) = places.get_mut(place) {
                *free = Some((number, entry));
            }
            if let Some(tag) = tags.get_mut(place) {
                *tag = tag_of(number);
            }
        }
        writeln!(text, "/// How many of the next words are searched for those that a phrase requires.")?;
        writeln!(text, "pub(crate) const NEAR: usize = {NEAR};")?;
        writeln!(text, "static ENTRIES: [Entry; {size}] = [")?;
        for entry in places {
            writeln!(text, "{},", entry.map_or_else(|| "EMPTY".to_owned(), |(_, entry)| entry))?;
        }
        writeln!(text, "];\nstatic TAGS: [u8; {size}] = {tags:?};")?;
        writeln!(text, "static STARTS: [Start; {}] = [\n{}\n];", starts.len(), starts.join(",\n"))?;
        writeln!(text, "static PHRASES: [Phrase; {}] = [\n{}\n];", self.phrases.len(), self.phrases.join(",\n"))?;
        Ok(text)
    }
}

/// The bits of the required words among the [`NEAR`] words after the start of a phrase.
fn needs(elements: &[&str]) -> u64 {
    let required = elements.iter().take(NEAR + 1).skip(1).filter(|element| is_required(element));
    required.fold(0, |set, element| set | bit_of(hash(element.as_bytes())))
}

/// Whether an element matches one word only, which must be there.
fn is_required(element: &str) -> bool {
    element != "_" && !element.ends_with(['?', '~', '}'])
}

fn class_of(element: &str) -> Option<&str> {
    element.strip_prefix('{')?.strip_suffix('}')
}

fn stem(word: &str) -> String {
    let mut stem = String::new();
    ken_text::push_stem(word, &mut stem);
    stem
}

fn stem_of(word: &str, known: &Word) -> String {
    stem(known.base.as_deref().unwrap_or(word))
}

/// The third person, the past and the -ing form of a verb, by the rules of spelling.
fn forms(base: &str, doubles: bool) -> [(String, &'static str); 3] {
    let ends = |endings: &[&str]| endings.iter().any(|ending| base.ends_with(ending));
    let consonant_y = base.ends_with('y') && !ends(&["ay", "ey", "oy", "uy"]);
    let (before_y, before_e) = (base.strip_suffix('y').unwrap_or(base), base.strip_suffix('e').unwrap_or(base));
    let doubled = match base.chars().last().filter(|_| doubles) {
        Some(last) => format!("{base}{last}"),
        None => base.to_owned(),
    };
    let third = if consonant_y {
        format!("{before_y}ies")
    } else if ends(&["s", "x", "z", "o", "ch", "sh"]) {
        format!("{base}es")
    } else {
        format!("{base}s")
    };
    let past = if consonant_y {
        format!("{before_y}ied")
    } else if ends(&["e"]) {
        format!("{base}d")
    } else {
        format!("{doubled}ed")
    };
    let ing =
        if ends(&["e"]) && !ends(&["ee", "oe", "ye"]) { format!("{before_e}ing") } else { format!("{doubled}ing") };
    [(third, "verb_s"), (past, "verb_past"), (ing, "verb_ing")]
}

/// The rubric's features, from lines of the form `law kind effect rule weight cap | says | advice`.
struct Features {
    names: Vec<(String, String)>,
    source: String,
}

impl Features {
    fn read(lines: &[String]) -> Outcome<Features> {
        let (mut names, mut rows, mut source) = (Vec::new(), String::new(), String::new());
        if lines.len() > 64 {
            return Err("features.txt: a set of features has 64 bits".into());
        }
        for (place, line) in lines.iter().enumerate() {
            let mut parts = line.split(" | ");
            let fields: Vec<&str> = parts.next().unwrap_or_default().split(' ').collect();
            let [law, kind, effect, rule, weight, cap] = fields.as_slice() else {
                return Err(format!("features.txt: {line}: law, kind, effect, rule, weight and cap are needed").into());
            };
            let (says, advice) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
            if says.is_empty() || advice.is_empty() != (*effect != "violation") {
                return Err(format!("features.txt: {line}: what is wrong, and advice for a violation alone").into());
            }
            let law_index = law.parse::<usize>()?.checked_sub(1).ok_or("features.txt: laws are 1 to 5")?;
            let factor = if *effect == "share" { 1.0 } else { 10.0 };
            let weight = (weight.parse::<f64>()? * factor).round() as i32;
            let cap = (cap.parse::<f64>()? * 10.0).round() as i32;
            writeln!(source, "#[allow(dead_code)] pub(crate) const {}: usize = {place};", kind.to_uppercase())?;
            writeln!(
                rows,
                "Feature {{ law: LAWS[{law_index}].law, kind: {kind:?}, effect: Effect::{}, rule: Rule::{}, \
                 weight: {weight}, cap: {cap}, \
                 line: \"law {law}, {kind}: {says}\", remedy: \"law {law}, {kind}: {advice}\" }},",
                camel(effect),
                camel(rule)
            )?;
            names.push(((*law).to_owned(), (*kind).to_owned()));
        }
        writeln!(source, "pub(crate) static FEATURES: [Feature; {}] = [\n{rows}];", lines.len())?;
        Ok(Features { names, source })
    }

    fn place(&self, law: &str, kind: &str) -> Option<usize> {
        self.names.iter().position(|name| name.0 == law && name.1 == kind)
    }
}

/// The number of numbers in the vector of a word.
const TOPIC_SIZE: usize = 24;
/// How many of the first bits of a word's hash choose the group in which the word is looked up.
const GROUP_BITS: u32 = 13;

/// The vectors of `topics.bin`, sorted by the hashes of the words. A word of the file is its length, its letters, the length of its
/// vector and the numbers of its vector.
fn topics(file: &[u8]) -> Outcome<String> {
    let mut words: BTreeMap<u32, (u8, Vec<u8>)> = BTreeMap::new();
    let mut rest = file;
    while let Some((letters, after)) = rest.split_first() {
        let cut = || "topics.bin ends within a word";
        let (word, after) = after.split_at_checked(usize::from(*letters)).ok_or_else(cut)?;
        let (length, after) = after.split_first().ok_or_else(cut)?;
        let (numbers, after) = after.split_at_checked(TOPIC_SIZE / 2).ok_or_else(cut)?;
        if words.insert(key_of(hash(word)), (*length, numbers.to_vec())).is_some() {
            return Err(format!("{} has the hash of another word", String::from_utf8_lossy(word)).into());
        }
        rest = after;
    }
    let first_of = |group: u32| words.keys().filter(|key| *key >> (32 - GROUP_BITS) < group).count();
    let groups: Vec<usize> = (0..=1 << GROUP_BITS).map(first_of).collect();
    let rows: Vec<String> =
        words.values().map(|(length, numbers)| format!("Word {{ length: {length}, numbers: {numbers:?} }}")).collect();
    Ok(format!(
        "const SIZE: usize = {TOPIC_SIZE};\nconst GROUP_BITS: u32 = {GROUP_BITS};\nstatic GROUPS: [u16; {}] = {groups:?};\n\
         static KEYS: [u32; {}] = {:?};\nstatic WORDS: [Word; {}] = [{}];",
        groups.len(),
        words.len(),
        words.keys().collect::<Vec<_>>(),
        rows.len(),
        rows.join(",\n"),
    ))
}

/// Converts `unless_sourced` to `UnlessSourced`.
fn camel(name: &str) -> String {
    let words = name.split('_').map(|word| {
        let (first, rest) = word.split_at(word.len().min(1));
        first.to_uppercase() + rest
    });
    words.collect()
}
