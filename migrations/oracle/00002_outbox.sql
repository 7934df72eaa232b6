-- +goose NO TRANSACTION

-- +goose Up

-- Scheduled messages by their id, so that they can be cancelled: an index has no entry for
-- a row whose columns are all null there, so a producer of others pays nothing for it.
CREATE INDEX {{.Index "scheduled"}} ON {{.Hot}} (CASE WHEN available_at IS NOT NULL THEN message_id END);

CREATE INDEX {{.Index "held_message"}} ON {{.Held}} (message_id);

-- The ids of messages whose writers want no duplicates. The token tells those of one
-- write from others.
CREATE TABLE {{.IDs}} (
    message_id  VARCHAR2(36 BYTE) NOT NULL,
    write_token NUMBER(19) DEFAULT 0 NOT NULL,
    written_at  TIMESTAMP(6) DEFAULT SYS_EXTRACT_UTC(SYSTIMESTAMP) NOT NULL,
    PRIMARY KEY (message_id)
);

CREATE INDEX {{.Index "ids_written"}} ON {{.IDs}} (written_at);

-- What operators have put in force, for all relays: a sink, a topic, a key or a relay that is
-- paused ('sink', 'topic', 'key', 'relay'), and how many messages a second a sink gets at most
-- ('limit'). It ends when it is deleted, or at its time.
CREATE TABLE {{.Controls}} (
    kind    VARCHAR2(16 BYTE) NOT NULL,
    name    VARCHAR2(400 BYTE) NOT NULL,
    rate    NUMBER(19),
    ends_at TIMESTAMP(6),
    made_by VARCHAR2(255 BYTE),
    made_at TIMESTAMP(6) NOT NULL,
    reason  VARCHAR2(255 BYTE),
    PRIMARY KEY (kind, name)
);

-- What operators have done. One without a count is being done, or broke off.
CREATE TABLE {{.Actions}} (
    id      VARCHAR2(36 BYTE) NOT NULL,
    made_at TIMESTAMP(6) NOT NULL,
    made_by VARCHAR2(255 BYTE),
    action  VARCHAR2(16 BYTE) NOT NULL,
    target  VARCHAR2(1000 BYTE),
    reason  VARCHAR2(255 BYTE),
    changed NUMBER(19),
    PRIMARY KEY (id)
);

-- When a message is too old to be sent, in UTC; none is never. One in the year 9999 has
-- been requeued after it had expired, and is sent however old it is.
ALTER TABLE {{.Hot}} ADD (expires_at TIMESTAMP(6));

ALTER TABLE {{.Held}} ADD (expires_at TIMESTAMP(6));

ALTER TABLE {{.Done}} ADD (expires_at TIMESTAMP(6));

-- Which sinks still need the message, by their names with commas between; none is all those of
-- its topic. Among the held and the done rows a message may have one for each of its sinks: so
-- what was the primary key becomes a unique index, in which a column may be null.
ALTER TABLE {{.Hot}} ADD (sinks VARCHAR2(400 BYTE));

ALTER TABLE {{.Held}} ADD (sinks VARCHAR2(400 BYTE));

ALTER TABLE {{.Done}} ADD (sinks VARCHAR2(400 BYTE));

ALTER TABLE {{.Held}} DROP PRIMARY KEY;

CREATE UNIQUE INDEX {{.Index "held_key"}} ON {{.Held}} (id, message_id, sinks);

ALTER TABLE {{.Done}} DROP PRIMARY KEY;

CREATE UNIQUE INDEX {{.Index "done_key"}} ON {{.Done}} (id, message_id, sinks);

-- What a parked row does to its key: 0 nothing, 1 it holds it, and of such rows 2 is to be
-- parked without that, and 3 to be deleted.
ALTER TABLE {{.Held}} ADD (holds NUMBER(1) DEFAULT 0 NOT NULL);

-- The rows that hold their keys, as before; now there are more of them.
DROP INDEX {{.Index "held_retry"}};

CREATE INDEX {{.Index "held_retry"}} ON {{.Held}} (
    CASE WHEN state = 'retry' OR holds > 0 THEN lane END,
    NLSSORT(CASE WHEN state = 'retry' OR holds > 0 THEN message_key END, 'NLS_SORT=BINARY'),
    CASE WHEN state = 'retry' OR holds > 0 THEN id END);

CREATE OR REPLACE VIEW {{.Messages}} AS
SELECT id, lane,
       CASE WHEN claimed_until > SYS_EXTRACT_UTC(SYSTIMESTAMP) THEN 'claimed'
            WHEN available_at > SYS_EXTRACT_UTC(SYSTIMESTAMP) THEN 'scheduled'
            ELSE 'pending' END AS state,
       message_id, topic, message_key, payload, payload_text, headers, priority,
       attempts, crashes, available_at, last_error,
       claimed_by, claim_token, claimed_until, created_at,
       CAST(NULL AS TIMESTAMP(6)) AS finished_at, CAST(NULL AS VARCHAR2(4000)) AS receipt, CAST(NULL AS VARCHAR2(255)) AS relay, expires_at, 0 AS holds, sinks
FROM {{.Hot}}
UNION ALL
SELECT id, lane,
       CASE WHEN state = 'scheduled' AND (available_at IS NULL OR available_at <= SYS_EXTRACT_UTC(SYSTIMESTAMP)) THEN 'pending' ELSE state END,
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

-- A replay of messages is a line of JSON.
ALTER TABLE {{.Settings}} MODIFY (value VARCHAR2(4000 BYTE));

-- What a relay tells the others of itself, in JSON: its sinks and routes, their fingerprint, and
-- whether it takes part.
ALTER TABLE {{.Relays}} ADD (setup VARCHAR2(2000 BYTE));

-- What a relay looks at first, and so what is changed last.
UPDATE {{.Settings}} SET value = '2' WHERE name = 'schema';

-- +goose Down

UPDATE {{.Settings}} SET value = '1' WHERE name = 'schema';

ALTER TABLE {{.Relays}} DROP (setup);

-- No replay goes on.
DELETE FROM {{.Settings}} WHERE name LIKE 'replay.%';

ALTER TABLE {{.Settings}} MODIFY (value VARCHAR2(255 BYTE));

-- What was to be skipped or deleted is parked as before.
UPDATE {{.Held}} SET state = 'error' WHERE holds > 0;

CREATE OR REPLACE VIEW {{.Messages}} AS
SELECT id, lane,
       CASE WHEN claimed_until > SYS_EXTRACT_UTC(SYSTIMESTAMP) THEN 'claimed'
            WHEN available_at > SYS_EXTRACT_UTC(SYSTIMESTAMP) THEN 'scheduled'
            ELSE 'pending' END AS state,
       message_id, topic, message_key, payload, payload_text, headers, priority,
       attempts, crashes, available_at, last_error,
       claimed_by, claim_token, claimed_until, created_at,
       CAST(NULL AS TIMESTAMP(6)) AS finished_at, CAST(NULL AS VARCHAR2(4000)) AS receipt, CAST(NULL AS VARCHAR2(255)) AS relay
FROM {{.Hot}}
UNION ALL
SELECT id, lane,
       CASE WHEN state = 'scheduled' AND (available_at IS NULL OR available_at <= SYS_EXTRACT_UTC(SYSTIMESTAMP)) THEN 'pending' ELSE state END,
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

DROP INDEX {{.Index "held_retry"}};

CREATE INDEX {{.Index "held_retry"}} ON {{.Held}} (
    CASE WHEN state = 'retry' THEN lane END,
    NLSSORT(CASE WHEN state = 'retry' THEN message_key END, 'NLS_SORT=BINARY'),
    CASE WHEN state = 'retry' THEN id END);

ALTER TABLE {{.Held}} DROP (holds);

-- A message is one row again, for all sinks of its topic: the pending one if there is one, or
-- else a retry, or else the parked one. What is lost is which sinks have it already, which get
-- it once more, and why others waited or refused it.
DELETE FROM {{.Held}} t WHERE t.sinks IS NOT NULL AND (
    EXISTS (SELECT 1 FROM {{.Hot}} o WHERE o.id = t.id AND o.lane = t.lane AND o.message_id = t.message_id)
    OR EXISTS (SELECT 1 FROM {{.Held}} o WHERE o.id = t.id AND o.message_id = t.message_id
        AND CASE o.state WHEN 'retry' THEN 1 WHEN 'error' THEN 2 ELSE 3 END || NLSSORT(o.sinks, 'NLS_SORT=BINARY')
          < CASE t.state WHEN 'retry' THEN 1 WHEN 'error' THEN 2 ELSE 3 END || NLSSORT(t.sinks, 'NLS_SORT=BINARY')));

DELETE FROM {{.Done}} t WHERE t.sinks IS NOT NULL AND (
    EXISTS (SELECT 1 FROM {{.Hot}} o WHERE o.id = t.id AND o.lane = t.lane AND o.message_id = t.message_id)
    OR EXISTS (SELECT 1 FROM {{.Held}} o WHERE o.id = t.id AND o.message_id = t.message_id)
    OR EXISTS (SELECT 1 FROM {{.Done}} o WHERE o.id = t.id AND o.message_id = t.message_id
        AND NLSSORT(NVL(o.sinks, ','), 'NLS_SORT=BINARY') < NLSSORT(t.sinks, 'NLS_SORT=BINARY')));

DROP INDEX {{.Index "done_key"}};

ALTER TABLE {{.Done}} ADD PRIMARY KEY (id, message_id);

ALTER TABLE {{.Done}} DROP (sinks);

DROP INDEX {{.Index "held_key"}};

ALTER TABLE {{.Held}} ADD PRIMARY KEY (id, message_id);

ALTER TABLE {{.Held}} DROP (sinks);

ALTER TABLE {{.Hot}} DROP (sinks);

ALTER TABLE {{.Done}} DROP (expires_at);

ALTER TABLE {{.Held}} DROP (expires_at);

ALTER TABLE {{.Hot}} DROP (expires_at);

DROP TABLE {{.Actions}} PURGE;

DROP TABLE {{.Controls}} PURGE;

DROP TABLE {{.IDs}} PURGE;

DROP INDEX {{.Index "held_message"}};

DROP INDEX {{.Index "scheduled"}};
