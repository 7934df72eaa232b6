-- +goose Up

-- Scheduled messages by their id, so that they can be cancelled: in the hot table a
-- producer of others pays nothing for it.
CREATE INDEX {{.IndexName "scheduled"}} ON {{.Hot}} (message_id) WHERE available_at IS NOT NULL;

CREATE INDEX {{.IndexName "held_message"}} ON {{.Held}} (message_id);

-- The ids of messages whose writers want no duplicates. The token tells those of one
-- write from others.
CREATE TABLE {{.IDs}} (
    message_id  uuid NOT NULL PRIMARY KEY,
    write_token bigint NOT NULL DEFAULT 0,
    written_at  timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX {{.IndexName "ids_written"}} ON {{.IDs}} (written_at);

UPDATE {{.Settings}} SET value = '2' WHERE name = 'schema';

-- +goose Down

UPDATE {{.Settings}} SET value = '1' WHERE name = 'schema';

DROP TABLE {{.IDs}};

DROP INDEX {{.Index "held_message"}};

DROP INDEX {{.Index "scheduled"}};
