-- +goose Up

-- The ids of what consumers have received, by which they recognise what comes
-- again. A consumer needs the right to INSERT here, and to SELECT and DELETE for
-- what it cleans up.
CREATE TABLE {{.Inbox}} (
    consumer    text NOT NULL,
    message_id  text NOT NULL,
    received_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (consumer, message_id)
);

CREATE INDEX {{.IndexName "received"}} ON {{.Inbox}} (consumer, received_at);

-- +goose Down

DROP TABLE {{.Inbox}};
