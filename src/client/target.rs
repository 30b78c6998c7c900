//! The locks that an acquire needs.

use super::permits::Permits;
use crate::coordinator::SharingTerms;
use crate::wire::{Key, Value};
use std::fmt;
use std::sync::Arc;

#[derive(Clone)]
pub(super) enum Target {
    One(Key),
    All(Vec<Key>),
    Any(Vec<Key>),
    Permit(Arc<Permits>),
    Shared(Key, SharingTerms),
    /// A lock to adopt: the resource, and the value of the lease that holds the lock.
    HandedOver(Key, Arc<Value>),
}

/// Omits the value in `HandedOver`, because the value is a secret.
impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(resource) | Self::HandedOver(resource, _) => {
                write!(f, "{:?}", String::from_utf8_lossy(resource))
            }
            Self::All(resources) | Self::Any(resources) => f
                .debug_list()
                .entries(resources.iter().map(|one| String::from_utf8_lossy(one)))
                .finish(),
            Self::Shared(key, sharing) => {
                let access = if sharing.is_reader { "read" } else { "write" };
                write!(f, "{:?} ({access})", String::from_utf8_lossy(key))
            }
            Self::Permit(permits) => {
                let (first, count) = (permits.keys.first(), permits.keys.len());
                write!(f, "{:?} or another of {count} permits", String::from_utf8_lossy(first))
            }
        }
    }
}
