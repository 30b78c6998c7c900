//! Faults of the proxy.
#![allow(clippy::unwrap_used, reason = "a failed test tool is a failed test")]

mod bytes;
mod connections;
mod line;
mod servers;
