//! What an agent needs of the model.

use std::future::Future;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ken_types::limits::WIRE_DEADLINE_MAX_MS;
use ken_types::ops::Nothing;
use ken_types::ops::model::{Delta, Generate, Generated, ModelGenerate, ModelInfo, ModelState};
use ken_types::{Code, Error};
use ken_wire::{Connection, Items};
use tokio::time::Instant;

pub(crate) trait Model: Clone + Send + Sync + 'static {
    type Reply: Reply;

    /// What is configured.
    fn info(&self) -> impl Future<Output = Result<ModelState, Error>> + Send;

    /// Begins a call. Dropping the reply cancels it.
    fn generate(&self, request: &Generate) -> impl Future<Output = Result<Self::Reply, Trouble>> + Send;
}

/// An answer as it comes.
pub(crate) trait Reply: Send {
    /// The next delta; `None` at the end. Cancel safe.
    fn next(&mut self) -> impl Future<Output = Option<Result<Delta, Error>>> + Send;

    /// How it ended.
    fn end(self) -> impl Future<Output = Result<Generated, Trouble>> + Send;
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Trouble {
    /// ken-model has died: it will be back, and answers the same call again.
    Gone,
    /// The provider has failed.
    Failed(Error),
}

/// ken-model over its socket: one connection, opened when it is needed.
#[derive(Debug, Clone)]
pub(crate) struct WireModel {
    socket: Arc<PathBuf>,
    link: Arc<Mutex<Option<Link>>>,
}

/// A connection, and what the part behind it has configured.
#[derive(Debug, Clone)]
struct Link {
    connection: Connection,
    info: Option<ModelState>,
}

const CALL: Duration = Duration::from_secs(10);
const GENERATE: Duration = Duration::from_millis(WIRE_DEADLINE_MAX_MS);

impl WireModel {
    pub(crate) fn new(socket: PathBuf) -> WireModel {
        WireModel {
            socket: Arc::new(socket),
            link: Arc::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Link>> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn link(&self) -> Result<Link, Error> {
        let open = self.lock().clone().filter(|link| !link.connection.is_closed());
        if let Some(link) = open {
            return Ok(link);
        }
        let connection = Connection::open(&self.socket, Instant::now() + CALL).await?;
        let link = Link {
            connection,
            info: None,
        };
        *self.lock() = Some(link.clone());
        Ok(link)
    }
}

impl Model for WireModel {
    type Reply = WireReply;

    async fn info(&self) -> Result<ModelState, Error> {
        let link = self.link().await?;
        if let Some(info) = link.info {
            return Ok(info);
        }
        let info = link.connection.call::<ModelInfo>(&Nothing {}, CALL).await?;
        if let Some(link) = self.lock().as_mut() {
            link.info = Some(info.clone());
        }
        Ok(info)
    }

    async fn generate(&self, request: &Generate) -> Result<WireReply, Trouble> {
        let connection = self.link().await.map_err(Trouble::Failed)?.connection;
        match connection.stream::<ModelGenerate>(request, GENERATE).await {
            Ok(items) => Ok(WireReply { items, connection }),
            Err(error) => Err(trouble(error, &connection)),
        }
    }
}

/// The connection's end is no answer of a provider.
fn trouble(error: Error, connection: &Connection) -> Trouble {
    match error.code {
        Code::Unavailable if connection.is_closed() => Trouble::Gone,
        _ => Trouble::Failed(error),
    }
}

#[derive(Debug)]
pub(crate) struct WireReply {
    items: Items<ModelGenerate>,
    connection: Connection,
}

impl Reply for WireReply {
    async fn next(&mut self) -> Option<Result<Delta, Error>> {
        self.items.next().await
    }

    async fn end(self) -> Result<Generated, Trouble> {
        let connection = self.connection;
        self.items
            .reply()
            .await
            .map_err(|error| trouble(error, &connection))
    }
}
