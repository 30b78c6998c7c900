//! The Redis protocol: commands, scripts, keys and values, and the parsing of replies.
//!
//! This module opens no connections, spawns no tasks and reads no clock. Callers pass the current time.

mod answer;
mod auxiliary_key;
mod buffer;
mod capabilities;
mod command;
mod conversation;
mod counters;
mod decoder;
mod facts;
mod failure;
mod greeting;
mod inspection;
mod invalidations;
mod keys;
mod period_record;
mod release_command;
mod reply;
mod reply_shape;
mod requests;
mod script;
#[cfg(feature = "serde")]
mod seconds;
mod set_up;
mod shared_command;
mod shared_lock;
mod sync_check;
mod unknown_command;
mod value;

pub(crate) use answer::{Answer, Conflict, Grant, RemainingTtl};
pub(crate) use auxiliary_key::{is_reserved, main_key, period_keys, permit_key, queue_name};
pub(crate) use buffer::clear_buffer;
pub(crate) use capabilities::{Capabilities, NativeCommand};
pub(crate) use command::{
    Command, CommandTarget, ConflictDetails, CoolDown, PeriodStep, PeriodUpdate, ask_time,
};
pub(crate) use conversation::Conversation;
pub(crate) use counters::{CounterKeys, Counters};
pub(crate) use facts::Facts;
pub use facts::{Fsync, Persistence, Role};
#[cfg(feature = "tls-rustls")]
pub(crate) use failure::NO_TLS;
pub use failure::NodeFailure;
pub(crate) use failure::{CLOSED_BY_SERVER, short};
pub(crate) use greeting::Greeting;
pub(crate) use inspection::Inspection;
pub(crate) use invalidations::Invalidations;
pub(crate) use keys::{AnyKey, Key, Keys};
pub(crate) use period_record::PeriodRecord;
pub(crate) use reply::time_us;
pub(crate) use reply_shape::ReplyShape;
pub(crate) use requests::Requests;
pub(crate) use script::Form;
#[cfg(feature = "serde")]
pub(crate) use seconds::seconds;
pub(crate) use set_up::{INFO_NOT_PERMITTED, ServerInfo, SetUp};
pub(crate) use shared_lock::{SharedKeys, Sharing, awaited_key};
pub(crate) use sync_check::{append_sync_check, verify_sync};
pub(crate) use value::{Holding, MAX_VALUE, Value};
