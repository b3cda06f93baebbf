//! Knowledge entries, the jobs over them, and the full-text indexes of knowledge and memory.

use std::collections::BTreeSet;

use ken_types::Error;

use super::Database;
use crate::rules::terms::indexed;
use crate::tables::sql::{Parameter, Sql, all, params};
use crate::tables::{Index, KnowledgeTexts, Order, WordSearch, Words};

/// The number of rows up to which the rows with a word are counted. A word that more rows contain is common: see `rules::search`.
const MAX_COUNTED: u32 = 5_001;

/// The number of bytes after which a word is cut, because an index entry has a limit of its own. Two words with the same beginning then count
/// as one, until the texts themselves are compared.
const MAX_WORD_BYTES: usize = 256;

fn cut(word: &str) -> String {
    ken_text::head(word, MAX_WORD_BYTES).to_owned()
}

/// Returns the distinct stems of the words of texts.
fn stems(texts: &[&str]) -> BTreeSet<String> {
    let mut stems = BTreeSet::new();
    for text in texts {
        stems.extend(indexed(text).split_ascii_whitespace().map(cut));
    }
    stems
}

/// Returns the form of a scope word in an index. No word of a text begins with a slash, so that no text can pretend to be of another scope.
fn scope_entry(scope_word: &str) -> String {
    format!("/{scope_word}")
}

/// Returns what an index contains of a row: its stems and its scope word.
fn words(scope_word: &str, texts: &[&str]) -> Vec<String> {
    let mut words = stems(texts);
    words.insert(scope_entry(scope_word));
    words.into_iter().collect()
}

/// Returns the condition that a row contains one of the scope words, if any are given, and of each word, or of any word, one of its stems. The
/// parameters are an array for each.
fn condition(words: usize, match_all: bool, is_scoped: bool) -> String {
    let of_word = |number: usize| format!("words && ?{number}");
    let first = 1 + usize::from(is_scoped);
    let conditions: Vec<String> = (first..first + words).map(of_word).collect();
    let joined = conditions.join(if match_all { " AND " } else { " OR " });
    if is_scoped { format!("{} AND ({joined})", of_word(1)) } else { joined }
}

impl Words for Database {
    fn index_knowledge(&self, key: i64, scope_word: &str, texts: &KnowledgeTexts) -> Result<(), Error> {
        let KnowledgeTexts { title, tags, content, .. } = texts;
        let heads: Vec<String> = stems(&[title, tags]).into_iter().collect();
        let sql = "INSERT INTO knowledge_index (entry, heads, words) VALUES (?1, ?2, ?3)
                   ON CONFLICT (entry) DO UPDATE SET heads = ?2, words = ?3";
        self.execute(sql, params![key, heads, words(scope_word, &[title, tags, content])])
    }

    fn index_exchange(&self, submission: i64, scope_word: &str, prompt: &str, answer: &str) -> Result<(), Error> {
        let sql = "INSERT INTO memory_index (submission, words) VALUES (?1, ?2)";
        self.execute(sql, params![submission, words(scope_word, &[prompt, answer])])
    }

    fn index_key(&self, index: Index) -> &'static str {
        match index {
            Index::Knowledge => "entry",
            Index::Memory => "submission",
        }
    }

    fn document_frequencies(&self, index: Index, words: &[&[String]], _size: u64) -> Result<Vec<u64>, Error> {
        let table = index.table();
        let counted = |number: usize| {
            format!(
                "(SELECT count(*) FROM (SELECT 1 FROM {table} WHERE words && ?{number} LIMIT {MAX_COUNTED}) AS held)"
            )
        };
        // One statement counts all words, because each statement is a round trip.
        let counts: Vec<String> = (1..=words.len()).map(counted).collect();
        let sql = format!("SELECT unnest(ARRAY[{}]::bigint[]) AS holders", counts.join(", "));
        let words = cut_all(words);
        let words: Vec<&dyn Parameter> = words.iter().map(|stems| stems as &dyn Parameter).collect();
        all(self, &sql, &words, |row| row.get("holders"))
    }

    fn search(&self, search: &WordSearch<'_>, order: Order, max: u64) -> Result<Vec<i64>, Error> {
        let WordSearch { index, words, match_all, scope_words } = *search;
        let (table, key) = (index.table(), self.index_key(index));
        let condition = condition(words.len(), match_all, scope_words.is_some());
        let scopes: Option<Vec<String>> = scope_words.map(|words| words.iter().map(|word| scope_entry(word)).collect());
        let arrays: Vec<Vec<String>> = scopes.into_iter().chain(cut_all(words)).collect();
        let first = arrays.len() - words.len() + 1;
        // The words come with the rarest first, which counts most.
        let held = |column: &str| -> String {
            (first..=arrays.len()).map(|number| format!("({column} && ?{number}) DESC, ")).collect()
        };
        let best = if order == Order::Best { held("words") + &held("heads") } else { String::new() };
        let limit = arrays.len() + 1;
        let sql = format!("SELECT {key} FROM {table} WHERE {condition} ORDER BY {best}{key} DESC LIMIT ?{limit}");
        let mut values: Vec<&dyn Parameter> = arrays.iter().map(|array| array as &dyn Parameter).collect();
        values.push(&max);
        all(self, &sql, &values, |row| row.get(0))
    }
}

fn cut_all(words: &[&[String]]) -> Vec<Vec<String>> {
    words.iter().map(|stems| stems.iter().map(|stem| cut(stem)).collect()).collect()
}
