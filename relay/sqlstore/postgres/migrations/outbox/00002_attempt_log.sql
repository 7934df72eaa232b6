-- +goose Up

-- The last failed attempts of a message that was not delivered yet, the oldest first: a JSON
-- array of objects with at, relay, sink, answer and duration_ms, in ASCII and at most 4,000 bytes
-- long. NULL for all other messages.
--
-- The step locks both tables for a moment. It waits at most 3 seconds for open transactions, as
-- writers wait behind it. Then it fails, and can be run again.
SET LOCAL lock_timeout = '3s';

ALTER TABLE {{.Pending}} ADD COLUMN attempt_log text;

ALTER TABLE {{.Held}} ADD COLUMN attempt_log text;

CREATE OR REPLACE VIEW {{.Messages}} AS
SELECT id, lane,
       CASE WHEN claimed_until > now() THEN 'claimed'
            WHEN available_at > now() THEN 'scheduled'
            ELSE 'pending' END AS state,
       message_id, topic, message_key, payload, payload_text, headers, priority, sinks,
       attempts, crashes, available_at, expires_at, last_error, 0 AS holds,
       claimed_by, claim_token, claimed_until, created_at,
       NULL::timestamptz AS finished_at, NULL::text AS receipt, NULL::text AS relay, attempt_log
FROM {{.Pending}}
UNION ALL
SELECT id, lane,
       CASE WHEN state = 'scheduled' AND (available_at IS NULL OR available_at <= now()) THEN 'pending' ELSE state END,
       message_id, topic, message_key, payload, payload_text, headers, priority, sinks,
       attempts, crashes, available_at, expires_at, last_error, holds,
       NULL, NULL, NULL, created_at,
       NULL, NULL, NULL, attempt_log
FROM {{.Held}}
UNION ALL
SELECT id, lane, 'done',
       message_id, topic, message_key, payload, payload_text, headers, priority, sinks,
       attempts, crashes, available_at, expires_at, last_error, 0,
       NULL, NULL, NULL, created_at,
       finished_at, receipt, relay, NULL
FROM {{.Done}};

UPDATE {{.Settings}} SET value = '2' WHERE name = 'schema';

-- The step only adds, so releases that know version 1 can use these tables.
INSERT INTO {{.Settings}} (name, value) VALUES ('schema_compatible', '1');

-- +goose Down

UPDATE {{.Settings}} SET value = '1' WHERE name = 'schema';

DELETE FROM {{.Settings}} WHERE name = 'schema_compatible';

DROP VIEW {{.Messages}};

CREATE VIEW {{.Messages}} AS
SELECT id, lane,
       CASE WHEN claimed_until > now() THEN 'claimed'
            WHEN available_at > now() THEN 'scheduled'
            ELSE 'pending' END AS state,
       message_id, topic, message_key, payload, payload_text, headers, priority, sinks,
       attempts, crashes, available_at, expires_at, last_error, 0 AS holds,
       claimed_by, claim_token, claimed_until, created_at,
       NULL::timestamptz AS finished_at, NULL::text AS receipt, NULL::text AS relay
FROM {{.Pending}}
UNION ALL
SELECT id, lane,
       CASE WHEN state = 'scheduled' AND (available_at IS NULL OR available_at <= now()) THEN 'pending' ELSE state END,
       message_id, topic, message_key, payload, payload_text, headers, priority, sinks,
       attempts, crashes, available_at, expires_at, last_error, holds,
       NULL, NULL, NULL, created_at,
       NULL, NULL, NULL
FROM {{.Held}}
UNION ALL
SELECT id, lane, 'done',
       message_id, topic, message_key, payload, payload_text, headers, priority, sinks,
       attempts, crashes, available_at, expires_at, last_error, 0,
       NULL, NULL, NULL, created_at,
       finished_at, receipt, relay
FROM {{.Done}};

ALTER TABLE {{.Held}} DROP COLUMN attempt_log;

ALTER TABLE {{.Pending}} DROP COLUMN attempt_log;
