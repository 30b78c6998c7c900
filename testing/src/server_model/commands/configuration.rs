//! `CONFIG GET` and `PUBSUB NUMSUB`.

use crate::server_model::command_context::CommandContext;
use crate::server_model::reply::Reply;

const SENTINELS: &[u8] = b"__sentinel__:hello";

pub(crate) fn get(context: &mut CommandContext<'_>, arguments: &[Vec<u8>]) -> Reply {
    let names = arguments[2..].iter().map(|name| String::from_utf8_lossy(name).to_lowercase());
    if arguments.len() > 3 && !context.server.config.version.has((7, 0)) {
        return Reply::error(
            "ERR Unknown subcommand or wrong number of arguments for 'GET'. Try CONFIG HELP.",
        );
    }
    let config = &context.server.config;
    let settings = names.filter_map(|name| Some((Reply::text(&name), config.setting(&name)?)));
    Reply::Map(settings.map(|(name, setting)| (name, Reply::text(setting))).collect())
}

pub(crate) fn numsub(context: &mut CommandContext<'_>, arguments: &[Vec<u8>]) -> Reply {
    let sentinels = i64::try_from(context.server.config.sentinels).unwrap_or(i64::MAX);
    let subscribers = |channel: &Vec<u8>| if channel == SENTINELS { sentinels } else { 0 };
    let counts =
        arguments[2..].iter().flat_map(|it| [Reply::text(it), Reply::Int(subscribers(it))]);
    Reply::Array(counts.collect())
}
