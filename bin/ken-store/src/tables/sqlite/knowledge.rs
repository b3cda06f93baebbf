//! Knowledge entries, the jobs over them, and the full-text indexes of knowledge and memory.

use ken_types::Error;

use super::Database;
use crate::rules::terms::indexed;
use crate::tables::columns::to_json;
use crate::tables::sql::{Sql, all, first, params};
use crate::tables::{Index, KnowledgeTexts, Order, WordSearch, Words};

/// The statement for a search of knowledge, ordered by the rank of FTS5. The rank of a single row already costs a count of all rows that
/// contain each word of the expression, and the scope word of all people is in nearly every row.
const RANKED: &str = "SELECT rowid, bm25(knowledge_index, 0.0, 4.0, 3.0, 1.0) AS rank FROM knowledge_index
                      WHERE knowledge_index MATCH ?1 ORDER BY rank LIMIT ?2";

/// Returns an FTS5 expression that matches every stem of a word.
fn any_stem(stems: &[String]) -> String {
    let quoted: Vec<String> = stems.iter().map(|stem| format!("\"{stem}\"")).collect();
    format!("({})", quoted.join(" OR "))
}

impl Words for Database {
    fn index_knowledge(&self, key: i64, scope_word: &str, texts: &KnowledgeTexts) -> Result<(), Error> {
        let sql = "INSERT OR REPLACE INTO knowledge_index (rowid, scope, title, tags, content)
                   VALUES (?1, ?2, ?3, ?4, ?5)";
        let [title, tags, content] = [&texts.title, &texts.tags, &texts.content].map(|text| indexed(text));
        let values = params![key, scope_word, title, tags, content];
        self.execute(sql, values)
    }

    fn index_exchange(&self, submission: i64, scope_word: &str, prompt: &str, answer: &str) -> Result<(), Error> {
        let sql = "INSERT INTO memory_index (rowid, scope, prompt, answer) VALUES (?1, ?2, ?3, ?4)";
        self.execute(sql, params![submission, scope_word, indexed(prompt), indexed(answer)])
    }

    fn index_key(&self, _: Index) -> &'static str {
        "rowid"
    }

    fn document_frequencies(&self, index: Index, words: &[&[String]], size: u64) -> Result<Vec<u64>, Error> {
        match index {
            // A single statement counts all words, because FTS5 compiles an internal statement each time its vocabulary is opened.
            Index::Knowledge => {
                let sql = "SELECT word.key AS word, sum(vocabulary.doc) AS holders
                           FROM json_each(?1) AS word
                             CROSS JOIN json_each(word.value) AS stem
                             CROSS JOIN knowledge_words AS vocabulary ON vocabulary.term = stem.value
                           GROUP BY word.key";
                let mut frequencies = vec![0; words.len()];
                let found = all(self, sql, params![to_json(&words)?], |row| {
                    Ok((row.get::<u64>("word")? as usize, row.get("holders")?))
                })?;
                for (word, frequency) in found {
                    if let Some(to) = frequencies.get_mut(word) {
                        *to = frequency;
                    }
                }
                Ok(frequencies)
            }
            // The number of exchanges with a common word is estimated from how old the newest hundred are. Counting all of them would
            // become slower as more is said.
            Index::Memory => {
                let sql =
                    "SELECT iif(count(*) < 100, count(*), count(*) * ?2 / (?2 + 1 - min(rowid))) AS holders FROM (
                             SELECT rowid FROM memory_index WHERE memory_index MATCH ?1 ORDER BY rowid DESC LIMIT 100
                           )";
                let frequency = |stems: &&[String]| {
                    let values = params![any_stem(stems), size];
                    Ok(first(self, sql, values, |row| row.get("holders"))?.unwrap_or_default())
                };
                words.iter().map(frequency).collect()
            }
        }
    }

    fn search(&self, search: &WordSearch<'_>, order: Order, max: u64) -> Result<Vec<i64>, Error> {
        let WordSearch { index, words, match_all, scope_words } = *search;
        let columns = match index {
            Index::Knowledge => "{title tags content}",
            Index::Memory => "{prompt answer}",
        };
        let words: Vec<String> = words.iter().map(|stems| any_stem(stems)).collect();
        let words = format!("{columns} : ({})", words.join(if match_all { " AND " } else { " OR " }));
        let expression = match scope_words {
            Some(scope_words) => format!("scope : ({}) AND {words}", scope_words.join(" OR ")),
            None => words,
        };
        let table = index.table();
        let sql = match order {
            Order::Best => RANKED.to_owned(),
            Order::Newest => format!("SELECT rowid FROM {table} WHERE {table} MATCH ?1 ORDER BY rowid DESC LIMIT ?2"),
        };
        all(self, &sql, params![expression, max], |row| row.get(0))
    }
}
