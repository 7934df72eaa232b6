-- The fixed statements of a relay on Oracle Database 12.2 and later. The Go files in this directory build the
-- statements that depend on the request.
--
-- A name in braces stands for a table, for an earlier text with this name, or for one of the texts below (see New in
-- oracle.go). {hot} is the table outbox; {held}, {done}, {ids}, {lanes}, {relays}, {settings}, {controls} and {actions}
-- are the tables outbox_held, outbox_done and so on.
--
--   locks       the table whose rows serve as locks; see outbox/dialect/ORACLE.md. A lane has the rows 8 * lane to
--               8 * lane + 7. A settle locks one of them, a takeover locks all. The rows from 1000 on are locks of keys
--   index …     the name of an index
--   owner       the owner of the tables, as an expression to compare with the catalog
--   trigger     the name of the trigger, as the catalog has it
--
-- Drivers bind arguments by position, so in each statement the numbers of the arguments (:1, :2, …) appear once and in
-- ascending order.

-- ---------------------------------------------------------------------------------
-- Parts of statements.

-- name: now
SYS_EXTRACT_UTC(SYSTIMESTAMP)

-- Identifies the database and its container. The text has no spaces, and every user may see it.
-- name: server
SYS_CONTEXT('USERENV', 'DB_UNIQUE_NAME') || '/' || SYS_CONTEXT('USERENV', 'CON_NAME')

-- The highest id of the rows that exist. The sequence shows only the last id that it has reserved, which may be higher
-- than the last assigned id.
-- name: given
GREATEST(NVL((SELECT MAX(id) FROM {hot}), 0), NVL((SELECT MAX(id) FROM {held}), 0), NVL((SELECT MAX(id) FROM {done}), 0))

-- The beginning of a statement that selects payloads: a function that converts a CLOB to a BLOB, which SQL alone can't do.
-- name: as bytes
WITH FUNCTION as_bytes(text IN CLOB) RETURN BLOB IS
    bytes BLOB;
    bytes_at INTEGER := 1;
    text_at INTEGER := 1;
    lang INTEGER := DBMS_LOB.DEFAULT_LANG_CTX;
    warning INTEGER;
BEGIN
    DBMS_LOB.CREATETEMPORARY(bytes, TRUE, DBMS_LOB.SESSION);
    IF DBMS_LOB.GETLENGTH(text) > 0 THEN
        DBMS_LOB.CONVERTTOBLOB(bytes, text, DBMS_LOB.LOBMAXSIZE, bytes_at, text_at, NLS_CHARSET_ID('AL32UTF8'), lang, warning);
    END IF;
    RETURN bytes;
END;

-- The columns of a row t. Times are in UTC, and are selected as texts: a TIMESTAMP has no time zone, and drivers disagree
-- about which one they assume.
-- name: row
t.id, t.lane, t.message_id, t.topic, t.message_key, t.sinks,
    CASE WHEN t.payload_text IS NULL THEN t.payload ELSE as_bytes(t.payload_text) END, t.headers,
    TO_CHAR(t.available_at, 'YYYY-MM-DD HH24:MI:SS.FF6'), TO_CHAR(t.expires_at, 'YYYY-MM-DD HH24:MI:SS.FF6'), t.priority, t.attempts, t.crashes, TO_CHAR(t.created_at, 'YYYY-MM-DD HH24:MI:SS.FF6')

-- The flags are a sum: 1 if the row has a payload, 2 if it is due later, 4 if it waits for its next attempt, 16 times the
-- column holds, and 65536 times the size of the payload, because a driver may cut the payload off.
-- name: has payload
CASE WHEN t.payload IS NULL AND t.payload_text IS NULL THEN 0 ELSE 1 END +
    65536 * CASE WHEN t.payload_text IS NULL THEN NVL(DBMS_LOB.GETLENGTH(t.payload), 0) ELSE DBMS_LOB.GETLENGTH(as_bytes(t.payload_text)) END

-- name: later
CASE WHEN t.available_at > {now} THEN 2 ELSE 0 END

-- name: retrying
CASE WHEN t.state = 'retry' THEN 4 ELSE 0 END + 16 * t.holds

-- name: hot row
{row},
    {has payload} + {later}

-- name: held row
{row},
    {has payload} + {retrying}

-- The columns that a list returns for a row t of the view of all messages.
-- name: listed row
{row},
    {has payload} + {later} + {retrying}, t.state, t.last_error, t.receipt, t.claimed_by, TO_CHAR(t.finished_at, 'YYYY-MM-DD HH24:MI:SS.FF6')

-- Placeholders for the columns of a message, used in the first row of a page, which has no message.
-- name: no row
0 AS id, 0 AS lane, NULL AS message_id, NULL AS topic, NULL AS message_key, NULL AS sinks, EMPTY_BLOB() AS payload, TO_CLOB(NULL) AS payload_text, TO_CLOB(NULL) AS headers,
    CAST(NULL AS TIMESTAMP(6)) AS available_at, CAST(NULL AS TIMESTAMP(6)) AS expires_at, 0 AS priority, 0 AS attempts, 0 AS crashes, CAST(NULL AS TIMESTAMP(6)) AS created_at

-- name: size
NVL(DBMS_LOB.GETLENGTH(t.payload), 0) + NVL(DBMS_LOB.GETLENGTH(t.payload_text), 0)

-- A block writes its transaction's number into the rows that it changes, and the next statement finds the rows by this
-- number. The argument TRUE begins the transaction, because otherwise the transaction would have no number before its
-- first change.
-- name: stamp
this_transaction VARCHAR2(64) := DBMS_TRANSACTION.LOCAL_TRANSACTION_ID(TRUE);

-- name: stamped
(SELECT DBMS_TRANSACTION.LOCAL_TRANSACTION_ID FROM dual)

-- True while the table is claimed by rows.
-- name: by rows
(SELECT value FROM {settings} WHERE name = 'claim') = 'rows'

-- The columns of the indexes of free rows. The dialect creates these indexes.
-- name: free id
CASE WHEN claimed_until IS NULL THEN id END

-- name: free priority
CASE WHEN claimed_until IS NULL THEN -priority END

-- The columns of the index of held rows t that aren't parked. If the available_at of a row is NULL, "due at" is a time
-- in the year 1.
-- name: due at
CASE WHEN t.state <> 'error' THEN NVL(t.available_at, TIMESTAMP '0001-01-01 00:00:00') END

-- name: due id
CASE WHEN t.state <> 'error' THEN t.id END

-- The condition that the available_at of a row, if it has one, isn't in the future.
-- name: on time
(available_at IS NULL OR available_at <= {now})

-- ---------------------------------------------------------------------------------
-- Relays and the claim mode.

-- The first statement of a transaction that changes several tables, so that only one such transaction can run at a time.
-- The wait for this lock has no limit, because no transaction that holds it waits for a lock of an application.
-- name: begin changing
UPDATE {settings} SET value = value WHERE name = 'schema'

-- name: claim mode
SELECT value FROM {settings} WHERE name = 'claim'

-- name: lock claim mode
SELECT value FROM {settings} WHERE name = 'claim' FOR UPDATE

-- name: set claim mode
MERGE INTO {settings} s USING (SELECT 'claim' AS name, :1 AS value FROM dual) g ON (s.name = g.name)
WHEN MATCHED THEN UPDATE SET s.value = g.value
WHEN NOT MATCHED THEN INSERT (name, value) VALUES (g.name, g.value)

-- name: relays that claim another way
SELECT name FROM {relays} WHERE until >= {now} AND claim <> :1 ORDER BY name

-- Locks the rows of all lanes in the table of locks. So the statement waits for running settles and claims, because
-- each of them has locked some of these rows.
-- name: lock lanes
BEGIN
    FOR locked IN (
    SELECT lock_id FROM {locks} WHERE lock_id < 1000 ORDER BY lock_id FOR UPDATE) LOOP NULL; END LOOP;
END;

-- name: forget leases
UPDATE {lanes} SET owner = NULL, until = NULL, fence = fence + 1, marks = NULL, journal = NULL, crashes = 0

-- name: forget claims
UPDATE {hot} SET claimed_by = NULL, claim_token = NULL, claimed_until = NULL, claim_stamp = NULL WHERE claimed_until IS NOT NULL

-- name: forget holds
UPDATE {held} SET state = 'error', holds = 0 WHERE holds > 0

-- Locks the claim mode until the heartbeat has committed, so a change of the mode can't run concurrently. A later change
-- sees this relay. After an earlier change, the relay isn't stored.
-- name: share claim mode
BEGIN
    FOR locked IN (
    {lock claim mode}) LOOP NULL; END LOOP;
END;

-- Arguments: :1 name, :2 host, :3 version, :4 and :7 claim mode, :5 microseconds until the row expires, :6 setup.
-- name: heartbeat
MERGE INTO {relays} r USING (
    SELECT :1 AS name, :2 AS host, :3 AS version, :4 AS claim,
        {now} AS beaten, {now} + NUMTODSINTERVAL(:5 / 1000000, 'SECOND') AS until, :6 AS setup
    FROM dual WHERE NOT EXISTS (SELECT 1 FROM {settings} WHERE name = 'claim' AND value <> :7)) g ON (r.name = g.name)
WHEN MATCHED THEN UPDATE SET r.host = g.host, r.version = g.version, r.claim = g.claim,
    r.since = CASE WHEN r.until < g.beaten THEN g.beaten ELSE r.since END, r.last_heartbeat = g.beaten, r.until = g.until, r.setup = g.setup
WHEN NOT MATCHED THEN INSERT (name, host, version, claim, since, last_heartbeat, until, setup)
    VALUES (g.name, g.host, g.version, g.claim, g.beaten, g.beaten, g.until, g.setup)

-- Arguments: :1 name, :2 claim mode.
-- name: heartbeat was stored
SELECT name, 0, {server} FROM {relays} WHERE name = :1 AND NOT EXISTS (SELECT 1 FROM {settings} WHERE name = 'claim' AND value <> :2)

-- name: members
SELECT name, setup, TO_CHAR({now}, 'YYYY-MM-DD HH24:MI:SS.FF6') FROM {relays} WHERE until >= {now} ORDER BY name

-- The next two statements end the leases and the claims of a dead relay, as if they had expired. The fences grow, so
-- that the relay can't renew its leases if it is alive after all.
-- name: end leases
UPDATE {lanes} SET until = {now} - INTERVAL '1' SECOND, fence = fence + 1 WHERE owner = :1

-- name: end claims
UPDATE {hot} SET claimed_until = {now} - INTERVAL '1' SECOND WHERE claimed_until >= {now} AND claimed_by = :1

-- name: deregister
DELETE FROM {relays} WHERE name = :1

-- name: purge relays
DELETE FROM {relays} WHERE until < {now} - INTERVAL '1' DAY

-- ---------------------------------------------------------------------------------
-- Lanes. oracle.go builds the statements that change leases.

-- Takes all eight locks of a free lane. It skips the lane if a settle or another takeover has locked one of them. The
-- UPDATE then checks again that the lane is free. The order of the lanes differs at each call, so that relays rarely
-- try the same lane. Arguments: :1 the maximum number of lanes, :2 and :3 relay, :4 the number that is added to the
-- fences, :5 microseconds of the lease.
-- name: acquire
DECLARE
    {stamp}
    wanted NUMBER := :1;
    TYPE numbers IS TABLE OF NUMBER INDEX BY PLS_INTEGER;
    locked numbers;
    taken EXCEPTION;
    PRAGMA EXCEPTION_INIT(taken, -54);
BEGIN
    FOR candidate IN (SELECT lane FROM {lanes} WHERE (owner IS NULL OR until < {now})
        ORDER BY ORA_HASH(lane || TO_CHAR(SYSTIMESTAMP, 'SSSSSFF6') || :2)) LOOP
        EXIT WHEN wanted <= 0;
        BEGIN
            SELECT lock_id BULK COLLECT INTO locked FROM {locks}
            WHERE lock_id BETWEEN 8 * candidate.lane AND 8 * candidate.lane + 8 - 1 FOR UPDATE NOWAIT;
            SELECT lane BULK COLLECT INTO locked FROM {lanes} WHERE lane = candidate.lane FOR UPDATE NOWAIT;
            UPDATE {lanes} SET owner = :3, fence = fence + :4, until = {now} + NUMTODSINTERVAL(:5 / 1000000, 'SECOND'),
                crashes = CASE WHEN owner IS NULL THEN crashes ELSE crashes + 1 END, stamp = this_transaction
            WHERE lane = candidate.lane AND (owner IS NULL OR until < {now});
            wanted := wanted - SQL%ROWCOUNT;
        EXCEPTION WHEN taken THEN NULL;
        END;
    END LOOP;
END;

-- name: acquired
SELECT lane, fence, marks, crashes, journal, 0 FROM {lanes} WHERE stamp = {stamped} ORDER BY lane

-- name: changed leases
SELECT lane, fence, 0 FROM {lanes} WHERE stamp = {stamped} ORDER BY lane

-- name: journals
SELECT lane, fence, journal FROM {lanes} WHERE journal IS NOT NULL

-- name: marks
SELECT lane, marks FROM {lanes} WHERE marks IS NOT NULL ORDER BY lane

-- The rows that are due, up to a limit for each table: held rows, which an index on due times finds, and rows of outbox
-- that are neither claimed nor scheduled. Arguments: :1 the maximum number of held rows, :2 the maximum number of rows
-- of outbox.
-- name: remaining
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.sinks, 1 FROM {held} t WHERE {due at} <= {now} AND ROWNUM <= :1
UNION ALL SELECT id, lane, message_id, topic, message_key, sinks, 0 FROM {hot} WHERE {on time} AND (claimed_until IS NULL OR claimed_until <= {now}) AND ROWNUM <= :2

-- ---------------------------------------------------------------------------------
-- Reading and settling. oracle.go builds the reads of pages, settle.go builds the settles.

-- name: last id
SELECT {given} FROM dual

-- Arguments: :1 microseconds that rows are kept, negative; :2 the maximum number of rows.
-- name: purge
DELETE FROM {done} WHERE ROWID IN (SELECT place FROM (
    SELECT ROWID AS place FROM {done} WHERE finished_at < {now} + NUMTODSINTERVAL(:1 / 1000000, 'SECOND')
    ORDER BY finished_at) WHERE ROWNUM <= :2)

-- Arguments: :1 microseconds that ids are kept, negative; :2 the maximum number of ids.
-- name: purge ids
DELETE FROM {ids} WHERE message_id IN (SELECT message_id FROM (
    SELECT i.message_id FROM {ids} i
    WHERE i.written_at < {now} + NUMTODSINTERVAL(:1 / 1000000, 'SECOND')
        AND i.written_at < NVL((SELECT h.created_at FROM {hot} h WHERE h.id = (SELECT MIN(id) FROM {hot})) - INTERVAL '10' MINUTE, {now})
        AND NOT EXISTS (SELECT 1 FROM {held} h WHERE h.message_id = i.message_id)
    ORDER BY i.written_at) WHERE ROWNUM <= :2)

-- ---------------------------------------------------------------------------------
-- Claiming by rows. oracle.go builds the claim.

-- name: claimed rows
{as bytes}
SELECT /*+ INDEX(t {index claim_until}) */ {hot row}
FROM {hot} t WHERE t.claimed_until IS NOT NULL AND t.claim_stamp = {stamped}

-- Locks rows whose claim has ended, and skips rows that are being settled or handled. The claim mode can't change
-- meanwhile, because the transaction has the lock of "begin changing", which such a change needs. The limit is in a
-- subquery, because a SELECT FOR UPDATE must not have a limit. Argument: :1 the maximum number of rows.
-- name: ended claims
SELECT id FROM {hot} WHERE {by rows} AND claimed_until < {now} AND id IN (SELECT id FROM (
    SELECT id FROM {hot} WHERE claimed_until < {now}
    ORDER BY claimed_until) WHERE ROWNUM <= :1) FOR UPDATE SKIP LOCKED

-- Inserts due rows into the table outbox, with this transaction's number. If several held rows share a lane and id,
-- only one of them moves at a time. A held row stays while a row of outbox has the same lane and id, which is possible
-- after the id sequence was reset. The conditions compare a COUNT with 0 instead of using NOT EXISTS, so that every
-- planner runs the subquery for each due row and doesn't read whole tables. Argument: :1 the maximum number of rows.
-- name: bring back
INSERT INTO {hot} (id, message_id, topic, message_key, payload, payload_text, headers, priority, attempts, crashes, available_at, last_error, attempt_log, created_at, expires_at, sinks, claim_stamp)
SELECT t.id, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.attempts, t.crashes, t.available_at, t.last_error, t.attempt_log, t.created_at, t.expires_at, t.sinks, {stamped}
FROM (SELECT t.* FROM {held} t WHERE {by rows} AND {due at} <= {now}
    AND (SELECT COUNT(*) FROM {hot} h WHERE h.lane = t.lane AND h.id = t.id) = 0 AND (SELECT COUNT(*) FROM {held} o WHERE o.lane = t.lane AND o.id = t.id AND (o.message_id < t.message_id OR o.message_id = t.message_id AND NLSSORT(NVL(o.sinks, ','), 'NLS_SORT=BINARY') < NLSSORT(NVL(t.sinks, ','), 'NLS_SORT=BINARY')) AND o.state <> 'error' AND NVL(o.available_at, TIMESTAMP '0001-01-01 00:00:00') <= {now}) = 0
    ORDER BY {due at}, {due id}) t WHERE ROWNUM <= :1

-- Deletes the held rows whose copies in the table outbox have this transaction's number. No other transaction can move
-- held rows back concurrently, because each begins with the lock of "begin changing".
-- name: remove what is back
DELETE FROM {held} WHERE (id, message_id, NVL(sinks, ',')) IN (SELECT /*+ INDEX(h {index claim_until}) */ h.id, h.message_id, NVL(h.sinks, ',') FROM {hot} h
    WHERE h.claimed_until IS NULL AND h.claim_stamp = {stamped})

-- ---------------------------------------------------------------------------------
-- Operating. operate.go builds the lists, and the changes that operators make to messages.

-- Counts rows of each kind, up to a maximum: rows of outbox, held rows that aren't parked, parked rows and done rows.
-- If outbox or the done table has more rows, the store also uses "estimates". Arguments: the maximum, four times.
-- name: counts
SELECT 'hot', state, COUNT(*) FROM (
    SELECT CASE WHEN claimed_until > {now} THEN 'claimed' WHEN available_at > {now} THEN 'scheduled' ELSE 'pending' END AS state FROM {hot} WHERE ROWNUM <= :1
) GROUP BY state
UNION ALL SELECT 'held', state, COUNT(*) FROM (
    SELECT CASE WHEN state = 'scheduled' AND {on time} THEN 'pending' ELSE state END AS state FROM {held} WHERE state <> 'error' AND ROWNUM <= :2
) GROUP BY state
UNION ALL SELECT 'error', 'error', COUNT(*) FROM {held} WHERE state = 'error' AND ROWNUM <= :3
UNION ALL SELECT 'done', 'done', COUNT(*) FROM {done} WHERE ROWNUM <= :4

-- name: count claimed
SELECT COUNT(*) FROM {hot} WHERE claimed_until > {now}

-- Counts all ids between the lowest and the highest one, including gaps.
-- name: estimates
SELECT 'hot', NVL(MAX(id) - MIN(id) + 1, 0) FROM {hot}
UNION ALL SELECT 'done', NVL(MAX(id) - MIN(id) + 1, 0) FROM {done}

-- The age in milliseconds of the oldest waiting row, counted from the time when the row could first be delivered.
-- name: oldest
SELECT GREATEST(0, NVL(ROUND(EXTRACT(DAY FROM age) * 86400000 + EXTRACT(HOUR FROM age) * 3600000 + EXTRACT(MINUTE FROM age) * 60000 + EXTRACT(SECOND FROM age) * 1000), 0)) FROM (
    SELECT {now} - MIN(since) AS age FROM (
    SELECT GREATEST(created_at, NVL(available_at, created_at)) AS since FROM {hot} WHERE {on time} AND (claimed_until IS NULL OR claimed_until <= {now})
    UNION ALL SELECT GREATEST(created_at, NVL(available_at, created_at)) AS since FROM {held} WHERE state = 'scheduled' AND {on time}))

-- The age of a retry is the time since its message was written.
-- name: oldest retry
SELECT GREATEST(0, NVL(ROUND(EXTRACT(DAY FROM age) * 86400000 + EXTRACT(HOUR FROM age) * 3600000 + EXTRACT(MINUTE FROM age) * 60000 + EXTRACT(SECOND FROM age) * 1000), 0)) FROM (
    SELECT {now} - MIN(created_at) AS age FROM {held} WHERE state = 'retry')

-- name: held parked
SELECT n, NVL(ROUND(EXTRACT(DAY FROM age) * 86400000 + EXTRACT(HOUR FROM age) * 3600000 + EXTRACT(MINUTE FROM age) * 60000 + EXTRACT(SECOND FROM age) * 1000), 0) FROM (
    SELECT COUNT(*) AS n, {now} - MIN(available_at) AS age FROM {held} WHERE state = 'error' AND holds = 1)

-- Argument: :1 the maximum number of rows.
-- name: topics
SELECT topic, COUNT(*) FROM (SELECT topic FROM (
    SELECT topic FROM {hot} WHERE {on time} AND (claimed_until IS NULL OR claimed_until <= {now})
    UNION ALL SELECT topic FROM {held} WHERE state = 'scheduled' AND {on time}
) WHERE ROWNUM <= :1) GROUP BY topic

-- name: list relays
SELECT r.name, r.host, r.version, r.claim, TO_CHAR(r.since, 'YYYY-MM-DD HH24:MI:SS.FF6'), TO_CHAR(r.last_heartbeat, 'YYYY-MM-DD HH24:MI:SS.FF6'),
    CASE WHEN r.until >= {now} THEN 1 ELSE 0 END,
    (SELECT COUNT(*) FROM {lanes} l WHERE l.owner = r.name AND l.until >= {now}), r.setup
FROM {relays} r ORDER BY r.name

-- The database's time, the age in milliseconds of the oldest done row, and the time zone.
-- name: clock
SELECT TO_CHAR({now}, 'YYYY-MM-DD HH24:MI:SS.FF6'), ROUND(EXTRACT(DAY FROM age) * 86400000 + EXTRACT(HOUR FROM age) * 3600000 + EXTRACT(MINUTE FROM age) * 60000 + EXTRACT(SECOND FROM age) * 1000), DBTIMEZONE
FROM (SELECT {now} - MIN(finished_at) AS age FROM {done})

-- name: lanes leased
SELECT COUNT(*) FROM {lanes} WHERE owner IS NOT NULL AND until >= {now}

-- ---------------------------------------------------------------------------------
-- Open transactions, identified by the SCN at which each began. This SCN precedes the transaction's first id, because a
-- trigger of the table outbox begins the transaction. gv$transaction has the transactions of all instances of a
-- cluster. A start_scn of 0 means that the database doesn't know the SCN. Until such a transaction ends, relays treat no
-- further id as final (an id at or below which no row can appear any more).
--
-- In RAC (a cluster) the SCN of one instance may be ahead of another's for a moment, but each message between instances
-- contains the sender's SCN. Suppose that one instance assigned an id below m, and then another instance assigned m. In
-- between, the first instance sent the state of the sequence to the other one. So a relay that sees the row m committed
-- has a later SCN than the start of the transaction with the lower id. No test has confirmed this.
-- name: open transactions
SELECT 'number', TO_CHAR(current_scn) FROM v$database
UNION ALL SELECT 'open', TO_CHAR(MIN(start_scn)) FROM gv$transaction HAVING COUNT(*) > 0
UNION ALL SELECT 'server', {server} FROM dual

-- ---------------------------------------------------------------------------------
-- Checking. operate.go builds the check of rights.

-- The server's views that this user can't see.
-- name: unseen views
SELECT n.name FROM (SELECT 'GV_$TRANSACTION' AS name FROM dual UNION ALL SELECT 'V_$DATABASE' FROM dual) n
WHERE NOT EXISTS (SELECT 1 FROM all_objects o WHERE o.owner = 'SYS' AND o.object_name = n.name)

-- name: disabled trigger
SELECT trigger_name, status FROM all_triggers WHERE owner = {owner} AND trigger_name = '{trigger}' AND status <> 'ENABLED'

-- ---------------------------------------------------------------------------------
-- Replays. The setting replay.NAME has the state of a replay, as JSON.

-- name: replays
SELECT SUBSTR(name, 8), value FROM {settings} WHERE name LIKE 'replay.%' ORDER BY name

-- name: last delivered
SELECT NVL(MAX(id), 0) FROM {done}

-- Arguments: name, text.
-- name: begin replay
MERGE INTO {settings} s USING (SELECT 'replay.' || :1 AS name, :2 AS value FROM dual) g ON (s.name = g.name)
WHEN NOT MATCHED THEN INSERT (name, value) VALUES (g.name, g.value)

-- Arguments: new text, name, previous text. It changes nothing if the stored text isn't the previous text.
-- name: change replay
UPDATE {settings} SET value = :1 WHERE name = 'replay.' || :2 AND value = :3

-- ---------------------------------------------------------------------------------
-- The controls that operators have set, and the log of the operators' actions.

-- name: controls in force
SELECT kind, name, NVL(rate, 0), TO_CHAR(ends_at, 'YYYY-MM-DD HH24:MI:SS.FF6'), made_by, TO_CHAR(made_at, 'YYYY-MM-DD HH24:MI:SS.FF6'), reason FROM {controls} WHERE ends_at IS NULL OR ends_at > {now} ORDER BY kind, name

-- name: forget ended controls
DELETE FROM {controls} WHERE ends_at <= {now}

-- name: lift control
DELETE FROM {controls} WHERE kind = :1 AND name = :2

-- Arguments: kind, name, rate, duration in microseconds (NULL: no end), author, reason.
-- name: set control
INSERT INTO {controls} (kind, name, rate, ends_at, made_by, made_at, reason)
VALUES (:1, :2, :3, {now} + NUMTODSINTERVAL(:4 / 1000000, 'SECOND'), :5, {now}, :6)

-- Arguments: id, author, action, target, reason.
-- name: begin action
INSERT INTO {actions} (id, made_by, action, target, reason, made_at) VALUES (:1, :2, :3, :4, :5, {now})

-- Arguments: number of changed messages, id.
-- name: end action
UPDATE {actions} SET changed = :1 WHERE id = :2

-- name: delete old done
DELETE FROM {done} WHERE finished_at < SYS_EXTRACT_UTC(SYSTIMESTAMP) - INTERVAL '1' DAY AND ROWNUM <= 10000

-- name: log of actions
SELECT id, TO_CHAR(made_at, 'YYYY-MM-DD HH24:MI:SS.FF6'), made_by, action, target, reason, NVL(changed, -1) FROM {actions} ORDER BY made_at DESC, id DESC
