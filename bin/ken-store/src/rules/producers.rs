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
