-- insert
INSERT INTO app."Events" (message_id, topic, message_key, payload, headers, available_at, expires_at, priority) VALUES (?,?,?,?,?,?,?,?);
--   1: i
--   2: t"\
--   3: k
--   4: [112 112]
--   5: {}
--   6: 2030-01-02 03:04:05.679
--   7: 2030-01-03 00:00:00.000
--   8: 3

-- insert several
INSERT INTO app."Events" (message_id, topic, message_key, payload, headers, available_at, expires_at, priority) VALUES (?,?,?,?,?,?,?,?),(?,?,?,?,?,?,?,?),(?,?,?,?,?,?,?,?),(?,?,?,?,?,?,?,?);
--   1: i
--   2: t
--   3: <nil>
--   4: <nil>
--   5: <nil>
--   6: <nil>
--   7: <nil>
--   8: 0
--   9: i
--   10: t"\
--   11: k
--   12: [112 112]
--   13: {}
--   14: 2030-01-02 03:04:05.679
--   15: 2030-01-03 00:00:00.000
--   16: 3
--   17: i
--   18: t
--   19: <nil>
--   20: <nil>
--   21: <nil>
--   22: <nil>
--   23: <nil>
--   24: 0
--   25: i
--   26: t"\
--   27: k
--   28: [112 112]
--   29: {}
--   30: 2030-01-02 03:04:05.679
--   31: 2030-01-03 00:00:00.000
--   32: 3

-- insert ids
INSERT INTO app."Events_ids" (message_id, write_token) SELECT value, ? FROM json_each(?) WHERE true ON CONFLICT DO NOTHING;
--   1: 42
--   2: ["i","0197a3b4-0000-7abc-8def-0123456789ab"]

-- delete ids
DELETE FROM app."Events_ids" WHERE message_id IN (SELECT value FROM json_each(?)) AND ? IN (0, write_token);
--   1: ["i","0197a3b4-0000-7abc-8def-0123456789ab"]
--   2: 42

-- cancel
DELETE FROM app."Events" WHERE message_id = ? AND available_at IS NOT NULL AND available_at > strftime('%Y-%m-%d %H:%M:%f', 'now', ?);
--   1: i
--   2: +5.000 seconds
DELETE FROM app."Events_held" WHERE message_id = ? AND available_at IS NOT NULL AND available_at > strftime('%Y-%m-%d %H:%M:%f', 'now', ?) AND state = 'scheduled';
--   1: i
--   2: +5.000 seconds

-- lock keys

-- notify

-- written
SELECT message_id, topic, message_key, payload, payload IS NULL, payload_text, headers, available_at, expires_at, priority FROM app."Events_messages" ORDER BY id;

-- receive
INSERT INTO app."Received" (consumer, message_id) VALUES (?, ?) ON CONFLICT DO NOTHING;
--   1: billing
--   2: 0197a3b4-0000-7abc-8def-0123456789ab

-- purge received
DELETE FROM app."Received" WHERE (consumer, message_id) IN (SELECT consumer, message_id FROM app."Received" WHERE consumer = ? AND received_at < strftime('%Y-%m-%d %H:%M:%f', 'now', ?) ORDER BY received_at LIMIT ?);
--   1: billing
--   2: -604800.000 seconds
--   3: 1000

-- inbox's version
SELECT CASE WHEN COUNT(*) >= 0 THEN '1' END FROM app."Received" WHERE consumer IS NULL;

-- schema version
SELECT value FROM app."Events_settings" WHERE name = 'schema';

-- make indexes for rows
CREATE INDEX IF NOT EXISTS app."Events_claim_id" ON "Events" (id) WHERE claimed_until IS NULL;
CREATE INDEX IF NOT EXISTS app."Events_claim_priority" ON "Events" (priority DESC, id) WHERE claimed_until IS NULL;
CREATE INDEX IF NOT EXISTS app."Events_claim_until" ON "Events" (claimed_until) WHERE claimed_until IS NOT NULL;

-- drop indexes for rows
DROP INDEX IF EXISTS app."Events_claim_id";
DROP INDEX IF EXISTS app."Events_claim_priority";
DROP INDEX IF EXISTS app."Events_claim_until";

-- count indexes for rows
SELECT count(*) FROM app.sqlite_master WHERE type = 'index' AND name IN (?, ?, ?);
--   1: Events_claim_id
--   2: Events_claim_priority
--   3: Events_claim_until

