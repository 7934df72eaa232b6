-- The fixed statements of a relay on PostgreSQL 13 and later. The Go files in this directory build the statements that
-- depend on the request. A name in braces stands for a table, for an earlier text with this name, or for the array
-- "words" of postgres.go. {hot} is the table outbox; {held}, {done}, {ids}, {lanes}, {relays}, {settings}, {controls},
-- {actions} and {epoch} are the tables outbox_held, outbox_done and so on.

-- ---------------------------------------------------------------------------------
-- Parts of statements.

-- The number of this transaction. If it has none, the server assigns one.
-- name: xid
pg_current_xact_id()::text::bigint

-- The server's epoch, from an unlogged table; '-' if the table is empty. The server empties the table when it recovers
-- from a crash or becomes the primary, because in these cases it may have lost commits. A clean restart keeps the rows.
-- A standby can't read the table.
-- name: server epoch
COALESCE((SELECT epoch::text FROM {epoch}), '-')

-- The highest assigned id, from the sequence of the identity column, whatever the sequence's name; 0 before the first id.
-- name: given
COALESCE(pg_sequence_last_value(pg_get_serial_sequence('{hot}', 'id')::regclass), 0)

-- A part of ($1::boolean OR {never}), a condition whose parameter is true. The condition makes the server plan the
-- statement at each execution (a custom plan): a custom plan knows the parameter and leaves out this part, which is an
-- expensive count. A generic plan would include it, and so looks more expensive. Without the condition, the server
-- might keep a generic plan that it made while the table was empty, and so read the whole table later, when it has many
-- rows. The condition needs no setting, so it works behind a pooler. Reads of pages have it only for a minute after a
-- slow read; see tookLong in postgres.go.
-- name: never
(SELECT count(*) FROM generate_series(1, 1000000000)) > 0

-- An expression that the planner considers expensive and that never runs, as in COALESCE(bound, {dear}) with a bound
-- that isn't NULL. If the bound is a condition of an index, the planner counts the cost once. If the bound is a filter,
-- or is rechecked after a bitmap scan, the planner counts the cost for each row. So the planner prefers to read the
-- rows in the order of the index, and not to read and sort all rows. This works even if the statistics show no rows, as
-- they do after each vacuum of an empty table. The cost must be about three times the cost of a random page
-- (random_page_cost 4). It is 12.5: the planner assumes that the text is compared with half of the 100 words, and that
-- each comparison takes 100 operations of 0.0025. The planner must not know the text, so the text must be from a row or
-- a SELECT. If the planner knew the text, as it knows now(), it would compare it with all words, which takes longer
-- than the rest of planning.
-- name: dear
((SELECT now()::text) @@ ANY ('{words}'::text[]))::int

-- Like "dear", but for a bound that is a time. A bound that is known before the statement runs must be written as a
-- SELECT. Otherwise the planner would know the first value of the COALESCE, and would keep only this value.
-- name: dear time
COALESCE(NULL, {dear}) * interval '1 s' + now()

-- Conditions that all rows meet, for the indexes for claiming by rows; see "dear". They have many bounds that the
-- planner doesn't know, so it expects few rows and doesn't plan to read the whole index. This is right, because each
-- statement has a limit.
-- name: every id
id >= COALESCE((SELECT -9223372036854775807), {dear}) AND id <= (SELECT 9223372036854775807)
        AND (id, id) >= ((SELECT -9223372036854775807), (SELECT -9223372036854775807)) AND (id, id) >= ((SELECT -9223372036854775807), (SELECT -9223372036854775807))
        AND (id, id) >= ((SELECT -9223372036854775807), (SELECT -9223372036854775807)) AND (id, id) >= ((SELECT -9223372036854775807), (SELECT -9223372036854775807))
        AND (id, id) >= ((SELECT -9223372036854775807), (SELECT -9223372036854775807)) AND (id, id) >= ((SELECT -9223372036854775807), (SELECT -9223372036854775807))

-- name: every priority
priority >= COALESCE((SELECT -32768), {dear}) AND priority <= (SELECT 32767)
        AND (priority, priority) >= ((SELECT -32768), (SELECT -32768)) AND (priority, priority) >= ((SELECT -32768), (SELECT -32768))
        AND (priority, priority) >= ((SELECT -32768), (SELECT -32768)) AND (priority, priority) >= ((SELECT -32768), (SELECT -32768))
        AND (priority, priority) >= ((SELECT -32768), (SELECT -32768)) AND (priority, priority) >= ((SELECT -32768), (SELECT -32768))

-- name: every claim
claimed_until >= COALESCE((SELECT '-infinity'::timestamptz), {dear time}) AND claimed_until <= (SELECT 'infinity'::timestamptz)
        AND (claimed_until, claimed_until) >= ((SELECT '-infinity'::timestamptz), (SELECT '-infinity'::timestamptz)) AND (claimed_until, claimed_until) >= ((SELECT '-infinity'::timestamptz), (SELECT '-infinity'::timestamptz))
        AND (claimed_until, claimed_until) >= ((SELECT '-infinity'::timestamptz), (SELECT '-infinity'::timestamptz)) AND (claimed_until, claimed_until) >= ((SELECT '-infinity'::timestamptz), (SELECT '-infinity'::timestamptz))
        AND (claimed_until, claimed_until) >= ((SELECT '-infinity'::timestamptz), (SELECT '-infinity'::timestamptz)) AND (claimed_until, claimed_until) >= ((SELECT '-infinity'::timestamptz), (SELECT '-infinity'::timestamptz))

-- The time when a held row is due. If its available_at is NULL, this is a time in the year 1.
-- name: due at
COALESCE(available_at, '0001-01-01 00:00:00+00')

-- name: is due
state <> 'error' AND {due at} <= now() AND {due at} >= COALESCE((SELECT '-infinity'::timestamptz), {dear time})

-- The condition that a row of the table outbox could be delivered now; the next text is the condition for the held
-- table.
-- name: waiting
COALESCE(available_at <= now(), true) AND COALESCE(claimed_until <= now(), true)

-- name: held and waiting
state = 'scheduled' AND COALESCE(available_at <= now(), true)

-- name: payload
COALESCE(t.payload, convert_to(t.payload_text, 'UTF8'))

-- The columns of a row t. NULL replaces a value that nearly all rows have, because a NULL costs the server and the
-- driver less.
-- name: row
t.id, t.lane, t.message_id::text, t.topic, t.message_key, NULLIF(t.sinks, ''),
    {payload}, t.headers::text,
    t.available_at, t.expires_at, NULLIF(t.priority, 0::smallint), NULLIF(t.attempts, 0), NULLIF(t.crashes, 0), t.created_at

-- The flags are a sum: 1 if the row has a payload, 2 if it is due later, 4 if it waits for its next attempt, and 16
-- times the column `holds`. NULL means 1.
-- name: has payload
CASE WHEN t.payload IS NULL AND t.payload_text IS NULL THEN 0 ELSE 1 END

-- name: hot row
{row},
    CASE WHEN t.payload IS NULL OR t.available_at IS NOT NULL THEN {has payload} + CASE WHEN t.available_at > now() THEN 2 ELSE 0 END END

-- name: held row
{row},
    {has payload} + CASE WHEN t.state = 'retry' THEN 4 ELSE 0 END + 16 * t.holds

-- The columns that a list selects from each table. They are the columns of the view of all messages.
-- name: hot as listed
h.id, h.lane, CASE WHEN h.claimed_until > now() THEN 'claimed' WHEN h.available_at > now() THEN 'scheduled' ELSE 'pending' END AS state,
    h.message_id, h.topic, h.message_key, h.sinks, h.payload, h.payload_text, h.headers, h.available_at, h.expires_at, h.priority, h.attempts, h.crashes, h.created_at,
    0 AS holds, h.last_error, NULL::text AS receipt, h.claimed_by, NULL::timestamptz AS finished_at

-- name: held as listed
h.id, h.lane, CASE WHEN h.state = 'scheduled' AND (h.available_at IS NULL OR h.available_at <= now()) THEN 'pending' ELSE h.state END AS state,
    h.message_id, h.topic, h.message_key, h.sinks, h.payload, h.payload_text, h.headers, h.available_at, h.expires_at, h.priority, h.attempts, h.crashes, h.created_at,
    h.holds, h.last_error, NULL::text AS receipt, NULL::text AS claimed_by, NULL::timestamptz AS finished_at

-- name: done as listed
h.id, h.lane, 'done' AS state,
    h.message_id, h.topic, h.message_key, h.sinks, h.payload, h.payload_text, h.headers, h.available_at, h.expires_at, h.priority, h.attempts, h.crashes, h.created_at,
    0 AS holds, h.last_error, h.receipt, NULL::text AS claimed_by, h.finished_at

-- The columns that a list returns for a row t.
-- name: listed row
{row},
    {has payload} + CASE WHEN t.available_at > now() THEN 2 ELSE 0 END + CASE WHEN t.state = 'retry' THEN 4 ELSE 0 END + 16 * t.holds, t.state, COALESCE(t.last_error, ''), COALESCE(t.receipt, ''), COALESCE(t.claimed_by, ''), t.finished_at

-- Placeholders for the columns of a message, used in the first row of a page, which has no message.
-- name: no row
0::bigint, 0::smallint, '', '', '', '', NULL::bytea, '', NULL::timestamptz, NULL::timestamptz, 0::smallint, 0, 0, NULL::timestamptz, 0

-- The size of a payload. The server finds the size without reading the payload, wherever the payload is stored.
-- name: size
COALESCE(octet_length(t.payload), 0) + COALESCE(octet_length(t.payload_text), 0)

-- Statements use the ctid to change the rows that they have locked. The conditions on g in "is at place" are always
-- true, and make the planner expect few rows.
-- name: place
ctid AS place, id, id + 0 AS same_id, lane, lane + 0 AS same_lane

-- name: is at place
t.ctid = g.place AND g.id = g.same_id AND g.lane = g.same_lane

-- The beginning of a statement that does nothing unless the table is claimed by rows. It locks the claim mode, so a
-- change of the mode can't run concurrently. A later change sees the rows that the statement has changed. After an
-- earlier change, the statement changes nothing.
-- name: with claim
WITH claim AS MATERIALIZED (
    SELECT value FROM {settings} WHERE name = 'claim' FOR SHARE)

-- name: by rows
EXISTS (SELECT 1 FROM claim WHERE value = 'rows')

-- ---------------------------------------------------------------------------------
-- Relays and the claim mode.

-- Limits the wait for locks. A change of the claim mode may have to lock the table. While it waits for this lock, all
-- producers wait, too.
-- name: bound waiting
SELECT set_config('lock_timeout', '3s', true)

-- name: claim mode
SELECT value FROM {settings} WHERE name = 'claim'

-- name: lock claim mode
SELECT value FROM {settings} WHERE name = 'claim' FOR UPDATE

-- name: set claim mode
INSERT INTO {settings} (name, value) VALUES ('claim', $1::text)
ON CONFLICT (name) DO UPDATE SET value = excluded.value

-- name: relays that claim another way
SELECT name FROM {relays} WHERE until >= now() AND claim <> $1::text ORDER BY name

-- Waits for running settles, which have locked these rows.
-- name: lock lanes
SELECT lane FROM {lanes} ORDER BY lane FOR UPDATE

-- name: forget leases
UPDATE {lanes} SET owner = NULL, until = NULL, fence = fence + 1, marks = NULL, journal = NULL, crashes = 0

-- name: forget claims
UPDATE {hot} SET claimed_by = NULL, claim_token = NULL, claimed_until = NULL WHERE claimed_until IS NOT NULL

-- name: forget holds
UPDATE {held} SET state = 'error', holds = 0 WHERE holds > 0

-- Locks the claim mode, so a change of the mode can't run concurrently. A later change sees this relay. After an earlier
-- change, the relay isn't stored. Arguments: $1 name, $2 host, $3 version, $4 claim mode, $5 microseconds until the row
-- expires, $6 setup.
-- name: heartbeat
WITH claim AS MATERIALIZED (
    SELECT value FROM {settings} WHERE name = 'claim' FOR SHARE)
INSERT INTO {relays} AS r (name, host, version, claim, since, last_heartbeat, until, setup)
SELECT $1::text, $2::text, $3::text, $4::text, now(), now(), now() + ($5::bigint * interval '1 microsecond'), $6::text
WHERE NOT EXISTS (SELECT 1 FROM claim WHERE value <> $4::text)
ON CONFLICT (name) DO UPDATE SET host = excluded.host, version = excluded.version, claim = excluded.claim,
    since = CASE WHEN r.until < now() THEN now() ELSE r.since END, last_heartbeat = now(), until = excluded.until, setup = excluded.setup
RETURNING name, {xid}, {server epoch}

-- name: begin epoch
INSERT INTO {epoch} DEFAULT VALUES ON CONFLICT DO NOTHING

-- name: members
SELECT name, setup, now() FROM {relays} WHERE until >= now() ORDER BY name

-- The next two statements end the leases and the claims of a dead relay, as if they had expired. The fences grow, so
-- that the relay can't renew its leases if it is alive after all.
-- name: end leases
UPDATE {lanes} SET until = now() - interval '1 second', fence = fence + 1 WHERE owner = $1::text

-- name: end claims
UPDATE {hot} SET claimed_until = now() - interval '1 second' WHERE claimed_until >= now() AND claimed_by = $1::text

-- A lease whose `until` is NULL ends at leased_until of the relay's row. The statement deletes this row, so it copies
-- leased_until to the column `until` of such leases: the relay may still be sending messages of these lanes.
-- name: deregister
WITH gone AS (DELETE FROM {relays} WHERE name = $1::text RETURNING leased_until)
UPDATE {lanes} SET until = COALESCE(gone.leased_until, now()) FROM gone WHERE owner = $1::text AND until IS NULL

-- name: purge relays
DELETE FROM {relays} WHERE until < now() - interval '1 day'

-- ---------------------------------------------------------------------------------
-- Lanes.

-- The time when the lease of a lane l ends: the lane's until or, if that is NULL, leased_until of the owner's row. If
-- until is NULL and the lane has no owner, or its owner has no row, the lane is free.
-- name: end of lease
COALESCE(l.until, (SELECT r.leased_until FROM {relays} AS r WHERE r.name = l.owner), '-infinity')

-- Locks lanes that seem to be free. It skips a lane if another relay is taking it, its owner is renewing it, or a
-- settle has locked it: a settle holds its locks until it has committed. Argument: $1 the maximum number of lanes.
-- name: lock free lanes
SELECT l.lane FROM {lanes} AS l WHERE {end of lease} < now()
ORDER BY random() LIMIT $1::bigint FOR UPDATE OF l SKIP LOCKED

-- Leases the locked lanes that are still free. "lock free lanes" may have read the owner's row before a renewal changed
-- it. This statement sees all renewals that have committed. Any other renewal waits for the locks of "lock free lanes",
-- and then finds another fence. The end of a new lease is stored in the lane's row, because the relay may never receive
-- the result of this statement. The first renewal moves the end to the relay's row. Arguments: $1 lanes, $2 relay, $3
-- microseconds of the lease, $4 the number that is added to the fences.
-- name: acquire
UPDATE {lanes} AS l
SET owner = $2::text, fence = l.fence + $4::bigint, until = now() + ($3::bigint * interval '1 microsecond'),
    crashes = CASE WHEN l.owner IS NULL THEN l.crashes ELSE l.crashes + 1 END
WHERE l.lane = ANY ($1::smallint[]) AND {end of lease} < now()
RETURNING l.lane, l.fence, COALESCE(l.marks, ''), l.crashes, COALESCE(l.journal, ''), {xid}

-- The given leases, as one array for each column: $1 lanes, $2 fences, $3 marks, $4 calm, $5 journals. "leases" selects
-- the leases that the relay $6 still has.
-- name: given leases
unnest($1::smallint[], $2::bigint[], $3::text[], $4::boolean[], $5::text[]) AS g (lane, fence, marks, calm, journal)

-- name: leases
FROM {given leases}
WHERE l.lane = g.lane AND l.fence = g.fence AND l.owner = $6::text

-- The given marks if they were made in the current epoch, otherwise the stored marks. $7 is the epoch of the given
-- marks. If it is empty, the given marks are always used.
-- name: given marks
CASE WHEN $7::text = '' OR {server epoch} = $7::text THEN g.marks ELSE l.marks END

-- Locks the lanes whose leases are still valid. It waits for a takeover, and a takeover skips locked lanes. The end of
-- all the relay's leases is stored once, in the relay's row. A lane's row is written only if its marks, crashes or
-- journal change, or if it has the end of the lease: writing 64 rows at each renewal would leave 115,000 dead versions
-- an hour, which no vacuum removes while an old snapshot is open. If the relay has no row, the end is stored in each
-- lane's row. The CTE `others` keeps the ends of this owner's other leases as they were. These leases belong to an
-- earlier relay of the same name, or the relay lets them expire. Arguments: $8 microseconds of the lease; $9 lanes and
-- $10 fences of all leases that the relay keeps.
-- name: renew
WITH g AS MATERIALIZED (
    SELECT l.lane, l.fence, g.marks, g.calm,
        l.until IS NOT NULL OR l.marks IS DISTINCT FROM g.marks OR g.calm AND (l.crashes > 0 OR l.journal IS NOT NULL) AS changes
    FROM {lanes} AS l JOIN {given leases} ON l.lane = g.lane AND l.fence = g.fence AND l.owner = $6::text
    ORDER BY l.lane FOR SHARE OF l),
renewed AS (
    UPDATE {relays} SET leased_until = now() + ($8::bigint * interval '1 microsecond') WHERE name = $6::text RETURNING name),
changed AS (
    UPDATE {lanes} AS l
    SET until = CASE WHEN EXISTS (SELECT 1 FROM renewed) THEN NULL ELSE now() + ($8::bigint * interval '1 microsecond') END, marks = {given marks},
        crashes = CASE WHEN g.calm THEN 0 ELSE l.crashes END, journal = CASE WHEN g.calm THEN NULL ELSE l.journal END
    FROM g WHERE l.lane = g.lane AND (g.changes OR NOT EXISTS (SELECT 1 FROM renewed))),
others AS (
    UPDATE {lanes} AS l SET until = {end of lease}
    WHERE l.owner = $6::text AND l.until IS NULL AND NOT EXISTS (SELECT 1 FROM unnest($9::smallint[], $10::bigint[]) AS k (lane, fence) WHERE k.lane = l.lane AND k.fence = l.fence))
SELECT g.lane, g.fence, {xid} FROM g

-- name: release
UPDATE {lanes} AS l
SET owner = NULL, until = NULL, marks = {given marks}, journal = NULL, crashes = 0
{leases}
RETURNING l.lane, l.fence, {xid}

-- Locks the lanes in the same order as "renew", so that the two can't wait for each other.
-- name: write journal
WITH g AS MATERIALIZED (
    SELECT l.lane, l.fence, g.journal
    FROM {lanes} AS l JOIN {given leases} ON l.lane = g.lane AND l.fence = g.fence AND l.owner = $6::text
    ORDER BY l.lane FOR NO KEY UPDATE OF l)
UPDATE {lanes} AS l SET journal = g.journal
FROM g WHERE l.lane = g.lane
RETURNING l.lane, l.fence, {xid}

-- name: journals
SELECT lane, fence, journal FROM {lanes} WHERE journal IS NOT NULL

-- name: marks
SELECT lane, marks FROM {lanes} WHERE marks IS NOT NULL ORDER BY lane

-- ---------------------------------------------------------------------------------
-- Reading. postgres.go builds the reads of pages.

-- name: last id
SELECT {given}

-- Selects the first row of outbox or outbox_done whose id is at least the given one, and the row's created_at in Unix
-- milliseconds. It visits each lane, because the table outbox has no index on ids alone. Argument: $1 the id.
-- name: written from
SELECT id, (extract(epoch FROM created_at) * 1000)::bigint FROM (
    SELECT h.id, h.created_at FROM {lanes} AS l CROSS JOIN LATERAL
        (SELECT t.lane, t.id, t.created_at FROM {hot} AS t WHERE t.lane = l.lane AND t.id >= $1 ORDER BY t.lane, t.id LIMIT 1) AS h
    UNION ALL (SELECT d.id, d.created_at FROM {done} AS d WHERE d.id >= $1 ORDER BY d.id LIMIT 1)
) AS w ORDER BY id LIMIT 1

-- The first row of a page that a transaction without a number reads: last id, 0, 0, snapshot, epoch.
-- name: first line
SELECT concat_ws(' ', {given}, 0, 0, pg_current_snapshot(), {server epoch})

-- Arguments: $1 lanes, $2 ids, $3 true.
-- name: pick
SELECT {hot row} FROM unnest($1::smallint[], $2::bigint[]) AS g (lane, id)
CROSS JOIN LATERAL (SELECT * FROM {hot} AS h WHERE h.lane = g.lane AND h.id = g.id LIMIT 1) AS t
WHERE ($3::boolean OR {never})

-- name: pick held
SELECT {held row} FROM unnest($1::smallint[], $2::bigint[]) AS g (lane, id)
CROSS JOIN LATERAL (SELECT * FROM {held} AS h WHERE h.lane = g.lane AND h.id = g.id LIMIT 1) AS t
WHERE ($3::boolean OR {never}) AND t.state <> 'error'

-- Arguments: $1 the rows' lanes, $2 their ids, $3 true.
-- name: attempt logs
SELECT t.id, t.lane, t.message_id::text, t.sinks, t.attempt_log FROM unnest($1::smallint[], $2::bigint[]) AS g (lane, id)
CROSS JOIN LATERAL (SELECT * FROM {hot} AS h WHERE h.lane = g.lane AND h.id = g.id AND h.attempt_log IS NOT NULL OFFSET 0) AS t
WHERE ($3::boolean OR {never})

-- name: attempt logs of held rows
SELECT t.id, t.lane, t.message_id::text, t.sinks, t.attempt_log FROM unnest($1::smallint[], $2::bigint[]) AS g (lane, id)
CROSS JOIN LATERAL (SELECT * FROM {held} AS h WHERE h.lane = g.lane AND h.id = g.id AND h.attempt_log IS NOT NULL OFFSET 0) AS t
WHERE ($3::boolean OR {never})

-- Arguments: $1 lanes, $2 and $3 the time and the id after which rows are selected, $4 the maximum number of rows.
-- name: due rows
SELECT t.* FROM {held} AS t
WHERE state <> 'error' AND {due at} <= now() AND lane = ANY ($1::smallint[])
    AND ({due at}, id) > (COALESCE((SELECT $2::timestamptz), {dear time}), $3::bigint)
ORDER BY {due at}, id LIMIT $4::bigint

-- Selects due rows up to the row with which the payloads reach $5 bytes. $6 is true.
-- name: due
SELECT {held row}
FROM (SELECT t.*, sum({size}) OVER (ROWS UNBOUNDED PRECEDING) - ({size}) AS bytes_before
FROM ({due rows}) AS t) AS t
WHERE bytes_before < $5::bigint AND ($6::boolean OR {never})

-- Visits one lane after the other, so that it reads no more than the limit, however many keys are blocked. Arguments:
-- $1 lanes, $2 the maximum number of keys, $3 true.
-- name: blocked keys
SELECT t.lane, t.message_key, t.topic, t.sinks, t.id FROM unnest($1::smallint[]) AS l (lane)
CROSS JOIN LATERAL (SELECT * FROM {held} AS h WHERE (h.state = 'retry' OR h.holds > 0) AND h.lane + 0 = l.lane AND h.message_key <> '' LIMIT $2::bigint) AS t
WHERE ($3::boolean OR {never}) LIMIT $2::bigint

-- Looks up each key separately, so that no plan reads the whole held table. Arguments: $1 lanes, $2 keys, $3 true.
-- name: blocked among
SELECT k.lane, k.key, t.topic, t.sinks, t.id FROM unnest($1::smallint[], $2::text[]) AS k (lane, key)
CROSS JOIN LATERAL (SELECT DISTINCT ON (h.topic, h.sinks) h.topic, h.sinks, h.id FROM {held} AS h
    WHERE (h.state = 'retry' OR h.holds > 0) AND h.lane + 0 = k.lane AND h.message_key = k.key ORDER BY h.topic, h.sinks, h.id) AS t
WHERE ($3::boolean OR {never})

-- The rows that are due, up to a limit for each table: held rows, which an index on due times finds, and rows of outbox
-- that are neither claimed nor scheduled. Arguments: $1 the maximum number of rows of each table, $2 true.
-- name: remaining
(SELECT id, lane, message_id::text, topic, message_key, sinks, 1 FROM {held} WHERE {is due} AND ($2::boolean OR {never}) LIMIT $1::bigint)
UNION ALL (SELECT id, lane, message_id::text, topic, message_key, sinks, 0 FROM {hot} WHERE {waiting} LIMIT $1::bigint)

-- ---------------------------------------------------------------------------------
-- Done rows. settle.go builds the settles.

-- Continues where the previous purge ended. The index keeps the entries of deleted rows while a transaction may still
-- see the rows, and a purge from the beginning of the index would read all these entries. The statement returns the
-- number of deleted rows, and the finish time at which the next purge may begin. Arguments: $1 microseconds that rows
-- are kept, $2 the finish time at which to begin, $3 the maximum number of rows, $4 true.
-- name: purge
WITH old AS MATERIALIZED (
    SELECT {place} FROM {done} WHERE finished_at < now() - ($1::bigint * interval '1 microsecond')
        AND finished_at >= COALESCE((SELECT $2::timestamptz), {dear time}) AND ($4::boolean OR {never})
    ORDER BY finished_at LIMIT $3::bigint FOR UPDATE SKIP LOCKED),
gone AS (DELETE FROM {done} AS t USING old AS g WHERE {is at place} RETURNING t.finished_at)
SELECT count(*), CASE WHEN count(*) < $3::bigint THEN now() - ($1::bigint * interval '1 microsecond') ELSE max(finished_at) END FROM gone

-- Deletes only ids of messages that can't be pending: ids that were written more than ten minutes before the lowest row
-- of outbox. The primary key's index finds the lowest row of each lane; see "dear". Arguments: $1 microseconds that ids
-- are kept, $2 the maximum number of ids, $3 true.
-- name: purge ids
WITH old AS MATERIALIZED (
    SELECT i.message_id FROM {ids} AS i
    WHERE i.written_at < now() - ($1::bigint * interval '1 microsecond') AND ($3::boolean OR {never})
        AND i.written_at < COALESCE((SELECT min(t.created_at) FROM {lanes} AS l CROSS JOIN LATERAL (
            SELECT h.created_at FROM {hot} AS h WHERE h.lane = l.lane AND h.id >= COALESCE((SELECT -9223372036854775807), {dear})
            ORDER BY h.lane, h.id LIMIT 1) AS t) - interval '10 minutes', now())
        AND NOT EXISTS (SELECT 1 FROM {held} AS h WHERE h.message_id = i.message_id)
    ORDER BY i.written_at LIMIT $2::bigint FOR UPDATE OF i SKIP LOCKED)
DELETE FROM {ids} AS i USING old AS g WHERE i.message_id = g.message_id

-- ---------------------------------------------------------------------------------
-- Claiming by rows. postgres.go builds the claim.

-- Argument: $1 true, which "never" needs.
-- name: a free row
SELECT id FROM {hot} WHERE claimed_until IS NULL AND {every id} AND ($1::boolean OR {never}) ORDER BY id LIMIT 1

-- Selects a row that a reclaim would free or move, if there is one. Argument: $1 true.
-- name: an ended claim
SELECT id FROM (SELECT id FROM {hot} WHERE claimed_until < now() AND ($1::boolean OR {never}) ORDER BY claimed_until LIMIT 1) AS c
UNION ALL SELECT id FROM (SELECT id FROM {held} WHERE {is due} AND ($1::boolean OR {never}) ORDER BY {due at}, id LIMIT 1) AS h

-- Reads all claimed rows, because there is no index on ids alone and the rows' lanes aren't known. These rows are few,
-- because relays have all claimed rows in memory. A locked row is being settled or handled, and no other relay can
-- claim it meanwhile. So its claim isn't extended, but counts as valid. Arguments: $1 token, $2 ids, $3 microseconds of
-- the claim, $4 true.
-- name: extend
{with claim},
given AS MATERIALIZED (
    SELECT lane, id FROM (SELECT lane, id, claim_token FROM {hot} WHERE {by rows} AND {every claim}
        ORDER BY claimed_until OFFSET 0) AS h
    WHERE claim_token = $1::text AND id = ANY ($2::bigint[]) AND ($4::boolean OR {never})),
found AS MATERIALIZED (SELECT g.*, x.* FROM given AS g
    CROSS JOIN LATERAL (SELECT h.ctid AS place, h.lane AS found_lane, h.id AS found_id, h.claim_token FROM {hot} AS h
        WHERE h.lane = g.lane AND h.id = g.id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) AS x),
extended AS (UPDATE {hot} AS t SET claimed_until = now() + ($3::bigint * interval '1 microsecond')
    FROM found AS g WHERE t.ctid = g.place AND g.claim_token = $1::text AND g.found_lane = g.lane AND g.found_id = g.id
    RETURNING t.id)
SELECT id FROM extended UNION ALL SELECT id FROM given WHERE id NOT IN (SELECT found_id FROM found)

-- Arguments: $1 the maximum number of rows, $2 true.
-- name: free ended claims
{with claim},
ended AS MATERIALIZED (
    SELECT {place} FROM {hot} WHERE {by rows} AND claimed_until < now()
    ORDER BY claimed_until LIMIT $1::bigint FOR NO KEY UPDATE SKIP LOCKED)
UPDATE {hot} AS t
SET claimed_by = NULL, claim_token = NULL, claimed_until = NULL, crashes = least(t.crashes, 2000000000) + 1
FROM ended AS g WHERE {is at place} AND ($2::boolean OR {never})

-- Moves due rows to the table outbox. If several held rows share a lane and id, only one of them moves at a time. A
-- held row stays while a row of outbox has the same lane and id, which is possible after the id sequence was reset. The
-- conditions compare a COUNT with 0 instead of using NOT EXISTS, so that every planner runs the subquery for each due
-- row and doesn't read whole tables. Arguments: $1 the maximum number of rows, $2 true.
-- name: bring back
{with claim},
due AS MATERIALIZED (
    SELECT {place} FROM {held} AS t WHERE {by rows} AND {is due}
        AND (SELECT COUNT(*) FROM {hot} h WHERE h.lane = t.lane AND h.id = t.id) = 0
        AND (SELECT COUNT(*) FROM {held} o WHERE o.lane = t.lane AND o.id = t.id AND (o.message_id, o.sinks) < (t.message_id, t.sinks)
            AND o.state <> 'error' AND COALESCE(o.available_at, '0001-01-01 00:00:00+00') <= now()) = 0 AND ($2::boolean OR {never})
    ORDER BY {due at}, id LIMIT $1::bigint FOR UPDATE SKIP LOCKED),
back AS (DELETE FROM {held} AS t USING due AS g WHERE {is at place}
    RETURNING t.id, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.attempts, t.crashes, t.available_at, t.last_error, t.attempt_log, t.created_at, t.expires_at, t.sinks)
INSERT INTO {hot} (id, message_id, topic, message_key, payload, payload_text, headers, priority, attempts, crashes, available_at, last_error, attempt_log, created_at, expires_at, sinks)
SELECT id, message_id, topic, message_key, payload, payload_text, headers, priority, attempts, crashes, available_at, last_error, attempt_log, created_at, expires_at, sinks FROM back

-- ---------------------------------------------------------------------------------
-- Operating. operate.go builds the lists, and the changes that operators make to messages.

-- Counts up to $1 rows of each kind: rows of outbox, held rows that aren't parked, parked rows and done rows. If outbox
-- or the done table has more rows, the store also uses "estimates".
-- name: counts
SELECT 'hot', state, count(*) FROM (
    SELECT CASE WHEN claimed_until > now() THEN 'claimed' WHEN available_at > now() THEN 'scheduled' ELSE 'pending' END AS state FROM {hot} LIMIT $1::bigint
) AS h GROUP BY state
UNION ALL SELECT 'held', state, count(*) FROM (
    SELECT CASE WHEN {held and waiting} THEN 'pending' ELSE state END AS state FROM {held} WHERE state <> 'error' LIMIT $1::bigint
) AS h GROUP BY state
UNION ALL SELECT 'error', 'error', count(*) FROM (SELECT FROM {held} WHERE state = 'error' LIMIT $1::bigint) AS e
UNION ALL SELECT 'done', 'done', count(*) FROM (SELECT FROM {done} LIMIT $1::bigint) AS d

-- name: count claimed
SELECT count(*) FROM {hot} WHERE claimed_until > now()

-- Estimates the numbers of rows as the planner does: the number of rows per page according to the statistics, times the
-- current number of pages.
-- name: estimates
SELECT place, (GREATEST(reltuples, 0) / GREATEST(relpages, 1) * (pg_relation_size(c.oid) / current_setting('block_size')::bigint))::bigint
FROM (VALUES ('hot', '{hot}'::regclass), ('done', '{done}'::regclass)) AS t (place, oid) JOIN pg_class AS c ON c.oid = t.oid

-- The age in milliseconds of the oldest waiting row, counted from the time when the row could first be delivered. The
-- statement examines only the first $1 rows of each lane in the table outbox, so its duration doesn't depend on the
-- table's size.
-- name: oldest
SELECT GREATEST(0, COALESCE(extract(epoch FROM now() - min(since)) * 1000, 0))::bigint FROM (
    SELECT GREATEST(created_at, available_at) AS since FROM {lanes} AS l CROSS JOIN LATERAL (
        SELECT h.created_at, h.available_at, h.claimed_until FROM {hot} AS h WHERE h.lane = l.lane
        ORDER BY h.lane, h.id LIMIT $1::bigint) AS first WHERE {waiting}
    UNION ALL SELECT GREATEST(created_at, available_at) FROM {held} WHERE {is due} AND state = 'scheduled') AS p

-- The age of a retry is the time since its message was written.
-- name: oldest retry
SELECT GREATEST(0, COALESCE(extract(epoch FROM now() - min(created_at)) * 1000, 0))::bigint FROM {held} WHERE state = 'retry'

-- name: held parked
SELECT count(*), COALESCE(extract(epoch FROM now() - min(available_at)) * 1000, 0)::bigint FROM {held} WHERE state = 'error' AND holds = 1

-- Argument: $1 the maximum number of rows.
-- name: topics
SELECT topic, count(*) FROM (
    SELECT topic FROM {hot} WHERE {waiting}
    UNION ALL SELECT topic FROM {held} WHERE {held and waiting}
    LIMIT $1::bigint) AS t GROUP BY topic

-- name: list relays
SELECT r.name, r.host, r.version, r.claim, r.since, r.last_heartbeat, r.until >= now(),
    (SELECT count(*) FROM {lanes} AS l WHERE l.owner = r.name AND COALESCE(l.until, r.leased_until) >= now()), r.setup
FROM {relays} AS r ORDER BY r.name

-- The database's time, the age in milliseconds of the oldest done row, and the time zone.
-- name: clock
SELECT clock_timestamp(), (extract(epoch FROM now() - (SELECT min(finished_at) FROM {done})) * 1000)::bigint, current_setting('TimeZone')

-- name: lanes leased
SELECT count(*) FROM {lanes} AS l WHERE {end of lease} >= now()

-- ---------------------------------------------------------------------------------
-- Checking.

-- The settings of the sequence that let ids be assigned out of order. With a CACHE, sessions reserve ids, and may write
-- rows below ids that a relay has already read. No snapshot shows this. A user without the privilege to see the
-- sequence would get no last id, as if the sequence had been reset.
-- name: ids out of order
SELECT s.setting FROM pg_sequence AS q CROSS JOIN LATERAL (VALUES
    ('CACHE ' || q.seqcache, q.seqcache > 1), ('INCREMENT BY ' || q.seqincrement, q.seqincrement <= 0), ('CYCLE', q.seqcycle)) AS s (setting, wrong)
WHERE q.seqrelid = pg_get_serial_sequence('{hot}', 'id')::regclass AND s.wrong
UNION ALL SELECT 'no right of this user to SELECT' WHERE NOT has_sequence_privilege(pg_get_serial_sequence('{hot}', 'id'), 'SELECT')

-- The tables whose rows a policy may hide from this user.
-- name: row security
SELECT oid::regclass::text FROM pg_class
WHERE oid = ANY (ARRAY[to_regclass('{hot}'), to_regclass('{held}'), to_regclass('{done}'), to_regclass('{ids}'), to_regclass('{lanes}'), to_regclass('{relays}'),
    to_regclass('{settings}'), to_regclass('{controls}'), to_regclass('{actions}'), to_regclass('{epoch}')]::oid[]) AND row_security_active(oid)
ORDER BY 1

-- name: unfit settings
SELECT name, value FROM (VALUES
    ('default_transaction_read_only', 'on'), ('enable_indexscan', 'off'), ('synchronous_commit', 'off'), ('plan_cache_mode', 'force_generic_plan')) AS unfit (name, value)
WHERE current_setting(name) = value
UNION ALL SELECT 'the server is', 'a standby' WHERE pg_is_in_recovery()

-- The privileges that the user lacks. Arguments: $1 tables, $2 the privilege needed on each of them, $3 their schema or ''.
-- $1 lists a table once for each privilege. Without USAGE on the schema a name can't be converted to regclass, so the
-- statement reads the catalog.
-- name: missing rights
WITH own AS (
    SELECT c.oid, c.relname FROM pg_class AS c JOIN pg_namespace AS s ON s.oid = c.relnamespace
    WHERE s.nspname = $3::text OR $3::text = '' AND pg_table_is_visible(c.oid))
SELECT 'USAGE', 'on', 'SCHEMA ' || quote_ident(nspname) FROM pg_namespace WHERE nspname = $3::text AND NOT has_schema_privilege(oid, 'USAGE')
UNION ALL SELECT need, 'on', name FROM unnest($1::text[], $2::text[]) AS n (name, need), parse_ident(name) AS part
WHERE NOT has_table_privilege((SELECT own.oid FROM own WHERE own.relname = part[cardinality(part)]), need)
UNION ALL SELECT 'SELECT', 'on', c.oid::regclass::text FROM parse_ident('{hot}') AS part, own
JOIN pg_depend AS d ON d.refobjid = own.oid AND d.refclassid = 'pg_class'::regclass AND d.classid = 'pg_class'::regclass JOIN pg_class AS c ON c.oid = d.objid
WHERE own.relname = part[cardinality(part)] AND c.relkind = 'S' AND NOT has_table_privilege(c.oid, 'SELECT')

-- Statements that turn autovacuum on again, if it is off for the server or for one of the tables $1.
-- name: autovacuum off
SELECT 'ALTER SYSTEM SET autovacuum = on; SELECT pg_reload_conf()' WHERE NOT current_setting('autovacuum')::boolean
UNION ALL SELECT 'ALTER TABLE ' || n.name || ' RESET (autovacuum_enabled)' FROM unnest($1::text[]) AS n (name) JOIN pg_class AS c ON c.oid = to_regclass(n.name)
WHERE EXISTS (SELECT 1 FROM unnest(c.reloptions) AS o WHERE o IN ('autovacuum_enabled=false', 'autovacuum_enabled=off'))

-- The tables in the array $1 that have more than $2 dead rows, and more dead than living rows.
-- name: dead rows
SELECT n.name, 'has', pg_stat_get_dead_tuples(c.oid), 'dead rows beside', pg_stat_get_live_tuples(c.oid), 'living ones, and was vacuumed',
    COALESCE(to_char(GREATEST(pg_stat_get_last_vacuum_time(c.oid), pg_stat_get_last_autovacuum_time(c.oid)), 'YYYY-MM-DD HH24:MI'), 'never')
FROM unnest($1::text[]) AS n (name) JOIN pg_class AS c ON c.oid = to_regclass(n.name)
WHERE pg_stat_get_dead_tuples(c.oid) > $2::bigint AND pg_stat_get_dead_tuples(c.oid) > pg_stat_get_live_tuples(c.oid)

-- True if $2 rows are at least a tenth of the table $1, and if all indexes in the array $3 exist and are valid.
-- name: reads most of a table
SELECT $2::bigint >= c.reltuples / 10 AND NOT EXISTS (
    SELECT 1 FROM unnest($3::text[]) AS n (name) WHERE NOT EXISTS (SELECT 1 FROM pg_index AS i WHERE i.indexrelid = to_regclass(n.name) AND i.indisvalid))
FROM pg_class AS c WHERE c.oid = to_regclass($1::text)

-- name: oldest transaction
SELECT min(xact_start)::timestamp(0)::text FROM pg_stat_activity WHERE backend_type = 'client backend' HAVING min(xact_start) < now() - interval '10 minutes'

-- ---------------------------------------------------------------------------------
-- Replays. The setting replay.NAME has the state of a replay, as JSON.

-- name: replays
SELECT substr(name, 8), value FROM {settings} WHERE name LIKE 'replay.%' ORDER BY name

-- name: last delivered
SELECT COALESCE(max(id), 0) FROM {done}

-- Arguments: name, text.
-- name: begin replay
INSERT INTO {settings} (name, value) VALUES ('replay.' || $1::text, $2::text) ON CONFLICT (name) DO NOTHING

-- Arguments: new text, name, previous text. It changes nothing if the stored text isn't the previous text.
-- name: change replay
UPDATE {settings} SET value = $1::text WHERE name = 'replay.' || $2::text AND value = $3::text

-- ---------------------------------------------------------------------------------
-- The controls that operators have set, and the log of the operators' actions.

-- name: controls in force
SELECT kind, name, COALESCE(rate, 0), ends_at, made_by, made_at, reason FROM {controls} WHERE ends_at IS NULL OR ends_at > now() ORDER BY kind, name

-- name: forget ended controls
DELETE FROM {controls} WHERE ends_at <= now()

-- name: lift control
DELETE FROM {controls} WHERE kind = $1::text AND name = $2::text

-- Arguments: kind, name, rate, duration in microseconds (NULL: no end), author, reason.
-- name: set control
INSERT INTO {controls} (kind, name, rate, ends_at, made_by, made_at, reason)
VALUES ($1::text, $2::text, $3::bigint, now() + ($4::bigint * interval '1 microsecond'), $5::text, now(), $6::text)

-- Arguments: id, author, action, target, reason.
-- name: begin action
INSERT INTO {actions} (id, made_by, action, target, reason, made_at)
VALUES ($1::text::uuid, $2::text, $3::text, $4::text, $5::text, now())

-- Arguments: number of changed messages, id.
-- name: end action
UPDATE {actions} SET changed = $1::bigint WHERE id = $2::text::uuid

-- name: renew statistics
ANALYZE {hot}, {held}, {done}, {lanes}

-- name: delete old done
DELETE FROM {done} WHERE ctid = ANY (ARRAY(SELECT ctid FROM {done} WHERE finished_at < now() - interval '1 day' LIMIT 10000))

-- name: log of actions
SELECT id::text, made_at, made_by, action, target, reason, COALESCE(changed, -1) FROM {actions} ORDER BY made_at DESC, id DESC
