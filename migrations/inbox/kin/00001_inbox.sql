-- +goose Up
-- +goose NO TRANSACTION

-- For CockroachDB and YugabyteDB, whose changes of the schema aren't part of a
-- transaction: each statement can be repeated.

-- The ids of what consumers have received, by which they recognise what comes
-- again. A consumer needs the right to INSERT and SELECT here, and to DELETE for
-- what it cleans up.
CREATE TABLE IF NOT EXISTS {{.Inbox}} (
    consumer    text NOT NULL,
    message_id  text NOT NULL,
    received_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (consumer, message_id)
);

CREATE INDEX IF NOT EXISTS {{.IndexName "received"}} ON {{.Inbox}} (consumer, received_at);

-- +goose Down

DROP TABLE IF EXISTS {{.Inbox}};
