//! Where submissions come from: one connection to the store on which a claim is always open. Leases belong to it, and
//! aborts are told on it.

use std::future::Future;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ken_service::Stop;
use ken_types::Error;
use ken_types::limits::LEASE_RENEW_MS;
use ken_types::ops::store::{
    Claim, ClaimSubmissions, Claims, Lease, RenewLeases, SubmissionsClaim, SubmissionsRenew, Work,
};
use ken_wire::Connection;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep};

use crate::leases::Leases;

/// How long a claim stays open, and with all places taken, when it is repeated as soon as one may be free.
const OPEN: Duration = Duration::from_secs(20);
const OPEN_WHEN_FULL: Duration = Duration::from_millis(100);
/// Over what the claim itself waits.
const CALL: Duration = Duration::from_secs(10);
/// Between two tries to reach the store: twice the one before, up to the longest.
const PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// A lease that young needs no renewal, and most are given back before.
const YOUNG: Duration = Duration::from_secs(5);
/// How often it looks whether all is done, when stopping.
const DRAIN_STEP: Duration = Duration::from_millis(10);

/// Who does what was claimed.
pub trait Worker: Clone + Send + Sync + 'static {
    /// Does it to its end, or ends it when `aborted` turns true. An error means that its lease is lost, or that the
    /// store refused to record it: whoever claims it next goes on. Dropped, it has to leave nothing behind that works.
    fn work(
        &self,
        claim: Claim,
        aborted: watch::Receiver<bool>,
    ) -> impl Future<Output = Result<(), Error>> + Send;
}

/// What a holder has done and does.
#[derive(Debug, Default)]
pub struct Held {
    leases: Mutex<Leases>,
    pub claimed: AtomicU64,
    pub settled: AtomicU64,
    pub lost: AtomicU64,
}

impl Held {
    fn leases(&self) -> MutexGuard<'_, Leases> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many it works on now.
    pub fn running(&self) -> usize {
        self.leases().len()
    }
}

/// A holder.
#[derive(Debug)]
pub struct Claiming<W> {
    pub worker: W,
    pub held: Arc<Held>,
    /// What it can do, and how much of it at a time: 1 to 64.
    pub work: Work,
    pub at_once: usize,
    /// Of the store.
    pub socket: PathBuf,
    /// Who it is, for people: program and pid.
    pub holder: String,
}

impl<W: Worker> Claiming<W> {
    /// Claims and works until told to stop; then until what has begun is done.
    pub async fn run(self, mut stop: Stop) {
        let mut away = None;
        while let Err(error) = self.hold_connection(&mut stop, &mut away).await {
            if stop.is_stopped() {
                return;
            }
            // At once the first time: the store's socket is held by kend and waits for it.
            away = Some(match away {
                None => {
                    tracing::warn!(%error, "the store is away");
                    PAUSE
                }
                Some(pause) => {
                    sleep(pause).await;
                    LONGEST_PAUSE.min(pause * 2)
                }
            });
        }
    }

    /// One connection's life.
    async fn hold_connection(&self, stop: &mut Stop, away: &mut Option<Duration>) -> Result<(), Error> {
        let connection = Connection::open(&self.socket, Instant::now() + CALL).await?;
        self.renew(&connection, Duration::ZERO).await?;
        *away = None;
        let mut renewing = interval_at(
            Instant::now() + Duration::from_millis(LEASE_RENEW_MS),
            Duration::from_millis(LEASE_RENEW_MS),
        );
        renewing.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut claim = Box::pin(self.claim(&connection, self.at_once));
        loop {
            tokio::select! {
                biased;
                claims = &mut claim => {
                    self.take(claims?);
                    claim.set(self.claim(&connection, self.at_once));
                }
                _ = renewing.tick() => self.renew(&connection, YOUNG).await?,
                () = stop.stopped() => break,
            }
        }
        drop(claim);
        self.drain(&connection).await
    }

    /// Takes nothing new, and goes on telling aborts and holding leases until all is done.
    async fn drain(&self, connection: &Connection) -> Result<(), Error> {
        while self.held.running() > 0 {
            self.take(self.claim(connection, 0).await?);
            sleep(DRAIN_STEP).await;
        }
        Ok(())
    }

    async fn claim(&self, connection: &Connection, at_once: usize) -> Result<Claims, Error> {
        let free = at_once.saturating_sub(self.held.running());
        let wait = if free == 0 { OPEN_WHEN_FULL } else { OPEN };
        let args = ClaimSubmissions {
            holder: self.holder.clone(),
            work: self.work,
            max: u32::try_from(free).unwrap_or_default(),
            wait_ms: u64::try_from(wait.as_millis()).unwrap_or_default(),
        };
        connection.call::<SubmissionsClaim>(&args, wait + CALL).await
    }

    /// Those held for so long; on a new connection all, because it takes them along.
    async fn renew(&self, connection: &Connection, age: Duration) -> Result<(), Error> {
        let leases = self.held.leases().older_than(age);
        if leases.is_empty() {
            return Ok(());
        }
        let args = RenewLeases {
            holder: self.holder.clone(),
            leases,
        };
        let lost = connection.call::<SubmissionsRenew>(&args, CALL).await?.lost;
        let mut held = self.held.leases();
        for lease in lost.iter().filter(|lease| held.lose(lease)) {
            tracing::warn!(submission = %lease.submission_id, lease = lease.number, "lease lost");
            self.held.lost.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn take(&self, claims: Claims) {
        for claim in claims.claims {
            self.begin(claim);
        }
        for lease in &claims.aborts {
            self.held.leases().abort(lease);
        }
    }

    fn begin(&self, claim: Claim) {
        self.held.claimed.fetch_add(1, Ordering::Relaxed);
        let (abort, aborted) = watch::channel(false);
        let lease = claim.lease.clone();
        let task = tokio::spawn(work(self.worker.clone(), claim, aborted, self.held.clone()));
        self.held.leases().hold(lease, abort, task.abort_handle());
    }
}

async fn work(worker: impl Worker, claim: Claim, aborted: watch::Receiver<bool>, held: Arc<Held>) {
    let lease: Lease = claim.lease.clone();
    match worker.work(claim, aborted).await {
        Ok(()) => _ = held.settled.fetch_add(1, Ordering::Relaxed),
        Err(error) => {
            held.lost.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(submission = %lease.submission_id, lease = lease.number, %error, "stopped without an end");
        }
    }
    held.leases().release(&lease);
}
