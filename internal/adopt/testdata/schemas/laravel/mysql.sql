-- See postgres.sql.
CREATE TABLE `outbox_messages` (
    `id`                    char(36) NOT NULL,
    `transaction_id`        char(36) NOT NULL,
    `correlation_id`        char(36) NOT NULL,
    `sequence_number`       int unsigned NOT NULL,
    `type`                  varchar(16) NOT NULL,
    `aggregate_type`        varchar(255) NOT NULL,
    `aggregate_id`          varchar(255) NOT NULL,
    `message_type`          varchar(255) NOT NULL,
    `payload`               longtext NOT NULL,
    `payload_hash`          varchar(64) NOT NULL,
    `status`                varchar(16) NOT NULL DEFAULT 'pending',
    `attempts`              int unsigned NOT NULL DEFAULT '0',
    `available_at`          timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP,
    `processing_started_at` timestamp NULL,
    `processed_at`          timestamp NULL,
    `error`                 text NULL,
    `history`               json NULL,
    `created_at`            timestamp NULL,
    `updated_at`            timestamp NULL,
    PRIMARY KEY (`id`)
) DEFAULT CHARACTER SET utf8mb4 COLLATE 'utf8mb4_unicode_ci';

ALTER TABLE `outbox_messages` ADD INDEX `outbox_claim_idx` (`status`, `available_at`, `sequence_number`);
ALTER TABLE `outbox_messages` ADD INDEX `outbox_messages_transaction_id_index` (`transaction_id`);
ALTER TABLE `outbox_messages` ADD INDEX `outbox_messages_correlation_id_index` (`correlation_id`);
ALTER TABLE `outbox_messages` ADD INDEX `outbox_messages_aggregate_type_aggregate_id_index` (`aggregate_type`, `aggregate_id`);
ALTER TABLE `outbox_messages` ADD INDEX `outbox_messages_processed_at_index` (`processed_at`);
ALTER TABLE `outbox_messages` ADD INDEX `outbox_messages_created_at_index` (`created_at`);
