//! A fuzzer for the OpenAPI documents. A server must answer every request within the time limit, with an answer that its
//! document describes and that is not 500, and must keep running.
//!
//! It sends a thousand requests to each server, from a fixed seed; `KEN_FUZZ_REQUESTS` and `KEN_FUZZ_SEED` change that.

use std::collections::BTreeMap;

use ken_tests::{Answer, Client, Contract, KEY, Random, System, chain, cognitive, number, scripted, tui};
use serde_json::{Map, Value, json};

#[test]
fn the_gateway_answers_every_request() {
    let system = scripted();
    let mut fuzzer = Fuzzer::new(Contract::get(), |chance, _| match chance.below(3) {
        0 => Some(json!({"message": chance.of(&TEXTS)})),
        1 => Some(tui(&[("text", json!(chance.of(&TEXTS)))])),
        _ => None,
    });
    fuzzer.run(|| system.client(), &[]);
    fuzzer.report(&system);
}

#[test]
fn the_cognitive_server_answers_every_request() {
    let system = cognitive().start();
    let mut fuzzer = Fuzzer::new(Contract::cognitive(), |chance, path| {
        (path.ends_with("/execute") && chance.percent(50)).then(|| chain("fuzz", 1 + chance.below(4)))
    });
    let client = || Client::connect(system.cognitive()).checked_against(Contract::cognitive());
    fuzzer.run(client, &[("X-API-Key", KEY)]);
    fuzzer.report(&system);
}

/// An operation of a document.
struct Operation {
    method: String,
    path: String,
    parameters: Vec<Value>,
    /// The schema of its JSON body, if it has one.
    body: Option<Value>,
}

struct Fuzzer {
    contract: &'static Contract,
    operations: Vec<Operation>,
    chance: Random,
    seed: u64,
    /// Returns a meaningful body for a path in some of the calls.
    sensible: fn(&mut Random, &str) -> Option<Value>,
    /// Ids, names and offsets from answers, so that requests can refer to existing objects.
    known: Vec<String>,
    /// The request in progress, for the message of a failure.
    last: String,
    /// The number of answers by status.
    seen: BTreeMap<u16, usize>,
}

impl Drop for Fuzzer {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("KEN_FUZZ_SEED={}, at: {}", self.seed, self.last);
        }
    }
}

impl Fuzzer {
    fn new(contract: &'static Contract, sensible: fn(&mut Random, &str) -> Option<Value>) -> Fuzzer {
        let seed = number("KEN_FUZZ_SEED", 20_261_121);
        Fuzzer {
            contract,
            operations: operations(contract),
            chance: Random::new(seed),
            seed,
            sensible,
            known: Vec::new(),
            last: String::new(),
            seen: BTreeMap::new(),
        }
    }

    fn run(&mut self, connect: impl Fn() -> Client, headers: &[(&str, &str)]) {
        let mut client = connect();
        for _ in 0..number("KEN_FUZZ_REQUESTS", 1_000) {
            let answer = self.ask(&mut client, headers);
            // Status 500 is an error of the server, unless it reports the failure of a run that the request waited for.
            let is_of_the_run = || answer.at("/error/type") == "operation_failed";
            assert!(answer.status != 500 || is_of_the_run(), "{}", answer.body_text());
            *self.seen.entry(answer.status).or_default() += 1;
            self.learn(&answer);
            if answer.header("connection") == Some("close") {
                client = connect();
            }
        }
    }

    /// Checks that requests were both accepted and refused, and that no part has ended but by a request to restart it.
    fn report(&self, system: &System) {
        eprintln!("{:?}", self.seen);
        let welcome: usize = self.seen.range(..400).map(|(_, count)| count).sum();
        let refused: usize = self.seen.range(400..).map(|(_, count)| count).sum();
        assert!(welcome.min(refused) > 100, "too few requests were accepted, or too few refused");
        let status = system.call("kend", "parts.status", &[]);
        for part in status["parts"].as_array().unwrap() {
            let deaths = part["deaths"].as_array().unwrap();
            assert!(deaths.iter().all(|death| death["requested"] == true && death["code"] == 0), "{part}");
        }
    }

    fn ask(&mut self, client: &mut Client, headers: &[(&str, &str)]) -> Answer {
        let index = self.chance.below(self.operations.len());
        let target = self.target(index);
        let given = self.headers(index);
        let body = self.body(index);
        let method = self.operations[index].method.clone();
        let shown = body.as_ref().map(|(_, body)| String::from_utf8_lossy(body));
        self.last = format!("{method} {target} {given:?} {}", shown.unwrap_or_default());
        let mut request = client.request(&method, &target);
        if self.chance.percent(95) {
            request = headers.iter().fold(request, |request, (name, value)| request.header(name, value));
        }
        request = given.iter().fold(request, |request, (name, value)| request.header(name, value));
        if let Some((kind, body)) = body {
            request = request.header("Content-Type", kind).body(body);
        }
        request.send()
    }

    fn target(&mut self, index: usize) -> String {
        let mut path = self.operations[index].path.clone();
        // A stream does not end, so requests to a route that streams by default ask only for existing data.
        let streams = path == "/api/events";
        while let (Some(from), Some(to)) = (path.find('{'), path.find('}')) {
            let value = self.text(&json!({}));
            path.replace_range(from..=to, &encoded(&value));
        }
        let mut query = Vec::new();
        if streams {
            query.push("offset=-1&live=long-poll".to_owned());
        }
        for (name, schema) in self.parameters(index, "query") {
            let waits = ["live", "wait_ms"].contains(&name.as_str()) || (streams && name == "offset");
            if waits || self.chance.percent(40) {
                continue;
            }
            let times = if self.chance.percent(3) { 2 } else { 1 };
            let value = encoded(&self.scalar(&schema));
            query.extend(std::iter::repeat_n(format!("{name}={value}"), times));
        }
        if self.chance.percent(5) {
            query.push(self.chance.of(&QUERIES).to_owned());
        }
        let mark = if query.is_empty() { "" } else { "?" };
        format!("{path}{mark}{}", query.join("&"))
    }

    fn headers(&mut self, index: usize) -> Vec<(String, String)> {
        let mut given = Vec::new();
        for (name, schema) in self.parameters(index, "header") {
            if self.chance.percent(30) {
                // A line feed in a header would change the request.
                let value = self.scalar(&schema).replace(|c: char| c.is_control() || !c.is_ascii(), "");
                given.push((name, value));
            }
        }
        given
    }

    fn parameters(&self, index: usize, place: &str) -> Vec<(String, Value)> {
        let all = self.operations[index].parameters.iter();
        let of_place = all.filter(|parameter| parameter["in"] == place);
        of_place
            .map(|parameter| (parameter["name"].as_str().unwrap().to_owned(), parameter["schema"].clone()))
            .collect()
    }

    /// Makes a body: its media type and its bytes, which are nearly always JSON and mostly valid.
    fn body(&mut self, index: usize) -> Option<(&'static str, Vec<u8>)> {
        let operation = &self.operations[index];
        let (path, schema) = (operation.path.clone(), operation.body.clone());
        let schema = schema.or_else(|| self.chance.percent(5).then(|| json!({})))?;
        let sensible = (self.sensible)(&mut self.chance, &path);
        let mut value = sensible.unwrap_or_else(|| self.value(&schema, 0));
        if self.chance.percent(40) {
            self.spoil(&mut value);
        }
        let mut bytes = value.to_string().into_bytes();
        if self.chance.percent(5) {
            let at = self.chance.below(bytes.len());
            match self.chance.below(3) {
                0 => bytes.truncate(at),
                1 => bytes[at] = 0xff,
                _ => drop(bytes.splice(at..at, *b"\"a\":1,")),
            }
        }
        let kind = match self.chance.below(20) {
            0 => self.chance.of(&["text/plain", "application/jsonl", "", "application/json; charset=utf-16", "*/*"]),
            _ => "application/json",
        };
        Some((kind, bytes))
    }

    /// Changes one place in a value.
    fn spoil(&mut self, value: &mut Value) {
        match value {
            Value::Object(fields) if !fields.is_empty() && self.chance.percent(80) => {
                let index = self.chance.below(fields.len());
                let name = fields.keys().nth(index).unwrap().clone();
                match self.chance.below(10) {
                    0 => drop(fields.remove(&name)),
                    1 => drop(fields.insert(format!("{name}_"), json!(1))),
                    _ => self.spoil(fields.get_mut(&name).unwrap()),
                }
            }
            Value::Array(items) if !items.is_empty() && self.chance.percent(80) => {
                let index = self.chance.below(items.len());
                self.spoil(&mut items[index]);
            }
            _ => *value = self.oddity(),
        }
    }

    fn oddity(&mut self) -> Value {
        match self.chance.below(12) {
            0 => Value::Null,
            1 => json!(-1),
            2 => json!(1e308),
            3 => json!(u64::MAX),
            4 => json!(true),
            5 => json!([]),
            6 => json!({}),
            7 => json!("x".repeat(10_000)),
            8 => (0..150).fold(json!(1), |inside, _| json!([inside])),
            _ => json!(self.chance.of(&ODD)),
        }
    }

    /// Makes a value that a schema allows; patterns are ignored.
    fn value(&mut self, schema: &Value, depth: usize) -> Value {
        let schema = &self.contract.resolve(schema).clone();
        for kind in ["oneOf", "anyOf"] {
            if let Some(choices) = schema[kind].as_array() {
                let choice = choices[self.chance.below(choices.len())].clone();
                return self.value(&choice, depth);
            }
        }
        if let Some(parts) = schema["allOf"].as_array() {
            let parts = parts.iter().map(|part| self.value(part, depth));
            return Value::Object(parts.filter_map(|part| part.as_object().cloned()).flatten().collect());
        }
        if let Some(constant) = schema.get("const") {
            return constant.clone();
        }
        if let Some(choices) = schema["enum"].as_array() {
            return choices[self.chance.below(choices.len())].clone();
        }
        let kind = match &schema["type"] {
            Value::Array(kinds) => kinds[self.chance.below(kinds.len())].clone(),
            kind => kind.clone(),
        };
        match kind.as_str() {
            Some("object") => self.object(schema, depth),
            Some("array") => {
                let max = if depth > 4 { 1 } else { 4 };
                let items = (0..self.chance.below(max)).map(|_| self.value(&schema["items"], depth + 1));
                items.collect()
            }
            Some("integer" | "number") => {
                let bound = |name: &str, otherwise| schema[name].as_i64().unwrap_or(otherwise);
                let (min, max) = (bound("minimum", 0), bound("maximum", 1_000));
                let span = usize::try_from((max - min).clamp(0, 1_000_000)).unwrap();
                json!(min + self.chance.below(span + 1) as i64)
            }
            Some("boolean") => json!(self.chance.percent(50)),
            Some("null") => Value::Null,
            Some(_) => json!(self.text(schema)),
            None => json!(self.chance.of(&TEXTS)),
        }
    }

    fn object(&mut self, schema: &Value, depth: usize) -> Value {
        let required = schema["required"].as_array().cloned().unwrap_or_default();
        let mut object = Map::new();
        for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
            let needed = required.iter().any(|one| one == name);
            if needed || (depth < 5 && self.chance.percent(40)) {
                object.insert(name.clone(), self.value(inner, depth + 1));
            }
        }
        Value::Object(object)
    }

    fn text(&mut self, schema: &Value) -> String {
        let min = schema["minLength"].as_u64().unwrap_or(0);
        match self.chance.below(10) {
            0..5 if !self.known.is_empty() => self.known[self.chance.below(self.known.len())].clone(),
            0..8 => self.chance.of(&TEXTS).to_owned(),
            8 => self.chance.of(&ODD).to_owned(),
            _ => "y".repeat(usize::try_from(min).unwrap() + self.chance.below(300)),
        }
    }

    /// Makes a value as text, for a parameter.
    fn scalar(&mut self, schema: &Value) -> String {
        if self.chance.percent(15) {
            return self.chance.of(&ODD).to_owned();
        }
        match self.value(schema, 0) {
            Value::String(text) => text,
            value => value.to_string(),
        }
    }

    fn learn(&mut self, answer: &Answer) {
        let is_json = answer.header("content-type") == Some("application/json") && !answer.body.is_empty();
        if is_json {
            gather(&answer.json(), &mut self.known);
        }
        let headers = ["stream-next-offset", "etag", "location"].iter().filter_map(|name| answer.header(name));
        self.known.extend(headers.map(str::to_owned));
        // Keeps only the newest, whose objects are most likely to exist still.
        self.known.drain(..self.known.len().saturating_sub(64));
    }
}

/// Collects short texts from fields whose values other requests can use.
fn gather(value: &Value, known: &mut Vec<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| gather(item, known)),
        Value::Object(fields) => {
            for (name, value) in fields {
                let names = ["id", "name", "after", "before", "offset", "slug", "user"];
                match value {
                    Value::String(text) if names.iter().any(|one| name.to_lowercase().ends_with(one)) => {
                        known.push(text.chars().take(100).collect());
                    }
                    value => gather(value, known),
                }
            }
        }
        _ => {}
    }
}

fn operations(contract: &Contract) -> Vec<Operation> {
    let mut operations = Vec::new();
    for (path, item) in contract.document()["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let is_missing = |summary: &str| summary.starts_with("Not part");
            if operation["summary"].as_str().is_some_and(is_missing) {
                continue;
            }
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            operations.push(Operation {
                method: method.to_uppercase(),
                path: path.clone(),
                parameters: parameters.map(|one| contract.resolve(one).clone()).collect(),
                body: operation.get("requestBody").map(|body| body["content"]["application/json"]["schema"].clone()),
            });
        }
    }
    operations
}

/// Percent-encodes every byte that is not unreserved.
fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    text.bytes().fold(String::new(), |text, byte| {
        if plain(byte) { text + &char::from(byte).to_string() } else { format!("{text}%{byte:02X}") }
    })
}

const TEXTS: [&str; 10] =
    ["a", "c", "tui", "orchestrator", "writing_team", "/session", "/rename b", "hello there", "think", "-1"];

const ODD: [&str; 14] = [
    "", " ", ".", "..", "../../etc/passwd", "a/b", "\u{0}", "\u{7f}", "%", "é\u{301}", "\u{1F600}", "0", "-1",
    "18446744073709551616",
];

const QUERIES: [&str; 8] = ["", "&", "=", "x", "limit", "offset=%ff", "a=b=c", "%"];
