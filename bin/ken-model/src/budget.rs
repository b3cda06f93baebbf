//! The budget: what a call may use is reserved in the store before it is made, and replaced by what it has used after it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ken_types::config::Budget as Caps;
use ken_types::event::estimated_tokens;
use ken_types::id::Mint;
use ken_types::ops::budget::{BudgetReserve, BudgetSettle, BudgetSpent, OfBudget, Reserve, Settle, Spent};
use ken_types::ops::model::{BudgetState, Delta, Embedded, Generate, Generated};
use ken_types::{Code, Error, Timestamp};
use ken_wire::Pool;

use crate::embedder::Embedder;
use crate::provider::{DeltaSink, Pending, Provider, Rates, generate};
use crate::usage::{delta_bytes, request_tokens};

/// How long the store may take for one call.
const CALL: Duration = Duration::from_secs(10);
/// How often settling a call is tried while the store is away, and the pause between two attempts.
const TRIES: u32 = 600;
const PAUSE: Duration = Duration::from_secs(1);
/// The shortest answer, in tokens, that is worth a call.
const LEAST_OUTPUT: u64 = 64;
/// Tokens of an image, at most: what the largest one that providers take counts.
const IMAGE_TOKENS: u64 = 1_600;

#[derive(Debug)]
pub(crate) struct Budget {
    store: Pool,
    caps: Caps,
    mint: Mutex<Mint>,
    /// Why the last call was refused.
    refused: Mutex<Option<String>>,
}

impl Budget {
    pub(crate) fn new(store: Pool, caps: Caps) -> Result<Budget, Error> {
        Ok(Budget {
            store,
            caps,
            mint: Mutex::new(Mint::fresh()?),
            refused: Mutex::default(),
        })
    }

    /// The caps, and what is used of them today and by a session.
    pub(crate) async fn state(&self, session: Option<String>) -> Result<BudgetState, Error> {
        let day = Timestamp::now().day();
        let spent = match self.caps.is_unlimited() {
            true => Spent::default(),
            false => {
                let args = OfBudget {
                    day: day.clone(),
                    session,
                };
                self.store.call::<BudgetSpent>(&args, CALL).await?
            }
        };
        Ok(BudgetState {
            caps: self.caps,
            day,
            spent,
        })
    }

    /// Why calls are refused now, for `ken status`.
    pub(crate) fn refused(&self) -> Option<String> {
        self.refused
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Makes a call within the budget.
    pub(crate) async fn generate(
        &self,
        provider: &dyn Provider,
        request: Generate,
        sink: &dyn DeltaSink,
    ) -> Result<Generated, Error> {
        if self.caps.is_unlimited() || !provider.is_model() || provider.unusable().is_some() {
            return generate(provider, &request, sink).await;
        }
        let (mut open, output) = self
            .reserve(Needs {
                session: request.session.clone(),
                input: most_input_tokens(&request),
                output: provider.window().reserve,
                least_output: LEAST_OUTPUT,
                rates: provider.rates(),
            })
            .await?;
        let request = Generate {
            max_output: Some(output),
            ..request
        };
        let counted = Counted {
            sink,
            bytes: open.bytes.clone(),
        };
        let generated = generate(provider, &request, &counted).await;
        match &generated {
            Ok(generated) => {
                let usage = &generated.usage;
                let input = usage.input + usage.cache_read + usage.cache_write;
                open.used = Used::Told(input + usage.output, usage.cost.total);
            }
            Err(error) if is_free(error) && open.bytes.load(Ordering::Relaxed) == 0 => {
                open.used = Used::Told(0, 0.0);
            }
            Err(_) => {}
        }
        open.settle().await;
        generated
    }

    /// Makes vectors within the budget of the day.
    pub(crate) async fn embed(&self, embedder: &Embedder, texts: &[String]) -> Result<Embedded, Error> {
        if self.caps.is_unlimited() {
            return embedder.embed(texts).await;
        }
        let tokens = texts.iter().map(|text| estimated_tokens(text)).sum();
        let needs = Needs {
            session: None,
            input: on_the_high_side(tokens),
            output: 0,
            least_output: 0,
            rates: embedder.rates(),
        };
        let (mut open, _) = self.reserve(needs).await?;
        let embedded = embedder.embed(texts).await;
        match &embedded {
            Ok(embedded) => {
                open.used = Used::Told(embedded.usage.total_tokens, embedded.usage.cost.total);
            }
            Err(error) if is_free(error) => open.used = Used::Told(0, 0.0),
            Err(_) => {}
        }
        open.settle().await;
        embedded
    }

    /// Also says how many tokens the answer may have.
    async fn reserve(&self, needs: Needs) -> Result<(Open, u64), Error> {
        let id = self
            .mint
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .prefixed("call_");
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
        let reserved = self.store.call::<BudgetReserve>(&ask, CALL).await;
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = match &reserved {
            Err(error) if error.code == Code::Forbidden => Some(error.message.clone()),
            _ => None,
        };
        let reserved = reserved.map_err(|error| Error {
            at: error
                .at
                .filter(|_| error.code == Code::Forbidden)
                .map(|_| "/budget".to_owned()),
            ..error
        })?;
        let open = Open {
            store: self.store.clone(),
            id: Some(id),
            input: needs.input,
            rates: needs.rates,
            bytes: Arc::default(),
            used: Used::Unknown,
        };
        Ok((open, reserved.output_tokens))
    }
}

/// What a call may use, in tokens.
struct Needs {
    session: Option<String>,
    input: u64,
    /// The most of its answer, and the least with which it is worth making.
    output: u64,
    least_output: u64,
    rates: Rates,
}

/// Three bytes per token, where most texts have four.
fn on_the_high_side(tokens: u64) -> u64 {
    tokens + tokens / 3
}

fn most_input_tokens(request: &Generate) -> u64 {
    let blocks = request.messages.iter().flat_map(|message| message.content());
    let images = blocks.filter(|block| matches!(block, ken_types::event::Block::Image { .. }));
    on_the_high_side(request_tokens(request)) + IMAGE_TOKENS * images.count() as u64
}

/// Whether a call that fails in this way has cost nothing.
fn is_free(error: &Error) -> bool {
    !matches!(
        error.code,
        Code::Unavailable | Code::Deadline | Code::Cancelled | Code::Internal
    )
}

#[derive(Debug)]
enum Used {
    /// Tokens and US dollars.
    Told(u64, f64),
    /// The call was cut: its request counts, and what was passed on of its answer.
    Unknown,
}

/// A reservation, settled when it is dropped: a caller that hangs up drops the call.
struct Open {
    store: Pool,
    /// `None` once it is settled.
    id: Option<String>,
    input: u64,
    rates: Rates,
    bytes: Arc<AtomicU64>,
    used: Used,
}

impl Open {
    fn settlement(&mut self) -> Option<Settle> {
        let id = self.id.take()?;
        let (tokens, cost) = match self.used {
            Used::Told(tokens, cost) => (tokens, cost),
            Used::Unknown => {
                let output = self.bytes.load(Ordering::Relaxed).div_ceil(4);
                let cost = self.rates.input * self.input as f64 + self.rates.output * output as f64;
                (self.input + output, cost)
            }
        };
        Some(Settle { id, tokens, cost })
    }

    /// Waits for the store once; when it is away, goes on in the background.
    async fn settle(mut self) {
        let Some(settle) = self.settlement() else { return };
        if self.store.call::<BudgetSettle>(&settle, CALL).await.is_err() {
            tokio::spawn(patiently(self.store.clone(), settle));
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if let Some(settle) = self.settlement() {
            tokio::spawn(patiently(self.store.clone(), settle));
        }
    }
}

/// A call that cannot be settled in all this time stays counted as it was reserved.
async fn patiently(store: Pool, settle: Settle) {
    for _ in 0..TRIES {
        if store.call::<BudgetSettle>(&settle, CALL).await.is_ok() {
            return;
        }
        tokio::time::sleep(PAUSE).await;
    }
    tracing::warn!(
        call = settle.id,
        "what a call has used could not be stored; it stays counted as reserved"
    );
}

/// Counts what is passed on.
struct Counted<'a> {
    sink: &'a dyn DeltaSink,
    bytes: Arc<AtomicU64>,
}

impl DeltaSink for Counted<'_> {
    fn send(&self, delta: Delta) -> Pending<'_, Result<(), Error>> {
        self.bytes
            .fetch_add(delta_bytes(&delta) as u64, Ordering::Relaxed);
        self.sink.send(delta)
    }
}
