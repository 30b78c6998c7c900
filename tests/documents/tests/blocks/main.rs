//! The Rust blocks of README.md and docs/ run, each in a test that says what the document promises of it; those that
//! are doctests run there.
//!
//! Functions get a client on nodes in the process. Programs that name their nodes are given the addresses of real
//! servers in place of theirs: see `build.rs`.
#![allow(clippy::unused_async, reason = "work that an example leaves out")]
#![allow(
    clippy::duration_suboptimal_units,
    reason = "minutes are newer than the oldest Rust of the library"
)]

mod guides;
mod readme;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::Duration;

/// The block of that name.
macro_rules! block {
    ($name:literal) => {
        include!(concat!(env!("OUT_DIR"), "/blocks/", $name, ".rs"));
    };
}
use block;

/// What nodes may take to answer.
const PATIENCE: Duration = Duration::from_secs(1);

thread_local! {
    /// The nodes of the test that runs on this thread.
    static URLS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    /// Where its metrics are read.
    static LISTENER: RefCell<Option<SocketAddr>> = const { RefCell::new(None) };
}

/// Stands in blocks in place of their nodes.
fn urls() -> Vec<String> {
    URLS.with_borrow(Clone::clone)
}

/// Stands in a block for an exporter's own port.
fn listener() -> SocketAddr {
    let free = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|it| it.local_addr());
    LISTENER.with_borrow_mut(|it| *it.get_or_insert_with(|| free().expect("a free port")))
}

#[test]
fn every_block_has_a_test() {
    let texts = [include_str!("guides.rs"), include_str!("readme.rs")];
    let named = texts.iter().flat_map(|text| text.split("block!(\"").skip(1));
    let named: BTreeSet<_> = named.filter_map(|rest| rest.split('"').next()).collect();
    let there: BTreeSet<_> =
        include_str!(concat!(env!("OUT_DIR"), "/blocks/names")).lines().collect();
    assert!(there.len() >= 8, "blocks must be found: {there:?}");
    assert_eq!(named, there, "blocks that a test names, and those that there are");
}
