//! Eight callers, each of which repeats the same mixture: a turn, every fourth with a call of a tool, an append of eight events to a
//! stream, and now and then a new session and an entry of knowledge.

use std::net::SocketAddr;

use ken_tests::{Client, Random, System, tui};
use serde_json::{Value, json};

const CALLERS: u64 = 8;
/// How many turns a session has, and after how many turns there is an entry of knowledge.
const TURNS: u64 = 20;
const APPENDED: u64 = 8;
const WORDS: usize = 4_000;

pub(crate) struct Callers {
    callers: Vec<Caller>,
    /// The events of a turn without and with a call of a tool.
    per_turn: [u64; 2],
}

impl Callers {
    pub(crate) fn new(system: &System) -> Callers {
        let per_turn = ["What is to be done?", "Please [[look]]."].map(|text| {
            let session = system.session();
            system.say(&session, text).expect(200);
            let events = system.get(&format!("/agents/orchestrator/{session}?offset=-1")).expect(200);
            events.json().as_array().expect("events").len() as u64
        });
        Callers { callers: (0..CALLERS).map(|number| Caller::new(system, number)).collect(), per_turn }
    }

    /// Has them add about so many events. Returns how many it were.
    pub(crate) fn run(&mut self, system: &System, events: u64) -> u64 {
        let (address, per_turn) = (system.address(), self.per_turn);
        let goal = events / CALLERS;
        std::thread::scope(|scope| {
            let running: Vec<_> = self
                .callers
                .iter_mut()
                .map(|caller| scope.spawn(move || caller.run(address, per_turn, goal)))
                .collect();
            running.into_iter().map(|one| one.join().expect("a caller")).sum()
        })
    }

    /// What was accepted and is not there.
    pub(crate) fn audit(&self, system: &System) -> Vec<String> {
        let mut faults = Vec::new();
        for caller in &self.callers {
            let stream = caller.stream();
            let head = system.client().request("HEAD", &stream).send().expect(200);
            let offset = head.header("stream-next-offset").expect("an offset").to_owned();
            let page = system.get(&format!("{stream}?offset={offset}")).expect(200);
            let last = system.get(&format!("{stream}?offset=-1&tail=1")).expect(200).json();
            if page.json() != json!([]) || last[0]["number"] != caller.appended - 1 {
                faults.push(format!("{stream}: {last} is the last, not {}", caller.appended - 1));
            }
        }
        faults
    }
}

struct Caller {
    number: u64,
    random: Random,
    session: String,
    turns: u64,
    appended: u64,
}

impl Caller {
    fn new(system: &System, number: u64) -> Caller {
        let caller = Caller { number, random: Random::new(number + 1), session: String::new(), turns: 0, appended: 0 };
        let mut client = system.client();
        client.request("PUT", &caller.stream()).header("Content-Type", "application/json").send().expect(201);
        caller
    }

    fn stream(&self) -> String {
        format!("/streams/soak-{}", self.number)
    }

    fn run(&mut self, address: SocketAddr, per_turn: [u64; 2], goal: u64) -> u64 {
        let (mut client, mut events) = (Client::connect(address), 0);
        while events < goal {
            events += per_turn[usize::from(self.turn(&mut client))] + self.append(&mut client);
        }
        events
    }

    fn identity(&self, fields: &[(&str, Value)]) -> Value {
        let mut body = tui(fields);
        body["actorId"] = json!(format!("actor-{}", self.number));
        body
    }

    /// Returns whether the turn calls a tool.
    fn turn(&mut self, client: &mut Client) -> bool {
        if self.turns.is_multiple_of(TURNS) {
            let made = client.post("/api/chat/sessions", &self.identity(&[])).expect(201);
            self.session = made.text("/session/id");
            let entry = json!({"title": self.words(4), "content": self.words(40)});
            client.post("/api/knowledge", &entry).expect(201);
        }
        self.turns += 1;
        let calls = self.turns.is_multiple_of(4);
        let text = self.words(12) + if calls { " [[look]]" } else { "" };
        let body = self.identity(&[("session", json!(self.session)), ("text", json!(text))]);
        let key = format!("soak-{}-{}", self.number, self.turns);
        let request = client.request("POST", "/api/chat/events").header("Idempotency-Key", &key);
        request.json(&body).send().expect(200);
        calls
    }

    fn append(&mut self, client: &mut Client) -> u64 {
        let events: Vec<Value> = (self.appended..self.appended + APPENDED)
            .map(|number| json!({"number": number, "text": self.words(8)}))
            .collect();
        client.post(&self.stream(), &json!(events)).expect(204);
        self.appended += APPENDED;
        APPENDED
    }

    /// Words of which some are frequent and most are rare, as in any language.
    fn words(&mut self, count: usize) -> String {
        let words: Vec<String> =
            (0..count).map(|_| word(self.random.below(WORDS) * self.random.below(WORDS) / WORDS)).collect();
        words.join(" ")
    }
}

fn word(mut number: usize) -> String {
    const SYLLABLES: [&str; 16] =
        ["ka", "lo", "mi", "ten", "ru", "sa", "vo", "pel", "ni", "dor", "ba", "gus", "hey", "fin", "or", "zem"];
    let mut word = String::from(SYLLABLES[number % 16]);
    while number > 0 {
        word += SYLLABLES[number % 16];
        number /= 16;
    }
    word
}
