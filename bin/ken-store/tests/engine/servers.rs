//! What is wrong with a server is named with its remedy, and nothing is written.

use std::io::Write;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ken_store::Store;
use ken_store::clock::SystemClock;
use ken_store::tables::postgres::Postgres;

use crate::kit::{Kit, Remote};

/// Returns what keeps a store from working with this URL, once it contains `why`.
#[track_caller]
fn failure(url: &str, why: &str) -> String {
    let state = tempfile::tempdir().unwrap();
    let backend = Postgres::open(url, state.path()).unwrap();
    let store = Store::start(backend, Arc::new(SystemClock::default())).unwrap();
    let mut failure = String::new();
    ken_tests::until(&format!("{url}: {why}"), || {
        failure = store.failure().unwrap_or_default();
        failure.contains(why)
    });
    failure
}

#[test]
fn each_fault_of_a_server_has_its_message() {
    let Remote { server, database, .. } = crate::empty();
    let sql = |sql: &str| server.sql("postgres", sql);
    sql("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'");
    sql(
        "CREATE ROLE weak LOGIN; CREATE ROLE many LOGIN CONNECTION LIMIT 0; CREATE ROLE slow LOGIN; ALTER ROLE slow SET synchronous_commit = off",
    );
    sql("CREATE ROLE reader LOGIN; ALTER ROLE reader SET default_transaction_read_only = on");
    sql(&format!("GRANT CREATE ON DATABASE {database} TO slow, reader"));
    let newer = server.database();
    server.sql(&newer, "CREATE SCHEMA ken; CREATE TABLE ken.schema_version (version bigint); INSERT INTO ken.schema_version VALUES (99)");
    let emptied = server.database();
    server.sql(&emptied, "CREATE SCHEMA ken; CREATE TABLE ken.schema_version (version bigint)");
    let (url, as_role) =
        (server.url(&database), |role: &str| server.url(&database).replace("ken@", &format!("{role}@")));
    for (url, why) in [
        (server.url("nosuch"), "does not exist"),
        (server.url("latin"), "encoding of the database is LATIN1"),
        (server.url(&newer), "has version 99"),
        (server.url(&emptied), "the row of ken.schema_version is missing"),
        (as_role("weak"), "permission denied"),
        (as_role("many"), "too many connections"),
        (as_role("slow"), "synchronous_commit is off"),
        (as_role("reader"), "default_transaction_read_only is on"),
        (format!("{url}?sslmode=require"), "TLS"),
        (format!("{url}?sslmode=verify-full"), "TLS"),
        ("postgres://ken@127.0.0.1:1/ken".to_owned(), "refused"),
    ] {
        let failure = failure(&url, why);
        assert!(failure.starts_with("postgres://"), "{failure}");
    }
    let schemas = server.sql(&database, "SELECT count(*) FROM pg_namespace WHERE nspname = 'ken'");
    assert_eq!(schemas, "0", "a schema was made");
}

/// The median time of a claim over so many turns, each of which is run to its end.
async fn claim_time(kit: &Kit, turns: std::ops::Range<u32>) -> Duration {
    let mut took = Vec::new();
    for number in turns {
        kit.prompt("tui-1", &format!("s{number}")).await;
        let begun = Instant::now();
        let claim = kit.claim_one(1).await;
        took.push(begun.elapsed());
        kit.finish(&claim.lease, 0, "done").await.unwrap();
    }
    took.sort();
    took[took.len() / 2]
}

/// What a turn leaves behind in the tables and indexes cannot be removed while an older transaction could still read it. As many turns as a
/// person has in ten minutes, many times over.
#[tokio::test]
async fn claims_stay_quick_while_a_transaction_is_held_open() {
    let kit = Kit::new();
    kit.session("tui-1", "a").await;
    claim_time(&kit, 0..20).await;
    let Remote { server, database, .. } = kit.remote.as_ref().unwrap();
    let mut command = std::process::Command::new("psql");
    command.args(["-XAtq", "-d", &server.url(database)]).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut program = command.spawn().unwrap();
    let mut input = program.stdin.take().unwrap();
    input.write_all(b"BEGIN ISOLATION LEVEL REPEATABLE READ;\nSELECT count(*) FROM ken.submissions;\n").unwrap();
    let before = claim_time(&kit, 20..70).await;
    claim_time(&kit, 70..370).await;
    let after = claim_time(&kit, 370..420).await;
    let open = kit.query("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'psql' AND state = 'idle in transaction' AND datname = current_database()");
    drop(input);
    program.wait().unwrap();
    println!("a claim: {before:?} at first, {after:?} after 350 turns");
    assert_eq!(open, "1", "the transaction was held open");
    assert!(after < 2 * before + Duration::from_millis(5), "{before:?}, {after:?}");
}
