-- claim mode: as in mysql.sql

-- set the claim mode
SELECT value FROM `app`.`Events_settings` WHERE name = 'claim' FOR UPDATE;
SELECT name FROM `app`.`Events_relays` WHERE `until` >= utc_timestamp(6) AND claim <> ? ORDER BY name;
--   1: rows
INSERT INTO `app`.`Events_settings` (name, value) VALUES ('claim', ?) ON DUPLICATE KEY UPDATE value = ?;
--   1: rows
--   2: rows
SELECT lane FROM `app`.`Events_lane_locks` ORDER BY lane FOR UPDATE;
UPDATE `app`.`Events_lanes` SET owner = NULL, `until` = NULL, fence = fence + 1, marks = NULL, journal = NULL, crashes = 0;
UPDATE `app`.`Events` SET claimed_by = NULL, claim_token = NULL, claimed_until = NULL WHERE claimed_until IS NOT NULL;
UPDATE `app`.`Events_held` SET state = 'error', holds = 0 WHERE holds > 0;
-- of the dialect, about an index for rows

-- heartbeat
SELECT value FROM `app`.`Events_settings` WHERE name = 'claim' FOR UPDATE;
INSERT INTO `app`.`Events_relays` (name, host, version, claim, since, last_heartbeat, `until`, setup)
SELECT ?, ?, ?, ?, utc_timestamp(6), utc_timestamp(6), utc_timestamp(6) + INTERVAL 15000000 MICROSECOND, ? FROM DUAL WHERE NOT EXISTS (SELECT 1 FROM `app`.`Events_settings` WHERE name = 'claim' AND value <> ?)
ON DUPLICATE KEY UPDATE host = ?, version = ?, claim = ?, since = CASE WHEN `until` < utc_timestamp(6) THEN utc_timestamp(6) ELSE since END, last_heartbeat = utc_timestamp(6), `until` = utc_timestamp(6) + INTERVAL 15000000 MICROSECOND, setup = ?;
--   1: r
--   2: h
--   3: 1
--   4: rows
--   5: 
--   6: rows
--   7: h
--   8: 1
--   9: rows
--   10: 
SELECT name, 0, CONCAT(@@hostname, ':', @@port, '/', @@server_uuid) FROM `app`.`Events_relays` WHERE name = ? AND NOT EXISTS (SELECT 1 FROM `app`.`Events_settings` WHERE name = 'claim' AND value <> ?);
--   1: r
--   2: rows
SELECT name, setup, CAST(utc_timestamp(6) AS CHAR) FROM `app`.`Events_relays` WHERE `until` >= utc_timestamp(6) ORDER BY name;

-- end leases: as in mysql.sql

-- end claims: as in mysql.sql

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
-- of the dialect, about an index for rows
EXPLAIN SELECT t.id, t.lane, t.message_id, t.topic, coalesce(t.message_key, ''), t.sinks, coalesce(t.payload, CAST(t.payload_text AS BINARY)), coalesce(t.headers, ''), CAST(t.available_at AS CHAR), CASE WHEN year(t.expires_at) > 0 THEN CAST(t.expires_at AS CHAR) END, t.priority, t.attempts, t.crashes, CAST(t.created_at AS CHAR), (t.payload IS NOT NULL OR t.payload_text IS NOT NULL) + 2 * coalesce(t.available_at > utc_timestamp(6), 0)
FROM `app`.`Events` AS t FORCE INDEX (claim_id) WHERE t.claimed_until IS NULL
ORDER BY t.id LIMIT 500;

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
UPDATE (SELECT 2 AS lane,9 AS id,1 AS n) AS g STRAIGHT_JOIN `app`.`Events` AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id AND t.message_id = substr(_ascii'0197a3b4-0000-7abc-8def-000000000009', 36 * g.n - 35, 36) SET t.claimed_by = NULL, t.claim_token = NULL, t.claimed_until = NULL, t.attempts = 0, t.crashes = 0, t.last_error = t.last_error
WHERE t.claim_token = ?;
--   1: t

-- settle by rows, not kept
SELECT 'fenced', coalesce(sum(NOT (t.claim_token <=> ?)), 0), 0 FROM `app`.`Events` AS t FORCE INDEX (PRIMARY)
WHERE (t.lane = 2 AND t.id IN (10,11) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000010,0197a3b4-0000-7abc-8def-000000000011,', t.message_id)) FOR UPDATE;
--   1: t
DELETE t FROM (SELECT 2 AS lane,10 AS id,1 AS n) AS g STRAIGHT_JOIN `app`.`Events` AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id AND t.message_id = substr(_ascii'0197a3b4-0000-7abc-8def-000000000010', 36 * g.n - 35, 36) WHERE t.claim_token = ?;
--   1: t
INSERT INTO `app`.`Events_held` (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, state, holds)
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, t.sinks, 1, 0, utc_timestamp(6) + INTERVAL 1000000 MICROSECOND, ?, ?, 0
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
INSERT INTO `app`.`Events` (message_id, topic, message_key, payload, payload_text, headers, priority, sinks)
SELECT ?, ?, t.message_key, t.payload, t.payload_text, ?, t.priority, ?
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
INSERT INTO `app`.`Events_held` (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, state, holds)
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, t.sinks, 1, 0, t.available_at, ?, ?, 0
FROM `app`.`Events` AS t FORCE INDEX (PRIMARY)
WHERE (t.lane = 2 AND t.id IN (11) AND instr(_ascii'0197a3b4-0000-7abc-8def-000000000011,', t.message_id)) AND t.claim_token = ? FOR UPDATE;
--   1: refused
--   2: error
--   3: t
DELETE t FROM (SELECT 2 AS lane,11 AS id,1 AS n) AS g STRAIGHT_JOIN `app`.`Events` AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id AND t.message_id = substr(_ascii'0197a3b4-0000-7abc-8def-000000000011', 36 * g.n - 35, 36) WHERE t.claim_token = ?;
--   1: t

-- purge
SELECT lane FROM `app`.`Events_lane_locks` WHERE lane = 64 FOR UPDATE;
SELECT id FROM `app`.`Events_done` FORCE INDEX (done_finished) WHERE finished_at < utc_timestamp(6) + INTERVAL -86400000000 MICROSECOND ORDER BY finished_at LIMIT 100;
DELETE t FROM (SELECT 0 AS lane,1 AS id UNION ALL SELECT 0,2) AS g STRAIGHT_JOIN `app`.`Events_done` AS t FORCE INDEX (PRIMARY) ON t.id = g.id WHERE t.finished_at < utc_timestamp(6) + INTERVAL -86400000000 MICROSECOND;
SELECT i.message_id FROM `app`.`Events_ids` AS i FORCE INDEX (ids_written)
WHERE i.written_at < utc_timestamp(6) + INTERVAL -86400000000 MICROSECOND
    AND i.written_at < coalesce((SELECT h.created_at FROM `app`.`Events` AS h FORCE INDEX (id) ORDER BY h.id LIMIT 1) - INTERVAL 10 MINUTE, utc_timestamp(6))
    AND NOT EXISTS (SELECT 1 FROM `app`.`Events_held` AS h WHERE h.message_id = i.message_id)
ORDER BY i.written_at LIMIT 100;
DELETE FROM `app`.`Events_relays` WHERE `until` < utc_timestamp(6) - INTERVAL 1 DAY;

-- claim the oldest
SELECT lane FROM `app`.`Events_lane_locks` WHERE lane = 64 FOR UPDATE;
SELECT t.id, t.lane, t.message_id, t.topic, coalesce(t.message_key, ''), t.sinks, coalesce(t.payload, CAST(t.payload_text AS BINARY)), coalesce(t.headers, ''), CAST(t.available_at AS CHAR), CASE WHEN year(t.expires_at) > 0 THEN CAST(t.expires_at AS CHAR) END, t.priority, t.attempts, t.crashes, CAST(t.created_at AS CHAR), (t.payload IS NOT NULL OR t.payload_text IS NOT NULL) + 2 * coalesce(t.available_at > utc_timestamp(6), 0)
FROM `app`.`Events` AS t FORCE INDEX (claim_id) WHERE t.claimed_until IS NULL
ORDER BY t.id LIMIT 10;
UPDATE `app`.`Events` FORCE INDEX (id) SET claimed_by = ?, claim_token = ?, claimed_until = utc_timestamp(6) + INTERVAL 60000000 MICROSECOND WHERE claimed_until IS NULL AND id IN (1,2);
--   1: r
--   2: t

-- claim the highest of some topics
SELECT lane FROM `app`.`Events_lane_locks` WHERE lane = 64 FOR UPDATE;
SELECT t.id, t.lane, t.message_id, t.topic, coalesce(t.message_key, ''), t.sinks, CASE WHEN coalesce(LENGTH(t.payload), LENGTH(t.payload_text), 0) > 209715 THEN NULL ELSE coalesce(t.payload, CAST(t.payload_text AS BINARY)) END, coalesce(t.headers, ''), CAST(t.available_at AS CHAR), CASE WHEN year(t.expires_at) > 0 THEN CAST(t.expires_at AS CHAR) END, t.priority, t.attempts, t.crashes, CAST(t.created_at AS CHAR), (t.payload IS NOT NULL OR t.payload_text IS NOT NULL) + 2 * coalesce(t.available_at > utc_timestamp(6), 0) + CASE WHEN coalesce(LENGTH(t.payload), LENGTH(t.payload_text), 0) > 209715 THEN 65536 * coalesce(LENGTH(t.payload), LENGTH(t.payload_text), 0) ELSE 0 END
FROM `app`.`Events` AS t FORCE INDEX (claim_priority) WHERE t.claimed_until IS NULL AND CAST(t.topic AS BINARY) IN (?,?) AND CAST(t.topic AS BINARY) NOT IN (?)
ORDER BY t.urgency, t.id LIMIT 10;
--   1: a
--   2: b
--   3: c

-- has free rows: as in mysql.sql

-- has ended claims: as in mysql.sql

-- extend
SELECT id FROM `app`.`Events` FORCE INDEX (id) WHERE id IN (1,2) AND claim_token = ?;
--   1: t
UPDATE `app`.`Events` FORCE INDEX (id) SET claimed_until = utc_timestamp(6) + INTERVAL 60000000 MICROSECOND WHERE id IN (1,2);
SELECT id FROM `app`.`Events` FORCE INDEX (id) WHERE id IN (1,2) AND claim_token = ?;
--   1: t

-- reclaim
SELECT lane FROM `app`.`Events_lane_locks` WHERE lane = 64 FOR UPDATE;
SELECT id FROM `app`.`Events` FORCE INDEX (claim_id) WHERE claimed_until < utc_timestamp(6) ORDER BY claimed_until LIMIT 10;
UPDATE `app`.`Events` FORCE INDEX (id) SET claimed_by = NULL, claim_token = NULL, claimed_until = NULL, crashes = crashes + 1 WHERE id IN (1,2) AND claimed_until < utc_timestamp(6);
SELECT lane FROM `app`.`Events_lane_locks` WHERE lane = 64 FOR UPDATE;
SELECT t.id * 64 + t.lane FROM `app`.`Events_held` AS t FORCE INDEX (held_due)
WHERE t.due_at <= utc_timestamp(6) AND (SELECT COUNT(*) FROM `app`.`Events_held` o WHERE o.lane = t.lane AND o.id = t.id AND (o.message_id, o.sinks) < (t.message_id, t.sinks) AND o.due_at <= utc_timestamp(6)) = 0 AND (SELECT COUNT(*) FROM `app`.`Events` h WHERE h.lane = t.lane AND h.id = t.id) = 0
ORDER BY t.due_at, t.id LIMIT 10;
INSERT INTO `app`.`Events` (id, message_id, topic, message_key, payload, payload_text, headers, priority, attempts, crashes, available_at, last_error, created_at, expires_at, sinks)
SELECT t.id, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.attempts, t.crashes, t.available_at, t.last_error, t.created_at, t.expires_at, t.sinks FROM `app`.`Events_held` AS t FORCE INDEX (PRIMARY) WHERE ((t.lane = 1 AND t.id IN (1))
    OR (t.lane = 2 AND t.id IN (2))) AND t.due_at <= utc_timestamp(6) AND (SELECT COUNT(*) FROM `app`.`Events_held` o WHERE o.lane = t.lane AND o.id = t.id AND (o.message_id, o.sinks) < (t.message_id, t.sinks) AND o.due_at <= utc_timestamp(6)) = 0 FOR UPDATE;
DELETE t FROM (SELECT 1 AS lane,1 AS id UNION ALL SELECT 2,2) AS g STRAIGHT_JOIN `app`.`Events_held` AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id
STRAIGHT_JOIN `app`.`Events` AS h FORCE INDEX (PRIMARY) ON h.lane = t.lane AND h.id = t.id AND h.message_id = t.message_id AND h.sinks = t.sinks;

-- list: as in mysql.sql

-- list by filter: as in mysql.sql

-- list by filter, looking through some: as in mysql.sql

-- list by a message's id, among few rows: as in mysql.sql

-- requeue
SELECT t.lane, t.id, t.message_id, t.sinks FROM `app`.`Events_held` AS t FORCE INDEX (held_id) WHERE t.state = 'error' AND t.id > 3 AND (t.id IN (1) OR t.message_id IN (?)) AND CAST(t.topic AS BINARY) = ? AND CAST(t.message_key AS BINARY) = ? AND locate(CAST(? AS BINARY), CAST(concat(',', t.sinks, ',') AS BINARY)) > 0 AND t.created_at >= ? AND locate(CAST(? AS BINARY), CAST(t.last_error AS BINARY)) > 0 ORDER BY t.id LIMIT 10 FOR UPDATE;
--   1: 0197a3b4-0000-7abc-8def-0123456789ab
--   2: t
--   3: k
--   4: ,s,
--   5: 2026-01-31 00:00:00.000000
--   6: refused
UPDATE (SELECT 1 AS lane,1 AS id,1 AS n,CAST(? AS CHAR(1) CHARACTER SET utf8mb4) COLLATE utf8mb4_bin AS sinks UNION ALL SELECT 2,2,2,?) AS g STRAIGHT_JOIN `app`.`Events_held` AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id AND t.message_id = substr(_ascii'0197a3b4-0000-7abc-8def-0000000000010197a3b4-0000-7abc-8def-000000000002', 36 * g.n - 35, 36) AND t.sinks = CONVERT(g.sinks USING utf8mb4) COLLATE utf8mb4_bin SET state = CASE WHEN holds > 0 THEN 'retry' ELSE 'scheduled' END, holds = 0, attempts = 0, crashes = 0, available_at = utc_timestamp(6),
    expires_at = CASE WHEN last_error LIKE 'expired: %' THEN TIMESTAMP'9999-01-01 00:00:00' ELSE expires_at END;
--   1: a
--   2: 

-- redirect
SELECT t.lane, t.id, t.message_id, t.sinks FROM `app`.`Events_held` AS t FORCE INDEX (held_id) WHERE t.state = 'error' AND t.holds = 0 AND NOT EXISTS (SELECT 1 FROM `app`.`Events_held` o WHERE o.lane = t.lane AND o.id = t.id AND o.message_id = t.message_id AND o.sinks <> t.sinks) AND t.id > 0 AND CAST(t.topic AS BINARY) = ? ORDER BY t.id LIMIT 10 FOR UPDATE;
--   1: t
UPDATE (SELECT 1 AS lane,1 AS id,1 AS n,CAST(? AS CHAR(1) CHARACTER SET utf8mb4) COLLATE utf8mb4_bin AS sinks UNION ALL SELECT 2,2,2,?) AS g STRAIGHT_JOIN `app`.`Events_held` AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id AND t.message_id = substr(_ascii'0197a3b4-0000-7abc-8def-0000000000010197a3b4-0000-7abc-8def-000000000002', 36 * g.n - 35, 36) AND t.sinks = CONVERT(g.sinks USING utf8mb4) COLLATE utf8mb4_bin SET state = CASE WHEN holds > 0 THEN 'retry' ELSE 'scheduled' END, holds = 0, attempts = 0, crashes = 0, available_at = utc_timestamp(6),
    expires_at = CASE WHEN last_error LIKE 'expired: %' THEN TIMESTAMP'9999-01-01 00:00:00' ELSE expires_at END, t.sinks = ?;
--   1: a
--   2: 
--   3: other

-- ask for a skip
SELECT t.lane, t.id, t.message_id, t.sinks FROM `app`.`Events_held` AS t FORCE INDEX (held_id) WHERE t.state = 'error' AND t.holds = 1 AND t.id > 3 AND (t.id IN (1) OR t.message_id IN (?)) AND CAST(t.topic AS BINARY) = ? AND CAST(t.message_key AS BINARY) = ? AND locate(CAST(? AS BINARY), CAST(concat(',', t.sinks, ',') AS BINARY)) > 0 AND t.created_at >= ? AND locate(CAST(? AS BINARY), CAST(t.last_error AS BINARY)) > 0 ORDER BY t.id LIMIT 10 FOR UPDATE;
--   1: 0197a3b4-0000-7abc-8def-0123456789ab
--   2: t
--   3: k
--   4: ,s,
--   5: 2026-01-31 00:00:00.000000
--   6: refused
UPDATE (SELECT 1 AS lane,1 AS id,1 AS n,CAST(? AS CHAR(1) CHARACTER SET utf8mb4) COLLATE utf8mb4_bin AS sinks UNION ALL SELECT 2,2,2,?) AS g STRAIGHT_JOIN `app`.`Events_held` AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id AND t.message_id = substr(_ascii'0197a3b4-0000-7abc-8def-0000000000010197a3b4-0000-7abc-8def-000000000002', 36 * g.n - 35, 36) AND t.sinks = CONVERT(g.sinks USING utf8mb4) COLLATE utf8mb4_bin SET state = 'retry', holds = 2, available_at = utc_timestamp(6);
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
UPDATE (SELECT 1 AS lane,1 AS id,1 AS n,CAST(? AS CHAR(1) CHARACTER SET utf8mb4) COLLATE utf8mb4_bin AS sinks UNION ALL SELECT 2,2,2,?) AS g STRAIGHT_JOIN `app`.`Events_held` AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id AND t.message_id = substr(_ascii'0197a3b4-0000-7abc-8def-0000000000010197a3b4-0000-7abc-8def-000000000002', 36 * g.n - 35, 36) AND t.sinks = CONVERT(g.sinks USING utf8mb4) COLLATE utf8mb4_bin SET state = 'retry', holds = 3, available_at = utc_timestamp(6);
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
DELETE t FROM (SELECT 1 AS lane,1 AS id,1 AS n,CAST(? AS CHAR(1) CHARACTER SET utf8mb4) COLLATE utf8mb4_bin AS sinks UNION ALL SELECT 2,2,2,?) AS g STRAIGHT_JOIN `app`.`Events_held` AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id AND t.message_id = substr(_ascii'0197a3b4-0000-7abc-8def-0000000000010197a3b4-0000-7abc-8def-000000000002', 36 * g.n - 35, 36) AND t.sinks = CONVERT(g.sinks USING utf8mb4) COLLATE utf8mb4_bin;
--   1: a
--   2: 

-- parked: as in mysql.sql

-- parked, and which were overtaken: as in mysql.sql

-- replays: as in mysql.sql

-- last delivered: as in mysql.sql

-- controls: as in mysql.sql

-- set a control: as in mysql.sql

-- lift a control: as in mysql.sql

-- begin an action: as in mysql.sql

-- end an action: as in mysql.sql

-- actions: as in mysql.sql

-- delivered: as in mysql.sql

-- what was delivered last: as in mysql.sql

-- begin a replay: as in mysql.sql

-- replay
INSERT INTO `app`.`Events` (message_id, topic, message_key, payload, payload_text, headers, priority, sinks)
SELECT g.copy_id, ?, t.message_key, t.payload, t.payload_text, coalesce(nullif(g.copy_headers, ''), NULL), t.priority, ?
FROM (SELECT 1 AS lane,5 AS id,1 AS n,CAST(? AS CHAR(36) CHARACTER SET utf8mb4) COLLATE utf8mb4_bin AS copy_id,CAST(? AS CHAR(9) CHARACTER SET utf8mb4) COLLATE utf8mb4_bin AS copy_headers UNION ALL SELECT 2,6,2,?,?) AS g STRAIGHT_JOIN `app`.`Events_done` AS t FORCE INDEX (PRIMARY) ON t.lane = g.lane AND t.id = g.id AND t.message_id = substr(_ascii'0197a3b4-0000-7abc-8def-0000000000050197a3b4-0000-7abc-8def-000000000006', 36 * g.n - 35, 36)
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
SELECT count(*), coalesce(timestampdiff(MICROSECOND, min(available_at), utc_timestamp(6)) DIV 1000, 0) FROM `app`.`Events_held` WHERE TRUE AND state = 'error' AND holds = 1;
SELECT 'hot', state, count(*) FROM (SELECT CASE WHEN t.claimed_until > utc_timestamp(6) THEN 'claimed' WHEN t.available_at > utc_timestamp(6) THEN 'scheduled' ELSE 'pending' END AS state FROM `app`.`Events` AS t LIMIT 50000) AS h GROUP BY state
UNION ALL SELECT 'held', state, count(*) FROM (
    (SELECT CASE WHEN t.state = 'scheduled' AND t.due_at <= utc_timestamp(6) THEN 'pending' ELSE t.state END AS state FROM `app`.`Events_held` AS t FORCE INDEX (held_id) WHERE t.state = 'retry' LIMIT 50000)
    UNION ALL (SELECT CASE WHEN t.state = 'scheduled' AND t.due_at <= utc_timestamp(6) THEN 'pending' ELSE t.state END FROM `app`.`Events_held` AS t FORCE INDEX (held_id) WHERE t.state = 'scheduled' LIMIT 50000)) AS s GROUP BY state
UNION ALL SELECT 'error', 'error', count(*) FROM (SELECT 1 FROM `app`.`Events_held` AS t FORCE INDEX (held_id) WHERE t.state = 'error' LIMIT 50000) AS e
UNION ALL SELECT 'done', 'done', count(*) FROM (SELECT 1 FROM `app`.`Events_done` LIMIT 50000) AS d;
SELECT greatest(0, coalesce(timestampdiff(MICROSECOND, min(created_at), utc_timestamp(6)) DIV 1000, 0)) FROM `app`.`Events_held` WHERE state = 'retry';

