-- The fixed statements of a relay on SQLite 3.35 and later. The Go files in this directory build the statements that
-- depend on the request. A name in braces stands for a table, for an earlier text with this name, or for a text that
-- New in sqlite.go adds. {hot} is the table outbox; {held}, {done}, {ids}, {lanes}, {relays}, {settings}, {controls}
-- and {actions} are the tables outbox_held, outbox_done and so on. A list is one argument, in JSON.

-- ---------------------------------------------------------------------------------
-- Parts of statements.

-- name: now
strftime('%Y-%m-%d %H:%M:%f', 'now')

-- The current time plus the argument, such as '+1.500 seconds'.
-- name: from now
strftime('%Y-%m-%d %H:%M:%f', 'now', ?)

-- The highest assigned id.
-- name: given
coalesce((SELECT seq FROM {sequences} WHERE name = '{name}'), 0)

-- The time when a held row is due, as a text for comparisons. If its available_at is NULL, this is a time in the year
-- 1.
-- name: due at
coalesce(t.available_at, '0001-01-01 00:00:00.000')

-- name: is due
t.state <> 'error' AND {due at} <= {now}

-- The condition that a row of the table outbox could be delivered now; the next text is the condition for the held
-- table.
-- name: waiting
coalesce(available_at <= {now}, 1) AND coalesce(claimed_until <= {now}, 1)

-- name: held and waiting
state = 'scheduled' AND coalesce(available_at <= {now}, 1)

-- name: payload
CAST(coalesce(t.payload, t.payload_text) AS BLOB)

-- The columns of a row t.
-- name: row
t.id, t.lane, t.message_id, t.topic, coalesce(t.message_key, ''), t.sinks,
    {payload}, coalesce(t.headers, ''),
    t.available_at, t.expires_at, t.priority, t.attempts, t.crashes, t.created_at

-- The flags are a sum: 1 if the row has a payload, 2 if it is due later, 4 if it waits for its next attempt, and 16
-- times the column `holds`.
-- name: has payload
(t.payload IS NOT NULL OR t.payload_text IS NOT NULL)

-- Computes the current time only if the row has an available_at.
-- name: later
CASE WHEN t.available_at IS NULL THEN 0 ELSE 2 * (t.available_at > {now}) END

-- name: hot row
{row},
    {has payload} + {later}

-- name: held row
{row},
    {has payload} + 4 * (t.state = 'retry') + 16 * t.holds

-- The state of a row t, as the view of all messages shows it.
-- name: hot state
CASE WHEN t.claimed_until > {now} THEN 'claimed' WHEN t.available_at > {now} THEN 'scheduled' ELSE 'pending' END

-- name: held state
CASE WHEN t.state = 'scheduled' AND (t.available_at IS NULL OR t.available_at <= {now}) THEN 'pending' ELSE t.state END

-- The columns that a list selects from each table.
-- name: hot as listed
{row},
    {has payload} + {later}, {hot state}, coalesce(t.last_error, ''), '', coalesce(t.claimed_by, ''), NULL

-- name: held as listed
{row},
    {has payload} + {later} + 4 * (t.state = 'retry') + 16 * t.holds, {held state}, coalesce(t.last_error, ''), '', '', NULL

-- name: done as listed
{row},
    {has payload} + {later}, 'done', coalesce(t.last_error, ''), coalesce(t.receipt, ''), '', t.finished_at

-- Placeholders for the columns of a message, used in the first row of a page, which has no message.
-- name: no row
0, 0, '', '', '', '', NULL, '', NULL, NULL, 0, 0, 0, NULL, 0

-- The condition of statements that do nothing unless the table is claimed by rows. It needs no lock, because only one
-- transaction at a time can write.
-- name: by rows
EXISTS (SELECT 1 FROM {settings} WHERE name = 'claim' AND value = 'rows')

-- ---------------------------------------------------------------------------------
-- Relays and the claim mode.

-- Takes the write lock. A transaction begins with this statement, because a transaction that reads before it writes fails
-- if another transaction has written in between.
-- name: begin writing
DELETE FROM {lanes} WHERE lane < 0

-- name: claim mode
SELECT value FROM {settings} WHERE name = 'claim'

-- Reads the claim mode before changing it. The transaction already has the write lock, so no other transaction can change
-- the mode.
-- name: lock claim mode
{claim mode}

-- name: set claim mode
INSERT INTO {settings} (name, value) VALUES ('claim', ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value

-- name: relays that claim another way
SELECT name FROM {relays} WHERE until >= {now} AND claim <> ? ORDER BY name

-- name: forget leases
UPDATE {lanes} SET owner = NULL, until = NULL, fence = fence + 1, marks = NULL, journal = NULL, crashes = 0

-- name: forget claims
UPDATE {hot} SET claimed_by = NULL, claim_token = NULL, claimed_until = NULL WHERE claimed_until IS NOT NULL

-- name: forget holds
UPDATE {held} SET state = 'error', holds = 0 WHERE holds > 0

-- Arguments: name, host, version, claim mode, seconds until the row expires, setup, claim mode.
-- name: heartbeat
INSERT INTO {relays} AS r (name, host, version, claim, since, last_heartbeat, until, setup)
SELECT ?, ?, ?, ?, {now}, {now}, {from now}, ?
WHERE NOT EXISTS (SELECT 1 FROM {settings} WHERE name = 'claim' AND value <> ?)
ON CONFLICT (name) DO UPDATE SET host = excluded.host, version = excluded.version, claim = excluded.claim,
    since = CASE WHEN r.until < {now} THEN excluded.since ELSE r.since END, last_heartbeat = excluded.last_heartbeat, until = excluded.until, setup = excluded.setup
RETURNING name, 0, ''

-- name: members
SELECT name, setup, {now} FROM {relays} WHERE until >= {now} ORDER BY name

-- The next two statements end the leases and the claims of a dead relay, as if they had expired. The fences grow, so
-- that the relay can't renew its leases if it is alive after all.
-- name: end leases
UPDATE {lanes} SET until = strftime('%Y-%m-%d %H:%M:%f', 'now', '-1 second'), fence = fence + 1 WHERE owner = ?

-- name: end claims
UPDATE {hot} SET claimed_until = strftime('%Y-%m-%d %H:%M:%f', 'now', '-1 second') WHERE claimed_until >= {now} AND claimed_by = ?

-- name: deregister
DELETE FROM {relays} WHERE name = ?

-- name: purge relays
DELETE FROM {relays} WHERE until < strftime('%Y-%m-%d %H:%M:%f', 'now', '-1 day')

-- ---------------------------------------------------------------------------------
-- Lanes. Only one transaction at a time can write, so a statement that checks the fence and then writes needs no
-- further lock.

-- Arguments: relay, the number that is added to the fences, seconds of the lease, the maximum number of lanes.
-- name: acquire
UPDATE {lanes} SET owner = ?, fence = fence + ?, until = {from now},
    crashes = CASE WHEN owner IS NULL THEN crashes ELSE crashes + 1 END
WHERE lane IN (SELECT lane FROM {lanes} WHERE owner IS NULL OR until < {now} ORDER BY random() LIMIT ?)
RETURNING lane, fence, coalesce(marks, ''), crashes, coalesce(journal, ''), 0

-- Arguments: a list of lane, fence, marks, calm and journal; relay.
-- name: leases
FROM (SELECT json_extract(j.value, '$[0]') AS lane, json_extract(j.value, '$[1]') AS fence, json_extract(j.value, '$[2]') AS marks, json_extract(j.value, '$[3]') AS calm, json_extract(j.value, '$[4]') AS journal FROM json_each(?) AS j) AS g
WHERE l.lane = g.lane AND l.fence = g.fence AND l.owner = ?

-- Arguments: seconds of the lease; then the arguments of "leases".
-- name: renew
UPDATE {lanes} AS l
SET until = {from now}, marks = g.marks,
    crashes = CASE WHEN g.calm THEN 0 ELSE l.crashes END, journal = CASE WHEN g.calm THEN NULL ELSE l.journal END
{leases}
RETURNING lane, fence, 0

-- name: release
UPDATE {lanes} AS l
SET owner = NULL, until = NULL, marks = g.marks, journal = NULL, crashes = 0
{leases}
RETURNING lane, fence, 0

-- name: write journal
UPDATE {lanes} AS l SET journal = g.journal
{leases}
RETURNING lane, fence, 0

-- name: journals
SELECT lane, fence, journal FROM {lanes} WHERE journal IS NOT NULL

-- name: marks
SELECT lane, marks FROM {lanes} WHERE marks IS NOT NULL ORDER BY lane

-- ---------------------------------------------------------------------------------
-- Reading. sqlite.go builds the reads of pages.

-- name: last id
SELECT {given}

-- Selects the first row of outbox or outbox_done whose id is at least the given one, and the row's created_at in Unix
-- milliseconds. Arguments: the id, twice.
-- name: written from
SELECT id, CAST(round((julianday(created_at) - 2440587.5) * 86400000) AS INTEGER) FROM (
    SELECT id, created_at FROM (SELECT id, created_at FROM {hot} NOT INDEXED WHERE id >= ? ORDER BY id LIMIT 1)
    UNION ALL SELECT id, created_at FROM (SELECT id, created_at FROM {done} WHERE id >= ? ORDER BY id LIMIT 1)
) ORDER BY id LIMIT 1

-- name: first line
SELECT {given} || ' 0', {no row}

-- Argument: a list of lane and id.
-- name: pick
SELECT {hot row}
FROM json_each(?) AS j CROSS JOIN {hot} AS t NOT INDEXED ON t.id = json_extract(j.value, '$[1]') AND t.lane = json_extract(j.value, '$[0]')

-- name: pick held
SELECT {held row}
FROM json_each(?) AS j CROSS JOIN {held} AS t NOT INDEXED ON t.id = json_extract(j.value, '$[1]') AND t.lane = json_extract(j.value, '$[0]') AND t.state <> 'error'

-- name: attempt logs
SELECT t.id, t.lane, t.message_id, t.sinks, t.attempt_log
FROM json_each(?) AS j CROSS JOIN {hot} AS t NOT INDEXED ON t.id = json_extract(j.value, '$[1]') AND t.lane = json_extract(j.value, '$[0]') AND t.attempt_log IS NOT NULL

-- name: attempt logs of held rows
SELECT t.id, t.lane, t.message_id, t.sinks, t.attempt_log
FROM json_each(?) AS j CROSS JOIN {held} AS t NOT INDEXED ON t.id = json_extract(j.value, '$[1]') AND t.lane = json_extract(j.value, '$[0]') AND t.attempt_log IS NOT NULL

-- Arguments: a list of lanes, the time and the id after which rows are selected, the maximum number of rows.
-- name: due
SELECT {held row} FROM {held} AS t
WHERE {is due} AND t.lane IN (SELECT value FROM json_each(?))
    AND ({due at}, t.id) > (?, ?)
ORDER BY {due at}, t.id LIMIT ?

-- Arguments: a list of lanes, the maximum number of keys.
-- name: blocked keys
SELECT lane, message_key, topic, sinks, id FROM {held}
WHERE (state = 'retry' OR holds > 0) AND message_key <> '' AND lane IN (SELECT value FROM json_each(?))
LIMIT ?

-- Argument: a list of lane and key.
-- name: blocked among
SELECT t.lane, t.message_key, t.topic, t.sinks, min(t.id)
FROM json_each(?) AS j CROSS JOIN {held} AS t INDEXED BY {held_retry}
WHERE (t.state = 'retry' OR t.holds > 0) AND t.lane = json_extract(j.value, '$[0]') AND t.message_key = json_extract(j.value, '$[1]')
GROUP BY t.lane, t.message_key, t.topic, t.sinks

-- The rows that are due, up to a limit for each table: held rows, which an index on due times finds, and rows of outbox
-- that are neither claimed nor scheduled. Arguments: the maximum number of held rows, the maximum number of rows of
-- outbox.
-- name: remaining
SELECT * FROM (SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.sinks, 1 FROM {held} AS t WHERE {is due} LIMIT ?)
UNION ALL SELECT * FROM (SELECT id, lane, message_id, topic, message_key, sinks, 0 FROM {hot} WHERE {waiting} LIMIT ?)

-- ---------------------------------------------------------------------------------
-- Settling. settle.go builds the statements that change rows.

-- The given leases that are still valid. Arguments: a list of lane and fence, relay.
-- name: leases that hold
SELECT 'lane', l.lane, l.fence FROM json_each(?) AS j CROSS JOIN {lanes} AS l ON l.lane = json_extract(j.value, '$[0]') AND l.fence = json_extract(j.value, '$[1]') AND l.owner = ?

-- Arguments: seconds that rows are kept, negative; the maximum number of rows.
-- name: purge
DELETE FROM {done} WHERE rowid IN (SELECT rowid FROM {done} WHERE finished_at < {from now} ORDER BY finished_at LIMIT ?)

-- Arguments: seconds that ids are kept, negative; the maximum number of ids.
-- name: purge ids
DELETE FROM {ids} WHERE message_id IN (SELECT i.message_id FROM {ids} AS i
    WHERE i.written_at < {from now}
        AND i.written_at < coalesce((SELECT strftime('%Y-%m-%d %H:%M:%f', h.created_at, '-10 minutes') FROM {hot} AS h ORDER BY h.id LIMIT 1), {now})
        AND NOT EXISTS (SELECT 1 FROM {held} AS h WHERE h.message_id = i.message_id)
    ORDER BY i.written_at LIMIT ?)

-- ---------------------------------------------------------------------------------
-- Claiming by rows. sqlite.go builds the claim.

-- A relay may run this statement before a claim, and then claims only if the statement returns a row. Unlike a claim,
-- the statement doesn't wait for a transaction that writes.
-- name: a free row
SELECT h.id FROM {hot} AS h WHERE h.claimed_until IS NULL ORDER BY h.id LIMIT 1

-- name: an ended claim
SELECT id FROM (SELECT id FROM {hot} WHERE claimed_until < {now} ORDER BY claimed_until LIMIT 1) AS c
UNION ALL SELECT id FROM (SELECT t.id FROM {held} AS t WHERE {is due} ORDER BY {due at}, t.id LIMIT 1) AS h

-- Arguments: seconds of the claim, token, a list of ids.
-- name: extend
UPDATE {hot} SET claimed_until = {from now} WHERE {by rows} AND claim_token = ? AND id IN (SELECT value FROM json_each(?)) RETURNING id

-- A session that ignores the constraints may have written any value to attempts or crashes. The UPDATE checks the
-- constraints, so it brings both values into their range. Argument: the maximum number of rows.
-- name: free ended claims
UPDATE {hot} SET claimed_by = NULL, claim_token = NULL, claimed_until = NULL,
    attempts = max(0, min(CAST(attempts AS INTEGER), 2000000000)), crashes = max(0, min(CAST(crashes AS INTEGER), 2000000000)) + 1
WHERE id IN (SELECT id FROM {hot} WHERE {by rows} AND claimed_until < {now} ORDER BY claimed_until LIMIT ?)

-- The held rows that are due and can move to the table outbox. If several held rows share a lane and id, only one of
-- them moves at a time. A held row stays while a row of outbox has the same lane and id, which is possible after the id
-- sequence was reset. The conditions compare a COUNT with 0 instead of using NOT EXISTS, so that every planner runs the
-- subquery for each due row and doesn't read whole tables.
-- name: coming back
FROM {held} AS t WHERE {by rows} AND {is due}
    AND (SELECT COUNT(*) FROM {hot} h WHERE h.lane = t.lane AND h.id = t.id) = 0 AND (SELECT COUNT(*) FROM {held} o WHERE o.lane = t.lane AND o.id = t.id AND (o.message_id, o.sinks) < (t.message_id, t.sinks) AND o.state <> 'error' AND coalesce(o.available_at, '0001-01-01 00:00:00.000') <= {now}) = 0 ORDER BY {due at}, t.id

-- Inserts the rows into the table outbox. "remove what is back" then deletes only the inserted rows from the held
-- table, because other held rows may have the same id. Argument: the maximum number of rows.
-- name: bring back
INSERT INTO {hot} (id, message_id, topic, message_key, payload, payload_text, headers, priority, attempts, crashes, available_at, last_error, attempt_log, created_at, expires_at, sinks)
SELECT t.id, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.attempts, t.crashes, t.available_at, t.last_error, t.attempt_log, t.created_at, t.expires_at, t.sinks {coming back} LIMIT ?

-- Parks the first due row if the constraints of the table outbox reject it. A session that ignored the constraints may
-- have written such a row. Argument: the error.
-- name: refuse the first
UPDATE {held} SET state = 'error', last_error = ? WHERE (id, message_id, sinks) IN (SELECT t.id, t.message_id, t.sinks {coming back} LIMIT 1)

-- Argument: the maximum number of rows.
-- name: remove what is back
DELETE FROM {held} WHERE (id, message_id, sinks) IN (
    SELECT t.id, t.message_id, t.sinks FROM {held} AS t WHERE {is due} AND EXISTS (SELECT 1 FROM {hot} AS h WHERE h.id = t.id AND h.message_id = t.message_id AND h.sinks = t.sinks) ORDER BY {due at}, t.id LIMIT ?)

-- ---------------------------------------------------------------------------------
-- Operating. operate.go builds the lists, and the changes that operators make to messages.

-- Counts rows of each kind, up to a maximum: rows of outbox, held rows that aren't parked, parked rows and done rows.
-- If outbox or the done table has more rows, the store also uses "estimates". Arguments: the maximum, four times.
-- name: counts
SELECT 'hot', state, count(*) FROM (
    SELECT CASE WHEN claimed_until > {now} THEN 'claimed' WHEN available_at > {now} THEN 'scheduled' ELSE 'pending' END AS state FROM {hot} LIMIT ?
) GROUP BY state
UNION ALL SELECT 'held', state, count(*) FROM (
    SELECT CASE WHEN {held and waiting} THEN 'pending' ELSE state END AS state FROM {held} WHERE state <> 'error' LIMIT ?
) GROUP BY state
UNION ALL SELECT 'error', 'error', count(*) FROM (SELECT 1 FROM {held} WHERE state = 'error' LIMIT ?)
UNION ALL SELECT 'done', 'done', count(*) FROM (SELECT 1 FROM {done} LIMIT ?)

-- name: count claimed
SELECT count(*) FROM {hot} WHERE claimed_until > {now}

-- Counts all ids between the lowest and the highest one, including gaps. A separate subquery for each of these two ids
-- makes SQLite use an index.
-- name: estimates
SELECT 'hot', coalesce((SELECT max(id) FROM {hot}) - (SELECT min(id) FROM {hot}) + 1, 0)
UNION ALL SELECT 'done', coalesce((SELECT max(id) FROM {done}) - (SELECT min(id) FROM {done}) + 1, 0)

-- The age in milliseconds of the oldest waiting row, counted from the time when the row could first be delivered. The
-- statement examines only the first rows of the table outbox, so its duration doesn't depend on the table's size.
-- Argument: the maximum number of these rows.
-- name: oldest
SELECT max(0, CAST(round(coalesce((julianday('now') - julianday(min(since))) * 86400000, 0)) AS INTEGER)) FROM (
    SELECT max(created_at, coalesce(available_at, created_at)) AS since FROM (
        SELECT h.created_at, h.available_at, h.claimed_until FROM {hot} AS h ORDER BY h.id LIMIT ?)
    WHERE {waiting}
    UNION ALL SELECT max(t.created_at, coalesce(t.available_at, t.created_at)) FROM {held} AS t
    WHERE {is due} AND t.state = 'scheduled')

-- The age of a retry is the time since its message was written.
-- name: oldest retry
SELECT max(0, CAST(round(coalesce((julianday('now') - julianday(min(created_at))) * 86400000, 0)) AS INTEGER)) FROM {held} WHERE state = 'retry'

-- Uses the index of rows that block their keys: many rows may be parked, but usually only a few block their keys.
-- name: held parked
SELECT count(*), CAST(round(coalesce((julianday('now') - julianday(min(available_at))) * 86400000, 0)) AS INTEGER) FROM {held} INDEXED BY {held_retry} WHERE (state = 'retry' OR holds > 0) AND state = 'error' AND holds = 1

-- Argument: the maximum number of rows.
-- name: topics
SELECT topic, count(*) FROM (
    SELECT topic FROM {hot} WHERE {waiting}
    UNION ALL SELECT topic FROM {held} AS t WHERE {is due} AND t.state = 'scheduled'
    LIMIT ?) GROUP BY topic

-- name: list relays
SELECT r.name, r.host, r.version, r.claim, r.since, r.last_heartbeat, r.until >= {now},
    (SELECT count(*) FROM {lanes} AS l WHERE l.owner = r.name AND l.until >= {now}), r.setup
FROM {relays} AS r ORDER BY r.name

-- The database's time, the age in milliseconds of the oldest done row, and the time zone.
-- name: clock
SELECT {now}, CAST(round((julianday('now') - julianday((SELECT min(finished_at) FROM {done}))) * 86400000) AS INTEGER), ''

-- name: lanes leased
SELECT count(*) FROM {lanes} WHERE owner IS NOT NULL AND until >= {now}

-- ---------------------------------------------------------------------------------
-- Replays. The setting replay.NAME has the state of a replay, as JSON.

-- name: replays
SELECT substr(name, 8), value FROM {settings} WHERE name LIKE 'replay.%' ORDER BY name

-- name: last delivered
SELECT coalesce(max(id), 0) FROM {done}

-- Arguments: name, text.
-- name: begin replay
INSERT INTO {settings} (name, value) VALUES ('replay.' || ?, ?) ON CONFLICT (name) DO NOTHING

-- Arguments: new text, name, previous text. It changes nothing if the stored text isn't the previous text.
-- name: change replay
UPDATE {settings} SET value = ? WHERE name = 'replay.' || ? AND value = ?

-- ---------------------------------------------------------------------------------
-- The controls that operators have set, and the log of the operators' actions.

-- name: controls in force
SELECT kind, name, coalesce(rate, 0), ends_at, made_by, made_at, reason FROM {controls} WHERE ends_at IS NULL OR ends_at > {now} ORDER BY kind, name

-- name: forget ended controls
DELETE FROM {controls} WHERE ends_at <= {now}

-- name: lift control
DELETE FROM {controls} WHERE kind = ? AND name = ?

-- Arguments: kind, name, rate, duration in microseconds (NULL: no end), author, reason.
-- name: set control
INSERT INTO {controls} (kind, name, rate, ends_at, made_by, made_at, reason)
VALUES (?, ?, ?, strftime('%Y-%m-%d %H:%M:%f', 'now', (? / 1000000.0) || ' seconds'), ?, {now}, ?)

-- Arguments: id, author, action, target, reason.
-- name: begin action
INSERT INTO {actions} (id, made_by, action, target, reason, made_at) VALUES (?, ?, ?, ?, ?, {now})

-- Arguments: number of changed messages, id.
-- name: end action
UPDATE {actions} SET changed = ? WHERE id = ?

-- name: renew statistics
ANALYZE

-- name: delete old done
DELETE FROM {done} WHERE rowid IN (SELECT rowid FROM {done} WHERE finished_at < datetime('now', '-1 day') LIMIT 10000)

-- name: log of actions
SELECT id, made_at, made_by, action, target, reason, coalesce(changed, -1) FROM {actions} ORDER BY made_at DESC, id DESC
