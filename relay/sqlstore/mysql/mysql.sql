-- What a relay asks of MySQL 8.0.13 and later and MariaDB 10.5 and later, as far as it has
-- no moving parts. In braces stand the tables' names (hot, held,
-- done, lanes, lane_locks, relays, settings, messages), texts with a name above their
-- use, and these, which differ between servers (see New in mysql.go):
--
--   skip        FOR UPDATE SKIP LOCKED; nothing where a server can't: there, who takes
--               lanes or rows waits for his turn among all who do the same
--   skip t      the same for the rows t of a select that looks into other tables
--   lock t      FOR UPDATE, or FOR UPDATE OF t on MySQL
--   server      tells one server from another
--   unchecked   on MariaDB, turns the constraints off for one UPDATE: a row that was written with
--               check_constraint_checks = 0 may violate them, and would make the UPDATE fail for all its rows
--
-- Numbers and lists of numbers are part of the text, in the place of words with a colon:
-- a statement without arguments takes one journey to the server. Texts are arguments.
-- What depends on more is built in the Go files beside this one.

-- ---------------------------------------------------------------------------------
-- Parts of statements.

-- The database's time in UTC, whatever the session's time zone is.
-- name: now
utc_timestamp(6)

-- The columns of a row t. Times are texts: what a driver makes of a time depends on its
-- settings, and a date that doesn't exist, which a session that isn't strict may write, is a
-- text that the relay refuses.
-- name: payload
coalesce(t.payload, CAST(t.payload_text AS BINARY))

-- name: row
t.id, t.lane, t.message_id, t.topic, coalesce(t.message_key, ''), t.sinks, {payload}, coalesce(t.headers, ''), CAST(t.available_at AS CHAR), CAST(t.expires_at AS CHAR), t.priority, t.attempts, t.crashes, CAST(t.created_at AS CHAR)

-- Flags: 1 has a payload, 2 is for later, 4 waits for its next attempt.
-- name: has payload
(t.payload IS NOT NULL OR t.payload_text IS NOT NULL)

-- name: later
2 * coalesce(t.available_at > {now}, 0)

-- name: hot row
{row}, {has payload} + {later}

-- name: held row
{row}, {has payload} + 4 * (t.state = 'retry') + 16 * t.holds

-- The times of a row t that moves; NULL, or now, for a date that doesn't exist. A session that
-- isn't strict may have written one, and a strict session can't copy it (error 1292).
-- name: real available_at
CASE WHEN year(t.available_at) > 0 AND month(t.available_at) > 0 AND dayofmonth(t.available_at) BETWEEN 1 AND dayofmonth(last_day(t.available_at)) THEN t.available_at END

-- name: real expires_at
CASE WHEN year(t.expires_at) > 0 AND month(t.expires_at) > 0 AND dayofmonth(t.expires_at) BETWEEN 1 AND dayofmonth(last_day(t.expires_at)) THEN t.expires_at END

-- name: real created_at
coalesce(CASE WHEN year(t.created_at) > 0 AND month(t.created_at) > 0 AND dayofmonth(t.created_at) BETWEEN 1 AND dayofmonth(last_day(t.created_at)) THEN t.created_at END, {now})

-- What stands in the place of a row.
-- name: no row
0, 0, '', '', '', '', NULL, '', NULL, NULL, 0, 0, 0, NULL, 0

-- name: size
coalesce(LENGTH(t.payload), LENGTH(t.payload_text), 0)

-- A row's state as the view has it, for a row of either table.
-- name: hot state
CASE WHEN t.claimed_until > {now} THEN 'claimed' WHEN t.available_at > {now} THEN 'scheduled' ELSE 'pending' END

-- name: held state
CASE WHEN t.state = 'scheduled' AND t.due_at <= {now} THEN 'pending' ELSE t.state END

-- Waiting: could be delivered now.
-- name: waiting
coalesce(t.available_at <= {now}, 1) AND coalesce(t.claimed_until <= {now}, 1)

-- name: held and waiting
t.state = 'scheduled' AND t.due_at <= {now}

-- Locks the way of claiming, for statements that do nothing unless it is by rows: who
-- changes it at the same time either sees what they do, or they see the change.
-- name: claimed by rows
(SELECT value FROM {settings} WHERE name = 'claim' LOCK IN SHARE MODE) = 'rows' AND

-- ---------------------------------------------------------------------------------
-- Relays and the way of claiming.

-- name: claim mode
SELECT value FROM {settings} WHERE name = 'claim'

-- name: lock claim mode
SELECT value FROM {settings} WHERE name = 'claim' FOR UPDATE

-- name: share claim mode
SELECT value FROM {settings} WHERE name = 'claim' LOCK IN SHARE MODE

-- The way of claiming, twice.
-- name: set claim mode
INSERT INTO {settings} (name, value) VALUES ('claim', ?) ON DUPLICATE KEY UPDATE value = ?

-- name: relays that claim another way
SELECT name FROM {relays} WHERE `until` >= {now} AND claim <> ? ORDER BY name

-- Waits for settles that are in flight.
-- name: lock lanes
SELECT lane FROM {lane_locks} ORDER BY lane FOR UPDATE

-- name: forget leases
UPDATE {lanes} SET owner = NULL, `until` = NULL, fence = fence + 1, marks = NULL, journal = NULL, crashes = 0

-- name: forget claims
{unchecked}UPDATE {hot} SET claimed_by = NULL, claim_token = NULL, claimed_until = NULL WHERE claimed_until IS NOT NULL

-- name: forget holds
UPDATE {held} SET state = 'error', holds = 0 WHERE holds > 0

-- Comes after share claim mode: who changes it at the same time sees either this relay,
-- or is seen. Name, host, version, way of claiming, setup, way of
-- claiming; host, version, way of claiming, setup.
-- name: heartbeat
INSERT INTO {relays} (name, host, version, claim, since, last_heartbeat, `until`, setup)
SELECT ?, ?, ?, ?, {now}, {now}, {now} + INTERVAL :ttl MICROSECOND, ? FROM DUAL WHERE NOT EXISTS (SELECT 1 FROM {settings} WHERE name = 'claim' AND value <> ?)
ON DUPLICATE KEY UPDATE host = ?, version = ?, claim = ?, since = CASE WHEN `until` < {now} THEN {now} ELSE since END, last_heartbeat = {now}, `until` = {now} + INTERVAL :ttl MICROSECOND, setup = ?

-- Name, way of claiming.
-- name: heartbeat was stored
SELECT name, 0, {server} FROM {relays} WHERE name = ? AND NOT EXISTS (SELECT 1 FROM {settings} WHERE name = 'claim' AND value <> ?)

-- name: members
SELECT name, setup, CAST({now} AS CHAR) FROM {relays} WHERE `until` >= {now} ORDER BY name

-- What a dead relay has ends now, as if its time were over. The fences grow: should it
-- live after all, it can't renew its leases before others have them.
-- name: end leases
UPDATE {lanes} SET `until` = {now} - INTERVAL 1 SECOND, fence = fence + 1 WHERE owner = ?

-- name: end claims
{unchecked}UPDATE {hot} SET claimed_until = {now} - INTERVAL 1 SECOND WHERE claimed_until >= {now} AND claimed_by = ?

-- name: deregister
DELETE FROM {relays} WHERE name = ?

-- name: purge relays
DELETE FROM {relays} WHERE `until` < {now} - INTERVAL 1 DAY

-- ---------------------------------------------------------------------------------
-- Lanes. Renew, release and write journal are built in lanes.go.

-- Where rows can't be passed over, who takes some waits for this row first: it is his
-- turn. What he selects stays as it is until he changes it.
-- name: turn
SELECT lane FROM {lane_locks} WHERE lane = 64 FOR UPDATE

-- Takes the lanes in their order, for a sort would lock all of them. A settle that is
-- in flight has locked its lanes' rows of lane locks; those lanes are passed over.
-- name: free lanes
SELECT l.lane, l.fence + :step, coalesce(l.marks, ''), l.crashes + (l.owner IS NOT NULL), coalesce(l.journal, ''), 0
FROM {lanes} AS l FORCE INDEX (PRIMARY) STRAIGHT_JOIN {lane_locks} AS k FORCE INDEX (PRIMARY) ON k.lane = l.lane
WHERE (l.owner IS NULL OR l.until < {now}) ORDER BY l.lane LIMIT :limit FOR UPDATE SKIP LOCKED

-- The same where they can't be passed over: the lanes' rows of lane locks are waited for.
-- name: free lanes in turn
SELECT l.lane, l.fence + :step, coalesce(l.marks, ''), l.crashes + (l.owner IS NOT NULL), coalesce(l.journal, ''), 0
FROM {lanes} AS l FORCE INDEX (PRIMARY)
WHERE (l.owner IS NULL OR l.until < {now}) ORDER BY l.lane LIMIT :limit FOR UPDATE

-- name: wait for settles
SELECT lane FROM {lane_locks} FORCE INDEX (PRIMARY) WHERE lane IN :lanes ORDER BY lane FOR UPDATE

-- name: acquire
UPDATE {lanes} FORCE INDEX (PRIMARY) SET fence = fence + :step, crashes = CASE WHEN owner IS NULL THEN crashes ELSE crashes + 1 END, owner = ?, `until` = {now} + INTERVAL :ttl MICROSECOND WHERE lane IN :lanes

-- The list of lanes serves the index.
-- name: leases that hold
SELECT lane, fence, 0 FROM {lanes} FORCE INDEX (PRIMARY) WHERE lane IN :lanes AND (lane, fence) IN (:leases) AND owner = ? ORDER BY lane FOR UPDATE

-- name: journals
SELECT lane, fence, journal FROM {lanes} WHERE journal IS NOT NULL

-- name: marks
SELECT lane, marks FROM {lanes} WHERE marks IS NOT NULL ORDER BY lane

-- ---------------------------------------------------------------------------------
-- Reading. A page is built in read.go.

-- Looks in all tables, for the highest row may be held, or done; and at the counter, for
-- there may be no row at all. MySQL may have the counter of some hours ago. Of the held rows
-- there is an index by state and id alone.
-- name: last id
SELECT GREATEST(COALESCE((SELECT MAX(id) FROM {hot}), 0), COALESCE((SELECT MAX(id) FROM {done}), 0),
    COALESCE((SELECT MAX(id) FROM {held} FORCE INDEX (held_id) WHERE state = 'scheduled'), 0),
    COALESCE((SELECT MAX(id) FROM {held} FORCE INDEX (held_id) WHERE state = 'retry'), 0),
    COALESCE((SELECT MAX(id) FROM {held} FORCE INDEX (held_id) WHERE state = 'error'), 0),
    COALESCE((SELECT MAX(CAST(auto_increment AS SIGNED)) - 1 FROM information_schema.tables WHERE {named}), 0)) AS last_id

-- An id, and the same once more.
-- name: written from
SELECT id, CAST(timestampdiff(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', created_at) DIV 1000 AS SIGNED) FROM (
    (SELECT id, created_at FROM {hot} FORCE INDEX (id) WHERE id >= ? ORDER BY id LIMIT 1)
    UNION ALL (SELECT id, created_at FROM {done} FORCE INDEX (PRIMARY) WHERE id >= ? ORDER BY id LIMIT 1)
) AS w ORDER BY id LIMIT 1

-- What each row of a page begins with, and what is asked where there is no row.
-- name: first
CONCAT('0 0 ', {server})

-- name: first line
SELECT {first}, {no row}

-- Goes by the time that is generated for it, in which no time is the first.
-- name: due
SELECT {held row} FROM {held} AS t FORCE INDEX (held_due)
WHERE t.due_at <= {now} AND t.due_at >= TIMESTAMP':time' AND (t.due_at > TIMESTAMP':time' OR t.id > :id) AND t.lane IN :lanes
ORDER BY t.due_at, t.id LIMIT :limit

-- By the column that has the lane of rows that hold their keys.
-- name: blocked keys
SELECT lane, message_key, topic, sinks, id FROM {held} FORCE INDEX (held_retry)
WHERE blocks IN :lanes AND message_key <> ''
LIMIT :limit

-- What is due: held rows by their index, and of the pending rows all but those that are claimed or for later.
-- name: remaining
(SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.sinks, 1 FROM {held} AS t FORCE INDEX (held_due) WHERE t.due_at <= {now} LIMIT :limit)
UNION ALL (SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.sinks, 0 FROM {hot} AS t WHERE {waiting} LIMIT :limit)

-- ---------------------------------------------------------------------------------
-- Settling. The changes of rows are built in settle.go.

-- Locks the lanes against a takeover, together with other settles. Their fences are
-- looked at by a statement of its own, which sees what was committed when the locks had
-- been taken. A renewal changes other rows, and waits for no settle.
-- name: lock lanes of settlements
SELECT lane FROM {lane_locks} FORCE INDEX (PRIMARY) WHERE lane IN :lanes ORDER BY lane LOCK IN SHARE MODE

-- name: leases of settlements
SELECT 'lane', lane, fence FROM {lanes} FORCE INDEX (PRIMARY) WHERE lane IN :lanes AND (lane, fence) IN (:leases) AND owner = ?

-- name: old done rows
SELECT id FROM {done} FORCE INDEX (done_finished) WHERE finished_at < {now} + INTERVAL :retention MICROSECOND ORDER BY finished_at LIMIT :limit{skip}

-- Sees one moment: a row that moves meanwhile is hot or held.
-- name: old ids
SELECT i.message_id FROM {ids} AS i FORCE INDEX (ids_written)
WHERE i.written_at < {now} + INTERVAL :kept MICROSECOND
    AND i.written_at < coalesce((SELECT h.created_at FROM {hot} AS h FORCE INDEX (id) ORDER BY h.id LIMIT 1) - INTERVAL 10 MINUTE, {now})
    AND NOT EXISTS (SELECT 1 FROM {held} AS h WHERE h.message_id = i.message_id)
ORDER BY i.written_at LIMIT :limit

-- name: delete ids
DELETE FROM {ids} WHERE message_id IN (:ids) AND written_at < {now} + INTERVAL :kept MICROSECOND

-- ---------------------------------------------------------------------------------
-- Claiming by rows. A claim is built in rows.go.

-- name: a free row
SELECT id FROM {hot} FORCE INDEX (claim_id) WHERE claimed_until IS NULL ORDER BY id LIMIT 1

-- name: an ended claim
SELECT id FROM (SELECT id FROM {hot} FORCE INDEX (claim_id) WHERE claimed_until < {now} ORDER BY claimed_until LIMIT 1) AS c
UNION ALL SELECT id FROM (SELECT id FROM {held} FORCE INDEX (held_due) WHERE due_at <= {now} ORDER BY due_at, id LIMIT 1) AS h

-- Relay, token.
-- name: claim
{unchecked}UPDATE {hot} FORCE INDEX (id) SET claimed_by = ?, claim_token = ?, claimed_until = {now} + INTERVAL :ttl MICROSECOND WHERE claimed_until IS NULL AND id IN :ids

-- Rows that are locked are being settled or handled, and nobody else gets them
-- meanwhile. So they are still claimed, and passed over. Token.
-- name: still claimed
SELECT id FROM {hot} FORCE INDEX (id) WHERE {claimed by rows} id IN :ids AND claim_token = ?

-- name: lock still claimed
{still claimed}{skip}

-- name: extend
{unchecked}UPDATE {hot} FORCE INDEX (id) SET claimed_until = {now} + INTERVAL :ttl MICROSECOND WHERE id IN :ids

-- name: ended claims
SELECT id FROM {hot} FORCE INDEX (claim_id) WHERE {claimed by rows} claimed_until < {now} ORDER BY claimed_until LIMIT :limit{skip}

-- name: free ended claims
{unchecked}UPDATE {hot} FORCE INDEX (id) SET claimed_by = NULL, claim_token = NULL, claimed_until = NULL, crashes = least(crashes, 2000000000) + 1 WHERE id IN :ids AND claimed_until < {now}

-- Of several held rows with one id, one comes back at a time. A count is asked for each
-- row, whatever a planner makes of it.
-- name: comes back
{claimed by rows} t.due_at <= {now} AND (SELECT COUNT(*) FROM {held} o WHERE o.lane = t.lane AND o.id = t.id AND (o.message_id, o.sinks) < (t.message_id, t.sinks) AND o.due_at <= {now}) = 0

-- Selects the rows' places: an id and a lane in one number. Rows whose lane and id a hot
-- row has are passed over, as one may after ids began anew.
-- name: due places
SELECT t.id * 64 + t.lane FROM {held} AS t FORCE INDEX (held_due)
WHERE {comes back} AND (SELECT COUNT(*) FROM {hot} h WHERE h.lane = t.lane AND h.id = t.id) = 0
ORDER BY t.due_at, t.id LIMIT :limit{skip t}

-- name: bring back
{unchecked}INSERT INTO {hot} (id, message_id, topic, message_key, payload, payload_text, headers, priority, attempts, crashes, available_at, expires_at, created_at, last_error, sinks)
SELECT t.id, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.attempts, t.crashes, {real available_at}, {real expires_at}, {real created_at}, t.last_error, t.sinks FROM {held} AS t FORCE INDEX (PRIMARY) WHERE :rows AND {comes back}{lock t}

-- ---------------------------------------------------------------------------------
-- Operating. A listing, a requeue and a discard are built in operate.go.

-- Looks at so many rows of each place: what those of a large table are is reckoned by the
-- estimates.
-- name: counts
SELECT 'hot', state, count(*) FROM (SELECT {hot state} AS state FROM {hot} AS t LIMIT :limit) AS h GROUP BY state
UNION ALL SELECT 'held', state, count(*) FROM (
    (SELECT {held state} AS state FROM {held} AS t FORCE INDEX (held_id) WHERE t.state = 'retry' LIMIT :limit)
    UNION ALL (SELECT {held state} FROM {held} AS t FORCE INDEX (held_id) WHERE t.state = 'scheduled' LIMIT :limit)) AS s GROUP BY state
UNION ALL SELECT 'error', 'error', count(*) FROM (SELECT 1 FROM {held} AS t FORCE INDEX (held_id) WHERE t.state = 'error' LIMIT :limit) AS e
UNION ALL SELECT 'done', 'done', count(*) FROM (SELECT 1 FROM {done} LIMIT :limit) AS d

-- name: count claimed
SELECT count(*) FROM {hot} WHERE claimed_until > {now}

-- Gaps between ids count as rows.
-- name: estimates
SELECT 'hot', coalesce(max(id) - min(id) + 1, 0) FROM {hot}
UNION ALL SELECT 'done', coalesce(max(id) - min(id) + 1, 0) FROM {done}

-- A row's age counts from when it could be delivered first. The oldest are looked for among
-- the first: so it takes no longer for a larger table.
-- name: oldest
SELECT greatest(0, coalesce(timestampdiff(MICROSECOND, min(since), {now}) DIV 1000, 0)) FROM (
    SELECT greatest(t.created_at, coalesce(t.available_at, t.created_at)) AS since FROM (
        SELECT created_at, available_at, claimed_until FROM {hot} FORCE INDEX (id) ORDER BY id LIMIT :limit) AS t WHERE {waiting}
    UNION ALL SELECT greatest(t.created_at, coalesce(t.available_at, t.created_at)) FROM {held} AS t WHERE {held and waiting}
) AS p

-- A retry's age counts from when its message was written.
-- name: oldest retry
SELECT greatest(0, coalesce(timestampdiff(MICROSECOND, min(created_at), {now}) DIV 1000, 0)) FROM {held} WHERE state = 'retry'

-- The index finds the few rows that block their keys among many parked ones.
-- name: held parked
SELECT count(*), coalesce(timestampdiff(MICROSECOND, min(available_at), {now}) DIV 1000, 0) FROM {held} FORCE INDEX (held_retry) WHERE blocks IS NOT NULL AND state = 'error' AND holds = 1

-- name: topics
SELECT topic, count(*) FROM (
    (SELECT t.topic FROM {hot} AS t WHERE {waiting} LIMIT :limit)
    UNION ALL (SELECT t.topic FROM {held} AS t WHERE {held and waiting} LIMIT :limit) LIMIT :limit
) AS p GROUP BY topic

-- name: list relays
SELECT r.name, r.host, r.version, r.claim, CAST(r.since AS CHAR), CAST(r.last_heartbeat AS CHAR), r.until >= {now},
    (SELECT count(*) FROM {lanes} AS l WHERE l.owner = r.name AND l.until >= {now}), r.setup
FROM {relays} AS r ORDER BY r.name

-- The time, for how many milliseconds the first of the done rows has been there, and the time zone.
-- name: clock
SELECT CAST({now} AS CHAR), timestampdiff(MICROSECOND, (SELECT min(finished_at) FROM {done}), {now}) DIV 1000, IF(@@global.time_zone = 'SYSTEM', @@system_time_zone, @@global.time_zone)

-- name: lanes leased
SELECT count(*) FROM {lanes} WHERE owner IS NOT NULL AND `until` >= {now}

-- ---------------------------------------------------------------------------------
-- Open transactions, by InnoDB's list, which takes the right PROCESS.
--
-- A transaction has a number only once it writes, or locks as if it were to: so it locks
-- a row that there isn't, which at READ COMMITTED locks nothing. An insert takes its id
-- just before its transaction's first number.
--
-- The list is made anew only if nobody has read it for a tenth of a second. So it counts
-- only if it shows the transaction that reads it, with this very statement. It also
-- isn't complete beyond 16 MB, of which one transaction takes about a kilobyte, and those
-- that wait for locks may take more.
--
-- The list has other numbers for those that have none. Those that have one, but haven't
-- written and are in no statement either, will take their ids later: programs that hold
-- locks on rows for long hold nothing up.

-- name: take a number
SELECT value FROM {settings} WHERE name = '' FOR UPDATE

-- name: open transactions
SELECT CASE WHEN LOCATE(':token', trx_query) > 0 THEN 'number' WHEN trx_state = 'COMMITTING' THEN 'ending' ELSE 'open' END, CAST(trx_id AS CHAR)
FROM (SELECT t.*, COUNT(*) OVER () AS listed, SUM(trx_state = 'LOCK WAIT') OVER () AS waiting
    FROM information_schema.innodb_trx AS t) AS t
WHERE listed < 5000 AND waiting < 1000 AND trx_id > 0 AND trx_id < 281474976710656
    AND (trx_rows_modified > 0 OR trx_tables_in_use > 0 OR trx_mysql_thread_id = 0 OR LOCATE(':token', trx_query) > 0)
UNION ALL SELECT 'all', ''
UNION ALL SELECT 'server', {server}

-- ---------------------------------------------------------------------------------
-- Checking.

-- In UTC. The list has its times in the server's own time zone, whatever the session's is.
-- name: history length
SELECT `COUNT` FROM information_schema.INNODB_METRICS WHERE NAME = 'trx_rseg_history_len'

-- name: oldest transaction
SELECT CONVERT_TZ(MIN(trx_started), 'SYSTEM', '+00:00') FROM information_schema.innodb_trx WHERE trx_rows_modified > 0 HAVING MIN(trx_started) < CONVERT_TZ(UTC_TIMESTAMP(), '+00:00', 'SYSTEM') - INTERVAL 10 MINUTE

-- What no relay looks for.
-- name: lanes with rows below their marks
SELECT l.lane FROM {lanes} AS l WHERE (SELECT t.id FROM {hot} AS t FORCE INDEX (PRIMARY) WHERE t.lane = l.lane ORDER BY t.lane, t.id LIMIT 1) <= CAST(JSON_EXTRACT(NULLIF(l.marks, ''), '$.main') AS SIGNED) ORDER BY l.lane

-- ---------------------------------------------------------------------------------
-- Replays: what is known of each is a line of JSON among the settings.

-- name: replays
SELECT substr(name, 8), value FROM {settings} WHERE name LIKE 'replay.%' ORDER BY name

-- name: last delivered
SELECT COALESCE(MAX(id), 0) FROM {done}

-- Name, text.
-- name: begin replay
INSERT IGNORE INTO {settings} (name, value) VALUES (CONCAT('replay.', ?), ?)

-- New text, name, the text that it had.
-- name: change replay
UPDATE {settings} SET value = ? WHERE name = CONVERT(CONCAT('replay.', ?) USING ascii) AND value = ?

-- ---------------------------------------------------------------------------------
-- What operators have put in force, and what they have done.

-- name: controls in force
SELECT kind, name, COALESCE(rate, 0), CAST(ends_at AS CHAR), made_by, CAST(made_at AS CHAR), reason FROM {controls} WHERE ends_at IS NULL OR ends_at > {now} ORDER BY kind, name

-- name: forget ended controls
DELETE FROM {controls} WHERE ends_at <= {now}

-- name: lift control
DELETE FROM {controls} WHERE kind = ? AND name = ?

-- Kind, name, rate, for how many microseconds, by whom, why.
-- name: set control
INSERT INTO {controls} (kind, name, rate, ends_at, made_by, made_at, reason)
VALUES (?, ?, ?, {now} + INTERVAL ? MICROSECOND, ?, {now}, ?)

-- Id, by whom, what, of what, why.
-- name: begin action
INSERT INTO {actions} (id, made_by, action, target, reason, made_at) VALUES (?, ?, ?, ?, ?, {now})

-- How many were changed, id.
-- name: end action
UPDATE {actions} SET changed = ? WHERE id = ?

-- name: renew statistics
ANALYZE TABLE {hot}, {held}, {done}, {lanes}

-- name: delete old done
DELETE FROM {done} WHERE finished_at < UTC_TIMESTAMP() - INTERVAL 1 DAY ORDER BY finished_at LIMIT 10000

-- name: log of actions
SELECT id, CAST(made_at AS CHAR), made_by, action, target, reason, COALESCE(changed, -1) FROM {actions} ORDER BY made_at DESC, id DESC
