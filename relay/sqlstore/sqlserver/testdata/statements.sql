-- claim mode
SELECT value FROM app."Events_settings" WHERE name = N'claim';

-- set the claim mode
SET LOCK_TIMEOUT 3000;
SELECT value FROM app."Events_settings" WITH (XLOCK, HOLDLOCK, ROWLOCK) WHERE name = N'claim';
SELECT name FROM app."Events_relays" WHERE until >= SYSUTCDATETIME() AND claim <> @p1 ORDER BY name;
--   1: lanes
UPDATE app."Events_settings" SET value = @p1 WHERE name = N'claim';
IF @@ROWCOUNT = 0 INSERT INTO app."Events_settings" (name, value) VALUES (N'claim', @p1);
--   1: lanes
UPDATE app."Events_lanes" SET owner = NULL, until = NULL, fence = fence + 1, marks = NULL, journal = NULL, crashes = 0;
UPDATE app."Events" WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK)
SET claimed_by = NULL, claim_token = NULL, claimed_until = NULL WHERE claimed_until IS NOT NULL;
UPDATE app."Events_held" SET state = N'error', holds = 0 WHERE holds > 0;
-- a statement of the dialect, about the indexes for claiming by rows
-- a statement of the dialect, about the indexes for claiming by rows
-- a statement of the dialect, about the indexes for claiming by rows
-- a statement of the dialect, about the indexes for claiming by rows

-- heartbeat
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @own bit = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;
DECLARE @alive bit = 1;
IF @own = 1 BEGIN TRANSACTION;
IF EXISTS (SELECT 1 FROM app."Events_settings" WITH (HOLDLOCK, ROWLOCK) WHERE name = N'claim' AND value <> @p4) SET @alive = 0;
UPDATE app."Events_relays" WITH (ROWLOCK)
SET host = @p2, version = @p3, claim = @p4, setup = @p6,
    since = CASE WHEN until < SYSUTCDATETIME() THEN SYSUTCDATETIME() ELSE since END, last_heartbeat = SYSUTCDATETIME(), until = DATEADD(MILLISECOND, @p5 % 1000, DATEADD(SECOND, @p5 / 1000, SYSUTCDATETIME()))
WHERE name = @p1 AND @alive = 1;
IF @@ROWCOUNT = 0 AND @alive = 1
    INSERT INTO app."Events_relays" (name, host, version, claim, since, last_heartbeat, until, setup)
    VALUES (@p1, @p2, @p3, @p4, SYSUTCDATETIME(), SYSUTCDATETIME(), DATEADD(MILLISECOND, @p5 % 1000, DATEADD(SECOND, @p5 / 1000, SYSUTCDATETIME())), @p6);
IF @own = 1 COMMIT TRANSACTION;
SELECT @p1, CONVERT(bigint, 0), REPLACE(CONCAT(@@SERVERNAME, N'/', DB_ID(), N'/', CONVERT(nvarchar(128), SERVERPROPERTY(N'ComputerNamePhysicalNetBIOS')),
    N'/', CONVERT(nvarchar(20), SERVERPROPERTY(N'ProcessID')),
    N'/', (SELECT CONVERT(nvarchar(30), create_date, 126) FROM sys.databases WHERE name = N'tempdb'),
    N'/', (SELECT CONVERT(nvarchar(30), create_date, 126) FROM sys.databases WHERE name = DB_NAME())), N' ', N'_') WHERE @alive = 1;
--   1: r
--   2: h
--   3: 1
--   4: lanes
--   5: 15000
--   6: 
SET TRANSACTION ISOLATION LEVEL SNAPSHOT;
SELECT name, setup, TODATETIMEOFFSET(SYSUTCDATETIME(), '+00:00') FROM app."Events_relays" WHERE until >= SYSUTCDATETIME() ORDER BY name;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
--   1: 0

-- end leases
UPDATE app."Events_lanes" SET until = DATEADD(SECOND, -1, SYSUTCDATETIME()), fence = fence + 1 WHERE owner = @p1;
--   1: r

-- end claims
UPDATE app."Events" SET claimed_until = DATEADD(SECOND, -1, SYSUTCDATETIME()) WHERE claimed_until >= SYSUTCDATETIME() AND claimed_by = @p1;
--   1: r

-- deregister
DELETE FROM app."Events_relays" WHERE name = @p1;
--   1: r

-- check
SELECT N'the database is', N'read-only' WHERE DATABASEPROPERTYEX(DB_NAME(), N'Updateability') <> N'READ_WRITE'
UNION ALL SELECT N'QUOTED_IDENTIFIER is', N'off' WHERE SESSIONPROPERTY(N'QUOTED_IDENTIFIER') = 0
UNION ALL SELECT N'ANSI_WARNINGS is', N'off' WHERE SESSIONPROPERTY(N'ANSI_WARNINGS') = 0;
SELECT N'pages of', name FROM sys.indexes WHERE object_id IN (OBJECT_ID(N'[app].[Events]'), OBJECT_ID(N'[app].[Events_held]'), OBJECT_ID(N'[app].[Events_lanes]')) AND allow_page_locks = 1
UNION ALL SELECT N'all of', name FROM sys.tables WHERE object_id IN (OBJECT_ID(N'[app].[Events]'), OBJECT_ID(N'[app].[Events_held]'), OBJECT_ID(N'[app].[Events_lanes]')) AND lock_escalation_desc <> N'DISABLE';
SELECT need, N'on', name FROM (VALUES (N'SELECT', N'[app].[Events]'),
    (N'INSERT', N'[app].[Events]'),
    (N'UPDATE', N'[app].[Events]'),
    (N'DELETE', N'[app].[Events]'),
    (N'SELECT', N'[app].[Events_held]'),
    (N'INSERT', N'[app].[Events_held]'),
    (N'UPDATE', N'[app].[Events_held]'),
    (N'DELETE', N'[app].[Events_held]'),
    (N'SELECT', N'[app].[Events_done]'),
    (N'INSERT', N'[app].[Events_done]'),
    (N'UPDATE', N'[app].[Events_done]'),
    (N'DELETE', N'[app].[Events_done]'),
    (N'SELECT', N'[app].[Events_ids]'),
    (N'DELETE', N'[app].[Events_ids]'),
    (N'SELECT', N'[app].[Events_lanes]'),
    (N'UPDATE', N'[app].[Events_lanes]'),
    (N'SELECT', N'[app].[Events_relays]'),
    (N'INSERT', N'[app].[Events_relays]'),
    (N'UPDATE', N'[app].[Events_relays]'),
    (N'DELETE', N'[app].[Events_relays]'),
    (N'SELECT', N'[app].[Events_settings]'),
    (N'INSERT', N'[app].[Events_settings]'),
    (N'UPDATE', N'[app].[Events_settings]'),
    (N'SELECT', N'[app].[Events_controls]'),
    (N'INSERT', N'[app].[Events_controls]'),
    (N'DELETE', N'[app].[Events_controls]'),
    (N'SELECT', N'[app].[Events_actions]'),
    (N'INSERT', N'[app].[Events_actions]'),
    (N'UPDATE', N'[app].[Events_actions]'),
    (N'SELECT', N'[app].[Events_messages]'),
    (N'VIEW DEFINITION', N'[app].[Events_id]')) AS n (need, name)
WHERE COALESCE(HAS_PERMS_BY_NAME(name, N'OBJECT', need), 0) = 0;
SET NOCOUNT ON;
DECLARE @positions TABLE (n int NOT NULL PRIMARY KEY, lane smallint NOT NULL, after bigint NOT NULL, until bigint NOT NULL, message_key nvarchar(255) COLLATE Latin1_General_100_BIN2);
INSERT INTO @positions (n, lane, after, until, message_key)
SELECT n, lane, after, until, message_key FROM OPENJSON(@p1)
    WITH (n int '$[0]', lane smallint '$[1]', after bigint '$[2]', until bigint '$[3]', message_key nvarchar(255) '$[4]');
DECLARE @first nvarchar(500) = CONCAT(COALESCE((SELECT CONVERT(bigint, current_value) FROM sys.sequences WHERE object_id = OBJECT_ID(N'[app].[Events_id]')), 0), N' 0 0 0 ', REPLACE(CONCAT(@@SERVERNAME, N'/', DB_ID(), N'/', CONVERT(nvarchar(128), SERVERPROPERTY(N'ComputerNamePhysicalNetBIOS')),
    N'/', CONVERT(nvarchar(20), SERVERPROPERTY(N'ProcessID')),
    N'/', (SELECT CONVERT(nvarchar(30), create_date, 126) FROM sys.databases WHERE name = N'tempdb'),
    N'/', (SELECT CONVERT(nvarchar(30), create_date, 126) FROM sys.databases WHERE name = DB_NAME())), N' ', N'_'));
SET TRANSACTION ISOLATION LEVEL SNAPSHOT;
SELECT line, id, lane, message_id, topic, message_key, sinks, payload, headers, available_at, expires_at, priority, attempts, crashes, created_at, flags FROM (
SELECT @first AS line, -1 AS n, CONVERT(bigint, 0) AS id, CONVERT(smallint, 0) AS lane, N'' AS message_id, N'' AS topic, N'' AS message_key, N'' AS sinks, CONVERT(varbinary(max), NULL) AS payload, N'' AS headers, CONVERT(datetimeoffset(7), NULL) AS available_at, CONVERT(datetimeoffset(7), NULL) AS expires_at, CONVERT(smallint, 0) AS priority, 0 AS attempts, 0 AS crashes, CONVERT(datetimeoffset(7), NULL) AS created_at, 0 AS flags
UNION ALL
SELECT NULL, t.n, t.id, t.lane, LOWER(CONVERT(nvarchar(36), t.message_id)), t.topic, COALESCE(t.message_key, N''), t.sinks,
    COALESCE(t.payload, CONVERT(varbinary(max), t.payload_text)), COALESCE(t.headers, N''),
    TODATETIMEOFFSET(t.available_at, '+00:00'), TODATETIMEOFFSET(t.expires_at, '+00:00'), t.priority, t.attempts, t.crashes, TODATETIMEOFFSET(t.created_at, '+00:00'),
    CASE WHEN t.payload IS NOT NULL THEN 1 WHEN t.payload_text IS NOT NULL THEN 9 ELSE 0 END + CASE WHEN t.available_at > SYSUTCDATETIME() THEN 2 ELSE 0 END
FROM (SELECT TOP (@p2) p.n, h.* FROM @positions AS p
CROSS APPLY (SELECT TOP (@p3) * FROM app."Events" AS h WITH (FORCESEEK)
    WHERE h.lane = p.lane AND h.id > p.after AND h.id <= p.until ORDER BY h.id) AS h ORDER BY p.n, h.id) AS t
) AS page ORDER BY n, id;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
--   1: []
--   2: 1
--   3: 1

-- acquire
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
UPDATE TOP (@p1) l
SET owner = @p2, fence = l.fence + @p4, until = DATEADD(MILLISECOND, @p3 % 1000, DATEADD(SECOND, @p3 / 1000, SYSUTCDATETIME())),
    crashes = CASE WHEN l.owner IS NULL THEN l.crashes ELSE l.crashes + 1 END
OUTPUT inserted.lane, inserted.fence, COALESCE(inserted.marks, N''), inserted.crashes, COALESCE(inserted.journal, N''), CONVERT(bigint, 0)
FROM (SELECT TOP (64) lane FROM app."Events_lanes" WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK)
    WHERE owner IS NULL OR until < SYSUTCDATETIME() ORDER BY NEWID()) AS free
INNER JOIN app."Events_lanes" AS l WITH (INDEX("Events_lanes_fence"), XLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK)
    ON l.lane = free.lane AND (l.owner IS NULL OR l.until < SYSUTCDATETIME())
OPTION (FORCE ORDER, LOOP JOIN);
--   1: 5
--   2: r
--   3: 15000
--   4: 300

-- renew
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
UPDATE l
SET until = DATEADD(MILLISECOND, @p4 % 1000, DATEADD(SECOND, @p4 / 1000, SYSUTCDATETIME())), marks = CASE WHEN COALESCE(@p3, N'') = N'' OR REPLACE(CONCAT(@@SERVERNAME, N'/', DB_ID(), N'/', CONVERT(nvarchar(128), SERVERPROPERTY(N'ComputerNamePhysicalNetBIOS')),
    N'/', CONVERT(nvarchar(20), SERVERPROPERTY(N'ProcessID')),
    N'/', (SELECT CONVERT(nvarchar(30), create_date, 126) FROM sys.databases WHERE name = N'tempdb'),
    N'/', (SELECT CONVERT(nvarchar(30), create_date, 126) FROM sys.databases WHERE name = DB_NAME())), N' ', N'_') = @p3 THEN g.marks ELSE l.marks END,
    crashes = CASE WHEN g.calm = 1 THEN 0 ELSE l.crashes END, journal = CASE WHEN g.calm = 1 THEN NULL ELSE l.journal END
OUTPUT inserted.lane, inserted.fence, CONVERT(bigint, 0)
FROM OPENJSON(@p1)
    WITH (lane smallint '$[0]', fence bigint '$[1]', marks nvarchar(max) '$[2]', calm bit '$[3]', journal nvarchar(max) '$[4]') AS g
INNER JOIN app."Events_lanes" AS l WITH (INDEX(1), ROWLOCK) ON l.lane = g.lane AND l.fence = g.fence AND l.owner = @p2
OPTION (FORCE ORDER, LOOP JOIN);
--   1: [[1,7,"{\"main\":5}",true,"[{\"id\":1}]"],[2,8,"",false,""]]
--   2: r
--   3: e
--   4: 15000

-- release
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
UPDATE l
SET owner = NULL, until = NULL, marks = CASE WHEN COALESCE(@p3, N'') = N'' OR REPLACE(CONCAT(@@SERVERNAME, N'/', DB_ID(), N'/', CONVERT(nvarchar(128), SERVERPROPERTY(N'ComputerNamePhysicalNetBIOS')),
    N'/', CONVERT(nvarchar(20), SERVERPROPERTY(N'ProcessID')),
    N'/', (SELECT CONVERT(nvarchar(30), create_date, 126) FROM sys.databases WHERE name = N'tempdb'),
    N'/', (SELECT CONVERT(nvarchar(30), create_date, 126) FROM sys.databases WHERE name = DB_NAME())), N' ', N'_') = @p3 THEN g.marks ELSE l.marks END, journal = NULL, crashes = 0
OUTPUT inserted.lane, inserted.fence, CONVERT(bigint, 0)
FROM OPENJSON(@p1)
    WITH (lane smallint '$[0]', fence bigint '$[1]', marks nvarchar(max) '$[2]', calm bit '$[3]', journal nvarchar(max) '$[4]') AS g
INNER JOIN app."Events_lanes" AS l WITH (INDEX(1), ROWLOCK) ON l.lane = g.lane AND l.fence = g.fence AND l.owner = @p2
OPTION (FORCE ORDER, LOOP JOIN);
--   1: [[1,7,"{\"main\":5}",true,"[{\"id\":1}]"],[2,8,"",false,""]]
--   2: r
--   3: e

-- write the journal
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
UPDATE l
SET journal = g.journal
OUTPUT inserted.lane, inserted.fence, CONVERT(bigint, 0)
FROM OPENJSON(@p1)
    WITH (lane smallint '$[0]', fence bigint '$[1]', marks nvarchar(max) '$[2]', calm bit '$[3]', journal nvarchar(max) '$[4]') AS g
INNER JOIN app."Events_lanes" AS l WITH (INDEX(1), ROWLOCK) ON l.lane = g.lane AND l.fence = g.fence AND l.owner = @p2
OPTION (FORCE ORDER, LOOP JOIN);
--   1: [[1,7,"{\"main\":5}",true,"[{\"id\":1}]"],[2,8,"",false,""]]
--   2: r

-- journals
SELECT lane, fence, journal FROM app."Events_lanes" WHERE journal IS NOT NULL;

-- marks
SELECT lane, marks FROM app."Events_lanes" WHERE marks IS NOT NULL ORDER BY lane;

-- last id
SELECT COALESCE((SELECT CONVERT(bigint, current_value) FROM sys.sequences WHERE object_id = OBJECT_ID(N'[app].[Events_id]')), 0);

-- first line
SET NOCOUNT ON;
DECLARE @positions TABLE (n int NOT NULL PRIMARY KEY, lane smallint NOT NULL, after bigint NOT NULL, until bigint NOT NULL, message_key nvarchar(255) COLLATE Latin1_General_100_BIN2);
INSERT INTO @positions (n, lane, after, until, message_key)
SELECT n, lane, after, until, message_key FROM OPENJSON(@p1)
    WITH (n int '$[0]', lane smallint '$[1]', after bigint '$[2]', until bigint '$[3]', message_key nvarchar(255) '$[4]');
DECLARE @first nvarchar(500) = CONCAT(COALESCE((SELECT CONVERT(bigint, current_value) FROM sys.sequences WHERE object_id = OBJECT_ID(N'[app].[Events_id]')), 0), N' 0 0 0 ', REPLACE(CONCAT(@@SERVERNAME, N'/', DB_ID(), N'/', CONVERT(nvarchar(128), SERVERPROPERTY(N'ComputerNamePhysicalNetBIOS')),
    N'/', CONVERT(nvarchar(20), SERVERPROPERTY(N'ProcessID')),
    N'/', (SELECT CONVERT(nvarchar(30), create_date, 126) FROM sys.databases WHERE name = N'tempdb'),
    N'/', (SELECT CONVERT(nvarchar(30), create_date, 126) FROM sys.databases WHERE name = DB_NAME())), N' ', N'_'));
SET TRANSACTION ISOLATION LEVEL SNAPSHOT;
SELECT line, id, lane, message_id, topic, message_key, sinks, payload, headers, available_at, expires_at, priority, attempts, crashes, created_at, flags FROM (
SELECT @first AS line, -1 AS n, CONVERT(bigint, 0) AS id, CONVERT(smallint, 0) AS lane, N'' AS message_id, N'' AS topic, N'' AS message_key, N'' AS sinks, CONVERT(varbinary(max), NULL) AS payload, N'' AS headers, CONVERT(datetimeoffset(7), NULL) AS available_at, CONVERT(datetimeoffset(7), NULL) AS expires_at, CONVERT(smallint, 0) AS priority, 0 AS attempts, 0 AS crashes, CONVERT(datetimeoffset(7), NULL) AS created_at, 0 AS flags
UNION ALL
SELECT NULL, t.n, t.id, t.lane, LOWER(CONVERT(nvarchar(36), t.message_id)), t.topic, COALESCE(t.message_key, N''), t.sinks,
    COALESCE(t.payload, CONVERT(varbinary(max), t.payload_text)), COALESCE(t.headers, N''),
    TODATETIMEOFFSET(t.available_at, '+00:00'), TODATETIMEOFFSET(t.expires_at, '+00:00'), t.priority, t.attempts, t.crashes, TODATETIMEOFFSET(t.created_at, '+00:00'),
    CASE WHEN t.payload IS NOT NULL THEN 1 WHEN t.payload_text IS NOT NULL THEN 9 ELSE 0 END + CASE WHEN t.available_at > SYSUTCDATETIME() THEN 2 ELSE 0 END
FROM (SELECT TOP (@p2) p.n, h.* FROM @positions AS p
CROSS APPLY (SELECT TOP (@p3) * FROM app."Events" AS h WITH (FORCESEEK)
    WHERE h.lane = p.lane AND h.id > p.after AND h.id <= p.until ORDER BY h.id) AS h ORDER BY p.n, h.id) AS t
) AS page ORDER BY n, id;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
--   1: []
--   2: 0
--   3: 0

-- read
SET NOCOUNT ON;
DECLARE @positions TABLE (n int NOT NULL PRIMARY KEY, lane smallint NOT NULL, after bigint NOT NULL, until bigint NOT NULL, message_key nvarchar(255) COLLATE Latin1_General_100_BIN2);
INSERT INTO @positions (n, lane, after, until, message_key)
SELECT n, lane, after, until, message_key FROM OPENJSON(@p1)
    WITH (n int '$[0]', lane smallint '$[1]', after bigint '$[2]', until bigint '$[3]', message_key nvarchar(255) '$[4]');
DECLARE @first nvarchar(500) = CONCAT(COALESCE((SELECT CONVERT(bigint, current_value) FROM sys.sequences WHERE object_id = OBJECT_ID(N'[app].[Events_id]')), 0), N' 0 0 0 ', REPLACE(CONCAT(@@SERVERNAME, N'/', DB_ID(), N'/', CONVERT(nvarchar(128), SERVERPROPERTY(N'ComputerNamePhysicalNetBIOS')),
    N'/', CONVERT(nvarchar(20), SERVERPROPERTY(N'ProcessID')),
    N'/', (SELECT CONVERT(nvarchar(30), create_date, 126) FROM sys.databases WHERE name = N'tempdb'),
    N'/', (SELECT CONVERT(nvarchar(30), create_date, 126) FROM sys.databases WHERE name = DB_NAME())), N' ', N'_'));
SET TRANSACTION ISOLATION LEVEL SNAPSHOT;
SELECT line, id, lane, message_id, topic, message_key, sinks, payload, headers, available_at, expires_at, priority, attempts, crashes, created_at, flags FROM (
SELECT @first AS line, -1 AS n, CONVERT(bigint, 0) AS id, CONVERT(smallint, 0) AS lane, N'' AS message_id, N'' AS topic, N'' AS message_key, N'' AS sinks, CONVERT(varbinary(max), NULL) AS payload, N'' AS headers, CONVERT(datetimeoffset(7), NULL) AS available_at, CONVERT(datetimeoffset(7), NULL) AS expires_at, CONVERT(smallint, 0) AS priority, 0 AS attempts, 0 AS crashes, CONVERT(datetimeoffset(7), NULL) AS created_at, 0 AS flags
UNION ALL
SELECT NULL, t.n, t.id, t.lane, LOWER(CONVERT(nvarchar(36), t.message_id)), t.topic, COALESCE(t.message_key, N''), t.sinks,
    COALESCE(t.payload, CONVERT(varbinary(max), t.payload_text)), COALESCE(t.headers, N''),
    TODATETIMEOFFSET(t.available_at, '+00:00'), TODATETIMEOFFSET(t.expires_at, '+00:00'), t.priority, t.attempts, t.crashes, TODATETIMEOFFSET(t.created_at, '+00:00'),
    CASE WHEN t.payload IS NOT NULL THEN 1 WHEN t.payload_text IS NOT NULL THEN 9 ELSE 0 END + CASE WHEN t.available_at > SYSUTCDATETIME() THEN 2 ELSE 0 END
FROM (SELECT TOP (@p2) p.n, h.* FROM @positions AS p
CROSS APPLY (SELECT TOP (@p3) * FROM app."Events" AS h WITH (FORCESEEK)
    WHERE h.lane = p.lane AND h.id > p.after AND h.id <= p.until ORDER BY h.id) AS h ORDER BY p.n, h.id) AS t
) AS page ORDER BY n, id;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
--   1: [[0,1,10,20,null],[1,2,11,21,null]]
--   2: 100
--   3: 100

-- read a share
SET NOCOUNT ON;
DECLARE @positions TABLE (n int NOT NULL PRIMARY KEY, lane smallint NOT NULL, after bigint NOT NULL, until bigint NOT NULL, message_key nvarchar(255) COLLATE Latin1_General_100_BIN2);
INSERT INTO @positions (n, lane, after, until, message_key)
SELECT n, lane, after, until, message_key FROM OPENJSON(@p1)
    WITH (n int '$[0]', lane smallint '$[1]', after bigint '$[2]', until bigint '$[3]', message_key nvarchar(255) '$[4]');
DECLARE @first nvarchar(500) = CONCAT(COALESCE((SELECT CONVERT(bigint, current_value) FROM sys.sequences WHERE object_id = OBJECT_ID(N'[app].[Events_id]')), 0), N' 0 0 0 ', REPLACE(CONCAT(@@SERVERNAME, N'/', DB_ID(), N'/', CONVERT(nvarchar(128), SERVERPROPERTY(N'ComputerNamePhysicalNetBIOS')),
    N'/', CONVERT(nvarchar(20), SERVERPROPERTY(N'ProcessID')),
    N'/', (SELECT CONVERT(nvarchar(30), create_date, 126) FROM sys.databases WHERE name = N'tempdb'),
    N'/', (SELECT CONVERT(nvarchar(30), create_date, 126) FROM sys.databases WHERE name = DB_NAME())), N' ', N'_'));
SET TRANSACTION ISOLATION LEVEL SNAPSHOT;
SELECT line, id, lane, message_id, topic, message_key, sinks, payload, headers, available_at, expires_at, priority, attempts, crashes, created_at, flags FROM (
SELECT @first AS line, -1 AS n, CONVERT(bigint, 0) AS id, CONVERT(smallint, 0) AS lane, N'' AS message_id, N'' AS topic, N'' AS message_key, N'' AS sinks, CONVERT(varbinary(max), NULL) AS payload, N'' AS headers, CONVERT(datetimeoffset(7), NULL) AS available_at, CONVERT(datetimeoffset(7), NULL) AS expires_at, CONVERT(smallint, 0) AS priority, 0 AS attempts, 0 AS crashes, CONVERT(datetimeoffset(7), NULL) AS created_at, 0 AS flags
UNION ALL
SELECT NULL, t.n, t.id, t.lane, LOWER(CONVERT(nvarchar(36), t.message_id)), t.topic, COALESCE(t.message_key, N''), t.sinks,
    COALESCE(t.payload, CONVERT(varbinary(max), t.payload_text)), COALESCE(t.headers, N''),
    TODATETIMEOFFSET(t.available_at, '+00:00'), TODATETIMEOFFSET(t.expires_at, '+00:00'), t.priority, t.attempts, t.crashes, TODATETIMEOFFSET(t.created_at, '+00:00'),
    CASE WHEN t.payload IS NOT NULL THEN 1 WHEN t.payload_text IS NOT NULL THEN 9 ELSE 0 END + CASE WHEN t.available_at > SYSUTCDATETIME() THEN 2 ELSE 0 END
FROM (SELECT TOP (@p2) p.n, h.* FROM @positions AS p
CROSS APPLY (SELECT TOP (@p3) * FROM app."Events" AS h WITH (FORCESEEK)
    WHERE h.lane = p.lane AND h.id > p.after AND h.id <= p.until ORDER BY h.id) AS h ORDER BY p.n, h.id) AS t
) AS page ORDER BY n, id;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
--   1: [[0,1,10,20,null],[1,2,11,21,null]]
--   2: 100
--   3: 7

-- read bytes
SET NOCOUNT ON;
DECLARE @positions TABLE (n int NOT NULL PRIMARY KEY, lane smallint NOT NULL, after bigint NOT NULL, until bigint NOT NULL, message_key nvarchar(255) COLLATE Latin1_General_100_BIN2);
INSERT INTO @positions (n, lane, after, until, message_key)
SELECT n, lane, after, until, message_key FROM OPENJSON(@p1)
    WITH (n int '$[0]', lane smallint '$[1]', after bigint '$[2]', until bigint '$[3]', message_key nvarchar(255) '$[4]');
DECLARE @first nvarchar(500) = CONCAT(COALESCE((SELECT CONVERT(bigint, current_value) FROM sys.sequences WHERE object_id = OBJECT_ID(N'[app].[Events_id]')), 0), N' 0 0 0 ', REPLACE(CONCAT(@@SERVERNAME, N'/', DB_ID(), N'/', CONVERT(nvarchar(128), SERVERPROPERTY(N'ComputerNamePhysicalNetBIOS')),
    N'/', CONVERT(nvarchar(20), SERVERPROPERTY(N'ProcessID')),
    N'/', (SELECT CONVERT(nvarchar(30), create_date, 126) FROM sys.databases WHERE name = N'tempdb'),
    N'/', (SELECT CONVERT(nvarchar(30), create_date, 126) FROM sys.databases WHERE name = DB_NAME())), N' ', N'_'));
SET TRANSACTION ISOLATION LEVEL SNAPSHOT;
SELECT line, id, lane, message_id, topic, message_key, sinks, payload, headers, available_at, expires_at, priority, attempts, crashes, created_at, flags FROM (
SELECT @first AS line, -1 AS n, CONVERT(bigint, 0) AS id, CONVERT(smallint, 0) AS lane, N'' AS message_id, N'' AS topic, N'' AS message_key, N'' AS sinks, CONVERT(varbinary(max), NULL) AS payload, N'' AS headers, CONVERT(datetimeoffset(7), NULL) AS available_at, CONVERT(datetimeoffset(7), NULL) AS expires_at, CONVERT(smallint, 0) AS priority, 0 AS attempts, 0 AS crashes, CONVERT(datetimeoffset(7), NULL) AS created_at, 0 AS flags
UNION ALL
SELECT NULL, t.n, t.id, t.lane, LOWER(CONVERT(nvarchar(36), t.message_id)), t.topic, COALESCE(t.message_key, N''), t.sinks,
    COALESCE(t.payload, CONVERT(varbinary(max), t.payload_text)), COALESCE(t.headers, N''),
    TODATETIMEOFFSET(t.available_at, '+00:00'), TODATETIMEOFFSET(t.expires_at, '+00:00'), t.priority, t.attempts, t.crashes, TODATETIMEOFFSET(t.created_at, '+00:00'),
    CASE WHEN t.payload IS NOT NULL THEN 1 WHEN t.payload_text IS NOT NULL THEN 9 ELSE 0 END + CASE WHEN t.available_at > SYSUTCDATETIME() THEN 2 ELSE 0 END
FROM (SELECT t.*, SUM(COALESCE(DATALENGTH(t.payload), 0) + COALESCE(DATALENGTH(t.payload_text), 0)) OVER (ORDER BY t.n, t.id ROWS UNBOUNDED PRECEDING) - (COALESCE(DATALENGTH(t.payload), 0) + COALESCE(DATALENGTH(t.payload_text), 0)) AS bytes_before
FROM (SELECT TOP (@p2) p.n, h.* FROM @positions AS p
CROSS APPLY (SELECT TOP (@p3) * FROM app."Events" AS h WITH (FORCESEEK)
    WHERE h.lane = p.lane AND h.id > p.after AND h.id <= p.until ORDER BY h.id) AS h ORDER BY p.n, h.id) AS t) AS t WHERE t.bytes_before < @p4
) AS page ORDER BY n, id;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
--   1: [[0,1,10,20,null],[1,2,11,21,null]]
--   2: 100
--   3: 100
--   4: 1048576

-- read except
SET NOCOUNT ON;
DECLARE @positions TABLE (n int NOT NULL PRIMARY KEY, lane smallint NOT NULL, after bigint NOT NULL, until bigint NOT NULL, message_key nvarchar(255) COLLATE Latin1_General_100_BIN2);
INSERT INTO @positions (n, lane, after, until, message_key)
SELECT n, lane, after, until, message_key FROM OPENJSON(@p1)
    WITH (n int '$[0]', lane smallint '$[1]', after bigint '$[2]', until bigint '$[3]', message_key nvarchar(255) '$[4]');
DECLARE @first nvarchar(500) = CONCAT(COALESCE((SELECT CONVERT(bigint, current_value) FROM sys.sequences WHERE object_id = OBJECT_ID(N'[app].[Events_id]')), 0), N' 0 0 0 ', REPLACE(CONCAT(@@SERVERNAME, N'/', DB_ID(), N'/', CONVERT(nvarchar(128), SERVERPROPERTY(N'ComputerNamePhysicalNetBIOS')),
    N'/', CONVERT(nvarchar(20), SERVERPROPERTY(N'ProcessID')),
    N'/', (SELECT CONVERT(nvarchar(30), create_date, 126) FROM sys.databases WHERE name = N'tempdb'),
    N'/', (SELECT CONVERT(nvarchar(30), create_date, 126) FROM sys.databases WHERE name = DB_NAME())), N' ', N'_'));
SET TRANSACTION ISOLATION LEVEL SNAPSHOT;
SELECT line, id, lane, message_id, topic, message_key, sinks, payload, headers, available_at, expires_at, priority, attempts, crashes, created_at, flags FROM (
SELECT @first AS line, -1 AS n, CONVERT(bigint, 0) AS id, CONVERT(smallint, 0) AS lane, N'' AS message_id, N'' AS topic, N'' AS message_key, N'' AS sinks, CONVERT(varbinary(max), NULL) AS payload, N'' AS headers, CONVERT(datetimeoffset(7), NULL) AS available_at, CONVERT(datetimeoffset(7), NULL) AS expires_at, CONVERT(smallint, 0) AS priority, 0 AS attempts, 0 AS crashes, CONVERT(datetimeoffset(7), NULL) AS created_at, 0 AS flags
UNION ALL
SELECT NULL, t.n, t.id, t.lane, LOWER(CONVERT(nvarchar(36), t.message_id)), t.topic, COALESCE(t.message_key, N''), t.sinks,
    COALESCE(t.payload, CONVERT(varbinary(max), t.payload_text)), COALESCE(t.headers, N''),
    TODATETIMEOFFSET(t.available_at, '+00:00'), TODATETIMEOFFSET(t.expires_at, '+00:00'), t.priority, t.attempts, t.crashes, TODATETIMEOFFSET(t.created_at, '+00:00'),
    CASE WHEN t.payload IS NOT NULL THEN 1 WHEN t.payload_text IS NOT NULL THEN 9 ELSE 0 END + CASE WHEN t.available_at > SYSUTCDATETIME() THEN 2 ELSE 0 END
FROM (SELECT TOP (@p2) p.n, h.* FROM @positions AS p
CROSS APPLY (SELECT TOP (@p3) * FROM app."Events" AS h WITH (FORCESEEK)
    WHERE h.lane = p.lane AND h.id > p.after AND h.id <= p.until ORDER BY h.id) AS h ORDER BY p.n, h.id) AS t
) AS page ORDER BY n, id;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
--   1: [[0,1,10,20,null],[1,2,11,21,null]]
--   2: 100
--   3: 100

-- read keys
SET NOCOUNT ON;
DECLARE @positions TABLE (n int NOT NULL PRIMARY KEY, lane smallint NOT NULL, after bigint NOT NULL, until bigint NOT NULL, message_key nvarchar(255) COLLATE Latin1_General_100_BIN2);
INSERT INTO @positions (n, lane, after, until, message_key)
SELECT n, lane, after, until, message_key FROM OPENJSON(@p1)
    WITH (n int '$[0]', lane smallint '$[1]', after bigint '$[2]', until bigint '$[3]', message_key nvarchar(255) '$[4]');
DECLARE @first nvarchar(500) = CONCAT(COALESCE((SELECT CONVERT(bigint, current_value) FROM sys.sequences WHERE object_id = OBJECT_ID(N'[app].[Events_id]')), 0), N' 0 0 0 ', REPLACE(CONCAT(@@SERVERNAME, N'/', DB_ID(), N'/', CONVERT(nvarchar(128), SERVERPROPERTY(N'ComputerNamePhysicalNetBIOS')),
    N'/', CONVERT(nvarchar(20), SERVERPROPERTY(N'ProcessID')),
    N'/', (SELECT CONVERT(nvarchar(30), create_date, 126) FROM sys.databases WHERE name = N'tempdb'),
    N'/', (SELECT CONVERT(nvarchar(30), create_date, 126) FROM sys.databases WHERE name = DB_NAME())), N' ', N'_'));
SET TRANSACTION ISOLATION LEVEL SNAPSHOT;
SELECT line, id, lane, message_id, topic, message_key, sinks, payload, headers, available_at, expires_at, priority, attempts, crashes, created_at, flags FROM (
SELECT @first AS line, -1 AS n, CONVERT(bigint, 0) AS id, CONVERT(smallint, 0) AS lane, N'' AS message_id, N'' AS topic, N'' AS message_key, N'' AS sinks, CONVERT(varbinary(max), NULL) AS payload, N'' AS headers, CONVERT(datetimeoffset(7), NULL) AS available_at, CONVERT(datetimeoffset(7), NULL) AS expires_at, CONVERT(smallint, 0) AS priority, 0 AS attempts, 0 AS crashes, CONVERT(datetimeoffset(7), NULL) AS created_at, 0 AS flags
UNION ALL
SELECT NULL, t.n, t.id, t.lane, LOWER(CONVERT(nvarchar(36), t.message_id)), t.topic, COALESCE(t.message_key, N''), t.sinks,
    COALESCE(t.payload, CONVERT(varbinary(max), t.payload_text)), COALESCE(t.headers, N''),
    TODATETIMEOFFSET(t.available_at, '+00:00'), TODATETIMEOFFSET(t.expires_at, '+00:00'), t.priority, t.attempts, t.crashes, TODATETIMEOFFSET(t.created_at, '+00:00'),
    CASE WHEN t.payload IS NOT NULL THEN 1 WHEN t.payload_text IS NOT NULL THEN 9 ELSE 0 END + CASE WHEN t.available_at > SYSUTCDATETIME() THEN 2 ELSE 0 END
FROM (SELECT TOP (@p2) p.n, h.* FROM @positions AS p
CROSS APPLY (SELECT TOP (@p3) * FROM app."Events" AS h WITH (INDEX(1))
    WHERE h.lane = p.lane AND h.id > p.after AND h.id <= p.until AND h.message_key = p.message_key AND DATALENGTH(h.message_key) = DATALENGTH(p.message_key) ORDER BY h.id) AS h ORDER BY p.n, h.id) AS t
) AS page ORDER BY n, id;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
--   1: [[0,1,10,20,"a\"\\k"]]
--   2: 100
--   3: 100

-- candidates
SET NOCOUNT ON;
DECLARE @positions TABLE (n int NOT NULL PRIMARY KEY, lane smallint NOT NULL, after bigint NOT NULL, until bigint NOT NULL, message_key nvarchar(255) COLLATE Latin1_General_100_BIN2);
INSERT INTO @positions (n, lane, after, until, message_key)
SELECT n, lane, after, until, message_key FROM OPENJSON(@p1)
    WITH (n int '$[0]', lane smallint '$[1]', after bigint '$[2]', until bigint '$[3]', message_key nvarchar(255) '$[4]');
SET TRANSACTION ISOLATION LEVEL SNAPSHOT;
SELECT t.id, t.lane, t.topic, COALESCE(t.message_key, N''), t.sinks, t.bytes
FROM (SELECT TOP (@p2) p.n, h.* FROM @positions AS p
CROSS APPLY (SELECT TOP (@p3) h.id, h.lane, h.topic, h.message_key, h.sinks, COALESCE(DATALENGTH(h.payload), DATALENGTH(h.payload_text), 0) AS bytes FROM app."Events" AS h WITH (FORCESEEK)
    WHERE h.lane = p.lane AND h.id > p.after AND h.id <= p.until ORDER BY h.id) AS h ORDER BY p.n, h.id) AS t ORDER BY t.n, t.id;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
--   1: [[0,1,10,20,null],[1,2,11,21,null]]
--   2: 100
--   3: 100

-- pick
SET TRANSACTION ISOLATION LEVEL SNAPSHOT;
SELECT t.id, t.lane, LOWER(CONVERT(nvarchar(36), t.message_id)), t.topic, COALESCE(t.message_key, N''), t.sinks,
    COALESCE(t.payload, CONVERT(varbinary(max), t.payload_text)), COALESCE(t.headers, N''),
    TODATETIMEOFFSET(t.available_at, '+00:00'), TODATETIMEOFFSET(t.expires_at, '+00:00'), t.priority, t.attempts, t.crashes, TODATETIMEOFFSET(t.created_at, '+00:00'),
    CASE WHEN t.payload IS NOT NULL THEN 1 WHEN t.payload_text IS NOT NULL THEN 9 ELSE 0 END + CASE WHEN t.available_at > SYSUTCDATETIME() THEN 2 ELSE 0 END
FROM OPENJSON(@p1) WITH (lane smallint '$[0]', id bigint '$[1]') AS g
INNER JOIN app."Events" AS t WITH (FORCESEEK) ON t.lane = g.lane AND t.id = g.id
OPTION (FORCE ORDER, LOOP JOIN);
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
--   1: [[1,15],[2,16]]

-- pick held
SET TRANSACTION ISOLATION LEVEL SNAPSHOT;
SELECT t.id, t.lane, LOWER(CONVERT(nvarchar(36), t.message_id)), t.topic, COALESCE(t.message_key, N''), t.sinks,
    COALESCE(t.payload, CONVERT(varbinary(max), t.payload_text)), COALESCE(t.headers, N''),
    TODATETIMEOFFSET(t.available_at, '+00:00'), TODATETIMEOFFSET(t.expires_at, '+00:00'), t.priority, t.attempts, t.crashes, TODATETIMEOFFSET(t.created_at, '+00:00'),
    CASE WHEN t.payload IS NOT NULL THEN 1 WHEN t.payload_text IS NOT NULL THEN 9 ELSE 0 END + CASE WHEN t.state = N'retry' THEN 4 ELSE 0 END + 16 * t.holds
FROM OPENJSON(@p1) WITH (lane smallint '$[0]', id bigint '$[1]') AS g
INNER JOIN app."Events_held" AS t WITH (FORCESEEK) ON t.lane = g.lane AND t.id = g.id AND t.state <> N'error'
OPTION (FORCE ORDER, LOOP JOIN);
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
--   1: [[1,15],[2,16]]

-- attempt logs
SET TRANSACTION ISOLATION LEVEL SNAPSHOT;
SELECT t.id, t.lane, LOWER(CONVERT(nvarchar(36), t.message_id)), t.sinks, t.attempt_log
FROM OPENJSON(@p1) WITH (lane smallint '$[0]', id bigint '$[1]') AS g
INNER JOIN app."Events" AS t WITH (FORCESEEK) ON t.lane = g.lane AND t.id = g.id AND t.attempt_log IS NOT NULL
OPTION (FORCE ORDER, LOOP JOIN);
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
--   1: [[1,15],[2,16]]

-- attempt logs of held rows
SET TRANSACTION ISOLATION LEVEL SNAPSHOT;
SELECT t.id, t.lane, LOWER(CONVERT(nvarchar(36), t.message_id)), t.sinks, t.attempt_log
FROM OPENJSON(@p1) WITH (lane smallint '$[0]', id bigint '$[1]') AS g
INNER JOIN app."Events_held" AS t WITH (FORCESEEK) ON t.lane = g.lane AND t.id = g.id AND t.attempt_log IS NOT NULL
OPTION (FORCE ORDER, LOOP JOIN);
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
--   1: [[1,15],[2,16]]

-- due
SET TRANSACTION ISOLATION LEVEL SNAPSHOT;
SELECT t.id, t.lane, LOWER(CONVERT(nvarchar(36), t.message_id)), t.topic, COALESCE(t.message_key, N''), t.sinks,
    COALESCE(t.payload, CONVERT(varbinary(max), t.payload_text)), COALESCE(t.headers, N''),
    TODATETIMEOFFSET(t.available_at, '+00:00'), TODATETIMEOFFSET(t.expires_at, '+00:00'), t.priority, t.attempts, t.crashes, TODATETIMEOFFSET(t.created_at, '+00:00'),
    CASE WHEN t.payload IS NOT NULL THEN 1 WHEN t.payload_text IS NOT NULL THEN 9 ELSE 0 END + CASE WHEN t.state = N'retry' THEN 4 ELSE 0 END + 16 * t.holds
FROM (SELECT t.*, SUM(COALESCE(DATALENGTH(t.payload), 0) + COALESCE(DATALENGTH(t.payload_text), 0)) OVER (ORDER BY t.due_at, t.id ROWS UNBOUNDED PRECEDING) - (COALESCE(DATALENGTH(t.payload), 0) + COALESCE(DATALENGTH(t.payload_text), 0)) AS bytes_before
FROM (SELECT TOP (@p2) * FROM app."Events_held" AS h
    WHERE h.state <> N'error' AND h.due_at <= SYSUTCDATETIME() AND h.lane IN (SELECT lane FROM OPENJSON(@p3) WITH (lane smallint '$'))
        AND h.due_at >= CONVERT(datetime2(7), @p1, 126) AND (h.due_at > CONVERT(datetime2(7), @p1, 126) OR h.id > @p4)
    ORDER BY h.due_at, h.id) AS t) AS t WHERE t.bytes_before < @p5 ORDER BY t.due_at, t.id;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
--   1: 2026-01-31T23:59:59.1234560
--   2: 100
--   3: [1,2]
--   4: 9
--   5: 1048576

-- blocked keys
SET TRANSACTION ISOLATION LEVEL SNAPSHOT;
SELECT TOP (@p1) lane, message_key, topic, sinks, id FROM (SELECT lane, message_key, topic, sinks, id FROM app."Events_held" WITH (INDEX ("Events_held_retry")) WHERE state = N'retry'
    UNION ALL SELECT lane, message_key, topic, sinks, id FROM app."Events_held" WITH (INDEX ("Events_held_holds")) WHERE holds > 0 AND state = N'error') AS t
WHERE DATALENGTH(message_key) > 0 AND lane IN (SELECT lane FROM OPENJSON(@p2) WITH (lane smallint '$'));
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
--   1: 100
--   2: [1,2]

-- blocked among keys
SET TRANSACTION ISOLATION LEVEL SNAPSHOT;
SELECT MIN(t.lane), MIN(t.message_key), t.topic, t.sinks, MIN(t.id)
FROM OPENJSON(@p1) WITH (n int '$[0]', lane smallint '$[1]', message_key nvarchar(255) '$[2]') AS g
CROSS APPLY (SELECT * FROM app."Events_held" AS h WITH (INDEX ("Events_held_retry"), FORCESEEK) WHERE h.state = N'retry' AND h.lane = g.lane AND h.message_key = g.message_key COLLATE Latin1_General_100_BIN2 AND DATALENGTH(h.message_key) = DATALENGTH(g.message_key)
    UNION ALL SELECT * FROM app."Events_held" AS h WITH (INDEX ("Events_held_holds"), FORCESEEK) WHERE h.holds > 0 AND h.state = N'error' AND h.lane = g.lane AND h.message_key = g.message_key COLLATE Latin1_General_100_BIN2 AND DATALENGTH(h.message_key) = DATALENGTH(g.message_key)) AS t
GROUP BY g.n, t.topic, t.sinks OPTION (FORCE ORDER, LOOP JOIN);
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
--   1: [[0,1,"a\"\\k"],[1,2,"b"],[2,1,"c"]]

-- remaining
SET TRANSACTION ISOLATION LEVEL SNAPSHOT;
SELECT * FROM (SELECT TOP (@p1) id, lane, LOWER(CONVERT(nvarchar(36), message_id)) AS message_id, topic, message_key, sinks, 1 AS is_held FROM app."Events_held" WHERE state <> N'error' AND due_at <= SYSUTCDATETIME()) AS h
UNION ALL SELECT * FROM (SELECT TOP (@p1) id, lane, LOWER(CONVERT(nvarchar(36), message_id)) AS message_id, topic, message_key, sinks, 0 AS is_held FROM app."Events" WHERE (available_at IS NULL OR available_at <= SYSUTCDATETIME()) AND (claimed_until IS NULL OR claimed_until <= SYSUTCDATETIME())) AS p;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
--   1: 1000

-- list open transactions
DECLARE @number bigint = CONVERT(bigint, @@DBTS);
DECLARE @server nvarchar(400) = REPLACE(CONCAT(@@SERVERNAME, N'/', DB_ID(), N'/', CONVERT(nvarchar(128), SERVERPROPERTY(N'ComputerNamePhysicalNetBIOS')),
    N'/', CONVERT(nvarchar(20), SERVERPROPERTY(N'ProcessID')),
    N'/', (SELECT CONVERT(nvarchar(30), create_date, 126) FROM sys.databases WHERE name = N'tempdb'),
    N'/', (SELECT CONVERT(nvarchar(30), create_date, 126) FROM sys.databases WHERE name = DB_NAME())), N' ', N'_');
SELECT N'number', CONVERT(nvarchar(20), @number)
UNION ALL SELECT N'open', CONVERT(nvarchar(20), CONVERT(bigint, MIN_ACTIVE_ROWVERSION()))
UNION ALL SELECT N'server', @server;

-- settle: done
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @own bit = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;
DECLARE @changed bigint = 0;
DECLARE @given TABLE (lane smallint NOT NULL, id bigint NOT NULL, claim bigint NOT NULL, state nvarchar(10) COLLATE Latin1_General_100_BIN2 NOT NULL, held bit NOT NULL,
    attempts int NOT NULL, crashes int NOT NULL, delay bigint NOT NULL, error nvarchar(max) COLLATE Latin1_General_100_BIN2, receipt nvarchar(max) COLLATE Latin1_General_100_BIN2, message_id uniqueidentifier NOT NULL, holds smallint NOT NULL,
    sinks nvarchar(400) COLLATE Latin1_General_100_BIN2 NOT NULL, part nvarchar(400) COLLATE Latin1_General_100_BIN2 NOT NULL, rest nvarchar(400) COLLATE Latin1_General_100_BIN2 NOT NULL, read_at datetime2(7) NOT NULL, INDEX place CLUSTERED (lane, id));
INSERT INTO @given (lane, id, claim, state, held, attempts, crashes, delay, error, receipt, message_id, holds, sinks, part, rest, read_at)
SELECT lane, id, claim, state, held, attempts, crashes, delay, error, receipt, message_id, holds, sinks, part, rest, read_at FROM OPENJSON(@p1) WITH (lane smallint '$[0]', id bigint '$[1]', claim bigint '$[2]', state nvarchar(10) '$[3]', held bit '$[4]',
    attempts int '$[5]', crashes int '$[6]', delay bigint '$[7]', error nvarchar(max) '$[8]', receipt nvarchar(max) '$[9]', message_id uniqueidentifier '$[10]', holds smallint '$[11]',
    sinks nvarchar(400) '$[12]', part nvarchar(400) '$[13]', rest nvarchar(400) '$[14]', read_at datetime2(7) '$[15]');
DECLARE @held TABLE (lane smallint NOT NULL PRIMARY KEY, fence bigint NOT NULL);
IF @own = 1 BEGIN TRANSACTION;
INSERT INTO @held (lane, fence)
SELECT l.lane, l.fence FROM (SELECT DISTINCT lane, claim FROM @given) AS s
INNER JOIN app."Events_lanes" AS l WITH (INDEX("Events_lanes_fence"), FORCESEEK, REPEATABLEREAD, ROWLOCK)
    ON l.lane = s.lane AND l.fence = s.claim AND l.owner = @p2
OPTION (FORCE ORDER, LOOP JOIN);
DELETE g FROM @given AS g WHERE NOT EXISTS (SELECT 1 FROM @held AS l WHERE l.lane = g.lane AND l.fence = g.claim);
DELETE t
OUTPUT deleted.id, deleted.lane, deleted.message_id, deleted.topic, deleted.message_key, deleted.payload, deleted.payload_text, deleted.headers, deleted.priority, deleted.created_at, deleted.expires_at, deleted.sinks, g.attempts, g.crashes, deleted.available_at, COALESCE(g.error, deleted.last_error), SYSUTCDATETIME(), g.receipt, @p3
INTO app."Events_done" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, finished_at, receipt, relay)
FROM @given AS g INNER JOIN app."Events" AS t WITH (FORCESEEK, ROWLOCK) ON t.lane = g.lane AND t.id = g.id AND t.message_id = g.message_id
WHERE g.state = N'done' AND g.held = 0
OPTION (FORCE ORDER, LOOP JOIN);
SET @changed = @changed + @@ROWCOUNT;
IF @own = 1 COMMIT TRANSACTION;
SELECT N'changed', @changed, CONVERT(bigint, 0)
UNION ALL SELECT N'lane', CONVERT(bigint, lane), fence FROM @held;
--   1: [[1,5,7,"done",false,1,0,0,null,"0/5","0197a3b4-0000-7abc-8def-000000000005",0,"","","","9999-12-31T
--   2: r
--   3: r

-- settle: done, with different receipts
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @own bit = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;
DECLARE @changed bigint = 0;
DECLARE @given TABLE (lane smallint NOT NULL, id bigint NOT NULL, claim bigint NOT NULL, state nvarchar(10) COLLATE Latin1_General_100_BIN2 NOT NULL, held bit NOT NULL,
    attempts int NOT NULL, crashes int NOT NULL, delay bigint NOT NULL, error nvarchar(max) COLLATE Latin1_General_100_BIN2, receipt nvarchar(max) COLLATE Latin1_General_100_BIN2, message_id uniqueidentifier NOT NULL, holds smallint NOT NULL,
    sinks nvarchar(400) COLLATE Latin1_General_100_BIN2 NOT NULL, part nvarchar(400) COLLATE Latin1_General_100_BIN2 NOT NULL, rest nvarchar(400) COLLATE Latin1_General_100_BIN2 NOT NULL, read_at datetime2(7) NOT NULL, INDEX place CLUSTERED (lane, id));
INSERT INTO @given (lane, id, claim, state, held, attempts, crashes, delay, error, receipt, message_id, holds, sinks, part, rest, read_at)
SELECT lane, id, claim, state, held, attempts, crashes, delay, error, receipt, message_id, holds, sinks, part, rest, read_at FROM OPENJSON(@p1) WITH (lane smallint '$[0]', id bigint '$[1]', claim bigint '$[2]', state nvarchar(10) '$[3]', held bit '$[4]',
    attempts int '$[5]', crashes int '$[6]', delay bigint '$[7]', error nvarchar(max) '$[8]', receipt nvarchar(max) '$[9]', message_id uniqueidentifier '$[10]', holds smallint '$[11]',
    sinks nvarchar(400) '$[12]', part nvarchar(400) '$[13]', rest nvarchar(400) '$[14]', read_at datetime2(7) '$[15]');
DECLARE @held TABLE (lane smallint NOT NULL PRIMARY KEY, fence bigint NOT NULL);
IF @own = 1 BEGIN TRANSACTION;
INSERT INTO @held (lane, fence)
SELECT l.lane, l.fence FROM (SELECT DISTINCT lane, claim FROM @given) AS s
INNER JOIN app."Events_lanes" AS l WITH (INDEX("Events_lanes_fence"), FORCESEEK, REPEATABLEREAD, ROWLOCK)
    ON l.lane = s.lane AND l.fence = s.claim AND l.owner = @p2
OPTION (FORCE ORDER, LOOP JOIN);
DELETE g FROM @given AS g WHERE NOT EXISTS (SELECT 1 FROM @held AS l WHERE l.lane = g.lane AND l.fence = g.claim);
DELETE t
OUTPUT deleted.id, deleted.lane, deleted.message_id, deleted.topic, deleted.message_key, deleted.payload, deleted.payload_text, deleted.headers, deleted.priority, deleted.created_at, deleted.expires_at, deleted.sinks, g.attempts, g.crashes, deleted.available_at, COALESCE(g.error, deleted.last_error), SYSUTCDATETIME(), g.receipt, @p3
INTO app."Events_done" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, finished_at, receipt, relay)
FROM @given AS g INNER JOIN app."Events" AS t WITH (FORCESEEK, ROWLOCK) ON t.lane = g.lane AND t.id = g.id AND t.message_id = g.message_id
WHERE g.state = N'done' AND g.held = 0
OPTION (FORCE ORDER, LOOP JOIN);
SET @changed = @changed + @@ROWCOUNT;
IF @own = 1 COMMIT TRANSACTION;
SELECT N'changed', @changed, CONVERT(bigint, 0)
UNION ALL SELECT N'lane', CONVERT(bigint, lane), fence FROM @held;
--   1: [[1,5,7,"done",false,1,0,0,null,"0/5","0197a3b4-0000-7abc-8def-000000000005",0,"","","","9999-12-31T
--   2: r
--   3: r

-- settle: done, not kept
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @own bit = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;
DECLARE @changed bigint = 0;
DECLARE @given TABLE (lane smallint NOT NULL, id bigint NOT NULL, claim bigint NOT NULL, state nvarchar(10) COLLATE Latin1_General_100_BIN2 NOT NULL, held bit NOT NULL,
    attempts int NOT NULL, crashes int NOT NULL, delay bigint NOT NULL, error nvarchar(max) COLLATE Latin1_General_100_BIN2, receipt nvarchar(max) COLLATE Latin1_General_100_BIN2, message_id uniqueidentifier NOT NULL, holds smallint NOT NULL,
    sinks nvarchar(400) COLLATE Latin1_General_100_BIN2 NOT NULL, part nvarchar(400) COLLATE Latin1_General_100_BIN2 NOT NULL, rest nvarchar(400) COLLATE Latin1_General_100_BIN2 NOT NULL, read_at datetime2(7) NOT NULL, INDEX place CLUSTERED (lane, id));
INSERT INTO @given (lane, id, claim, state, held, attempts, crashes, delay, error, receipt, message_id, holds, sinks, part, rest, read_at)
SELECT lane, id, claim, state, held, attempts, crashes, delay, error, receipt, message_id, holds, sinks, part, rest, read_at FROM OPENJSON(@p1) WITH (lane smallint '$[0]', id bigint '$[1]', claim bigint '$[2]', state nvarchar(10) '$[3]', held bit '$[4]',
    attempts int '$[5]', crashes int '$[6]', delay bigint '$[7]', error nvarchar(max) '$[8]', receipt nvarchar(max) '$[9]', message_id uniqueidentifier '$[10]', holds smallint '$[11]',
    sinks nvarchar(400) '$[12]', part nvarchar(400) '$[13]', rest nvarchar(400) '$[14]', read_at datetime2(7) '$[15]');
DECLARE @held TABLE (lane smallint NOT NULL PRIMARY KEY, fence bigint NOT NULL);
IF @own = 1 BEGIN TRANSACTION;
INSERT INTO @held (lane, fence)
SELECT l.lane, l.fence FROM (SELECT DISTINCT lane, claim FROM @given) AS s
INNER JOIN app."Events_lanes" AS l WITH (INDEX("Events_lanes_fence"), FORCESEEK, REPEATABLEREAD, ROWLOCK)
    ON l.lane = s.lane AND l.fence = s.claim AND l.owner = @p2
OPTION (FORCE ORDER, LOOP JOIN);
DELETE g FROM @given AS g WHERE NOT EXISTS (SELECT 1 FROM @held AS l WHERE l.lane = g.lane AND l.fence = g.claim);
DELETE t
FROM @given AS g INNER JOIN app."Events" AS t WITH (FORCESEEK, ROWLOCK) ON t.lane = g.lane AND t.id = g.id AND t.message_id = g.message_id
WHERE g.state = N'done' AND g.held = 0
OPTION (FORCE ORDER, LOOP JOIN);
SET @changed = @changed + @@ROWCOUNT;
IF @own = 1 COMMIT TRANSACTION;
SELECT N'changed', @changed, CONVERT(bigint, 0)
UNION ALL SELECT N'lane', CONVERT(bigint, lane), fence FROM @held;
--   1: [[1,5,7,"done",false,1,0,0,null,"0/5","0197a3b4-0000-7abc-8def-000000000005",0,"","","","9999-12-31T
--   2: r

-- settle: rows of several kinds
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @own bit = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;
DECLARE @changed bigint = 0;
DECLARE @given TABLE (lane smallint NOT NULL, id bigint NOT NULL, claim bigint NOT NULL, state nvarchar(10) COLLATE Latin1_General_100_BIN2 NOT NULL, held bit NOT NULL,
    attempts int NOT NULL, crashes int NOT NULL, delay bigint NOT NULL, error nvarchar(max) COLLATE Latin1_General_100_BIN2, receipt nvarchar(max) COLLATE Latin1_General_100_BIN2, message_id uniqueidentifier NOT NULL, holds smallint NOT NULL,
    sinks nvarchar(400) COLLATE Latin1_General_100_BIN2 NOT NULL, part nvarchar(400) COLLATE Latin1_General_100_BIN2 NOT NULL, rest nvarchar(400) COLLATE Latin1_General_100_BIN2 NOT NULL, read_at datetime2(7) NOT NULL, attempt_log nvarchar(max) COLLATE Latin1_General_100_BIN2, INDEX place CLUSTERED (lane, id));
INSERT INTO @given (lane, id, claim, state, held, attempts, crashes, delay, error, receipt, message_id, holds, sinks, part, rest, read_at, attempt_log)
SELECT lane, id, claim, state, held, attempts, crashes, delay, error, receipt, message_id, holds, sinks, part, rest, read_at, attempt_log FROM OPENJSON(@p1) WITH (lane smallint '$[0]', id bigint '$[1]', claim bigint '$[2]', state nvarchar(10) '$[3]', held bit '$[4]',
    attempts int '$[5]', crashes int '$[6]', delay bigint '$[7]', error nvarchar(max) '$[8]', receipt nvarchar(max) '$[9]', message_id uniqueidentifier '$[10]', holds smallint '$[11]',
    sinks nvarchar(400) '$[12]', part nvarchar(400) '$[13]', rest nvarchar(400) '$[14]', read_at datetime2(7) '$[15]', attempt_log nvarchar(max) '$[16]');
DECLARE @held TABLE (lane smallint NOT NULL PRIMARY KEY, fence bigint NOT NULL);
IF @own = 1 BEGIN TRANSACTION;
INSERT INTO @held (lane, fence)
SELECT l.lane, l.fence FROM (SELECT DISTINCT lane, claim FROM @given) AS s
INNER JOIN app."Events_lanes" AS l WITH (INDEX("Events_lanes_fence"), FORCESEEK, REPEATABLEREAD, ROWLOCK)
    ON l.lane = s.lane AND l.fence = s.claim AND l.owner = @p2
OPTION (FORCE ORDER, LOOP JOIN);
DELETE g FROM @given AS g WHERE NOT EXISTS (SELECT 1 FROM @held AS l WHERE l.lane = g.lane AND l.fence = g.claim);
DELETE t
OUTPUT deleted.id, deleted.lane, deleted.message_id, deleted.topic, deleted.message_key, deleted.payload, deleted.payload_text, deleted.headers, deleted.priority, deleted.created_at, deleted.expires_at, deleted.sinks, g.attempts, g.crashes, deleted.available_at, COALESCE(g.error, deleted.last_error), SYSUTCDATETIME(), g.receipt, @p3
INTO app."Events_done" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, finished_at, receipt, relay)
FROM @given AS g INNER JOIN app."Events" AS t WITH (FORCESEEK, ROWLOCK) ON t.lane = g.lane AND t.id = g.id AND t.message_id = g.message_id
WHERE g.state = N'done' AND g.held = 0
OPTION (FORCE ORDER, LOOP JOIN);
SET @changed = @changed + @@ROWCOUNT;
DELETE t
OUTPUT deleted.id, deleted.lane, deleted.message_id, deleted.topic, deleted.message_key, deleted.payload, deleted.payload_text, deleted.headers, deleted.priority, deleted.created_at, deleted.expires_at, deleted.sinks, g.attempts, g.crashes, deleted.available_at, COALESCE(g.error, deleted.last_error), SYSUTCDATETIME(), g.receipt, @p4
INTO app."Events_done" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, finished_at, receipt, relay)
FROM @given AS g INNER JOIN app."Events_held" AS t WITH (FORCESEEK, ROWLOCK) ON t.lane = g.lane AND t.id = g.id AND t.message_id = g.message_id
WHERE g.state = N'done' AND g.held = 1 AND t.sinks = g.sinks AND t.state <> N'error'
OPTION (FORCE ORDER, LOOP JOIN);
SET @changed = @changed + @@ROWCOUNT;
DELETE t
OUTPUT deleted.id, deleted.lane, deleted.message_id, deleted.topic, deleted.message_key, deleted.payload, deleted.payload_text, deleted.headers, deleted.priority, deleted.created_at, deleted.expires_at, deleted.sinks, g.attempts, g.crashes, CASE WHEN g.state = N'retry' OR g.holds > 0 THEN DATEADD(MILLISECOND, g.delay % 1000, DATEADD(SECOND, g.delay / 1000, SYSUTCDATETIME())) ELSE deleted.available_at END, COALESCE(g.error, deleted.last_error), COALESCE(g.attempt_log, deleted.attempt_log), g.state, g.holds
INTO app."Events_held" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds)
FROM @given AS g INNER JOIN app."Events" AS t WITH (FORCESEEK, ROWLOCK) ON t.lane = g.lane AND t.id = g.id AND t.message_id = g.message_id
WHERE g.state NOT IN (N'done', N'pending') AND g.held = 0
OPTION (FORCE ORDER, LOOP JOIN);
SET @changed = @changed + @@ROWCOUNT;
UPDATE t SET state = g.state, holds = g.holds, attempts = g.attempts, crashes = g.crashes, available_at = CASE WHEN g.state = N'retry' OR g.holds > 0 THEN DATEADD(MILLISECOND, g.delay % 1000, DATEADD(SECOND, g.delay / 1000, SYSUTCDATETIME())) ELSE t.available_at END, last_error = COALESCE(g.error, t.last_error), attempt_log = COALESCE(g.attempt_log, t.attempt_log)
FROM @given AS g INNER JOIN app."Events_held" AS t WITH (FORCESEEK, ROWLOCK) ON t.lane = g.lane AND t.id = g.id AND t.message_id = g.message_id
WHERE g.state <> N'done' AND g.held = 1 AND t.sinks = g.sinks AND t.state <> N'error' AND (t.holds < 2 OR g.holds = 0 AND g.state <> 'retry') AND (t.available_at IS NULL OR t.available_at <= g.read_at)
OPTION (FORCE ORDER, LOOP JOIN);
SET @changed = @changed + @@ROWCOUNT;
IF @own = 1 COMMIT TRANSACTION;
SELECT N'changed', @changed, CONVERT(bigint, 0)
UNION ALL SELECT N'lane', CONVERT(bigint, lane), fence FROM @held;
--   1: [[1,5,7,"done",false,1,0,0,null,"0/5","0197a3b4-0000-7abc-8def-000000000005",0,"","","","9999-12-31T
--   2: r
--   3: r
--   4: r

-- settle: dead letters
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @own bit = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;
DECLARE @changed bigint = 0;
DECLARE @given TABLE (lane smallint NOT NULL, id bigint NOT NULL, claim bigint NOT NULL, state nvarchar(10) COLLATE Latin1_General_100_BIN2 NOT NULL, held bit NOT NULL,
    attempts int NOT NULL, crashes int NOT NULL, delay bigint NOT NULL, error nvarchar(max) COLLATE Latin1_General_100_BIN2, receipt nvarchar(max) COLLATE Latin1_General_100_BIN2, message_id uniqueidentifier NOT NULL, holds smallint NOT NULL,
    sinks nvarchar(400) COLLATE Latin1_General_100_BIN2 NOT NULL, part nvarchar(400) COLLATE Latin1_General_100_BIN2 NOT NULL, rest nvarchar(400) COLLATE Latin1_General_100_BIN2 NOT NULL, read_at datetime2(7) NOT NULL, attempt_log nvarchar(max) COLLATE Latin1_General_100_BIN2, INDEX place CLUSTERED (lane, id));
INSERT INTO @given (lane, id, claim, state, held, attempts, crashes, delay, error, receipt, message_id, holds, sinks, part, rest, read_at, attempt_log)
SELECT lane, id, claim, state, held, attempts, crashes, delay, error, receipt, message_id, holds, sinks, part, rest, read_at, attempt_log FROM OPENJSON(@p1) WITH (lane smallint '$[0]', id bigint '$[1]', claim bigint '$[2]', state nvarchar(10) '$[3]', held bit '$[4]',
    attempts int '$[5]', crashes int '$[6]', delay bigint '$[7]', error nvarchar(max) '$[8]', receipt nvarchar(max) '$[9]', message_id uniqueidentifier '$[10]', holds smallint '$[11]',
    sinks nvarchar(400) '$[12]', part nvarchar(400) '$[13]', rest nvarchar(400) '$[14]', read_at datetime2(7) '$[15]', attempt_log nvarchar(max) '$[16]');
DECLARE @held TABLE (lane smallint NOT NULL PRIMARY KEY, fence bigint NOT NULL);
IF @own = 1 BEGIN TRANSACTION;
INSERT INTO @held (lane, fence)
SELECT l.lane, l.fence FROM (SELECT DISTINCT lane, claim FROM @given) AS s
INNER JOIN app."Events_lanes" AS l WITH (INDEX("Events_lanes_fence"), FORCESEEK, REPEATABLEREAD, ROWLOCK)
    ON l.lane = s.lane AND l.fence = s.claim AND l.owner = @p2
OPTION (FORCE ORDER, LOOP JOIN);
DELETE g FROM @given AS g WHERE NOT EXISTS (SELECT 1 FROM @held AS l WHERE l.lane = g.lane AND l.fence = g.claim);
INSERT INTO app."Events" (message_id, topic, message_key, payload, payload_text, headers, priority, expires_at, sinks)
SELECT c.copy_id, c.copy_topic, t.message_key, t.payload, t.payload_text, c.copy_headers, t.priority, CASE WHEN t.expires_at > SYSUTCDATETIME() THEN t.expires_at END, c.copy_sinks
FROM OPENJSON(@p3) WITH (lane smallint '$[0]', id bigint '$[1]', message_id uniqueidentifier '$[2]', sinks nvarchar(400) '$[3]',
    copy_id uniqueidentifier '$[4]', copy_topic nvarchar(255) '$[5]', copy_headers nvarchar(max) '$[6]', copy_sinks nvarchar(400) '$[7]') AS c
INNER JOIN @given AS g ON g.lane = c.lane AND g.id = c.id AND g.message_id = c.message_id AND g.sinks = c.sinks COLLATE Latin1_General_100_BIN2
INNER JOIN app."Events" AS t WITH (FORCESEEK, UPDLOCK, REPEATABLEREAD, ROWLOCK) ON t.lane = g.lane AND t.id = g.id AND t.message_id = g.message_id
WHERE g.held = 0
ORDER BY t.id
OPTION (FORCE ORDER, LOOP JOIN);
INSERT INTO app."Events" (message_id, topic, message_key, payload, payload_text, headers, priority, expires_at, sinks)
SELECT c.copy_id, c.copy_topic, t.message_key, t.payload, t.payload_text, c.copy_headers, t.priority, CASE WHEN t.expires_at > SYSUTCDATETIME() THEN t.expires_at END, c.copy_sinks
FROM OPENJSON(@p4) WITH (lane smallint '$[0]', id bigint '$[1]', message_id uniqueidentifier '$[2]', sinks nvarchar(400) '$[3]',
    copy_id uniqueidentifier '$[4]', copy_topic nvarchar(255) '$[5]', copy_headers nvarchar(max) '$[6]', copy_sinks nvarchar(400) '$[7]') AS c
INNER JOIN @given AS g ON g.lane = c.lane AND g.id = c.id AND g.message_id = c.message_id AND g.sinks = c.sinks COLLATE Latin1_General_100_BIN2
INNER JOIN app."Events_held" AS t WITH (FORCESEEK, UPDLOCK, REPEATABLEREAD, ROWLOCK) ON t.lane = g.lane AND t.id = g.id AND t.message_id = g.message_id
WHERE g.held = 1 AND t.sinks = g.sinks AND t.state <> N'error' AND (t.holds < 2 OR g.holds = 0) AND (t.available_at IS NULL OR t.available_at <= g.read_at)
ORDER BY t.id
OPTION (FORCE ORDER, LOOP JOIN);
DELETE t
OUTPUT deleted.id, deleted.lane, deleted.message_id, deleted.topic, deleted.message_key, deleted.payload, deleted.payload_text, deleted.headers, deleted.priority, deleted.created_at, deleted.expires_at, deleted.sinks, g.attempts, g.crashes, deleted.available_at, COALESCE(g.error, deleted.last_error), SYSUTCDATETIME(), g.receipt, @p5
INTO app."Events_done" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, finished_at, receipt, relay)
FROM @given AS g INNER JOIN app."Events" AS t WITH (FORCESEEK, ROWLOCK) ON t.lane = g.lane AND t.id = g.id AND t.message_id = g.message_id
WHERE g.state = N'done' AND g.held = 0
OPTION (FORCE ORDER, LOOP JOIN);
SET @changed = @changed + @@ROWCOUNT;
DELETE t
OUTPUT deleted.id, deleted.lane, deleted.message_id, deleted.topic, deleted.message_key, deleted.payload, deleted.payload_text, deleted.headers, deleted.priority, deleted.created_at, deleted.expires_at, deleted.sinks, g.attempts, g.crashes, CASE WHEN g.state = N'retry' OR g.holds > 0 THEN DATEADD(MILLISECOND, g.delay % 1000, DATEADD(SECOND, g.delay / 1000, SYSUTCDATETIME())) ELSE deleted.available_at END, COALESCE(g.error, deleted.last_error), COALESCE(g.attempt_log, deleted.attempt_log), g.state, g.holds
INTO app."Events_held" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds)
FROM @given AS g INNER JOIN app."Events" AS t WITH (FORCESEEK, ROWLOCK) ON t.lane = g.lane AND t.id = g.id AND t.message_id = g.message_id
WHERE g.state NOT IN (N'done', N'pending') AND g.held = 0
OPTION (FORCE ORDER, LOOP JOIN);
SET @changed = @changed + @@ROWCOUNT;
UPDATE t SET state = g.state, holds = g.holds, attempts = g.attempts, crashes = g.crashes, available_at = CASE WHEN g.state = N'retry' OR g.holds > 0 THEN DATEADD(MILLISECOND, g.delay % 1000, DATEADD(SECOND, g.delay / 1000, SYSUTCDATETIME())) ELSE t.available_at END, last_error = COALESCE(g.error, t.last_error), attempt_log = COALESCE(g.attempt_log, t.attempt_log)
FROM @given AS g INNER JOIN app."Events_held" AS t WITH (FORCESEEK, ROWLOCK) ON t.lane = g.lane AND t.id = g.id AND t.message_id = g.message_id
WHERE g.state <> N'done' AND g.held = 1 AND t.sinks = g.sinks AND t.state <> N'error' AND (t.holds < 2 OR g.holds = 0 AND g.state <> 'retry') AND (t.available_at IS NULL OR t.available_at <= g.read_at)
OPTION (FORCE ORDER, LOOP JOIN);
SET @changed = @changed + @@ROWCOUNT;
IF @own = 1 COMMIT TRANSACTION;
SELECT N'changed', @changed, CONVERT(bigint, 0)
UNION ALL SELECT N'lane', CONVERT(bigint, lane), fence FROM @held;
--   1: [[1,5,7,"done",false,1,0,0,null,"0/5","0197a3b4-0000-7abc-8def-000000000005",0,"","","","9999-12-31T
--   2: r
--   3: [[1,6,"0197a3b4-0000-7abc-8def-000000000006","","0197a3b4-0000-7abc-8def-000000000020","dead","{\"ro
--   4: [[2,7,"0197a3b4-0000-7abc-8def-000000000007","","0197a3b4-0000-7abc-8def-000000000021","dead.other",
--   5: r

-- settle: failed attempts
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @own bit = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;
DECLARE @changed bigint = 0;
DECLARE @given TABLE (lane smallint NOT NULL, id bigint NOT NULL, claim bigint NOT NULL, state nvarchar(10) COLLATE Latin1_General_100_BIN2 NOT NULL, held bit NOT NULL,
    attempts int NOT NULL, crashes int NOT NULL, delay bigint NOT NULL, error nvarchar(max) COLLATE Latin1_General_100_BIN2, receipt nvarchar(max) COLLATE Latin1_General_100_BIN2, message_id uniqueidentifier NOT NULL, holds smallint NOT NULL,
    sinks nvarchar(400) COLLATE Latin1_General_100_BIN2 NOT NULL, part nvarchar(400) COLLATE Latin1_General_100_BIN2 NOT NULL, rest nvarchar(400) COLLATE Latin1_General_100_BIN2 NOT NULL, read_at datetime2(7) NOT NULL, attempt_log nvarchar(max) COLLATE Latin1_General_100_BIN2, INDEX place CLUSTERED (lane, id));
INSERT INTO @given (lane, id, claim, state, held, attempts, crashes, delay, error, receipt, message_id, holds, sinks, part, rest, read_at, attempt_log)
SELECT lane, id, claim, state, held, attempts, crashes, delay, error, receipt, message_id, holds, sinks, part, rest, read_at, attempt_log FROM OPENJSON(@p1) WITH (lane smallint '$[0]', id bigint '$[1]', claim bigint '$[2]', state nvarchar(10) '$[3]', held bit '$[4]',
    attempts int '$[5]', crashes int '$[6]', delay bigint '$[7]', error nvarchar(max) '$[8]', receipt nvarchar(max) '$[9]', message_id uniqueidentifier '$[10]', holds smallint '$[11]',
    sinks nvarchar(400) '$[12]', part nvarchar(400) '$[13]', rest nvarchar(400) '$[14]', read_at datetime2(7) '$[15]', attempt_log nvarchar(max) '$[16]');
DECLARE @held TABLE (lane smallint NOT NULL PRIMARY KEY, fence bigint NOT NULL);
IF @own = 1 BEGIN TRANSACTION;
INSERT INTO @held (lane, fence)
SELECT l.lane, l.fence FROM (SELECT DISTINCT lane, claim FROM @given) AS s
INNER JOIN app."Events_lanes" AS l WITH (INDEX("Events_lanes_fence"), FORCESEEK, REPEATABLEREAD, ROWLOCK)
    ON l.lane = s.lane AND l.fence = s.claim AND l.owner = @p2
OPTION (FORCE ORDER, LOOP JOIN);
DELETE g FROM @given AS g WHERE NOT EXISTS (SELECT 1 FROM @held AS l WHERE l.lane = g.lane AND l.fence = g.claim);
DELETE t
OUTPUT deleted.id, deleted.lane, deleted.message_id, deleted.topic, deleted.message_key, deleted.payload, deleted.payload_text, deleted.headers, deleted.priority, deleted.created_at, deleted.expires_at, deleted.sinks, g.attempts, g.crashes, CASE WHEN g.state = N'retry' OR g.holds > 0 THEN DATEADD(MILLISECOND, g.delay % 1000, DATEADD(SECOND, g.delay / 1000, SYSUTCDATETIME())) ELSE deleted.available_at END, COALESCE(g.error, deleted.last_error), COALESCE(g.attempt_log, deleted.attempt_log), g.state, g.holds
INTO app."Events_held" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds)
FROM @given AS g INNER JOIN app."Events" AS t WITH (FORCESEEK, ROWLOCK) ON t.lane = g.lane AND t.id = g.id AND t.message_id = g.message_id
WHERE g.state NOT IN (N'done', N'pending') AND g.held = 0
OPTION (FORCE ORDER, LOOP JOIN);
SET @changed = @changed + @@ROWCOUNT;
UPDATE t SET state = g.state, holds = g.holds, attempts = g.attempts, crashes = g.crashes, available_at = CASE WHEN g.state = N'retry' OR g.holds > 0 THEN DATEADD(MILLISECOND, g.delay % 1000, DATEADD(SECOND, g.delay / 1000, SYSUTCDATETIME())) ELSE t.available_at END, last_error = COALESCE(g.error, t.last_error), attempt_log = COALESCE(g.attempt_log, t.attempt_log)
FROM @given AS g INNER JOIN app."Events_held" AS t WITH (FORCESEEK, ROWLOCK) ON t.lane = g.lane AND t.id = g.id AND t.message_id = g.message_id
WHERE g.state <> N'done' AND g.held = 1 AND t.sinks = g.sinks AND t.state <> N'error' AND (t.holds < 2 OR g.holds = 0 AND g.state <> 'retry') AND (t.available_at IS NULL OR t.available_at <= g.read_at)
OPTION (FORCE ORDER, LOOP JOIN);
SET @changed = @changed + @@ROWCOUNT;
IF @own = 1 COMMIT TRANSACTION;
SELECT N'changed', @changed, CONVERT(bigint, 0)
UNION ALL SELECT N'lane', CONVERT(bigint, lane), fence FROM @held;
--   1: [[1,6,7,"retry",false,2,0,1000,"it's \"broken\"",null,"0197a3b4-0000-7abc-8def-000000000006",0,"",""
--   2: r

-- settle by rows: a failed attempt
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @own bit = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;
DECLARE @changed bigint = 0;
DECLARE @given TABLE (lane smallint NOT NULL, id bigint NOT NULL, claim nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL, state nvarchar(10) COLLATE Latin1_General_100_BIN2 NOT NULL, held bit NOT NULL,
    attempts int NOT NULL, crashes int NOT NULL, delay bigint NOT NULL, error nvarchar(max) COLLATE Latin1_General_100_BIN2, receipt nvarchar(max) COLLATE Latin1_General_100_BIN2, message_id uniqueidentifier NOT NULL, holds smallint NOT NULL,
    sinks nvarchar(400) COLLATE Latin1_General_100_BIN2 NOT NULL, part nvarchar(400) COLLATE Latin1_General_100_BIN2 NOT NULL, rest nvarchar(400) COLLATE Latin1_General_100_BIN2 NOT NULL, read_at datetime2(7) NOT NULL, attempt_log nvarchar(max) COLLATE Latin1_General_100_BIN2, INDEX place CLUSTERED (lane, id));
INSERT INTO @given (lane, id, claim, state, held, attempts, crashes, delay, error, receipt, message_id, holds, sinks, part, rest, read_at, attempt_log)
SELECT lane, id, claim, state, held, attempts, crashes, delay, error, receipt, message_id, holds, sinks, part, rest, read_at, attempt_log FROM OPENJSON(@p1) WITH (lane smallint '$[0]', id bigint '$[1]', claim nvarchar(255) '$[2]', state nvarchar(10) '$[3]', held bit '$[4]',
    attempts int '$[5]', crashes int '$[6]', delay bigint '$[7]', error nvarchar(max) '$[8]', receipt nvarchar(max) '$[9]', message_id uniqueidentifier '$[10]', holds smallint '$[11]',
    sinks nvarchar(400) '$[12]', part nvarchar(400) '$[13]', rest nvarchar(400) '$[14]', read_at datetime2(7) '$[15]', attempt_log nvarchar(max) '$[16]');
DECLARE @fenced int;
IF @own = 1 BEGIN TRANSACTION;
DELETE g FROM @given AS g WHERE NOT EXISTS (SELECT 1 FROM app."Events_settings" WITH (HOLDLOCK, ROWLOCK) WHERE name = N'claim' AND value = N'rows');
SET @fenced = @@ROWCOUNT;
SELECT @fenced = @fenced + COALESCE(SUM(CASE WHEN t.claim_token = g.claim THEN 0 ELSE 1 END), 0) FROM @given AS g
INNER JOIN app."Events" AS t WITH (FORCESEEK, UPDLOCK, REPEATABLEREAD, ROWLOCK) ON t.lane = g.lane AND t.id = g.id AND t.message_id = g.message_id
OPTION (FORCE ORDER, LOOP JOIN);
DELETE t
OUTPUT deleted.id, deleted.lane, deleted.message_id, deleted.topic, deleted.message_key, deleted.payload, deleted.payload_text, deleted.headers, deleted.priority, deleted.created_at, deleted.expires_at, deleted.sinks, g.attempts, g.crashes, CASE WHEN g.state = N'retry' OR g.holds > 0 THEN DATEADD(MILLISECOND, g.delay % 1000, DATEADD(SECOND, g.delay / 1000, SYSUTCDATETIME())) ELSE deleted.available_at END, COALESCE(g.error, deleted.last_error), COALESCE(g.attempt_log, deleted.attempt_log), g.state, g.holds
INTO app."Events_held" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds)
FROM @given AS g INNER JOIN app."Events" AS t WITH (FORCESEEK, ROWLOCK) ON t.lane = g.lane AND t.id = g.id AND t.message_id = g.message_id
WHERE g.state NOT IN (N'done', N'pending') AND g.held = 0 AND t.claim_token = g.claim
OPTION (FORCE ORDER, LOOP JOIN);
SET @changed = @changed + @@ROWCOUNT;
IF @own = 1 COMMIT TRANSACTION;
SELECT N'changed', @changed, CONVERT(bigint, 0)
UNION ALL SELECT N'fenced', CONVERT(bigint, @fenced), CONVERT(bigint, 0);
--   1: [[2,11,"t","retry",false,1,0,1000,"refused",null,"0197a3b4-0000-7abc-8def-000000000011",0,"","","","

-- settle for some sinks
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @own bit = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;
DECLARE @changed bigint = 0;
DECLARE @given TABLE (lane smallint NOT NULL, id bigint NOT NULL, claim bigint NOT NULL, state nvarchar(10) COLLATE Latin1_General_100_BIN2 NOT NULL, held bit NOT NULL,
    attempts int NOT NULL, crashes int NOT NULL, delay bigint NOT NULL, error nvarchar(max) COLLATE Latin1_General_100_BIN2, receipt nvarchar(max) COLLATE Latin1_General_100_BIN2, message_id uniqueidentifier NOT NULL, holds smallint NOT NULL,
    sinks nvarchar(400) COLLATE Latin1_General_100_BIN2 NOT NULL, part nvarchar(400) COLLATE Latin1_General_100_BIN2 NOT NULL, rest nvarchar(400) COLLATE Latin1_General_100_BIN2 NOT NULL, read_at datetime2(7) NOT NULL, attempt_log nvarchar(max) COLLATE Latin1_General_100_BIN2, INDEX place CLUSTERED (lane, id));
INSERT INTO @given (lane, id, claim, state, held, attempts, crashes, delay, error, receipt, message_id, holds, sinks, part, rest, read_at, attempt_log)
SELECT lane, id, claim, state, held, attempts, crashes, delay, error, receipt, message_id, holds, sinks, part, rest, read_at, attempt_log FROM OPENJSON(@p1) WITH (lane smallint '$[0]', id bigint '$[1]', claim bigint '$[2]', state nvarchar(10) '$[3]', held bit '$[4]',
    attempts int '$[5]', crashes int '$[6]', delay bigint '$[7]', error nvarchar(max) '$[8]', receipt nvarchar(max) '$[9]', message_id uniqueidentifier '$[10]', holds smallint '$[11]',
    sinks nvarchar(400) '$[12]', part nvarchar(400) '$[13]', rest nvarchar(400) '$[14]', read_at datetime2(7) '$[15]', attempt_log nvarchar(max) '$[16]');
DECLARE @held TABLE (lane smallint NOT NULL PRIMARY KEY, fence bigint NOT NULL);
IF @own = 1 BEGIN TRANSACTION;
INSERT INTO @held (lane, fence)
SELECT l.lane, l.fence FROM (SELECT DISTINCT lane, claim FROM @given) AS s
INNER JOIN app."Events_lanes" AS l WITH (INDEX("Events_lanes_fence"), FORCESEEK, REPEATABLEREAD, ROWLOCK)
    ON l.lane = s.lane AND l.fence = s.claim AND l.owner = @p2
OPTION (FORCE ORDER, LOOP JOIN);
DELETE g FROM @given AS g WHERE NOT EXISTS (SELECT 1 FROM @held AS l WHERE l.lane = g.lane AND l.fence = g.claim);
INSERT INTO app."Events_done" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, finished_at, receipt, relay)
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, g.part, g.attempts, g.crashes, t.available_at, COALESCE(g.error, t.last_error), SYSUTCDATETIME(), g.receipt, @p3
FROM @given AS g INNER JOIN app."Events" AS t WITH (FORCESEEK, UPDLOCK, REPEATABLEREAD, ROWLOCK) ON t.lane = g.lane AND t.id = g.id AND t.message_id = g.message_id
WHERE g.state = N'done' AND g.held = 0 AND t.sinks = g.sinks
OPTION (FORCE ORDER, LOOP JOIN);
INSERT INTO app."Events_held" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds)
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, g.part, g.attempts, g.crashes, CASE WHEN g.state = N'retry' OR g.holds > 0 THEN DATEADD(MILLISECOND, g.delay % 1000, DATEADD(SECOND, g.delay / 1000, SYSUTCDATETIME())) ELSE t.available_at END, COALESCE(g.error, t.last_error), COALESCE(g.attempt_log, t.attempt_log), g.state, g.holds
FROM @given AS g INNER JOIN app."Events" AS t WITH (FORCESEEK, UPDLOCK, REPEATABLEREAD, ROWLOCK) ON t.lane = g.lane AND t.id = g.id AND t.message_id = g.message_id
WHERE g.state NOT IN (N'done', N'discarded') AND g.held = 0 AND t.sinks = g.sinks
OPTION (FORCE ORDER, LOOP JOIN);
UPDATE t SET sinks = g.rest
FROM @given AS g INNER JOIN app."Events" AS t WITH (FORCESEEK, ROWLOCK) ON t.lane = g.lane AND t.id = g.id AND t.message_id = g.message_id
WHERE g.held = 0 AND t.sinks = g.sinks
OPTION (FORCE ORDER, LOOP JOIN);
SET @changed = @changed + @@ROWCOUNT;
INSERT INTO app."Events_held" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds)
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, g.part, g.attempts, g.crashes, CASE WHEN g.state = N'retry' OR g.holds > 0 THEN DATEADD(MILLISECOND, g.delay % 1000, DATEADD(SECOND, g.delay / 1000, SYSUTCDATETIME())) ELSE t.available_at END, COALESCE(g.error, t.last_error), COALESCE(g.attempt_log, t.attempt_log), g.state, g.holds
FROM @given AS g INNER JOIN app."Events_held" AS t WITH (FORCESEEK, UPDLOCK, REPEATABLEREAD, ROWLOCK) ON t.lane = g.lane AND t.id = g.id AND t.message_id = g.message_id
WHERE g.state NOT IN (N'done', N'discarded') AND g.held = 1 AND t.sinks = g.sinks AND t.state <> N'error' AND (t.holds < 2 OR g.holds = 0)
OPTION (FORCE ORDER, LOOP JOIN);
UPDATE t SET sinks = g.rest
FROM @given AS g INNER JOIN app."Events_held" AS t WITH (FORCESEEK, ROWLOCK) ON t.lane = g.lane AND t.id = g.id AND t.message_id = g.message_id
WHERE g.held = 1 AND t.sinks = g.sinks AND t.state <> N'error' AND (t.holds < 2 OR g.holds = 0)
OPTION (FORCE ORDER, LOOP JOIN);
SET @changed = @changed + @@ROWCOUNT;
IF @own = 1 COMMIT TRANSACTION;
SELECT N'changed', @changed, CONVERT(bigint, 0)
UNION ALL SELECT N'lane', CONVERT(bigint, lane), fence FROM @held;
--   1: [[1,5,7,"done",false,1,0,0,null,"0/5","0197a3b4-0000-7abc-8def-000000000005",0,"","a","b,c","9999-12
--   2: r
--   3: r

-- settle for some sinks: dead letters
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @own bit = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;
DECLARE @changed bigint = 0;
DECLARE @given TABLE (lane smallint NOT NULL, id bigint NOT NULL, claim bigint NOT NULL, state nvarchar(10) COLLATE Latin1_General_100_BIN2 NOT NULL, held bit NOT NULL,
    attempts int NOT NULL, crashes int NOT NULL, delay bigint NOT NULL, error nvarchar(max) COLLATE Latin1_General_100_BIN2, receipt nvarchar(max) COLLATE Latin1_General_100_BIN2, message_id uniqueidentifier NOT NULL, holds smallint NOT NULL,
    sinks nvarchar(400) COLLATE Latin1_General_100_BIN2 NOT NULL, part nvarchar(400) COLLATE Latin1_General_100_BIN2 NOT NULL, rest nvarchar(400) COLLATE Latin1_General_100_BIN2 NOT NULL, read_at datetime2(7) NOT NULL, attempt_log nvarchar(max) COLLATE Latin1_General_100_BIN2, INDEX place CLUSTERED (lane, id));
INSERT INTO @given (lane, id, claim, state, held, attempts, crashes, delay, error, receipt, message_id, holds, sinks, part, rest, read_at, attempt_log)
SELECT lane, id, claim, state, held, attempts, crashes, delay, error, receipt, message_id, holds, sinks, part, rest, read_at, attempt_log FROM OPENJSON(@p1) WITH (lane smallint '$[0]', id bigint '$[1]', claim bigint '$[2]', state nvarchar(10) '$[3]', held bit '$[4]',
    attempts int '$[5]', crashes int '$[6]', delay bigint '$[7]', error nvarchar(max) '$[8]', receipt nvarchar(max) '$[9]', message_id uniqueidentifier '$[10]', holds smallint '$[11]',
    sinks nvarchar(400) '$[12]', part nvarchar(400) '$[13]', rest nvarchar(400) '$[14]', read_at datetime2(7) '$[15]', attempt_log nvarchar(max) '$[16]');
DECLARE @held TABLE (lane smallint NOT NULL PRIMARY KEY, fence bigint NOT NULL);
IF @own = 1 BEGIN TRANSACTION;
INSERT INTO @held (lane, fence)
SELECT l.lane, l.fence FROM (SELECT DISTINCT lane, claim FROM @given) AS s
INNER JOIN app."Events_lanes" AS l WITH (INDEX("Events_lanes_fence"), FORCESEEK, REPEATABLEREAD, ROWLOCK)
    ON l.lane = s.lane AND l.fence = s.claim AND l.owner = @p2
OPTION (FORCE ORDER, LOOP JOIN);
DELETE g FROM @given AS g WHERE NOT EXISTS (SELECT 1 FROM @held AS l WHERE l.lane = g.lane AND l.fence = g.claim);
INSERT INTO app."Events" (message_id, topic, message_key, payload, payload_text, headers, priority, expires_at, sinks)
SELECT c.copy_id, c.copy_topic, t.message_key, t.payload, t.payload_text, c.copy_headers, t.priority, CASE WHEN t.expires_at > SYSUTCDATETIME() THEN t.expires_at END, c.copy_sinks
FROM OPENJSON(@p3) WITH (lane smallint '$[0]', id bigint '$[1]', message_id uniqueidentifier '$[2]', sinks nvarchar(400) '$[3]',
    copy_id uniqueidentifier '$[4]', copy_topic nvarchar(255) '$[5]', copy_headers nvarchar(max) '$[6]', copy_sinks nvarchar(400) '$[7]') AS c
INNER JOIN @given AS g ON g.lane = c.lane AND g.id = c.id AND g.message_id = c.message_id AND g.sinks = c.sinks COLLATE Latin1_General_100_BIN2
INNER JOIN app."Events" AS t WITH (FORCESEEK, UPDLOCK, REPEATABLEREAD, ROWLOCK) ON t.lane = g.lane AND t.id = g.id AND t.message_id = g.message_id
WHERE g.held = 0 AND t.sinks = g.sinks
ORDER BY t.id
OPTION (FORCE ORDER, LOOP JOIN);
INSERT INTO app."Events" (message_id, topic, message_key, payload, payload_text, headers, priority, expires_at, sinks)
SELECT c.copy_id, c.copy_topic, t.message_key, t.payload, t.payload_text, c.copy_headers, t.priority, CASE WHEN t.expires_at > SYSUTCDATETIME() THEN t.expires_at END, c.copy_sinks
FROM OPENJSON(@p4) WITH (lane smallint '$[0]', id bigint '$[1]', message_id uniqueidentifier '$[2]', sinks nvarchar(400) '$[3]',
    copy_id uniqueidentifier '$[4]', copy_topic nvarchar(255) '$[5]', copy_headers nvarchar(max) '$[6]', copy_sinks nvarchar(400) '$[7]') AS c
INNER JOIN @given AS g ON g.lane = c.lane AND g.id = c.id AND g.message_id = c.message_id AND g.sinks = c.sinks COLLATE Latin1_General_100_BIN2
INNER JOIN app."Events_held" AS t WITH (FORCESEEK, UPDLOCK, REPEATABLEREAD, ROWLOCK) ON t.lane = g.lane AND t.id = g.id AND t.message_id = g.message_id
WHERE g.held = 1 AND t.sinks = g.sinks AND t.state <> N'error' AND (t.holds < 2 OR g.holds = 0) AND (t.available_at IS NULL OR t.available_at <= g.read_at)
ORDER BY t.id
OPTION (FORCE ORDER, LOOP JOIN);
INSERT INTO app."Events_held" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds)
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, g.part, g.attempts, g.crashes, CASE WHEN g.state = N'retry' OR g.holds > 0 THEN DATEADD(MILLISECOND, g.delay % 1000, DATEADD(SECOND, g.delay / 1000, SYSUTCDATETIME())) ELSE t.available_at END, COALESCE(g.error, t.last_error), COALESCE(g.attempt_log, t.attempt_log), g.state, g.holds
FROM @given AS g INNER JOIN app."Events" AS t WITH (FORCESEEK, UPDLOCK, REPEATABLEREAD, ROWLOCK) ON t.lane = g.lane AND t.id = g.id AND t.message_id = g.message_id
WHERE g.state NOT IN (N'done', N'discarded') AND g.held = 0 AND t.sinks = g.sinks
OPTION (FORCE ORDER, LOOP JOIN);
UPDATE t SET sinks = g.rest
FROM @given AS g INNER JOIN app."Events" AS t WITH (FORCESEEK, ROWLOCK) ON t.lane = g.lane AND t.id = g.id AND t.message_id = g.message_id
WHERE g.held = 0 AND t.sinks = g.sinks
OPTION (FORCE ORDER, LOOP JOIN);
SET @changed = @changed + @@ROWCOUNT;
INSERT INTO app."Events_held" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds)
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, g.part, g.attempts, g.crashes, CASE WHEN g.state = N'retry' OR g.holds > 0 THEN DATEADD(MILLISECOND, g.delay % 1000, DATEADD(SECOND, g.delay / 1000, SYSUTCDATETIME())) ELSE t.available_at END, COALESCE(g.error, t.last_error), COALESCE(g.attempt_log, t.attempt_log), g.state, g.holds
FROM @given AS g INNER JOIN app."Events_held" AS t WITH (FORCESEEK, UPDLOCK, REPEATABLEREAD, ROWLOCK) ON t.lane = g.lane AND t.id = g.id AND t.message_id = g.message_id
WHERE g.state NOT IN (N'done', N'discarded') AND g.held = 1 AND t.sinks = g.sinks AND t.state <> N'error' AND (t.holds < 2 OR g.holds = 0)
OPTION (FORCE ORDER, LOOP JOIN);
UPDATE t SET sinks = g.rest
FROM @given AS g INNER JOIN app."Events_held" AS t WITH (FORCESEEK, ROWLOCK) ON t.lane = g.lane AND t.id = g.id AND t.message_id = g.message_id
WHERE g.held = 1 AND t.sinks = g.sinks AND t.state <> N'error' AND (t.holds < 2 OR g.holds = 0)
OPTION (FORCE ORDER, LOOP JOIN);
SET @changed = @changed + @@ROWCOUNT;
IF @own = 1 COMMIT TRANSACTION;
SELECT N'changed', @changed, CONVERT(bigint, 0)
UNION ALL SELECT N'lane', CONVERT(bigint, lane), fence FROM @held;
--   1: [[1,6,7,"error",false,2,0,1000,"it's \"broken\"",null,"0197a3b4-0000-7abc-8def-000000000006",0,"","a
--   2: r
--   3: [[1,6,"0197a3b4-0000-7abc-8def-000000000006","","0197a3b4-0000-7abc-8def-000000000020","dead","{\"ro
--   4: [[2,7,"0197a3b4-0000-7abc-8def-000000000007","a,b","0197a3b4-0000-7abc-8def-000000000021","dead.othe

-- settle: deferred rows of two sinks
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @own bit = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;
DECLARE @changed bigint = 0;
DECLARE @given TABLE (lane smallint NOT NULL, id bigint NOT NULL, claim bigint NOT NULL, state nvarchar(10) COLLATE Latin1_General_100_BIN2 NOT NULL, held bit NOT NULL,
    attempts int NOT NULL, crashes int NOT NULL, delay bigint NOT NULL, error nvarchar(max) COLLATE Latin1_General_100_BIN2, receipt nvarchar(max) COLLATE Latin1_General_100_BIN2, message_id uniqueidentifier NOT NULL, holds smallint NOT NULL,
    sinks nvarchar(400) COLLATE Latin1_General_100_BIN2 NOT NULL, part nvarchar(400) COLLATE Latin1_General_100_BIN2 NOT NULL, rest nvarchar(400) COLLATE Latin1_General_100_BIN2 NOT NULL, read_at datetime2(7) NOT NULL, INDEX place CLUSTERED (lane, id));
INSERT INTO @given (lane, id, claim, state, held, attempts, crashes, delay, error, receipt, message_id, holds, sinks, part, rest, read_at)
SELECT lane, id, claim, state, held, attempts, crashes, delay, error, receipt, message_id, holds, sinks, part, rest, read_at FROM OPENJSON(@p1) WITH (lane smallint '$[0]', id bigint '$[1]', claim bigint '$[2]', state nvarchar(10) '$[3]', held bit '$[4]',
    attempts int '$[5]', crashes int '$[6]', delay bigint '$[7]', error nvarchar(max) '$[8]', receipt nvarchar(max) '$[9]', message_id uniqueidentifier '$[10]', holds smallint '$[11]',
    sinks nvarchar(400) '$[12]', part nvarchar(400) '$[13]', rest nvarchar(400) '$[14]', read_at datetime2(7) '$[15]');
DECLARE @held TABLE (lane smallint NOT NULL PRIMARY KEY, fence bigint NOT NULL);
IF @own = 1 BEGIN TRANSACTION;
INSERT INTO @held (lane, fence)
SELECT l.lane, l.fence FROM (SELECT DISTINCT lane, claim FROM @given) AS s
INNER JOIN app."Events_lanes" AS l WITH (INDEX("Events_lanes_fence"), FORCESEEK, REPEATABLEREAD, ROWLOCK)
    ON l.lane = s.lane AND l.fence = s.claim AND l.owner = @p2
OPTION (FORCE ORDER, LOOP JOIN);
DELETE g FROM @given AS g WHERE NOT EXISTS (SELECT 1 FROM @held AS l WHERE l.lane = g.lane AND l.fence = g.claim);
DELETE t
OUTPUT deleted.id, deleted.lane, deleted.message_id, deleted.topic, deleted.message_key, deleted.payload, deleted.payload_text, deleted.headers, deleted.priority, deleted.created_at, deleted.expires_at, deleted.sinks, g.attempts, g.crashes, deleted.available_at, COALESCE(g.error, deleted.last_error), SYSUTCDATETIME(), g.receipt, @p3
INTO app."Events_done" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, finished_at, receipt, relay)
FROM @given AS g INNER JOIN app."Events_held" AS t WITH (FORCESEEK, ROWLOCK) ON t.lane = g.lane AND t.id = g.id AND t.message_id = g.message_id
WHERE g.state = N'done' AND g.held = 1 AND t.sinks = g.sinks AND t.state <> N'error'
OPTION (FORCE ORDER, LOOP JOIN);
SET @changed = @changed + @@ROWCOUNT;
IF @own = 1 COMMIT TRANSACTION;
SELECT N'changed', @changed, CONVERT(bigint, 0)
UNION ALL SELECT N'lane', CONVERT(bigint, lane), fence FROM @held;
--   1: [[2,8,8,"done",true,0,0,0,null,null,"0197a3b4-0000-7abc-8def-000000000008",0,"a","","","9999-12-31T0
--   2: r
--   3: r

-- settle by rows: done
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @own bit = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;
DECLARE @changed bigint = 0;
DECLARE @given TABLE (lane smallint NOT NULL, id bigint NOT NULL, claim nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL, state nvarchar(10) COLLATE Latin1_General_100_BIN2 NOT NULL, held bit NOT NULL,
    attempts int NOT NULL, crashes int NOT NULL, delay bigint NOT NULL, error nvarchar(max) COLLATE Latin1_General_100_BIN2, receipt nvarchar(max) COLLATE Latin1_General_100_BIN2, message_id uniqueidentifier NOT NULL, holds smallint NOT NULL,
    sinks nvarchar(400) COLLATE Latin1_General_100_BIN2 NOT NULL, part nvarchar(400) COLLATE Latin1_General_100_BIN2 NOT NULL, rest nvarchar(400) COLLATE Latin1_General_100_BIN2 NOT NULL, read_at datetime2(7) NOT NULL, INDEX place CLUSTERED (lane, id));
INSERT INTO @given (lane, id, claim, state, held, attempts, crashes, delay, error, receipt, message_id, holds, sinks, part, rest, read_at)
SELECT lane, id, claim, state, held, attempts, crashes, delay, error, receipt, message_id, holds, sinks, part, rest, read_at FROM OPENJSON(@p1) WITH (lane smallint '$[0]', id bigint '$[1]', claim nvarchar(255) '$[2]', state nvarchar(10) '$[3]', held bit '$[4]',
    attempts int '$[5]', crashes int '$[6]', delay bigint '$[7]', error nvarchar(max) '$[8]', receipt nvarchar(max) '$[9]', message_id uniqueidentifier '$[10]', holds smallint '$[11]',
    sinks nvarchar(400) '$[12]', part nvarchar(400) '$[13]', rest nvarchar(400) '$[14]', read_at datetime2(7) '$[15]');
DECLARE @fenced int;
IF @own = 1 BEGIN TRANSACTION;
DELETE g FROM @given AS g WHERE NOT EXISTS (SELECT 1 FROM app."Events_settings" WITH (HOLDLOCK, ROWLOCK) WHERE name = N'claim' AND value = N'rows');
SET @fenced = @@ROWCOUNT;
SELECT @fenced = @fenced + COALESCE(SUM(CASE WHEN t.claim_token = g.claim THEN 0 ELSE 1 END), 0) FROM @given AS g
INNER JOIN app."Events" AS t WITH (FORCESEEK, UPDLOCK, REPEATABLEREAD, ROWLOCK) ON t.lane = g.lane AND t.id = g.id AND t.message_id = g.message_id
OPTION (FORCE ORDER, LOOP JOIN);
DELETE t
OUTPUT deleted.id, deleted.lane, deleted.message_id, deleted.topic, deleted.message_key, deleted.payload, deleted.payload_text, deleted.headers, deleted.priority, deleted.created_at, deleted.expires_at, deleted.sinks, g.attempts, g.crashes, deleted.available_at, COALESCE(g.error, deleted.last_error), SYSUTCDATETIME(), g.receipt, @p2
INTO app."Events_done" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, finished_at, receipt, relay)
FROM @given AS g INNER JOIN app."Events" AS t WITH (FORCESEEK, ROWLOCK) ON t.lane = g.lane AND t.id = g.id AND t.message_id = g.message_id
WHERE g.state = N'done' AND g.held = 0 AND t.claim_token = g.claim
OPTION (FORCE ORDER, LOOP JOIN);
SET @changed = @changed + @@ROWCOUNT;
IF @own = 1 COMMIT TRANSACTION;
SELECT N'changed', @changed, CONVERT(bigint, 0)
UNION ALL SELECT N'fenced', CONVERT(bigint, @fenced), CONVERT(bigint, 0);
--   1: [[2,10,"t","done",false,0,0,0,null,null,"0197a3b4-0000-7abc-8def-000000000010",0,"","","","9999-12-3
--   2: r

-- settle by rows
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @own bit = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;
DECLARE @changed bigint = 0;
DECLARE @given TABLE (lane smallint NOT NULL, id bigint NOT NULL, claim nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL, state nvarchar(10) COLLATE Latin1_General_100_BIN2 NOT NULL, held bit NOT NULL,
    attempts int NOT NULL, crashes int NOT NULL, delay bigint NOT NULL, error nvarchar(max) COLLATE Latin1_General_100_BIN2, receipt nvarchar(max) COLLATE Latin1_General_100_BIN2, message_id uniqueidentifier NOT NULL, holds smallint NOT NULL,
    sinks nvarchar(400) COLLATE Latin1_General_100_BIN2 NOT NULL, part nvarchar(400) COLLATE Latin1_General_100_BIN2 NOT NULL, rest nvarchar(400) COLLATE Latin1_General_100_BIN2 NOT NULL, read_at datetime2(7) NOT NULL, attempt_log nvarchar(max) COLLATE Latin1_General_100_BIN2, INDEX place CLUSTERED (lane, id));
INSERT INTO @given (lane, id, claim, state, held, attempts, crashes, delay, error, receipt, message_id, holds, sinks, part, rest, read_at, attempt_log)
SELECT lane, id, claim, state, held, attempts, crashes, delay, error, receipt, message_id, holds, sinks, part, rest, read_at, attempt_log FROM OPENJSON(@p1) WITH (lane smallint '$[0]', id bigint '$[1]', claim nvarchar(255) '$[2]', state nvarchar(10) '$[3]', held bit '$[4]',
    attempts int '$[5]', crashes int '$[6]', delay bigint '$[7]', error nvarchar(max) '$[8]', receipt nvarchar(max) '$[9]', message_id uniqueidentifier '$[10]', holds smallint '$[11]',
    sinks nvarchar(400) '$[12]', part nvarchar(400) '$[13]', rest nvarchar(400) '$[14]', read_at datetime2(7) '$[15]', attempt_log nvarchar(max) '$[16]');
DECLARE @fenced int;
IF @own = 1 BEGIN TRANSACTION;
DELETE g FROM @given AS g WHERE NOT EXISTS (SELECT 1 FROM app."Events_settings" WITH (HOLDLOCK, ROWLOCK) WHERE name = N'claim' AND value = N'rows');
SET @fenced = @@ROWCOUNT;
SELECT @fenced = @fenced + COALESCE(SUM(CASE WHEN t.claim_token = g.claim THEN 0 ELSE 1 END), 0) FROM @given AS g
INNER JOIN app."Events" AS t WITH (FORCESEEK, UPDLOCK, REPEATABLEREAD, ROWLOCK) ON t.lane = g.lane AND t.id = g.id AND t.message_id = g.message_id
OPTION (FORCE ORDER, LOOP JOIN);
DELETE t
OUTPUT deleted.id, deleted.lane, deleted.message_id, deleted.topic, deleted.message_key, deleted.payload, deleted.payload_text, deleted.headers, deleted.priority, deleted.created_at, deleted.expires_at, deleted.sinks, g.attempts, g.crashes, deleted.available_at, COALESCE(g.error, deleted.last_error), SYSUTCDATETIME(), g.receipt, @p2
INTO app."Events_done" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, finished_at, receipt, relay)
FROM @given AS g INNER JOIN app."Events" AS t WITH (FORCESEEK, ROWLOCK) ON t.lane = g.lane AND t.id = g.id AND t.message_id = g.message_id
WHERE g.state = N'done' AND g.held = 0 AND t.claim_token = g.claim
OPTION (FORCE ORDER, LOOP JOIN);
SET @changed = @changed + @@ROWCOUNT;
UPDATE t SET claimed_by = NULL, claim_token = NULL, claimed_until = NULL, attempts = g.attempts, crashes = g.crashes, last_error = COALESCE(g.error, t.last_error), attempt_log = COALESCE(g.attempt_log, t.attempt_log)
FROM @given AS g INNER JOIN app."Events" AS t WITH (FORCESEEK, ROWLOCK) ON t.lane = g.lane AND t.id = g.id AND t.message_id = g.message_id
WHERE g.state = N'pending' AND g.held = 0 AND t.claim_token = g.claim
OPTION (FORCE ORDER, LOOP JOIN);
SET @changed = @changed + @@ROWCOUNT;
IF @own = 1 COMMIT TRANSACTION;
SELECT N'changed', @changed, CONVERT(bigint, 0)
UNION ALL SELECT N'fenced', CONVERT(bigint, @fenced), CONVERT(bigint, 0);
--   1: [[2,9,"t","pending",false,0,0,0,null,null,"0197a3b4-0000-7abc-8def-000000000009",0,"","","","9999-12
--   2: r

-- settle by rows, not kept
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @own bit = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;
DECLARE @changed bigint = 0;
DECLARE @given TABLE (lane smallint NOT NULL, id bigint NOT NULL, claim nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL, state nvarchar(10) COLLATE Latin1_General_100_BIN2 NOT NULL, held bit NOT NULL,
    attempts int NOT NULL, crashes int NOT NULL, delay bigint NOT NULL, error nvarchar(max) COLLATE Latin1_General_100_BIN2, receipt nvarchar(max) COLLATE Latin1_General_100_BIN2, message_id uniqueidentifier NOT NULL, holds smallint NOT NULL,
    sinks nvarchar(400) COLLATE Latin1_General_100_BIN2 NOT NULL, part nvarchar(400) COLLATE Latin1_General_100_BIN2 NOT NULL, rest nvarchar(400) COLLATE Latin1_General_100_BIN2 NOT NULL, read_at datetime2(7) NOT NULL, attempt_log nvarchar(max) COLLATE Latin1_General_100_BIN2, INDEX place CLUSTERED (lane, id));
INSERT INTO @given (lane, id, claim, state, held, attempts, crashes, delay, error, receipt, message_id, holds, sinks, part, rest, read_at, attempt_log)
SELECT lane, id, claim, state, held, attempts, crashes, delay, error, receipt, message_id, holds, sinks, part, rest, read_at, attempt_log FROM OPENJSON(@p1) WITH (lane smallint '$[0]', id bigint '$[1]', claim nvarchar(255) '$[2]', state nvarchar(10) '$[3]', held bit '$[4]',
    attempts int '$[5]', crashes int '$[6]', delay bigint '$[7]', error nvarchar(max) '$[8]', receipt nvarchar(max) '$[9]', message_id uniqueidentifier '$[10]', holds smallint '$[11]',
    sinks nvarchar(400) '$[12]', part nvarchar(400) '$[13]', rest nvarchar(400) '$[14]', read_at datetime2(7) '$[15]', attempt_log nvarchar(max) '$[16]');
DECLARE @fenced int;
IF @own = 1 BEGIN TRANSACTION;
DELETE g FROM @given AS g WHERE NOT EXISTS (SELECT 1 FROM app."Events_settings" WITH (HOLDLOCK, ROWLOCK) WHERE name = N'claim' AND value = N'rows');
SET @fenced = @@ROWCOUNT;
SELECT @fenced = @fenced + COALESCE(SUM(CASE WHEN t.claim_token = g.claim THEN 0 ELSE 1 END), 0) FROM @given AS g
INNER JOIN app."Events" AS t WITH (FORCESEEK, UPDLOCK, REPEATABLEREAD, ROWLOCK) ON t.lane = g.lane AND t.id = g.id AND t.message_id = g.message_id
OPTION (FORCE ORDER, LOOP JOIN);
DELETE t
FROM @given AS g INNER JOIN app."Events" AS t WITH (FORCESEEK, ROWLOCK) ON t.lane = g.lane AND t.id = g.id AND t.message_id = g.message_id
WHERE g.state = N'done' AND g.held = 0 AND t.claim_token = g.claim
OPTION (FORCE ORDER, LOOP JOIN);
SET @changed = @changed + @@ROWCOUNT;
DELETE t
OUTPUT deleted.id, deleted.lane, deleted.message_id, deleted.topic, deleted.message_key, deleted.payload, deleted.payload_text, deleted.headers, deleted.priority, deleted.created_at, deleted.expires_at, deleted.sinks, g.attempts, g.crashes, CASE WHEN g.state = N'retry' OR g.holds > 0 THEN DATEADD(MILLISECOND, g.delay % 1000, DATEADD(SECOND, g.delay / 1000, SYSUTCDATETIME())) ELSE deleted.available_at END, COALESCE(g.error, deleted.last_error), COALESCE(g.attempt_log, deleted.attempt_log), g.state, g.holds
INTO app."Events_held" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds)
FROM @given AS g INNER JOIN app."Events" AS t WITH (FORCESEEK, ROWLOCK) ON t.lane = g.lane AND t.id = g.id AND t.message_id = g.message_id
WHERE g.state NOT IN (N'done', N'pending') AND g.held = 0 AND t.claim_token = g.claim
OPTION (FORCE ORDER, LOOP JOIN);
SET @changed = @changed + @@ROWCOUNT;
IF @own = 1 COMMIT TRANSACTION;
SELECT N'changed', @changed, CONVERT(bigint, 0)
UNION ALL SELECT N'fenced', CONVERT(bigint, @fenced), CONVERT(bigint, 0);
--   1: [[2,10,"t","done",false,0,0,0,null,null,"0197a3b4-0000-7abc-8def-000000000010",0,"","","","9999-12-3

-- settle by rows: a dead letter
SET NOCOUNT ON;
SET XACT_ABORT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DECLARE @own bit = CASE WHEN @@TRANCOUNT = 0 THEN 1 ELSE 0 END;
DECLARE @changed bigint = 0;
DECLARE @given TABLE (lane smallint NOT NULL, id bigint NOT NULL, claim nvarchar(255) COLLATE Latin1_General_100_BIN2 NOT NULL, state nvarchar(10) COLLATE Latin1_General_100_BIN2 NOT NULL, held bit NOT NULL,
    attempts int NOT NULL, crashes int NOT NULL, delay bigint NOT NULL, error nvarchar(max) COLLATE Latin1_General_100_BIN2, receipt nvarchar(max) COLLATE Latin1_General_100_BIN2, message_id uniqueidentifier NOT NULL, holds smallint NOT NULL,
    sinks nvarchar(400) COLLATE Latin1_General_100_BIN2 NOT NULL, part nvarchar(400) COLLATE Latin1_General_100_BIN2 NOT NULL, rest nvarchar(400) COLLATE Latin1_General_100_BIN2 NOT NULL, read_at datetime2(7) NOT NULL, attempt_log nvarchar(max) COLLATE Latin1_General_100_BIN2, INDEX place CLUSTERED (lane, id));
INSERT INTO @given (lane, id, claim, state, held, attempts, crashes, delay, error, receipt, message_id, holds, sinks, part, rest, read_at, attempt_log)
SELECT lane, id, claim, state, held, attempts, crashes, delay, error, receipt, message_id, holds, sinks, part, rest, read_at, attempt_log FROM OPENJSON(@p1) WITH (lane smallint '$[0]', id bigint '$[1]', claim nvarchar(255) '$[2]', state nvarchar(10) '$[3]', held bit '$[4]',
    attempts int '$[5]', crashes int '$[6]', delay bigint '$[7]', error nvarchar(max) '$[8]', receipt nvarchar(max) '$[9]', message_id uniqueidentifier '$[10]', holds smallint '$[11]',
    sinks nvarchar(400) '$[12]', part nvarchar(400) '$[13]', rest nvarchar(400) '$[14]', read_at datetime2(7) '$[15]', attempt_log nvarchar(max) '$[16]');
DECLARE @fenced int;
IF @own = 1 BEGIN TRANSACTION;
DELETE g FROM @given AS g WHERE NOT EXISTS (SELECT 1 FROM app."Events_settings" WITH (HOLDLOCK, ROWLOCK) WHERE name = N'claim' AND value = N'rows');
SET @fenced = @@ROWCOUNT;
SELECT @fenced = @fenced + COALESCE(SUM(CASE WHEN t.claim_token = g.claim THEN 0 ELSE 1 END), 0) FROM @given AS g
INNER JOIN app."Events" AS t WITH (FORCESEEK, UPDLOCK, REPEATABLEREAD, ROWLOCK) ON t.lane = g.lane AND t.id = g.id AND t.message_id = g.message_id
OPTION (FORCE ORDER, LOOP JOIN);
INSERT INTO app."Events" (message_id, topic, message_key, payload, payload_text, headers, priority, expires_at, sinks)
SELECT c.copy_id, c.copy_topic, t.message_key, t.payload, t.payload_text, c.copy_headers, t.priority, CASE WHEN t.expires_at > SYSUTCDATETIME() THEN t.expires_at END, c.copy_sinks
FROM OPENJSON(@p2) WITH (lane smallint '$[0]', id bigint '$[1]', message_id uniqueidentifier '$[2]', sinks nvarchar(400) '$[3]',
    copy_id uniqueidentifier '$[4]', copy_topic nvarchar(255) '$[5]', copy_headers nvarchar(max) '$[6]', copy_sinks nvarchar(400) '$[7]') AS c
INNER JOIN @given AS g ON g.lane = c.lane AND g.id = c.id AND g.message_id = c.message_id AND g.sinks = c.sinks COLLATE Latin1_General_100_BIN2
INNER JOIN app."Events" AS t WITH (FORCESEEK, UPDLOCK, REPEATABLEREAD, ROWLOCK) ON t.lane = g.lane AND t.id = g.id AND t.message_id = g.message_id
WHERE g.held = 0 AND t.claim_token = g.claim
ORDER BY t.id
OPTION (FORCE ORDER, LOOP JOIN);
DELETE t
FROM @given AS g INNER JOIN app."Events" AS t WITH (FORCESEEK, ROWLOCK) ON t.lane = g.lane AND t.id = g.id AND t.message_id = g.message_id
WHERE g.state = N'done' AND g.held = 0 AND t.claim_token = g.claim
OPTION (FORCE ORDER, LOOP JOIN);
SET @changed = @changed + @@ROWCOUNT;
DELETE t
OUTPUT deleted.id, deleted.lane, deleted.message_id, deleted.topic, deleted.message_key, deleted.payload, deleted.payload_text, deleted.headers, deleted.priority, deleted.created_at, deleted.expires_at, deleted.sinks, g.attempts, g.crashes, CASE WHEN g.state = N'retry' OR g.holds > 0 THEN DATEADD(MILLISECOND, g.delay % 1000, DATEADD(SECOND, g.delay / 1000, SYSUTCDATETIME())) ELSE deleted.available_at END, COALESCE(g.error, deleted.last_error), COALESCE(g.attempt_log, deleted.attempt_log), g.state, g.holds
INTO app."Events_held" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds)
FROM @given AS g INNER JOIN app."Events" AS t WITH (FORCESEEK, ROWLOCK) ON t.lane = g.lane AND t.id = g.id AND t.message_id = g.message_id
WHERE g.state NOT IN (N'done', N'pending') AND g.held = 0 AND t.claim_token = g.claim
OPTION (FORCE ORDER, LOOP JOIN);
SET @changed = @changed + @@ROWCOUNT;
IF @own = 1 COMMIT TRANSACTION;
SELECT N'changed', @changed, CONVERT(bigint, 0)
UNION ALL SELECT N'fenced', CONVERT(bigint, @fenced), CONVERT(bigint, 0);
--   1: [[2,10,"t","done",false,0,0,0,null,null,"0197a3b4-0000-7abc-8def-000000000010",0,"","","","9999-12-3
--   2: [[2,11,"0197a3b4-0000-7abc-8def-000000000011","","0197a3b4-0000-7abc-8def-000000000020","dead","{\"r

-- purge
SET LOCK_TIMEOUT 3000;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
WITH old AS (
    SELECT TOP (@p1) * FROM app."Events_done" WITH (INDEX("Events_done_finished"), UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK)
    WHERE finished_at < DATEADD(MILLISECOND, @p2 % 1000, DATEADD(SECOND, @p2 / 1000, SYSUTCDATETIME())) ORDER BY finished_at)
DELETE FROM old;
--   1: 100
--   2: -86400000
SET TRANSACTION ISOLATION LEVEL SNAPSHOT;
SELECT TOP (@p1) LOWER(CONVERT(nvarchar(36), i.message_id)) FROM app."Events_ids" AS i
WHERE i.written_at < DATEADD(MILLISECOND, @p2 % 1000, DATEADD(SECOND, @p2 / 1000, SYSUTCDATETIME()))
    AND i.written_at < COALESCE((SELECT DATEADD(MINUTE, -10, MIN(t.created_at)) FROM app."Events_lanes" AS l CROSS APPLY (
        SELECT TOP (1) h.created_at FROM app."Events" AS h WHERE h.lane = l.lane ORDER BY h.id) AS t), SYSUTCDATETIME())
    AND NOT EXISTS (SELECT 1 FROM app."Events_held" AS h WHERE h.message_id = i.message_id)
ORDER BY i.written_at;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
--   1: 100
--   2: -86400000
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
DELETE FROM app."Events_relays" WITH (READPAST, ROWLOCK, READCOMMITTEDLOCK) WHERE until < DATEADD(MILLISECOND, @p1 % 1000, DATEADD(SECOND, @p1 / 1000, SYSUTCDATETIME()));
--   1: -86400000

-- claim the oldest
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
WITH picked AS (
    SELECT TOP (@p1) t.*, COALESCE(DATALENGTH(t.payload), 0) + COALESCE(DATALENGTH(t.payload_text), 0) AS size FROM app."Events" AS t WITH (INDEX("Events_claim_id"), UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK)
    WHERE EXISTS (SELECT 1 FROM app."Events_settings" WITH (HOLDLOCK, ROWLOCK) WHERE name = N'claim' AND value = N'rows') AND claimed_until IS NULL ORDER BY id),
fitting AS (SELECT *, sum(size) OVER (ORDER BY id ROWS UNBOUNDED PRECEDING) - size AS bytes_before FROM picked)
UPDATE fitting SET claimed_by = @p2, claim_token = @p3, claimed_until = DATEADD(MILLISECOND, @p4 % 1000, DATEADD(SECOND, @p4 / 1000, SYSUTCDATETIME()))
OUTPUT inserted.id, inserted.lane, LOWER(CONVERT(nvarchar(36), inserted.message_id)), inserted.topic, COALESCE(inserted.message_key, N''), inserted.sinks,
    COALESCE(inserted.payload, CONVERT(varbinary(max), inserted.payload_text)), COALESCE(inserted.headers, N''),
    TODATETIMEOFFSET(inserted.available_at, '+00:00'), TODATETIMEOFFSET(inserted.expires_at, '+00:00'), inserted.priority, inserted.attempts, inserted.crashes, TODATETIMEOFFSET(inserted.created_at, '+00:00'),
    CASE WHEN inserted.payload IS NOT NULL THEN 1 WHEN inserted.payload_text IS NOT NULL THEN 9 ELSE 0 END + CASE WHEN inserted.available_at > SYSUTCDATETIME() THEN 2 ELSE 0 END
WHERE bytes_before < @p5;
--   1: 10
--   2: r
--   3: t
--   4: 60000
--   5: 9223372036854775807

-- claim the highest priorities of some topics
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
WITH picked AS (
    SELECT TOP (@p1) t.*, COALESCE(DATALENGTH(t.payload), 0) + COALESCE(DATALENGTH(t.payload_text), 0) AS size FROM app."Events" AS t WITH (INDEX("Events_claim_priority"), UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK)
    WHERE EXISTS (SELECT 1 FROM app."Events_settings" WITH (HOLDLOCK, ROWLOCK) WHERE name = N'claim' AND value = N'rows') AND claimed_until IS NULL AND (topic = @p2 AND DATALENGTH(topic) = DATALENGTH(@p2) OR topic = @p3 AND DATALENGTH(topic) = DATALENGTH(@p3)) AND NOT ((topic = @p4 AND DATALENGTH(topic) = DATALENGTH(@p4))) ORDER BY priority DESC, id),
fitting AS (SELECT *, sum(size) OVER (ORDER BY priority DESC, id ROWS UNBOUNDED PRECEDING) - size AS bytes_before FROM picked)
UPDATE fitting SET claimed_by = @p5, claim_token = @p6, claimed_until = DATEADD(MILLISECOND, @p7 % 1000, DATEADD(SECOND, @p7 / 1000, SYSUTCDATETIME()))
OUTPUT inserted.id, inserted.lane, LOWER(CONVERT(nvarchar(36), inserted.message_id)), inserted.topic, COALESCE(inserted.message_key, N''), inserted.sinks,
    COALESCE(inserted.payload, CONVERT(varbinary(max), inserted.payload_text)), COALESCE(inserted.headers, N''),
    TODATETIMEOFFSET(inserted.available_at, '+00:00'), TODATETIMEOFFSET(inserted.expires_at, '+00:00'), inserted.priority, inserted.attempts, inserted.crashes, TODATETIMEOFFSET(inserted.created_at, '+00:00'),
    CASE WHEN inserted.payload IS NOT NULL THEN 1 WHEN inserted.payload_text IS NOT NULL THEN 9 ELSE 0 END + CASE WHEN inserted.available_at > SYSUTCDATETIME() THEN 2 ELSE 0 END
WHERE bytes_before < @p8;
--   1: 10
--   2: a
--   3: b
--   4: c
--   5: r
--   6: t
--   7: 60000
--   8: 1048576

-- has free rows

-- has ended claims

-- extend
SET NOCOUNT ON;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
UPDATE t SET claimed_until = DATEADD(MILLISECOND, @p3 % 1000, DATEADD(SECOND, @p3 / 1000, SYSUTCDATETIME()))
FROM app."Events" AS t WITH (INDEX("Events_claim_until"), UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK)
WHERE EXISTS (SELECT 1 FROM app."Events_settings" WITH (HOLDLOCK, ROWLOCK) WHERE name = N'claim' AND value = N'rows') AND t.claimed_until IS NOT NULL AND t.claim_token = @p1 AND t.id IN (SELECT id FROM OPENJSON(@p2) WITH (id bigint '$'));
SET TRANSACTION ISOLATION LEVEL SNAPSHOT;
SELECT t.id FROM app."Events" AS t WITH (INDEX("Events_claim_until"))
WHERE t.claimed_until IS NOT NULL AND t.claim_token = @p1 AND t.id IN (SELECT id FROM OPENJSON(@p2) WITH (id bigint '$'));
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
--   1: t
--   2: [1,2]
--   3: 60000

-- reclaim
SET LOCK_TIMEOUT 3000;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
WITH ended AS (
    SELECT TOP (@p1) * FROM app."Events" WITH (INDEX("Events_claim_until"), UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK)
    WHERE EXISTS (SELECT 1 FROM app."Events_settings" WITH (HOLDLOCK, ROWLOCK) WHERE name = N'claim' AND value = N'rows') AND claimed_until IS NOT NULL AND claimed_until < SYSUTCDATETIME() ORDER BY claimed_until)
UPDATE ended SET claimed_by = NULL, claim_token = NULL, claimed_until = NULL, crashes = CASE WHEN crashes < 2000000000 THEN crashes + 1 ELSE crashes END;
--   1: 10
SET LOCK_TIMEOUT 3000;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
INSERT INTO app."Events" (id, message_id, topic, message_key, payload, payload_text, headers, priority, attempts, crashes, available_at, last_error, attempt_log, created_at, expires_at, sinks)
SELECT id, message_id, topic, message_key, payload, payload_text, headers, priority, attempts, crashes, available_at, last_error, attempt_log, created_at, expires_at, sinks FROM (
    DELETE due
    OUTPUT deleted.id, deleted.message_id, deleted.topic, deleted.message_key, deleted.payload, deleted.payload_text, deleted.headers, deleted.priority, deleted.attempts, deleted.crashes, deleted.available_at, deleted.last_error, deleted.attempt_log, deleted.created_at, deleted.expires_at, deleted.sinks
    FROM (SELECT TOP (@p1) * FROM app."Events_held" AS t WITH (INDEX("Events_held_due"), UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK)
        WHERE EXISTS (SELECT 1 FROM app."Events_settings" WITH (HOLDLOCK, ROWLOCK) WHERE name = N'claim' AND value = N'rows') AND state <> N'error' AND due_at <= SYSUTCDATETIME()
            AND (SELECT COUNT(*) FROM app."Events" h WHERE h.lane = t.lane AND h.id = t.id) = 0 AND (SELECT COUNT(*) FROM app."Events_held" o WHERE o.lane = t.lane AND o.id = t.id AND (o.message_id < t.message_id OR o.message_id = t.message_id AND o.sinks < t.sinks) AND o.state <> N'error' AND o.due_at <= SYSUTCDATETIME()) = 0
        ORDER BY due_at, id) AS due
) AS back;
--   1: 10

-- list
SET TRANSACTION ISOLATION LEVEL SNAPSHOT;
SELECT TOP (@p1) t.id, t.lane, LOWER(CONVERT(nvarchar(36), t.message_id)), t.topic, COALESCE(t.message_key, N''), t.sinks,
    COALESCE(t.payload, CONVERT(varbinary(max), t.payload_text)), COALESCE(t.headers, N''),
    TODATETIMEOFFSET(t.available_at, '+00:00'), TODATETIMEOFFSET(t.expires_at, '+00:00'), t.priority, t.attempts, t.crashes, TODATETIMEOFFSET(t.created_at, '+00:00'),
    CASE WHEN t.payload IS NOT NULL THEN 1 WHEN t.payload_text IS NOT NULL THEN 9 ELSE 0 END + CASE WHEN t.available_at > SYSUTCDATETIME() THEN 2 ELSE 0 END + CASE WHEN t.state = N'retry' THEN 4 ELSE 0 END + 16 * t.holds, t.state, COALESCE(t.last_error, N''), COALESCE(t.receipt, N''), COALESCE(t.claimed_by, N''), TODATETIMEOFFSET(t.finished_at, '+00:00')
FROM app."Events_messages" AS t WHERE t.id > @p2 ORDER BY t.id;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
--   1: 10
--   2: 0

-- list by filter
SET TRANSACTION ISOLATION LEVEL SNAPSHOT;
SELECT TOP (@p1) t.id, t.lane, LOWER(CONVERT(nvarchar(36), t.message_id)), t.topic, COALESCE(t.message_key, N''), t.sinks,
    COALESCE(t.payload, CONVERT(varbinary(max), t.payload_text)), COALESCE(t.headers, N''),
    TODATETIMEOFFSET(t.available_at, '+00:00'), TODATETIMEOFFSET(t.expires_at, '+00:00'), t.priority, t.attempts, t.crashes, TODATETIMEOFFSET(t.created_at, '+00:00'),
    CASE WHEN t.payload IS NOT NULL THEN 1 WHEN t.payload_text IS NOT NULL THEN 9 ELSE 0 END + CASE WHEN t.available_at > SYSUTCDATETIME() THEN 2 ELSE 0 END + CASE WHEN t.state = N'retry' THEN 4 ELSE 0 END + 16 * t.holds, t.state, COALESCE(t.last_error, N''), COALESCE(t.receipt, N''), COALESCE(t.claimed_by, N''), TODATETIMEOFFSET(t.finished_at, '+00:00')
FROM app."Events_messages" AS t WHERE t.id > @p2 AND (t.id IN (SELECT id FROM OPENJSON(@p3) WITH (id bigint '$')) OR t.message_id IN (SELECT message_id FROM OPENJSON(@p4) WITH (message_id uniqueidentifier '$'))) AND t.topic = @p5 AND DATALENGTH(t.topic) = DATALENGTH(@p5) AND t.message_key = @p6 AND DATALENGTH(t.message_key) = DATALENGTH(@p6) AND CHARINDEX(@p7, CONCAT(N',', t.sinks, N',')) > 0 AND t.state = @p8 AND t.created_at >= CONVERT(datetime2(7), @p9, 126) AND CHARINDEX(@p10, t.last_error) > 0 ORDER BY t.id;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
--   1: 10
--   2: 3
--   3: [1]
--   4: ["0197a3b4-0000-7abc-8def-0123456789ab"]
--   5: t
--   6: k
--   7: ,s,
--   8: error
--   9: 2026-01-31T00:00:00.0000000
--   10: refused

-- list by filter, with a limit of rows to examine
SET TRANSACTION ISOLATION LEVEL SNAPSHOT;
SELECT TOP (@p1) t.id, t.lane, LOWER(CONVERT(nvarchar(36), t.message_id)), t.topic, COALESCE(t.message_key, N''), t.sinks,
    COALESCE(t.payload, CONVERT(varbinary(max), t.payload_text)), COALESCE(t.headers, N''),
    TODATETIMEOFFSET(t.available_at, '+00:00'), TODATETIMEOFFSET(t.expires_at, '+00:00'), t.priority, t.attempts, t.crashes, TODATETIMEOFFSET(t.created_at, '+00:00'),
    CASE WHEN t.payload IS NOT NULL THEN 1 WHEN t.payload_text IS NOT NULL THEN 9 ELSE 0 END + CASE WHEN t.available_at > SYSUTCDATETIME() THEN 2 ELSE 0 END + CASE WHEN t.state = N'retry' THEN 4 ELSE 0 END + 16 * t.holds, t.state, COALESCE(t.last_error, N''), COALESCE(t.receipt, N''), COALESCE(t.claimed_by, N''), TODATETIMEOFFSET(t.finished_at, '+00:00')
FROM app."Events_messages" AS t WHERE t.id > @p2 AND t.topic = @p3 AND DATALENGTH(t.topic) = DATALENGTH(@p3) ORDER BY t.id;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
--   1: 10
--   2: 3
--   3: t

-- list by a message's id, among few rows
SET TRANSACTION ISOLATION LEVEL SNAPSHOT;
SELECT TOP (@p1) t.id, t.lane, LOWER(CONVERT(nvarchar(36), t.message_id)), t.topic, COALESCE(t.message_key, N''), t.sinks,
    COALESCE(t.payload, CONVERT(varbinary(max), t.payload_text)), COALESCE(t.headers, N''),
    TODATETIMEOFFSET(t.available_at, '+00:00'), TODATETIMEOFFSET(t.expires_at, '+00:00'), t.priority, t.attempts, t.crashes, TODATETIMEOFFSET(t.created_at, '+00:00'),
    CASE WHEN t.payload IS NOT NULL THEN 1 WHEN t.payload_text IS NOT NULL THEN 9 ELSE 0 END + CASE WHEN t.available_at > SYSUTCDATETIME() THEN 2 ELSE 0 END + CASE WHEN t.state = N'retry' THEN 4 ELSE 0 END + 16 * t.holds, t.state, COALESCE(t.last_error, N''), COALESCE(t.receipt, N''), COALESCE(t.claimed_by, N''), TODATETIMEOFFSET(t.finished_at, '+00:00')
FROM app."Events_messages" AS t WHERE t.id > @p2 AND (t.id IN (SELECT id FROM OPENJSON(@p3) WITH (id bigint '$')) OR t.message_id IN (SELECT message_id FROM OPENJSON(@p4) WITH (message_id uniqueidentifier '$'))) ORDER BY t.id;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
--   1: 10
--   2: 0
--   3: []
--   4: ["0197a3b4-0000-7abc-8def-0123456789ab"]

-- requeue
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
WITH parked AS (
    SELECT TOP (@p1) * FROM app."Events_held" AS t WITH (INDEX("Events_held_error"), UPDLOCK, ROWLOCK)
    WHERE t.state = N'error' AND t.id > @p2 AND (t.id IN (SELECT id FROM OPENJSON(@p3) WITH (id bigint '$')) OR t.message_id IN (SELECT message_id FROM OPENJSON(@p4) WITH (message_id uniqueidentifier '$'))) AND t.topic = @p5 AND DATALENGTH(t.topic) = DATALENGTH(@p5) AND t.message_key = @p6 AND DATALENGTH(t.message_key) = DATALENGTH(@p6) AND CHARINDEX(@p7, CONCAT(N',', t.sinks, N',')) > 0 AND t.created_at >= CONVERT(datetime2(7), @p8, 126) AND CHARINDEX(@p9, t.last_error) > 0 ORDER BY t.id)
UPDATE parked SET state = CASE WHEN holds > 0 THEN 'retry' ELSE 'scheduled' END, holds = 0, attempts = 0, crashes = 0, available_at = SYSUTCDATETIME(),
    expires_at = CASE WHEN last_error LIKE 'expired: %' THEN CONVERT(datetime2(7), '9999-01-01T00:00:00', 126) ELSE expires_at END
OUTPUT inserted.id;
--   1: 10
--   2: 3
--   3: [1]
--   4: ["0197a3b4-0000-7abc-8def-0123456789ab"]
--   5: t
--   6: k
--   7: ,s,
--   8: 2026-01-31T00:00:00.0000000
--   9: refused

-- list by a topic's prefix
SET TRANSACTION ISOLATION LEVEL SNAPSHOT;
SELECT TOP (@p1) t.id, t.lane, LOWER(CONVERT(nvarchar(36), t.message_id)), t.topic, COALESCE(t.message_key, N''), t.sinks,
    COALESCE(t.payload, CONVERT(varbinary(max), t.payload_text)), COALESCE(t.headers, N''),
    TODATETIMEOFFSET(t.available_at, '+00:00'), TODATETIMEOFFSET(t.expires_at, '+00:00'), t.priority, t.attempts, t.crashes, TODATETIMEOFFSET(t.created_at, '+00:00'),
    CASE WHEN t.payload IS NOT NULL THEN 1 WHEN t.payload_text IS NOT NULL THEN 9 ELSE 0 END + CASE WHEN t.available_at > SYSUTCDATETIME() THEN 2 ELSE 0 END + CASE WHEN t.state = N'retry' THEN 4 ELSE 0 END + 16 * t.holds, t.state, COALESCE(t.last_error, N''), COALESCE(t.receipt, N''), COALESCE(t.claimed_by, N''), TODATETIMEOFFSET(t.finished_at, '+00:00')
FROM app."Events_messages" AS t WHERE t.id > @p2 AND CHARINDEX(@p3, t.topic) = 1 ORDER BY t.id;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
--   1: 10
--   2: 0
--   3: orders.

-- redirect
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
WITH parked AS (
    SELECT TOP (@p2) * FROM app."Events_held" AS t WITH (INDEX("Events_held_error"), UPDLOCK, ROWLOCK)
    WHERE t.state = N'error' AND t.holds = 0 AND NOT EXISTS (SELECT 1 FROM app."Events_held" o WHERE o.lane = t.lane AND o.id = t.id AND o.message_id = t.message_id AND o.sinks <> t.sinks) AND NOT EXISTS (SELECT 1 FROM app."Events" o WHERE o.lane = t.lane AND o.id = t.id AND o.message_id = t.message_id) AND t.id > @p3 AND t.topic = @p4 AND DATALENGTH(t.topic) = DATALENGTH(@p4) ORDER BY t.id)
UPDATE parked SET state = CASE WHEN holds > 0 THEN 'retry' ELSE 'scheduled' END, holds = 0, attempts = 0, crashes = 0, available_at = SYSUTCDATETIME(),
    expires_at = CASE WHEN last_error LIKE 'expired: %' THEN CONVERT(datetime2(7), '9999-01-01T00:00:00', 126) ELSE expires_at END, sinks = @p1
OUTPUT inserted.id;
--   1: other
--   2: 10
--   3: 0
--   4: t

-- redirect rows in the state retry
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
WITH parked AS (
    SELECT TOP (@p2) * FROM app."Events_held" AS t WITH (UPDLOCK, ROWLOCK)
    WHERE t.state = N'retry' AND t.holds = 0 AND t.sinks NOT LIKE '%,%' AND NOT EXISTS (SELECT 1 FROM app."Events_held" o WHERE o.lane = t.lane AND o.id = t.id AND o.message_id = t.message_id AND o.sinks <> t.sinks) AND NOT EXISTS (SELECT 1 FROM app."Events" o WHERE o.lane = t.lane AND o.id = t.id AND o.message_id = t.message_id) AND t.id > @p3 AND t.topic = @p4 AND DATALENGTH(t.topic) = DATALENGTH(@p4) AND CHARINDEX(@p5, CONCAT(N',', t.sinks, N',')) > 0 ORDER BY t.id)
UPDATE parked SET attempts = 0, crashes = 0, available_at = NULL, sinks = @p1
OUTPUT inserted.id;
--   1: other
--   2: 10
--   3: 0
--   4: t
--   5: ,s,

-- redirect rows in the state scheduled
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
WITH parked AS (
    SELECT TOP (@p2) * FROM app."Events_held" AS t WITH (UPDLOCK, ROWLOCK)
    WHERE t.state = N'scheduled' AND t.holds = 0 AND t.sinks NOT LIKE '%,%' AND NOT EXISTS (SELECT 1 FROM app."Events_held" o WHERE o.lane = t.lane AND o.id = t.id AND o.message_id = t.message_id AND o.sinks <> t.sinks) AND NOT EXISTS (SELECT 1 FROM app."Events" o WHERE o.lane = t.lane AND o.id = t.id AND o.message_id = t.message_id) AND t.id > @p3 AND t.topic = @p4 AND DATALENGTH(t.topic) = DATALENGTH(@p4) AND CHARINDEX(@p5, CONCAT(N',', t.sinks, N',')) > 0 ORDER BY t.id)
UPDATE parked SET attempts = 0, crashes = 0, sinks = @p1
OUTPUT inserted.id;
--   1: other
--   2: 10
--   3: 0
--   4: t
--   5: ,s,

-- redirect rows in the state pending
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
WITH pending AS (
    SELECT TOP (@p1) * FROM app."Events" AS t WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK)
    WHERE 1 = 1 AND (t.claimed_until IS NULL OR t.claimed_until < SYSUTCDATETIME()) AND t.sinks NOT LIKE '%,%' AND NOT EXISTS (SELECT 1 FROM app."Events_held" o WHERE o.lane = t.lane AND o.id = t.id AND o.message_id = t.message_id) AND t.id > @p2 AND t.topic = @p3 AND DATALENGTH(t.topic) = DATALENGTH(@p3) AND CHARINDEX(@p4, CONCAT(N',', t.sinks, N',')) > 0 ORDER BY t.id)
DELETE FROM pending
OUTPUT deleted.id, deleted.lane, deleted.message_id, deleted.topic, deleted.message_key, deleted.payload, deleted.payload_text, deleted.headers, deleted.priority, deleted.created_at, deleted.expires_at, @p5, 0, 0, deleted.available_at, deleted.last_error, deleted.attempt_log, N'scheduled', 0
INTO app."Events_held" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds)
OUTPUT deleted.id;
--   1: 10
--   2: 0
--   3: t
--   4: ,s,
--   5: other

-- ask for a skip
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
WITH parked AS (
    SELECT TOP (@p1) * FROM app."Events_held" AS t WITH (INDEX("Events_held_error"), UPDLOCK, ROWLOCK)
    WHERE t.state = N'error' AND t.holds = 1 AND t.id > @p2 AND (t.id IN (SELECT id FROM OPENJSON(@p3) WITH (id bigint '$')) OR t.message_id IN (SELECT message_id FROM OPENJSON(@p4) WITH (message_id uniqueidentifier '$'))) AND t.topic = @p5 AND DATALENGTH(t.topic) = DATALENGTH(@p5) AND t.message_key = @p6 AND DATALENGTH(t.message_key) = DATALENGTH(@p6) AND CHARINDEX(@p7, CONCAT(N',', t.sinks, N',')) > 0 AND t.created_at >= CONVERT(datetime2(7), @p8, 126) AND CHARINDEX(@p9, t.last_error) > 0 ORDER BY t.id)
UPDATE parked SET state = 'retry', holds = 2, available_at = SYSUTCDATETIME()
OUTPUT inserted.id;
--   1: 10
--   2: 3
--   3: [1]
--   4: ["0197a3b4-0000-7abc-8def-0123456789ab"]
--   5: t
--   6: k
--   7: ,s,
--   8: 2026-01-31T00:00:00.0000000
--   9: refused

-- ask for a discard
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
WITH parked AS (
    SELECT TOP (@p1) * FROM app."Events_held" AS t WITH (INDEX("Events_held_error"), UPDLOCK, ROWLOCK)
    WHERE t.state = N'error' AND t.holds = 1 AND t.id > @p2 AND (t.id IN (SELECT id FROM OPENJSON(@p3) WITH (id bigint '$')) OR t.message_id IN (SELECT message_id FROM OPENJSON(@p4) WITH (message_id uniqueidentifier '$'))) AND t.topic = @p5 AND DATALENGTH(t.topic) = DATALENGTH(@p5) AND t.message_key = @p6 AND DATALENGTH(t.message_key) = DATALENGTH(@p6) AND CHARINDEX(@p7, CONCAT(N',', t.sinks, N',')) > 0 AND t.created_at >= CONVERT(datetime2(7), @p8, 126) AND CHARINDEX(@p9, t.last_error) > 0 ORDER BY t.id)
UPDATE parked SET state = 'retry', holds = 3, available_at = SYSUTCDATETIME()
OUTPUT inserted.id;
--   1: 10
--   2: 3
--   3: [1]
--   4: ["0197a3b4-0000-7abc-8def-0123456789ab"]
--   5: t
--   6: k
--   7: ,s,
--   8: 2026-01-31T00:00:00.0000000
--   9: refused

-- discard
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
WITH parked AS (
    SELECT TOP (@p1) * FROM app."Events_held" AS t WITH (INDEX("Events_held_error"), UPDLOCK, ROWLOCK)
    WHERE t.state = N'error' AND t.holds = 0 AND t.id > @p2 AND (t.id IN (SELECT id FROM OPENJSON(@p3) WITH (id bigint '$')) OR t.message_id IN (SELECT message_id FROM OPENJSON(@p4) WITH (message_id uniqueidentifier '$'))) AND t.topic = @p5 AND DATALENGTH(t.topic) = DATALENGTH(@p5) AND t.message_key = @p6 AND DATALENGTH(t.message_key) = DATALENGTH(@p6) AND CHARINDEX(@p7, CONCAT(N',', t.sinks, N',')) > 0 AND t.created_at >= CONVERT(datetime2(7), @p8, 126) AND CHARINDEX(@p9, t.last_error) > 0 ORDER BY t.id)
DELETE FROM parked
OUTPUT deleted.id;
--   1: 10
--   2: 3
--   3: [1]
--   4: ["0197a3b4-0000-7abc-8def-0123456789ab"]
--   5: t
--   6: k
--   7: ,s,
--   8: 2026-01-31T00:00:00.0000000
--   9: refused

-- parked
SELECT t.id, t.lane, t.topic, t.message_key, t.sinks, t.holds, LEFT(t.last_error, 200)
FROM app."Events_held" t
WHERE t.state = 'error' AND t.id > @p1 AND (t.id IN (SELECT id FROM OPENJSON(@p2) WITH (id bigint '$')) OR t.message_id IN (SELECT message_id FROM OPENJSON(@p3) WITH (message_id uniqueidentifier '$'))) AND t.topic = @p4 AND DATALENGTH(t.topic) = DATALENGTH(@p4) AND t.message_key = @p5 AND DATALENGTH(t.message_key) = DATALENGTH(@p5) AND CHARINDEX(@p6, CONCAT(N',', t.sinks, N',')) > 0 AND t.created_at >= CONVERT(datetime2(7), @p7, 126) AND CHARINDEX(@p8, t.last_error) > 0
ORDER BY t.id;
--   1: 3
--   2: [1]
--   3: ["0197a3b4-0000-7abc-8def-0123456789ab"]
--   4: t
--   5: k
--   6: ,s,
--   7: 2026-01-31T00:00:00.0000000
--   8: refused

-- parked, and overtaken rows
SELECT min(t.id) FROM app."Events_held" t
WHERE t.state = 'error' AND t.id > @p1 AND t.topic = @p2 AND DATALENGTH(t.topic) = DATALENGTH(@p2);
--   1: 0
--   2: t
SELECT d.message_key, max(d.id)
FROM app."Events_done" d
WHERE d.id > 15 AND d.id <= 1015
    AND d.message_key IN (SELECT t.message_key FROM app."Events_held" t
WHERE t.state = 'error' AND t.id > @p1 AND t.topic = @p2 AND DATALENGTH(t.topic) = DATALENGTH(@p2))
    AND (d.headers IS NULL OR d.headers NOT LIKE '%"rowrelay-dead-letter-%' AND d.headers NOT LIKE '%"rowrelay-replayed"%')
GROUP BY d.message_key;
--   1: 0
--   2: t
SELECT t.id, t.lane, t.topic, t.message_key, t.sinks, t.holds, LEFT(t.last_error, 200)
FROM app."Events_held" t
WHERE t.state = 'error' AND t.id > @p1 AND t.topic = @p2 AND DATALENGTH(t.topic) = DATALENGTH(@p2)
ORDER BY t.id;
--   1: 0
--   2: t

-- replays
SELECT SUBSTRING(name, 8, 64), value FROM app."Events_settings" WHERE name LIKE N'replay.%' ORDER BY name;

-- last delivered
SELECT COALESCE(MAX(id), 0) FROM app."Events_done";

-- controls
SELECT kind, name, COALESCE(rate, 0), TODATETIMEOFFSET(ends_at, '+00:00'), made_by, TODATETIMEOFFSET(made_at, '+00:00'), reason FROM app."Events_controls" WHERE ends_at IS NULL OR ends_at > SYSUTCDATETIME() ORDER BY kind, name;

-- set a control
DELETE FROM app."Events_controls" WHERE ends_at <= SYSUTCDATETIME();
DELETE FROM app."Events_controls" WHERE kind = @p1 AND name = @p2;
--   1: sink
--   2: kafka
INSERT INTO app."Events_controls" (kind, name, rate, ends_at, made_by, made_at, reason)
VALUES (@p1, @p2, @p3, DATEADD(MILLISECOND, CONVERT(bigint, @p4) / 1000 % 1000, DATEADD(SECOND, CONVERT(bigint, @p4) / 1000000, SYSUTCDATETIME())), @p5, SYSUTCDATETIME(), @p6);
--   1: sink
--   2: kafka
--   3: 0
--   4: 60000000
--   5: ann@host
--   6: why

-- lift a control
DELETE FROM app."Events_controls" WHERE ends_at <= SYSUTCDATETIME();
DELETE FROM app."Events_controls" WHERE kind = @p1 AND name = @p2;
--   1: sink
--   2: kafka

-- begin an action
INSERT INTO app."Events_actions" (id, made_by, action, target, reason, made_at) VALUES (@p1, @p2, @p3, @p4, @p5, SYSUTCDATETIME());
--   1: 0197a3b4-ffff-7abc-8def-0123456789ab
--   2: ann@host
--   3: resume
--   4: sink kafka
--   5: why

-- end an action
UPDATE app."Events_actions" SET changed = @p1 WHERE id = @p2;
--   1: 1
--   2: 0197a3b4-ffff-7abc-8def-0123456789ab

-- actions
SELECT id, TODATETIMEOFFSET(made_at, '+00:00'), made_by, action, target, reason, COALESCE(changed, -1) FROM app."Events_actions" ORDER BY made_at DESC, id DESC;

-- old done rows
DELETE TOP (4000) FROM app."Events_done" WHERE finished_at < DATEADD(DAY, -1, SYSUTCDATETIME());

-- delivered
SELECT TOP (@p1) t.id, t.lane, LOWER(CONVERT(nvarchar(36), t.message_id)), t.topic, t.headers, t.sinks
FROM app."Events_done" AS t WHERE t.id > @p2 AND (t.id IN (SELECT id FROM OPENJSON(@p3) WITH (id bigint '$')) OR t.message_id IN (SELECT message_id FROM OPENJSON(@p4) WITH (message_id uniqueidentifier '$'))) AND t.topic = @p5 AND DATALENGTH(t.topic) = DATALENGTH(@p5) AND t.message_key = @p6 AND DATALENGTH(t.message_key) = DATALENGTH(@p6) AND CHARINDEX(@p7, CONCAT(N',', t.sinks, N',')) > 0 AND t.finished_at >= CONVERT(datetime2(7), @p8, 126) AND t.finished_at < CONVERT(datetime2(7), @p9, 126) AND CHARINDEX(@p10, t.last_error) > 0 AND t.id <= @p11 ORDER BY t.id;
--   1: 10
--   2: 3
--   3: [1]
--   4: ["0197a3b4-0000-7abc-8def-0123456789ab"]
--   5: t
--   6: k
--   7: ,s,
--   8: 2026-01-31T00:00:00.0000000
--   9: 2026-02-01T00:00:00.0000000
--   10: refused
--   11: 9

-- last delivered rows
SELECT TOP (@p1) t.id, t.lane, LOWER(CONVERT(nvarchar(36), t.message_id)), t.topic, t.message_key, t.sinks, t.attempts, TODATETIMEOFFSET(t.created_at, '+00:00'), TODATETIMEOFFSET(t.finished_at, '+00:00')
FROM app."Events_done" AS t WITH (INDEX("Events_done_finished")) WHERE t.id > @p2 AND t.finished_at >= CONVERT(datetime2(7), @p3, 126) ORDER BY t.finished_at DESC;
--   1: 200
--   2: 0
--   3: 2026-01-31T00:00:00.0000000

-- begin a replay
SET LOCK_TIMEOUT 3000;
INSERT INTO app."Events_settings" (name, value)
SELECT N'replay.' + @p1, @p2
WHERE NOT EXISTS (SELECT 1 FROM app."Events_settings" WITH (UPDLOCK, HOLDLOCK, ROWLOCK) WHERE name = N'replay.' + @p1);
--   1: r
--   2: {}

-- replay
SET LOCK_TIMEOUT 3000;
SELECT COALESCE((SELECT CONVERT(bigint, current_value) FROM sys.sequences WHERE object_id = OBJECT_ID(N'[app].[Events_id]')), 0);
INSERT INTO app."Events" (message_id, topic, message_key, payload, payload_text, headers, priority, expires_at, sinks)
SELECT g.copy_id, g.copy_topic, t.message_key, t.payload, t.payload_text, g.copy_headers, t.priority, CASE WHEN t.expires_at > SYSUTCDATETIME() THEN t.expires_at END, g.copy_sinks
FROM OPENJSON(@p1) WITH (id bigint '$[0]', message_id uniqueidentifier '$[1]', sinks nvarchar(400) '$[2]', copy_id uniqueidentifier '$[3]', copy_topic nvarchar(255) '$[4]', copy_headers nvarchar(max) '$[5]', copy_sinks nvarchar(400) '$[6]') AS g
INNER JOIN app."Events_done" AS t WITH (FORCESEEK, ROWLOCK) ON t.id = g.id AND t.message_id = g.message_id AND t.sinks = g.sinks COLLATE Latin1_General_100_BIN2
ORDER BY t.id
OPTION (FORCE ORDER, LOOP JOIN);
--   1: [[5,"0197a3b4-0000-7abc-8def-000000000005","","0197a3b4-0000-7abc-8def-000000000005","t","{\"n\":\"5
SELECT t.lane, t.id FROM app."Events" AS t WHERE t.id > @p1
    AND t.message_id IN (SELECT g.copy_id FROM OPENJSON(@p2) WITH (id bigint '$[0]', message_id uniqueidentifier '$[1]', sinks nvarchar(400) '$[2]', copy_id uniqueidentifier '$[3]', copy_topic nvarchar(255) '$[4]', copy_headers nvarchar(max) '$[5]', copy_sinks nvarchar(400) '$[6]') AS g);
--   1: 0
--   2: [[5,"0197a3b4-0000-7abc-8def-000000000005","","0197a3b4-0000-7abc-8def-000000000005","t","{\"n\":\"5
UPDATE app."Events_settings" SET value = @p1 WHERE name = N'replay.' + @p2 AND value = @p3;
--   1: {"n":1}
--   2: r
--   3: {}

-- count pending
SELECT count(*) FROM app."Events" t WHERE (t.lane = 1 AND t.id IN (15,17)
    OR t.lane = 2 AND t.id IN (16));

-- status
SELECT value FROM app."Events_settings" WHERE name = N'claim';
SET TRANSACTION ISOLATION LEVEL SNAPSHOT;
SELECT r.name, r.host, r.version, r.claim, TODATETIMEOFFSET(r.since, '+00:00'), TODATETIMEOFFSET(r.last_heartbeat, '+00:00'), CONVERT(bit, CASE WHEN r.until >= SYSUTCDATETIME() THEN 1 ELSE 0 END),
    (SELECT COUNT(*) FROM app."Events_lanes" AS l WHERE l.owner = r.name AND l.until >= SYSUTCDATETIME()), r.setup
FROM app."Events_relays" AS r ORDER BY r.name;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
--   1: 0
SET TRANSACTION ISOLATION LEVEL SNAPSHOT;
SELECT COUNT(*) FROM app."Events_lanes" WHERE owner IS NOT NULL AND until >= SYSUTCDATETIME();
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
--   1: 0
SET TRANSACTION ISOLATION LEVEL SNAPSHOT;
SELECT topic, COUNT_BIG(*) FROM (SELECT TOP (@p1) topic FROM (
    SELECT topic FROM app."Events" WHERE (available_at IS NULL OR available_at <= SYSUTCDATETIME()) AND (claimed_until IS NULL OR claimed_until <= SYSUTCDATETIME())
    UNION ALL SELECT topic FROM app."Events_held" WHERE state = N'scheduled' AND due_at <= SYSUTCDATETIME()) AS p) AS t GROUP BY topic;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
--   1: 1000
SET TRANSACTION ISOLATION LEVEL SNAPSHOT;
SELECT CASE WHEN MIN(since) < SYSUTCDATETIME() THEN DATEDIFF_BIG(MILLISECOND, MIN(since), SYSUTCDATETIME()) ELSE 0 END FROM (
    SELECT CASE WHEN available_at > created_at THEN available_at ELSE created_at END AS since FROM app."Events" WHERE (available_at IS NULL OR available_at <= SYSUTCDATETIME()) AND (claimed_until IS NULL OR claimed_until <= SYSUTCDATETIME())
    UNION ALL SELECT CASE WHEN available_at > created_at THEN available_at ELSE created_at END FROM app."Events_held" WHERE state = N'scheduled' AND due_at <= SYSUTCDATETIME()) AS p;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
--   1: 0
SET TRANSACTION ISOLATION LEVEL SNAPSHOT;
SELECT COUNT_BIG(*), COALESCE(DATEDIFF_BIG(MILLISECOND, MIN(available_at), SYSUTCDATETIME()), 0) FROM app."Events_held" WHERE state = N'error' AND holds = 1;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
--   1: 0
SET TRANSACTION ISOLATION LEVEL SNAPSHOT;
SELECT N'hot', state, COUNT_BIG(*) FROM (
    SELECT TOP (@p1) CASE WHEN claimed_until > SYSUTCDATETIME() THEN N'claimed' WHEN available_at > SYSUTCDATETIME() THEN N'scheduled' ELSE N'pending' END AS state FROM app."Events"
) AS h GROUP BY state
UNION ALL SELECT N'held', state, COUNT_BIG(*) FROM (
    SELECT TOP (@p1) CASE WHEN state = N'scheduled' AND due_at <= SYSUTCDATETIME() THEN N'pending' ELSE state END AS state FROM app."Events_held" WHERE state <> N'error'
) AS h GROUP BY state
UNION ALL SELECT N'error', N'error', COUNT_BIG(*) FROM (SELECT TOP (@p1) id FROM app."Events_held" WHERE state = N'error') AS e
UNION ALL SELECT N'done', N'done', COUNT_BIG(*) FROM (SELECT TOP (@p1) id FROM app."Events_done") AS d;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
--   1: 50000
SET TRANSACTION ISOLATION LEVEL SNAPSHOT;
SELECT CASE WHEN MIN(created_at) < SYSUTCDATETIME() THEN DATEDIFF_BIG(MILLISECOND, MIN(created_at), SYSUTCDATETIME()) ELSE 0 END FROM app."Events_held" WHERE state = N'retry';
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
--   1: 0

