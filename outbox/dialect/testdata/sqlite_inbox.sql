-- receive
INSERT INTO app."Received" (consumer, message_id) VALUES (?, ?) ON CONFLICT DO NOTHING;
--   1: billing
--   2: 0197a3b4-0000-7abc-8def-0123456789ab

-- purge
DELETE FROM app."Received" WHERE (consumer, message_id) IN (SELECT consumer, message_id FROM app."Received" WHERE consumer = ? AND received_at < strftime('%Y-%m-%d %H:%M:%f', 'now', ?) ORDER BY received_at LIMIT ?);
--   1: billing
--   2: -604800.000 seconds
--   3: 1000

-- version
SELECT CASE WHEN COUNT(*) >= 0 THEN '1' END FROM app."Received" WHERE consumer IS NULL;

