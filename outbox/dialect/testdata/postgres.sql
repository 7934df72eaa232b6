-- insert
INSERT INTO app."Events" (message_id, topic, message_key, payload, headers, available_at, expires_at, priority) VALUES ($1::uuid,$2,$3,$4,$5::json,$6::timestamptz,$7::timestamptz,$8::smallint);
--   1: i
--   2: t"\
--   3: k
--   4: [112 112]
--   5: {}
--   6: 2030-01-02 03:04:05.678901+00
--   7: 2030-01-03 00:00:00.000000+00
--   8: 3

-- insert several
INSERT INTO app."Events" (message_id, topic, message_key, payload, headers, available_at, expires_at, priority) VALUES ($1::uuid,$2,$3,$4,$5::json,$6::timestamptz,$7::timestamptz,$8::smallint),($9::uuid,$10,$11,$12,$13::json,$14::timestamptz,$15::timestamptz,$16::smallint),($17::uuid,$18,$19,$20,$21::json,$22::timestamptz,$23::timestamptz,$24::smallint),($25::uuid,$26,$27,$28,$29::json,$30::timestamptz,$31::timestamptz,$32::smallint);
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
--   14: 2030-01-02 03:04:05.678901+00
--   15: 2030-01-03 00:00:00.000000+00
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
--   30: 2030-01-02 03:04:05.678901+00
--   31: 2030-01-03 00:00:00.000000+00
--   32: 3

-- insert ids
INSERT INTO app."Events_ids" (message_id, write_token) SELECT id, $2::bigint FROM unnest($1::uuid[]) AS g (id) ON CONFLICT DO NOTHING;
--   1: {"i","0197a3b4-0000-7abc-8def-0123456789ab"}
--   2: 42

-- delete ids
DELETE FROM app."Events_ids" WHERE message_id = ANY ($1::uuid[]) AND $2::bigint IN (0, write_token);
--   1: {"i","0197a3b4-0000-7abc-8def-0123456789ab"}
--   2: 42

-- cancel
DELETE FROM app."Events" WHERE message_id = $1::uuid AND available_at IS NOT NULL AND available_at > clock_timestamp() + ($2::bigint * interval '1 microsecond');
--   1: i
--   2: 5000000
DELETE FROM app."Events_held" WHERE message_id = $1::uuid AND available_at IS NOT NULL AND available_at > clock_timestamp() + ($2::bigint * interval '1 microsecond') AND state = 'scheduled';
--   1: i
--   2: 5000000

-- lock keys
SELECT pg_advisory_xact_lock(h) FROM (SELECT DISTINCT hashtextextended(k, 'app."Events"'::regclass::oid::bigint) AS h FROM unnest($1::text[]) AS k ORDER BY h) AS locks;
--   1: {"b","a","b"}

-- notify
SELECT pg_notify('rowrelay_Events', 'app."Events"'::regclass::oid::text);

-- written
SELECT message_id::text, topic, message_key, payload, payload IS NULL, payload_text, headers::text, to_char(available_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US'), to_char(expires_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US'), priority FROM app."Events_messages" ORDER BY id;

-- receive
INSERT INTO app."Received" (consumer, message_id) VALUES ($1::text, $2::text) ON CONFLICT DO NOTHING;
--   1: billing
--   2: 0197a3b4-0000-7abc-8def-0123456789ab

-- purge received
WITH old AS MATERIALIZED (
    SELECT consumer, message_id FROM app."Received" WHERE consumer = $1::text AND received_at < now() - ($2::bigint * interval '1 microsecond')
    ORDER BY received_at LIMIT $3::bigint FOR UPDATE SKIP LOCKED)
DELETE FROM app."Received" AS i USING old WHERE i.consumer = old.consumer AND i.message_id = old.message_id;
--   1: billing
--   2: 604800000000
--   3: 1000

-- inbox's version
SELECT CASE WHEN COUNT(*) >= 0 THEN '1' END FROM app."Received" WHERE consumer IS NULL;

-- schema version
SELECT value FROM app."Events_settings" WHERE name = 'schema';

-- make indexes for rows
CREATE INDEX IF NOT EXISTS "Events_claim_id" ON app."Events" (id) WHERE claimed_until IS NULL;
CREATE INDEX IF NOT EXISTS "Events_claim_priority" ON app."Events" (priority DESC, id) WHERE claimed_until IS NULL;
CREATE INDEX IF NOT EXISTS "Events_claim_until" ON app."Events" (claimed_until) WHERE claimed_until IS NOT NULL;

-- drop indexes for rows
DROP INDEX IF EXISTS app."Events_claim_id";
DROP INDEX IF EXISTS app."Events_claim_priority";
DROP INDEX IF EXISTS app."Events_claim_until";

-- count indexes for rows
SELECT count(to_regclass(name)) FROM unnest($1::text[]) AS n (name);
--   1: {"app.\"Events_claim_id\"","app.\"Events_claim_priority\"","app.\"Events_claim_until\""}

-- server
SELECT 'version', version() UNION ALL SELECT 'server_version_num', current_setting('server_version_num') UNION ALL SELECT 'jit', COALESCE(current_setting('jit', true), 'off');

