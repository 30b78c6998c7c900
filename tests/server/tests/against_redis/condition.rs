//! Random changes of the condition of both servers, such as a full memory or a missing permission.

use crate::comparison::Comparison;
use crate::real::Condition;
use quorlock_test::Trouble;

const RIGHTS: [&str; 23] = [
    "set",
    "get",
    "pttl",
    "del",
    "pexpire",
    "pexpireat",
    "zadd",
    "zrem",
    "zremrangebyscore",
    "zrevrange",
    "zscore",
    "eval",
    "evalsha",
    "time",
    "info",
    "ping",
    "select",
    "script|load",
    "client|tracking",
    "client|caching",
    "client|id",
    "client|kill",
    "config|get",
];

/// The number of [`RIGHTS`] that are whole commands. They come first, before the subcommands.
const WHOLE_RIGHTS: usize = 17;

impl Comparison {
    /// Changes the condition of both servers in a random fraction of all calls.
    pub fn change_condition(&mut self) {
        let sides = if self.condition == Condition::Normal { 1200 } else { 100 };
        let condition = match self.generator.rng.below(sides) {
            0..5 => Condition::Normal,
            5 => Condition::Busy,
            6 => Condition::ReadOnly,
            7 => Condition::MasterDown,
            8 | 9 => Condition::OutOfMemory,
            10 | 11 => Condition::Misconf,
            12..18 => {
                // Older servers have no ACL rules for subcommands.
                let rights = &RIGHTS[..if self.is_old { WHOLE_RIGHTS } else { RIGHTS.len() }];
                let first = self.generator.rng.pick(rights);
                Condition::Forbidden(vec![first, self.generator.rng.pick(rights)])
            }
            _ => return,
        };
        if condition == self.condition {
            return;
        }
        let before = std::mem::replace(&mut self.condition, condition);
        self.real.clear(&before);
        self.real.induce(&self.condition);
        self.apply_to_model();
        // A server that becomes a replica uses a client ID for its own connection.
        if self.condition != Condition::Busy {
            self.align_client_ids();
        }
    }

    pub fn apply_to_model(&mut self) {
        let trouble = match &self.condition {
            Condition::Busy => Some(Trouble::Busy),
            Condition::ReadOnly => Some(Trouble::ReadOnly),
            Condition::MasterDown => Some(Trouble::MasterDown),
            Condition::OutOfMemory => Some(Trouble::OutOfMemory),
            Condition::Misconf => Some(Trouble::Misconf),
            Condition::Normal | Condition::Forbidden(_) => None,
        };
        self.model.set_trouble(trouble);
        let condition = &self.condition;
        self.model.configure(|config| {
            config.maxmemory = u64::from(*condition == Condition::OutOfMemory);
            config.save.clear();
            config.save.push_str(if *condition == Condition::Misconf { crate::SAVE } else { "" });
            config.forbidden = match condition {
                Condition::Forbidden(names) => {
                    names.iter().map(|name| (*name).to_owned()).collect()
                }
                _ => <_>::default(),
            };
        });
    }

    fn align_client_ids(&mut self) {
        let next = self.real.next_client_id();
        loop {
            let conn = self.model.connect();
            let id = self.model.client_id(conn).expect("the connection is open");
            self.model.disconnect(conn);
            assert!(id < next, "the model's ids are ahead: {id}, {next}");
            if id + 1 == next {
                break;
            }
        }
    }
}
