-- The fixed statements of a relay on MySQL 8.0.13 and later and MariaDB 10.5 and later. The Go files in this directory
-- build the statements that depend on the request.
--
-- A name in braces stands for a table, for an earlier text with this name, or for one of the texts below (see New in
-- mysql.go). {hot} is the table outbox; {held}, {done}, {ids}, {lanes}, {lane_locks}, {relays}, {settings}, {controls}
-- and {actions} are the tables outbox_held, outbox_done and so on.
--
--   skip        FOR UPDATE SKIP LOCKED. It is empty if the server can't skip locked rows. On such a server, transactions
--               that claim, free or purge rows begin with the statement "turn"
--   skip t      the same as skip, for the rows t of a SELECT from several tables
--   lock t      FOR UPDATE, or FOR UPDATE OF t on MySQL
--   server      an expression that identifies the server
--   named       the condition that selects the row of the table outbox in information_schema.tables
--   unchecked   on MariaDB, turns the constraints off for one statement: a row that was written with
--               check_constraint_checks = 0 may violate them, and would make the statement fail for all its rows
--
-- Words with a colon, such as :limit, are replaced by a number, a list of numbers or a time, because a statement without
-- arguments needs only one round trip. Texts are arguments. In "delete ids", :ids is a list of placeholders.

-- ---------------------------------------------------------------------------------
-- Parts of statements.

-- The database's time in UTC, whatever the session's time zone is.
-- name: now
utc_timestamp(6)

-- name: payload
coalesce(t.payload, CAST(t.payload_text AS BINARY))

-- The columns of a row t. Times are selected as texts, because the conversion of times depends on the driver's
-- settings. A session without strict mode can write a date that doesn't exist. Selected as a text, such a date makes
-- only its row malformed.
-- name: row
t.id, t.lane, t.message_id, t.topic, coalesce(t.message_key, ''), t.sinks, {payload}, coalesce(t.headers, ''), CAST(t.available_at AS CHAR), CAST(t.expires_at AS CHAR), t.priority, t.attempts, t.crashes, CAST(t.created_at AS CHAR)

-- The flags are a sum: 1 if the row has a payload, 2 if it is due later, 4 if it waits for its next attempt, and 16
-- times the column `holds`.
-- name: has payload
(t.payload IS NOT NULL OR t.payload_text IS NOT NULL)

-- name: later
2 * coalesce(t.available_at > {now}, 0)

-- name: hot row
{row}, {has payload} + {later}

-- name: held row
{row}, {has payload} + 4 * (t.state = 'retry') + 16 * t.holds

-- The times of a row t, used in statements that move the row. A date that doesn't exist becomes NULL, or the present
-- time in created_at. A session without strict mode may have written such a date, and a session with strict mode can't
-- copy it (error 1292).
-- name: real available_at
CASE WHEN year(t.available_at) > 0 AND month(t.available_at) > 0 AND dayofmonth(t.available_at) BETWEEN 1 AND dayofmonth(last_day(t.available_at)) THEN t.available_at END

-- name: real expires_at
CASE WHEN year(t.expires_at) > 0 AND month(t.expires_at) > 0 AND dayofmonth(t.expires_at) BETWEEN 1 AND dayofmonth(last_day(t.expires_at)) THEN t.expires_at END

-- name: real created_at
coalesce(CASE WHEN year(t.created_at) > 0 AND month(t.created_at) > 0 AND dayofmonth(t.created_at) BETWEEN 1 AND dayofmonth(last_day(t.created_at)) THEN t.created_at END, {now})

-- Placeholders for the columns of a message, used if a read has no positions and so returns no message.
-- name: no row
0, 0, '', '', '', '', NULL, '', NULL, NULL, 0, 0, 0, NULL, 0

-- name: size
coalesce(LENGTH(t.payload), LENGTH(t.payload_text), 0)

-- The state of a row t, as the view of all messages shows it.
-- name: hot state
CASE WHEN t.claimed_until > {now} THEN 'claimed' WHEN t.available_at > {now} THEN 'scheduled' ELSE 'pending' END

-- The cast gives the text the connection's collation, because in a UNION with other texts MySQL 8.0 rejects the
-- column's collation.
-- name: held state
CASE WHEN t.state = 'scheduled' AND t.due_at <= {now} THEN 'pending' ELSE CAST(t.state AS CHAR) END

-- The condition that a row of the table outbox could be delivered now; the next text is the condition for the held
-- table.
-- name: waiting
coalesce(t.available_at <= {now}, 1) AND coalesce(t.claimed_until <= {now}, 1)

-- name: held and waiting
t.state = 'scheduled' AND t.due_at <= {now}

-- The beginning of a condition: the table is claimed by rows. It locks the claim mode until the transaction ends, so a
-- change of the mode can't run concurrently. A later change sees the rows that the statement has changed. After an
-- earlier change, the statement changes nothing.
-- name: claimed by rows
(SELECT value FROM {settings} WHERE name = 'claim' LOCK IN SHARE MODE) = 'rows' AND

-- ---------------------------------------------------------------------------------
-- Relays and the claim mode.

-- name: claim mode
SELECT value FROM {settings} WHERE name = 'claim'

-- name: lock claim mode
SELECT value FROM {settings} WHERE name = 'claim' FOR UPDATE

-- name: share claim mode
SELECT value FROM {settings} WHERE name = 'claim' LOCK IN SHARE MODE

-- Arguments: the claim mode, twice.
-- name: set claim mode
INSERT INTO {settings} (name, value) VALUES ('claim', ?) ON DUPLICATE KEY UPDATE value = ?

-- name: relays that claim another way
SELECT name FROM {relays} WHERE `until` >= {now} AND claim <> ? ORDER BY name

-- Waits for running settles, which have locked these rows.
-- name: lock lanes
SELECT lane FROM {lane_locks} ORDER BY lane FOR UPDATE

-- name: forget leases
UPDATE {lanes} SET owner = NULL, `until` = NULL, fence = fence + 1, marks = NULL, journal = NULL, crashes = 0

-- name: forget claims
{unchecked}UPDATE {hot} SET claimed_by = NULL, claim_token = NULL, claimed_until = NULL WHERE claimed_until IS NOT NULL

-- name: forget holds
UPDATE {held} SET state = 'error', holds = 0 WHERE holds > 0

-- Runs after "share claim mode", in the same transaction, so a change of the claim mode can't run concurrently. A later
-- change sees this relay. After an earlier change, the relay isn't stored. Arguments: name, host, version, claim mode,
-- setup, claim mode; host, version, claim mode, setup.
-- name: heartbeat
INSERT INTO {relays} (name, host, version, claim, since, last_heartbeat, `until`, setup)
SELECT ?, ?, ?, ?, {now}, {now}, {now} + INTERVAL :ttl MICROSECOND, ? FROM DUAL WHERE NOT EXISTS (SELECT 1 FROM {settings} WHERE name = 'claim' AND value <> ?)
ON DUPLICATE KEY UPDATE host = ?, version = ?, claim = ?, since = CASE WHEN `until` < {now} THEN {now} ELSE since END, last_heartbeat = {now}, `until` = {now} + INTERVAL :ttl MICROSECOND, setup = ?

-- Arguments: name, claim mode.
-- name: heartbeat was stored
SELECT name, 0, {server} FROM {relays} WHERE name = ? AND NOT EXISTS (SELECT 1 FROM {settings} WHERE name = 'claim' AND value <> ?)

-- name: members
SELECT name, setup, CAST({now} AS CHAR) FROM {relays} WHERE `until` >= {now} ORDER BY name

-- The next two statements end the leases and the claims of a dead relay, as if they had expired. The fences grow, so
-- that the relay can't renew its leases if it is alive after all.
-- name: end leases
UPDATE {lanes} SET `until` = {now} - INTERVAL 1 SECOND, fence = fence + 1 WHERE owner = ?

-- name: end claims
{unchecked}UPDATE {hot} SET claimed_until = {now} - INTERVAL 1 SECOND WHERE claimed_until >= {now} AND claimed_by = ?

-- name: deregister
DELETE FROM {relays} WHERE name = ?

-- name: purge relays
DELETE FROM {relays} WHERE `until` < {now} - INTERVAL 1 DAY

-- ---------------------------------------------------------------------------------
-- Lanes. mysql.go builds the statements that renew and release leases and write journals.

-- On a server that can't skip locked rows, a relay locks this row before it claims, frees or purges rows. So only one
-- relay at a time can do this, and no other relay takes the rows that it selects.
-- name: turn
SELECT lane FROM {lane_locks} WHERE lane = 64 FOR UPDATE

-- Locks free lanes in the order of the primary key, because a sort would lock all free lanes. If a settle has locked a
-- lane's row of lane_locks, the statement skips the lane.
-- name: free lanes
SELECT l.lane, l.fence + :step, coalesce(l.marks, ''), l.crashes + (l.owner IS NOT NULL), coalesce(l.journal, ''), 0
FROM {lanes} AS l FORCE INDEX (PRIMARY) STRAIGHT_JOIN {lane_locks} AS k FORCE INDEX (PRIMARY) ON k.lane = l.lane
WHERE (l.owner IS NULL OR l.until < {now}) ORDER BY l.lane LIMIT :limit FOR UPDATE SKIP LOCKED

-- The same as "free lanes" for a server that can't skip locked rows. Afterwards, "wait for settles" locks the lanes'
-- rows of lane_locks.
-- name: free lanes in turn
SELECT l.lane, l.fence + :step, coalesce(l.marks, ''), l.crashes + (l.owner IS NOT NULL), coalesce(l.journal, ''), 0
FROM {lanes} AS l FORCE INDEX (PRIMARY)
WHERE (l.owner IS NULL OR l.until < {now}) ORDER BY l.lane LIMIT :limit FOR UPDATE

-- name: wait for settles
SELECT lane FROM {lane_locks} FORCE INDEX (PRIMARY) WHERE lane IN :lanes ORDER BY lane FOR UPDATE

-- name: acquire
UPDATE {lanes} FORCE INDEX (PRIMARY) SET fence = fence + :step, crashes = CASE WHEN owner IS NULL THEN crashes ELSE crashes + 1 END, owner = ?, `until` = {now} + INTERVAL :ttl MICROSECOND WHERE lane IN :lanes

-- Locks the lanes whose leases are still valid. The list of lanes makes the server use the index.
-- name: leases that hold
SELECT lane, fence, 0 FROM {lanes} FORCE INDEX (PRIMARY) WHERE lane IN :lanes AND (lane, fence) IN (:leases) AND owner = ? ORDER BY lane FOR UPDATE

-- name: journals
SELECT lane, fence, journal FROM {lanes} WHERE journal IS NOT NULL

-- name: marks
SELECT lane, marks FROM {lanes} WHERE marks IS NOT NULL ORDER BY lane

-- ---------------------------------------------------------------------------------
-- Reading. mysql.go builds the reads of pages.

-- The highest assigned id. Its row may be in outbox, outbox_held or outbox_done, or it may have been deleted, so the
-- statement also reads the AUTO_INCREMENT counter. The counter alone doesn't suffice, because MySQL may show a value
-- that is a few hours old. The statement reads the held table once for each state, because this table has an index on
-- (state, id), and no index on the id alone.
-- name: last id
SELECT GREATEST(COALESCE((SELECT MAX(id) FROM {hot}), 0), COALESCE((SELECT MAX(id) FROM {done}), 0),
    COALESCE((SELECT MAX(id) FROM {held} FORCE INDEX (held_id) WHERE state = 'scheduled'), 0),
    COALESCE((SELECT MAX(id) FROM {held} FORCE INDEX (held_id) WHERE state = 'retry'), 0),
    COALESCE((SELECT MAX(id) FROM {held} FORCE INDEX (held_id) WHERE state = 'error'), 0),
    COALESCE((SELECT MAX(CAST(auto_increment AS SIGNED)) - 1 FROM information_schema.tables WHERE {named}), 0)) AS last_id

-- Selects the first row of outbox or outbox_done whose id is at least the given one, and the row's created_at in Unix
-- milliseconds. Arguments: the id, twice.
-- name: written from
SELECT id, CAST(timestampdiff(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', created_at) DIV 1000 AS SIGNED) FROM (
    (SELECT id, created_at FROM {hot} FORCE INDEX (id) WHERE id >= ? ORDER BY id LIMIT 1)
    UNION ALL (SELECT id, created_at FROM {done} FORCE INDEX (PRIMARY) WHERE id >= ? ORDER BY id LIMIT 1)
) AS w ORDER BY id LIMIT 1

-- Each row of a page begins with this text: 0 in place of the last id, 0, and the server.
-- name: first
CONCAT('0 0 ', {server})

-- The statement of a read without positions.
-- name: first line
SELECT {first}, {no row}

-- Selects due rows after :time and :id, in the order of due_at. This generated column has a time in the year 1 if the
-- row's available_at is NULL.
-- name: due
SELECT {held row} FROM {held} AS t FORCE INDEX (held_due)
WHERE t.due_at <= {now} AND t.due_at >= TIMESTAMP':time' AND (t.due_at > TIMESTAMP':time' OR t.id > :id) AND t.lane IN :lanes
ORDER BY t.due_at, t.id LIMIT :limit

-- Uses the index on the generated column blocks. This column has the row's lane if the row blocks its key, and is NULL
-- otherwise.
-- name: blocked keys
SELECT lane, message_key, topic, sinks, id FROM {held} FORCE INDEX (held_retry)
WHERE blocks IN :lanes AND message_key <> ''
LIMIT :limit

-- The rows that are due, up to a limit for each table: held rows, which an index on due times finds, and rows of outbox
-- that are neither claimed nor scheduled.
-- name: remaining
(SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.sinks, 1 FROM {held} AS t FORCE INDEX (held_due) WHERE t.due_at <= {now} LIMIT :limit)
UNION ALL (SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.sinks, 0 FROM {hot} AS t WHERE {waiting} LIMIT :limit)

-- ---------------------------------------------------------------------------------
-- Settling. settle.go builds the statements that change rows.

-- Locks the lanes against a takeover; other settles can share the locks. "leases of settlements" then checks the
-- fences. The check is a separate statement, so it sees everything that was committed before the locks were granted. A
-- renewal changes only {lanes}, so it doesn't wait for a settle.
-- name: lock lanes of settlements
SELECT lane FROM {lane_locks} FORCE INDEX (PRIMARY) WHERE lane IN :lanes ORDER BY lane LOCK IN SHARE MODE

-- name: leases of settlements
SELECT 'lane', lane, fence FROM {lanes} FORCE INDEX (PRIMARY) WHERE lane IN :lanes AND (lane, fence) IN (:leases) AND owner = ?

-- name: old done rows
SELECT id FROM {done} FORCE INDEX (done_finished) WHERE finished_at < {now} + INTERVAL :retention MICROSECOND ORDER BY finished_at LIMIT :limit{skip}

-- One statement sees one snapshot. So if a row moves concurrently, this statement finds it in either outbox or
-- outbox_held.
-- name: old ids
SELECT i.message_id FROM {ids} AS i FORCE INDEX (ids_written)
WHERE i.written_at < {now} + INTERVAL :kept MICROSECOND
    AND i.written_at < coalesce((SELECT h.created_at FROM {hot} AS h FORCE INDEX (id) ORDER BY h.id LIMIT 1) - INTERVAL 10 MINUTE, {now})
    AND NOT EXISTS (SELECT 1 FROM {held} AS h WHERE h.message_id = i.message_id)
ORDER BY i.written_at LIMIT :limit

-- name: delete ids
DELETE FROM {ids} WHERE message_id IN (:ids) AND written_at < {now} + INTERVAL :kept MICROSECOND

-- ---------------------------------------------------------------------------------
-- Claiming by rows. mysql.go builds the claim.

-- name: a free row
SELECT id FROM {hot} FORCE INDEX (claim_id) WHERE claimed_until IS NULL ORDER BY id LIMIT 1

-- name: an ended claim
SELECT id FROM (SELECT id FROM {hot} FORCE INDEX (claim_id) WHERE claimed_until < {now} ORDER BY claimed_until LIMIT 1) AS c
UNION ALL SELECT id FROM (SELECT id FROM {held} FORCE INDEX (held_due) WHERE due_at <= {now} ORDER BY due_at, id LIMIT 1) AS h

-- Arguments: relay, token.
-- name: claim
{unchecked}UPDATE {hot} FORCE INDEX (id) SET claimed_by = ?, claim_token = ?, claimed_until = {now} + INTERVAL :ttl MICROSECOND WHERE claimed_until IS NULL AND id IN :ids

-- Selects the rows that still have the token, which is the argument. A relay extends the claims on rows that it can
-- lock. A row that it can't lock is being settled or handled, and no other relay can claim it meanwhile. So the row
-- counts as still claimed.
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

-- The condition that a held row t is due and can move to the table outbox. If several held rows share a lane and id,
-- only one of them moves at a time. The condition compares a COUNT with 0 instead of using NOT EXISTS, so that every
-- planner runs the subquery for each due row and doesn't read the whole table.
-- name: comes back
{claimed by rows} t.due_at <= {now} AND (SELECT COUNT(*) FROM {held} o WHERE o.lane = t.lane AND o.id = t.id AND (o.message_id, o.sinks) < (t.message_id, t.sinks) AND o.due_at <= {now}) = 0

-- Selects id * 64 + lane of each row to move. A held row stays while a row of outbox has the same lane and id, which is
-- possible after the id sequence was reset.
-- name: due places
SELECT t.id * 64 + t.lane FROM {held} AS t FORCE INDEX (held_due)
WHERE {comes back} AND (SELECT COUNT(*) FROM {hot} h WHERE h.lane = t.lane AND h.id = t.id) = 0
ORDER BY t.due_at, t.id LIMIT :limit{skip t}

-- name: bring back
{unchecked}INSERT INTO {hot} (id, message_id, topic, message_key, payload, payload_text, headers, priority, attempts, crashes, available_at, expires_at, created_at, last_error, attempt_log, sinks)
SELECT t.id, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.attempts, t.crashes, {real available_at}, {real expires_at}, {real created_at}, t.last_error, t.attempt_log, t.sinks FROM {held} AS t FORCE INDEX (PRIMARY) WHERE :rows AND {comes back}{lock t}

-- ---------------------------------------------------------------------------------
-- Operating. operate.go builds the lists, and the changes that operators make to messages.

-- Counts up to :limit rows of each kind: rows of outbox, retries, scheduled held rows, parked rows and done rows. If
-- outbox or the done table has more rows, the store also uses "estimates".
-- name: counts
SELECT 'hot', state, count(*) FROM (SELECT {hot state} AS state FROM {hot} AS t LIMIT :limit) AS h GROUP BY state
UNION ALL SELECT 'held', state, count(*) FROM (
    (SELECT {held state} AS state FROM {held} AS t FORCE INDEX (held_id) WHERE t.state = 'retry' LIMIT :limit)
    UNION ALL (SELECT {held state} FROM {held} AS t FORCE INDEX (held_id) WHERE t.state = 'scheduled' LIMIT :limit)) AS s GROUP BY state
UNION ALL SELECT 'error', 'error', count(*) FROM (SELECT 1 FROM {held} AS t FORCE INDEX (held_id) WHERE t.state = 'error' LIMIT :limit) AS e
UNION ALL SELECT 'done', 'done', count(*) FROM (SELECT 1 FROM {done} LIMIT :limit) AS d

-- name: count claimed
SELECT count(*) FROM {hot} WHERE claimed_until > {now}

-- Counts all ids between the lowest and the highest one, including gaps.
-- name: estimates
SELECT 'hot', coalesce(max(id) - min(id) + 1, 0) FROM {hot}
UNION ALL SELECT 'done', coalesce(max(id) - min(id) + 1, 0) FROM {done}

-- The age in milliseconds of the oldest waiting row, counted from the time when the row could first be delivered. The
-- statement examines only the first :limit rows of the table outbox, so its duration doesn't depend on the table's
-- size.
-- name: oldest
SELECT greatest(0, coalesce(timestampdiff(MICROSECOND, min(since), {now}) DIV 1000, 0)) FROM (
    SELECT greatest(t.created_at, coalesce(t.available_at, t.created_at)) AS since FROM (
        SELECT created_at, available_at, claimed_until FROM {hot} FORCE INDEX (id) ORDER BY id LIMIT :limit) AS t WHERE {waiting}
    UNION ALL SELECT greatest(t.created_at, coalesce(t.available_at, t.created_at)) FROM {held} AS t WHERE {held and waiting}
) AS p

-- The age of a retry is the time since its message was written.
-- name: oldest retry
SELECT greatest(0, coalesce(timestampdiff(MICROSECOND, min(created_at), {now}) DIV 1000, 0)) FROM {held} WHERE state = 'retry'

-- Uses the index of rows that block their keys: many rows may be parked, but usually only a few block their keys.
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

-- The database's time, the age in milliseconds of the oldest done row, and the time zone.
-- name: clock
SELECT CAST({now} AS CHAR), timestampdiff(MICROSECOND, (SELECT min(finished_at) FROM {done}), {now}) DIV 1000, IF(@@global.time_zone = 'SYSTEM', @@system_time_zone, @@global.time_zone)

-- name: lanes leased
SELECT count(*) FROM {lanes} WHERE owner IS NOT NULL AND `until` >= {now}

-- ---------------------------------------------------------------------------------
-- Open transactions, from InnoDB's list. To read the list, a user needs the privilege PROCESS.
--
-- InnoDB gives a transaction a number when it first writes, or when it locks a row for writing. So "take a number" locks
-- a row that doesn't exist, which at READ COMMITTED gives the transaction a number and locks nothing. An INSERT takes
-- its id just before its transaction gets its number.
--
-- InnoDB refreshes the list only if no session has read it for a tenth of a second, so the list may be old. It is usable
-- only if it contains the transaction that reads it, with the :token of the current statement. InnoDB also cuts the list
-- off at 16 MB. An entry takes about a kilobyte, and the entry of a transaction that waits for locks may take more. So a
-- list with 5,000 transactions, or with 1,000 transactions that wait, isn't usable.
--
-- In the list, transactions without a number have 0 or a number of 2^48 and above. The statement leaves out transactions
-- that have a number, but have written nothing and run no statement, because they will take their ids later. So a
-- program that only holds row locks for a long time delays nothing.

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

-- The number of transactions that InnoDB has yet to purge.
-- name: history length
SELECT `COUNT` FROM information_schema.INNODB_METRICS WHERE NAME = 'trx_rseg_history_len'

-- The start, in UTC, of the oldest transaction that has written, if it has been open for more than 10 minutes. The times
-- in the list are in the server's time zone, whatever the session's time zone is.
-- name: oldest transaction
SELECT CONVERT_TZ(MIN(trx_started), 'SYSTEM', '+00:00') FROM information_schema.innodb_trx WHERE trx_rows_modified > 0 HAVING MIN(trx_started) < CONVERT_TZ(UTC_TIMESTAMP(), '+00:00', 'SYSTEM') - INTERVAL 10 MINUTE

-- Lanes with rows at or below their marks. A relay finds such rows only when it sweeps the lane, that is, when it
-- searches the ids below the mark again.
-- name: lanes with rows below their marks
SELECT l.lane FROM {lanes} AS l WHERE (SELECT t.id FROM {hot} AS t FORCE INDEX (PRIMARY) WHERE t.lane = l.lane ORDER BY t.lane, t.id LIMIT 1) <= CAST(JSON_EXTRACT(NULLIF(l.marks, ''), '$.main') AS SIGNED) ORDER BY l.lane

-- ---------------------------------------------------------------------------------
-- Replays. The setting replay.NAME has the state of a replay, as JSON.

-- name: replays
SELECT substr(name, 8), value FROM {settings} WHERE name LIKE 'replay.%' ORDER BY name

-- name: last delivered
SELECT COALESCE(MAX(id), 0) FROM {done}

-- Arguments: name, text.
-- name: begin replay
INSERT IGNORE INTO {settings} (name, value) VALUES (CONCAT('replay.', ?), ?)

-- Arguments: new text, name, previous text. It changes nothing if the stored text isn't the previous text.
-- name: change replay
UPDATE {settings} SET value = ? WHERE name = CONVERT(CONCAT('replay.', ?) USING ascii) AND value = ?

-- ---------------------------------------------------------------------------------
-- The controls that operators have set, and the log of the operators' actions.

-- name: controls in force
SELECT kind, name, COALESCE(rate, 0), CAST(ends_at AS CHAR), made_by, CAST(made_at AS CHAR), reason FROM {controls} WHERE ends_at IS NULL OR ends_at > {now} ORDER BY kind, name

-- name: forget ended controls
DELETE FROM {controls} WHERE ends_at <= {now}

-- name: lift control
DELETE FROM {controls} WHERE kind = ? AND name = ?

-- Arguments: kind, name, rate, duration in microseconds (NULL: no end), author, reason.
-- name: set control
INSERT INTO {controls} (kind, name, rate, ends_at, made_by, made_at, reason)
VALUES (?, ?, ?, {now} + INTERVAL ? MICROSECOND, ?, {now}, ?)

-- Arguments: id, author, action, target, reason.
-- name: begin action
INSERT INTO {actions} (id, made_by, action, target, reason, made_at) VALUES (?, ?, ?, ?, ?, {now})

-- Arguments: number of changed messages, id.
-- name: end action
UPDATE {actions} SET changed = ? WHERE id = ?

-- name: renew statistics
ANALYZE TABLE {hot}, {held}, {done}, {lanes}

-- name: delete old done
DELETE FROM {done} WHERE finished_at < UTC_TIMESTAMP() - INTERVAL 1 DAY ORDER BY finished_at LIMIT 10000

-- name: log of actions
SELECT id, CAST(made_at AS CHAR), made_by, action, target, reason, COALESCE(changed, -1) FROM {actions} ORDER BY made_at DESC, id DESC
