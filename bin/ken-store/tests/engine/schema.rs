//! Both databases have the same tables with the same columns, but for what each of them needs for itself.

use std::collections::BTreeSet;

use ken_store::tables::sqlite::Sqlite;

use crate::kit::Kit;

/// The tables of SQLite's full-text indexes, and the tables and columns that only a server needs.
const OWN: [&str; 7] = [
    "knowledge_index", "knowledge_words", "memory_index", "hosts", "schema_version", "submissions.holder",
    "sessions.home",
];

fn is_common(column: &str) -> bool {
    !OWN.iter().any(|own| column.starts_with(own)) && !column.starts_with("sqlite_")
}

fn of_sqlite() -> BTreeSet<String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ken.db");
    drop(Sqlite::open(&path).unwrap());
    let file = rusqlite::Connection::open(&path).unwrap();
    let sql = "SELECT t.name || '.' || c.name || ' ' || iif(c.'notnull' OR c.pk, 'NO', 'YES')
               FROM sqlite_schema AS t, pragma_table_info(t.name) AS c WHERE t.type = 'table'";
    let mut columns = file.prepare(sql).unwrap();
    let columns = columns.query_map([], |row| row.get::<_, String>(0)).unwrap();
    columns.map(Result::unwrap).filter(|column| is_common(column)).collect()
}

#[tokio::test]
async fn both_databases_have_the_same_columns() {
    let kit = Kit::new();
    let sql = "SELECT table_name || '.' || column_name || ' ' || is_nullable FROM information_schema.columns WHERE table_schema = 'ken'";
    let columns = kit.query(sql);
    let columns: BTreeSet<String> = columns.lines().map(str::to_owned).filter(|column| is_common(column)).collect();
    assert_eq!(of_sqlite(), columns);
    assert!(columns.len() > 200, "{}", columns.len());
}

/// Text of another collation would be ordered and compared in another way than in SQLite.
#[tokio::test]
async fn all_texts_are_compared_byte_by_byte() {
    let kit = Kit::new();
    let sql = "SELECT table_name, column_name FROM information_schema.columns
               WHERE table_schema = 'ken' AND data_type = 'text' AND collation_name IS DISTINCT FROM 'C'";
    assert_eq!(kit.query(sql), "");
}
