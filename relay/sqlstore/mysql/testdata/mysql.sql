-- claim mode
SELECT value FROM `app`.`Events_settings` WHERE name = 'claim';

-- set the claim mode
SELECT value FROM `app`.`Events_settings` WHERE name = 'claim' FOR UPDATE;
SELECT name FROM `app`.`Events_relays` WHERE `until` >= utc_timestamp(6) AND claim <> ? ORDER BY name;
--   1: lanes
INSERT INTO `app`.`Events_settings` (name, value) VALUES ('claim', ?) ON DUPLICATE KEY UPDATE value = ?;
--   1: lanes
--   2: lanes
SELECT lane FROM `app`.`Events_lane_locks` ORDER BY lane FOR UPDATE;
UPDATE `app`.`Events_lanes` SET owner = NULL, `until` = NULL, fence = fence + 1, marks = NULL, journal = NULL, crashes = 0;
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
SELECT name, 0, CONCAT(@@hostname, ':', @@port, '/', @@server_uuid, '/', RIGHT(UUID(), 17)) FROM `app`.`Events_relays` WHERE name = ? AND NOT EXISTS (SELECT 1 FROM `app`.`Events_settings` WHERE name = 'claim' AND value <> ?);
--   1: r
--   2: lanes
SELECT name, setup, CAST(utc_timestamp(6) AS CHAR) FROM `app`.`Events_relays` WHERE `until` >= utc_timestamp(6) ORDER BY name;

-- end leases
UPDATE `app`.`Events_lanes` SET `until` = utc_timestamp(6) - INTERVAL 1 SECOND, fence = fence + 1 WHERE owner = ?;
--   1: r

-- end claims
UPDATE `app`.`Events` SET claimed_until = utc_timestamp(6) - INTERVAL 1 SECOND WHERE claimed_until >= utc_timestamp(6) AND claimed_by = ?;
--   1: r

-- deregister
DELETE FROM `app`.`Events_relays` WHERE name = ?;
--   1: r

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
SELECT CONCAT('0 0 ', CONCAT(@@hostname, ':', @@port, '/', @@server_uuid, '/', RIGHT(UUID(), 17))), 0, 0, '', '', '', '', NULL, '', NULL, NULL, 0, 0, 0, NULL, 0;
SELECT l.lane FROM `app`.`Events_lanes` AS l WHERE (SELECT t.id FROM `app`.`Events` AS t FORCE INDEX (PRIMARY) WHERE t.lane = l.lane ORDER BY t.lane, t.id LIMIT 1) <= CAST(JSON_EXTRACT(NULLIF(l.marks, ''), '$.main') AS SIGNED) ORDER BY l.lane;
EXPLAIN FORMAT=TRADITIONAL SELECT CONCAT('0 0 ', CONCAT(@@hostname, ':', @@port, '/', @@server_uuid, '/', RIGHT(UUID(), 17))), t.id, t.lane, t.message_id, t.topic, coalesce(t.message_key, ''), t.sinks, coalesce(t.payload, CAST(t.payload_text AS BINARY)), coalesce(t.headers, ''), CAST(t.available_at AS CHAR), CAST(t.expires_at AS CHAR), t.priority, t.attempts, t.crashes, CAST(t.created_at AS CHAR), (t.payload IS NOT NULL OR t.payload_text IS NOT NULL) + 2 * coalesce(t.available_at > utc_timestamp(6), 0) FROM `app`.`Events` AS t FORCE INDEX (id) WHERE t.id > 0 AND t.id <= 4611686018427387904 AND t.lane IN (1) ORDER BY t.id LIMIT 500;

-- acquire
SELECT l.lane, l.fence + 300, coalesce(l.marks, ''), l.crashes + (l.owner IS NOT NULL), coalesce(l.journal, ''), 0
FROM `app`.`Events_lanes` AS l FORCE INDEX (PRIMARY) STRAIGHT_JOIN `app`.`Events_lane_locks` AS k FORCE INDEX (PRIMARY) ON k.lane = l.lane
WHERE (l.owner IS NULL OR l.until < utc_timestamp(6)) ORDER BY l.lane LIMIT 5 FOR UPDATE SKIP LOCKED;

-- renew
SELECT lane, fence, 0 FROM `app`.`Events_lanes` FORCE INDEX (PRIMARY) WHERE lane IN (1,2) AND (lane, fence) IN ((1,7),(2,8)) AND owner = ? ORDER BY lane FOR UPDATE;
--   1: r
UPDATE `app`.`Events_lanes` FORCE INDEX (PRIMARY) SET `until` = utc_timestamp(6) + INTERVAL 15000000 MICROSECOND, marks = CASE WHEN CONCAT(@@hostname, ':', @@port, '/', @@server_uuid, '/', RIGHT(UUID(), 17)) <> ? THEN marks ELSE CASE lane WHEN 1 THEN ? WHEN 2 THEN ? ELSE marks END END, crashes = CASE WHEN lane IN (1) THEN 0 ELSE crashes END, journal = CASE WHEN lane IN (1) THEN NULL ELSE journal END WHERE lane IN (1,2);
--   1: e
--   2: {"main":5}
--   3: 

-- release
SELECT lane, fence, 0 FROM `app`.`Events_lanes` FORCE INDEX (PRIMARY) WHERE lane IN (1,2) AND (lane, fence) IN ((1,7),(2,8)) AND owner = ? ORDER BY lane FOR UPDATE;
--   1: r
UPDATE `app`.`Events_lanes` FORCE INDEX (PRIMARY) SET owner = NULL, `until` = NULL, journal = NULL, crashes = 0, marks = CASE WHEN CONCAT(@@hostname, ':', @@port, '/', @@server_uuid, '/', RIGHT(UUID(), 17)) <> ? THEN marks ELSE CASE lane WHEN 1 THEN ? WHEN 2 THEN ? ELSE marks END END WHERE lane IN (1,2);
--   1: e
--   2: {"main":5}
--   3: 

-- write the journal
SELECT lane, fence, 0 FROM `app`.`Events_lanes` FORCE INDEX (PRIMARY) WHERE lane IN (1,2) AND (lane, fence) IN ((1,7),(2,8)) AND owner = ? ORDER BY lane FOR UPDATE;
--   1: r
UPDATE `app`.`Events_lanes` FORCE INDEX (PRIMARY) SET journal = CASE lane WHEN 1 THEN ? WHEN 2 THEN ? ELSE journal END WHERE lane IN (1,2);
--   1: [{"id":1}]
--   2: 

-- journals
SELECT lane, fence, journal FROM `app`.`Events_lanes` WHERE journal IS NOT NULL;

-- marks
SELECT lane, marks FROM `app`.`Events_lanes` WHERE marks IS NOT NULL ORDER BY lane;

-- last id
SELECT GREATEST(COALESCE((SELECT MAX(id) FROM `app`.`Events`), 0), COALESCE((SELECT MAX(id) FROM `app`.`Events_done`), 0),
    COALESCE((SELECT MAX(id) FROM `app`.`Events_held` FORCE INDEX (held_id) WHERE state = 'scheduled'), 0),
    COALESCE((SELECT MAX(id) FROM `app`.`Events_held` FORCE INDEX (held_id) WHERE state = 'retry'), 0),
    COALESCE((SELECT MAX(id) FROM `app`.`Events_held` FORCE INDEX (held_id) WHERE state = 'error'), 0),
    COALESCE((SELECT MAX(CAST(auto_increment AS SIGNED)) - 1 FROM information_schema.tables WHERE table_schema = ? AND table_name = ?), 0)) AS last_id;
--   1: app
--   2: Events

-- written from
SELECT id, CAST(timestampdiff(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', created_at) DIV 1000 AS SIGNED) FROM (
    (SELECT id, created_at FROM `app`.`Events` FORCE INDEX (id) WHERE id >= ? ORDER BY id LIMIT 1)
    UNION ALL (SELECT id, created_at FROM `app`.`Events_done` FORCE INDEX (PRIMARY) WHERE id >= ? ORDER BY id LIMIT 1)
) AS w ORDER BY id LIMIT 1;
--   1: 0
--   2: 0

-- first line
SELECT CONCAT('0 0 ', CONCAT(@@hostname, ':', @@port, '/', @@server_uuid, '/', RIGHT(UUID(), 17))), 0, 0, '', '', '', '', NULL, '', NULL, NULL, 0, 0, 0, NULL, 0;

-- read
SELECT CONCAT('0 0 ', CONCAT(@@hostname, ':', @@port, '/', @@server_uuid, '/', RIGHT(UUID(), 17))), t.id, t.lane, t.message_id, t.topic, coalesce(t.message_key, ''), t.sinks, coalesce(t.payload, CAST(t.payload_text AS BINARY)), coalesce(t.headers, ''), CAST(t.available_at AS CHAR), CAST(t.expires_at AS CHAR), t.priority, t.attempts, t.crashes, CAST(t.created_at AS CHAR), (t.payload IS NOT NULL OR t.payload_text IS NOT NULL) + 2 * coalesce(t.available_at > utc_timestamp(6), 0) FROM `app`.`Events` AS t FORCE INDEX (id) WHERE t.id > 10 AND t.id <= 21 AND (t.lane = 1 AND t.id + 0 <= 20
    OR t.lane = 2 AND t.id + 0 > 11) ORDER BY t.id LIMIT 100;

-- read a share
SELECT CONCAT('0 0 ', CONCAT(@@hostname, ':', @@port, '/', @@server_uuid, '/', RIGHT(UUID(), 17))), t.id, t.lane, t.message_id, t.topic, coalesce(t.message_key, ''), t.sinks, coalesce(t.payload, CAST(t.payload_text AS BINARY)), coalesce(t.headers, ''), CAST(t.available_at AS CHAR), CAST(t.expires_at AS CHAR), t.priority, t.attempts, t.crashes, CAST(t.created_at AS CHAR), (t.payload IS NOT NULL OR t.payload_text IS NOT NULL) + 2 * coalesce(t.available_at > utc_timestamp(6), 0) FROM `app`.`Events` AS t FORCE INDEX (id) WHERE t.id > 10 AND t.id <= 21 AND (t.lane = 1 AND t.id + 0 <= 20
    OR t.lane = 2 AND t.id + 0 > 11) ORDER BY t.id LIMIT 100;

-- read bytes
SELECT CONCAT('0 0 ', CONCAT(@@hostname, ':', @@port, '/', @@server_uuid, '/', RIGHT(UUID(), 17))), t.id, t.lane, t.message_id, t.topic, coalesce(t.message_key, ''), t.sinks, coalesce(t.payload, CAST(t.payload_text AS BINARY)), coalesce(t.headers, ''), CAST(t.available_at AS CHAR), CAST(t.expires_at AS CHAR), t.priority, t.attempts, t.crashes, CAST(t.created_at AS CHAR), (t.payload IS NOT NULL OR t.payload_text IS NOT NULL) + 2 * coalesce(t.available_at > utc_timestamp(6), 0) FROM `app`.`Events` AS t FORCE INDEX (id) WHERE t.id > 10 AND t.id <= 21 AND (t.lane = 1 AND t.id + 0 <= 20
    OR t.lane = 2 AND t.id + 0 > 11) ORDER BY t.id LIMIT 100;

-- read except
SELECT CONCAT('0 0 ', CONCAT(@@hostname, ':', @@port, '/', @@server_uuid, '/', RIGHT(UUID(), 17))), t.id, t.lane, t.message_id, t.topic, coalesce(t.message_key, ''), t.sinks, coalesce(t.payload, CAST(t.payload_text AS BINARY)), coalesce(t.headers, ''), CAST(t.available_at AS CHAR), CAST(t.expires_at AS CHAR), t.priority, t.attempts, t.crashes, CAST(t.created_at AS CHAR), (t.payload IS NOT NULL OR t.payload_text IS NOT NULL) + 2 * coalesce(t.available_at > utc_timestamp(6), 0) FROM `app`.`Events` AS t FORCE INDEX (id) WHERE t.id > 10 AND t.id <= 21 AND (t.lane = 1 AND t.id + 0 <= 20
    OR t.lane = 2 AND t.id + 0 > 11) AND (CAST(t.topic AS BINARY) NOT IN (?,?) OR t.sinks <> '') ORDER BY t.id LIMIT 100;
--   1: t1
--   2: t2

-- read keys
SELECT CONCAT('0 0 ', CONCAT(@@hostname, ':', @@port, '/', @@server_uuid, '/', RIGHT(UUID(), 17))), t.id, t.lane, t.message_id, t.topic, coalesce(t.message_key, ''), t.sinks, coalesce(t.payload, CAST(t.payload_text AS BINARY)), coalesce(t.headers, ''), CAST(t.available_at AS CHAR), CAST(t.expires_at AS CHAR), t.priority, t.attempts, t.crashes, CAST(t.created_at AS CHAR), (t.payload IS NOT NULL OR t.payload_text IS NOT NULL) + 2 * coalesce(t.available_at > utc_timestamp(6), 0) FROM `app`.`Events` AS t FORCE INDEX (PRIMARY) WHERE (t.lane = 1 AND t.id > 10 AND t.id <= 20 AND t.message_key = ?) ORDER BY t.lane, t.id LIMIT 100;
--   1: a"\k

-- candidates
SELECT t.id, t.lane, t.topic, t.message_key, t.sinks, coalesce(length(t.payload), length(t.payload_text), 0) FROM `app`.`Events` AS t FORCE INDEX (id) WHERE t.id > 10 AND t.id <= 21 AND (t.lane = 1 AND t.id + 0 <= 20
    OR t.lane = 2 AND t.id + 0 > 11) AND (CAST(t.topic AS BINARY) NOT IN (?) OR t.sinks <> '') ORDER BY t.id LIMIT 100;
--   1: t1

-- pick
SELECT t.id, t.lane, t.message_id, t.topic, coalesce(t.message_key, ''), t.sinks, coalesce(t.payload, CAST(t.payload_text AS BINARY)), coalesce(t.headers, ''), CAST(t.available_at AS CHAR), CAST(t.expires_at AS CHAR), t.priority, t.attempts, t.crashes, CAST(t.created_at AS CHAR), (t.payload IS NOT NULL OR t.payload_text IS NOT NULL) + 2 * coalesce(t.available_at > utc_timestamp(6), 0) FROM `app`.`Events` AS t FORCE INDEX (PRIMARY)
WHERE ((t.lane = 1 AND t.id IN (15))
    OR (t.lane = 2 AND t.id IN (16)));

-- pick held
SELECT t.id, t.lane, t.message_id, t.topic, coalesce(t.message_key, ''), t.sinks, coalesce(t.payload, CAST(t.payload_text AS BINARY)), coalesce(t.headers, ''), CAST(t.available_at AS CHAR), CAST(t.expires_at AS CHAR), t.priority, t.attempts, t.crashes, CAST(t.created_at AS CHAR), (t.payload IS NOT NULL OR t.payload_text IS NOT NULL) + 4 * (t.state = 'retry') + 16 * t.holds FROM `app`.`Events_held` AS t FORCE INDEX (PRIMARY)
WHERE t.state <> 'error' AND ((t.lane = 1 AND t.id IN (15))
    OR (t.lane = 2 AND t.id IN (16)));

-- attempt logs
SELECT t.id, t.lane, t.message_id, t.sinks, t.attempt_log FROM `app`.`Events` AS t FORCE INDEX (PRIMARY)
WHERE t.attempt_log IS NOT NULL AND ((t.lane = 1 AND t.id IN (15))
    OR (t.lane = 2 AND t.id IN (16)));

-- attempt logs of held rows
SELECT t.id, t.lane, t.message_id, t.sinks, t.attempt_log FROM `app`.`Events_held` AS t FORCE INDEX (PRIMARY)
WHERE t.attempt_log IS NOT NULL AND ((t.lane = 1 AND t.id IN (15))
    OR (t.lane = 2 AND t.id IN (16)));

-- due
SELECT t.id, t.lane, t.message_id, t.topic, coalesce(t.message_key, ''), t.sinks, coalesce(t.payload, CAST(t.payload_text AS BINARY)), coalesce(t.headers, ''), CAST(t.available_at AS CHAR), CAST(t.expires_at AS CHAR), t.priority, t.attempts, t.crashes, CAST(t.created_at AS CHAR), (t.payload IS NOT NULL OR t.payload_text IS NOT NULL) + 4 * (t.state = 'retry') + 16 * t.holds FROM `app`.`Events_held` AS t FORCE INDEX (held_due)
WHERE t.due_at <= utc_timestamp(6) AND t.due_at >= TIMESTAMP'2026-01-31 23:59:59.123456' AND (t.due_at > TIMESTAMP'2026-01-31 23:59:59.123456' OR t.id > 9) AND t.lane IN (1,2)
ORDER BY t.due_at, t.id LIMIT 100;

-- blocked keys
SELECT lane, message_key, topic, sinks, id FROM `app`.`Events_held` FORCE INDEX (held_retry)
WHERE blocks IN (1,2) AND message_key <> ''
LIMIT 100;

-- blocked among keys
SELECT t.lane, CAST(t.message_key AS BINARY) AS held_key, CAST(t.topic AS BINARY) AS held_topic, CAST(t.sinks AS BINARY) AS held_sinks, MIN(t.id) FROM `app`.`Events_held` AS t FORCE INDEX (held_retry)
WHERE (t.blocks = 1 AND t.message_key IN (?,?)
    OR t.blocks = 2 AND t.message_key IN (?))
GROUP BY t.lane, held_key, held_topic, held_sinks ORDER BY NULL;
--   1: a"\k
--   2: c
--   3: b

-- remaining
(SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.sinks, 1 FROM `app`.`Events_held` AS t FORCE INDEX (held_due) WHERE t.due_at <= utc_timestamp(6) LIMIT 1000)
UNION ALL (SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.sinks, 0 FROM `app`.`Events` AS t WHERE coalesce(t.available_at <= utc_timestamp(6), 1) AND coalesce(t.claimed_until <= utc_timestamp(6), 1) LIMIT 1000);

-- list open transactions
SELECT value FROM `app`.`Events_settings` WHERE name = '' FOR UPDATE;
SELECT CASE WHEN LOCATE('TOKEN', trx_query) > 0 THEN 'number' WHEN trx_state = 'COMMITTING' THEN 'ending' ELSE 'open' END, CAST(trx_id AS CHAR)
FROM (SELECT t.*, COUNT(*) OVER () AS listed, SUM(trx_state = 'LOCK WAIT') OVER () AS waiting
    FROM information_schema.innodb_trx AS t) AS t
WHERE listed < 5000 AND waiting < 1000 AND trx_id > 0 AND trx_id < 281474976710656
    AND (trx_rows_modified > 0 OR trx_tables_in_use > 0 OR trx_mysql_thread_id = 0 OR LOCATE('TOKEN', trx_query) > 0)
UNION ALL SELECT 'all', ''
UNION ALL SELECT 'server', CONCAT(@@hostname, ':', @@port, '/', @@server_uuid, '/', RIGHT(UUID(), 17));

-- settle: done
SELECT lane FROM `app`.`Events_lane_locks` FORCE INDEX (PRIMARY) WHERE lane IN (1) ORDER BY lane LOCK IN SHARE MODE;
SELECT 'lane', lane, fence FROM `app`.`Events_lanes` FORCE INDEX (PRIMARY) WHERE lane IN (1) AND (lane, fence) IN ((1,7)) AND owner = ?;
--   1: r
REPLACE INTO `app`.`Events_done` (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, finished_at, receipt, relay)
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, t.sinks, 1, 0, t.available_at, t.last_error, utc_timestamp(6), ?, ?
FROM `app`.`Events` AS t FORCE INDEX (PRIMARY)
WHERE (t.lane = 1 AND t.id IN (5) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000005,', t.message_id)) FOR UPDATE OF t;
--   1: 0/5
--   2: r
DELETE /*+ SET_VAR(sql_safe_updates = 1) INDEX(`Events` PRIMARY) */ FROM `app`.`Events`
WHERE (lane = 1 AND id IN (5) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000005,', message_id));

-- settle: done, with different receipts
SELECT lane FROM `app`.`Events_lane_locks` FORCE INDEX (PRIMARY) WHERE lane IN (1) ORDER BY lane LOCK IN SHARE MODE;
SELECT 'lane', lane, fence FROM `app`.`Events_lanes` FORCE INDEX (PRIMARY) WHERE lane IN (1) AND (lane, fence) IN ((1,7)) AND owner = ?;
--   1: r
REPLACE INTO `app`.`Events_done` (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, finished_at, receipt, relay)
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, t.sinks, 1, 0, t.available_at, t.last_error, utc_timestamp(6), coalesce(nullif(g.receipt, ''), NULL), ?
FROM JSON_TABLE(?, '$[*]' COLUMNS (lane smallint PATH '$[0]', id bigint PATH '$[1]', n FOR ORDINALITY, receipt longtext PATH '$[2]')) AS g STRAIGHT_JOIN `app`.`Events` AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id AND t.message_id = substr(_ascii'0197a3b4-0000-7abc-8def-0000000000050197a3b4-0000-7abc-8def-000000000006', 36 * g.n - 35, 36)
WHERE TRUE FOR UPDATE OF t;
--   1: r
--   2: [[1,5,"0/5"],[1,6,"0/6"]]
DELETE /*+ SET_VAR(sql_safe_updates = 1) INDEX(`Events` PRIMARY) */ FROM `app`.`Events`
WHERE (lane = 1 AND id IN (5,6) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000005,0197a3b4-0000-7abc-8def-000000000006,', message_id));

-- settle: done, not kept
SELECT lane FROM `app`.`Events_lane_locks` FORCE INDEX (PRIMARY) WHERE lane IN (1) ORDER BY lane LOCK IN SHARE MODE;
SELECT 'lane', lane, fence FROM `app`.`Events_lanes` FORCE INDEX (PRIMARY) WHERE lane IN (1) AND (lane, fence) IN ((1,7)) AND owner = ?;
--   1: r
DELETE /*+ SET_VAR(sql_safe_updates = 1) INDEX(`Events` PRIMARY) */ FROM `app`.`Events`
WHERE (lane = 1 AND id IN (5) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000005,', message_id));

-- settle: rows of several kinds
SELECT lane FROM `app`.`Events_lane_locks` FORCE INDEX (PRIMARY) WHERE lane IN (1,2) ORDER BY lane LOCK IN SHARE MODE;
SELECT 'lane', lane, fence FROM `app`.`Events_lanes` FORCE INDEX (PRIMARY) WHERE lane IN (1,2) AND (lane, fence) IN ((1,7),(2,8)) AND owner = ?;
--   1: r
REPLACE INTO `app`.`Events_done` (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, finished_at, receipt, relay)
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, t.sinks, 1, 0, t.available_at, t.last_error, utc_timestamp(6), ?, ?
FROM `app`.`Events` AS t FORCE INDEX (PRIMARY)
WHERE (t.lane = 1 AND t.id IN (5) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000005,', t.message_id)) FOR UPDATE OF t;
--   1: 0/5
--   2: r
DELETE /*+ SET_VAR(sql_safe_updates = 1) INDEX(`Events` PRIMARY) */ FROM `app`.`Events`
WHERE (lane = 1 AND id IN (5) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000005,', message_id));
REPLACE INTO `app`.`Events_done` (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, finished_at, receipt, relay)
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, t.sinks, 0, 0, t.available_at, t.last_error, utc_timestamp(6), NULL, ?
FROM `app`.`Events_held` AS t FORCE INDEX (PRIMARY)
WHERE (t.lane = 2 AND t.id IN (8) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000008,', t.message_id)) AND t.sinks = '' AND t.state <> 'error' FOR UPDATE OF t;
--   1: r
DELETE /*+ SET_VAR(sql_safe_updates = 1) INDEX(`Events_held` PRIMARY) */ FROM `app`.`Events_held`
WHERE (lane = 2 AND id IN (8) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000008,', message_id)) AND sinks = '' AND state <> 'error';
INSERT INTO `app`.`Events_held` (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds)
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, coalesce(CASE WHEN year(t.created_at) > 0 AND month(t.created_at) > 0 AND dayofmonth(t.created_at) BETWEEN 1 AND dayofmonth(last_day(t.created_at)) THEN t.created_at END, utc_timestamp(6)), CASE WHEN year(t.expires_at) > 0 AND month(t.expires_at) > 0 AND dayofmonth(t.expires_at) BETWEEN 1 AND dayofmonth(last_day(t.expires_at)) THEN t.expires_at END, t.sinks, 2, 0, utc_timestamp(6) + INTERVAL 1000000 MICROSECOND, ?, t.attempt_log, ?, 0
FROM `app`.`Events` AS t FORCE INDEX (PRIMARY)
WHERE (t.lane = 1 AND t.id IN (6) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000006,', t.message_id)) FOR UPDATE OF t;
--   1: it's "broken"
--   2: retry
DELETE /*+ SET_VAR(sql_safe_updates = 1) INDEX(`Events` PRIMARY) */ FROM `app`.`Events`
WHERE (lane = 1 AND id IN (6) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000006,', message_id));
UPDATE JSON_TABLE('[[2,7]]', '$[*]' COLUMNS (lane smallint PATH '$[0]', id bigint PATH '$[1]', n FOR ORDINALITY)) AS g STRAIGHT_JOIN `app`.`Events_held` AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id AND t.message_id = substr(_ascii'0197a3b4-0000-7abc-8def-000000000007', 36 * g.n - 35, 36) AND t.sinks = '' SET t.state = ?, t.holds = 0, t.attempts = 0, t.crashes = 0, t.changes = t.changes + 1, t.available_at = t.available_at, t.last_error = t.last_error, t.attempt_log = t.attempt_log
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
ORDER BY t.id FOR UPDATE OF t;
--   1: 0197a3b4-0000-7abc-8def-000000000020
--   2: dead
--   3: {"rowrelay-dead-letter-sink":"a"}
--   4: c
INSERT INTO `app`.`Events` (message_id, topic, message_key, payload, payload_text, headers, priority, expires_at, sinks)
SELECT ?, ?, t.message_key, t.payload, t.payload_text, NULL, t.priority, CASE WHEN t.expires_at > utc_timestamp(6) THEN t.expires_at END, ?
FROM `app`.`Events_held` AS t FORCE INDEX (PRIMARY)
WHERE (t.lane = 2 AND t.id IN (7) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000007,', t.message_id)) AND t.sinks = '' AND t.state <> 'error' AND (t.holds < 2 OR 1 = 0) AND (t.available_at IS NULL OR t.available_at <= CAST(? AS DATETIME(6)))
ORDER BY t.id FOR UPDATE OF t;
--   1: 0197a3b4-0000-7abc-8def-000000000021
--   2: dead.other
--   3: 
--   4: 9999-12-31 00:00:00.000000
REPLACE INTO `app`.`Events_done` (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, finished_at, receipt, relay)
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, t.sinks, 1, 0, t.available_at, t.last_error, utc_timestamp(6), ?, ?
FROM `app`.`Events` AS t FORCE INDEX (PRIMARY)
WHERE (t.lane = 1 AND t.id IN (5) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000005,', t.message_id)) FOR UPDATE OF t;
--   1: 0/5
--   2: r
DELETE /*+ SET_VAR(sql_safe_updates = 1) INDEX(`Events` PRIMARY) */ FROM `app`.`Events`
WHERE (lane = 1 AND id IN (5) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000005,', message_id));
INSERT INTO `app`.`Events_held` (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds)
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, coalesce(CASE WHEN year(t.created_at) > 0 AND month(t.created_at) > 0 AND dayofmonth(t.created_at) BETWEEN 1 AND dayofmonth(last_day(t.created_at)) THEN t.created_at END, utc_timestamp(6)), CASE WHEN year(t.expires_at) > 0 AND month(t.expires_at) > 0 AND dayofmonth(t.expires_at) BETWEEN 1 AND dayofmonth(last_day(t.expires_at)) THEN t.expires_at END, t.sinks, 2, 0, CASE WHEN year(t.available_at) > 0 AND month(t.available_at) > 0 AND dayofmonth(t.available_at) BETWEEN 1 AND dayofmonth(last_day(t.available_at)) THEN t.available_at END, ?, t.attempt_log, ?, 0
FROM `app`.`Events` AS t FORCE INDEX (PRIMARY)
WHERE (t.lane = 1 AND t.id IN (6) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000006,', t.message_id)) FOR UPDATE OF t;
--   1: it's "broken"
--   2: error
DELETE /*+ SET_VAR(sql_safe_updates = 1) INDEX(`Events` PRIMARY) */ FROM `app`.`Events`
WHERE (lane = 1 AND id IN (6) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000006,', message_id));
UPDATE JSON_TABLE('[[2,7]]', '$[*]' COLUMNS (lane smallint PATH '$[0]', id bigint PATH '$[1]', n FOR ORDINALITY)) AS g STRAIGHT_JOIN `app`.`Events_held` AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id AND t.message_id = substr(_ascii'0197a3b4-0000-7abc-8def-000000000007', 36 * g.n - 35, 36) AND t.sinks = '' SET t.state = ?, t.holds = 1, t.attempts = 0, t.crashes = 0, t.changes = t.changes + 1, t.available_at = utc_timestamp(6) + INTERVAL 0 MICROSECOND, t.last_error = t.last_error, t.attempt_log = t.attempt_log
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
WHERE (t.lane = 1 AND t.id IN (6) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000006,', t.message_id)) FOR UPDATE OF t;
--   1: it's "broken"
--   2: [{"at":"2026-01-31T23:59:59Z","relay":"r","sink":"s","answer":"it's \"broken\"","duration_ms":12}]
--   3: retry
DELETE /*+ SET_VAR(sql_safe_updates = 1) INDEX(`Events` PRIMARY) */ FROM `app`.`Events`
WHERE (lane = 1 AND id IN (6) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000006,', message_id));
UPDATE JSON_TABLE('[[2,7]]', '$[*]' COLUMNS (lane smallint PATH '$[0]', id bigint PATH '$[1]', n FOR ORDINALITY)) AS g STRAIGHT_JOIN `app`.`Events_held` AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id AND t.message_id = substr(_ascii'0197a3b4-0000-7abc-8def-000000000007', 36 * g.n - 35, 36) AND t.sinks = '' SET t.state = ?, t.holds = 0, t.attempts = 0, t.crashes = 0, t.changes = t.changes + 1, t.available_at = t.available_at, t.last_error = t.last_error, t.attempt_log = ?
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
WHERE (t.lane = 2 AND t.id IN (11) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000011,', t.message_id)) AND t.claim_token = ? FOR UPDATE OF t;
--   1: refused
--   2: [{"at":"2026-01-31T23:59:59Z","relay":"r","sink":"s","answer":"it's \"broken\"","duration_ms":12}]
--   3: retry
--   4: t
DELETE /*+ SET_VAR(sql_safe_updates = 1) INDEX(`Events` PRIMARY) */ FROM `app`.`Events`
WHERE (lane = 2 AND id IN (11) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000011,', message_id)) AND claim_token = ?;
--   1: t

-- settle for some sinks
SELECT lane FROM `app`.`Events_lane_locks` FORCE INDEX (PRIMARY) WHERE lane IN (1,2) ORDER BY lane LOCK IN SHARE MODE;
SELECT 'lane', lane, fence FROM `app`.`Events_lanes` FORCE INDEX (PRIMARY) WHERE lane IN (1,2) AND (lane, fence) IN ((1,7),(2,8)) AND owner = ?;
--   1: r
REPLACE INTO `app`.`Events_done` (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, finished_at, receipt, relay)
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, ?, 1, 0, t.available_at, t.last_error, utc_timestamp(6), ?, ?
FROM `app`.`Events` AS t FORCE INDEX (PRIMARY)
WHERE (t.lane = 1 AND t.id IN (5) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000005,', t.message_id)) AND t.sinks = '' FOR UPDATE OF t;
--   1: a
--   2: 0/5
--   3: r
INSERT INTO `app`.`Events_held` (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds)
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, coalesce(CASE WHEN year(t.created_at) > 0 AND month(t.created_at) > 0 AND dayofmonth(t.created_at) BETWEEN 1 AND dayofmonth(last_day(t.created_at)) THEN t.created_at END, utc_timestamp(6)), CASE WHEN year(t.expires_at) > 0 AND month(t.expires_at) > 0 AND dayofmonth(t.expires_at) BETWEEN 1 AND dayofmonth(last_day(t.expires_at)) THEN t.expires_at END, ?, 2, 0, utc_timestamp(6) + INTERVAL 1000000 MICROSECOND, ?, t.attempt_log, ?, 0
FROM `app`.`Events` AS t FORCE INDEX (PRIMARY)
WHERE (t.lane = 1 AND t.id IN (6) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000006,', t.message_id)) AND t.sinks = '' FOR UPDATE OF t;
--   1: a
--   2: it's "broken"
--   3: retry
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (lane smallint PATH '$[0]', id bigint PATH '$[1]', n FOR ORDINALITY, rest varchar(400) PATH '$[2]')) AS g STRAIGHT_JOIN `app`.`Events` AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id AND t.message_id = substr(_ascii'0197a3b4-0000-7abc-8def-0000000000050197a3b4-0000-7abc-8def-000000000006', 36 * g.n - 35, 36) AND t.sinks = '' SET t.sinks = g.rest
WHERE TRUE;
--   1: [[1,5,"b,c"],[1,6,"b"]]
INSERT INTO `app`.`Events_held` (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds)
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, coalesce(CASE WHEN year(t.created_at) > 0 AND month(t.created_at) > 0 AND dayofmonth(t.created_at) BETWEEN 1 AND dayofmonth(last_day(t.created_at)) THEN t.created_at END, utc_timestamp(6)), CASE WHEN year(t.expires_at) > 0 AND month(t.expires_at) > 0 AND dayofmonth(t.expires_at) BETWEEN 1 AND dayofmonth(last_day(t.expires_at)) THEN t.expires_at END, ?, 0, 0, CASE WHEN year(t.available_at) > 0 AND month(t.available_at) > 0 AND dayofmonth(t.available_at) BETWEEN 1 AND dayofmonth(last_day(t.available_at)) THEN t.available_at END, t.last_error, t.attempt_log, ?, 0
FROM `app`.`Events_held` AS t FORCE INDEX (PRIMARY)
WHERE (t.lane = 2 AND t.id IN (7) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000007,', t.message_id)) AND t.sinks = CONVERT(? USING utf8mb4) COLLATE utf8mb4_bin AND t.state <> 'error' AND (t.holds < 2 OR 0 = 0) FOR UPDATE OF t;
--   1: b
--   2: error
--   3: a,b
UPDATE JSON_TABLE('[[2,7]]', '$[*]' COLUMNS (lane smallint PATH '$[0]', id bigint PATH '$[1]', n FOR ORDINALITY)) AS g STRAIGHT_JOIN `app`.`Events_held` AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id AND t.message_id = substr(_ascii'0197a3b4-0000-7abc-8def-000000000007', 36 * g.n - 35, 36) AND t.sinks = CONVERT(? USING utf8mb4) COLLATE utf8mb4_bin SET t.sinks = ?
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
ORDER BY t.id FOR UPDATE OF t;
--   1: 0197a3b4-0000-7abc-8def-000000000020
--   2: dead
--   3: {"rowrelay-dead-letter-sink":"a"}
--   4: c
INSERT INTO `app`.`Events` (message_id, topic, message_key, payload, payload_text, headers, priority, expires_at, sinks)
SELECT ?, ?, t.message_key, t.payload, t.payload_text, NULL, t.priority, CASE WHEN t.expires_at > utc_timestamp(6) THEN t.expires_at END, ?
FROM `app`.`Events_held` AS t FORCE INDEX (PRIMARY)
WHERE (t.lane = 2 AND t.id IN (7) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000007,', t.message_id)) AND t.sinks = CONVERT(? USING utf8mb4) COLLATE utf8mb4_bin AND t.state <> 'error' AND (t.holds < 2 OR 1 = 0) AND (t.available_at IS NULL OR t.available_at <= CAST(? AS DATETIME(6)))
ORDER BY t.id FOR UPDATE OF t;
--   1: 0197a3b4-0000-7abc-8def-000000000021
--   2: dead.other
--   3: 
--   4: a,b
--   5: 9999-12-31 00:00:00.000000
INSERT INTO `app`.`Events_held` (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds)
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, coalesce(CASE WHEN year(t.created_at) > 0 AND month(t.created_at) > 0 AND dayofmonth(t.created_at) BETWEEN 1 AND dayofmonth(last_day(t.created_at)) THEN t.created_at END, utc_timestamp(6)), CASE WHEN year(t.expires_at) > 0 AND month(t.expires_at) > 0 AND dayofmonth(t.expires_at) BETWEEN 1 AND dayofmonth(last_day(t.expires_at)) THEN t.expires_at END, ?, 2, 0, CASE WHEN year(t.available_at) > 0 AND month(t.available_at) > 0 AND dayofmonth(t.available_at) BETWEEN 1 AND dayofmonth(last_day(t.available_at)) THEN t.available_at END, ?, t.attempt_log, ?, 0
FROM `app`.`Events` AS t FORCE INDEX (PRIMARY)
WHERE (t.lane = 1 AND t.id IN (6) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000006,', t.message_id)) AND t.sinks = '' FOR UPDATE OF t;
--   1: a
--   2: it's "broken"
--   3: error
UPDATE JSON_TABLE('[[1,6]]', '$[*]' COLUMNS (lane smallint PATH '$[0]', id bigint PATH '$[1]', n FOR ORDINALITY)) AS g STRAIGHT_JOIN `app`.`Events` AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id AND t.message_id = substr(_ascii'0197a3b4-0000-7abc-8def-000000000006', 36 * g.n - 35, 36) AND t.sinks = '' SET t.sinks = ?
WHERE TRUE;
--   1: b
INSERT INTO `app`.`Events_held` (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds)
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, coalesce(CASE WHEN year(t.created_at) > 0 AND month(t.created_at) > 0 AND dayofmonth(t.created_at) BETWEEN 1 AND dayofmonth(last_day(t.created_at)) THEN t.created_at END, utc_timestamp(6)), CASE WHEN year(t.expires_at) > 0 AND month(t.expires_at) > 0 AND dayofmonth(t.expires_at) BETWEEN 1 AND dayofmonth(last_day(t.expires_at)) THEN t.expires_at END, ?, 0, 0, utc_timestamp(6) + INTERVAL 0 MICROSECOND, t.last_error, t.attempt_log, ?, 1
FROM `app`.`Events_held` AS t FORCE INDEX (PRIMARY)
WHERE (t.lane = 2 AND t.id IN (7) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000007,', t.message_id)) AND t.sinks = CONVERT(? USING utf8mb4) COLLATE utf8mb4_bin AND t.state <> 'error' AND (t.holds < 2 OR 1 = 0) FOR UPDATE OF t;
--   1: a
--   2: error
--   3: a,b
UPDATE JSON_TABLE('[[2,7]]', '$[*]' COLUMNS (lane smallint PATH '$[0]', id bigint PATH '$[1]', n FOR ORDINALITY)) AS g STRAIGHT_JOIN `app`.`Events_held` AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id AND t.message_id = substr(_ascii'0197a3b4-0000-7abc-8def-000000000007', 36 * g.n - 35, 36) AND t.sinks = CONVERT(? USING utf8mb4) COLLATE utf8mb4_bin SET t.sinks = ?
WHERE TRUE AND t.state <> 'error' AND (t.holds < 2 OR 1 = 0);
--   1: a,b
--   2: b

-- settle: deferred rows of two sinks
SELECT lane FROM `app`.`Events_lane_locks` FORCE INDEX (PRIMARY) WHERE lane IN (2) ORDER BY lane LOCK IN SHARE MODE;
SELECT 'lane', lane, fence FROM `app`.`Events_lanes` FORCE INDEX (PRIMARY) WHERE lane IN (2) AND (lane, fence) IN ((2,8)) AND owner = ?;
--   1: r
REPLACE INTO `app`.`Events_done` (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, finished_at, receipt, relay)
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, t.sinks, 0, 0, t.available_at, t.last_error, utc_timestamp(6), NULL, ?
FROM JSON_TABLE(?, '$[*]' COLUMNS (lane smallint PATH '$[0]', id bigint PATH '$[1]', n FOR ORDINALITY, sinks varchar(400) PATH '$[2]')) AS g STRAIGHT_JOIN `app`.`Events_held` AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id AND t.message_id = substr(_ascii'0197a3b4-0000-7abc-8def-0000000000080197a3b4-0000-7abc-8def-000000000008', 36 * g.n - 35, 36) AND t.sinks = CONVERT(g.sinks USING utf8mb4) COLLATE utf8mb4_bin
WHERE TRUE AND t.state <> 'error' FOR UPDATE OF t;
--   1: r
--   2: [[2,8,"a"],[2,8,"b"]]
DELETE t FROM JSON_TABLE(?, '$[*]' COLUMNS (lane smallint PATH '$[0]', id bigint PATH '$[1]', n FOR ORDINALITY, sinks varchar(400) PATH '$[2]')) AS g STRAIGHT_JOIN `app`.`Events_held` AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id AND t.message_id = substr(_ascii'0197a3b4-0000-7abc-8def-0000000000080197a3b4-0000-7abc-8def-000000000008', 36 * g.n - 35, 36) AND t.sinks = CONVERT(g.sinks USING utf8mb4) COLLATE utf8mb4_bin WHERE t.state <> 'error';
--   1: [[2,8,"a"],[2,8,"b"]]

-- settle by rows: done
SELECT 'fenced', coalesce(sum(NOT (t.claim_token <=> ?)), 0), 0 FROM `app`.`Events` AS t FORCE INDEX (PRIMARY)
WHERE (t.lane = 2 AND t.id IN (10) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000010,', t.message_id)) FOR UPDATE;
--   1: t
REPLACE INTO `app`.`Events_done` (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, finished_at, receipt, relay)
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, t.sinks, 0, 0, t.available_at, t.last_error, utc_timestamp(6), NULL, ?
FROM `app`.`Events` AS t FORCE INDEX (PRIMARY)
WHERE (t.lane = 2 AND t.id IN (10) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000010,', t.message_id)) AND t.claim_token = ? FOR UPDATE OF t;
--   1: r
--   2: t
DELETE /*+ SET_VAR(sql_safe_updates = 1) INDEX(`Events` PRIMARY) */ FROM `app`.`Events`
WHERE (lane = 2 AND id IN (10) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000010,', message_id)) AND claim_token = ?;
--   1: t

-- settle by rows
SELECT 'fenced', coalesce(sum(NOT (t.claim_token <=> ?)), 0), 0 FROM `app`.`Events` AS t FORCE INDEX (PRIMARY)
WHERE (t.lane = 2 AND t.id IN (9,10) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000009,0197a3b4-0000-7abc-8def-000000000010,', t.message_id)) FOR UPDATE;
--   1: t
REPLACE INTO `app`.`Events_done` (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, finished_at, receipt, relay)
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, t.sinks, 0, 0, t.available_at, t.last_error, utc_timestamp(6), NULL, ?
FROM `app`.`Events` AS t FORCE INDEX (PRIMARY)
WHERE (t.lane = 2 AND t.id IN (10) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000010,', t.message_id)) AND t.claim_token = ? FOR UPDATE OF t;
--   1: r
--   2: t
DELETE /*+ SET_VAR(sql_safe_updates = 1) INDEX(`Events` PRIMARY) */ FROM `app`.`Events`
WHERE (lane = 2 AND id IN (10) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000010,', message_id)) AND claim_token = ?;
--   1: t
UPDATE JSON_TABLE('[[2,9]]', '$[*]' COLUMNS (lane smallint PATH '$[0]', id bigint PATH '$[1]', n FOR ORDINALITY)) AS g STRAIGHT_JOIN `app`.`Events` AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id AND t.message_id = substr(_ascii'0197a3b4-0000-7abc-8def-000000000009', 36 * g.n - 35, 36) SET t.claimed_by = NULL, t.claim_token = NULL, t.claimed_until = NULL, t.attempts = 0, t.crashes = 0, t.last_error = t.last_error, t.attempt_log = t.attempt_log
WHERE t.claim_token = ?;
--   1: t

-- settle by rows, not kept
SELECT 'fenced', coalesce(sum(NOT (t.claim_token <=> ?)), 0), 0 FROM `app`.`Events` AS t FORCE INDEX (PRIMARY)
WHERE (t.lane = 2 AND t.id IN (10,11) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000010,0197a3b4-0000-7abc-8def-000000000011,', t.message_id)) FOR UPDATE;
--   1: t
DELETE /*+ SET_VAR(sql_safe_updates = 1) INDEX(`Events` PRIMARY) */ FROM `app`.`Events`
WHERE (lane = 2 AND id IN (10) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000010,', message_id)) AND claim_token = ?;
--   1: t
INSERT INTO `app`.`Events_held` (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds)
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, coalesce(CASE WHEN year(t.created_at) > 0 AND month(t.created_at) > 0 AND dayofmonth(t.created_at) BETWEEN 1 AND dayofmonth(last_day(t.created_at)) THEN t.created_at END, utc_timestamp(6)), CASE WHEN year(t.expires_at) > 0 AND month(t.expires_at) > 0 AND dayofmonth(t.expires_at) BETWEEN 1 AND dayofmonth(last_day(t.expires_at)) THEN t.expires_at END, t.sinks, 1, 0, utc_timestamp(6) + INTERVAL 1000000 MICROSECOND, ?, t.attempt_log, ?, 0
FROM `app`.`Events` AS t FORCE INDEX (PRIMARY)
WHERE (t.lane = 2 AND t.id IN (11) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000011,', t.message_id)) AND t.claim_token = ? FOR UPDATE OF t;
--   1: refused
--   2: retry
--   3: t
DELETE /*+ SET_VAR(sql_safe_updates = 1) INDEX(`Events` PRIMARY) */ FROM `app`.`Events`
WHERE (lane = 2 AND id IN (11) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000011,', message_id)) AND claim_token = ?;
--   1: t

-- settle by rows: a dead letter
SELECT 'fenced', coalesce(sum(NOT (t.claim_token <=> ?)), 0), 0 FROM `app`.`Events` AS t FORCE INDEX (PRIMARY)
WHERE (t.lane = 2 AND t.id IN (10,11) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000010,0197a3b4-0000-7abc-8def-000000000011,', t.message_id)) FOR UPDATE;
--   1: t
INSERT INTO `app`.`Events` (message_id, topic, message_key, payload, payload_text, headers, priority, expires_at, sinks)
SELECT ?, ?, t.message_key, t.payload, t.payload_text, ?, t.priority, CASE WHEN t.expires_at > utc_timestamp(6) THEN t.expires_at END, ?
FROM `app`.`Events` AS t FORCE INDEX (PRIMARY)
WHERE (t.lane = 2 AND t.id IN (11) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000011,', t.message_id)) AND t.claim_token = ?
ORDER BY t.id FOR UPDATE OF t;
--   1: 0197a3b4-0000-7abc-8def-000000000020
--   2: dead
--   3: {"rowrelay-dead-letter-sink":"a"}
--   4: c
--   5: t
DELETE /*+ SET_VAR(sql_safe_updates = 1) INDEX(`Events` PRIMARY) */ FROM `app`.`Events`
WHERE (lane = 2 AND id IN (10) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000010,', message_id)) AND claim_token = ?;
--   1: t
INSERT INTO `app`.`Events_held` (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds)
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, coalesce(CASE WHEN year(t.created_at) > 0 AND month(t.created_at) > 0 AND dayofmonth(t.created_at) BETWEEN 1 AND dayofmonth(last_day(t.created_at)) THEN t.created_at END, utc_timestamp(6)), CASE WHEN year(t.expires_at) > 0 AND month(t.expires_at) > 0 AND dayofmonth(t.expires_at) BETWEEN 1 AND dayofmonth(last_day(t.expires_at)) THEN t.expires_at END, t.sinks, 1, 0, CASE WHEN year(t.available_at) > 0 AND month(t.available_at) > 0 AND dayofmonth(t.available_at) BETWEEN 1 AND dayofmonth(last_day(t.available_at)) THEN t.available_at END, ?, t.attempt_log, ?, 0
FROM `app`.`Events` AS t FORCE INDEX (PRIMARY)
WHERE (t.lane = 2 AND t.id IN (11) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000011,', t.message_id)) AND t.claim_token = ? FOR UPDATE OF t;
--   1: refused
--   2: error
--   3: t
DELETE /*+ SET_VAR(sql_safe_updates = 1) INDEX(`Events` PRIMARY) */ FROM `app`.`Events`
WHERE (lane = 2 AND id IN (11) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000011,', message_id)) AND claim_token = ?;
--   1: t

-- purge
SELECT id FROM `app`.`Events_done` FORCE INDEX (done_finished) WHERE finished_at < utc_timestamp(6) + INTERVAL -86400000000 MICROSECOND ORDER BY finished_at LIMIT 100 FOR UPDATE SKIP LOCKED;
DELETE t FROM JSON_TABLE('[[0,1],[0,2]]', '$[*]' COLUMNS (lane smallint PATH '$[0]', id bigint PATH '$[1]')) AS g STRAIGHT_JOIN `app`.`Events_done` AS t FORCE INDEX (PRIMARY) ON t.id = g.id WHERE t.finished_at < utc_timestamp(6) + INTERVAL -86400000000 MICROSECOND;
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
UPDATE `app`.`Events` FORCE INDEX (id) SET claimed_by = ?, claim_token = ?, claimed_until = utc_timestamp(6) + INTERVAL 60000000 MICROSECOND WHERE claimed_until IS NULL AND id IN (1,2);
--   1: r
--   2: t

-- claim the highest priorities of some topics
SELECT t.id, t.lane, t.message_id, t.topic, coalesce(t.message_key, ''), t.sinks, CASE WHEN coalesce(LENGTH(t.payload), LENGTH(t.payload_text), 0) > 209715 THEN NULL ELSE coalesce(t.payload, CAST(t.payload_text AS BINARY)) END, coalesce(t.headers, ''), CAST(t.available_at AS CHAR), CAST(t.expires_at AS CHAR), t.priority, t.attempts, t.crashes, CAST(t.created_at AS CHAR), (t.payload IS NOT NULL OR t.payload_text IS NOT NULL) + 2 * coalesce(t.available_at > utc_timestamp(6), 0) + CASE WHEN coalesce(LENGTH(t.payload), LENGTH(t.payload_text), 0) > 209715 THEN 65536 * coalesce(LENGTH(t.payload), LENGTH(t.payload_text), 0) ELSE 0 END
FROM `app`.`Events` AS t FORCE INDEX (claim_priority) WHERE (SELECT value FROM `app`.`Events_settings` WHERE name = 'claim' LOCK IN SHARE MODE) = 'rows' AND t.claimed_until IS NULL AND CAST(t.topic AS BINARY) IN (?,?) AND CAST(t.topic AS BINARY) NOT IN (?)
ORDER BY t.urgency, t.id LIMIT 10 FOR UPDATE SKIP LOCKED;
--   1: a
--   2: b
--   3: c

-- has free rows
SELECT id FROM `app`.`Events` FORCE INDEX (claim_id) WHERE claimed_until IS NULL ORDER BY id LIMIT 1;

-- has ended claims
SELECT id FROM (SELECT id FROM `app`.`Events` FORCE INDEX (claim_id) WHERE claimed_until < utc_timestamp(6) ORDER BY claimed_until LIMIT 1) AS c
UNION ALL SELECT id FROM (SELECT id FROM `app`.`Events_held` FORCE INDEX (held_due) WHERE due_at <= utc_timestamp(6) ORDER BY due_at, id LIMIT 1) AS h;

-- extend
SELECT id FROM `app`.`Events` FORCE INDEX (id) WHERE (SELECT value FROM `app`.`Events_settings` WHERE name = 'claim' LOCK IN SHARE MODE) = 'rows' AND id IN (1,2) AND claim_token = ? FOR UPDATE SKIP LOCKED;
--   1: t
UPDATE `app`.`Events` FORCE INDEX (id) SET claimed_until = utc_timestamp(6) + INTERVAL 60000000 MICROSECOND WHERE id IN (1,2);
SELECT id FROM `app`.`Events` FORCE INDEX (id) WHERE (SELECT value FROM `app`.`Events_settings` WHERE name = 'claim' LOCK IN SHARE MODE) = 'rows' AND id IN (1,2) AND claim_token = ?;
--   1: t

-- reclaim
SELECT id FROM `app`.`Events` FORCE INDEX (claim_id) WHERE (SELECT value FROM `app`.`Events_settings` WHERE name = 'claim' LOCK IN SHARE MODE) = 'rows' AND claimed_until < utc_timestamp(6) ORDER BY claimed_until LIMIT 10 FOR UPDATE SKIP LOCKED;
UPDATE `app`.`Events` FORCE INDEX (id) SET claimed_by = NULL, claim_token = NULL, claimed_until = NULL, crashes = least(crashes, 2000000000) + 1 WHERE id IN (1,2) AND claimed_until < utc_timestamp(6);
SELECT t.id * 64 + t.lane FROM `app`.`Events_held` AS t FORCE INDEX (held_due)
WHERE (SELECT value FROM `app`.`Events_settings` WHERE name = 'claim' LOCK IN SHARE MODE) = 'rows' AND t.due_at <= utc_timestamp(6) AND (SELECT COUNT(*) FROM `app`.`Events_held` o WHERE o.lane = t.lane AND o.id = t.id AND (o.message_id, o.sinks) < (t.message_id, t.sinks) AND o.due_at <= utc_timestamp(6)) = 0 AND (SELECT COUNT(*) FROM `app`.`Events` h WHERE h.lane = t.lane AND h.id = t.id) = 0
ORDER BY t.due_at, t.id LIMIT 10 FOR UPDATE OF t SKIP LOCKED;
INSERT INTO `app`.`Events` (id, message_id, topic, message_key, payload, payload_text, headers, priority, attempts, crashes, available_at, expires_at, created_at, last_error, attempt_log, sinks)
SELECT t.id, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.attempts, t.crashes, CASE WHEN year(t.available_at) > 0 AND month(t.available_at) > 0 AND dayofmonth(t.available_at) BETWEEN 1 AND dayofmonth(last_day(t.available_at)) THEN t.available_at END, CASE WHEN year(t.expires_at) > 0 AND month(t.expires_at) > 0 AND dayofmonth(t.expires_at) BETWEEN 1 AND dayofmonth(last_day(t.expires_at)) THEN t.expires_at END, coalesce(CASE WHEN year(t.created_at) > 0 AND month(t.created_at) > 0 AND dayofmonth(t.created_at) BETWEEN 1 AND dayofmonth(last_day(t.created_at)) THEN t.created_at END, utc_timestamp(6)), t.last_error, t.attempt_log, t.sinks FROM `app`.`Events_held` AS t FORCE INDEX (PRIMARY) WHERE ((t.lane = 1 AND t.id IN (1))
    OR (t.lane = 2 AND t.id IN (2))) AND (SELECT value FROM `app`.`Events_settings` WHERE name = 'claim' LOCK IN SHARE MODE) = 'rows' AND t.due_at <= utc_timestamp(6) AND (SELECT COUNT(*) FROM `app`.`Events_held` o WHERE o.lane = t.lane AND o.id = t.id AND (o.message_id, o.sinks) < (t.message_id, t.sinks) AND o.due_at <= utc_timestamp(6)) = 0 FOR UPDATE OF t;
DELETE t FROM JSON_TABLE('[[1,1],[2,2]]', '$[*]' COLUMNS (lane smallint PATH '$[0]', id bigint PATH '$[1]')) AS g STRAIGHT_JOIN `app`.`Events_held` AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id
STRAIGHT_JOIN `app`.`Events` AS h FORCE INDEX (PRIMARY) ON h.lane = t.lane AND h.id = t.id AND h.message_id = t.message_id AND h.sinks = t.sinks;

-- list
(SELECT t.id, t.lane, t.message_id, t.topic, coalesce(t.message_key, ''), t.sinks, coalesce(t.payload, CAST(t.payload_text AS BINARY)), coalesce(t.headers, ''), CAST(t.available_at AS CHAR), CAST(t.expires_at AS CHAR), t.priority, t.attempts, t.crashes, CAST(t.created_at AS CHAR),
    (t.payload IS NOT NULL OR t.payload_text IS NOT NULL) + 2 * coalesce(t.available_at > utc_timestamp(6), 0), CASE WHEN t.claimed_until > utc_timestamp(6) THEN 'claimed' WHEN t.available_at > utc_timestamp(6) THEN 'scheduled' ELSE 'pending' END AS state, coalesce(t.last_error, ''), '' AS receipt, coalesce(t.claimed_by, '') AS claimed_by, NULL AS finished_at
FROM `app`.`Events` AS t FORCE INDEX (id) WHERE TRUE AND t.id > 0
ORDER BY t.id LIMIT 10)
UNION ALL (SELECT t.id, t.lane, t.message_id, t.topic, coalesce(t.message_key, ''), t.sinks, coalesce(t.payload, CAST(t.payload_text AS BINARY)), coalesce(t.headers, ''), CAST(t.available_at AS CHAR), CAST(t.expires_at AS CHAR), t.priority, t.attempts, t.crashes, CAST(t.created_at AS CHAR),
    (t.payload IS NOT NULL OR t.payload_text IS NOT NULL) + 2 * coalesce(t.available_at > utc_timestamp(6), 0) + 4 * (t.state = 'retry') + 16 * t.holds, CASE WHEN t.state = 'scheduled' AND t.due_at <= utc_timestamp(6) THEN 'pending' ELSE CAST(t.state AS CHAR) END AS state, coalesce(t.last_error, ''), '' AS receipt, '' AS claimed_by, NULL AS finished_at
FROM `app`.`Events_held` AS t FORCE INDEX (held_id) WHERE t.state = 'scheduled' AND t.id > 0
ORDER BY t.id LIMIT 10)
UNION ALL (SELECT t.id, t.lane, t.message_id, t.topic, coalesce(t.message_key, ''), t.sinks, coalesce(t.payload, CAST(t.payload_text AS BINARY)), coalesce(t.headers, ''), CAST(t.available_at AS CHAR), CAST(t.expires_at AS CHAR), t.priority, t.attempts, t.crashes, CAST(t.created_at AS CHAR),
    (t.payload IS NOT NULL OR t.payload_text IS NOT NULL) + 2 * coalesce(t.available_at > utc_timestamp(6), 0) + 4 * (t.state = 'retry') + 16 * t.holds, CASE WHEN t.state = 'scheduled' AND t.due_at <= utc_timestamp(6) THEN 'pending' ELSE CAST(t.state AS CHAR) END AS state, coalesce(t.last_error, ''), '' AS receipt, '' AS claimed_by, NULL AS finished_at
FROM `app`.`Events_held` AS t FORCE INDEX (held_id) WHERE t.state = 'retry' AND t.id > 0
ORDER BY t.id LIMIT 10)
UNION ALL (SELECT t.id, t.lane, t.message_id, t.topic, coalesce(t.message_key, ''), t.sinks, coalesce(t.payload, CAST(t.payload_text AS BINARY)), coalesce(t.headers, ''), CAST(t.available_at AS CHAR), CAST(t.expires_at AS CHAR), t.priority, t.attempts, t.crashes, CAST(t.created_at AS CHAR),
    (t.payload IS NOT NULL OR t.payload_text IS NOT NULL) + 2 * coalesce(t.available_at > utc_timestamp(6), 0) + 4 * (t.state = 'retry') + 16 * t.holds, CASE WHEN t.state = 'scheduled' AND t.due_at <= utc_timestamp(6) THEN 'pending' ELSE CAST(t.state AS CHAR) END AS state, coalesce(t.last_error, ''), '' AS receipt, '' AS claimed_by, NULL AS finished_at
FROM `app`.`Events_held` AS t FORCE INDEX (held_id) WHERE t.state = 'error' AND t.id > 0
ORDER BY t.id LIMIT 10)
UNION ALL (SELECT t.id, t.lane, t.message_id, t.topic, coalesce(t.message_key, ''), t.sinks, coalesce(t.payload, CAST(t.payload_text AS BINARY)), coalesce(t.headers, ''), CAST(t.available_at AS CHAR), CAST(t.expires_at AS CHAR), t.priority, t.attempts, t.crashes, CAST(t.created_at AS CHAR),
    (t.payload IS NOT NULL OR t.payload_text IS NOT NULL) + 2 * coalesce(t.available_at > utc_timestamp(6), 0), 'done' AS state, coalesce(t.last_error, ''), coalesce(t.receipt, '') AS receipt, '' AS claimed_by, CAST(t.finished_at AS CHAR) AS finished_at
FROM `app`.`Events_done` AS t FORCE INDEX (PRIMARY) WHERE TRUE AND t.id > 0
ORDER BY t.id LIMIT 10)
ORDER BY id LIMIT 10;

-- list by filter
(SELECT t.id, t.lane, t.message_id, t.topic, coalesce(t.message_key, ''), t.sinks, coalesce(t.payload, CAST(t.payload_text AS BINARY)), coalesce(t.headers, ''), CAST(t.available_at AS CHAR), CAST(t.expires_at AS CHAR), t.priority, t.attempts, t.crashes, CAST(t.created_at AS CHAR),
    (t.payload IS NOT NULL OR t.payload_text IS NOT NULL) + 2 * coalesce(t.available_at > utc_timestamp(6), 0) + 4 * (t.state = 'retry') + 16 * t.holds, CASE WHEN t.state = 'scheduled' AND t.due_at <= utc_timestamp(6) THEN 'pending' ELSE CAST(t.state AS CHAR) END AS state, coalesce(t.last_error, ''), '' AS receipt, '' AS claimed_by, NULL AS finished_at
FROM `app`.`Events_held` AS t FORCE INDEX (held_id) WHERE t.state = 'error' AND t.id > 3 AND (t.id IN (1) OR t.message_id IN (?)) AND CAST(t.topic AS BINARY) = ? AND CAST(t.message_key AS BINARY) = ? AND locate(CAST(? AS BINARY), CAST(concat(',', t.sinks, ',') AS BINARY)) > 0 AND t.created_at >= ? AND locate(CAST(? AS BINARY), CAST(t.last_error AS BINARY)) > 0 AND CASE WHEN t.state = 'scheduled' AND t.due_at <= utc_timestamp(6) THEN 'pending' ELSE CAST(t.state AS CHAR) END = CONVERT(? USING utf8mb4) COLLATE utf8mb4_bin
ORDER BY t.id LIMIT 10)
ORDER BY id LIMIT 10;
--   1: 0197a3b4-0000-7abc-8def-0123456789ab
--   2: t
--   3: k
--   4: ,s,
--   5: 2026-01-31 00:00:00.000000
--   6: refused
--   7: error

-- list by filter, with a limit of rows to examine
SELECT t.id FROM `app`.`Events` AS t FORCE INDEX (id) WHERE TRUE AND t.id > 3 ORDER BY t.id LIMIT 1 OFFSET 20000;
SELECT t.id FROM `app`.`Events_held` AS t FORCE INDEX (held_id) WHERE t.state = 'scheduled' AND t.id > 3 ORDER BY t.id LIMIT 1 OFFSET 20000;
SELECT t.id FROM `app`.`Events_held` AS t FORCE INDEX (held_id) WHERE t.state = 'retry' AND t.id > 3 ORDER BY t.id LIMIT 1 OFFSET 20000;
SELECT t.id FROM `app`.`Events_held` AS t FORCE INDEX (held_id) WHERE t.state = 'error' AND t.id > 3 ORDER BY t.id LIMIT 1 OFFSET 20000;
SELECT t.id FROM `app`.`Events_done` AS t FORCE INDEX (PRIMARY) WHERE TRUE AND t.id > 3 ORDER BY t.id LIMIT 1 OFFSET 20000;
(SELECT t.id, t.lane, t.message_id, t.topic, coalesce(t.message_key, ''), t.sinks, NULL, coalesce(t.headers, ''), CAST(t.available_at AS CHAR), CAST(t.expires_at AS CHAR), t.priority, t.attempts, t.crashes, CAST(t.created_at AS CHAR),
    (t.payload IS NOT NULL OR t.payload_text IS NOT NULL) + 2 * coalesce(t.available_at > utc_timestamp(6), 0), CASE WHEN t.claimed_until > utc_timestamp(6) THEN 'claimed' WHEN t.available_at > utc_timestamp(6) THEN 'scheduled' ELSE 'pending' END AS state, coalesce(t.last_error, ''), '' AS receipt, coalesce(t.claimed_by, '') AS claimed_by, NULL AS finished_at
FROM `app`.`Events` AS t FORCE INDEX (id) WHERE TRUE AND t.id > 3 AND CAST(t.topic AS BINARY) = ? AND t.id <= 2
ORDER BY t.id LIMIT 10)
UNION ALL (SELECT t.id, t.lane, t.message_id, t.topic, coalesce(t.message_key, ''), t.sinks, NULL, coalesce(t.headers, ''), CAST(t.available_at AS CHAR), CAST(t.expires_at AS CHAR), t.priority, t.attempts, t.crashes, CAST(t.created_at AS CHAR),
    (t.payload IS NOT NULL OR t.payload_text IS NOT NULL) + 2 * coalesce(t.available_at > utc_timestamp(6), 0) + 4 * (t.state = 'retry') + 16 * t.holds, CASE WHEN t.state = 'scheduled' AND t.due_at <= utc_timestamp(6) THEN 'pending' ELSE CAST(t.state AS CHAR) END AS state, coalesce(t.last_error, ''), '' AS receipt, '' AS claimed_by, NULL AS finished_at
FROM `app`.`Events_held` AS t FORCE INDEX (held_id) WHERE t.state = 'scheduled' AND t.id > 3 AND CAST(t.topic AS BINARY) = ? AND t.id <= 2
ORDER BY t.id LIMIT 10)
UNION ALL (SELECT t.id, t.lane, t.message_id, t.topic, coalesce(t.message_key, ''), t.sinks, NULL, coalesce(t.headers, ''), CAST(t.available_at AS CHAR), CAST(t.expires_at AS CHAR), t.priority, t.attempts, t.crashes, CAST(t.created_at AS CHAR),
    (t.payload IS NOT NULL OR t.payload_text IS NOT NULL) + 2 * coalesce(t.available_at > utc_timestamp(6), 0) + 4 * (t.state = 'retry') + 16 * t.holds, CASE WHEN t.state = 'scheduled' AND t.due_at <= utc_timestamp(6) THEN 'pending' ELSE CAST(t.state AS CHAR) END AS state, coalesce(t.last_error, ''), '' AS receipt, '' AS claimed_by, NULL AS finished_at
FROM `app`.`Events_held` AS t FORCE INDEX (held_id) WHERE t.state = 'retry' AND t.id > 3 AND CAST(t.topic AS BINARY) = ? AND t.id <= 2
ORDER BY t.id LIMIT 10)
UNION ALL (SELECT t.id, t.lane, t.message_id, t.topic, coalesce(t.message_key, ''), t.sinks, NULL, coalesce(t.headers, ''), CAST(t.available_at AS CHAR), CAST(t.expires_at AS CHAR), t.priority, t.attempts, t.crashes, CAST(t.created_at AS CHAR),
    (t.payload IS NOT NULL OR t.payload_text IS NOT NULL) + 2 * coalesce(t.available_at > utc_timestamp(6), 0) + 4 * (t.state = 'retry') + 16 * t.holds, CASE WHEN t.state = 'scheduled' AND t.due_at <= utc_timestamp(6) THEN 'pending' ELSE CAST(t.state AS CHAR) END AS state, coalesce(t.last_error, ''), '' AS receipt, '' AS claimed_by, NULL AS finished_at
FROM `app`.`Events_held` AS t FORCE INDEX (held_id) WHERE t.state = 'error' AND t.id > 3 AND CAST(t.topic AS BINARY) = ? AND t.id <= 2
ORDER BY t.id LIMIT 10)
UNION ALL (SELECT t.id, t.lane, t.message_id, t.topic, coalesce(t.message_key, ''), t.sinks, NULL, coalesce(t.headers, ''), CAST(t.available_at AS CHAR), CAST(t.expires_at AS CHAR), t.priority, t.attempts, t.crashes, CAST(t.created_at AS CHAR),
    (t.payload IS NOT NULL OR t.payload_text IS NOT NULL) + 2 * coalesce(t.available_at > utc_timestamp(6), 0), 'done' AS state, coalesce(t.last_error, ''), coalesce(t.receipt, '') AS receipt, '' AS claimed_by, CAST(t.finished_at AS CHAR) AS finished_at
FROM `app`.`Events_done` AS t FORCE INDEX (PRIMARY) WHERE TRUE AND t.id > 3 AND CAST(t.topic AS BINARY) = ? AND t.id <= 2
ORDER BY t.id LIMIT 10)
ORDER BY id LIMIT 10;
--   1: t
--   2: t
--   3: t
--   4: t
--   5: t

-- list by a message's id, among few rows
(SELECT t.id, t.lane, t.message_id, t.topic, coalesce(t.message_key, ''), t.sinks, coalesce(t.payload, CAST(t.payload_text AS BINARY)), coalesce(t.headers, ''), CAST(t.available_at AS CHAR), CAST(t.expires_at AS CHAR), t.priority, t.attempts, t.crashes, CAST(t.created_at AS CHAR),
    (t.payload IS NOT NULL OR t.payload_text IS NOT NULL) + 2 * coalesce(t.available_at > utc_timestamp(6), 0), CASE WHEN t.claimed_until > utc_timestamp(6) THEN 'claimed' WHEN t.available_at > utc_timestamp(6) THEN 'scheduled' ELSE 'pending' END AS state, coalesce(t.last_error, ''), '' AS receipt, coalesce(t.claimed_by, '') AS claimed_by, NULL AS finished_at
FROM `app`.`Events` AS t FORCE INDEX (id) WHERE TRUE AND t.id > 0 AND t.id <= 9 AND (t.id IN (NULL) OR t.message_id IN (?))
ORDER BY t.id LIMIT 10)
UNION ALL (SELECT t.id, t.lane, t.message_id, t.topic, coalesce(t.message_key, ''), t.sinks, coalesce(t.payload, CAST(t.payload_text AS BINARY)), coalesce(t.headers, ''), CAST(t.available_at AS CHAR), CAST(t.expires_at AS CHAR), t.priority, t.attempts, t.crashes, CAST(t.created_at AS CHAR),
    (t.payload IS NOT NULL OR t.payload_text IS NOT NULL) + 2 * coalesce(t.available_at > utc_timestamp(6), 0) + 4 * (t.state = 'retry') + 16 * t.holds, CASE WHEN t.state = 'scheduled' AND t.due_at <= utc_timestamp(6) THEN 'pending' ELSE CAST(t.state AS CHAR) END AS state, coalesce(t.last_error, ''), '' AS receipt, '' AS claimed_by, NULL AS finished_at
FROM `app`.`Events_held` AS t FORCE INDEX (held_id) WHERE t.state = 'scheduled' AND t.id > 0 AND t.id <= 9 AND (t.id IN (NULL) OR t.message_id IN (?))
ORDER BY t.id LIMIT 10)
UNION ALL (SELECT t.id, t.lane, t.message_id, t.topic, coalesce(t.message_key, ''), t.sinks, coalesce(t.payload, CAST(t.payload_text AS BINARY)), coalesce(t.headers, ''), CAST(t.available_at AS CHAR), CAST(t.expires_at AS CHAR), t.priority, t.attempts, t.crashes, CAST(t.created_at AS CHAR),
    (t.payload IS NOT NULL OR t.payload_text IS NOT NULL) + 2 * coalesce(t.available_at > utc_timestamp(6), 0) + 4 * (t.state = 'retry') + 16 * t.holds, CASE WHEN t.state = 'scheduled' AND t.due_at <= utc_timestamp(6) THEN 'pending' ELSE CAST(t.state AS CHAR) END AS state, coalesce(t.last_error, ''), '' AS receipt, '' AS claimed_by, NULL AS finished_at
FROM `app`.`Events_held` AS t FORCE INDEX (held_id) WHERE t.state = 'retry' AND t.id > 0 AND t.id <= 9 AND (t.id IN (NULL) OR t.message_id IN (?))
ORDER BY t.id LIMIT 10)
UNION ALL (SELECT t.id, t.lane, t.message_id, t.topic, coalesce(t.message_key, ''), t.sinks, coalesce(t.payload, CAST(t.payload_text AS BINARY)), coalesce(t.headers, ''), CAST(t.available_at AS CHAR), CAST(t.expires_at AS CHAR), t.priority, t.attempts, t.crashes, CAST(t.created_at AS CHAR),
    (t.payload IS NOT NULL OR t.payload_text IS NOT NULL) + 2 * coalesce(t.available_at > utc_timestamp(6), 0) + 4 * (t.state = 'retry') + 16 * t.holds, CASE WHEN t.state = 'scheduled' AND t.due_at <= utc_timestamp(6) THEN 'pending' ELSE CAST(t.state AS CHAR) END AS state, coalesce(t.last_error, ''), '' AS receipt, '' AS claimed_by, NULL AS finished_at
FROM `app`.`Events_held` AS t FORCE INDEX (held_id) WHERE t.state = 'error' AND t.id > 0 AND t.id <= 9 AND (t.id IN (NULL) OR t.message_id IN (?))
ORDER BY t.id LIMIT 10)
UNION ALL (SELECT t.id, t.lane, t.message_id, t.topic, coalesce(t.message_key, ''), t.sinks, coalesce(t.payload, CAST(t.payload_text AS BINARY)), coalesce(t.headers, ''), CAST(t.available_at AS CHAR), CAST(t.expires_at AS CHAR), t.priority, t.attempts, t.crashes, CAST(t.created_at AS CHAR),
    (t.payload IS NOT NULL OR t.payload_text IS NOT NULL) + 2 * coalesce(t.available_at > utc_timestamp(6), 0), 'done' AS state, coalesce(t.last_error, ''), coalesce(t.receipt, '') AS receipt, '' AS claimed_by, CAST(t.finished_at AS CHAR) AS finished_at
FROM `app`.`Events_done` AS t FORCE INDEX (PRIMARY) WHERE TRUE AND t.id > 0 AND t.id <= 9 AND (t.id IN (NULL) OR t.message_id IN (?))
ORDER BY t.id LIMIT 10)
ORDER BY id LIMIT 10;
--   1: 0197a3b4-0000-7abc-8def-0123456789ab
--   2: 0197a3b4-0000-7abc-8def-0123456789ab
--   3: 0197a3b4-0000-7abc-8def-0123456789ab
--   4: 0197a3b4-0000-7abc-8def-0123456789ab
--   5: 0197a3b4-0000-7abc-8def-0123456789ab

-- requeue
SELECT t.lane, t.id, t.message_id, t.sinks FROM `app`.`Events_held` AS t FORCE INDEX (held_id) WHERE t.state = 'error' AND t.id > 3 AND (t.id IN (1) OR t.message_id IN (?)) AND CAST(t.topic AS BINARY) = ? AND CAST(t.message_key AS BINARY) = ? AND locate(CAST(? AS BINARY), CAST(concat(',', t.sinks, ',') AS BINARY)) > 0 AND t.created_at >= ? AND locate(CAST(? AS BINARY), CAST(t.last_error AS BINARY)) > 0 ORDER BY t.id LIMIT 10 FOR UPDATE;
--   1: 0197a3b4-0000-7abc-8def-0123456789ab
--   2: t
--   3: k
--   4: ,s,
--   5: 2026-01-31 00:00:00.000000
--   6: refused
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (lane smallint PATH '$[0]', id bigint PATH '$[1]', n FOR ORDINALITY, sinks varchar(400) PATH '$[2]')) AS g STRAIGHT_JOIN `app`.`Events_held` AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id AND t.message_id = substr(_ascii'0197a3b4-0000-7abc-8def-0000000000010197a3b4-0000-7abc-8def-000000000002', 36 * g.n - 35, 36) AND t.sinks = CONVERT(g.sinks USING utf8mb4) COLLATE utf8mb4_bin SET state = CASE WHEN holds > 0 THEN 'retry' ELSE 'scheduled' END, holds = 0, attempts = 0, crashes = 0, available_at = utc_timestamp(6),
    expires_at = CASE WHEN last_error LIKE 'expired: %' THEN TIMESTAMP'9999-01-01 00:00:00' ELSE expires_at END;
--   1: [[1,1,"a"],[2,2,""]]

-- list by a topic's prefix
(SELECT t.id, t.lane, t.message_id, t.topic, coalesce(t.message_key, ''), t.sinks, coalesce(t.payload, CAST(t.payload_text AS BINARY)), coalesce(t.headers, ''), CAST(t.available_at AS CHAR), CAST(t.expires_at AS CHAR), t.priority, t.attempts, t.crashes, CAST(t.created_at AS CHAR),
    (t.payload IS NOT NULL OR t.payload_text IS NOT NULL) + 2 * coalesce(t.available_at > utc_timestamp(6), 0), CASE WHEN t.claimed_until > utc_timestamp(6) THEN 'claimed' WHEN t.available_at > utc_timestamp(6) THEN 'scheduled' ELSE 'pending' END AS state, coalesce(t.last_error, ''), '' AS receipt, coalesce(t.claimed_by, '') AS claimed_by, NULL AS finished_at
FROM `app`.`Events` AS t FORCE INDEX (id) WHERE TRUE AND t.id > 0 AND locate(CAST(? AS BINARY), CAST(t.topic AS BINARY)) = 1
ORDER BY t.id LIMIT 10)
UNION ALL (SELECT t.id, t.lane, t.message_id, t.topic, coalesce(t.message_key, ''), t.sinks, coalesce(t.payload, CAST(t.payload_text AS BINARY)), coalesce(t.headers, ''), CAST(t.available_at AS CHAR), CAST(t.expires_at AS CHAR), t.priority, t.attempts, t.crashes, CAST(t.created_at AS CHAR),
    (t.payload IS NOT NULL OR t.payload_text IS NOT NULL) + 2 * coalesce(t.available_at > utc_timestamp(6), 0) + 4 * (t.state = 'retry') + 16 * t.holds, CASE WHEN t.state = 'scheduled' AND t.due_at <= utc_timestamp(6) THEN 'pending' ELSE CAST(t.state AS CHAR) END AS state, coalesce(t.last_error, ''), '' AS receipt, '' AS claimed_by, NULL AS finished_at
FROM `app`.`Events_held` AS t FORCE INDEX (held_id) WHERE t.state = 'scheduled' AND t.id > 0 AND locate(CAST(? AS BINARY), CAST(t.topic AS BINARY)) = 1
ORDER BY t.id LIMIT 10)
UNION ALL (SELECT t.id, t.lane, t.message_id, t.topic, coalesce(t.message_key, ''), t.sinks, coalesce(t.payload, CAST(t.payload_text AS BINARY)), coalesce(t.headers, ''), CAST(t.available_at AS CHAR), CAST(t.expires_at AS CHAR), t.priority, t.attempts, t.crashes, CAST(t.created_at AS CHAR),
    (t.payload IS NOT NULL OR t.payload_text IS NOT NULL) + 2 * coalesce(t.available_at > utc_timestamp(6), 0) + 4 * (t.state = 'retry') + 16 * t.holds, CASE WHEN t.state = 'scheduled' AND t.due_at <= utc_timestamp(6) THEN 'pending' ELSE CAST(t.state AS CHAR) END AS state, coalesce(t.last_error, ''), '' AS receipt, '' AS claimed_by, NULL AS finished_at
FROM `app`.`Events_held` AS t FORCE INDEX (held_id) WHERE t.state = 'retry' AND t.id > 0 AND locate(CAST(? AS BINARY), CAST(t.topic AS BINARY)) = 1
ORDER BY t.id LIMIT 10)
UNION ALL (SELECT t.id, t.lane, t.message_id, t.topic, coalesce(t.message_key, ''), t.sinks, coalesce(t.payload, CAST(t.payload_text AS BINARY)), coalesce(t.headers, ''), CAST(t.available_at AS CHAR), CAST(t.expires_at AS CHAR), t.priority, t.attempts, t.crashes, CAST(t.created_at AS CHAR),
    (t.payload IS NOT NULL OR t.payload_text IS NOT NULL) + 2 * coalesce(t.available_at > utc_timestamp(6), 0) + 4 * (t.state = 'retry') + 16 * t.holds, CASE WHEN t.state = 'scheduled' AND t.due_at <= utc_timestamp(6) THEN 'pending' ELSE CAST(t.state AS CHAR) END AS state, coalesce(t.last_error, ''), '' AS receipt, '' AS claimed_by, NULL AS finished_at
FROM `app`.`Events_held` AS t FORCE INDEX (held_id) WHERE t.state = 'error' AND t.id > 0 AND locate(CAST(? AS BINARY), CAST(t.topic AS BINARY)) = 1
ORDER BY t.id LIMIT 10)
UNION ALL (SELECT t.id, t.lane, t.message_id, t.topic, coalesce(t.message_key, ''), t.sinks, coalesce(t.payload, CAST(t.payload_text AS BINARY)), coalesce(t.headers, ''), CAST(t.available_at AS CHAR), CAST(t.expires_at AS CHAR), t.priority, t.attempts, t.crashes, CAST(t.created_at AS CHAR),
    (t.payload IS NOT NULL OR t.payload_text IS NOT NULL) + 2 * coalesce(t.available_at > utc_timestamp(6), 0), 'done' AS state, coalesce(t.last_error, ''), coalesce(t.receipt, '') AS receipt, '' AS claimed_by, CAST(t.finished_at AS CHAR) AS finished_at
FROM `app`.`Events_done` AS t FORCE INDEX (PRIMARY) WHERE TRUE AND t.id > 0 AND locate(CAST(? AS BINARY), CAST(t.topic AS BINARY)) = 1
ORDER BY t.id LIMIT 10)
ORDER BY id LIMIT 10;
--   1: orders.
--   2: orders.
--   3: orders.
--   4: orders.
--   5: orders.

-- redirect
SELECT t.lane, t.id, t.message_id, t.sinks FROM `app`.`Events_held` AS t FORCE INDEX (held_id) WHERE t.state = 'error' AND t.holds = 0 AND NOT EXISTS (SELECT 1 FROM `app`.`Events_held` o WHERE o.lane = t.lane AND o.id = t.id AND o.message_id = t.message_id AND o.sinks <> t.sinks) AND NOT EXISTS (SELECT 1 FROM `app`.`Events` o WHERE o.lane = t.lane AND o.id = t.id AND o.message_id = t.message_id) AND t.id > 0 AND CAST(t.topic AS BINARY) = ? ORDER BY t.id LIMIT 10 FOR UPDATE;
--   1: t
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (lane smallint PATH '$[0]', id bigint PATH '$[1]', n FOR ORDINALITY, sinks varchar(400) PATH '$[2]')) AS g STRAIGHT_JOIN `app`.`Events_held` AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id AND t.message_id = substr(_ascii'0197a3b4-0000-7abc-8def-0000000000010197a3b4-0000-7abc-8def-000000000002', 36 * g.n - 35, 36) AND t.sinks = CONVERT(g.sinks USING utf8mb4) COLLATE utf8mb4_bin SET state = CASE WHEN holds > 0 THEN 'retry' ELSE 'scheduled' END, holds = 0, attempts = 0, crashes = 0, available_at = utc_timestamp(6),
    expires_at = CASE WHEN last_error LIKE 'expired: %' THEN TIMESTAMP'9999-01-01 00:00:00' ELSE expires_at END, t.sinks = ?;
--   1: [[1,1,"a"],[2,2,""]]
--   2: other

-- redirect rows in the state retry
SELECT t.lane, t.id, t.message_id, t.sinks FROM `app`.`Events_held` AS t FORCE INDEX (held_id) WHERE t.state = 'retry' AND t.holds = 0 AND t.sinks NOT LIKE '%,%' AND NOT EXISTS (SELECT 1 FROM `app`.`Events_held` o WHERE o.lane = t.lane AND o.id = t.id AND o.message_id = t.message_id AND o.sinks <> t.sinks) AND NOT EXISTS (SELECT 1 FROM `app`.`Events` o WHERE o.lane = t.lane AND o.id = t.id AND o.message_id = t.message_id) AND t.id > 0 AND CAST(t.topic AS BINARY) = ? AND locate(CAST(? AS BINARY), CAST(concat(',', t.sinks, ',') AS BINARY)) > 0 ORDER BY t.id LIMIT 10 FOR UPDATE;
--   1: t
--   2: ,s,
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (lane smallint PATH '$[0]', id bigint PATH '$[1]', n FOR ORDINALITY, sinks varchar(400) PATH '$[2]')) AS g STRAIGHT_JOIN `app`.`Events_held` AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id AND t.message_id = substr(_ascii'0197a3b4-0000-7abc-8def-0000000000010197a3b4-0000-7abc-8def-000000000002', 36 * g.n - 35, 36) AND t.sinks = CONVERT(g.sinks USING utf8mb4) COLLATE utf8mb4_bin SET attempts = 0, crashes = 0, available_at = NULL, t.sinks = ?;
--   1: [[1,1,"a"],[2,2,""]]
--   2: other

-- redirect rows in the state scheduled
SELECT t.lane, t.id, t.message_id, t.sinks FROM `app`.`Events_held` AS t FORCE INDEX (held_id) WHERE t.state = 'scheduled' AND t.holds = 0 AND t.sinks NOT LIKE '%,%' AND NOT EXISTS (SELECT 1 FROM `app`.`Events_held` o WHERE o.lane = t.lane AND o.id = t.id AND o.message_id = t.message_id AND o.sinks <> t.sinks) AND NOT EXISTS (SELECT 1 FROM `app`.`Events` o WHERE o.lane = t.lane AND o.id = t.id AND o.message_id = t.message_id) AND t.id > 0 AND CAST(t.topic AS BINARY) = ? AND locate(CAST(? AS BINARY), CAST(concat(',', t.sinks, ',') AS BINARY)) > 0 ORDER BY t.id LIMIT 10 FOR UPDATE;
--   1: t
--   2: ,s,
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (lane smallint PATH '$[0]', id bigint PATH '$[1]', n FOR ORDINALITY, sinks varchar(400) PATH '$[2]')) AS g STRAIGHT_JOIN `app`.`Events_held` AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id AND t.message_id = substr(_ascii'0197a3b4-0000-7abc-8def-0000000000010197a3b4-0000-7abc-8def-000000000002', 36 * g.n - 35, 36) AND t.sinks = CONVERT(g.sinks USING utf8mb4) COLLATE utf8mb4_bin SET attempts = 0, crashes = 0, t.sinks = ?;
--   1: [[1,1,"a"],[2,2,""]]
--   2: other

-- redirect rows in the state pending
SELECT t.lane, t.id, t.message_id, t.sinks FROM `app`.`Events` AS t FORCE INDEX (id) WHERE TRUE AND (t.claimed_until IS NULL OR t.claimed_until < utc_timestamp(6)) AND t.sinks NOT LIKE '%,%' AND NOT EXISTS (SELECT 1 FROM `app`.`Events_held` o WHERE o.lane = t.lane AND o.id = t.id AND o.message_id = t.message_id) AND t.id > 0 AND CAST(t.topic AS BINARY) = ? AND locate(CAST(? AS BINARY), CAST(concat(',', t.sinks, ',') AS BINARY)) > 0 ORDER BY t.id LIMIT 10;
--   1: t
--   2: ,s,
SELECT t.lane, t.id, t.message_id, t.sinks FROM `app`.`Events` AS t FORCE INDEX (PRIMARY)
WHERE (t.lane = 1 AND t.id IN (1) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000001,', t.message_id)
    OR t.lane = 2 AND t.id IN (2) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000002,', t.message_id)) AND (t.claimed_until IS NULL OR t.claimed_until < utc_timestamp(6)) AND t.sinks NOT LIKE '%,%' AND NOT EXISTS (SELECT 1 FROM `app`.`Events_held` o WHERE o.lane = t.lane AND o.id = t.id AND o.message_id = t.message_id) AND t.id > 0 AND CAST(t.topic AS BINARY) = ? AND locate(CAST(? AS BINARY), CAST(concat(',', t.sinks, ',') AS BINARY)) > 0 FOR UPDATE OF t;
--   1: t
--   2: ,s,
INSERT INTO `app`.`Events_held` (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds)
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, coalesce(CASE WHEN year(t.created_at) > 0 AND month(t.created_at) > 0 AND dayofmonth(t.created_at) BETWEEN 1 AND dayofmonth(last_day(t.created_at)) THEN t.created_at END, utc_timestamp(6)), CASE WHEN year(t.expires_at) > 0 AND month(t.expires_at) > 0 AND dayofmonth(t.expires_at) BETWEEN 1 AND dayofmonth(last_day(t.expires_at)) THEN t.expires_at END, ?, 0, 0, CASE WHEN year(t.available_at) > 0 AND month(t.available_at) > 0 AND dayofmonth(t.available_at) BETWEEN 1 AND dayofmonth(last_day(t.available_at)) THEN t.available_at END, t.last_error, t.attempt_log, ?, 0
FROM `app`.`Events` AS t FORCE INDEX (PRIMARY)
WHERE (t.lane = 1 AND t.id IN (1) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000001,', t.message_id)
    OR t.lane = 2 AND t.id IN (2) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000002,', t.message_id)) FOR UPDATE OF t;
--   1: other
--   2: scheduled
DELETE /*+ SET_VAR(sql_safe_updates = 1) INDEX(`Events` PRIMARY) */ FROM `app`.`Events`
WHERE (lane = 1 AND id IN (1) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000001,', message_id)
    OR lane = 2 AND id IN (2) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000002,', message_id));

-- ask for a skip
SELECT t.lane, t.id, t.message_id, t.sinks FROM `app`.`Events_held` AS t FORCE INDEX (held_id) WHERE t.state = 'error' AND t.holds = 1 AND t.id > 3 AND (t.id IN (1) OR t.message_id IN (?)) AND CAST(t.topic AS BINARY) = ? AND CAST(t.message_key AS BINARY) = ? AND locate(CAST(? AS BINARY), CAST(concat(',', t.sinks, ',') AS BINARY)) > 0 AND t.created_at >= ? AND locate(CAST(? AS BINARY), CAST(t.last_error AS BINARY)) > 0 ORDER BY t.id LIMIT 10 FOR UPDATE;
--   1: 0197a3b4-0000-7abc-8def-0123456789ab
--   2: t
--   3: k
--   4: ,s,
--   5: 2026-01-31 00:00:00.000000
--   6: refused
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (lane smallint PATH '$[0]', id bigint PATH '$[1]', n FOR ORDINALITY, sinks varchar(400) PATH '$[2]')) AS g STRAIGHT_JOIN `app`.`Events_held` AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id AND t.message_id = substr(_ascii'0197a3b4-0000-7abc-8def-0000000000010197a3b4-0000-7abc-8def-000000000002', 36 * g.n - 35, 36) AND t.sinks = CONVERT(g.sinks USING utf8mb4) COLLATE utf8mb4_bin SET state = 'retry', holds = 2, available_at = utc_timestamp(6);
--   1: [[1,1,"a"],[2,2,""]]

-- ask for a discard
SELECT t.lane, t.id, t.message_id, t.sinks FROM `app`.`Events_held` AS t FORCE INDEX (held_id) WHERE t.state = 'error' AND t.holds = 1 AND t.id > 3 AND (t.id IN (1) OR t.message_id IN (?)) AND CAST(t.topic AS BINARY) = ? AND CAST(t.message_key AS BINARY) = ? AND locate(CAST(? AS BINARY), CAST(concat(',', t.sinks, ',') AS BINARY)) > 0 AND t.created_at >= ? AND locate(CAST(? AS BINARY), CAST(t.last_error AS BINARY)) > 0 ORDER BY t.id LIMIT 10 FOR UPDATE;
--   1: 0197a3b4-0000-7abc-8def-0123456789ab
--   2: t
--   3: k
--   4: ,s,
--   5: 2026-01-31 00:00:00.000000
--   6: refused
UPDATE JSON_TABLE(?, '$[*]' COLUMNS (lane smallint PATH '$[0]', id bigint PATH '$[1]', n FOR ORDINALITY, sinks varchar(400) PATH '$[2]')) AS g STRAIGHT_JOIN `app`.`Events_held` AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id AND t.message_id = substr(_ascii'0197a3b4-0000-7abc-8def-0000000000010197a3b4-0000-7abc-8def-000000000002', 36 * g.n - 35, 36) AND t.sinks = CONVERT(g.sinks USING utf8mb4) COLLATE utf8mb4_bin SET state = 'retry', holds = 3, available_at = utc_timestamp(6);
--   1: [[1,1,"a"],[2,2,""]]

-- discard
SELECT t.lane, t.id, t.message_id, t.sinks FROM `app`.`Events_held` AS t FORCE INDEX (held_id) WHERE t.state = 'error' AND t.holds = 0 AND t.id > 3 AND (t.id IN (1) OR t.message_id IN (?)) AND CAST(t.topic AS BINARY) = ? AND CAST(t.message_key AS BINARY) = ? AND locate(CAST(? AS BINARY), CAST(concat(',', t.sinks, ',') AS BINARY)) > 0 AND t.created_at >= ? AND locate(CAST(? AS BINARY), CAST(t.last_error AS BINARY)) > 0 ORDER BY t.id LIMIT 10 FOR UPDATE;
--   1: 0197a3b4-0000-7abc-8def-0123456789ab
--   2: t
--   3: k
--   4: ,s,
--   5: 2026-01-31 00:00:00.000000
--   6: refused
DELETE t FROM JSON_TABLE(?, '$[*]' COLUMNS (lane smallint PATH '$[0]', id bigint PATH '$[1]', n FOR ORDINALITY, sinks varchar(400) PATH '$[2]')) AS g STRAIGHT_JOIN `app`.`Events_held` AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id AND t.message_id = substr(_ascii'0197a3b4-0000-7abc-8def-0000000000010197a3b4-0000-7abc-8def-000000000002', 36 * g.n - 35, 36) AND t.sinks = CONVERT(g.sinks USING utf8mb4) COLLATE utf8mb4_bin;
--   1: [[1,1,"a"],[2,2,""]]

-- parked
SELECT t.id, t.lane, t.topic, t.message_key, t.sinks, t.holds, substr(t.last_error, 1, 200)
FROM `app`.`Events_held` t
WHERE t.state = 'error' AND TRUE AND t.id > 3 AND (t.id IN (1) OR t.message_id IN (?)) AND CAST(t.topic AS BINARY) = ? AND CAST(t.message_key AS BINARY) = ? AND locate(CAST(? AS BINARY), CAST(concat(',', t.sinks, ',') AS BINARY)) > 0 AND t.created_at >= ? AND locate(CAST(? AS BINARY), CAST(t.last_error AS BINARY)) > 0
ORDER BY t.id;
--   1: 0197a3b4-0000-7abc-8def-0123456789ab
--   2: t
--   3: k
--   4: ,s,
--   5: 2026-01-31 00:00:00.000000
--   6: refused

-- parked, and overtaken rows
SELECT min(t.id) FROM `app`.`Events_held` t FORCE INDEX (held_id)
WHERE t.state = 'error' AND TRUE AND t.id > 0 AND CAST(t.topic AS BINARY) = ?;
--   1: t
SELECT d.message_key, max(d.id)
FROM `app`.`Events_done` d
WHERE d.id > 15 AND d.id <= 1015
    AND d.message_key IN (SELECT t.message_key FROM `app`.`Events_held` t FORCE INDEX (held_id)
WHERE t.state = 'error' AND TRUE AND t.id > 0 AND CAST(t.topic AS BINARY) = ?)
    AND (d.headers IS NULL OR d.headers NOT LIKE '%"rowrelay-dead-letter-%' AND d.headers NOT LIKE '%"rowrelay-replayed"%')
GROUP BY d.message_key;
--   1: t
SELECT t.id, t.lane, t.topic, t.message_key, t.sinks, t.holds, substr(t.last_error, 1, 200)
FROM `app`.`Events_held` t FORCE INDEX (held_id)
WHERE t.state = 'error' AND TRUE AND t.id > 0 AND CAST(t.topic AS BINARY) = ?
ORDER BY t.id;
--   1: t

-- replays
SELECT substr(name, 8), value FROM `app`.`Events_settings` WHERE name LIKE 'replay.%' ORDER BY name;

-- last delivered
SELECT COALESCE(MAX(id), 0) FROM `app`.`Events_done`;

-- controls
SELECT kind, name, COALESCE(rate, 0), CAST(ends_at AS CHAR), made_by, CAST(made_at AS CHAR), reason FROM `app`.`Events_controls` WHERE ends_at IS NULL OR ends_at > utc_timestamp(6) ORDER BY kind, name;

-- set a control
DELETE FROM `app`.`Events_controls` WHERE ends_at <= utc_timestamp(6);
DELETE FROM `app`.`Events_controls` WHERE kind = ? AND name = ?;
--   1: sink
--   2: kafka
INSERT INTO `app`.`Events_controls` (kind, name, rate, ends_at, made_by, made_at, reason)
VALUES (?, ?, ?, utc_timestamp(6) + INTERVAL ? MICROSECOND, ?, utc_timestamp(6), ?);
--   1: sink
--   2: kafka
--   3: 0
--   4: 60000000
--   5: ann@host
--   6: why

-- lift a control
DELETE FROM `app`.`Events_controls` WHERE ends_at <= utc_timestamp(6);
DELETE FROM `app`.`Events_controls` WHERE kind = ? AND name = ?;
--   1: sink
--   2: kafka

-- begin an action
INSERT INTO `app`.`Events_actions` (id, made_by, action, target, reason, made_at) VALUES (?, ?, ?, ?, ?, utc_timestamp(6));
--   1: 0197a3b4-ffff-7abc-8def-0123456789ab
--   2: ann@host
--   3: resume
--   4: sink kafka
--   5: why

-- end an action
UPDATE `app`.`Events_actions` SET changed = ? WHERE id = ?;
--   1: 1
--   2: 0197a3b4-ffff-7abc-8def-0123456789ab

-- actions
SELECT id, CAST(made_at AS CHAR), made_by, action, target, reason, COALESCE(changed, -1) FROM `app`.`Events_actions` ORDER BY made_at DESC, id DESC;

-- statistics
ANALYZE TABLE `app`.`Events`, `app`.`Events_held`, `app`.`Events_done`, `app`.`Events_lanes`;

-- old done rows
DELETE FROM `app`.`Events_done` WHERE finished_at < UTC_TIMESTAMP() - INTERVAL 1 DAY ORDER BY finished_at LIMIT 10000;

-- delivered
SELECT t.id, t.lane, t.message_id, t.topic, t.headers, t.sinks
FROM `app`.`Events_done` AS t FORCE INDEX (PRIMARY)
WHERE TRUE AND t.id > 3 AND (t.id IN (1) OR t.message_id IN (?)) AND CAST(t.topic AS BINARY) = ? AND CAST(t.message_key AS BINARY) = ? AND locate(CAST(? AS BINARY), CAST(concat(',', t.sinks, ',') AS BINARY)) > 0 AND t.finished_at >= ? AND t.finished_at < ? AND locate(CAST(? AS BINARY), CAST(t.last_error AS BINARY)) > 0 AND t.id <= 9
ORDER BY t.id LIMIT 10;
--   1: 0197a3b4-0000-7abc-8def-0123456789ab
--   2: t
--   3: k
--   4: ,s,
--   5: 2026-01-31 00:00:00.000000
--   6: 2026-02-01 00:00:00.000000
--   7: refused

-- last delivered rows
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.sinks, t.attempts, CAST(t.created_at AS CHAR), CAST(t.finished_at AS CHAR)
FROM `app`.`Events_done` AS t FORCE INDEX (done_finished)
WHERE TRUE AND t.id > 0 AND t.finished_at >= ?
ORDER BY t.finished_at DESC LIMIT 200;
--   1: 2026-01-31 00:00:00.000000

-- begin a replay
INSERT IGNORE INTO `app`.`Events_settings` (name, value) VALUES (CONCAT('replay.', ?), ?);
--   1: r
--   2: {}

-- replay
INSERT INTO `app`.`Events` (message_id, topic, message_key, payload, payload_text, headers, priority, expires_at, sinks)
SELECT g.copy_id, ?, t.message_key, t.payload, t.payload_text, coalesce(nullif(g.copy_headers, ''), NULL), t.priority, CASE WHEN t.expires_at > utc_timestamp(6) THEN t.expires_at END, ?
FROM JSON_TABLE(?, '$[*]' COLUMNS (lane smallint PATH '$[0]', id bigint PATH '$[1]', n FOR ORDINALITY, copy_id char(36) PATH '$[2]', copy_headers longtext PATH '$[3]')) AS g STRAIGHT_JOIN `app`.`Events_done` AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id AND t.message_id = substr(_ascii'0197a3b4-0000-7abc-8def-0000000000050197a3b4-0000-7abc-8def-000000000006', 36 * g.n - 35, 36)
WHERE TRUE
ORDER BY t.id FOR UPDATE OF t;
--   1: t
--   2: 
--   3: [[1,5,"0197a3b4-0000-7abc-8def-000000000005","{\"n\":\"5\"}"],[2,6,"0197a3b4-0000-7abc-8def-00000000
SELECT t.lane, t.id FROM `app`.`Events` AS t FORCE INDEX (id) WHERE t.id >= 1 AND t.message_id IN (?,?);
--   1: 0197a3b4-0000-7abc-8def-000000000005
--   2: 0197a3b4-0000-7abc-8def-000000000006
UPDATE `app`.`Events_settings` SET value = ? WHERE name = CONVERT(CONCAT('replay.', ?) USING ascii) AND value = ?;
--   1: {"n":1}
--   2: r
--   3: {}

-- count pending
SELECT count(*) FROM `app`.`Events` t WHERE (t.lane = 1 AND t.id IN (15,17)
    OR t.lane = 2 AND t.id IN (16));

-- status
SELECT value FROM `app`.`Events_settings` WHERE name = 'claim';
SELECT r.name, r.host, r.version, r.claim, CAST(r.since AS CHAR), CAST(r.last_heartbeat AS CHAR), r.until >= utc_timestamp(6),
    (SELECT count(*) FROM `app`.`Events_lanes` AS l WHERE l.owner = r.name AND l.until >= utc_timestamp(6)), r.setup
FROM `app`.`Events_relays` AS r ORDER BY r.name;
SELECT count(*) FROM `app`.`Events_lanes` WHERE owner IS NOT NULL AND `until` >= utc_timestamp(6);
SELECT topic, count(*) FROM (
    (SELECT t.topic FROM `app`.`Events` AS t WHERE coalesce(t.available_at <= utc_timestamp(6), 1) AND coalesce(t.claimed_until <= utc_timestamp(6), 1) LIMIT 1000)
    UNION ALL (SELECT t.topic FROM `app`.`Events_held` AS t WHERE t.state = 'scheduled' AND t.due_at <= utc_timestamp(6) LIMIT 1000) LIMIT 1000
) AS p GROUP BY topic;
SELECT greatest(0, coalesce(timestampdiff(MICROSECOND, min(since), utc_timestamp(6)) DIV 1000, 0)) FROM (
    SELECT greatest(t.created_at, coalesce(t.available_at, t.created_at)) AS since FROM (
        SELECT created_at, available_at, claimed_until FROM `app`.`Events` FORCE INDEX (id) ORDER BY id LIMIT 6400) AS t WHERE coalesce(t.available_at <= utc_timestamp(6), 1) AND coalesce(t.claimed_until <= utc_timestamp(6), 1)
    UNION ALL SELECT greatest(t.created_at, coalesce(t.available_at, t.created_at)) FROM `app`.`Events_held` AS t WHERE t.state = 'scheduled' AND t.due_at <= utc_timestamp(6)
) AS p;
SELECT count(*), coalesce(timestampdiff(MICROSECOND, min(available_at), utc_timestamp(6)) DIV 1000, 0) FROM `app`.`Events_held` FORCE INDEX (held_retry) WHERE blocks IS NOT NULL AND state = 'error' AND holds = 1;
SELECT 'hot', state, count(*) FROM (SELECT CASE WHEN t.claimed_until > utc_timestamp(6) THEN 'claimed' WHEN t.available_at > utc_timestamp(6) THEN 'scheduled' ELSE 'pending' END AS state FROM `app`.`Events` AS t LIMIT 50000) AS h GROUP BY state
UNION ALL SELECT 'held', state, count(*) FROM (
    (SELECT CASE WHEN t.state = 'scheduled' AND t.due_at <= utc_timestamp(6) THEN 'pending' ELSE CAST(t.state AS CHAR) END AS state FROM `app`.`Events_held` AS t FORCE INDEX (held_id) WHERE t.state = 'retry' LIMIT 50000)
    UNION ALL (SELECT CASE WHEN t.state = 'scheduled' AND t.due_at <= utc_timestamp(6) THEN 'pending' ELSE CAST(t.state AS CHAR) END FROM `app`.`Events_held` AS t FORCE INDEX (held_id) WHERE t.state = 'scheduled' LIMIT 50000)) AS s GROUP BY state
UNION ALL SELECT 'error', 'error', count(*) FROM (SELECT 1 FROM `app`.`Events_held` AS t FORCE INDEX (held_id) WHERE t.state = 'error' LIMIT 50000) AS e
UNION ALL SELECT 'done', 'done', count(*) FROM (SELECT 1 FROM `app`.`Events_done` LIMIT 50000) AS d;
SELECT greatest(0, coalesce(timestampdiff(MICROSECOND, min(created_at), utc_timestamp(6)) DIV 1000, 0)) FROM `app`.`Events_held` WHERE state = 'retry';

