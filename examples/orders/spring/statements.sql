-- The statements that JdbcClient and JPA send for Orders.java, copied by hand. A test runs them. The driver sends text,
-- which needs no cast for these columns.
BEGIN;
insert into orders (total, id) values (7, 42);
INSERT INTO outbox (topic, message_key, payload_text) VALUES ('orders.taken'::text, 'order-42'::text, '{"ID": 42, "Total": 7}'::text);
COMMIT;
