CREATE TABLE orders (
    id    bigint PRIMARY KEY,
    total bigint NOT NULL
);

CREATE TABLE invoices (
    order_key text PRIMARY KEY,
    total     bigint NOT NULL
);
