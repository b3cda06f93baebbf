//! Benchmarks of text generation, each beside the memory bandwidth measured in the same minute. The real binary generates text
//! with a random model of GPT-2's size, which is created here.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod bound;

use std::fs::{self, File};
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use ken_tests::binary;
use nix::sys::resource::{UsageWho, getrusage};
use serde_json::{Value, json};

const EMBD: usize = 768;
const LAYERS: usize = 12;
const POSITIONS: usize = 1024;
const WORDS: usize = 50_257;
const ROUNDS: usize = 7;
const MIB: f64 = 1048576.0;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.split_first() {
        Some((first, rest)) if first == "--peak-memory-of" => println!("{}", peak_memory(rest)),
        _ => measure(),
    }
}

fn measure() {
    bound::progress();
    let folder = tempfile::tempdir().unwrap();
    make_model(folder.path());
    run(folder.path(), &["--int8", "--max-new-tokens", "1"]); // creates the int8 file and loads both into the page cache
    // The measurement of the bandwidth reads this copy of the weights.
    let floor = fs::read(folder.path().join("model.safetensors")).unwrap();
    let sizes = ["model.safetensors", "model.int8.safetensors"]
        .map(|name| fs::metadata(folder.path().join(name)).unwrap().len() as f64);
    let [f32s, int8s] = sizes.map(|size| size / MIB);
    println!(
        "ken-textgen: {f32s:.0} MiB of f32, {int8s:.0} MiB of int8 weights; medians of {ROUNDS} interleaved rounds\n"
    );
    println!("weights threads  tokens/s  weights GB/s  reading GB/s  ratio");
    for threads in [2, 1] {
        for (flags, size) in [(&[][..], sizes[0]), (&["--int8"], sizes[1])] {
            speed(folder.path(), flags, threads, size, &floor);
        }
    }
    drop(floor);
    println!("\nweights  start to first token of 32           peak memory");
    for (flags, size) in [(&[][..], sizes[0]), (&["--int8"], sizes[1])] {
        start(folder.path(), flags, size);
    }
}

/// Tokens per second; each run is compared with the faster of two bandwidths, measured before and after it.
fn speed(folder: &Path, flags: &[&str], threads: usize, size: f64, floor: &[u8]) {
    bound::progress();
    // Each token reads all weights, but only one row of the position embeddings.
    let bytes = size - (POSITIONS * EMBD * 4) as f64;
    let count = threads.to_string();
    let flags = [flags, &["--max-new-tokens", "64", "--threads", &count]].concat();
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let before = bandwidth(floor, threads);
        let answer: Value = serde_json::from_slice(&run(folder, &flags)).unwrap();
        let after = bandwidth(floor, threads);
        let tokens = answer["tokens_per_second"].as_f64().unwrap();
        let (used, reading) = (tokens * bytes / 1e9, before.max(after));
        rounds.push([tokens, used, reading, used / reading]);
    }
    let figure = |index: usize| median(rounds.iter().map(|round| round[index]).collect());
    let best = rounds.iter().fold(0f64, |best, round| best.max(round[3]));
    println!(
        "{:8}{threads:7}{:10.1}{:14.1}{:14.1}{:6.0} % (best round {:.0} %)",
        name(&flags),
        figure(0),
        figure(1),
        figure(2),
        figure(3) * 100.0,
        best * 100.0
    );
}

fn name(flags: &[&str]) -> &'static str {
    if flags.contains(&"--int8") { "int8" } else { "f32" }
}

/// The time from process start to the first token of a 32-token prompt, with a warm page cache; and the peak memory.
fn start(folder: &Path, flags: &[&str], size: f64) {
    bound::progress();
    let mut samples: Vec<f64> = (0..ROUNDS + 4).map(|_| first_token(folder, flags)).collect();
    samples.sort_by(f64::total_cmp);
    let (min, middle) = (samples[0], samples[samples.len() / 2]);
    let peak = peak(folder, &[flags, &["--max-new-tokens", "32"]].concat());
    let over = (peak / size - 1.0) * 100.0;
    println!(
        "{:8} median {middle:.0} ms, least {min:.0} ms           {:.0} MiB, weights and {over:.1} %",
        name(flags),
        peak / MIB
    );
}

/// Milliseconds until the first byte of the answer arrives.
fn first_token(folder: &Path, flags: &[&str]) -> f64 {
    let begun = Instant::now();
    let mut command = command(folder, &[flags, &["--max-new-tokens", "1"]].concat());
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut first = [0];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let time = begun.elapsed().as_secs_f64() * 1e3;
    child.wait().unwrap();
    time
}

/// The peak of resident memory in bytes, measured by a process that has no other child.
fn peak(folder: &Path, flags: &[&str]) -> f64 {
    let program = command(folder, flags);
    let program = std::iter::once(program.get_program()).chain(program.get_args());
    let output = Command::new(std::env::current_exe().unwrap()).arg("--peak-memory-of").args(program).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().parse::<f64>().unwrap() * 1024.0
}

/// Runs a program and returns its peak memory in KiB.
fn peak_memory(program: &[String]) -> i64 {
    let (name, arguments) = program.split_first().unwrap();
    assert!(Command::new(name).args(arguments).stdout(Stdio::null()).status().unwrap().success());
    getrusage(UsageWho::RUSAGE_CHILDREN).unwrap().max_rss()
}

fn run(folder: &Path, flags: &[&str]) -> Vec<u8> {
    let output = command(folder, flags).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn command(folder: &Path, flags: &[&str]) -> Command {
    let mut command = Command::new(binary("ken-textgen"));
    command.args(["--greedy", "--format", "compact", "--prompt-file"]).arg(folder.join("prompt.txt"));
    command.arg("--model-dir").arg(folder).args(flags).stdin(Stdio::null());
    command
}

/// The bandwidth at which this many threads read these bytes, which limits a program that reads all weights for each token.
fn bandwidth(bytes: &[u8], threads: usize) -> f64 {
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for part in bytes.chunks(bytes.len().div_ceil(threads)) {
            scope.spawn(move || {
                let mut sums = [0u64; 8];
                for line in part.as_chunks::<64>().0 {
                    for (sum, word) in sums.iter_mut().zip(line.as_chunks::<8>().0) {
                        *sum ^= u64::from_le_bytes(*word);
                    }
                }
                std::hint::black_box(sums);
            });
        }
    });
    bytes.len() as f64 / begun.elapsed().as_secs_f64() / 1e9
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// GPT-2 small with random weights, and a vocabulary of its size.
fn make_model(folder: &Path) {
    let path = |name: &str| -> PathBuf { folder.join(name) };
    let config =
        json!({"n_embd": EMBD, "n_head": 12, "n_layer": LAYERS, "n_positions": POSITIONS, "vocab_size": WORDS});
    fs::write(path("config.json"), config.to_string()).unwrap();
    let mut tensors =
        vec![("wte.weight".to_owned(), vec![WORDS, EMBD]), ("wpe.weight".to_owned(), vec![POSITIONS, EMBD])];
    for layer in 0..LAYERS {
        for (name, shape) in layer_tensors() {
            tensors.push((format!("h.{layer}.{name}"), shape));
        }
    }
    tensors.push(("ln_f.weight".to_owned(), vec![EMBD]));
    tensors.push(("ln_f.bias".to_owned(), vec![EMBD]));
    write_weights(&path("model.safetensors"), &tensors);
    write_vocabulary(&path("vocab.json"), &path("merges.txt"));
    let prompt: Vec<String> = (0..32).map(|i| char::from(b'a' + i % 26).to_string()).collect();
    fs::write(path("prompt.txt"), prompt.concat()).unwrap();
}

fn layer_tensors() -> [(&'static str, Vec<usize>); 12] {
    [
        ("ln_1.weight", vec![EMBD]),
        ("ln_1.bias", vec![EMBD]),
        ("attn.c_attn.weight", vec![EMBD, 3 * EMBD]),
        ("attn.c_attn.bias", vec![3 * EMBD]),
        ("attn.c_proj.weight", vec![EMBD, EMBD]),
        ("attn.c_proj.bias", vec![EMBD]),
        ("ln_2.weight", vec![EMBD]),
        ("ln_2.bias", vec![EMBD]),
        ("mlp.c_fc.weight", vec![EMBD, 4 * EMBD]),
        ("mlp.c_fc.bias", vec![4 * EMBD]),
        ("mlp.c_proj.weight", vec![4 * EMBD, EMBD]),
        ("mlp.c_proj.bias", vec![EMBD]),
    ]
}

fn write_weights(path: &Path, tensors: &[(String, Vec<usize>)]) {
    let (mut header, mut end) = (serde_json::Map::new(), 0);
    for (name, shape) in tensors {
        let start = end;
        end += shape.iter().product::<usize>() * 4;
        header.insert(name.clone(), json!({"dtype": "F32", "shape": shape, "data_offsets": [start, end]}));
    }
    let mut header = Value::Object(header).to_string();
    header.extend(std::iter::repeat_n(' ', header.len().next_multiple_of(8) - header.len()));
    let mut writer = BufWriter::with_capacity(1 << 20, File::create(path).unwrap());
    writer.write_all(&(header.len() as u64).to_le_bytes()).unwrap();
    writer.write_all(header.as_bytes()).unwrap();
    let mut state = 1u64;
    for (name, shape) in tensors {
        let scale = if name.contains("ln_") { 0.0 } else { 0.035 };
        let centre = if name.contains("ln_") && name.ends_with("weight") { 1.0 } else { 0.0 };
        for _ in 0..shape.iter().product() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let random = (state >> 40) as f32 / (1u32 << 23) as f32 - 1.0;
            writer.write_all(&(centre + scale * random).to_le_bytes()).unwrap();
        }
    }
    writer.flush().unwrap();
}

/// Writes single bytes, then words of letters, each merged from a shorter word and a letter.
fn write_vocabulary(vocab: &Path, merges: &Path) {
    let visible = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let mut tokens: Vec<String> = (0..=255u8).filter(visible).map(|byte| char::from(byte).to_string()).collect();
    tokens.extend((0x100..0x144).filter_map(char::from_u32).map(String::from));
    let mut pairs = Vec::new();
    let mut words: Vec<String> = ('A'..='Z').map(|c| format!("Ġ{c}")).collect();
    pairs.extend(('A'..='Z').map(|c| format!("Ġ {c}")));
    for word in 0.. {
        for letter in 'A'..='Z' {
            if tokens.len() + words.len() + 1 < WORDS {
                pairs.push(format!("{} {letter}", words[word]));
                words.push(format!("{}{letter}", words[word]));
            }
        }
        if tokens.len() + words.len() + 1 >= WORDS {
            break;
        }
    }
    tokens.extend(words);
    tokens.push("<|endoftext|>".to_owned());
    let ids: serde_json::Map<_, _> = tokens.into_iter().zip(0..).map(|(token, id)| (token, json!(id))).collect();
    fs::write(vocab, Value::Object(ids).to_string()).unwrap();
    fs::write(merges, format!("#version: 0.2\n{}\n", pairs.join("\n"))).unwrap();
}
