-- +goose NO TRANSACTION

-- +goose Up

-- The last failed attempts of a message that was not delivered yet, the oldest first: a JSON
-- array of objects with at, relay, sink, answer and duration_ms, in ASCII and at most 4,000 bytes
-- long. NULL for all other messages.
--
-- Each ALTER commits immediately. If this script stops halfway, run rowrelay migrate up, which
-- leaves a column that exists as it is.
ALTER TABLE {{.Pending}} ADD COLUMN attempt_log longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

ALTER TABLE {{.Held}} ADD COLUMN attempt_log longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE OR REPLACE SQL SECURITY INVOKER VIEW {{.Messages}} AS
SELECT id, lane,
       CASE WHEN claimed_until > utc_timestamp(6) THEN 'claimed'
            WHEN available_at > utc_timestamp(6) THEN 'scheduled'
            ELSE 'pending' END AS state,
       message_id, topic, message_key, payload, payload_text, headers, priority, sinks,
       attempts, crashes, available_at, expires_at, last_error, 0 AS holds,
       claimed_by, claim_token, claimed_until, created_at,
       CAST(NULL AS datetime(6)) AS finished_at, NULL AS receipt, NULL AS relay, attempt_log
FROM {{.Pending}}
UNION ALL
SELECT id, lane,
       CASE WHEN state = 'scheduled' AND due_at <= utc_timestamp(6) THEN 'pending' ELSE state END,
       message_id, topic, message_key, payload, payload_text, headers, priority, sinks,
       attempts, crashes, available_at, expires_at, last_error, holds,
       NULL, NULL, NULL, created_at,
       NULL, NULL, NULL, attempt_log
FROM {{.Held}}
UNION ALL
SELECT id, lane, 'done',
       message_id, topic, message_key, payload, payload_text, headers, priority, CONVERT(sinks USING utf8mb4) COLLATE utf8mb4_bin,
       attempts, crashes, available_at, expires_at, last_error, 0,
       NULL, NULL, NULL, created_at,
       finished_at, receipt, relay, NULL
FROM {{.Done}};

UPDATE {{.Settings}} SET value = '2' WHERE name = 'schema';

-- The step only adds, so releases that know version 1 can use these tables.
INSERT IGNORE INTO {{.Settings}} (name, value) VALUES ('schema_compatible', '1');

-- +goose Down

UPDATE {{.Settings}} SET value = '1' WHERE name = 'schema';

DELETE FROM {{.Settings}} WHERE name = 'schema_compatible';

CREATE OR REPLACE SQL SECURITY INVOKER VIEW {{.Messages}} AS
SELECT id, lane,
       CASE WHEN claimed_until > utc_timestamp(6) THEN 'claimed'
            WHEN available_at > utc_timestamp(6) THEN 'scheduled'
            ELSE 'pending' END AS state,
       message_id, topic, message_key, payload, payload_text, headers, priority, sinks,
       attempts, crashes, available_at, expires_at, last_error, 0 AS holds,
       claimed_by, claim_token, claimed_until, created_at,
       CAST(NULL AS datetime(6)) AS finished_at, NULL AS receipt, NULL AS relay
FROM {{.Pending}}
UNION ALL
SELECT id, lane,
       CASE WHEN state = 'scheduled' AND due_at <= utc_timestamp(6) THEN 'pending' ELSE state END,
       message_id, topic, message_key, payload, payload_text, headers, priority, sinks,
       attempts, crashes, available_at, expires_at, last_error, holds,
       NULL, NULL, NULL, created_at,
       NULL, NULL, NULL
FROM {{.Held}}
UNION ALL
SELECT id, lane, 'done',
       message_id, topic, message_key, payload, payload_text, headers, priority, CONVERT(sinks USING utf8mb4) COLLATE utf8mb4_bin,
       attempts, crashes, available_at, expires_at, last_error, 0,
       NULL, NULL, NULL, created_at,
       finished_at, receipt, relay
FROM {{.Done}};

ALTER TABLE {{.Held}} DROP COLUMN attempt_log;

ALTER TABLE {{.Pending}} DROP COLUMN attempt_log;
