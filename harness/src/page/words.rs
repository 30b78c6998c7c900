//! Formats numbers and times for the page.

const MICROSECOND: u64 = 1_000;
const MILLISECOND: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;

pub(super) fn number(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}

/// Inserts thousands separators, as in `48,211`.
pub(super) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Formats a number with its noun, such as `1 overlap` or `3 overlaps`.
pub(super) fn counted(n: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(n), if n == 1 { one } else { many })
}

pub(super) fn listed(parts: &[String]) -> String {
    match parts {
        [] => String::new(),
        [only] => only.clone(),
        [init @ .., last] => format!("{} and {last}", init.join(", ")),
    }
}

/// Formats a duration with three digits, rounded down, such as `1.23 ms`.
pub(super) fn took(nanos: u64) -> String {
    match nanos {
        0..MICROSECOND => format!("{nanos} ns"),
        MICROSECOND..MILLISECOND => three_digits(nanos, MICROSECOND, "µs"),
        MILLISECOND..SECOND => three_digits(nanos, MILLISECOND, "ms"),
        SECOND..MINUTE => three_digits(nanos, SECOND, "s"),
        MINUTE..HOUR => format!("{} min {} s", nanos / MINUTE, nanos % MINUTE / SECOND),
        HOUR.. => format!("{} h {} min", nanos / HOUR, nanos % HOUR / MINUTE),
    }
}

/// Formats a time since the start of the run, such as `12.345678 s`.
pub(super) fn at(nanos: u64) -> String {
    format!("{}.{:06} s", nanos / SECOND, nanos % SECOND / MICROSECOND)
}

/// Formats a ratio as a percentage, such as `12.3 %`. Returns a dash if `whole` is 0.
pub(super) fn share(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "–".into();
    }
    let permille = u128::from(part) * 1_000 / u128::from(whole);
    if permille == 0 && part > 0 {
        return "< 0.1 %".into();
    }
    format!("{}.{} %", permille / 10, permille % 10)
}

fn three_digits(nanos: u64, unit: u64, name: &str) -> String {
    let (whole, rest) = (nanos / unit, nanos % unit);
    match whole {
        0..10 => format!("{whole}.{:02} {name}", rest / (unit / 100)),
        10..100 => format!("{whole}.{} {name}", rest / (unit / 10)),
        _ => format!("{whole} {name}"),
    }
}
