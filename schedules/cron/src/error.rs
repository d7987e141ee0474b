//! What can be wrong with a cron schedule.

/// Why a text is no schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CronError {
    /// The expression has too few fields, or too many.
    #[error(
        "a cron expression has five fields (minute, hour, day of month, month, day of week), or six with the second \
         first; this one has {fields}: {expression:?}"
    )]
    Fields {
        /// How many it has.
        fields: usize,
        /// The expression.
        expression: String,
    },
    /// A field can't be read.
    #[error("the {field} of the cron expression is {value:?}, but {rule}")]
    Field {
        /// Which one.
        field: &'static str,
        /// What it says.
        value: String,
        /// What it would have to be.
        rule: String,
    },
    /// There is no day that the expression means, such as the 30th of February.
    #[error("the cron expression {expression:?} names a day that never comes")]
    Never {
        /// The expression.
        expression: String,
    },
    /// The time zone is not known.
    #[error(
        "the time zone {name:?} is not known; a name of the IANA's database is wanted, such as Europe/Berlin or UTC"
    )]
    UnknownZone {
        /// Its name.
        name: String,
    },
    /// The schedule's text is longer than stores keep.
    #[error("the text of the schedule has {bytes} bytes, and at most 255 are kept")]
    TooLong {
        /// How long it is.
        bytes: usize,
    },
    /// The text is not one of a cron schedule at all.
    #[error("{text:?} is not `cron`, a time zone and an expression")]
    NotCron {
        /// The text.
        text: String,
    },
}
