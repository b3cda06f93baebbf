//! Compares the model with a simple computation in f64 and with candle's own operations, and checks that the bits of a
//! result depend only on the model and the tokens.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod support;

use std::sync::Arc;

use candle_core::Device;
use ken_textgen::config::Config;
use ken_textgen::model::{Model, Next};
use ken_textgen::product::Engine;
use ken_textgen::sidecar;
use ken_textgen::simd::Isa;
use ken_textgen::weights::Weights;
use support::{Folder, naive};

fn model(folder: &Folder, threads: usize, isa: Isa) -> Model {
    build(folder, &Engine::new(threads, isa), false).unwrap()
}

fn build(folder: &Folder, engine: &Arc<Engine>, int8: bool) -> Result<Model, ken_types::Error> {
    let config = Config::read(&folder.file("config.json"))?;
    let floats = Weights::open(&folder.file("model.safetensors"))?;
    let weights = if int8 { sidecar::open_or_make(&config, &floats, engine, |_| ())? } else { floats };
    Model::new(config, weights, engine)
}

const TOKENS: [u32; 9] = [5, 0, 60, 17, 17, 33, 2, 59, 8];

/// The logits after the last token. The tokens are passed to the model in parts of this length.
fn feed(model: &Model, tokens: &[u32], part: usize) -> Vec<f32> {
    let mut cache = model.cache();
    let mut last = Vec::new();
    for tokens in tokens.chunks(part) {
        last = model.forward(&mut [Next { cache: &mut cache, tokens }]).unwrap().remove(0);
    }
    last
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn logits_equal_those_of_a_plain_computation() {
    let folder = Folder::random();
    let expected = naive(&folder, &TOKENS);
    for isa in Isa::available() {
        let model = model(&folder, 2, isa);
        for (end, expected) in (1..=TOKENS.len()).zip(&expected) {
            for (got, expected) in feed(&model, &TOKENS[..end], 100).iter().zip(expected) {
                assert!((f64::from(*got) - expected).abs() < 1e-4, "{got} {expected} after {end} by {}", isa.name());
            }
        }
    }
}

#[test]
fn candles_own_operations_agree() {
    let folder = Folder::random();
    let model = model(&folder, 1, Isa::detect());
    let plain = model.plain(&Device::Cpu).unwrap();
    let mut cache = model.cache();
    for tokens in [&TOKENS[..4], &TOKENS[4..5], &TOKENS[5..]] {
        let got = plain.compute(&mut [Next { cache: &mut cache, tokens }]).unwrap().remove(0);
        cache.advance(tokens.len());
        let own = feed(&model, &TOKENS[..cache.len()], 100);
        assert!(got.iter().zip(&own).all(|(a, b)| (a - b).abs() < 1e-4));
    }
}

#[test]
fn prompt_batches_instruction_sets_and_threads_do_not_change_a_bit() {
    let folder = Folder::random();
    for int8 in [false, true] {
        let first = build(&folder, &Engine::new(1, Isa::Scalar), int8).unwrap();
        let expected = bits(&feed(&first, &TOKENS, TOKENS.len()));
        for isa in Isa::available() {
            for threads in [1, 2, 3] {
                let model = build(&folder, &Engine::new(threads, isa), int8).unwrap();
                for part in [1, 2, 4, 9] {
                    let got = bits(&feed(&model, &TOKENS, part));
                    assert_eq!(got, expected, "int8 {int8}, {}, {threads} threads, parts of {part}", isa.name());
                }
            }
        }
    }
}

#[test]
fn a_text_does_not_depend_on_its_batch() {
    let folder = Folder::random();
    for int8 in [false, true] {
        let model = build(&folder, &Engine::new(2, Isa::detect()), int8).unwrap();
        let texts: [&[u32]; 3] = [&TOKENS, &TOKENS[3..4], &TOKENS[2..7]];
        let mut caches = [model.cache(), model.cache(), model.cache()];
        let mut batch: Vec<_> = caches.iter_mut().zip(texts).map(|(cache, tokens)| Next { cache, tokens }).collect();
        let together = model.forward(&mut batch).unwrap();
        for (tokens, together) in texts.iter().zip(together) {
            assert_eq!(bits(&feed(&model, tokens, 100)), bits(&together));
        }
        let mut batch: Vec<_> = caches.iter_mut().map(|cache| Next { cache, tokens: &[7] }).collect();
        for (tokens, together) in texts.iter().zip(model.forward(&mut batch).unwrap()) {
            let longer = [tokens, &[7u32][..]].concat();
            assert_eq!(bits(&feed(&model, &longer, 100)), bits(&together));
        }
    }
}

#[test]
fn int8_is_close_to_f32() {
    let folder = Folder::random();
    let engine = Engine::new(1, Isa::detect());
    let (floats, bytes) = (build(&folder, &engine, false).unwrap(), build(&folder, &engine, true).unwrap());
    let (floats, bytes) = (feed(&floats, &TOKENS, 100), feed(&bytes, &TOKENS, 100));
    let largest = floats.iter().fold(0f32, |largest, value| largest.max(value.abs()));
    let furthest = floats.iter().zip(&bytes).fold(0f32, |furthest, (a, b)| furthest.max((a - b).abs()));
    assert!(furthest > 0.0 && furthest < 0.02 * largest, "{furthest} of {largest}");
}

#[test]
fn the_int8_file_is_written_once_and_again_when_the_weights_change() {
    let mut folder = Folder::random();
    let engine = Engine::new(2, Isa::detect());
    let messages = std::cell::Cell::new(0);
    let make = |folder: &Folder| {
        let config = Config::read(&folder.file("config.json")).unwrap();
        let floats = Weights::open(&folder.file("model.safetensors")).unwrap();
        sidecar::open_or_make(&config, &floats, &engine, |_| messages.set(messages.get() + 1)).unwrap();
        std::fs::read(folder.file("model.int8.safetensors")).unwrap()
    };
    let first = make(&folder);
    assert_eq!((make(&folder) == first, messages.get()), (true, 1));
    // The weights have a new modification time but the same contents, so the hash matches, and only the time is written.
    let times = || {
        let note = Weights::open(&folder.file("model.int8.safetensors")).unwrap();
        let time = Weights::open(&folder.file("model.safetensors")).unwrap().identity.modified_ns;
        (note.note("weights_modified_ns").unwrap().to_owned(), time.to_string())
    };
    folder.write();
    assert_ne!(times().0, times().1);
    let first = make(&folder);
    assert_eq!((times().0, messages.get()), (times().1, 1));
    assert_eq!((make(&folder) == first, messages.get()), (true, 1));
    folder.tensors.get_mut("transformer.wte.weight").unwrap().1[0] += 1.0;
    folder.write();
    assert_eq!((make(&folder) == first, messages.get()), (false, 2));
    // A truncated int8 file is detected and made again.
    std::fs::write(folder.file("model.int8.safetensors"), &first[..first.len() / 2]).unwrap();
    make(&folder);
    assert_eq!(messages.get(), 3);
    let names: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(names.iter().all(|name| !name.to_string_lossy().contains("tmp")), "{names:?}");
}

#[test]
fn names_without_the_prefix_and_a_separate_head_are_read() {
    let mut folder = Folder::random();
    let tied = feed(&model(&folder, 1, Isa::detect()), &TOKENS, 100);
    let tensors = std::mem::take(&mut folder.tensors);
    folder.tensors = tensors.into_iter().map(|(name, tensor)| (name.replace("transformer.", ""), tensor)).collect();
    folder.write();
    assert_eq!(feed(&model(&folder, 1, Isa::detect()), &TOKENS, 100), tied);
    let mut head = folder.tensors["wte.weight"].clone();
    head.1.iter_mut().for_each(|value| *value *= 2.0);
    folder.tensors.insert("lm_head.weight".to_owned(), head);
    folder.config["tie_word_embeddings"] = false.into();
    folder.write();
    let double: Vec<f32> = tied.iter().map(|logit| logit * 2.0).collect();
    assert_eq!(feed(&model(&folder, 1, Isa::detect()), &TOKENS, 100), double);
}

#[test]
fn nan_weights_are_named_by_tensor() {
    for (name, value) in
        [("h.1.mlp.c_fc.bias", f32::NAN), ("wte.weight", f32::INFINITY), ("h.0.attn.c_attn.weight", f32::NAN)]
    {
        let mut folder = Folder::random();
        let full = format!("transformer.{name}");
        folder.tensors.get_mut(&full).unwrap().1[7] = value;
        folder.write();
        let model = model(&folder, 1, Isa::detect());
        let error = model.forward(&mut [Next { cache: &mut model.cache(), tokens: &[0, 1] }]).unwrap_err();
        assert!(error.message.contains(&full), "{error}");
        let error = build(&folder, &Engine::new(1, Isa::detect()), true).err().unwrap();
        assert!(error.message.contains(&full), "{error}");
    }
}
