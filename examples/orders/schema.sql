-- The shop's own table. rowrelay migrate up creates the outbox in the same database.
CREATE TABLE orders (
    id    bigint PRIMARY KEY,
    total bigint NOT NULL
);
