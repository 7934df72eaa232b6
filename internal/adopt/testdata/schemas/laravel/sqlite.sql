-- See postgres.sql.
CREATE TABLE "outbox_messages" (
    "id"                    varchar NOT NULL,
    "transaction_id"        varchar NOT NULL,
    "correlation_id"        varchar NOT NULL,
    "sequence_number"       integer NOT NULL,
    "type"                  varchar NOT NULL,
    "aggregate_type"        varchar NOT NULL,
    "aggregate_id"          varchar NOT NULL,
    "message_type"          varchar NOT NULL,
    "payload"               text NOT NULL,
    "payload_hash"          varchar NOT NULL,
    "status"                varchar NOT NULL DEFAULT 'pending',
    "attempts"              integer NOT NULL DEFAULT '0',
    "available_at"          datetime NOT NULL DEFAULT CURRENT_TIMESTAMP,
    "processing_started_at" datetime,
    "processed_at"          datetime,
    "error"                 text,
    "history"               text,
    "created_at"            datetime,
    "updated_at"            datetime,
    PRIMARY KEY ("id")
);

CREATE INDEX "outbox_claim_idx" ON "outbox_messages" ("status", "available_at", "sequence_number");
CREATE INDEX "outbox_messages_transaction_id_index" ON "outbox_messages" ("transaction_id");
CREATE INDEX "outbox_messages_correlation_id_index" ON "outbox_messages" ("correlation_id");
CREATE INDEX "outbox_messages_aggregate_type_aggregate_id_index" ON "outbox_messages" ("aggregate_type", "aggregate_id");
CREATE INDEX "outbox_messages_processed_at_index" ON "outbox_messages" ("processed_at");
CREATE INDEX "outbox_messages_created_at_index" ON "outbox_messages" ("created_at");
