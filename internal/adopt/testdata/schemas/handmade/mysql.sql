-- See postgres.sql.
CREATE TABLE outbox (
    id             char(36) PRIMARY KEY DEFAULT (uuid()),
    aggregate_type varchar(255) NOT NULL,
    aggregate_id   varchar(255) NOT NULL,
    event_type     varchar(255) NOT NULL,
    payload        json NOT NULL,
    published_at   datetime(6) NULL,
    created_at     datetime(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)
);

CREATE INDEX idx_outbox_unpublished ON outbox (published_at, created_at);
