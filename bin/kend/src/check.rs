//! Checks of the configuration that its types cannot express: references between entries, cycles, programs and
//! addresses. Apart from the search for programs, nothing is read or changed.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use ken_text::nearest;
use ken_types::config::{Config, Part, Socket, is_origin};
use ken_types::places::{MAX_SOCKET_PATH, Places};
use ken_types::providers;
use ken_types::secrets::is_name;
use ken_types::{Engine, Error, Rate, VectorModel, uri};

use crate::config::Loaded;
use crate::launch::{CONFIG_FOLDER, OWN_FOLDER, SECTIONS, SHARED_FOLDER, program};
use crate::order;
use crate::problem::Problem;

const MAX_WAIT_MS: u32 = 600_000;
/// A log that is smaller, or has more files, would mostly be renamed.
const MIN_LOG_BYTES: u64 = 4096;
const MAX_LOG_KEEP: u32 = 1000;
/// Sections with the keys `listen` and `port`.
const LISTENING: [&str; 2] = ["gateway", "cognitive"];

/// Returns all problems of a configuration whose syntax and types are correct.
pub(crate) fn check(loaded: &Loaded, places: &Places) -> Vec<Problem> {
    let mut found = Vec::new();
    let config = &loaded.config;
    let mut say = |keys: &[&str], message: String| found.push(loaded.source.problem(keys, message));
    check_values(config, &mut say);
    if let Some(message) = listen_problem(loaded) {
        say(&["gateway", "listen"], message);
    }
    for (name, part) in &config.part {
        check_part(config, name, part, places, &mut |key, message| {
            say(&["part", name, key], message);
        });
    }
    check_sockets(config, places, &mut say);
    if let Some(cycle) = order::cycle(&config.part) {
        let message = format!("these parts wait for each other: {}", cycle.join(" -> "));
        found.push(loaded.source.problem(&place_of_cycle(loaded, &cycle), message));
    }
    found
}

/// Returns the first key of a cycle that is in the user's file, because the others are as they always were.
fn place_of_cycle<'a>(loaded: &Loaded, cycle: &[&'a str]) -> [&'a str; 3] {
    let places = cycle.windows(2).filter_map(|pair| {
        let [name, next] = pair.try_into().ok()?;
        let requires = &loaded.config.part.get(name)?.requires;
        Some(["part", name, if requires.iter().any(|other| other == next) { "requires" } else { "after" }])
    });
    let places: Vec<[&str; 3]> = places.collect();
    places.iter().find(|place| loaded.source.sets(*place)).or(places.first()).copied().unwrap_or_default()
}

/// Returns why ken-gateway would refuse its address.
fn listen_problem(loaded: &Loaded) -> Option<String> {
    loaded.config.part.get("gateway").filter(|part| part.enabled && part.command.is_empty())?;
    let secret = loaded.secrets.get("API_SECRET").cloned().or_else(|| std::env::var("API_SECRET").ok());
    loaded.config.gateway.listen_problem(secret.is_some_and(|secret| !secret.trim().is_empty()))
}

/// Checks values that a part would refuse at its start, or with which it could do nothing.
fn check_values(config: &Config, say: &mut dyn FnMut(&[&str], String)) {
    if config.kend.log_max_bytes < MIN_LOG_BYTES {
        say(&["kend", "log_max_bytes"], format!("at least {MIN_LOG_BYTES}"));
    }
    if config.kend.log_keep > MAX_LOG_KEEP {
        say(&["kend", "log_keep"], format!("at most {MAX_LOG_KEEP}"));
    }
    for (section, wait_ms) in [("chat", config.chat.wait_ms), ("doors", config.doors.wait_ms)] {
        if wait_ms > MAX_WAIT_MS {
            say(&[section, "wait_ms"], format!("at most {MAX_WAIT_MS}"));
        }
    }
    let public = config.gateway.public_url.as_str();
    let is_address = uri::after_http(public).is_some_and(|rest| !rest.contains(['?', '#', '@', ' ']));
    if !public.is_empty() && !is_address {
        say(
            &["gateway", "public_url"],
            format!("`{public}` is not an http or https address, such as https://ken.example"),
        );
    }
    for origin in config.gateway.origins.iter().filter(|origin| !is_origin(origin)) {
        let message = format!("`{origin}` is not an origin, such as http://localhost:5173");
        say(&["gateway", "origins"], message);
    }
    for (keys, message) in providers::problems(&config.model.provider) {
        say(&[&["model", "provider"], keys.as_slice()].concat(), message);
    }
    let providers = &config.model.provider;
    if let Err(error) = Engine::list(&config.model.choice, providers) {
        say(&["model", "use"], in_words(error));
    }
    if !config.model.judge.is_empty()
        && let Err(error) =
            Engine::judge(&config.model.judge).and_then(|_| Engine::list(&config.model.judge, providers))
    {
        say(&["model", "judge"], in_words(error));
    }
    let embed = config.model.embed.trim();
    if !embed.is_empty()
        && let Err(error) = VectorModel::parse(embed, providers)
    {
        say(&["model", "embed"], in_words(error));
    }
    for (key, message) in config.model.budget.problems() {
        say(&["model", "budget", key], message);
    }
    for (keys, problem) in [
        (["store", "url"], config.store.problem()),
        (["telemetry", "otlp"], config.telemetry.problem()),
        (["approvals", "expiry_ms"], config.approvals.problem()),
    ] {
        problem.into_iter().for_each(|message| say(&keys, message));
    }
    for (key, message) in config.workspace.problems() {
        say(&["workspace", key], message);
    }
    let limits = &config.limits;
    for (key, message) in limits.problems() {
        say(&["limits", key], message);
    }
    for (key, rate) in [("rate_chat", &limits.rate_chat), ("rate_api", &limits.rate_api)] {
        if let Err(error) = rate.parse::<Rate>() {
            say(&["limits", key], in_words(error));
        }
    }
}

/// Returns the message without the field that the error names, because the problem names the key already.
fn in_words(error: Error) -> String {
    Error { at: None, ..error }.to_string()
}

fn check_part(config: &Config, name: &str, part: &Part, places: &Places, say: &mut dyn FnMut(&str, String)) {
    if !is_part_name(name) || name == "kend" {
        let message = "a part's name has 1 to 32 characters a-z, 0-9 and -, begins with a letter, and is not `kend`";
        return say("", message.to_owned());
    }
    for (key, others) in [("requires", &part.requires), ("after", &part.after)] {
        for other in others {
            if let Some(message) = check_reference(config, part, key, other) {
                say(key, message);
            }
        }
    }
    if let Err(message) = program(name, part, places) {
        say("command", message);
    }
    let env = part.env.iter().map(|entry| ("env", entry.split_once('=').map_or(entry.as_str(), |(name, _)| name)));
    let secrets = part.secrets.iter().map(|name| ("secrets", name.as_str()));
    for (key, name) in env.chain(secrets).filter(|(_, name)| !is_name(name)) {
        say(key, format!("`{name}` is not a name of an environment variable"));
    }
    let sections = SECTIONS.map(|(name, _)| name);
    let unknown = |name: &&String| !sections.contains(&name.as_str());
    for entry in part.reads.iter().filter(unknown) {
        let near = guess(entry, &sections).unwrap_or_else(|| format!(", only {}", sections.join(", ")));
        say("reads", format!("there is no section `{entry}`{near}"));
    }
    let places = ["/", OWN_FOLDER, SHARED_FOLDER, CONFIG_FOLDER];
    let is_place = |path: &&String| places.iter().any(|start| path.starts_with(start));
    for path in part.walls.read.iter().chain(&part.walls.write).filter(|path| !is_place(path)) {
        let below = format!("{OWN_FOLDER}, {SHARED_FOLDER} or {CONFIG_FOLDER}");
        say("walls", format!("{path} is neither an absolute path nor one below {below}"));
    }
    if !part.walls.run.is_empty() && !part.walls.calls.runs_named() {
        say("walls", format!("run has no effect with calls = \"{}\"", part.walls.calls.name()));
    }
    if part.nofile < 16 {
        say("nofile", String::from("a part needs at least 16 open files"));
    }
    if part.nice > 19 {
        say("nice", String::from("a nice value is 0 to 19"));
    }
}

fn check_reference(config: &Config, part: &Part, key: &str, other: &str) -> Option<String> {
    match config.part.get(other) {
        None => {
            let known: Vec<&str> = config.part.keys().map(String::as_str).collect();
            let near = guess(other, &known).unwrap_or_default();
            Some(format!("there is no part `{other}`{near}"))
        }
        Some(needed) if key == "requires" && part.enabled && !needed.enabled => {
            Some(format!("needs `{other}`, which is not enabled"))
        }
        Some(_) => None,
    }
}

/// Returns the end of an error message about an unknown name: a suggestion, if a known name is similar.
fn guess(name: &str, known: &[&str]) -> Option<String> {
    nearest(name, known.iter().copied()).map(|name| format!("; did you mean `{name}`?"))
}

fn is_part_name(name: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_lowercase();
    name.len() <= 32
        && name.bytes().next().is_some_and(letter)
        && name.bytes().all(|byte| letter(byte) || byte.is_ascii_digit() || byte == b'-')
}

/// An address to bind a listening socket to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Address {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

/// Returns the address of a socket in an entry. Fails if a path is too long or the text is not an address.
pub(crate) fn address(config: &Config, socket: &Socket, places: &Places) -> Result<Address, String> {
    match socket {
        Socket::Unix(path) => {
            let path = places.run.join(path);
            let length = path.as_os_str().len();
            if length > MAX_SOCKET_PATH {
                let path = path.display();
                return Err(format!(
                    "the socket path {path} has {length} bytes, the system allows {MAX_SOCKET_PATH}; use a shorter --home"
                ));
            }
            Ok(Address::Unix(path))
        }
        Socket::Tcp(text) => match config.listener(text) {
            Some(listener) => Ok(Address::Tcp(listener.into())),
            None => text.parse().map(Address::Tcp).map_err(|_| {
                let near = guess(text, &LISTENING).unwrap_or_default();
                format!("`{text}` is neither ADDRESS:PORT nor a section with `listen` and `port`{near}")
            }),
        },
    }
}

fn check_sockets(config: &Config, places: &Places, say: &mut dyn FnMut(&[&str], String)) {
    let mut taken: BTreeMap<Address, String> = BTreeMap::new();
    for reserved in ["kend.sock", "notify.sock"] {
        taken.insert(Address::Unix(places.run.join(reserved)), String::from("kend"));
    }
    for (name, part) in &config.part {
        for (label, socket) in &part.sockets {
            let keys = ["part", name, "sockets"];
            if !is_part_name(label) {
                say(&keys, format!("`{label}` is not a name for a socket"));
            }
            match address(config, socket, places) {
                Err(message) => say(&keys, message),
                Ok(Address::Tcp(any)) if any.port() == 0 => {}
                Ok(address) => {
                    if let Some(other) = taken.insert(address, name.clone()) {
                        say(&keys, format!("`{label}` has the address of a socket of `{other}`"));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    fn problems(text: &str) -> Vec<String> {
        problems_of(text, false)
    }

    fn problems_of(text: &str, builtin: bool) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ken.toml");
        std::fs::write(&path, format!("[kend]\nbuiltin_parts = {builtin}\n{text}")).unwrap();
        let places = Places::resolve(Some(dir.path()), 0, |_| None).unwrap();
        let (loaded, problems) = config::load(&path, true);
        assert_eq!(problems, []);
        let prefix = format!("{}:", path.display());
        check(&loaded, &places).iter().map(|problem| problem.to_string().replace(&prefix, "")).collect()
    }

    #[test]
    fn a_sound_file_has_no_problems() {
        let text = "[part.a]\ncommand = [\"true\"]\n[part.b]\ncommand = [\"true\"]\nrequires = [\"a\"]\n";
        assert_eq!(problems(text), [""; 0]);
    }

    #[test]
    fn each_wrong_reference_is_named() {
        let text = "[part.alpha]\ncommand = [\"true\"]\nrequires = [\"alhpa\"]\nreads = [\"limit\"]\n\
                    env = [\"2A=1\"]\nnofile = 1\nsockets = { a = { unix = \"kend.sock\" }, b = { tcp = \"x\" } }\n\
                    nice = 20\n[part.beta]\ncommand = [\"no-such-program\"]\nsockets = { a = { tcp = \"gateway\" } }\n\
                    [part.gamma]\ncommand = [\"true\"]\nsockets = { a = { tcp = \"127.0.0.1:3940\" } }\n";
        let found = problems(text);
        for start in [
            "5: part.alpha.requires: there is no part `alhpa`; did you mean `alpha`?",
            "6: part.alpha.reads: there is no section `limit`; did you mean `limits`?",
            "7: part.alpha.env: `2A` is not a name",
            "8: part.alpha.nofile: ",
            "9: part.alpha.sockets: `a` has the address of a socket of `kend`",
            "9: part.alpha.sockets: `x` is neither",
            "10: part.alpha.nice: ",
            "12: part.beta.command: no program `no-such-program`",
            "16: part.gamma.sockets: `a` has the address of a socket of `beta`",
        ] {
            assert!(found.iter().any(|line| line.starts_with(start)), "{start}: {found:#?}");
        }
        assert_eq!(found.len(), 9, "{found:#?}");
    }

    #[test]
    fn a_value_that_a_part_would_refuse_is_named() {
        let text = "[gateway]\norigins = [\"http://localhost:5173\", \"localhost\"]\n";
        assert_eq!(problems(text), ["4: gateway.origins: `localhost` is not an origin, such as http://localhost:5173"]);
        for (table, line, place) in [
            (
                "gateway",
                "public_url = \"ken.example\"",
                "gateway.public_url: `ken.example` is not an http or https address",
            ),
            (
                "gateway",
                "public_url = \"https://a/?b\"",
                "gateway.public_url: `https://a/?b` is not an http or https address",
            ),
            (
                "telemetry",
                "otlp = \"http://me:pass@a\"",
                "telemetry.otlp: has a password; put it into OTEL_EXPORTER_OTLP_HEADERS",
            ),
            (
                "telemetry",
                "otlp = \"localhost:4318\"",
                "telemetry.otlp: `localhost:4318` is not an http or https address, such as",
            ),
            ("approvals", "expiry_ms = 1", "approvals.expiry_ms: 1 is not from 1000 to 604800000 milliseconds"),
            ("model", "embed = \"nope/x\"", "model.embed: there is no model provider `nope`;"),
            ("model", "embed = \"rules\"", "model.embed: `rules` is neither PROVIDER/MODEL"),
            ("model", "embed = \"vllm/x\"", "model.embed: the provider `vllm` has no address: base_url is missing;"),
            ("model", "use = \"vllm/x\"", "model.use: the provider `vllm` has no address: base_url is missing;"),
            ("store", "url = \"mysql://x\"", "store.url: does not begin with postgres://; it has the form"),
            ("store", "url = \"postgres://db/ken\"", "store.url: needs a user and a database; it has the form"),
            ("limits", "connections = 0", "limits.connections: 0 is too low, at least 1"),
            ("limits", "held_connections = 0", "limits.held_connections: 0 is too low, at least 1"),
            ("limits", "body_memory = 0", "limits.body_memory: 0 is too low, at least 1048576"),
        ] {
            let found = problems(&format!("[{table}]\n{line}\n"));
            assert!(found.len() == 1 && found[0].starts_with(&format!("4: {place}")), "{line}: {found:?}");
        }
        let text = "[model]\nuse = \"rules,nope\"\n[limits]\nrate_chat = \"x/minute\"\nrate_api = \"0/day\"\n\
             [model.budget]\ncost_per_day = -0.5\ncost_per_session = 2e9\n";
        let found = problems(text);
        for (start, found) in [
            "4: model.use: there is no model provider `nope`; a list like",
            "9: model.budget.cost_per_day: -0.5 is not from 0 to 1000000000",
            "10: model.budget.cost_per_session: 2000000000 is not from 0 to 1000000000",
            "6: limits.rate_chat: \"x/minute\" is not a rate",
            "7: limits.rate_api: \"0/day\" is not a rate",
        ]
        .iter()
        .zip(&found)
        {
            assert!(found.starts_with(start), "{start}: {found}");
        }
        assert_eq!(found.len(), 5, "{found:#?}");
    }

    #[test]
    fn a_ring_and_a_disabled_requirement_are_errors() {
        let cycle =
            "[part.a]\ncommand = [\"true\"]\nrequires = [\"b\"]\n[part.b]\ncommand = [\"true\"]\nafter = [\"a\"]\n";
        assert_eq!(problems(cycle), ["5: part.a.requires: these parts wait for each other: a -> b -> a"]);
        let off =
            "[part.a]\ncommand = [\"true\"]\nrequires = [\"b\"]\n[part.b]\ncommand = [\"true\"]\nenabled = false\n";
        assert_eq!(problems(off), ["5: part.a.requires: needs `b`, which is not enabled"]);
    }

    #[test]
    fn a_ring_is_named_where_the_file_closes_it() {
        let parts = "[part.a]\ncommand = [\"true\"]\n[part.b]\ncommand = [\"true\"]\n";
        for (builtin, text, place) in [
            (false, parts.replace("[part.b]", "after = [\"b\"]\n[part.b]\nafter = [\"a\"]"), "5: part.a.after"),
            (true, "[part.store]\nrequires = [\"agent\"]\n".to_owned(), "4: part.store.requires"),
            (true, "[part.store]\nafter = [\"agent\"]\n".to_owned(), "4: part.store.after"),
        ] {
            let found = problems_of(&text, builtin);
            assert!(found.iter().any(|line| line.starts_with(&format!("{place}: these parts wait"))), "{found:?}");
        }
    }

    #[test]
    fn no_socket_has_the_address_of_another() {
        for (path, other) in
            [("kend.sock", Some("kend")), ("notify.sock", Some("kend")), ("first.sock", Some("a")), ("x.sock", None)]
        {
            let text = format!(
                "[part.a]\ncommand = [\"true\"]\nsockets = {{ w = {{ unix = \"first.sock\" }} }}\n\
                 [part.b]\ncommand = [\"true\"]\nsockets = {{ v = {{ unix = \"v.sock\" }}, w = {{ unix = \"{path}\" }} }}\n"
            );
            let found = other.map(|other| format!("8: part.b.sockets: `w` has the address of a socket of `{other}`"));
            assert_eq!(problems(&text), Vec::from_iter(found), "{path}");
        }
    }

    #[test]
    fn values_at_their_limits() {
        let text = |nice: u32, nofile: u32, wait: u32, part: &str| {
            format!("[chat]\nwait_ms = {wait}\n[part.{part}]\ncommand = [\"true\"]\nnice = {nice}\nnofile = {nofile}\n")
        };
        let [long, longer] = [32, 33].map(|length| "p".repeat(length));
        assert_eq!(problems(&text(19, 16, MAX_WAIT_MS, &long)), [""; 0]);
        for (wrong, place) in [
            (text(20, 16, MAX_WAIT_MS, "p"), "7: part.p.nice: "),
            (text(19, 15, MAX_WAIT_MS, "p"), "8: part.p.nofile: "),
            (text(19, 16, MAX_WAIT_MS + 1, "p"), "4: chat.wait_ms: "),
            (text(19, 16, MAX_WAIT_MS, &longer), "5: part.ppp"),
        ] {
            let found = problems(&wrong);
            assert!(found.len() == 1 && found[0].starts_with(place), "{place}: {found:#?}");
        }
    }

    #[test]
    fn limits_of_the_logs() {
        let of = |max: u64, keep: u32| problems(&format!("log_max_bytes = {max}\nlog_keep = {keep}\n"));
        assert_eq!(of(MIN_LOG_BYTES, MAX_LOG_KEEP), [""; 0]);
        assert_eq!(of(u64::MAX >> 1, 0), [""; 0]);
        for max in [0, 1, MIN_LOG_BYTES - 1] {
            assert_eq!(of(max, 5), ["3: kend.log_max_bytes: at least 4096"]);
        }
        assert_eq!(of(MIN_LOG_BYTES, MAX_LOG_KEEP + 1), ["4: kend.log_keep: at most 1000"]);
    }

    #[test]
    fn a_path_too_long_for_a_socket_is_named_with_the_remedy() {
        let long = "x".repeat(120);
        let text = format!("[part.a]\ncommand = [\"true\"]\nsockets = {{ w = {{ unix = \"{long}\" }} }}\n");
        let found = problems(&text);
        assert!(found[0].contains("use a shorter --home"), "{found:#?}");
    }

    #[test]
    fn walls_name_places_and_programs_where_they_have_an_effect() {
        let of = |walls: &str| problems(&format!("[part.a]\ncommand = [\"/bin/true\"]\nwalls = {{ {walls} }}\n"));
        let run = r#"run = ["ken-esl"]"#;
        for calls in ["run", "run-network"] {
            let walls =
                format!(r#"calls = "{calls}", read = ["/a", "SHARE/a", "CONFIG/a/"], write = ["STATE/a"], {run}"#);
            assert_eq!(of(&walls), [""; 0], "{calls}");
        }
        for (walls, why) in [
            (format!(r#"calls = "local", {run}"#), "run has no effect with calls = \"local\""),
            (format!(r#"calls = "programs", {run}"#), "run has no effect with calls = \"programs\""),
            (r#"calls = "run", read = ["HOME/a"]"#.to_owned(), "HOME/a is neither an absolute path nor one below"),
        ] {
            let found = of(&walls);
            assert!(found.len() == 1 && found[0].contains(why), "{walls}: {found:?}");
        }
    }
}
