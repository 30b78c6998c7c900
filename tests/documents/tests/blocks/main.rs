//! Tests that the Rust code blocks of README.md and docs/ run, and that the statements which the documents make about
//! them are true. Doctests are not included, because rustdoc runs them.
//!
//! Blocks that define functions receive a client of in-process nodes. In programs with node addresses, `build.rs`
//! inserts the addresses of real servers.
#![allow(clippy::unused_async, reason = "examples leave out the awaited work")]
#![allow(
    clippy::duration_suboptimal_units,
    reason = "`from_mins` is newer than the oldest supported Rust"
)]

mod guides;
mod readme;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::Duration;

macro_rules! block {
    ($name:literal) => {
        include!(concat!(env!("OUT_DIR"), "/blocks/", $name, ".rs"));
    };
}
use block;

const PATIENCE: Duration = Duration::from_secs(1);

thread_local! {
    static URLS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    static LISTENER: RefCell<Option<SocketAddr>> = const { RefCell::new(None) };
}

/// Returns the URLs of the test's servers. In the code blocks, `build.rs` replaces the node addresses with a call of
/// this function.
fn urls() -> Vec<String> {
    URLS.with_borrow(Clone::clone)
}

/// Returns an address with a free port for the metrics exporter. `build.rs` adds a call of this function to the code
/// blocks that install an exporter.
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
    assert!(there.len() >= 8, "too few blocks found: {there:?}");
    assert_eq!(named, there, "left: blocks named by tests; right: blocks in the documents");
}
