//! What is wrong with a server is named with its remedy, and nothing is written.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ken_store::Store;
use ken_store::clock::SystemClock;
use ken_store::tables::postgres::Postgres;

use crate::kit::Remote;

/// Returns what keeps a store from working with this URL, once it contains `why`.
#[track_caller]
fn failure(url: &str, why: &str) -> String {
    let state = tempfile::tempdir().unwrap();
    let backend = Postgres::open(url, state.path()).unwrap();
    let store = Store::start(backend, Arc::new(SystemClock::default())).unwrap();
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let failure = store.failure().unwrap_or_default();
        if failure.contains(why) {
            return failure;
        }
        assert!(Instant::now() < until, "{url}: {failure:?} is not {why:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn each_fault_of_a_server_has_its_message() {
    let Remote { server, database, .. } = crate::remote().unwrap();
    let sql = |sql: &str| server.sql("postgres", sql);
    sql("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'");
    sql(
        "CREATE ROLE weak LOGIN; CREATE ROLE many LOGIN CONNECTION LIMIT 0; CREATE ROLE slow LOGIN; ALTER ROLE slow SET synchronous_commit = off",
    );
    sql("CREATE ROLE reader LOGIN; ALTER ROLE reader SET default_transaction_read_only = on");
    sql(&format!("GRANT CREATE ON DATABASE {database} TO slow, reader"));
    let newer = server.database();
    server.sql(&newer, "CREATE SCHEMA ken; CREATE TABLE ken.schema_version (version bigint); INSERT INTO ken.schema_version VALUES (99)");
    let (url, as_role) =
        (server.url(&database), |role: &str| server.url(&database).replace("ken@", &format!("{role}@")));
    for (url, why) in [
        (server.url("nosuch"), "does not exist"),
        (server.url("latin"), "encoding of the database is LATIN1"),
        (server.url(&newer), "has version 99"),
        (as_role("weak"), "permission denied"),
        (as_role("many"), "too many connections"),
        (as_role("slow"), "synchronous_commit is off"),
        (as_role("reader"), "read-only"),
        (format!("{url}?sslmode=require"), "TLS"),
        ("postgres://ken@127.0.0.1:1/ken".to_owned(), "refused"),
    ] {
        let failure = failure(&url, why);
        assert!(failure.starts_with("postgres://"), "{failure}");
    }
    let schemas = server.sql(&database, "SELECT count(*) FROM pg_namespace WHERE nspname = 'ken'");
    assert_eq!(schemas, "0", "a schema was made");
}
