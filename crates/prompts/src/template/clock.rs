//! `strftime_now`: today's date for a template, in UTC.

use std::fmt::Write;

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];

/// Formats a time in seconds since 1970 as Python's `strftime` does. `None` for a directive that is not known here.
pub(super) fn strftime(format: &str, seconds: i64) -> Option<String> {
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = date(days);
    let hour = second / 3600;
    let weekday = DAYS.get(days.rem_euclid(7) as usize)?;
    let month_name = MONTHS.get(month as usize - 1)?;
    let of_year = days - days_before_year(year) + 1;
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut directive = chars.next()?;
        // glibc's way to leave out leading zeros.
        let bare = directive == '-';
        if bare {
            directive = chars.next()?;
        }
        let width = if bare { 1 } else { 2 };
        let number = match directive {
            'd' => day,
            'm' => month,
            'H' => hour,
            'I' => (hour + 11) % 12 + 1,
            'M' => second / 60 % 60,
            'S' => second % 60,
            'y' => year.rem_euclid(100),
            _ => {
                match directive {
                    'Y' => write!(out, "{year}").ok()?,
                    'j' if bare => write!(out, "{of_year}").ok()?,
                    'j' => write!(out, "{of_year:03}").ok()?,
                    'B' => out.push_str(month_name),
                    'b' => out.push_str(month_name.get(..3)?),
                    'A' => out.push_str(weekday),
                    'a' => out.push_str(weekday.get(..3)?),
                    'p' => out.push_str(if hour < 12 { "AM" } else { "PM" }),
                    'F' => write!(out, "{year}-{month:02}-{day:02}").ok()?,
                    '%' => out.push('%'),
                    _ => return None,
                }
                continue;
            }
        };
        write!(out, "{number:0width$}").ok()?;
    }
    Some(out)
}

/// The civil date of a day counted from 1970-01-01 (Howard Hinnant's `civil_from_days`).
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

fn days_before_year(year: i64) -> i64 {
    let past = year - 1;
    past * 365 + past.div_euclid(4) - past.div_euclid(100) + past.div_euclid(400) - 719_162
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_as_python_does() {
        let at = |format, seconds| strftime(format, seconds).unwrap();
        assert_eq!(at("%d %b %Y, %A", 1_796_083_200), "01 Dec 2026, Tuesday");
        assert_eq!(at("%Y-%m-%d %H:%M:%S %j", 951_782_399), "2000-02-28 23:59:59 059");
        assert_eq!(at("%-d %B %I%p %F 100%%", 951_782_400), "29 February 12AM 2000-02-29 100%");
        assert_eq!(at("%a %y", 0), "Thu 70");
        assert_eq!(strftime("%Q", 0), None);
    }
}
