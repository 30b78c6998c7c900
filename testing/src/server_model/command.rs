//! The server's command table: each command's arity, and the states in which the server refuses the
//! command.

use crate::server_model::command_context::CommandContext;
use crate::server_model::commands::{
    client, configuration, info, keys, login, sorted_sets, strings,
};
use crate::server_model::config::Version;
use crate::server_model::reply::Reply;
use crate::server_model::script;
use std::collections::BTreeSet;
use std::sync::LazyLock;

pub(crate) struct CommandSpec {
    /// Name in lower case, with the subcommand if any: `set`, `script|load`.
    pub(crate) name: &'static str,
    /// Number of arguments, including the name and the subcommand. As in Redis, a negative number
    /// `-n` means at least `n` arguments.
    pub(crate) arity: i64,
    flags: u8,
    since: (u32, u32),
    /// The Valkey version that introduced the command. If set, `since` (a Redis version) is ignored.
    since_valkey: Option<(u32, u32)>,
    pub(crate) run: fn(&mut CommandContext<'_>, &[Vec<u8>]) -> Reply,
}

const WRITE: u8 = 1;
const READ: u8 = 2;
/// Refused when the server is out of memory.
const MEMORY: u8 = 4;
/// Allowed while the server loads its data set.
const LOADING: u8 = 8;
/// Allowed on a replica that has lost its master.
const STALE: u8 = 16;
/// Allowed while a script exceeds its time limit.
const BUSY: u8 = 32;
/// Allowed before authentication.
const NO_AUTH: u8 = 64;
/// Refused if a script calls the command.
const NO_SCRIPT: u8 = 128;
const ALWAYS: u8 = LOADING | STALE;

type Run = fn(&mut CommandContext<'_>, &[Vec<u8>]) -> Reply;

const fn spec(name: &'static str, arity: i64, flags: u8, run: Run) -> CommandSpec {
    CommandSpec { name, arity, flags, since: (0, 0), since_valkey: None, run }
}

impl CommandSpec {
    const fn since(self, major: u32, minor: u32) -> Self {
        Self { since: (major, minor), ..self }
    }

    const fn since_valkey(self, major: u32, minor: u32) -> Self {
        Self { since_valkey: Some((major, minor)), ..self }
    }

    fn is_known_to(&self, version: &Version) -> bool {
        match self.since_valkey {
            Some(since) => version.valkey_has(since),
            None => version.has(self.since),
        }
    }

    pub(crate) fn is_write(&self) -> bool {
        self.flags & WRITE != 0
    }

    pub(crate) fn is_read(&self) -> bool {
        self.flags & READ != 0
    }

    pub(crate) fn needs_memory(&self) -> bool {
        self.flags & MEMORY != 0
    }

    pub(crate) fn runs_while_loading(&self) -> bool {
        self.flags & LOADING != 0
    }

    pub(crate) fn runs_on_stale_data(&self, version: &Version) -> bool {
        match self.name {
            "ping" => !version.has((7, 0)),
            "eval" | "evalsha" | "script|load" => version.has((7, 0)),
            "script|exists" | "script|flush" => version.valkey_has((9, 0)),
            _ => self.flags & STALE != 0,
        }
    }

    pub(crate) fn runs_while_busy(&self, version: &Version) -> bool {
        let more = ["select", "client|id", "client|caching", "client|setinfo", "client|setname"];
        self.flags & BUSY != 0 || version.valkey_has((9, 0)) && more.contains(&self.name)
    }

    pub(crate) fn needs_no_auth(&self) -> bool {
        self.flags & NO_AUTH != 0
    }

    #[cfg(feature = "scripts")]
    pub(crate) fn runs_in_scripts(&self) -> bool {
        self.flags & NO_SCRIPT == 0
    }

    pub(crate) fn keys_read<'a>(&self, arguments: &'a [Vec<u8>]) -> &'a [Vec<u8>] {
        let end = if ["exists", "mget"].contains(&self.name) { arguments.len() } else { 2 };
        arguments.get(1..end).unwrap_or_default()
    }

    pub(crate) fn is_client_command(&self) -> bool {
        self.name.starts_with("client")
    }

    pub(crate) fn takes(&self, count: usize) -> bool {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        if self.arity < 0 { count >= -self.arity } else { count == self.arity }
    }
}

static COMMANDS: [CommandSpec; 46] = [
    spec("set", -3, WRITE | MEMORY, strings::set),
    spec("get", 2, READ, strings::get),
    spec("mget", -2, READ, strings::mget),
    spec("getrange", 4, READ, strings::get_range),
    spec("msetex", -4, WRITE | MEMORY, strings::msetex).since(8, 4),
    spec("msetex", -4, WRITE | MEMORY, strings::msetex).since_valkey(9, 1),
    spec("del", -2, WRITE, keys::del),
    spec("exists", -2, READ, keys::exists),
    spec("delifeq", 3, WRITE, keys::delifeq).since_valkey(9, 0),
    spec("delex", -2, WRITE, keys::delex).since(8, 4),
    spec("pttl", 2, READ, keys::pttl),
    spec("pexpire", -3, WRITE, keys::pexpire),
    spec("pexpireat", -3, WRITE, keys::pexpireat),
    spec("zadd", -4, WRITE | MEMORY, sorted_sets::add),
    spec("zrem", -3, WRITE, sorted_sets::remove),
    spec("zscore", 3, READ, sorted_sets::score),
    spec("zrevrange", -4, READ, sorted_sets::latest),
    spec("zremrangebyscore", 4, WRITE, sorted_sets::remove_up_to),
    spec("evalsha", -3, STALE | NO_SCRIPT, script::evalsha),
    spec("eval", -3, STALE | NO_SCRIPT, script::eval),
    spec("time", 1, ALWAYS, info::time),
    spec("ping", -1, 0, info::ping),
    spec("info", -1, ALWAYS, info::info),
    spec("hello", -1, ALWAYS | BUSY | NO_AUTH | NO_SCRIPT, login::hello).since(6, 0),
    spec("auth", -2, ALWAYS | BUSY | NO_AUTH | NO_SCRIPT, login::auth),
    spec("quit", -1, ALWAYS | BUSY | NO_AUTH | NO_SCRIPT, login::quit),
    spec("select", 2, ALWAYS, login::select),
    spec("script|load", 3, STALE | NO_SCRIPT, script::load),
    spec("script|exists", -3, NO_SCRIPT, script::exists),
    spec("script|flush", -2, NO_SCRIPT, script::flush),
    spec("script|kill", 2, BUSY | NO_SCRIPT, script::kill),
    spec("script", -2, NO_SCRIPT, unknown_subcommand),
    spec("client|id", 2, ALWAYS | NO_SCRIPT, client::id),
    spec("client|kill", -3, ALWAYS | NO_SCRIPT, client::kill),
    spec("client|tracking", -3, ALWAYS | NO_SCRIPT, client::tracking).since(6, 0),
    spec("client|caching", 3, ALWAYS | NO_SCRIPT, client::caching).since(6, 0),
    spec("client|setinfo", 4, ALWAYS | NO_SCRIPT, client::setinfo).since(7, 2),
    spec("client|setname", 3, ALWAYS | NO_SCRIPT, client::setname),
    spec("client|list", -2, ALWAYS | NO_SCRIPT, client::list),
    spec("client", -2, ALWAYS | NO_SCRIPT, unknown_subcommand),
    spec("config|get", -3, ALWAYS | NO_SCRIPT, configuration::get),
    spec("pubsub|numsub", -2, ALWAYS, configuration::numsub),
    spec("sadd", -3, WRITE | MEMORY, keys::sadd),
    spec("lpush", -3, WRITE | MEMORY, keys::lpush),
    spec("flushall", -1, WRITE, keys::flushall),
    spec("flushdb", -1, WRITE, keys::flushdb),
];

/// Looks up the command for a request. `arguments` contains all words of the request. Returns the
/// error reply if this server version has no such command.
pub(crate) fn find(
    arguments: &[Vec<u8>],
    version: &Version,
) -> Result<&'static CommandSpec, String> {
    let named = |name: &[u8]| {
        let is_it = |it: &&CommandSpec| it.name.as_bytes().eq_ignore_ascii_case(name);
        COMMANDS.iter().filter(is_it).find(|it| it.is_known_to(version))
    };
    let first = arguments.first().map(Vec::as_slice).unwrap_or_default();
    let Some(second) = arguments.get(1).filter(|_| has_subcommands(first)) else {
        return named(first).ok_or_else(|| unknown(arguments, version));
    };
    // Before 7.0, Redis treats a subcommand as an argument and checks it last.
    let whole = named(&[first, b"|", second].concat());
    let container = || named(first).filter(|_| !version.has((7, 0)));
    whole.or_else(container).ok_or_else(|| unknown_second(first, second, version))
}

fn has_subcommands(name: &[u8]) -> bool {
    static CONTAINERS: LazyLock<BTreeSet<&str>> = LazyLock::new(|| {
        let names = COMMANDS.iter().filter_map(|command| command.name.split_once('|'));
        names.map(|(container, _)| container).collect()
    });
    CONTAINERS.iter().any(|container| container.as_bytes().eq_ignore_ascii_case(name))
}

fn unknown(arguments: &[Vec<u8>], version: &Version) -> String {
    let shown = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).into_owned();
    let name = arguments.first().map(shown).unwrap_or_default();
    let mut following = arguments.iter().skip(1).map(shown);
    let mut args = String::new();
    if version.has((7, 0)) {
        // Redis quotes as many arguments as fit into 128 bytes.
        while let Some(arg) = following.next().filter(|_| args.len() < 128) {
            let room = 128 - args.len();
            args.extend(["'", &arg.chars().take(room).collect::<String>(), "' "]);
        }
        return format!("ERR unknown command '{name}', with args beginning with: {args}");
    }
    for arg in following {
        args.extend(["`", &arg, "`, "]);
    }
    format!("ERR unknown command `{name}`, with args beginning with: {args}")
}

fn unknown_second(first: &[u8], second: &[u8], version: &Version) -> String {
    let name = String::from_utf8_lossy(first).to_uppercase();
    let second = String::from_utf8_lossy(second);
    let problem = if version.has((7, 0)) {
        "unknown subcommand"
    } else {
        "Unknown subcommand or wrong number of arguments for"
    };
    format!("ERR {problem} '{second}'. Try {name} HELP.")
}

/// Returns the error for a container command, such as `CLIENT`, whose subcommand does not exist in
/// this version.
fn unknown_subcommand(context: &mut CommandContext<'_>, arguments: &[Vec<u8>]) -> Reply {
    let version = &context.server.config.version;
    Reply::Error(unknown_second(&arguments[0], &arguments[1], version))
}
