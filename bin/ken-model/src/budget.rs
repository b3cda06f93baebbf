//! The budget of model calls. Before a call, the maximum that it may use is reserved in the store. After the call, its
//! actual use replaces the reservation.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ken_types::config::Budget as Caps;
use ken_types::event::estimated_tokens;
use ken_types::id::Mint;
use ken_types::ops::budget::{BudgetReserve, BudgetSettle, BudgetSpent, OfBudget, Reserve, Settle, Spent};
use ken_types::ops::model::{AT_PROVIDER, BudgetState, Delta, Embedded, Generate, Generated};
use ken_types::{Code, Error, Timestamp};
use ken_wire::Pool;
use parking_lot::Mutex;

use crate::breaker::Breakers;
use crate::embedder::Embedder;
use crate::generate::generate;
use crate::provider::{DeltaSink, Pending, Provider, Rates, full_name};
use crate::usage::{delta_bytes, request_tokens};

const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum number of attempts to settle a call while the store is unavailable, and the pause between two of them.
const MAX_ATTEMPTS: u32 = 600;
const PAUSE: Duration = Duration::from_secs(1);
/// The minimum length of an answer, in tokens, for which a call is worth making.
const MIN_OUTPUT: u64 = 64;
/// The number of tokens that is reserved for an image. It is that of the largest image that providers accept.
const IMAGE_TOKENS: u64 = 1_600;

#[derive(Debug)]
pub(crate) struct Budget {
    store: Pool,
    caps: Caps,
    mint: Mutex<Mint>,
    breakers: Arc<Breakers>,
}

impl Budget {
    pub(crate) fn new(store: Pool, caps: Caps, breakers: Arc<Breakers>) -> Result<Budget, Error> {
        Ok(Budget { store, caps, mint: Mutex::new(Mint::fresh()?), breakers })
    }

    /// Returns the limits, and how much of them was used today and by a session.
    pub(crate) async fn state(&self, session: Option<String>) -> Result<BudgetState, Error> {
        let day = Timestamp::now().day();
        let spent = if self.caps.is_unlimited() {
            Spent::default()
        } else {
            let day = day.clone();
            self.store.call::<BudgetSpent>(&OfBudget { day, session }, CALL_TIMEOUT).await?
        };
        let caps = self.caps;
        Ok(BudgetState { caps, day, spent })
    }

    pub(crate) async fn generate(
        &self,
        provider: &dyn Provider,
        request: Generate,
        sink: &dyn DeltaSink,
    ) -> Result<Generated, Error> {
        if self.caps.is_unlimited() || !provider.is_model() || provider.unusable().is_some() {
            return generate(provider, &request, sink).await;
        }
        let needs = Needs {
            model: full_name(provider),
            session: request.session.clone(),
            input: max_input_tokens(&request),
            output: provider.window().reserve,
            least_output: MIN_OUTPUT,
            rates: provider.rates(),
        };
        let (open, output) = self.reserve(needs).await?;
        let request = Generate { max_output: Some(output), ..request };
        let counted = CountingSink { sink, bytes: open.bytes.clone() };
        let generated = generate(provider, &request, &counted).await;
        let used = |Generated { usage, .. }: &Generated| {
            let input = usage.input + usage.cache_read + usage.cache_write;
            (input + usage.output, usage.cost.total)
        };
        open.settle(&generated, used).await;
        generated
    }

    /// Computes vectors within the budget of the day.
    pub(crate) async fn embed(&self, embedder: &Embedder, texts: &[String]) -> Result<Embedded, Error> {
        if self.caps.is_unlimited() {
            return embedder.embed(texts).await;
        }
        let tokens = texts.iter().map(|text| estimated_tokens(text)).sum();
        let needs = Needs {
            model: embedder.name(),
            session: None,
            input: upper_estimate(tokens),
            output: 0,
            least_output: 0,
            rates: embedder.rates(),
        };
        let (open, _) = self.reserve(needs).await?;
        let embedded = embedder.embed(texts).await;
        open.settle(&embedded, |Embedded { usage, .. }| (usage.total_tokens, usage.cost.total)).await;
        embedded
    }

    /// Reserves what a call may use. Returns the reservation and the maximum number of tokens of the answer.
    async fn reserve(&self, needs: Needs) -> Result<(Open, u64), Error> {
        let id = self.mint.lock().prefixed("call_");
        let ask = Reserve {
            id: id.clone(),
            session: needs.session,
            input_tokens: needs.input,
            output_tokens: needs.output,
            least_output_tokens: needs.least_output,
            input_price: needs.rates.input,
            output_price: needs.rates.output,
            caps: self.caps,
        };
        let reserved = self.store.call::<BudgetReserve>(&ask, CALL_TIMEOUT).await;
        let refused = reserved.as_ref().err().filter(|error| error.code == Code::Forbidden);
        self.breakers.set_over_budget(&needs.model, refused.map(|error| error.message.clone()));
        let reserved = reserved.map_err(|error| {
            let is_cap = error.at.is_some() && error.code == Code::Forbidden;
            let at = is_cap.then(|| "/budget".to_owned());
            Error { at, ..error }
        })?;
        let open = Open {
            store: self.store.clone(),
            id: Some(id),
            input: needs.input,
            rates: needs.rates,
            bytes: Arc::default(),
            used: None,
        };
        Ok((open, reserved.output_tokens))
    }
}

/// The requirements of a call, in tokens.
struct Needs {
    /// The model, as `provider/model`.
    model: String,
    session: Option<String>,
    input: u64,
    /// The maximum length of the answer, and the minimum length for which the call is worth making, in tokens.
    output: u64,
    least_output: u64,
    rates: Rates,
}

/// Raises an estimate that assumes four bytes per token, as in most texts, to one that assumes three.
fn upper_estimate(tokens: u64) -> u64 {
    tokens + tokens / 3
}

fn max_input_tokens(request: &Generate) -> u64 {
    let blocks = request.messages.iter().flat_map(|message| message.content());
    let images = blocks.filter(|block| matches!(block, ken_types::event::Block::Image { .. }));
    upper_estimate(request_tokens(request)) + IMAGE_TOKENS * images.count() as u64
}

/// Whether a call that failed with this error cost nothing.
fn is_free(error: &Error) -> bool {
    if error.at.as_deref() == Some(AT_PROVIDER) {
        return true;
    }
    use Code::{Cancelled, Deadline, Internal, Unavailable};
    !matches!(error.code, Unavailable | Deadline | Cancelled | Internal)
}

/// A reservation. Dropping it settles it, because a call is dropped if its caller closes the connection.
struct Open {
    store: Pool,
    /// `None` once it is settled.
    id: Option<String>,
    input: u64,
    rates: Rates,
    bytes: Arc<AtomicU64>,
    /// The use that the provider reported: tokens and US dollars. Without a report, because the call was interrupted, it is
    /// estimated from the request and the part of the answer that was passed on.
    used: Option<(u64, f64)>,
}

impl Open {
    fn settlement(&self) -> Option<Settle> {
        let id = self.id.clone()?;
        let (tokens, cost) = self.used.unwrap_or_else(|| {
            let output = self.bytes.load(Ordering::Relaxed).div_ceil(4);
            let cost = self.rates.input * self.input as f64 + self.rates.output * output as f64;
            (self.input + output, cost)
        });
        Some(Settle { id, tokens, cost })
    }

    /// Settles the reservation by the result of its call. Waits for one attempt. If the store does not take it, or nobody
    /// waits any more, dropping it makes further attempts in the background.
    async fn settle<T>(mut self, result: &Result<T, Error>, used: impl FnOnce(&T) -> (u64, f64)) {
        self.used = match result {
            Ok(done) => Some(used(done)),
            Err(error) if is_free(error) && self.bytes.load(Ordering::Relaxed) == 0 => Some((0, 0.0)),
            Err(_) => None,
        };
        if let Some(settle) = self.settlement()
            && self.store.call::<BudgetSettle>(&settle, CALL_TIMEOUT).await.is_ok()
        {
            self.id = None;
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if let Some(settle) = self.settlement() {
            tokio::spawn(settle_with_retries(self.store.clone(), settle));
        }
    }
}

/// Tries to settle a call for ten minutes. If that fails, the reservation continues to count as used.
async fn settle_with_retries(store: Pool, settle: Settle) {
    for _ in 0..MAX_ATTEMPTS {
        if store.call::<BudgetSettle>(&settle, CALL_TIMEOUT).await.is_ok() {
            return;
        }
        tokio::time::sleep(PAUSE).await;
    }
    tracing::warn!(call = settle.id, "the usage of a call could not be stored; its reservation stays counted");
}

struct CountingSink<'a> {
    sink: &'a dyn DeltaSink,
    bytes: Arc<AtomicU64>,
}

impl DeltaSink for CountingSink<'_> {
    fn send(&self, delta: Delta) -> Pending<'_, Result<(), Error>> {
        self.bytes.fetch_add(delta_bytes(&delta) as u64, Ordering::Relaxed);
        self.sink.send(delta)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::os::unix::net::UnixListener;

    use super::*;

    /// A call ends with its connection, also while the store is told what it has used.
    #[tokio::test]
    async fn a_settlement_that_nobody_waits_for_is_made_nevertheless() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("store.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let (settled, mut received) = tokio::sync::mpsc::unbounded_channel();
        // A store that never answers.
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let settled = settled.clone();
                std::thread::spawn(move || {
                    let lines = BufReader::new(stream).lines().map_while(Result::ok);
                    lines.filter(|line| line.contains("budget.settle")).try_for_each(|line| settled.send(line))
                });
            }
        });
        let (store, rates) = (Pool::new(socket), Rates::default());
        let open = Open { store, id: Some("call_1".into()), input: 0, rates, bytes: Arc::default(), used: None };
        tokio::select! {
            () = open.settle(&Ok(()), |()| (7, 0.5)) => panic!("nothing is answered"),
            _ = received.recv() => {}
        }
        let again = tokio::time::timeout(CALL_TIMEOUT / 2, received.recv()).await.unwrap().unwrap();
        assert!(again.contains("call_1") && again.contains("\"tokens\":7"), "{again}");
    }
}
