//! Rules for appends to streams below `streams/`: checks closed streams, producers and sequences.

use ken_types::ops::streams::{AppendStream, Appending, Producer, media_type};

use crate::tables::PublicRow;

/// Returns the reason why an append is not written; `None` if it is written. `known` is the stored state of its producer.
pub(crate) fn refusal(stream: &PublicRow, known: Option<&Producer>, args: &AppendStream) -> Option<Appending> {
    if let (Some(producer), Some(known)) = (&args.producer, known) {
        if producer.epoch < known.epoch {
            return Some(Appending::Fenced { epoch: known.epoch });
        }
        if producer.epoch == known.epoch && producer.seq <= known.seq {
            return Some(Appending::Known {
                end: stream.entries,
                closed: stream.closed,
                epoch: known.epoch,
                seq: known.seq,
            });
        }
    }
    if stream.closed {
        // Closing a stream that is already closed, without appending anything, succeeds and changes nothing.
        let closes_only = args.payload.is_none() && args.producer.is_none();
        return (!closes_only).then_some(Appending::Closed { end: stream.entries });
    }
    if args.payload.is_some() && media_type(&args.content_type) != media_type(&stream.content_type) {
        let content_type = stream.content_type.clone();
        return Some(Appending::OtherType { content_type });
    }
    let out_of_turn = args.producer.as_ref().and_then(|producer| sequence_refusal(producer, known));
    out_of_turn.or_else(|| match (&args.seq, &stream.last_seq) {
        (Some(seq), Some(last)) if seq.as_bytes() <= last.as_bytes() => Some(Appending::Behind { seq: last.clone() }),
        _ => None,
    })
}

fn sequence_refusal(producer: &Producer, known: Option<&Producer>) -> Option<Appending> {
    let expected = match known {
        Some(known) if known.epoch == producer.epoch => known.seq + 1,
        _ => 0,
    };
    match (known, producer.seq) {
        (_, seq) if seq == expected => None,
        (Some(known), _) if known.epoch < producer.epoch => Some(Appending::BadStart),
        _ => Some(Appending::Gap { expected }),
    }
}

#[cfg(test)]
mod tests {
    use ken_types::Timestamp;
    use ken_types::ops::streams::{CreateStream, Payload};

    use super::*;
    use crate::rules::public;

    fn producer(epoch: u64, seq: u64) -> Producer {
        Producer { id: "p".to_owned(), epoch, seq }
    }

    fn stream(closed: bool, last_seq: Option<&str>) -> PublicRow {
        let args = serde_json::json!({"stream": "streams/a", "content_type": "text/plain", "closed": closed});
        let args: CreateStream = serde_json::from_value(args).unwrap();
        let last_seq = last_seq.map(str::to_owned);
        PublicRow { entries: 7, last_seq, ..public::plain(&args, Timestamp::default()) }
    }

    fn append(text: Option<&str>, kind: &str, seq: Option<&str>, producer: Option<Producer>) -> AppendStream {
        AppendStream {
            stream: "streams/a".to_owned(),
            payload: text.map(|text| Payload::Bytes(ken_types::Octets(text.as_bytes().to_vec()))),
            content_type: kind.to_owned(),
            seq: seq.map(str::to_owned),
            producer,
            close: text.is_none(),
            call: None,
        }
    }

    /// Each side of the epoch and the sequence that a producer has reached: in epoch 5, sequence 3.
    #[test]
    fn a_producer_goes_on_where_it_was() {
        let known = || Appending::Known { end: 7, closed: false, epoch: 5, seq: 3 };
        for (epoch, seq, expected) in [
            (4, 0, Some(Appending::Fenced { epoch: 5 })),
            (4, 4, Some(Appending::Fenced { epoch: 5 })),
            (5, 2, Some(known())),
            (5, 3, Some(known())),
            (5, 4, None),
            (5, 5, Some(Appending::Gap { expected: 4 })),
            (6, 0, None),
            (6, 1, Some(Appending::BadStart)),
            (6, 4, Some(Appending::BadStart)),
        ] {
            let args = append(Some("x"), "text/plain", None, Some(producer(epoch, seq)));
            assert_eq!(refusal(&stream(false, None), Some(&producer(5, 3)), &args), expected, "{epoch} {seq}");
        }
        for (seq, expected) in [(0, None), (1, Some(Appending::Gap { expected: 0 }))] {
            let args = append(Some("x"), "text/plain", None, Some(producer(9, seq)));
            assert_eq!(refusal(&stream(false, None), None, &args), expected, "{seq}");
        }
    }

    #[test]
    fn what_a_closed_stream_another_type_and_an_earlier_sequence_refuse() {
        let closed = || Some(Appending::Closed { end: 7 });
        for (is_closed, text, kind, with_producer, expected) in [
            (false, Some("x"), "text/plain; charset=utf-8", false, None),
            (false, Some("x"), "text/html", false, Some(Appending::OtherType { content_type: "text/plain".into() })),
            (false, None, "", false, None),
            (true, None, "", false, None),
            (true, None, "", true, closed()),
            (true, Some("x"), "text/plain", false, closed()),
        ] {
            let args = append(text, kind, None, with_producer.then(|| producer(0, 0)));
            assert_eq!(refusal(&stream(is_closed, None), None, &args), expected, "{is_closed} {text:?} {kind}");
        }
        for (last, seq, is_refused) in [
            (None, Some("a"), false),
            (Some("b"), None, false),
            (Some("b"), Some("a"), true),
            (Some("b"), Some("b"), true),
            (Some("b"), Some("ba"), false),
        ] {
            let found = refusal(&stream(false, last), None, &append(Some("x"), "text/plain", seq, None));
            assert_eq!(found, is_refused.then(|| Appending::Behind { seq: "b".into() }), "{last:?} {seq:?}");
        }
    }
}
