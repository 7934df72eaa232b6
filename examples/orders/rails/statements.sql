-- The statements that Active Record sends for order.rb, copied by hand. A test runs them.
BEGIN;
INSERT INTO "outbox" ("topic", "message_key", "payload_text") VALUES ('orders.taken', 'order-42', '{"ID": 42, "Total": 7}');
INSERT INTO "orders" ("id", "total") VALUES (42, 7) RETURNING "id";
COMMIT;
