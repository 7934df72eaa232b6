-- +goose NO TRANSACTION

-- +goose Up

-- Scheduled messages by their id, so that they can be cancelled: an index has no entry for
-- a row whose columns are all null there, so a producer of others pays nothing for it.
CREATE INDEX {{.Index "scheduled"}} ON {{.Hot}} (CASE WHEN available_at IS NOT NULL THEN message_id END);

CREATE INDEX {{.Index "held_message"}} ON {{.Held}} (message_id);

-- The ids of messages whose writers want no duplicates. The token tells those of one
-- write from others.
CREATE TABLE {{.IDs}} (
    message_id  VARCHAR2(36 BYTE) NOT NULL,
    write_token NUMBER(19) DEFAULT 0 NOT NULL,
    written_at  TIMESTAMP(6) DEFAULT SYS_EXTRACT_UTC(SYSTIMESTAMP) NOT NULL,
    PRIMARY KEY (message_id)
);

CREATE INDEX {{.Index "ids_written"}} ON {{.IDs}} (written_at);

-- When a message is too old to be sent, in UTC; none is never. One in the year 9999 has
-- been requeued after it had expired, and is sent however old it is.
ALTER TABLE {{.Hot}} ADD (expires_at TIMESTAMP(6));

ALTER TABLE {{.Held}} ADD (expires_at TIMESTAMP(6));

ALTER TABLE {{.Done}} ADD (expires_at TIMESTAMP(6));

-- What a parked row does to its key: 0 nothing, 1 it holds it, and of such rows 2 is to be
-- parked without that, and 3 to be deleted.
ALTER TABLE {{.Held}} ADD (holds NUMBER(1) DEFAULT 0 NOT NULL);

-- The rows that hold their keys, as before; now there are more of them.
DROP INDEX {{.Index "held_retry"}};

CREATE INDEX {{.Index "held_retry"}} ON {{.Held}} (
    CASE WHEN state = 'retry' OR holds > 0 THEN lane END,
    NLSSORT(CASE WHEN state = 'retry' OR holds > 0 THEN message_key END, 'NLS_SORT=BINARY'),
    CASE WHEN state = 'retry' OR holds > 0 THEN id END);

CREATE OR REPLACE VIEW {{.Messages}} AS
SELECT id, lane,
       CASE WHEN claimed_until > SYS_EXTRACT_UTC(SYSTIMESTAMP) THEN 'claimed'
            WHEN available_at > SYS_EXTRACT_UTC(SYSTIMESTAMP) THEN 'scheduled'
            ELSE 'pending' END AS state,
       message_id, topic, message_key, payload, payload_text, headers, priority,
       attempts, crashes, available_at, last_error,
       claimed_by, claim_token, claimed_until, created_at,
       CAST(NULL AS TIMESTAMP(6)) AS finished_at, CAST(NULL AS VARCHAR2(4000)) AS receipt, CAST(NULL AS VARCHAR2(255)) AS relay, expires_at, 0 AS holds
FROM {{.Hot}}
UNION ALL
SELECT id, lane,
       CASE WHEN state = 'scheduled' AND (available_at IS NULL OR available_at <= SYS_EXTRACT_UTC(SYSTIMESTAMP)) THEN 'pending' ELSE state END,
       message_id, topic, message_key, payload, payload_text, headers, priority,
       attempts, crashes, available_at, last_error,
       NULL, NULL, NULL, created_at, NULL, NULL, NULL, expires_at, holds
FROM {{.Held}}
UNION ALL
SELECT id, lane, 'done',
       message_id, topic, message_key, payload, payload_text, headers, priority,
       attempts, crashes, available_at, last_error,
       NULL, NULL, NULL, created_at, finished_at, receipt, relay, expires_at, 0
FROM {{.Done}};

-- What a relay looks at first, and so what is changed last.
UPDATE {{.Settings}} SET value = '2' WHERE name = 'schema';

-- +goose Down

UPDATE {{.Settings}} SET value = '1' WHERE name = 'schema';

-- What was to be skipped or deleted is parked as before.
UPDATE {{.Held}} SET state = 'error' WHERE holds > 0;

CREATE OR REPLACE VIEW {{.Messages}} AS
SELECT id, lane,
       CASE WHEN claimed_until > SYS_EXTRACT_UTC(SYSTIMESTAMP) THEN 'claimed'
            WHEN available_at > SYS_EXTRACT_UTC(SYSTIMESTAMP) THEN 'scheduled'
            ELSE 'pending' END AS state,
       message_id, topic, message_key, payload, payload_text, headers, priority,
       attempts, crashes, available_at, last_error,
       claimed_by, claim_token, claimed_until, created_at,
       CAST(NULL AS TIMESTAMP(6)) AS finished_at, CAST(NULL AS VARCHAR2(4000)) AS receipt, CAST(NULL AS VARCHAR2(255)) AS relay
FROM {{.Hot}}
UNION ALL
SELECT id, lane,
       CASE WHEN state = 'scheduled' AND (available_at IS NULL OR available_at <= SYS_EXTRACT_UTC(SYSTIMESTAMP)) THEN 'pending' ELSE state END,
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

DROP INDEX {{.Index "held_retry"}};

CREATE INDEX {{.Index "held_retry"}} ON {{.Held}} (
    CASE WHEN state = 'retry' THEN lane END,
    NLSSORT(CASE WHEN state = 'retry' THEN message_key END, 'NLS_SORT=BINARY'),
    CASE WHEN state = 'retry' THEN id END);

ALTER TABLE {{.Held}} DROP (holds);

ALTER TABLE {{.Done}} DROP (expires_at);

ALTER TABLE {{.Held}} DROP (expires_at);

ALTER TABLE {{.Hot}} DROP (expires_at);

DROP TABLE {{.IDs}} PURGE;

DROP INDEX {{.Index "held_message"}};

DROP INDEX {{.Index "scheduled"}};
