-- +goose NO TRANSACTION

-- +goose Up

-- The ids of what consumers have received, by which they recognise what comes
-- again; times are in UTC. A consumer needs the right to INSERT here, and to
-- SELECT and DELETE for what it cleans up.
CREATE TABLE {{.Inbox}} (
    consumer    VARCHAR2(100 BYTE) NOT NULL,
    message_id  VARCHAR2(255 BYTE) NOT NULL,
    received_at TIMESTAMP(6) DEFAULT SYS_EXTRACT_UTC(SYSTIMESTAMP) NOT NULL,
    PRIMARY KEY (consumer, message_id)
);

CREATE INDEX {{.Index "received"}} ON {{.Inbox}} (consumer, received_at);

-- +goose Down

DROP TABLE {{.Inbox}} PURGE;
