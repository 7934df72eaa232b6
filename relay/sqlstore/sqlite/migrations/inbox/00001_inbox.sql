-- +goose Up

-- The ids of what consumers have received, by which they recognise what comes
-- again.
CREATE TABLE {{.Inbox}} (
    consumer    TEXT NOT NULL,
    message_id  TEXT NOT NULL,
    -- UTC, as in 2026-01-31 23:59:59.000
    received_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
    PRIMARY KEY (consumer, message_id)
) WITHOUT ROWID;

CREATE INDEX {{.Index "received"}} ON {{.Bare.Inbox}} (consumer, received_at);

-- +goose Down

DROP TABLE {{.Inbox}};
