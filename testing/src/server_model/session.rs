//! One connection, as the server sees it.

use crate::server_model::request::RequestReader;
use crate::server_model::tracking::Mode;

/// What the server knows of a connection.
#[derive(Debug)]
pub(crate) struct ClientSession {
    pub(crate) client_id: u64,
    /// What it wants to be called.
    pub(crate) name: String,
    pub(crate) requests: RequestReader,
    pub(crate) resp3: bool,
    /// The user; `None` before it has logged in.
    pub(crate) user: Option<String>,
    pub(crate) db: u32,
    pub(crate) tracking: Option<Mode>,
    /// True from `CLIENT CACHING YES` to the end of the next command that is none of `CLIENT`.
    pub(crate) is_caching: bool,
    /// True once it is to be closed as soon as it was answered.
    pub(crate) is_ending: bool,
}

impl ClientSession {
    pub(crate) fn new(client_id: u64, needs_password: bool) -> Self {
        Self {
            client_id,
            name: String::new(),
            requests: RequestReader::default(),
            resp3: false,
            user: (!needs_password).then(|| "default".to_owned()),
            db: 0,
            tracking: None,
            is_caching: false,
            is_ending: false,
        }
    }

    /// True if the keys that a command reads now are to be remembered.
    pub(crate) fn tracks_reads(&self) -> bool {
        self.tracking.is_some_and(|mode| !mode.opt_in || self.is_caching)
    }
}
