//! A Redis server without a process: what quorlock sends is answered as Redis answers it, byte by byte.
//!
//! Here live the commands that quorlock sends, as a server runs them: the [in-process nodes](crate::Nodes) and the
//! simulation play them. No line of the client is used, so that no fault of the one hides in the other; only the texts
//! of its scripts are read, to recognise them.
//!
//! The model is a function of what it is given. It reads no clock, draws no random numbers and does no
//! I/O: whoever plays it says what its wall clock shows, and carries the bytes.
//!
//! ```
//! use quorlock_test::internals::{Config, Output, Server};
//!
//! let mut server = Server::new(Config::default(), 1_000_000);
//! let client = server.connect();
//! let said = server.receive(client, b"*1\r\n$4\r\nTIME\r\n", 2_000_003);
//! let Output::Bytes(to, reply) = &said[0] else { panic!("it answers") };
//! assert_eq!((*to, &reply[..]), (client, &b"*2\r\n$1\r\n2\r\n$1\r\n3\r\n"[..]));
//! ```
//!
//! # What it knows
//!
//! - RESP2 and RESP3; logging in; databases.
//! - The commands that quorlock sends, and some that its tests send as strangers; see `command.rs`. Options
//!   that nobody sends are syntax errors.
//! - quorlock's own scripts, which are recognised by their text and written anew in Rust. Other scripts can
//!   be loaded, and running one is an error.
//! - Expiry in whole milliseconds of the wall clock, when a key is touched and when time has come.
//! - Client-side caching with `OPTIN` and `NOLOOP`.
//! - Servers that refuse: see [`Trouble`], and [`Config::forbidden`].
//!
//! `tests/server` plays the same commands to it and to a real server. It is right for Redis 7.0
//! to the byte; for other versions as far as [`Version`] says.

mod command;
mod commands;
mod config;
mod dispatch;
mod keyspace;
mod output;
mod reply;
mod request;
mod script;
mod server;
mod session;
mod tracking;
mod trouble;
mod turn;

pub use config::{Config, Fsync, Version};
pub use keyspace::{Kind, Stored};
pub use output::{ConnId, Output};
pub use server::Server;
pub use trouble::Trouble;
