//! One connection to the store on which a claim is always open. Leases belong to this connection, and aborts arrive on it.

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

/// How long one call waits for work. The calls of a holder without room for more work only fetch aborts, and are short, because it
/// may have room again soon.
const OPEN: Duration = Duration::from_secs(20);
const OPEN_WHEN_FULL: Duration = Duration::from_millis(100);
/// The time limit of a call, beyond what a claim waits.
const CALL: Duration = Duration::from_secs(10);
/// The first pause between two attempts to reach the store. It doubles each time, up to the longest.
const PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Younger leases are not renewed: most are settled before that.
const YOUNG: Duration = Duration::from_secs(5);
/// How often a stopping holder checks whether all its work is done.
const DRAIN_STEP: Duration = Duration::from_millis(10);

/// Does claimed work.
pub trait Worker: Clone + Send + Sync + 'static {
    /// Finishes the claim, or ends it when `aborted` becomes true. An error means that its lease is lost, or that the store
    /// refused to record it: the next holder continues. Dropping the future must stop all of its work.
    fn work(&self, claim: Claim, aborted: watch::Receiver<bool>) -> impl Future<Output = Result<(), Error>> + Send;
}

/// Counters and leases of a holder.
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

    /// How many submissions it works on now.
    pub fn running(&self) -> usize {
        self.leases().len()
    }
}

/// A holder of leases.
#[derive(Debug)]
pub struct Claiming<W> {
    pub worker: W,
    pub held: Arc<Held>,
    /// The kind of work that it claims.
    pub work: Work,
    /// The maximum number of claims at a time, 1 to 64.
    pub at_once: usize,
    /// The store's socket.
    pub socket: PathBuf,
    /// Its name for people: program and process id.
    pub holder: String,
}

impl<W: Worker> Claiming<W> {
    /// Claims and works until it is told to stop, then finishes what it has begun.
    pub async fn run(self, mut stop: Stop) {
        let mut away = None;
        while let Err(error) = self.hold_connection(&mut stop, &mut away).await {
            if stop.is_stopped() {
                return;
            }
            // The first attempt comes at once: kend holds the store's socket, and connections wait in it.
            away = Some(match away {
                None => {
                    tracing::warn!(%error, "cannot reach the store");
                    PAUSE
                }
                Some(pause) => {
                    sleep(pause).await;
                    LONGEST_PAUSE.min(pause * 2)
                }
            });
        }
    }

    /// Works on one connection until it fails or the holder stops.
    async fn hold_connection(&self, stop: &mut Stop, away: &mut Option<Duration>) -> Result<(), Error> {
        let connection = Connection::open(&self.socket, Instant::now() + CALL).await?;
        self.renew(&connection, Duration::ZERO).await?;
        *away = None;
        let mut renewing =
            interval_at(Instant::now() + Duration::from_millis(LEASE_RENEW_MS), Duration::from_millis(LEASE_RENEW_MS));
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

    /// Claims nothing new, and keeps leases and aborts going until all work is done.
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

    /// Renews leases held for at least `age`; on a new connection all of them, because leases belong to a connection.
    async fn renew(&self, connection: &Connection, age: Duration) -> Result<(), Error> {
        let leases = self.held.leases().older_than(age);
        if leases.is_empty() {
            return Ok(());
        }
        let args = RenewLeases { holder: self.holder.clone(), leases };
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
            tracing::warn!(submission = %lease.submission_id, lease = lease.number, %error, "stopped before its end");
        }
    }
    held.leases().release(&lease);
}
