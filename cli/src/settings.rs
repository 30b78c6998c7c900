//! Messages about invalid settings, with the names of options and environment variables.

use quorlock::ConfigError;

/// The settings that a subcommand accepts as options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AvailableOptions {
    /// The settings of the lock and of the nodes: `run`, `hold` and `lead`.
    Lock,
    /// Only the settings of the nodes: all other subcommands.
    Nodes,
}

/// Returns the message of `error` with the names of options and variables. The library's own messages name builder
/// methods, which do not exist in a shell.
pub(crate) fn message(error: &ConfigError, options: AvailableOptions) -> String {
    time_message(error, options)
        .or_else(|| text_message(error, options))
        .or_else(|| tls_message(error, options))
        .unwrap_or_else(|| error.to_string())
}

fn time_message(error: &ConfigError, options: AvailableOptions) -> Option<String> {
    let named = |setting| named(setting, options);
    Some(match error {
        ConfigError::BadTtl { setting, ttl } => {
            format!("invalid {} {ttl:?}: must be between 1 ms and 100 years", named(setting))
        }
        ConfigError::TtlExceedsMax { ttl, max_ttl } => format!(
            "{} {ttl:?} exceeds {} {max_ttl:?}: reduce the ttl, or first increase the maximum on all clients of \
             these nodes",
            named("ttl"),
            named("max_ttl")
        ),
        ConfigError::AtLeastExceedsTtl { at_least, ttl } => format!(
            "--at-least {at_least:?} exceeds the ttl of {ttl:?}: reduce --at-least, or increase {}",
            named("ttl")
        ),
        ConfigError::TokenTtlBelowMax { token_ttl, max_ttl } => format!(
            "{token} {token_ttl:?} is shorter than {} {max_ttl:?}: increase {token}",
            named("max_ttl"),
            token = named("token_ttl")
        ),
        ConfigError::BadDriftFactor { factor } => {
            format!("invalid {} {factor}: must be at least 0 and below 1", named("drift_factor"))
        }
        ConfigError::DriftExceedsTtl { ttl, drift } => format!(
            "the ttl of {ttl:?} must exceed its drift allowance of {drift:?}: increase {}, or reduce {} or {}",
            named("ttl"),
            named("drift_factor"),
            named("drift_constant")
        ),
        ConfigError::NodeTimeoutExceedsValidity { node_timeout, ttl, validity } => format!(
            "the node timeout of {node_timeout:?} must be shorter than {validity:?}, the validity of a ttl of \
             {ttl:?}: reduce {} or increase {}",
            named("node_timeout"),
            named("ttl")
        ),
        ConfigError::MaxHoldTooShort { max_hold, node_timeout } => format!(
            "--max-hold {max_hold:?} must exceed the node timeout of {node_timeout:?}: increase --max-hold"
        ),
        ConfigError::BadPeriod { period } => {
            format!("invalid --every {period:?}: must be from 1 second to 30 days")
        }
        ConfigError::BadOffset { offset, period } => format!(
            "--offset {offset:?} must be shorter than the period of {period:?}: reduce --offset"
        ),
        ConfigError::AtLeastTooLong { at_least, limit } => format!(
            "--at-least {at_least:?} exceeds {limit:?}, the shorter of --every and {}: reduce --at-least",
            named("max_ttl")
        ),
        ConfigError::ZeroTimeout { setting } => {
            format!("{} is zero: use a positive duration", named(setting))
        }
        _ => return None,
    })
}

fn text_message(error: &ConfigError, options: AvailableOptions) -> Option<String> {
    let named = |setting| named(setting, options);
    Some(match error {
        ConfigError::NoNodes => "no nodes: use --node, --nodes-file or QUORLOCK_NODES".to_owned(),
        ConfigError::TooManyResources { given, most } => format!(
            "{given} resources given, at most {most} can be locked together: lock fewer resources"
        ),
        ConfigError::LongMetadata { length, most } => format!(
            "{} has {length} bytes, at most {most} are allowed: use a shorter text",
            named("metadata")
        ),
        ConfigError::LongValue { length, most } => format!(
            "--value has {length} bytes, but values of locks have at most {most}: use the value that `quorlock hold` printed"
        ),
        ConfigError::ReservedPrefix { prefix } => format!(
            "invalid {} {prefix:?}: no key may contain \"#quorlock:\", which is reserved for fencing counters and \
             other internal keys",
            named("key_prefix")
        ),
        // `--metadata` overrides both settings.
        ConfigError::OwnerAndMetadata => {
            format!("{} and {} are both set: unset one", variable("owner"), variable("metadata"))
        }
        _ => return None,
    })
}

fn tls_message(error: &ConfigError, options: AvailableOptions) -> Option<String> {
    let named = |setting| named(setting, options);
    Some(match error {
        ConfigError::BadTlsFile { setting, path, reason } => {
            let reason = reason.replace("tls_cert_file", &named("tls_cert_file"));
            format!("{} {}: {reason}", named(setting), path.display())
        }
        ConfigError::IncompleteTlsFiles { missing } => format!(
            "{} is not set: {} and {} must be set together",
            named(missing),
            named("tls_cert_file"),
            named("tls_key_file")
        ),
        _ => return None,
    })
}

/// Names a setting by its environment variable and, if the subcommand has one, its option. In a settings file, the key
/// is the variable's name in lower case, without the prefix.
pub(crate) fn named(setting: &str, options: AvailableOptions) -> String {
    let variable = variable(setting);
    match (setting, options) {
        ("tls_ca_cert_file", _) => format!("--cacert ({variable})"),
        ("tls_cert_file", _) => format!("--cert ({variable})"),
        ("tls_key_file", _) => format!("--key ({variable})"),
        ("ttl" | "max_ttl" | "metadata" | "wait", AvailableOptions::Lock) => {
            format!("--{} ({variable})", setting.replace('_', "-"))
        }
        _ => variable,
    }
}

fn variable(setting: &str) -> String {
    format!("QUORLOCK_{}", setting.to_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_named_by_option_and_variable() {
        for (setting, options, name) in [
            ("ttl", AvailableOptions::Lock, "--ttl (QUORLOCK_TTL)"),
            ("max_ttl", AvailableOptions::Lock, "--max-ttl (QUORLOCK_MAX_TTL)"),
            ("max_ttl", AvailableOptions::Nodes, "QUORLOCK_MAX_TTL"),
            ("node_timeout", AvailableOptions::Lock, "QUORLOCK_NODE_TIMEOUT"),
            ("tls_key_file", AvailableOptions::Nodes, "--key (QUORLOCK_TLS_KEY_FILE)"),
        ] {
            assert_eq!(named(setting, options), name);
        }
    }
}
