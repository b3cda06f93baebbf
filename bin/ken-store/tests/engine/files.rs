//! The database file: whether it is a database of ken, its schema, and what happens when it cannot be written.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use ken_store::tables::sqlite::Sqlite;
use ken_types::ops::store::*;
use ken_types::ops::streams::{Appending, CreateStream, StreamsAppend, StreamsCreate};
use ken_types::{Code, Octets};

use crate::kit::*;

async fn used() -> Kit {
    let kit = Kit::new();
    kit.session("tui-1", "a").await;
    kit.talk("tui-1", "s1", "q", "a").await;
    kit
}

/// Returns the error of `Sqlite::open` for a file. Checks that the file is unchanged.
fn refused(path: &Path) -> String {
    let before = fs::read(path).unwrap();
    let error = Sqlite::open(path).expect_err("it was opened");
    assert!(before == fs::read(path).unwrap(), "the file was changed");
    let line = error.to_string();
    assert!(!line.contains('\n') && line.contains(path.to_str().unwrap()), "{line}");
    line
}

#[tokio::test]
async fn a_second_store_on_the_file_is_refused_and_names_the_first() {
    let kit = used().await;
    let error = Sqlite::open(&kit.file()).err().unwrap();
    assert!(error.message.contains(&std::process::id().to_string()), "{error}");
    assert_eq!(kit.state("s1").await, State::Completed);
}

#[tokio::test]
async fn a_newer_database_is_refused_with_both_versions() {
    let mut kit = used().await;
    kit.store = None;
    let raw = rusqlite::Connection::open(kit.file()).unwrap();
    raw.pragma_update(None, "user_version", 900).unwrap();
    drop(raw);
    let line = refused(&kit.file());
    assert!(line.contains("version 900") && line.contains("up to "), "{line}");
}

/// Returns the tables of a database without those that existed before the streams of other programs were added.
fn newer_tables(database: &rusqlite::Connection) -> Vec<String> {
    const OLD: [&str; 13] = [
        "scopes", "streams", "entries", "instances", "sessions", "events", "submissions", "exchanges", "knowledge",
        "jobs", "keys", "runs", "system_events",
    ];
    let mut select =
        database.prepare("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'").unwrap();
    let names = select.query_map([], |row| row.get::<_, String>(0)).unwrap();
    let is_of_index =
        |name: &str| name != "knowledge_uses" && (name.starts_with("knowledge_") || name.starts_with("memory_"));
    names.map(|name| name.unwrap()).filter(|name| !OLD.contains(&name.as_str()) && !is_of_index(name)).collect()
}

#[tokio::test]
async fn a_database_from_before_the_streams_of_other_programs_keeps_what_it_has() {
    let mut kit = used().await;
    let log = kit.log("tui-1").await;
    kit.store = None;
    let raw = rusqlite::Connection::open(kit.file()).unwrap();
    for table in newer_tables(&raw) {
        raw.execute_batch(&format!("DROP TABLE {table}")).unwrap();
    }
    raw.execute_batch("ALTER TABLE keys DROP COLUMN headers").unwrap();
    for change in [
        "DROP INDEX scopes_by_conversation",
        "DROP INDEX scopes_by_actor",
        "DROP INDEX knowledge_by_document",
        "DROP INDEX knowledge_by_source",
        "DROP INDEX knowledge_by_stream",
        "DROP INDEX submissions_by_stream",
        "DROP INDEX submissions_by_event",
        "CREATE INDEX prompts ON submissions (stream, submission) WHERE kind = 'prompt'",
        "ALTER TABLE events DROP COLUMN delivered",
        "DROP INDEX hidden_by_scope",
        "DROP INDEX hidden_by_time",
        "CREATE INDEX sessions_by_scope ON sessions (scope, updated_at) WHERE archived_at IS NULL",
        "CREATE INDEX sessions_by_time ON sessions (updated_at) WHERE archived_at IS NULL",
        "ALTER TABLE streams DROP COLUMN purged_at",
        "ALTER TABLE sessions DROP COLUMN workspace",
        "ALTER TABLE sessions DROP COLUMN memory",
        "ALTER TABLE sessions DROP COLUMN model",
        "ALTER TABLE knowledge DROP COLUMN stream",
        "DROP INDEX shown_by_scope",
        "DROP INDEX shown_by_time",
        "DROP INDEX submissions_outside",
        "ALTER TABLE submissions DROP COLUMN outside",
        "ALTER TABLE knowledge DROP COLUMN outside",
        "ALTER TABLE knowledge DROP COLUMN document",
        "ALTER TABLE knowledge DROP COLUMN line",
        "ALTER TABLE jobs DROP COLUMN collection",
        "ALTER TABLE jobs DROP COLUMN place",
    ] {
        raw.execute_batch(change).unwrap();
    }
    raw.execute_batch("ALTER TABLE system_events RENAME TO happenings").unwrap();
    raw.execute_batch("CREATE VIRTUAL TABLE memory_words USING fts5vocab ('memory_index', 'row')").unwrap();
    raw.pragma_update(None, "user_version", 2).unwrap();
    drop(raw);
    kit.open().unwrap();
    assert_eq!((kit.state("s1").await, kit.log("tui-1").await), (State::Completed, log));
    let stream = CreateStream { body: Some(Octets(b"x".to_vec())), ..create_of("streams/a") };
    kit.write::<StreamsCreate>(stream).await.unwrap();
}

#[tokio::test]
async fn a_foreign_database_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ken.db");
    let raw = rusqlite::Connection::open(&path).unwrap();
    raw.execute_batch("CREATE TABLE t (a); PRAGMA application_id = 77").unwrap();
    drop(raw);
    assert!(refused(&path).contains("another program"));
}

#[tokio::test]
async fn damaged_files_are_refused() {
    let mut kit = used().await;
    kit.store = None;
    let raw = rusqlite::Connection::open(kit.file()).unwrap();
    raw.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    raw.pragma_update(None, "journal_mode", "DELETE").unwrap();
    drop(raw);
    let whole = fs::read(kit.file()).unwrap();
    let text =
        b"this is not a database, whatever its name says; it is long enough to have a header of 100 bytes or so, too"
            .to_vec();
    let mut scribbled = whole.clone();
    scribbled[100..4096].fill(0x5a);
    for bad in [text, whole[..60].to_vec(), whole[..whole.len() / 2].to_vec(), scribbled] {
        fs::write(kit.file(), &bad).unwrap();
        assert!(refused(&kit.file()).contains("damaged"), "{} bytes", bad.len());
    }
    fs::write(kit.file(), &whole).unwrap();
    kit.open().unwrap();
    assert_eq!(kit.state("s1").await, State::Completed);
}

#[tokio::test]
async fn damage_that_is_met_later_is_reported_and_the_store_goes_on() {
    let mut kit = used().await;
    for number in 0..200 {
        kit.talk("tui-1", &format!("t{number}"), "q", &"long answer ".repeat(50)).await;
    }
    kit.session("tui-2", "a").await;
    kit.store = None;
    let raw = rusqlite::Connection::open(kit.file()).unwrap();
    raw.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
    // All leaf pages of the table of entries, except the first.
    let pages: Vec<i64> = {
        let mut select = raw
            .prepare("SELECT pageno FROM dbstat WHERE name = 'entries' AND pagetype = 'leaf'")
            .unwrap_or_else(|_| raw.prepare("SELECT 0 WHERE 0").unwrap());
        select.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    drop(raw);
    let mut bytes = fs::read(kit.file()).unwrap();
    let damaged: Vec<usize> = if pages.is_empty() {
        guess(&bytes)
    } else {
        pages.iter().skip(1).map(|page| (*page as usize - 1) * 4096).collect()
    };
    for at in damaged {
        bytes[at..at + 4096].fill(0xa5);
    }
    fs::write(kit.file(), bytes).unwrap();
    kit.open().unwrap();
    let error = kit.page("tui-1", ken_types::Offset::After(300)).await.unwrap_err();
    assert_eq!(error.code, Code::Internal);
    assert!(error.message.contains("damaged"), "{error}");
    let line = Sqlite::check(&kit.file(), true).unwrap_err().to_string();
    assert!(line.contains("damaged"), "{line}");
    kit.session("tui-3", "a").await;
}

/// Returns the offsets of pages that contain events, recognised by their text.
fn guess(bytes: &[u8]) -> Vec<usize> {
    let hits = |page: &[u8]| page.windows(11).filter(|window| *window == b"message_end").count();
    let pages = bytes.chunks_exact(4096).enumerate().filter(|(_, page)| hits(page) > 1);
    pages.skip(1).map(|(number, _)| number * 4096).collect()
}

#[tokio::test]
async fn check_says_ok_of_a_sound_one_also_while_it_runs() {
    let kit = used().await;
    Sqlite::check(&kit.file(), true).unwrap();
    let error = Sqlite::check(&kit.dir.path().join("none.db"), true).unwrap_err();
    assert!(error.message.contains("no database"), "{error}");
}

#[tokio::test]
async fn the_file_is_private() {
    let kit = used().await;
    for name in ["ken.db", "ken.db-wal", "ken.db-shm", "ken.db.lock"] {
        let mode = fs::metadata(kit.dir.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

#[tokio::test]
async fn a_full_disk_fails_the_batch_and_the_store_goes_on() {
    let big = |number: u32| entry(&format!("big {number}"), &"x".repeat(400_000));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ken.db");
    let backend = Sqlite::open(&path).unwrap();
    backend.limit_pages(400).unwrap();
    let clock = std::sync::Arc::new(ken_store::clock::ManualClock::at(at(START)));
    let store = ken_store::Store::start(backend, clock).unwrap();
    let mut kept = Vec::new();
    let error = loop {
        match store.write::<KnowledgePut>(big(kept.len() as u32)).await {
            Ok(record) => kept.push(record.id),
            Err(error) => break error,
        }
    };
    assert_eq!(error.code, Code::Unavailable, "{error}");
    assert!(!kept.is_empty());
    // Reading still works, and writing works again once there is space.
    for id in &kept {
        store.read::<KnowledgeGet>(ById { id: id.clone() }).await.unwrap();
    }
    store.write::<KnowledgeDelete>(ById { id: kept[0].clone() }).await.unwrap();
    store.write::<KnowledgePut>(big(99)).await.unwrap();
    drop(store);
    Sqlite::check(&path, true).unwrap();
}

#[tokio::test]
async fn the_journal_begins_anew_while_it_is_written_without_a_pause() {
    let mut kit = Kit::new();
    kit.write::<StreamsCreate>(create_of("streams/long")).await.unwrap();
    let append = append_of("streams/long", &"x".repeat(1 << 20));
    let mut journal = kit.file().into_os_string();
    journal.push("-wal");
    let mut longest = 0;
    for number in 1..=160 {
        let done = kit.write::<StreamsAppend>(append.clone()).await.unwrap();
        assert!(matches!(done, Appending::Done { end, .. } if end == number));
        longest = longest.max(std::fs::metadata(&journal).unwrap().len());
    }
    assert!(longest < 72 << 20, "{longest} bytes");
    kit.store = None;
    Sqlite::check(&kit.file(), true).unwrap();
}

/// A word that this release does not know is named, and is not taken for another one.
#[tokio::test]
async fn an_unknown_word_is_an_error_that_names_its_place() {
    let mut kit = used().await;
    for (sql, place) in [
        ("UPDATE submissions SET state = 'dreaming'", r#"table submissions, column state: "dreaming""#),
        (
            "UPDATE submissions SET state = 'queued', live = 1, kind = 'riddle'",
            r#"table submissions, column kind: "riddle""#,
        ),
        ("UPDATE sessions SET origin = 'moon'", r#"table sessions, column origin: "moon""#),
    ] {
        kit.store = None;
        let raw = rusqlite::Connection::open(kit.file()).unwrap();
        raw.execute(sql, []).unwrap();
        drop(raw);
        kit.open().unwrap();
        let args = WaitSubmission { submission_id: sub("s1"), wait_ms: 0, or_waiting: false };
        let accept = kit.accept_of("a", "q", Target::Selector("tui-1".into()), queued("s2"));
        let abort = OfInstance { instance: "tui-1".into() };
        let error = match place {
            place if place.contains("state") => kit.wait(args).await.err(),
            place if place.contains("kind") => kit.write::<SubmissionsAbort>(abort).await.err(),
            _ => kit.write::<ChatAccept>(accept).await.err(),
        };
        let error = error.unwrap_or_else(|| panic!("{place}"));
        assert!(error.code == Code::Internal && error.message.contains(place), "{error}");
    }
    // A row that cannot be read does not undo what others write.
    let raw = rusqlite::Connection::open(kit.file()).unwrap();
    raw.execute("UPDATE submissions SET open = 1", []).unwrap();
    raw.execute("UPDATE sessions SET origin = 'tui'", []).unwrap();
    let none = kit.claims(1, 8).await;
    assert!(none.claims.is_empty());
    kit.session("tui-9", "b").await;
}
