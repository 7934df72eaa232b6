-- +goose Up

-- The ids of what consumers have received, by which they recognise what comes
-- again. A consumer needs the right to INSERT and SELECT here, and to DELETE for
-- what it cleans up.
CREATE TABLE {{.Inbox}} (
    consumer    nvarchar(100) COLLATE Latin1_General_100_BIN2 NOT NULL,
    message_id  nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL,
    -- Tells ids that differ in blanks at the end, which = doesn't.
    size        AS CONVERT(smallint, DATALENGTH(message_id)) PERSISTED NOT NULL,
    received_at datetime2(7) NOT NULL DEFAULT SYSUTCDATETIME(),
    CONSTRAINT {{.IndexName "key"}} PRIMARY KEY CLUSTERED (consumer, message_id, size)
);

ALTER TABLE {{.Inbox}} SET (LOCK_ESCALATION = DISABLE);

CREATE INDEX {{.IndexName "received"}} ON {{.Inbox}} (consumer, received_at);

-- +goose Down

DROP TABLE {{.Inbox}};
