-- Written by hand, as Entity Framework Core sends Orders.cs; a test runs it.
BEGIN;
INSERT INTO orders (id, total) VALUES (42, 7);
INSERT INTO outbox (topic, message_key, payload_text) VALUES ('orders.taken', 'order-42', '{"ID": 42, "Total": 7}');
COMMIT;
