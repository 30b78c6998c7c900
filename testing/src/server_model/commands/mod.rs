//! The commands themselves. Each takes all of its arguments, its name first.

pub(crate) mod client;
pub(crate) mod configuration;
pub(crate) mod info;
pub(crate) mod keys;
pub(crate) mod login;
pub(crate) mod strings;
