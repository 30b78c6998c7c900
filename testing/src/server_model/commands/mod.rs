//! Implementations of the commands. Each receives all arguments, including the name.

pub(crate) mod client;
pub(crate) mod configuration;
pub(crate) mod info;
pub(crate) mod keys;
pub(crate) mod login;
pub(crate) mod strings;
