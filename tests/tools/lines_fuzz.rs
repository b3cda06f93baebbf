//! A fuzzer for the tools' `--lines`: every line, whatever it contains, is answered within the time limit with one line of JSON,
//! and the tool keeps running. It runs for minutes, so it is not part of `make test`:
//!
//! `KEN_FUZZ_SECONDS=600 cargo test -p ken-tests --test tools lines_fuzz:: -- --ignored` (default: one minute for each tool).
//! `KEN_FUZZ_SEED` repeats a run.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use ken_tests::{Random, binary, number, root};

/// Maximum time to wait for an answer, on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);

#[test]
#[ignore = "runs for minutes"]
fn rep_answers_every_line() {
    fuzz("ken-rep", &DOCUMENTS);
}

#[test]
#[ignore = "runs for minutes"]
fn vvp_answers_every_line() {
    fuzz("ken-vvp", &DOCUMENTS);
}

#[test]
#[ignore = "runs for minutes"]
fn esl_answers_every_line() {
    fuzz("ken-esl", &TEXTS);
}

#[test]
#[ignore = "runs for minutes"]
fn laws_answers_every_line() {
    fuzz("ken-laws", &TEXTS);
}

fn fuzz(tool: &str, seeds: &[&str]) {
    if !root().join("bin").join(tool).join("Cargo.toml").exists() {
        println!("{tool} is not in this checkout");
        return;
    }
    let seed = number("KEN_FUZZ_SEED", std::process::id().into());
    let end = Instant::now() + Duration::from_secs(number("KEN_FUZZ_SECONDS", 60));
    let mut chance = Random::new(seed);
    let mut process = Process::start(tool);
    let (mut lines, mut errors) = (0u64, 0u64);
    while Instant::now() < end {
        let line = mutant(&mut chance, seeds);
        let answer = process.ask(&line, seed);
        errors += u64::from(answer.starts_with("{\"error\""));
        lines += 1;
    }
    println!("{tool}: {lines} lines, {errors} of them errors, seed {seed}");
    assert!(lines > errors, "nothing was ever valid: the fuzzer only knocks at the door");
}

struct Process {
    child: Child,
    stdin: ChildStdin,
    answers: Receiver<String>,
}

impl Process {
    fn start(tool: &str) -> Process {
        let mut child =
            Command::new(binary(tool)).arg("--lines").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Process { child, stdin, answers: listen(stdout) }
    }

    fn ask(&mut self, line: &[u8], seed: u64) -> String {
        let sent = self.stdin.write_all(line).and_then(|()| self.stdin.write_all(b"\n"));
        let answer = sent.ok().and_then(|()| self.answers.recv_timeout(TIMEOUT).ok());
        let is_json = |answer: &String| serde_json::from_str::<serde_json::Value>(answer).is_ok();
        answer.filter(is_json).unwrap_or_else(|| {
            let _ = self.child.kill();
            panic!("seed {seed}, no answer to {:?}", String::from_utf8_lossy(line))
        })
    }
}

fn listen(stdout: ChildStdout) -> Receiver<String> {
    let (sender, answers) = channel();
    std::thread::spawn(move || {
        let lines = BufReader::new(stdout).lines().map_while(Result::ok);
        lines.take_while(|line| sender.send(line.clone()).is_ok()).for_each(drop);
    });
    answers
}

/// A seed with a few changes, at most as long as the limit of a line.
fn mutant(chance: &mut Random, seeds: &[&str]) -> Vec<u8> {
    let mut line = chance.of(seeds).as_bytes().to_vec();
    for _ in 0..chance.below(6) {
        change(chance, &mut line, seeds);
    }
    line.retain(|byte| *byte != b'\n');
    line.truncate(100_000);
    line
}

fn change(chance: &mut Random, line: &mut Vec<u8>, seeds: &[&str]) {
    let at = chance.below(line.len() + 1);
    let to = (at + chance.below(20)).min(line.len());
    match chance.below(12) {
        0 => {
            if let Some(byte) = line.get_mut(at) {
                *byte = chance.below(256) as u8;
            }
        }
        1 => {
            line.drain(at..to);
        }
        2 => {
            let copy = line[at..to].to_vec();
            for _ in 0..chance.below(40) {
                line.splice(at..at, copy.iter().copied());
            }
        }
        3 => {
            let other = chance.of(seeds).as_bytes();
            let from = chance.below(other.len());
            line.splice(at..to, other[from..].iter().copied());
        }
        4 => line.truncate(at),
        5 => {
            // Half of the characters are from the blocks of letters and marks, which have most special cases.
            let end = chance.of(&[0x3000, char::MAX as usize + 1]);
            let any = char::from_u32(chance.below(end) as u32).unwrap_or(char::REPLACEMENT_CHARACTER);
            line.splice(at..at, any.to_string().into_bytes());
        }
        _ => {
            line.splice(at..at, chance.of(&TOKENS).bytes());
        }
    }
}

const DOCUMENTS: [&str; 10] = [
    r#"{"facts":["a","not c"],"rules":[[["a"],"b"],[["b"],"c"],[[],"d"]],"goals":["b","z"]}"#,
    r#"{"facts":["Ann is parent of Bo","Bo is parent of Cy"],"rules":[[["?x is parent of ?y"],"?x is ancestor of ?y"],[["?x is ancestor of ?y","?y is ancestor of ?z"],"?x is ancestor of ?z"]]}"#,
    r#"{"facts":["Zeus isn’t mortal"],"rules":[[["?x is a man"],"?x is mortal"],[["?x likes ?y","?y likes ?x"],"?x is liked"]],"options":{"decay":0.9}}"#,
    r#"{"rules":[[["p ?x"],"q s ?x"],[["p ?x","q ?y"],"not r ?x ?y"]],"facts":["p a","q b","q c"]}"#,
    r#"{"reasoning_type":"inductive","observations":["the rate is 1.1 at 10 C","the rate is 2.2 at 20 C","the rate is 4.4 at 30 C","swans don't fly"]}"#,
    r#"{"reasoning_type":"abductive","observations":["fever","cough"],"hypotheses":[{"statement":"flu","cost":3},"cold","sun"],"rules":[[["flu"],"fever"],[["flu"],"cough"],[["cold"],"cough"]]}"#,
    r#"{"reasoning_type":"abductive","observations":["Bob is wet"],"facts":["it rains"],"rules":[[["?x is outside","it rains"],"?x is wet"]]}"#,
    r#"{"reasoning_type":"analogical","source_case":{"name":"sun","legs":4,"relations":[["causes",["attracts","sun","planet"],["orbits","planet","sun"]],["heavier","sun","planet"]]},"target_case":{"name":"atom","legs":4,"relations":[["causes",["attracts","n","e"],["orbits","e","n"]]]}}"#,
    r#"{"reasoning_type":"causal","events":[{"time":"10:00","description":"a"},{"time":"2026-11-20T10:05:00+01:00","description":"b","attributes":{"x":1}},{"time":3,"description":"c"},"d"],"rules":[[["a"],"b"],[["b"],"a"],[["?x"],"d"]]}"#,
    r#"{"facts":["a"],"rules":[[["a"],"b"]],"conclusions":["b"],"reasoning_chain":[{"type":"modus_ponens","rule":0,"premises":["a"],"conclusion":"b"}]}"#,
];

const TEXTS: [&str; 8] = [
    "I'm not angry, just disappointed. No problem, thanks! HAPPY!!!",
    r#"{"user_input":"I am neither happy nor sad, but the great wall is “fine” 😀."}"#,
    r#"{"text":"On 2026-03-02 the test took 4.1 s, measured over 10 runs.","context":{"limit":"5 s"}}"#,
    "Das ist ein schöner Tag. Ça va? 日本語です。 It's PROVEN: trust me, everyone knows.",
    "First, stop the server. Then copy 3 files (12.5 MB). However, 95 % CI 1.2 to 3.4 is not drift.",
    "don’t don't can't won't — never; no: not? nor! without…",
    "The limit is 5. The limit is 6. The limit is 5. Always. Never. It is what it is, as said before, as said before.",
    "x",
];

const TOKENS: [&str; 40] = [
    "?x", "?y ", "not ", "it is not the case that ", "isn't", "n't", "’", "\\u0000", "\\ud800", "\"", "[", "]", "{",
    "}", ",", ":", "[[[]],", "null", "1e309", "-0", "NaN", "0.1", "true", "\\", "\u{301}", "\u{200d}", "İ", "😀", ".",
    " ", "\t", "\u{a0}", "\"facts\":[\"?\"],", "\"rules\":[],", "and ", "very ", "but ", "5 s", "1970-01-01", "?",
];
