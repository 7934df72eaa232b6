-- A table that many teams write by hand, with a name that is also rowrelay's default. The columns
-- are those of leedrum/supa-shop, services/order/db/migrations/000002_create_outboxes_table.up.sql;
-- the index is that of aksbuzz/ecommerce-microservice,
-- services/identity/db/migrations/20260217000001_create_outbox_messages.sql.
CREATE TABLE outbox (
    id             uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    aggregate_type text NOT NULL,
    aggregate_id   text NOT NULL,
    event_type     text NOT NULL,
    payload        jsonb NOT NULL,
    published_at   timestamptz NULL,
    created_at     timestamptz NOT NULL DEFAULT now()
);

CREATE INDEX idx_outbox_unpublished ON outbox (created_at) WHERE published_at IS NULL;
