//! Benchmarks of the protocol tools, each beside a lower bound or a plain alternative measured in the same run. `make bench` runs
//! them with the release binaries; rows of tools that are not built are left out.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

#[allow(dead_code)] // the other benches use the rest
mod figures;

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use figures::{Samples, row, title};
use ken_tests::root;
use serde_json::json;

const ROUNDS: usize = 200;

fn main() {
    let tools: Vec<Tool> = Tool::all().into_iter().filter(|tool| tool.path.exists()).collect();
    title("tools: start to exit, small input");
    start(&tools);
    title("tools: memory after the first answer");
    tools.iter().for_each(memory);
    title("ken-rep: a chain of 100 000 rules, JSON in to JSON out");
    if let Some(rep) = tools.iter().find(|tool| tool.name == "ken-rep") {
        chain(rep);
    }
}

struct Tool {
    name: &'static str,
    path: PathBuf,
    /// One small input.
    input: String,
}

impl Tool {
    fn all() -> [Tool; 4] {
        let tool = |name, input: String| Tool { name, path: root().join("target/release").join(name), input };
        let rules = json!({"facts": ["Socrates is a man"], "rules": [[["?x is a man"], "?x is mortal"]]}).to_string();
        [
            tool("ken-rep", rules.clone()),
            tool("ken-esl", "I'm not angry, just disappointed.".to_owned()),
            tool("ken-vvp", rules),
            tool("ken-laws", "The test took 4.1 s on 2026-03-02. So the limit of 5 s holds.".to_owned()),
        ]
    }
}

/// Each round runs every tool once, so that a busy moment of the machine affects all of them.
fn start(tools: &[Tool]) {
    let folder = tempfile::tempdir().expect("a folder");
    let inputs: Vec<PathBuf> = tools
        .iter()
        .map(|tool| {
            let path = folder.path().join(tool.name);
            std::fs::write(&path, &tool.input).expect("an input");
            path
        })
        .collect();
    let mut floor = Vec::new();
    let mut samples: Vec<Vec<Duration>> = tools.iter().map(|_| Vec::new()).collect();
    for _ in 0..ROUNDS {
        floor.push(time(Command::new("/bin/true").stdout(Stdio::null())));
        for ((tool, input), samples) in tools.iter().zip(&inputs).zip(&mut samples) {
            let input = File::open(input).expect("an input");
            samples.push(time(Command::new(&tool.path).stdin(input).stdout(Stdio::null())));
        }
    }
    let floor = Samples::of(floor);
    row("/bin/true", &floor.text(), "");
    for (tool, samples) in tools.iter().zip(samples) {
        let samples = Samples::of(samples);
        row(tool.name, &samples.text(), &ratio(samples.median(), floor.median(), "/bin/true"));
    }
}

fn time(command: &mut Command) -> Duration {
    let begun = Instant::now();
    command.status().expect("a program");
    begun.elapsed()
}

fn ratio(time: Duration, floor: Duration, name: &str) -> String {
    format!("{:.2} x {name}", time.as_secs_f64() / floor.as_secs_f64())
}

/// The peak resident memory, beside that of `cat`, which reads and writes the same line.
fn memory(tool: &Tool) {
    let own = peak(Command::new(&tool.path).arg("--lines"), &tool.input);
    let floor = peak(&mut Command::new("cat"), &tool.input);
    row(
        tool.name,
        &format!("{own} KiB at most resident"),
        &format!("{:.2} x cat ({floor} KiB)", own as f64 / floor as f64),
    );
}

fn peak(command: &mut Command, line: &str) -> u64 {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a program");
    let mut stdin = child.stdin.take().expect("stdin");
    writeln!(stdin, "{line}").expect("a line");
    let mut answer = String::new();
    BufReader::new(child.stdout.take().expect("stdout")).read_line(&mut answer).expect("an answer");
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).expect("status");
    drop(stdin);
    child.wait().expect("the end");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("VmHWM");
    line.trim().trim_end_matches(" kB").trim().parse().expect("a number")
}

/// Measures a chain of rules, and for comparison a simple linear algorithm with Python dictionaries, and reading and writing the
/// same bytes.
fn chain(rep: &Tool) {
    let folder = tempfile::tempdir().expect("a folder");
    let (input, output) = (folder.path().join("in.json"), folder.path().join("out.json"));
    let rules: Vec<_> = (0..100_000).map(|n| json!([[format!("s{n}")], format!("s{}", n + 1)])).collect();
    std::fs::write(&input, json!({"facts": ["s0"], "rules": rules}).to_string()).expect("an input");
    let mut samples: [Vec<Duration>; 3] = Default::default();
    for _ in 0..15 {
        samples[0].push(filter(Command::new(&rep.path), &input, &output));
        let written = folder.path().join("copy.json");
        std::fs::copy(&output, &written).expect("a copy");
        let both = format!("cat {} >/dev/null; cat {}", input.display(), written.display());
        let mut copy = Command::new("sh");
        copy.args(["-c", &both]);
        samples[1].push(filter(copy, &input, &output));
        let mut python = Command::new("python3");
        python.args(["-c", LINEAR]);
        samples[2].push(filter(python, &input, &folder.path().join("python.json")));
    }
    let [rep, copy, python] = samples.map(Samples::of);
    row("ken-rep", &rep.text(), &ratio(rep.median(), python.median(), "Python, linear"));
    row("the same bytes through cat", &copy.text(), "");
    row("Python, linear, with the steps", &python.text(), "");
}

fn filter(mut command: Command, input: &Path, output: &Path) -> Duration {
    let (input, output) = (File::open(input).expect("an input"), File::create(output).expect("an output"));
    time(command.stdin(input).stdout(output).stderr(Stdio::null()))
}

const LINEAR: &str = r#"
import json, sys
document = json.load(sys.stdin)
rules = document["rules"]
known = list(document["facts"])
held = set(known)
left = [len(premises) for premises, _ in rules]
waiting = {}
for number, (premises, _) in enumerate(rules):
    for premise in premises:
        waiting.setdefault(premise, []).append(number)
steps = []
for statement in known:
    for number in waiting.get(statement, ()):
        left[number] -= 1
        if left[number] == 0 and rules[number][1] not in held:
            conclusion = rules[number][1]
            held.add(conclusion)
            known.append(conclusion)
            steps.append({"type": "modus_ponens", "rule": number, "premises": rules[number][0],
                          "conclusion": conclusion, "confidence": 1.0,
                          "explanation": "%s because %s (rule %d)" % (conclusion, statement, number)})
sys.stdout.write(json.dumps({"conclusions": [step["conclusion"] for step in steps], "reasoning_chain": steps}))
"#;
