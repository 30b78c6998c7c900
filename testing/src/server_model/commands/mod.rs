//! Implementations of the commands. Each function receives all words of a request, including the
//! command's name.

pub(crate) mod client;
pub(crate) mod configuration;
pub(crate) mod info;
pub(crate) mod keys;
pub(crate) mod login;
pub(crate) mod sorted_sets;
pub(crate) mod strings;
