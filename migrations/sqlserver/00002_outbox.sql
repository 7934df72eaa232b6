-- +goose Up

-- Scheduled messages by their id, so that they can be cancelled: in the hot table a
-- producer of others pays nothing for it.
CREATE INDEX {{.IndexName "scheduled"}} ON {{.Hot}} (message_id, available_at) WHERE available_at IS NOT NULL WITH (ALLOW_PAGE_LOCKS = OFF);

CREATE INDEX {{.IndexName "held_message"}} ON {{.Held}} (message_id, available_at) WITH (ALLOW_PAGE_LOCKS = OFF);

-- The ids of messages whose writers want no duplicates. The token tells those of one
-- write from others. What is there is ignored, as an error may end a transaction.
CREATE TABLE {{.IDs}} (
    message_id  uniqueidentifier NOT NULL,
    write_token bigint NOT NULL DEFAULT 0,
    written_at  datetime2(7) NOT NULL DEFAULT SYSUTCDATETIME(),
    CONSTRAINT {{.IndexName "ids_key"}} PRIMARY KEY CLUSTERED (message_id) WITH (IGNORE_DUP_KEY = ON, ALLOW_PAGE_LOCKS = OFF)
);

ALTER TABLE {{.IDs}} SET (LOCK_ESCALATION = DISABLE);

CREATE INDEX {{.IndexName "ids_written"}} ON {{.IDs}} (written_at) WITH (ALLOW_PAGE_LOCKS = OFF);

UPDATE {{.Settings}} SET value = N'2' WHERE name = N'schema';

-- +goose Down

UPDATE {{.Settings}} SET value = N'1' WHERE name = N'schema';

DROP TABLE {{.IDs}};

DROP INDEX {{.IndexName "held_message"}} ON {{.Held}};

DROP INDEX {{.IndexName "scheduled"}} ON {{.Hot}};
