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

-- The last statement: whoever finds this finds everything.
UPDATE {{.Settings}} SET value = '2' WHERE name = 'schema';

-- +goose Down

UPDATE {{.Settings}} SET value = '1' WHERE name = 'schema';

DROP TABLE {{.IDs}} PURGE;

DROP INDEX {{.Index "held_message"}};

DROP INDEX {{.Index "scheduled"}};
