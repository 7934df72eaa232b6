-- +goose Up

-- The last failed attempts of a message that was not delivered yet, the oldest first: a JSON
-- array of objects with at, relay, sink, answer and duration_ms, in ASCII and at most 4,000 bytes
-- long. NULL for all other messages.
ALTER TABLE {{.Pending}} ADD COLUMN attempt_log TEXT;

ALTER TABLE {{.Held}} ADD COLUMN attempt_log TEXT;

DROP VIEW {{.Messages}};

CREATE VIEW {{.Messages}} AS
SELECT id, lane,
       CASE WHEN claimed_until > strftime('%Y-%m-%d %H:%M:%f', 'now') THEN 'claimed'
            WHEN available_at > strftime('%Y-%m-%d %H:%M:%f', 'now') THEN 'scheduled'
            ELSE 'pending' END AS state,
       message_id, topic, message_key, payload, payload_text, headers, priority, sinks,
       attempts, crashes, available_at, expires_at, last_error, 0 AS holds,
       claimed_by, claim_token, claimed_until, created_at,
       NULL AS finished_at, NULL AS receipt, NULL AS relay, attempt_log
FROM {{.Bare.Pending}}
UNION ALL
SELECT id, lane,
       CASE WHEN state = 'scheduled' AND (available_at IS NULL OR available_at <= strftime('%Y-%m-%d %H:%M:%f', 'now')) THEN 'pending' ELSE state END,
       message_id, topic, message_key, payload, payload_text, headers, priority, sinks,
       attempts, crashes, available_at, expires_at, last_error, holds,
       NULL, NULL, NULL, created_at,
       NULL, NULL, NULL, attempt_log
FROM {{.Bare.Held}}
UNION ALL
SELECT id, lane, 'done',
       message_id, topic, message_key, payload, payload_text, headers, priority, sinks,
       attempts, crashes, available_at, expires_at, last_error, 0,
       NULL, NULL, NULL, created_at,
       finished_at, receipt, relay, NULL
FROM {{.Bare.Done}};

UPDATE {{.Settings}} SET value = '2' WHERE name = 'schema';

-- The step only adds, so releases that know version 1 can use these tables.
INSERT INTO {{.Settings}} (name, value) VALUES ('schema_compatible', '1');

-- +goose Down

UPDATE {{.Settings}} SET value = '1' WHERE name = 'schema';

DELETE FROM {{.Settings}} WHERE name = 'schema_compatible';

DROP VIEW {{.Messages}};

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

ALTER TABLE {{.Held}} DROP COLUMN attempt_log;

ALTER TABLE {{.Pending}} DROP COLUMN attempt_log;
