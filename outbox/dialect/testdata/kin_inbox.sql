-- receive
INSERT INTO app."Received" (consumer, message_id) VALUES ($1::text, $2::text) ON CONFLICT DO NOTHING;
--   1: billing
--   2: 0197a3b4-0000-7abc-8def-0123456789ab

-- purge
WITH old AS MATERIALIZED (
    SELECT consumer, message_id FROM app."Received" WHERE consumer = $1::text AND received_at < now() - ($2::bigint * interval '1 microsecond')
    ORDER BY received_at LIMIT $3::bigint FOR UPDATE SKIP LOCKED)
DELETE FROM app."Received" AS i USING old WHERE i.consumer = old.consumer AND i.message_id = old.message_id;
--   1: billing
--   2: 604800000000
--   3: 1000

-- version
SELECT CASE WHEN COUNT(*) >= 0 THEN '1' END FROM app."Received" WHERE consumer IS NULL;

