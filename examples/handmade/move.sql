BEGIN;

-- Wait at most half a second for the lock, because meanwhile all programs that write to the table wait. If the script fails, run
-- it again.
SET LOCAL lock_timeout = '500ms';
SET LOCAL search_path = pg_catalog, pg_temp;
LOCK TABLE public.events IN EXCLUSIVE MODE;

-- The rows that wait, in their order. Programs wait until this script commits, so no row is left out or overtaken.
WITH waiting AS MATERIALIZED (
    SELECT r.* FROM public.events AS r WHERE r.sent_at IS NULL ORDER BY r.id FOR UPDATE
), mapped AS MATERIALIZED (
    SELECT row_number() OVER () AS place, r.kind::text AS topic, r.aggregate_id::text AS message_key, r.body::text AS payload_text, r.id AS key1 FROM waiting AS r
), checked AS MATERIALIZED (
    SELECT m.*, CASE WHEN m.topic IS NULL OR m.topic = '' THEN 'the topic is empty'
             WHEN octet_length(m.topic) > 255 THEN 'the topic has ' || octet_length(m.topic) || ' bytes, and at most 255 are allowed'
             WHEN octet_length(m.message_key) > 255 THEN 'the key has ' || octet_length(m.message_key) || ' bytes, and at most 255 are allowed' END AS refused FROM mapped AS m
), sent AS (
    INSERT INTO public.outbox (topic, message_key, payload_text)
    SELECT m.topic, m.message_key, m.payload_text FROM checked AS m WHERE m.refused IS NULL ORDER BY m.place
), parked AS (
    INSERT INTO public.outbox_held (id, lane, state, last_error, attempts, crashes, priority, created_at, topic, message_key, payload_text, message_id)
    SELECT new_id, CASE WHEN m.message_key IS NULL OR m.message_key = '' THEN new_id ELSE hashtextextended(m.message_key COLLATE "C", 0) END & 63, 'error', 'rowrelay adopt: ' || refused, 0, 0, 0, clock_timestamp(),
            m.topic, m.message_key, m.payload_text, gen_random_uuid()
    FROM (
        SELECT coalesce(nullif(m.topic, ''), 'unknown') AS topic, m.message_key, m.payload_text, m.refused, nextval(pg_get_serial_sequence('public.outbox', 'id')) AS new_id
        FROM checked AS m WHERE m.refused IS NOT NULL ORDER BY m.place) AS m
), marked AS (
    UPDATE public.events AS r SET sent_at = current_timestamp FROM checked AS m WHERE r.id = m.key1
)
SELECT count(*) FROM checked;

-- Inserts a message for the row that a program has inserted, in the program's transaction. It runs with the rights of its
-- owner, so programs need no rights on public.outbox. Its search_path has no schema in which
-- other users may create functions.
CREATE OR REPLACE FUNCTION public.rowrelay_forward_events() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $rowrelay$
DECLARE
    m       record;
    waits   boolean;
    refused text;
    new_id  bigint;
BEGIN
    BEGIN
        waits := (NEW.sent_at IS NULL) IS TRUE;
        SELECT NEW.kind::text AS topic, NEW.aggregate_id::text AS message_key, NEW.body::text AS payload_text INTO m;
        refused := CASE WHEN m.topic IS NULL OR m.topic = '' THEN 'the topic is empty'
             WHEN octet_length(m.topic) > 255 THEN 'the topic has ' || octet_length(m.topic) || ' bytes, and at most 255 are allowed'
             WHEN octet_length(m.message_key) > 255 THEN 'the key has ' || octet_length(m.message_key) || ' bytes, and at most 255 are allowed' END;
    EXCEPTION WHEN OTHERS THEN
        IF SQLSTATE LIKE '40%' THEN -- a deadlock, or a conflict of serializable transactions
            RAISE;
        END IF;
        -- The mapping fails for this row, but the program's transaction must not fail.
        SELECT 'unknown' AS topic, NULL::text AS message_key, to_json(NEW)::text AS payload_text INTO m;
        refused := 'the mapping fails with SQLSTATE ' || SQLSTATE || '; the payload is the whole row';
    END;
    IF NOT waits THEN
        RETURN NULL;
    ELSIF refused IS NULL THEN
        INSERT INTO public.outbox (topic, message_key, payload_text)
        VALUES (m.topic, m.message_key, m.payload_text);
    ELSE
        -- The outbox would refuse the message. It is parked with the reason.
        new_id := nextval(pg_get_serial_sequence('public.outbox', 'id'));
        m.topic := coalesce(nullif(m.topic, ''), 'unknown');
        INSERT INTO public.outbox_held (id, lane, state, last_error, attempts, crashes, priority, created_at, topic, message_key, payload_text, message_id)
        VALUES (new_id, CASE WHEN m.message_key IS NULL OR m.message_key = '' THEN new_id ELSE hashtextextended(m.message_key COLLATE "C", 0) END & 63, 'error', 'rowrelay adopt: ' || refused, 0, 0, 0, clock_timestamp(),
            m.topic, m.message_key, m.payload_text, gen_random_uuid());
    END IF;
    UPDATE public.events SET sent_at = current_timestamp WHERE id = NEW.id;
    RETURN NULL;
END $rowrelay$;

-- Nobody needs this right, because the trigger calls the function without it.
REVOKE EXECUTE ON FUNCTION public.rowrelay_forward_events() FROM PUBLIC;

CREATE TRIGGER rowrelay_forward AFTER INSERT ON public.events FOR EACH ROW EXECUTE FUNCTION public.rowrelay_forward_events();

COMMIT;
