-- insert
INSERT INTO app."Events" (message_id, topic, message_key, payload, headers, available_at, expires_at, priority) VALUES (@p1,@p2,@p3,@p4,@p5,@p6,@p7,@p8);
--   1: i
--   2: t"\
--   3: k
--   4: [112 112]
--   5: {}
--   6: 2030-01-02T03:04:05.6789001
--   7: 2030-01-03T00:00:00.0000000
--   8: 3

-- insert several
INSERT INTO app."Events" (message_id, topic, message_key, payload, headers, available_at, priority, expires_at)
SELECT r.message_id, r.topic, r.message_key, SUBSTRING(@p1, r.start, r.length), r.headers, r.available_at, r.priority, r.expires_at
FROM OPENJSON(@p2) WITH (n int '$[0]', start bigint '$[1]', length bigint '$[2]',
    message_id uniqueidentifier '$[3]', topic nvarchar(255) '$[4]', message_key nvarchar(255) '$[5]',
    headers nvarchar(max) '$[6]', available_at datetime2(7) '$[7]', priority smallint '$[8]', expires_at datetime2(7) '$[9]') AS r ORDER BY r.n;
--   1: [112 112 112 112 0]
--   2: [[0,1,null,"i","t",null,null,null,0,null],[1,1,2,"i","t\"\\","k","{}","2030-01-02T03:04:05.6789001",

-- insert ids
INSERT INTO app."Events_ids" (message_id, write_token) SELECT CONVERT(uniqueidentifier, value), @p2 FROM OPENJSON(@p1);
--   1: ["i","0197a3b4-0000-7abc-8def-0123456789ab"]
--   2: 42

-- delete ids
DELETE FROM app."Events_ids" WITH (ROWLOCK) WHERE message_id IN (SELECT CONVERT(uniqueidentifier, value) FROM OPENJSON(@p1)) AND @p2 IN (0, write_token);
--   1: ["i","0197a3b4-0000-7abc-8def-0123456789ab"]
--   2: 42

-- cancel
DELETE FROM t FROM app."Events" AS t WITH (ROWLOCK, INDEX("Events_scheduled")) WHERE message_id = @p1 AND available_at > DATEADD(MILLISECOND, @p2, SYSUTCDATETIME());
--   1: i
--   2: 5000
DELETE FROM t FROM app."Events_held" AS t WITH (ROWLOCK, INDEX("Events_held_message")) WHERE message_id = @p1 AND available_at > DATEADD(MILLISECOND, @p2, SYSUTCDATETIME()) AND state = N'scheduled';
--   1: i
--   2: 5000

-- lock keys
DECLARE @name nvarchar(255) = CONCAT(N'rowrelay:', OBJECT_ID(N'[app].[Events]'), N':', CONVERT(nvarchar(64), HASHBYTES('SHA2_256', @p1), 2));
DECLARE @got int;
EXEC @got = sp_getapplock @Resource = @name, @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = -1;
IF @got = -3 THROW 51205, N'the lock of a message''s key was chosen as a deadlock''s victim', 1;
IF @got < 0 THROW 50000, N'the lock of a message''s key was refused', 1;
--   1: a
DECLARE @name nvarchar(255) = CONCAT(N'rowrelay:', OBJECT_ID(N'[app].[Events]'), N':', CONVERT(nvarchar(64), HASHBYTES('SHA2_256', @p1), 2));
DECLARE @got int;
EXEC @got = sp_getapplock @Resource = @name, @LockMode = N'Exclusive', @LockOwner = N'Transaction', @LockTimeout = -1;
IF @got = -3 THROW 51205, N'the lock of a message''s key was chosen as a deadlock''s victim', 1;
IF @got < 0 THROW 50000, N'the lock of a message''s key was refused', 1;
--   1: b

-- notify

-- written
SET TRANSACTION ISOLATION LEVEL SNAPSHOT;
SELECT LOWER(CONVERT(nvarchar(36), message_id)), topic, message_key, payload, CONVERT(bit, CASE WHEN payload IS NULL THEN 1 ELSE 0 END), payload_text, headers, CONVERT(nvarchar(27), available_at, 121), CONVERT(nvarchar(27), expires_at, 121), priority FROM app."Events_messages" ORDER BY id;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
--   1: 0

-- receive
INSERT INTO app."Received" (consumer, message_id) SELECT @p1, @p2
WHERE NOT EXISTS (SELECT 1 FROM app."Received" WITH (UPDLOCK, ROWLOCK) WHERE consumer = @p1 AND message_id = @p2 AND size = DATALENGTH(@p2));
--   1: billing
--   2: 0197a3b4-0000-7abc-8def-0123456789ab

-- purge received
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
WITH old AS (
    SELECT TOP (@p1) * FROM app."Received" WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK)
    WHERE consumer = @p2 AND received_at < DATEADD(MILLISECOND, @p3 % 1000, DATEADD(SECOND, @p3 / 1000, SYSUTCDATETIME())) ORDER BY received_at)
DELETE FROM old;
--   1: 1000
--   2: billing
--   3: -604800000

-- inbox's version
SELECT CASE WHEN COUNT(*) >= 0 THEN '1' END FROM app."Received" WHERE consumer IS NULL;

-- schema version
SELECT value FROM app."Events_settings" WHERE name = N'schema';

-- make indexes for rows
IF NOT EXISTS (SELECT name FROM sys.indexes WHERE object_id = OBJECT_ID(N'[app].[Events]') AND name = N'Events_claim_id')
CREATE INDEX "Events_claim_id" ON app."Events" (id) WHERE claimed_until IS NULL WITH (ALLOW_PAGE_LOCKS = OFF);
IF NOT EXISTS (SELECT name FROM sys.indexes WHERE object_id = OBJECT_ID(N'[app].[Events]') AND name = N'Events_claim_priority')
CREATE INDEX "Events_claim_priority" ON app."Events" (priority DESC, id) WHERE claimed_until IS NULL WITH (ALLOW_PAGE_LOCKS = OFF);
IF NOT EXISTS (SELECT name FROM sys.indexes WHERE object_id = OBJECT_ID(N'[app].[Events]') AND name = N'Events_claim_until')
CREATE INDEX "Events_claim_until" ON app."Events" (claimed_until) INCLUDE (claim_token) WHERE claimed_until IS NOT NULL WITH (ALLOW_PAGE_LOCKS = OFF);

-- drop indexes for rows
DROP INDEX IF EXISTS "Events_claim_id" ON app."Events";
DROP INDEX IF EXISTS "Events_claim_priority" ON app."Events";
DROP INDEX IF EXISTS "Events_claim_until" ON app."Events";

-- count indexes for rows
SELECT COUNT(*) FROM (SELECT name FROM sys.indexes WHERE object_id = OBJECT_ID(N'[app].[Events]') AND name IN (N'Events_claim_id', N'Events_claim_priority', N'Events_claim_until')) AS i;

-- server
SELECT N'version', CONVERT(nvarchar(128), SERVERPROPERTY(N'ProductVersion'))
UNION ALL SELECT N'edition', CONVERT(nvarchar(128), SERVERPROPERTY(N'EngineEdition'))
UNION ALL SELECT N'database', DB_NAME()
UNION ALL SELECT N'level', CONVERT(nvarchar(10), compatibility_level) FROM sys.databases WHERE name = DB_NAME()
UNION ALL SELECT N'snapshot', CONVERT(nvarchar(10), snapshot_isolation_state) FROM sys.databases WHERE name = DB_NAME()
UNION ALL SELECT N'read committed snapshot', CONVERT(nvarchar(10), is_read_committed_snapshot_on) FROM sys.databases WHERE name = DB_NAME();

-- trial
SET LOCK_TIMEOUT 1000;
SELECT lane FROM app."Events_lanes" WITH (INDEX("Events_lanes_fence"), UPDLOCK, ROWLOCK) WHERE lane = 0;
SELECT lane FROM app."Events_lanes" WITH (INDEX("Events_lanes_fence"), UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK) WHERE lane IN (0, 1);

