-- +goose Up

-- The rows to be delivered now.
CREATE TABLE {{.Hot}} (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    -- SQLite has no hash function: the key's first and last characters, mixed.
    lane          INTEGER NOT NULL GENERATED ALWAYS AS (63 & (
        CASE WHEN message_key IS NULL OR message_key = '' THEN id ELSE
            (7 * length(message_key)
             +        1 * coalesce(unicode(substr(message_key, -1, 1)), 0)
             +       10 * coalesce(unicode(substr(message_key, -2, 1)), 0)
             +      103 * coalesce(unicode(substr(message_key, -3, 1)), 0)
             +     1009 * coalesce(unicode(substr(message_key, -4, 1)), 0)
             +    10007 * coalesce(unicode(substr(message_key, -5, 1)), 0)
             +   100003 * coalesce(unicode(substr(message_key, -6, 1)), 0)
             +  1000003 * coalesce(unicode(substr(message_key, -7, 1)), 0)
             + 10000019 * coalesce(unicode(substr(message_key, -8, 1)), 0)
             +       34 * coalesce(unicode(substr(message_key, 1, 1)), 0)
             +      302 * coalesce(unicode(substr(message_key, 2, 1)), 0)
             +     3005 * coalesce(unicode(substr(message_key, 3, 1)), 0)
             +    30011 * coalesce(unicode(substr(message_key, 4, 1)), 0)
             +   300007 * coalesce(unicode(substr(message_key, 5, 1)), 0)
             +  3000017 * coalesce(unicode(substr(message_key, 6, 1)), 0)
             + 30000001 * coalesce(unicode(substr(message_key, 7, 1)), 0)) % 65521
        END)) STORED,
    message_id    TEXT NOT NULL DEFAULT (lower(
        hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-4' || substr(hex(randomblob(2)), 2) || '-' ||
        substr('89ab', 1 + (random() & 3), 1) || substr(hex(randomblob(2)), 2) || '-' || hex(randomblob(6)))),
    topic         TEXT NOT NULL,
    message_key   TEXT,
    payload       BLOB,
    payload_text  TEXT,
    headers       TEXT,
    priority      INTEGER NOT NULL DEFAULT 0,
    attempts      INTEGER NOT NULL DEFAULT 0,
    crashes       INTEGER NOT NULL DEFAULT 0,
    available_at  TEXT,
    last_error    TEXT,
    claimed_by    TEXT,
    claim_token   TEXT,
    claimed_until TEXT,
    created_at    TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
    CONSTRAINT message_id_is_a_uuid CHECK (length(message_id) = 36 AND message_id NOT GLOB '*[^0-9A-Fa-f-]*'),
    CONSTRAINT topic_size CHECK (typeof(topic) = 'text' AND length(CAST(topic AS BLOB)) BETWEEN 1 AND 255),
    CONSTRAINT key_size CHECK (message_key IS NULL OR typeof(message_key) = 'text' AND length(CAST(message_key AS BLOB)) <= 255),
    CONSTRAINT one_payload CHECK (payload IS NULL OR payload_text IS NULL),
    CONSTRAINT headers_object CHECK (headers IS NULL OR (CASE WHEN json_valid(headers) THEN json_type(headers) END) IS 'object'),
    CONSTRAINT priority_range CHECK (typeof(priority) = 'integer' AND priority BETWEEN -32768 AND 32767),
    -- UTC, as in 2026-01-31 23:59:59.000
    CONSTRAINT available_at_format CHECK (available_at IS strftime('%Y-%m-%d %H:%M:%f', available_at)),
    CONSTRAINT created_at_format CHECK (created_at IS strftime('%Y-%m-%d %H:%M:%f', created_at))
);

CREATE INDEX {{.Index "lane_id"}} ON {{.Bare.Hot}} (lane, id);

-- The rows that are not to be delivered now. A row keeps its id and lane. Here, and
-- among the delivered ones, an id may be there again: after a restore, or where the
-- numbering has begun anew, it is given to another message.
CREATE TABLE {{.Held}} (
    id            INTEGER NOT NULL,
    lane          INTEGER NOT NULL,
    state         TEXT NOT NULL,
    message_id    TEXT NOT NULL,
    topic         TEXT NOT NULL,
    message_key   TEXT,
    payload       BLOB,
    payload_text  TEXT,
    headers       TEXT,
    priority      INTEGER NOT NULL,
    attempts      INTEGER NOT NULL,
    crashes       INTEGER NOT NULL,
    available_at  TEXT,
    last_error    TEXT,
    created_at    TEXT NOT NULL,
    PRIMARY KEY (id, message_id),
    CONSTRAINT held_state CHECK (state IN ('scheduled', 'retry', 'error')),
    CONSTRAINT available_at_format CHECK (available_at IS strftime('%Y-%m-%d %H:%M:%f', available_at))
) WITHOUT ROWID;

-- No time means at once.
CREATE INDEX {{.Index "held_due"}} ON {{.Bare.Held}}
    (coalesce(available_at, '0001-01-01 00:00:00.000'), id) WHERE state <> 'error';

CREATE INDEX {{.Index "held_retry"}} ON {{.Bare.Held}} (lane, message_key, id) WHERE state = 'retry';

CREATE INDEX {{.Index "held_error"}} ON {{.Bare.Held}} (id) WHERE state = 'error';

-- The delivered rows, kept for the retention.
CREATE TABLE {{.Done}} (
    id            INTEGER NOT NULL,
    lane          INTEGER NOT NULL,
    message_id    TEXT NOT NULL,
    topic         TEXT NOT NULL,
    message_key   TEXT,
    payload       BLOB,
    payload_text  TEXT,
    headers       TEXT,
    priority      INTEGER NOT NULL,
    attempts      INTEGER NOT NULL,
    crashes       INTEGER NOT NULL,
    available_at  TEXT,
    last_error    TEXT,
    created_at    TEXT NOT NULL,
    finished_at   TEXT NOT NULL,
    receipt       TEXT,
    relay         TEXT
);

CREATE INDEX {{.Index "done_id"}} ON {{.Bare.Done}} (id);

CREATE INDEX {{.Index "done_finished"}} ON {{.Bare.Done}} (finished_at);

-- The lanes and their leases.
CREATE TABLE {{.Lanes}} (
    lane    INTEGER PRIMARY KEY CHECK (lane BETWEEN 0 AND 63),
    owner   TEXT,
    fence   INTEGER NOT NULL DEFAULT 0,
    until   TEXT,
    marks   TEXT,
    journal TEXT,
    crashes INTEGER NOT NULL DEFAULT 0
);

INSERT INTO {{.Lanes}} (lane)
WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n < 63)
SELECT n FROM numbers;

CREATE TABLE {{.Relays}} (
    name      TEXT NOT NULL PRIMARY KEY,
    host      TEXT NOT NULL,
    version   TEXT NOT NULL,
    claim     TEXT NOT NULL,
    since     TEXT NOT NULL,
    last_heartbeat TEXT NOT NULL,
    until     TEXT NOT NULL
);

CREATE TABLE {{.Settings}} (
    name  TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
);

INSERT INTO {{.Settings}} (name, value) VALUES ('schema', '1');

CREATE VIEW {{.Messages}} AS
SELECT id, lane,
       CASE WHEN claimed_until > strftime('%Y-%m-%d %H:%M:%f', 'now') THEN 'claimed'
            WHEN available_at > strftime('%Y-%m-%d %H:%M:%f', 'now') THEN 'scheduled'
            ELSE 'pending' END AS state,
       message_id, topic, message_key, payload, payload_text, headers, priority,
       attempts, crashes, available_at, last_error,
       claimed_by, claim_token, claimed_until, created_at,
       NULL AS finished_at, NULL AS receipt, NULL AS relay
FROM {{.Bare.Hot}}
UNION ALL
SELECT id, lane,
       CASE WHEN state = 'scheduled' AND (available_at IS NULL OR available_at <= strftime('%Y-%m-%d %H:%M:%f', 'now')) THEN 'pending' ELSE state END,
       message_id, topic, message_key, payload, payload_text, headers, priority,
       attempts, crashes, available_at, last_error,
       NULL, NULL, NULL, created_at, NULL, NULL, NULL
FROM {{.Bare.Held}}
UNION ALL
SELECT id, lane, 'done',
       message_id, topic, message_key, payload, payload_text, headers, priority,
       attempts, crashes, available_at, last_error,
       NULL, NULL, NULL, created_at, finished_at, receipt, relay
FROM {{.Bare.Done}};

-- +goose Down

DROP VIEW {{.Messages}};

DROP TABLE {{.Settings}};

DROP TABLE {{.Relays}};

DROP TABLE {{.Lanes}};

DROP TABLE {{.Done}};

DROP TABLE {{.Held}};

DROP TABLE {{.Hot}};
