-- claim mode
SELECT value FROM app."Events_settings" WHERE name = 'claim';

-- set the claim mode
DELETE FROM app."Events_lanes" WHERE lane < 0;
SELECT value FROM app."Events_settings" WHERE name = 'claim';
SELECT name FROM app."Events_relays" WHERE until >= strftime('%Y-%m-%d %H:%M:%f', 'now') AND claim <> ? ORDER BY name;
--   1: lanes
INSERT INTO app."Events_settings" (name, value) VALUES ('claim', ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value;
--   1: lanes
UPDATE app."Events_lanes" SET owner = NULL, until = NULL, fence = fence + 1, marks = NULL, journal = NULL, crashes = 0;
UPDATE app."Events" SET claimed_by = NULL, claim_token = NULL, claimed_until = NULL WHERE claimed_until IS NOT NULL;
UPDATE app."Events_held" SET state = 'error', holds = 0 WHERE holds > 0;
-- a statement of the dialect, about the indexes for claiming by rows
-- a statement of the dialect, about the indexes for claiming by rows
-- a statement of the dialect, about the indexes for claiming by rows
-- a statement of the dialect, about the indexes for claiming by rows

-- heartbeat
INSERT INTO app."Events_relays" AS r (name, host, version, claim, since, last_heartbeat, until, setup)
SELECT ?, ?, ?, ?, strftime('%Y-%m-%d %H:%M:%f', 'now'), strftime('%Y-%m-%d %H:%M:%f', 'now'), strftime('%Y-%m-%d %H:%M:%f', 'now', ?), ?
WHERE NOT EXISTS (SELECT 1 FROM app."Events_settings" WHERE name = 'claim' AND value <> ?)
ON CONFLICT (name) DO UPDATE SET host = excluded.host, version = excluded.version, claim = excluded.claim,
    since = CASE WHEN r.until < strftime('%Y-%m-%d %H:%M:%f', 'now') THEN excluded.since ELSE r.since END, last_heartbeat = excluded.last_heartbeat, until = excluded.until, setup = excluded.setup
RETURNING name, 0, '';
--   1: r
--   2: h
--   3: 1
--   4: lanes
--   5: +15.000 seconds
--   6: 
--   7: lanes
SELECT name, setup, strftime('%Y-%m-%d %H:%M:%f', 'now') FROM app."Events_relays" WHERE until >= strftime('%Y-%m-%d %H:%M:%f', 'now') ORDER BY name;

-- end leases
UPDATE app."Events_lanes" SET until = strftime('%Y-%m-%d %H:%M:%f', 'now', '-1 second'), fence = fence + 1 WHERE owner = ?;
--   1: r

-- end claims
UPDATE app."Events" SET claimed_until = strftime('%Y-%m-%d %H:%M:%f', 'now', '-1 second') WHERE claimed_until >= strftime('%Y-%m-%d %H:%M:%f', 'now') AND claimed_by = ?;
--   1: r

-- deregister
DELETE FROM app."Events_relays" WHERE name = ?;
--   1: r

-- check
SELECT sqlite_version();
PRAGMA journal_mode;
PRAGMA busy_timeout;
PRAGMA synchronous;
SELECT coalesce((SELECT seq FROM app.sqlite_sequence WHERE name = 'Events'), 0) || ' 0', 0, 0, '', '', '', '', NULL, '', NULL, NULL, 0, 0, 0, NULL, 0;
EXPLAIN QUERY PLAN SELECT coalesce((SELECT seq FROM app.sqlite_sequence WHERE name = 'Events'), 0) || ' 0', 0, 0, '', '', '', '', NULL, '', NULL, NULL, 0, 0, 0, NULL, 0
UNION ALL
SELECT * FROM (SELECT NULL, t.id, t.lane, t.message_id, t.topic, coalesce(t.message_key, ''), t.sinks,
    CAST(coalesce(t.payload, t.payload_text) AS BLOB), coalesce(t.headers, ''),
    t.available_at, t.expires_at, t.priority, t.attempts, t.crashes, t.created_at,
    (t.payload IS NOT NULL OR t.payload_text IS NOT NULL) + CASE WHEN t.available_at IS NULL THEN 0 ELSE 2 * (t.available_at > strftime('%Y-%m-%d %H:%M:%f', 'now')) END
FROM app."Events" AS t NOT INDEXED
WHERE t.id > ? AND t.id <= ? AND t.lane IN (1)
ORDER BY t.id LIMIT ?);
--   1: 0
--   2: 4611686018427387904
--   3: 500
PRAGMA database_list;

-- acquire
UPDATE app."Events_lanes" SET owner = ?, fence = fence + ?, until = strftime('%Y-%m-%d %H:%M:%f', 'now', ?),
    crashes = CASE WHEN owner IS NULL THEN crashes ELSE crashes + 1 END
WHERE lane IN (SELECT lane FROM app."Events_lanes" WHERE owner IS NULL OR until < strftime('%Y-%m-%d %H:%M:%f', 'now') ORDER BY random() LIMIT ?)
RETURNING lane, fence, coalesce(marks, ''), crashes, coalesce(journal, ''), 0;
--   1: r
--   2: 300
--   3: +15.000 seconds
--   4: 5

-- renew
UPDATE app."Events_lanes" AS l
SET until = strftime('%Y-%m-%d %H:%M:%f', 'now', ?), marks = g.marks,
    crashes = CASE WHEN g.calm THEN 0 ELSE l.crashes END, journal = CASE WHEN g.calm THEN NULL ELSE l.journal END
FROM (SELECT json_extract(j.value, '$[0]') AS lane, json_extract(j.value, '$[1]') AS fence, json_extract(j.value, '$[2]') AS marks, json_extract(j.value, '$[3]') AS calm, json_extract(j.value, '$[4]') AS journal FROM json_each(?) AS j) AS g
WHERE l.lane = g.lane AND l.fence = g.fence AND l.owner = ?
RETURNING lane, fence, 0;
--   1: +15.000 seconds
--   2: [[1,7,"{\"main\":5}",true,"[{\"id\":1}]"],[2,8,"",false,""]]
--   3: r

-- release
UPDATE app."Events_lanes" AS l
SET owner = NULL, until = NULL, marks = g.marks, journal = NULL, crashes = 0
FROM (SELECT json_extract(j.value, '$[0]') AS lane, json_extract(j.value, '$[1]') AS fence, json_extract(j.value, '$[2]') AS marks, json_extract(j.value, '$[3]') AS calm, json_extract(j.value, '$[4]') AS journal FROM json_each(?) AS j) AS g
WHERE l.lane = g.lane AND l.fence = g.fence AND l.owner = ?
RETURNING lane, fence, 0;
--   1: [[1,7,"{\"main\":5}",true,"[{\"id\":1}]"],[2,8,"",false,""]]
--   2: r

-- write the journal
UPDATE app."Events_lanes" AS l SET journal = g.journal
FROM (SELECT json_extract(j.value, '$[0]') AS lane, json_extract(j.value, '$[1]') AS fence, json_extract(j.value, '$[2]') AS marks, json_extract(j.value, '$[3]') AS calm, json_extract(j.value, '$[4]') AS journal FROM json_each(?) AS j) AS g
WHERE l.lane = g.lane AND l.fence = g.fence AND l.owner = ?
RETURNING lane, fence, 0;
--   1: [[1,7,"{\"main\":5}",true,"[{\"id\":1}]"],[2,8,"",false,""]]
--   2: r

-- journals
SELECT lane, fence, journal FROM app."Events_lanes" WHERE journal IS NOT NULL;

-- marks
SELECT lane, marks FROM app."Events_lanes" WHERE marks IS NOT NULL ORDER BY lane;

-- last id
SELECT coalesce((SELECT seq FROM app.sqlite_sequence WHERE name = 'Events'), 0);

-- written from
SELECT id, CAST(round((julianday(created_at) - 2440587.5) * 86400000) AS INTEGER) FROM (
    SELECT id, created_at FROM (SELECT id, created_at FROM app."Events" NOT INDEXED WHERE id >= ? ORDER BY id LIMIT 1)
    UNION ALL SELECT id, created_at FROM (SELECT id, created_at FROM app."Events_done" WHERE id >= ? ORDER BY id LIMIT 1)
) ORDER BY id LIMIT 1;
--   1: 0
--   2: 0

-- first line
SELECT coalesce((SELECT seq FROM app.sqlite_sequence WHERE name = 'Events'), 0) || ' 0', 0, 0, '', '', '', '', NULL, '', NULL, NULL, 0, 0, 0, NULL, 0;

-- read
SELECT coalesce((SELECT seq FROM app.sqlite_sequence WHERE name = 'Events'), 0) || ' 0', 0, 0, '', '', '', '', NULL, '', NULL, NULL, 0, 0, 0, NULL, 0
UNION ALL
SELECT * FROM (SELECT NULL, t.id, t.lane, t.message_id, t.topic, coalesce(t.message_key, ''), t.sinks,
    CAST(coalesce(t.payload, t.payload_text) AS BLOB), coalesce(t.headers, ''),
    t.available_at, t.expires_at, t.priority, t.attempts, t.crashes, t.created_at,
    (t.payload IS NOT NULL OR t.payload_text IS NOT NULL) + CASE WHEN t.available_at IS NULL THEN 0 ELSE 2 * (t.available_at > strftime('%Y-%m-%d %H:%M:%f', 'now')) END
FROM app."Events" AS t NOT INDEXED
WHERE t.id > ? AND t.id <= ? AND (t.lane = 1 AND t.id + 0 <= 20
    OR t.lane = 2 AND t.id + 0 > 11)
ORDER BY t.id LIMIT ?);
--   1: 10
--   2: 21
--   3: 100

-- read a share
SELECT coalesce((SELECT seq FROM app.sqlite_sequence WHERE name = 'Events'), 0) || ' 0', 0, 0, '', '', '', '', NULL, '', NULL, NULL, 0, 0, 0, NULL, 0
UNION ALL
SELECT * FROM (SELECT NULL, t.id, t.lane, t.message_id, t.topic, coalesce(t.message_key, ''), t.sinks,
    CAST(coalesce(t.payload, t.payload_text) AS BLOB), coalesce(t.headers, ''),
    t.available_at, t.expires_at, t.priority, t.attempts, t.crashes, t.created_at,
    (t.payload IS NOT NULL OR t.payload_text IS NOT NULL) + CASE WHEN t.available_at IS NULL THEN 0 ELSE 2 * (t.available_at > strftime('%Y-%m-%d %H:%M:%f', 'now')) END
FROM app."Events" AS t NOT INDEXED
WHERE t.id > ? AND t.id <= ? AND (t.lane = 1 AND t.id + 0 <= 20
    OR t.lane = 2 AND t.id + 0 > 11)
ORDER BY t.id LIMIT ?);
--   1: 10
--   2: 21
--   3: 100

-- read bytes
SELECT coalesce((SELECT seq FROM app.sqlite_sequence WHERE name = 'Events'), 0) || ' 0', 0, 0, '', '', '', '', NULL, '', NULL, NULL, 0, 0, 0, NULL, 0
UNION ALL
SELECT * FROM (SELECT NULL, t.id, t.lane, t.message_id, t.topic, coalesce(t.message_key, ''), t.sinks,
    CAST(coalesce(t.payload, t.payload_text) AS BLOB), coalesce(t.headers, ''),
    t.available_at, t.expires_at, t.priority, t.attempts, t.crashes, t.created_at,
    (t.payload IS NOT NULL OR t.payload_text IS NOT NULL) + CASE WHEN t.available_at IS NULL THEN 0 ELSE 2 * (t.available_at > strftime('%Y-%m-%d %H:%M:%f', 'now')) END
FROM app."Events" AS t NOT INDEXED
WHERE t.id > ? AND t.id <= ? AND (t.lane = 1 AND t.id + 0 <= 20
    OR t.lane = 2 AND t.id + 0 > 11)
ORDER BY t.id LIMIT ?);
--   1: 10
--   2: 21
--   3: 100

-- read except
SELECT coalesce((SELECT seq FROM app.sqlite_sequence WHERE name = 'Events'), 0) || ' 0', 0, 0, '', '', '', '', NULL, '', NULL, NULL, 0, 0, 0, NULL, 0
UNION ALL
SELECT * FROM (SELECT NULL, t.id, t.lane, t.message_id, t.topic, coalesce(t.message_key, ''), t.sinks,
    CAST(coalesce(t.payload, t.payload_text) AS BLOB), coalesce(t.headers, ''),
    t.available_at, t.expires_at, t.priority, t.attempts, t.crashes, t.created_at,
    (t.payload IS NOT NULL OR t.payload_text IS NOT NULL) + CASE WHEN t.available_at IS NULL THEN 0 ELSE 2 * (t.available_at > strftime('%Y-%m-%d %H:%M:%f', 'now')) END
FROM app."Events" AS t NOT INDEXED
WHERE t.id > ? AND t.id <= ? AND (t.lane = 1 AND t.id + 0 <= 20
    OR t.lane = 2 AND t.id + 0 > 11) AND (t.topic NOT IN (SELECT value FROM json_each(?)) OR t.sinks <> '')
ORDER BY t.id LIMIT ?);
--   1: 10
--   2: 21
--   3: ["t1","t2"]
--   4: 100

-- read keys
SELECT coalesce((SELECT seq FROM app.sqlite_sequence WHERE name = 'Events'), 0) || ' 0', 0, 0, '', '', '', '', NULL, '', NULL, NULL, 0, 0, 0, NULL, 0
UNION ALL
SELECT * FROM (SELECT NULL, t.id, t.lane, t.message_id, t.topic, coalesce(t.message_key, ''), t.sinks,
    CAST(coalesce(t.payload, t.payload_text) AS BLOB), coalesce(t.headers, ''),
    t.available_at, t.expires_at, t.priority, t.attempts, t.crashes, t.created_at,
    (t.payload IS NOT NULL OR t.payload_text IS NOT NULL) + CASE WHEN t.available_at IS NULL THEN 0 ELSE 2 * (t.available_at > strftime('%Y-%m-%d %H:%M:%f', 'now')) END
FROM json_each(?) AS j CROSS JOIN app."Events" AS t INDEXED BY "Events_lane_id"
WHERE t.lane = json_extract(j.value, '$[0]') AND t.id > json_extract(j.value, '$[1]') AND t.id <= json_extract(j.value, '$[2]') AND t.message_key = json_extract(j.value, '$[3]') LIMIT ?);
--   1: [[1,10,20,"a\"\\k"]]
--   2: 100

-- candidates
SELECT t.id, t.lane, t.topic, coalesce(t.message_key, ''), t.sinks, coalesce(length(t.payload), length(CAST(t.payload_text AS BLOB)), 0)
FROM app."Events" AS t NOT INDEXED
WHERE t.id > ? AND t.id <= ? AND (t.lane = 1 AND t.id + 0 <= 20
    OR t.lane = 2 AND t.id + 0 > 11) AND (t.topic NOT IN (SELECT value FROM json_each(?)) OR t.sinks <> '')
ORDER BY t.id LIMIT ?;
--   1: 10
--   2: 21
--   3: ["t1"]
--   4: 100

-- pick
SELECT t.id, t.lane, t.message_id, t.topic, coalesce(t.message_key, ''), t.sinks,
    CAST(coalesce(t.payload, t.payload_text) AS BLOB), coalesce(t.headers, ''),
    t.available_at, t.expires_at, t.priority, t.attempts, t.crashes, t.created_at,
    (t.payload IS NOT NULL OR t.payload_text IS NOT NULL) + CASE WHEN t.available_at IS NULL THEN 0 ELSE 2 * (t.available_at > strftime('%Y-%m-%d %H:%M:%f', 'now')) END
FROM json_each(?) AS j CROSS JOIN app."Events" AS t NOT INDEXED ON t.id = json_extract(j.value, '$[1]') AND t.lane = json_extract(j.value, '$[0]');
--   1: [[1,15],[2,16]]

-- pick held
SELECT t.id, t.lane, t.message_id, t.topic, coalesce(t.message_key, ''), t.sinks,
    CAST(coalesce(t.payload, t.payload_text) AS BLOB), coalesce(t.headers, ''),
    t.available_at, t.expires_at, t.priority, t.attempts, t.crashes, t.created_at,
    (t.payload IS NOT NULL OR t.payload_text IS NOT NULL) + 4 * (t.state = 'retry') + 16 * t.holds
FROM json_each(?) AS j CROSS JOIN app."Events_held" AS t NOT INDEXED ON t.id = json_extract(j.value, '$[1]') AND t.lane = json_extract(j.value, '$[0]') AND t.state <> 'error';
--   1: [[1,15],[2,16]]

-- attempt logs
SELECT t.id, t.lane, t.message_id, t.sinks, t.attempt_log
FROM json_each(?) AS j CROSS JOIN app."Events" AS t NOT INDEXED ON t.id = json_extract(j.value, '$[1]') AND t.lane = json_extract(j.value, '$[0]') AND t.attempt_log IS NOT NULL;
--   1: [[1,15],[2,16]]

-- attempt logs of held rows
SELECT t.id, t.lane, t.message_id, t.sinks, t.attempt_log
FROM json_each(?) AS j CROSS JOIN app."Events_held" AS t NOT INDEXED ON t.id = json_extract(j.value, '$[1]') AND t.lane = json_extract(j.value, '$[0]') AND t.attempt_log IS NOT NULL;
--   1: [[1,15],[2,16]]

-- due
SELECT t.id, t.lane, t.message_id, t.topic, coalesce(t.message_key, ''), t.sinks,
    CAST(coalesce(t.payload, t.payload_text) AS BLOB), coalesce(t.headers, ''),
    t.available_at, t.expires_at, t.priority, t.attempts, t.crashes, t.created_at,
    (t.payload IS NOT NULL OR t.payload_text IS NOT NULL) + 4 * (t.state = 'retry') + 16 * t.holds FROM app."Events_held" AS t
WHERE t.state <> 'error' AND coalesce(t.available_at, '0001-01-01 00:00:00.000') <= strftime('%Y-%m-%d %H:%M:%f', 'now') AND t.lane IN (SELECT value FROM json_each(?))
    AND (coalesce(t.available_at, '0001-01-01 00:00:00.000'), t.id) > (?, ?)
ORDER BY coalesce(t.available_at, '0001-01-01 00:00:00.000'), t.id LIMIT ?;
--   1: [1,2]
--   2: 2026-01-31 23:59:59.123
--   3: 9
--   4: 100

-- blocked keys
SELECT lane, message_key, topic, sinks, id FROM app."Events_held"
WHERE (state = 'retry' OR holds > 0) AND message_key <> '' AND lane IN (SELECT value FROM json_each(?))
LIMIT ?;
--   1: [1,2]
--   2: 100

-- blocked among keys
SELECT t.lane, t.message_key, t.topic, t.sinks, min(t.id)
FROM json_each(?) AS j CROSS JOIN app."Events_held" AS t INDEXED BY "Events_held_retry"
WHERE (t.state = 'retry' OR t.holds > 0) AND t.lane = json_extract(j.value, '$[0]') AND t.message_key = json_extract(j.value, '$[1]')
GROUP BY t.lane, t.message_key, t.topic, t.sinks;
--   1: [[1,"a\"\\k"],[2,"b"],[1,"c"]]

-- remaining
SELECT * FROM (SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.sinks, 1 FROM app."Events_held" AS t WHERE t.state <> 'error' AND coalesce(t.available_at, '0001-01-01 00:00:00.000') <= strftime('%Y-%m-%d %H:%M:%f', 'now') LIMIT ?)
UNION ALL SELECT * FROM (SELECT id, lane, message_id, topic, message_key, sinks, 0 FROM app."Events" WHERE coalesce(available_at <= strftime('%Y-%m-%d %H:%M:%f', 'now'), 1) AND coalesce(claimed_until <= strftime('%Y-%m-%d %H:%M:%f', 'now'), 1) LIMIT ?);
--   1: 1000
--   2: 1000

-- settle: done
DELETE FROM app."Events_lanes" WHERE lane < 0;
SELECT 'lane', l.lane, l.fence FROM json_each(?) AS j CROSS JOIN app."Events_lanes" AS l ON l.lane = json_extract(j.value, '$[0]') AND l.fence = json_extract(j.value, '$[1]') AND l.owner = ?;
--   1: [[1,7]]
--   2: r
INSERT INTO app."Events_done" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, finished_at, receipt, relay)
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, t.sinks, ?, ?, t.available_at, coalesce(nullif(?, ''), t.last_error), strftime('%Y-%m-%d %H:%M:%f', 'now'), nullif(?, ''), ?
FROM json_each(?) AS j CROSS JOIN app."Events" AS t NOT INDEXED ON t.id = j.key AND t.message_id = j.value AND t.lane IN (1);
--   1: 1
--   2: 0
--   3: 
--   4: 0/5
--   5: r
--   6: {"5":"0197a3b4-0000-7abc-8def-000000000005"}
DELETE FROM app."Events" WHERE id IN (SELECT t.id FROM json_each(?) AS j CROSS JOIN app."Events" AS t NOT INDEXED ON t.id = j.key AND t.message_id = j.value AND t.lane IN (1));
--   1: {"5":"0197a3b4-0000-7abc-8def-000000000005"}

-- settle: done, with different receipts
DELETE FROM app."Events_lanes" WHERE lane < 0;
SELECT 'lane', l.lane, l.fence FROM json_each(?) AS j CROSS JOIN app."Events_lanes" AS l ON l.lane = json_extract(j.value, '$[0]') AND l.fence = json_extract(j.value, '$[1]') AND l.owner = ?;
--   1: [[1,7]]
--   2: r
INSERT INTO app."Events_done" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, finished_at, receipt, relay)
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, t.sinks, g.attempts, g.crashes, t.available_at, coalesce(nullif(g.error, ''), t.last_error), strftime('%Y-%m-%d %H:%M:%f', 'now'), nullif(g.receipt, ''), ?
FROM (SELECT json_extract(j.value, '$[0]') AS id, json_extract(j.value, '$[1]') AS lane, json_extract(j.value, '$[2]') AS state, json_extract(j.value, '$[3]') AS attempts, json_extract(j.value, '$[4]') AS crashes, json_extract(j.value, '$[5]') AS delay, json_extract(j.value, '$[6]') AS error, json_extract(j.value, '$[7]') AS receipt, json_extract(j.value, '$[8]') AS message_id, json_extract(j.value, '$[9]') AS holds, json_extract(j.value, '$[10]') AS sinks, json_extract(j.value, '$[11]') AS read_at FROM json_each(?) AS j) AS g CROSS JOIN app."Events" AS t NOT INDEXED ON t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id;
--   1: r
--   2: [[5,1,"done",1,0,"+0.000 seconds","","0/5","0197a3b4-0000-7abc-8def-000000000005",0,"","9999-12-31 0
DELETE FROM app."Events" WHERE id IN (SELECT t.id FROM json_each(?) AS j CROSS JOIN app."Events" AS t NOT INDEXED ON t.id = j.key AND t.message_id = j.value AND t.lane IN (1));
--   1: {"5":"0197a3b4-0000-7abc-8def-000000000005","6":"0197a3b4-0000-7abc-8def-000000000006"}

-- settle: done, not kept
DELETE FROM app."Events_lanes" WHERE lane < 0;
SELECT 'lane', l.lane, l.fence FROM json_each(?) AS j CROSS JOIN app."Events_lanes" AS l ON l.lane = json_extract(j.value, '$[0]') AND l.fence = json_extract(j.value, '$[1]') AND l.owner = ?;
--   1: [[1,7]]
--   2: r
DELETE FROM app."Events" WHERE id IN (SELECT t.id FROM json_each(?) AS j CROSS JOIN app."Events" AS t NOT INDEXED ON t.id = j.key AND t.message_id = j.value AND t.lane IN (1));
--   1: {"5":"0197a3b4-0000-7abc-8def-000000000005"}

-- settle: rows of several kinds
DELETE FROM app."Events_lanes" WHERE lane < 0;
SELECT 'lane', l.lane, l.fence FROM json_each(?) AS j CROSS JOIN app."Events_lanes" AS l ON l.lane = json_extract(j.value, '$[0]') AND l.fence = json_extract(j.value, '$[1]') AND l.owner = ?;
--   1: [[1,7],[2,8]]
--   2: r
INSERT INTO app."Events_done" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, finished_at, receipt, relay)
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, t.sinks, ?, ?, t.available_at, coalesce(nullif(?, ''), t.last_error), strftime('%Y-%m-%d %H:%M:%f', 'now'), nullif(?, ''), ?
FROM json_each(?) AS j CROSS JOIN app."Events" AS t NOT INDEXED ON t.id = j.key AND t.message_id = j.value AND t.lane IN (1);
--   1: 1
--   2: 0
--   3: 
--   4: 0/5
--   5: r
--   6: {"5":"0197a3b4-0000-7abc-8def-000000000005"}
DELETE FROM app."Events" WHERE id IN (SELECT t.id FROM json_each(?) AS j CROSS JOIN app."Events" AS t NOT INDEXED ON t.id = j.key AND t.message_id = j.value AND t.lane IN (1));
--   1: {"5":"0197a3b4-0000-7abc-8def-000000000005"}
INSERT INTO app."Events_done" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, finished_at, receipt, relay)
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, t.sinks, ?, ?, t.available_at, coalesce(nullif(?, ''), t.last_error), strftime('%Y-%m-%d %H:%M:%f', 'now'), nullif(?, ''), ?
FROM json_each(?) AS j CROSS JOIN app."Events_held" AS t NOT INDEXED ON t.id = j.key AND t.message_id || ',' || t.sinks = j.value AND t.lane IN (2) AND t.state <> 'error';
--   1: 0
--   2: 0
--   3: 
--   4: 
--   5: r
--   6: {"8":"0197a3b4-0000-7abc-8def-000000000008,"}
DELETE FROM app."Events_held" WHERE (id, message_id, sinks) IN (SELECT t.id, t.message_id, t.sinks FROM json_each(?) AS j CROSS JOIN app."Events_held" AS t NOT INDEXED ON t.id = j.key AND t.message_id || ',' || t.sinks = j.value AND t.lane IN (2) AND t.state <> 'error');
--   1: {"8":"0197a3b4-0000-7abc-8def-000000000008,"}
INSERT INTO app."Events_held" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds)
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, t.sinks, g.attempts, g.crashes, CASE WHEN g.state = 'retry' OR g.holds > 0 THEN strftime('%Y-%m-%d %H:%M:%f', 'now', g.delay) ELSE t.available_at END, coalesce(nullif(g.error, ''), t.last_error), coalesce(g.attempt_log, t.attempt_log), g.state, g.holds
FROM (SELECT json_extract(j.value, '$[0]') AS id, json_extract(j.value, '$[1]') AS lane, json_extract(j.value, '$[2]') AS state, json_extract(j.value, '$[3]') AS attempts, json_extract(j.value, '$[4]') AS crashes, json_extract(j.value, '$[5]') AS delay, json_extract(j.value, '$[6]') AS error, json_extract(j.value, '$[7]') AS receipt, json_extract(j.value, '$[8]') AS message_id, json_extract(j.value, '$[9]') AS holds, json_extract(j.value, '$[10]') AS sinks, json_extract(j.value, '$[11]') AS read_at, json_extract(j.value, '$[12]') AS part, json_extract(j.value, '$[14]') AS attempt_log FROM json_each(?) AS j) AS g CROSS JOIN app."Events" AS t NOT INDEXED ON t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id;
--   1: [[6,1,"retry",2,0,"+1.000 seconds","it's \"broken\"","","0197a3b4-0000-7abc-8def-000000000006",0,"",
DELETE FROM app."Events" WHERE id IN (SELECT t.id FROM json_each(?) AS j CROSS JOIN app."Events" AS t NOT INDEXED ON t.id = j.key AND t.message_id = j.value AND t.lane IN (1));
--   1: {"6":"0197a3b4-0000-7abc-8def-000000000006"}
UPDATE app."Events_held" AS t NOT INDEXED
SET state = g.state, holds = g.holds, attempts = g.attempts, crashes = g.crashes, available_at = CASE WHEN g.state = 'retry' OR g.holds > 0 THEN strftime('%Y-%m-%d %H:%M:%f', 'now', g.delay) ELSE t.available_at END, last_error = coalesce(nullif(g.error, ''), t.last_error), attempt_log = coalesce(g.attempt_log, t.attempt_log)
FROM (SELECT json_extract(j.value, '$[0]') AS id, json_extract(j.value, '$[1]') AS lane, json_extract(j.value, '$[2]') AS state, json_extract(j.value, '$[3]') AS attempts, json_extract(j.value, '$[4]') AS crashes, json_extract(j.value, '$[5]') AS delay, json_extract(j.value, '$[6]') AS error, json_extract(j.value, '$[7]') AS receipt, json_extract(j.value, '$[8]') AS message_id, json_extract(j.value, '$[9]') AS holds, json_extract(j.value, '$[10]') AS sinks, json_extract(j.value, '$[11]') AS read_at, json_extract(j.value, '$[12]') AS part, json_extract(j.value, '$[14]') AS attempt_log FROM json_each(?) AS j) AS g WHERE t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id AND t.sinks = g.sinks AND t.state <> 'error' AND (t.holds < 2 OR g.holds = 0 AND g.state <> 'retry') AND (t.available_at IS NULL OR t.available_at <= g.read_at);
--   1: [[7,2,"error",0,0,"+0.000 seconds","","","0197a3b4-0000-7abc-8def-000000000007",0,"","9999-12-31 00:

-- settle: dead letters
DELETE FROM app."Events_lanes" WHERE lane < 0;
SELECT 'lane', l.lane, l.fence FROM json_each(?) AS j CROSS JOIN app."Events_lanes" AS l ON l.lane = json_extract(j.value, '$[0]') AND l.fence = json_extract(j.value, '$[1]') AND l.owner = ?;
--   1: [[1,7],[2,8]]
--   2: r
INSERT INTO app."Events" (message_id, topic, message_key, payload, payload_text, headers, priority, expires_at, sinks)
SELECT g.copy_id, g.copy_topic, t.message_key, t.payload, t.payload_text, g.copy_headers, t.priority, CASE WHEN t.expires_at > strftime('%Y-%m-%d %H:%M:%f', 'now') THEN t.expires_at END, g.copy_sinks
FROM (SELECT json_extract(j.value, '$[0]') AS id, json_extract(j.value, '$[1]') AS lane, json_extract(j.value, '$[2]') AS message_id, json_extract(j.value, '$[3]') AS sinks, json_extract(j.value, '$[4]') AS holds,
    json_extract(j.value, '$[5]') AS copy_id, json_extract(j.value, '$[6]') AS copy_topic, json_extract(j.value, '$[7]') AS copy_headers, json_extract(j.value, '$[8]') AS copy_sinks, json_extract(j.value, '$[9]') AS read_at FROM json_each(?) AS j) AS g CROSS JOIN app."Events" AS t NOT INDEXED ON t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id
ORDER BY t.id;
--   1: [[6,1,"0197a3b4-0000-7abc-8def-000000000006","",0,"0197a3b4-0000-7abc-8def-000000000020","dead","{\"
INSERT INTO app."Events" (message_id, topic, message_key, payload, payload_text, headers, priority, expires_at, sinks)
SELECT g.copy_id, g.copy_topic, t.message_key, t.payload, t.payload_text, g.copy_headers, t.priority, CASE WHEN t.expires_at > strftime('%Y-%m-%d %H:%M:%f', 'now') THEN t.expires_at END, g.copy_sinks
FROM (SELECT json_extract(j.value, '$[0]') AS id, json_extract(j.value, '$[1]') AS lane, json_extract(j.value, '$[2]') AS message_id, json_extract(j.value, '$[3]') AS sinks, json_extract(j.value, '$[4]') AS holds,
    json_extract(j.value, '$[5]') AS copy_id, json_extract(j.value, '$[6]') AS copy_topic, json_extract(j.value, '$[7]') AS copy_headers, json_extract(j.value, '$[8]') AS copy_sinks, json_extract(j.value, '$[9]') AS read_at FROM json_each(?) AS j) AS g CROSS JOIN app."Events_held" AS t NOT INDEXED ON t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id AND t.sinks = g.sinks AND t.state <> 'error' AND (t.holds < 2 OR g.holds = 0) AND (t.available_at IS NULL OR t.available_at <= g.read_at)
ORDER BY t.id;
--   1: [[7,2,"0197a3b4-0000-7abc-8def-000000000007","",1,"0197a3b4-0000-7abc-8def-000000000021","dead.other
INSERT INTO app."Events_done" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, finished_at, receipt, relay)
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, t.sinks, ?, ?, t.available_at, coalesce(nullif(?, ''), t.last_error), strftime('%Y-%m-%d %H:%M:%f', 'now'), nullif(?, ''), ?
FROM json_each(?) AS j CROSS JOIN app."Events" AS t NOT INDEXED ON t.id = j.key AND t.message_id = j.value AND t.lane IN (1);
--   1: 1
--   2: 0
--   3: 
--   4: 0/5
--   5: r
--   6: {"5":"0197a3b4-0000-7abc-8def-000000000005"}
DELETE FROM app."Events" WHERE id IN (SELECT t.id FROM json_each(?) AS j CROSS JOIN app."Events" AS t NOT INDEXED ON t.id = j.key AND t.message_id = j.value AND t.lane IN (1));
--   1: {"5":"0197a3b4-0000-7abc-8def-000000000005"}
INSERT INTO app."Events_held" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds)
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, t.sinks, g.attempts, g.crashes, CASE WHEN g.state = 'retry' OR g.holds > 0 THEN strftime('%Y-%m-%d %H:%M:%f', 'now', g.delay) ELSE t.available_at END, coalesce(nullif(g.error, ''), t.last_error), coalesce(g.attempt_log, t.attempt_log), g.state, g.holds
FROM (SELECT json_extract(j.value, '$[0]') AS id, json_extract(j.value, '$[1]') AS lane, json_extract(j.value, '$[2]') AS state, json_extract(j.value, '$[3]') AS attempts, json_extract(j.value, '$[4]') AS crashes, json_extract(j.value, '$[5]') AS delay, json_extract(j.value, '$[6]') AS error, json_extract(j.value, '$[7]') AS receipt, json_extract(j.value, '$[8]') AS message_id, json_extract(j.value, '$[9]') AS holds, json_extract(j.value, '$[10]') AS sinks, json_extract(j.value, '$[11]') AS read_at, json_extract(j.value, '$[12]') AS part, json_extract(j.value, '$[14]') AS attempt_log FROM json_each(?) AS j) AS g CROSS JOIN app."Events" AS t NOT INDEXED ON t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id;
--   1: [[6,1,"error",2,0,"+1.000 seconds","it's \"broken\"","","0197a3b4-0000-7abc-8def-000000000006",0,"",
DELETE FROM app."Events" WHERE id IN (SELECT t.id FROM json_each(?) AS j CROSS JOIN app."Events" AS t NOT INDEXED ON t.id = j.key AND t.message_id = j.value AND t.lane IN (1));
--   1: {"6":"0197a3b4-0000-7abc-8def-000000000006"}
UPDATE app."Events_held" AS t NOT INDEXED
SET state = g.state, holds = g.holds, attempts = g.attempts, crashes = g.crashes, available_at = CASE WHEN g.state = 'retry' OR g.holds > 0 THEN strftime('%Y-%m-%d %H:%M:%f', 'now', g.delay) ELSE t.available_at END, last_error = coalesce(nullif(g.error, ''), t.last_error), attempt_log = coalesce(g.attempt_log, t.attempt_log)
FROM (SELECT json_extract(j.value, '$[0]') AS id, json_extract(j.value, '$[1]') AS lane, json_extract(j.value, '$[2]') AS state, json_extract(j.value, '$[3]') AS attempts, json_extract(j.value, '$[4]') AS crashes, json_extract(j.value, '$[5]') AS delay, json_extract(j.value, '$[6]') AS error, json_extract(j.value, '$[7]') AS receipt, json_extract(j.value, '$[8]') AS message_id, json_extract(j.value, '$[9]') AS holds, json_extract(j.value, '$[10]') AS sinks, json_extract(j.value, '$[11]') AS read_at, json_extract(j.value, '$[12]') AS part, json_extract(j.value, '$[14]') AS attempt_log FROM json_each(?) AS j) AS g WHERE t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id AND t.sinks = g.sinks AND t.state <> 'error' AND (t.holds < 2 OR g.holds = 0 AND g.state <> 'retry') AND (t.available_at IS NULL OR t.available_at <= g.read_at);
--   1: [[7,2,"error",0,0,"+0.000 seconds","","","0197a3b4-0000-7abc-8def-000000000007",1,"","9999-12-31 00:

-- settle: failed attempts
DELETE FROM app."Events_lanes" WHERE lane < 0;
SELECT 'lane', l.lane, l.fence FROM json_each(?) AS j CROSS JOIN app."Events_lanes" AS l ON l.lane = json_extract(j.value, '$[0]') AND l.fence = json_extract(j.value, '$[1]') AND l.owner = ?;
--   1: [[1,7],[2,8]]
--   2: r
INSERT INTO app."Events_held" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds)
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, t.sinks, g.attempts, g.crashes, CASE WHEN g.state = 'retry' OR g.holds > 0 THEN strftime('%Y-%m-%d %H:%M:%f', 'now', g.delay) ELSE t.available_at END, coalesce(nullif(g.error, ''), t.last_error), coalesce(g.attempt_log, t.attempt_log), g.state, g.holds
FROM (SELECT json_extract(j.value, '$[0]') AS id, json_extract(j.value, '$[1]') AS lane, json_extract(j.value, '$[2]') AS state, json_extract(j.value, '$[3]') AS attempts, json_extract(j.value, '$[4]') AS crashes, json_extract(j.value, '$[5]') AS delay, json_extract(j.value, '$[6]') AS error, json_extract(j.value, '$[7]') AS receipt, json_extract(j.value, '$[8]') AS message_id, json_extract(j.value, '$[9]') AS holds, json_extract(j.value, '$[10]') AS sinks, json_extract(j.value, '$[11]') AS read_at, json_extract(j.value, '$[12]') AS part, json_extract(j.value, '$[14]') AS attempt_log FROM json_each(?) AS j) AS g CROSS JOIN app."Events" AS t NOT INDEXED ON t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id;
--   1: [[6,1,"retry",2,0,"+1.000 seconds","it's \"broken\"","","0197a3b4-0000-7abc-8def-000000000006",0,"",
DELETE FROM app."Events" WHERE id IN (SELECT t.id FROM json_each(?) AS j CROSS JOIN app."Events" AS t NOT INDEXED ON t.id = j.key AND t.message_id = j.value AND t.lane IN (1));
--   1: {"6":"0197a3b4-0000-7abc-8def-000000000006"}
UPDATE app."Events_held" AS t NOT INDEXED
SET state = g.state, holds = g.holds, attempts = g.attempts, crashes = g.crashes, available_at = CASE WHEN g.state = 'retry' OR g.holds > 0 THEN strftime('%Y-%m-%d %H:%M:%f', 'now', g.delay) ELSE t.available_at END, last_error = coalesce(nullif(g.error, ''), t.last_error), attempt_log = coalesce(g.attempt_log, t.attempt_log)
FROM (SELECT json_extract(j.value, '$[0]') AS id, json_extract(j.value, '$[1]') AS lane, json_extract(j.value, '$[2]') AS state, json_extract(j.value, '$[3]') AS attempts, json_extract(j.value, '$[4]') AS crashes, json_extract(j.value, '$[5]') AS delay, json_extract(j.value, '$[6]') AS error, json_extract(j.value, '$[7]') AS receipt, json_extract(j.value, '$[8]') AS message_id, json_extract(j.value, '$[9]') AS holds, json_extract(j.value, '$[10]') AS sinks, json_extract(j.value, '$[11]') AS read_at, json_extract(j.value, '$[12]') AS part, json_extract(j.value, '$[14]') AS attempt_log FROM json_each(?) AS j) AS g WHERE t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id AND t.sinks = g.sinks AND t.state <> 'error' AND (t.holds < 2 OR g.holds = 0 AND g.state <> 'retry') AND (t.available_at IS NULL OR t.available_at <= g.read_at);
--   1: [[7,2,"error",0,0,"+0.000 seconds","","","0197a3b4-0000-7abc-8def-000000000007",0,"","9999-12-31 00:

-- settle by rows: a failed attempt
DELETE FROM app."Events_lanes" WHERE lane < 0;
SELECT 'fenced', count(*), 0 FROM json_each(?) AS j CROSS JOIN app."Events" AS t NOT INDEXED ON t.id = j.key AND t.message_id = j.value AND t.lane IN (2) WHERE t.claim_token IS NOT ?;
--   1: {"11":"0197a3b4-0000-7abc-8def-000000000011"}
--   2: t
INSERT INTO app."Events_held" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds)
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, t.sinks, g.attempts, g.crashes, CASE WHEN g.state = 'retry' OR g.holds > 0 THEN strftime('%Y-%m-%d %H:%M:%f', 'now', g.delay) ELSE t.available_at END, coalesce(nullif(g.error, ''), t.last_error), coalesce(g.attempt_log, t.attempt_log), g.state, g.holds
FROM (SELECT json_extract(j.value, '$[0]') AS id, json_extract(j.value, '$[1]') AS lane, json_extract(j.value, '$[2]') AS state, json_extract(j.value, '$[3]') AS attempts, json_extract(j.value, '$[4]') AS crashes, json_extract(j.value, '$[5]') AS delay, json_extract(j.value, '$[6]') AS error, json_extract(j.value, '$[7]') AS receipt, json_extract(j.value, '$[8]') AS message_id, json_extract(j.value, '$[9]') AS holds, json_extract(j.value, '$[10]') AS sinks, json_extract(j.value, '$[11]') AS read_at, json_extract(j.value, '$[12]') AS part, json_extract(j.value, '$[14]') AS attempt_log FROM json_each(?) AS j) AS g CROSS JOIN app."Events" AS t NOT INDEXED ON t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id AND t.claim_token = ?;
--   1: [[11,2,"retry",1,0,"+1.000 seconds","refused","","0197a3b4-0000-7abc-8def-000000000011",0,"","9999-1
--   2: t
DELETE FROM app."Events" WHERE id IN (SELECT t.id FROM json_each(?) AS j CROSS JOIN app."Events" AS t NOT INDEXED ON t.id = j.key AND t.message_id = j.value AND t.lane IN (2) AND t.claim_token = ?);
--   1: {"11":"0197a3b4-0000-7abc-8def-000000000011"}
--   2: t

-- settle for some sinks
DELETE FROM app."Events_lanes" WHERE lane < 0;
SELECT 'lane', l.lane, l.fence FROM json_each(?) AS j CROSS JOIN app."Events_lanes" AS l ON l.lane = json_extract(j.value, '$[0]') AND l.fence = json_extract(j.value, '$[1]') AND l.owner = ?;
--   1: [[1,7],[2,8]]
--   2: r
INSERT INTO app."Events_done" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, finished_at, receipt, relay)
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, g.part, g.attempts, g.crashes, t.available_at, coalesce(nullif(g.error, ''), t.last_error), strftime('%Y-%m-%d %H:%M:%f', 'now'), nullif(g.receipt, ''), ?
FROM (SELECT json_extract(j.value, '$[0]') AS id, json_extract(j.value, '$[1]') AS lane, json_extract(j.value, '$[2]') AS state, json_extract(j.value, '$[3]') AS attempts, json_extract(j.value, '$[4]') AS crashes, json_extract(j.value, '$[5]') AS delay, json_extract(j.value, '$[6]') AS error, json_extract(j.value, '$[7]') AS receipt, json_extract(j.value, '$[8]') AS message_id, json_extract(j.value, '$[9]') AS holds, json_extract(j.value, '$[10]') AS sinks, json_extract(j.value, '$[11]') AS read_at, json_extract(j.value, '$[12]') AS part, json_extract(j.value, '$[13]') AS rest FROM json_each(?) AS j) AS g CROSS JOIN app."Events" AS t NOT INDEXED ON t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id AND t.sinks = g.sinks;
--   1: r
--   2: [[5,1,"done",1,0,"+0.000 seconds","","0/5","0197a3b4-0000-7abc-8def-000000000005",0,"","9999-12-31 0
INSERT INTO app."Events_held" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds)
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, g.part, g.attempts, g.crashes, CASE WHEN g.state = 'retry' OR g.holds > 0 THEN strftime('%Y-%m-%d %H:%M:%f', 'now', g.delay) ELSE t.available_at END, coalesce(nullif(g.error, ''), t.last_error), coalesce(g.attempt_log, t.attempt_log), g.state, g.holds
FROM (SELECT json_extract(j.value, '$[0]') AS id, json_extract(j.value, '$[1]') AS lane, json_extract(j.value, '$[2]') AS state, json_extract(j.value, '$[3]') AS attempts, json_extract(j.value, '$[4]') AS crashes, json_extract(j.value, '$[5]') AS delay, json_extract(j.value, '$[6]') AS error, json_extract(j.value, '$[7]') AS receipt, json_extract(j.value, '$[8]') AS message_id, json_extract(j.value, '$[9]') AS holds, json_extract(j.value, '$[10]') AS sinks, json_extract(j.value, '$[11]') AS read_at, json_extract(j.value, '$[12]') AS part, json_extract(j.value, '$[14]') AS attempt_log FROM json_each(?) AS j) AS g CROSS JOIN app."Events" AS t NOT INDEXED ON t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id AND t.sinks = g.sinks;
--   1: [[6,1,"retry",2,0,"+1.000 seconds","it's \"broken\"","","0197a3b4-0000-7abc-8def-000000000006",0,"",
UPDATE app."Events" AS t NOT INDEXED SET sinks = g.rest
FROM (SELECT json_extract(j.value, '$[0]') AS id, json_extract(j.value, '$[1]') AS lane, json_extract(j.value, '$[2]') AS state, json_extract(j.value, '$[3]') AS attempts, json_extract(j.value, '$[4]') AS crashes, json_extract(j.value, '$[5]') AS delay, json_extract(j.value, '$[6]') AS error, json_extract(j.value, '$[7]') AS receipt, json_extract(j.value, '$[8]') AS message_id, json_extract(j.value, '$[9]') AS holds, json_extract(j.value, '$[10]') AS sinks, json_extract(j.value, '$[11]') AS read_at, json_extract(j.value, '$[12]') AS part, json_extract(j.value, '$[13]') AS rest FROM json_each(?) AS j) AS g WHERE t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id AND t.sinks = g.sinks;
--   1: [[5,1,"done",1,0,"+0.000 seconds","","0/5","0197a3b4-0000-7abc-8def-000000000005",0,"","9999-12-31 0
INSERT INTO app."Events_held" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds)
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, g.part, g.attempts, g.crashes, CASE WHEN g.state = 'retry' OR g.holds > 0 THEN strftime('%Y-%m-%d %H:%M:%f', 'now', g.delay) ELSE t.available_at END, coalesce(nullif(g.error, ''), t.last_error), coalesce(g.attempt_log, t.attempt_log), g.state, g.holds
FROM (SELECT json_extract(j.value, '$[0]') AS id, json_extract(j.value, '$[1]') AS lane, json_extract(j.value, '$[2]') AS state, json_extract(j.value, '$[3]') AS attempts, json_extract(j.value, '$[4]') AS crashes, json_extract(j.value, '$[5]') AS delay, json_extract(j.value, '$[6]') AS error, json_extract(j.value, '$[7]') AS receipt, json_extract(j.value, '$[8]') AS message_id, json_extract(j.value, '$[9]') AS holds, json_extract(j.value, '$[10]') AS sinks, json_extract(j.value, '$[11]') AS read_at, json_extract(j.value, '$[12]') AS part, json_extract(j.value, '$[14]') AS attempt_log FROM json_each(?) AS j) AS g CROSS JOIN app."Events_held" AS t NOT INDEXED ON t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id AND t.sinks = g.sinks AND t.state <> 'error' AND (t.holds < 2 OR g.holds = 0);
--   1: [[7,2,"error",0,0,"+0.000 seconds","","","0197a3b4-0000-7abc-8def-000000000007",0,"a,b","9999-12-31 
UPDATE app."Events_held" AS t NOT INDEXED SET sinks = g.rest
FROM (SELECT json_extract(j.value, '$[0]') AS id, json_extract(j.value, '$[1]') AS lane, json_extract(j.value, '$[2]') AS state, json_extract(j.value, '$[3]') AS attempts, json_extract(j.value, '$[4]') AS crashes, json_extract(j.value, '$[5]') AS delay, json_extract(j.value, '$[6]') AS error, json_extract(j.value, '$[7]') AS receipt, json_extract(j.value, '$[8]') AS message_id, json_extract(j.value, '$[9]') AS holds, json_extract(j.value, '$[10]') AS sinks, json_extract(j.value, '$[11]') AS read_at, json_extract(j.value, '$[12]') AS part, json_extract(j.value, '$[13]') AS rest FROM json_each(?) AS j) AS g WHERE t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id AND t.sinks = g.sinks AND t.state <> 'error' AND (t.holds < 2 OR g.holds = 0);
--   1: [[7,2,"error",0,0,"+0.000 seconds","","","0197a3b4-0000-7abc-8def-000000000007",0,"a,b","9999-12-31 

-- settle for some sinks: dead letters
DELETE FROM app."Events_lanes" WHERE lane < 0;
SELECT 'lane', l.lane, l.fence FROM json_each(?) AS j CROSS JOIN app."Events_lanes" AS l ON l.lane = json_extract(j.value, '$[0]') AND l.fence = json_extract(j.value, '$[1]') AND l.owner = ?;
--   1: [[1,7],[2,8]]
--   2: r
INSERT INTO app."Events" (message_id, topic, message_key, payload, payload_text, headers, priority, expires_at, sinks)
SELECT g.copy_id, g.copy_topic, t.message_key, t.payload, t.payload_text, g.copy_headers, t.priority, CASE WHEN t.expires_at > strftime('%Y-%m-%d %H:%M:%f', 'now') THEN t.expires_at END, g.copy_sinks
FROM (SELECT json_extract(j.value, '$[0]') AS id, json_extract(j.value, '$[1]') AS lane, json_extract(j.value, '$[2]') AS message_id, json_extract(j.value, '$[3]') AS sinks, json_extract(j.value, '$[4]') AS holds,
    json_extract(j.value, '$[5]') AS copy_id, json_extract(j.value, '$[6]') AS copy_topic, json_extract(j.value, '$[7]') AS copy_headers, json_extract(j.value, '$[8]') AS copy_sinks, json_extract(j.value, '$[9]') AS read_at FROM json_each(?) AS j) AS g CROSS JOIN app."Events" AS t NOT INDEXED ON t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id AND t.sinks = g.sinks
ORDER BY t.id;
--   1: [[6,1,"0197a3b4-0000-7abc-8def-000000000006","",0,"0197a3b4-0000-7abc-8def-000000000020","dead","{\"
INSERT INTO app."Events" (message_id, topic, message_key, payload, payload_text, headers, priority, expires_at, sinks)
SELECT g.copy_id, g.copy_topic, t.message_key, t.payload, t.payload_text, g.copy_headers, t.priority, CASE WHEN t.expires_at > strftime('%Y-%m-%d %H:%M:%f', 'now') THEN t.expires_at END, g.copy_sinks
FROM (SELECT json_extract(j.value, '$[0]') AS id, json_extract(j.value, '$[1]') AS lane, json_extract(j.value, '$[2]') AS message_id, json_extract(j.value, '$[3]') AS sinks, json_extract(j.value, '$[4]') AS holds,
    json_extract(j.value, '$[5]') AS copy_id, json_extract(j.value, '$[6]') AS copy_topic, json_extract(j.value, '$[7]') AS copy_headers, json_extract(j.value, '$[8]') AS copy_sinks, json_extract(j.value, '$[9]') AS read_at FROM json_each(?) AS j) AS g CROSS JOIN app."Events_held" AS t NOT INDEXED ON t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id AND t.sinks = g.sinks AND t.state <> 'error' AND (t.holds < 2 OR g.holds = 0) AND (t.available_at IS NULL OR t.available_at <= g.read_at)
ORDER BY t.id;
--   1: [[7,2,"0197a3b4-0000-7abc-8def-000000000007","a,b",1,"0197a3b4-0000-7abc-8def-000000000021","dead.ot
INSERT INTO app."Events_held" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds)
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, g.part, g.attempts, g.crashes, CASE WHEN g.state = 'retry' OR g.holds > 0 THEN strftime('%Y-%m-%d %H:%M:%f', 'now', g.delay) ELSE t.available_at END, coalesce(nullif(g.error, ''), t.last_error), coalesce(g.attempt_log, t.attempt_log), g.state, g.holds
FROM (SELECT json_extract(j.value, '$[0]') AS id, json_extract(j.value, '$[1]') AS lane, json_extract(j.value, '$[2]') AS state, json_extract(j.value, '$[3]') AS attempts, json_extract(j.value, '$[4]') AS crashes, json_extract(j.value, '$[5]') AS delay, json_extract(j.value, '$[6]') AS error, json_extract(j.value, '$[7]') AS receipt, json_extract(j.value, '$[8]') AS message_id, json_extract(j.value, '$[9]') AS holds, json_extract(j.value, '$[10]') AS sinks, json_extract(j.value, '$[11]') AS read_at, json_extract(j.value, '$[12]') AS part, json_extract(j.value, '$[14]') AS attempt_log FROM json_each(?) AS j) AS g CROSS JOIN app."Events" AS t NOT INDEXED ON t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id AND t.sinks = g.sinks;
--   1: [[6,1,"error",2,0,"+1.000 seconds","it's \"broken\"","","0197a3b4-0000-7abc-8def-000000000006",0,"",
UPDATE app."Events" AS t NOT INDEXED SET sinks = g.rest
FROM (SELECT json_extract(j.value, '$[0]') AS id, json_extract(j.value, '$[1]') AS lane, json_extract(j.value, '$[2]') AS state, json_extract(j.value, '$[3]') AS attempts, json_extract(j.value, '$[4]') AS crashes, json_extract(j.value, '$[5]') AS delay, json_extract(j.value, '$[6]') AS error, json_extract(j.value, '$[7]') AS receipt, json_extract(j.value, '$[8]') AS message_id, json_extract(j.value, '$[9]') AS holds, json_extract(j.value, '$[10]') AS sinks, json_extract(j.value, '$[11]') AS read_at, json_extract(j.value, '$[12]') AS part, json_extract(j.value, '$[13]') AS rest FROM json_each(?) AS j) AS g WHERE t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id AND t.sinks = g.sinks;
--   1: [[6,1,"error",2,0,"+1.000 seconds","it's \"broken\"","","0197a3b4-0000-7abc-8def-000000000006",0,"",
INSERT INTO app."Events_held" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds)
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, g.part, g.attempts, g.crashes, CASE WHEN g.state = 'retry' OR g.holds > 0 THEN strftime('%Y-%m-%d %H:%M:%f', 'now', g.delay) ELSE t.available_at END, coalesce(nullif(g.error, ''), t.last_error), coalesce(g.attempt_log, t.attempt_log), g.state, g.holds
FROM (SELECT json_extract(j.value, '$[0]') AS id, json_extract(j.value, '$[1]') AS lane, json_extract(j.value, '$[2]') AS state, json_extract(j.value, '$[3]') AS attempts, json_extract(j.value, '$[4]') AS crashes, json_extract(j.value, '$[5]') AS delay, json_extract(j.value, '$[6]') AS error, json_extract(j.value, '$[7]') AS receipt, json_extract(j.value, '$[8]') AS message_id, json_extract(j.value, '$[9]') AS holds, json_extract(j.value, '$[10]') AS sinks, json_extract(j.value, '$[11]') AS read_at, json_extract(j.value, '$[12]') AS part, json_extract(j.value, '$[14]') AS attempt_log FROM json_each(?) AS j) AS g CROSS JOIN app."Events_held" AS t NOT INDEXED ON t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id AND t.sinks = g.sinks AND t.state <> 'error' AND (t.holds < 2 OR g.holds = 0);
--   1: [[7,2,"error",0,0,"+0.000 seconds","","","0197a3b4-0000-7abc-8def-000000000007",1,"a,b","9999-12-31 
UPDATE app."Events_held" AS t NOT INDEXED SET sinks = g.rest
FROM (SELECT json_extract(j.value, '$[0]') AS id, json_extract(j.value, '$[1]') AS lane, json_extract(j.value, '$[2]') AS state, json_extract(j.value, '$[3]') AS attempts, json_extract(j.value, '$[4]') AS crashes, json_extract(j.value, '$[5]') AS delay, json_extract(j.value, '$[6]') AS error, json_extract(j.value, '$[7]') AS receipt, json_extract(j.value, '$[8]') AS message_id, json_extract(j.value, '$[9]') AS holds, json_extract(j.value, '$[10]') AS sinks, json_extract(j.value, '$[11]') AS read_at, json_extract(j.value, '$[12]') AS part, json_extract(j.value, '$[13]') AS rest FROM json_each(?) AS j) AS g WHERE t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id AND t.sinks = g.sinks AND t.state <> 'error' AND (t.holds < 2 OR g.holds = 0);
--   1: [[7,2,"error",0,0,"+0.000 seconds","","","0197a3b4-0000-7abc-8def-000000000007",1,"a,b","9999-12-31 

-- settle: deferred rows of two sinks
DELETE FROM app."Events_lanes" WHERE lane < 0;
SELECT 'lane', l.lane, l.fence FROM json_each(?) AS j CROSS JOIN app."Events_lanes" AS l ON l.lane = json_extract(j.value, '$[0]') AND l.fence = json_extract(j.value, '$[1]') AND l.owner = ?;
--   1: [[2,8]]
--   2: r
INSERT INTO app."Events_done" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, finished_at, receipt, relay)
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, t.sinks, ?, ?, t.available_at, coalesce(nullif(?, ''), t.last_error), strftime('%Y-%m-%d %H:%M:%f', 'now'), nullif(?, ''), ?
FROM json_each(?) AS j CROSS JOIN app."Events_held" AS t NOT INDEXED ON t.id = j.key AND t.message_id || ',' || t.sinks = j.value AND t.lane IN (2) AND t.state <> 'error';
--   1: 0
--   2: 0
--   3: 
--   4: 
--   5: r
--   6: {"8":"0197a3b4-0000-7abc-8def-000000000008,a","8":"0197a3b4-0000-7abc-8def-000000000008,b"}
DELETE FROM app."Events_held" WHERE (id, message_id, sinks) IN (SELECT t.id, t.message_id, t.sinks FROM json_each(?) AS j CROSS JOIN app."Events_held" AS t NOT INDEXED ON t.id = j.key AND t.message_id || ',' || t.sinks = j.value AND t.lane IN (2) AND t.state <> 'error');
--   1: {"8":"0197a3b4-0000-7abc-8def-000000000008,a","8":"0197a3b4-0000-7abc-8def-000000000008,b"}

-- settle by rows: done
DELETE FROM app."Events_lanes" WHERE lane < 0;
SELECT 'fenced', count(*), 0 FROM json_each(?) AS j CROSS JOIN app."Events" AS t NOT INDEXED ON t.id = j.key AND t.message_id = j.value AND t.lane IN (2) WHERE t.claim_token IS NOT ?;
--   1: {"10":"0197a3b4-0000-7abc-8def-000000000010"}
--   2: t
INSERT INTO app."Events_done" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, finished_at, receipt, relay)
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, t.sinks, ?, ?, t.available_at, coalesce(nullif(?, ''), t.last_error), strftime('%Y-%m-%d %H:%M:%f', 'now'), nullif(?, ''), ?
FROM json_each(?) AS j CROSS JOIN app."Events" AS t NOT INDEXED ON t.id = j.key AND t.message_id = j.value AND t.lane IN (2) AND t.claim_token = ?;
--   1: 0
--   2: 0
--   3: 
--   4: 
--   5: r
--   6: {"10":"0197a3b4-0000-7abc-8def-000000000010"}
--   7: t
DELETE FROM app."Events" WHERE id IN (SELECT t.id FROM json_each(?) AS j CROSS JOIN app."Events" AS t NOT INDEXED ON t.id = j.key AND t.message_id = j.value AND t.lane IN (2) AND t.claim_token = ?);
--   1: {"10":"0197a3b4-0000-7abc-8def-000000000010"}
--   2: t

-- settle by rows
DELETE FROM app."Events_lanes" WHERE lane < 0;
SELECT 'fenced', count(*), 0 FROM json_each(?) AS j CROSS JOIN app."Events" AS t NOT INDEXED ON t.id = j.key AND t.message_id = j.value AND t.lane IN (2) WHERE t.claim_token IS NOT ?;
--   1: {"9":"0197a3b4-0000-7abc-8def-000000000009","10":"0197a3b4-0000-7abc-8def-000000000010"}
--   2: t
INSERT INTO app."Events_done" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, finished_at, receipt, relay)
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, t.sinks, ?, ?, t.available_at, coalesce(nullif(?, ''), t.last_error), strftime('%Y-%m-%d %H:%M:%f', 'now'), nullif(?, ''), ?
FROM json_each(?) AS j CROSS JOIN app."Events" AS t NOT INDEXED ON t.id = j.key AND t.message_id = j.value AND t.lane IN (2) AND t.claim_token = ?;
--   1: 0
--   2: 0
--   3: 
--   4: 
--   5: r
--   6: {"10":"0197a3b4-0000-7abc-8def-000000000010"}
--   7: t
DELETE FROM app."Events" WHERE id IN (SELECT t.id FROM json_each(?) AS j CROSS JOIN app."Events" AS t NOT INDEXED ON t.id = j.key AND t.message_id = j.value AND t.lane IN (2) AND t.claim_token = ?);
--   1: {"10":"0197a3b4-0000-7abc-8def-000000000010"}
--   2: t
UPDATE app."Events" AS t NOT INDEXED
SET claimed_by = NULL, claim_token = NULL, claimed_until = NULL, attempts = g.attempts, crashes = g.crashes, last_error = coalesce(nullif(g.error, ''), t.last_error), attempt_log = coalesce(g.attempt_log, t.attempt_log)
FROM (SELECT json_extract(j.value, '$[0]') AS id, json_extract(j.value, '$[1]') AS lane, json_extract(j.value, '$[2]') AS state, json_extract(j.value, '$[3]') AS attempts, json_extract(j.value, '$[4]') AS crashes, json_extract(j.value, '$[5]') AS delay, json_extract(j.value, '$[6]') AS error, json_extract(j.value, '$[7]') AS receipt, json_extract(j.value, '$[8]') AS message_id, json_extract(j.value, '$[9]') AS holds, json_extract(j.value, '$[10]') AS sinks, json_extract(j.value, '$[11]') AS read_at, json_extract(j.value, '$[12]') AS part, json_extract(j.value, '$[14]') AS attempt_log FROM json_each(?) AS j) AS g WHERE t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id AND t.claim_token = ?;
--   1: [[9,2,"pending",0,0,"+0.000 seconds","","","0197a3b4-0000-7abc-8def-000000000009",0,"","9999-12-31 0
--   2: t

-- settle by rows, not kept
DELETE FROM app."Events_lanes" WHERE lane < 0;
SELECT 'fenced', count(*), 0 FROM json_each(?) AS j CROSS JOIN app."Events" AS t NOT INDEXED ON t.id = j.key AND t.message_id = j.value AND t.lane IN (2) WHERE t.claim_token IS NOT ?;
--   1: {"10":"0197a3b4-0000-7abc-8def-000000000010","11":"0197a3b4-0000-7abc-8def-000000000011"}
--   2: t
DELETE FROM app."Events" WHERE id IN (SELECT t.id FROM json_each(?) AS j CROSS JOIN app."Events" AS t NOT INDEXED ON t.id = j.key AND t.message_id = j.value AND t.lane IN (2) AND t.claim_token = ?);
--   1: {"10":"0197a3b4-0000-7abc-8def-000000000010"}
--   2: t
INSERT INTO app."Events_held" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds)
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, t.sinks, g.attempts, g.crashes, CASE WHEN g.state = 'retry' OR g.holds > 0 THEN strftime('%Y-%m-%d %H:%M:%f', 'now', g.delay) ELSE t.available_at END, coalesce(nullif(g.error, ''), t.last_error), coalesce(g.attempt_log, t.attempt_log), g.state, g.holds
FROM (SELECT json_extract(j.value, '$[0]') AS id, json_extract(j.value, '$[1]') AS lane, json_extract(j.value, '$[2]') AS state, json_extract(j.value, '$[3]') AS attempts, json_extract(j.value, '$[4]') AS crashes, json_extract(j.value, '$[5]') AS delay, json_extract(j.value, '$[6]') AS error, json_extract(j.value, '$[7]') AS receipt, json_extract(j.value, '$[8]') AS message_id, json_extract(j.value, '$[9]') AS holds, json_extract(j.value, '$[10]') AS sinks, json_extract(j.value, '$[11]') AS read_at, json_extract(j.value, '$[12]') AS part, json_extract(j.value, '$[14]') AS attempt_log FROM json_each(?) AS j) AS g CROSS JOIN app."Events" AS t NOT INDEXED ON t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id AND t.claim_token = ?;
--   1: [[11,2,"retry",1,0,"+1.000 seconds","refused","","0197a3b4-0000-7abc-8def-000000000011",0,"","9999-1
--   2: t
DELETE FROM app."Events" WHERE id IN (SELECT t.id FROM json_each(?) AS j CROSS JOIN app."Events" AS t NOT INDEXED ON t.id = j.key AND t.message_id = j.value AND t.lane IN (2) AND t.claim_token = ?);
--   1: {"11":"0197a3b4-0000-7abc-8def-000000000011"}
--   2: t

-- settle by rows: a dead letter
DELETE FROM app."Events_lanes" WHERE lane < 0;
SELECT 'fenced', count(*), 0 FROM json_each(?) AS j CROSS JOIN app."Events" AS t NOT INDEXED ON t.id = j.key AND t.message_id = j.value AND t.lane IN (2) WHERE t.claim_token IS NOT ?;
--   1: {"10":"0197a3b4-0000-7abc-8def-000000000010","11":"0197a3b4-0000-7abc-8def-000000000011"}
--   2: t
INSERT INTO app."Events" (message_id, topic, message_key, payload, payload_text, headers, priority, expires_at, sinks)
SELECT g.copy_id, g.copy_topic, t.message_key, t.payload, t.payload_text, g.copy_headers, t.priority, CASE WHEN t.expires_at > strftime('%Y-%m-%d %H:%M:%f', 'now') THEN t.expires_at END, g.copy_sinks
FROM (SELECT json_extract(j.value, '$[0]') AS id, json_extract(j.value, '$[1]') AS lane, json_extract(j.value, '$[2]') AS message_id, json_extract(j.value, '$[3]') AS sinks, json_extract(j.value, '$[4]') AS holds,
    json_extract(j.value, '$[5]') AS copy_id, json_extract(j.value, '$[6]') AS copy_topic, json_extract(j.value, '$[7]') AS copy_headers, json_extract(j.value, '$[8]') AS copy_sinks, json_extract(j.value, '$[9]') AS read_at FROM json_each(?) AS j) AS g CROSS JOIN app."Events" AS t NOT INDEXED ON t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id AND t.claim_token = ?
ORDER BY t.id;
--   1: [[11,2,"0197a3b4-0000-7abc-8def-000000000011","",0,"0197a3b4-0000-7abc-8def-000000000020","dead","{\
--   2: t
DELETE FROM app."Events" WHERE id IN (SELECT t.id FROM json_each(?) AS j CROSS JOIN app."Events" AS t NOT INDEXED ON t.id = j.key AND t.message_id = j.value AND t.lane IN (2) AND t.claim_token = ?);
--   1: {"10":"0197a3b4-0000-7abc-8def-000000000010"}
--   2: t
INSERT INTO app."Events_held" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds)
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, t.sinks, g.attempts, g.crashes, CASE WHEN g.state = 'retry' OR g.holds > 0 THEN strftime('%Y-%m-%d %H:%M:%f', 'now', g.delay) ELSE t.available_at END, coalesce(nullif(g.error, ''), t.last_error), coalesce(g.attempt_log, t.attempt_log), g.state, g.holds
FROM (SELECT json_extract(j.value, '$[0]') AS id, json_extract(j.value, '$[1]') AS lane, json_extract(j.value, '$[2]') AS state, json_extract(j.value, '$[3]') AS attempts, json_extract(j.value, '$[4]') AS crashes, json_extract(j.value, '$[5]') AS delay, json_extract(j.value, '$[6]') AS error, json_extract(j.value, '$[7]') AS receipt, json_extract(j.value, '$[8]') AS message_id, json_extract(j.value, '$[9]') AS holds, json_extract(j.value, '$[10]') AS sinks, json_extract(j.value, '$[11]') AS read_at, json_extract(j.value, '$[12]') AS part, json_extract(j.value, '$[14]') AS attempt_log FROM json_each(?) AS j) AS g CROSS JOIN app."Events" AS t NOT INDEXED ON t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id AND t.claim_token = ?;
--   1: [[11,2,"error",1,0,"+1.000 seconds","refused","","0197a3b4-0000-7abc-8def-000000000011",0,"","9999-1
--   2: t
DELETE FROM app."Events" WHERE id IN (SELECT t.id FROM json_each(?) AS j CROSS JOIN app."Events" AS t NOT INDEXED ON t.id = j.key AND t.message_id = j.value AND t.lane IN (2) AND t.claim_token = ?);
--   1: {"11":"0197a3b4-0000-7abc-8def-000000000011"}
--   2: t

-- purge
DELETE FROM app."Events_lanes" WHERE lane < 0;
DELETE FROM app."Events_done" WHERE rowid IN (SELECT rowid FROM app."Events_done" WHERE finished_at < strftime('%Y-%m-%d %H:%M:%f', 'now', ?) ORDER BY finished_at LIMIT ?);
--   1: -86400.000 seconds
--   2: 100
DELETE FROM app."Events_ids" WHERE message_id IN (SELECT i.message_id FROM app."Events_ids" AS i
    WHERE i.written_at < strftime('%Y-%m-%d %H:%M:%f', 'now', ?)
        AND i.written_at < coalesce((SELECT strftime('%Y-%m-%d %H:%M:%f', h.created_at, '-10 minutes') FROM app."Events" AS h ORDER BY h.id LIMIT 1), strftime('%Y-%m-%d %H:%M:%f', 'now'))
        AND NOT EXISTS (SELECT 1 FROM app."Events_held" AS h WHERE h.message_id = i.message_id)
    ORDER BY i.written_at LIMIT ?);
--   1: -86400.000 seconds
--   2: 100
DELETE FROM app."Events_relays" WHERE until < strftime('%Y-%m-%d %H:%M:%f', 'now', '-1 day');

-- claim the oldest
UPDATE app."Events" SET claimed_by = ?, claim_token = ?, claimed_until = strftime('%Y-%m-%d %H:%M:%f', 'now', ?)
WHERE id IN (
    WITH picked AS (SELECT id, priority, coalesce(length(payload), length(CAST(payload_text AS BLOB)), 0) AS size FROM app."Events" AS h WHERE EXISTS (SELECT 1 FROM app."Events_settings" WHERE name = 'claim' AND value = 'rows') AND claimed_until IS NULL ORDER BY id LIMIT ?),
    fitting AS (SELECT *, sum(size) OVER (ROWS UNBOUNDED PRECEDING) - size AS bytes_before FROM picked)
    SELECT id FROM fitting WHERE bytes_before < ?)
RETURNING id, lane, message_id, topic, coalesce(message_key, ''), sinks,
    CAST(coalesce(payload, payload_text) AS BLOB), coalesce(headers, ''),
    available_at, expires_at, priority, attempts, crashes, created_at,
    (payload IS NOT NULL OR payload_text IS NOT NULL) + CASE WHEN available_at IS NULL THEN 0 ELSE 2 * (available_at > strftime('%Y-%m-%d %H:%M:%f', 'now')) END;
--   1: r
--   2: t
--   3: +60.000 seconds
--   4: 10
--   5: 9223372036854775807

-- claim the highest priorities of some topics
UPDATE app."Events" SET claimed_by = ?, claim_token = ?, claimed_until = strftime('%Y-%m-%d %H:%M:%f', 'now', ?)
WHERE id IN (
    WITH picked AS (SELECT id, priority, coalesce(length(payload), length(CAST(payload_text AS BLOB)), 0) AS size FROM app."Events" AS h WHERE EXISTS (SELECT 1 FROM app."Events_settings" WHERE name = 'claim' AND value = 'rows') AND claimed_until IS NULL AND topic IN (SELECT value FROM json_each(?)) AND topic NOT IN (SELECT value FROM json_each(?)) ORDER BY priority DESC, id LIMIT ?),
    fitting AS (SELECT *, sum(size) OVER (ROWS UNBOUNDED PRECEDING) - size AS bytes_before FROM picked)
    SELECT id FROM fitting WHERE bytes_before < ?)
RETURNING id, lane, message_id, topic, coalesce(message_key, ''), sinks,
    CAST(coalesce(payload, payload_text) AS BLOB), coalesce(headers, ''),
    available_at, expires_at, priority, attempts, crashes, created_at,
    (payload IS NOT NULL OR payload_text IS NOT NULL) + CASE WHEN available_at IS NULL THEN 0 ELSE 2 * (available_at > strftime('%Y-%m-%d %H:%M:%f', 'now')) END;
--   1: r
--   2: t
--   3: +60.000 seconds
--   4: ["a","b"]
--   5: ["c"]
--   6: 10
--   7: 1048576

-- has free rows
SELECT h.id FROM app."Events" AS h WHERE h.claimed_until IS NULL ORDER BY h.id LIMIT 1;

-- has ended claims
SELECT id FROM (SELECT id FROM app."Events" WHERE claimed_until < strftime('%Y-%m-%d %H:%M:%f', 'now') ORDER BY claimed_until LIMIT 1) AS c
UNION ALL SELECT id FROM (SELECT t.id FROM app."Events_held" AS t WHERE t.state <> 'error' AND coalesce(t.available_at, '0001-01-01 00:00:00.000') <= strftime('%Y-%m-%d %H:%M:%f', 'now') ORDER BY coalesce(t.available_at, '0001-01-01 00:00:00.000'), t.id LIMIT 1) AS h;

-- extend
UPDATE app."Events" SET claimed_until = strftime('%Y-%m-%d %H:%M:%f', 'now', ?) WHERE EXISTS (SELECT 1 FROM app."Events_settings" WHERE name = 'claim' AND value = 'rows') AND claim_token = ? AND id IN (SELECT value FROM json_each(?)) RETURNING id;
--   1: +60.000 seconds
--   2: t
--   3: [1,2]

-- reclaim
DELETE FROM app."Events_lanes" WHERE lane < 0;
UPDATE app."Events" SET claimed_by = NULL, claim_token = NULL, claimed_until = NULL,
    attempts = max(0, min(CAST(attempts AS INTEGER), 2000000000)), crashes = max(0, min(CAST(crashes AS INTEGER), 2000000000)) + 1
WHERE id IN (SELECT id FROM app."Events" WHERE EXISTS (SELECT 1 FROM app."Events_settings" WHERE name = 'claim' AND value = 'rows') AND claimed_until < strftime('%Y-%m-%d %H:%M:%f', 'now') ORDER BY claimed_until LIMIT ?);
--   1: 10
DELETE FROM app."Events_lanes" WHERE lane < 0;
INSERT INTO app."Events" (id, message_id, topic, message_key, payload, payload_text, headers, priority, attempts, crashes, available_at, last_error, attempt_log, created_at, expires_at, sinks)
SELECT t.id, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.attempts, t.crashes, t.available_at, t.last_error, t.attempt_log, t.created_at, t.expires_at, t.sinks FROM app."Events_held" AS t WHERE EXISTS (SELECT 1 FROM app."Events_settings" WHERE name = 'claim' AND value = 'rows') AND t.state <> 'error' AND coalesce(t.available_at, '0001-01-01 00:00:00.000') <= strftime('%Y-%m-%d %H:%M:%f', 'now')
    AND (SELECT COUNT(*) FROM app."Events" h WHERE h.lane = t.lane AND h.id = t.id) = 0 AND (SELECT COUNT(*) FROM app."Events_held" o WHERE o.lane = t.lane AND o.id = t.id AND (o.message_id, o.sinks) < (t.message_id, t.sinks) AND o.state <> 'error' AND coalesce(o.available_at, '0001-01-01 00:00:00.000') <= strftime('%Y-%m-%d %H:%M:%f', 'now')) = 0 ORDER BY coalesce(t.available_at, '0001-01-01 00:00:00.000'), t.id LIMIT ?;
--   1: 10
DELETE FROM app."Events_held" WHERE (id, message_id, sinks) IN (
    SELECT t.id, t.message_id, t.sinks FROM app."Events_held" AS t WHERE t.state <> 'error' AND coalesce(t.available_at, '0001-01-01 00:00:00.000') <= strftime('%Y-%m-%d %H:%M:%f', 'now') AND EXISTS (SELECT 1 FROM app."Events" AS h WHERE h.id = t.id AND h.message_id = t.message_id AND h.sinks = t.sinks) ORDER BY coalesce(t.available_at, '0001-01-01 00:00:00.000'), t.id LIMIT ?);
--   1: 10

-- list
SELECT t.id, t.lane, t.message_id, t.topic, coalesce(t.message_key, ''), t.sinks,
    CAST(coalesce(t.payload, t.payload_text) AS BLOB), coalesce(t.headers, ''),
    t.available_at, t.expires_at, t.priority, t.attempts, t.crashes, t.created_at,
    (t.payload IS NOT NULL OR t.payload_text IS NOT NULL) + CASE WHEN t.available_at IS NULL THEN 0 ELSE 2 * (t.available_at > strftime('%Y-%m-%d %H:%M:%f', 'now')) END, CASE WHEN t.claimed_until > strftime('%Y-%m-%d %H:%M:%f', 'now') THEN 'claimed' WHEN t.available_at > strftime('%Y-%m-%d %H:%M:%f', 'now') THEN 'scheduled' ELSE 'pending' END, coalesce(t.last_error, ''), '', coalesce(t.claimed_by, ''), NULL
FROM app."Events" AS t NOT INDEXED
WHERE t.id > ?
UNION ALL SELECT t.id, t.lane, t.message_id, t.topic, coalesce(t.message_key, ''), t.sinks,
    CAST(coalesce(t.payload, t.payload_text) AS BLOB), coalesce(t.headers, ''),
    t.available_at, t.expires_at, t.priority, t.attempts, t.crashes, t.created_at,
    (t.payload IS NOT NULL OR t.payload_text IS NOT NULL) + CASE WHEN t.available_at IS NULL THEN 0 ELSE 2 * (t.available_at > strftime('%Y-%m-%d %H:%M:%f', 'now')) END + 4 * (t.state = 'retry') + 16 * t.holds, CASE WHEN t.state = 'scheduled' AND (t.available_at IS NULL OR t.available_at <= strftime('%Y-%m-%d %H:%M:%f', 'now')) THEN 'pending' ELSE t.state END, coalesce(t.last_error, ''), '', '', NULL
FROM app."Events_held" AS t NOT INDEXED
WHERE t.id > ?
UNION ALL SELECT t.id, t.lane, t.message_id, t.topic, coalesce(t.message_key, ''), t.sinks,
    CAST(coalesce(t.payload, t.payload_text) AS BLOB), coalesce(t.headers, ''),
    t.available_at, t.expires_at, t.priority, t.attempts, t.crashes, t.created_at,
    (t.payload IS NOT NULL OR t.payload_text IS NOT NULL) + CASE WHEN t.available_at IS NULL THEN 0 ELSE 2 * (t.available_at > strftime('%Y-%m-%d %H:%M:%f', 'now')) END, 'done', coalesce(t.last_error, ''), coalesce(t.receipt, ''), '', t.finished_at
FROM app."Events_done" AS t INDEXED BY "Events_done_id"
WHERE t.id > ?
ORDER BY 1 LIMIT ?;
--   1: 0
--   2: 0
--   3: 0
--   4: 10

-- list by filter
SELECT t.id, t.lane, t.message_id, t.topic, coalesce(t.message_key, ''), t.sinks,
    CAST(coalesce(t.payload, t.payload_text) AS BLOB), coalesce(t.headers, ''),
    t.available_at, t.expires_at, t.priority, t.attempts, t.crashes, t.created_at,
    (t.payload IS NOT NULL OR t.payload_text IS NOT NULL) + CASE WHEN t.available_at IS NULL THEN 0 ELSE 2 * (t.available_at > strftime('%Y-%m-%d %H:%M:%f', 'now')) END + 4 * (t.state = 'retry') + 16 * t.holds, CASE WHEN t.state = 'scheduled' AND (t.available_at IS NULL OR t.available_at <= strftime('%Y-%m-%d %H:%M:%f', 'now')) THEN 'pending' ELSE t.state END, coalesce(t.last_error, ''), '', '', NULL
FROM app."Events_held" AS t INDEXED BY "Events_held_error"
WHERE t.state = 'error' AND t.id > ? AND (t.id IN (SELECT value FROM json_each(?)) OR lower(t.message_id) IN (SELECT value FROM json_each(?))) AND t.topic = ? AND t.message_key = ? AND instr(',' || t.sinks || ',', ?) > 0 AND t.created_at >= ? AND instr(t.last_error, ?) > 0
ORDER BY 1 LIMIT ?;
--   1: 3
--   2: [1]
--   3: ["0197a3b4-0000-7abc-8def-0123456789ab"]
--   4: t
--   5: k
--   6: ,s,
--   7: 2026-01-31 00:00:00.000
--   8: refused
--   9: 10

-- list by filter, with a limit of rows to examine
SELECT t.id, t.lane, t.message_id, t.topic, coalesce(t.message_key, ''), t.sinks,
    NULL, coalesce(t.headers, ''),
    t.available_at, t.expires_at, t.priority, t.attempts, t.crashes, t.created_at,
    (t.payload IS NOT NULL OR t.payload_text IS NOT NULL) + CASE WHEN t.available_at IS NULL THEN 0 ELSE 2 * (t.available_at > strftime('%Y-%m-%d %H:%M:%f', 'now')) END, CASE WHEN t.claimed_until > strftime('%Y-%m-%d %H:%M:%f', 'now') THEN 'claimed' WHEN t.available_at > strftime('%Y-%m-%d %H:%M:%f', 'now') THEN 'scheduled' ELSE 'pending' END, coalesce(t.last_error, ''), '', coalesce(t.claimed_by, ''), NULL
FROM app."Events" AS t NOT INDEXED
WHERE t.id > ? AND t.topic = ?
    AND t.id <= coalesce((SELECT t.id FROM app."Events" AS t NOT INDEXED WHERE t.id > ? ORDER BY t.id LIMIT 1 OFFSET ?), 9223372036854775807)
UNION ALL SELECT t.id, t.lane, t.message_id, t.topic, coalesce(t.message_key, ''), t.sinks,
    NULL, coalesce(t.headers, ''),
    t.available_at, t.expires_at, t.priority, t.attempts, t.crashes, t.created_at,
    (t.payload IS NOT NULL OR t.payload_text IS NOT NULL) + CASE WHEN t.available_at IS NULL THEN 0 ELSE 2 * (t.available_at > strftime('%Y-%m-%d %H:%M:%f', 'now')) END + 4 * (t.state = 'retry') + 16 * t.holds, CASE WHEN t.state = 'scheduled' AND (t.available_at IS NULL OR t.available_at <= strftime('%Y-%m-%d %H:%M:%f', 'now')) THEN 'pending' ELSE t.state END, coalesce(t.last_error, ''), '', '', NULL
FROM app."Events_held" AS t NOT INDEXED
WHERE t.id > ? AND t.topic = ?
    AND t.id <= coalesce((SELECT t.id FROM app."Events_held" AS t NOT INDEXED WHERE t.id > ? ORDER BY t.id LIMIT 1 OFFSET ?), 9223372036854775807)
UNION ALL SELECT t.id, t.lane, t.message_id, t.topic, coalesce(t.message_key, ''), t.sinks,
    NULL, coalesce(t.headers, ''),
    t.available_at, t.expires_at, t.priority, t.attempts, t.crashes, t.created_at,
    (t.payload IS NOT NULL OR t.payload_text IS NOT NULL) + CASE WHEN t.available_at IS NULL THEN 0 ELSE 2 * (t.available_at > strftime('%Y-%m-%d %H:%M:%f', 'now')) END, 'done', coalesce(t.last_error, ''), coalesce(t.receipt, ''), '', t.finished_at
FROM app."Events_done" AS t INDEXED BY "Events_done_id"
WHERE t.id > ? AND t.topic = ?
    AND t.id <= coalesce((SELECT t.id FROM app."Events_done" AS t INDEXED BY "Events_done_id" WHERE t.id > ? ORDER BY t.id LIMIT 1 OFFSET ?), 9223372036854775807)
ORDER BY 1 LIMIT ?;
--   1: 3
--   2: t
--   3: 3
--   4: 20000
--   5: 3
--   6: t
--   7: 3
--   8: 20000
--   9: 3
--   10: t
--   11: 3
--   12: 20000
--   13: 10

-- list by a message's id, among few rows
SELECT t.id, t.lane, t.message_id, t.topic, coalesce(t.message_key, ''), t.sinks,
    CAST(coalesce(t.payload, t.payload_text) AS BLOB), coalesce(t.headers, ''),
    t.available_at, t.expires_at, t.priority, t.attempts, t.crashes, t.created_at,
    (t.payload IS NOT NULL OR t.payload_text IS NOT NULL) + CASE WHEN t.available_at IS NULL THEN 0 ELSE 2 * (t.available_at > strftime('%Y-%m-%d %H:%M:%f', 'now')) END, CASE WHEN t.claimed_until > strftime('%Y-%m-%d %H:%M:%f', 'now') THEN 'claimed' WHEN t.available_at > strftime('%Y-%m-%d %H:%M:%f', 'now') THEN 'scheduled' ELSE 'pending' END, coalesce(t.last_error, ''), '', coalesce(t.claimed_by, ''), NULL
FROM app."Events" AS t NOT INDEXED
WHERE t.id > ? AND t.id <= ? AND (t.id IN (SELECT value FROM json_each(?)) OR lower(t.message_id) IN (SELECT value FROM json_each(?)))
UNION ALL SELECT t.id, t.lane, t.message_id, t.topic, coalesce(t.message_key, ''), t.sinks,
    CAST(coalesce(t.payload, t.payload_text) AS BLOB), coalesce(t.headers, ''),
    t.available_at, t.expires_at, t.priority, t.attempts, t.crashes, t.created_at,
    (t.payload IS NOT NULL OR t.payload_text IS NOT NULL) + CASE WHEN t.available_at IS NULL THEN 0 ELSE 2 * (t.available_at > strftime('%Y-%m-%d %H:%M:%f', 'now')) END + 4 * (t.state = 'retry') + 16 * t.holds, CASE WHEN t.state = 'scheduled' AND (t.available_at IS NULL OR t.available_at <= strftime('%Y-%m-%d %H:%M:%f', 'now')) THEN 'pending' ELSE t.state END, coalesce(t.last_error, ''), '', '', NULL
FROM app."Events_held" AS t NOT INDEXED
WHERE t.id > ? AND t.id <= ? AND (t.id IN (SELECT value FROM json_each(?)) OR lower(t.message_id) IN (SELECT value FROM json_each(?)))
UNION ALL SELECT t.id, t.lane, t.message_id, t.topic, coalesce(t.message_key, ''), t.sinks,
    CAST(coalesce(t.payload, t.payload_text) AS BLOB), coalesce(t.headers, ''),
    t.available_at, t.expires_at, t.priority, t.attempts, t.crashes, t.created_at,
    (t.payload IS NOT NULL OR t.payload_text IS NOT NULL) + CASE WHEN t.available_at IS NULL THEN 0 ELSE 2 * (t.available_at > strftime('%Y-%m-%d %H:%M:%f', 'now')) END, 'done', coalesce(t.last_error, ''), coalesce(t.receipt, ''), '', t.finished_at
FROM app."Events_done" AS t INDEXED BY "Events_done_id"
WHERE t.id > ? AND t.id <= ? AND (t.id IN (SELECT value FROM json_each(?)) OR lower(t.message_id) IN (SELECT value FROM json_each(?)))
ORDER BY 1 LIMIT ?;
--   1: 0
--   2: 9
--   3: []
--   4: ["0197a3b4-0000-7abc-8def-0123456789ab"]
--   5: 0
--   6: 9
--   7: []
--   8: ["0197a3b4-0000-7abc-8def-0123456789ab"]
--   9: 0
--   10: 9
--   11: []
--   12: ["0197a3b4-0000-7abc-8def-0123456789ab"]
--   13: 10

-- requeue
UPDATE app."Events_held" SET state = CASE WHEN holds > 0 THEN 'retry' ELSE 'scheduled' END, holds = 0, attempts = 0, crashes = 0, available_at = strftime('%Y-%m-%d %H:%M:%f', 'now'),
    expires_at = CASE WHEN last_error LIKE 'expired: %' THEN '9999-01-01 00:00:00.000' ELSE expires_at END
WHERE (id, message_id, sinks) IN (SELECT t.id, t.message_id, t.sinks FROM app."Events_held" AS t WHERE t.state = 'error' AND t.id > ? AND (t.id IN (SELECT value FROM json_each(?)) OR lower(t.message_id) IN (SELECT value FROM json_each(?))) AND t.topic = ? AND t.message_key = ? AND instr(',' || t.sinks || ',', ?) > 0 AND t.created_at >= ? AND instr(t.last_error, ?) > 0 ORDER BY t.id LIMIT ?) RETURNING id;
--   1: 3
--   2: [1]
--   3: ["0197a3b4-0000-7abc-8def-0123456789ab"]
--   4: t
--   5: k
--   6: ,s,
--   7: 2026-01-31 00:00:00.000
--   8: refused
--   9: 10

-- list by a topic's prefix
SELECT t.id, t.lane, t.message_id, t.topic, coalesce(t.message_key, ''), t.sinks,
    CAST(coalesce(t.payload, t.payload_text) AS BLOB), coalesce(t.headers, ''),
    t.available_at, t.expires_at, t.priority, t.attempts, t.crashes, t.created_at,
    (t.payload IS NOT NULL OR t.payload_text IS NOT NULL) + CASE WHEN t.available_at IS NULL THEN 0 ELSE 2 * (t.available_at > strftime('%Y-%m-%d %H:%M:%f', 'now')) END, CASE WHEN t.claimed_until > strftime('%Y-%m-%d %H:%M:%f', 'now') THEN 'claimed' WHEN t.available_at > strftime('%Y-%m-%d %H:%M:%f', 'now') THEN 'scheduled' ELSE 'pending' END, coalesce(t.last_error, ''), '', coalesce(t.claimed_by, ''), NULL
FROM app."Events" AS t NOT INDEXED
WHERE t.id > ? AND instr(t.topic, ?) = 1
UNION ALL SELECT t.id, t.lane, t.message_id, t.topic, coalesce(t.message_key, ''), t.sinks,
    CAST(coalesce(t.payload, t.payload_text) AS BLOB), coalesce(t.headers, ''),
    t.available_at, t.expires_at, t.priority, t.attempts, t.crashes, t.created_at,
    (t.payload IS NOT NULL OR t.payload_text IS NOT NULL) + CASE WHEN t.available_at IS NULL THEN 0 ELSE 2 * (t.available_at > strftime('%Y-%m-%d %H:%M:%f', 'now')) END + 4 * (t.state = 'retry') + 16 * t.holds, CASE WHEN t.state = 'scheduled' AND (t.available_at IS NULL OR t.available_at <= strftime('%Y-%m-%d %H:%M:%f', 'now')) THEN 'pending' ELSE t.state END, coalesce(t.last_error, ''), '', '', NULL
FROM app."Events_held" AS t NOT INDEXED
WHERE t.id > ? AND instr(t.topic, ?) = 1
UNION ALL SELECT t.id, t.lane, t.message_id, t.topic, coalesce(t.message_key, ''), t.sinks,
    CAST(coalesce(t.payload, t.payload_text) AS BLOB), coalesce(t.headers, ''),
    t.available_at, t.expires_at, t.priority, t.attempts, t.crashes, t.created_at,
    (t.payload IS NOT NULL OR t.payload_text IS NOT NULL) + CASE WHEN t.available_at IS NULL THEN 0 ELSE 2 * (t.available_at > strftime('%Y-%m-%d %H:%M:%f', 'now')) END, 'done', coalesce(t.last_error, ''), coalesce(t.receipt, ''), '', t.finished_at
FROM app."Events_done" AS t INDEXED BY "Events_done_id"
WHERE t.id > ? AND instr(t.topic, ?) = 1
ORDER BY 1 LIMIT ?;
--   1: 0
--   2: orders.
--   3: 0
--   4: orders.
--   5: 0
--   6: orders.
--   7: 10

-- redirect
UPDATE app."Events_held" SET state = CASE WHEN holds > 0 THEN 'retry' ELSE 'scheduled' END, holds = 0, attempts = 0, crashes = 0, available_at = strftime('%Y-%m-%d %H:%M:%f', 'now'),
    expires_at = CASE WHEN last_error LIKE 'expired: %' THEN '9999-01-01 00:00:00.000' ELSE expires_at END, sinks = ?
WHERE (id, message_id, sinks) IN (SELECT t.id, t.message_id, t.sinks FROM app."Events_held" AS t WHERE t.state = 'error' AND t.holds = 0 AND NOT EXISTS (SELECT 1 FROM app."Events_held" o WHERE o.lane = t.lane AND o.id = t.id AND o.message_id = t.message_id AND o.sinks <> t.sinks) AND NOT EXISTS (SELECT 1 FROM app."Events" o WHERE o.lane = t.lane AND o.id = t.id AND o.message_id = t.message_id) AND t.id > ? AND t.topic = ? ORDER BY t.id LIMIT ?) RETURNING id;
--   1: other
--   2: 0
--   3: t
--   4: 10

-- redirect rows in the state retry
UPDATE app."Events_held" SET attempts = 0, crashes = 0, available_at = NULL, sinks = ?
WHERE (id, message_id, sinks) IN (SELECT t.id, t.message_id, t.sinks FROM app."Events_held" AS t WHERE t.state = 'retry' AND t.holds = 0 AND t.sinks NOT LIKE '%,%' AND NOT EXISTS (SELECT 1 FROM app."Events_held" o WHERE o.lane = t.lane AND o.id = t.id AND o.message_id = t.message_id AND o.sinks <> t.sinks) AND NOT EXISTS (SELECT 1 FROM app."Events" o WHERE o.lane = t.lane AND o.id = t.id AND o.message_id = t.message_id) AND t.id > ? AND t.topic = ? AND instr(',' || t.sinks || ',', ?) > 0 ORDER BY t.id LIMIT ?) RETURNING id;
--   1: other
--   2: 0
--   3: t
--   4: ,s,
--   5: 10

-- redirect rows in the state scheduled
UPDATE app."Events_held" SET attempts = 0, crashes = 0, sinks = ?
WHERE (id, message_id, sinks) IN (SELECT t.id, t.message_id, t.sinks FROM app."Events_held" AS t WHERE t.state = 'scheduled' AND t.holds = 0 AND t.sinks NOT LIKE '%,%' AND NOT EXISTS (SELECT 1 FROM app."Events_held" o WHERE o.lane = t.lane AND o.id = t.id AND o.message_id = t.message_id AND o.sinks <> t.sinks) AND NOT EXISTS (SELECT 1 FROM app."Events" o WHERE o.lane = t.lane AND o.id = t.id AND o.message_id = t.message_id) AND t.id > ? AND t.topic = ? AND instr(',' || t.sinks || ',', ?) > 0 ORDER BY t.id LIMIT ?) RETURNING id;
--   1: other
--   2: 0
--   3: t
--   4: ,s,
--   5: 10

-- redirect rows in the state pending
DELETE FROM app."Events_lanes" WHERE lane < 0;
SELECT t.id FROM app."Events" AS t WHERE true AND (t.claimed_until IS NULL OR t.claimed_until < strftime('%Y-%m-%d %H:%M:%f', 'now')) AND t.sinks NOT LIKE '%,%' AND NOT EXISTS (SELECT 1 FROM app."Events_held" o WHERE o.lane = t.lane AND o.id = t.id AND o.message_id = t.message_id) AND t.id > ? AND t.topic = ? AND instr(',' || t.sinks || ',', ?) > 0 ORDER BY t.id LIMIT ?;
--   1: 0
--   2: t
--   3: ,s,
--   4: 10
INSERT INTO app."Events_held" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds)
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, ?, 0, 0, t.available_at, t.last_error, t.attempt_log, 'scheduled', 0 FROM app."Events" AS t WHERE t.id IN (SELECT value FROM json_each(?));
--   1: other
--   2: []
DELETE FROM app."Events" AS t WHERE t.id IN (SELECT value FROM json_each(?));
--   1: []

-- ask for a skip
UPDATE app."Events_held" SET state = 'retry', holds = 2, available_at = strftime('%Y-%m-%d %H:%M:%f', 'now')
WHERE (id, message_id, sinks) IN (SELECT t.id, t.message_id, t.sinks FROM app."Events_held" AS t WHERE t.state = 'error' AND t.holds = 1 AND t.id > ? AND (t.id IN (SELECT value FROM json_each(?)) OR lower(t.message_id) IN (SELECT value FROM json_each(?))) AND t.topic = ? AND t.message_key = ? AND instr(',' || t.sinks || ',', ?) > 0 AND t.created_at >= ? AND instr(t.last_error, ?) > 0 ORDER BY t.id LIMIT ?) RETURNING id;
--   1: 3
--   2: [1]
--   3: ["0197a3b4-0000-7abc-8def-0123456789ab"]
--   4: t
--   5: k
--   6: ,s,
--   7: 2026-01-31 00:00:00.000
--   8: refused
--   9: 10

-- ask for a discard
UPDATE app."Events_held" SET state = 'retry', holds = 3, available_at = strftime('%Y-%m-%d %H:%M:%f', 'now')
WHERE (id, message_id, sinks) IN (SELECT t.id, t.message_id, t.sinks FROM app."Events_held" AS t WHERE t.state = 'error' AND t.holds = 1 AND t.id > ? AND (t.id IN (SELECT value FROM json_each(?)) OR lower(t.message_id) IN (SELECT value FROM json_each(?))) AND t.topic = ? AND t.message_key = ? AND instr(',' || t.sinks || ',', ?) > 0 AND t.created_at >= ? AND instr(t.last_error, ?) > 0 ORDER BY t.id LIMIT ?) RETURNING id;
--   1: 3
--   2: [1]
--   3: ["0197a3b4-0000-7abc-8def-0123456789ab"]
--   4: t
--   5: k
--   6: ,s,
--   7: 2026-01-31 00:00:00.000
--   8: refused
--   9: 10

-- discard
DELETE FROM app."Events_held" WHERE (id, message_id, sinks) IN (SELECT t.id, t.message_id, t.sinks FROM app."Events_held" AS t WHERE t.state = 'error' AND t.holds = 0 AND t.id > ? AND (t.id IN (SELECT value FROM json_each(?)) OR lower(t.message_id) IN (SELECT value FROM json_each(?))) AND t.topic = ? AND t.message_key = ? AND instr(',' || t.sinks || ',', ?) > 0 AND t.created_at >= ? AND instr(t.last_error, ?) > 0 ORDER BY t.id LIMIT ?) RETURNING id;
--   1: 3
--   2: [1]
--   3: ["0197a3b4-0000-7abc-8def-0123456789ab"]
--   4: t
--   5: k
--   6: ,s,
--   7: 2026-01-31 00:00:00.000
--   8: refused
--   9: 10

-- parked
SELECT t.id, t.lane, t.topic, t.message_key, t.sinks, t.holds, substr(t.last_error, 1, 200)
FROM app."Events_held" t
WHERE t.state = 'error' AND t.id > ? AND (t.id IN (SELECT value FROM json_each(?)) OR lower(t.message_id) IN (SELECT value FROM json_each(?))) AND t.topic = ? AND t.message_key = ? AND instr(',' || t.sinks || ',', ?) > 0 AND t.created_at >= ? AND instr(t.last_error, ?) > 0
ORDER BY t.id;
--   1: 3
--   2: [1]
--   3: ["0197a3b4-0000-7abc-8def-0123456789ab"]
--   4: t
--   5: k
--   6: ,s,
--   7: 2026-01-31 00:00:00.000
--   8: refused

-- parked, and overtaken rows
SELECT min(t.id) FROM app."Events_held" t
WHERE t.state = 'error' AND t.id > ? AND t.topic = ?;
--   1: 0
--   2: t
SELECT d.message_key, max(d.id)
FROM app."Events_done" d
WHERE d.id > 15 AND d.id <= 1015
    AND d.message_key IN (SELECT t.message_key FROM app."Events_held" t
WHERE t.state = 'error' AND t.id > ? AND t.topic = ?)
    AND (d.headers IS NULL OR d.headers NOT LIKE '%"rowrelay-dead-letter-%' AND d.headers NOT LIKE '%"rowrelay-replayed"%')
GROUP BY d.message_key;
--   1: 0
--   2: t
SELECT t.id, t.lane, t.topic, t.message_key, t.sinks, t.holds, substr(t.last_error, 1, 200)
FROM app."Events_held" t
WHERE t.state = 'error' AND t.id > ? AND t.topic = ?
ORDER BY t.id;
--   1: 0
--   2: t

-- replays
SELECT substr(name, 8), value FROM app."Events_settings" WHERE name LIKE 'replay.%' ORDER BY name;

-- last delivered
SELECT coalesce(max(id), 0) FROM app."Events_done";

-- controls
SELECT kind, name, coalesce(rate, 0), ends_at, made_by, made_at, reason FROM app."Events_controls" WHERE ends_at IS NULL OR ends_at > strftime('%Y-%m-%d %H:%M:%f', 'now') ORDER BY kind, name;

-- set a control
DELETE FROM app."Events_controls" WHERE ends_at <= strftime('%Y-%m-%d %H:%M:%f', 'now');
DELETE FROM app."Events_controls" WHERE kind = ? AND name = ?;
--   1: sink
--   2: kafka
INSERT INTO app."Events_controls" (kind, name, rate, ends_at, made_by, made_at, reason)
VALUES (?, ?, ?, strftime('%Y-%m-%d %H:%M:%f', 'now', (? / 1000000.0) || ' seconds'), ?, strftime('%Y-%m-%d %H:%M:%f', 'now'), ?);
--   1: sink
--   2: kafka
--   3: 0
--   4: 60000000
--   5: ann@host
--   6: why

-- lift a control
DELETE FROM app."Events_controls" WHERE ends_at <= strftime('%Y-%m-%d %H:%M:%f', 'now');
DELETE FROM app."Events_controls" WHERE kind = ? AND name = ?;
--   1: sink
--   2: kafka

-- begin an action
INSERT INTO app."Events_actions" (id, made_by, action, target, reason, made_at) VALUES (?, ?, ?, ?, ?, strftime('%Y-%m-%d %H:%M:%f', 'now'));
--   1: 0197a3b4-ffff-7abc-8def-0123456789ab
--   2: ann@host
--   3: resume
--   4: sink kafka
--   5: why

-- end an action
UPDATE app."Events_actions" SET changed = ? WHERE id = ?;
--   1: 1
--   2: 0197a3b4-ffff-7abc-8def-0123456789ab

-- actions
SELECT id, made_at, made_by, action, target, reason, coalesce(changed, -1) FROM app."Events_actions" ORDER BY made_at DESC, id DESC;

-- statistics
ANALYZE;

-- old done rows
DELETE FROM app."Events_done" WHERE rowid IN (SELECT rowid FROM app."Events_done" WHERE finished_at < datetime('now', '-1 day') LIMIT 10000);

-- delivered
SELECT t.id, t.lane, t.message_id, t.topic, t.headers, t.sinks
FROM app."Events_done" AS t INDEXED BY "Events_done_id"
WHERE t.id > ? AND (t.id IN (SELECT value FROM json_each(?)) OR lower(t.message_id) IN (SELECT value FROM json_each(?))) AND t.topic = ? AND t.message_key = ? AND instr(',' || t.sinks || ',', ?) > 0 AND t.finished_at >= ? AND t.finished_at < ? AND instr(t.last_error, ?) > 0 AND t.id <= ?
ORDER BY t.id LIMIT ?;
--   1: 3
--   2: [1]
--   3: ["0197a3b4-0000-7abc-8def-0123456789ab"]
--   4: t
--   5: k
--   6: ,s,
--   7: 2026-01-31 00:00:00.000
--   8: 2026-02-01 00:00:00.000
--   9: refused
--   10: 9
--   11: 10

-- last delivered rows
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.sinks, t.attempts, t.created_at, t.finished_at
FROM app."Events_done" AS t INDEXED BY "Events_done_finished"
WHERE t.id > ? AND t.finished_at >= ?
ORDER BY t.finished_at DESC LIMIT ?;
--   1: 0
--   2: 2026-01-31 00:00:00.000
--   3: 200

-- begin a replay
DELETE FROM app."Events_lanes" WHERE lane < 0;
INSERT INTO app."Events_settings" (name, value) VALUES ('replay.' || ?, ?) ON CONFLICT (name) DO NOTHING;
--   1: r
--   2: {}

-- replay
DELETE FROM app."Events_lanes" WHERE lane < 0;
INSERT INTO app."Events" (message_id, topic, message_key, payload, payload_text, headers, priority, expires_at, sinks)
SELECT g.copy_id, g.copy_topic, t.message_key, t.payload, t.payload_text, g.copy_headers, t.priority, CASE WHEN t.expires_at > strftime('%Y-%m-%d %H:%M:%f', 'now') THEN t.expires_at END, g.copy_sinks
FROM (SELECT json_extract(j.value, '$[0]') AS id, json_extract(j.value, '$[1]') AS lane, json_extract(j.value, '$[2]') AS message_id, json_extract(j.value, '$[3]') AS sinks, json_extract(j.value, '$[4]') AS holds,
    json_extract(j.value, '$[5]') AS copy_id, json_extract(j.value, '$[6]') AS copy_topic, json_extract(j.value, '$[7]') AS copy_headers, json_extract(j.value, '$[8]') AS copy_sinks, json_extract(j.value, '$[9]') AS read_at FROM json_each(?) AS j) AS g CROSS JOIN app."Events_done" AS t INDEXED BY "Events_done_id" ON t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id
ORDER BY t.id
RETURNING lane, id;
--   1: [[5,1,"0197a3b4-0000-7abc-8def-000000000005","",0,"0197a3b4-0000-7abc-8def-000000000005","t","{\"n\"
UPDATE app."Events_settings" SET value = ? WHERE name = 'replay.' || ? AND value = ?;
--   1: {"n":1}
--   2: r
--   3: {}

-- count pending
SELECT count(*) FROM app."Events" t WHERE (t.lane = 1 AND t.id IN (15,17)
    OR t.lane = 2 AND t.id IN (16));

-- status
SELECT value FROM app."Events_settings" WHERE name = 'claim';
SELECT r.name, r.host, r.version, r.claim, r.since, r.last_heartbeat, r.until >= strftime('%Y-%m-%d %H:%M:%f', 'now'),
    (SELECT count(*) FROM app."Events_lanes" AS l WHERE l.owner = r.name AND l.until >= strftime('%Y-%m-%d %H:%M:%f', 'now')), r.setup
FROM app."Events_relays" AS r ORDER BY r.name;
SELECT count(*) FROM app."Events_lanes" WHERE owner IS NOT NULL AND until >= strftime('%Y-%m-%d %H:%M:%f', 'now');
SELECT topic, count(*) FROM (
    SELECT topic FROM app."Events" WHERE coalesce(available_at <= strftime('%Y-%m-%d %H:%M:%f', 'now'), 1) AND coalesce(claimed_until <= strftime('%Y-%m-%d %H:%M:%f', 'now'), 1)
    UNION ALL SELECT topic FROM app."Events_held" AS t WHERE t.state <> 'error' AND coalesce(t.available_at, '0001-01-01 00:00:00.000') <= strftime('%Y-%m-%d %H:%M:%f', 'now') AND t.state = 'scheduled'
    LIMIT ?) GROUP BY topic;
--   1: 1000
SELECT max(0, CAST(round(coalesce((julianday('now') - julianday(min(since))) * 86400000, 0)) AS INTEGER)) FROM (
    SELECT max(created_at, coalesce(available_at, created_at)) AS since FROM (
        SELECT h.created_at, h.available_at, h.claimed_until FROM app."Events" AS h ORDER BY h.id LIMIT ?)
    WHERE coalesce(available_at <= strftime('%Y-%m-%d %H:%M:%f', 'now'), 1) AND coalesce(claimed_until <= strftime('%Y-%m-%d %H:%M:%f', 'now'), 1)
    UNION ALL SELECT max(t.created_at, coalesce(t.available_at, t.created_at)) FROM app."Events_held" AS t
    WHERE t.state <> 'error' AND coalesce(t.available_at, '0001-01-01 00:00:00.000') <= strftime('%Y-%m-%d %H:%M:%f', 'now') AND t.state = 'scheduled');
--   1: 6400
SELECT count(*), CAST(round(coalesce((julianday('now') - julianday(min(available_at))) * 86400000, 0)) AS INTEGER) FROM app."Events_held" INDEXED BY "Events_held_retry" WHERE (state = 'retry' OR holds > 0) AND state = 'error' AND holds = 1;
SELECT 'hot', state, count(*) FROM (
    SELECT CASE WHEN claimed_until > strftime('%Y-%m-%d %H:%M:%f', 'now') THEN 'claimed' WHEN available_at > strftime('%Y-%m-%d %H:%M:%f', 'now') THEN 'scheduled' ELSE 'pending' END AS state FROM app."Events" LIMIT ?
) GROUP BY state
UNION ALL SELECT 'held', state, count(*) FROM (
    SELECT CASE WHEN state = 'scheduled' AND coalesce(available_at <= strftime('%Y-%m-%d %H:%M:%f', 'now'), 1) THEN 'pending' ELSE state END AS state FROM app."Events_held" WHERE state <> 'error' LIMIT ?
) GROUP BY state
UNION ALL SELECT 'error', 'error', count(*) FROM (SELECT 1 FROM app."Events_held" WHERE state = 'error' LIMIT ?)
UNION ALL SELECT 'done', 'done', count(*) FROM (SELECT 1 FROM app."Events_done" LIMIT ?);
--   1: 50000
--   2: 50000
--   3: 50000
--   4: 50000
SELECT max(0, CAST(round(coalesce((julianday('now') - julianday(min(created_at))) * 86400000, 0)) AS INTEGER)) FROM app."Events_held" WHERE state = 'retry';

