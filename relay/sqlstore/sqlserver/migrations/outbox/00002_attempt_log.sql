-- +goose Up

-- The last failed attempts of a message that was not delivered yet, the oldest first: a JSON
-- array of objects with at, relay, sink, answer and duration_ms, in ASCII and at most 4,000 bytes
-- long. NULL for all other messages.
ALTER TABLE {{.Pending}} ADD attempt_log nvarchar(max) COLLATE Latin1_General_100_BIN2;

ALTER TABLE {{.Held}} ADD attempt_log nvarchar(max) COLLATE Latin1_General_100_BIN2;

-- Within EXEC, as ALTER VIEW has to be a batch of its own.
EXEC (N'ALTER VIEW {{.Messages}} AS
SELECT id, lane,
       CASE WHEN claimed_until > SYSUTCDATETIME() THEN N''claimed''
            WHEN available_at > SYSUTCDATETIME() THEN N''scheduled''
            ELSE N''pending'' END AS state,
       message_id, topic, message_key, payload, payload_text, headers, priority, sinks,
       attempts, crashes, available_at, expires_at, last_error, 0 AS holds,
       claimed_by, claim_token, claimed_until, created_at,
       CONVERT(datetime2(7), NULL) AS finished_at, CONVERT(nvarchar(max), NULL) AS receipt, CONVERT(nvarchar(255), NULL) AS relay, attempt_log
FROM {{.Pending}}
UNION ALL
SELECT id, lane,
       CASE WHEN state = N''scheduled'' AND due_at <= SYSUTCDATETIME() THEN N''pending'' ELSE state END,
       message_id, topic, message_key, payload, payload_text, headers, priority, sinks,
       attempts, crashes, available_at, expires_at, last_error, holds,
       NULL, NULL, NULL, created_at,
       NULL, NULL, NULL, attempt_log
FROM {{.Held}}
UNION ALL
SELECT id, lane, N''done'',
       message_id, topic, message_key, payload, payload_text, headers, priority, sinks,
       attempts, crashes, available_at, expires_at, last_error, 0,
       NULL, NULL, NULL, created_at,
       finished_at, receipt, relay, NULL
FROM {{.Done}}');

UPDATE {{.Settings}} SET value = '2' WHERE name = 'schema';

-- The step only adds, so releases that know version 1 can use these tables.
INSERT INTO {{.Settings}} (name, value) VALUES (N'schema_compatible', N'1');

-- +goose Down

UPDATE {{.Settings}} SET value = '1' WHERE name = 'schema';

DELETE FROM {{.Settings}} WHERE name = N'schema_compatible';

EXEC (N'ALTER VIEW {{.Messages}} AS
SELECT id, lane,
       CASE WHEN claimed_until > SYSUTCDATETIME() THEN N''claimed''
            WHEN available_at > SYSUTCDATETIME() THEN N''scheduled''
            ELSE N''pending'' END AS state,
       message_id, topic, message_key, payload, payload_text, headers, priority, sinks,
       attempts, crashes, available_at, expires_at, last_error, 0 AS holds,
       claimed_by, claim_token, claimed_until, created_at,
       CONVERT(datetime2(7), NULL) AS finished_at, CONVERT(nvarchar(max), NULL) AS receipt, CONVERT(nvarchar(255), NULL) AS relay
FROM {{.Pending}}
UNION ALL
SELECT id, lane,
       CASE WHEN state = N''scheduled'' AND due_at <= SYSUTCDATETIME() THEN N''pending'' ELSE state END,
       message_id, topic, message_key, payload, payload_text, headers, priority, sinks,
       attempts, crashes, available_at, expires_at, last_error, holds,
       NULL, NULL, NULL, created_at,
       NULL, NULL, NULL
FROM {{.Held}}
UNION ALL
SELECT id, lane, N''done'',
       message_id, topic, message_key, payload, payload_text, headers, priority, sinks,
       attempts, crashes, available_at, expires_at, last_error, 0,
       NULL, NULL, NULL, created_at,
       finished_at, receipt, relay
FROM {{.Done}}');

ALTER TABLE {{.Held}} DROP COLUMN attempt_log;

ALTER TABLE {{.Pending}} DROP COLUMN attempt_log;
