-- +goose NO TRANSACTION

-- +goose Up

-- The ids of what consumers have received, by which they recognise what comes
-- again; times are in UTC. A consumer needs the right to INSERT here, and to
-- SELECT and DELETE for what it cleans up.
CREATE TABLE {{.Inbox}} (
    consumer    varchar(100) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    message_id  varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    received_at datetime(6) NOT NULL DEFAULT (utc_timestamp(6)),
    PRIMARY KEY (consumer, message_id),
    KEY received (consumer, received_at)
) ENGINE = InnoDB;

-- +goose Down

DROP TABLE {{.Inbox}};
