//! Statements whose answer nobody needs are sent with the next one. How many round trips that leaves, and whose their errors are.

use ken_store::Store;
use ken_store::tables::Backend;
use ken_store::tables::postgres::Postgres;
use ken_tests::Relay;
use ken_types::Code;
use ken_types::ops::store::*;

use crate::kit::{Kit, Remote, at, queued};

/// A store that reaches its server through a relay.
fn relayed() -> (Kit, Relay) {
    let remote = crate::remote().unwrap();
    let relay = Relay::before(remote.server);
    let url = relay.url(&remote.database);
    (Kit::in_place(at(crate::kit::START), Some(Remote { url, ..remote })), relay)
}

/// The store renews its place meanwhile, so that some accepts seem to take more.
#[tokio::test]
async fn an_accept_takes_at_most_six_round_trips() {
    let (kit, relay) = relayed();
    kit.session("tui-1", "a").await;
    kit.prompt("tui-1", "s0").await;
    let mut counted = Vec::new();
    for number in 1..=9 {
        let before = relay.round_trips();
        kit.prompt("tui-1", &format!("s{number}")).await;
        counted.push(relay.round_trips() - before);
    }
    println!("round trips of each accept: {counted:?}");
    assert!(counted.iter().min() > Some(&1) && counted.iter().min() <= Some(&6), "{counted:?}");
}

/// The server refuses a row with `code` whose id contains "bad". The store does not ask for the answer to that statement.
fn refuse_bad(kit: &Kit, code: &str) {
    kit.query(&format!(
        "CREATE FUNCTION ken.refuse() RETURNS trigger LANGUAGE plpgsql AS
           $$ BEGIN RAISE EXCEPTION 'this one is bad' USING ERRCODE = '{code}'; END $$;
         CREATE TRIGGER refuse BEFORE INSERT ON ken.submissions FOR EACH ROW WHEN (NEW.id LIKE '%bad%') EXECUTE FUNCTION ken.refuse()"
    ));
}

fn prompt_of(kit: &Kit, id: &str) -> Accept {
    kit.accept_of("a", &format!("text of {id}"), Target::Selector("tui-1".into()), queued(id))
}

fn batches(store: &Store) -> u64 {
    store.stats()["batches"].as_u64().unwrap()
}

#[tokio::test]
async fn the_error_of_a_queued_statement_is_that_of_its_change_alone() {
    let kit = Kit::new();
    kit.session("tui-1", "a").await;
    refuse_bad(&kit, "unique_violation");
    // Alone in its transaction.
    let refused = kit.write::<ChatAccept>(prompt_of(&kit, "bad-alone")).await.unwrap_err();
    assert_eq!(refused.code, Code::Conflict, "{refused:?}");
    kit.prompt("tui-1", "good-after").await;
    // Among others in one transaction.
    let before = batches(&kit);
    let all = (0..60).map(|number| {
        let id = format!("{}-{number}", if number % 3 == 1 { "bad" } else { "good" });
        kit.write::<ChatAccept>(prompt_of(&kit, &id))
    });
    let outcomes = futures_util::future::join_all(all).await;
    for (number, outcome) in outcomes.iter().enumerate() {
        match outcome {
            Ok(_) => assert_ne!(number % 3, 1, "{number} was accepted"),
            Err(error) => assert!(number % 3 == 1 && error.code == Code::Conflict, "{number}: {error:?}"),
        }
    }
    let taken = batches(&kit) - before;
    println!("60 changes, 20 of them bad, in {taken} transactions");
    assert!(taken < 40, "they did not share a transaction: {taken}");
    assert_eq!((kit.count("submissions"), kit.count("events")), (41, 41));
    assert_eq!(kit.query("SELECT count(*) FROM ken.system_events WHERE body LIKE '%bad%'"), "0");
    assert_eq!(kit.stats()["writable"], 1);
}

/// The fence of a transaction is not waited for. It keeps the server from committing even a change that is sent with its COMMIT.
#[tokio::test]
async fn nothing_is_committed_by_a_host_whose_activity_was_ended() {
    let kit = Kit::new();
    kit.session("tui-1", "a").await;
    let facts = || kit.query("SELECT name, value FROM ken.facts ORDER BY name");
    let before = facts();
    kit.query("UPDATE ken.hosts SET epoch = epoch + 1, active = 0");
    let refused = kit.write::<ChatAccept>(prompt_of(&kit, "late")).await.unwrap_err();
    assert!(refused.code == Code::Unavailable && refused.message.contains("host"), "{refused:?}");
    assert_eq!((kit.count("events"), facts()), (0, before));
    // It begins again by itself.
    let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while kit.write::<ChatAccept>(prompt_of(&kit, "again")).await.is_err() {
        assert!(std::time::Instant::now() < until, "it does not begin again");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        kit.turn_clock(500).await;
    }
}

/// What is queued is bounded, by number and by size.
#[test]
fn a_long_queue_is_sent_in_parts_and_committed_whole_or_not_at_all() {
    let Remote { server, database, .. } = crate::remote().unwrap();
    let (relay, state) = (Relay::before(server), tempfile::tempdir().unwrap());
    let mut writer = Postgres::open(&relay.url(&database), state.path()).unwrap().writer().unwrap();
    let own = "SELECT count(*), sum(length(value)) FROM ken.facts WHERE name ~ '^(n[0-9]|m[0-9]|large|next)'";
    let stored = || server.sql(&database, own);
    let large = "x".repeat(700_000);
    let mut counted = Vec::new();
    for _ in 0..5 {
        writer.begin().unwrap();
        let before = relay.round_trips();
        for number in 0..200 {
            writer.tables().set_stored_value(&format!("n{number:03}"), "v").unwrap();
        }
        let small = relay.round_trips() - before;
        for number in 0..4 {
            writer.tables().set_stored_value(&format!("large {number}"), &large).unwrap();
        }
        writer.commit().unwrap();
        counted.push((small, relay.round_trips() - before - small));
    }
    println!("round trips of 200 small statements, and of 4 large ones with the commit: {counted:?}");
    // The server may answer to the first of many statements before the last has passed the relay, which counts that as one more.
    let small = counted.iter().map(|(small, _)| *small).min();
    let large_ones = counted.iter().map(|(_, large)| *large).min();
    assert!((Some(3)..=Some(4)).contains(&small) && large_ones <= Some(5), "{counted:?}");
    assert_eq!(stored(), format!("204|{}", 200 + 4 * large.len()));
    // One that is refused in the middle of them, by a caller that goes on regardless.
    server.sql(
        &database,
        "CREATE FUNCTION ken.refuse() RETURNS trigger LANGUAGE plpgsql AS
           $$ BEGIN RAISE EXCEPTION 'this one is bad' USING ERRCODE = 'unique_violation'; END $$;
         CREATE TRIGGER refuse BEFORE INSERT ON ken.facts FOR EACH ROW WHEN (NEW.name = 'm100') EXECUTE FUNCTION ken.refuse()",
    );
    writer.begin().unwrap();
    let set = |number: u32| writer.tables().set_stored_value(&format!("m{number:03}"), "v");
    let errors: Vec<_> = (0..200).filter_map(|number| set(number).err()).collect();
    assert_eq!(errors.first().map(|error| error.code), Some(Code::Conflict), "{errors:?}");
    assert!(writer.commit().is_err());
    assert_eq!(stored(), format!("204|{}", 200 + 4 * large.len()));
    // The next transaction works.
    writer.begin().unwrap();
    writer.tables().set_stored_value("next", "v").unwrap();
    writer.commit().unwrap();
    assert!(stored().starts_with("205|"));
}
