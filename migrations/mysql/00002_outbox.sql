-- +goose NO TRANSACTION

-- +goose Up

-- Scheduled messages by their id, so that they can be cancelled. The hot table has no index
-- for it: there are none of some rows only, and each costs every message.
ALTER TABLE {{.Held}} ADD KEY held_message (message_id);

-- The ids of messages whose writers want no duplicates. The token tells those of one
-- write from others.
CREATE TABLE {{.IDs}} (
    message_id  char(36) CHARACTER SET ascii COLLATE ascii_general_ci NOT NULL PRIMARY KEY,
    write_token bigint NOT NULL DEFAULT 0,
    written_at  datetime(6) NOT NULL DEFAULT (utc_timestamp(6)),
    KEY ids_written (written_at)
) ENGINE = InnoDB;

-- What operators have put in force, for all relays: a sink, a topic, a key or a relay that is
-- paused ('sink', 'topic', 'key', 'relay'), and how many messages a second a sink gets at most
-- ('limit'). It ends when it is deleted, or at its time.
CREATE TABLE {{.Controls}} (
    kind    varchar(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    name    varchar(400) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    rate    bigint,
    ends_at datetime(6),
    made_by varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    made_at datetime(6) NOT NULL,
    reason  varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    PRIMARY KEY (kind, name)
) ENGINE = InnoDB;

-- What operators have done. One without a count is being done, or broke off.
CREATE TABLE {{.Actions}} (
    id      char(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
    made_at datetime(6) NOT NULL,
    made_by varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    action  varchar(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    target  varchar(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    reason  varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    changed bigint
) ENGINE = InnoDB;

-- When a message is too old to be sent, in UTC; none is never. One in the year 9999 has
-- been requeued after it had expired, and is sent however old it is.
ALTER TABLE {{.Hot}} ADD COLUMN expires_at datetime(6);

ALTER TABLE {{.Held}} ADD COLUMN expires_at datetime(6);

ALTER TABLE {{.Done}} ADD COLUMN expires_at datetime(6);

-- What a parked row does to its key: 0 nothing, 1 it holds it, and of such rows 2 is to be
-- parked without that, and 3 to be deleted.
ALTER TABLE {{.Held}} ADD COLUMN holds smallint NOT NULL DEFAULT 0;

-- The lane of a row that holds its key: by it keys are looked for. In steps of their own, each
-- of which copies no table.
ALTER TABLE {{.Held}} ADD COLUMN blocks smallint GENERATED ALWAYS AS (CASE WHEN state = 'retry' OR holds > 0 THEN lane END) VIRTUAL;

ALTER TABLE {{.Held}} DROP KEY held_retry, ADD KEY held_retry (blocks, message_key);

-- Which sinks still need the message, by their names with commas between; none is all those of
-- its topic. Among the held and the done rows a message may have one for each of its sinks. The
-- keys are changed in steps of their own: where this stopped on its way they are changed again.
ALTER TABLE {{.Hot}} ADD COLUMN sinks varchar(400) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '';

ALTER TABLE {{.Held}} ADD COLUMN sinks varchar(400) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '';

ALTER TABLE {{.Held}} DROP PRIMARY KEY, ADD PRIMARY KEY (lane, id, message_id, sinks);

-- In bytes here: as a text in this key it makes each delivered row an eighth dearer to write.
ALTER TABLE {{.Done}} ADD COLUMN sinks varbinary(400) NOT NULL DEFAULT '';

ALTER TABLE {{.Done}} DROP PRIMARY KEY, ADD PRIMARY KEY (id, message_id, sinks);

-- As it was, with what is new at its end.
CREATE OR REPLACE SQL SECURITY INVOKER VIEW {{.Messages}} AS
SELECT id, lane,
       CASE WHEN claimed_until > utc_timestamp(6) THEN 'claimed'
            WHEN available_at > utc_timestamp(6) THEN 'scheduled'
            ELSE 'pending' END AS state,
       message_id, topic, message_key, payload, payload_text, headers, priority,
       attempts, crashes, available_at, last_error,
       claimed_by, claim_token, claimed_until, created_at,
       CAST(NULL AS datetime(6)) AS finished_at, NULL AS receipt, NULL AS relay, expires_at, 0 AS holds, sinks
FROM {{.Hot}}
UNION ALL
SELECT id, lane,
       CASE WHEN state = 'scheduled' AND due_at <= utc_timestamp(6) THEN 'pending' ELSE state END,
       message_id, topic, message_key, payload, payload_text, headers, priority,
       attempts, crashes, available_at, last_error,
       NULL, NULL, NULL, created_at, NULL, NULL, NULL, expires_at, holds, sinks
FROM {{.Held}}
UNION ALL
SELECT id, lane, 'done',
       message_id, topic, message_key, payload, payload_text, headers, priority,
       attempts, crashes, available_at, last_error,
       NULL, NULL, NULL, created_at, finished_at, receipt, relay, expires_at, 0, CONVERT(sinks USING utf8mb4) COLLATE utf8mb4_bin
FROM {{.Done}};

-- What a relay tells the others of itself, in JSON: its sinks and routes, their fingerprint, and
-- whether it takes part.
ALTER TABLE {{.Relays}} ADD COLUMN setup varchar(2000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '';

-- What a relay looks at first, and so what is changed last.
UPDATE {{.Settings}} SET value = '2' WHERE name = 'schema';

-- +goose Down

UPDATE {{.Settings}} SET value = '1' WHERE name = 'schema';

ALTER TABLE {{.Relays}} DROP COLUMN setup;

-- What was to be skipped or deleted is parked as before.
UPDATE {{.Held}} SET state = 'error' WHERE holds > 0;

CREATE OR REPLACE SQL SECURITY INVOKER VIEW {{.Messages}} AS
SELECT id, lane,
       CASE WHEN claimed_until > utc_timestamp(6) THEN 'claimed'
            WHEN available_at > utc_timestamp(6) THEN 'scheduled'
            ELSE 'pending' END AS state,
       message_id, topic, message_key, payload, payload_text, headers, priority,
       attempts, crashes, available_at, last_error,
       claimed_by, claim_token, claimed_until, created_at,
       CAST(NULL AS datetime(6)) AS finished_at, NULL AS receipt, NULL AS relay
FROM {{.Hot}}
UNION ALL
SELECT id, lane,
       CASE WHEN state = 'scheduled' AND due_at <= utc_timestamp(6) THEN 'pending' ELSE state END,
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

ALTER TABLE {{.Held}} DROP KEY held_retry, ADD KEY held_retry (state, lane, message_key);

ALTER TABLE {{.Held}} DROP COLUMN blocks;

ALTER TABLE {{.Held}} DROP COLUMN holds;

-- A message is one row again, for all sinks of its topic: the pending one if there is one, or
-- else a retry, or else the parked one. What is lost is which sinks have it already, which get
-- it once more, and why others waited or refused it.
DELETE t FROM {{.Held}} AS t JOIN {{.Hot}} AS o ON o.lane = t.lane AND o.id = t.id AND o.message_id = t.message_id WHERE t.sinks <> '';

DELETE t FROM {{.Held}} AS t JOIN {{.Held}} AS o ON o.lane = t.lane AND o.id = t.id AND o.message_id = t.message_id
    AND (CASE o.state WHEN 'retry' THEN 1 WHEN 'error' THEN 2 ELSE 3 END, o.sinks)
      < (CASE t.state WHEN 'retry' THEN 1 WHEN 'error' THEN 2 ELSE 3 END, t.sinks);

DELETE t FROM {{.Done}} AS t JOIN {{.Hot}} AS o ON o.lane = t.lane AND o.id = t.id AND o.message_id = t.message_id WHERE t.sinks <> '';

DELETE t FROM {{.Done}} AS t JOIN {{.Held}} AS o ON o.lane = t.lane AND o.id = t.id AND o.message_id = t.message_id WHERE t.sinks <> '';

DELETE t FROM {{.Done}} AS t JOIN {{.Done}} AS o ON o.id = t.id AND o.message_id = t.message_id AND o.sinks < t.sinks;

ALTER TABLE {{.Done}} DROP PRIMARY KEY, ADD PRIMARY KEY (id, message_id);

ALTER TABLE {{.Done}} DROP COLUMN sinks;

ALTER TABLE {{.Held}} DROP PRIMARY KEY, ADD PRIMARY KEY (lane, id, message_id);

ALTER TABLE {{.Held}} DROP COLUMN sinks;

ALTER TABLE {{.Hot}} DROP COLUMN sinks;

ALTER TABLE {{.Done}} DROP COLUMN expires_at;

ALTER TABLE {{.Held}} DROP COLUMN expires_at;

ALTER TABLE {{.Hot}} DROP COLUMN expires_at;

DROP TABLE {{.Actions}};

DROP TABLE {{.Controls}};

DROP TABLE {{.IDs}};

ALTER TABLE {{.Held}} DROP KEY held_message;
