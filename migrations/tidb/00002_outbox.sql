-- +goose NO TRANSACTION

-- +goose Up

-- Scheduled messages by their id, so that they can be cancelled. The hot table has no index
-- for it: there are none of some rows only, and each costs every message.
ALTER TABLE {{.Held}} ADD KEY held_message (message_id);

-- The ids of messages whose writers want no duplicates. The token tells those of one
-- write from others.
CREATE TABLE {{.IDs}} (
    message_id  char(36) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
    write_token bigint NOT NULL DEFAULT 0,
    written_at  timestamp(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
    KEY ids_written (written_at)
);

-- The last statement: whoever finds this finds everything.
UPDATE {{.Settings}} SET value = '2' WHERE name = 'schema';

-- +goose Down

UPDATE {{.Settings}} SET value = '1' WHERE name = 'schema';

DROP TABLE {{.IDs}};

ALTER TABLE {{.Held}} DROP KEY held_message;
