-- claim mode: as in mysql.sql

-- set the claim mode
SELECT value FROM `app`.`Events_settings` WHERE name = 'claim' FOR UPDATE;
SELECT name FROM `app`.`Events_relays` WHERE `until` >= utc_timestamp(6) AND claim <> ? ORDER BY name;
--   1: lanes
INSERT INTO `app`.`Events_settings` (name, value) VALUES ('claim', ?) ON DUPLICATE KEY UPDATE value = ?;
--   1: lanes
--   2: lanes
SELECT lane FROM `app`.`Events_lane_locks` ORDER BY lane FOR UPDATE;
UPDATE `app`.`Events_lanes` SET owner = NULL, `until` = NULL, fence = fence + 1, marks = NULL, journal = NULL, crashes = 0;
SET STATEMENT check_constraint_checks = 0 FOR
UPDATE `app`.`Events` SET claimed_by = NULL, claim_token = NULL, claimed_until = NULL WHERE claimed_until IS NOT NULL;
UPDATE `app`.`Events_held` SET state = 'error', holds = 0 WHERE holds > 0;
-- a statement of the dialect, about the indexes for claiming by rows
-- a statement of the dialect, about the indexes for claiming by rows

-- heartbeat
SELECT value FROM `app`.`Events_settings` WHERE name = 'claim' LOCK IN SHARE MODE;
INSERT INTO `app`.`Events_relays` (name, host, version, claim, since, last_heartbeat, `until`, setup)
SELECT ?, ?, ?, ?, utc_timestamp(6), utc_timestamp(6), utc_timestamp(6) + INTERVAL 15000000 MICROSECOND, ? FROM DUAL WHERE NOT EXISTS (SELECT 1 FROM `app`.`Events_settings` WHERE name = 'claim' AND value <> ?)
ON DUPLICATE KEY UPDATE host = ?, version = ?, claim = ?, since = CASE WHEN `until` < utc_timestamp(6) THEN utc_timestamp(6) ELSE since END, last_heartbeat = utc_timestamp(6), `until` = utc_timestamp(6) + INTERVAL 15000000 MICROSECOND, setup = ?;
--   1: r
--   2: h
--   3: 1
--   4: lanes
--   5: 
--   6: lanes
--   7: h
--   8: 1
--   9: lanes
--   10: 
SELECT name, 0, CONCAT(@@hostname, ':', @@port, '/', @@server_id, '/', RIGHT(UUID(), 17)) FROM `app`.`Events_relays` WHERE name = ? AND NOT EXISTS (SELECT 1 FROM `app`.`Events_settings` WHERE name = 'claim' AND value <> ?);
--   1: r
--   2: lanes
SELECT name, setup, CAST(utc_timestamp(6) AS CHAR) FROM `app`.`Events_relays` WHERE `until` >= utc_timestamp(6) ORDER BY name;

-- end leases: as in mysql.sql

-- end claims
SET STATEMENT check_constraint_checks = 0 FOR
UPDATE `app`.`Events` SET claimed_until = utc_timestamp(6) - INTERVAL 1 SECOND WHERE claimed_until >= utc_timestamp(6) AND claimed_by = ?;
--   1: r

-- deregister: as in mysql.sql

-- check
SELECT 1 FROM `app`.`Events` WHERE FALSE;
EXPLAIN INSERT INTO `app`.`Events` VALUES ();
EXPLAIN UPDATE `app`.`Events` SET attempts = '';
EXPLAIN DELETE FROM `app`.`Events`;
SELECT 1 FROM `app`.`Events_held` WHERE FALSE;
EXPLAIN INSERT INTO `app`.`Events_held` VALUES ();
EXPLAIN UPDATE `app`.`Events_held` SET lane = '';
EXPLAIN DELETE FROM `app`.`Events_held`;
SELECT 1 FROM `app`.`Events_done` WHERE FALSE;
EXPLAIN INSERT INTO `app`.`Events_done` VALUES ();
EXPLAIN UPDATE `app`.`Events_done` SET lane = '';
EXPLAIN DELETE FROM `app`.`Events_done`;
SELECT 1 FROM `app`.`Events_ids` WHERE FALSE;
EXPLAIN DELETE FROM `app`.`Events_ids`;
SELECT 1 FROM `app`.`Events_lanes` WHERE FALSE;
EXPLAIN UPDATE `app`.`Events_lanes` SET lane = '';
SELECT 1 FROM `app`.`Events_lane_locks` WHERE FALSE;
EXPLAIN UPDATE `app`.`Events_lane_locks` SET lane = '';
SELECT 1 FROM `app`.`Events_relays` WHERE FALSE;
EXPLAIN INSERT INTO `app`.`Events_relays` VALUES ();
EXPLAIN UPDATE `app`.`Events_relays` SET host = '';
EXPLAIN DELETE FROM `app`.`Events_relays`;
SELECT 1 FROM `app`.`Events_settings` WHERE FALSE;
EXPLAIN INSERT INTO `app`.`Events_settings` VALUES ();
EXPLAIN UPDATE `app`.`Events_settings` SET value = '';
SELECT 1 FROM `app`.`Events_controls` WHERE FALSE;
EXPLAIN INSERT INTO `app`.`Events_controls` VALUES ();
EXPLAIN DELETE FROM `app`.`Events_controls`;
SELECT 1 FROM `app`.`Events_actions` WHERE FALSE;
EXPLAIN INSERT INTO `app`.`Events_actions` VALUES ();
EXPLAIN UPDATE `app`.`Events_actions` SET changed = '';
SELECT 1 FROM `app`.`Events_messages` WHERE FALSE;
SELECT CURRENT_USER();
SELECT `COUNT` FROM information_schema.INNODB_METRICS WHERE NAME = 'trx_rseg_history_len';
SELECT CONVERT_TZ(MIN(trx_started), 'SYSTEM', '+00:00') FROM information_schema.innodb_trx WHERE trx_rows_modified > 0 HAVING MIN(trx_started) < CONVERT_TZ(UTC_TIMESTAMP(), '+00:00', 'SYSTEM') - INTERVAL 10 MINUTE;
SELECT CONCAT('0 0 ', CONCAT(@@hostname, ':', @@port, '/', @@server_id, '/', RIGHT(UUID(), 17))), 0, 0, '', '', '', '', NULL, '', NULL, NULL, 0, 0, 0, NULL, 0;
SELECT l.lane FROM `app`.`Events_lanes` AS l WHERE (SELECT t.id FROM `app`.`Events` AS t FORCE INDEX (PRIMARY) WHERE t.lane = l.lane ORDER BY t.lane, t.id LIMIT 1) <= CAST(JSON_EXTRACT(NULLIF(l.marks, ''), '$.main') AS SIGNED) ORDER BY l.lane;
EXPLAIN SELECT CONCAT('0 0 ', CONCAT(@@hostname, ':', @@port, '/', @@server_id, '/', RIGHT(UUID(), 17))), t.id, t.lane, t.message_id, t.topic, coalesce(t.message_key, ''), t.sinks, coalesce(t.payload, CAST(t.payload_text AS BINARY)), coalesce(t.headers, ''), CAST(t.available_at AS CHAR), CAST(t.expires_at AS CHAR), t.priority, t.attempts, t.crashes, CAST(t.created_at AS CHAR), (t.payload IS NOT NULL OR t.payload_text IS NOT NULL) + 2 * coalesce(t.available_at > utc_timestamp(6), 0) FROM `app`.`Events` AS t FORCE INDEX (id) WHERE t.id > 0 AND t.id <= 4611686018427387904 AND t.lane IN (1) ORDER BY t.id LIMIT 500;

-- acquire: as in mysql.sql

-- renew
SELECT lane, fence, 0 FROM `app`.`Events_lanes` FORCE INDEX (PRIMARY) WHERE lane IN (1,2) AND (lane, fence) IN ((1,7),(2,8)) AND owner = ? ORDER BY lane FOR UPDATE;
--   1: r
UPDATE `app`.`Events_lanes` FORCE INDEX (PRIMARY) SET `until` = utc_timestamp(6) + INTERVAL 15000000 MICROSECOND, marks = CASE WHEN CONCAT(@@hostname, ':', @@port, '/', @@server_id, '/', RIGHT(UUID(), 17)) <> ? THEN marks ELSE CASE lane WHEN 1 THEN ? WHEN 2 THEN ? ELSE marks END END, crashes = CASE WHEN lane IN (1) THEN 0 ELSE crashes END, journal = CASE WHEN lane IN (1) THEN NULL ELSE journal END WHERE lane IN (1,2);
--   1: e
--   2: {"main":5}
--   3: 

-- release
SELECT lane, fence, 0 FROM `app`.`Events_lanes` FORCE INDEX (PRIMARY) WHERE lane IN (1,2) AND (lane, fence) IN ((1,7),(2,8)) AND owner = ? ORDER BY lane FOR UPDATE;
--   1: r
UPDATE `app`.`Events_lanes` FORCE INDEX (PRIMARY) SET owner = NULL, `until` = NULL, journal = NULL, crashes = 0, marks = CASE WHEN CONCAT(@@hostname, ':', @@port, '/', @@server_id, '/', RIGHT(UUID(), 17)) <> ? THEN marks ELSE CASE lane WHEN 1 THEN ? WHEN 2 THEN ? ELSE marks END END WHERE lane IN (1,2);
--   1: e
--   2: {"main":5}
--   3: 

-- write the journal: as in mysql.sql

-- journals: as in mysql.sql

-- marks: as in mysql.sql

-- last id: as in mysql.sql

-- written from: as in mysql.sql

-- first line
SELECT CONCAT('0 0 ', CONCAT(@@hostname, ':', @@port, '/', @@server_id, '/', RIGHT(UUID(), 17))), 0, 0, '', '', '', '', NULL, '', NULL, NULL, 0, 0, 0, NULL, 0;

-- read
SELECT CONCAT('0 0 ', CONCAT(@@hostname, ':', @@port, '/', @@server_id, '/', RIGHT(UUID(), 17))), t.id, t.lane, t.message_id, t.topic, coalesce(t.message_key, ''), t.sinks, coalesce(t.payload, CAST(t.payload_text AS BINARY)), coalesce(t.headers, ''), CAST(t.available_at AS CHAR), CAST(t.expires_at AS CHAR), t.priority, t.attempts, t.crashes, CAST(t.created_at AS CHAR), (t.payload IS NOT NULL OR t.payload_text IS NOT NULL) + 2 * coalesce(t.available_at > utc_timestamp(6), 0) FROM `app`.`Events` AS t FORCE INDEX (id) WHERE t.id > 10 AND t.id <= 21 AND (t.lane = 1 AND t.id + 0 <= 20
    OR t.lane = 2 AND t.id + 0 > 11) ORDER BY t.id LIMIT 100;

-- read a share
SELECT CONCAT('0 0 ', CONCAT(@@hostname, ':', @@port, '/', @@server_id, '/', RIGHT(UUID(), 17))), t.id, t.lane, t.message_id, t.topic, coalesce(t.message_key, ''), t.sinks, coalesce(t.payload, CAST(t.payload_text AS BINARY)), coalesce(t.headers, ''), CAST(t.available_at AS CHAR), CAST(t.expires_at AS CHAR), t.priority, t.attempts, t.crashes, CAST(t.created_at AS CHAR), (t.payload IS NOT NULL OR t.payload_text IS NOT NULL) + 2 * coalesce(t.available_at > utc_timestamp(6), 0) FROM `app`.`Events` AS t FORCE INDEX (id) WHERE t.id > 10 AND t.id <= 21 AND (t.lane = 1 AND t.id + 0 <= 20
    OR t.lane = 2 AND t.id + 0 > 11) ORDER BY t.id LIMIT 100;

-- read bytes
SELECT CONCAT('0 0 ', CONCAT(@@hostname, ':', @@port, '/', @@server_id, '/', RIGHT(UUID(), 17))), t.id, t.lane, t.message_id, t.topic, coalesce(t.message_key, ''), t.sinks, coalesce(t.payload, CAST(t.payload_text AS BINARY)), coalesce(t.headers, ''), CAST(t.available_at AS CHAR), CAST(t.expires_at AS CHAR), t.priority, t.attempts, t.crashes, CAST(t.created_at AS CHAR), (t.payload IS NOT NULL OR t.payload_text IS NOT NULL) + 2 * coalesce(t.available_at > utc_timestamp(6), 0) FROM `app`.`Events` AS t FORCE INDEX (id) WHERE t.id > 10 AND t.id <= 21 AND (t.lane = 1 AND t.id + 0 <= 20
    OR t.lane = 2 AND t.id + 0 > 11) ORDER BY t.id LIMIT 100;

-- read except
SELECT CONCAT('0 0 ', CONCAT(@@hostname, ':', @@port, '/', @@server_id, '/', RIGHT(UUID(), 17))), t.id, t.lane, t.message_id, t.topic, coalesce(t.message_key, ''), t.sinks, coalesce(t.payload, CAST(t.payload_text AS BINARY)), coalesce(t.headers, ''), CAST(t.available_at AS CHAR), CAST(t.expires_at AS CHAR), t.priority, t.attempts, t.crashes, CAST(t.created_at AS CHAR), (t.payload IS NOT NULL OR t.payload_text IS NOT NULL) + 2 * coalesce(t.available_at > utc_timestamp(6), 0) FROM `app`.`Events` AS t FORCE INDEX (id) WHERE t.id > 10 AND t.id <= 21 AND (t.lane = 1 AND t.id + 0 <= 20
    OR t.lane = 2 AND t.id + 0 > 11) AND (CAST(t.topic AS BINARY) NOT IN (?,?) OR t.sinks <> '') ORDER BY t.id LIMIT 100;
--   1: t1
--   2: t2

-- read keys
SELECT CONCAT('0 0 ', CONCAT(@@hostname, ':', @@port, '/', @@server_id, '/', RIGHT(UUID(), 17))), t.id, t.lane, t.message_id, t.topic, coalesce(t.message_key, ''), t.sinks, coalesce(t.payload, CAST(t.payload_text AS BINARY)), coalesce(t.headers, ''), CAST(t.available_at AS CHAR), CAST(t.expires_at AS CHAR), t.priority, t.attempts, t.crashes, CAST(t.created_at AS CHAR), (t.payload IS NOT NULL OR t.payload_text IS NOT NULL) + 2 * coalesce(t.available_at > utc_timestamp(6), 0) FROM `app`.`Events` AS t FORCE INDEX (PRIMARY) WHERE (t.lane = 1 AND t.id > 10 AND t.id <= 20 AND t.message_key = ?) ORDER BY t.lane, t.id LIMIT 100;
--   1: a"\k

-- candidates: as in mysql.sql

-- pick: as in mysql.sql

-- pick held: as in mysql.sql

-- attempt logs: as in mysql.sql

-- attempt logs of held rows: as in mysql.sql

-- due: as in mysql.sql

-- blocked keys: as in mysql.sql

-- blocked among keys: as in mysql.sql

-- remaining: as in mysql.sql

-- list open transactions
SELECT value FROM `app`.`Events_settings` WHERE name = '' FOR UPDATE;
SELECT CASE WHEN LOCATE('TOKEN', trx_query) > 0 THEN 'number' WHEN trx_state = 'COMMITTING' THEN 'ending' ELSE 'open' END, CAST(trx_id AS CHAR)
FROM (SELECT t.*, COUNT(*) OVER () AS listed, SUM(trx_state = 'LOCK WAIT') OVER () AS waiting
    FROM information_schema.innodb_trx AS t) AS t
WHERE listed < 5000 AND waiting < 1000 AND trx_id > 0 AND trx_id < 281474976710656
    AND (trx_rows_modified > 0 OR trx_tables_in_use > 0 OR trx_mysql_thread_id = 0 OR LOCATE('TOKEN', trx_query) > 0)
UNION ALL SELECT 'all', ''
UNION ALL SELECT 'server', CONCAT(@@hostname, ':', @@port, '/', @@server_id, '/', RIGHT(UUID(), 17));

-- settle: done
SELECT lane FROM `app`.`Events_lane_locks` FORCE INDEX (PRIMARY) WHERE lane IN (1) ORDER BY lane LOCK IN SHARE MODE;
SELECT 'lane', lane, fence FROM `app`.`Events_lanes` FORCE INDEX (PRIMARY) WHERE lane IN (1) AND (lane, fence) IN ((1,7)) AND owner = ?;
--   1: r
REPLACE INTO `app`.`Events_done` (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, finished_at, receipt, relay)
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, t.sinks, 1, 0, t.available_at, t.last_error, utc_timestamp(6), ?, ?
FROM `app`.`Events` AS t FORCE INDEX (PRIMARY)
WHERE (t.lane = 1 AND t.id IN (5) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000005,', t.message_id)) FOR UPDATE;
--   1: 0/5
--   2: r
DELETE t FROM (SELECT 1 AS lane,5 AS id,1 AS n) AS g STRAIGHT_JOIN `app`.`Events` AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id AND t.message_id = substr(_ascii'0197a3b4-0000-7abc-8def-000000000005', 36 * g.n - 35, 36);

-- settle: done, with different receipts
SELECT lane FROM `app`.`Events_lane_locks` FORCE INDEX (PRIMARY) WHERE lane IN (1) ORDER BY lane LOCK IN SHARE MODE;
SELECT 'lane', lane, fence FROM `app`.`Events_lanes` FORCE INDEX (PRIMARY) WHERE lane IN (1) AND (lane, fence) IN ((1,7)) AND owner = ?;
--   1: r
REPLACE INTO `app`.`Events_done` (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, finished_at, receipt, relay)
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, t.sinks, 1, 0, t.available_at, t.last_error, utc_timestamp(6), coalesce(nullif(g.receipt, ''), NULL), ?
FROM (SELECT 1 AS lane,5 AS id,1 AS n,CAST(? AS CHAR(3) CHARACTER SET utf8mb4) COLLATE utf8mb4_bin AS receipt UNION ALL VALUES (1,6,2,?)) AS g STRAIGHT_JOIN `app`.`Events` AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id AND t.message_id = substr(_ascii'0197a3b4-0000-7abc-8def-0000000000050197a3b4-0000-7abc-8def-000000000006', 36 * g.n - 35, 36)
WHERE TRUE FOR UPDATE;
--   1: r
--   2: 0/5
--   3: 0/6
DELETE t FROM (SELECT 1 AS lane,5 AS id,1 AS n UNION ALL VALUES (1,6,2)) AS g STRAIGHT_JOIN `app`.`Events` AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id AND t.message_id = substr(_ascii'0197a3b4-0000-7abc-8def-0000000000050197a3b4-0000-7abc-8def-000000000006', 36 * g.n - 35, 36);

-- settle: done, not kept
SELECT lane FROM `app`.`Events_lane_locks` FORCE INDEX (PRIMARY) WHERE lane IN (1) ORDER BY lane LOCK IN SHARE MODE;
SELECT 'lane', lane, fence FROM `app`.`Events_lanes` FORCE INDEX (PRIMARY) WHERE lane IN (1) AND (lane, fence) IN ((1,7)) AND owner = ?;
--   1: r
DELETE t FROM (SELECT 1 AS lane,5 AS id,1 AS n) AS g STRAIGHT_JOIN `app`.`Events` AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id AND t.message_id = substr(_ascii'0197a3b4-0000-7abc-8def-000000000005', 36 * g.n - 35, 36);

-- settle: rows of several kinds
SELECT lane FROM `app`.`Events_lane_locks` FORCE INDEX (PRIMARY) WHERE lane IN (1,2) ORDER BY lane LOCK IN SHARE MODE;
SELECT 'lane', lane, fence FROM `app`.`Events_lanes` FORCE INDEX (PRIMARY) WHERE lane IN (1,2) AND (lane, fence) IN ((1,7),(2,8)) AND owner = ?;
--   1: r
REPLACE INTO `app`.`Events_done` (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, finished_at, receipt, relay)
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, t.sinks, 1, 0, t.available_at, t.last_error, utc_timestamp(6), ?, ?
FROM `app`.`Events` AS t FORCE INDEX (PRIMARY)
WHERE (t.lane = 1 AND t.id IN (5) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000005,', t.message_id)) FOR UPDATE;
--   1: 0/5
--   2: r
DELETE t FROM (SELECT 1 AS lane,5 AS id,1 AS n) AS g STRAIGHT_JOIN `app`.`Events` AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id AND t.message_id = substr(_ascii'0197a3b4-0000-7abc-8def-000000000005', 36 * g.n - 35, 36);
REPLACE INTO `app`.`Events_done` (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, finished_at, receipt, relay)
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, t.sinks, 0, 0, t.available_at, t.last_error, utc_timestamp(6), NULL, ?
FROM `app`.`Events_held` AS t FORCE INDEX (PRIMARY)
WHERE (t.lane = 2 AND t.id IN (8) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000008,', t.message_id)) AND t.sinks = '' AND t.state <> 'error' FOR UPDATE;
--   1: r
DELETE t FROM (SELECT 2 AS lane,8 AS id,1 AS n) AS g STRAIGHT_JOIN `app`.`Events_held` AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id AND t.message_id = substr(_ascii'0197a3b4-0000-7abc-8def-000000000008', 36 * g.n - 35, 36) AND t.sinks = '' WHERE t.state <> 'error';
INSERT INTO `app`.`Events_held` (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds)
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, coalesce(CASE WHEN year(t.created_at) > 0 AND month(t.created_at) > 0 AND dayofmonth(t.created_at) BETWEEN 1 AND dayofmonth(last_day(t.created_at)) THEN t.created_at END, utc_timestamp(6)), CASE WHEN year(t.expires_at) > 0 AND month(t.expires_at) > 0 AND dayofmonth(t.expires_at) BETWEEN 1 AND dayofmonth(last_day(t.expires_at)) THEN t.expires_at END, t.sinks, 2, 0, utc_timestamp(6) + INTERVAL 1000000 MICROSECOND, ?, t.attempt_log, ?, 0
FROM `app`.`Events` AS t FORCE INDEX (PRIMARY)
WHERE (t.lane = 1 AND t.id IN (6) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000006,', t.message_id)) FOR UPDATE;
--   1: it's "broken"
--   2: retry
DELETE t FROM (SELECT 1 AS lane,6 AS id,1 AS n) AS g STRAIGHT_JOIN `app`.`Events` AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id AND t.message_id = substr(_ascii'0197a3b4-0000-7abc-8def-000000000006', 36 * g.n - 35, 36);
UPDATE (SELECT 2 AS lane,7 AS id,1 AS n) AS g STRAIGHT_JOIN `app`.`Events_held` AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id AND t.message_id = substr(_ascii'0197a3b4-0000-7abc-8def-000000000007', 36 * g.n - 35, 36) AND t.sinks = '' SET t.state = ?, t.holds = 0, t.attempts = 0, t.crashes = 0, t.changes = t.changes + 1, t.available_at = t.available_at, t.last_error = t.last_error, t.attempt_log = t.attempt_log
WHERE t.state <> 'error' AND (t.holds < 2 OR 0 = 0 AND CAST(? AS BINARY) <> 'retry') AND (t.available_at IS NULL OR t.available_at <= CAST(? AS DATETIME(6)));
--   1: error
--   2: error
--   3: 9999-12-31 00:00:00.000000

-- settle: dead letters
SELECT lane FROM `app`.`Events_lane_locks` FORCE INDEX (PRIMARY) WHERE lane IN (1,2) ORDER BY lane LOCK IN SHARE MODE;
SELECT 'lane', lane, fence FROM `app`.`Events_lanes` FORCE INDEX (PRIMARY) WHERE lane IN (1,2) AND (lane, fence) IN ((1,7),(2,8)) AND owner = ?;
--   1: r
INSERT INTO `app`.`Events` (message_id, topic, message_key, payload, payload_text, headers, priority, expires_at, sinks)
SELECT ?, ?, t.message_key, t.payload, t.payload_text, ?, t.priority, CASE WHEN t.expires_at > utc_timestamp(6) THEN t.expires_at END, ?
FROM `app`.`Events` AS t FORCE INDEX (PRIMARY)
WHERE (t.lane = 1 AND t.id IN (6) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000006,', t.message_id))
ORDER BY t.id FOR UPDATE;
--   1: 0197a3b4-0000-7abc-8def-000000000020
--   2: dead
--   3: {"rowrelay-dead-letter-sink":"a"}
--   4: c
INSERT INTO `app`.`Events` (message_id, topic, message_key, payload, payload_text, headers, priority, expires_at, sinks)
SELECT ?, ?, t.message_key, t.payload, t.payload_text, NULL, t.priority, CASE WHEN t.expires_at > utc_timestamp(6) THEN t.expires_at END, ?
FROM `app`.`Events_held` AS t FORCE INDEX (PRIMARY)
WHERE (t.lane = 2 AND t.id IN (7) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000007,', t.message_id)) AND t.sinks = '' AND t.state <> 'error' AND (t.holds < 2 OR 1 = 0) AND (t.available_at IS NULL OR t.available_at <= CAST(? AS DATETIME(6)))
ORDER BY t.id FOR UPDATE;
--   1: 0197a3b4-0000-7abc-8def-000000000021
--   2: dead.other
--   3: 
--   4: 9999-12-31 00:00:00.000000
REPLACE INTO `app`.`Events_done` (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, finished_at, receipt, relay)
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, t.sinks, 1, 0, t.available_at, t.last_error, utc_timestamp(6), ?, ?
FROM `app`.`Events` AS t FORCE INDEX (PRIMARY)
WHERE (t.lane = 1 AND t.id IN (5) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000005,', t.message_id)) FOR UPDATE;
--   1: 0/5
--   2: r
DELETE t FROM (SELECT 1 AS lane,5 AS id,1 AS n) AS g STRAIGHT_JOIN `app`.`Events` AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id AND t.message_id = substr(_ascii'0197a3b4-0000-7abc-8def-000000000005', 36 * g.n - 35, 36);
INSERT INTO `app`.`Events_held` (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds)
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, coalesce(CASE WHEN year(t.created_at) > 0 AND month(t.created_at) > 0 AND dayofmonth(t.created_at) BETWEEN 1 AND dayofmonth(last_day(t.created_at)) THEN t.created_at END, utc_timestamp(6)), CASE WHEN year(t.expires_at) > 0 AND month(t.expires_at) > 0 AND dayofmonth(t.expires_at) BETWEEN 1 AND dayofmonth(last_day(t.expires_at)) THEN t.expires_at END, t.sinks, 2, 0, CASE WHEN year(t.available_at) > 0 AND month(t.available_at) > 0 AND dayofmonth(t.available_at) BETWEEN 1 AND dayofmonth(last_day(t.available_at)) THEN t.available_at END, ?, t.attempt_log, ?, 0
FROM `app`.`Events` AS t FORCE INDEX (PRIMARY)
WHERE (t.lane = 1 AND t.id IN (6) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000006,', t.message_id)) FOR UPDATE;
--   1: it's "broken"
--   2: error
DELETE t FROM (SELECT 1 AS lane,6 AS id,1 AS n) AS g STRAIGHT_JOIN `app`.`Events` AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id AND t.message_id = substr(_ascii'0197a3b4-0000-7abc-8def-000000000006', 36 * g.n - 35, 36);
UPDATE (SELECT 2 AS lane,7 AS id,1 AS n) AS g STRAIGHT_JOIN `app`.`Events_held` AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id AND t.message_id = substr(_ascii'0197a3b4-0000-7abc-8def-000000000007', 36 * g.n - 35, 36) AND t.sinks = '' SET t.state = ?, t.holds = 1, t.attempts = 0, t.crashes = 0, t.changes = t.changes + 1, t.available_at = utc_timestamp(6) + INTERVAL 0 MICROSECOND, t.last_error = t.last_error, t.attempt_log = t.attempt_log
WHERE t.state <> 'error' AND (t.holds < 2 OR 1 = 0 AND CAST(? AS BINARY) <> 'retry') AND (t.available_at IS NULL OR t.available_at <= CAST(? AS DATETIME(6)));
--   1: error
--   2: error
--   3: 9999-12-31 00:00:00.000000

-- settle: failed attempts
SELECT lane FROM `app`.`Events_lane_locks` FORCE INDEX (PRIMARY) WHERE lane IN (1,2) ORDER BY lane LOCK IN SHARE MODE;
SELECT 'lane', lane, fence FROM `app`.`Events_lanes` FORCE INDEX (PRIMARY) WHERE lane IN (1,2) AND (lane, fence) IN ((1,7),(2,8)) AND owner = ?;
--   1: r
INSERT INTO `app`.`Events_held` (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds)
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, coalesce(CASE WHEN year(t.created_at) > 0 AND month(t.created_at) > 0 AND dayofmonth(t.created_at) BETWEEN 1 AND dayofmonth(last_day(t.created_at)) THEN t.created_at END, utc_timestamp(6)), CASE WHEN year(t.expires_at) > 0 AND month(t.expires_at) > 0 AND dayofmonth(t.expires_at) BETWEEN 1 AND dayofmonth(last_day(t.expires_at)) THEN t.expires_at END, t.sinks, 2, 0, utc_timestamp(6) + INTERVAL 1000000 MICROSECOND, ?, ?, ?, 0
FROM `app`.`Events` AS t FORCE INDEX (PRIMARY)
WHERE (t.lane = 1 AND t.id IN (6) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000006,', t.message_id)) FOR UPDATE;
--   1: it's "broken"
--   2: [{"at":"2026-01-31T23:59:59Z","relay":"r","sink":"s","answer":"it's \"broken\"","duration_ms":12}]
--   3: retry
DELETE t FROM (SELECT 1 AS lane,6 AS id,1 AS n) AS g STRAIGHT_JOIN `app`.`Events` AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id AND t.message_id = substr(_ascii'0197a3b4-0000-7abc-8def-000000000006', 36 * g.n - 35, 36);
UPDATE (SELECT 2 AS lane,7 AS id,1 AS n) AS g STRAIGHT_JOIN `app`.`Events_held` AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id AND t.message_id = substr(_ascii'0197a3b4-0000-7abc-8def-000000000007', 36 * g.n - 35, 36) AND t.sinks = '' SET t.state = ?, t.holds = 0, t.attempts = 0, t.crashes = 0, t.changes = t.changes + 1, t.available_at = t.available_at, t.last_error = t.last_error, t.attempt_log = ?
WHERE t.state <> 'error' AND (t.holds < 2 OR 0 = 0 AND CAST(? AS BINARY) <> 'retry') AND (t.available_at IS NULL OR t.available_at <= CAST(? AS DATETIME(6)));
--   1: error
--   2: [{"at":"2026-01-31T23:59:59Z","relay":"r","sink":"s","answer":"it's \"broken\"","duration_ms":12},{"
--   3: error
--   4: 9999-12-31 00:00:00.000000

-- settle by rows: a failed attempt
SELECT 'fenced', coalesce(sum(NOT (t.claim_token <=> ?)), 0), 0 FROM `app`.`Events` AS t FORCE INDEX (PRIMARY)
WHERE (t.lane = 2 AND t.id IN (11) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000011,', t.message_id)) FOR UPDATE;
--   1: t
INSERT INTO `app`.`Events_held` (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds)
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, coalesce(CASE WHEN year(t.created_at) > 0 AND month(t.created_at) > 0 AND dayofmonth(t.created_at) BETWEEN 1 AND dayofmonth(last_day(t.created_at)) THEN t.created_at END, utc_timestamp(6)), CASE WHEN year(t.expires_at) > 0 AND month(t.expires_at) > 0 AND dayofmonth(t.expires_at) BETWEEN 1 AND dayofmonth(last_day(t.expires_at)) THEN t.expires_at END, t.sinks, 1, 0, utc_timestamp(6) + INTERVAL 1000000 MICROSECOND, ?, ?, ?, 0
FROM `app`.`Events` AS t FORCE INDEX (PRIMARY)
WHERE (t.lane = 2 AND t.id IN (11) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000011,', t.message_id)) AND t.claim_token = ? FOR UPDATE;
--   1: refused
--   2: [{"at":"2026-01-31T23:59:59Z","relay":"r","sink":"s","answer":"it's \"broken\"","duration_ms":12}]
--   3: retry
--   4: t
DELETE t FROM (SELECT 2 AS lane,11 AS id,1 AS n) AS g STRAIGHT_JOIN `app`.`Events` AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id AND t.message_id = substr(_ascii'0197a3b4-0000-7abc-8def-000000000011', 36 * g.n - 35, 36) WHERE t.claim_token = ?;
--   1: t

-- settle for some sinks
SELECT lane FROM `app`.`Events_lane_locks` FORCE INDEX (PRIMARY) WHERE lane IN (1,2) ORDER BY lane LOCK IN SHARE MODE;
SELECT 'lane', lane, fence FROM `app`.`Events_lanes` FORCE INDEX (PRIMARY) WHERE lane IN (1,2) AND (lane, fence) IN ((1,7),(2,8)) AND owner = ?;
--   1: r
REPLACE INTO `app`.`Events_done` (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, finished_at, receipt, relay)
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, ?, 1, 0, t.available_at, t.last_error, utc_timestamp(6), ?, ?
FROM `app`.`Events` AS t FORCE INDEX (PRIMARY)
WHERE (t.lane = 1 AND t.id IN (5) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000005,', t.message_id)) AND t.sinks = '' FOR UPDATE;
--   1: a
--   2: 0/5
--   3: r
INSERT INTO `app`.`Events_held` (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds)
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, coalesce(CASE WHEN year(t.created_at) > 0 AND month(t.created_at) > 0 AND dayofmonth(t.created_at) BETWEEN 1 AND dayofmonth(last_day(t.created_at)) THEN t.created_at END, utc_timestamp(6)), CASE WHEN year(t.expires_at) > 0 AND month(t.expires_at) > 0 AND dayofmonth(t.expires_at) BETWEEN 1 AND dayofmonth(last_day(t.expires_at)) THEN t.expires_at END, ?, 2, 0, utc_timestamp(6) + INTERVAL 1000000 MICROSECOND, ?, t.attempt_log, ?, 0
FROM `app`.`Events` AS t FORCE INDEX (PRIMARY)
WHERE (t.lane = 1 AND t.id IN (6) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000006,', t.message_id)) AND t.sinks = '' FOR UPDATE;
--   1: a
--   2: it's "broken"
--   3: retry
SET STATEMENT check_constraint_checks = 0 FOR
UPDATE (SELECT 1 AS lane,5 AS id,1 AS n,CAST(? AS CHAR(3) CHARACTER SET utf8mb4) COLLATE utf8mb4_bin AS rest UNION ALL VALUES (1,6,2,?)) AS g STRAIGHT_JOIN `app`.`Events` AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id AND t.message_id = substr(_ascii'0197a3b4-0000-7abc-8def-0000000000050197a3b4-0000-7abc-8def-000000000006', 36 * g.n - 35, 36) AND t.sinks = '' SET t.sinks = g.rest
WHERE TRUE;
--   1: b,c
--   2: b
INSERT INTO `app`.`Events_held` (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds)
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, coalesce(CASE WHEN year(t.created_at) > 0 AND month(t.created_at) > 0 AND dayofmonth(t.created_at) BETWEEN 1 AND dayofmonth(last_day(t.created_at)) THEN t.created_at END, utc_timestamp(6)), CASE WHEN year(t.expires_at) > 0 AND month(t.expires_at) > 0 AND dayofmonth(t.expires_at) BETWEEN 1 AND dayofmonth(last_day(t.expires_at)) THEN t.expires_at END, ?, 0, 0, CASE WHEN year(t.available_at) > 0 AND month(t.available_at) > 0 AND dayofmonth(t.available_at) BETWEEN 1 AND dayofmonth(last_day(t.available_at)) THEN t.available_at END, t.last_error, t.attempt_log, ?, 0
FROM `app`.`Events_held` AS t FORCE INDEX (PRIMARY)
WHERE (t.lane = 2 AND t.id IN (7) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000007,', t.message_id)) AND t.sinks = CONVERT(? USING utf8mb4) COLLATE utf8mb4_bin AND t.state <> 'error' AND (t.holds < 2 OR 0 = 0) FOR UPDATE;
--   1: b
--   2: error
--   3: a,b
SET STATEMENT check_constraint_checks = 0 FOR
UPDATE (SELECT 2 AS lane,7 AS id,1 AS n) AS g STRAIGHT_JOIN `app`.`Events_held` AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id AND t.message_id = substr(_ascii'0197a3b4-0000-7abc-8def-000000000007', 36 * g.n - 35, 36) AND t.sinks = CONVERT(? USING utf8mb4) COLLATE utf8mb4_bin SET t.sinks = ?
WHERE TRUE AND t.state <> 'error' AND (t.holds < 2 OR 0 = 0);
--   1: a,b
--   2: a

-- settle for some sinks: dead letters
SELECT lane FROM `app`.`Events_lane_locks` FORCE INDEX (PRIMARY) WHERE lane IN (1,2) ORDER BY lane LOCK IN SHARE MODE;
SELECT 'lane', lane, fence FROM `app`.`Events_lanes` FORCE INDEX (PRIMARY) WHERE lane IN (1,2) AND (lane, fence) IN ((1,7),(2,8)) AND owner = ?;
--   1: r
INSERT INTO `app`.`Events` (message_id, topic, message_key, payload, payload_text, headers, priority, expires_at, sinks)
SELECT ?, ?, t.message_key, t.payload, t.payload_text, ?, t.priority, CASE WHEN t.expires_at > utc_timestamp(6) THEN t.expires_at END, ?
FROM `app`.`Events` AS t FORCE INDEX (PRIMARY)
WHERE (t.lane = 1 AND t.id IN (6) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000006,', t.message_id)) AND t.sinks = ''
ORDER BY t.id FOR UPDATE;
--   1: 0197a3b4-0000-7abc-8def-000000000020
--   2: dead
--   3: {"rowrelay-dead-letter-sink":"a"}
--   4: c
INSERT INTO `app`.`Events` (message_id, topic, message_key, payload, payload_text, headers, priority, expires_at, sinks)
SELECT ?, ?, t.message_key, t.payload, t.payload_text, NULL, t.priority, CASE WHEN t.expires_at > utc_timestamp(6) THEN t.expires_at END, ?
FROM `app`.`Events_held` AS t FORCE INDEX (PRIMARY)
WHERE (t.lane = 2 AND t.id IN (7) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000007,', t.message_id)) AND t.sinks = CONVERT(? USING utf8mb4) COLLATE utf8mb4_bin AND t.state <> 'error' AND (t.holds < 2 OR 1 = 0) AND (t.available_at IS NULL OR t.available_at <= CAST(? AS DATETIME(6)))
ORDER BY t.id FOR UPDATE;
--   1: 0197a3b4-0000-7abc-8def-000000000021
--   2: dead.other
--   3: 
--   4: a,b
--   5: 9999-12-31 00:00:00.000000
INSERT INTO `app`.`Events_held` (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds)
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, coalesce(CASE WHEN year(t.created_at) > 0 AND month(t.created_at) > 0 AND dayofmonth(t.created_at) BETWEEN 1 AND dayofmonth(last_day(t.created_at)) THEN t.created_at END, utc_timestamp(6)), CASE WHEN year(t.expires_at) > 0 AND month(t.expires_at) > 0 AND dayofmonth(t.expires_at) BETWEEN 1 AND dayofmonth(last_day(t.expires_at)) THEN t.expires_at END, ?, 2, 0, CASE WHEN year(t.available_at) > 0 AND month(t.available_at) > 0 AND dayofmonth(t.available_at) BETWEEN 1 AND dayofmonth(last_day(t.available_at)) THEN t.available_at END, ?, t.attempt_log, ?, 0
FROM `app`.`Events` AS t FORCE INDEX (PRIMARY)
WHERE (t.lane = 1 AND t.id IN (6) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000006,', t.message_id)) AND t.sinks = '' FOR UPDATE;
--   1: a
--   2: it's "broken"
--   3: error
SET STATEMENT check_constraint_checks = 0 FOR
UPDATE (SELECT 1 AS lane,6 AS id,1 AS n) AS g STRAIGHT_JOIN `app`.`Events` AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id AND t.message_id = substr(_ascii'0197a3b4-0000-7abc-8def-000000000006', 36 * g.n - 35, 36) AND t.sinks = '' SET t.sinks = ?
WHERE TRUE;
--   1: b
INSERT INTO `app`.`Events_held` (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds)
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, coalesce(CASE WHEN year(t.created_at) > 0 AND month(t.created_at) > 0 AND dayofmonth(t.created_at) BETWEEN 1 AND dayofmonth(last_day(t.created_at)) THEN t.created_at END, utc_timestamp(6)), CASE WHEN year(t.expires_at) > 0 AND month(t.expires_at) > 0 AND dayofmonth(t.expires_at) BETWEEN 1 AND dayofmonth(last_day(t.expires_at)) THEN t.expires_at END, ?, 0, 0, utc_timestamp(6) + INTERVAL 0 MICROSECOND, t.last_error, t.attempt_log, ?, 1
FROM `app`.`Events_held` AS t FORCE INDEX (PRIMARY)
WHERE (t.lane = 2 AND t.id IN (7) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000007,', t.message_id)) AND t.sinks = CONVERT(? USING utf8mb4) COLLATE utf8mb4_bin AND t.state <> 'error' AND (t.holds < 2 OR 1 = 0) FOR UPDATE;
--   1: a
--   2: error
--   3: a,b
SET STATEMENT check_constraint_checks = 0 FOR
UPDATE (SELECT 2 AS lane,7 AS id,1 AS n) AS g STRAIGHT_JOIN `app`.`Events_held` AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id AND t.message_id = substr(_ascii'0197a3b4-0000-7abc-8def-000000000007', 36 * g.n - 35, 36) AND t.sinks = CONVERT(? USING utf8mb4) COLLATE utf8mb4_bin SET t.sinks = ?
WHERE TRUE AND t.state <> 'error' AND (t.holds < 2 OR 1 = 0);
--   1: a,b
--   2: b

-- settle: deferred rows of two sinks
SELECT lane FROM `app`.`Events_lane_locks` FORCE INDEX (PRIMARY) WHERE lane IN (2) ORDER BY lane LOCK IN SHARE MODE;
SELECT 'lane', lane, fence FROM `app`.`Events_lanes` FORCE INDEX (PRIMARY) WHERE lane IN (2) AND (lane, fence) IN ((2,8)) AND owner = ?;
--   1: r
REPLACE INTO `app`.`Events_done` (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, finished_at, receipt, relay)
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, t.sinks, 0, 0, t.available_at, t.last_error, utc_timestamp(6), NULL, ?
FROM (SELECT 2 AS lane,8 AS id,1 AS n,CAST(? AS CHAR(1) CHARACTER SET utf8mb4) COLLATE utf8mb4_bin AS sinks UNION ALL VALUES (2,8,2,?)) AS g STRAIGHT_JOIN `app`.`Events_held` AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id AND t.message_id = substr(_ascii'0197a3b4-0000-7abc-8def-0000000000080197a3b4-0000-7abc-8def-000000000008', 36 * g.n - 35, 36) AND t.sinks = CONVERT(g.sinks USING utf8mb4) COLLATE utf8mb4_bin
WHERE TRUE AND t.state <> 'error' FOR UPDATE;
--   1: r
--   2: a
--   3: b
DELETE t FROM (SELECT 2 AS lane,8 AS id,1 AS n,CAST(? AS CHAR(1) CHARACTER SET utf8mb4) COLLATE utf8mb4_bin AS sinks UNION ALL VALUES (2,8,2,?)) AS g STRAIGHT_JOIN `app`.`Events_held` AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id AND t.message_id = substr(_ascii'0197a3b4-0000-7abc-8def-0000000000080197a3b4-0000-7abc-8def-000000000008', 36 * g.n - 35, 36) AND t.sinks = CONVERT(g.sinks USING utf8mb4) COLLATE utf8mb4_bin WHERE t.state <> 'error';
--   1: a
--   2: b

-- settle by rows: done
SELECT 'fenced', coalesce(sum(NOT (t.claim_token <=> ?)), 0), 0 FROM `app`.`Events` AS t FORCE INDEX (PRIMARY)
WHERE (t.lane = 2 AND t.id IN (10) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000010,', t.message_id)) FOR UPDATE;
--   1: t
REPLACE INTO `app`.`Events_done` (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, finished_at, receipt, relay)
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, t.sinks, 0, 0, t.available_at, t.last_error, utc_timestamp(6), NULL, ?
FROM `app`.`Events` AS t FORCE INDEX (PRIMARY)
WHERE (t.lane = 2 AND t.id IN (10) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000010,', t.message_id)) AND t.claim_token = ? FOR UPDATE;
--   1: r
--   2: t
DELETE t FROM (SELECT 2 AS lane,10 AS id,1 AS n) AS g STRAIGHT_JOIN `app`.`Events` AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id AND t.message_id = substr(_ascii'0197a3b4-0000-7abc-8def-000000000010', 36 * g.n - 35, 36) WHERE t.claim_token = ?;
--   1: t

-- settle by rows
SELECT 'fenced', coalesce(sum(NOT (t.claim_token <=> ?)), 0), 0 FROM `app`.`Events` AS t FORCE INDEX (PRIMARY)
WHERE (t.lane = 2 AND t.id IN (9,10) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000009,0197a3b4-0000-7abc-8def-000000000010,', t.message_id)) FOR UPDATE;
--   1: t
REPLACE INTO `app`.`Events_done` (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, finished_at, receipt, relay)
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, t.sinks, 0, 0, t.available_at, t.last_error, utc_timestamp(6), NULL, ?
FROM `app`.`Events` AS t FORCE INDEX (PRIMARY)
WHERE (t.lane = 2 AND t.id IN (10) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000010,', t.message_id)) AND t.claim_token = ? FOR UPDATE;
--   1: r
--   2: t
DELETE t FROM (SELECT 2 AS lane,10 AS id,1 AS n) AS g STRAIGHT_JOIN `app`.`Events` AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id AND t.message_id = substr(_ascii'0197a3b4-0000-7abc-8def-000000000010', 36 * g.n - 35, 36) WHERE t.claim_token = ?;
--   1: t
SET STATEMENT check_constraint_checks = 0 FOR
UPDATE (SELECT 2 AS lane,9 AS id,1 AS n) AS g STRAIGHT_JOIN `app`.`Events` AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id AND t.message_id = substr(_ascii'0197a3b4-0000-7abc-8def-000000000009', 36 * g.n - 35, 36) SET t.claimed_by = NULL, t.claim_token = NULL, t.claimed_until = NULL, t.attempts = 0, t.crashes = 0, t.last_error = t.last_error, t.attempt_log = t.attempt_log
WHERE t.claim_token = ?;
--   1: t

-- settle by rows, not kept
SELECT 'fenced', coalesce(sum(NOT (t.claim_token <=> ?)), 0), 0 FROM `app`.`Events` AS t FORCE INDEX (PRIMARY)
WHERE (t.lane = 2 AND t.id IN (10,11) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000010,0197a3b4-0000-7abc-8def-000000000011,', t.message_id)) FOR UPDATE;
--   1: t
DELETE t FROM (SELECT 2 AS lane,10 AS id,1 AS n) AS g STRAIGHT_JOIN `app`.`Events` AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id AND t.message_id = substr(_ascii'0197a3b4-0000-7abc-8def-000000000010', 36 * g.n - 35, 36) WHERE t.claim_token = ?;
--   1: t
INSERT INTO `app`.`Events_held` (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds)
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, coalesce(CASE WHEN year(t.created_at) > 0 AND month(t.created_at) > 0 AND dayofmonth(t.created_at) BETWEEN 1 AND dayofmonth(last_day(t.created_at)) THEN t.created_at END, utc_timestamp(6)), CASE WHEN year(t.expires_at) > 0 AND month(t.expires_at) > 0 AND dayofmonth(t.expires_at) BETWEEN 1 AND dayofmonth(last_day(t.expires_at)) THEN t.expires_at END, t.sinks, 1, 0, utc_timestamp(6) + INTERVAL 1000000 MICROSECOND, ?, t.attempt_log, ?, 0
FROM `app`.`Events` AS t FORCE INDEX (PRIMARY)
WHERE (t.lane = 2 AND t.id IN (11) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000011,', t.message_id)) AND t.claim_token = ? FOR UPDATE;
--   1: refused
--   2: retry
--   3: t
DELETE t FROM (SELECT 2 AS lane,11 AS id,1 AS n) AS g STRAIGHT_JOIN `app`.`Events` AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id AND t.message_id = substr(_ascii'0197a3b4-0000-7abc-8def-000000000011', 36 * g.n - 35, 36) WHERE t.claim_token = ?;
--   1: t

-- settle by rows: a dead letter
SELECT 'fenced', coalesce(sum(NOT (t.claim_token <=> ?)), 0), 0 FROM `app`.`Events` AS t FORCE INDEX (PRIMARY)
WHERE (t.lane = 2 AND t.id IN (10,11) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000010,0197a3b4-0000-7abc-8def-000000000011,', t.message_id)) FOR UPDATE;
--   1: t
INSERT INTO `app`.`Events` (message_id, topic, message_key, payload, payload_text, headers, priority, expires_at, sinks)
SELECT ?, ?, t.message_key, t.payload, t.payload_text, ?, t.priority, CASE WHEN t.expires_at > utc_timestamp(6) THEN t.expires_at END, ?
FROM `app`.`Events` AS t FORCE INDEX (PRIMARY)
WHERE (t.lane = 2 AND t.id IN (11) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000011,', t.message_id)) AND t.claim_token = ?
ORDER BY t.id FOR UPDATE;
--   1: 0197a3b4-0000-7abc-8def-000000000020
--   2: dead
--   3: {"rowrelay-dead-letter-sink":"a"}
--   4: c
--   5: t
DELETE t FROM (SELECT 2 AS lane,10 AS id,1 AS n) AS g STRAIGHT_JOIN `app`.`Events` AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id AND t.message_id = substr(_ascii'0197a3b4-0000-7abc-8def-000000000010', 36 * g.n - 35, 36) WHERE t.claim_token = ?;
--   1: t
INSERT INTO `app`.`Events_held` (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds)
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, coalesce(CASE WHEN year(t.created_at) > 0 AND month(t.created_at) > 0 AND dayofmonth(t.created_at) BETWEEN 1 AND dayofmonth(last_day(t.created_at)) THEN t.created_at END, utc_timestamp(6)), CASE WHEN year(t.expires_at) > 0 AND month(t.expires_at) > 0 AND dayofmonth(t.expires_at) BETWEEN 1 AND dayofmonth(last_day(t.expires_at)) THEN t.expires_at END, t.sinks, 1, 0, CASE WHEN year(t.available_at) > 0 AND month(t.available_at) > 0 AND dayofmonth(t.available_at) BETWEEN 1 AND dayofmonth(last_day(t.available_at)) THEN t.available_at END, ?, t.attempt_log, ?, 0
FROM `app`.`Events` AS t FORCE INDEX (PRIMARY)
WHERE (t.lane = 2 AND t.id IN (11) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000011,', t.message_id)) AND t.claim_token = ? FOR UPDATE;
--   1: refused
--   2: error
--   3: t
DELETE t FROM (SELECT 2 AS lane,11 AS id,1 AS n) AS g STRAIGHT_JOIN `app`.`Events` AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id AND t.message_id = substr(_ascii'0197a3b4-0000-7abc-8def-000000000011', 36 * g.n - 35, 36) WHERE t.claim_token = ?;
--   1: t

-- purge
SELECT id FROM `app`.`Events_done` FORCE INDEX (done_finished) WHERE finished_at < utc_timestamp(6) + INTERVAL -86400000000 MICROSECOND ORDER BY finished_at LIMIT 100 FOR UPDATE SKIP LOCKED;
DELETE t FROM (SELECT 0 AS lane,1 AS id UNION ALL VALUES (0,2)) AS g STRAIGHT_JOIN `app`.`Events_done` AS t FORCE INDEX (PRIMARY) ON t.id = g.id WHERE t.finished_at < utc_timestamp(6) + INTERVAL -86400000000 MICROSECOND;
SELECT i.message_id FROM `app`.`Events_ids` AS i FORCE INDEX (ids_written)
WHERE i.written_at < utc_timestamp(6) + INTERVAL -86400000000 MICROSECOND
    AND i.written_at < coalesce((SELECT h.created_at FROM `app`.`Events` AS h FORCE INDEX (id) ORDER BY h.id LIMIT 1) - INTERVAL 10 MINUTE, utc_timestamp(6))
    AND NOT EXISTS (SELECT 1 FROM `app`.`Events_held` AS h WHERE h.message_id = i.message_id)
ORDER BY i.written_at LIMIT 100;
DELETE FROM `app`.`Events_relays` WHERE `until` < utc_timestamp(6) - INTERVAL 1 DAY;

-- claim the oldest
SELECT t.id, t.lane, t.message_id, t.topic, coalesce(t.message_key, ''), t.sinks, coalesce(t.payload, CAST(t.payload_text AS BINARY)), coalesce(t.headers, ''), CAST(t.available_at AS CHAR), CAST(t.expires_at AS CHAR), t.priority, t.attempts, t.crashes, CAST(t.created_at AS CHAR), (t.payload IS NOT NULL OR t.payload_text IS NOT NULL) + 2 * coalesce(t.available_at > utc_timestamp(6), 0)
FROM `app`.`Events` AS t FORCE INDEX (claim_id) WHERE (SELECT value FROM `app`.`Events_settings` WHERE name = 'claim' LOCK IN SHARE MODE) = 'rows' AND t.claimed_until IS NULL
ORDER BY t.id LIMIT 10 FOR UPDATE SKIP LOCKED;
SET STATEMENT check_constraint_checks = 0 FOR
UPDATE `app`.`Events` FORCE INDEX (id) SET claimed_by = ?, claim_token = ?, claimed_until = utc_timestamp(6) + INTERVAL 60000000 MICROSECOND WHERE claimed_until IS NULL AND id IN (1,2);
--   1: r
--   2: t

-- claim the highest priorities of some topics: as in mysql.sql

-- has free rows: as in mysql.sql

-- has ended claims: as in mysql.sql

-- extend
SELECT id FROM `app`.`Events` FORCE INDEX (id) WHERE (SELECT value FROM `app`.`Events_settings` WHERE name = 'claim' LOCK IN SHARE MODE) = 'rows' AND id IN (1,2) AND claim_token = ? FOR UPDATE SKIP LOCKED;
--   1: t
SET STATEMENT check_constraint_checks = 0 FOR
UPDATE `app`.`Events` FORCE INDEX (id) SET claimed_until = utc_timestamp(6) + INTERVAL 60000000 MICROSECOND WHERE id IN (1,2);
SELECT id FROM `app`.`Events` FORCE INDEX (id) WHERE (SELECT value FROM `app`.`Events_settings` WHERE name = 'claim' LOCK IN SHARE MODE) = 'rows' AND id IN (1,2) AND claim_token = ?;
--   1: t

-- reclaim
SELECT id FROM `app`.`Events` FORCE INDEX (claim_id) WHERE (SELECT value FROM `app`.`Events_settings` WHERE name = 'claim' LOCK IN SHARE MODE) = 'rows' AND claimed_until < utc_timestamp(6) ORDER BY claimed_until LIMIT 10 FOR UPDATE SKIP LOCKED;
SET STATEMENT check_constraint_checks = 0 FOR
UPDATE `app`.`Events` FORCE INDEX (id) SET claimed_by = NULL, claim_token = NULL, claimed_until = NULL, crashes = least(crashes, 2000000000) + 1 WHERE id IN (1,2) AND claimed_until < utc_timestamp(6);
SELECT t.id * 64 + t.lane FROM `app`.`Events_held` AS t FORCE INDEX (held_due)
WHERE (SELECT value FROM `app`.`Events_settings` WHERE name = 'claim' LOCK IN SHARE MODE) = 'rows' AND t.due_at <= utc_timestamp(6) AND (SELECT COUNT(*) FROM `app`.`Events_held` o WHERE o.lane = t.lane AND o.id = t.id AND (o.message_id, o.sinks) < (t.message_id, t.sinks) AND o.due_at <= utc_timestamp(6)) = 0 AND (SELECT COUNT(*) FROM `app`.`Events` h WHERE h.lane = t.lane AND h.id = t.id) = 0
ORDER BY t.due_at, t.id LIMIT 10 FOR UPDATE SKIP LOCKED;
SET STATEMENT check_constraint_checks = 0 FOR
INSERT INTO `app`.`Events` (id, message_id, topic, message_key, payload, payload_text, headers, priority, attempts, crashes, available_at, expires_at, created_at, last_error, attempt_log, sinks)
SELECT t.id, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.attempts, t.crashes, CASE WHEN year(t.available_at) > 0 AND month(t.available_at) > 0 AND dayofmonth(t.available_at) BETWEEN 1 AND dayofmonth(last_day(t.available_at)) THEN t.available_at END, CASE WHEN year(t.expires_at) > 0 AND month(t.expires_at) > 0 AND dayofmonth(t.expires_at) BETWEEN 1 AND dayofmonth(last_day(t.expires_at)) THEN t.expires_at END, coalesce(CASE WHEN year(t.created_at) > 0 AND month(t.created_at) > 0 AND dayofmonth(t.created_at) BETWEEN 1 AND dayofmonth(last_day(t.created_at)) THEN t.created_at END, utc_timestamp(6)), t.last_error, t.attempt_log, t.sinks FROM `app`.`Events_held` AS t FORCE INDEX (PRIMARY) WHERE ((t.lane = 1 AND t.id IN (1))
    OR (t.lane = 2 AND t.id IN (2))) AND (SELECT value FROM `app`.`Events_settings` WHERE name = 'claim' LOCK IN SHARE MODE) = 'rows' AND t.due_at <= utc_timestamp(6) AND (SELECT COUNT(*) FROM `app`.`Events_held` o WHERE o.lane = t.lane AND o.id = t.id AND (o.message_id, o.sinks) < (t.message_id, t.sinks) AND o.due_at <= utc_timestamp(6)) = 0 FOR UPDATE;
DELETE t FROM (SELECT 1 AS lane,1 AS id UNION ALL VALUES (2,2)) AS g STRAIGHT_JOIN `app`.`Events_held` AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id
STRAIGHT_JOIN `app`.`Events` AS h FORCE INDEX (PRIMARY) ON h.lane = t.lane AND h.id = t.id AND h.message_id = t.message_id AND h.sinks = t.sinks;

-- list: as in mysql.sql

-- list by filter: as in mysql.sql

-- list by filter, with a limit of rows to examine: as in mysql.sql

-- list by a message's id, among few rows: as in mysql.sql

-- requeue
SELECT t.lane, t.id, t.message_id, t.sinks FROM `app`.`Events_held` AS t FORCE INDEX (held_id) WHERE t.state = 'error' AND t.id > 3 AND (t.id IN (1) OR t.message_id IN (?)) AND CAST(t.topic AS BINARY) = ? AND CAST(t.message_key AS BINARY) = ? AND locate(CAST(? AS BINARY), CAST(concat(',', t.sinks, ',') AS BINARY)) > 0 AND t.created_at >= ? AND locate(CAST(? AS BINARY), CAST(t.last_error AS BINARY)) > 0 ORDER BY t.id LIMIT 10 FOR UPDATE;
--   1: 0197a3b4-0000-7abc-8def-0123456789ab
--   2: t
--   3: k
--   4: ,s,
--   5: 2026-01-31 00:00:00.000000
--   6: refused
UPDATE (SELECT 1 AS lane,1 AS id,1 AS n,CAST(? AS CHAR(1) CHARACTER SET utf8mb4) COLLATE utf8mb4_bin AS sinks UNION ALL VALUES (2,2,2,?)) AS g STRAIGHT_JOIN `app`.`Events_held` AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id AND t.message_id = substr(_ascii'0197a3b4-0000-7abc-8def-0000000000010197a3b4-0000-7abc-8def-000000000002', 36 * g.n - 35, 36) AND t.sinks = CONVERT(g.sinks USING utf8mb4) COLLATE utf8mb4_bin SET state = CASE WHEN holds > 0 THEN 'retry' ELSE 'scheduled' END, holds = 0, attempts = 0, crashes = 0, available_at = utc_timestamp(6),
    expires_at = CASE WHEN last_error LIKE 'expired: %' THEN TIMESTAMP'9999-01-01 00:00:00' ELSE expires_at END;
--   1: a
--   2: 

-- list by a topic's prefix: as in mysql.sql

-- redirect
SELECT t.lane, t.id, t.message_id, t.sinks FROM `app`.`Events_held` AS t FORCE INDEX (held_id) WHERE t.state = 'error' AND t.holds = 0 AND NOT EXISTS (SELECT 1 FROM `app`.`Events_held` o WHERE o.lane = t.lane AND o.id = t.id AND o.message_id = t.message_id AND o.sinks <> t.sinks) AND NOT EXISTS (SELECT 1 FROM `app`.`Events` o WHERE o.lane = t.lane AND o.id = t.id AND o.message_id = t.message_id) AND t.id > 0 AND CAST(t.topic AS BINARY) = ? ORDER BY t.id LIMIT 10 FOR UPDATE;
--   1: t
UPDATE (SELECT 1 AS lane,1 AS id,1 AS n,CAST(? AS CHAR(1) CHARACTER SET utf8mb4) COLLATE utf8mb4_bin AS sinks UNION ALL VALUES (2,2,2,?)) AS g STRAIGHT_JOIN `app`.`Events_held` AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id AND t.message_id = substr(_ascii'0197a3b4-0000-7abc-8def-0000000000010197a3b4-0000-7abc-8def-000000000002', 36 * g.n - 35, 36) AND t.sinks = CONVERT(g.sinks USING utf8mb4) COLLATE utf8mb4_bin SET state = CASE WHEN holds > 0 THEN 'retry' ELSE 'scheduled' END, holds = 0, attempts = 0, crashes = 0, available_at = utc_timestamp(6),
    expires_at = CASE WHEN last_error LIKE 'expired: %' THEN TIMESTAMP'9999-01-01 00:00:00' ELSE expires_at END, t.sinks = ?;
--   1: a
--   2: 
--   3: other

-- redirect rows in the state retry
SELECT t.lane, t.id, t.message_id, t.sinks FROM `app`.`Events_held` AS t FORCE INDEX (held_id) WHERE t.state = 'retry' AND t.holds = 0 AND t.sinks NOT LIKE '%,%' AND NOT EXISTS (SELECT 1 FROM `app`.`Events_held` o WHERE o.lane = t.lane AND o.id = t.id AND o.message_id = t.message_id AND o.sinks <> t.sinks) AND NOT EXISTS (SELECT 1 FROM `app`.`Events` o WHERE o.lane = t.lane AND o.id = t.id AND o.message_id = t.message_id) AND t.id > 0 AND CAST(t.topic AS BINARY) = ? AND locate(CAST(? AS BINARY), CAST(concat(',', t.sinks, ',') AS BINARY)) > 0 ORDER BY t.id LIMIT 10 FOR UPDATE;
--   1: t
--   2: ,s,
UPDATE (SELECT 1 AS lane,1 AS id,1 AS n,CAST(? AS CHAR(1) CHARACTER SET utf8mb4) COLLATE utf8mb4_bin AS sinks UNION ALL VALUES (2,2,2,?)) AS g STRAIGHT_JOIN `app`.`Events_held` AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id AND t.message_id = substr(_ascii'0197a3b4-0000-7abc-8def-0000000000010197a3b4-0000-7abc-8def-000000000002', 36 * g.n - 35, 36) AND t.sinks = CONVERT(g.sinks USING utf8mb4) COLLATE utf8mb4_bin SET attempts = 0, crashes = 0, available_at = NULL, t.sinks = ?;
--   1: a
--   2: 
--   3: other

-- redirect rows in the state scheduled
SELECT t.lane, t.id, t.message_id, t.sinks FROM `app`.`Events_held` AS t FORCE INDEX (held_id) WHERE t.state = 'scheduled' AND t.holds = 0 AND t.sinks NOT LIKE '%,%' AND NOT EXISTS (SELECT 1 FROM `app`.`Events_held` o WHERE o.lane = t.lane AND o.id = t.id AND o.message_id = t.message_id AND o.sinks <> t.sinks) AND NOT EXISTS (SELECT 1 FROM `app`.`Events` o WHERE o.lane = t.lane AND o.id = t.id AND o.message_id = t.message_id) AND t.id > 0 AND CAST(t.topic AS BINARY) = ? AND locate(CAST(? AS BINARY), CAST(concat(',', t.sinks, ',') AS BINARY)) > 0 ORDER BY t.id LIMIT 10 FOR UPDATE;
--   1: t
--   2: ,s,
UPDATE (SELECT 1 AS lane,1 AS id,1 AS n,CAST(? AS CHAR(1) CHARACTER SET utf8mb4) COLLATE utf8mb4_bin AS sinks UNION ALL VALUES (2,2,2,?)) AS g STRAIGHT_JOIN `app`.`Events_held` AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id AND t.message_id = substr(_ascii'0197a3b4-0000-7abc-8def-0000000000010197a3b4-0000-7abc-8def-000000000002', 36 * g.n - 35, 36) AND t.sinks = CONVERT(g.sinks USING utf8mb4) COLLATE utf8mb4_bin SET attempts = 0, crashes = 0, t.sinks = ?;
--   1: a
--   2: 
--   3: other

-- redirect rows in the state pending
SELECT t.lane, t.id, t.message_id, t.sinks FROM `app`.`Events` AS t FORCE INDEX (id) WHERE TRUE AND (t.claimed_until IS NULL OR t.claimed_until < utc_timestamp(6)) AND t.sinks NOT LIKE '%,%' AND NOT EXISTS (SELECT 1 FROM `app`.`Events_held` o WHERE o.lane = t.lane AND o.id = t.id AND o.message_id = t.message_id) AND t.id > 0 AND CAST(t.topic AS BINARY) = ? AND locate(CAST(? AS BINARY), CAST(concat(',', t.sinks, ',') AS BINARY)) > 0 ORDER BY t.id LIMIT 10;
--   1: t
--   2: ,s,
SELECT t.lane, t.id, t.message_id, t.sinks FROM `app`.`Events` AS t FORCE INDEX (PRIMARY)
WHERE (t.lane = 1 AND t.id IN (1) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000001,', t.message_id)
    OR t.lane = 2 AND t.id IN (2) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000002,', t.message_id)) AND (t.claimed_until IS NULL OR t.claimed_until < utc_timestamp(6)) AND t.sinks NOT LIKE '%,%' AND NOT EXISTS (SELECT 1 FROM `app`.`Events_held` o WHERE o.lane = t.lane AND o.id = t.id AND o.message_id = t.message_id) AND t.id > 0 AND CAST(t.topic AS BINARY) = ? AND locate(CAST(? AS BINARY), CAST(concat(',', t.sinks, ',') AS BINARY)) > 0 FOR UPDATE;
--   1: t
--   2: ,s,
INSERT INTO `app`.`Events_held` (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds)
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, coalesce(CASE WHEN year(t.created_at) > 0 AND month(t.created_at) > 0 AND dayofmonth(t.created_at) BETWEEN 1 AND dayofmonth(last_day(t.created_at)) THEN t.created_at END, utc_timestamp(6)), CASE WHEN year(t.expires_at) > 0 AND month(t.expires_at) > 0 AND dayofmonth(t.expires_at) BETWEEN 1 AND dayofmonth(last_day(t.expires_at)) THEN t.expires_at END, ?, 0, 0, CASE WHEN year(t.available_at) > 0 AND month(t.available_at) > 0 AND dayofmonth(t.available_at) BETWEEN 1 AND dayofmonth(last_day(t.available_at)) THEN t.available_at END, t.last_error, t.attempt_log, ?, 0
FROM `app`.`Events` AS t FORCE INDEX (PRIMARY)
WHERE (t.lane = 1 AND t.id IN (1) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000001,', t.message_id)
    OR t.lane = 2 AND t.id IN (2) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000002,', t.message_id)) FOR UPDATE;
--   1: other
--   2: scheduled
DELETE t FROM (SELECT 1 AS lane,1 AS id,1 AS n UNION ALL VALUES (2,2,2)) AS g STRAIGHT_JOIN `app`.`Events` AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id AND t.message_id = substr(_ascii'0197a3b4-0000-7abc-8def-0000000000010197a3b4-0000-7abc-8def-000000000002', 36 * g.n - 35, 36);

-- ask for a skip
SELECT t.lane, t.id, t.message_id, t.sinks FROM `app`.`Events_held` AS t FORCE INDEX (held_id) WHERE t.state = 'error' AND t.holds = 1 AND t.id > 3 AND (t.id IN (1) OR t.message_id IN (?)) AND CAST(t.topic AS BINARY) = ? AND CAST(t.message_key AS BINARY) = ? AND locate(CAST(? AS BINARY), CAST(concat(',', t.sinks, ',') AS BINARY)) > 0 AND t.created_at >= ? AND locate(CAST(? AS BINARY), CAST(t.last_error AS BINARY)) > 0 ORDER BY t.id LIMIT 10 FOR UPDATE;
--   1: 0197a3b4-0000-7abc-8def-0123456789ab
--   2: t
--   3: k
--   4: ,s,
--   5: 2026-01-31 00:00:00.000000
--   6: refused
UPDATE (SELECT 1 AS lane,1 AS id,1 AS n,CAST(? AS CHAR(1) CHARACTER SET utf8mb4) COLLATE utf8mb4_bin AS sinks UNION ALL VALUES (2,2,2,?)) AS g STRAIGHT_JOIN `app`.`Events_held` AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id AND t.message_id = substr(_ascii'0197a3b4-0000-7abc-8def-0000000000010197a3b4-0000-7abc-8def-000000000002', 36 * g.n - 35, 36) AND t.sinks = CONVERT(g.sinks USING utf8mb4) COLLATE utf8mb4_bin SET state = 'retry', holds = 2, available_at = utc_timestamp(6);
--   1: a
--   2: 

-- ask for a discard
SELECT t.lane, t.id, t.message_id, t.sinks FROM `app`.`Events_held` AS t FORCE INDEX (held_id) WHERE t.state = 'error' AND t.holds = 1 AND t.id > 3 AND (t.id IN (1) OR t.message_id IN (?)) AND CAST(t.topic AS BINARY) = ? AND CAST(t.message_key AS BINARY) = ? AND locate(CAST(? AS BINARY), CAST(concat(',', t.sinks, ',') AS BINARY)) > 0 AND t.created_at >= ? AND locate(CAST(? AS BINARY), CAST(t.last_error AS BINARY)) > 0 ORDER BY t.id LIMIT 10 FOR UPDATE;
--   1: 0197a3b4-0000-7abc-8def-0123456789ab
--   2: t
--   3: k
--   4: ,s,
--   5: 2026-01-31 00:00:00.000000
--   6: refused
UPDATE (SELECT 1 AS lane,1 AS id,1 AS n,CAST(? AS CHAR(1) CHARACTER SET utf8mb4) COLLATE utf8mb4_bin AS sinks UNION ALL VALUES (2,2,2,?)) AS g STRAIGHT_JOIN `app`.`Events_held` AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id AND t.message_id = substr(_ascii'0197a3b4-0000-7abc-8def-0000000000010197a3b4-0000-7abc-8def-000000000002', 36 * g.n - 35, 36) AND t.sinks = CONVERT(g.sinks USING utf8mb4) COLLATE utf8mb4_bin SET state = 'retry', holds = 3, available_at = utc_timestamp(6);
--   1: a
--   2: 

-- discard
SELECT t.lane, t.id, t.message_id, t.sinks FROM `app`.`Events_held` AS t FORCE INDEX (held_id) WHERE t.state = 'error' AND t.holds = 0 AND t.id > 3 AND (t.id IN (1) OR t.message_id IN (?)) AND CAST(t.topic AS BINARY) = ? AND CAST(t.message_key AS BINARY) = ? AND locate(CAST(? AS BINARY), CAST(concat(',', t.sinks, ',') AS BINARY)) > 0 AND t.created_at >= ? AND locate(CAST(? AS BINARY), CAST(t.last_error AS BINARY)) > 0 ORDER BY t.id LIMIT 10 FOR UPDATE;
--   1: 0197a3b4-0000-7abc-8def-0123456789ab
--   2: t
--   3: k
--   4: ,s,
--   5: 2026-01-31 00:00:00.000000
--   6: refused
DELETE t FROM (SELECT 1 AS lane,1 AS id,1 AS n,CAST(? AS CHAR(1) CHARACTER SET utf8mb4) COLLATE utf8mb4_bin AS sinks UNION ALL VALUES (2,2,2,?)) AS g STRAIGHT_JOIN `app`.`Events_held` AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id AND t.message_id = substr(_ascii'0197a3b4-0000-7abc-8def-0000000000010197a3b4-0000-7abc-8def-000000000002', 36 * g.n - 35, 36) AND t.sinks = CONVERT(g.sinks USING utf8mb4) COLLATE utf8mb4_bin;
--   1: a
--   2: 

-- parked: as in mysql.sql

-- parked, and overtaken rows: as in mysql.sql

-- replays: as in mysql.sql

-- last delivered: as in mysql.sql

-- controls: as in mysql.sql

-- set a control: as in mysql.sql

-- lift a control: as in mysql.sql

-- begin an action: as in mysql.sql

-- end an action: as in mysql.sql

-- actions: as in mysql.sql

-- statistics: as in mysql.sql

-- old done rows: as in mysql.sql

-- delivered: as in mysql.sql

-- last delivered rows: as in mysql.sql

-- begin a replay: as in mysql.sql

-- replay
INSERT INTO `app`.`Events` (message_id, topic, message_key, payload, payload_text, headers, priority, expires_at, sinks)
SELECT g.copy_id, ?, t.message_key, t.payload, t.payload_text, coalesce(nullif(g.copy_headers, ''), NULL), t.priority, CASE WHEN t.expires_at > utc_timestamp(6) THEN t.expires_at END, ?
FROM (SELECT 1 AS lane,5 AS id,1 AS n,CAST(? AS CHAR(36) CHARACTER SET utf8mb4) COLLATE utf8mb4_bin AS copy_id,CAST(? AS CHAR(9) CHARACTER SET utf8mb4) COLLATE utf8mb4_bin AS copy_headers UNION ALL VALUES (2,6,2,?,?)) AS g STRAIGHT_JOIN `app`.`Events_done` AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id AND t.message_id = substr(_ascii'0197a3b4-0000-7abc-8def-0000000000050197a3b4-0000-7abc-8def-000000000006', 36 * g.n - 35, 36)
WHERE TRUE
ORDER BY t.id FOR UPDATE;
--   1: t
--   2: 
--   3: 0197a3b4-0000-7abc-8def-000000000005
--   4: {"n":"5"}
--   5: 0197a3b4-0000-7abc-8def-000000000006
--   6: {"n":"6"}
SELECT t.lane, t.id FROM `app`.`Events` AS t FORCE INDEX (id) WHERE t.id >= 1 AND t.message_id IN (?,?);
--   1: 0197a3b4-0000-7abc-8def-000000000005
--   2: 0197a3b4-0000-7abc-8def-000000000006
UPDATE `app`.`Events_settings` SET value = ? WHERE name = CONVERT(CONCAT('replay.', ?) USING ascii) AND value = ?;
--   1: {"n":1}
--   2: r
--   3: {}

-- count pending: as in mysql.sql

-- status: as in mysql.sql

