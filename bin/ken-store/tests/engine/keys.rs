//! Idempotency keys.

use ken_types::Code;
use ken_types::limits::KEY_MS;
use ken_types::ops::store::*;

use crate::kit::*;

fn begin(key: &str, body: &str) -> BeginKey {
    BeginKey { key: key.into(), body: body.into(), seed: format!("seed of {body}"), at: at(START) }
}

fn answered(key: &str, body: &str) -> FinishKey {
    FinishKey {
        key: key.into(),
        end: KeyEnd::Answered(KeptAnswer {
            status: 200,
            body: body.into(),
            headers: vec![("location".into(), format!("/{body}"))],
        }),
    }
}

fn ended(key: &str, end: KeyEnd) -> FinishKey {
    FinishKey { key: key.into(), end }
}

#[tokio::test]
async fn the_first_answer_stays_for_a_day() {
    let mut kit = Kit::new();
    let first = kit.write::<KeysBegin>(begin("k", "b")).await.unwrap();
    assert_eq!((first.seed.as_str(), first.answer), ("seed of b", None));
    let again = kit.write::<KeysBegin>(BeginKey { seed: "other".into(), ..begin("k", "b") }).await.unwrap();
    assert_eq!(again.seed, "seed of b");
    assert_eq!(kit.write::<KeysBegin>(begin("k", "c")).await.unwrap_err().code, Code::Conflict);
    kit.write::<KeysFinish>(answered("k", "yes")).await.unwrap();
    kit.write::<KeysFinish>(answered("k", "no")).await.unwrap();
    kit.write::<KeysFinish>(ended("k", KeyEnd::Refused)).await.unwrap();
    kit.write::<KeysFinish>(ended("k", KeyEnd::NotReached)).await.unwrap();
    kit.write::<KeysFinish>(answered("unknown", "x")).await.unwrap();
    kit.restart();
    kit.turn_clock(KEY_MS).await;
    let kept = kit.write::<KeysBegin>(begin("k", "b")).await.unwrap().answer.unwrap();
    assert_eq!((kept.status, kept.body.as_str()), (200, "yes"));
    kit.turn_clock(1).await;
    let new = BeginKey { at: at("2027-02-04T04:05:06.790Z"), ..begin("k", "c") };
    assert_eq!(kit.write::<KeysBegin>(new).await.unwrap().seed, "seed of c");
}

#[tokio::test]
async fn a_key_whose_request_was_refused_is_forgotten() {
    let kit = Kit::new();
    kit.write::<KeysBegin>(begin("k", "b")).await.unwrap();
    kit.write::<KeysFinish>(ended("k", KeyEnd::Refused)).await.unwrap();
    assert_eq!(kit.write::<KeysBegin>(begin("k", "c")).await.unwrap().seed, "seed of c");
}

/// An earlier attempt of the same request may still be on its way to the store, so its seed must not be replaced.
#[tokio::test]
async fn a_key_whose_request_has_not_reached_the_store_keeps_its_seed() {
    let kit = Kit::new();
    let repeat = BeginKey { seed: "other".into(), ..begin("k", "b") };
    kit.write::<KeysBegin>(begin("k", "b")).await.unwrap();
    kit.write::<KeysFinish>(ended("k", KeyEnd::NotReached)).await.unwrap();
    assert_eq!(kit.write::<KeysBegin>(repeat.clone()).await.unwrap().seed, "seed of b");
    // The request is being processed again, so the key belongs to its body again.
    let other = kit.write::<KeysBegin>(begin("k", "c")).await;
    assert_eq!(other.unwrap_err().code, Code::Conflict);
    kit.write::<KeysFinish>(ended("k", KeyEnd::NotReached)).await.unwrap();
    assert_eq!(kit.write::<KeysBegin>(begin("k", "c")).await.unwrap().seed, "seed of c");
    kit.write::<KeysFinish>(answered("k", "yes")).await.unwrap();
    let kept = kit.write::<KeysBegin>(begin("k", "c")).await.unwrap().answer;
    assert_eq!(kept.unwrap().body, "yes");
}

#[tokio::test]
async fn old_keys_are_pruned_in_slices() {
    let kit = Kit::new();
    for number in 0..500 {
        kit.write::<KeysBegin>(begin(&format!("k{number}"), "b")).await.unwrap();
    }
    kit.turn_clock(KEY_MS).await;
    kit.turn_clock(1).await;
    for _ in 0..10 {
        kit.turn_clock(700_000).await;
    }
    assert_eq!(kit.count("keys"), 0);
}
