//! Compares the streams below `streams/` with a model in memory: their content, their producers, their expiry and their forks. Where the
//! store refers to a source, the model copies its entries, so that a wrong reference is noticed.

use std::collections::BTreeMap;

use ken_types::ops::store::ReadStream;
use ken_types::ops::streams::*;
use ken_types::{Code, Error, Octets, Offset, Timestamp};
use proptest::prelude::*;
use serde_json::value::RawValue;

use crate::kit::*;

const NAMES: usize = 4;
const PRODUCERS: usize = 2;

#[derive(Debug, Clone)]
enum Step {
    Create(Wanted),
    Append(Written),
    Delete(usize),
    /// Repeats the previous call, as a caller does after a lost answer.
    Again,
    Read {
        name: usize,
        touch: bool,
    },
    Pass {
        ms: i64,
    },
    Restart,
}

#[derive(Debug, Clone)]
struct Wanted {
    name: usize,
    json: bool,
    lifetime: Option<Life>,
    closed: bool,
    body: Vec<u8>,
    /// The source, the number of entries before the fork (`None` means all entries), and the sub-offset.
    fork: Option<(usize, Option<u64>, u64)>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Life {
    Ttl(u64),
    /// A time, in milliseconds after the start of the test.
    At(i64),
}

#[derive(Debug, Clone)]
struct Written {
    name: usize,
    json: bool,
    /// The letters to append. If there are none, the call only closes the stream.
    entries: Vec<u8>,
    seq: Option<u8>,
    /// The producer, and how its epoch and number relate to those that the stream has stored.
    producer: Option<(usize, Turn)>,
    close: bool,
}

#[derive(Debug, Clone, Copy)]
enum Turn {
    Next,
    Again,
    Skip,
    NextEpoch,
    /// A new epoch whose first number is not 0.
    BadStart,
    OldEpoch,
}

impl Turn {
    /// Returns the epoch and the number to send. `known` are those that the stream has stored.
    fn of(self, known: Option<(u64, u64)>) -> (u64, u64) {
        let (epoch, seq) = known.unwrap_or((1, 0));
        let next = known.map_or(0, |_| seq + 1);
        match self {
            Turn::Next => (epoch, next),
            Turn::Again => (epoch, seq),
            Turn::Skip => (epoch, next + 2),
            Turn::NextEpoch => (epoch + 1, 0),
            Turn::BadStart => (epoch + 1, 3),
            Turn::OldEpoch => (epoch.saturating_sub(1), 0),
        }
    }
}

fn letters(max: usize) -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(b'a'..=b'z', 0..max)
}

fn life() -> impl Strategy<Value = Option<Life>> {
    prop_oneof![
        3 => Just(None),
        2 => prop_oneof![Just(1u64), Just(3)].prop_map(|seconds| Some(Life::Ttl(seconds))),
        1 => (0..20_000i64).prop_map(|at| Some(Life::At(at))),
    ]
}

fn wanted() -> impl Strategy<Value = Wanted> {
    let fork = proptest::option::weighted(0.5, (0..NAMES, proptest::option::of(0..6u64), 0..4u64));
    let flags = (proptest::bool::weighted(0.3), proptest::bool::weighted(0.1));
    (0..NAMES, flags, life(), letters(4), fork).prop_map(|(name, (json, closed), lifetime, body, fork)| Wanted {
        name,
        json,
        lifetime,
        closed,
        body,
        fork,
    })
}

fn written() -> impl Strategy<Value = Written> {
    let turn = prop_oneof![
        8 => Just(Turn::Next),
        2 => Just(Turn::Again),
        1 => Just(Turn::Skip),
        1 => Just(Turn::NextEpoch),
        1 => Just(Turn::BadStart),
        1 => Just(Turn::OldEpoch),
    ];
    let producer = proptest::option::weighted(0.6, (0..PRODUCERS, turn));
    // Most calls are for the same stream, so that its producers make progress.
    let name = prop_oneof![3 => Just(0), 1 => 0..NAMES];
    let flags = (proptest::bool::weighted(0.3), proptest::bool::weighted(0.1));
    let seq = proptest::option::weighted(0.2, b'0'..=b'9');
    (name, flags, letters(4), seq, producer).prop_map(|(name, (json, close), entries, seq, producer)| Written {
        name,
        json,
        close: close || entries.is_empty(),
        entries,
        seq,
        producer,
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => wanted().prop_map(Step::Create),
        10 => written().prop_map(Step::Append),
        2 => (0..NAMES).prop_map(Step::Delete),
        3 => Just(Step::Again),
        3 => (0..NAMES, any::<bool>()).prop_map(|(name, touch)| Step::Read { name, touch }),
        3 => prop_oneof![Just(1i64), Just(600), Just(1_000), Just(2_999)].prop_map(|ms| Step::Pass { ms }),
        1 => Just(Step::Restart),
    ]
}

/// A stream in the model, which stores all its entries itself.
#[derive(Debug, Clone, Default)]
struct Stream {
    json: bool,
    entries: Vec<Vec<u8>>,
    closed: bool,
    ttl: Option<u64>,
    end: Option<i64>,
    last_seq: Option<u8>,
    producers: BTreeMap<usize, (u64, u64)>,
    /// The number of the source. `fork` is the fork as it was requested.
    source: Option<usize>,
    fork: Option<Fork>,
    gone: bool,
    removed: bool,
}

impl Stream {
    fn is_over(&self, now: i64) -> bool {
        !self.removed && !self.gone && self.end.is_some_and(|end| end <= now)
    }
}

#[derive(Debug, Default)]
struct Model {
    now: i64,
    /// Every stream that has ever existed.
    streams: Vec<Stream>,
    names: BTreeMap<usize, usize>,
}

fn name(name: usize) -> String {
    format!("streams/test/{name}")
}

fn media(json: bool) -> String {
    if json { "application/json" } else { "text/plain" }.to_owned()
}

/// Returns letters as a stream of this kind stores them: each as a JSON text, or all as one append.
fn entries_of(json: bool, letters: &[u8]) -> Vec<Vec<u8>> {
    match json {
        true => letters.iter().map(|letter| format!("\"{}\"", *letter as char).into_bytes()).collect(),
        false if letters.is_empty() => Vec::new(),
        false => vec![letters.to_vec()],
    }
}

impl Model {
    fn forks(&self, number: usize) -> usize {
        let forks = self.streams.iter().filter(|fork| fork.source == Some(number) && !fork.removed);
        forks.count()
    }

    fn remove(&mut self, number: usize) {
        if self.forks(number) > 0 {
            self.streams[number].gone = true;
            self.streams[number].end = None;
            return;
        }
        self.streams[number].removed = true;
        self.names.retain(|_, named| *named != number);
        if let Some(source) = self.streams[number].source
            && self.streams[source].gone
            && self.forks(source) == 0
        {
            self.remove(source);
        }
    }

    fn pass(&mut self, ms: i64) {
        self.now += ms;
        self.expire();
    }

    /// Removes expired streams until there are none left. Removing a fork can make its source removable.
    fn expire(&mut self) {
        while let Some(number) = self.streams.iter().position(|stream| stream.is_over(self.now)) {
            self.remove(number);
        }
    }

    fn live(&self, name: usize) -> Result<usize, Code> {
        match self.names.get(&name) {
            None => Err(Code::NotFound),
            Some(number) if self.streams[*number].gone => Err(Code::Conflict),
            Some(number) => Ok(*number),
        }
    }

    fn touch(&mut self, number: usize) {
        if let Some(ttl) = self.streams[number].ttl {
            self.streams[number].end = Some(self.now + ttl as i64 * 1_000);
        }
    }

    fn made(&self, number: usize) -> Made {
        let stream = &self.streams[number];
        Made { content_type: media(stream.json), end: stream.entries.len() as u64, closed: stream.closed }
    }

    fn create(&mut self, wanted: &Wanted, args: &CreateStream) -> Result<Option<Creation>, Code> {
        match self.live(wanted.name) {
            Err(Code::Conflict) => return Ok(None),
            Err(_) => {}
            Ok(number) => {
                return Ok(self.is(number, wanted, args).then(|| Creation::Known(self.made(number))));
            }
        }
        let mut stream =
            Stream { json: wanted.json, closed: wanted.closed, fork: args.fork.clone(), ..Stream::default() };
        let mut lifetime = wanted.lifetime;
        if let Some((from, offset, beyond)) = wanted.fork {
            let number = match self.live(from) {
                Err(Code::Conflict) => return Ok(None),
                other => other?,
            };
            let source = &self.streams[number];
            if source.json != wanted.json {
                return Ok(None);
            }
            stream.entries = inherited(source, offset, beyond).ok_or(Code::Invalid)?;
            stream.source = Some(number);
            lifetime = lifetime.or(match (source.ttl, source.end) {
                (Some(ttl), _) => Some(Life::Ttl(ttl)),
                (None, end) => end.map(Life::At),
            });
        }
        stream.entries.extend(entries_of(wanted.json, &wanted.body));
        match lifetime {
            Some(Life::Ttl(seconds)) => {
                stream.ttl = Some(seconds);
                stream.end = Some(self.now + seconds as i64 * 1_000);
            }
            Some(Life::At(at)) => stream.end = Some(at),
            None => {}
        }
        let number = self.streams.len();
        self.streams.push(stream);
        self.names.insert(wanted.name, number);
        let made = Creation::Made(self.made(number));
        self.expire();
        Ok(Some(made))
    }

    /// Returns whether a stream matches the request to create it.
    fn is(&self, number: usize, wanted: &Wanted, args: &CreateStream) -> bool {
        let stream = &self.streams[number];
        let lifetime = match (stream.ttl, stream.end) {
            (Some(ttl), _) => Some(Life::Ttl(ttl)),
            (None, end) => end.map(Life::At),
        };
        let same_life = lifetime == wanted.lifetime || (wanted.fork.is_some() && wanted.lifetime.is_none());
        stream.json == wanted.json && stream.closed == wanted.closed && stream.fork == args.fork && same_life
    }

    /// Returns the producer, and the epoch and number that it sends.
    fn place(&self, written: &Written) -> Option<(usize, u64, u64)> {
        let (id, turn) = written.producer?;
        let stream = self.live(written.name).ok().map(|number| &self.streams[number]);
        let (epoch, seq) = turn.of(stream.and_then(|stream| stream.producers.get(&id).copied()));
        Some((id, epoch, seq))
    }

    fn append(&mut self, written: &Written) -> Result<Appending, Code> {
        let number = self.live(written.name)?;
        let producer = self.place(written);
        let now = &self.streams[number];
        let (end, closed) = (now.entries.len() as u64, now.closed);
        let known = producer.and_then(|(id, ..)| now.producers.get(&id).copied());
        if let (Some((_, epoch, seq)), Some(known)) = (producer, known) {
            if epoch < known.0 {
                return Ok(Appending::Fenced { epoch: known.0 });
            }
            if epoch == known.0 && seq <= known.1 {
                let (epoch, seq) = known;
                return Ok(Appending::Known { end, closed, epoch, seq });
            }
        }
        let closes_only = written.entries.is_empty();
        if closed && !(closes_only && producer.is_none()) {
            return Ok(Appending::Closed { end });
        }
        if !closed && !closes_only && now.json != written.json {
            let content_type = media(now.json);
            return Ok(Appending::OtherType { content_type });
        }
        if let Some((_, epoch, seq)) = producer {
            let expected = known.filter(|known| known.0 == epoch).map_or(0, |known| known.1 + 1);
            if seq != expected {
                let new_epoch = known.is_some_and(|known| known.0 < epoch);
                return Ok(if new_epoch { Appending::BadStart } else { Appending::Gap { expected } });
            }
        }
        if let (Some(seq), Some(last)) = (written.seq, now.last_seq)
            && seq <= last
            && !closed
        {
            return Ok(Appending::Behind { seq: (last as char).to_string() });
        }
        let stream = &mut self.streams[number];
        stream.entries.extend(entries_of(stream.json, &written.entries));
        stream.closed |= written.close;
        stream.last_seq = written.seq.or(stream.last_seq);
        stream.producers.extend(producer.map(|(id, epoch, seq)| (id, (epoch, seq))));
        let (end, closed) = (stream.entries.len() as u64, stream.closed);
        self.touch(number);
        Ok(Appending::Done { end, closed })
    }
}

/// Returns the entries with which a fork begins; `None` if that position does not exist.
fn inherited(source: &Stream, offset: Option<u64>, beyond: u64) -> Option<Vec<Vec<u8>>> {
    let place = offset.unwrap_or(source.entries.len() as u64) as usize;
    let mut entries = source.entries.get(..place)?.to_vec();
    let beyond = beyond as usize;
    if beyond == 0 {
        return Some(entries);
    }
    if source.json {
        entries.extend_from_slice(source.entries.get(place..place + beyond)?)
    } else {
        entries.push(source.entries.get(place)?.get(..beyond)?.to_vec())
    }
    Some(entries)
}

/// A store, and the model with which it is compared.
struct Both {
    kit: Kit,
    model: Model,
    start: i64,
    calls: u64,
    last: Option<(Call, Result<Said, Code>)>,
}

#[derive(Debug, Clone)]
enum Call {
    Create(CreateStream),
    Append(AppendStream),
    Delete(DeleteStream),
}

#[derive(Debug, Clone, PartialEq)]
enum Said {
    /// `None` if the stream exists with other properties.
    Created(Option<Creation>),
    Appended(Appending),
    Deleted,
}

impl Both {
    fn new() -> Both {
        let kit = Kit::new();
        let start = at(START).millis();
        Both { kit, model: Model::default(), start, calls: 0, last: None }
    }

    fn mark(&mut self) -> Option<CallMark> {
        self.calls += 1;
        Some(CallMark { slot: "test".into(), number: self.calls })
    }

    async fn say(&self, call: Call) -> Result<Said, Code> {
        let code = |error: Error| error.code;
        match call {
            Call::Create(args) => {
                let creation = self.kit.write::<StreamsCreate>(args).await.map_err(code)?;
                Ok(Said::Created(Some(creation).filter(|creation| !matches!(creation, Creation::Exists(_)))))
            }
            Call::Append(args) => self.kit.write::<StreamsAppend>(args).await.map(Said::Appended).map_err(code),
            Call::Delete(args) => self.kit.write::<StreamsDelete>(args).await.map(|_| Said::Deleted).map_err(code),
        }
    }

    async fn take(&mut self, step: Step) {
        match step {
            Step::Create(wanted) => {
                let args = self.creation(&wanted);
                let expected = self.model.create(&wanted, &args).map(Said::Created);
                self.compare(Call::Create(args), expected).await;
            }
            Step::Append(written) => {
                let args = self.append(&written, self.model.place(&written));
                let expected = self.model.append(&written).map(Said::Appended);
                self.compare(Call::Append(args), expected).await;
            }
            Step::Delete(deleted) => {
                let args = DeleteStream { stream: name(deleted), call: self.mark() };
                let expected = self.model.live(deleted).map(|number| {
                    self.model.remove(number);
                    Said::Deleted
                });
                self.compare(Call::Delete(args), expected).await;
            }
            Step::Again => self.again().await,
            Step::Read { name: read, touch } => self.read(read, touch).await,
            Step::Pass { ms } => {
                self.model.pass(ms);
                self.kit.turn_clock(ms).await;
            }
            Step::Restart => self.kit.restart(),
        }
        for name in 0..NAMES {
            self.read(name, false).await;
        }
    }

    async fn compare(&mut self, call: Call, expected: Result<Said, Code>) {
        let outcome = self.say(call.clone()).await;
        assert_eq!(outcome, expected, "{call:?}");
        // A refused call has changed nothing, so a repeat is decided again. A call that took effect gets the same answer as before.
        let done = matches!(
            expected,
            Ok(Said::Created(Some(Creation::Made(_))) | Said::Appended(Appending::Done { .. }) | Said::Deleted)
        );
        self.last = done.then_some((call, expected));
    }

    async fn again(&self) {
        if let Some((call, expected)) = &self.last {
            assert_eq!(&self.say(call.clone()).await, expected, "again: {call:?}");
        }
    }

    fn creation(&mut self, wanted: &Wanted) -> CreateStream {
        let body = if wanted.json {
            let texts = entries_of(true, &wanted.body);
            let texts: Vec<String> = texts.into_iter().map(|text| String::from_utf8(text).unwrap()).collect();
            format!("[{}]", texts.join(" ,\n")).into_bytes()
        } else {
            wanted.body.clone()
        };
        let lifetime = wanted.lifetime.map(|life| match life {
            Life::Ttl(seconds) => Lifetime::Ttl(seconds),
            Life::At(at) => Lifetime::ExpiresAt(Timestamp::from_millis(self.start + at)),
        });
        let fork = wanted.fork.map(|(from, offset, beyond)| Fork {
            from: name(from),
            offset: offset.map(Offset::After),
            sub_offset: beyond,
        });
        CreateStream {
            stream: name(wanted.name),
            content_type: Some(media(wanted.json)),
            lifetime,
            closed: wanted.closed,
            fork,
            body: Some(Octets(body)),
            call: self.mark(),
        }
    }

    fn append(&mut self, written: &Written, producer: Option<(usize, u64, u64)>) -> AppendStream {
        let entries = entries_of(written.json, &written.entries);
        let raw = |text: Vec<u8>| RawValue::from_string(String::from_utf8(text).unwrap()).unwrap();
        let payload = if written.json {
            Payload::Messages(entries.into_iter().map(raw).collect())
        } else {
            Payload::Bytes(Octets(written.entries.clone()))
        };
        AppendStream {
            stream: name(written.name),
            payload: (!written.entries.is_empty()).then_some(payload),
            content_type: media(written.json),
            seq: written.seq.map(|seq| (seq as char).to_string()),
            producer: producer.map(|(id, epoch, seq)| Producer { id: id.to_string(), epoch, seq }),
            close: written.close,
            call: self.mark(),
        }
    }

    /// Reads a whole stream, in pages of two entries, and compares it with the model.
    async fn read(&mut self, read: usize, touch: bool) {
        let expected = self.model.live(read);
        let mut offset = Offset::Start;
        let mut found = Vec::new();
        loop {
            let args = ReadStream { stream: name(read), offset, limit: 2, touch, ..ReadStream::default() };
            let page = match (self.kit.read_stream(args).await, expected) {
                (Ok(page), Ok(_)) => page,
                (page, expected) => {
                    assert_eq!(page.map(drop).map_err(|error| error.code), expected.map(drop), "{read}");
                    return;
                }
            };
            match page.public.unwrap().bytes {
                Some(bytes) => found.extend(bytes.0),
                None => found.extend(page.entries.iter().flat_map(|entry| entry.get().bytes())),
            }
            offset = Offset::After(page.next);
            if page.next == page.end {
                let stream = &self.model.streams[expected.unwrap()];
                assert_eq!((page.end, page.closed), (stream.entries.len() as u64, stream.closed));
                assert_eq!(String::from_utf8_lossy(&found), String::from_utf8_lossy(&stream.entries.concat()));
                break;
            }
        }
        if touch {
            self.model.touch(expected.unwrap());
        }
    }

    /// Deletes all streams, forks first, and waits for the background work. No rows must remain.
    async fn nothing_remains(&mut self) {
        while let Some(name_of_one) = (0..NAMES).find(|name| self.model.live(*name).is_ok()) {
            self.take(Step::Delete(name_of_one)).await;
        }
        assert!(self.model.names.is_empty(), "{:?}", self.model);
        for _ in 0..self.model.streams.len() * 3 + 3 {
            self.kit.turn_clock(10).await;
        }
        for table in ["public_streams", "places", "appends", "producers"] {
            assert_eq!(self.kit.count(table), 0, "{table}");
        }
    }
}

fn are_alike(steps: Vec<Step>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut both = Both::new();
        for step in steps {
            both.take(step).await;
        }
        both.nothing_remains().await;
    });
}

// Two halves, which run side by side.
proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn streams_are_as_the_model_has_them(steps in proptest::collection::vec(step(), 1..60)) {
        are_alike(steps);
    }

    #[test]
    fn streams_are_as_the_model_has_them_again(steps in proptest::collection::vec(step(), 1..60)) {
        are_alike(steps);
    }
}

/// A waiting reader gets an append, the end of a closed stream, and the removal of a stream, even if something else happens after it.
#[tokio::test]
async fn a_waiting_caller_is_notified() {
    let kit = Kit::new();
    kit.write::<StreamsCreate>(create_of("streams/a")).await.unwrap();
    let wait = |offset, id| {
        kit.read_stream(ReadStream {
            stream: "streams/a".into(),
            offset: Offset::After(offset),
            wait_ms: 10_000,
            id,
            ..ReadStream::default()
        })
    };
    let append = async {
        tokio::task::yield_now().await;
        kit.write::<StreamsAppend>(append_of("streams/a", "x")).await.unwrap();
    };
    let (page, ()) = tokio::join!(wait(0, None), append);
    let page = page.unwrap();
    assert_eq!(page.public.unwrap().bytes, Some(Octets(b"x".to_vec())));
    let close = async {
        tokio::task::yield_now().await;
        let close = AppendStream { payload: None, close: true, ..append_of("streams/a", "") };
        kit.write::<StreamsAppend>(close).await.unwrap();
    };
    let (closed, ()) = tokio::join!(wait(1, None), close);
    assert!(closed.unwrap().closed);
    let replace = async {
        // The reader has to see the old stream first.
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        let stream = "streams/a".to_owned();
        kit.write::<StreamsDelete>(DeleteStream { stream, call: None }).await.unwrap();
        kit.write::<StreamsCreate>(create_of("streams/a")).await.unwrap();
        kit.write::<StreamsAppend>(append_of("streams/a", "other")).await.unwrap();
    };
    kit.write::<StreamsDelete>(DeleteStream { stream: "streams/a".into(), call: None }).await.unwrap();
    kit.write::<StreamsCreate>(create_of("streams/a")).await.unwrap();
    let (gone, ()) = tokio::join!(wait(0, None), replace);
    assert_eq!(gone.unwrap_err().code, Code::NotFound);
    assert_eq!(wait(0, Some(page.id)).await.unwrap_err().code, Code::NotFound);
}

/// The data of a deleted stream is removed in slices, even if the store restarts in between.
#[tokio::test]
async fn a_large_stream_leaves_in_slices_over_a_restart() {
    let mut kit = Kit::new();
    kit.write::<StreamsCreate>(create_of("streams/large")).await.unwrap();
    for _ in 0..12 {
        kit.write::<StreamsAppend>(append_of("streams/large", &"x".repeat(300_000))).await.unwrap();
    }
    kit.write::<StreamsDelete>(DeleteStream { stream: "streams/large".into(), call: None }).await.unwrap();
    kit.tick().await;
    let once = kit.count("appends");
    assert!((1..12).contains(&once), "{once}");
    kit.restart();
    for _ in 0..10 {
        kit.turn_clock(10).await;
    }
    kit.tick().await;
    assert_eq!(kit.count("appends"), 0);
}

/// A reader can request less than a whole page, but it gets at least one entry.
#[tokio::test]
async fn a_page_has_as_many_bytes_as_are_asked_for() {
    let kit = Kit::new();
    kit.write::<StreamsCreate>(create_of("streams/a")).await.unwrap();
    for _ in 0..5 {
        kit.write::<StreamsAppend>(append_of("streams/a", "123456789")).await.unwrap();
    }
    for (max_bytes, entries) in [(0, 1), (17, 1), (18, 2), (44, 4), (u32::MAX, 5)] {
        let args = ReadStream { stream: "streams/a".into(), max_bytes, ..ReadStream::default() };
        assert_eq!(kit.read_stream(args).await.unwrap().next, entries, "{max_bytes}");
    }
}

/// A call is refused if a later call of the same slot has taken effect.
#[tokio::test]
async fn an_overtaken_call_is_refused() {
    let kit = Kit::new();
    kit.write::<StreamsCreate>(create_of("streams/a")).await.unwrap();
    let call =
        |number| AppendStream { call: Some(CallMark { slot: "s".into(), number }), ..append_of("streams/a", "x") };
    kit.write::<StreamsAppend>(call(2)).await.unwrap();
    assert_eq!(kit.write::<StreamsAppend>(call(1)).await.unwrap_err().code, Code::Conflict);
    let page = kit.read_stream(ReadStream { stream: "streams/a".into(), ..ReadStream::default() }).await.unwrap();
    assert_eq!(page.end, 1);
}

#[tokio::test]
async fn what_cannot_be_stored_is_refused() {
    let kit = Kit::new();
    kit.write::<StreamsCreate>(create_of("streams/a")).await.unwrap();
    let messages = Payload::Messages(vec![RawValue::from_string("1".into()).unwrap()]);
    for (bad, at) in [
        (append_of("agents/orchestrator/a", "x"), "/stream"),
        (append_of("streams/", "x"), "/stream"),
        (append_of("streams/a", ""), "/payload"),
        (AppendStream { payload: None, ..append_of("streams/a", "") }, "/payload"),
        (AppendStream { payload: Some(messages), ..append_of("streams/a", "") }, "/payload"),
        (append_of("streams/a", &"x".repeat((1 << 20) + 1)), "/payload"),
    ] {
        let error = kit.write::<StreamsAppend>(bad).await.unwrap_err();
        assert_eq!(error.at.as_deref(), Some(at), "{error}");
    }
    let json = CreateStream {
        content_type: Some("application/json".into()),
        body: Some(Octets(b"{".to_vec())),
        ..create_of("streams/b")
    };
    assert_eq!(kit.write::<StreamsCreate>(json).await.unwrap_err().code, Code::Invalid);
}
