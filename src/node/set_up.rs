//! The set-up of a new connection, as it is asked for over it.

use crate::protocol::Reading;
use crate::time::Clock;
use crate::wire::SetUp;
use redis::RedisError;
use redis::aio::MultiplexedConnection;

/// Sets up `connection`: what the server says, and what its clock shows, if it may be asked.
pub(super) async fn set_up(
    connection: &mut MultiplexedConnection,
    resp3: bool,
    clock: &Clock,
) -> Result<(SetUp, Option<Reading>), RedisError> {
    let pipeline = SetUp::ask(resp3);
    let sent = clock.now();
    let replies = connection.send_packed_commands(&pipeline, 0, pipeline.len()).await?;
    let received = clock.now();
    let told = SetUp::read(&replies, resp3)?;
    let reading = told.shown_us.map(|shown_us| Reading { sent, shown_us, received });
    Ok((told, reading))
}
