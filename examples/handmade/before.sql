-- A common handmade outbox: a loop sends the rows whose sent_at is NULL, in the order of their ids.
CREATE TABLE events (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind         text NOT NULL,
    aggregate_id text NOT NULL,
    body         jsonb NOT NULL,
    sent_at      timestamptz
);
INSERT INTO events (kind, aggregate_id, body, sent_at) VALUES ('orders.taken', 'order-1', '{"n": 1}', now());
INSERT INTO events (kind, aggregate_id, body) VALUES ('orders.taken', 'order-1', '{"n": 2}'), ('orders.taken', 'order-2', '{"n": 3}');
