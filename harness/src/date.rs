//! Formats the date and time for the report.

use std::time::{SystemTime, UNIX_EPOCH};

const SECONDS_OF_A_DAY: u64 = 24 * 3600;

pub(crate) fn today() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    text(since.as_secs())
}

fn text(seconds: u64) -> String {
    let (mut days, rest) = (seconds / SECONDS_OF_A_DAY, seconds % SECONDS_OF_A_DAY);
    let mut year = 1970;
    while days >= days_of_year(year) {
        days -= days_of_year(year);
        year += 1;
    }
    let mut month = 1;
    while days >= days_of_month(year, month) {
        days -= days_of_month(year, month);
        month += 1;
    }
    let (hour, minute) = (rest / 3600, rest / 60 % 60);
    format!("{year}-{month:02}-{:02} {hour:02}:{minute:02} UTC", days + 1)
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn days_of_year(year: u64) -> u64 {
    if is_leap(year) { 366 } else { 365 }
}

fn days_of_month(year: u64, month: u64) -> u64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::text;

    #[test]
    fn seconds_are_formatted_as_date() {
        assert_eq!(text(0), "1970-01-01 00:00 UTC");
        assert_eq!(text(951_782_399), "2000-02-28 23:59 UTC");
        assert_eq!(text(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(text(1_772_384_700), "2026-03-01 17:05 UTC");
    }
}
