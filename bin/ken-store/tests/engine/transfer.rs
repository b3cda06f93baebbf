//! All data is copied from a file to a server and back, and is then found as before.

use ken_store::transfer::{to_postgres, to_sqlite};
use ken_types::ops::store::*;
use ken_types::ops::streams::{AppendStream, StreamsAppend, StreamsCreate};
use ken_types::{Code, Offset};
use serde_json::json;

use crate::kit::*;

/// Runs a copy on a thread of its own, as the program does: it waits for the server.
fn apart<T: Send>(copy: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| scope.spawn(copy).join().unwrap())
}

async fn fill(kit: &Kit) {
    for number in 0..40 {
        let id = format!("tui-{number}");
        kit.session(&id, "a").await;
        kit.talk(&id, &format!("s{number}"), &format!("Which valve {number} leaks?"), "The red one.").await;
    }
    let tags = vec!["é".into(), "ops".into()];
    kit.write::<KnowledgePut>(PutKnowledge { tags, ..entry("Depot", "The depot is in Zone 7.") }).await.unwrap();
    kit.write::<StreamsCreate>(create_of("streams/x")).await.unwrap();
    for number in 0..50 {
        let append = AppendStream { close: number == 49, ..append_of("streams/x", "xyz") };
        kit.write::<StreamsAppend>(append).await.unwrap();
    }
    // One turn is running, one waits.
    kit.prompt("tui-1", "open").await;
    kit.prompt("tui-1", "behind").await;
}

/// What a reader of the store finds.
async fn found(kit: &Kit) -> serde_json::Value {
    let search =
        Search { query: "valve leaks depot".into(), scope: Some(scope("a")), limit: 50, vector: None, session: None };
    let memory = kit.read::<MemorySearch>(search.clone()).await.unwrap();
    let knowledge = kit.read::<KnowledgeSearch>(search).await.unwrap();
    let mut logs = Vec::new();
    for number in 0..40 {
        logs.push(kit.log(&format!("tui-{number}")).await);
    }
    let page = kit
        .read_stream(ReadStream { stream: "streams/x".into(), offset: Offset::Start, ..read("", Offset::Start, 0) })
        .await;
    let page = page.unwrap();
    let state = kit.status("open").await;
    json!([memory.found.len(), memory, knowledge, logs, page.next, page.closed, state.state])
}

#[tokio::test]
async fn what_is_copied_to_a_server_and_back_is_found_as_before() {
    let mut file = Kit::in_place(at(START), None);
    fill(&file).await;
    let before = found(&file).await;
    assert!(before[0].as_u64().unwrap() > 10, "{}", before[0]);
    file.store = None;
    let mut remote = Kit::new();
    remote.store = None;
    let server = remote.remote.as_ref().unwrap();
    let url = server.server.url(&server.database);
    let (path, state) = (file.file(), remote.dir.path().to_owned());
    // An id that a release without this limit has let in: no index of the server takes it.
    let change = |sql: &str| rusqlite::Connection::open(&path).unwrap().execute(sql, []).unwrap();
    change("INSERT INTO producers SELECT stream, hex(randomblob(6000)), 0, 0 FROM public_streams");
    let refused = apart(|| to_postgres(&path, &url, &state)).unwrap_err();
    assert!(refused.code == Code::TooLarge && refused.message.starts_with("table producers: "), "{refused:?}");
    assert_eq!(change("DELETE FROM producers"), 1);
    let copied = apart(|| to_postgres(&path, &url, &state)).unwrap();
    let rows = |table: &str| copied.iter().find(|(name, _)| *name == table).unwrap().1;
    assert_eq!((rows("sessions"), rows("exchanges"), rows("appends"), rows("knowledge")), (40, 40, 50, 1));
    // A second copy would mix two homes.
    let again = apart(|| to_postgres(&path, &url, &state)).unwrap_err();
    assert!(again.code == Code::Invalid && again.message.contains("has data already"), "{again:?}");
    remote.open().unwrap();
    assert_eq!(found(&remote).await, before);
    // Nobody copies what another host is writing.
    let other = tempfile::tempdir().unwrap();
    let busy = apart(|| to_sqlite(&url, other.path(), &other.path().join("copy.db"))).unwrap_err();
    assert!(busy.code == Code::Unavailable && busy.message.contains("works with this database"), "{busy:?}");
    // New keys follow those that were copied.
    remote.session("tui-new", "a").await;
    remote.prompt("tui-new", "new").await;
    remote.store = None;
    let mut back = Kit::in_place(at(START), None);
    back.store = None;
    std::fs::remove_file(back.file()).unwrap();
    std::fs::remove_file(back.dir.path().join("ken.db.acknowledged")).unwrap();
    // By the program, with a name alone, and where an interrupted copy has left something.
    let (folder, home) = (back.dir.path(), tempfile::tempdir().unwrap());
    let secrets = home.path().join("secrets.env");
    std::fs::write(&secrets, format!("KEN_STORE_URL={url}\n")).unwrap();
    std::fs::set_permissions(&secrets, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    std::fs::create_dir_all(home.path().join("state/store")).unwrap();
    std::fs::write(folder.join("ken.db.ken-part"), "cut").unwrap();
    std::fs::write(folder.join("ken.db.part"), "of another program").unwrap();
    // It is another host there. The first one has been silent for long enough.
    remote.query("UPDATE ken.hosts SET renewed_at = renewed_at - 20000");
    let migrate = || {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_ken-store"));
        let command = command.args(["migrate", "--to-sqlite", "ken.db", "--home"]).arg(home.path());
        let output = command.current_dir(folder).output().unwrap();
        (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    };
    let (status, text) = migrate();
    assert!(status == Some(0) && text.contains("were copied and compared"), "{text}");
    let (status, text) = migrate();
    assert!(status == Some(2) && text.contains("ken.db: exists already"), "{text}");
    let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let made: std::collections::BTreeSet<String> = names.filter(|name| name.starts_with("ken.db")).collect();
    assert_eq!(made.into_iter().collect::<Vec<_>>(), ["ken.db", "ken.db.part"]);
    back.open().unwrap();
    assert_eq!(found(&back).await, before);
    assert_eq!(back.count("sessions"), 41);
}
