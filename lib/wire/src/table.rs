//! The operations of a daemon by name, each with a typed handler.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ken_types::Error;
use ken_types::ops::service::{Info, ServiceInfo, ServicePing, ServiceStats};
use ken_types::ops::{Nothing, Op};
use serde_json::{Map, Value};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::request::answer_with;

/// The id of a connection, unique within the life of the process.
pub type ConnectionId = u64;

/// The state of a daemon.
pub trait Daemon: Send + Sync + 'static {
    /// Counters and queue lengths, for `service.stats`.
    fn stats(&self) -> Map<String, Value> {
        Map::new()
    }

    /// Called when a connection has ended and its open calls have been dropped.
    fn disconnected(&self, _connection: ConnectionId) {}
}

/// The connection and the deadline of a call.
pub struct Context<O: Op> {
    pub connection: ConnectionId,
    pub deadline: Instant,
    id: u64,
    out: mpsc::Sender<Vec<u8>>,
    op: PhantomData<fn() -> O>,
}

impl<O: Op> Context<O> {
    /// Sends one item. Waits while the caller does not read.
    pub async fn item(&self, item: &O::Item) -> Result<(), Error> {
        let line = answer_with(Some(self.id), "item", &|line| O::write_item(item, line))?;
        self.out.send(line).await.map_err(|_| Error::cancelled("the caller is gone"))
    }

    /// The time until the deadline, for calls to other parts.
    pub fn time_left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }
}

impl<O: Op> fmt::Debug for Context<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(O::NAME).field("connection", &self.connection).field("id", &self.id).finish_non_exhaustive()
    }
}

/// A call whose arguments have not been parsed.
pub(crate) struct RawCall {
    pub(crate) connection: ConnectionId,
    pub(crate) id: u64,
    pub(crate) deadline: Instant,
    pub(crate) out: mpsc::Sender<Vec<u8>>,
}

pub(crate) type FinalLine = Pin<Box<dyn Future<Output = Result<Vec<u8>, Error>> + Send>>;
type Start<S> = Box<dyn Fn(Arc<S>, RawCall, &str) -> Result<FinalLine, Error> + Send + Sync>;

/// The operations of a daemon with state `S`.
pub struct Table<S> {
    name: &'static str,
    version: &'static str,
    ops: BTreeMap<&'static str, Start<S>>,
}

impl<S: Daemon> Table<S> {
    /// Creates a table with the three operations that every daemon has. `name` is the part's name without `ken-`.
    pub fn new(name: &'static str, version: &'static str) -> Table<S> {
        Table { name, version, ops: BTreeMap::new() }
            .op::<ServicePing, _, _>(|_, _, _| async { Ok(Nothing {}) })
            .op::<ServiceStats, _, _>(|state: Arc<S>, _, _| async move { Ok(state.stats()) })
    }

    /// Adds an operation.
    pub fn op<O, H, F>(mut self, handler: H) -> Table<S>
    where
        O: Op,
        H: Fn(Arc<S>, Context<O>, O::Args) -> F + Send + Sync + 'static,
        F: Future<Output = Result<O::Reply, Error>> + Send + 'static,
    {
        let start: Start<S> = Box::new(move |state, call, args| {
            let args = O::read_args(args)?;
            let RawCall { connection, id, deadline, out } = call;
            let reply = handler(state, Context { connection, deadline, id, out, op: PhantomData }, args);
            Ok(Box::pin(async move {
                let reply = reply.await?;
                answer_with(Some(id), "ok", &|line| O::write_reply(&reply, line))
            }))
        });
        self.ops.insert(O::NAME, start);
        self
    }

    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the reply of `service.info`.
    pub fn info(&self) -> Info {
        let mut ops: Vec<String> = self.ops.keys().map(|name| (*name).to_owned()).collect();
        ops.push(ServiceInfo::NAME.to_owned());
        ops.sort();
        Info { name: self.name.to_owned(), version: self.version.to_owned(), wire: 1, ops }
    }

    pub(crate) fn start(&self, state: Arc<S>, call: RawCall, op: &str, args: &str) -> Result<FinalLine, Error> {
        match self.ops.get(op) {
            Some(start) => start(state, call, args),
            // The names are known only when the table is complete, so this operation has no handler.
            None if op == ServiceInfo::NAME => {
                let Nothing {} = ServiceInfo::read_args(args)?;
                let line = answer_with(Some(call.id), "ok", &|line| ServiceInfo::write_reply(&self.info(), line));
                Ok(Box::pin(std::future::ready(line)))
            }
            None => Err(Error::not_found(format!("{} has no operation `{op}`", self.name))
                .at("/op")
                .hint("service.info lists them")),
        }
    }
}

impl<S> fmt::Debug for Table<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").field("name", &self.name).field("ops", &self.ops.keys()).finish()
    }
}
