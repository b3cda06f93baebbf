//! Compares `share/tools_manifest.json` with the programs: each entry is run through its launcher, and must behave as
//! declared.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ken_tests::{binary, help_flags, root, run_with_input};
use serde_json::Value;

#[path = "../../bin/ken-textgen/tests/support/mod.rs"]
mod models;

fn manifest() -> Value {
    let text = std::fs::read_to_string(root().join("share/tools_manifest.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

const GROUPS: [&str; 2] = ["governance_tools", "protocol_tools"];

/// All entries whose programs are built, each with its name.
fn entries() -> Vec<(String, Value)> {
    let manifest = manifest();
    let all = GROUPS.iter().flat_map(|group| manifest[group].as_object().unwrap().clone());
    let is_here =
        |(_, entry): &(String, Value)| root().join("bin").join(text(entry, "program")).join("Cargo.toml").exists();
    all.filter(is_here).collect()
}

fn text<'v>(entry: &'v Value, field: &str) -> &'v str {
    entry[field].as_str().unwrap_or_else(|| panic!("{field} of {entry}"))
}

/// The command, for a program that has commands, and then the flags of an example.
fn arguments(entry: &Value) -> Vec<&str> {
    let arguments = entry["arguments"].as_array();
    arguments.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// The program of an entry with its command, as in `--help`.
fn command(entry: &Value) -> String {
    let command = arguments(entry).into_iter().take(1);
    let words: Vec<&str> = [text(entry, "program")].into_iter().chain(command).collect();
    words.join(" ")
}

fn launcher(entry: &Value) -> PathBuf {
    root().join("share").join(text(entry, "wrapper"))
}

fn run(command: &mut Command, input: &Value) -> Output {
    let input = input.as_str().map_or_else(|| input.to_string(), str::to_owned);
    run_with_input(command, input.as_bytes())
}

#[test]
fn every_entry_has_all_fields() {
    let manifest = manifest();
    assert!(manifest["version"].is_string());
    let groups: Vec<&str> =
        manifest.as_object().unwrap().keys().map(String::as_str).filter(|key| *key != "version").collect();
    assert_eq!(groups, GROUPS);
    let governance: Vec<&String> = manifest["governance_tools"].as_object().unwrap().keys().collect();
    assert_eq!(governance, ["cognitive_workflow", "five_laws_validator", "governed_response"]);
    let protocols: Vec<&String> = manifest["protocol_tools"].as_object().unwrap().keys().collect();
    assert_eq!(protocols, ["ESL", "REP", "VVP", "mvlm_textgen"]);
    for (name, entry) in entries() {
        for field in ["name", "wrapper", "category", "description"] {
            assert!(entry[field].is_string(), "{field} of {name}");
        }
        assert!(entry["priority"].is_u64() && entry["composable"].is_boolean(), "{name}");
        assert!(entry["input"].is_object() && entry["output"].is_object(), "{name}");
        assert!(!entry["use_cases"].as_array().unwrap().is_empty(), "{name}");
    }
}

#[test]
fn every_entry_runs_and_answers_as_declared() {
    let model = models::Folder::random();
    let models = format!("random={}", model.path().display());
    for (name, entry) in entries() {
        let program = binary(text(&entry, "program"));
        let command = |path: &Path| {
            let mut command = Command::new(path);
            command
                .args(arguments(&entry))
                .args(arguments(&entry["example"]))
                .env("MVLM_MODEL_DIRS", &models)
                .env_remove("ACTIVE_MVLM_MODEL");
            command
        };
        let mut through = command(&launcher(&entry));
        through.env("KEN_BIN_DIR", program.parent().unwrap());
        let output = run(&mut through, &entry["example"]["stdin"]);
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{name}: {output:?}"));
        for field in entry["output"]["fields"].as_array().unwrap() {
            assert!(answer.get(field.as_str().unwrap()).is_some(), "{name} promises {field}: {answer}");
        }
        let status = output.status.code().unwrap().to_string();
        assert!(entry["output"]["exit_status"].get(&status).is_some(), "{name} ended with {status}");
        let direct = run(&mut command(&program), &entry["example"]["stdin"]);
        assert_eq!((direct.stdout, direct.status), (output.stdout, output.status), "{name}");
    }
}

#[test]
fn every_entry_names_the_flags_of_its_program() {
    for (name, entry) in entries() {
        let known = help_flags(&command(&entry));
        let named = entry["input"]["flags"].as_array().unwrap();
        for flag in named.iter().map(|flag| flag.as_str().unwrap()) {
            assert!(known.contains(flag), "{name}: {flag} is no flag of the program");
        }
        let general = ["--help", "--version"];
        for flag in known.iter().filter(|flag| flag.starts_with("--") && !general.contains(&flag.as_str())) {
            assert!(named.iter().any(|named| named == flag), "{name}: {flag} is not in the manifest");
        }
    }
}

#[test]
fn every_required_field_is_required() {
    for (name, entry) in entries() {
        let required = entry["input"]["required"].as_array().unwrap();
        // A tool that accepts only JSON must refuse an object without its required fields. Tools that also accept plain text
        // need not.
        if !required.is_empty() && text(&entry["input"], "stdin").starts_with("one JSON object") {
            let output = run(&mut Command::new(binary(text(&entry, "program"))), &Value::Object(Default::default()));
            assert_eq!(output.status.code(), Some(2), "{name}");
        }
    }
}

/// The module that the launchers share; it is not a launcher.
const SHARED: &str = "ken_program.py";

#[test]
fn every_launcher_is_executable_marked_and_belongs_to_an_entry() {
    let manifest = manifest().to_string();
    for file in std::fs::read_dir(root().join("share/tools")).unwrap() {
        let path = file.unwrap().path();
        if path.ends_with(SHARED) {
            continue;
        }
        let content = std::fs::read_to_string(&path).unwrap();
        assert!(content.lines().any(|line| line == "# MCP_TOOL_ENTRYPOINT"), "{}", path.display());
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o111, 0o111, "{}", path.display());
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        assert!(manifest.contains(&name), "{name} is in no entry");
    }
}

#[test]
fn a_launcher_passes_on_flags_and_status_and_names_a_missing_program() {
    let entry = &manifest()["protocol_tools"]["VVP"];
    let folder = binary("ken-vvp").parent().unwrap().to_owned();
    let output = Command::new(launcher(entry))
        .args(["--json", r#"{"rules":[5]}"#])
        .env("KEN_BIN_DIR", &folder)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    // `make run` builds the programs into a folder of their own.
    let checkout = tempfile::tempdir().unwrap();
    for folder in ["share/tools", "target/first"] {
        std::fs::create_dir_all(checkout.path().join(folder)).unwrap();
    }
    let first = checkout.path().join("share/tools/launcher.py");
    std::fs::copy(launcher(entry), &first).unwrap();
    std::fs::copy(launcher(entry).with_file_name(SHARED), first.with_file_name(SHARED)).unwrap();
    std::os::unix::fs::symlink(binary("ken-vvp"), checkout.path().join("target/first/ken-vvp")).unwrap();
    let mut built = Command::new("/usr/bin/env");
    built.arg("python3").arg(&first).args(["--json", r#"{"rules":[5]}"#]).env_remove("KEN_BIN_DIR");
    assert_eq!(built.env("PATH", "/usr/bin:/bin").output().unwrap().status.code(), Some(1));
    // In another folder and without ken on PATH, the launcher cannot find its program.
    let elsewhere = tempfile::tempdir().unwrap();
    let copy = elsewhere.path().join("launcher.py");
    std::fs::copy(launcher(entry), &copy).unwrap();
    std::fs::copy(launcher(entry).with_file_name(SHARED), copy.with_file_name(SHARED)).unwrap();
    let output = Command::new("/usr/bin/env")
        .arg("python3")
        .arg(&copy)
        .env_remove("KEN_BIN_DIR")
        .env("PATH", "/usr/bin:/bin")
        .output()
        .unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(2), &b""[..]));
    assert!(String::from_utf8(output.stderr).unwrap().contains("ken-vvp is not installed"));
}

#[test]
fn the_tools_can_be_chained() {
    let document = serde_json::json!({"facts": ["a"], "rules": [[["a"], "b"]]});
    let reasoned = run(&mut Command::new(binary("ken-rep")), &document);
    let reasoned: Value = serde_json::from_slice(&reasoned.stdout).unwrap();
    let validated = run(&mut Command::new(binary("ken-vvp")), &reasoned);
    assert_eq!(validated.status.code(), Some(0));
    let validated: Value = serde_json::from_slice(&validated.stdout).unwrap();
    assert_eq!(validated["validation_status"], "success");
    if root().join("bin/ken-laws/Cargo.toml").exists() {
        let judged = run(&mut Command::new(binary("ken-laws")), &validated);
        let judged: Value = serde_json::from_slice(&judged.stdout).expect("ken-laws takes a JSON result");
        assert!(judged["scores"]["overall_compliance"].is_number());
    }
}
