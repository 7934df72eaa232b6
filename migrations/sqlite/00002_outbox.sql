-- +goose Up

-- Scheduled messages by their id, so that they can be cancelled: in the hot table a
-- producer of others pays nothing for it.
CREATE INDEX {{.Index "scheduled"}} ON {{.Bare.Hot}} (message_id) WHERE available_at IS NOT NULL;

-- The ids of messages whose writers want no duplicates. The token tells those of one
-- write from others.
CREATE TABLE {{.IDs}} (
    message_id  TEXT NOT NULL PRIMARY KEY,
    write_token INTEGER NOT NULL DEFAULT 0,
    written_at  TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now'))
) WITHOUT ROWID;

CREATE INDEX {{.Index "ids_written"}} ON {{.Bare.IDs}} (written_at);

-- What operators have put in force, for all relays: a sink, a topic, a key or a relay that is
-- paused ('sink', 'topic', 'key', 'relay'), and how many messages a second a sink gets at most
-- ('limit'). It ends when it is deleted, or at its time.
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

-- What operators have done. One without a count is being done, or broke off.
CREATE TABLE {{.Actions}} (
    id      TEXT NOT NULL PRIMARY KEY,
    made_at TEXT NOT NULL,
    made_by TEXT,
    action  TEXT NOT NULL,
    target  TEXT,
    reason  TEXT,
    changed INTEGER
) WITHOUT ROWID;

-- When a message is too old to be sent, in UTC; none is never. One in the year 9999 has
-- been requeued after it had expired, and is sent however old it is.
ALTER TABLE {{.Hot}} ADD COLUMN expires_at TEXT
    CONSTRAINT expires_at_format CHECK (expires_at IS strftime('%Y-%m-%d %H:%M:%f', expires_at));

ALTER TABLE {{.Done}} ADD COLUMN expires_at TEXT;

-- Which sinks still need the message, by their names with commas between; none is all those of
-- its topic.
ALTER TABLE {{.Hot}} ADD COLUMN sinks TEXT NOT NULL DEFAULT '';

ALTER TABLE {{.Done}} ADD COLUMN sinks TEXT NOT NULL DEFAULT '';

DROP VIEW {{.Messages}};

-- The held rows anew, as a primary key can't be changed: a message may have a row for each of
-- its sinks.
ALTER TABLE {{.Held}} RENAME TO {{.Bare.IndexName "held_before"}};

CREATE TABLE {{.Held}} (
    id            INTEGER NOT NULL,
    lane          INTEGER NOT NULL,
    state         TEXT NOT NULL,
    message_id    TEXT NOT NULL,
    topic         TEXT NOT NULL,
    message_key   TEXT,
    payload       BLOB,
    payload_text  TEXT,
    headers       TEXT,
    priority      INTEGER NOT NULL,
    attempts      INTEGER NOT NULL,
    crashes       INTEGER NOT NULL,
    available_at  TEXT,
    last_error    TEXT,
    created_at    TEXT NOT NULL,
    expires_at    TEXT,
    -- What a parked row does to its key: 0 nothing, 1 it holds it, and of such rows 2 is to
    -- be parked without that, and 3 to be deleted.
    holds         INTEGER NOT NULL DEFAULT 0,
    sinks         TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (id, message_id, sinks),
    CONSTRAINT held_state CHECK (state IN ('scheduled', 'retry', 'error')),
    CONSTRAINT available_at_format CHECK (available_at IS strftime('%Y-%m-%d %H:%M:%f', available_at))
) WITHOUT ROWID;

INSERT INTO {{.Held}} (id, lane, state, message_id, topic, message_key, payload, payload_text, headers, priority,
    attempts, crashes, available_at, last_error, created_at)
SELECT id, lane, state, message_id, topic, message_key, payload, payload_text, headers, priority,
    attempts, crashes, available_at, last_error, created_at
FROM {{.Index "held_before"}};

DROP TABLE {{.Index "held_before"}};

-- No time means at once.
CREATE INDEX {{.Index "held_due"}} ON {{.Bare.Held}}
    (coalesce(available_at, '0001-01-01 00:00:00.000'), id) WHERE state <> 'error';

-- The rows that hold their keys, as before; now there are more of them.
CREATE INDEX {{.Index "held_retry"}} ON {{.Bare.Held}} (lane, message_key, id) WHERE state = 'retry' OR holds > 0;

CREATE INDEX {{.Index "held_error"}} ON {{.Bare.Held}} (id) WHERE state = 'error';

CREATE INDEX {{.Index "held_message"}} ON {{.Bare.Held}} (message_id);

CREATE VIEW {{.Messages}} AS
SELECT id, lane,
       CASE WHEN claimed_until > strftime('%Y-%m-%d %H:%M:%f', 'now') THEN 'claimed'
            WHEN available_at > strftime('%Y-%m-%d %H:%M:%f', 'now') THEN 'scheduled'
            ELSE 'pending' END AS state,
       message_id, topic, message_key, payload, payload_text, headers, priority,
       attempts, crashes, available_at, last_error,
       claimed_by, claim_token, claimed_until, created_at,
       NULL AS finished_at, NULL AS receipt, NULL AS relay, expires_at, 0 AS holds, sinks
FROM {{.Bare.Hot}}
UNION ALL
SELECT id, lane,
       CASE WHEN state = 'scheduled' AND (available_at IS NULL OR available_at <= strftime('%Y-%m-%d %H:%M:%f', 'now')) THEN 'pending' ELSE state END,
       message_id, topic, message_key, payload, payload_text, headers, priority,
       attempts, crashes, available_at, last_error,
       NULL, NULL, NULL, created_at, NULL, NULL, NULL, expires_at, holds, sinks
FROM {{.Bare.Held}}
UNION ALL
SELECT id, lane, 'done',
       message_id, topic, message_key, payload, payload_text, headers, priority,
       attempts, crashes, available_at, last_error,
       NULL, NULL, NULL, created_at, finished_at, receipt, relay, expires_at, 0, sinks
FROM {{.Bare.Done}};

-- What a relay tells the others of itself, in JSON: its sinks and routes, their fingerprint, and
-- whether it takes part.
ALTER TABLE {{.Relays}} ADD COLUMN setup TEXT NOT NULL DEFAULT '';

UPDATE {{.Settings}} SET value = '2' WHERE name = 'schema';

-- +goose Down

UPDATE {{.Settings}} SET value = '1' WHERE name = 'schema';

ALTER TABLE {{.Relays}} DROP COLUMN setup;

-- What was to be skipped or deleted is parked as before.
UPDATE {{.Held}} SET state = 'error' WHERE holds > 0;

DROP VIEW {{.Messages}};

-- A message is one row again, for all sinks of its topic: the pending one if there is one, or
-- else a retry, or else the parked one. What is lost is which sinks have it already, which get
-- it once more, and why others waited or refused it.
DELETE FROM {{.Held}} AS t WHERE t.sinks <> '' AND (
    EXISTS (SELECT 1 FROM {{.Hot}} AS o WHERE o.id = t.id AND o.lane = t.lane AND o.message_id = t.message_id)
    OR EXISTS (SELECT 1 FROM {{.Held}} AS o WHERE o.id = t.id AND o.message_id = t.message_id
        AND (CASE o.state WHEN 'retry' THEN 1 WHEN 'error' THEN 2 ELSE 3 END, o.sinks)
          < (CASE t.state WHEN 'retry' THEN 1 WHEN 'error' THEN 2 ELSE 3 END, t.sinks)));

DELETE FROM {{.Done}} AS t WHERE t.sinks <> '' AND (
    EXISTS (SELECT 1 FROM {{.Hot}} AS o WHERE o.id = t.id AND o.lane = t.lane AND o.message_id = t.message_id)
    OR EXISTS (SELECT 1 FROM {{.Held}} AS o WHERE o.id = t.id AND o.message_id = t.message_id)
    OR EXISTS (SELECT 1 FROM {{.Done}} AS o WHERE o.id = t.id AND o.message_id = t.message_id AND o.sinks < t.sinks));

ALTER TABLE {{.Held}} RENAME TO {{.Bare.IndexName "held_before"}};

CREATE TABLE {{.Held}} (
    id            INTEGER NOT NULL,
    lane          INTEGER NOT NULL,
    state         TEXT NOT NULL,
    message_id    TEXT NOT NULL,
    topic         TEXT NOT NULL,
    message_key   TEXT,
    payload       BLOB,
    payload_text  TEXT,
    headers       TEXT,
    priority      INTEGER NOT NULL,
    attempts      INTEGER NOT NULL,
    crashes       INTEGER NOT NULL,
    available_at  TEXT,
    last_error    TEXT,
    created_at    TEXT NOT NULL,
    PRIMARY KEY (id, message_id),
    CONSTRAINT held_state CHECK (state IN ('scheduled', 'retry', 'error')),
    CONSTRAINT available_at_format CHECK (available_at IS strftime('%Y-%m-%d %H:%M:%f', available_at))
) WITHOUT ROWID;

INSERT INTO {{.Held}} (id, lane, state, message_id, topic, message_key, payload, payload_text, headers, priority,
    attempts, crashes, available_at, last_error, created_at)
SELECT id, lane, state, message_id, topic, message_key, payload, payload_text, headers, priority,
    attempts, crashes, available_at, last_error, created_at
FROM {{.Index "held_before"}};

DROP TABLE {{.Index "held_before"}};

CREATE INDEX {{.Index "held_due"}} ON {{.Bare.Held}}
    (coalesce(available_at, '0001-01-01 00:00:00.000'), id) WHERE state <> 'error';

CREATE INDEX {{.Index "held_retry"}} ON {{.Bare.Held}} (lane, message_key, id) WHERE state = 'retry';

CREATE INDEX {{.Index "held_error"}} ON {{.Bare.Held}} (id) WHERE state = 'error';

ALTER TABLE {{.Done}} DROP COLUMN sinks;

ALTER TABLE {{.Done}} DROP COLUMN expires_at;

ALTER TABLE {{.Hot}} DROP COLUMN sinks;

ALTER TABLE {{.Hot}} DROP COLUMN expires_at;

DROP TABLE {{.Actions}};

DROP TABLE {{.Controls}};

DROP TABLE {{.IDs}};

DROP INDEX {{.Index "scheduled"}};

CREATE VIEW {{.Messages}} AS
SELECT id, lane,
       CASE WHEN claimed_until > strftime('%Y-%m-%d %H:%M:%f', 'now') THEN 'claimed'
            WHEN available_at > strftime('%Y-%m-%d %H:%M:%f', 'now') THEN 'scheduled'
            ELSE 'pending' END AS state,
       message_id, topic, message_key, payload, payload_text, headers, priority,
       attempts, crashes, available_at, last_error,
       claimed_by, claim_token, claimed_until, created_at,
       NULL AS finished_at, NULL AS receipt, NULL AS relay
FROM {{.Bare.Hot}}
UNION ALL
SELECT id, lane,
       CASE WHEN state = 'scheduled' AND (available_at IS NULL OR available_at <= strftime('%Y-%m-%d %H:%M:%f', 'now')) THEN 'pending' ELSE state END,
       message_id, topic, message_key, payload, payload_text, headers, priority,
       attempts, crashes, available_at, last_error,
       NULL, NULL, NULL, created_at, NULL, NULL, NULL
FROM {{.Bare.Held}}
UNION ALL
SELECT id, lane, 'done',
       message_id, topic, message_key, payload, payload_text, headers, priority,
       attempts, crashes, available_at, last_error,
       NULL, NULL, NULL, created_at, finished_at, receipt, relay
FROM {{.Bare.Done}};
