-- The statements that Entity Framework Core sends for Orders.cs, copied by hand. A test runs them.
BEGIN;
INSERT INTO orders (id, total) VALUES (42, 7);
INSERT INTO outbox (topic, message_key, payload_text) VALUES ('orders.taken', 'order-42', '{"ID": 42, "Total": 7}');
COMMIT;
