//! Redis protocol: commands, scripts, keys and values, and the parsing of replies.
//!
//! Contains no connections, tasks or clocks; callers pass the current time.

mod abilities;
mod answer;
mod command;
mod companion;
mod conversation;
mod counters;
mod decoder;
mod facts;
mod failure;
mod fingerprint;
mod greeting;
mod inspection;
mod keys;
mod pushed;
mod reply;
mod reply_shape;
mod requests;
mod scan;
mod script;
mod seal;
#[cfg(feature = "serde")]
mod serialized;
mod set_up;
mod set_up_parts;
mod unknown_command;
mod value;

pub(crate) use abilities::Abilities;
#[cfg(test)]
pub(crate) use abilities::NativeDelete;
pub(crate) use answer::{Answer, Grant, Obstacle, Remaining};
pub(crate) use command::{Command, CoolDown, Subject, Wants, ask_time};
pub(crate) use companion::is_reserved;
pub(crate) use conversation::Conversation;
pub(crate) use counters::{CounterKeys, Counters};
pub(crate) use facts::Facts;
pub use facts::{Fsync, Persistence, Role};
pub use failure::NodeFailure;
pub(crate) use failure::short;
pub(crate) use fingerprint::{Fingerprint, NamedClient, ask_clients, named_clients};
pub(crate) use greeting::{Greeted, Greeting};
pub(crate) use inspection::Inspection;
pub(crate) use keys::{Key, Keys};
pub(crate) use pushed::Pushed;
pub(crate) use reply::time_us;
pub(crate) use reply_shape::ReplyShape;
pub(crate) use requests::Requests;
pub(crate) use scan::{FoundLock, ask_keys, ask_locks, found_locks, scanned_keys};
pub(crate) use script::Form;
pub(crate) use seal::{read_seal, seal};
#[cfg(feature = "serde")]
pub(crate) use serialized::seconds;
pub(crate) use set_up::{ServerInfo, SetUp};
pub(crate) use set_up_parts::{Optional, Optionals, SetUpParts, omitted_reply};
pub(crate) use unknown_command::is_unknown_command;
pub(crate) use value::{MAX_VALUE, Value};
