//! One server and the connection to it, which is opened when it is needed and replaced when it is of no use any more.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, Value};
use tenure_core::Instant;
use tenure_store::StoreError;

use crate::error::store_error;
use crate::options::Endpoint;
use crate::sleep::before;
use crate::watch::Pushes;

/// A server.
pub(crate) struct Node {
    endpoint: Endpoint,
    connect_timeout: Duration,
    pushes: Arc<Pushes>,
    connection: futures::lock::Mutex<Option<MultiplexedConnection>>,
}

impl Node {
    pub(crate) fn new(endpoint: Endpoint, connect_timeout: Duration, pushes: Arc<Pushes>) -> Self {
        Self { endpoint, connect_timeout, pushes, connection: futures::lock::Mutex::new(None) }
    }

    /// Has one command carried out, connecting first if that is needed.
    pub(crate) async fn request(&self, command: &Cmd, until: Instant) -> Result<Value, StoreError> {
        let mut connection = self.connect(until).await?;
        match before(until, connection.send_packed_command(command)).await {
            Some(Ok(Value::ServerError(error))) => Err(store_error(&error.into())),
            Some(Ok(value)) => Ok(value),
            Some(Err(error)) => Err(store_error(&error)),
            None => Err(StoreError::unknown("the server did not answer in time")),
        }
    }

    pub(crate) async fn close(&self) {
        *self.connection.lock().await = None;
    }

    async fn connect(&self, until: Instant) -> Result<MultiplexedConnection, StoreError> {
        let mut connection = self.connection.lock().await;
        if let Some(connection) = &*connection {
            return Ok(connection.clone());
        }
        let pushes = Arc::clone(&self.pushes);
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.connect_timeout))
            .set_response_timeout(None)
            .set_push_sender(move |push| {
                pushes.push(push);
                Ok::<(), ()>(())
            });
        let failed = |error| StoreError::transient(format!("can't connect: {error}"));
        let client = Client::open(self.endpoint.connection_info()?).map_err(failed)?;
        let connected = before(until, client.get_multiplexed_async_connection_with_config(&config)).await;
        let new =
            connected.ok_or_else(|| StoreError::transient("connecting takes too long"))?.map_err(failed)?;
        *connection = Some(new.clone());
        Ok(new)
    }
}
