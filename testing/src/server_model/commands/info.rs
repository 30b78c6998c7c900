//! `INFO`, `TIME` and `PING`.

use crate::server_model::command_context::CommandContext;
use crate::server_model::reply::Reply;
use crate::server_model::server::Server;
use crate::server_model::trouble::{SYNTAX, Trouble};

const SECTIONS: [&str; 6] = ["server", "memory", "persistence", "stats", "replication", "cluster"];

pub(crate) fn ping(_: &mut CommandContext<'_>, arguments: &[Vec<u8>]) -> Reply {
    match arguments {
        [_] => Reply::Status("PONG".into()),
        [_, word] => Reply::text(word),
        _ => Reply::error("ERR wrong number of arguments for 'ping' command"),
    }
}

pub(crate) fn time(context: &mut CommandContext<'_>, _: &[Vec<u8>]) -> Reply {
    let now = context.server.now_us;
    let digits = |number: u64| Reply::text(number.to_string());
    Reply::Array(vec![digits(now / 1_000_000), digits(now % 1_000_000)])
}

pub(crate) fn info(context: &mut CommandContext<'_>, arguments: &[Vec<u8>]) -> Reply {
    let wanted = &arguments[1..];
    if wanted.len() > 1 && !context.server.config.version.has((7, 0)) {
        return Reply::error(SYNTAX);
    }
    let is_all = |word: &Vec<u8>| {
        ["all", "default", "everything"].iter().any(|all| word.eq_ignore_ascii_case(all.as_bytes()))
    };
    let is_wanted = |section: &&&str| {
        wanted.is_empty()
            || wanted
                .iter()
                .any(|word| is_all(word) || word.eq_ignore_ascii_case(section.as_bytes()))
    };
    let sections = SECTIONS.iter().filter(is_wanted).map(|section| context.server.section(section));
    Reply::Text(sections.collect::<Vec<_>>().join("\r\n"))
}

impl Server {
    fn section(&self, name: &str) -> String {
        let config = &self.config;
        match name {
            "server" => {
                let version = config.version.fields();
                let run_id = &config.run_id;
                let seconds = |us: u64| i64::try_from(us / 1_000_000).unwrap_or(i64::MAX);
                let uptime = seconds(self.now_us) - seconds(self.started_us);
                let fields = format!("{version}redis_mode:standalone\r\nrun_id:{run_id}");
                format!("# Server\r\n{fields}\r\nuptime_in_seconds:{uptime}\r\n")
            }
            "memory" => {
                let (limit, policy) = (config.maxmemory, &config.maxmemory_policy);
                format!("# Memory\r\nmaxmemory:{limit}\r\nmaxmemory_policy:{policy}\r\n")
            }
            "persistence" => {
                let loading = i32::from(self.trouble == Some(Trouble::Loading));
                let appends = i32::from(config.appendonly);
                format!("# Persistence\r\nloading:{loading}\r\naof_enabled:{appends}\r\n")
            }
            "stats" => format!("# Stats\r\nevicted_keys:{}\r\n", config.evicted_keys),
            "replication" => {
                let role = if self.is_replica() { "slave" } else { "master" };
                let replicas = config.replicas;
                format!("# Replication\r\nrole:{role}\r\nconnected_slaves:{replicas}\r\n")
            }
            _ => "# Cluster\r\ncluster_enabled:0\r\n".to_owned(),
        }
    }
}
