//! Claims work over one connection to the store, on which a call that waits for work is always open. Leases belong to
//! this connection, and the answers of that call also carry requests to abort.

use std::future::Future;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ken_service::Stop;
use ken_types::Error;
use ken_types::limits::LEASE_RENEW_MS;
use ken_types::ops::store::{
    Claim, ClaimSubmissions, Claims, Lease, RenewLeases, SubmissionsClaim, SubmissionsRenew, Work,
};
use ken_wire::Connection;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep};

use crate::leases::Leases;

/// How long one call waits for work. While a holder has no room for more work, its calls only fetch requests to abort,
/// and they are short because it may have room again soon.
const CLAIM_WAIT: Duration = Duration::from_secs(20);
const CLAIM_WAIT_WHEN_FULL: Duration = Duration::from_millis(100);
/// The timeout of a call, in addition to the time for which it waits for work.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// The first pause between two attempts to reach the store. The pause doubles with each attempt, up to `MAX_PAUSE`.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const MAX_PAUSE: Duration = Duration::from_secs(1);
/// Leases that are younger than this are not renewed, because most work is finished sooner.
const MIN_RENEWAL_AGE: Duration = Duration::from_secs(5);
/// The interval at which a stopping holder checks whether all its work is finished.
const DRAIN_STEP: Duration = Duration::from_millis(10);

/// The implementation of one kind of work.
pub trait Worker: Clone + Send + Sync + 'static {
    /// Works on a claim until it is finished, and ends it early when `aborted` becomes true. An error means that the
    /// lease is lost or that the store refused a record of the work; another holder then continues. Dropping the future
    /// must stop everything that it has started.
    fn work(&self, claim: Claim, aborted: watch::Receiver<bool>) -> impl Future<Output = Result<(), Error>> + Send;
}

/// The leases of a holder, and counters of its claims.
#[derive(Debug, Default)]
pub struct Held {
    leases: Mutex<Leases>,
    pub claimed: AtomicU64,
    pub settled: AtomicU64,
    pub lost: AtomicU64,
}

impl Held {
    /// Returns the number of submissions that are being worked on.
    pub fn running(&self) -> usize {
        self.leases.lock().len()
    }
}

/// A holder: claims submissions of one kind and works on several of them at a time.
#[derive(Debug)]
pub struct Claimer<W> {
    pub worker: W,
    pub held: Arc<Held>,
    /// The kind of work to claim.
    pub work: Work,
    /// The maximum number of submissions that are worked on at a time, 1 to 64.
    pub at_once: usize,
    /// The path of the store's socket.
    pub socket: PathBuf,
    /// The name of the holder in logs and lists: its program and process id.
    pub holder: String,
}

impl<W: Worker> Claimer<W> {
    /// Claims and works until `stop` resolves, and then until the work that has begun is finished. Connects again when a call fails.
    pub async fn run(self, mut stop: Stop) {
        let (mut leasing, mut away) = (None, None);
        while let Err(error) = self.work_on_connection(&mut stop, &mut leasing, &mut away).await {
            if stop.is_stopped() {
                return;
            }
            // The first attempt needs no pause: kend keeps the store's socket open while the store restarts, so the
            // connection waits there.
            away = Some(match away {
                None => {
                    tracing::warn!(%error, "cannot reach the store");
                    FIRST_PAUSE
                }
                Some(pause) => {
                    sleep(pause).await;
                    MAX_PAUSE.min(pause * 2)
                }
            });
        }
    }

    /// Opens a connection, and moves the leases to it from the connection in `leasing`, which it then replaces. The old connection stays open
    /// until then, because the store releases the leases of a connection that is closed. A call that fails must not release them.
    async fn connect<'a>(&self, leasing: &'a mut Option<Connection>) -> Result<&'a Connection, Error> {
        let connection = Connection::open(&self.socket, Instant::now() + CALL_TIMEOUT).await?;
        self.renew(&connection, Duration::ZERO).await?;
        Ok(leasing.insert(connection))
    }

    /// Works on a new connection until a call fails, or until the holder has stopped and its work is finished.
    async fn work_on_connection(
        &self,
        stop: &mut Stop,
        leasing: &mut Option<Connection>,
        away: &mut Option<Duration>,
    ) -> Result<(), Error> {
        let connection = self.connect(leasing).await?;
        *away = None;
        let mut renewing =
            interval_at(Instant::now() + Duration::from_millis(LEASE_RENEW_MS), Duration::from_millis(LEASE_RENEW_MS));
        renewing.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut claim = Box::pin(self.claim(connection, self.at_once));
        loop {
            tokio::select! {
                biased;
                claims = &mut claim => {
                    self.take(claims?);
                    claim.set(self.claim(connection, self.at_once));
                }
                _ = renewing.tick() => self.renew(connection, MIN_RENEWAL_AGE).await?,
                () = stop.stopped() => break,
            }
        }
        drop(claim);
        self.drain(connection).await
    }

    /// Claims no new work, but continues to renew leases and to fetch requests to abort until all work is finished.
    async fn drain(&self, connection: &Connection) -> Result<(), Error> {
        while self.held.running() > 0 {
            self.take(self.claim(connection, 0).await?);
            sleep(DRAIN_STEP).await;
        }
        Ok(())
    }

    async fn claim(&self, connection: &Connection, at_once: usize) -> Result<Claims, Error> {
        let free = at_once.saturating_sub(self.held.running());
        let wait = if free == 0 { CLAIM_WAIT_WHEN_FULL } else { CLAIM_WAIT };
        let args = ClaimSubmissions {
            holder: self.holder.clone(),
            work: self.work,
            max: u32::try_from(free).unwrap_or_default(),
            wait_ms: u64::try_from(wait.as_millis()).unwrap_or_default(),
        };
        connection.call::<SubmissionsClaim>(&args, wait + CALL_TIMEOUT).await
    }

    /// Renews the leases that have been held for at least `age`. On a new connection `age` is zero, because all leases
    /// have to move to it.
    async fn renew(&self, connection: &Connection, age: Duration) -> Result<(), Error> {
        let leases = self.held.leases.lock().older_than(age);
        if leases.is_empty() {
            return Ok(());
        }
        let args = RenewLeases { holder: self.holder.clone(), leases };
        let lost = connection.call::<SubmissionsRenew>(&args, CALL_TIMEOUT).await?.lost;
        let mut held = self.held.leases.lock();
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
            self.held.leases.lock().abort(lease);
        }
    }

    fn begin(&self, claim: Claim) {
        self.held.claimed.fetch_add(1, Ordering::Relaxed);
        let (abort, aborted) = watch::channel(false);
        let lease = claim.lease.clone();
        let task = tokio::spawn(work(self.worker.clone(), claim, aborted, self.held.clone()));
        self.held.leases.lock().hold(lease, abort, task.abort_handle());
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
    held.leases.lock().release(&lease);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::atomic::AtomicU32;

    use ken_types::ops::store::LostLeases;
    use ken_wire::{ConnectionId, Daemon, Server, Table, serve};
    use serde_json::json;
    use tokio::net::UnixListener;
    use tokio::time::timeout;

    use super::*;

    #[derive(Clone)]
    struct UntilAborted;

    impl Worker for UntilAborted {
        async fn work(&self, _claim: Claim, mut aborted: watch::Receiver<bool>) -> Result<(), Error> {
            _ = aborted.wait_for(|aborted| *aborted).await;
            Ok(())
        }
    }

    /// A store that asks at the third call to abort the only submission.
    #[derive(Default)]
    struct Aborting {
        calls: AtomicU32,
        /// The largest number of submissions that a call wanted.
        wanted: AtomicU32,
    }

    impl Daemon for Aborting {}

    impl Aborting {
        fn claim(&self, args: &ClaimSubmissions) -> Claims {
            self.wanted.fetch_max(args.max, Ordering::Relaxed);
            let is_third = self.calls.fetch_add(1, Ordering::Relaxed) == 2;
            Claims { aborts: if is_third { vec![claimed().lease] } else { Vec::new() }, ..Claims::default() }
        }
    }

    fn holder(socket: PathBuf) -> Claimer<UntilAborted> {
        let held = Arc::new(Held::default());
        Claimer { worker: UntilAborted, held, work: Work::Turns, at_once: 4, socket, holder: "test".into() }
    }

    fn claimed() -> Claim {
        let claim = json!({"lease": {"submission_id": "one", "number": 1}, "attempt": 1, "kind": "prompt", "instance": "i",
            "stream": "s", "text": "", "next_event_index": 0, "recorded_from": "-1", "time_left_ms": 60_000});
        serde_json::from_value(claim).unwrap()
    }

    /// A store that notes what happens.
    #[derive(Default)]
    struct Noting(Mutex<Vec<&'static str>>);

    impl Daemon for Noting {
        fn disconnected(&self, _connection: ConnectionId) {
            self.0.lock().push("disconnected");
        }
    }

    #[tokio::test]
    async fn the_leases_move_to_another_connection_before_the_first_one_ends() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("store.sock");
        let store = Arc::new(Noting::default());
        let table = Table::new("store", "0").op::<SubmissionsRenew, _, _>(|store: Arc<Noting>, _, _| async move {
            store.0.lock().push("renewed");
            Ok(LostLeases { lost: Vec::new() })
        });
        let listener = UnixListener::bind(&socket).unwrap();
        tokio::spawn(serve(Server::new(Duration::ZERO), listener, table, store.clone()));
        let holder = holder(socket);
        let mut leasing = None;
        holder.connect(&mut leasing).await.unwrap();
        holder.begin(claimed());
        holder.connect(&mut leasing).await.unwrap();
        let both = async {
            while store.0.lock().len() < 2 {
                sleep(DRAIN_STEP).await;
            }
        };
        timeout(CALL_TIMEOUT, both).await.expect("the first connection ends");
        assert_eq!(*store.0.lock(), ["renewed", "disconnected"]);
    }

    /// A holder that stops waits for its work, claims no more, and still hears that it has to abort. Without work it is
    /// done at once.
    #[tokio::test]
    async fn a_stopping_holder_waits_for_its_work_and_no_longer() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("store.sock");
        let store = Arc::new(Aborting::default());
        let table = Table::new("store", "0")
            .op::<SubmissionsClaim, _, _>(|store: Arc<Aborting>, _, args| async move { Ok(store.claim(&args)) });
        let listener = UnixListener::bind(&socket).unwrap();
        tokio::spawn(serve(Server::new(Duration::ZERO), listener, table, store.clone()));
        let connection = Connection::open(&socket, Instant::now() + CALL_TIMEOUT).await.unwrap();
        let holder = holder(socket);
        let held = holder.held.clone();
        for (work, calls) in [(None, 0), (Some(claimed()), 3)] {
            work.into_iter().for_each(|claim| holder.begin(claim));
            timeout(CALL_TIMEOUT, holder.drain(&connection)).await.expect("it ends").unwrap();
            assert_eq!((held.running(), store.calls.load(Ordering::Relaxed) >= calls), (0, true));
            assert!(calls > 0 || store.calls.load(Ordering::Relaxed) == 0);
        }
        assert_eq!((held.settled.load(Ordering::Relaxed), store.wanted.load(Ordering::Relaxed)), (1, 0));
    }
}
