-- namastack outbox's table of records (namastack/namastack-outbox, namastack-outbox-jdbc,
-- schema/postgres/outbox-tables.sql), without the tables of its instances and partitions.
CREATE TABLE outbox_record (
    id             varchar(255) NOT NULL,
    status         varchar(20) NOT NULL,
    record_key     varchar(255) NOT NULL,
    record_type    varchar(255) NOT NULL,
    payload        text NOT NULL,
    context        text,
    created_at     timestamp with time zone NOT NULL,
    completed_at   timestamp with time zone,
    failure_count  int NOT NULL,
    failure_reason varchar(1000),
    next_retry_at  timestamp with time zone NOT NULL,
    partition_no   integer NOT NULL,
    handler_id     varchar(1000) NOT NULL,
    PRIMARY KEY (id)
);

CREATE INDEX idx_outbox_record_record_key_created ON outbox_record (record_key, created_at);
CREATE INDEX idx_outbox_record_partition_status_retry ON outbox_record (partition_no, status, next_retry_at);
CREATE INDEX idx_outbox_record_status_retry ON outbox_record (status, next_retry_at);
CREATE INDEX idx_outbox_record_status ON outbox_record (status);
CREATE INDEX idx_outbox_record_record_key_completed_created ON outbox_record (record_key, completed_at, created_at);
