-- +goose Up

-- Messages to deliver now. All times in all tables are in UTC, as in 2026-01-31 23:59:59.000.
CREATE TABLE {{.Pending}} (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    -- A hash of the key, 0 to 63; messages without a key are spread by their ids. SQLite has no
    -- hash function: this one mixes the key's first and last characters.
    lane          INTEGER NOT NULL GENERATED ALWAYS AS (63 & (
        CASE WHEN message_key IS NULL OR message_key = '' THEN id ELSE
            (7 * length(message_key)
             +        1 * coalesce(unicode(substr(message_key, -1, 1)), 0)
             +       10 * coalesce(unicode(substr(message_key, -2, 1)), 0)
             +      103 * coalesce(unicode(substr(message_key, -3, 1)), 0)
             +     1009 * coalesce(unicode(substr(message_key, -4, 1)), 0)
             +    10007 * coalesce(unicode(substr(message_key, -5, 1)), 0)
             +   100003 * coalesce(unicode(substr(message_key, -6, 1)), 0)
             +  1000003 * coalesce(unicode(substr(message_key, -7, 1)), 0)
             + 10000019 * coalesce(unicode(substr(message_key, -8, 1)), 0)
             +       34 * coalesce(unicode(substr(message_key, 1, 1)), 0)
             +      302 * coalesce(unicode(substr(message_key, 2, 1)), 0)
             +     3005 * coalesce(unicode(substr(message_key, 3, 1)), 0)
             +    30011 * coalesce(unicode(substr(message_key, 4, 1)), 0)
             +   300007 * coalesce(unicode(substr(message_key, 5, 1)), 0)
             +  3000017 * coalesce(unicode(substr(message_key, 6, 1)), 0)
             + 30000001 * coalesce(unicode(substr(message_key, 7, 1)), 0)) % 65521
        END)) STORED,
    message_id    TEXT NOT NULL DEFAULT (lower(
        hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-4' || substr(hex(randomblob(2)), 2) || '-' ||
        substr('89ab', 1 + (random() & 3), 1) || substr(hex(randomblob(2)), 2) || '-' || hex(randomblob(6)))),
    topic         TEXT NOT NULL,
    message_key   TEXT,
    payload       BLOB,
    payload_text  TEXT,
    headers       TEXT,
    priority      INTEGER NOT NULL DEFAULT 0,
    -- The names of the sinks that still need the message, separated by commas. Empty means all
    -- sinks of the topic.
    sinks         TEXT NOT NULL DEFAULT '',
    attempts      INTEGER NOT NULL DEFAULT 0,
    crashes       INTEGER NOT NULL DEFAULT 0,
    available_at  TEXT,
    -- The message is not sent after this time. NULL means never too old. A time in the year 9999
    -- marks a message that an operator requeued after it had expired: it is sent at any age.
    expires_at    TEXT,
    last_error    TEXT,
    claimed_by    TEXT,
    claim_token   TEXT,
    claimed_until TEXT,
    created_at    TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
    CONSTRAINT message_id_is_a_uuid CHECK (typeof(message_id) = 'text' AND length(message_id) = 36 AND message_id NOT GLOB '*[^0-9A-Fa-f-]*'),
    CONSTRAINT topic_size CHECK (typeof(topic) = 'text' AND length(CAST(topic AS BLOB)) BETWEEN 1 AND 255),
    CONSTRAINT key_size CHECK (message_key IS NULL OR typeof(message_key) = 'text' AND length(CAST(message_key AS BLOB)) <= 255),
    CONSTRAINT one_payload CHECK (payload IS NULL OR payload_text IS NULL),
    CONSTRAINT headers_object CHECK (headers IS NULL OR (CASE WHEN json_valid(headers) THEN json_type(headers) END) IS 'object'),
    CONSTRAINT id_range CHECK (id BETWEEN 1 AND 10000000000000000),
    CONSTRAINT sinks_text CHECK (typeof(sinks) = 'text'),
    CONSTRAINT counts_range CHECK (typeof(attempts) = 'integer' AND attempts BETWEEN 0 AND 2147483647 AND typeof(crashes) = 'integer' AND crashes BETWEEN 0 AND 2147483647),
    CONSTRAINT priority_range CHECK (typeof(priority) = 'integer' AND priority BETWEEN -32768 AND 32767),
    CONSTRAINT available_at_format CHECK (available_at IS strftime('%Y-%m-%d %H:%M:%f', available_at)),
    CONSTRAINT expires_at_format CHECK (expires_at IS strftime('%Y-%m-%d %H:%M:%f', expires_at)),
    CONSTRAINT created_at_format CHECK (created_at IS strftime('%Y-%m-%d %H:%M:%f', created_at))
);

CREATE INDEX {{.Index "lane_id"}} ON {{.Bare.Pending}} (lane, id);

-- Scheduled messages by message_id, to cancel them. Other messages have no entry.
CREATE INDEX {{.Index "scheduled"}} ON {{.Bare.Pending}} (message_id) WHERE available_at IS NOT NULL;

-- Messages that wait for a time or for an operator. A row keeps its id and lane. Here and in the
-- table of delivered messages an id may occur twice: after a restore, or when the ids were reset,
-- the database gives the id to another message. The
-- constraints of the table of pending messages are not repeated: a message that violates one is
-- parked here.
CREATE TABLE {{.Held}} (
    id            INTEGER NOT NULL,
    lane          INTEGER NOT NULL,
    state         TEXT NOT NULL,
    -- The effect of a parked message on its key: 0 none, 1 it blocks the key, 2 it blocks the key
    -- until a relay parks it without blocking, 3 it blocks the key until a relay deletes it.
    holds         INTEGER NOT NULL DEFAULT 0,
    message_id    TEXT NOT NULL,
    topic         TEXT NOT NULL,
    message_key   TEXT,
    payload       BLOB,
    payload_text  TEXT,
    headers       TEXT,
    priority      INTEGER NOT NULL,
    sinks         TEXT NOT NULL DEFAULT '',
    attempts      INTEGER NOT NULL,
    crashes       INTEGER NOT NULL,
    available_at  TEXT,
    expires_at    TEXT,
    last_error    TEXT,
    created_at    TEXT NOT NULL,
    -- One row for each sink of the message that waits on its own.
    PRIMARY KEY (id, message_id, sinks),
    CONSTRAINT held_state CHECK (state IN ('scheduled', 'retry', 'error'))
) WITHOUT ROWID;

-- Messages by the time when they are due. No time means now.
CREATE INDEX {{.Index "held_due"}} ON {{.Bare.Held}}
    (coalesce(available_at, '0001-01-01 00:00:00.000'), id) WHERE state <> 'error';

-- Messages that block their keys.
CREATE INDEX {{.Index "held_retry"}} ON {{.Bare.Held}} (lane, message_key, id) WHERE state = 'retry' OR holds > 0;

CREATE INDEX {{.Index "held_error"}} ON {{.Bare.Held}} (id) WHERE state = 'error';

CREATE INDEX {{.Index "held_message"}} ON {{.Bare.Held}} (message_id);

-- Delivered messages, kept for the retention.
CREATE TABLE {{.Done}} (
    id            INTEGER NOT NULL,
    lane          INTEGER NOT NULL,
    message_id    TEXT NOT NULL,
    topic         TEXT NOT NULL,
    message_key   TEXT,
    payload       BLOB,
    payload_text  TEXT,
    headers       TEXT,
    priority      INTEGER NOT NULL,
    sinks         TEXT NOT NULL DEFAULT '',
    attempts      INTEGER NOT NULL,
    crashes       INTEGER NOT NULL,
    available_at  TEXT,
    expires_at    TEXT,
    last_error    TEXT,
    created_at    TEXT NOT NULL,
    finished_at   TEXT NOT NULL,
    -- What the sink answered, such as a partition and an offset.
    receipt       TEXT,
    relay         TEXT
);

CREATE INDEX {{.Index "done_id"}} ON {{.Bare.Done}} (id);

CREATE INDEX {{.Index "done_finished"}} ON {{.Bare.Done}} (finished_at);

-- The message ids of writers that refuse duplicates. The token tells the ids of one write from
-- those of others.
CREATE TABLE {{.IDs}} (
    message_id  TEXT NOT NULL PRIMARY KEY,
    write_token INTEGER NOT NULL DEFAULT 0,
    written_at  TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now'))
) WITHOUT ROWID;

CREATE INDEX {{.Index "ids_written"}} ON {{.Bare.IDs}} (written_at);

-- The lanes and their leases.
CREATE TABLE {{.Lanes}} (
    lane    INTEGER PRIMARY KEY CHECK (lane BETWEEN 0 AND 63),
    owner   TEXT,
    fence   INTEGER NOT NULL DEFAULT 0,
    until   TEXT,
    marks   TEXT,
    journal TEXT,
    crashes INTEGER NOT NULL DEFAULT 0
);

INSERT INTO {{.Lanes}} (lane)
WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n < 63)
SELECT n FROM numbers;

-- The relays that run.
CREATE TABLE {{.Relays}} (
    name           TEXT NOT NULL PRIMARY KEY,
    host           TEXT NOT NULL,
    version        TEXT NOT NULL,
    claim          TEXT NOT NULL,
    -- JSON: the relay's sinks and routes, their fingerprint, and whether it takes lanes.
    setup          TEXT NOT NULL DEFAULT '',
    since          TEXT NOT NULL,
    last_heartbeat TEXT NOT NULL,
    until          TEXT NOT NULL
);

-- What operators have put in force for all relays: the pause of a sink, topic, key or relay
-- (kind 'sink', 'topic', 'key', 'relay'), or the highest number of messages a second that a sink
-- gets (kind 'limit'). A control ends when its row is deleted, or at ends_at.
CREATE TABLE {{.Controls}} (
    kind    TEXT NOT NULL,
    name    TEXT NOT NULL,
    rate    INTEGER,
    ends_at TEXT,
    made_by TEXT,
    made_at TEXT NOT NULL,
    reason  TEXT,
    PRIMARY KEY (kind, name)
) WITHOUT ROWID;

-- The log of what operators did. An action without a count is under way, or was interrupted.
CREATE TABLE {{.Actions}} (
    id      TEXT NOT NULL PRIMARY KEY,
    made_at TEXT NOT NULL,
    made_by TEXT,
    action  TEXT NOT NULL,
    target  TEXT,
    reason  TEXT,
    changed INTEGER
) WITHOUT ROWID;

CREATE TABLE {{.Settings}} (
    name  TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
);

INSERT INTO {{.Settings}} (name, value) VALUES ('schema', '1');

-- All messages, each with its state.
CREATE VIEW {{.Messages}} AS
SELECT id, lane,
       CASE WHEN claimed_until > strftime('%Y-%m-%d %H:%M:%f', 'now') THEN 'claimed'
            WHEN available_at > strftime('%Y-%m-%d %H:%M:%f', 'now') THEN 'scheduled'
            ELSE 'pending' END AS state,
       message_id, topic, message_key, payload, payload_text, headers, priority, sinks,
       attempts, crashes, available_at, expires_at, last_error, 0 AS holds,
       claimed_by, claim_token, claimed_until, created_at,
       NULL AS finished_at, NULL AS receipt, NULL AS relay
FROM {{.Bare.Pending}}
UNION ALL
SELECT id, lane,
       CASE WHEN state = 'scheduled' AND (available_at IS NULL OR available_at <= strftime('%Y-%m-%d %H:%M:%f', 'now')) THEN 'pending' ELSE state END,
       message_id, topic, message_key, payload, payload_text, headers, priority, sinks,
       attempts, crashes, available_at, expires_at, last_error, holds,
       NULL, NULL, NULL, created_at,
       NULL, NULL, NULL
FROM {{.Bare.Held}}
UNION ALL
SELECT id, lane, 'done',
       message_id, topic, message_key, payload, payload_text, headers, priority, sinks,
       attempts, crashes, available_at, expires_at, last_error, 0,
       NULL, NULL, NULL, created_at,
       finished_at, receipt, relay
FROM {{.Bare.Done}};

-- +goose Down

DROP VIEW {{.Messages}};

DROP TABLE {{.Settings}};

DROP TABLE {{.Actions}};

DROP TABLE {{.Controls}};

DROP TABLE {{.Relays}};

DROP TABLE {{.Lanes}};

DROP TABLE {{.IDs}};

DROP TABLE {{.Done}};

DROP TABLE {{.Held}};

DROP TABLE {{.Pending}};
