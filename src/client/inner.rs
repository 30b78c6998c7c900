//! State that the clones of a client share.

use super::settings::Settings;
pub(super) use crate::engine::Client as Driver;
use crate::error::ClientError;
use crate::lease::Backing;
use crate::protocol::Time;
use crate::wire::{Key, Keys};
use futures::future::{Either, select};
use std::pin::pin;
use std::sync::Arc;

/// A key that no lock can have, because resource names must not contain it.
const NO_KEY: &[u8] = b"#quorlock:";

pub(crate) struct Inner {
    pub(crate) driver: Arc<Driver>,
    pub(crate) backing: Arc<Backing>,
    pub(crate) settings: Settings,
}

impl Inner {
    /// Returns the key of `resource`. Fails if `resource` is invalid, if the client is closed, or if no runtime is
    /// available.
    pub(super) fn checked_keys(&self, resource: &[u8]) -> Result<Keys, ClientError> {
        self.driver.check_ready()?;
        Ok(Keys::one(self.settings.key(resource)?))
    }

    /// Waits until `at`, or until the client is closed.
    pub(super) async fn sleep_until(&self, at: Time) {
        let _closed = self.until_closed(self.backing.clock().sleep_until(at)).await.is_err();
    }

    /// Returns the output of `call`, or drops `call` and returns an error once the client is closed.
    pub(super) async fn until_closed<T>(
        &self,
        call: impl Future<Output = T>,
    ) -> Result<T, ClientError> {
        let closed = async {
            while !self.driver.is_closed() {
                // Also resolves if all keys may have changed. After a panic, the next request uses a new coordinator.
                let _ = self.driver.next_change(Keys::one(Key::from(NO_KEY))).await;
            }
        };
        match select(pin!(closed), pin!(call)).await {
            Either::Left(((), _)) => Err(ClientError::Closed),
            Either::Right((output, _)) => Ok(output),
        }
    }
}
