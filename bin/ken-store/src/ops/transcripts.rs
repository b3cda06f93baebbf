//! Pages of transcripts. A settled exchange is stored in the form in which it is shown. Only a running one is computed from its events when
//! it is read.

use ken_types::ops::store::{ReadTranscript, SessionsTranscript};
use ken_types::{Error, Offset};
use serde_json::value::RawValue;

use crate::ops::exchanges::fold;
use crate::ops::{Read, sessions};
use crate::rules::cursor::List;
use crate::rules::{check, record, transcript};
use crate::tables::Tables;

impl Read for SessionsTranscript {
    fn check(args: &ReadTranscript) -> Result<(), Error> {
        check::limit(args.limit, check::PAGE)
    }

    fn run(tables: &dyn Tables, args: &ReadTranscript) -> Result<Box<RawValue>, Error> {
        let session = sessions::owned(tables, &args.id, &args.scope)?;
        let log = tables.log_by_key(session.stream)?;
        let list = List::named("transcript", &[Some(args.id.as_str())]);
        let before = list.newest_or(args.before.as_ref(), "?before")?;
        let mut found = Vec::new();
        for (key, body) in tables.exchanges(log.key, before, args.limit + 1)? {
            let body = match body {
                Some(body) => body,
                None => {
                    // Activities that are still running are left out, because the stream shows them to the reader.
                    let found = tables.submission_by_key(key)?;
                    let prompt = tables.event(found.event)?;
                    let mut exchange = fold(tables, &found, &log, prompt, &mut |_| {})?;
                    exchange.drop_running();
                    record::write(&exchange)?
                }
            };
            found.push((key, body));
        }
        let cursor = list.page(&mut found, args.limit, |(key, _)| [*key]).after;
        let bodies: Vec<String> = found.into_iter().rev().map(|(_, body)| body).collect();
        // If a turn is running, the reader continues with the first event of that turn.
        let in_flight = tables.first_in_flight(log.key)?;
        // The context usage describes the session as it is now, so only the page with the newest exchanges contains it.
        let usage = match args.before {
            None => tables.context_usage(log.key)?,
            Some(_) => None,
        };
        let page = transcript::Page {
            id: &session.id,
            name: session.name.as_deref(),
            next: in_flight.map_or_else(|| log.end(), Offset::end),
            end: log.end(),
            exchanges: &bodies,
            limit: args.limit,
            cursor: cursor.as_deref(),
            context_usage: usage.as_deref(),
        };
        let text = page.render()?;
        RawValue::from_string(text).map_err(record::defect)
    }
}
