//! `year DATABASE SESSIONS EVENTS KNOWLEDGE`: fills the database of a stopped system with what a year of use leaves, for
//! benchmarks. The rows are copies of those of the newest session, which therefore has to have a turn, and of the newest knowledge
//! entry, with ids, times and words of their own. They are written directly, because the store would take hours.

#![allow(clippy::print_stdout)]

use rusqlite::{Connection, Result, params};

/// A year in milliseconds.
const YEAR: i64 = 365 * 24 * 3_600 * 1_000;
/// The number of sessions of one transaction.
const BATCH: i64 = 20_000;
/// How many summaries of turns a store keeps.
const SUMMARIES: i64 = 10_000;

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [database, sessions, events, knowledge] = arguments.as_slice() else {
        return Err("usage: year DATABASE SESSIONS EVENTS KNOWLEDGE".into());
    };
    let connection = Connection::open(database)?;
    // Nobody else uses the file, and after a crash it is generated again.
    connection.execute_batch(
        "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -400000; PRAGMA foreign_keys = OFF;",
    )?;
    let year = Year::of(&connection, sessions.parse()?, events.parse()?)?;
    year.fill()?;
    fill_knowledge(&connection, knowledge.parse()?)?;
    println!("{sessions} sessions, {events} events, {knowledge} knowledge entries");
    Ok(())
}

/// Returns words that differ from one number to the next; each word occurs in about one of 400 texts of 12 words.
fn words(number: i64, count: i64) -> String {
    let mut state = number.wrapping_mul(0x9E37_79B9).wrapping_add(count);
    let mut text = String::new();
    for _ in 0..count {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        text.push_str(&format!("zu{}k ", (state >> 33).rem_euclid(5_000)));
    }
    text
}

/// Returns a statement that copies the row with this key, with other values in some columns.
fn copy(connection: &Connection, table: &str, key: &str, of: i64, other: &[(&str, &str)]) -> Result<String> {
    let mut names = connection.prepare(&format!("SELECT name FROM pragma_table_info('{table}')"))?;
    let names: Vec<String> = names.query_map([], |row| row.get(0))?.collect::<Result<_>>()?;
    let values: Vec<&str> = names
        .iter()
        .map(|name| other.iter().find(|(column, _)| column == name).map_or(name.as_str(), |(_, value)| *value))
        .collect();
    let (names, values) = (names.join(", "), values.join(", "));
    Ok(format!("INSERT INTO {table} ({names}) SELECT {values} FROM {table} WHERE {key} = {of}"))
}

struct Year<'a> {
    connection: &'a Connection,
    sessions: i64,
    /// How many events there are in all.
    events: i64,
    stream: i64,
    event: i64,
    submission: i64,
    /// The number of events of the session that is copied.
    entries: i64,
    scope_word: String,
    now: i64,
}

impl Year<'_> {
    fn of(connection: &Connection, sessions: i64, events: i64) -> Result<Year<'_>> {
        let one = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
        let stream = one("SELECT max(stream) FROM sessions")?;
        let submission = one(&format!("SELECT min(submission) FROM submissions WHERE stream = {stream}"))?;
        connection.execute_batch("CREATE VIRTUAL TABLE temp.terms USING fts5vocab (main, memory_index, col)")?;
        let scope_word = "SELECT term FROM terms WHERE col = 'scope' LIMIT 1";
        Ok(Year {
            connection,
            sessions,
            events,
            stream,
            event: one(&format!("SELECT event FROM submissions WHERE submission = {submission}"))?,
            submission,
            entries: one(&format!("SELECT entries FROM streams WHERE stream = {stream}"))?,
            scope_word: connection.query_row(scope_word, [], |row| row.get(0))?,
            now: one("SELECT max(updated_at) FROM sessions")?,
        })
    }

    /// The statements of a session. ?1 is its number, ?2 its time, ?3 and ?4 what was said, ?5 the number of its events.
    fn statements(&self) -> Result<Vec<String>> {
        let (stream, event, submission) =
            (format!("{} + ?1", self.stream), format!("{} + ?1", self.event), format!("{} + ?1", self.submission));
        // An id of the usual length.
        let id = |name: &str| format!("substr({name}, 1, length({name}) - 9) || printf('%09d', ?1)");
        let (id, name) = (id("id"), id("name"));
        let copy =
            |table: &str, key: &str, of: i64, other: &[(&str, &str)]| copy(self.connection, table, key, of, other);
        Ok(vec![
            copy(
                "streams",
                "stream",
                self.stream,
                &[("stream", &stream), ("name", &name), ("entries", "?5"), ("created_at", "?2")],
            )?,
            copy("instances", "stream", self.stream, &[("stream", &stream)])?,
            copy(
                "sessions",
                "stream",
                self.stream,
                &[("stream", &stream), ("id", &id), ("title", "?3"), ("created_at", "?2"), ("updated_at", "?2")],
            )?,
            copy(
                "events",
                "event",
                self.event,
                &[("event", &event), ("id", &id), ("text", "?3"), ("received_at", "?2")],
            )?,
            copy(
                "submissions",
                "submission",
                self.submission,
                &[("submission", &submission), ("id", &id), ("stream", &stream), ("event", &event)],
            )?,
            copy(
                "exchanges",
                "submission",
                self.submission,
                &[
                    ("submission", &submission),
                    ("stream", &stream),
                    ("answer", "?4"),
                    ("ended_at", "?2"),
                    ("settled_at", "?2"),
                ],
            )?,
            format!(
                "INSERT INTO entries (place, body) SELECT place + (?1 << 32), body FROM entries WHERE place >= {0} << 32 \
                 AND place < ({0} << 32) + ?5",
                self.stream
            ),
            format!(
                "INSERT INTO memory_index (rowid, scope, prompt, answer) VALUES ({submission}, '{}', ?3, ?4)",
                self.scope_word
            ),
        ])
    }

    fn fill(&self) -> Result<()> {
        let statements = self.statements()?;
        let summary = copy(
            self.connection,
            "telemetry",
            "submission",
            self.submission,
            &[("submission", &format!("{} + ?1", self.submission)), ("settled_at", "?2")],
        )?;
        let mut left = self.events;
        let last_day = last_day(self.sessions);
        for number in 1..=self.sessions {
            if number % BATCH == 1 || number >= last_day {
                self.connection.execute_batch(if number == 1 { "BEGIN" } else { "COMMIT; BEGIN" })?;
            }
            if number == last_day {
                merge(self.connection, "memory_index")?;
            }
            // The last sessions are the newest, and all together have as many events as asked for.
            let count = (left / (self.sessions - number + 1)).clamp(1, self.entries);
            left -= count;
            let at = self.now - YEAR + number * YEAR / (self.sessions + 1);
            let (prompt, answer) = (words(number, 12), words(-number, 40));
            for sql in &statements {
                let mut statement = self.connection.prepare_cached(sql)?;
                let wanted = statement.parameter_count();
                bind(&mut statement, wanted, (number, at, &prompt, &answer, count))?;
                statement.raw_execute()?;
            }
            if number > self.sessions - SUMMARIES {
                self.connection.prepare_cached(&summary)?.execute(params![number, at])?;
            }
        }
        self.connection.execute_batch("COMMIT")
    }
}

/// The store merges an index once a day. Since then each session has added to it in a transaction of its own.
fn last_day(count: i64) -> i64 {
    count - count / 365
}

fn merge(connection: &Connection, index: &str) -> Result<()> {
    connection.execute_batch(&format!("INSERT INTO {index} ({index}) VALUES ('optimize')"))
}

fn bind(
    statement: &mut rusqlite::Statement<'_>,
    wanted: usize,
    (number, at, prompt, answer, count): (i64, i64, &str, &str, i64),
) -> Result<()> {
    for place in 1..=wanted {
        match place {
            1 => statement.raw_bind_parameter(place, number)?,
            2 => statement.raw_bind_parameter(place, at)?,
            3 => statement.raw_bind_parameter(place, prompt)?,
            4 => statement.raw_bind_parameter(place, answer)?,
            _ => statement.raw_bind_parameter(place, count)?,
        }
    }
    Ok(())
}

fn fill_knowledge(connection: &Connection, count: i64) -> Result<()> {
    let newest: i64 = connection.query_row("SELECT max(entry) FROM knowledge", [], |row| row.get(0))?;
    let other = [
        ("entry", format!("{newest} + ?1")),
        ("id", "substr(id, 1, length(id) - 9) || printf('%09d', ?1)".to_owned()),
        ("title", "?2".to_owned()),
        ("content", "?3".to_owned()),
    ];
    let other: Vec<(&str, &str)> = other.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let entry = copy(connection, "knowledge", "entry", newest, &other)?;
    let index = format!(
        "INSERT INTO knowledge_index (rowid, scope, title, tags, content) VALUES ({newest} + ?1, 'zqglobal', ?2, '', ?3)"
    );
    connection.execute_batch("BEGIN")?;
    for number in 1..=count {
        if number == last_day(count) {
            merge(connection, "knowledge_index")?;
        }
        let (title, content) = (words(number, 4), words(-number, 120));
        for sql in [&entry, &index] {
            connection.prepare_cached(sql)?.execute(params![number, title, content])?;
        }
    }
    connection.execute_batch("COMMIT")
}
