-- The table of the package laravel-outbox (Dnakitare/laravel-outbox,
-- database/migrations/2025_02_01_000001_create_outbox_tables.php), without its dead letters. The types
-- are those of Laravel's schema builder (timestamp(0) without time zone).
CREATE TABLE "outbox_messages" (
    "id"                    uuid NOT NULL,
    "transaction_id"        uuid NOT NULL,
    "correlation_id"        uuid NOT NULL,
    "sequence_number"       integer NOT NULL,
    "type"                  varchar(16) NOT NULL,
    "aggregate_type"        varchar(255) NOT NULL,
    "aggregate_id"          varchar(255) NOT NULL,
    "message_type"          varchar(255) NOT NULL,
    "payload"               text NOT NULL,
    "payload_hash"          varchar(64) NOT NULL,
    "status"                varchar(16) NOT NULL DEFAULT 'pending',
    "attempts"              integer NOT NULL DEFAULT '0',
    "available_at"          timestamp(0) without time zone NOT NULL DEFAULT CURRENT_TIMESTAMP,
    "processing_started_at" timestamp(0) without time zone NULL,
    "processed_at"          timestamp(0) without time zone NULL,
    "error"                 text NULL,
    "history"               json NULL,
    "created_at"            timestamp(0) without time zone NULL,
    "updated_at"            timestamp(0) without time zone NULL
);

ALTER TABLE "outbox_messages" ADD PRIMARY KEY ("id");
CREATE INDEX "outbox_claim_idx" ON "outbox_messages" ("status", "available_at", "sequence_number");
CREATE INDEX "outbox_messages_transaction_id_index" ON "outbox_messages" ("transaction_id");
CREATE INDEX "outbox_messages_correlation_id_index" ON "outbox_messages" ("correlation_id");
CREATE INDEX "outbox_messages_aggregate_type_aggregate_id_index" ON "outbox_messages" ("aggregate_type", "aggregate_id");
CREATE INDEX "outbox_messages_processed_at_index" ON "outbox_messages" ("processed_at");
CREATE INDEX "outbox_messages_created_at_index" ON "outbox_messages" ("created_at");
