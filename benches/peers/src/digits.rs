//! Formats numbers for printing.

/// Converts a number to `f64`. The conversion is exact below 2^53, far above all counts and times in this program.
#[expect(clippy::cast_precision_loss, reason = "the values are far below 2^53")]
pub(crate) fn float(value: u64) -> f64 {
    value as f64
}

/// Formats a number with about three significant digits, but with all digits before the decimal point.
pub(crate) fn digits(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        _ if value >= 100.0 => format!("{value:.0}"),
        _ if value >= 10.0 => format!("{value:.1}"),
        _ if value >= 1.0 => format!("{value:.2}"),
        _ if value >= 0.01 => format!("{value:.3}"),
        _ => format!("{value:.6}"),
    }
}

pub(crate) fn times(value: f64) -> String {
    format!("{}x", digits(value))
}

pub(crate) fn optional(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), digits)
}

pub(crate) fn quotient(value: Option<f64>, base: Option<f64>) -> String {
    match (value, base) {
        (Some(value), Some(base)) if base > 0.0 => times(value / base),
        _ => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{digits, optional, quotient};

    #[test]
    fn numbers_have_three_digits_or_all_before_the_point() {
        let printed = [0.0, 123_456.7, 12.345, 1.234_5, 0.123_45, 0.001_234_5].map(digits);
        assert_eq!(printed, ["0", "123457", "12.3", "1.23", "0.123", "0.001234"]);
    }

    #[test]
    fn unknown_values_are_a_dash() {
        assert_eq!(optional(None), "-");
        assert_eq!(quotient(Some(3.0), Some(2.0)), "1.50x");
        assert_eq!(quotient(Some(3.0), None), "-");
        assert_eq!(quotient(Some(3.0), Some(0.0)), "-");
    }
}
