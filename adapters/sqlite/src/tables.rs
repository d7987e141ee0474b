//! The tables of a store. They are described in the documentation of the crate.

/// The tables of format 1.
pub(crate) const LEASE_TABLES: &str = "
CREATE TABLE store (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    boot TEXT NOT NULL,
    time_namespace INTEGER NOT NULL,
    high_water INTEGER NOT NULL
) STRICT;
CREATE TABLE lease (
    name BLOB NOT NULL PRIMARY KEY,
    format INTEGER NOT NULL,
    token INTEGER NOT NULL,
    owner TEXT NOT NULL,
    boot TEXT NOT NULL,
    expires INTEGER NOT NULL,
    ttl INTEGER NOT NULL,
    since INTEGER NOT NULL,
    handle BLOB NOT NULL,
    early INTEGER NOT NULL,
    host TEXT,
    pid INTEGER,
    text TEXT
) STRICT, WITHOUT ROWID;
CREATE TABLE waiter (
    name BLOB NOT NULL,
    handle BLOB NOT NULL,
    boot TEXT NOT NULL,
    since INTEGER NOT NULL,
    expires INTEGER NOT NULL,
    early INTEGER NOT NULL,
    chosen INTEGER NOT NULL,
    PRIMARY KEY (name, handle)
) STRICT, WITHOUT ROWID;
";

/// What format 2 adds.
pub(crate) const TIMER_TABLES: &str = "
CREATE TABLE timer (
    name BLOB NOT NULL PRIMARY KEY,
    format INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    base_n INTEGER NOT NULL,
    base_at INTEGER NOT NULL,
    schedule TEXT NOT NULL,
    next_n INTEGER,
    next_at INTEGER,
    next_schedule TEXT,
    last INTEGER NOT NULL,
    claimed INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE claim (
    name BLOB NOT NULL,
    tick INTEGER NOT NULL,
    format INTEGER NOT NULL,
    owner TEXT NOT NULL,
    token INTEGER NOT NULL,
    boot TEXT NOT NULL,
    expires INTEGER NOT NULL,
    ttl INTEGER NOT NULL,
    begun INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    since INTEGER NOT NULL,
    handle BLOB NOT NULL,
    early INTEGER NOT NULL,
    host TEXT,
    pid INTEGER,
    text TEXT,
    PRIMARY KEY (name, tick)
) STRICT, WITHOUT ROWID;
CREATE TABLE run (
    job BLOB NOT NULL,
    owner TEXT NOT NULL,
    format INTEGER NOT NULL,
    number INTEGER NOT NULL,
    tick INTEGER,
    started INTEGER NOT NULL,
    ended INTEGER,
    outcome TEXT,
    text TEXT,
    boot TEXT NOT NULL,
    expires INTEGER NOT NULL,
    silent INTEGER NOT NULL,
    handle BLOB NOT NULL,
    early INTEGER NOT NULL,
    PRIMARY KEY (job, owner)
) STRICT, WITHOUT ROWID;
CREATE INDEX run_by_number ON run (job, number);
";

/// What format 3 adds.
pub(crate) const MEMBER_TABLES: &str = "
CREATE TABLE fleet (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    version INTEGER NOT NULL
) STRICT;
INSERT INTO fleet VALUES (1, 0);
CREATE TABLE member (
    instance BLOB NOT NULL,
    incarnation BLOB NOT NULL,
    format INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    joined INTEGER NOT NULL,
    boot TEXT NOT NULL,
    since INTEGER NOT NULL,
    expires INTEGER NOT NULL,
    ttl INTEGER NOT NULL,
    listed INTEGER NOT NULL,
    gone INTEGER NOT NULL,
    draining INTEGER NOT NULL,
    marked INTEGER NOT NULL,
    knows_mark INTEGER NOT NULL,
    digests BLOB NOT NULL,
    labels BLOB NOT NULL,
    handle BLOB NOT NULL,
    early INTEGER NOT NULL,
    host TEXT,
    pid INTEGER,
    text TEXT,
    PRIMARY KEY (instance, incarnation)
) STRICT, WITHOUT ROWID;
CREATE INDEX member_by_end ON member (listed, expires);
CREATE INDEX member_by_handle ON member (listed, early, handle);
";
