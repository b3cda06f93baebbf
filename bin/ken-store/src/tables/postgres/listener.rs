//! Notices between hosts. What a host has changed it tells the others after the commit, so that their waiting calls go on at once. A notice may
//! be lost: each host also looks at the numbers of the others' transactions once a second.
//!
//! A thread has one connection for both. It sends what has been gathered meanwhile, because the server makes all commits with a notice wait for
//! each other.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use ken_types::Error;
use tokio::runtime::Builder;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinHandle;
use tokio::time::{Instant, interval, sleep, sleep_until, timeout};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Notification};

use super::fault::Failure;
use super::server::Server;
use super::timeline::{self, Timeline};
use crate::tables::{Hear, Notice};

const CHANNEL: &str = "ken";
/// The maximum number of changes of which the others were not told yet. If some do not fit, the next notice says that anything may have changed.
const QUEUE: usize = 1_024;
/// The longest text of a notice is 7,999 bytes. Each mark takes 17.
const MAX_MARKS: usize = 450;
/// The shortest time between two notices.
const PAUSE: Duration = Duration::from_millis(10);
/// How often the connection is tried, and how long the answer may take. Without this, one that is only half there would be noticed late.
const HEARTBEAT: Duration = Duration::from_secs(5);
const RECONNECT_PAUSE: Duration = Duration::from_millis(500);

/// What a transaction of this host has changed.
#[derive(Debug)]
pub(super) struct Announcement {
    pub(super) batch: i64,
    pub(super) marks: Vec<u64>,
    /// Whether one before it was lost, because too many waited.
    pub(super) follows_lost: bool,
}

/// Starts the thread. It ends when the returned sender is dropped.
pub(super) fn start(server: Server, host: Arc<str>, hear: Hear) -> Result<Sender<Announcement>, Error> {
    let (sender, announcements) = channel(QUEUE);
    let failed =
        |error: std::io::Error| Error::unavailable(format!("the thread listener could not be started: {error}"));
    let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let listener = Listener { server, host, hear: hear.into(), announcements, gathered: None, told: None, attempts: 0 };
    let run = move || runtime.block_on(listener.run());
    std::thread::Builder::new().name("listener".into()).spawn(run).map_err(failed)?;
    Ok(sender)
}

struct Listener {
    server: Server,
    host: Arc<str>,
    hear: Arc<dyn Fn(Notice) + Send + Sync>,
    announcements: Receiver<Announcement>,
    /// What is to be told next.
    gathered: Option<Gathered>,
    /// The last transaction of which the others were told.
    told: Option<i64>,
    attempts: usize,
}

#[derive(Debug, Default)]
struct Gathered {
    batch: i64,
    marks: BTreeSet<u64>,
    /// Whether some marks are missing.
    is_incomplete: bool,
}

impl Listener {
    /// Runs until the store ends.
    async fn run(mut self) {
        let mut reported = String::new();
        while let Err(failure) = self.serve().await {
            let error = super::fault::error(&self.server, &failure).message;
            if error != reported {
                tracing::warn!("changes of other hosts are seen late: {error}");
                reported = error;
            }
            sleep(RECONNECT_PAUSE).await;
        }
    }

    /// Connects, and tells and hears until the connection breaks. Returns `Ok` when the store ends.
    async fn serve(&mut self) -> Result<(), Failure> {
        let hosts = self.server.hosts.clone();
        let mut config = hosts.get(self.attempts % hosts.len().max(1)).ok_or(Failure::Cut)?.clone();
        config.application_name("ken-store notices");
        // After a failure, the next host of the URL.
        self.attempts += 1;
        let connected = timeout(HEARTBEAT, config.connect(self.server.tls.clone())).await;
        let (client, mut connection) = connected.map_err(|_| Failure::Silent)?.map_err(Failure::Server)?;
        let (hear, own) = (self.hear.clone(), self.host.clone());
        let driver = tokio::spawn(async move {
            while let Some(message) = poll_fn(|context| connection.poll_message(context)).await {
                if let AsyncMessage::Notification(notification) = message.map_err(Failure::Server)?
                    && let Some(notice) = notice(&notification).filter(|notice| *notice.host != *own)
                {
                    hear(notice);
                }
            }
            Err(Failure::Closed)
        });
        let ended = self.tell_and_hear(&client, driver).await;
        drop(client);
        ended
    }

    async fn tell_and_hear(
        &mut self,
        client: &Client,
        mut driver: JoinHandle<Result<(), Failure>>,
    ) -> Result<(), Failure> {
        self.check_timeline(client).await?;
        client.batch_execute(&format!("LISTEN {CHANNEL}")).await.map_err(Failure::Server)?;
        self.attempts -= 1;
        let mut heartbeat = interval(HEARTBEAT);
        let mut may_tell_at = Instant::now();
        loop {
            tokio::select! {
                ended = &mut driver => return ended.unwrap_or(Err(Failure::Closed)),
                announcement = self.announcements.recv() => match announcement {
                    Some(announcement) => self.gather(announcement),
                    None => return Ok(()),
                },
                () = sleep_until(may_tell_at), if self.gathered.is_some() => {
                    self.tell(client).await?;
                    may_tell_at = Instant::now() + PAUSE;
                }
                _ = heartbeat.tick() => {
                    let answer = timeout(HEARTBEAT, client.batch_execute("SELECT 1")).await;
                    answer.map_err(|_| Failure::Silent)?.map_err(Failure::Server)?;
                }
            }
        }
    }

    /// Fails if the server is a primary that was replaced: nothing is to be heard there.
    async fn check_timeline(&self, client: &Client) -> Result<(), Failure> {
        let rows = client.query_typed(timeline::QUERY, &[]).await.unwrap_or_default();
        let found = rows.first().and_then(|row| Timeline::of(row).ok());
        let checked = found.map_or(Ok(()), |found| self.server.newest.check(&self.server.name, found));
        checked.map_err(|_| Failure::Closed)
    }

    fn gather(&mut self, announcement: Announcement) {
        let gathered = self.gathered.get_or_insert_default();
        gathered.batch = announcement.batch;
        gathered.marks.extend(announcement.marks);
        gathered.is_incomplete |= announcement.follows_lost;
    }

    async fn tell(&mut self, client: &Client) -> Result<(), Failure> {
        let Some(gathered) = self.gathered.take() else { return Ok(()) };
        // The host may have begun again with lower numbers, if it was removed.
        let first = self.told.filter(|told| *told < gathered.batch).map_or(gathered.batch, |told| told + 1);
        let text = text(&self.host, first, &gathered);
        let values: [(&(dyn ToSql + Sync), Type); 2] = [(&CHANNEL, Type::TEXT), (&text, Type::TEXT)];
        let sent = timeout(HEARTBEAT, client.execute_typed("SELECT pg_notify($1, $2)", &values)).await;
        if let Err(failure) = sent.map_err(|_| Failure::Silent).and_then(|sent| sent.map_err(Failure::Server)) {
            // The next notice covers these transactions, so that it needs their marks.
            self.gathered = Some(gathered);
            return Err(failure);
        }
        self.told = Some(gathered.batch);
        Ok(())
    }
}

/// Returns the text of a notice: the host, its first and last transaction, and the marks, or an asterisk if they are too many or
/// not all are known.
fn text(host: &str, first: i64, gathered: &Gathered) -> String {
    let marks: Vec<String> = gathered.marks.iter().map(|mark| format!("{mark:x}")).collect();
    let is_all = !gathered.is_incomplete && marks.len() <= MAX_MARKS;
    let marks = if is_all { marks.join(",") } else { "*".to_owned() };
    format!("{host} {first} {} {marks}", gathered.batch)
}

/// Reads the text of a notice. One that cannot be read is none: its changes are found by looking.
fn notice(notification: &Notification) -> Option<Notice> {
    read(notification.payload())
}

fn read(text: &str) -> Option<Notice> {
    let mut words = text.split(' ');
    let (host, first, batch, marks) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let mark = |text: &str| u64::from_str_radix(text, 16).ok();
    let marks = match marks {
        "*" => None,
        marks => Some(marks.split(',').filter(|mark| !mark.is_empty()).map(mark).collect::<Option<_>>()?),
    };
    Some(Notice { host: host.to_owned(), first: first.parse().ok()?, batch: batch.parse().ok()?, marks })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_is_read_as_it_was_written_and_fits() {
        for count in [0, 1, MAX_MARKS, MAX_MARKS + 1] {
            let marks: BTreeSet<u64> = (0..count as u64).map(|number| u64::MAX - number).collect();
            let text = text(
                &"a".repeat(32),
                i64::MAX - 1,
                &Gathered { batch: i64::MAX, marks: marks.clone(), is_incomplete: false },
            );
            assert!(text.len() < 8_000, "{count}: {}", text.len());
            let notice = read(&text).unwrap();
            let expected = (count <= MAX_MARKS).then(|| marks.into_iter().collect::<Vec<_>>());
            assert_eq!((notice.first, notice.batch, notice.marks), (i64::MAX - 1, i64::MAX, expected));
        }
        assert!(read("of another program").is_none());
        assert!(read("host 1 2 xyz").is_none());
    }
}
