-- receive
INSERT INTO `app`.`Received` (consumer, message_id) VALUES (?, ?);
--   1: billing
--   2: 0197a3b4-0000-7abc-8def-0123456789ab

-- purge
DELETE FROM `app`.`Received` WHERE consumer = ? AND received_at < utc_timestamp(6) + INTERVAL -604800000000 MICROSECOND ORDER BY received_at, message_id LIMIT 1000;
--   1: billing

-- version
SELECT CASE WHEN COUNT(*) >= 0 THEN '1' END FROM `app`.`Received` WHERE consumer IS NULL;

