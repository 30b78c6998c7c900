//! A model of a Redis server, which replies to quorlock's commands exactly as Redis does, byte for
//! byte.
//!
//! The [in-process nodes](crate::Nodes) and the simulation use this model. The model shares no code
//! with the client, so that a defect of one cannot hide a defect of the other.
//!
//! The model is deterministic. It reads no clock, uses no random numbers and does no I/O: the caller
//! passes the time of the server's wall clock, and transports the bytes.
//!
//! ```
//! use quorlock_test::internals::{Config, Output, Server};
//!
//! let mut server = Server::new(Config::default(), 1_000_000);
//! let client = server.connect();
//! let outputs = server.receive(client, b"*1\r\n$4\r\nTIME\r\n", 2_000_003);
//! let Output::Bytes(to, reply) = &outputs[0] else { panic!("no reply") };
//! assert_eq!((*to, &reply[..]), (client, &b"*2\r\n$1\r\n2\r\n$1\r\n3\r\n"[..]));
//! ```
//!
//! # Supported features
//!
//! - RESP2, RESP3, authentication and databases.
//! - The commands that quorlock sends, and some commands that its tests send as other clients; see
//!   `command.rs`. Unused options of these commands are syntax errors.
//! - Lua scripts (feature `scripts`), executed by Lua 5.1. Scripts can call the commands above, and most functions
//!   that Redis provides; `script/sandbox.lua` lists them. The special tables of RESP3 (`double`, `map` and others)
//!   are arrays in a script's result. The model limits neither the time nor the memory of a script.
//! - Expiry of keys with a resolution of 1 ms of the wall clock. The server deletes an expired key
//!   when a command accesses the key, or when the caller requests it.
//! - Client-side caching with `OPTIN` and `NOLOOP`.
//! - Servers that refuse commands: [`Trouble`] and [`Config::forbidden`].
//!
//! `tests/server` sends the same commands to the model and to a real server. The replies are
//! identical for Redis 7.0. [`Version`] lists the differences for other versions.

mod command;
mod command_context;
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

pub use config::{Config, Fsync, Version};
pub use keyspace::{Kind, Stored};
pub use output::{ConnId, Output};
pub use server::Server;
pub use trouble::Trouble;
