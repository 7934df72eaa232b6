-- receive
INSERT INTO app."Received" (consumer, message_id) VALUES (:1, :2);
--   1: billing
--   2: 0197a3b4-0000-7abc-8def-0123456789ab

-- purge
DELETE FROM app."Received" WHERE consumer = :1 AND received_at < SYS_EXTRACT_UTC(SYSTIMESTAMP) + NUMTODSINTERVAL(:2 / 1000000, 'SECOND') AND ROWNUM <= :3;
--   1: billing
--   2: -604800000000
--   3: 1000

-- version
SELECT CASE WHEN COUNT(*) >= 0 THEN '1' END FROM app."Received" WHERE consumer IS NULL;

