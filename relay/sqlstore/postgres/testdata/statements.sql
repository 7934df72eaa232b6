-- claim mode
SELECT value FROM app."Events_settings" WHERE name = 'claim';

-- set the claim mode
SELECT set_config('lock_timeout', '3s', true);
SELECT value FROM app."Events_settings" WHERE name = 'claim' FOR UPDATE;
SELECT name FROM app."Events_relays" WHERE until >= now() AND claim <> $1::text ORDER BY name;
--   1: lanes
INSERT INTO app."Events_settings" (name, value) VALUES ('claim', $1::text)
ON CONFLICT (name) DO UPDATE SET value = excluded.value;
--   1: lanes
SELECT lane FROM app."Events_lanes" ORDER BY lane FOR UPDATE;
UPDATE app."Events_lanes" SET owner = NULL, until = NULL, fence = fence + 1, marks = NULL, journal = NULL, crashes = 0;
UPDATE app."Events" SET claimed_by = NULL, claim_token = NULL, claimed_until = NULL WHERE claimed_until IS NOT NULL;
UPDATE app."Events_held" SET state = 'error', holds = 0 WHERE holds > 0;
-- a statement of the dialect, about the indexes for claiming by rows
-- a statement of the dialect, about the indexes for claiming by rows
-- a statement of the dialect, about the indexes for claiming by rows
-- a statement of the dialect, about the indexes for claiming by rows

-- heartbeat
WITH claim AS MATERIALIZED (
    SELECT value FROM app."Events_settings" WHERE name = 'claim' FOR SHARE)
INSERT INTO app."Events_relays" AS r (name, host, version, claim, since, last_heartbeat, until, setup)
SELECT $1::text, $2::text, $3::text, $4::text, now(), now(), now() + ($5::bigint * interval '1 microsecond'), $6::text
WHERE NOT EXISTS (SELECT 1 FROM claim WHERE value <> $4::text)
ON CONFLICT (name) DO UPDATE SET host = excluded.host, version = excluded.version, claim = excluded.claim,
    since = CASE WHEN r.until < now() THEN now() ELSE r.since END, last_heartbeat = now(), until = excluded.until, setup = excluded.setup
RETURNING name, pg_current_xact_id()::text::bigint, COALESCE((SELECT epoch::text FROM app."Events_epoch"), '-');
--   1: r
--   2: h
--   3: 1
--   4: lanes
--   5: 15000000
--   6: 
SELECT name, setup, now() FROM app."Events_relays" WHERE until >= now() ORDER BY name;

-- end leases
UPDATE app."Events_lanes" SET until = now() - interval '1 second', fence = fence + 1 WHERE owner = $1::text;
--   1: r

-- end claims
UPDATE app."Events" SET claimed_until = now() - interval '1 second' WHERE claimed_until >= now() AND claimed_by = $1::text;
--   1: r

-- deregister
WITH gone AS (DELETE FROM app."Events_relays" WHERE name = $1::text RETURNING leased_until)
UPDATE app."Events_lanes" SET until = COALESCE(gone.leased_until, now()) FROM gone WHERE owner = $1::text AND until IS NULL;
--   1: r

-- check
SELECT quote_ident(current_user);
SELECT CASE WHEN reltuples > 0 THEN pg_relation_size(oid) ELSE 0 END FROM pg_class WHERE oid = to_regclass($1::text);
--   1: app."Events"
SELECT name, value FROM (VALUES
    ('default_transaction_read_only', 'on'), ('enable_indexscan', 'off'), ('synchronous_commit', 'off'), ('plan_cache_mode', 'force_generic_plan')) AS unfit (name, value)
WHERE current_setting(name) = value
UNION ALL SELECT 'the server is', 'a standby' WHERE pg_is_in_recovery();
WITH own AS (
    SELECT c.oid, c.relname FROM pg_class AS c JOIN pg_namespace AS s ON s.oid = c.relnamespace
    WHERE s.nspname = $3::text OR $3::text = '' AND pg_table_is_visible(c.oid))
SELECT 'USAGE', 'on', 'SCHEMA ' || quote_ident(nspname) FROM pg_namespace WHERE nspname = $3::text AND NOT has_schema_privilege(oid, 'USAGE')
UNION ALL SELECT need, 'on', name FROM unnest($1::text[], $2::text[]) AS n (name, need), parse_ident(name) AS part
WHERE NOT has_table_privilege((SELECT own.oid FROM own WHERE own.relname = part[cardinality(part)]), need)
UNION ALL SELECT 'SELECT', 'on', c.oid::regclass::text FROM parse_ident('app."Events"') AS part, own
JOIN pg_depend AS d ON d.refobjid = own.oid AND d.refclassid = 'pg_class'::regclass AND d.classid = 'pg_class'::regclass JOIN pg_class AS c ON c.oid = d.objid
WHERE own.relname = part[cardinality(part)] AND c.relkind = 'S' AND NOT has_table_privilege(c.oid, 'SELECT');
--   1: {"app.\"Events\"","app.\"Events\"","app.\"Events\"","app.\"Events\"","app.\"Events_held\"","app.\"Ev
--   2: {"SELECT","INSERT","UPDATE","DELETE","SELECT","INSERT","UPDATE","DELETE","SELECT","INSERT","UPDATE",
--   3: app
SELECT s.setting FROM pg_sequence AS q CROSS JOIN LATERAL (VALUES
    ('CACHE ' || q.seqcache, q.seqcache > 1), ('INCREMENT BY ' || q.seqincrement, q.seqincrement <= 0), ('CYCLE', q.seqcycle)) AS s (setting, wrong)
WHERE q.seqrelid = pg_get_serial_sequence('app."Events"', 'id')::regclass AND s.wrong
UNION ALL SELECT 'no right of this user to SELECT' WHERE NOT has_sequence_privilege(pg_get_serial_sequence('app."Events"', 'id'), 'SELECT');
SELECT concat_ws(' ', COALESCE(pg_sequence_last_value(pg_get_serial_sequence('app."Events"', 'id')::regclass), 0), 0, 0, pg_current_snapshot(), COALESCE((SELECT epoch::text FROM app."Events_epoch"), '-')),
    0::bigint, 0::smallint, '', '', '', '', NULL::bytea, '', NULL::timestamptz, NULL::timestamptz, 0::smallint, 0, 0, NULL::timestamptz, 0
UNION ALL
SELECT NULL, t.id, t.lane, t.message_id::text, t.topic, t.message_key, NULLIF(t.sinks, ''),
    COALESCE(t.payload, convert_to(t.payload_text, 'UTF8')), t.headers::text,
    t.available_at, t.expires_at, NULLIF(t.priority, 0::smallint), NULLIF(t.attempts, 0), NULLIF(t.crashes, 0), t.created_at,
    CASE WHEN t.payload IS NULL OR t.available_at IS NOT NULL THEN CASE WHEN t.payload IS NULL AND t.payload_text IS NULL THEN 0 ELSE 1 END + CASE WHEN t.available_at > now() THEN 2 ELSE 0 END END
FROM (SELECT t.* FROM unnest($1::smallint[], $2::bigint[], $3::bigint[]) AS p (lane, after, until)
CROSS JOIN LATERAL (SELECT * FROM app."Events" AS h
    WHERE h.lane = p.lane AND h.id > COALESCE(p.after, (p.lane::text @@ ANY ('{x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x}'::text[]))::int) AND h.id <= p.until
    ORDER BY h.lane, h.id LIMIT $4::bigint) AS t LIMIT $5::bigint) AS t WHERE true;
--   1: {}
--   2: {}
--   3: {}
--   4: 1
--   5: 1
SELECT min(xact_start)::timestamp(0)::text FROM pg_stat_activity WHERE backend_type = 'client backend' HAVING min(xact_start) < now() - interval '10 minutes';
SELECT 'ALTER SYSTEM SET autovacuum = on; SELECT pg_reload_conf()' WHERE NOT current_setting('autovacuum')::boolean
UNION ALL SELECT 'ALTER TABLE ' || n.name || ' RESET (autovacuum_enabled)' FROM unnest($1::text[]) AS n (name) JOIN pg_class AS c ON c.oid = to_regclass(n.name)
WHERE EXISTS (SELECT 1 FROM unnest(c.reloptions) AS o WHERE o IN ('autovacuum_enabled=false', 'autovacuum_enabled=off'));
--   1: {"app.\"Events\"","app.\"Events_held\"","app.\"Events_done\"","app.\"Events_lanes\"","app.\"Events_r
SELECT n.name, 'has', pg_stat_get_dead_tuples(c.oid), 'dead rows beside', pg_stat_get_live_tuples(c.oid), 'living ones, and was vacuumed',
    COALESCE(to_char(GREATEST(pg_stat_get_last_vacuum_time(c.oid), pg_stat_get_last_autovacuum_time(c.oid)), 'YYYY-MM-DD HH24:MI'), 'never')
FROM unnest($1::text[]) AS n (name) JOIN pg_class AS c ON c.oid = to_regclass(n.name)
WHERE pg_stat_get_dead_tuples(c.oid) > $2::bigint AND pg_stat_get_dead_tuples(c.oid) > pg_stat_get_live_tuples(c.oid);
--   1: {"app.\"Events\"","app.\"Events_held\"","app.\"Events_done\"","app.\"Events_lanes\"","app.\"Events_r
--   2: 200000
EXPLAIN SELECT concat_ws(' ', COALESCE(pg_sequence_last_value(pg_get_serial_sequence('app."Events"', 'id')::regclass), 0), 0, 0, pg_current_snapshot(), COALESCE((SELECT epoch::text FROM app."Events_epoch"), '-')),
    0::bigint, 0::smallint, '', '', '', '', NULL::bytea, '', NULL::timestamptz, NULL::timestamptz, 0::smallint, 0, 0, NULL::timestamptz, 0
UNION ALL
SELECT NULL, t.id, t.lane, t.message_id::text, t.topic, t.message_key, NULLIF(t.sinks, ''),
    COALESCE(t.payload, convert_to(t.payload_text, 'UTF8')), t.headers::text,
    t.available_at, t.expires_at, NULLIF(t.priority, 0::smallint), NULLIF(t.attempts, 0), NULLIF(t.crashes, 0), t.created_at,
    CASE WHEN t.payload IS NULL OR t.available_at IS NOT NULL THEN CASE WHEN t.payload IS NULL AND t.payload_text IS NULL THEN 0 ELSE 1 END + CASE WHEN t.available_at > now() THEN 2 ELSE 0 END END
FROM (SELECT t.* FROM unnest($1::smallint[], $2::bigint[], $3::bigint[]) AS p (lane, after, until)
CROSS JOIN LATERAL (SELECT * FROM app."Events" AS h
    WHERE h.lane = p.lane AND h.id > COALESCE(p.after, (p.lane::text @@ ANY ('{x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x}'::text[]))::int) AND h.id <= p.until
    ORDER BY h.lane, h.id LIMIT $4::bigint) AS t LIMIT $5::bigint) AS t WHERE true;
--   1: {1}
--   2: {0}
--   3: {4611686018427387904}
--   4: 500
--   5: 500

-- acquire
SELECT l.lane FROM app."Events_lanes" AS l WHERE COALESCE(l.until, (SELECT r.leased_until FROM app."Events_relays" AS r WHERE r.name = l.owner), '-infinity') < now()
ORDER BY random() LIMIT $1::bigint FOR UPDATE OF l SKIP LOCKED;
--   1: 5
UPDATE app."Events_lanes" AS l
SET owner = $2::text, fence = l.fence + $4::bigint, until = now() + ($3::bigint * interval '1 microsecond'),
    crashes = CASE WHEN l.owner IS NULL THEN l.crashes ELSE l.crashes + 1 END
WHERE l.lane = ANY ($1::smallint[]) AND COALESCE(l.until, (SELECT r.leased_until FROM app."Events_relays" AS r WHERE r.name = l.owner), '-infinity') < now()
RETURNING l.lane, l.fence, COALESCE(l.marks, ''), l.crashes, COALESCE(l.journal, ''), pg_current_xact_id()::text::bigint;
--   1: {1}
--   2: r
--   3: 15000000
--   4: 300

-- renew
WITH g AS MATERIALIZED (
    SELECT l.lane, l.fence, g.marks, g.calm,
        l.until IS NOT NULL OR l.marks IS DISTINCT FROM g.marks OR g.calm AND (l.crashes > 0 OR l.journal IS NOT NULL) AS changes
    FROM app."Events_lanes" AS l JOIN unnest($1::smallint[], $2::bigint[], $3::text[], $4::boolean[], $5::text[]) AS g (lane, fence, marks, calm, journal) ON l.lane = g.lane AND l.fence = g.fence AND l.owner = $6::text
    ORDER BY l.lane FOR SHARE OF l),
renewed AS (
    UPDATE app."Events_relays" SET leased_until = now() + ($8::bigint * interval '1 microsecond') WHERE name = $6::text RETURNING name),
changed AS (
    UPDATE app."Events_lanes" AS l
    SET until = CASE WHEN EXISTS (SELECT 1 FROM renewed) THEN NULL ELSE now() + ($8::bigint * interval '1 microsecond') END, marks = CASE WHEN $7::text = '' OR COALESCE((SELECT epoch::text FROM app."Events_epoch"), '-') = $7::text THEN g.marks ELSE l.marks END,
        crashes = CASE WHEN g.calm THEN 0 ELSE l.crashes END, journal = CASE WHEN g.calm THEN NULL ELSE l.journal END
    FROM g WHERE l.lane = g.lane AND (g.changes OR NOT EXISTS (SELECT 1 FROM renewed))),
others AS (
    UPDATE app."Events_lanes" AS l SET until = COALESCE(l.until, (SELECT r.leased_until FROM app."Events_relays" AS r WHERE r.name = l.owner), '-infinity')
    WHERE l.owner = $6::text AND l.until IS NULL AND NOT EXISTS (SELECT 1 FROM unnest($9::smallint[], $10::bigint[]) AS k (lane, fence) WHERE k.lane = l.lane AND k.fence = l.fence))
SELECT g.lane, g.fence, pg_current_xact_id()::text::bigint FROM g;
--   1: {1,2}
--   2: {7,8}
--   3: {"{\"main\":5}",""}
--   4: {true,false}
--   5: {"[{\"id\":1}]",""}
--   6: r
--   7: e
--   8: 15000000
--   9: {1,2}
--   10: {7,8}

-- release
UPDATE app."Events_lanes" AS l
SET owner = NULL, until = NULL, marks = CASE WHEN $7::text = '' OR COALESCE((SELECT epoch::text FROM app."Events_epoch"), '-') = $7::text THEN g.marks ELSE l.marks END, journal = NULL, crashes = 0
FROM unnest($1::smallint[], $2::bigint[], $3::text[], $4::boolean[], $5::text[]) AS g (lane, fence, marks, calm, journal)
WHERE l.lane = g.lane AND l.fence = g.fence AND l.owner = $6::text
RETURNING l.lane, l.fence, pg_current_xact_id()::text::bigint;
--   1: {1,2}
--   2: {7,8}
--   3: {"{\"main\":5}",""}
--   4: {true,false}
--   5: {"[{\"id\":1}]",""}
--   6: r
--   7: e

-- write the journal
WITH g AS MATERIALIZED (
    SELECT l.lane, l.fence, g.journal
    FROM app."Events_lanes" AS l JOIN unnest($1::smallint[], $2::bigint[], $3::text[], $4::boolean[], $5::text[]) AS g (lane, fence, marks, calm, journal) ON l.lane = g.lane AND l.fence = g.fence AND l.owner = $6::text
    ORDER BY l.lane FOR NO KEY UPDATE OF l)
UPDATE app."Events_lanes" AS l SET journal = g.journal
FROM g WHERE l.lane = g.lane
RETURNING l.lane, l.fence, pg_current_xact_id()::text::bigint;
--   1: {1,2}
--   2: {7,8}
--   3: {"{\"main\":5}",""}
--   4: {true,false}
--   5: {"[{\"id\":1}]",""}
--   6: r

-- journals
SELECT lane, fence, journal FROM app."Events_lanes" WHERE journal IS NOT NULL;

-- marks
SELECT lane, marks FROM app."Events_lanes" WHERE marks IS NOT NULL ORDER BY lane;

-- row security
SELECT oid::regclass::text FROM pg_class
WHERE oid = ANY (ARRAY[to_regclass('app."Events"'), to_regclass('app."Events_held"'), to_regclass('app."Events_done"'), to_regclass('app."Events_ids"'), to_regclass('app."Events_lanes"'), to_regclass('app."Events_relays"'),
    to_regclass('app."Events_settings"'), to_regclass('app."Events_controls"'), to_regclass('app."Events_actions"'), to_regclass('app."Events_epoch"')]::oid[]) AND row_security_active(oid)
ORDER BY 1;

-- ids out of order
SELECT s.setting FROM pg_sequence AS q CROSS JOIN LATERAL (VALUES
    ('CACHE ' || q.seqcache, q.seqcache > 1), ('INCREMENT BY ' || q.seqincrement, q.seqincrement <= 0), ('CYCLE', q.seqcycle)) AS s (setting, wrong)
WHERE q.seqrelid = pg_get_serial_sequence('app."Events"', 'id')::regclass AND s.wrong
UNION ALL SELECT 'no right of this user to SELECT' WHERE NOT has_sequence_privilege(pg_get_serial_sequence('app."Events"', 'id'), 'SELECT');

-- last id
SELECT COALESCE(pg_sequence_last_value(pg_get_serial_sequence('app."Events"', 'id')::regclass), 0);

-- written from
SELECT id, (extract(epoch FROM created_at) * 1000)::bigint FROM (
    SELECT h.id, h.created_at FROM app."Events_lanes" AS l CROSS JOIN LATERAL
        (SELECT t.lane, t.id, t.created_at FROM app."Events" AS t WHERE t.lane = l.lane AND t.id >= $1 ORDER BY t.lane, t.id LIMIT 1) AS h
    UNION ALL (SELECT d.id, d.created_at FROM app."Events_done" AS d WHERE d.id >= $1 ORDER BY d.id LIMIT 1)
) AS w ORDER BY id LIMIT 1;
--   1: 0

-- first line
SELECT concat_ws(' ', COALESCE(pg_sequence_last_value(pg_get_serial_sequence('app."Events"', 'id')::regclass), 0), 0, 0, pg_current_snapshot(), COALESCE((SELECT epoch::text FROM app."Events_epoch"), '-'));

-- read
SELECT concat_ws(' ', COALESCE(pg_sequence_last_value(pg_get_serial_sequence('app."Events"', 'id')::regclass), 0), 0, 0, pg_current_snapshot(), COALESCE((SELECT epoch::text FROM app."Events_epoch"), '-')),
    0::bigint, 0::smallint, '', '', '', '', NULL::bytea, '', NULL::timestamptz, NULL::timestamptz, 0::smallint, 0, 0, NULL::timestamptz, 0
UNION ALL
SELECT NULL, t.id, t.lane, t.message_id::text, t.topic, t.message_key, NULLIF(t.sinks, ''),
    COALESCE(t.payload, convert_to(t.payload_text, 'UTF8')), t.headers::text,
    t.available_at, t.expires_at, NULLIF(t.priority, 0::smallint), NULLIF(t.attempts, 0), NULLIF(t.crashes, 0), t.created_at,
    CASE WHEN t.payload IS NULL OR t.available_at IS NOT NULL THEN CASE WHEN t.payload IS NULL AND t.payload_text IS NULL THEN 0 ELSE 1 END + CASE WHEN t.available_at > now() THEN 2 ELSE 0 END END
FROM (SELECT t.* FROM unnest($1::smallint[], $2::bigint[], $3::bigint[]) AS p (lane, after, until)
CROSS JOIN LATERAL (SELECT * FROM app."Events" AS h
    WHERE h.lane = p.lane AND h.id > COALESCE(p.after, (p.lane::text @@ ANY ('{x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x}'::text[]))::int) AND h.id <= p.until
    ORDER BY h.lane, h.id LIMIT $4::bigint) AS t LIMIT $5::bigint) AS t WHERE true;
--   1: {1,2}
--   2: {10,11}
--   3: {20,21}
--   4: 100
--   5: 100

-- read a share
SELECT concat_ws(' ', COALESCE(pg_sequence_last_value(pg_get_serial_sequence('app."Events"', 'id')::regclass), 0), 0, pg_current_xact_id(), pg_current_snapshot(), COALESCE((SELECT epoch::text FROM app."Events_epoch"), '-')),
    0::bigint, 0::smallint, '', '', '', '', NULL::bytea, '', NULL::timestamptz, NULL::timestamptz, 0::smallint, 0, 0, NULL::timestamptz, 0
UNION ALL
SELECT NULL, t.id, t.lane, t.message_id::text, t.topic, t.message_key, NULLIF(t.sinks, ''),
    COALESCE(t.payload, convert_to(t.payload_text, 'UTF8')), t.headers::text,
    t.available_at, t.expires_at, NULLIF(t.priority, 0::smallint), NULLIF(t.attempts, 0), NULLIF(t.crashes, 0), t.created_at,
    CASE WHEN t.payload IS NULL OR t.available_at IS NOT NULL THEN CASE WHEN t.payload IS NULL AND t.payload_text IS NULL THEN 0 ELSE 1 END + CASE WHEN t.available_at > now() THEN 2 ELSE 0 END END
FROM (SELECT t.* FROM unnest($1::smallint[], $2::bigint[], $3::bigint[]) AS p (lane, after, until)
CROSS JOIN LATERAL (SELECT * FROM app."Events" AS h
    WHERE h.lane = p.lane AND h.id > COALESCE(p.after, (p.lane::text @@ ANY ('{x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x}'::text[]))::int) AND h.id <= p.until
    ORDER BY h.lane, h.id LIMIT $4::bigint) AS t LIMIT $5::bigint) AS t WHERE true;
--   1: {1,2}
--   2: {10,11}
--   3: {20,21}
--   4: 7
--   5: 100

-- read bytes
SELECT concat_ws(' ', COALESCE(pg_sequence_last_value(pg_get_serial_sequence('app."Events"', 'id')::regclass), 0), 0, 0, pg_current_snapshot(), COALESCE((SELECT epoch::text FROM app."Events_epoch"), '-')),
    0::bigint, 0::smallint, '', '', '', '', NULL::bytea, '', NULL::timestamptz, NULL::timestamptz, 0::smallint, 0, 0, NULL::timestamptz, 0
UNION ALL
SELECT NULL, t.id, t.lane, t.message_id::text, t.topic, t.message_key, NULLIF(t.sinks, ''),
    COALESCE(t.payload, convert_to(t.payload_text, 'UTF8')), t.headers::text,
    t.available_at, t.expires_at, NULLIF(t.priority, 0::smallint), NULLIF(t.attempts, 0), NULLIF(t.crashes, 0), t.created_at,
    CASE WHEN t.payload IS NULL OR t.available_at IS NOT NULL THEN CASE WHEN t.payload IS NULL AND t.payload_text IS NULL THEN 0 ELSE 1 END + CASE WHEN t.available_at > now() THEN 2 ELSE 0 END END
FROM (SELECT t.*, sum(COALESCE(octet_length(t.payload), 0) + COALESCE(octet_length(t.payload_text), 0)) OVER (ROWS UNBOUNDED PRECEDING) - (COALESCE(octet_length(t.payload), 0) + COALESCE(octet_length(t.payload_text), 0)) AS bytes_before
FROM (SELECT t.* FROM unnest($1::smallint[], $2::bigint[], $3::bigint[]) AS p (lane, after, until)
CROSS JOIN LATERAL (SELECT * FROM app."Events" AS h
    WHERE h.lane = p.lane AND h.id > COALESCE(p.after, (p.lane::text @@ ANY ('{x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x}'::text[]))::int) AND h.id <= p.until
    ORDER BY h.lane, h.id LIMIT $4::bigint) AS t LIMIT $5::bigint) AS t) AS t WHERE bytes_before < $6::bigint;
--   1: {1,2}
--   2: {10,11}
--   3: {20,21}
--   4: 100
--   5: 100
--   6: 1048576

-- read except
SELECT concat_ws(' ', COALESCE(pg_sequence_last_value(pg_get_serial_sequence('app."Events"', 'id')::regclass), 0), 0, 0, pg_current_snapshot(), COALESCE((SELECT epoch::text FROM app."Events_epoch"), '-')),
    0::bigint, 0::smallint, '', '', '', '', NULL::bytea, '', NULL::timestamptz, NULL::timestamptz, 0::smallint, 0, 0, NULL::timestamptz, 0
UNION ALL
SELECT NULL, t.id, t.lane, t.message_id::text, t.topic, t.message_key, NULLIF(t.sinks, ''),
    COALESCE(t.payload, convert_to(t.payload_text, 'UTF8')), t.headers::text,
    t.available_at, t.expires_at, NULLIF(t.priority, 0::smallint), NULLIF(t.attempts, 0), NULLIF(t.crashes, 0), t.created_at,
    CASE WHEN t.payload IS NULL OR t.available_at IS NOT NULL THEN CASE WHEN t.payload IS NULL AND t.payload_text IS NULL THEN 0 ELSE 1 END + CASE WHEN t.available_at > now() THEN 2 ELSE 0 END END
FROM (SELECT t.* FROM unnest($2::smallint[], $3::bigint[], $4::bigint[]) AS p (lane, after, until)
CROSS JOIN LATERAL (SELECT * FROM app."Events" AS h
    WHERE h.lane = p.lane AND h.id > COALESCE(p.after, (p.lane::text @@ ANY ('{x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x}'::text[]))::int) AND h.id <= p.until AND (h.topic <> ALL ($1::text[]) OR h.sinks <> '')
    ORDER BY h.lane, h.id LIMIT $5::bigint) AS t LIMIT $6::bigint) AS t WHERE true;
--   1: {"t1","t2"}
--   2: {1,2}
--   3: {10,11}
--   4: {20,21}
--   5: 100
--   6: 100

-- read keys
SELECT concat_ws(' ', COALESCE(pg_sequence_last_value(pg_get_serial_sequence('app."Events"', 'id')::regclass), 0), 0, 0, pg_current_snapshot(), COALESCE((SELECT epoch::text FROM app."Events_epoch"), '-')),
    0::bigint, 0::smallint, '', '', '', '', NULL::bytea, '', NULL::timestamptz, NULL::timestamptz, 0::smallint, 0, 0, NULL::timestamptz, 0
UNION ALL
SELECT NULL, t.id, t.lane, t.message_id::text, t.topic, t.message_key, NULLIF(t.sinks, ''),
    COALESCE(t.payload, convert_to(t.payload_text, 'UTF8')), t.headers::text,
    t.available_at, t.expires_at, NULLIF(t.priority, 0::smallint), NULLIF(t.attempts, 0), NULLIF(t.crashes, 0), t.created_at,
    CASE WHEN t.payload IS NULL OR t.available_at IS NOT NULL THEN CASE WHEN t.payload IS NULL AND t.payload_text IS NULL THEN 0 ELSE 1 END + CASE WHEN t.available_at > now() THEN 2 ELSE 0 END END
FROM (SELECT t.* FROM unnest($1::smallint[], $2::bigint[], $3::bigint[], $4::text[]) AS p (lane, after, until, key)
CROSS JOIN LATERAL (SELECT * FROM app."Events" AS h
    WHERE h.lane = p.lane AND h.id > COALESCE(p.after, (p.lane::text @@ ANY ('{x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x}'::text[]))::int) AND h.id <= p.until AND h.message_key = p.key
    ORDER BY h.lane, h.id LIMIT $5::bigint) AS t LIMIT $6::bigint) AS t WHERE true;
--   1: {1}
--   2: {10}
--   3: {20}
--   4: {"a\"\\k"}
--   5: 100
--   6: 100

-- candidates
SELECT t.id, t.lane, t.topic, COALESCE(t.message_key, ''), t.sinks, t.bytes
FROM unnest($2::smallint[], $3::bigint[], $4::bigint[]) AS p (lane, after, until)
CROSS JOIN LATERAL (SELECT h.id, h.lane, h.topic, h.message_key, h.sinks, COALESCE(octet_length(h.payload), octet_length(h.payload_text), 0) AS bytes FROM app."Events" AS h
    WHERE h.lane = p.lane AND h.id > COALESCE(p.after, (p.lane::text @@ ANY ('{x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x}'::text[]))::int) AND h.id <= p.until AND (h.topic <> ALL ($1::text[]) OR h.sinks <> '')
    ORDER BY h.lane, h.id LIMIT $5::bigint) AS t
WHERE ($6::boolean OR (SELECT count(*) FROM generate_series(1, 1000000000)) > 0) LIMIT $7::bigint;
--   1: {"t1"}
--   2: {1,2}
--   3: {10,11}
--   4: {20,21}
--   5: 100
--   6: true
--   7: 100

-- pick
SELECT t.id, t.lane, t.message_id::text, t.topic, t.message_key, NULLIF(t.sinks, ''),
    COALESCE(t.payload, convert_to(t.payload_text, 'UTF8')), t.headers::text,
    t.available_at, t.expires_at, NULLIF(t.priority, 0::smallint), NULLIF(t.attempts, 0), NULLIF(t.crashes, 0), t.created_at,
    CASE WHEN t.payload IS NULL OR t.available_at IS NOT NULL THEN CASE WHEN t.payload IS NULL AND t.payload_text IS NULL THEN 0 ELSE 1 END + CASE WHEN t.available_at > now() THEN 2 ELSE 0 END END FROM unnest($1::smallint[], $2::bigint[]) AS g (lane, id)
CROSS JOIN LATERAL (SELECT * FROM app."Events" AS h WHERE h.lane = g.lane AND h.id = g.id LIMIT 1) AS t
WHERE ($3::boolean OR (SELECT count(*) FROM generate_series(1, 1000000000)) > 0);
--   1: {1,2}
--   2: {15,16}
--   3: true

-- pick held
SELECT t.id, t.lane, t.message_id::text, t.topic, t.message_key, NULLIF(t.sinks, ''),
    COALESCE(t.payload, convert_to(t.payload_text, 'UTF8')), t.headers::text,
    t.available_at, t.expires_at, NULLIF(t.priority, 0::smallint), NULLIF(t.attempts, 0), NULLIF(t.crashes, 0), t.created_at,
    CASE WHEN t.payload IS NULL AND t.payload_text IS NULL THEN 0 ELSE 1 END + CASE WHEN t.state = 'retry' THEN 4 ELSE 0 END + 16 * t.holds FROM unnest($1::smallint[], $2::bigint[]) AS g (lane, id)
CROSS JOIN LATERAL (SELECT * FROM app."Events_held" AS h WHERE h.lane = g.lane AND h.id = g.id LIMIT 1) AS t
WHERE ($3::boolean OR (SELECT count(*) FROM generate_series(1, 1000000000)) > 0) AND t.state <> 'error';
--   1: {1,2}
--   2: {15,16}
--   3: true

-- attempt logs
SELECT t.id, t.lane, t.message_id::text, t.sinks, t.attempt_log FROM unnest($1::smallint[], $2::bigint[]) AS g (lane, id)
CROSS JOIN LATERAL (SELECT * FROM app."Events" AS h WHERE h.lane = g.lane AND h.id = g.id AND h.attempt_log IS NOT NULL OFFSET 0) AS t
WHERE ($3::boolean OR (SELECT count(*) FROM generate_series(1, 1000000000)) > 0);
--   1: {1,2}
--   2: {15,16}
--   3: true

-- attempt logs of held rows
SELECT t.id, t.lane, t.message_id::text, t.sinks, t.attempt_log FROM unnest($1::smallint[], $2::bigint[]) AS g (lane, id)
CROSS JOIN LATERAL (SELECT * FROM app."Events_held" AS h WHERE h.lane = g.lane AND h.id = g.id AND h.attempt_log IS NOT NULL OFFSET 0) AS t
WHERE ($3::boolean OR (SELECT count(*) FROM generate_series(1, 1000000000)) > 0);
--   1: {1,2}
--   2: {15,16}
--   3: true

-- due
SELECT t.id, t.lane, t.message_id::text, t.topic, t.message_key, NULLIF(t.sinks, ''),
    COALESCE(t.payload, convert_to(t.payload_text, 'UTF8')), t.headers::text,
    t.available_at, t.expires_at, NULLIF(t.priority, 0::smallint), NULLIF(t.attempts, 0), NULLIF(t.crashes, 0), t.created_at,
    CASE WHEN t.payload IS NULL AND t.payload_text IS NULL THEN 0 ELSE 1 END + CASE WHEN t.state = 'retry' THEN 4 ELSE 0 END + 16 * t.holds
FROM (SELECT t.*, sum(COALESCE(octet_length(t.payload), 0) + COALESCE(octet_length(t.payload_text), 0)) OVER (ROWS UNBOUNDED PRECEDING) - (COALESCE(octet_length(t.payload), 0) + COALESCE(octet_length(t.payload_text), 0)) AS bytes_before
FROM (SELECT t.* FROM app."Events_held" AS t
WHERE state <> 'error' AND COALESCE(available_at, '0001-01-01 00:00:00+00') <= now() AND lane = ANY ($1::smallint[])
    AND (COALESCE(available_at, '0001-01-01 00:00:00+00'), id) > (COALESCE((SELECT $2::timestamptz), COALESCE(NULL, ((SELECT now()::text) @@ ANY ('{x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x}'::text[]))::int) * interval '1 s' + now()), $3::bigint)
ORDER BY COALESCE(available_at, '0001-01-01 00:00:00+00'), id LIMIT $4::bigint) AS t) AS t
WHERE bytes_before < $5::bigint AND ($6::boolean OR (SELECT count(*) FROM generate_series(1, 1000000000)) > 0);
--   1: {1,2}
--   2: 2026-01-31 23:59:59.123456+00
--   3: 9
--   4: 100
--   5: 1048576
--   6: true

-- blocked keys
SELECT t.lane, t.message_key, t.topic, t.sinks, t.id FROM unnest($1::smallint[]) AS l (lane)
CROSS JOIN LATERAL (SELECT * FROM app."Events_held" AS h WHERE (h.state = 'retry' OR h.holds > 0) AND h.lane + 0 = l.lane AND h.message_key <> '' LIMIT $2::bigint) AS t
WHERE ($3::boolean OR (SELECT count(*) FROM generate_series(1, 1000000000)) > 0) LIMIT $2::bigint;
--   1: {1,2}
--   2: 100
--   3: true

-- blocked among keys
SELECT k.lane, k.key, t.topic, t.sinks, t.id FROM unnest($1::smallint[], $2::text[]) AS k (lane, key)
CROSS JOIN LATERAL (SELECT DISTINCT ON (h.topic, h.sinks) h.topic, h.sinks, h.id FROM app."Events_held" AS h
    WHERE (h.state = 'retry' OR h.holds > 0) AND h.lane + 0 = k.lane AND h.message_key = k.key ORDER BY h.topic, h.sinks, h.id) AS t
WHERE ($3::boolean OR (SELECT count(*) FROM generate_series(1, 1000000000)) > 0);
--   1: {1,2,1}
--   2: {"a\"\\k","b","c"}
--   3: true

-- remaining
(SELECT id, lane, message_id::text, topic, message_key, sinks, 1 FROM app."Events_held" WHERE state <> 'error' AND COALESCE(available_at, '0001-01-01 00:00:00+00') <= now() AND COALESCE(available_at, '0001-01-01 00:00:00+00') >= COALESCE((SELECT '-infinity'::timestamptz), COALESCE(NULL, ((SELECT now()::text) @@ ANY ('{x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x}'::text[]))::int) * interval '1 s' + now()) AND ($2::boolean OR (SELECT count(*) FROM generate_series(1, 1000000000)) > 0) LIMIT $1::bigint)
UNION ALL (SELECT id, lane, message_id::text, topic, message_key, sinks, 0 FROM app."Events" WHERE COALESCE(available_at <= now(), true) AND COALESCE(claimed_until <= now(), true) LIMIT $1::bigint);
--   1: 1000
--   2: true

-- settle: done
WITH held AS MATERIALIZED (SELECT l.lane, l.fence FROM app."Events_lanes" AS l JOIN (SELECT DISTINCT lane, fence FROM unnest($1::smallint[], $2::bigint[]) AS u (lane, fence)) AS s ON l.lane = s.lane AND l.fence = s.fence AND l.owner = $3::text ORDER BY l.lane FOR KEY SHARE OF l),
given AS MATERIALIZED (SELECT lane, ids::bigint[] AS ids, before FROM unnest($4::smallint[], $5::bigint[], $6::text[], $7::integer[]) AS l (lane, fence, ids, before) JOIN held USING (lane, fence)),
hot AS (DELETE FROM app."Events" AS t WHERE t.ctid = ANY (ARRAY(
    SELECT x.place FROM given AS g CROSS JOIN LATERAL (SELECT h.ctid AS place FROM app."Events" AS h
    WHERE h.lane = g.lane AND h.id BETWEEN g.ids[1] AND g.ids[cardinality(g.ids)]
        AND uuid_send(h.message_id) = substring($8::bytea FROM 16 * (g.before + array_position(g.ids, h.id)) - 15 FOR 16) OFFSET 0) AS x))
    RETURNING t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, t.sinks, t.available_at, t.last_error),
done AS (INSERT INTO app."Events_done" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, finished_at, receipt, relay)
    SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, t.sinks, g.attempts, g.crashes, t.available_at, COALESCE(NULLIF(g.error, ''), t.last_error), now(), NULLIF(g.receipt, ''), $9::text
    FROM hot AS t CROSS JOIN (SELECT $10::integer AS attempts, $11::integer AS crashes, $12::text AS error, $13::text AS receipt) AS g)
SELECT 'changed', (SELECT count(*) FROM hot), 0::bigint
UNION ALL SELECT 'xid', pg_current_xact_id()::text::bigint, 0
UNION ALL SELECT 'lane', lane, fence FROM held
WHERE ($14::boolean OR (SELECT count(*) FROM generate_series(1, 1000000000)) > 0);
--   1: {1}
--   2: {7}
--   3: r
--   4: {1}
--   5: {7}
--   6: {"{5}"}
--   7: {0}
--   8: [1 151 163 180 0 0 122 188 141 239 0 0 0 0 0 5]
--   9: r
--   10: 1
--   11: 0
--   12: 
--   13: 0/5
--   14: true

-- settle: done, with different receipts
WITH held AS MATERIALIZED (SELECT l.lane, l.fence FROM app."Events_lanes" AS l JOIN (SELECT DISTINCT lane, fence FROM unnest($1::smallint[], $2::bigint[]) AS u (lane, fence)) AS s ON l.lane = s.lane AND l.fence = s.fence AND l.owner = $3::text ORDER BY l.lane FOR KEY SHARE OF l),
given AS MATERIALIZED (SELECT lane, ids::bigint[] AS ids, before FROM unnest($4::smallint[], $5::bigint[], $6::text[], $7::integer[]) AS l (lane, fence, ids, before) JOIN held USING (lane, fence)),
hot AS (DELETE FROM app."Events" AS t WHERE t.ctid = ANY (ARRAY(
    SELECT x.place FROM given AS g CROSS JOIN LATERAL (SELECT h.ctid AS place FROM app."Events" AS h
    WHERE h.lane = g.lane AND h.id BETWEEN g.ids[1] AND g.ids[cardinality(g.ids)]
        AND uuid_send(h.message_id) = substring($8::bytea FROM 16 * (g.before + array_position(g.ids, h.id)) - 15 FOR 16) OFFSET 0) AS x))
    RETURNING t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, t.sinks, t.available_at, t.last_error),
done AS (INSERT INTO app."Events_done" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, finished_at, receipt, relay)
    SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, t.sinks, g.attempts, g.crashes, t.available_at, COALESCE(NULLIF(g.error, ''), t.last_error), now(), NULLIF(g.receipt, ''), $9::text
    FROM hot AS t JOIN (SELECT $10::integer AS attempts, $11::integer AS crashes, $12::text AS error, receipt, id FROM unnest($13::text[], $14::bigint[]) AS u (receipt, id)) AS g USING (id))
SELECT 'changed', (SELECT count(*) FROM hot), 0::bigint
UNION ALL SELECT 'xid', pg_current_xact_id()::text::bigint, 0
UNION ALL SELECT 'lane', lane, fence FROM held
WHERE ($15::boolean OR (SELECT count(*) FROM generate_series(1, 1000000000)) > 0);
--   1: {1}
--   2: {7}
--   3: r
--   4: {1}
--   5: {7}
--   6: {"{5,6}"}
--   7: {0}
--   8: [1 151 163 180 0 0 122 188 141 239 0 0 0 0 0 5 1 151 163 180 0 0 122 188 141 239 0 0 0 0 0 6]
--   9: r
--   10: 1
--   11: 0
--   12: 
--   13: {"0/5","0/6"}
--   14: {5,6}
--   15: true

-- settle: done, not kept
WITH held AS MATERIALIZED (SELECT l.lane, l.fence FROM app."Events_lanes" AS l JOIN (SELECT DISTINCT lane, fence FROM unnest($1::smallint[], $2::bigint[]) AS u (lane, fence)) AS s ON l.lane = s.lane AND l.fence = s.fence AND l.owner = $3::text ORDER BY l.lane FOR KEY SHARE OF l),
given AS MATERIALIZED (SELECT lane, ids::bigint[] AS ids, before FROM unnest($4::smallint[], $5::bigint[], $6::text[], $7::integer[]) AS l (lane, fence, ids, before) JOIN held USING (lane, fence)),
hot AS (DELETE FROM app."Events" AS t WHERE t.ctid = ANY (ARRAY(
    SELECT x.place FROM given AS g CROSS JOIN LATERAL (SELECT h.ctid AS place FROM app."Events" AS h
    WHERE h.lane = g.lane AND h.id BETWEEN g.ids[1] AND g.ids[cardinality(g.ids)]
        AND uuid_send(h.message_id) = substring($8::bytea FROM 16 * (g.before + array_position(g.ids, h.id)) - 15 FOR 16) OFFSET 0) AS x))
    RETURNING t.id)
SELECT 'changed', (SELECT count(*) FROM hot), 0::bigint
UNION ALL SELECT 'xid', pg_current_xact_id()::text::bigint, 0
UNION ALL SELECT 'lane', lane, fence FROM held
WHERE ($9::boolean OR (SELECT count(*) FROM generate_series(1, 1000000000)) > 0);
--   1: {1}
--   2: {7}
--   3: r
--   4: {1}
--   5: {7}
--   6: {"{5}"}
--   7: {0}
--   8: [1 151 163 180 0 0 122 188 141 239 0 0 0 0 0 5]
--   9: true

-- settle: rows of several kinds
WITH held AS MATERIALIZED (SELECT l.lane, l.fence FROM app."Events_lanes" AS l JOIN (SELECT DISTINCT lane, fence FROM unnest($1::smallint[], $2::bigint[]) AS u (lane, fence)) AS s ON l.lane = s.lane AND l.fence = s.fence AND l.owner = $3::text ORDER BY l.lane FOR KEY SHARE OF l),
given AS MATERIALIZED (SELECT id, lane, message_id, fence, state, held, attempts, $11::integer AS crashes, delay, error, receipt, $15::smallint AS holds, $16::text AS sinks, $17::timestamptz AS read_at, $18::text AS attempt_log FROM unnest($4::bigint[], $5::smallint[], $6::uuid[], $7::bigint[], $8::text[], $9::boolean[], $10::integer[], $12::bigint[], $13::text[], $14::text[]) AS u (id, lane, message_id, fence, state, held, attempts, delay, error, receipt) JOIN held USING (lane, fence)),
hot AS (DELETE FROM app."Events" AS t USING (SELECT g.*, x.place FROM given AS g CROSS JOIN LATERAL (SELECT h.ctid AS place FROM app."Events" AS h WHERE h.lane = g.lane AND h.id = g.id AND h.message_id = g.message_id LIMIT 1) AS x) AS g WHERE t.ctid = g.place AND NOT g.held AND g.state <> 'pending'
    RETURNING t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, t.sinks, g.attempts, g.crashes, CASE WHEN g.state = 'retry' OR g.holds > 0 THEN now() + g.delay * interval '1 microsecond' ELSE t.available_at END AS available_at, COALESCE(NULLIF(g.error, ''), t.last_error) AS last_error, g.state, g.receipt, g.holds, COALESCE(NULLIF(g.attempt_log, ''), t.attempt_log) AS attempt_log),
back AS (DELETE FROM app."Events_held" AS t USING (SELECT g.*, x.place FROM given AS g CROSS JOIN LATERAL (SELECT h.ctid AS place FROM app."Events_held" AS h WHERE h.lane = g.lane AND h.id = g.id AND h.message_id = g.message_id AND h.sinks = g.sinks LIMIT 1) AS x) AS g WHERE t.ctid = g.place AND g.held AND g.state = 'done' AND t.state <> 'error'
    RETURNING t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, t.sinks, g.attempts, g.crashes, CASE WHEN g.state = 'retry' OR g.holds > 0 THEN now() + g.delay * interval '1 microsecond' ELSE t.available_at END AS available_at, COALESCE(NULLIF(g.error, ''), t.last_error) AS last_error, g.state, g.receipt, g.holds, COALESCE(NULLIF(g.attempt_log, ''), t.attempt_log) AS attempt_log),
done AS (INSERT INTO app."Events_done" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, finished_at, receipt, relay)
    SELECT id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, now(), NULLIF(receipt, ''), $19::text FROM (SELECT * FROM hot WHERE state = 'done' UNION ALL SELECT * FROM back) AS d),
moved AS (INSERT INTO app."Events_held" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds)
    SELECT id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds FROM hot WHERE state <> 'done'),
stayed AS (UPDATE app."Events_held" AS t SET state = g.state, holds = g.holds, attempts = g.attempts, crashes = g.crashes, available_at = CASE WHEN g.state = 'retry' OR g.holds > 0 THEN now() + g.delay * interval '1 microsecond' ELSE t.available_at END, last_error = COALESCE(NULLIF(g.error, ''), t.last_error), attempt_log = COALESCE(NULLIF(g.attempt_log, ''), t.attempt_log)
    FROM (SELECT g.*, x.place FROM given AS g CROSS JOIN LATERAL (SELECT h.ctid AS place FROM app."Events_held" AS h WHERE h.lane = g.lane AND h.id = g.id AND h.message_id = g.message_id AND h.sinks = g.sinks LIMIT 1) AS x) AS g WHERE t.ctid = g.place AND g.held AND g.state <> 'done' AND t.state <> 'error' AND (t.holds < 2 OR g.holds = 0 AND g.state <> 'retry') AND (t.available_at IS NULL OR t.available_at <= g.read_at) RETURNING t.id)
SELECT 'changed', (SELECT count(*) FROM hot) + (SELECT count(*) FROM back) + (SELECT count(*) FROM stayed), 0::bigint
UNION ALL SELECT 'xid', pg_current_xact_id()::text::bigint, 0
UNION ALL SELECT 'lane', lane, fence FROM held
WHERE ($20::boolean OR (SELECT count(*) FROM generate_series(1, 1000000000)) > 0);
--   1: {1,2}
--   2: {7,8}
--   3: r
--   4: {5,6,7,8}
--   5: {1,1,2,2}
--   6: {0197a3b4-0000-7abc-8def-000000000005,0197a3b4-0000-7abc-8def-000000000006,0197a3b4-0000-7abc-8def-0
--   7: {7,7,8,8}
--   8: {"done","retry","error","done"}
--   9: {false,false,true,true}
--   10: {1,2,0,0}
--   11: 0
--   12: {0,1000000,0,0}
--   13: {"","it's \"broken\"","",""}
--   14: {"0/5","","",""}
--   15: 0
--   16: 
--   17: 9999-12-31 00:00:00+00
--   18: 
--   19: r
--   20: true

-- settle: dead letters
WITH held AS MATERIALIZED (SELECT l.lane, l.fence FROM app."Events_lanes" AS l JOIN (SELECT DISTINCT lane, fence FROM unnest($1::smallint[], $2::bigint[]) AS u (lane, fence)) AS s ON l.lane = s.lane AND l.fence = s.fence AND l.owner = $3::text ORDER BY l.lane FOR KEY SHARE OF l),
given AS MATERIALIZED (SELECT id, lane, message_id, fence, $8::text AS sinks, $9::smallint AS holds, $10::timestamptz AS read_at, $11::uuid AS copy_id, $12::text AS copy_topic, $13::text AS copy_headers, $14::text AS copy_sinks FROM unnest($4::bigint[], $5::smallint[], $6::uuid[], $7::bigint[]) AS u (id, lane, message_id, fence) JOIN held USING (lane, fence)),
found AS MATERIALIZED (SELECT t.*, g.copy_id, g.copy_topic, NULLIF(g.copy_headers, '')::json AS copy_headers, g.copy_sinks FROM given AS g CROSS JOIN LATERAL (SELECT t.id, t.message_key, t.payload, t.payload_text, t.priority, CASE WHEN t.expires_at > clock_timestamp() THEN t.expires_at END AS expires_at FROM app."Events" AS t
    WHERE t.lane = g.lane AND t.id = g.id AND t.message_id = g.message_id LIMIT 1 FOR UPDATE) AS t)
INSERT INTO app."Events" (message_id, topic, message_key, payload, payload_text, headers, priority, expires_at, sinks)
SELECT copy_id, copy_topic, message_key, payload, payload_text, copy_headers, priority, expires_at, copy_sinks FROM found ORDER BY id;
--   1: {1}
--   2: {7}
--   3: r
--   4: {6}
--   5: {1}
--   6: {0197a3b4-0000-7abc-8def-000000000006}
--   7: {7}
--   8: 
--   9: 0
--   10: 9999-12-31 00:00:00+00
--   11: 0197a3b4-0000-7abc-8def-000000000020
--   12: dead
--   13: {"rowrelay-dead-letter-sink":"a"}
--   14: c
WITH held AS MATERIALIZED (SELECT l.lane, l.fence FROM app."Events_lanes" AS l JOIN (SELECT DISTINCT lane, fence FROM unnest($1::smallint[], $2::bigint[]) AS u (lane, fence)) AS s ON l.lane = s.lane AND l.fence = s.fence AND l.owner = $3::text ORDER BY l.lane FOR KEY SHARE OF l),
given AS MATERIALIZED (SELECT id, lane, message_id, fence, $8::text AS sinks, $9::smallint AS holds, $10::timestamptz AS read_at, $11::uuid AS copy_id, $12::text AS copy_topic, $13::text AS copy_headers, $14::text AS copy_sinks FROM unnest($4::bigint[], $5::smallint[], $6::uuid[], $7::bigint[]) AS u (id, lane, message_id, fence) JOIN held USING (lane, fence)),
found AS MATERIALIZED (SELECT t.*, g.copy_id, g.copy_topic, NULLIF(g.copy_headers, '')::json AS copy_headers, g.copy_sinks FROM given AS g CROSS JOIN LATERAL (SELECT t.id, t.message_key, t.payload, t.payload_text, t.priority, CASE WHEN t.expires_at > clock_timestamp() THEN t.expires_at END AS expires_at FROM app."Events_held" AS t
    WHERE t.lane = g.lane AND t.id = g.id AND t.message_id = g.message_id AND t.sinks = g.sinks AND t.state <> 'error' AND (t.holds < 2 OR g.holds = 0) AND (t.available_at IS NULL OR t.available_at <= g.read_at) LIMIT 1 FOR UPDATE) AS t)
INSERT INTO app."Events" (message_id, topic, message_key, payload, payload_text, headers, priority, expires_at, sinks)
SELECT copy_id, copy_topic, message_key, payload, payload_text, copy_headers, priority, expires_at, copy_sinks FROM found ORDER BY id;
--   1: {2}
--   2: {8}
--   3: r
--   4: {7}
--   5: {2}
--   6: {0197a3b4-0000-7abc-8def-000000000007}
--   7: {8}
--   8: 
--   9: 1
--   10: 9999-12-31 00:00:00+00
--   11: 0197a3b4-0000-7abc-8def-000000000021
--   12: dead.other
--   13: 
--   14: 
WITH held AS MATERIALIZED (SELECT l.lane, l.fence FROM app."Events_lanes" AS l JOIN (SELECT DISTINCT lane, fence FROM unnest($1::smallint[], $2::bigint[]) AS u (lane, fence)) AS s ON l.lane = s.lane AND l.fence = s.fence AND l.owner = $3::text ORDER BY l.lane FOR KEY SHARE OF l),
given AS MATERIALIZED (SELECT id, lane, message_id, fence, state, held, attempts, $11::integer AS crashes, delay, error, receipt, holds, $16::text AS sinks, $17::timestamptz AS read_at, $18::text AS attempt_log FROM unnest($4::bigint[], $5::smallint[], $6::uuid[], $7::bigint[], $8::text[], $9::boolean[], $10::integer[], $12::bigint[], $13::text[], $14::text[], $15::smallint[]) AS u (id, lane, message_id, fence, state, held, attempts, delay, error, receipt, holds) JOIN held USING (lane, fence)),
hot AS (DELETE FROM app."Events" AS t USING (SELECT g.*, x.place FROM given AS g CROSS JOIN LATERAL (SELECT h.ctid AS place FROM app."Events" AS h WHERE h.lane = g.lane AND h.id = g.id AND h.message_id = g.message_id LIMIT 1) AS x) AS g WHERE t.ctid = g.place AND NOT g.held AND g.state <> 'pending'
    RETURNING t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, t.sinks, g.attempts, g.crashes, CASE WHEN g.state = 'retry' OR g.holds > 0 THEN now() + g.delay * interval '1 microsecond' ELSE t.available_at END AS available_at, COALESCE(NULLIF(g.error, ''), t.last_error) AS last_error, g.state, g.receipt, g.holds, COALESCE(NULLIF(g.attempt_log, ''), t.attempt_log) AS attempt_log),
done AS (INSERT INTO app."Events_done" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, finished_at, receipt, relay)
    SELECT id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, now(), NULLIF(receipt, ''), $19::text FROM (SELECT * FROM hot WHERE state = 'done') AS d),
moved AS (INSERT INTO app."Events_held" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds)
    SELECT id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds FROM hot WHERE state <> 'done'),
stayed AS (UPDATE app."Events_held" AS t SET state = g.state, holds = g.holds, attempts = g.attempts, crashes = g.crashes, available_at = CASE WHEN g.state = 'retry' OR g.holds > 0 THEN now() + g.delay * interval '1 microsecond' ELSE t.available_at END, last_error = COALESCE(NULLIF(g.error, ''), t.last_error), attempt_log = COALESCE(NULLIF(g.attempt_log, ''), t.attempt_log)
    FROM (SELECT g.*, x.place FROM given AS g CROSS JOIN LATERAL (SELECT h.ctid AS place FROM app."Events_held" AS h WHERE h.lane = g.lane AND h.id = g.id AND h.message_id = g.message_id AND h.sinks = g.sinks LIMIT 1) AS x) AS g WHERE t.ctid = g.place AND g.held AND g.state <> 'done' AND t.state <> 'error' AND (t.holds < 2 OR g.holds = 0 AND g.state <> 'retry') AND (t.available_at IS NULL OR t.available_at <= g.read_at) RETURNING t.id)
SELECT 'changed', (SELECT count(*) FROM hot) + (SELECT count(*) FROM stayed), 0::bigint
UNION ALL SELECT 'xid', pg_current_xact_id()::text::bigint, 0
UNION ALL SELECT 'lane', lane, fence FROM held
WHERE ($20::boolean OR (SELECT count(*) FROM generate_series(1, 1000000000)) > 0);
--   1: {1,2}
--   2: {7,8}
--   3: r
--   4: {5,6,7}
--   5: {1,1,2}
--   6: {0197a3b4-0000-7abc-8def-000000000005,0197a3b4-0000-7abc-8def-000000000006,0197a3b4-0000-7abc-8def-0
--   7: {7,7,8}
--   8: {"done","error","error"}
--   9: {false,false,true}
--   10: {1,2,0}
--   11: 0
--   12: {0,1000000,0}
--   13: {"","it's \"broken\"",""}
--   14: {"0/5","",""}
--   15: {0,0,1}
--   16: 
--   17: 9999-12-31 00:00:00+00
--   18: 
--   19: r
--   20: true

-- settle: failed attempts
WITH held AS MATERIALIZED (SELECT l.lane, l.fence FROM app."Events_lanes" AS l JOIN (SELECT DISTINCT lane, fence FROM unnest($1::smallint[], $2::bigint[]) AS u (lane, fence)) AS s ON l.lane = s.lane AND l.fence = s.fence AND l.owner = $3::text ORDER BY l.lane FOR KEY SHARE OF l),
given AS MATERIALIZED (SELECT id, lane, message_id, fence, state, held, attempts, $11::integer AS crashes, delay, error, $14::text AS receipt, $15::smallint AS holds, $16::text AS sinks, $17::timestamptz AS read_at, attempt_log FROM unnest($4::bigint[], $5::smallint[], $6::uuid[], $7::bigint[], $8::text[], $9::boolean[], $10::integer[], $12::bigint[], $13::text[], $18::text[]) AS u (id, lane, message_id, fence, state, held, attempts, delay, error, attempt_log) JOIN held USING (lane, fence)),
hot AS (DELETE FROM app."Events" AS t USING (SELECT g.*, x.place FROM given AS g CROSS JOIN LATERAL (SELECT h.ctid AS place FROM app."Events" AS h WHERE h.lane = g.lane AND h.id = g.id AND h.message_id = g.message_id LIMIT 1) AS x) AS g WHERE t.ctid = g.place AND NOT g.held AND g.state <> 'pending'
    RETURNING t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, t.sinks, g.attempts, g.crashes, CASE WHEN g.state = 'retry' OR g.holds > 0 THEN now() + g.delay * interval '1 microsecond' ELSE t.available_at END AS available_at, COALESCE(NULLIF(g.error, ''), t.last_error) AS last_error, g.state, g.receipt, g.holds, COALESCE(NULLIF(g.attempt_log, ''), t.attempt_log) AS attempt_log),
moved AS (INSERT INTO app."Events_held" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds)
    SELECT id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds FROM hot WHERE state <> 'done'),
stayed AS (UPDATE app."Events_held" AS t SET state = g.state, holds = g.holds, attempts = g.attempts, crashes = g.crashes, available_at = CASE WHEN g.state = 'retry' OR g.holds > 0 THEN now() + g.delay * interval '1 microsecond' ELSE t.available_at END, last_error = COALESCE(NULLIF(g.error, ''), t.last_error), attempt_log = COALESCE(NULLIF(g.attempt_log, ''), t.attempt_log)
    FROM (SELECT g.*, x.place FROM given AS g CROSS JOIN LATERAL (SELECT h.ctid AS place FROM app."Events_held" AS h WHERE h.lane = g.lane AND h.id = g.id AND h.message_id = g.message_id AND h.sinks = g.sinks LIMIT 1) AS x) AS g WHERE t.ctid = g.place AND g.held AND g.state <> 'done' AND t.state <> 'error' AND (t.holds < 2 OR g.holds = 0 AND g.state <> 'retry') AND (t.available_at IS NULL OR t.available_at <= g.read_at) RETURNING t.id)
SELECT 'changed', (SELECT count(*) FROM hot) + (SELECT count(*) FROM stayed), 0::bigint
UNION ALL SELECT 'xid', pg_current_xact_id()::text::bigint, 0
UNION ALL SELECT 'lane', lane, fence FROM held
WHERE ($19::boolean OR (SELECT count(*) FROM generate_series(1, 1000000000)) > 0);
--   1: {1,2}
--   2: {7,8}
--   3: r
--   4: {6,7}
--   5: {1,2}
--   6: {0197a3b4-0000-7abc-8def-000000000006,0197a3b4-0000-7abc-8def-000000000007}
--   7: {7,8}
--   8: {"retry","error"}
--   9: {false,true}
--   10: {2,0}
--   11: 0
--   12: {1000000,0}
--   13: {"it's \"broken\"",""}
--   14: 
--   15: 0
--   16: 
--   17: 9999-12-31 00:00:00+00
--   18: {"[{\"at\":\"2026-01-31T23:59:59Z\",\"relay\":\"r\",\"sink\":\"s\",\"answer\":\"it's \\\"broken\\\"\
--   19: true

-- settle by rows: a failed attempt
WITH given AS MATERIALIZED (SELECT id, lane, message_id, $4::text AS token, $5::text AS state, $6::boolean AS held, $7::integer AS attempts, $8::integer AS crashes, $9::bigint AS delay, $10::text AS error, $11::text AS receipt, $12::smallint AS holds, $13::text AS attempt_log FROM unnest($1::bigint[], $2::smallint[], $3::uuid[]) AS u (id, lane, message_id)),
found AS MATERIALIZED (SELECT g.*, x.* FROM given AS g CROSS JOIN LATERAL (SELECT h.ctid AS place, h.lane AS found_lane, h.id AS found_id, h.claim_token FROM app."Events" AS h WHERE h.lane = g.lane AND h.id = g.id AND h.message_id = g.message_id LIMIT 1 FOR UPDATE) AS x),
claimed AS MATERIALIZED (SELECT * FROM found WHERE claim_token = token AND found_lane = lane AND found_id = id),
hot AS (DELETE FROM app."Events" AS t USING claimed AS g WHERE t.ctid = g.place AND NOT g.held AND g.state <> 'pending'
    RETURNING t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, t.sinks, g.attempts, g.crashes, CASE WHEN g.state = 'retry' OR g.holds > 0 THEN now() + g.delay * interval '1 microsecond' ELSE t.available_at END AS available_at, COALESCE(NULLIF(g.error, ''), t.last_error) AS last_error, g.state, g.receipt, g.holds, COALESCE(NULLIF(g.attempt_log, ''), t.attempt_log) AS attempt_log),
moved AS (INSERT INTO app."Events_held" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds)
    SELECT id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds FROM hot WHERE state <> 'done')
SELECT 'changed', (SELECT count(*) FROM hot), 0::bigint
UNION ALL SELECT 'xid', pg_current_xact_id()::text::bigint, 0
UNION ALL SELECT 'fenced', (SELECT count(*) FROM found WHERE claim_token IS DISTINCT FROM token), 0
WHERE ($14::boolean OR (SELECT count(*) FROM generate_series(1, 1000000000)) > 0);
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
--   12: 0
--   13: [{"at":"2026-01-31T23:59:59Z","relay":"r","sink":"s","answer":"it's \"broken\"","duration_ms":12}]
--   14: true

-- settle for some sinks
WITH held AS MATERIALIZED (SELECT l.lane, l.fence FROM app."Events_lanes" AS l JOIN (SELECT DISTINCT lane, fence FROM unnest($1::smallint[], $2::bigint[]) AS u (lane, fence)) AS s ON l.lane = s.lane AND l.fence = s.fence AND l.owner = $3::text ORDER BY l.lane FOR KEY SHARE OF l),
given AS MATERIALIZED (SELECT id, lane, message_id, fence, state, held, attempts, $11::integer AS crashes, delay, error, receipt, $15::smallint AS holds, sinks, part, rest, $19::text AS attempt_log FROM unnest($4::bigint[], $5::smallint[], $6::uuid[], $7::bigint[], $8::text[], $9::boolean[], $10::integer[], $12::bigint[], $13::text[], $14::text[], $16::text[], $17::text[], $18::text[]) AS u (id, lane, message_id, fence, state, held, attempts, delay, error, receipt, sinks, part, rest) JOIN held USING (lane, fence)),
hot AS (UPDATE app."Events" AS t SET sinks = g.rest
    FROM (SELECT g.*, x.place FROM given AS g CROSS JOIN LATERAL (SELECT h.ctid AS place FROM app."Events" AS h WHERE h.lane = g.lane AND h.id = g.id AND h.message_id = g.message_id AND h.sinks = g.sinks LIMIT 1) AS x) AS g
    WHERE t.ctid = g.place AND NOT g.held
    RETURNING t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, g.part AS sinks, g.attempts, g.crashes, CASE WHEN g.state = 'retry' OR g.holds > 0 THEN now() + g.delay * interval '1 microsecond' ELSE t.available_at END AS available_at, COALESCE(NULLIF(g.error, ''), t.last_error) AS last_error, g.state, g.receipt, g.holds, COALESCE(NULLIF(g.attempt_log, ''), t.attempt_log) AS attempt_log),
back AS (UPDATE app."Events_held" AS t SET sinks = g.rest
    FROM (SELECT g.*, x.place FROM given AS g CROSS JOIN LATERAL (SELECT h.ctid AS place FROM app."Events_held" AS h WHERE h.lane = g.lane AND h.id = g.id AND h.message_id = g.message_id AND h.sinks = g.sinks LIMIT 1) AS x) AS g
    WHERE t.ctid = g.place AND g.held AND t.state <> 'error' AND (t.holds < 2 OR g.holds = 0)
    RETURNING t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, g.part AS sinks, g.attempts, g.crashes, CASE WHEN g.state = 'retry' OR g.holds > 0 THEN now() + g.delay * interval '1 microsecond' ELSE t.available_at END AS available_at, COALESCE(NULLIF(g.error, ''), t.last_error) AS last_error, g.state, g.receipt, g.holds, COALESCE(NULLIF(g.attempt_log, ''), t.attempt_log) AS attempt_log),
parted AS (SELECT * FROM hot UNION ALL SELECT * FROM back),
done AS (INSERT INTO app."Events_done" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, finished_at, receipt, relay)
    SELECT id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, now(), NULLIF(receipt, ''), $20::text FROM (SELECT * FROM parted WHERE state = 'done') AS d),
moved AS (INSERT INTO app."Events_held" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds)
    SELECT id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds FROM parted WHERE state NOT IN ('done', 'discarded'))
SELECT 'changed', (SELECT count(*) FROM hot) + (SELECT count(*) FROM back), 0::bigint
UNION ALL SELECT 'xid', pg_current_xact_id()::text::bigint, 0
UNION ALL SELECT 'lane', lane, fence FROM held
WHERE ($21::boolean OR (SELECT count(*) FROM generate_series(1, 1000000000)) > 0);
--   1: {1,2}
--   2: {7,8}
--   3: r
--   4: {5,6,7}
--   5: {1,1,2}
--   6: {0197a3b4-0000-7abc-8def-000000000005,0197a3b4-0000-7abc-8def-000000000006,0197a3b4-0000-7abc-8def-0
--   7: {7,7,8}
--   8: {"done","retry","error"}
--   9: {false,false,true}
--   10: {1,2,0}
--   11: 0
--   12: {0,1000000,0}
--   13: {"","it's \"broken\"",""}
--   14: {"0/5","",""}
--   15: 0
--   16: {"","","a,b"}
--   17: {"a","a","b"}
--   18: {"b,c","b","a"}
--   19: 
--   20: r
--   21: true

-- settle for some sinks: dead letters
WITH held AS MATERIALIZED (SELECT l.lane, l.fence FROM app."Events_lanes" AS l JOIN (SELECT DISTINCT lane, fence FROM unnest($1::smallint[], $2::bigint[]) AS u (lane, fence)) AS s ON l.lane = s.lane AND l.fence = s.fence AND l.owner = $3::text ORDER BY l.lane FOR KEY SHARE OF l),
given AS MATERIALIZED (SELECT id, lane, message_id, fence, $8::text AS sinks, $9::smallint AS holds, $10::timestamptz AS read_at, $11::uuid AS copy_id, $12::text AS copy_topic, $13::text AS copy_headers, $14::text AS copy_sinks FROM unnest($4::bigint[], $5::smallint[], $6::uuid[], $7::bigint[]) AS u (id, lane, message_id, fence) JOIN held USING (lane, fence)),
found AS MATERIALIZED (SELECT t.*, g.copy_id, g.copy_topic, NULLIF(g.copy_headers, '')::json AS copy_headers, g.copy_sinks FROM given AS g CROSS JOIN LATERAL (SELECT t.id, t.message_key, t.payload, t.payload_text, t.priority, CASE WHEN t.expires_at > clock_timestamp() THEN t.expires_at END AS expires_at FROM app."Events" AS t
    WHERE t.lane = g.lane AND t.id = g.id AND t.message_id = g.message_id AND t.sinks = g.sinks LIMIT 1 FOR UPDATE) AS t)
INSERT INTO app."Events" (message_id, topic, message_key, payload, payload_text, headers, priority, expires_at, sinks)
SELECT copy_id, copy_topic, message_key, payload, payload_text, copy_headers, priority, expires_at, copy_sinks FROM found ORDER BY id;
--   1: {1}
--   2: {7}
--   3: r
--   4: {6}
--   5: {1}
--   6: {0197a3b4-0000-7abc-8def-000000000006}
--   7: {7}
--   8: 
--   9: 0
--   10: 9999-12-31 00:00:00+00
--   11: 0197a3b4-0000-7abc-8def-000000000020
--   12: dead
--   13: {"rowrelay-dead-letter-sink":"a"}
--   14: c
WITH held AS MATERIALIZED (SELECT l.lane, l.fence FROM app."Events_lanes" AS l JOIN (SELECT DISTINCT lane, fence FROM unnest($1::smallint[], $2::bigint[]) AS u (lane, fence)) AS s ON l.lane = s.lane AND l.fence = s.fence AND l.owner = $3::text ORDER BY l.lane FOR KEY SHARE OF l),
given AS MATERIALIZED (SELECT id, lane, message_id, fence, $8::text AS sinks, $9::smallint AS holds, $10::timestamptz AS read_at, $11::uuid AS copy_id, $12::text AS copy_topic, $13::text AS copy_headers, $14::text AS copy_sinks FROM unnest($4::bigint[], $5::smallint[], $6::uuid[], $7::bigint[]) AS u (id, lane, message_id, fence) JOIN held USING (lane, fence)),
found AS MATERIALIZED (SELECT t.*, g.copy_id, g.copy_topic, NULLIF(g.copy_headers, '')::json AS copy_headers, g.copy_sinks FROM given AS g CROSS JOIN LATERAL (SELECT t.id, t.message_key, t.payload, t.payload_text, t.priority, CASE WHEN t.expires_at > clock_timestamp() THEN t.expires_at END AS expires_at FROM app."Events_held" AS t
    WHERE t.lane = g.lane AND t.id = g.id AND t.message_id = g.message_id AND t.sinks = g.sinks AND t.state <> 'error' AND (t.holds < 2 OR g.holds = 0) AND (t.available_at IS NULL OR t.available_at <= g.read_at) LIMIT 1 FOR UPDATE) AS t)
INSERT INTO app."Events" (message_id, topic, message_key, payload, payload_text, headers, priority, expires_at, sinks)
SELECT copy_id, copy_topic, message_key, payload, payload_text, copy_headers, priority, expires_at, copy_sinks FROM found ORDER BY id;
--   1: {2}
--   2: {8}
--   3: r
--   4: {7}
--   5: {2}
--   6: {0197a3b4-0000-7abc-8def-000000000007}
--   7: {8}
--   8: a,b
--   9: 1
--   10: 9999-12-31 00:00:00+00
--   11: 0197a3b4-0000-7abc-8def-000000000021
--   12: dead.other
--   13: 
--   14: 
WITH held AS MATERIALIZED (SELECT l.lane, l.fence FROM app."Events_lanes" AS l JOIN (SELECT DISTINCT lane, fence FROM unnest($1::smallint[], $2::bigint[]) AS u (lane, fence)) AS s ON l.lane = s.lane AND l.fence = s.fence AND l.owner = $3::text ORDER BY l.lane FOR KEY SHARE OF l),
given AS MATERIALIZED (SELECT id, lane, message_id, fence, $8::text AS state, held, attempts, $11::integer AS crashes, delay, error, $14::text AS receipt, holds, sinks, $17::text AS part, $18::text AS rest, $19::text AS attempt_log FROM unnest($4::bigint[], $5::smallint[], $6::uuid[], $7::bigint[], $9::boolean[], $10::integer[], $12::bigint[], $13::text[], $15::smallint[], $16::text[]) AS u (id, lane, message_id, fence, held, attempts, delay, error, holds, sinks) JOIN held USING (lane, fence)),
hot AS (UPDATE app."Events" AS t SET sinks = g.rest
    FROM (SELECT g.*, x.place FROM given AS g CROSS JOIN LATERAL (SELECT h.ctid AS place FROM app."Events" AS h WHERE h.lane = g.lane AND h.id = g.id AND h.message_id = g.message_id AND h.sinks = g.sinks LIMIT 1) AS x) AS g
    WHERE t.ctid = g.place AND NOT g.held
    RETURNING t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, g.part AS sinks, g.attempts, g.crashes, CASE WHEN g.state = 'retry' OR g.holds > 0 THEN now() + g.delay * interval '1 microsecond' ELSE t.available_at END AS available_at, COALESCE(NULLIF(g.error, ''), t.last_error) AS last_error, g.state, g.receipt, g.holds, COALESCE(NULLIF(g.attempt_log, ''), t.attempt_log) AS attempt_log),
back AS (UPDATE app."Events_held" AS t SET sinks = g.rest
    FROM (SELECT g.*, x.place FROM given AS g CROSS JOIN LATERAL (SELECT h.ctid AS place FROM app."Events_held" AS h WHERE h.lane = g.lane AND h.id = g.id AND h.message_id = g.message_id AND h.sinks = g.sinks LIMIT 1) AS x) AS g
    WHERE t.ctid = g.place AND g.held AND t.state <> 'error' AND (t.holds < 2 OR g.holds = 0)
    RETURNING t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, g.part AS sinks, g.attempts, g.crashes, CASE WHEN g.state = 'retry' OR g.holds > 0 THEN now() + g.delay * interval '1 microsecond' ELSE t.available_at END AS available_at, COALESCE(NULLIF(g.error, ''), t.last_error) AS last_error, g.state, g.receipt, g.holds, COALESCE(NULLIF(g.attempt_log, ''), t.attempt_log) AS attempt_log),
parted AS (SELECT * FROM hot UNION ALL SELECT * FROM back),
done AS (INSERT INTO app."Events_done" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, finished_at, receipt, relay)
    SELECT id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, now(), NULLIF(receipt, ''), $20::text FROM (SELECT * FROM parted WHERE state = 'done') AS d),
moved AS (INSERT INTO app."Events_held" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds)
    SELECT id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds FROM parted WHERE state NOT IN ('done', 'discarded'))
SELECT 'changed', (SELECT count(*) FROM hot) + (SELECT count(*) FROM back), 0::bigint
UNION ALL SELECT 'xid', pg_current_xact_id()::text::bigint, 0
UNION ALL SELECT 'lane', lane, fence FROM held
WHERE ($21::boolean OR (SELECT count(*) FROM generate_series(1, 1000000000)) > 0);
--   1: {1,2}
--   2: {7,8}
--   3: r
--   4: {6,7}
--   5: {1,2}
--   6: {0197a3b4-0000-7abc-8def-000000000006,0197a3b4-0000-7abc-8def-000000000007}
--   7: {7,8}
--   8: error
--   9: {false,true}
--   10: {2,0}
--   11: 0
--   12: {1000000,0}
--   13: {"it's \"broken\"",""}
--   14: 
--   15: {0,1}
--   16: {"","a,b"}
--   17: a
--   18: b
--   19: 
--   20: r
--   21: true

-- settle: deferred rows of two sinks
WITH held AS MATERIALIZED (SELECT l.lane, l.fence FROM app."Events_lanes" AS l JOIN (SELECT DISTINCT lane, fence FROM unnest($1::smallint[], $2::bigint[]) AS u (lane, fence)) AS s ON l.lane = s.lane AND l.fence = s.fence AND l.owner = $3::text ORDER BY l.lane FOR KEY SHARE OF l),
given AS MATERIALIZED (SELECT id, lane, message_id, fence, $8::text AS state, $9::boolean AS held, $10::integer AS attempts, $11::integer AS crashes, $12::bigint AS delay, $13::text AS error, $14::text AS receipt, $15::smallint AS holds, sinks FROM unnest($4::bigint[], $5::smallint[], $6::uuid[], $7::bigint[], $16::text[]) AS u (id, lane, message_id, fence, sinks) JOIN held USING (lane, fence)),
back AS (DELETE FROM app."Events_held" AS t USING (SELECT g.*, x.place FROM given AS g CROSS JOIN LATERAL (SELECT h.ctid AS place FROM app."Events_held" AS h WHERE h.lane = g.lane AND h.id = g.id AND h.message_id = g.message_id AND h.sinks = g.sinks LIMIT 1) AS x) AS g WHERE t.ctid = g.place AND g.held AND g.state = 'done' AND t.state <> 'error'
    RETURNING t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, t.sinks, g.attempts, g.crashes, CASE WHEN g.state = 'retry' OR g.holds > 0 THEN now() + g.delay * interval '1 microsecond' ELSE t.available_at END AS available_at, COALESCE(NULLIF(g.error, ''), t.last_error) AS last_error, g.state, g.receipt, g.holds),
done AS (INSERT INTO app."Events_done" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, finished_at, receipt, relay)
    SELECT id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, now(), NULLIF(receipt, ''), $17::text FROM (SELECT * FROM back) AS d)
SELECT 'changed', (SELECT count(*) FROM back), 0::bigint
UNION ALL SELECT 'xid', pg_current_xact_id()::text::bigint, 0
UNION ALL SELECT 'lane', lane, fence FROM held
WHERE ($18::boolean OR (SELECT count(*) FROM generate_series(1, 1000000000)) > 0);
--   1: {2}
--   2: {8}
--   3: r
--   4: {8,8}
--   5: {2,2}
--   6: {0197a3b4-0000-7abc-8def-000000000008,0197a3b4-0000-7abc-8def-000000000008}
--   7: {8,8}
--   8: done
--   9: true
--   10: 0
--   11: 0
--   12: 0
--   13: 
--   14: 
--   15: 0
--   16: {"a","b"}
--   17: r
--   18: true

-- settle by rows: done
WITH given AS MATERIALIZED (SELECT lane, ids::bigint[] AS ids, before FROM unnest($2::smallint[], $3::bigint[], $4::text[], $5::integer[]) AS l (lane, fence, ids, before) WHERE lane + 0 = lane),
found AS MATERIALIZED (SELECT x.* FROM given AS g CROSS JOIN LATERAL (SELECT h.ctid AS place, h.claim_token FROM app."Events" AS h
    WHERE h.lane = g.lane AND h.id BETWEEN g.ids[1] AND g.ids[cardinality(g.ids)]
        AND uuid_send(h.message_id) = substring($6::bytea FROM 16 * (g.before + array_position(g.ids, h.id)) - 15 FOR 16) OFFSET 0) AS x),
hot AS (DELETE FROM app."Events" AS t WHERE t.ctid = ANY (ARRAY(
    SELECT place FROM found WHERE claim_token = $1::text)) AND t.claim_token = $1::text
    RETURNING t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, t.sinks, t.available_at, t.last_error),
done AS (INSERT INTO app."Events_done" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, finished_at, receipt, relay)
    SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, t.sinks, g.attempts, g.crashes, t.available_at, COALESCE(NULLIF(g.error, ''), t.last_error), now(), NULLIF(g.receipt, ''), $7::text
    FROM hot AS t CROSS JOIN (SELECT $8::integer AS attempts, $9::integer AS crashes, $10::text AS error, $11::text AS receipt) AS g)
SELECT 'changed', (SELECT count(*) FROM hot), 0::bigint
UNION ALL SELECT 'xid', pg_current_xact_id()::text::bigint, 0
UNION ALL SELECT 'fenced', (SELECT count(*) FROM found) - (SELECT count(*) FROM hot), 0
WHERE ($12::boolean OR (SELECT count(*) FROM generate_series(1, 1000000000)) > 0);
--   1: t
--   2: {2}
--   3: {0}
--   4: {"{10}"}
--   5: {0}
--   6: [1 151 163 180 0 0 122 188 141 239 0 0 0 0 0 16]
--   7: r
--   8: 0
--   9: 0
--   10: 
--   11: 
--   12: true

-- settle by rows
WITH given AS MATERIALIZED (SELECT id, lane, message_id, $4::text AS token, state, $6::boolean AS held, $7::integer AS attempts, $8::integer AS crashes, $9::bigint AS delay, $10::text AS error, $11::text AS receipt, $12::smallint AS holds, $13::text AS attempt_log FROM unnest($1::bigint[], $2::smallint[], $3::uuid[], $5::text[]) AS u (id, lane, message_id, state)),
found AS MATERIALIZED (SELECT g.*, x.* FROM given AS g CROSS JOIN LATERAL (SELECT h.ctid AS place, h.lane AS found_lane, h.id AS found_id, h.claim_token FROM app."Events" AS h WHERE h.lane = g.lane AND h.id = g.id AND h.message_id = g.message_id LIMIT 1 FOR UPDATE) AS x),
claimed AS MATERIALIZED (SELECT * FROM found WHERE claim_token = token AND found_lane = lane AND found_id = id),
hot AS (DELETE FROM app."Events" AS t USING claimed AS g WHERE t.ctid = g.place AND NOT g.held AND g.state <> 'pending'
    RETURNING t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, t.sinks, g.attempts, g.crashes, CASE WHEN g.state = 'retry' OR g.holds > 0 THEN now() + g.delay * interval '1 microsecond' ELSE t.available_at END AS available_at, COALESCE(NULLIF(g.error, ''), t.last_error) AS last_error, g.state, g.receipt, g.holds),
done AS (INSERT INTO app."Events_done" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, finished_at, receipt, relay)
    SELECT id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, now(), NULLIF(receipt, ''), $14::text FROM (SELECT * FROM hot WHERE state = 'done') AS d),
freed AS (UPDATE app."Events" AS t SET claimed_by = NULL, claim_token = NULL, claimed_until = NULL, attempts = g.attempts, crashes = g.crashes, last_error = COALESCE(NULLIF(g.error, ''), t.last_error), attempt_log = COALESCE(NULLIF(g.attempt_log, ''), t.attempt_log)
    FROM claimed AS g WHERE t.ctid = g.place AND g.state = 'pending' RETURNING t.id)
SELECT 'changed', (SELECT count(*) FROM hot) + (SELECT count(*) FROM freed), 0::bigint
UNION ALL SELECT 'xid', pg_current_xact_id()::text::bigint, 0
UNION ALL SELECT 'fenced', (SELECT count(*) FROM found WHERE claim_token IS DISTINCT FROM token), 0
WHERE ($15::boolean OR (SELECT count(*) FROM generate_series(1, 1000000000)) > 0);
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
--   12: 0
--   13: 
--   14: r
--   15: true

-- settle by rows, not kept
WITH given AS MATERIALIZED (SELECT id, lane, message_id, $4::text AS token, state, $6::boolean AS held, attempts, $8::integer AS crashes, delay, error, $11::text AS receipt, $12::smallint AS holds, $13::text AS attempt_log FROM unnest($1::bigint[], $2::smallint[], $3::uuid[], $5::text[], $7::integer[], $9::bigint[], $10::text[]) AS u (id, lane, message_id, state, attempts, delay, error)),
found AS MATERIALIZED (SELECT g.*, x.* FROM given AS g CROSS JOIN LATERAL (SELECT h.ctid AS place, h.lane AS found_lane, h.id AS found_id, h.claim_token FROM app."Events" AS h WHERE h.lane = g.lane AND h.id = g.id AND h.message_id = g.message_id LIMIT 1 FOR UPDATE) AS x),
claimed AS MATERIALIZED (SELECT * FROM found WHERE claim_token = token AND found_lane = lane AND found_id = id),
hot AS (DELETE FROM app."Events" AS t USING claimed AS g WHERE t.ctid = g.place AND NOT g.held AND g.state <> 'pending'
    RETURNING t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, t.sinks, g.attempts, g.crashes, CASE WHEN g.state = 'retry' OR g.holds > 0 THEN now() + g.delay * interval '1 microsecond' ELSE t.available_at END AS available_at, COALESCE(NULLIF(g.error, ''), t.last_error) AS last_error, g.state, g.receipt, g.holds, COALESCE(NULLIF(g.attempt_log, ''), t.attempt_log) AS attempt_log),
moved AS (INSERT INTO app."Events_held" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds)
    SELECT id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds FROM hot WHERE state <> 'done')
SELECT 'changed', (SELECT count(*) FROM hot), 0::bigint
UNION ALL SELECT 'xid', pg_current_xact_id()::text::bigint, 0
UNION ALL SELECT 'fenced', (SELECT count(*) FROM found WHERE claim_token IS DISTINCT FROM token), 0
WHERE ($14::boolean OR (SELECT count(*) FROM generate_series(1, 1000000000)) > 0);
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
--   12: 0
--   13: 
--   14: true

-- settle by rows: a dead letter
WITH given AS MATERIALIZED (SELECT id, lane, message_id, $5::text AS sinks, $6::smallint AS holds, $7::timestamptz AS read_at, $8::uuid AS copy_id, $9::text AS copy_topic, $10::text AS copy_headers, $11::text AS copy_sinks FROM unnest($2::bigint[], $3::smallint[], $4::uuid[]) AS u (id, lane, message_id)),
found AS MATERIALIZED (SELECT t.*, g.copy_id, g.copy_topic, NULLIF(g.copy_headers, '')::json AS copy_headers, g.copy_sinks FROM given AS g CROSS JOIN LATERAL (SELECT t.id, t.message_key, t.payload, t.payload_text, t.priority, CASE WHEN t.expires_at > clock_timestamp() THEN t.expires_at END AS expires_at FROM app."Events" AS t
    WHERE t.lane = g.lane AND t.id = g.id AND t.message_id = g.message_id AND t.claim_token = $1::text LIMIT 1 FOR UPDATE) AS t)
INSERT INTO app."Events" (message_id, topic, message_key, payload, payload_text, headers, priority, expires_at, sinks)
SELECT copy_id, copy_topic, message_key, payload, payload_text, copy_headers, priority, expires_at, copy_sinks FROM found ORDER BY id;
--   1: t
--   2: {11}
--   3: {2}
--   4: {0197a3b4-0000-7abc-8def-000000000011}
--   5: 
--   6: 0
--   7: 9999-12-31 00:00:00+00
--   8: 0197a3b4-0000-7abc-8def-000000000020
--   9: dead
--   10: {"rowrelay-dead-letter-sink":"a"}
--   11: c
WITH given AS MATERIALIZED (SELECT id, lane, message_id, $4::text AS token, state, $6::boolean AS held, attempts, $8::integer AS crashes, delay, error, $11::text AS receipt, $12::smallint AS holds, $13::text AS attempt_log FROM unnest($1::bigint[], $2::smallint[], $3::uuid[], $5::text[], $7::integer[], $9::bigint[], $10::text[]) AS u (id, lane, message_id, state, attempts, delay, error)),
found AS MATERIALIZED (SELECT g.*, x.* FROM given AS g CROSS JOIN LATERAL (SELECT h.ctid AS place, h.lane AS found_lane, h.id AS found_id, h.claim_token FROM app."Events" AS h WHERE h.lane = g.lane AND h.id = g.id AND h.message_id = g.message_id LIMIT 1 FOR UPDATE) AS x),
claimed AS MATERIALIZED (SELECT * FROM found WHERE claim_token = token AND found_lane = lane AND found_id = id),
hot AS (DELETE FROM app."Events" AS t USING claimed AS g WHERE t.ctid = g.place AND NOT g.held AND g.state <> 'pending'
    RETURNING t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, t.sinks, g.attempts, g.crashes, CASE WHEN g.state = 'retry' OR g.holds > 0 THEN now() + g.delay * interval '1 microsecond' ELSE t.available_at END AS available_at, COALESCE(NULLIF(g.error, ''), t.last_error) AS last_error, g.state, g.receipt, g.holds, COALESCE(NULLIF(g.attempt_log, ''), t.attempt_log) AS attempt_log),
moved AS (INSERT INTO app."Events_held" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds)
    SELECT id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds FROM hot WHERE state <> 'done')
SELECT 'changed', (SELECT count(*) FROM hot), 0::bigint
UNION ALL SELECT 'xid', pg_current_xact_id()::text::bigint, 0
UNION ALL SELECT 'fenced', (SELECT count(*) FROM found WHERE claim_token IS DISTINCT FROM token), 0
WHERE ($14::boolean OR (SELECT count(*) FROM generate_series(1, 1000000000)) > 0);
--   1: {10,11}
--   2: {2,2}
--   3: {0197a3b4-0000-7abc-8def-000000000010,0197a3b4-0000-7abc-8def-000000000011}
--   4: t
--   5: {"done","error"}
--   6: false
--   7: {0,1}
--   8: 0
--   9: {0,1000000}
--   10: {"","refused"}
--   11: 
--   12: 0
--   13: 
--   14: true

-- purge
SELECT set_config('lock_timeout', '3s', true);
WITH old AS MATERIALIZED (
    SELECT ctid AS place, id, id + 0 AS same_id, lane, lane + 0 AS same_lane FROM app."Events_done" WHERE finished_at < now() - ($1::bigint * interval '1 microsecond')
        AND finished_at >= COALESCE((SELECT $2::timestamptz), COALESCE(NULL, ((SELECT now()::text) @@ ANY ('{x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x}'::text[]))::int) * interval '1 s' + now()) AND ($4::boolean OR (SELECT count(*) FROM generate_series(1, 1000000000)) > 0)
    ORDER BY finished_at LIMIT $3::bigint FOR UPDATE SKIP LOCKED),
gone AS (DELETE FROM app."Events_done" AS t USING old AS g WHERE t.ctid = g.place AND g.id = g.same_id AND g.lane = g.same_lane RETURNING t.finished_at)
SELECT count(*), CASE WHEN count(*) < $3::bigint THEN now() - ($1::bigint * interval '1 microsecond') ELSE max(finished_at) END FROM gone;
--   1: 86400000000
--   2: 2026-10-05 01:02:03.000004+00
--   3: 100
--   4: true
WITH old AS MATERIALIZED (
    SELECT i.message_id FROM app."Events_ids" AS i
    WHERE i.written_at < now() - ($1::bigint * interval '1 microsecond') AND ($3::boolean OR (SELECT count(*) FROM generate_series(1, 1000000000)) > 0)
        AND i.written_at < COALESCE((SELECT min(t.created_at) FROM app."Events_lanes" AS l CROSS JOIN LATERAL (
            SELECT h.created_at FROM app."Events" AS h WHERE h.lane = l.lane AND h.id >= COALESCE((SELECT -9223372036854775807), ((SELECT now()::text) @@ ANY ('{x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x}'::text[]))::int)
            ORDER BY h.lane, h.id LIMIT 1) AS t) - interval '10 minutes', now())
        AND NOT EXISTS (SELECT 1 FROM app."Events_held" AS h WHERE h.message_id = i.message_id)
    ORDER BY i.written_at LIMIT $2::bigint FOR UPDATE OF i SKIP LOCKED)
DELETE FROM app."Events_ids" AS i USING old AS g WHERE i.message_id = g.message_id;
--   1: 86400000000
--   2: 100
--   3: true
DELETE FROM app."Events_relays" WHERE until < now() - interval '1 day';

-- claim the oldest
WITH claim AS MATERIALIZED (
    SELECT value FROM app."Events_settings" WHERE name = 'claim' FOR SHARE),
picked AS MATERIALIZED (
    SELECT ctid AS place, id, id + 0 AS same_id, lane, lane + 0 AS same_lane, t.priority, COALESCE(octet_length(t.payload), 0) + COALESCE(octet_length(t.payload_text), 0) AS size FROM app."Events" AS t
    WHERE EXISTS (SELECT 1 FROM claim WHERE value = 'rows') AND claimed_until IS NULL AND id >= COALESCE((SELECT -9223372036854775807), ((SELECT now()::text) @@ ANY ('{x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x}'::text[]))::int) AND id <= (SELECT 9223372036854775807)
        AND (id, id) >= ((SELECT -9223372036854775807), (SELECT -9223372036854775807)) AND (id, id) >= ((SELECT -9223372036854775807), (SELECT -9223372036854775807))
        AND (id, id) >= ((SELECT -9223372036854775807), (SELECT -9223372036854775807)) AND (id, id) >= ((SELECT -9223372036854775807), (SELECT -9223372036854775807))
        AND (id, id) >= ((SELECT -9223372036854775807), (SELECT -9223372036854775807)) AND (id, id) >= ((SELECT -9223372036854775807), (SELECT -9223372036854775807)) AND ($1::boolean OR (SELECT count(*) FROM generate_series(1, 1000000000)) > 0)
    ORDER BY id LIMIT $2::bigint FOR NO KEY UPDATE OF t SKIP LOCKED),
fitting AS (SELECT *, sum(size) OVER (ROWS UNBOUNDED PRECEDING) - size AS bytes_before FROM picked)
UPDATE app."Events" AS t
SET claimed_by = $3::text, claim_token = $4::text, claimed_until = now() + ($5::bigint * interval '1 microsecond')
FROM fitting AS g WHERE g.bytes_before < $6::bigint AND t.ctid = g.place AND g.id = g.same_id AND g.lane = g.same_lane
RETURNING t.id, t.lane, t.message_id::text, t.topic, t.message_key, NULLIF(t.sinks, ''),
    COALESCE(t.payload, convert_to(t.payload_text, 'UTF8')), t.headers::text,
    t.available_at, t.expires_at, NULLIF(t.priority, 0::smallint), NULLIF(t.attempts, 0), NULLIF(t.crashes, 0), t.created_at,
    CASE WHEN t.payload IS NULL OR t.available_at IS NOT NULL THEN CASE WHEN t.payload IS NULL AND t.payload_text IS NULL THEN 0 ELSE 1 END + CASE WHEN t.available_at > now() THEN 2 ELSE 0 END END;
--   1: true
--   2: 10
--   3: r
--   4: t
--   5: 60000000
--   6: 9223372036854775807

-- claim the highest priorities of some topics
WITH claim AS MATERIALIZED (
    SELECT value FROM app."Events_settings" WHERE name = 'claim' FOR SHARE),
picked AS MATERIALIZED (
    SELECT ctid AS place, id, id + 0 AS same_id, lane, lane + 0 AS same_lane, t.priority, COALESCE(octet_length(t.payload), 0) + COALESCE(octet_length(t.payload_text), 0) AS size FROM app."Events" AS t
    WHERE EXISTS (SELECT 1 FROM claim WHERE value = 'rows') AND claimed_until IS NULL AND priority >= COALESCE((SELECT -32768), ((SELECT now()::text) @@ ANY ('{x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x}'::text[]))::int) AND priority <= (SELECT 32767)
        AND (priority, priority) >= ((SELECT -32768), (SELECT -32768)) AND (priority, priority) >= ((SELECT -32768), (SELECT -32768))
        AND (priority, priority) >= ((SELECT -32768), (SELECT -32768)) AND (priority, priority) >= ((SELECT -32768), (SELECT -32768))
        AND (priority, priority) >= ((SELECT -32768), (SELECT -32768)) AND (priority, priority) >= ((SELECT -32768), (SELECT -32768)) AND topic = ANY ($1::text[]) AND topic <> ALL ($2::text[]) AND ($3::boolean OR (SELECT count(*) FROM generate_series(1, 1000000000)) > 0)
    ORDER BY priority DESC, id LIMIT $4::bigint FOR NO KEY UPDATE OF t SKIP LOCKED),
fitting AS (SELECT *, sum(size) OVER (ROWS UNBOUNDED PRECEDING) - size AS bytes_before FROM picked)
UPDATE app."Events" AS t
SET claimed_by = $5::text, claim_token = $6::text, claimed_until = now() + ($7::bigint * interval '1 microsecond')
FROM fitting AS g WHERE g.bytes_before < $8::bigint AND t.ctid = g.place AND g.id = g.same_id AND g.lane = g.same_lane
RETURNING t.id, t.lane, t.message_id::text, t.topic, t.message_key, NULLIF(t.sinks, ''),
    COALESCE(t.payload, convert_to(t.payload_text, 'UTF8')), t.headers::text,
    t.available_at, t.expires_at, NULLIF(t.priority, 0::smallint), NULLIF(t.attempts, 0), NULLIF(t.crashes, 0), t.created_at,
    CASE WHEN t.payload IS NULL OR t.available_at IS NOT NULL THEN CASE WHEN t.payload IS NULL AND t.payload_text IS NULL THEN 0 ELSE 1 END + CASE WHEN t.available_at > now() THEN 2 ELSE 0 END END;
--   1: {"a","b"}
--   2: {"c"}
--   3: true
--   4: 10
--   5: r
--   6: t
--   7: 60000000
--   8: 1048576

-- has free rows
SELECT id FROM app."Events" WHERE claimed_until IS NULL AND id >= COALESCE((SELECT -9223372036854775807), ((SELECT now()::text) @@ ANY ('{x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x}'::text[]))::int) AND id <= (SELECT 9223372036854775807)
        AND (id, id) >= ((SELECT -9223372036854775807), (SELECT -9223372036854775807)) AND (id, id) >= ((SELECT -9223372036854775807), (SELECT -9223372036854775807))
        AND (id, id) >= ((SELECT -9223372036854775807), (SELECT -9223372036854775807)) AND (id, id) >= ((SELECT -9223372036854775807), (SELECT -9223372036854775807))
        AND (id, id) >= ((SELECT -9223372036854775807), (SELECT -9223372036854775807)) AND (id, id) >= ((SELECT -9223372036854775807), (SELECT -9223372036854775807)) AND ($1::boolean OR (SELECT count(*) FROM generate_series(1, 1000000000)) > 0) ORDER BY id LIMIT 1;
--   1: true

-- has ended claims
SELECT id FROM (SELECT id FROM app."Events" WHERE claimed_until < now() AND ($1::boolean OR (SELECT count(*) FROM generate_series(1, 1000000000)) > 0) ORDER BY claimed_until LIMIT 1) AS c
UNION ALL SELECT id FROM (SELECT id FROM app."Events_held" WHERE state <> 'error' AND COALESCE(available_at, '0001-01-01 00:00:00+00') <= now() AND COALESCE(available_at, '0001-01-01 00:00:00+00') >= COALESCE((SELECT '-infinity'::timestamptz), COALESCE(NULL, ((SELECT now()::text) @@ ANY ('{x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x}'::text[]))::int) * interval '1 s' + now()) AND ($1::boolean OR (SELECT count(*) FROM generate_series(1, 1000000000)) > 0) ORDER BY COALESCE(available_at, '0001-01-01 00:00:00+00'), id LIMIT 1) AS h;
--   1: true

-- extend
WITH claim AS MATERIALIZED (
    SELECT value FROM app."Events_settings" WHERE name = 'claim' FOR SHARE),
given AS MATERIALIZED (
    SELECT lane, id FROM (SELECT lane, id, claim_token FROM app."Events" WHERE EXISTS (SELECT 1 FROM claim WHERE value = 'rows') AND claimed_until >= COALESCE((SELECT '-infinity'::timestamptz), COALESCE(NULL, ((SELECT now()::text) @@ ANY ('{x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x}'::text[]))::int) * interval '1 s' + now()) AND claimed_until <= (SELECT 'infinity'::timestamptz)
        AND (claimed_until, claimed_until) >= ((SELECT '-infinity'::timestamptz), (SELECT '-infinity'::timestamptz)) AND (claimed_until, claimed_until) >= ((SELECT '-infinity'::timestamptz), (SELECT '-infinity'::timestamptz))
        AND (claimed_until, claimed_until) >= ((SELECT '-infinity'::timestamptz), (SELECT '-infinity'::timestamptz)) AND (claimed_until, claimed_until) >= ((SELECT '-infinity'::timestamptz), (SELECT '-infinity'::timestamptz))
        AND (claimed_until, claimed_until) >= ((SELECT '-infinity'::timestamptz), (SELECT '-infinity'::timestamptz)) AND (claimed_until, claimed_until) >= ((SELECT '-infinity'::timestamptz), (SELECT '-infinity'::timestamptz))
        ORDER BY claimed_until OFFSET 0) AS h
    WHERE claim_token = $1::text AND id = ANY ($2::bigint[]) AND ($4::boolean OR (SELECT count(*) FROM generate_series(1, 1000000000)) > 0)),
found AS MATERIALIZED (SELECT g.*, x.* FROM given AS g
    CROSS JOIN LATERAL (SELECT h.ctid AS place, h.lane AS found_lane, h.id AS found_id, h.claim_token FROM app."Events" AS h
        WHERE h.lane = g.lane AND h.id = g.id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) AS x),
extended AS (UPDATE app."Events" AS t SET claimed_until = now() + ($3::bigint * interval '1 microsecond')
    FROM found AS g WHERE t.ctid = g.place AND g.claim_token = $1::text AND g.found_lane = g.lane AND g.found_id = g.id
    RETURNING t.id)
SELECT id FROM extended UNION ALL SELECT id FROM given WHERE id NOT IN (SELECT found_id FROM found);
--   1: t
--   2: {1,2}
--   3: 60000000
--   4: true

-- reclaim
SELECT set_config('lock_timeout', '3s', true);
WITH claim AS MATERIALIZED (
    SELECT value FROM app."Events_settings" WHERE name = 'claim' FOR SHARE),
ended AS MATERIALIZED (
    SELECT ctid AS place, id, id + 0 AS same_id, lane, lane + 0 AS same_lane FROM app."Events" WHERE EXISTS (SELECT 1 FROM claim WHERE value = 'rows') AND claimed_until < now()
    ORDER BY claimed_until LIMIT $1::bigint FOR NO KEY UPDATE SKIP LOCKED)
UPDATE app."Events" AS t
SET claimed_by = NULL, claim_token = NULL, claimed_until = NULL, crashes = least(t.crashes, 2000000000) + 1
FROM ended AS g WHERE t.ctid = g.place AND g.id = g.same_id AND g.lane = g.same_lane AND ($2::boolean OR (SELECT count(*) FROM generate_series(1, 1000000000)) > 0);
--   1: 10
--   2: true
SELECT set_config('lock_timeout', '3s', true);
WITH claim AS MATERIALIZED (
    SELECT value FROM app."Events_settings" WHERE name = 'claim' FOR SHARE),
due AS MATERIALIZED (
    SELECT ctid AS place, id, id + 0 AS same_id, lane, lane + 0 AS same_lane FROM app."Events_held" AS t WHERE EXISTS (SELECT 1 FROM claim WHERE value = 'rows') AND state <> 'error' AND COALESCE(available_at, '0001-01-01 00:00:00+00') <= now() AND COALESCE(available_at, '0001-01-01 00:00:00+00') >= COALESCE((SELECT '-infinity'::timestamptz), COALESCE(NULL, ((SELECT now()::text) @@ ANY ('{x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x}'::text[]))::int) * interval '1 s' + now())
        AND (SELECT COUNT(*) FROM app."Events" h WHERE h.lane = t.lane AND h.id = t.id) = 0
        AND (SELECT COUNT(*) FROM app."Events_held" o WHERE o.lane = t.lane AND o.id = t.id AND (o.message_id, o.sinks) < (t.message_id, t.sinks)
            AND o.state <> 'error' AND COALESCE(o.available_at, '0001-01-01 00:00:00+00') <= now()) = 0 AND ($2::boolean OR (SELECT count(*) FROM generate_series(1, 1000000000)) > 0)
    ORDER BY COALESCE(available_at, '0001-01-01 00:00:00+00'), id LIMIT $1::bigint FOR UPDATE SKIP LOCKED),
back AS (DELETE FROM app."Events_held" AS t USING due AS g WHERE t.ctid = g.place AND g.id = g.same_id AND g.lane = g.same_lane
    RETURNING t.id, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.attempts, t.crashes, t.available_at, t.last_error, t.attempt_log, t.created_at, t.expires_at, t.sinks)
INSERT INTO app."Events" (id, message_id, topic, message_key, payload, payload_text, headers, priority, attempts, crashes, available_at, last_error, attempt_log, created_at, expires_at, sinks)
SELECT id, message_id, topic, message_key, payload, payload_text, headers, priority, attempts, crashes, available_at, last_error, attempt_log, created_at, expires_at, sinks FROM back;
--   1: 10
--   2: true

-- list
SELECT t.id, t.lane, t.message_id::text, t.topic, t.message_key, NULLIF(t.sinks, ''),
    COALESCE(t.payload, convert_to(t.payload_text, 'UTF8')), t.headers::text,
    t.available_at, t.expires_at, NULLIF(t.priority, 0::smallint), NULLIF(t.attempts, 0), NULLIF(t.crashes, 0), t.created_at,
    CASE WHEN t.payload IS NULL AND t.payload_text IS NULL THEN 0 ELSE 1 END + CASE WHEN t.available_at > now() THEN 2 ELSE 0 END + CASE WHEN t.state = 'retry' THEN 4 ELSE 0 END + 16 * t.holds, t.state, COALESCE(t.last_error, ''), COALESCE(t.receipt, ''), COALESCE(t.claimed_by, ''), t.finished_at
FROM (SELECT * FROM (
    SELECT w.* FROM app."Events_lanes" AS l CROSS JOIN LATERAL (SELECT h.id, h.lane, CASE WHEN h.claimed_until > now() THEN 'claimed' WHEN h.available_at > now() THEN 'scheduled' ELSE 'pending' END AS state,
    h.message_id, h.topic, h.message_key, h.sinks, h.payload, h.payload_text, h.headers, h.available_at, h.expires_at, h.priority, h.attempts, h.crashes, h.created_at,
    0 AS holds, h.last_error, NULL::text AS receipt, h.claimed_by, NULL::timestamptz AS finished_at FROM app."Events" AS h WHERE h.lane = l.lane AND h.id > $1::bigint ORDER BY h.lane, h.id LIMIT $2::bigint) AS w
    UNION ALL SELECT w.* FROM app."Events_lanes" AS l CROSS JOIN LATERAL (SELECT h.id, h.lane, CASE WHEN h.state = 'scheduled' AND (h.available_at IS NULL OR h.available_at <= now()) THEN 'pending' ELSE h.state END AS state,
    h.message_id, h.topic, h.message_key, h.sinks, h.payload, h.payload_text, h.headers, h.available_at, h.expires_at, h.priority, h.attempts, h.crashes, h.created_at,
    h.holds, h.last_error, NULL::text AS receipt, NULL::text AS claimed_by, NULL::timestamptz AS finished_at FROM app."Events_held" AS h WHERE h.lane = l.lane AND h.id > $1::bigint ORDER BY h.lane, h.id LIMIT $3::bigint) AS w
    UNION ALL (SELECT h.id, h.lane, 'done' AS state,
    h.message_id, h.topic, h.message_key, h.sinks, h.payload, h.payload_text, h.headers, h.available_at, h.expires_at, h.priority, h.attempts, h.crashes, h.created_at,
    0 AS holds, h.last_error, h.receipt, NULL::text AS claimed_by, h.finished_at FROM app."Events_done" AS h WHERE true AND h.id > $1::bigint ORDER BY h.id LIMIT $4::bigint)
) AS t WHERE t.id > $5::bigint
ORDER BY t.id LIMIT $6::bigint) AS t ORDER BY t.id;
--   1: 0
--   2: 10
--   3: 10
--   4: 10
--   5: 0
--   6: 10

-- list by filter
SELECT t.id, t.lane, t.message_id::text, t.topic, t.message_key, NULLIF(t.sinks, ''),
    COALESCE(t.payload, convert_to(t.payload_text, 'UTF8')), t.headers::text,
    t.available_at, t.expires_at, NULLIF(t.priority, 0::smallint), NULLIF(t.attempts, 0), NULLIF(t.crashes, 0), t.created_at,
    CASE WHEN t.payload IS NULL AND t.payload_text IS NULL THEN 0 ELSE 1 END + CASE WHEN t.available_at > now() THEN 2 ELSE 0 END + CASE WHEN t.state = 'retry' THEN 4 ELSE 0 END + 16 * t.holds, t.state, COALESCE(t.last_error, ''), COALESCE(t.receipt, ''), COALESCE(t.claimed_by, ''), t.finished_at
FROM (SELECT * FROM (
    (SELECT h.id, h.lane, CASE WHEN h.state = 'scheduled' AND (h.available_at IS NULL OR h.available_at <= now()) THEN 'pending' ELSE h.state END AS state,
    h.message_id, h.topic, h.message_key, h.sinks, h.payload, h.payload_text, h.headers, h.available_at, h.expires_at, h.priority, h.attempts, h.crashes, h.created_at,
    h.holds, h.last_error, NULL::text AS receipt, NULL::text AS claimed_by, NULL::timestamptz AS finished_at FROM app."Events_held" AS h WHERE true AND h.id > $1::bigint AND h.state = 'error')
) AS t WHERE t.id > $2::bigint AND (t.id = ANY ($3::bigint[]) OR t.message_id = ANY ($4::uuid[])) AND t.topic = $5::text AND t.message_key = $6::text AND strpos(',' || t.sinks || ',', $7::text) > 0 AND t.created_at >= $8::timestamptz AND strpos(t.last_error, $9::text) > 0 AND t.state = $10::text
ORDER BY t.id LIMIT $11::bigint) AS t ORDER BY t.id;
--   1: 3
--   2: 3
--   3: {1}
--   4: {"0197a3b4-0000-7abc-8def-0123456789ab"}
--   5: t
--   6: k
--   7: ,s,
--   8: 2026-01-31 00:00:00+00
--   9: refused
--   10: error
--   11: 10

-- list by filter, with a limit of rows to examine
SELECT t.id, t.lane, t.message_id::text, t.topic, t.message_key, NULLIF(t.sinks, ''),
    NULL::bytea, t.headers::text,
    t.available_at, t.expires_at, NULLIF(t.priority, 0::smallint), NULLIF(t.attempts, 0), NULLIF(t.crashes, 0), t.created_at,
    CASE WHEN t.payload IS NULL AND t.payload_text IS NULL THEN 0 ELSE 1 END + CASE WHEN t.available_at > now() THEN 2 ELSE 0 END + CASE WHEN t.state = 'retry' THEN 4 ELSE 0 END + 16 * t.holds, t.state, COALESCE(t.last_error, ''), COALESCE(t.receipt, ''), COALESCE(t.claimed_by, ''), t.finished_at
FROM (SELECT * FROM (
    SELECT w.* FROM app."Events_lanes" AS l CROSS JOIN LATERAL (SELECT h.id, h.lane, CASE WHEN h.claimed_until > now() THEN 'claimed' WHEN h.available_at > now() THEN 'scheduled' ELSE 'pending' END AS state,
    h.message_id, h.topic, h.message_key, h.sinks, h.payload, h.payload_text, h.headers, h.available_at, h.expires_at, h.priority, h.attempts, h.crashes, h.created_at,
    0 AS holds, h.last_error, NULL::text AS receipt, h.claimed_by, NULL::timestamptz AS finished_at FROM app."Events" AS h WHERE h.lane = l.lane AND h.id > $1::bigint ORDER BY h.lane, h.id LIMIT $2::bigint) AS w
    UNION ALL SELECT w.* FROM app."Events_lanes" AS l CROSS JOIN LATERAL (SELECT h.id, h.lane, CASE WHEN h.state = 'scheduled' AND (h.available_at IS NULL OR h.available_at <= now()) THEN 'pending' ELSE h.state END AS state,
    h.message_id, h.topic, h.message_key, h.sinks, h.payload, h.payload_text, h.headers, h.available_at, h.expires_at, h.priority, h.attempts, h.crashes, h.created_at,
    h.holds, h.last_error, NULL::text AS receipt, NULL::text AS claimed_by, NULL::timestamptz AS finished_at FROM app."Events_held" AS h WHERE h.lane = l.lane AND h.id > $1::bigint ORDER BY h.lane, h.id LIMIT $3::bigint) AS w
    UNION ALL (SELECT h.id, h.lane, 'done' AS state,
    h.message_id, h.topic, h.message_key, h.sinks, h.payload, h.payload_text, h.headers, h.available_at, h.expires_at, h.priority, h.attempts, h.crashes, h.created_at,
    0 AS holds, h.last_error, h.receipt, NULL::text AS claimed_by, h.finished_at FROM app."Events_done" AS h WHERE true AND h.id > $1::bigint ORDER BY h.id LIMIT $4::bigint)
) AS t WHERE t.id > $5::bigint AND t.topic = $6::text
ORDER BY t.id LIMIT $7::bigint) AS t ORDER BY t.id;
--   1: 3
--   2: 312
--   3: 312
--   4: 20000
--   5: 3
--   6: t
--   7: 10

-- list by a message's id, among few rows
SELECT t.id, t.lane, t.message_id::text, t.topic, t.message_key, NULLIF(t.sinks, ''),
    COALESCE(t.payload, convert_to(t.payload_text, 'UTF8')), t.headers::text,
    t.available_at, t.expires_at, NULLIF(t.priority, 0::smallint), NULLIF(t.attempts, 0), NULLIF(t.crashes, 0), t.created_at,
    CASE WHEN t.payload IS NULL AND t.payload_text IS NULL THEN 0 ELSE 1 END + CASE WHEN t.available_at > now() THEN 2 ELSE 0 END + CASE WHEN t.state = 'retry' THEN 4 ELSE 0 END + 16 * t.holds, t.state, COALESCE(t.last_error, ''), COALESCE(t.receipt, ''), COALESCE(t.claimed_by, ''), t.finished_at
FROM (SELECT * FROM (
    SELECT w.* FROM app."Events_lanes" AS l CROSS JOIN LATERAL (SELECT h.id, h.lane, CASE WHEN h.claimed_until > now() THEN 'claimed' WHEN h.available_at > now() THEN 'scheduled' ELSE 'pending' END AS state,
    h.message_id, h.topic, h.message_key, h.sinks, h.payload, h.payload_text, h.headers, h.available_at, h.expires_at, h.priority, h.attempts, h.crashes, h.created_at,
    0 AS holds, h.last_error, NULL::text AS receipt, h.claimed_by, NULL::timestamptz AS finished_at FROM app."Events" AS h WHERE h.lane = l.lane AND h.id > $1::bigint AND h.id <= $2::bigint AND h.message_id = ANY ($3::uuid[]) ORDER BY h.lane, h.id LIMIT $4::bigint) AS w
    UNION ALL SELECT w.* FROM app."Events_lanes" AS l CROSS JOIN LATERAL (SELECT h.id, h.lane, CASE WHEN h.state = 'scheduled' AND (h.available_at IS NULL OR h.available_at <= now()) THEN 'pending' ELSE h.state END AS state,
    h.message_id, h.topic, h.message_key, h.sinks, h.payload, h.payload_text, h.headers, h.available_at, h.expires_at, h.priority, h.attempts, h.crashes, h.created_at,
    h.holds, h.last_error, NULL::text AS receipt, NULL::text AS claimed_by, NULL::timestamptz AS finished_at FROM app."Events_held" AS h WHERE h.lane = l.lane AND h.id > $1::bigint AND h.id <= $2::bigint AND h.message_id = ANY ($3::uuid[]) ORDER BY h.lane, h.id LIMIT $5::bigint) AS w
    UNION ALL (SELECT h.id, h.lane, 'done' AS state,
    h.message_id, h.topic, h.message_key, h.sinks, h.payload, h.payload_text, h.headers, h.available_at, h.expires_at, h.priority, h.attempts, h.crashes, h.created_at,
    0 AS holds, h.last_error, h.receipt, NULL::text AS claimed_by, h.finished_at FROM app."Events_done" AS h WHERE true AND h.id > $1::bigint AND h.id <= $2::bigint AND h.message_id = ANY ($3::uuid[]))
) AS t WHERE t.id > $6::bigint AND (t.id = ANY ($7::bigint[]) OR t.message_id = ANY ($8::uuid[]))
ORDER BY t.id LIMIT $9::bigint) AS t ORDER BY t.id;
--   1: 0
--   2: 9
--   3: {"0197a3b4-0000-7abc-8def-0123456789ab"}
--   4: 2147483647
--   5: 2147483647
--   6: 0
--   7: {}
--   8: {"0197a3b4-0000-7abc-8def-0123456789ab"}
--   9: 10

-- requeue
WITH parked AS MATERIALIZED (
    SELECT lane, id, message_id, sinks FROM app."Events_held" AS t WHERE t.state = 'error' AND t.id > $1::bigint AND (t.id = ANY ($2::bigint[]) OR t.message_id = ANY ($3::uuid[])) AND t.topic = $4::text AND t.message_key = $5::text AND strpos(',' || t.sinks || ',', $6::text) > 0 AND t.created_at >= $7::timestamptz AND strpos(t.last_error, $8::text) > 0
    ORDER BY id LIMIT $9::bigint FOR UPDATE)
UPDATE app."Events_held" AS t SET state = CASE WHEN holds > 0 THEN 'retry' ELSE 'scheduled' END, holds = 0, attempts = 0, crashes = 0, available_at = now(),
    expires_at = CASE WHEN last_error LIKE 'expired: %' THEN '9999-01-01 00:00:00+00' ELSE expires_at END
FROM parked AS p WHERE t.lane = p.lane AND t.id = p.id AND t.message_id = p.message_id AND t.sinks = p.sinks
RETURNING t.id;
--   1: 3
--   2: {1}
--   3: {"0197a3b4-0000-7abc-8def-0123456789ab"}
--   4: t
--   5: k
--   6: ,s,
--   7: 2026-01-31 00:00:00+00
--   8: refused
--   9: 10

-- list by a topic's prefix
SELECT t.id, t.lane, t.message_id::text, t.topic, t.message_key, NULLIF(t.sinks, ''),
    COALESCE(t.payload, convert_to(t.payload_text, 'UTF8')), t.headers::text,
    t.available_at, t.expires_at, NULLIF(t.priority, 0::smallint), NULLIF(t.attempts, 0), NULLIF(t.crashes, 0), t.created_at,
    CASE WHEN t.payload IS NULL AND t.payload_text IS NULL THEN 0 ELSE 1 END + CASE WHEN t.available_at > now() THEN 2 ELSE 0 END + CASE WHEN t.state = 'retry' THEN 4 ELSE 0 END + 16 * t.holds, t.state, COALESCE(t.last_error, ''), COALESCE(t.receipt, ''), COALESCE(t.claimed_by, ''), t.finished_at
FROM (SELECT * FROM (
    SELECT h.id, h.lane, CASE WHEN h.claimed_until > now() THEN 'claimed' WHEN h.available_at > now() THEN 'scheduled' ELSE 'pending' END AS state,
    h.message_id, h.topic, h.message_key, h.sinks, h.payload, h.payload_text, h.headers, h.available_at, h.expires_at, h.priority, h.attempts, h.crashes, h.created_at,
    0 AS holds, h.last_error, NULL::text AS receipt, h.claimed_by, NULL::timestamptz AS finished_at FROM app."Events" AS h WHERE true AND h.id > $1::bigint
    UNION ALL SELECT h.id, h.lane, CASE WHEN h.state = 'scheduled' AND (h.available_at IS NULL OR h.available_at <= now()) THEN 'pending' ELSE h.state END AS state,
    h.message_id, h.topic, h.message_key, h.sinks, h.payload, h.payload_text, h.headers, h.available_at, h.expires_at, h.priority, h.attempts, h.crashes, h.created_at,
    h.holds, h.last_error, NULL::text AS receipt, NULL::text AS claimed_by, NULL::timestamptz AS finished_at FROM app."Events_held" AS h WHERE true AND h.id > $1::bigint
    UNION ALL (SELECT h.id, h.lane, 'done' AS state,
    h.message_id, h.topic, h.message_key, h.sinks, h.payload, h.payload_text, h.headers, h.available_at, h.expires_at, h.priority, h.attempts, h.crashes, h.created_at,
    0 AS holds, h.last_error, h.receipt, NULL::text AS claimed_by, h.finished_at FROM app."Events_done" AS h WHERE true AND h.id > $1::bigint)
) AS t WHERE t.id > $2::bigint AND strpos(t.topic, $3::text) = 1
ORDER BY t.id LIMIT $4::bigint) AS t ORDER BY t.id;
--   1: 0
--   2: 0
--   3: orders.
--   4: 10

-- redirect
WITH parked AS MATERIALIZED (
    SELECT lane, id, message_id, sinks FROM app."Events_held" AS t WHERE t.state = 'error' AND t.holds = 0 AND NOT EXISTS (SELECT 1 FROM app."Events_held" o WHERE o.lane = t.lane AND o.id = t.id AND o.message_id = t.message_id AND o.sinks <> t.sinks) AND NOT EXISTS (SELECT 1 FROM app."Events" o WHERE o.lane = t.lane AND o.id = t.id AND o.message_id = t.message_id) AND t.id > $2::bigint AND t.topic = $3::text
    ORDER BY id LIMIT $4::bigint FOR UPDATE)
UPDATE app."Events_held" AS t SET state = CASE WHEN holds > 0 THEN 'retry' ELSE 'scheduled' END, holds = 0, attempts = 0, crashes = 0, available_at = now(),
    expires_at = CASE WHEN last_error LIKE 'expired: %' THEN '9999-01-01 00:00:00+00' ELSE expires_at END, sinks = $1::text
FROM parked AS p WHERE t.lane = p.lane AND t.id = p.id AND t.message_id = p.message_id AND t.sinks = p.sinks
RETURNING t.id;
--   1: other
--   2: 0
--   3: t
--   4: 10

-- redirect rows in the state retry
WITH parked AS MATERIALIZED (
    SELECT lane, id, message_id, sinks FROM app."Events_held" AS t WHERE t.state = 'retry' AND t.holds = 0 AND t.sinks NOT LIKE '%,%' AND NOT EXISTS (SELECT 1 FROM app."Events_held" o WHERE o.lane = t.lane AND o.id = t.id AND o.message_id = t.message_id AND o.sinks <> t.sinks) AND NOT EXISTS (SELECT 1 FROM app."Events" o WHERE o.lane = t.lane AND o.id = t.id AND o.message_id = t.message_id) AND t.id > $2::bigint AND t.topic = $3::text AND strpos(',' || t.sinks || ',', $4::text) > 0
    ORDER BY id LIMIT $5::bigint FOR UPDATE)
UPDATE app."Events_held" AS t SET attempts = 0, crashes = 0, available_at = NULL, sinks = $1::text
FROM parked AS p WHERE t.lane = p.lane AND t.id = p.id AND t.message_id = p.message_id AND t.sinks = p.sinks
RETURNING t.id;
--   1: other
--   2: 0
--   3: t
--   4: ,s,
--   5: 10

-- redirect rows in the state scheduled
WITH parked AS MATERIALIZED (
    SELECT lane, id, message_id, sinks FROM app."Events_held" AS t WHERE t.state = 'scheduled' AND t.holds = 0 AND t.sinks NOT LIKE '%,%' AND NOT EXISTS (SELECT 1 FROM app."Events_held" o WHERE o.lane = t.lane AND o.id = t.id AND o.message_id = t.message_id AND o.sinks <> t.sinks) AND NOT EXISTS (SELECT 1 FROM app."Events" o WHERE o.lane = t.lane AND o.id = t.id AND o.message_id = t.message_id) AND t.id > $2::bigint AND t.topic = $3::text AND strpos(',' || t.sinks || ',', $4::text) > 0
    ORDER BY id LIMIT $5::bigint FOR UPDATE)
UPDATE app."Events_held" AS t SET attempts = 0, crashes = 0, sinks = $1::text
FROM parked AS p WHERE t.lane = p.lane AND t.id = p.id AND t.message_id = p.message_id AND t.sinks = p.sinks
RETURNING t.id;
--   1: other
--   2: 0
--   3: t
--   4: ,s,
--   5: 10

-- redirect rows in the state pending
WITH pending AS MATERIALIZED (
    SELECT lane, id, message_id FROM app."Events" AS t WHERE true AND (t.claimed_until IS NULL OR t.claimed_until < now()) AND t.sinks NOT LIKE '%,%' AND NOT EXISTS (SELECT 1 FROM app."Events_held" o WHERE o.lane = t.lane AND o.id = t.id AND o.message_id = t.message_id) AND t.id > $1::bigint AND t.topic = $2::text AND strpos(',' || t.sinks || ',', $3::text) > 0
    ORDER BY id LIMIT $4::bigint FOR UPDATE),
hot AS (DELETE FROM app."Events" AS t USING pending AS p WHERE t.lane = p.lane AND t.id = p.id AND t.message_id = p.message_id
    RETURNING t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, $5::text AS sinks, t.available_at, t.last_error, t.attempt_log)
INSERT INTO app."Events_held" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds)
SELECT id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, 0, 0, available_at, last_error, attempt_log, 'scheduled', 0 FROM hot RETURNING id;
--   1: 0
--   2: t
--   3: ,s,
--   4: 10
--   5: other

-- ask for a skip
WITH parked AS MATERIALIZED (
    SELECT lane, id, message_id, sinks FROM app."Events_held" AS t WHERE t.state = 'error' AND t.holds = 1 AND t.id > $1::bigint AND (t.id = ANY ($2::bigint[]) OR t.message_id = ANY ($3::uuid[])) AND t.topic = $4::text AND t.message_key = $5::text AND strpos(',' || t.sinks || ',', $6::text) > 0 AND t.created_at >= $7::timestamptz AND strpos(t.last_error, $8::text) > 0
    ORDER BY id LIMIT $9::bigint FOR UPDATE)
UPDATE app."Events_held" AS t SET state = 'retry', holds = 2, available_at = now()
FROM parked AS p WHERE t.lane = p.lane AND t.id = p.id AND t.message_id = p.message_id AND t.sinks = p.sinks
RETURNING t.id;
--   1: 3
--   2: {1}
--   3: {"0197a3b4-0000-7abc-8def-0123456789ab"}
--   4: t
--   5: k
--   6: ,s,
--   7: 2026-01-31 00:00:00+00
--   8: refused
--   9: 10

-- ask for a discard
WITH parked AS MATERIALIZED (
    SELECT lane, id, message_id, sinks FROM app."Events_held" AS t WHERE t.state = 'error' AND t.holds = 1 AND t.id > $1::bigint AND (t.id = ANY ($2::bigint[]) OR t.message_id = ANY ($3::uuid[])) AND t.topic = $4::text AND t.message_key = $5::text AND strpos(',' || t.sinks || ',', $6::text) > 0 AND t.created_at >= $7::timestamptz AND strpos(t.last_error, $8::text) > 0
    ORDER BY id LIMIT $9::bigint FOR UPDATE)
UPDATE app."Events_held" AS t SET state = 'retry', holds = 3, available_at = now()
FROM parked AS p WHERE t.lane = p.lane AND t.id = p.id AND t.message_id = p.message_id AND t.sinks = p.sinks
RETURNING t.id;
--   1: 3
--   2: {1}
--   3: {"0197a3b4-0000-7abc-8def-0123456789ab"}
--   4: t
--   5: k
--   6: ,s,
--   7: 2026-01-31 00:00:00+00
--   8: refused
--   9: 10

-- discard
WITH parked AS MATERIALIZED (
    SELECT lane, id, message_id, sinks FROM app."Events_held" AS t WHERE t.state = 'error' AND t.holds = 0 AND t.id > $1::bigint AND (t.id = ANY ($2::bigint[]) OR t.message_id = ANY ($3::uuid[])) AND t.topic = $4::text AND t.message_key = $5::text AND strpos(',' || t.sinks || ',', $6::text) > 0 AND t.created_at >= $7::timestamptz AND strpos(t.last_error, $8::text) > 0
    ORDER BY id LIMIT $9::bigint FOR UPDATE)
DELETE FROM app."Events_held" AS t USING parked AS p WHERE t.lane = p.lane AND t.id = p.id AND t.message_id = p.message_id AND t.sinks = p.sinks
RETURNING t.id;
--   1: 3
--   2: {1}
--   3: {"0197a3b4-0000-7abc-8def-0123456789ab"}
--   4: t
--   5: k
--   6: ,s,
--   7: 2026-01-31 00:00:00+00
--   8: refused
--   9: 10

-- parked
SET LOCAL enable_nestloop = off;
SELECT t.id, t.lane, t.topic, t.message_key, t.sinks, t.holds, substr(t.last_error, 1, 200)
FROM app."Events_held" t
WHERE t.state = 'error' AND t.id > $1::bigint AND (t.id = ANY ($2::bigint[]) OR t.message_id = ANY ($3::uuid[])) AND t.topic = $4::text AND t.message_key = $5::text AND strpos(',' || t.sinks || ',', $6::text) > 0 AND t.created_at >= $7::timestamptz AND strpos(t.last_error, $8::text) > 0
ORDER BY t.id;
--   1: 3
--   2: {1}
--   3: {"0197a3b4-0000-7abc-8def-0123456789ab"}
--   4: t
--   5: k
--   6: ,s,
--   7: 2026-01-31 00:00:00+00
--   8: refused

-- parked, and overtaken rows
SET LOCAL enable_nestloop = off;
SELECT min(t.id) FROM app."Events_held" t
WHERE t.state = 'error' AND t.id > $1::bigint AND t.topic = $2::text;
--   1: 0
--   2: t
SELECT d.message_key, max(d.id)
FROM app."Events_done" d
WHERE d.id > 15 AND d.id <= 1015
    AND d.message_key IN (SELECT t.message_key FROM app."Events_held" t
WHERE t.state = 'error' AND t.id > $1::bigint AND t.topic = $2::text)
    AND (d.headers IS NULL OR d.headers::text NOT LIKE '%"rowrelay-dead-letter-%' AND d.headers::text NOT LIKE '%"rowrelay-replayed"%')
GROUP BY d.message_key;
--   1: 0
--   2: t
SELECT t.id, t.lane, t.topic, t.message_key, t.sinks, t.holds, substr(t.last_error, 1, 200)
FROM app."Events_held" t
WHERE t.state = 'error' AND t.id > $1::bigint AND t.topic = $2::text
ORDER BY t.id;
--   1: 0
--   2: t

-- replays
SELECT substr(name, 8), value FROM app."Events_settings" WHERE name LIKE 'replay.%' ORDER BY name;

-- last delivered
SELECT COALESCE(max(id), 0) FROM app."Events_done";

-- controls
SELECT kind, name, COALESCE(rate, 0), ends_at, made_by, made_at, reason FROM app."Events_controls" WHERE ends_at IS NULL OR ends_at > now() ORDER BY kind, name;

-- set a control
DELETE FROM app."Events_controls" WHERE ends_at <= now();
DELETE FROM app."Events_controls" WHERE kind = $1::text AND name = $2::text;
--   1: sink
--   2: kafka
INSERT INTO app."Events_controls" (kind, name, rate, ends_at, made_by, made_at, reason)
VALUES ($1::text, $2::text, $3::bigint, now() + ($4::bigint * interval '1 microsecond'), $5::text, now(), $6::text);
--   1: sink
--   2: kafka
--   3: 0
--   4: 60000000
--   5: ann@host
--   6: why

-- lift a control
DELETE FROM app."Events_controls" WHERE ends_at <= now();
DELETE FROM app."Events_controls" WHERE kind = $1::text AND name = $2::text;
--   1: sink
--   2: kafka

-- begin an action
INSERT INTO app."Events_actions" (id, made_by, action, target, reason, made_at)
VALUES ($1::text::uuid, $2::text, $3::text, $4::text, $5::text, now());
--   1: 0197a3b4-ffff-7abc-8def-0123456789ab
--   2: ann@host
--   3: resume
--   4: sink kafka
--   5: why

-- end an action
UPDATE app."Events_actions" SET changed = $1::bigint WHERE id = $2::text::uuid;
--   1: 1
--   2: 0197a3b4-ffff-7abc-8def-0123456789ab

-- actions
SELECT id::text, made_at, made_by, action, target, reason, COALESCE(changed, -1) FROM app."Events_actions" ORDER BY made_at DESC, id DESC;

-- statistics
ANALYZE app."Events", app."Events_held", app."Events_done", app."Events_lanes";

-- old done rows
DELETE FROM app."Events_done" WHERE ctid = ANY (ARRAY(SELECT ctid FROM app."Events_done" WHERE finished_at < now() - interval '1 day' LIMIT 10000));

-- delivered
SELECT t.id, t.lane, t.message_id::text, t.topic, t.headers::text, t.sinks
FROM app."Events_done" AS t
WHERE t.id > $1::bigint AND (t.id = ANY ($2::bigint[]) OR t.message_id = ANY ($3::uuid[])) AND t.topic = $4::text AND t.message_key = $5::text AND strpos(',' || t.sinks || ',', $6::text) > 0 AND t.finished_at >= $7::timestamptz AND t.finished_at < $8::timestamptz AND strpos(t.last_error, $9::text) > 0 AND t.id <= $10::bigint
ORDER BY t.id LIMIT $11::bigint;
--   1: 3
--   2: {1}
--   3: {"0197a3b4-0000-7abc-8def-0123456789ab"}
--   4: t
--   5: k
--   6: ,s,
--   7: 2026-01-31 00:00:00+00
--   8: 2026-02-01 00:00:00+00
--   9: refused
--   10: 9
--   11: 10

-- last delivered rows
SELECT t.id, t.lane, t.message_id::text, t.topic, t.message_key, t.sinks, t.attempts, t.created_at, t.finished_at
FROM app."Events_done" AS t
WHERE t.id > $1::bigint AND t.finished_at >= $2::timestamptz
ORDER BY t.finished_at DESC LIMIT $3::bigint;
--   1: 0
--   2: 2026-01-31 00:00:00+00
--   3: 200

-- begin a replay
SELECT set_config('lock_timeout', '3s', true);
INSERT INTO app."Events_settings" (name, value) VALUES ('replay.' || $1::text, $2::text) ON CONFLICT (name) DO NOTHING;
--   1: r
--   2: {}

-- replay
SELECT set_config('lock_timeout', '3s', true);
WITH given AS MATERIALIZED (SELECT id, lane, message_id, fence, $5::text AS sinks, $6::smallint AS holds, $7::timestamptz AS read_at, copy_id, $9::text AS copy_topic, copy_headers, $11::text AS copy_sinks FROM unnest($1::bigint[], $2::smallint[], $3::uuid[], $4::bigint[], $8::uuid[], $10::text[]) AS u (id, lane, message_id, fence, copy_id, copy_headers)),
found AS MATERIALIZED (SELECT t.*, g.copy_id, g.copy_topic, NULLIF(g.copy_headers, '')::json AS copy_headers, g.copy_sinks FROM given AS g CROSS JOIN LATERAL (SELECT t.id, t.message_key, t.payload, t.payload_text, t.priority, CASE WHEN t.expires_at > clock_timestamp() THEN t.expires_at END AS expires_at FROM app."Events_done" AS t
    WHERE t.lane = g.lane AND t.id = g.id AND t.message_id = g.message_id AND t.sinks = g.sinks LIMIT 1 FOR UPDATE) AS t)
INSERT INTO app."Events" (message_id, topic, message_key, payload, payload_text, headers, priority, expires_at, sinks)
SELECT copy_id, copy_topic, message_key, payload, payload_text, copy_headers, priority, expires_at, copy_sinks FROM found ORDER BY id
RETURNING lane, id;
--   1: {5,6}
--   2: {1,2}
--   3: {0197a3b4-0000-7abc-8def-000000000005,0197a3b4-0000-7abc-8def-000000000006}
--   4: {0,0}
--   5: 
--   6: 0
--   7: 9999-12-31 00:00:00+00
--   8: {"0197a3b4-0000-7abc-8def-000000000005","0197a3b4-0000-7abc-8def-000000000006"}
--   9: t
--   10: {"{\"n\":\"5\"}","{\"n\":\"6\"}"}
--   11: 
UPDATE app."Events_settings" SET value = $1::text WHERE name = 'replay.' || $2::text AND value = $3::text;
--   1: {"n":1}
--   2: r
--   3: {}

-- count pending
SELECT count(*) FROM app."Events" t WHERE (t.lane = 1 AND t.id IN (15,17)
    OR t.lane = 2 AND t.id IN (16));

-- status
SELECT value FROM app."Events_settings" WHERE name = 'claim';
SELECT r.name, r.host, r.version, r.claim, r.since, r.last_heartbeat, r.until >= now(),
    (SELECT count(*) FROM app."Events_lanes" AS l WHERE l.owner = r.name AND COALESCE(l.until, r.leased_until) >= now()), r.setup
FROM app."Events_relays" AS r ORDER BY r.name;
SELECT count(*) FROM app."Events_lanes" AS l WHERE COALESCE(l.until, (SELECT r.leased_until FROM app."Events_relays" AS r WHERE r.name = l.owner), '-infinity') >= now();
SELECT topic, count(*) FROM (
    SELECT topic FROM app."Events" WHERE COALESCE(available_at <= now(), true) AND COALESCE(claimed_until <= now(), true)
    UNION ALL SELECT topic FROM app."Events_held" WHERE state = 'scheduled' AND COALESCE(available_at <= now(), true)
    LIMIT $1::bigint) AS t GROUP BY topic;
--   1: 1000
SELECT GREATEST(0, COALESCE(extract(epoch FROM now() - min(since)) * 1000, 0))::bigint FROM (
    SELECT GREATEST(created_at, available_at) AS since FROM app."Events_lanes" AS l CROSS JOIN LATERAL (
        SELECT h.created_at, h.available_at, h.claimed_until FROM app."Events" AS h WHERE h.lane = l.lane
        ORDER BY h.lane, h.id LIMIT $1::bigint) AS first WHERE COALESCE(available_at <= now(), true) AND COALESCE(claimed_until <= now(), true)
    UNION ALL SELECT GREATEST(created_at, available_at) FROM app."Events_held" WHERE state <> 'error' AND COALESCE(available_at, '0001-01-01 00:00:00+00') <= now() AND COALESCE(available_at, '0001-01-01 00:00:00+00') >= COALESCE((SELECT '-infinity'::timestamptz), COALESCE(NULL, ((SELECT now()::text) @@ ANY ('{x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x}'::text[]))::int) * interval '1 s' + now()) AND state = 'scheduled') AS p;
--   1: 100
SELECT count(*), COALESCE(extract(epoch FROM now() - min(available_at)) * 1000, 0)::bigint FROM app."Events_held" WHERE state = 'error' AND holds = 1;
SELECT 'hot', state, count(*) FROM (
    SELECT CASE WHEN claimed_until > now() THEN 'claimed' WHEN available_at > now() THEN 'scheduled' ELSE 'pending' END AS state FROM app."Events" LIMIT $1::bigint
) AS h GROUP BY state
UNION ALL SELECT 'held', state, count(*) FROM (
    SELECT CASE WHEN state = 'scheduled' AND COALESCE(available_at <= now(), true) THEN 'pending' ELSE state END AS state FROM app."Events_held" WHERE state <> 'error' LIMIT $1::bigint
) AS h GROUP BY state
UNION ALL SELECT 'error', 'error', count(*) FROM (SELECT FROM app."Events_held" WHERE state = 'error' LIMIT $1::bigint) AS e
UNION ALL SELECT 'done', 'done', count(*) FROM (SELECT FROM app."Events_done" LIMIT $1::bigint) AS d;
--   1: 50000
SELECT GREATEST(0, COALESCE(extract(epoch FROM now() - min(created_at)) * 1000, 0))::bigint FROM app."Events_held" WHERE state = 'retry';

