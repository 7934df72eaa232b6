-- The shop's own table; rowrelay migrate up makes the outbox beside it.
CREATE TABLE orders (
    id    bigint PRIMARY KEY,
    total bigint NOT NULL
);
