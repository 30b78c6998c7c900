//! Numbers as arguments of commands. `redis.call` formats them itself, because Lua's own format has only 14 digits.

use crate::server_model::config::Version;

/// 10^17: doubles below it have at most 17 digits before the decimal point.
const LONG: f64 = 1e17;
/// Half of the largest 64-bit integer. Newer servers format numbers below it as integers.
const HALF: f64 = 4_611_686_018_427_387_904.0;

/// Formats a number as the version does:
/// - before 7.2 as `printf("%.17g")`,
/// - in 7.2.0 to 7.2.4 with the fewest digits that identify the number, so that 10^8 becomes `1e+8`,
/// - later, including Valkey, as an integer if it is one, otherwise as in 7.2.0.
pub(super) fn argument(number: f64, version: &Version) -> String {
    let is_integer = number.fract() == 0.0;
    if !version.has((7, 2)) {
        let is_short = is_integer && number.abs() < LONG && !is_negative_zero(number);
        return if is_short { integer(number) } else { seventeen_digits(number) };
    }
    if version.formats_integers() && is_integer && number.abs() <= HALF {
        return integer(number);
    }
    fewest_digits(number)
}

#[allow(clippy::cast_possible_truncation, reason = "an integer below 2^63")]
fn integer(number: f64) -> String {
    (number as i64).to_string()
}

fn is_negative_zero(number: f64) -> bool {
    number == 0.0 && number.is_sign_negative()
}

/// Formats infinity and NaN. On x86-64, the result of an invalid operation is a negative NaN.
fn special(number: f64) -> String {
    let name = if number.is_nan() { "nan" } else { "inf" };
    if number.is_sign_negative() { format!("-{name}") } else { name.to_owned() }
}

/// Formats a number as `printf("%.17g")` does.
fn seventeen_digits(number: f64) -> String {
    if !number.is_finite() {
        return special(number);
    }
    let scientific = format!("{number:.16e}");
    let (sign, digits, exponent) = parts(&scientific);
    let digits = digits.trim_end_matches('0');
    let digits = if digits.is_empty() { "0" } else { digits };
    let text = if (-4..17).contains(&exponent) {
        decimal(digits, exponent)
    } else {
        let mark = if exponent < 0 { '-' } else { '+' };
        format!("{}e{mark}{:02}", with_point(digits), exponent.unsigned_abs())
    };
    format!("{sign}{text}")
}

/// Formats a number as `fpconv_dtoa` of Redis does.
fn fewest_digits(number: f64) -> String {
    if !number.is_finite() {
        return special(number);
    }
    let scientific = format!("{number:e}");
    let (sign, digits, exponent) = parts(&scientific);
    let length = i32::try_from(digits.len()).unwrap_or(i32::MAX);
    // The place of the last digit, as a power of ten.
    let last = exponent - length + 1;
    let is_plain = if last >= 0 { exponent < length + 7 } else { last > -7 || exponent.abs() < 4 };
    if is_plain {
        return format!("{sign}{}", decimal(&digits, exponent));
    }
    let mark = if exponent < 0 { '-' } else { '+' };
    format!("{sign}{}e{mark}{}", with_point(&digits), exponent.unsigned_abs())
}

/// Splits Rust's scientific notation into the sign, the digits without the decimal point, and the exponent.
fn parts(scientific: &str) -> (&str, String, i32) {
    let (sign, rest) = match scientific.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", scientific),
    };
    let (digits, exponent) = rest.split_once('e').unwrap_or((rest, "0"));
    (sign, digits.replace('.', ""), exponent.parse().unwrap_or_default())
}

/// Formats digits without an exponent. The first digit is the one of 10^`exponent`.
fn decimal(digits: &str, exponent: i32) -> String {
    let Ok(whole) = usize::try_from(exponent + 1) else {
        let zeros = usize::try_from(-1 - exponent).unwrap_or_default();
        return format!("0.{}{digits}", "0".repeat(zeros));
    };
    match digits.split_at_checked(whole) {
        Some(("", part)) => format!("0.{part}"),
        Some((whole, "")) => whole.to_owned(),
        Some((whole, part)) => format!("{whole}.{part}"),
        None => format!("{digits:0<whole$}"),
    }
}

fn with_point(digits: &str) -> String {
    match digits.split_at(1) {
        (first, "") => first.to_owned(),
        (first, rest) => format!("{first}.{rest}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_formatted_as_by_each_version() {
        let versions = [Version::redis(7, 0, 15), Version::redis(7, 2, 4), Version::redis(7, 2, 5)];
        for (number, expected) in [
            (0.0, ["0", "0", "0"]),
            (-0.0, ["-0", "-0", "0"]),
            (-7.0, ["-7", "-7", "-7"]),
            (1e8, ["100000000", "1e+8", "100000000"]),
            (1.2e8, ["120000000", "120000000", "120000000"]),
            (1e17, ["1e+17", "1e+17", "100000000000000000"]),
            (1e22, ["1e+22", "1e+22", "1e+22"]),
            (9_007_199_254_740_992.0, ["9007199254740992"; 3]),
            (
                123_456_789_012_345_680.0,
                ["1.2345678901234568e+17", "123456789012345680", "123456789012345680"],
            ),
            (0.1, ["0.10000000000000001", "0.1", "0.1"]),
            (-1.5, ["-1.5", "-1.5", "-1.5"]),
            (1e-4, ["0.0001", "0.0001", "0.0001"]),
            (1e-5, ["1.0000000000000001e-05", "0.00001", "0.00001"]),
            (1e-7, ["9.9999999999999995e-08", "1e-7", "1e-7"]),
            (1.5e-9, ["1.5e-09", "1.5e-9", "1.5e-9"]),
            (1e300, ["1.0000000000000001e+300", "1e+300", "1e+300"]),
            (f64::INFINITY, ["inf"; 3]),
            (f64::NEG_INFINITY, ["-inf"; 3]),
        ] {
            for (version, expected) in versions.iter().zip(expected) {
                assert_eq!(argument(number, version), expected, "{number:e} on {version:?}");
            }
        }
    }
}
