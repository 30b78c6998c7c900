//! Tests of the proxy's faults.
#![allow(clippy::unwrap_used, reason = "a failed test tool is a failed test")]

mod bytes;
mod connections;
mod proxied_connection;
mod servers;
