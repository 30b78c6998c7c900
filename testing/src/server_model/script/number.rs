//! Parsing of numbers in strings, as in Lua 5.1.

/// 2^53. A double cannot represent every integer above this number.
pub(super) const END: f64 = 9_007_199_254_740_992.0;

/// Parses a number like Lua's `tonumber`. Returns `None` if the number is invalid, infinite or NaN. A
/// zero byte ends the string.
pub(super) fn number(text: &[u8]) -> Option<f64> {
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    let text = std::str::from_utf8(text).ok()?.trim_matches(is_white_space);
    let (sign, digits) = match text.as_bytes().first()? {
        b'-' => (-1.0, &text[1..]),
        b'+' => (1.0, &text[1..]),
        _ => (1.0, text),
    };
    let hex = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
    let number = hex.map_or_else(|| decimal(digits), hexadecimal)?;
    Some(sign * number).filter(|number| number.is_finite())
}

fn is_white_space(letter: char) -> bool {
    matches!(letter, ' ' | '\t' | '\n' | '\x0b' | '\x0c' | '\r')
}

fn decimal(digits: &str) -> Option<f64> {
    let is_digit = digits.starts_with(|first: char| first.is_ascii_digit() || first == '.');
    digits.parse().ok().filter(|_| is_digit)
}

fn hexadecimal(digits: &str) -> Option<f64> {
    let (digits, power) = match digits.split_once(['p', 'P']) {
        Some((digits, power)) => (digits, power.parse::<i32>().ok()?),
        None => (digits, 0),
    };
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.len() + part.len() == 0 {
        return None;
    }
    let digit = |letter: char| letter.to_digit(16).map(f64::from);
    let add = |number: f64, letter| Some(number * 16.0 + digit(letter)?);
    let number = whole.chars().chain(part.chars()).try_fold(0.0, add)?;
    let shift = i32::try_from(part.len()).ok()?.checked_mul(4)?;
    Some(number * 2_f64.powi(power.checked_sub(shift)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_accepts_the_same_strings_as_lua() {
        for (text, expected) in [
            ("7", 7.0),
            (" 7\t\n", 7.0),
            ("+7", 7.0),
            ("-7", -7.0),
            ("007", 7.0),
            ("7.", 7.0),
            (".5", 0.5),
            ("1e3", 1000.0),
            ("1E+3", 1000.0),
            ("0x10", 16.0),
            ("-0X1F", -31.0),
            ("0x1p4", 16.0),
            ("0x.8", 0.5),
            ("7\0x", 7.0),
            ("9007199254740993", 9_007_199_254_740_992.0),
        ] {
            assert_eq!(number(text.as_bytes()), Some(expected), "{text:?}");
        }
        for text in
            ["", " ", "x", "7x", "7 7", "1e", "e1", ".", "+-7", "- 7", "0x", "0xg", "\0", "inf"]
        {
            assert_eq!(number(text.as_bytes()), None, "{text:?}");
        }
    }
}
