-- schema version
SELECT value FROM app."Events_settings" WHERE name = 'schema';

-- make indexes for rows

-- drop indexes for rows

-- count indexes for rows
SELECT 3;

-- begin
SET LOCAL lock_timeout = '3s';

-- lock the claim
SELECT value FROM app."Events_settings" WHERE name = 'claim' FOR UPDATE;

-- set the claim
INSERT INTO app."Events_settings" (name, value) VALUES ('claim', $1::text)
ON CONFLICT (name) DO UPDATE SET value = excluded.value;
--   1: lanes

-- other relays
SELECT name FROM app."Events_relays" WHERE until >= now() AND claim <> $1::text ORDER BY name;
--   1: lanes

-- forget the other way
SELECT lane FROM app."Events_lanes" ORDER BY lane FOR UPDATE;
UPDATE app."Events_lanes" SET owner = NULL, until = NULL, fence = fence + 1, marks = NULL, journal = NULL, crashes = 0;
UPDATE app."Events" SET claimed_by = NULL, claim_token = NULL, claimed_until = NULL WHERE claimed_until IS NOT NULL;

-- beat
WITH claim AS MATERIALIZED (
    SELECT value FROM app."Events_settings" WHERE name = 'claim' FOR SHARE)
INSERT INTO app."Events_relays" AS r (name, host, version, claim, since, last_beat, until)
SELECT $1::text, $2::text, $3::text, $4::text, now(), now(), now() + ($5::bigint * interval '1 microsecond')
WHERE NOT EXISTS (SELECT 1 FROM claim WHERE value <> $6::text)
ON CONFLICT (name) DO UPDATE SET host = excluded.host, version = excluded.version, claim = excluded.claim,
    since = CASE WHEN r.until < now() THEN now() ELSE r.since END, last_beat = now(), until = excluded.until
RETURNING name, 0, '';
--   1: r
--   2: h
--   3: 1
--   4: lanes
--   5: 15000000
--   6: lanes

-- census
SELECT name FROM app."Events_relays" WHERE until >= now() ORDER BY name;

-- leave
DELETE FROM app."Events_relays" WHERE name = $1::text;
--   1: r

-- purge relays
DELETE FROM app."Events_relays" WHERE until < now() - interval '1 day';

-- settle by rows
SET LOCAL lock_timeout = '3s';
WITH given AS MATERIALIZED (SELECT id, lane, message_id, $4::text AS token, state, $6::boolean AS held, $7::integer AS attempts, $8::integer AS crashes, $9::bigint AS delay, $10::text AS error, $11::text AS receipt FROM unnest($1::bigint[], $2::smallint[], $3::uuid[], $5::text[]) AS u (id, lane, message_id, state)),
found AS MATERIALIZED (
    SELECT g.token, t.claim_token FROM given AS g JOIN app."Events" AS t ON t.lane = g.lane AND t.id = g.id AND t.message_id = g.message_id FOR UPDATE OF t)
SELECT 'fenced', count(*), 0::bigint FROM found WHERE claim_token IS DISTINCT FROM token;
--   1: {9,10}
--   2: {2,2}
--   3: {0197a3b4-0000-7abc-8def-000000000009,0197a3b4-0000-7abc-8def-000000000010}
--   4: t
--   5: {"pending","done"}
--   6: false
--   7: 0
--   8: 0
--   9: 0
--   10: 
--   11: 
WITH given AS MATERIALIZED (SELECT id, lane, message_id, $4::text AS token, $5::text AS state, $6::boolean AS held, $7::integer AS attempts, $8::integer AS crashes, $9::bigint AS delay, $10::text AS error, $11::text AS receipt FROM unnest($1::bigint[], $2::smallint[], $3::uuid[]) AS u (id, lane, message_id))
INSERT INTO app."Events_done" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, attempts, crashes, available_at, last_error, finished_at, receipt, relay)
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, g.attempts, g.crashes, t.available_at, COALESCE(NULLIF(g.error, ''), t.last_error), now(), NULLIF(g.receipt, ''), $12::text
FROM given AS g JOIN app."Events" AS t ON t.lane = g.lane AND t.id = g.id AND t.message_id = g.message_id AND t.claim_token = g.token;
--   1: {10}
--   2: {2}
--   3: {0197a3b4-0000-7abc-8def-000000000010}
--   4: t
--   5: done
--   6: false
--   7: 0
--   8: 0
--   9: 0
--   10: 
--   11: 
--   12: r
WITH given AS MATERIALIZED (SELECT id, lane, message_id, $4::text AS token, $5::text AS state, $6::boolean AS held, $7::integer AS attempts, $8::integer AS crashes, $9::bigint AS delay, $10::text AS error, $11::text AS receipt FROM unnest($1::bigint[], $2::smallint[], $3::uuid[]) AS u (id, lane, message_id))
DELETE FROM app."Events" AS t USING given AS g WHERE t.lane = g.lane AND t.id = g.id AND t.message_id = g.message_id AND t.claim_token = g.token;
--   1: {10}
--   2: {2}
--   3: {0197a3b4-0000-7abc-8def-000000000010}
--   4: t
--   5: done
--   6: false
--   7: 0
--   8: 0
--   9: 0
--   10: 
--   11: 
WITH given AS MATERIALIZED (SELECT id, lane, message_id, $4::text AS token, $5::text AS state, $6::boolean AS held, $7::integer AS attempts, $8::integer AS crashes, $9::bigint AS delay, $10::text AS error, $11::text AS receipt FROM unnest($1::bigint[], $2::smallint[], $3::uuid[]) AS u (id, lane, message_id))
UPDATE app."Events" AS t SET claimed_by = NULL, claim_token = NULL, claimed_until = NULL, attempts = g.attempts, crashes = g.crashes, last_error = COALESCE(NULLIF(g.error, ''), t.last_error)
FROM given AS g WHERE t.lane = g.lane AND t.id = g.id AND t.message_id = g.message_id AND t.claim_token = g.token;
--   1: {9}
--   2: {2}
--   3: {0197a3b4-0000-7abc-8def-000000000009}
--   4: t
--   5: pending
--   6: false
--   7: 0
--   8: 0
--   9: 0
--   10: 
--   11: 

-- settle by rows, not kept
SET LOCAL lock_timeout = '3s';
WITH given AS MATERIALIZED (SELECT id, lane, message_id, $4::text AS token, state, $6::boolean AS held, attempts, $8::integer AS crashes, delay, error, $11::text AS receipt FROM unnest($1::bigint[], $2::smallint[], $3::uuid[], $5::text[], $7::integer[], $9::bigint[], $10::text[]) AS u (id, lane, message_id, state, attempts, delay, error)),
found AS MATERIALIZED (
    SELECT g.token, t.claim_token FROM given AS g JOIN app."Events" AS t ON t.lane = g.lane AND t.id = g.id AND t.message_id = g.message_id FOR UPDATE OF t)
SELECT 'fenced', count(*), 0::bigint FROM found WHERE claim_token IS DISTINCT FROM token;
--   1: {10,11}
--   2: {2,2}
--   3: {0197a3b4-0000-7abc-8def-000000000010,0197a3b4-0000-7abc-8def-000000000011}
--   4: t
--   5: {"done","retry"}
--   6: false
--   7: {0,1}
--   8: 0
--   9: {0,1000000}
--   10: {"","refused"}
--   11: 
WITH given AS MATERIALIZED (SELECT id, lane, message_id, $4::text AS token, $5::text AS state, $6::boolean AS held, $7::integer AS attempts, $8::integer AS crashes, $9::bigint AS delay, $10::text AS error, $11::text AS receipt FROM unnest($1::bigint[], $2::smallint[], $3::uuid[]) AS u (id, lane, message_id))
DELETE FROM app."Events" AS t USING given AS g WHERE t.lane = g.lane AND t.id = g.id AND t.message_id = g.message_id AND t.claim_token = g.token;
--   1: {10}
--   2: {2}
--   3: {0197a3b4-0000-7abc-8def-000000000010}
--   4: t
--   5: done
--   6: false
--   7: 0
--   8: 0
--   9: 0
--   10: 
--   11: 
WITH given AS MATERIALIZED (SELECT id, lane, message_id, $4::text AS token, $5::text AS state, $6::boolean AS held, $7::integer AS attempts, $8::integer AS crashes, $9::bigint AS delay, $10::text AS error, $11::text AS receipt FROM unnest($1::bigint[], $2::smallint[], $3::uuid[]) AS u (id, lane, message_id))
INSERT INTO app."Events_held" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, attempts, crashes, available_at, last_error, state)
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, g.attempts, g.crashes, CASE WHEN g.state = 'retry' THEN now() + g.delay * interval '1 microsecond' WHEN g.state = 'scheduled' THEN COALESCE(t.available_at, now()) ELSE t.available_at END, COALESCE(NULLIF(g.error, ''), t.last_error), g.state
FROM given AS g JOIN app."Events" AS t ON t.lane = g.lane AND t.id = g.id AND t.message_id = g.message_id AND t.claim_token = g.token;
--   1: {11}
--   2: {2}
--   3: {0197a3b4-0000-7abc-8def-000000000011}
--   4: t
--   5: retry
--   6: false
--   7: 1
--   8: 0
--   9: 1000000
--   10: refused
--   11: 
WITH given AS MATERIALIZED (SELECT id, lane, message_id, $4::text AS token, $5::text AS state, $6::boolean AS held, $7::integer AS attempts, $8::integer AS crashes, $9::bigint AS delay, $10::text AS error, $11::text AS receipt FROM unnest($1::bigint[], $2::smallint[], $3::uuid[]) AS u (id, lane, message_id))
DELETE FROM app."Events" AS t USING given AS g WHERE t.lane = g.lane AND t.id = g.id AND t.message_id = g.message_id AND t.claim_token = g.token;
--   1: {11}
--   2: {2}
--   3: {0197a3b4-0000-7abc-8def-000000000011}
--   4: t
--   5: retry
--   6: false
--   7: 1
--   8: 0
--   9: 1000000
--   10: refused
--   11: 

-- purge
WITH old AS MATERIALIZED (
    SELECT id, message_id FROM app."Events_done" WHERE finished_at < now() - ($1::bigint * interval '1 microsecond') AND finished_at >= $2::timestamptz
    ORDER BY finished_at LIMIT $3::bigint FOR UPDATE SKIP LOCKED),
gone AS (DELETE FROM app."Events_done" AS d USING old WHERE d.id = old.id AND d.message_id = old.message_id RETURNING d.finished_at)
SELECT count(*), CASE WHEN count(*) < $3::bigint THEN now() - ($1::bigint * interval '1 microsecond') ELSE max(finished_at) END FROM gone;
--   1: 86400000000
--   2: 2026-10-05 01:02:03.000004+00
--   3: 100

-- claim the oldest
WITH claim AS MATERIALIZED (
    SELECT value FROM app."Events_settings" WHERE name = 'claim' FOR SHARE),
picked AS MATERIALIZED (
    SELECT t.lane, t.id, t.priority, COALESCE(octet_length(t.payload), 0) + COALESCE(octet_length(t.payload_text), 0) AS size FROM app."Events" AS t WHERE EXISTS (SELECT 1 FROM claim WHERE value = 'rows') AND claimed_until IS NULL
    ORDER BY id LIMIT $1::bigint FOR UPDATE OF t SKIP LOCKED),
fitting AS (SELECT *, sum(size) OVER (ROWS UNBOUNDED PRECEDING) - size AS bytes_before FROM picked)
UPDATE app."Events" AS t
SET claimed_by = $2::text, claim_token = $3::text, claimed_until = now() + ($4::bigint * interval '1 microsecond')
FROM fitting AS g WHERE g.bytes_before < $5::bigint AND t.lane = g.lane AND t.id = g.id AND t.claimed_until IS NULL
RETURNING t.id, t.lane, t.message_id::text, t.topic, t.message_key,
    COALESCE(t.payload, convert_to(t.payload_text, 'UTF8')), t.headers::text,
    t.available_at, NULLIF(t.priority, 0::smallint), NULLIF(t.attempts, 0), NULLIF(t.crashes, 0), t.created_at,
    CASE WHEN t.payload IS NULL OR t.available_at IS NOT NULL THEN CASE WHEN t.payload IS NULL AND t.payload_text IS NULL THEN 0 ELSE 1 END + CASE WHEN t.available_at > now() THEN 2 ELSE 0 END END;
--   1: 10
--   2: r
--   3: t
--   4: 60000000
--   5: 9223372036854775807

-- claim the highest of some topics
WITH claim AS MATERIALIZED (
    SELECT value FROM app."Events_settings" WHERE name = 'claim' FOR SHARE),
picked AS MATERIALIZED (
    SELECT t.lane, t.id, t.priority, COALESCE(octet_length(t.payload), 0) + COALESCE(octet_length(t.payload_text), 0) AS size FROM app."Events" AS t WHERE EXISTS (SELECT 1 FROM claim WHERE value = 'rows') AND claimed_until IS NULL AND topic = ANY ($1::text[]) AND topic <> ALL ($2::text[])
    ORDER BY priority DESC, id LIMIT $3::bigint FOR UPDATE OF t SKIP LOCKED),
fitting AS (SELECT *, sum(size) OVER (ROWS UNBOUNDED PRECEDING) - size AS bytes_before FROM picked)
UPDATE app."Events" AS t
SET claimed_by = $4::text, claim_token = $5::text, claimed_until = now() + ($6::bigint * interval '1 microsecond')
FROM fitting AS g WHERE g.bytes_before < $7::bigint AND t.lane = g.lane AND t.id = g.id AND t.claimed_until IS NULL
RETURNING t.id, t.lane, t.message_id::text, t.topic, t.message_key,
    COALESCE(t.payload, convert_to(t.payload_text, 'UTF8')), t.headers::text,
    t.available_at, NULLIF(t.priority, 0::smallint), NULLIF(t.attempts, 0), NULLIF(t.crashes, 0), t.created_at,
    CASE WHEN t.payload IS NULL OR t.available_at IS NOT NULL THEN CASE WHEN t.payload IS NULL AND t.payload_text IS NULL THEN 0 ELSE 1 END + CASE WHEN t.available_at > now() THEN 2 ELSE 0 END END;
--   1: {"a","b"}
--   2: {"c"}
--   3: 10
--   4: r
--   5: t
--   6: 60000000
--   7: 1048576

-- peek at free rows
SELECT id FROM app."Events" WHERE claimed_until IS NULL ORDER BY id LIMIT 1;

-- peek at what ended
SELECT id FROM (SELECT id FROM app."Events" WHERE claimed_until IS NOT NULL AND claimed_until < now() ORDER BY claimed_until LIMIT 1) AS c UNION ALL SELECT id FROM (SELECT id FROM app."Events_held" WHERE state <> 'error' AND available_at <= now() ORDER BY available_at, id LIMIT 1) AS h;

-- extend
WITH claim AS MATERIALIZED (
    SELECT value FROM app."Events_settings" WHERE name = 'claim' FOR SHARE),
given AS MATERIALIZED (
    SELECT lane, id FROM app."Events" WHERE EXISTS (SELECT 1 FROM claim WHERE value = 'rows') AND claimed_until IS NOT NULL AND claim_token = $1::text AND id = ANY ($2::bigint[])),
found AS MATERIALIZED (
    SELECT t.lane, t.id FROM given AS g JOIN app."Events" AS t ON t.lane = g.lane AND t.id = g.id
    WHERE t.claim_token = $3::text FOR UPDATE OF t SKIP LOCKED),
extended AS (UPDATE app."Events" AS t SET claimed_until = now() + ($4::bigint * interval '1 microsecond')
    FROM found AS g WHERE t.lane = g.lane AND t.id = g.id AND t.claim_token = $5::text RETURNING t.id)
SELECT id FROM extended UNION ALL SELECT id FROM given WHERE id NOT IN (SELECT id FROM found);
--   1: t
--   2: {1,2}
--   3: t
--   4: 60000000
--   5: t

-- free claims that ended
WITH claim AS MATERIALIZED (
    SELECT value FROM app."Events_settings" WHERE name = 'claim' FOR SHARE),
ended AS MATERIALIZED (
    SELECT lane, id FROM app."Events" WHERE EXISTS (SELECT 1 FROM claim WHERE value = 'rows') AND claimed_until IS NOT NULL AND claimed_until < now()
    ORDER BY claimed_until LIMIT $1::bigint FOR UPDATE SKIP LOCKED)
UPDATE app."Events" AS t
SET claimed_by = NULL, claim_token = NULL, claimed_until = NULL, crashes = t.crashes + 1
FROM ended AS g WHERE t.lane = g.lane AND t.id = g.id AND t.claimed_until < now();
--   1: 10

-- bring back
WITH claim AS MATERIALIZED (
    SELECT value FROM app."Events_settings" WHERE name = 'claim' FOR SHARE),
due AS MATERIALIZED (
    SELECT t.lane, t.id, t.message_id FROM app."Events_held" AS t WHERE EXISTS (SELECT 1 FROM claim WHERE value = 'rows') AND t.state <> 'error' AND t.available_at <= now()
        AND (SELECT COUNT(*) FROM app."Events" h WHERE h.lane = t.lane AND h.id = t.id) = 0 AND (SELECT COUNT(*) FROM app."Events_held" o WHERE o.lane = t.lane AND o.id = t.id AND o.message_id < t.message_id AND o.state <> 'error' AND o.available_at <= now()) = 0
    ORDER BY t.available_at, t.id LIMIT $1::bigint FOR UPDATE OF t SKIP LOCKED),
back AS (DELETE FROM app."Events_held" AS t USING due AS g WHERE t.lane = g.lane AND t.id = g.id AND t.message_id = g.message_id
    RETURNING t.id, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.attempts, t.crashes, t.available_at, t.last_error, t.created_at)
INSERT INTO app."Events" (id, message_id, topic, message_key, payload, payload_text, headers, priority, attempts, crashes, available_at, last_error, created_at)
SELECT id, message_id, topic, message_key, payload, payload_text, headers, priority, attempts, crashes, available_at, last_error, created_at FROM back;
--   1: 10

-- list
SELECT t.id, t.lane, t.message_id::text, t.topic, t.message_key,
    COALESCE(t.payload, convert_to(t.payload_text, 'UTF8')), t.headers::text,
    t.available_at, NULLIF(t.priority, 0::smallint), NULLIF(t.attempts, 0), NULLIF(t.crashes, 0), t.created_at,
    CASE WHEN t.payload IS NULL AND t.payload_text IS NULL THEN 0 ELSE 1 END + CASE WHEN t.available_at > now() THEN 2 ELSE 0 END + CASE WHEN t.state = 'retry' THEN 4 ELSE 0 END, t.state, COALESCE(t.last_error, ''), COALESCE(t.receipt, ''), COALESCE(t.claimed_by, ''), t.finished_at
FROM app."Events_messages" AS t WHERE t.id > $1::bigint
ORDER BY t.id LIMIT $2::bigint;
--   1: 0
--   2: 10

-- list by filter
SELECT t.id, t.lane, t.message_id::text, t.topic, t.message_key,
    COALESCE(t.payload, convert_to(t.payload_text, 'UTF8')), t.headers::text,
    t.available_at, NULLIF(t.priority, 0::smallint), NULLIF(t.attempts, 0), NULLIF(t.crashes, 0), t.created_at,
    CASE WHEN t.payload IS NULL AND t.payload_text IS NULL THEN 0 ELSE 1 END + CASE WHEN t.available_at > now() THEN 2 ELSE 0 END + CASE WHEN t.state = 'retry' THEN 4 ELSE 0 END, t.state, COALESCE(t.last_error, ''), COALESCE(t.receipt, ''), COALESCE(t.claimed_by, ''), t.finished_at
FROM app."Events_messages" AS t WHERE t.id > $1::bigint AND (t.id = ANY ($2::bigint[]) OR t.message_id = ANY ($3::uuid[])) AND t.topic = $4::text AND t.message_key = $5::text AND t.state = $6::text AND t.created_at >= $7::timestamptz AND strpos(t.last_error, $8::text) > 0
ORDER BY t.id LIMIT $9::bigint;
--   1: 3
--   2: {1}
--   3: {"0197a3b4-0000-7abc-8def-0123456789ab"}
--   4: t
--   5: k
--   6: error
--   7: 2026-01-31 00:00:00+00
--   8: refused
--   9: 10

-- requeue
WITH parked AS MATERIALIZED (
    SELECT lane, id, message_id FROM app."Events_held" AS t WHERE t.state = 'error' AND t.id > $1::bigint AND (t.id = ANY ($2::bigint[]) OR t.message_id = ANY ($3::uuid[])) AND t.topic = $4::text AND t.message_key = $5::text AND t.created_at >= $6::timestamptz AND strpos(t.last_error, $7::text) > 0
    ORDER BY id LIMIT $8::bigint FOR UPDATE)
UPDATE app."Events_held" AS t SET state = 'scheduled', attempts = 0, crashes = 0, available_at = now()
FROM parked AS p WHERE t.lane = p.lane AND t.id = p.id AND t.message_id = p.message_id
RETURNING t.id;
--   1: 3
--   2: {1}
--   3: {"0197a3b4-0000-7abc-8def-0123456789ab"}
--   4: t
--   5: k
--   6: 2026-01-31 00:00:00+00
--   7: refused
--   8: 10

-- discard
WITH parked AS MATERIALIZED (
    SELECT lane, id, message_id FROM app."Events_held" AS t WHERE t.state = 'error' AND t.id > $1::bigint AND (t.id = ANY ($2::bigint[]) OR t.message_id = ANY ($3::uuid[])) AND t.topic = $4::text AND t.message_key = $5::text AND t.created_at >= $6::timestamptz AND strpos(t.last_error, $7::text) > 0
    ORDER BY id LIMIT $8::bigint FOR UPDATE)
DELETE FROM app."Events_held" AS t USING parked AS p WHERE t.lane = p.lane AND t.id = p.id AND t.message_id = p.message_id
RETURNING t.id;
--   1: 3
--   2: {1}
--   3: {"0197a3b4-0000-7abc-8def-0123456789ab"}
--   4: t
--   5: k
--   6: 2026-01-31 00:00:00+00
--   7: refused
--   8: 10

-- counts
SELECT state, count(*) FROM (
    SELECT CASE WHEN claimed_until > now() THEN 'claimed' WHEN available_at > now() THEN 'scheduled' ELSE 'pending' END AS state FROM app."Events"
    UNION ALL SELECT CASE WHEN state = 'scheduled' AND COALESCE(available_at <= now(), true) THEN 'pending' ELSE state END FROM app."Events_held"
) AS s GROUP BY state
UNION ALL
SELECT 'done', count(*) FROM (SELECT 1 FROM app."Events_done" LIMIT $1::bigint) AS d;
--   1: 1000

-- oldest
SELECT GREATEST(0, COALESCE(extract(epoch FROM now() - min(since)) * 1000, 0))::bigint FROM (
    SELECT GREATEST(created_at, available_at) AS since FROM app."Events" WHERE COALESCE(available_at <= now(), true) AND COALESCE(claimed_until <= now(), true)
    UNION ALL SELECT GREATEST(created_at, available_at) FROM app."Events_held" WHERE state = 'scheduled' AND COALESCE(available_at <= now(), true)) AS p;

-- topics
SELECT topic, count(*) FROM (
    SELECT topic FROM app."Events" WHERE COALESCE(available_at <= now(), true) AND COALESCE(claimed_until <= now(), true)
    UNION ALL SELECT topic FROM app."Events_held" WHERE state = 'scheduled' AND COALESCE(available_at <= now(), true)
    LIMIT $1::bigint) AS t GROUP BY topic;
--   1: 1000

-- relays
SELECT r.name, r.host, r.version, r.claim, r.since, r.last_beat, r.until >= now(),
    (SELECT count(*) FROM app."Events_lanes" AS l WHERE l.owner = r.name AND l.until >= now())
FROM app."Events_relays" AS r ORDER BY r.name;

-- lanes
SELECT count(*) FROM app."Events_lanes" WHERE owner IS NOT NULL AND until >= now();

-- claimed by
SELECT value FROM app."Events_settings" WHERE name = 'claim';

-- check rights
SELECT need, 'on', name FROM unnest($1::text[], $2::text[]) AS n (name, need)
WHERE NOT has_table_privilege(name, need);
--   1: {"app.\"Events\"","app.\"Events\"","app.\"Events\"","app.\"Events\"","app.\"Events_held\"","app.\"Ev
--   2: {"SELECT","UPDATE","DELETE","INSERT","SELECT","INSERT","UPDATE","DELETE","SELECT","INSERT","UPDATE",

-- check isolation
SELECT current_setting('yb_effective_transaction_isolation_level', true);

