-- +goose Up

-- The ids. The number that was given out last is kept in memory and written
-- down for a hundred at a time: they stay in order, and a crash leaves a gap.
CREATE SEQUENCE {{.Index "id"}} AS bigint START WITH 0 INCREMENT BY 1 MINVALUE 0 NO CYCLE CACHE 100;

-- A sequence that gave nothing shows its start as the number that it gave last:
-- so it starts below the first id, and gives that away.
EXEC (N'SELECT NEXT VALUE FOR {{.Index "id"}} AS nothing');

-- The rows to be delivered now. A producer needs the right to INSERT here, and
-- no other.
CREATE TABLE {{.Hot}} (
    id            bigint NOT NULL DEFAULT (NEXT VALUE FOR {{.Index "id"}}),
    -- A byte of a hash of the key's code units. DATALENGTH tells an empty key
    -- from one of blanks, which = doesn't.
    lane          AS CONVERT(smallint, CASE WHEN message_key IS NULL OR DATALENGTH(message_key) = 0 THEN id & 63
                      ELSE CONVERT(int, SUBSTRING(HASHBYTES('SHA2_256', message_key), 1, 1)) & 63 END) PERSISTED NOT NULL,
    message_id    uniqueidentifier NOT NULL DEFAULT NEWID(),
    topic         nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    message_key   nvarchar(255) COLLATE Latin1_General_100_BIN2,
    payload       varbinary(max),
    payload_text  nvarchar(max) COLLATE Latin1_General_100_BIN2,
    headers       nvarchar(max) COLLATE Latin1_General_100_BIN2,
    priority      smallint NOT NULL DEFAULT 0,
    attempts      int NOT NULL DEFAULT 0,
    crashes       int NOT NULL DEFAULT 0,
    available_at  datetime2(7),
    last_error    nvarchar(max) COLLATE Latin1_General_100_BIN2,
    claimed_by    nvarchar(255) COLLATE Latin1_General_100_BIN2,
    claim_token   nvarchar(255) COLLATE Latin1_General_100_BIN2,
    claimed_until datetime2(7),
    created_at    datetime2(7) NOT NULL DEFAULT SYSUTCDATETIME(),
    -- Makes a transaction that inserts show up in MIN_ACTIVE_ROWVERSION.
    version       rowversion NOT NULL,
    CONSTRAINT {{.IndexName "key"}} PRIMARY KEY CLUSTERED (lane, id) WITH (ALLOW_PAGE_LOCKS = OFF),
    CONSTRAINT {{.IndexName "topic_size"}} CHECK (DATALENGTH(topic) > 0),
    CONSTRAINT {{.IndexName "one_payload"}} CHECK (payload IS NULL OR payload_text IS NULL),
    CONSTRAINT {{.IndexName "headers_object"}} CHECK (headers IS NULL OR ISJSON(headers) = 1
        AND LEFT(LTRIM(REPLACE(REPLACE(REPLACE(headers, NCHAR(9), N' '), NCHAR(10), N' '), NCHAR(13), N' ')), 1) = N'{')
);

-- A lock of the whole table, or of a page, would stop writers, and hide rows from
-- readers that pass over what is locked.
ALTER TABLE {{.Hot}} SET (LOCK_ESCALATION = DISABLE);

-- The rows that are not to be delivered now. A row keeps its id and lane. Here, and
-- among the delivered ones, an id may be there again: after a failover, or where the
-- numbering has begun anew, it is given to another message. There is no CHECK: a table
-- that has one can't take rows from OUTPUT.
CREATE TABLE {{.Held}} (
    id            bigint NOT NULL,
    lane          smallint NOT NULL,
    state         nvarchar(10) COLLATE Latin1_General_100_BIN2 NOT NULL,
    message_id    uniqueidentifier NOT NULL,
    topic         nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    message_key   nvarchar(255) COLLATE Latin1_General_100_BIN2,
    payload       varbinary(max),
    payload_text  nvarchar(max) COLLATE Latin1_General_100_BIN2,
    headers       nvarchar(max) COLLATE Latin1_General_100_BIN2,
    priority      smallint NOT NULL,
    attempts      int NOT NULL,
    crashes       int NOT NULL,
    available_at  datetime2(7),
    last_error    nvarchar(max) COLLATE Latin1_General_100_BIN2,
    created_at    datetime2(7) NOT NULL,
    -- No time means at once.
    due_at        AS ISNULL(available_at, CONVERT(datetime2(7), '0001-01-01T00:00:00', 126)) PERSISTED NOT NULL,
    CONSTRAINT {{.IndexName "held_key"}} PRIMARY KEY CLUSTERED (lane, id, message_id) WITH (ALLOW_PAGE_LOCKS = OFF)
);

ALTER TABLE {{.Held}} SET (LOCK_ESCALATION = DISABLE);

CREATE INDEX {{.IndexName "held_due"}} ON {{.Held}} (due_at, id) WHERE state <> N'error' WITH (ALLOW_PAGE_LOCKS = OFF);

CREATE INDEX {{.IndexName "held_retry"}} ON {{.Held}} (lane, message_key, id) INCLUDE (topic) WHERE state = N'retry' WITH (ALLOW_PAGE_LOCKS = OFF);

CREATE INDEX {{.IndexName "held_error"}} ON {{.Held}} (id) WHERE state = N'error' WITH (ALLOW_PAGE_LOCKS = OFF);

-- The delivered rows, kept for the retention.
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
    attempts      int NOT NULL,
    crashes       int NOT NULL,
    available_at  datetime2(7),
    last_error    nvarchar(max) COLLATE Latin1_General_100_BIN2,
    created_at    datetime2(7) NOT NULL,
    finished_at   datetime2(7) NOT NULL,
    receipt       nvarchar(max) COLLATE Latin1_General_100_BIN2,
    relay         nvarchar(255) COLLATE Latin1_General_100_BIN2,
    CONSTRAINT {{.IndexName "done_key"}} PRIMARY KEY CLUSTERED (id, message_id)
);

ALTER TABLE {{.Done}} SET (LOCK_ESCALATION = DISABLE);

CREATE INDEX {{.IndexName "done_finished"}} ON {{.Done}} (finished_at);

-- The lanes and their leases. A settle locks a lane in the index of fences and owners
-- alone, which a renewal doesn't change, so that neither waits for the other.
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

CREATE TABLE {{.Relays}} (
    name      nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    host      nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    version   nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    claim     nvarchar(10) COLLATE Latin1_General_100_BIN2 NOT NULL,
    since     datetime2(7) NOT NULL,
    last_heartbeat datetime2(7) NOT NULL,
    until     datetime2(7) NOT NULL,
    CONSTRAINT {{.IndexName "relays_key"}} PRIMARY KEY CLUSTERED (name) WITH (ALLOW_PAGE_LOCKS = OFF)
);

CREATE TABLE {{.Settings}} (
    name  nvarchar(64) COLLATE Latin1_General_100_BIN2 NOT NULL,
    value nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    CONSTRAINT {{.IndexName "settings_key"}} PRIMARY KEY CLUSTERED (name) WITH (ALLOW_PAGE_LOCKS = OFF)
);

INSERT INTO {{.Settings}} (name, value) VALUES (N'schema', N'1');

-- Within EXEC, as a view is made by a batch of its own.
EXEC (N'CREATE VIEW {{.Messages}} AS
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

-- +goose Down

DROP VIEW {{.Messages}};

DROP TABLE {{.Settings}};

DROP TABLE {{.Relays}};

DROP TABLE {{.Lanes}};

DROP TABLE {{.Done}};

DROP TABLE {{.Held}};

DROP TABLE {{.Hot}};

DROP SEQUENCE {{.Index "id"}};
