-- +goose Up

-- The ids. The server keeps the last id in memory, and writes it down for a hundred at a time:
-- ids stay in order, and a crash leaves a gap.
CREATE SEQUENCE {{.Index "id"}} AS bigint START WITH 0 INCREMENT BY 1 MINVALUE 0 NO CYCLE CACHE 100;

-- A sequence that was never used reports its start as its last value. So it starts below the
-- first id, and this statement uses up that value.
EXEC (N'SELECT NEXT VALUE FOR {{.Index "id"}} AS nothing');

-- Messages to deliver now. A producer needs the right to INSERT here and no other right. All
-- times in all tables are in UTC.
CREATE TABLE {{.Pending}} (
    id            bigint NOT NULL DEFAULT (NEXT VALUE FOR {{.Index "id"}}),
    -- A hash of the key, 0 to 63; messages without a key are spread by their ids. DATALENGTH
    -- tells an empty key from one of blanks, which = does not.
    lane          AS CONVERT(smallint, CASE WHEN message_key IS NULL OR DATALENGTH(message_key) = 0 THEN id & 63
                      ELSE CONVERT(int, SUBSTRING(HASHBYTES('SHA2_256', message_key), 1, 1)) & 63 END) PERSISTED NOT NULL,
    message_id    uniqueidentifier NOT NULL DEFAULT NEWID(),
    topic         nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    message_key   nvarchar(255) COLLATE Latin1_General_100_BIN2,
    payload       varbinary(max),
    payload_text  nvarchar(max) COLLATE Latin1_General_100_BIN2,
    headers       nvarchar(max) COLLATE Latin1_General_100_BIN2,
    priority      smallint NOT NULL DEFAULT 0,
    -- The names of the sinks that still need the message, separated by commas. Empty means all
    -- sinks of the topic.
    sinks         nvarchar(400) COLLATE Latin1_General_100_BIN2 NOT NULL DEFAULT N'',
    attempts      int NOT NULL DEFAULT 0,
    crashes       int NOT NULL DEFAULT 0,
    available_at  datetime2(7),
    -- The message is not sent after this time. NULL means never too old. A time in the year 9999
    -- marks a message that an operator requeued after it had expired: it is sent at any age.
    expires_at    datetime2(7),
    last_error    nvarchar(max) COLLATE Latin1_General_100_BIN2,
    claimed_by    nvarchar(255) COLLATE Latin1_General_100_BIN2,
    claim_token   nvarchar(255) COLLATE Latin1_General_100_BIN2,
    claimed_until datetime2(7),
    created_at    datetime2(7) NOT NULL DEFAULT SYSUTCDATETIME(),
    -- Makes MIN_ACTIVE_ROWVERSION show a transaction that inserts.
    version       rowversion NOT NULL,
    CONSTRAINT {{.IndexName "key"}} PRIMARY KEY CLUSTERED (lane, id) WITH (ALLOW_PAGE_LOCKS = OFF),
    CONSTRAINT {{.IndexName "id_range"}} CHECK (id BETWEEN 1 AND 10000000000000000),
    CONSTRAINT {{.IndexName "counts_range"}} CHECK (attempts >= 0 AND crashes >= 0),
    CONSTRAINT {{.IndexName "topic_size"}} CHECK (DATALENGTH(topic) > 0),
    CONSTRAINT {{.IndexName "one_payload"}} CHECK (payload IS NULL OR payload_text IS NULL),
    CONSTRAINT {{.IndexName "headers_object"}} CHECK (headers IS NULL OR ISJSON(headers) = 1
        AND LEFT(LTRIM(REPLACE(REPLACE(REPLACE(headers, NCHAR(9), N' '), NCHAR(10), N' '), NCHAR(13), N' ')), 1) = N'{')
);

-- A lock of the whole table, or of a page, would stop writers, and hide rows from readers that
-- skip locked rows.
ALTER TABLE {{.Pending}} SET (LOCK_ESCALATION = DISABLE);

-- Scheduled messages by message_id, to cancel them. Other messages have no entry.
CREATE INDEX {{.IndexName "scheduled"}} ON {{.Pending}} (message_id, available_at) WHERE available_at IS NOT NULL WITH (ALLOW_PAGE_LOCKS = OFF);

-- Messages that wait for a time or for an operator. A row keeps its id and lane. Here and in the
-- table of delivered messages an id may occur twice: after a failover, or when the sequence was
-- reset, the database gives the id to another message. The table has no CHECK, as OUTPUT INTO
-- refuses a table that has one.
CREATE TABLE {{.Held}} (
    id            bigint NOT NULL,
    lane          smallint NOT NULL,
    state         nvarchar(10) COLLATE Latin1_General_100_BIN2 NOT NULL,
    -- The effect of a parked message on its key: 0 none, 1 it blocks the key, 2 it blocks the key
    -- until a relay parks it without blocking, 3 it blocks the key until a relay deletes it.
    holds         smallint NOT NULL DEFAULT 0,
    message_id    uniqueidentifier NOT NULL,
    topic         nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    message_key   nvarchar(255) COLLATE Latin1_General_100_BIN2,
    payload       varbinary(max),
    payload_text  nvarchar(max) COLLATE Latin1_General_100_BIN2,
    headers       nvarchar(max) COLLATE Latin1_General_100_BIN2,
    priority      smallint NOT NULL,
    sinks         nvarchar(400) COLLATE Latin1_General_100_BIN2 NOT NULL DEFAULT N'',
    attempts      int NOT NULL,
    crashes       int NOT NULL,
    available_at  datetime2(7),
    expires_at    datetime2(7),
    last_error    nvarchar(max) COLLATE Latin1_General_100_BIN2,
    created_at    datetime2(7) NOT NULL,
    -- The time when the message is due: no available_at means now.
    due_at        AS ISNULL(available_at, CONVERT(datetime2(7), '0001-01-01T00:00:00', 126)) PERSISTED NOT NULL,
    -- One row for each sink of the message that waits on its own.
    CONSTRAINT {{.IndexName "held_key"}} PRIMARY KEY CLUSTERED (lane, id, message_id, sinks) WITH (ALLOW_PAGE_LOCKS = OFF)
);

ALTER TABLE {{.Held}} SET (LOCK_ESCALATION = DISABLE);

CREATE INDEX {{.IndexName "held_due"}} ON {{.Held}} (due_at, id) WHERE state <> N'error' WITH (ALLOW_PAGE_LOCKS = OFF);

-- Messages that block their keys: by a retry, or as parked messages.
CREATE INDEX {{.IndexName "held_retry"}} ON {{.Held}} (lane, message_key, id) INCLUDE (topic) WHERE state = N'retry' WITH (ALLOW_PAGE_LOCKS = OFF);

CREATE INDEX {{.IndexName "held_holds"}} ON {{.Held}} (lane, message_key, id) INCLUDE (topic, state) WHERE holds > 0 WITH (ALLOW_PAGE_LOCKS = OFF);

CREATE INDEX {{.IndexName "held_error"}} ON {{.Held}} (id) WHERE state = N'error' WITH (ALLOW_PAGE_LOCKS = OFF);

CREATE INDEX {{.IndexName "held_message"}} ON {{.Held}} (message_id, available_at) WITH (ALLOW_PAGE_LOCKS = OFF);

-- Delivered messages, kept for the retention.
CREATE TABLE {{.Done}} (
    id            bigint NOT NULL,
    lane          smallint NOT NULL,
    message_id    uniqueidentifier NOT NULL,
    topic         nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    message_key   nvarchar(255) COLLATE Latin1_General_100_BIN2,
    payload       varbinary(max),
    payload_text  nvarchar(max) COLLATE Latin1_General_100_BIN2,
    headers       nvarchar(max) COLLATE Latin1_General_100_BIN2,
    priority      smallint NOT NULL,
    sinks         nvarchar(400) COLLATE Latin1_General_100_BIN2 NOT NULL DEFAULT N'',
    attempts      int NOT NULL,
    crashes       int NOT NULL,
    available_at  datetime2(7),
    expires_at    datetime2(7),
    last_error    nvarchar(max) COLLATE Latin1_General_100_BIN2,
    created_at    datetime2(7) NOT NULL,
    finished_at   datetime2(7) NOT NULL,
    -- What the sink answered, such as a partition and an offset.
    receipt       nvarchar(max) COLLATE Latin1_General_100_BIN2,
    relay         nvarchar(255) COLLATE Latin1_General_100_BIN2,
    CONSTRAINT {{.IndexName "done_key"}} PRIMARY KEY CLUSTERED (id, message_id, sinks)
);

ALTER TABLE {{.Done}} SET (LOCK_ESCALATION = DISABLE);

CREATE INDEX {{.IndexName "done_finished"}} ON {{.Done}} (finished_at);

-- The message ids of writers that refuse duplicates. The token tells the ids of one write from
-- those of others. An id that exists is ignored, as an error may end the transaction.
CREATE TABLE {{.IDs}} (
    message_id  uniqueidentifier NOT NULL,
    write_token bigint NOT NULL DEFAULT 0,
    written_at  datetime2(7) NOT NULL DEFAULT SYSUTCDATETIME(),
    CONSTRAINT {{.IndexName "ids_key"}} PRIMARY KEY CLUSTERED (message_id) WITH (IGNORE_DUP_KEY = ON, ALLOW_PAGE_LOCKS = OFF)
);

ALTER TABLE {{.IDs}} SET (LOCK_ESCALATION = DISABLE);

CREATE INDEX {{.IndexName "ids_written"}} ON {{.IDs}} (written_at) WITH (ALLOW_PAGE_LOCKS = OFF);

-- The lanes and their leases. A settlement locks a lane only in the index of fences and owners.
-- A renewal does not change that index, so neither waits for the other.
CREATE TABLE {{.Lanes}} (
    lane    smallint NOT NULL,
    owner   nvarchar(255) COLLATE Latin1_General_100_BIN2,
    fence   bigint NOT NULL DEFAULT 0,
    until   datetime2(7),
    marks   nvarchar(max) COLLATE Latin1_General_100_BIN2,
    journal nvarchar(max) COLLATE Latin1_General_100_BIN2,
    crashes int NOT NULL DEFAULT 0,
    CONSTRAINT {{.IndexName "lanes_key"}} PRIMARY KEY CLUSTERED (lane) WITH (ALLOW_PAGE_LOCKS = OFF),
    CONSTRAINT {{.IndexName "lanes_range"}} CHECK (lane BETWEEN 0 AND 63)
);

ALTER TABLE {{.Lanes}} SET (LOCK_ESCALATION = DISABLE);

CREATE UNIQUE INDEX {{.IndexName "lanes_fence"}} ON {{.Lanes}} (lane, fence) INCLUDE (owner) WITH (ALLOW_PAGE_LOCKS = OFF);

INSERT INTO {{.Lanes}} (lane)
SELECT a.n * 8 + b.n FROM (VALUES (0), (1), (2), (3), (4), (5), (6), (7)) AS a (n)
CROSS JOIN (VALUES (0), (1), (2), (3), (4), (5), (6), (7)) AS b (n);

-- The relays that run.
CREATE TABLE {{.Relays}} (
    name           nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    host           nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    version        nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    claim          nvarchar(10) COLLATE Latin1_General_100_BIN2 NOT NULL,
    -- JSON: the relay's sinks and routes, their fingerprint, and whether it takes lanes.
    setup          nvarchar(2000) COLLATE Latin1_General_100_BIN2 NOT NULL DEFAULT N'',
    since          datetime2(7) NOT NULL,
    last_heartbeat datetime2(7) NOT NULL,
    until          datetime2(7) NOT NULL,
    CONSTRAINT {{.IndexName "relays_key"}} PRIMARY KEY CLUSTERED (name) WITH (ALLOW_PAGE_LOCKS = OFF)
);

-- What operators have put in force for all relays: the pause of a sink, topic, key or relay
-- (kind 'sink', 'topic', 'key', 'relay'), or the highest number of messages a second that a sink
-- gets (kind 'limit'). A control ends when its row is deleted, or at ends_at.
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

-- The log of what operators did. An action without a count is under way, or was interrupted.
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

CREATE TABLE {{.Settings}} (
    name  nvarchar(64) COLLATE Latin1_General_100_BIN2 NOT NULL,
    value nvarchar(4000) COLLATE Latin1_General_100_BIN2 NOT NULL,
    CONSTRAINT {{.IndexName "settings_key"}} PRIMARY KEY CLUSTERED (name) WITH (ALLOW_PAGE_LOCKS = OFF)
);

INSERT INTO {{.Settings}} (name, value) VALUES (N'schema', N'1');

-- All messages, each with its state. Within EXEC, as CREATE VIEW has to be a batch of its own.
EXEC (N'CREATE VIEW {{.Messages}} AS
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

DROP SEQUENCE {{.Index "id"}};
