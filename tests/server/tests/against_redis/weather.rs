//! What is wrong with both servers, and for how long.

use crate::duel::Duel;
use crate::real::Weather;
use quorlock_test::Trouble;

/// What may be forbidden.
const RIGHTS: [&str; 17] = [
    "set",
    "get",
    "pttl",
    "del",
    "pexpire",
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

/// So many of them are of whole commands.
const WHOLE_RIGHTS: usize = 11;

impl Duel {
    /// Now and then, for some turns.
    pub fn change_weather(&mut self) {
        let sides = if self.weather == Weather::Fair { 1200 } else { 100 };
        let weather = match self.author.dice.below(sides) {
            0..5 => Weather::Fair,
            5 => Weather::Busy,
            6 => Weather::ReadOnly,
            7 => Weather::MasterDown,
            8 | 9 => Weather::OutOfMemory,
            10 | 11 => Weather::Misconf,
            12..18 => {
                // Older servers have no rules for parts of commands.
                let rights = &RIGHTS[..if self.is_old { WHOLE_RIGHTS } else { RIGHTS.len() }];
                let first = self.author.dice.pick(rights);
                Weather::Forbidden(vec![first, self.author.dice.pick(rights)])
            }
            _ => return,
        };
        if weather == self.weather {
            return;
        }
        let before = std::mem::replace(&mut self.weather, weather);
        self.real.mend(&before);
        self.real.spoil(&self.weather);
        self.tell_model();
        // A server that becomes a replica gives an id to itself.
        if self.weather != Weather::Busy {
            self.align_client_ids();
        }
    }

    pub fn tell_model(&mut self) {
        let trouble = match &self.weather {
            Weather::Busy => Some(Trouble::Busy),
            Weather::ReadOnly => Some(Trouble::ReadOnly),
            Weather::MasterDown => Some(Trouble::MasterDown),
            Weather::OutOfMemory => Some(Trouble::OutOfMemory),
            Weather::Misconf => Some(Trouble::Misconf),
            Weather::Fair | Weather::Forbidden(_) => None,
        };
        self.model.set_trouble(trouble);
        let weather = &self.weather;
        self.model.configure(|config| {
            config.maxmemory = u64::from(*weather == Weather::OutOfMemory);
            config.save.clear();
            config.save.push_str(if *weather == Weather::Misconf { crate::SAVE } else { "" });
            config.forbidden = match weather {
                Weather::Forbidden(names) => names.iter().map(|name| (*name).to_owned()).collect(),
                _ => <_>::default(),
            };
        });
    }

    fn align_client_ids(&mut self) {
        let next = self.real.next_client_id();
        loop {
            let conn = self.model.connect();
            let id = self.model.client_id(conn).expect("it is open");
            self.model.disconnect(conn);
            assert!(id < next, "the model is ahead: {id}, {next}");
            if id + 1 == next {
                break;
            }
        }
    }
}
