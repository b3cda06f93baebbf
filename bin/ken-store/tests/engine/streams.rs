//! Offsets, pages and waiting readers.

use std::time::Duration;

use ken_types::ops::store::*;
use ken_types::{Code, Offset};
use serde_json::json;

use crate::kit::*;

async fn ready(entries: u64) -> (Kit, Lease) {
    let kit = Kit::new();
    kit.session("tui-1", "a").await;
    kit.prompt("tui-1", "s1").await;
    let lease = kit.claim_one(1).await.lease;
    if entries > 0 {
        kit.add_events(&lease, 0, deltas("s1", 0, entries)).await.unwrap();
    }
    (kit, lease)
}

#[tokio::test]
async fn offsets_and_pages() {
    let (kit, _) = ready(250).await;
    for (offset, start, next) in [
        (Offset::Start, 0, 100),
        (Offset::After(100), 100, 200),
        (Offset::After(200), 200, 250),
        (Offset::After(250), 250, 250),
        (Offset::After(9_999), 250, 250),
        (Offset::After(u64::MAX), 250, 250),
        (Offset::Now, 250, 250),
    ] {
        let page = kit.page("tui-1", offset).await.unwrap();
        assert_eq!((page.start, page.next, page.end, page.closed), (start, next, 250, false), "{offset}");
        assert_eq!(page.entries.len() as u64, next - start);
    }
    let missing = kit.page("none", Offset::Start).await.unwrap_err();
    assert_eq!(missing.code, Code::NotFound);
    let other = kit.read_stream(ReadStream { stream: "tui-1".into(), ..read("x", Offset::Start, 0) }).await;
    assert_eq!(other.unwrap_err().code, Code::NotFound);
}

#[tokio::test]
async fn tail_and_limit() {
    let (kit, _) = ready(50).await;
    let tail = |tail, offset| ReadStream { tail: Some(tail), ..read("tui-1", offset, 0) };
    assert_eq!(kit.read_stream(tail(7, Offset::Start)).await.unwrap().start, 43);
    assert_eq!(kit.read_stream(tail(70, Offset::Start)).await.unwrap().start, 0);
    for bad in
        [tail(7, Offset::Now), tail(0, Offset::Start), ReadStream { limit: 0, ..read("tui-1", Offset::Start, 0) }]
    {
        assert_eq!(kit.read_stream(bad).await.unwrap_err().code, Code::Invalid);
    }
    let few = ReadStream { limit: 3, ..read("tui-1", Offset::After(10), 0) };
    assert_eq!(kit.read_stream(few).await.unwrap().next, 13);
}

#[tokio::test]
async fn a_page_has_at_most_a_mebibyte_and_at_least_one_entry() {
    let (kit, lease) = ready(0).await;
    let big = |index| event("s1", index, "log", json!({"level": "info", "message": "x".repeat(250_000)}));
    for index in 0..6 {
        kit.add_events(&lease, index, vec![big(index)]).await.unwrap();
    }
    let page = kit.page("tui-1", Offset::Start).await.unwrap();
    assert_eq!((page.next, page.end), (4, 6));
    assert_eq!(kit.log("tui-1").await.len(), 6);
}

#[tokio::test]
async fn a_reader_at_the_end_gets_what_is_written_next() {
    let (kit, lease) = ready(2).await;
    let mut written = 2;
    for offset in [Offset::After(2), Offset::Now, Offset::After(9_999)] {
        let before = written;
        let done = std::cell::Cell::new(false);
        let wait = async {
            let page = kit.read_stream(read("tui-1", offset, 60_000)).await.unwrap();
            done.set(true);
            page
        };
        // The position of `now` depends on when the reader reads, so the writer continues until the reader has an entry.
        let write = async {
            while !done.get() {
                kit.add_events(&lease, written, deltas("s1", written, 2)).await.unwrap();
                written += 2;
            }
        };
        let (page, ()) = tokio::join!(wait, write);
        assert!(page.start >= before && !page.entries.is_empty(), "{offset}");
        assert_eq!((page.start % 2, page.next), (0, page.start + page.entries.len() as u64));
        assert_eq!(page.entries[0].get(), deltas("s1", page.start, 1)[0].get());
        if offset == Offset::After(2) {
            assert_eq!(page.start, 2);
        }
    }
    assert_eq!(kit.stats()["waiters"], 0);
}

#[tokio::test]
async fn a_wait_ends_empty_when_its_time_is_over_and_leaves_nothing_behind() {
    let (kit, _) = ready(2).await;
    let page = kit.read_stream(read("tui-1", Offset::Now, 20)).await.unwrap();
    assert_eq!((page.start, page.next, page.end), (2, 2, 2));
    let dropped = tokio::time::timeout(Duration::from_millis(20), kit.read_stream(read("tui-1", Offset::Now, 60_000)));
    assert!(dropped.await.is_err());
    assert_eq!(kit.stats()["waiters"], 0);
    let error = kit.read_stream(read("none", Offset::Now, 60_000)).await.unwrap_err();
    assert_eq!(error.code, Code::NotFound);
}

/// A waiting reader also gets entries that follow shortly after the first. That does not work for a reader that comes after the first
/// entry, or if the disk is slow, so it must succeed in one of several attempts.
#[tokio::test]
async fn gathering_brings_what_follows_closely() {
    let (kit, lease) = ready(0).await;
    let mut gathered = 0;
    for first in (0..60).step_by(3) {
        let wait = kit.read_stream(ReadStream { gather_ms: 300, ..read("tui-1", Offset::After(first), 60_000) });
        let write = async {
            while kit.stats()["waiters"] == 0 {
                tokio::task::yield_now().await;
            }
            for index in first..first + 3 {
                kit.add_events(&lease, index, deltas("s1", index, 1)).await.unwrap();
            }
        };
        let (page, ()) = tokio::join!(wait, write);
        let page = page.unwrap();
        assert_eq!(page.start, first);
        gathered = page.entries.len();
        if gathered == 3 {
            break;
        }
    }
    assert_eq!(gathered, 3);
}

/// Many readers that follow a stream by offset see the same bytes as a later reader, no matter how the entries were written in batches.
#[tokio::test]
async fn followers_miss_nothing_and_repeat_nothing() {
    const ENTRIES: u64 = 400;
    let (kit, lease) = ready(0).await;
    let follow = |from: Offset| {
        let kit = &kit;
        async move {
            let mut seen = Vec::new();
            let mut offset = from;
            while (seen.len() as u64) < ENTRIES {
                let page = kit.read_stream(read("tui-1", offset, 60_000)).await.unwrap();
                assert_eq!(page.start, seen.len() as u64);
                seen.extend(page.entries.iter().map(|entry| entry.get().to_owned()));
                offset = Offset::After(page.next);
            }
            seen
        }
    };
    let write = async {
        let mut index = 0;
        while index < ENTRIES {
            let count = (index % 7 + 1).min(ENTRIES - index);
            kit.add_events(&lease, index, deltas("s1", index, count)).await.unwrap();
            index += count;
        }
    };
    let (a, b, c, ()) = tokio::join!(follow(Offset::Start), follow(Offset::After(0)), follow(Offset::After(0)), write);
    let wanted: Vec<String> = deltas("s1", 0, ENTRIES).iter().map(|entry| entry.get().to_owned()).collect();
    assert!(a == wanted && b == wanted && c == wanted);
}

/// The first event is written before the second one turns out to be wrong. This is tried once alone in a transaction, and once together
/// with a change that is kept.
#[tokio::test]
async fn a_refused_change_notifies_no_reader() {
    let kit = Kit::new();
    kit.session("tui-1", "a").await;
    kit.prompt("tui-1", "s1").await;
    let claim = kit.claim_one(1).await;
    let wrong = async || {
        let events = vec![
            event("s1", 0, "text_delta", json!({"text": "never"})),
            event("s1", 1, "approval_requested", json!({})),
        ];
        let refused = kit.add_events(&claim.lease, 0, events).await;
        assert!(refused.is_err(), "it was written");
    };
    let reader = async || kit.read_stream(read("tui-1", Offset::After(0), 300)).await.unwrap();
    let (page, ()) = tokio::join!(reader(), async {
        tokio::task::yield_now().await;
        wrong().await;
    });
    assert_eq!((page.entries.len(), page.end), (0, 0));
    let (page, (), _) = tokio::join!(
        reader(),
        async {
            tokio::task::yield_now().await;
            wrong().await;
        },
        async {
            tokio::task::yield_now().await;
            kit.session("tui-2", "a").await
        }
    );
    assert_eq!((page.entries.len(), page.end), (0, 0));
    assert_eq!(kit.page("tui-1", Offset::Start).await.unwrap().end, 0);
}
