//! Blobs: their pieces arrive in order, they are complete only with the right digest, and they are kept while a record refers to them.

use ken_types::id::SessionId;
use ken_types::limits::{BLOB_BYTES, BLOBS_BYTES, PIECE_BYTES};
use ken_types::ops::blobs::*;
use ken_types::ops::store::*;
use ken_types::{Code, Error, Octets};
use sha2::{Digest, Sha256};

use crate::kit::*;

fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn piece(digest: &str, length: usize, offset: usize, bytes: &[u8]) -> PutBlob {
    PutBlob { digest: digest.to_owned(), length: length as u64, offset: offset as u64, bytes: Octets(bytes.to_vec()) }
}

/// Puts all bytes in pieces of 700,000 bytes.
async fn put(kit: &Kit, bytes: &[u8]) -> String {
    let digest = digest(bytes);
    for (number, part) in bytes.chunks(700_000).enumerate() {
        let args = piece(&digest, bytes.len(), number * 700_000, part);
        let state = kit.write::<BlobsPut>(args).await.unwrap();
        assert_eq!(state.stored as usize, (number * 700_000) + part.len());
    }
    digest
}

async fn get(kit: &Kit, digest: &str, offset: u64, limit: u32) -> Result<BlobPiece, Error> {
    let digest = digest.to_owned();
    kit.read::<BlobsGet>(GetBlob { digest, offset, limit }).await
}

#[tokio::test]
async fn what_was_put_is_read_back_from_any_offset_after_a_restart() {
    let mut kit = Kit::new();
    let bytes: Vec<u8> = (0..3_000_001u32).map(|number| (number % 251) as u8).collect();
    let digest = put(&kit, &bytes).await;
    kit.restart();
    let mut found = Vec::new();
    while found.len() < bytes.len() {
        let piece = get(&kit, &digest, found.len() as u64, 999_983).await.unwrap();
        assert_eq!(piece.length as usize, bytes.len());
        found.extend(piece.bytes.0);
    }
    assert!(found == bytes);
    let end = get(&kit, &digest, bytes.len() as u64, 10).await.unwrap();
    assert!(end.bytes.0.is_empty());
    let whole = get(&kit, &digest, 0, u32::MAX).await.unwrap();
    assert_eq!(whole.bytes.0.len(), PIECE_BYTES);
}

#[tokio::test]
async fn pieces_come_in_order_and_a_repeat_changes_nothing() {
    let kit = Kit::new();
    let digest = digest(b"hello there");
    let hello = piece(&digest, 11, 0, b"hello ");
    let early = piece(&digest, 11, 8, b"ere");
    let error = kit.write::<BlobsPut>(early.clone()).await.unwrap_err();
    assert_eq!((error.code, error.at.as_deref()), (Code::Conflict, Some("/offset")));
    for _ in 0..2 {
        assert_eq!(kit.write::<BlobsPut>(hello.clone()).await.unwrap().stored, 6);
    }
    assert_eq!(kit.write::<BlobsPut>(early).await.unwrap_err().code, Code::Conflict);
    assert_eq!(get(&kit, &digest, 0, 100).await.unwrap_err().code, Code::NotFound);
    let other_length = piece(&digest, 12, 6, b"there");
    assert_eq!(kit.write::<BlobsPut>(other_length).await.unwrap_err().code, Code::Conflict);
    // Wrong bytes are discarded, and the right ones can be sent afterwards.
    let wrong = piece(&digest, 11, 6, b"thera");
    assert_eq!(kit.write::<BlobsPut>(wrong).await.unwrap().stored, 0);
    kit.write::<BlobsPut>(hello).await.unwrap();
    let state = kit.write::<BlobsPut>(piece(&digest, 11, 6, b"there")).await.unwrap();
    assert_eq!(state.stored, state.length);
    assert_eq!(get(&kit, &digest, 0, 100).await.unwrap().bytes.0, b"hello there");
}

#[tokio::test]
async fn what_cannot_be_a_blob_is_refused() {
    let kit = Kit::new();
    put(&kit, b"x").await;
    kit.write::<BlobsPut>(piece(&digest(b"y"), 2_000_000, 0, &[0; PIECE_BYTES])).await.unwrap();
    let good = digest(b"x");
    let long = vec![0; PIECE_BYTES + 1];
    for (args, code, at) in [
        (piece("abc", 1, 0, b"x"), Code::Invalid, "/digest"),
        (piece(&good.to_uppercase(), 1, 0, b"x"), Code::Invalid, "/digest"),
        (piece(&good, BLOB_BYTES as usize + 1, 0, b"x"), Code::TooLarge, "/length"),
        (piece(&good, BLOB_BYTES as usize + 1, 0, &long[1..]), Code::TooLarge, "/length"),
        (piece(&good, 2_000_000, 0, &long), Code::TooLarge, "/bytes"),
        (piece(&good, 1, 1, b"x"), Code::Invalid, "/bytes"),
        (piece(&good, 1, 0, b""), Code::Invalid, "/bytes"),
        (piece(&digest(b""), 0, 0, b""), Code::Invalid, "/length"),
    ] {
        let error = kit.write::<BlobsPut>(args).await.unwrap_err();
        assert_eq!((error.code, error.at.as_deref()), (code, Some(at)));
    }
}

/// A blob counts with its whole length as soon as it is begun, so a blob that was begun can be completed.
#[tokio::test]
async fn all_blobs_together_have_a_limit() {
    let kit = Kit::new();
    let begin = async |name: u64, length: u64| {
        let bytes = name.to_be_bytes();
        let args = piece(&digest(&bytes), length as usize, 0, &bytes[..1]);
        kit.write::<BlobsPut>(args).await
    };
    let whole = BLOBS_BYTES / BLOB_BYTES - 1;
    for name in 0..whole {
        begin(name, BLOB_BYTES).await.unwrap();
    }
    begin(whole, BLOB_BYTES - 2).await.unwrap();
    assert_eq!(begin(whole + 1, 3).await.unwrap_err().code, Code::TooLarge);
    begin(whole + 1, 2).await.unwrap();
    assert_eq!(begin(whole + 2, 2).await.unwrap_err().code, Code::TooLarge);
    begin(0, BLOB_BYTES).await.unwrap();
}

#[tokio::test]
async fn a_blob_that_no_record_names_is_deleted_after_a_day_without_use() {
    let kit = Kit::new();
    let named = put(&kit, b"named").await;
    let unnamed = put(&kit, b"unnamed").await;
    let used = put(&kit, b"used").await;
    let admit = |blobs: Vec<String>| Admit { blobs, ..admit_of("i", "s1") };
    let missing = kit.write::<SubmissionsAdmit>(admit(vec![digest(b"missing")])).await.unwrap_err();
    assert_eq!((missing.code, missing.at.as_deref()), (Code::NotFound, Some("/blobs/0")));
    kit.write::<SubmissionsAdmit>(admit(vec![named.clone()])).await.unwrap();
    kit.turn_clock(DAY_MS - 1_000).await;
    put(&kit, b"used").await;
    kit.turn_clock(2_000).await;
    kit.turn_clock(600_000).await;
    assert_eq!(get(&kit, &unnamed, 0, 10).await.unwrap_err().code, Code::NotFound);
    get(&kit, &named, 0, 10).await.unwrap();
    get(&kit, &used, 0, 10).await.unwrap();
}

#[tokio::test]
async fn an_output_is_kept_as_long_as_the_summary_of_its_turn_and_read_in_its_instance_only() {
    let kit = Kit::new();
    kit.session("tui-1", "a").await;
    kit.prompt("tui-1", "s1").await;
    let claim = kit.claim_one(1).await;
    let digest = put(&kit, b"a long output").await;
    let result = serde_json::json!({"content": [], "details": null, "output": {"blob": digest, "bytes": 13}});
    let fields =
        serde_json::json!({"toolName": "t", "toolCallId": "c", "isError": false, "result": result, "durationMs": 1});
    let ended = event("s1", 0, "tool", fields);
    kit.add_events(&claim.lease, 0, vec![ended]).await.unwrap();
    let get = |instance: &str, id: &str| {
        let args = GetOutput { instance: instance.into(), id: id.into(), offset: 7, limit: 100 };
        kit.read::<OutputsGet>(args)
    };
    for id in [&digest[..16], &digest[..20], &digest] {
        let piece = get("tui-1", id).await.unwrap();
        assert_eq!((piece.length, piece.bytes.0.as_slice()), (13, &b"output"[..]));
    }
    assert_eq!(get("tui-2", &digest).await.unwrap_err().code, Code::NotFound);
    let other = "0".repeat(16);
    assert_eq!(get("tui-1", &other).await.unwrap_err().code, Code::NotFound);
    for wrong in [&digest[..15], "z".repeat(16).as_str(), ""] {
        assert_eq!(get("tui-1", wrong).await.unwrap_err().code, Code::Invalid);
    }
    kit.finish(&claim.lease, 1, "Done.").await.unwrap();
    for days in [2, 40] {
        kit.turn_clock(days * DAY_MS).await;
        kit.turn_clock(600_000).await;
        let is_kept = get("tui-1", &digest).await.is_ok();
        assert_eq!(is_kept, days == 2, "after {days} days");
    }
}

#[tokio::test]
async fn a_fork_has_the_whole_outputs_of_its_turns_also_when_the_old_session_is_deleted() {
    let kit = Kit::new();
    kit.session("tui-1", "a").await;
    kit.prompt("tui-1", "s1").await;
    let claim = kit.claim_one(1).await;
    let digest = put(&kit, b"a long output").await;
    let result = serde_json::json!({"content": [], "details": null, "output": {"blob": digest, "bytes": 13}});
    let fields =
        serde_json::json!({"toolName": "t", "toolCallId": "c", "isError": false, "result": result, "durationMs": 1});
    kit.add_events(&claim.lease, 0, vec![event("s1", 0, "tool", fields)]).await.unwrap();
    kit.finish(&claim.lease, 1, "Done.").await.unwrap();
    kit.talk("tui-1", "s2", "q", "a").await;
    let fork = |id: &str, before: &str, name: &str| ForkSession {
        scope: None,
        id: SessionId(id.into()),
        before: sub(before),
        fork: SessionId(name.into()),
    };
    kit.write::<SessionsFork>(fork("tui-1", "s2", "tui-2")).await.unwrap();
    let get = |instance: &str| {
        let args = GetOutput { instance: instance.into(), id: digest.clone(), offset: 7, limit: 100 };
        kit.read::<OutputsGet>(args)
    };
    kit.write::<SessionsPurge>(OwnedSession { scope: None, id: SessionId("tui-1".into()) }).await.unwrap();
    for _ in 0..100 {
        kit.turn_clock(1_000).await;
    }
    assert!(get("tui-1").await.is_err());
    assert_eq!(get("tui-2").await.unwrap().bytes.0, b"output");
}

#[tokio::test]
async fn images_of_a_prompt_are_read_in_pieces() {
    let kit = Kit::new();
    let image = |data: &str| Image { kind: "image".into(), data: data.into(), mime_type: "image/png".into() };
    let images = vec![image("QUJD"), image("REVGRw=="), image("no base64")];
    kit.write::<SubmissionsAdmit>(Admit { images, ..admit_of("web-1", "s1") }).await.unwrap();
    kit.write::<SubmissionsAdmit>(admit_of("web-1", "s2")).await.unwrap();
    let get = async |instance: &str, submission: &str, number: u32, offset: u64| {
        let args = GetImage { instance: instance.into(), submission_id: sub(submission), number, offset, limit: 3 };
        kit.read::<ImagesGet>(args).await
    };
    let piece = get("web-1", "s1", 1, 0).await.unwrap();
    assert_eq!(
        (piece.length, piece.bytes.0.as_slice(), piece.mime_type.as_deref()),
        (4, &b"DEF"[..], Some("image/png"))
    );
    assert_eq!(get("web-1", "s1", 1, 3).await.unwrap().bytes.0, b"G");
    assert_eq!(get("web-1", "s1", 1, 9).await.unwrap().bytes.0, b"");
    assert_eq!(get("web-1", "s1", 0, 0).await.unwrap().bytes.0, b"ABC");
    for (instance, submission, number) in
        [("web-1", "s1", 2), ("web-1", "s1", 3), ("web-2", "s1", 0), ("web-1", "s2", 0), ("web-1", "s3", 0)]
    {
        let error = get(instance, submission, number, 0).await.unwrap_err();
        assert_eq!(
            (error.code, error.at.as_deref()),
            (Code::NotFound, Some("/number")),
            "{instance} {submission} {number}"
        );
    }
}
