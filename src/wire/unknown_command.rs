//! Detection of errors that report an unknown command.

/// Codes of errors that report a state of the server, the proxy or the user's permissions, and not an unknown command.
/// The list contains codes of Redis and Valkey, and the first words of Envoy's errors (`no upstream host`).
const STATES: [&str; 23] = [
    "ASK",
    "BUSY",
    "CLUSTERDOWN",
    "DENIED",
    "IOERR",
    "LOADING",
    "MASTERDOWN",
    "MISCONF",
    "MOVED",
    "NOAUTH",
    "NOPERM",
    "NOREPLICAS",
    "NOSCRIPT",
    "OOM",
    "READONLY",
    "TRYAGAIN",
    "UNKILLABLE",
    "WRONGPASS",
    "WRONGTYPE",
    "EXECABORT",
    "INPROG",
    "no",
    "upstream",
];

/// Prefixes of `ERR` errors from Redis and twemproxy that report a state and not an unknown command.
const STATES_WITHOUT_CODE: [&str; 3] =
    ["max number of clients", "Connection refused", "Connection timed out"];

/// Returns true if the server or proxy does not support the command or its arguments.
///
/// Servers and proxies have no common error code for an unknown command: Redis replies `ERR unknown command`, Envoy
/// before 1.21 `unsupported command`. Therefore, every error is treated as an unknown command unless it reports a
/// state, which can change.
pub(crate) fn is_unknown_command(code: &str, detail: Option<&str>) -> bool {
    let detail = detail.unwrap_or_default();
    let is_state = STATES.contains(&code)
        || code == "ERR" && STATES_WITHOUT_CODE.iter().any(|begin| detail.starts_with(begin));
    !is_state
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_command_excludes_state_errors() {
        for (text, is_unknown) in [
            ("ERR unknown command 'HELLO'", true),
            ("ERR wrong number of arguments for 'client' command", true),
            ("unsupported command", true),
            ("NOPROTO unsupported protocol version", true),
            ("ERR max number of clients reached", false),
            ("ERR Connection timed out", false),
            ("no upstream host", false),
            ("upstream failure", false),
            ("BUSY Redis is busy running a script", false),
            ("LOADING Redis is loading the dataset in memory", false),
            ("READONLY You can't write against a read only replica.", false),
            ("DENIED Redis is running in protected mode", false),
            ("NOPERM this user has no permissions", false),
        ] {
            let (code, detail) = text.split_once(' ').expect("two words");
            assert_eq!(is_unknown_command(code, Some(detail)), is_unknown, "{text}");
        }
    }
}
