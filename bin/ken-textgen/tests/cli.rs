//! Tests of the real binary: flags, streams, batches and errors.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod support;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use serde_json::{Value, json};
use support::{END, Folder, POSITIONS};

fn command(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ken-textgen"));
    command.env("KEN_ERRORS", "json").env_remove("MVLM_MODEL_DIRS").arg("--model-dir").arg(folder).stdin(Stdio::null());
    command
}

fn run(folder: &Path, args: &[&str]) -> Output {
    command(folder).args(args).output().unwrap()
}

/// Standard output of a run that must succeed and write nothing to standard error.
fn stdout(folder: &Path, args: &[&str]) -> String {
    let output = run(folder, args);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{args:?}");
    assert_eq!(output.status.code(), Some(0), "{args:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn json(folder: &Path, args: &[&str]) -> Value {
    serde_json::from_str(&stdout(folder, &[args, &["--format", "json"]].concat())).unwrap()
}

/// The error of a run that must fail with status 2 and nothing on standard output.
fn error(output: &Output) -> Value {
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(2), &b""[..]));
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    serde_json::from_str::<Value>(&text).unwrap()["error"].clone()
}

fn run_with_input(mut child: Child, input: &[u8]) -> Output {
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap()
}

/// A model that generates these tokens in order after the prompt "a".
fn model_that_generates(tokens: &[&str]) -> Folder {
    let bytes: Vec<&[u8]> = [b"a".as_slice()].into_iter().chain(tokens.iter().map(|token| token.as_bytes())).collect();
    Folder::script(&bytes)
}

#[test]
fn the_text_is_written_and_nothing_else() {
    let folder = model_that_generates(&[" one", " two", "\n"]);
    assert_eq!(stdout(folder.path(), &["--greedy", "--prompt", "a"]), "one two\n");
    assert_eq!(stdout(folder.path(), &["--greedy", "-p", "a", "--stream", "--engine", "hf"]), "one two\n");
}

/// A prompt in JSON is answered in JSON; a text that only looks like the beginning of JSON is a prompt.
#[test]
fn json_is_answered_in_json() {
    let folder = model_that_generates(&[" one", " two"]);
    let answer = |args: &[&str], input: &str| {
        let mut command = command(folder.path());
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        run_with_input(command.spawn().unwrap(), input.as_bytes())
    };
    let request = r#"{"prompt": "a", "greedy": true, "max_new_tokens": 1, "id": "x"}"#;
    let found: Value = serde_json::from_slice(&answer(&[], request).stdout).unwrap();
    assert_eq!((&found["id"], &found["text"], &found["token_ids"]), (&json!("x"), &json!("one"), &json!([1])));
    assert_eq!(answer(&["--format", "text"], request).stdout, b"one\n");
    assert_eq!(error(&answer(&[], r#"{"prompt": " "}"#))["at"], "/prompt");
    assert_eq!(error(&answer(&[], r#"{"prompt": "a", "greeedy": true}"#))["code"], "invalid");
    assert_eq!(answer(&["--greedy"], "a").stdout, b"one two\n");
}

#[test]
fn json_has_ids_counts_and_the_reason_of_the_end() {
    let folder = model_that_generates(&[" one", " two"]);
    let answer = json(folder.path(), &["--greedy", "-p", "a"]);
    assert_eq!(answer["text"], "one two");
    assert_eq!(answer["raw_text"], " one two");
    assert_eq!(answer["token_ids"], json!([1, 2, 3]));
    assert_eq!(answer["prompt_token_ids"], json!([0]));
    assert_eq!((&answer["prompt_tokens"], &answer["completion_tokens"]), (&json!(1), &json!(3)));
    assert_eq!(answer["stop_reason"], "eos");
    assert!(answer["tokens_per_second"].as_f64().unwrap() > 0.0);
    let short = json(folder.path(), &["--greedy", "-p", "a", "--max-new-tokens", "1"]);
    assert_eq!((&short["stop_reason"], &short["token_ids"]), (&json!("length"), &json!([1])));
    assert_eq!(short["tokens_per_second"], Value::Null);
    let stopped = json(folder.path(), &["--greedy", "-p", "a", "--stop", "xyz", "--stop", "e t"]);
    assert_eq!((&stopped["stop_reason"], &stopped["stop_sequence"]), (&json!("stop"), &json!("e t")));
    assert_eq!(stopped["raw_text"], " on");
}

#[test]
fn a_prompt_from_a_flag_a_file_or_standard_input_gives_the_same_text() {
    let folder = model_that_generates(&["b", "c"]);
    let file = folder.file("prompt.txt");
    std::fs::write(&file, "a\n").unwrap();
    assert_eq!(stdout(folder.path(), &["--greedy", "--prompt-file", file.to_str().unwrap()]), "bc\n");
    for args in [&["--greedy"][..], &["--greedy", "--prompt-file", "-"]] {
        let child = command(folder.path()).args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        assert_eq!(run_with_input(child, b"a\n").stdout, b"bc\n");
    }
}

#[test]
fn a_stream_breaks_between_characters_only_and_adds_up() {
    // Emoji, also joined ones, a combining accent and Chinese, split into tokens at any byte. No two tokens are equal,
    // because a scripted model generates each token once.
    for (size, all) in [(1, "漢é😀z"), (2, "é👩\u{200d}漢e\u{301}z"), (3, "é👩\u{200d}👩\u{200d}👧漢e\u{301}z")]
    {
        let tokens: Vec<&[u8]> = std::iter::once(&b"a"[..]).chain(all.as_bytes().chunks(size)).collect();
        let folder = Folder::script(&tokens);
        let text = stdout(folder.path(), &["--greedy", "-p", "a", "--stream", "--format", "json"]);
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let (last, pieces) = lines.split_last().unwrap();
        let pieces: Vec<&str> = pieces.iter().map(|piece| piece["delta"].as_str().unwrap()).collect();
        assert_eq!((pieces.concat().as_str(), last["raw_text"].as_str().unwrap()), (all, all));
        assert!(pieces.len() > 2, "{pieces:?}");
        assert_eq!(stdout(folder.path(), &["--greedy", "-p", "a", "--stream"]), format!("{all}\n"));
    }
}

#[test]
fn invalid_utf8_becomes_the_replacement_character() {
    let folder = Folder::script(&[b"a", b"b\xe2", b"\x82", b"c"]);
    assert_eq!(stdout(folder.path(), &["--greedy", "-p", "a"]), "b\u{fffd}c\n");
    assert_eq!(stdout(folder.path(), &["--greedy", "-p", "a", "--stream"]), "b\u{fffd}c\n");
    let torn = Folder::script(&[b"a", b"b\xe2"]);
    assert_eq!(stdout(torn.path(), &["--greedy", "-p", "a", "--stream"]), "b\u{fffd}\n");
}

#[test]
fn each_token_is_written_before_the_next_is_computed() {
    let folder = Folder::random();
    let mut child = command(folder.path())
        .args([
            "--greedy", "-p", "abc", "--stream", "--sliding-window", "--max-new-tokens", "2000000", "--format", "json",
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    // The text is far from its end, but its beginning has arrived.
    for _ in 0..5 {
        let piece: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        assert!(piece["delta"].is_string());
    }
    // When the reader closes the pipe, the program ends without a message, with the status for SIGPIPE.
    drop(lines);
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(141), &b""[..]));
}

#[test]
fn a_stop_sequence_is_never_shown_not_even_in_part() {
    let folder = model_that_generates(&["one", "\n", "Us", "er:", "two"]);
    for stream in [&["--stream"][..], &[]] {
        let text = stdout(folder.path(), &[&["--greedy", "-p", "a", "--stop", "\nUser:"], stream].concat());
        assert_eq!(text, "one\n");
        let text = stdout(folder.path(), &[&["--greedy", "-p", "a", "--stop", "\nUserX"], stream].concat());
        assert_eq!(text, "one\nUser:two\n");
    }
}

#[test]
fn a_seed_gives_the_same_text_again_and_others_give_others() {
    let folder = Folder::random();
    let text = |seed: &str| stdout(folder.path(), &["-p", "abc", "--seed", seed, "--max-new-tokens", "12"]);
    let texts: Vec<String> = ["1", "2", "3", "4", "5"].map(text).to_vec();
    assert!(texts.iter().any(|text| *text != texts[0]), "{texts:?}");
    assert_eq!(text("1"), texts[0]);
    for flags in [&["--threads", "2"][..], &["--isa", "scalar"]] {
        let args = [&["-p", "abc", "--seed", "1", "--max-new-tokens", "12"], flags].concat();
        assert_eq!(stdout(folder.path(), &args), texts[0], "{flags:?}");
    }
}

#[test]
fn no_pair_of_tokens_occurs_twice_if_requested() {
    let folder = Folder::random();
    let answer =
        json(folder.path(), &["-p", "abc", "--greedy", "--no-repeat-ngram-size", "2", "--max-new-tokens", "20"]);
    let mut tokens = answer["prompt_token_ids"].as_array().unwrap().clone();
    tokens.extend(answer["token_ids"].as_array().unwrap().clone());
    let mut pairs: Vec<String> = tokens.windows(2).map(|pair| format!("{pair:?}")).collect();
    let count = pairs.len();
    pairs.sort();
    pairs.dedup();
    assert_eq!(pairs.len(), count);
}

#[test]
fn int8_uses_a_file_that_is_created_once() {
    let folder = model_that_generates(&[" one", " two"]);
    for _ in 0..2 {
        assert_eq!(stdout(folder.path(), &["--greedy", "-p", "a", "--int8"]), "one two\n");
        assert!(folder.file("model.int8.safetensors").exists());
    }
}

#[test]
fn an_int8_file_that_has_no_place_is_refused_with_the_reason() {
    let folder = model_that_generates(&[" one"]);
    std::fs::create_dir(folder.file("model.int8.safetensors")).unwrap();
    // Nobody can make a folder there.
    let output = command(folder.path()).env("XDG_CACHE_HOME", "/sys/ken").args(["-p", "a", "--int8"]).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("cannot write /sys/ken/ken/textgen/") && !text.contains("No such file"), "{text}");
}

#[test]
fn a_nan_weight_is_named_with_int8_too() {
    let mut folder = Folder::random();
    folder.tensors.get_mut("transformer.h.1.mlp.c_fc.weight").unwrap().1[7] = f32::NAN;
    folder.write();
    let fault = error(&run(folder.path(), &["-p", "a", "--int8"]));
    assert_eq!(fault["at"], "transformer.h.1.mlp.c_fc.weight");
    assert!(fault["hint"].as_str().unwrap().contains("damaged"), "{fault}");
    assert!(!folder.file("model.int8.safetensors").exists());
}

#[test]
fn past_the_models_positions_is_an_error_or_a_window_that_slides() {
    let folder = Folder::random();
    let long = "a".repeat(POSITIONS);
    let longer = "a".repeat(POSITIONS + 1);
    assert_eq!(json(folder.path(), &["--greedy", "-p", &long])["completion_tokens"], 1);
    let fault = error(&run(folder.path(), &["--greedy", "-p", &longer]));
    assert_eq!((&fault["code"], &fault["at"]), (&json!("too_large"), &json!("/prompt")));
    assert!(fault["message"].as_str().unwrap().contains("prompt is too long: 25 tokens"), "{fault}");
    let fault = error(&run(folder.path(), &["--greedy", "-p", &long, "--max-new-tokens", "2"]));
    assert_eq!(fault["at"], "/max_new_tokens");
    for prompt in [&long, &longer] {
        let args = ["--greedy", "-p", prompt, "--max-new-tokens", "60", "--sliding-window"];
        let answer = json(folder.path(), &args);
        assert!(answer["completion_tokens"] == 60 || answer["stop_reason"] == "eos", "{answer}");
    }
}

#[test]
fn lines_are_answered_in_order_by_line_and_id() {
    let folder = model_that_generates(&["b", "c", "d"]);
    let input = "a\n\n{\"prompt\":\"b\",\"id\":\"x\",\"greedy\":true}\n\"c\"\n{\"prompt\":\"\"}\n{\"prompt\":\"a\",\"stop\":\"c\",\"max_new_tokens\":9}\n{\"promt\":1}\n\u{7f}\n";
    for batch in ["1", "2", "8"] {
        let child = command(folder.path())
            .args(["--greedy", "--lines", "--batch", batch])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = run_with_input(child, input.as_bytes());
        assert!(output.status.success());
        let lines: Vec<Value> = output
            .stdout
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| serde_json::from_slice(line).unwrap())
            .collect();
        let texts: Vec<&Value> = lines.iter().map(|line| &line["text"]).collect();
        assert_eq!(texts[..3], [&json!("bcd"), &json!("cd"), &json!("d")]);
        assert_eq!(lines[1]["id"], "x");
        assert_eq!(lines[3]["error"]["at"], "/prompt");
        assert_eq!((&lines[4]["text"], &lines[4]["stop_reason"]), (&json!("b"), &json!("stop")));
        assert_eq!(lines[5]["error"]["at"], "/promt");
        assert!(lines.iter().zip(1..).all(|(line, number)| line["line"] == number), "{lines:?}");
    }
}

/// A line has at most 8 MiB, its line feed not counted. The line after a longer one is answered, too.
#[test]
fn a_line_that_is_too_long_costs_no_other_one() {
    let folder = model_that_generates(&["b"]);
    let child = command(folder.path())
        .args(["--greedy", "--lines"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (request, max) = (r#"{"prompt":"a"}"#, ken_tool::MAX_INPUT);
    let lines = [max - 1, max, max + 1].map(|bytes| format!("{request}{}\n", " ".repeat(bytes - request.len())));
    let output = run_with_input(child, format!("{}a\n", lines.concat()).as_bytes());
    let answers: Vec<Value> = output
        .stdout
        .trim_ascii_end()
        .split(|byte| *byte == b'\n')
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect();
    let found: Vec<_> = answers.iter().map(|answer| (&answer["text"], &answer["error"]["code"])).collect();
    let (text, too_long) = ((&json!("b"), &Value::Null), (&Value::Null, &json!("too_large")));
    assert_eq!(found, [text, text, too_long, text]);
}

#[test]
fn a_co_process_answers_before_its_input_ends_and_streams_on_request() {
    let folder = model_that_generates(&["b", "c", "d"]);
    let mut child = command(folder.path())
        .args(["--lines", "--greedy"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    for id in 1..=3 {
        writeln!(stdin, "{}", json!({"id": id, "prompt": "a", "stream": true})).unwrap();
        let mut pieces = String::new();
        let last = lines
            .by_ref()
            .inspect(|line| pieces += line["delta"].as_str().unwrap_or_default())
            .find(|line| line.get("delta").is_none());
        let last = last.unwrap();
        assert_eq!((&last["id"], &last["raw_text"], pieces.as_str()), (&json!(id), &json!("bcd"), "bcd"));
    }
    drop(stdin);
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_batch_gives_the_same_texts_as_single_prompts() {
    let folder = Folder::random();
    let prompts = ["abc", "the", "q", "a b c d e", "zzzz"];
    let flags = ["--seed", "3", "--max-new-tokens", "10", "--top-k", "0"];
    let child =
        command(folder.path()).args(flags).arg("--lines").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let output = run_with_input(child, prompts.join("\n").as_bytes());
    let lines = String::from_utf8(output.stdout).unwrap();
    for (line, prompt) in lines.lines().zip(prompts) {
        let together: Value = serde_json::from_str(line).unwrap();
        let alone = json(folder.path(), &[&flags[..], &["-p", prompt]].concat());
        assert_eq!(together["token_ids"], alone["token_ids"], "{prompt}");
    }
    assert_eq!(lines.lines().count(), prompts.len());
}

#[test]
fn an_alias_names_a_model_and_the_first_is_the_default() {
    let (one, two) = (model_that_generates(&["one"]), model_that_generates(&["two"]));
    let aliases = format!("first:{},second={}", one.path().display(), two.path().display());
    let run = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ken-textgen"));
        command
            .env("KEN_ERRORS", "json")
            .env("MVLM_MODEL_DIRS", &aliases)
            .args(args)
            .args(["--greedy", "-p", "a"])
            .output()
            .unwrap()
    };
    assert_eq!(run(&["--model", "second"]).stdout, b"two\n");
    assert_eq!(run(&[]).stdout, b"one\n");
    let fault = error(&run(&["--model", "third"]));
    assert_eq!((&fault["at"], &fault["hint"]), (&json!("--model"), &json!("it has first, second")));
}

#[test]
fn eos_may_be_a_list_and_generation_config_has_priority() {
    let mut folder = model_that_generates(&["b", "c", "d"]);
    folder.config["eos_token_id"] = json!([2, 4]);
    folder.write();
    assert_eq!(json(folder.path(), &["--greedy", "-p", "a"])["token_ids"], json!([1, 2]));
    std::fs::write(folder.file("generation_config.json"), r#"{"eos_token_id": 3, "do_sample": false}"#).unwrap();
    assert_eq!(json(folder.path(), &["-p", "a"])["token_ids"], json!([1, 2, 3]));
}

#[test]
fn help_and_version_touch_no_file() {
    for (flag, word) in [("--help", "--model-dir"), ("--version", env!("CARGO_PKG_VERSION"))] {
        let output = run(Path::new("/nowhere"), &[flag]);
        assert_eq!(output.status.code(), Some(0));
        assert!(String::from_utf8(output.stdout).unwrap().contains(word));
    }
}

/// The faults of a model directory, each with a word that the error must contain.
#[test]
fn every_fault_of_a_model_is_one_error_that_names_it() {
    type Break = fn(&mut Folder);
    let faults: [(&str, Break); 17] = [
        ("config.json", |f| std::fs::remove_file(f.file("config.json")).unwrap()),
        ("config.json", |f| std::fs::write(f.file("config.json"), "{").unwrap()),
        ("n_layer", |f| f.config["n_layer"] = Value::Null),
        ("model.safetensors", |f| std::fs::remove_file(f.file("model.safetensors")).unwrap()),
        ("truncated", |f| cut(f, 100)),
        ("truncated", |f| cut(f, usize::MAX)),
        ("truncated", |f| std::fs::write(f.file("model.safetensors"), [1, 2, 3]).unwrap()),
        ("truncated", |f| std::fs::write(f.file("model.safetensors"), []).unwrap()),
        ("safetensors", |f| std::fs::write(f.file("model.safetensors"), [b'x'; 64]).unwrap()),
        ("wpe.weight has the shape [24, 40]", |f| f.config["n_positions"] = 25.into()),
        ("wte.weight has the shape [61, 40]", |f| f.config["vocab_size"] = 62.into()),
        ("c_fc.weight has the shape [40, 72]", |f| f.config["n_inner"] = Value::Null),
        ("no tensor transformer.h.1.ln_2.bias", |f| drop(f.tensors.remove("transformer.h.1.ln_2.bias"))),
        ("vocab.json", |f| std::fs::remove_file(f.file("vocab.json")).unwrap()),
        ("merges.txt", |f| std::fs::remove_file(f.file("merges.txt")).unwrap()),
        ("60 tokens", |f| drop(f.tokens.remove(35))),
        ("eos_token_id 61", |f| f.config["eos_token_id"] = 61.into()),
    ];
    for (index, (name, fault)) in faults.into_iter().enumerate() {
        let mut folder = Folder::random();
        let before = (folder.config.clone(), folder.tensors.len(), folder.tokens.len());
        fault(&mut folder);
        if before != (folder.config.clone(), folder.tensors.len(), folder.tokens.len()) {
            folder.write();
        }
        let fault = error(&run(folder.path(), &["--greedy", "-p", "abc"]));
        assert!(fault["message"].as_str().unwrap().contains(name), "{index} {name}: {fault}");
    }
}

/// Truncates the weights to this many bytes, and at least by one byte.
fn cut(folder: &Folder, keep: usize) {
    let bytes = folder.safetensors();
    std::fs::write(folder.file("model.safetensors"), &bytes[..keep.min(bytes.len() - 1)]).unwrap();
}

#[test]
fn nan_weights_are_an_error() {
    for flags in [&["--greedy"][..], &["--stream"], &["--int8"]] {
        let mut folder = Folder::random();
        folder.tensors.get_mut("transformer.h.0.mlp.c_proj.weight").unwrap().1[11] = f32::NAN;
        folder.write();
        let fault = error(&run(folder.path(), &[&["-p", "abc"], flags].concat()));
        assert!(fault["message"].as_str().unwrap().contains("h.0.mlp.c_proj.weight"), "{fault}");
    }
}

#[test]
fn every_bad_flag_is_one_error_that_names_it() {
    let folder = Folder::random();
    for (args, at) in [
        (&["-p", ""][..], "--prompt"),
        (&["-p", " \n"], "--prompt"),
        (&["--prompt-file", "/nowhere/prompt"], "--prompt-file"),
        (&["-p", "a", "--temperature", "0"], "--temperature"),
        (&["-p", "a", "--temperature", "-0.5"], "--temperature"),
        (&["-p", "a", "--temperature", "nan"], "--temperature"),
        (&["-p", "a", "--greedy", "--temperature", "0"], "--temperature"),
        (&["-p", "a", "--temperature", "warm"], "--temperature"),
        (&["-p", "a", "--top-p", "1.5"], "--top-p"),
        (&["-p", "a", "--top-k", "-1"], "--top-k"),
        (&["-p", "a", "--repetition-penalty", "-2"], "--repetition-penalty"),
        (&["-p", "a", "--max-new-tokens", "0"], "--max-new-tokens"),
        (&["-p", "a", "--engine", "vllm"], "--engine"),
        (&["-p", "a", "--isa", "avx1024"], "--isa"),
        (&["-p", "a", "--threads", "0"], "--threads"),
        (&["--lines", "--format", "text"], "--format"),
        (&["-p", "a", "--no-such-flag"], "--no-such-flag"),
    ] {
        let fault = error(&run(folder.path(), args));
        assert_eq!(fault["at"], *at, "{args:?}: {fault}");
    }
    // Empty standard input is an empty prompt.
    assert_eq!(error(&run(folder.path(), &[]))["message"], "the prompt is empty");
}

#[test]
fn a_model_directory_that_is_missing_or_a_file_is_named() {
    let folder = Folder::random();
    let file = folder.file("config.json");
    let fault = error(&run(&file, &["-p", "a"]));
    assert_eq!((&fault["code"], &fault["at"]), (&json!("invalid"), &json!("--model-dir")));
    assert!(fault["message"].as_str().unwrap().ends_with("config.json is not a directory"), "{fault}");
    let fault = error(&run(Path::new("/nowhere/model"), &["-p", "a"]));
    assert_eq!(fault["code"], "not_found");
    let output = Command::new(env!("CARGO_BIN_EXE_ken-textgen"))
        .env("KEN_ERRORS", "json")
        .env_remove("MVLM_MODEL_DIRS")
        .args(["-p", "a"])
        .output()
        .unwrap();
    assert_eq!(error(&output)["at"], "--model-dir");
}

#[test]
fn an_end_token_in_the_prompt_is_one_token() {
    let folder = Folder::random();
    let answer = json(folder.path(), &["-p", &format!("ab{END}c"), "--max-new-tokens", "1"]);
    assert_eq!(answer["prompt_token_ids"], json!([1, 2, 0, 3]));
}

#[test]
fn a_check_describes_the_model_and_writes_nothing() {
    let folder = Folder::random();
    let before = std::fs::read_dir(folder.path()).unwrap().count();
    let checked: Value = serde_json::from_str(&stdout(folder.path(), &["--check", "--int8"])).unwrap();
    let learned: usize = folder.tensors.values().map(|(_, values)| values.len()).sum();
    let weights = std::fs::metadata(folder.file("model.safetensors")).unwrap().len();
    let expected = json!({"ok": true, "model_dir": folder.path(), "parameters": learned, "layers": 2, "heads": 4,
        "width": 40, "positions": POSITIONS, "vocabulary": 61, "weights_bytes": weights});
    assert_eq!(checked, expected);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), before);
}

#[test]
fn a_check_finds_the_same_faults_as_a_start() {
    for (damage, part) in [
        (&(|folder: &mut Folder| folder.config["n_layer"] = json!(3)) as &dyn Fn(&mut Folder), "h.2."),
        (&|folder| folder.config["n_embd"] = json!(44), "shape"),
        (&|folder| drop(folder.tensors.remove("transformer.ln_f.bias")), "no tensor transformer.ln_f.bias"),
        (&|folder| drop(folder.tokens.pop()), "60 tokens"),
        (&|folder| folder.config["eos_token_id"] = json!(61), "eos_token_id 61"),
    ] {
        let mut folder = Folder::random();
        damage(&mut folder);
        folder.write();
        let fault = error(&run(folder.path(), &["--check"]));
        assert!(fault["message"].as_str().unwrap().contains(part), "{fault}");
        assert_eq!(fault, error(&run(folder.path(), &["-p", "a"])), "a start says something else");
    }
    for (name, part) in
        [("model.safetensors", "model.safetensors"), ("config.json", "config.json"), ("vocab.json", "vocab.json")]
    {
        let folder = Folder::random();
        std::fs::remove_file(folder.file(name)).unwrap();
        let fault = error(&run(folder.path(), &["--check"]));
        assert!(fault["message"].as_str().unwrap().contains(part), "{fault}");
    }
    let folder = Folder::random();
    let weights = folder.safetensors();
    std::fs::write(folder.file("model.safetensors"), &weights[..weights.len() - 4]).unwrap();
    let fault = error(&run(folder.path(), &["--check"]));
    assert!(fault["message"].as_str().unwrap().contains("truncated"), "{fault}");
}

#[test]
fn the_aliases_are_listed_and_the_active_one_is_the_default() {
    let state = tempfile::tempdir().unwrap();
    let (one, two) = (model_that_generates(&["one"]), model_that_generates(&["two"]));
    let run = |args: &[&str], dirs: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ken-textgen"));
        command.env("KEN_ERRORS", "json").env("MVLM_MODEL_DIRS", dirs).env("ACTIVE_MVLM_MODEL", "second");
        command.env("KEN_STATE_DIR", state.path());
        command.args(args).stdin(Stdio::null()).output().unwrap()
    };
    let dirs = format!("first={},second={}", one.path().display(), two.path().display());
    assert_eq!(run(&["--greedy", "-p", "a"], &dirs).stdout, b"two\n");
    let list = String::from_utf8(run(&["--list-models"], &dirs).stdout).unwrap();
    let list: Vec<Value> = list.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let entry = |alias: &str, folder: &Folder, active| json!({"alias": alias, "path": folder.path(), "active": active});
    assert_eq!(list, [entry("first", &one, false), entry("second", &two, true)]);
    assert_eq!(error(&run(&["--list-models"], "first"))["at"], "MVLM_MODEL_DIRS");
    assert_eq!(error(&run(&["--check"], "first=/x"))["at"], "ACTIVE_MVLM_MODEL");
    // One that was activated over HTTP goes before the variable, and an error names its file.
    let file = state.path().join("models/active_model");
    std::fs::create_dir(file.parent().unwrap()).unwrap();
    std::fs::write(&file, "first\n").unwrap();
    assert_eq!(run(&["--greedy", "-p", "a"], &dirs).stdout, b"one\n");
    let fault = error(&run(&["--check"], "second=/x"));
    assert_eq!((&fault["at"], &fault["hint"]), (&json!(file), &json!("it has second")));
    assert!(run(&["--list-models"], "").stdout.is_empty());
}
