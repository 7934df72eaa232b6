-- +goose NO TRANSACTION

-- +goose Up

-- Each statement that makes something is committed at once. Where this stopped on
-- its way it is run again: what is there already is left as it is.

-- The rows to be delivered now. A producer needs the right to INSERT here, and
-- no other. All times are in UTC.
CREATE TABLE {{.Hot}} (
    id            bigint NOT NULL AUTO_INCREMENT,
    message_id    char(36) CHARACTER SET ascii COLLATE ascii_general_ci NOT NULL,
    -- One character more than may be: what a session that isn't strict has cut
    -- off is refused.
    topic         varchar(256) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    message_key   varchar(256) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    -- Of the key's bytes, or of a random text; the highest six bits of 32. Never to
    -- be given by a producer.
    lane          smallint NOT NULL,
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
    created_at    datetime(6) NOT NULL,
    -- The order of priorities, highest first, for indexes that only ascend.
    urgency       smallint GENERATED ALWAYS AS (-1 - priority) STORED,
    PRIMARY KEY (lane, id),
    KEY id (id)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

DROP TRIGGER IF EXISTS {{.Index "insert"}};

-- What newer servers have expressions for: defaults, and what is refused. The row
-- of lane 64 keeps the counter of ids, which this server would forget at its next
-- start: its id is at least that of each row that has left the table.
-- +goose StatementBegin
CREATE TRIGGER {{.Index "insert"}} BEFORE INSERT ON {{.Hot}} FOR EACH ROW
BEGIN
    DECLARE wrong varchar(100) CHARACTER SET utf8mb4 DEFAULT NULL;
    DECLARE key_lane smallint DEFAULT crc32(NEW.message_key) >> 26;
    IF NEW.message_id IS NULL THEN
        SET NEW.message_id = uuid();
    END IF;
    IF NEW.created_at IS NULL THEN
        SET NEW.created_at = utc_timestamp(6);
    END IF;
    IF coalesce(octet_length(NEW.message_key), 0) = 0 THEN
        SET key_lane = coalesce(NEW.lane, crc32(NEW.message_id) >> 26);
    END IF;
    IF NEW.lane IS NULL THEN
        SET NEW.lane = key_lane;
    END IF;
    IF NEW.lane <> 64 OR octet_length(NEW.topic) > 0 THEN
        SET wrong = CASE
            WHEN octet_length(NEW.topic) NOT BETWEEN 1 AND 255 THEN 'its topic must have 1 to 255 bytes'
            WHEN octet_length(NEW.message_key) > 255 THEN 'its message_key must have at most 255 bytes'
            WHEN NEW.lane <> key_lane OR NEW.lane NOT BETWEEN 0 AND 63 THEN 'its lane must not be given'
            WHEN NEW.message_id NOT LIKE '________-____-____-____-____________'
                OR unhex(replace(NEW.message_id, '-', '')) IS NULL THEN 'its message_id must be a UUID'
            WHEN NEW.payload IS NOT NULL AND NEW.payload_text IS NOT NULL THEN 'it must not have both payload and payload_text'
            WHEN NOT json_valid(NEW.headers) THEN 'its headers must be a JSON object'
            WHEN json_type(NEW.headers) <> 'OBJECT' THEN 'its headers must be a JSON object'
            WHEN year(NEW.available_at) = 0 THEN 'its available_at must be a time'
        END;
    END IF;
    IF wrong IS NOT NULL THEN
        SET wrong = concat('a message is refused: ', wrong);
        SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = wrong;
    END IF;
END;
-- +goose StatementEnd

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
    KEY held_id (state, id)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

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
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

-- The lanes and their leases.
CREATE TABLE {{.Lanes}} (
    lane    smallint NOT NULL PRIMARY KEY,
    owner   varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    fence   bigint NOT NULL DEFAULT 0,
    until   datetime(6),
    marks   longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    journal longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    crashes int NOT NULL DEFAULT 0
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

INSERT IGNORE INTO {{.Lanes}} (lane)
SELECT a.n + 8 * b.n FROM
    (SELECT 0 AS n UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6 UNION SELECT 7) AS a,
    (SELECT 0 AS n UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6 UNION SELECT 7) AS b;

-- What is locked by those who settle rows of a lane, together, and by who takes
-- the lane over, alone; a renewal passes. Lane 64 is locked by those who take
-- lanes or rows, one after the other, where no lock can be passed over.
CREATE TABLE {{.LaneLocks}} (
    lane smallint NOT NULL PRIMARY KEY
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

INSERT IGNORE INTO {{.LaneLocks}} (lane)
SELECT a.n + 8 * b.n FROM
    (SELECT 0 AS n UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6 UNION SELECT 7) AS a,
    (SELECT 0 AS n UNION SELECT 1 UNION SELECT 2 UNION SELECT 3 UNION SELECT 4 UNION SELECT 5 UNION SELECT 6 UNION SELECT 7) AS b
UNION SELECT 64;

-- What producers lock who ask for their keys to be locked: by the key's
-- crc32, of which the highest ten bits count.
CREATE TABLE {{.KeyLocks}} (
    slot smallint NOT NULL PRIMARY KEY
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

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
    last_beat datetime(6) NOT NULL,
    until     datetime(6) NOT NULL
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

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
WHERE lane < 64
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
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

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
