-- Moves from the table of before.sql to the outbox. Stop the old loop first: the rows it is
-- sending would be sent again. The programs that write to the old table continue.
BEGIN;

-- Writers wait until this commits, so that no row is left out or sent out of order.
LOCK TABLE events IN EXCLUSIVE MODE;

-- Rows that were never sent, in their order.
INSERT INTO outbox (topic, message_key, payload_text)
SELECT kind, aggregate_id, body::text FROM events WHERE sent_at IS NULL ORDER BY id;

UPDATE events SET sent_at = now() WHERE sent_at IS NULL;

-- The trigger forwards what old programs write from now on, in their own transactions. Drop
-- it and the table when all programs write to outbox. It runs AFTER the INSERT, because a
-- BEFORE trigger also runs for rows that ON CONFLICT skips. The function runs with its
-- owner's rights, so programs with other roles need no rights on outbox. Its search_path
-- names the schema of both tables.
CREATE FUNCTION forward_event() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    INSERT INTO outbox (topic, message_key, payload_text) VALUES (NEW.kind, NEW.aggregate_id, NEW.body::text);
    UPDATE events SET sent_at = now() WHERE id = NEW.id;
    RETURN NULL;
END $$;

CREATE TRIGGER forward AFTER INSERT ON events FOR EACH ROW EXECUTE FUNCTION forward_event();

COMMIT;
