//! Compares greedy texts with those of an independent implementation, token by token. The model and its texts are not
//! part of the repository: `KEN_SHARED_DIR` names the directory that holds `data/tiny-gpt2`; without it, `../shared` is
//! tried.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::path::PathBuf;

use ken_textgen::config::Config;
use ken_textgen::model::{Model, Next};
use ken_textgen::product::Engine;
use ken_textgen::simd::Isa;
use ken_textgen::weights::Weights;
use serde_json::Value;

fn folder() -> Option<PathBuf> {
    let beside = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let shared = std::env::var_os("KEN_SHARED_DIR").map_or_else(beside, PathBuf::from);
    let folder = shared.join("data/tiny-gpt2");
    if folder.join("reference.json").exists() {
        return Some(folder);
    }
    eprintln!("skipped: {} is not there", folder.display());
    None
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

fn cases(folder: &std::path::Path) -> Vec<Value> {
    let text = std::fs::read_to_string(folder.join("reference.json")).unwrap();
    serde_json::from_str::<Value>(&text).unwrap()["cases"].as_array().unwrap().clone()
}

#[test]
fn greedy_texts_equal_the_reference() {
    let Some(folder) = folder() else { return };
    let mut compared = 0;
    for case in cases(&folder) {
        let args: Vec<String> = match case["args"].as_array() {
            Some(args) => {
                args.iter().map(|arg| arg.as_str().unwrap().to_owned()).filter(|arg| arg != "--model-dir").collect()
            }
            None => {
                let length = case["max_new_tokens"].to_string();
                ["--greedy", "--prompt", case["prompt"].as_str().unwrap(), "--max-new-tokens", &length]
                    .map(str::to_owned)
                    .to_vec()
            }
        };
        for isa in Isa::available() {
            let output = std::process::Command::new(env!("CARGO_BIN_EXE_ken-textgen"))
                .args(&args)
                .args(["--format", "json", "--isa", isa.name(), "--model-dir"])
                .arg(&folder)
                .output()
                .unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!(ids(&answer["token_ids"]), ids(&case["new_ids"]), "{args:?} {}", isa.name());
            assert_eq!(ids(&answer["prompt_token_ids"]), ids(&case["prompt_ids"]));
            assert_eq!(answer["text"], case["text"]);
            compared += 1;
        }
    }
    assert!(compared > 0);
}

#[test]
fn logits_are_within_a_thousandth_of_the_reference() {
    let Some(folder) = folder() else { return };
    let config = Config::read(&folder.join("config.json")).unwrap();
    let weights = Weights::open(&folder.join("model.safetensors")).unwrap();
    let model = Model::new(config, weights, &Engine::new(2, Isa::detect())).unwrap();
    let mut compared = 0;
    for case in cases(&folder) {
        let Some(top) = case["first_step_top5"].as_array() else {
            continue;
        };
        let tokens = ids(&case["prompt_ids"]);
        let logits = model.forward(&mut [Next { cache: &mut model.cache(), tokens: &tokens }]).unwrap().remove(0);
        for pair in top {
            let (token, expected) = (pair[0].as_u64().unwrap() as usize, pair[1].as_f64().unwrap());
            assert!((f64::from(logits[token]) - expected).abs() < 1e-3, "{token}: {} {expected}", logits[token]);
            compared += 1;
        }
    }
    assert!(compared > 0);
}
