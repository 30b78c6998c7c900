//! Which errors report that a command is unknown.

/// Codes of errors that report the state of a server, of a proxy or of our rights, and not that the command is
/// unknown: codes of Redis and Valkey, and the first words of Envoy's errors (`no upstream host`).
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

/// First words of errors with the code `ERR` that report such a state, by Redis and twemproxy.
const STATES_WITHOUT_CODE: [&str; 3] =
    ["max number of clients", "Connection refused", "Connection timed out"];

/// True for an error reply by which a server or proxy refuses a command that it does not know, or not with these
/// arguments. There is no code for that: Redis says `ERR unknown command`, Envoy before 1.21 `unsupported command`.
/// So it is any error but those that report a state, which can change.
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
    fn unknown_command_is_any_error_but_one_of_a_state() {
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
