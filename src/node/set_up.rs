//! The set-up of a new connection, as it is asked for over it.

use super::session::Session;
use crate::protocol::Reading;
use crate::time::Clock;
use crate::wire::SetUp;
use redis::RedisError;

/// Sets up the connection of `session`: what the server says, and what its clock shows, if it may be asked.
pub(super) async fn set_up<T>(
    session: &mut Session<T>,
    what: T,
    resp3: bool,
    clock: &Clock,
) -> Result<(SetUp, Option<Reading>), RedisError> {
    SetUp::ask(resp3, session.requests());
    let sent = clock.now();
    let replies = session.exchange(what).await?;
    let received = clock.now();
    let told = SetUp::read(&replies, resp3)?;
    let reading = told.shown_us.map(|shown_us| Reading { sent, shown_us, received });
    Ok((told, reading))
}
