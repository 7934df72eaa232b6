-- +goose Up

-- Scheduled messages by their id, so that they can be cancelled: in the hot table a
-- producer of others pays nothing for it.
CREATE INDEX {{.Index "scheduled"}} ON {{.Bare.Hot}} (message_id) WHERE available_at IS NOT NULL;

CREATE INDEX {{.Index "held_message"}} ON {{.Bare.Held}} (message_id);

-- The ids of messages whose writers want no duplicates. The token tells those of one
-- write from others.
CREATE TABLE {{.IDs}} (
    message_id  TEXT NOT NULL PRIMARY KEY,
    write_token INTEGER NOT NULL DEFAULT 0,
    written_at  TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now'))
) WITHOUT ROWID;

CREATE INDEX {{.Index "ids_written"}} ON {{.Bare.IDs}} (written_at);

UPDATE {{.Settings}} SET value = '2' WHERE name = 'schema';

-- +goose Down

UPDATE {{.Settings}} SET value = '1' WHERE name = 'schema';

DROP TABLE {{.IDs}};

DROP INDEX {{.Index "held_message"}};

DROP INDEX {{.Index "scheduled"}};
