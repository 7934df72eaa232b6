-- +goose Up

-- Scheduled messages by their id, so that they can be cancelled: in the hot table a
-- producer of others pays nothing for it.
CREATE INDEX {{.IndexName "scheduled"}} ON {{.Hot}} (message_id) WHERE available_at IS NOT NULL;

CREATE INDEX {{.IndexName "held_message"}} ON {{.Held}} (message_id);

-- The ids of messages whose writers want no duplicates. The token tells those of one
-- write from others.
CREATE TABLE {{.IDs}} (
    message_id  uuid NOT NULL PRIMARY KEY,
    write_token bigint NOT NULL DEFAULT 0,
    written_at  timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX {{.IndexName "ids_written"}} ON {{.IDs}} (written_at);

-- What operators have put in force, for all relays: a sink, a topic, a key or a relay that is
-- paused ('sink', 'topic', 'key', 'relay'), and how many messages a second a sink gets at most
-- ('limit'). It ends when it is deleted, or at its time.
CREATE TABLE {{.Controls}} (
    kind    text COLLATE "C" NOT NULL,
    name    text COLLATE "C" NOT NULL,
    rate    bigint,
    ends_at timestamptz,
    made_by text,
    made_at timestamptz NOT NULL,
    reason  text,
    PRIMARY KEY (kind, name)
);

-- What operators have done. One without a count is being done, or broke off.
CREATE TABLE {{.Actions}} (
    id      uuid NOT NULL PRIMARY KEY,
    made_at timestamptz NOT NULL,
    made_by text,
    action  text NOT NULL,
    target  text,
    reason  text,
    changed bigint
);

-- When a message is too old to be sent, in UTC; none is never. One in the year 9999 has
-- been requeued after it had expired, and is sent however old it is.
ALTER TABLE {{.Hot}} ADD COLUMN expires_at timestamptz;

ALTER TABLE {{.Held}} ADD COLUMN expires_at timestamptz;

ALTER TABLE {{.Done}} ADD COLUMN expires_at timestamptz;

-- Which sinks still need the message, by their names with commas between; none is all those of
-- its topic. Among the held and the done rows a message may have one for each of its sinks.
ALTER TABLE {{.Hot}} ADD COLUMN sinks text COLLATE "C" NOT NULL DEFAULT '';

ALTER TABLE {{.Held}} ADD COLUMN sinks text COLLATE "C" NOT NULL DEFAULT '',
    DROP CONSTRAINT {{.IndexName "held_pkey"}}, ADD PRIMARY KEY (lane, id, message_id, sinks);

ALTER TABLE {{.Done}} ADD COLUMN sinks text COLLATE "C" NOT NULL DEFAULT '',
    DROP CONSTRAINT {{.IndexName "done_pkey"}}, ADD PRIMARY KEY (id, message_id, sinks);

-- Not checked on the rows that there are, which have none: the table isn't read.
ALTER TABLE {{.Hot}} ADD CONSTRAINT finite_expiry CHECK (isfinite(expires_at)) NOT VALID;

-- What a parked row does to its key: 0 nothing, 1 it holds it, and of such rows 2 is to be
-- parked without that, and 3 to be deleted.
ALTER TABLE {{.Held}} ADD COLUMN holds smallint NOT NULL DEFAULT 0;

-- The rows that hold their keys, as before; now there are more of them.
DROP INDEX {{.Index "held_retry"}};

CREATE INDEX {{.IndexName "held_retry"}} ON {{.Held}} ((lane + 0), message_key, id) WHERE state = 'retry' OR holds > 0;

-- As it was, with what is new at its end: who may read it still may.
CREATE OR REPLACE VIEW {{.Messages}} AS
SELECT id, lane,
       CASE WHEN claimed_until > now() THEN 'claimed'
            WHEN available_at > now() THEN 'scheduled'
            ELSE 'pending' END AS state,
       message_id, topic, message_key, payload, payload_text, headers, priority,
       attempts, crashes, available_at, last_error,
       claimed_by, claim_token, claimed_until, created_at,
       NULL::timestamptz AS finished_at, NULL::text AS receipt, NULL::text AS relay, expires_at, 0 AS holds, sinks
FROM {{.Hot}}
UNION ALL
SELECT id, lane,
       CASE WHEN state = 'scheduled' AND (available_at IS NULL OR available_at <= now()) THEN 'pending' ELSE state END,
       message_id, topic, message_key, payload, payload_text, headers, priority,
       attempts, crashes, available_at, last_error,
       NULL, NULL, NULL, created_at, NULL, NULL, NULL, expires_at, holds, sinks
FROM {{.Held}}
UNION ALL
SELECT id, lane, 'done',
       message_id, topic, message_key, payload, payload_text, headers, priority,
       attempts, crashes, available_at, last_error,
       NULL, NULL, NULL, created_at, finished_at, receipt, relay, expires_at, 0, sinks
FROM {{.Done}};

-- What a relay tells the others of itself, in JSON: its sinks and routes, their fingerprint, and
-- whether it takes part.
ALTER TABLE {{.Relays}} ADD COLUMN setup text NOT NULL DEFAULT '';

UPDATE {{.Settings}} SET value = '2' WHERE name = 'schema';

-- +goose Down

-- By choice there was a trigger by which plain INSERTs tell relays (rowrelay migrate up --notify).
DROP FUNCTION IF EXISTS {{.Index "notify"}}() CASCADE;

UPDATE {{.Settings}} SET value = '1' WHERE name = 'schema';

ALTER TABLE {{.Relays}} DROP COLUMN setup;

-- What was to be skipped or deleted is parked as before.
UPDATE {{.Held}} SET state = 'error' WHERE holds > 0;

DROP VIEW {{.Messages}};

DROP INDEX {{.Index "held_retry"}};

CREATE INDEX {{.IndexName "held_retry"}} ON {{.Held}} ((lane + 0), message_key, id) WHERE state = 'retry';

ALTER TABLE {{.Held}} DROP COLUMN holds;

-- A message is one row again, for all sinks of its topic: the pending one if there is one, or
-- else a retry, or else the parked one. What is lost is which sinks have it already, which get
-- it once more, and why others waited or refused it.
DELETE FROM {{.Held}} AS t WHERE t.sinks <> '' AND (
    EXISTS (SELECT FROM {{.Hot}} AS o WHERE o.lane = t.lane AND o.id = t.id AND o.message_id = t.message_id)
    OR EXISTS (SELECT FROM {{.Held}} AS o WHERE o.lane = t.lane AND o.id = t.id AND o.message_id = t.message_id
        AND (CASE o.state WHEN 'retry' THEN 1 WHEN 'error' THEN 2 ELSE 3 END, o.sinks)
          < (CASE t.state WHEN 'retry' THEN 1 WHEN 'error' THEN 2 ELSE 3 END, t.sinks)));

DELETE FROM {{.Done}} AS t WHERE t.sinks <> '' AND (
    EXISTS (SELECT FROM {{.Hot}} AS o WHERE o.lane = t.lane AND o.id = t.id AND o.message_id = t.message_id)
    OR EXISTS (SELECT FROM {{.Held}} AS o WHERE o.lane = t.lane AND o.id = t.id AND o.message_id = t.message_id)
    OR EXISTS (SELECT FROM {{.Done}} AS o WHERE o.id = t.id AND o.message_id = t.message_id AND o.sinks < t.sinks));

ALTER TABLE {{.Done}} DROP COLUMN sinks, ADD PRIMARY KEY (id, message_id);

ALTER TABLE {{.Held}} DROP COLUMN sinks, ADD PRIMARY KEY (lane, id, message_id);

ALTER TABLE {{.Hot}} DROP COLUMN sinks;

ALTER TABLE {{.Done}} DROP COLUMN expires_at;

ALTER TABLE {{.Held}} DROP COLUMN expires_at;

ALTER TABLE {{.Hot}} DROP COLUMN expires_at;

DROP TABLE {{.Actions}};

DROP TABLE {{.Controls}};

DROP TABLE {{.IDs}};

DROP INDEX {{.Index "held_message"}};

DROP INDEX {{.Index "scheduled"}};

CREATE VIEW {{.Messages}} AS
SELECT id, lane,
       CASE WHEN claimed_until > now() THEN 'claimed'
            WHEN available_at > now() THEN 'scheduled'
            ELSE 'pending' END AS state,
       message_id, topic, message_key, payload, payload_text, headers, priority,
       attempts, crashes, available_at, last_error,
       claimed_by, claim_token, claimed_until, created_at,
       NULL::timestamptz AS finished_at, NULL::text AS receipt, NULL::text AS relay
FROM {{.Hot}}
UNION ALL
SELECT id, lane,
       CASE WHEN state = 'scheduled' AND (available_at IS NULL OR available_at <= now()) THEN 'pending' ELSE state END,
       message_id, topic, message_key, payload, payload_text, headers, priority,
       attempts, crashes, available_at, last_error,
       NULL, NULL, NULL, created_at, NULL, NULL, NULL
FROM {{.Held}}
UNION ALL
SELECT id, lane, 'done',
       message_id, topic, message_key, payload, payload_text, headers, priority,
       attempts, crashes, available_at, last_error,
       NULL, NULL, NULL, created_at, finished_at, receipt, relay
FROM {{.Done}};
