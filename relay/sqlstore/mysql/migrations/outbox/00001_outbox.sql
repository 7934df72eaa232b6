-- +goose NO TRANSACTION

-- +goose Up

-- Each CREATE commits immediately. If this script stops halfway, run it again: a table that
-- exists is left as it is.

-- Messages to deliver now. A producer needs the right to INSERT here and no other right. All
-- times in all tables are in UTC: write utc_timestamp(6) + INTERVAL 1 HOUR, never now().
CREATE TABLE {{.Pending}} (
    -- Unsigned, so that the server refuses an id below 0: a CHECK can't name this column.
    id            bigint UNSIGNED NOT NULL AUTO_INCREMENT,
    message_id    char(36) CHARACTER SET ascii COLLATE ascii_general_ci NOT NULL DEFAULT (uuid()),
    -- The topic and the key have one character more than is allowed, so that the constraints
    -- below refuse a value that a session without strict mode has cut off.
    topic         varchar(256) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    message_key   varchar(256) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    -- A hash of the key, or of the message_id if there is no key: the highest six bits of 32.
    -- Producers never set it.
    lane          smallint NOT NULL DEFAULT (
        crc32(CASE WHEN octet_length(message_key) > 0 THEN message_key ELSE message_id END) >> 26),
    payload       longblob,
    payload_text  longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    headers       longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    priority      smallint NOT NULL DEFAULT 0,
    -- The names of the sinks that still need the message, separated by commas. Empty means all
    -- sinks of the topic.
    sinks         varchar(400) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '',
    attempts      int NOT NULL DEFAULT 0,
    crashes       int NOT NULL DEFAULT 0,
    available_at  datetime(6),
    -- The message is not sent after this time. NULL means never too old. A time in the year 9999
    -- marks a message that an operator requeued after it had expired: it is sent at any age.
    expires_at    datetime(6),
    last_error    longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    claimed_by    varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    claim_token   varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    claimed_until datetime(6),
    created_at    datetime(6) NOT NULL DEFAULT (utc_timestamp(6)),
    -- The priority, negated: for indexes that only ascend.
    urgency       smallint GENERATED ALWAYS AS (-1 - priority) STORED,
    PRIMARY KEY (lane, id),
    KEY id (id),
    CONSTRAINT {{.IndexName "message_id_is_a_uuid"}} CHECK (message_id LIKE '________-____-____-____-____________' AND unhex(replace(message_id, '-', '')) IS NOT NULL),
    CONSTRAINT {{.IndexName "topic_size"}} CHECK (octet_length(topic) BETWEEN 1 AND 255),
    CONSTRAINT {{.IndexName "key_size"}} CHECK (octet_length(message_key) <= 255),
    CONSTRAINT {{.IndexName "lane_of_key"}} CHECK (lane BETWEEN 0 AND 63 AND (lane = crc32(message_key) >> 26 OR coalesce(octet_length(message_key), 0) = 0)),
    CONSTRAINT {{.IndexName "one_payload"}} CHECK (payload IS NULL OR payload_text IS NULL),
    CONSTRAINT {{.IndexName "headers_object"}} CHECK (json_valid(headers) AND json_type(headers) = 'OBJECT'),
    CONSTRAINT {{.IndexName "counts_range"}} CHECK (attempts >= 0 AND crashes >= 0),
    -- A date that exists: a session without strict mode can write 0000-00-00, 2026-00-15 or 2026-02-31.
    CONSTRAINT {{.IndexName "real_available_at"}} CHECK (year(available_at) > 0 AND month(available_at) > 0 AND dayofmonth(available_at) BETWEEN 1 AND dayofmonth(last_day(available_at))),
    CONSTRAINT {{.IndexName "real_expires_at"}} CHECK (year(expires_at) > 0 AND month(expires_at) > 0 AND dayofmonth(expires_at) BETWEEN 1 AND dayofmonth(last_day(expires_at))),
    CONSTRAINT {{.IndexName "real_created_at"}} CHECK (year(created_at) > 0 AND month(created_at) > 0 AND dayofmonth(created_at) BETWEEN 1 AND dayofmonth(last_day(created_at)))
) ENGINE = InnoDB;

-- Messages that wait for a time or for an operator. A row keeps its id and lane. Here and in the
-- table of delivered messages an id may occur twice: after a failover, or when AUTO_INCREMENT was
-- reset, the database gives the id to another message.
CREATE TABLE {{.Held}} (
    id            bigint NOT NULL,
    lane          smallint NOT NULL,
    state         varchar(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    -- The effect of a parked message on its key: 0 none, 1 it blocks the key, 2 it blocks the key
    -- until a relay parks it without blocking, 3 it blocks the key until a relay deletes it.
    holds         smallint NOT NULL DEFAULT 0,
    message_id    char(36) CHARACTER SET ascii COLLATE ascii_general_ci NOT NULL,
    topic         varchar(256) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    message_key   varchar(256) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    payload       longblob,
    payload_text  longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    headers       longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    priority      smallint NOT NULL,
    sinks         varchar(400) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '',
    attempts      int NOT NULL,
    crashes       int NOT NULL,
    available_at  datetime(6),
    expires_at    datetime(6),
    last_error    longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    created_at    datetime(6) NOT NULL,
    -- The time when the message is due: no available_at means now, and a parked message is never due.
    due_at        datetime(6) GENERATED ALWAYS AS (
        CASE WHEN state = 'error' THEN NULL ELSE coalesce(available_at, TIMESTAMP'0001-01-01 00:00:00') END) STORED,
    -- The lane, in rows that block their keys.
    blocks        smallint GENERATED ALWAYS AS (CASE WHEN state = 'retry' OR holds > 0 THEN lane END) VIRTUAL,
    -- Each UPDATE increments it, so that servers that count changed rows count every row.
    changes       int NOT NULL DEFAULT 0,
    -- One row for each sink of the message that waits on its own.
    PRIMARY KEY (lane, id, message_id, sinks),
    KEY held_due (due_at, id),
    KEY held_retry (blocks, message_key),
    KEY held_id (state, id),
    KEY held_message (message_id), -- to cancel a scheduled message
    CONSTRAINT {{.IndexName "held_state"}} CHECK (state IN ('scheduled', 'retry', 'error')),
    CONSTRAINT {{.IndexName "held_real_available"}} CHECK (year(available_at) > 0 AND month(available_at) > 0 AND dayofmonth(available_at) BETWEEN 1 AND dayofmonth(last_day(available_at))),
    CONSTRAINT {{.IndexName "held_real_expires"}} CHECK (year(expires_at) > 0 AND month(expires_at) > 0 AND dayofmonth(expires_at) BETWEEN 1 AND dayofmonth(last_day(expires_at))),
    CONSTRAINT {{.IndexName "held_real_created"}} CHECK (year(created_at) > 0 AND month(created_at) > 0 AND dayofmonth(created_at) BETWEEN 1 AND dayofmonth(last_day(created_at)))
) ENGINE = InnoDB;

-- Delivered messages, kept for the retention.
CREATE TABLE {{.Done}} (
    id            bigint NOT NULL,
    lane          smallint NOT NULL,
    message_id    char(36) CHARACTER SET ascii COLLATE ascii_general_ci NOT NULL,
    topic         varchar(256) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    message_key   varchar(256) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    payload       longblob,
    payload_text  longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    headers       longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    priority      smallint NOT NULL,
    -- Bytes: as text in the primary key it made each delivered row an eighth dearer to write.
    sinks         varbinary(400) NOT NULL DEFAULT '',
    attempts      int NOT NULL,
    crashes       int NOT NULL,
    available_at  datetime(6),
    expires_at    datetime(6),
    last_error    longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    created_at    datetime(6) NOT NULL,
    finished_at   datetime(6) NOT NULL,
    -- What the sink answered, such as a partition and an offset.
    receipt       longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    relay         varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    PRIMARY KEY (id, message_id, sinks),
    KEY done_finished (finished_at)
) ENGINE = InnoDB;

-- The message ids of writers that refuse duplicates. The token tells the ids of one write from
-- those of others.
CREATE TABLE {{.IDs}} (
    message_id  char(36) CHARACTER SET ascii COLLATE ascii_general_ci NOT NULL PRIMARY KEY,
    write_token bigint NOT NULL DEFAULT 0,
    written_at  datetime(6) NOT NULL DEFAULT (utc_timestamp(6)),
    KEY ids_written (written_at)
) ENGINE = InnoDB;

-- The lanes and their leases.
CREATE TABLE {{.Lanes}} (
    lane    smallint NOT NULL PRIMARY KEY,
    owner   varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    fence   bigint NOT NULL DEFAULT 0,
    until   datetime(6),
    marks   longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    journal longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    crashes int NOT NULL DEFAULT 0,
    CONSTRAINT {{.IndexName "lane_number"}} CHECK (lane BETWEEN 0 AND 63)
) ENGINE = InnoDB;

INSERT IGNORE INTO {{.Lanes}} (lane)
SELECT a.n + 8 * b.n FROM
    (SELECT 0 AS n UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6 UNION SELECT 7) AS a,
    (SELECT 0 AS n UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6 UNION SELECT 7) AS b;

-- Row locks of the lanes. Relays that settle messages of a lane share its lock; a relay that takes
-- the lane over locks it exclusively. A renewal of a lease locks nothing here. The row of lane 64
-- serialises relays that take lanes or rows, on servers without SKIP LOCKED.
CREATE TABLE {{.LaneLocks}} (
    lane smallint NOT NULL PRIMARY KEY
) ENGINE = InnoDB;

INSERT IGNORE INTO {{.LaneLocks}} (lane)
SELECT a.n + 8 * b.n FROM
    (SELECT 0 AS n UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6 UNION SELECT 7) AS a,
    (SELECT 0 AS n UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6 UNION SELECT 7) AS b
UNION SELECT 64;

-- Row locks of keys, for producers that lock the keys they write: the slot is the highest ten
-- bits of the key's crc32.
CREATE TABLE {{.KeyLocks}} (
    slot smallint NOT NULL PRIMARY KEY
) ENGINE = InnoDB;

INSERT IGNORE INTO {{.KeyLocks}} (slot)
SELECT a.n + 8 * b.n + 64 * c.n + 512 * d.n FROM
    (SELECT 0 AS n UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6 UNION SELECT 7) AS a,
    (SELECT 0 AS n UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6 UNION SELECT 7) AS b,
    (SELECT 0 AS n UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6 UNION SELECT 7) AS c,
    (SELECT 0 AS n UNION SELECT 1) AS d;

-- The relays that run.
CREATE TABLE {{.Relays}} (
    name           varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL PRIMARY KEY,
    host           varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    version        varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    claim          varchar(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    -- JSON: the relay's sinks and routes, their fingerprint, and whether it takes lanes.
    setup          varchar(2000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '',
    since          datetime(6) NOT NULL,
    last_heartbeat datetime(6) NOT NULL,
    until          datetime(6) NOT NULL
) ENGINE = InnoDB;

-- What operators have put in force for all relays: the pause of a sink, topic, key or relay
-- (kind 'sink', 'topic', 'key', 'relay'), or the highest number of messages a second that a sink
-- gets (kind 'limit'). A control ends when its row is deleted, or at ends_at.
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

-- The log of what operators did. An action without a count is under way, or was interrupted.
CREATE TABLE {{.Actions}} (
    id      char(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
    made_at datetime(6) NOT NULL,
    made_by varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    action  varchar(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    target  varchar(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    reason  varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    changed bigint
) ENGINE = InnoDB;

-- All messages, each with its state.
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

-- A relay looks here first: if this table has its row, everything above exists.
CREATE TABLE {{.Settings}} (
    name  varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
    value longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL
) ENGINE = InnoDB;

INSERT IGNORE INTO {{.Settings}} (name, value) VALUES ('schema', '1');

-- +goose Down

DROP TABLE {{.Settings}};

DROP VIEW {{.Messages}};

DROP TABLE {{.Actions}};

DROP TABLE {{.Controls}};

DROP TABLE {{.Relays}};

DROP TABLE {{.KeyLocks}};

DROP TABLE {{.LaneLocks}};

DROP TABLE {{.Lanes}};

DROP TABLE {{.IDs}};

DROP TABLE {{.Done}};

DROP TABLE {{.Held}};

DROP TABLE {{.Pending}};
