-- receive
INSERT INTO app."Received" (consumer, message_id) SELECT @p1, @p2
WHERE NOT EXISTS (SELECT 1 FROM app."Received" WITH (UPDLOCK, ROWLOCK) WHERE consumer = @p1 AND message_id = @p2 AND size = DATALENGTH(@p2));
--   1: billing
--   2: 0197a3b4-0000-7abc-8def-0123456789ab

-- purge
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
WITH old AS (
    SELECT TOP (@p1) * FROM app."Received" WITH (UPDLOCK, READPAST, ROWLOCK, READCOMMITTEDLOCK)
    WHERE consumer = @p2 AND received_at < DATEADD(MILLISECOND, @p3 % 1000, DATEADD(SECOND, @p3 / 1000, SYSUTCDATETIME())) ORDER BY received_at)
DELETE FROM old;
--   1: 1000
--   2: billing
--   3: -604800000

-- version
SELECT CASE WHEN COUNT(*) >= 0 THEN '1' END FROM app."Received" WHERE consumer IS NULL;

