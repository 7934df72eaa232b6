-- insert
INSERT INTO app."Events" (message_id, topic, message_key, payload, headers, available_at, priority) VALUES (@p1,@p2,@p3,@p4,@p5,@p6,@p7);
--   1: i
--   2: t"\
--   3: k
--   4: [112 112]
--   5: {}
--   6: 2030-01-02T03:04:05.6789001
--   7: 3

-- insert several
INSERT INTO app."Events" (message_id, topic, message_key, payload, headers, available_at, priority)
SELECT r.message_id, r.topic, r.message_key, SUBSTRING(@p1, r.start, r.length), r.headers, r.available_at, r.priority
FROM OPENJSON(@p2) WITH (n int '$[0]', start bigint '$[1]', length bigint '$[2]',
    message_id uniqueidentifier '$[3]', topic nvarchar(255) '$[4]', message_key nvarchar(255) '$[5]',
    headers nvarchar(max) '$[6]', available_at datetime2(7) '$[7]', priority smallint '$[8]') AS r ORDER BY r.n;
--   1: [112 112 0]
--   2: [[0,1,null,"i","t",null,null,null,0],[1,1,2,"i","t\"\\","k","{}","2030-01-02T03:04:05.6789001",3]]

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

-- written
SET TRANSACTION ISOLATION LEVEL SNAPSHOT;
SELECT LOWER(CONVERT(nvarchar(36), message_id)), topic, message_key, payload, CONVERT(bit, CASE WHEN payload IS NULL THEN 1 ELSE 0 END), payload_text, headers, CONVERT(nvarchar(27), available_at, 121), priority FROM app."Events_messages" ORDER BY id;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
--   1: 0

-- server
SELECT N'version', CONVERT(nvarchar(128), SERVERPROPERTY(N'ProductVersion'))
UNION ALL SELECT N'edition', CONVERT(nvarchar(128), SERVERPROPERTY(N'EngineEdition'))
UNION ALL SELECT N'database', DB_NAME()
UNION ALL SELECT N'level', CONVERT(nvarchar(10), compatibility_level) FROM sys.databases WHERE name = DB_NAME()
UNION ALL SELECT N'snapshot', CONVERT(nvarchar(10), snapshot_isolation_state) FROM sys.databases WHERE name = DB_NAME()
UNION ALL SELECT N'read committed snapshot', CONVERT(nvarchar(10), is_read_committed_snapshot_on) FROM sys.databases WHERE name = DB_NAME();

-- trial: hold
SELECT lane FROM app."Events_lanes" WITH (INDEX("Events_lanes_fence"), UPDLOCK, ROWLOCK) WHERE lane = 0;

-- trial: pass
SELECT lane FROM app."Events_lanes" WITH (INDEX("Events_lanes_fence"), UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK) WHERE lane IN (0, 1);

-- observe
DECLARE @number bigint = CONVERT(bigint, @@DBTS);
DECLARE @server nvarchar(400) = REPLACE(CONCAT(@@SERVERNAME, N'/', DB_ID(), N'/', CONVERT(nvarchar(128), SERVERPROPERTY(N'ComputerNamePhysicalNetBIOS')),
    N'/', CONVERT(nvarchar(20), SERVERPROPERTY(N'ProcessID')),
    N'/', (SELECT CONVERT(nvarchar(30), create_date, 126) FROM sys.databases WHERE name = N'tempdb'),
    N'/', (SELECT CONVERT(nvarchar(30), create_date, 126) FROM sys.databases WHERE name = DB_NAME())), N' ', N'_');
SELECT N'number', CONVERT(nvarchar(20), @number)
UNION ALL SELECT N'open', CONVERT(nvarchar(20), CONVERT(bigint, MIN_ACTIVE_ROWVERSION()))
UNION ALL SELECT N'server', @server;

-- read at READ COMMITTED
SET NOCOUNT ON;
DECLARE @positions TABLE (n int NOT NULL PRIMARY KEY, lane smallint NOT NULL, after bigint NOT NULL, until bigint NOT NULL, message_key nvarchar(255) COLLATE Latin1_General_100_BIN2);
INSERT INTO @positions (n, lane, after, until, message_key)
SELECT n, lane, after, until, message_key FROM OPENJSON(@p1)
    WITH (n int '$[0]', lane smallint '$[1]', after bigint '$[2]', until bigint '$[3]', message_key nvarchar(255) '$[4]');
DECLARE @first nvarchar(500) = CONCAT(COALESCE((SELECT CONVERT(bigint, current_value) FROM sys.sequences WHERE object_id = OBJECT_ID(N'[app].[Events_id]')), 0), N' 0 0 0 ', REPLACE(CONCAT(@@SERVERNAME, N'/', DB_ID(), N'/', CONVERT(nvarchar(128), SERVERPROPERTY(N'ComputerNamePhysicalNetBIOS')),
    N'/', CONVERT(nvarchar(20), SERVERPROPERTY(N'ProcessID')),
    N'/', (SELECT CONVERT(nvarchar(30), create_date, 126) FROM sys.databases WHERE name = N'tempdb'),
    N'/', (SELECT CONVERT(nvarchar(30), create_date, 126) FROM sys.databases WHERE name = DB_NAME())), N' ', N'_'));
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
SELECT line, id, lane, message_id, topic, message_key, payload, headers, available_at, priority, attempts, crashes, created_at, flags FROM (
SELECT @first AS line, -1 AS n, CONVERT(bigint, 0) AS id, CONVERT(smallint, 0) AS lane, N'' AS message_id, N'' AS topic, N'' AS message_key, CONVERT(varbinary(max), NULL) AS payload, N'' AS headers, CONVERT(datetimeoffset(7), NULL) AS available_at, CONVERT(smallint, 0) AS priority, 0 AS attempts, 0 AS crashes, CONVERT(datetimeoffset(7), NULL) AS created_at, 0 AS flags
UNION ALL
SELECT NULL, t.n, t.id, t.lane, LOWER(CONVERT(nvarchar(36), t.message_id)), t.topic, COALESCE(t.message_key, N''),
    COALESCE(t.payload, CONVERT(varbinary(max), t.payload_text)), COALESCE(t.headers, N''),
    TODATETIMEOFFSET(t.available_at, '+00:00'), t.priority, t.attempts, t.crashes, TODATETIMEOFFSET(t.created_at, '+00:00'),
    CASE WHEN t.payload IS NOT NULL THEN 1 WHEN t.payload_text IS NOT NULL THEN 9 ELSE 0 END + CASE WHEN t.available_at > SYSUTCDATETIME() THEN 2 ELSE 0 END
FROM (SELECT TOP (@p2) p.n, h.* FROM @positions AS p
CROSS APPLY (SELECT TOP (@p3) * FROM app."Events" AS h WITH (FORCESEEK)
    WHERE h.lane = p.lane AND h.id > p.after AND h.id <= p.until ORDER BY h.id) AS h ORDER BY p.n, h.id) AS t
) AS page ORDER BY n, id;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
--   1: []
--   2: 1
--   3: 1

