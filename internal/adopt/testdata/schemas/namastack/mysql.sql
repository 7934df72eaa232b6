-- See postgres.sql; schema/mysql/outbox-tables.sql. MariaDB's file differs only in defaults of NULL.
CREATE TABLE outbox_record (
    id             varchar(255) NOT NULL,
    status         varchar(20) NOT NULL,
    record_key     varchar(255) NOT NULL,
    record_type    varchar(255) NOT NULL,
    payload        longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci NOT NULL,
    context        longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci NULL,
    created_at     timestamp NOT NULL,
    completed_at   timestamp NULL,
    failure_count  int NOT NULL,
    failure_reason varchar(1000) NULL,
    next_retry_at  timestamp NOT NULL,
    partition_no   int NOT NULL,
    handler_id     varchar(1000) NOT NULL,
    PRIMARY KEY (id),
    INDEX idx_outbox_record_record_key_created (record_key, created_at),
    INDEX idx_outbox_record_partition_status_retry (partition_no, status, next_retry_at),
    INDEX idx_outbox_record_status_retry (status, next_retry_at),
    INDEX idx_outbox_record_status (status),
    INDEX idx_outbox_record_record_key_completed_created (record_key, completed_at, created_at)
) ENGINE = InnoDB;
