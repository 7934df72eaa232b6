-- The fixed statements of a relay on SQL Server 2016 and later and on Azure SQL. The Go files in this directory build
-- the statements that depend on the request.
--
-- A name in braces stands for a table, for an earlier text with this name, or for one of the texts below (see New in
-- sqlserver.go). {hot} is the table outbox; {held}, {done}, {ids}, {lanes}, {relays}, {settings}, {controls} and
-- {actions} are the tables outbox_held, outbox_done and so on.
--
--   reading       the isolation level at which a SELECT waits for no writer and sees one snapshot
--   object        the name of the table outbox, as an argument of OBJECT_ID
--   object …      the name of another table or of the sequence, as an argument of OBJECT_ID
--   index …       the name of an index
--
-- Each READPAST is accompanied by READCOMMITTEDLOCK, because the server rejects READPAST alone if
-- READ_COMMITTED_SNAPSHOT is on.
--
-- Reads of pages use a snapshot. They must neither skip locked rows nor wait for locks. If a read skipped a locked row
-- that isn't committed yet, it might then read a row of the same key that was written after the commit. If a read
-- waited for locks, it would wait for every open writer.

-- ---------------------------------------------------------------------------------
-- Parts of statements.

-- A SELECT between this statement and the next SET sees one snapshot and waits for no writer. If a batch with parameters
-- fails, the level still ends with the batch. The driver sends a batch without parameters in a way that changes the level
-- of the session, which another caller may get next. So each batch with this text has at least one parameter.
-- name: at one moment
SET TRANSACTION ISOLATION LEVEL {reading};

-- Sets READ COMMITTED, because an earlier transaction may have left another level on the connection. READPAST isn't
-- allowed at every level.
-- name: read committed
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;

-- The beginning of a batch whose statements are one transaction. If a statement fails or the client gives up, the server
-- rolls all of them back. In a handler's transaction, the batch begins and ends no transaction.
-- name: prepare
SET NOCOUNT ON;
SET XACT_ABORT ON;
{read committed}
DECLARE @own bit = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;

-- name: begin
IF @own = 1 BEGIN TRANSACTION;

-- name: commit
IF @own = 1 COMMIT TRANSACTION;

-- Identifies this run of the server and this copy of the database, by values that every user can see. The server creates
-- tempdb at each start.
-- name: server
REPLACE(CONCAT(@@SERVERNAME, N'/', DB_ID(), N'/', CONVERT(nvarchar(128), SERVERPROPERTY(N'ComputerNamePhysicalNetBIOS')),
    N'/', CONVERT(nvarchar(20), SERVERPROPERTY(N'ProcessID')),
    N'/', (SELECT CONVERT(nvarchar(30), create_date, 126) FROM sys.databases WHERE name = N'tempdb'),
    N'/', (SELECT CONVERT(nvarchar(30), create_date, 126) FROM sys.databases WHERE name = DB_NAME())), N' ', N'_')

-- The last id that the sequence has assigned; 0 if this user can't see the sequence. A check reports this case.
-- name: given
COALESCE((SELECT CONVERT(bigint, current_value) FROM sys.sequences WHERE object_id = OBJECT_ID({object id})), 0)

-- The columns of a row t. A text payload is sent in UTF-16, because older servers can't convert it to UTF-8. Times are
-- selected with their offset, because the driver may be set to assume another zone for times without an offset.
-- name: row
t.id, t.lane, LOWER(CONVERT(nvarchar(36), t.message_id)), t.topic, COALESCE(t.message_key, N''), t.sinks,
    COALESCE(t.payload, CONVERT(varbinary(max), t.payload_text)), COALESCE(t.headers, N''),
    TODATETIMEOFFSET(t.available_at, '+00:00'), TODATETIMEOFFSET(t.expires_at, '+00:00'), t.priority, t.attempts, t.crashes, TODATETIMEOFFSET(t.created_at, '+00:00')

-- The flags are a sum: 1 if the row has a payload, 8 if the payload is text in UTF-16, 2 if the row is due later, 4 if it
-- waits for its next attempt, and 16 times the column `holds`.
-- name: has payload
CASE WHEN t.payload IS NOT NULL THEN 1 WHEN t.payload_text IS NOT NULL THEN 9 ELSE 0 END

-- name: later
CASE WHEN t.available_at > SYSUTCDATETIME() THEN 2 ELSE 0 END

-- name: retrying
CASE WHEN t.state = N'retry' THEN 4 ELSE 0 END + 16 * t.holds

-- name: hot row
{row},
    {has payload} + {later}

-- name: held row
{row},
    {has payload} + {retrying}

-- The columns that a list returns for a row t of the view of all messages.
-- name: listed row
{row},
    {has payload} + {later} + {retrying}, t.state, COALESCE(t.last_error, N''), COALESCE(t.receipt, N''), COALESCE(t.claimed_by, N''), TODATETIMEOFFSET(t.finished_at, '+00:00')

-- Placeholders for the columns of a message, with the columns' names, used in the first row of a page, which has no
-- message.
-- name: no row
CONVERT(bigint, 0) AS id, CONVERT(smallint, 0) AS lane, N'' AS message_id, N'' AS topic, N'' AS message_key, N'' AS sinks, CONVERT(varbinary(max), NULL) AS payload, N'' AS headers, CONVERT(datetimeoffset(7), NULL) AS available_at, CONVERT(datetimeoffset(7), NULL) AS expires_at, CONVERT(smallint, 0) AS priority, 0 AS attempts, 0 AS crashes, CONVERT(datetimeoffset(7), NULL) AS created_at, 0 AS flags

-- name: size
COALESCE(DATALENGTH(t.payload), 0) + COALESCE(DATALENGTH(t.payload_text), 0)

-- The condition that the table is claimed by rows. It locks the claim mode until the transaction ends, so a change of the
-- mode can't run concurrently. A later change sees the rows that the statement has changed. After an earlier change, the
-- statement changes nothing.
-- name: by rows
EXISTS (SELECT 1 FROM {settings} WITH (HOLDLOCK, ROWLOCK) WHERE name = N'claim' AND value = N'rows')

-- The condition that a row of the table outbox could be delivered now; the next text is the condition for the held
-- table.
-- name: waiting
(available_at IS NULL OR available_at <= SYSUTCDATETIME()) AND (claimed_until IS NULL OR claimed_until <= SYSUTCDATETIME())

-- name: held and waiting
state = N'scheduled' AND due_at <= SYSUTCDATETIME()

-- ---------------------------------------------------------------------------------
-- Relays and the claim mode.

-- Limits the wait for locks to 3 seconds, until the connection returns to its pool. A change of the claim mode may have
-- to lock the table. While it waits for this lock, all producers wait, too.
-- name: bound waiting
SET LOCK_TIMEOUT 3000

-- name: claim mode
SELECT value FROM {settings} WHERE name = N'claim'

-- HOLDLOCK locks the range of the row, so that no other transaction can insert the row if it doesn't exist yet.
-- name: lock claim mode
SELECT value FROM {settings} WITH (XLOCK, HOLDLOCK, ROWLOCK) WHERE name = N'claim'

-- name: set claim mode
UPDATE {settings} SET value = @p1 WHERE name = N'claim';
IF @@ROWCOUNT = 0 INSERT INTO {settings} (name, value) VALUES (N'claim', @p1)

-- name: relays that claim another way
SELECT name FROM {relays} WHERE until >= SYSUTCDATETIME() AND claim <> @p1 ORDER BY name

-- Waits for running settles, because it changes the fences, which the settles have locked.
-- name: forget leases
UPDATE {lanes} SET owner = NULL, until = NULL, fence = fence + 1, marks = NULL, journal = NULL, crashes = 0

-- Skips locked rows. A locked row belongs to an open transaction of a writer, so no relay has claimed it.
-- name: forget claims
UPDATE {hot} WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK)
SET claimed_by = NULL, claim_token = NULL, claimed_until = NULL WHERE claimed_until IS NOT NULL

-- name: forget holds
UPDATE {held} SET state = N'error', holds = 0 WHERE holds > 0

-- Locks the claim mode, so a change of the mode can't run concurrently. A later change sees this relay. After an earlier
-- change, the relay isn't stored. Arguments: @p1 name, @p2 host, @p3 version, @p4 claim mode, @p5 milliseconds until the
-- row expires, @p6 setup. DATEADD accepts only an int, so seconds and milliseconds are added separately.
-- name: heartbeat
{prepare}
DECLARE @alive bit = 1;
{begin}
IF EXISTS (SELECT 1 FROM {settings} WITH (HOLDLOCK, ROWLOCK) WHERE name = N'claim' AND value <> @p4) SET @alive = 0;
UPDATE {relays} WITH (ROWLOCK)
SET host = @p2, version = @p3, claim = @p4, setup = @p6,
    since = CASE WHEN until < SYSUTCDATETIME() THEN SYSUTCDATETIME() ELSE since END, last_heartbeat = SYSUTCDATETIME(), until = DATEADD(MILLISECOND, @p5 % 1000, DATEADD(SECOND, @p5 / 1000, SYSUTCDATETIME()))
WHERE name = @p1 AND @alive = 1;
IF @@ROWCOUNT = 0 AND @alive = 1
    INSERT INTO {relays} (name, host, version, claim, since, last_heartbeat, until, setup)
    VALUES (@p1, @p2, @p3, @p4, SYSUTCDATETIME(), SYSUTCDATETIME(), DATEADD(MILLISECOND, @p5 % 1000, DATEADD(SECOND, @p5 / 1000, SYSUTCDATETIME())), @p6);
{commit}
SELECT @p1, CONVERT(bigint, 0), {server} WHERE @alive = 1

-- name: members
{at one moment}
SELECT name, setup, TODATETIMEOFFSET(SYSUTCDATETIME(), '+00:00') FROM {relays} WHERE until >= SYSUTCDATETIME() ORDER BY name;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED

-- The next two statements end the leases and the claims of a dead relay, as if they had expired. The fences grow, so
-- that the relay can't renew its leases if it is alive after all.
-- name: end leases
UPDATE {lanes} SET until = DATEADD(SECOND, -1, SYSUTCDATETIME()), fence = fence + 1 WHERE owner = @p1

-- name: end claims
UPDATE {hot} SET claimed_until = DATEADD(SECOND, -1, SYSUTCDATETIME()) WHERE claimed_until >= SYSUTCDATETIME() AND claimed_by = @p1

-- name: deregister
DELETE FROM {relays} WHERE name = @p1

-- Argument: @p1 milliseconds of a day, negative.
-- name: purge relays
{read committed}
DELETE FROM {relays} WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK) WHERE until < DATEADD(MILLISECOND, @p1 % 1000, DATEADD(SECOND, @p1 / 1000, SYSUTCDATETIME()))

-- ---------------------------------------------------------------------------------
-- Lanes.

-- Skips lanes that another transaction changes or settles. A settle holds a shared lock on the lane's entry in the
-- index of fences. This statement locks the entry exclusively. A renewal doesn't touch the entry. The subquery puts the
-- lanes in a random order before the join locks them, because a sort after locking would lock all free lanes.
-- Arguments: @p1 the maximum number of lanes, @p2 relay, @p3 milliseconds of the lease, @p4 the number that is added to
-- the fences.
-- name: acquire
{read committed}
UPDATE TOP (@p1) l
SET owner = @p2, fence = l.fence + @p4, until = DATEADD(MILLISECOND, @p3 % 1000, DATEADD(SECOND, @p3 / 1000, SYSUTCDATETIME())),
    crashes = CASE WHEN l.owner IS NULL THEN l.crashes ELSE l.crashes + 1 END
OUTPUT inserted.lane, inserted.fence, COALESCE(inserted.marks, N''), inserted.crashes, COALESCE(inserted.journal, N''), CONVERT(bigint, 0)
FROM (SELECT TOP (64) lane FROM {lanes} WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK)
    WHERE owner IS NULL OR until < SYSUTCDATETIME() ORDER BY NEWID()) AS free
INNER JOIN {lanes} AS l WITH (INDEX({index lanes_fence}), XLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK)
    ON l.lane = free.lane AND (l.owner IS NULL OR l.until < SYSUTCDATETIME())
OPTION (FORCE ORDER, LOOP JOIN)

-- Finds the lanes by the primary key instead of the index of fences, so that it doesn't wait for running settles.
-- Arguments: @p1 a list of lane, fence, marks, calm and journal, @p2 relay.
-- name: leases
OUTPUT inserted.lane, inserted.fence, CONVERT(bigint, 0)
FROM OPENJSON(@p1)
    WITH (lane smallint '$[0]', fence bigint '$[1]', marks nvarchar(max) '$[2]', calm bit '$[3]', journal nvarchar(max) '$[4]') AS g
INNER JOIN {lanes} AS l WITH (INDEX(1), ROWLOCK) ON l.lane = g.lane AND l.fence = g.fence AND l.owner = @p2
OPTION (FORCE ORDER, LOOP JOIN)

-- The given marks if they were made in the current epoch, otherwise the stored marks. @p3 is the epoch of the given
-- marks. If it is empty, the given marks are always used.
-- name: given marks
CASE WHEN COALESCE(@p3, N'') = N'' OR {server} = @p3 THEN g.marks ELSE l.marks END

-- Argument: @p4 milliseconds of the lease.
-- name: renew
{read committed}
UPDATE l
SET until = DATEADD(MILLISECOND, @p4 % 1000, DATEADD(SECOND, @p4 / 1000, SYSUTCDATETIME())), marks = {given marks},
    crashes = CASE WHEN g.calm = 1 THEN 0 ELSE l.crashes END, journal = CASE WHEN g.calm = 1 THEN NULL ELSE l.journal END
{leases}

-- name: release
{read committed}
UPDATE l
SET owner = NULL, until = NULL, marks = {given marks}, journal = NULL, crashes = 0
{leases}

-- name: write journal
{read committed}
UPDATE l
SET journal = g.journal
{leases}

-- name: journals
SELECT lane, fence, journal FROM {lanes} WHERE journal IS NOT NULL

-- name: marks
SELECT lane, marks FROM {lanes} WHERE marks IS NOT NULL ORDER BY lane

-- ---------------------------------------------------------------------------------
-- Reading. sqlserver.go builds the reads of pages.

-- name: last id
SELECT {given}

-- A table variable with the positions of a read. Its primary key n lets the server return rows in the order of n and id
-- without a sort. Argument: @p1 a list of n, lane, after, until and key.
-- name: positions
SET NOCOUNT ON;
DECLARE @positions TABLE (n int NOT NULL PRIMARY KEY, lane smallint NOT NULL, after bigint NOT NULL, until bigint NOT NULL, message_key nvarchar(255) COLLATE Latin1_General_100_BIN2);
INSERT INTO @positions (n, lane, after, until, message_key)
SELECT n, lane, after, until, message_key FROM OPENJSON(@p1)
    WITH (n int '$[0]', lane smallint '$[1]', after bigint '$[2]', until bigint '$[3]', message_key nvarchar(255) '$[4]');

-- name: first line
DECLARE @first nvarchar(500) = CONCAT({given}, N' 0 0 0 ', {server});

-- Argument: @p1 a list of lane and id.
-- name: pick
{at one moment}
SELECT {hot row}
FROM OPENJSON(@p1) WITH (lane smallint '$[0]', id bigint '$[1]') AS g
INNER JOIN {hot} AS t WITH (FORCESEEK) ON t.lane = g.lane AND t.id = g.id
OPTION (FORCE ORDER, LOOP JOIN);
SET TRANSACTION ISOLATION LEVEL READ COMMITTED

-- name: pick held
{at one moment}
SELECT {held row}
FROM OPENJSON(@p1) WITH (lane smallint '$[0]', id bigint '$[1]') AS g
INNER JOIN {held} AS t WITH (FORCESEEK) ON t.lane = g.lane AND t.id = g.id AND t.state <> N'error'
OPTION (FORCE ORDER, LOOP JOIN);
SET TRANSACTION ISOLATION LEVEL READ COMMITTED

-- name: attempt logs
{at one moment}
SELECT t.id, t.lane, LOWER(CONVERT(nvarchar(36), t.message_id)), t.sinks, t.attempt_log
FROM OPENJSON(@p1) WITH (lane smallint '$[0]', id bigint '$[1]') AS g
INNER JOIN {hot} AS t WITH (FORCESEEK) ON t.lane = g.lane AND t.id = g.id AND t.attempt_log IS NOT NULL
OPTION (FORCE ORDER, LOOP JOIN);
SET TRANSACTION ISOLATION LEVEL READ COMMITTED

-- name: attempt logs of held rows
{at one moment}
SELECT t.id, t.lane, LOWER(CONVERT(nvarchar(36), t.message_id)), t.sinks, t.attempt_log
FROM OPENJSON(@p1) WITH (lane smallint '$[0]', id bigint '$[1]') AS g
INNER JOIN {held} AS t WITH (FORCESEEK) ON t.lane = g.lane AND t.id = g.id AND t.attempt_log IS NOT NULL
OPTION (FORCE ORDER, LOOP JOIN);
SET TRANSACTION ISOLATION LEVEL READ COMMITTED

-- Selects due rows, up to the row with which the payloads reach @p5 bytes. Arguments: @p1 and @p4 the time and the id
-- after which rows are selected, @p2 the maximum number of rows, @p3 a list of lanes.
-- name: due
{at one moment}
SELECT {held row}
FROM (SELECT t.*, SUM({size}) OVER (ORDER BY t.due_at, t.id ROWS UNBOUNDED PRECEDING) - ({size}) AS bytes_before
FROM (SELECT TOP (@p2) * FROM {held} AS h
    WHERE h.state <> N'error' AND h.due_at <= SYSUTCDATETIME() AND h.lane IN (SELECT lane FROM OPENJSON(@p3) WITH (lane smallint '$'))
        AND h.due_at >= CONVERT(datetime2(7), @p1, 126) AND (h.due_at > CONVERT(datetime2(7), @p1, 126) OR h.id > @p4)
    ORDER BY h.due_at, h.id) AS t) AS t WHERE t.bytes_before < @p5 ORDER BY t.due_at, t.id;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED

-- The rows that block their keys. Two indexes find them, because the condition of a filtered index can't contain OR.
-- name: holding
SELECT lane, message_key, topic, sinks, id FROM {held} WITH (INDEX ({index held_retry})) WHERE state = N'retry'
    UNION ALL SELECT lane, message_key, topic, sinks, id FROM {held} WITH (INDEX ({index held_holds})) WHERE holds > 0 AND state = N'error'

-- Arguments: @p1 the maximum number of keys, @p2 a list of lanes.
-- name: blocked keys
{at one moment}
SELECT TOP (@p1) lane, message_key, topic, sinks, id FROM ({holding}) AS t
WHERE DATALENGTH(message_key) > 0 AND lane IN (SELECT lane FROM OPENJSON(@p2) WITH (lane smallint '$'));
SET TRANSACTION ISOLATION LEVEL READ COMMITTED

-- name: of the key
h.lane = g.lane AND h.message_key = g.message_key COLLATE Latin1_General_100_BIN2 AND DATALENGTH(h.message_key) = DATALENGTH(g.message_key)

-- Argument: @p1 a list of number, lane and key. The statement groups by the number, because GROUP BY ignores spaces at
-- the end of a key.
-- name: blocked among
{at one moment}
SELECT MIN(t.lane), MIN(t.message_key), t.topic, t.sinks, MIN(t.id)
FROM OPENJSON(@p1) WITH (n int '$[0]', lane smallint '$[1]', message_key nvarchar(255) '$[2]') AS g
CROSS APPLY (SELECT * FROM {held} AS h WITH (INDEX ({index held_retry}), FORCESEEK) WHERE h.state = N'retry' AND {of the key}
    UNION ALL SELECT * FROM {held} AS h WITH (INDEX ({index held_holds}), FORCESEEK) WHERE h.holds > 0 AND h.state = N'error' AND {of the key}) AS t
GROUP BY g.n, t.topic, t.sinks OPTION (FORCE ORDER, LOOP JOIN);
SET TRANSACTION ISOLATION LEVEL READ COMMITTED

-- The rows that are due, up to a limit for each table: held rows, which an index on due times finds, and rows of outbox
-- that are neither claimed nor scheduled. Argument: @p1 the maximum number of rows of each table.
-- name: remaining
{at one moment}
SELECT * FROM (SELECT TOP (@p1) id, lane, LOWER(CONVERT(nvarchar(36), message_id)) AS message_id, topic, message_key, sinks, 1 AS is_held FROM {held} WHERE state <> N'error' AND due_at <= SYSUTCDATETIME()) AS h
UNION ALL SELECT * FROM (SELECT TOP (@p1) id, lane, LOWER(CONVERT(nvarchar(36), message_id)) AS message_id, topic, message_key, sinks, 0 AS is_held FROM {hot} WHERE {waiting}) AS p;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED

-- ---------------------------------------------------------------------------------
-- Done rows. settle.go builds the settles.

-- Arguments: @p1 the maximum number of rows, @p2 milliseconds that rows are kept, negative.
-- name: purge
{read committed}
WITH old AS (
    SELECT TOP (@p1) * FROM {done} WITH (INDEX({index done_finished}), UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK)
    WHERE finished_at < DATEADD(MILLISECOND, @p2 % 1000, DATEADD(SECOND, @p2 / 1000, SYSUTCDATETIME())) ORDER BY finished_at)
DELETE FROM old

-- One statement sees one snapshot. So if a row moves concurrently, this statement finds it in either outbox or
-- outbox_held. Arguments: @p1 the maximum number of ids, @p2 milliseconds that ids are kept, negative.
-- name: old ids
{at one moment}
SELECT TOP (@p1) LOWER(CONVERT(nvarchar(36), i.message_id)) FROM {ids} AS i
WHERE i.written_at < DATEADD(MILLISECOND, @p2 % 1000, DATEADD(SECOND, @p2 / 1000, SYSUTCDATETIME()))
    AND i.written_at < COALESCE((SELECT DATEADD(MINUTE, -10, MIN(t.created_at)) FROM {lanes} AS l CROSS APPLY (
        SELECT TOP (1) h.created_at FROM {hot} AS h WHERE h.lane = l.lane ORDER BY h.id) AS t), SYSUTCDATETIME())
    AND NOT EXISTS (SELECT 1 FROM {held} AS h WHERE h.message_id = i.message_id)
ORDER BY i.written_at;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED

-- Arguments: @p1 a list of ids, @p2 milliseconds that ids are kept, negative.
-- name: delete ids
{read committed}
DELETE FROM i FROM {ids} AS i WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK)
INNER JOIN OPENJSON(@p1) AS g ON i.message_id = CONVERT(uniqueidentifier, g.value)
WHERE i.written_at < DATEADD(MILLISECOND, @p2 % 1000, DATEADD(SECOND, @p2 / 1000, SYSUTCDATETIME()))

-- ---------------------------------------------------------------------------------
-- Claiming by rows. sqlserver.go builds the claim.

-- Reads all claimed rows. These rows are few, because relays have all claimed rows in memory. A locked row is being
-- settled or handled, and no other relay can claim it meanwhile. So its claim isn't extended, but counts as valid.
-- Arguments: @p1 token, @p2 a list of ids, @p3 milliseconds of the claim.
-- name: extend
SET NOCOUNT ON;
{read committed}
UPDATE t SET claimed_until = DATEADD(MILLISECOND, @p3 % 1000, DATEADD(SECOND, @p3 / 1000, SYSUTCDATETIME()))
FROM {hot} AS t WITH (INDEX({index claim_until}), UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK)
WHERE {by rows} AND t.claimed_until IS NOT NULL AND t.claim_token = @p1 AND t.id IN (SELECT id FROM OPENJSON(@p2) WITH (id bigint '$'));
{at one moment}
SELECT t.id FROM {hot} AS t WITH (INDEX({index claim_until}))
WHERE t.claimed_until IS NOT NULL AND t.claim_token = @p1 AND t.id IN (SELECT id FROM OPENJSON(@p2) WITH (id bigint '$'));
SET TRANSACTION ISOLATION LEVEL READ COMMITTED

-- Argument: @p1 the maximum number of rows.
-- name: free ended claims
{read committed}
WITH ended AS (
    SELECT TOP (@p1) * FROM {hot} WITH (INDEX({index claim_until}), UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK)
    WHERE {by rows} AND claimed_until IS NOT NULL AND claimed_until < SYSUTCDATETIME() ORDER BY claimed_until)
UPDATE ended SET claimed_by = NULL, claim_token = NULL, claimed_until = NULL, crashes = CASE WHEN crashes < 2000000000 THEN crashes + 1 ELSE crashes END

-- Moves due rows to the table outbox, in one statement that inserts the rows that it deletes. If several held rows
-- share a lane and id, only one of them moves at a time. A held row stays while a row of outbox has the same lane and
-- id, which is possible after the id sequence was reset. The conditions compare a COUNT with 0 instead of using NOT
-- EXISTS, so that every planner runs the subquery for each due row and doesn't read whole tables. Argument: @p1 the
-- maximum number of rows.
-- name: bring back
{read committed}
INSERT INTO {hot} (id, message_id, topic, message_key, payload, payload_text, headers, priority, attempts, crashes, available_at, last_error, attempt_log, created_at, expires_at, sinks)
SELECT id, message_id, topic, message_key, payload, payload_text, headers, priority, attempts, crashes, available_at, last_error, attempt_log, created_at, expires_at, sinks FROM (
    DELETE due
    OUTPUT deleted.id, deleted.message_id, deleted.topic, deleted.message_key, deleted.payload, deleted.payload_text, deleted.headers, deleted.priority, deleted.attempts, deleted.crashes, deleted.available_at, deleted.last_error, deleted.attempt_log, deleted.created_at, deleted.expires_at, deleted.sinks
    FROM (SELECT TOP (@p1) * FROM {held} AS t WITH (INDEX({index held_due}), UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK)
        WHERE {by rows} AND state <> N'error' AND due_at <= SYSUTCDATETIME()
            AND (SELECT COUNT(*) FROM {hot} h WHERE h.lane = t.lane AND h.id = t.id) = 0 AND (SELECT COUNT(*) FROM {held} o WHERE o.lane = t.lane AND o.id = t.id AND (o.message_id < t.message_id OR o.message_id = t.message_id AND o.sinks < t.sinks) AND o.state <> N'error' AND o.due_at <= SYSUTCDATETIME()) = 0
        ORDER BY due_at, id) AS due
) AS back

-- ---------------------------------------------------------------------------------
-- Operating. operate.go builds the lists, and the changes that operators make to messages.

-- Counts up to @p1 rows of each kind: rows of outbox, held rows that aren't parked, parked rows and done rows. If
-- outbox or the done table has more rows, the store also uses "estimates".
-- name: counts
{at one moment}
SELECT N'hot', state, COUNT_BIG(*) FROM (
    SELECT TOP (@p1) CASE WHEN claimed_until > SYSUTCDATETIME() THEN N'claimed' WHEN available_at > SYSUTCDATETIME() THEN N'scheduled' ELSE N'pending' END AS state FROM {hot}
) AS h GROUP BY state
UNION ALL SELECT N'held', state, COUNT_BIG(*) FROM (
    SELECT TOP (@p1) CASE WHEN {held and waiting} THEN N'pending' ELSE state END AS state FROM {held} WHERE state <> N'error'
) AS h GROUP BY state
UNION ALL SELECT N'error', N'error', COUNT_BIG(*) FROM (SELECT TOP (@p1) id FROM {held} WHERE state = N'error') AS e
UNION ALL SELECT N'done', N'done', COUNT_BIG(*) FROM (SELECT TOP (@p1) id FROM {done}) AS d;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED

-- name: count claimed
{at one moment}
SELECT COUNT_BIG(*) FROM {hot} WHERE claimed_until > SYSUTCDATETIME();
SET TRANSACTION ISOLATION LEVEL READ COMMITTED

-- name: estimates
SELECT N'hot', COALESCE(SUM(rows), 0) FROM sys.partitions WHERE object_id = OBJECT_ID({object}) AND index_id = 1
UNION ALL SELECT N'done', COALESCE(SUM(rows), 0) FROM sys.partitions WHERE object_id = OBJECT_ID({object done}) AND index_id = 1

-- The age in milliseconds of the oldest waiting row, counted from the time when the row could first be delivered.
-- name: oldest
{at one moment}
SELECT CASE WHEN MIN(since) < SYSUTCDATETIME() THEN DATEDIFF_BIG(MILLISECOND, MIN(since), SYSUTCDATETIME()) ELSE 0 END FROM (
    SELECT CASE WHEN available_at > created_at THEN available_at ELSE created_at END AS since FROM {hot} WHERE {waiting}
    UNION ALL SELECT CASE WHEN available_at > created_at THEN available_at ELSE created_at END FROM {held} WHERE {held and waiting}) AS p;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED

-- The age of a retry is the time since its message was written.
-- name: oldest retry
{at one moment}
SELECT CASE WHEN MIN(created_at) < SYSUTCDATETIME() THEN DATEDIFF_BIG(MILLISECOND, MIN(created_at), SYSUTCDATETIME()) ELSE 0 END FROM {held} WHERE state = N'retry';
SET TRANSACTION ISOLATION LEVEL READ COMMITTED

-- name: held parked
{at one moment}
SELECT COUNT_BIG(*), COALESCE(DATEDIFF_BIG(MILLISECOND, MIN(available_at), SYSUTCDATETIME()), 0) FROM {held} WHERE state = N'error' AND holds = 1;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED

-- Argument: @p1 the maximum number of rows.
-- name: topics
{at one moment}
SELECT topic, COUNT_BIG(*) FROM (SELECT TOP (@p1) topic FROM (
    SELECT topic FROM {hot} WHERE {waiting}
    UNION ALL SELECT topic FROM {held} WHERE {held and waiting}) AS p) AS t GROUP BY topic;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED

-- name: list relays
{at one moment}
SELECT r.name, r.host, r.version, r.claim, TODATETIMEOFFSET(r.since, '+00:00'), TODATETIMEOFFSET(r.last_heartbeat, '+00:00'), CONVERT(bit, CASE WHEN r.until >= SYSUTCDATETIME() THEN 1 ELSE 0 END),
    (SELECT COUNT(*) FROM {lanes} AS l WHERE l.owner = r.name AND l.until >= SYSUTCDATETIME()), r.setup
FROM {relays} AS r ORDER BY r.name;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED

-- The database's time, the age in milliseconds of the oldest done row, and the time zone.
-- name: clock
SELECT TODATETIMEOFFSET(SYSUTCDATETIME(), '+00:00'), (SELECT DATEDIFF_BIG(MILLISECOND, MIN(finished_at), SYSUTCDATETIME()) FROM {done}), N''

-- name: lanes leased
{at one moment}
SELECT COUNT(*) FROM {lanes} WHERE owner IS NOT NULL AND until >= SYSUTCDATETIME();
SET TRANSACTION ISOLATION LEVEL READ COMMITTED

-- ---------------------------------------------------------------------------------
-- Open transactions, identified by rowversions. The table outbox has a rowversion column, so each inserted row gets a
-- number from the database's counter, at every isolation level, just after its id. A number that is assigned after
-- @@DBTS was read is higher than @@DBTS. If no transaction is open, the statement returns the counter plus one as the
-- lowest open number. From this number, relay/sqlstore/frontier_opentx.go determines at or below which id no row can
-- appear any more.
-- name: open transactions
DECLARE @number bigint = CONVERT(bigint, @@DBTS);
DECLARE @server nvarchar(400) = {server};
SELECT N'number', CONVERT(nvarchar(20), @number)
UNION ALL SELECT N'open', CONVERT(nvarchar(20), CONVERT(bigint, MIN_ACTIVE_ROWVERSION()))
UNION ALL SELECT N'server', @server

-- ---------------------------------------------------------------------------------
-- Checking. operate.go builds the check of rights.

-- name: unfit settings
SELECT N'the database is', N'read-only' WHERE DATABASEPROPERTYEX(DB_NAME(), N'Updateability') <> N'READ_WRITE'
UNION ALL SELECT N'QUOTED_IDENTIFIER is', N'off' WHERE SESSIONPROPERTY(N'QUOTED_IDENTIFIER') = 0
UNION ALL SELECT N'ANSI_WARNINGS is', N'off' WHERE SESSIONPROPERTY(N'ANSI_WARNINGS') = 0

-- name: large locks
SELECT N'pages of', name FROM sys.indexes WHERE object_id IN (OBJECT_ID({object}), OBJECT_ID({object held}), OBJECT_ID({object lanes})) AND allow_page_locks = 1
UNION ALL SELECT N'all of', name FROM sys.tables WHERE object_id IN (OBJECT_ID({object}), OBJECT_ID({object held}), OBJECT_ID({object lanes})) AND lock_escalation_desc <> N'DISABLE'

-- ---------------------------------------------------------------------------------
-- Replays. The setting replay.NAME has the state of a replay, as JSON.

-- name: replays
SELECT SUBSTRING(name, 8, 64), value FROM {settings} WHERE name LIKE N'replay.%' ORDER BY name

-- name: last delivered
SELECT COALESCE(MAX(id), 0) FROM {done}

-- Arguments: name, text.
-- name: begin replay
INSERT INTO {settings} (name, value)
SELECT N'replay.' + @p1, @p2
WHERE NOT EXISTS (SELECT 1 FROM {settings} WITH (UPDLOCK, HOLDLOCK, ROWLOCK) WHERE name = N'replay.' + @p1)

-- Arguments: new text, name, previous text. It changes nothing if the stored text isn't the previous text.
-- name: change replay
UPDATE {settings} SET value = @p1 WHERE name = N'replay.' + @p2 AND value = @p3

-- ---------------------------------------------------------------------------------
-- The controls that operators have set, and the log of the operators' actions.

-- name: controls in force
SELECT kind, name, COALESCE(rate, 0), TODATETIMEOFFSET(ends_at, '+00:00'), made_by, TODATETIMEOFFSET(made_at, '+00:00'), reason FROM {controls} WHERE ends_at IS NULL OR ends_at > SYSUTCDATETIME() ORDER BY kind, name

-- name: forget ended controls
DELETE FROM {controls} WHERE ends_at <= SYSUTCDATETIME()

-- name: lift control
DELETE FROM {controls} WHERE kind = @p1 AND name = @p2

-- Arguments: kind, name, rate, duration in microseconds (NULL: no end), author, reason.
-- name: set control
INSERT INTO {controls} (kind, name, rate, ends_at, made_by, made_at, reason)
VALUES (@p1, @p2, @p3, DATEADD(MILLISECOND, CONVERT(bigint, @p4) / 1000 % 1000, DATEADD(SECOND, CONVERT(bigint, @p4) / 1000000, SYSUTCDATETIME())), @p5, SYSUTCDATETIME(), @p6)

-- Arguments: id, author, action, target, reason.
-- name: begin action
INSERT INTO {actions} (id, made_by, action, target, reason, made_at) VALUES (@p1, @p2, @p3, @p4, @p5, SYSUTCDATETIME())

-- Arguments: number of changed messages, id.
-- name: end action
UPDATE {actions} SET changed = @p1 WHERE id = @p2

-- name: delete old done
DELETE TOP (4000) FROM {done} WHERE finished_at < DATEADD(DAY, -1, SYSUTCDATETIME())

-- name: log of actions
SELECT id, TODATETIMEOFFSET(made_at, '+00:00'), made_by, action, target, reason, COALESCE(changed, -1) FROM {actions} ORDER BY made_at DESC, id DESC
