-- Moves from the table of before.sql. Stop the old loop first, for what it is sending
-- would be sent again; the programs that write to the old table go on.
BEGIN;

-- Whoever writes waits until this commits: so nothing is left out, and nothing overtakes.
LOCK TABLE events IN EXCLUSIVE MODE;

-- What was never sent, in its order.
INSERT INTO outbox (topic, message_key, payload_text)
SELECT kind, aggregate_id, body::text FROM events WHERE sent_at IS NULL ORDER BY id;

UPDATE events SET sent_at = now() WHERE sent_at IS NULL;

-- What old programs write from now on goes on in their own transactions. Drop it, and
-- the table, once all of them write to outbox themselves. The trigger runs AFTER the
-- INSERT, as one that comes before it runs also for rows that ON CONFLICT leaves out. The
-- function runs with its owner's rights, so that programs with a role of their own need
-- none for outbox; its search_path names the schema of both tables.
CREATE FUNCTION forward_event() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
    INSERT INTO outbox (topic, message_key, payload_text) VALUES (NEW.kind, NEW.aggregate_id, NEW.body::text);
    UPDATE events SET sent_at = now() WHERE id = NEW.id;
    RETURN NULL;
END $$;

CREATE TRIGGER forward AFTER INSERT ON events FOR EACH ROW EXECUTE FUNCTION forward_event();

COMMIT;
