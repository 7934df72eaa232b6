-- +goose Up

-- Scheduled messages by their id, so that they can be cancelled: in the hot table a
-- producer of others pays nothing for it.
CREATE INDEX {{.IndexName "scheduled"}} ON {{.Hot}} (message_id, available_at) WHERE available_at IS NOT NULL WITH (ALLOW_PAGE_LOCKS = OFF);

CREATE INDEX {{.IndexName "held_message"}} ON {{.Held}} (message_id, available_at) WITH (ALLOW_PAGE_LOCKS = OFF);

-- The ids of messages whose writers want no duplicates. The token tells those of one
-- write from others. What is there is ignored, as an error may end a transaction.
CREATE TABLE {{.IDs}} (
    message_id  uniqueidentifier NOT NULL,
    write_token bigint NOT NULL DEFAULT 0,
    written_at  datetime2(7) NOT NULL DEFAULT SYSUTCDATETIME(),
    CONSTRAINT {{.IndexName "ids_key"}} PRIMARY KEY CLUSTERED (message_id) WITH (IGNORE_DUP_KEY = ON, ALLOW_PAGE_LOCKS = OFF)
);

ALTER TABLE {{.IDs}} SET (LOCK_ESCALATION = DISABLE);

CREATE INDEX {{.IndexName "ids_written"}} ON {{.IDs}} (written_at) WITH (ALLOW_PAGE_LOCKS = OFF);

-- What operators have put in force, for all relays: a sink, a topic, a key or a relay that is
-- paused ('sink', 'topic', 'key', 'relay'), and how many messages a second a sink gets at most
-- ('limit'). It ends when it is deleted, or at its time.
CREATE TABLE {{.Controls}} (
    kind    nvarchar(16) COLLATE Latin1_General_100_BIN2 NOT NULL,
    name    nvarchar(400) COLLATE Latin1_General_100_BIN2 NOT NULL,
    rate    bigint,
    ends_at datetime2(7),
    made_by nvarchar(255) COLLATE Latin1_General_100_BIN2,
    made_at datetime2(7) NOT NULL,
    reason  nvarchar(255) COLLATE Latin1_General_100_BIN2,
    CONSTRAINT {{.IndexName "controls_key"}} PRIMARY KEY CLUSTERED (kind, name) WITH (ALLOW_PAGE_LOCKS = OFF)
);

-- What operators have done. One without a count is being done, or broke off.
CREATE TABLE {{.Actions}} (
    id      char(36) NOT NULL,
    made_at datetime2(7) NOT NULL,
    made_by nvarchar(255) COLLATE Latin1_General_100_BIN2,
    action  nvarchar(16) COLLATE Latin1_General_100_BIN2 NOT NULL,
    target  nvarchar(1000) COLLATE Latin1_General_100_BIN2,
    reason  nvarchar(255) COLLATE Latin1_General_100_BIN2,
    changed bigint,
    CONSTRAINT {{.IndexName "actions_key"}} PRIMARY KEY CLUSTERED (id) WITH (ALLOW_PAGE_LOCKS = OFF)
);

-- When a message is too old to be sent, in UTC; none is never. One in the year 9999 has
-- been requeued after it had expired, and is sent however old it is.
ALTER TABLE {{.Hot}} ADD expires_at datetime2(7);

ALTER TABLE {{.Held}} ADD expires_at datetime2(7);

ALTER TABLE {{.Done}} ADD expires_at datetime2(7);

-- What a parked row does to its key: 0 nothing, 1 it holds it, and of such rows 2 is to be
-- parked without that, and 3 to be deleted.
ALTER TABLE {{.Held}} ADD holds smallint NOT NULL CONSTRAINT {{.IndexName "held_holds_zero"}} DEFAULT 0;

-- Which sinks still need the message, by their names with commas between; none is all those of
-- its topic. Among the held and the done rows a message may have one for each of its sinks.
ALTER TABLE {{.Hot}} ADD sinks nvarchar(400) COLLATE Latin1_General_100_BIN2 NOT NULL CONSTRAINT {{.IndexName "sinks_none"}} DEFAULT N'';

ALTER TABLE {{.Held}} ADD sinks nvarchar(400) COLLATE Latin1_General_100_BIN2 NOT NULL CONSTRAINT {{.IndexName "held_sinks_none"}} DEFAULT N'';

ALTER TABLE {{.Done}} ADD sinks nvarchar(400) COLLATE Latin1_General_100_BIN2 NOT NULL CONSTRAINT {{.IndexName "done_sinks_none"}} DEFAULT N'';

ALTER TABLE {{.Held}} DROP CONSTRAINT {{.IndexName "held_key"}};

ALTER TABLE {{.Done}} DROP CONSTRAINT {{.IndexName "done_key"}};

EXEC (N'ALTER TABLE {{.Held}} ADD CONSTRAINT {{.IndexName "held_key"}} PRIMARY KEY CLUSTERED (lane, id, message_id, sinks) WITH (ALLOW_PAGE_LOCKS = OFF)');

EXEC (N'ALTER TABLE {{.Done}} ADD CONSTRAINT {{.IndexName "done_key"}} PRIMARY KEY CLUSTERED (id, message_id, sinks)');

-- Within EXEC, as a batch is read as a whole before it adds the column.
EXEC (N'CREATE INDEX {{.IndexName "held_holds"}} ON {{.Held}} (lane, message_key, id) INCLUDE (topic, state) WHERE holds > 0 WITH (ALLOW_PAGE_LOCKS = OFF)');

-- The same: a view is changed by a batch of its own.
EXEC (N'ALTER VIEW {{.Messages}} AS
SELECT id, lane,
       CASE WHEN claimed_until > SYSUTCDATETIME() THEN N''claimed''
            WHEN available_at > SYSUTCDATETIME() THEN N''scheduled''
            ELSE N''pending'' END AS state,
       message_id, topic, message_key, payload, payload_text, headers, priority,
       attempts, crashes, available_at, last_error,
       claimed_by, claim_token, claimed_until, created_at,
       CONVERT(datetime2(7), NULL) AS finished_at, CONVERT(nvarchar(max), NULL) AS receipt, CONVERT(nvarchar(255), NULL) AS relay, expires_at, 0 AS holds, sinks
FROM {{.Hot}}
UNION ALL
SELECT id, lane,
       CASE WHEN state = N''scheduled'' AND due_at <= SYSUTCDATETIME() THEN N''pending'' ELSE state END,
       message_id, topic, message_key, payload, payload_text, headers, priority,
       attempts, crashes, available_at, last_error,
       NULL, NULL, NULL, created_at, NULL, NULL, NULL, expires_at, holds, sinks
FROM {{.Held}}
UNION ALL
SELECT id, lane, N''done'',
       message_id, topic, message_key, payload, payload_text, headers, priority,
       attempts, crashes, available_at, last_error,
       NULL, NULL, NULL, created_at, finished_at, receipt, relay, expires_at, 0, sinks
FROM {{.Done}}');

-- A replay of messages is a line of JSON.
ALTER TABLE {{.Settings}} ALTER COLUMN value nvarchar(4000) COLLATE Latin1_General_100_BIN2 NOT NULL;

-- What a relay tells the others of itself, in JSON: its sinks and routes, their fingerprint, and
-- whether it takes part.
ALTER TABLE {{.Relays}} ADD setup nvarchar(2000) COLLATE Latin1_General_100_BIN2 NOT NULL CONSTRAINT {{.IndexName "relays_setup_none"}} DEFAULT N'';

UPDATE {{.Settings}} SET value = N'2' WHERE name = N'schema';

-- +goose Down

UPDATE {{.Settings}} SET value = N'1' WHERE name = N'schema';

ALTER TABLE {{.Relays}} DROP CONSTRAINT {{.IndexName "relays_setup_none"}};

ALTER TABLE {{.Relays}} DROP COLUMN setup;

-- No replay goes on.
DELETE FROM {{.Settings}} WHERE name LIKE N'replay.%';

ALTER TABLE {{.Settings}} ALTER COLUMN value nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL;

-- What was to be skipped or deleted is parked as before.
UPDATE {{.Held}} SET state = N'error' WHERE holds > 0;

EXEC (N'ALTER VIEW {{.Messages}} AS
SELECT id, lane,
       CASE WHEN claimed_until > SYSUTCDATETIME() THEN N''claimed''
            WHEN available_at > SYSUTCDATETIME() THEN N''scheduled''
            ELSE N''pending'' END AS state,
       message_id, topic, message_key, payload, payload_text, headers, priority,
       attempts, crashes, available_at, last_error,
       claimed_by, claim_token, claimed_until, created_at,
       CONVERT(datetime2(7), NULL) AS finished_at, CONVERT(nvarchar(max), NULL) AS receipt, CONVERT(nvarchar(255), NULL) AS relay
FROM {{.Hot}}
UNION ALL
SELECT id, lane,
       CASE WHEN state = N''scheduled'' AND due_at <= SYSUTCDATETIME() THEN N''pending'' ELSE state END,
       message_id, topic, message_key, payload, payload_text, headers, priority,
       attempts, crashes, available_at, last_error,
       NULL, NULL, NULL, created_at, NULL, NULL, NULL
FROM {{.Held}}
UNION ALL
SELECT id, lane, N''done'',
       message_id, topic, message_key, payload, payload_text, headers, priority,
       attempts, crashes, available_at, last_error,
       NULL, NULL, NULL, created_at, finished_at, receipt, relay
FROM {{.Done}}');

-- A message is one row again, for all sinks of its topic: the pending one if there is one, or
-- else a retry, or else the parked one. What is lost is which sinks have it already, which get
-- it once more, and why others waited or refused it.
DELETE t FROM {{.Held}} AS t WHERE t.sinks <> N'' AND (
    EXISTS (SELECT 1 FROM {{.Hot}} AS o WHERE o.lane = t.lane AND o.id = t.id AND o.message_id = t.message_id)
    OR EXISTS (SELECT 1 FROM {{.Held}} AS o WHERE o.lane = t.lane AND o.id = t.id AND o.message_id = t.message_id
        AND CONCAT(CASE o.state WHEN N'retry' THEN 1 WHEN N'error' THEN 2 ELSE 3 END, o.sinks)
          < CONCAT(CASE t.state WHEN N'retry' THEN 1 WHEN N'error' THEN 2 ELSE 3 END, t.sinks)));

DELETE t FROM {{.Done}} AS t WHERE t.sinks <> N'' AND (
    EXISTS (SELECT 1 FROM {{.Hot}} AS o WHERE o.lane = t.lane AND o.id = t.id AND o.message_id = t.message_id)
    OR EXISTS (SELECT 1 FROM {{.Held}} AS o WHERE o.lane = t.lane AND o.id = t.id AND o.message_id = t.message_id)
    OR EXISTS (SELECT 1 FROM {{.Done}} AS o WHERE o.id = t.id AND o.message_id = t.message_id AND o.sinks < t.sinks));

ALTER TABLE {{.Done}} DROP CONSTRAINT {{.IndexName "done_key"}}, {{.IndexName "done_sinks_none"}};

ALTER TABLE {{.Held}} DROP CONSTRAINT {{.IndexName "held_key"}}, {{.IndexName "held_sinks_none"}};

ALTER TABLE {{.Hot}} DROP CONSTRAINT {{.IndexName "sinks_none"}};

ALTER TABLE {{.Done}} DROP COLUMN sinks;

ALTER TABLE {{.Held}} DROP COLUMN sinks;

ALTER TABLE {{.Hot}} DROP COLUMN sinks;

ALTER TABLE {{.Held}} ADD CONSTRAINT {{.IndexName "held_key"}} PRIMARY KEY CLUSTERED (lane, id, message_id) WITH (ALLOW_PAGE_LOCKS = OFF);

ALTER TABLE {{.Done}} ADD CONSTRAINT {{.IndexName "done_key"}} PRIMARY KEY CLUSTERED (id, message_id);

DROP INDEX {{.IndexName "held_holds"}} ON {{.Held}};

ALTER TABLE {{.Held}} DROP CONSTRAINT {{.IndexName "held_holds_zero"}};

ALTER TABLE {{.Held}} DROP COLUMN holds;

ALTER TABLE {{.Done}} DROP COLUMN expires_at;

ALTER TABLE {{.Held}} DROP COLUMN expires_at;

ALTER TABLE {{.Hot}} DROP COLUMN expires_at;

DROP TABLE {{.Actions}};

DROP TABLE {{.Controls}};

DROP TABLE {{.IDs}};

DROP INDEX {{.IndexName "held_message"}} ON {{.Held}};

DROP INDEX {{.IndexName "scheduled"}} ON {{.Hot}};
