//! The fields of an expression, and which days and times of day they mean.

use croner::parser::{CronParser, Seconds, Year};
use croner::{CronComponent, CronPattern, Weekday};

use crate::calendar::{Date, Days, TimesOfDay};
use crate::error::CronError;

const MONTHS: [&str; 12] =
    ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const WEEKDAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

/// A field: its name, its bounds for people, and the words that may stand in it.
struct Field {
    name: &'static str,
    rule: &'static str,
    words: fn(&str) -> bool,
}

const FIELDS: [Field; 6] = [
    Field { name: "second", rule: "it must be made of numbers from 0 to 59", words: |_| false },
    Field { name: "minute", rule: "it must be made of numbers from 0 to 59", words: |_| false },
    Field { name: "hour", rule: "it must be made of numbers from 0 to 23", words: |_| false },
    Field {
        name: "day of month",
        rule: "it must be made of numbers from 1 to 31, L or W",
        words: |word| matches!(word, "L" | "W" | "LW"),
    },
    Field {
        name: "month",
        rule: "it must be made of numbers from 1 to 12, or of names such as JAN",
        words: |word| MONTHS.contains(&word),
    },
    Field {
        name: "day of week",
        rule: "it must be made of numbers from 0 to 7, of names such as MON, # or L",
        words: |word| word == "L" || WEEKDAYS.contains(&word.strip_suffix('L').unwrap_or(word)),
    },
];

/// A cron expression that was read.
#[derive(Clone, Debug)]
pub(crate) struct Expression {
    text: String,
    pattern: CronPattern,
    times: TimesOfDay,
    /// Hour, minute and second are numbers or lists of them.
    fixed: bool,
}

impl Expression {
    /// Reads it, and makes sure that it means a day at all.
    pub(crate) fn parse(text: &str) -> Result<Self, CronError> {
        let upper = text.to_ascii_uppercase();
        let mut fields: Vec<&str> = upper.split_ascii_whitespace().collect();
        let text = fields.join(" ");
        match fields.len() {
            5 => fields.insert(0, "0"),
            6 => {}
            count => return Err(CronError::Fields { fields: count, expression: text }),
        }
        for (field, value) in FIELDS.iter().zip(&fields) {
            let refused =
                || CronError::Field { field: field.name, value: (*value).into(), rule: field.rule.into() };
            let mut words = value.split(|c: char| !c.is_ascii_alphabetic()).filter(|word| !word.is_empty());
            let complete = value.split(',').all(|part| !part.is_empty());
            if !complete || !words.all(field.words) || !alone(field, value) {
                return Err(refused());
            }
        }
        let pattern = read(&fields).ok_or_else(|| CronError::Field {
            field: "expression",
            value: text.clone(),
            rule: "it can't be read".into(),
        })?;
        let values = |component: &CronComponent| component.values().into_iter().map(i64::from).collect();
        let times = TimesOfDay {
            hours: values(&pattern.hours),
            minutes: values(&pattern.minutes),
            seconds: values(&pattern.seconds),
        };
        let fixed = fields[..3].iter().all(|field| !field.contains(['*', '/', '-', '?']));
        let expression = Self { text, pattern, times, fixed };
        if expression.times.is_empty() || !Date::of_a_cycle().any(|date| expression.is_on(date)) {
            return Err(CronError::Never { expression: expression.text });
        }
        Ok(expression)
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn times(&self) -> &TimesOfDay {
        &self.times
    }

    pub(crate) fn is_fixed(&self) -> bool {
        self.fixed
    }
}

impl Days for Expression {
    fn is_in(&self, month: u8) -> bool {
        self.pattern.month_match(month.into()).unwrap_or(false)
    }

    fn is_on(&self, date: Date) -> bool {
        let (year, month, day) = (date.year(), date.month(), date.day());
        let weekday = Weekday::from_days_from_sunday(date.weekday().into());
        self.is_in(month)
            && self.pattern.day_match(year.into(), month.into(), day.into(), weekday).unwrap_or(false)
    }
}

/// Whether a field can be read, whatever the others say.
fn alone(field: &Field, value: &str) -> bool {
    let fields: Vec<_> = FIELDS
        .iter()
        .map(|other| match other.name {
            name if name == field.name => value,
            "second" | "minute" | "hour" => "0",
            _ => "*",
        })
        .collect();
    read(&fields).is_some()
}

fn read(fields: &[&str]) -> Option<CronPattern> {
    let parser = CronParser::builder().seconds(Seconds::Required).year(Year::Disallowed).build();
    parser.parse(&fields.join(" ")).ok().map(|cron| cron.pattern)
}
