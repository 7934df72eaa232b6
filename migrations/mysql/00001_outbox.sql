-- +goose NO TRANSACTION

-- +goose Up

-- Each statement that makes something is committed at once. Where this stopped on
-- its way it is run again: what is there already is left as it is.

-- The rows to be delivered now. A producer needs the right to INSERT here, and
-- no other. All times are in UTC.
CREATE TABLE {{.Hot}} (
    id            bigint NOT NULL AUTO_INCREMENT,
    message_id    char(36) CHARACTER SET ascii COLLATE ascii_general_ci NOT NULL DEFAULT (uuid()),
    -- One character more than may be: what a session that isn't strict has cut
    -- off is refused.
    topic         varchar(256) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    message_key   varchar(256) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    -- Of the key's bytes, or of a random text; the highest six bits of 32. Never to
    -- be given by a producer.
    lane          smallint NOT NULL DEFAULT (
        crc32(CASE WHEN octet_length(message_key) > 0 THEN message_key ELSE message_id END) >> 26),
    payload       longblob,
    payload_text  longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    headers       longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    priority      smallint NOT NULL DEFAULT 0,
    attempts      int NOT NULL DEFAULT 0,
    crashes       int NOT NULL DEFAULT 0,
    -- In UTC, as all times here: utc_timestamp(6) + INTERVAL 1 HOUR, never now().
    available_at  datetime(6),
    last_error    longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    claimed_by    varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    claim_token   varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    claimed_until datetime(6),
    created_at    datetime(6) NOT NULL DEFAULT (utc_timestamp(6)),
    -- The order of priorities, highest first, for indexes that only ascend.
    urgency       smallint GENERATED ALWAYS AS (-1 - priority) STORED,
    PRIMARY KEY (lane, id),
    KEY id (id),
    CONSTRAINT {{.IndexName "message_id_is_a_uuid"}} CHECK (message_id LIKE '________-____-____-____-____________' AND unhex(replace(message_id, '-', '')) IS NOT NULL),
    CONSTRAINT {{.IndexName "topic_size"}} CHECK (octet_length(topic) BETWEEN 1 AND 255),
    CONSTRAINT {{.IndexName "key_size"}} CHECK (octet_length(message_key) <= 255),
    CONSTRAINT {{.IndexName "lane_of_key"}} CHECK (lane BETWEEN 0 AND 63 AND (lane = crc32(message_key) >> 26 OR coalesce(octet_length(message_key), 0) = 0)),
    CONSTRAINT {{.IndexName "one_payload"}} CHECK (payload IS NULL OR payload_text IS NULL),
    CONSTRAINT {{.IndexName "headers_object"}} CHECK (json_valid(headers) AND json_type(headers) = 'OBJECT'),
    CONSTRAINT {{.IndexName "a_real_time"}} CHECK (year(available_at) > 0)
) ENGINE = InnoDB;

-- The rows that are not to be delivered now. A row keeps its id and lane. Here, and
-- among the delivered ones, an id may be there again: after a failover, or where the
-- numbering has begun anew, it is given to another message.
CREATE TABLE {{.Held}} (
    id            bigint NOT NULL,
    lane          smallint NOT NULL,
    state         varchar(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    message_id    char(36) CHARACTER SET ascii COLLATE ascii_general_ci NOT NULL,
    topic         varchar(256) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    message_key   varchar(256) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    payload       longblob,
    payload_text  longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    headers       longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    priority      smallint NOT NULL,
    attempts      int NOT NULL,
    crashes       int NOT NULL,
    available_at  datetime(6),
    last_error    longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    created_at    datetime(6) NOT NULL,
    -- When it is due; no time means at once, and a parked row never is.
    due_at        datetime(6) GENERATED ALWAYS AS (
        CASE WHEN state = 'error' THEN NULL ELSE coalesce(available_at, TIMESTAMP'0001-01-01 00:00:00') END) STORED,
    -- Counts updates, so that each changes something, and is counted by servers
    -- that count changed rows.
    changes       int NOT NULL DEFAULT 0,
    PRIMARY KEY (lane, id, message_id),
    KEY held_due (due_at, id),
    KEY held_retry (state, lane, message_key),
    KEY held_id (state, id),
    CONSTRAINT {{.IndexName "held_state"}} CHECK (state IN ('scheduled', 'retry', 'error'))
) ENGINE = InnoDB;

-- The delivered rows, kept for the retention.
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
    attempts      int NOT NULL,
    crashes       int NOT NULL,
    available_at  datetime(6),
    last_error    longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    created_at    datetime(6) NOT NULL,
    finished_at   datetime(6) NOT NULL,
    receipt       longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    relay         varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    PRIMARY KEY (id, message_id),
    KEY done_finished (finished_at)
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

-- What is locked by those who settle rows of a lane, together, and by who takes
-- the lane over, alone; a renewal passes. Lane 64 is locked by those who take
-- lanes or rows, one after the other, where no lock can be passed over.
CREATE TABLE {{.LaneLocks}} (
    lane smallint NOT NULL PRIMARY KEY
) ENGINE = InnoDB;

INSERT IGNORE INTO {{.LaneLocks}} (lane)
SELECT a.n + 8 * b.n FROM
    (SELECT 0 AS n UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6 UNION SELECT 7) AS a,
    (SELECT 0 AS n UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6 UNION SELECT 7) AS b
UNION SELECT 64;

-- What producers lock who ask for their keys to be locked: by the key's
-- crc32, of which the highest ten bits count.
CREATE TABLE {{.KeyLocks}} (
    slot smallint NOT NULL PRIMARY KEY
) ENGINE = InnoDB;

INSERT IGNORE INTO {{.KeyLocks}} (slot)
SELECT a.n + 8 * b.n + 64 * c.n + 512 * d.n FROM
    (SELECT 0 AS n UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6 UNION SELECT 7) AS a,
    (SELECT 0 AS n UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6 UNION SELECT 7) AS b,
    (SELECT 0 AS n UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6 UNION SELECT 7) AS c,
    (SELECT 0 AS n UNION SELECT 1) AS d;

CREATE TABLE {{.Relays}} (
    name      varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL PRIMARY KEY,
    host      varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    version   varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    claim     varchar(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    since     datetime(6) NOT NULL,
    last_heartbeat datetime(6) NOT NULL,
    until     datetime(6) NOT NULL
) ENGINE = InnoDB;

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

-- What a relay looks at first, and so what is made last.
CREATE TABLE {{.Settings}} (
    name  varchar(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
    value longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL
) ENGINE = InnoDB;

INSERT IGNORE INTO {{.Settings}} (name, value) VALUES ('schema', '1');

-- +goose Down

DROP TABLE {{.Settings}};

DROP VIEW {{.Messages}};

DROP TABLE {{.Relays}};

DROP TABLE {{.KeyLocks}};

DROP TABLE {{.LaneLocks}};

DROP TABLE {{.Lanes}};

DROP TABLE {{.Done}};

DROP TABLE {{.Held}};

DROP TABLE {{.Hot}};
