-- claim mode
SELECT value FROM app."Events_settings" WHERE name = 'claim';

-- set the claim mode
UPDATE app."Events_settings" SET value = value WHERE name = 'schema';
SELECT value FROM app."Events_settings" WHERE name = 'claim' FOR UPDATE;
SELECT name FROM app."Events_relays" WHERE until >= SYS_EXTRACT_UTC(SYSTIMESTAMP) AND claim <> :1 ORDER BY name;
--   1: lanes
MERGE INTO app."Events_settings" s USING (SELECT 'claim' AS name, :1 AS value FROM dual) g ON (s.name = g.name)
WHEN MATCHED THEN UPDATE SET s.value = g.value
WHEN NOT MATCHED THEN INSERT (name, value) VALUES (g.name, g.value);
--   1: lanes
BEGIN
    FOR locked IN (
    SELECT lock_id FROM app."Events_locks" WHERE lock_id < 1000 ORDER BY lock_id FOR UPDATE) LOOP NULL; END LOOP;
END;
/
UPDATE app."Events_lanes" SET owner = NULL, until = NULL, fence = fence + 1, marks = NULL, journal = NULL, crashes = 0;
UPDATE app."Events" SET claimed_by = NULL, claim_token = NULL, claimed_until = NULL, claim_stamp = NULL WHERE claimed_until IS NOT NULL;
UPDATE app."Events_held" SET state = 'error', holds = 0 WHERE holds > 0;
-- a statement of the dialect, about the indexes for claiming by rows
-- a statement of the dialect, about the indexes for claiming by rows
-- a statement of the dialect, about the indexes for claiming by rows
-- a statement of the dialect, about the indexes for claiming by rows

-- heartbeat
BEGIN
    FOR locked IN (
    SELECT value FROM app."Events_settings" WHERE name = 'claim' FOR UPDATE) LOOP NULL; END LOOP;
END;
/
MERGE INTO app."Events_relays" r USING (
    SELECT :1 AS name, :2 AS host, :3 AS version, :4 AS claim,
        SYS_EXTRACT_UTC(SYSTIMESTAMP) AS beaten, SYS_EXTRACT_UTC(SYSTIMESTAMP) + NUMTODSINTERVAL(:5 / 1000000, 'SECOND') AS until, :6 AS setup
    FROM dual WHERE NOT EXISTS (SELECT 1 FROM app."Events_settings" WHERE name = 'claim' AND value <> :7)) g ON (r.name = g.name)
WHEN MATCHED THEN UPDATE SET r.host = g.host, r.version = g.version, r.claim = g.claim,
    r.since = CASE WHEN r.until < g.beaten THEN g.beaten ELSE r.since END, r.last_heartbeat = g.beaten, r.until = g.until, r.setup = g.setup
WHEN NOT MATCHED THEN INSERT (name, host, version, claim, since, last_heartbeat, until, setup)
    VALUES (g.name, g.host, g.version, g.claim, g.beaten, g.beaten, g.until, g.setup);
--   1: r
--   2: h
--   3: 1
--   4: lanes
--   5: 15000000
--   6: 
--   7: lanes
SELECT name, 0, SYS_CONTEXT('USERENV', 'DB_UNIQUE_NAME') || '/' || SYS_CONTEXT('USERENV', 'CON_NAME') FROM app."Events_relays" WHERE name = :1 AND NOT EXISTS (SELECT 1 FROM app."Events_settings" WHERE name = 'claim' AND value <> :2);
--   1: r
--   2: lanes
SELECT name, setup, TO_CHAR(SYS_EXTRACT_UTC(SYSTIMESTAMP), 'YYYY-MM-DD HH24:MI:SS.FF6') FROM app."Events_relays" WHERE until >= SYS_EXTRACT_UTC(SYSTIMESTAMP) ORDER BY name;

-- end leases
UPDATE app."Events_lanes" SET until = SYS_EXTRACT_UTC(SYSTIMESTAMP) - INTERVAL '1' SECOND, fence = fence + 1 WHERE owner = :1;
--   1: r

-- end claims
UPDATE app."Events" SET claimed_until = SYS_EXTRACT_UTC(SYSTIMESTAMP) - INTERVAL '1' SECOND WHERE claimed_until >= SYS_EXTRACT_UTC(SYSTIMESTAMP) AND claimed_by = :1;
--   1: r

-- deregister
DELETE FROM app."Events_relays" WHERE name = :1;
--   1: r

-- check
SELECT n.need, 'on', n.name FROM (
    SELECT 'SELECT' AS need, 'Events' AS name FROM dual
    UNION ALL SELECT 'INSERT' AS need, 'Events' AS name FROM dual
    UNION ALL SELECT 'UPDATE' AS need, 'Events' AS name FROM dual
    UNION ALL SELECT 'DELETE' AS need, 'Events' AS name FROM dual
    UNION ALL SELECT 'SELECT' AS need, 'Events_held' AS name FROM dual
    UNION ALL SELECT 'INSERT' AS need, 'Events_held' AS name FROM dual
    UNION ALL SELECT 'UPDATE' AS need, 'Events_held' AS name FROM dual
    UNION ALL SELECT 'DELETE' AS need, 'Events_held' AS name FROM dual
    UNION ALL SELECT 'SELECT' AS need, 'Events_done' AS name FROM dual
    UNION ALL SELECT 'INSERT' AS need, 'Events_done' AS name FROM dual
    UNION ALL SELECT 'DELETE' AS need, 'Events_done' AS name FROM dual
    UNION ALL SELECT 'SELECT' AS need, 'Events_ids' AS name FROM dual
    UNION ALL SELECT 'DELETE' AS need, 'Events_ids' AS name FROM dual
    UNION ALL SELECT 'SELECT' AS need, 'Events_lanes' AS name FROM dual
    UNION ALL SELECT 'UPDATE' AS need, 'Events_lanes' AS name FROM dual
    UNION ALL SELECT 'SELECT' AS need, 'Events_relays' AS name FROM dual
    UNION ALL SELECT 'INSERT' AS need, 'Events_relays' AS name FROM dual
    UNION ALL SELECT 'UPDATE' AS need, 'Events_relays' AS name FROM dual
    UNION ALL SELECT 'DELETE' AS need, 'Events_relays' AS name FROM dual
    UNION ALL SELECT 'SELECT' AS need, 'Events_settings' AS name FROM dual
    UNION ALL SELECT 'INSERT' AS need, 'Events_settings' AS name FROM dual
    UNION ALL SELECT 'UPDATE' AS need, 'Events_settings' AS name FROM dual
    UNION ALL SELECT 'SELECT' AS need, 'Events_controls' AS name FROM dual
    UNION ALL SELECT 'INSERT' AS need, 'Events_controls' AS name FROM dual
    UNION ALL SELECT 'DELETE' AS need, 'Events_controls' AS name FROM dual
    UNION ALL SELECT 'SELECT' AS need, 'Events_actions' AS name FROM dual
    UNION ALL SELECT 'INSERT' AS need, 'Events_actions' AS name FROM dual
    UNION ALL SELECT 'UPDATE' AS need, 'Events_actions' AS name FROM dual
    UNION ALL SELECT 'SELECT' AS need, 'Events_messages' AS name FROM dual
    UNION ALL SELECT 'SELECT' AS need, 'Events_locks' AS name FROM dual) n
WHERE 'APP' <> SYS_CONTEXT('USERENV', 'CURRENT_USER')
    AND NOT EXISTS (SELECT 1 FROM all_tab_privs p WHERE p.table_schema = 'APP' AND p.table_name = n.name AND p.privilege = n.need)
    AND NOT EXISTS (SELECT 1 FROM session_privs s WHERE s.privilege = n.need || ' ANY TABLE');
WITH FUNCTION as_bytes(text IN CLOB) RETURN BLOB IS
    bytes BLOB;
    bytes_at INTEGER := 1;
    text_at INTEGER := 1;
    lang INTEGER := DBMS_LOB.DEFAULT_LANG_CTX;
    warning INTEGER;
BEGIN
    DBMS_LOB.CREATETEMPORARY(bytes, TRUE, DBMS_LOB.SESSION);
    IF DBMS_LOB.GETLENGTH(text) > 0 THEN
        DBMS_LOB.CONVERTTOBLOB(bytes, text, DBMS_LOB.LOBMAXSIZE, bytes_at, text_at, NLS_CHARSET_ID('AL32UTF8'), lang, warning);
    END IF;
    RETURN bytes;
END;
SELECT t.line, t.id, t.lane, t.message_id, t.topic, t.message_key, t.sinks,
    CASE WHEN t.payload_text IS NULL THEN t.payload ELSE as_bytes(t.payload_text) END, t.headers,
    TO_CHAR(t.available_at, 'YYYY-MM-DD HH24:MI:SS.FF6'), TO_CHAR(t.expires_at, 'YYYY-MM-DD HH24:MI:SS.FF6'), t.priority, t.attempts, t.crashes, TO_CHAR(t.created_at, 'YYYY-MM-DD HH24:MI:SS.FF6'),
    CASE WHEN t.payload IS NULL AND t.payload_text IS NULL THEN 0 ELSE 1 END +
    65536 * CASE WHEN t.payload_text IS NULL THEN NVL(DBMS_LOB.GETLENGTH(t.payload), 0) ELSE DBMS_LOB.GETLENGTH(as_bytes(t.payload_text)) END + CASE WHEN t.available_at > SYS_EXTRACT_UTC(SYSTIMESTAMP) THEN 2 ELSE 0 END
FROM (SELECT r.*, ROWNUM AS n FROM (
SELECT -1 AS place, GREATEST(NVL((SELECT MAX(id) FROM app."Events"), 0), NVL((SELECT MAX(id) FROM app."Events_held"), 0), NVL((SELECT MAX(id) FROM app."Events_done"), 0)) || ' 0 0 0 ' || SYS_CONTEXT('USERENV', 'DB_UNIQUE_NAME') || '/' || SYS_CONTEXT('USERENV', 'CON_NAME') AS line,
    0 AS id, 0 AS lane, NULL AS message_id, NULL AS topic, NULL AS message_key, NULL AS sinks, EMPTY_BLOB() AS payload, TO_CLOB(NULL) AS payload_text, TO_CLOB(NULL) AS headers,
    CAST(NULL AS TIMESTAMP(6)) AS available_at, CAST(NULL AS TIMESTAMP(6)) AS expires_at, 0 AS priority, 0 AS attempts, 0 AS crashes, CAST(NULL AS TIMESTAMP(6)) AS created_at FROM dual
UNION ALL
SELECT t.place, NULL, t.id, t.lane, t.message_id, t.topic, t.message_key, t.sinks, t.payload, t.payload_text, t.headers, t.available_at, t.expires_at, t.priority, t.attempts, t.crashes, t.created_at
FROM (SELECT t.*, p.place FROM (SELECT 0 AS place, h.ROWID AS rid FROM app."Events" h WHERE 1 = 0) p
    JOIN app."Events" t ON t.ROWID = p.rid) t
ORDER BY place, id) r) t;
SELECT n.name FROM (SELECT 'GV_$TRANSACTION' AS name FROM dual UNION ALL SELECT 'V_$DATABASE' FROM dual) n
WHERE NOT EXISTS (SELECT 1 FROM all_objects o WHERE o.owner = 'SYS' AND o.object_name = n.name);
SELECT trigger_name, status FROM all_triggers WHERE owner = 'APP' AND trigger_name = 'Events_begin' AND status <> 'ENABLED';

-- acquire
DECLARE
    this_transaction VARCHAR2(64) := DBMS_TRANSACTION.LOCAL_TRANSACTION_ID(TRUE);
    wanted NUMBER := :1;
    TYPE numbers IS TABLE OF NUMBER INDEX BY PLS_INTEGER;
    locked numbers;
    taken EXCEPTION;
    PRAGMA EXCEPTION_INIT(taken, -54);
BEGIN
    FOR candidate IN (SELECT lane FROM app."Events_lanes" WHERE (owner IS NULL OR until < SYS_EXTRACT_UTC(SYSTIMESTAMP))
        ORDER BY ORA_HASH(lane || TO_CHAR(SYSTIMESTAMP, 'SSSSSFF6') || :2)) LOOP
        EXIT WHEN wanted <= 0;
        BEGIN
            SELECT lock_id BULK COLLECT INTO locked FROM app."Events_locks"
            WHERE lock_id BETWEEN 8 * candidate.lane AND 8 * candidate.lane + 8 - 1 FOR UPDATE NOWAIT;
            SELECT lane BULK COLLECT INTO locked FROM app."Events_lanes" WHERE lane = candidate.lane FOR UPDATE NOWAIT;
            UPDATE app."Events_lanes" SET owner = :3, fence = fence + :4, until = SYS_EXTRACT_UTC(SYSTIMESTAMP) + NUMTODSINTERVAL(:5 / 1000000, 'SECOND'),
                crashes = CASE WHEN owner IS NULL THEN crashes ELSE crashes + 1 END, stamp = this_transaction
            WHERE lane = candidate.lane AND (owner IS NULL OR until < SYS_EXTRACT_UTC(SYSTIMESTAMP));
            wanted := wanted - SQL%ROWCOUNT;
        EXCEPTION WHEN taken THEN NULL;
        END;
    END LOOP;
END;
/
--   1: 5
--   2: r
--   3: r
--   4: 300
--   5: 15000000
SELECT lane, fence, marks, crashes, journal, 0 FROM app."Events_lanes" WHERE stamp = (SELECT DBMS_TRANSACTION.LOCAL_TRANSACTION_ID FROM dual) ORDER BY lane;

-- renew
DECLARE
    this_transaction VARCHAR2(64) := DBMS_TRANSACTION.LOCAL_TRANSACTION_ID(TRUE);
BEGIN
    UPDATE app."Events_lanes" SET until = SYS_EXTRACT_UTC(SYSTIMESTAMP) + NUMTODSINTERVAL(:1 / 1000000, 'SECOND'), marks = CASE WHEN SYS_CONTEXT('USERENV', 'DB_UNIQUE_NAME') || '/' || SYS_CONTEXT('USERENV', 'CON_NAME') = :2 THEN :3 ELSE marks END, crashes = 0, journal = NULL, stamp = this_transaction
    WHERE lane = :4 AND fence = :5 AND owner = :6;
    UPDATE app."Events_lanes" SET until = SYS_EXTRACT_UTC(SYSTIMESTAMP) + NUMTODSINTERVAL(:7 / 1000000, 'SECOND'), marks = CASE WHEN SYS_CONTEXT('USERENV', 'DB_UNIQUE_NAME') || '/' || SYS_CONTEXT('USERENV', 'CON_NAME') = :8 THEN :9 ELSE marks END, stamp = this_transaction
    WHERE lane = :10 AND fence = :11 AND owner = :12;
END;
/
--   1: 15000000
--   2: e
--   3: {"main":5}
--   4: 1
--   5: 7
--   6: r
--   7: 15000000
--   8: e
--   9: 
--   10: 2
--   11: 8
--   12: r
SELECT lane, fence, 0 FROM app."Events_lanes" WHERE stamp = (SELECT DBMS_TRANSACTION.LOCAL_TRANSACTION_ID FROM dual) ORDER BY lane;

-- release
DECLARE
    this_transaction VARCHAR2(64) := DBMS_TRANSACTION.LOCAL_TRANSACTION_ID(TRUE);
BEGIN
    UPDATE app."Events_lanes" SET owner = NULL, until = NULL, marks = CASE WHEN SYS_CONTEXT('USERENV', 'DB_UNIQUE_NAME') || '/' || SYS_CONTEXT('USERENV', 'CON_NAME') = :1 THEN :2 ELSE marks END, journal = NULL, crashes = 0, stamp = this_transaction
    WHERE lane = :3 AND fence = :4 AND owner = :5;
    UPDATE app."Events_lanes" SET owner = NULL, until = NULL, marks = CASE WHEN SYS_CONTEXT('USERENV', 'DB_UNIQUE_NAME') || '/' || SYS_CONTEXT('USERENV', 'CON_NAME') = :6 THEN :7 ELSE marks END, journal = NULL, crashes = 0, stamp = this_transaction
    WHERE lane = :8 AND fence = :9 AND owner = :10;
END;
/
--   1: e
--   2: {"main":5}
--   3: 1
--   4: 7
--   5: r
--   6: e
--   7: 
--   8: 2
--   9: 8
--   10: r
SELECT lane, fence, 0 FROM app."Events_lanes" WHERE stamp = (SELECT DBMS_TRANSACTION.LOCAL_TRANSACTION_ID FROM dual) ORDER BY lane;

-- write the journal
DECLARE
    this_transaction VARCHAR2(64) := DBMS_TRANSACTION.LOCAL_TRANSACTION_ID(TRUE);
BEGIN
    UPDATE app."Events_lanes" SET journal = :1, stamp = this_transaction
    WHERE lane = :2 AND fence = :3 AND owner = :4;
    UPDATE app."Events_lanes" SET journal = :5, stamp = this_transaction
    WHERE lane = :6 AND fence = :7 AND owner = :8;
END;
/
--   1: [{"id":1}]
--   2: 1
--   3: 7
--   4: r
--   5: 
--   6: 2
--   7: 8
--   8: r
SELECT lane, fence, 0 FROM app."Events_lanes" WHERE stamp = (SELECT DBMS_TRANSACTION.LOCAL_TRANSACTION_ID FROM dual) ORDER BY lane;

-- journals
SELECT lane, fence, journal FROM app."Events_lanes" WHERE journal IS NOT NULL;

-- marks
SELECT lane, marks FROM app."Events_lanes" WHERE marks IS NOT NULL ORDER BY lane;

-- last id
SELECT GREATEST(NVL((SELECT MAX(id) FROM app."Events"), 0), NVL((SELECT MAX(id) FROM app."Events_held"), 0), NVL((SELECT MAX(id) FROM app."Events_done"), 0)) FROM dual;

-- first line
WITH FUNCTION as_bytes(text IN CLOB) RETURN BLOB IS
    bytes BLOB;
    bytes_at INTEGER := 1;
    text_at INTEGER := 1;
    lang INTEGER := DBMS_LOB.DEFAULT_LANG_CTX;
    warning INTEGER;
BEGIN
    DBMS_LOB.CREATETEMPORARY(bytes, TRUE, DBMS_LOB.SESSION);
    IF DBMS_LOB.GETLENGTH(text) > 0 THEN
        DBMS_LOB.CONVERTTOBLOB(bytes, text, DBMS_LOB.LOBMAXSIZE, bytes_at, text_at, NLS_CHARSET_ID('AL32UTF8'), lang, warning);
    END IF;
    RETURN bytes;
END;
SELECT t.line, t.id, t.lane, t.message_id, t.topic, t.message_key, t.sinks,
    CASE WHEN t.payload_text IS NULL THEN t.payload ELSE as_bytes(t.payload_text) END, t.headers,
    TO_CHAR(t.available_at, 'YYYY-MM-DD HH24:MI:SS.FF6'), TO_CHAR(t.expires_at, 'YYYY-MM-DD HH24:MI:SS.FF6'), t.priority, t.attempts, t.crashes, TO_CHAR(t.created_at, 'YYYY-MM-DD HH24:MI:SS.FF6'),
    CASE WHEN t.payload IS NULL AND t.payload_text IS NULL THEN 0 ELSE 1 END +
    65536 * CASE WHEN t.payload_text IS NULL THEN NVL(DBMS_LOB.GETLENGTH(t.payload), 0) ELSE DBMS_LOB.GETLENGTH(as_bytes(t.payload_text)) END + CASE WHEN t.available_at > SYS_EXTRACT_UTC(SYSTIMESTAMP) THEN 2 ELSE 0 END
FROM (SELECT r.*, ROWNUM AS n FROM (
SELECT -1 AS place, GREATEST(NVL((SELECT MAX(id) FROM app."Events"), 0), NVL((SELECT MAX(id) FROM app."Events_held"), 0), NVL((SELECT MAX(id) FROM app."Events_done"), 0)) || ' 0 0 0 ' || SYS_CONTEXT('USERENV', 'DB_UNIQUE_NAME') || '/' || SYS_CONTEXT('USERENV', 'CON_NAME') AS line,
    0 AS id, 0 AS lane, NULL AS message_id, NULL AS topic, NULL AS message_key, NULL AS sinks, EMPTY_BLOB() AS payload, TO_CLOB(NULL) AS payload_text, TO_CLOB(NULL) AS headers,
    CAST(NULL AS TIMESTAMP(6)) AS available_at, CAST(NULL AS TIMESTAMP(6)) AS expires_at, 0 AS priority, 0 AS attempts, 0 AS crashes, CAST(NULL AS TIMESTAMP(6)) AS created_at FROM dual
UNION ALL
SELECT t.place, NULL, t.id, t.lane, t.message_id, t.topic, t.message_key, t.sinks, t.payload, t.payload_text, t.headers, t.available_at, t.expires_at, t.priority, t.attempts, t.crashes, t.created_at
FROM (SELECT t.*, p.place FROM (SELECT 0 AS place, h.ROWID AS rid FROM app."Events" h WHERE 1 = 0) p
    JOIN app."Events" t ON t.ROWID = p.rid) t
ORDER BY place, id) r) t;

-- read
WITH FUNCTION as_bytes(text IN CLOB) RETURN BLOB IS
    bytes BLOB;
    bytes_at INTEGER := 1;
    text_at INTEGER := 1;
    lang INTEGER := DBMS_LOB.DEFAULT_LANG_CTX;
    warning INTEGER;
BEGIN
    DBMS_LOB.CREATETEMPORARY(bytes, TRUE, DBMS_LOB.SESSION);
    IF DBMS_LOB.GETLENGTH(text) > 0 THEN
        DBMS_LOB.CONVERTTOBLOB(bytes, text, DBMS_LOB.LOBMAXSIZE, bytes_at, text_at, NLS_CHARSET_ID('AL32UTF8'), lang, warning);
    END IF;
    RETURN bytes;
END;
SELECT t.line, t.id, t.lane, t.message_id, t.topic, t.message_key, t.sinks,
    CASE WHEN t.payload_text IS NULL THEN t.payload ELSE as_bytes(t.payload_text) END, t.headers,
    TO_CHAR(t.available_at, 'YYYY-MM-DD HH24:MI:SS.FF6'), TO_CHAR(t.expires_at, 'YYYY-MM-DD HH24:MI:SS.FF6'), t.priority, t.attempts, t.crashes, TO_CHAR(t.created_at, 'YYYY-MM-DD HH24:MI:SS.FF6'),
    CASE WHEN t.payload IS NULL AND t.payload_text IS NULL THEN 0 ELSE 1 END +
    65536 * CASE WHEN t.payload_text IS NULL THEN NVL(DBMS_LOB.GETLENGTH(t.payload), 0) ELSE DBMS_LOB.GETLENGTH(as_bytes(t.payload_text)) END + CASE WHEN t.available_at > SYS_EXTRACT_UTC(SYSTIMESTAMP) THEN 2 ELSE 0 END
FROM (SELECT r.*, ROWNUM AS n FROM (
SELECT -1 AS place, GREATEST(NVL((SELECT MAX(id) FROM app."Events"), 0), NVL((SELECT MAX(id) FROM app."Events_held"), 0), NVL((SELECT MAX(id) FROM app."Events_done"), 0)) || ' 0 0 0 ' || SYS_CONTEXT('USERENV', 'DB_UNIQUE_NAME') || '/' || SYS_CONTEXT('USERENV', 'CON_NAME') AS line,
    0 AS id, 0 AS lane, NULL AS message_id, NULL AS topic, NULL AS message_key, NULL AS sinks, EMPTY_BLOB() AS payload, TO_CLOB(NULL) AS payload_text, TO_CLOB(NULL) AS headers,
    CAST(NULL AS TIMESTAMP(6)) AS available_at, CAST(NULL AS TIMESTAMP(6)) AS expires_at, 0 AS priority, 0 AS attempts, 0 AS crashes, CAST(NULL AS TIMESTAMP(6)) AS created_at FROM dual
UNION ALL
SELECT t.place, NULL, t.id, t.lane, t.message_id, t.topic, t.message_key, t.sinks, t.payload, t.payload_text, t.headers, t.available_at, t.expires_at, t.priority, t.attempts, t.crashes, t.created_at
FROM (SELECT t.*, p.place FROM (
    SELECT place, rid FROM (
    SELECT 0 AS place, rid FROM (SELECT /*+ INDEX_ASC(h "Events_lane_id") */ h.ROWID AS rid FROM app."Events" h WHERE h.lane = :1 AND h.id > :2 AND h.id <= :3 ORDER BY h.id) WHERE ROWNUM <= :4
    UNION ALL
    SELECT 1 AS place, rid FROM (SELECT /*+ INDEX_ASC(h "Events_lane_id") */ h.ROWID AS rid FROM app."Events" h WHERE h.lane = :5 AND h.id > :6 AND h.id <= :7 ORDER BY h.id) WHERE ROWNUM <= :8
    ) WHERE ROWNUM <= :9) p
    JOIN app."Events" t ON t.ROWID = p.rid) t
ORDER BY place, id) r) t;
--   1: 1
--   2: 10
--   3: 20
--   4: 100
--   5: 2
--   6: 11
--   7: 21
--   8: 100
--   9: 100

-- read a share
WITH FUNCTION as_bytes(text IN CLOB) RETURN BLOB IS
    bytes BLOB;
    bytes_at INTEGER := 1;
    text_at INTEGER := 1;
    lang INTEGER := DBMS_LOB.DEFAULT_LANG_CTX;
    warning INTEGER;
BEGIN
    DBMS_LOB.CREATETEMPORARY(bytes, TRUE, DBMS_LOB.SESSION);
    IF DBMS_LOB.GETLENGTH(text) > 0 THEN
        DBMS_LOB.CONVERTTOBLOB(bytes, text, DBMS_LOB.LOBMAXSIZE, bytes_at, text_at, NLS_CHARSET_ID('AL32UTF8'), lang, warning);
    END IF;
    RETURN bytes;
END;
SELECT t.line, t.id, t.lane, t.message_id, t.topic, t.message_key, t.sinks,
    CASE WHEN t.payload_text IS NULL THEN t.payload ELSE as_bytes(t.payload_text) END, t.headers,
    TO_CHAR(t.available_at, 'YYYY-MM-DD HH24:MI:SS.FF6'), TO_CHAR(t.expires_at, 'YYYY-MM-DD HH24:MI:SS.FF6'), t.priority, t.attempts, t.crashes, TO_CHAR(t.created_at, 'YYYY-MM-DD HH24:MI:SS.FF6'),
    CASE WHEN t.payload IS NULL AND t.payload_text IS NULL THEN 0 ELSE 1 END +
    65536 * CASE WHEN t.payload_text IS NULL THEN NVL(DBMS_LOB.GETLENGTH(t.payload), 0) ELSE DBMS_LOB.GETLENGTH(as_bytes(t.payload_text)) END + CASE WHEN t.available_at > SYS_EXTRACT_UTC(SYSTIMESTAMP) THEN 2 ELSE 0 END
FROM (SELECT r.*, ROWNUM AS n FROM (
SELECT -1 AS place, GREATEST(NVL((SELECT MAX(id) FROM app."Events"), 0), NVL((SELECT MAX(id) FROM app."Events_held"), 0), NVL((SELECT MAX(id) FROM app."Events_done"), 0)) || ' 0 0 0 ' || SYS_CONTEXT('USERENV', 'DB_UNIQUE_NAME') || '/' || SYS_CONTEXT('USERENV', 'CON_NAME') AS line,
    0 AS id, 0 AS lane, NULL AS message_id, NULL AS topic, NULL AS message_key, NULL AS sinks, EMPTY_BLOB() AS payload, TO_CLOB(NULL) AS payload_text, TO_CLOB(NULL) AS headers,
    CAST(NULL AS TIMESTAMP(6)) AS available_at, CAST(NULL AS TIMESTAMP(6)) AS expires_at, 0 AS priority, 0 AS attempts, 0 AS crashes, CAST(NULL AS TIMESTAMP(6)) AS created_at FROM dual
UNION ALL
SELECT t.place, NULL, t.id, t.lane, t.message_id, t.topic, t.message_key, t.sinks, t.payload, t.payload_text, t.headers, t.available_at, t.expires_at, t.priority, t.attempts, t.crashes, t.created_at
FROM (SELECT t.*, p.place FROM (
    SELECT place, rid FROM (
    SELECT 0 AS place, rid FROM (SELECT /*+ INDEX_ASC(h "Events_lane_id") */ h.ROWID AS rid FROM app."Events" h WHERE h.lane = :1 AND h.id > :2 AND h.id <= :3 ORDER BY h.id) WHERE ROWNUM <= :4
    UNION ALL
    SELECT 1 AS place, rid FROM (SELECT /*+ INDEX_ASC(h "Events_lane_id") */ h.ROWID AS rid FROM app."Events" h WHERE h.lane = :5 AND h.id > :6 AND h.id <= :7 ORDER BY h.id) WHERE ROWNUM <= :8
    ) WHERE ROWNUM <= :9) p
    JOIN app."Events" t ON t.ROWID = p.rid) t
ORDER BY place, id) r) t;
--   1: 1
--   2: 10
--   3: 20
--   4: 7
--   5: 2
--   6: 11
--   7: 21
--   8: 7
--   9: 100

-- read bytes
WITH FUNCTION as_bytes(text IN CLOB) RETURN BLOB IS
    bytes BLOB;
    bytes_at INTEGER := 1;
    text_at INTEGER := 1;
    lang INTEGER := DBMS_LOB.DEFAULT_LANG_CTX;
    warning INTEGER;
BEGIN
    DBMS_LOB.CREATETEMPORARY(bytes, TRUE, DBMS_LOB.SESSION);
    IF DBMS_LOB.GETLENGTH(text) > 0 THEN
        DBMS_LOB.CONVERTTOBLOB(bytes, text, DBMS_LOB.LOBMAXSIZE, bytes_at, text_at, NLS_CHARSET_ID('AL32UTF8'), lang, warning);
    END IF;
    RETURN bytes;
END;
SELECT t.line, t.id, t.lane, t.message_id, t.topic, t.message_key, t.sinks,
    CASE WHEN t.payload_text IS NULL THEN t.payload ELSE as_bytes(t.payload_text) END, t.headers,
    TO_CHAR(t.available_at, 'YYYY-MM-DD HH24:MI:SS.FF6'), TO_CHAR(t.expires_at, 'YYYY-MM-DD HH24:MI:SS.FF6'), t.priority, t.attempts, t.crashes, TO_CHAR(t.created_at, 'YYYY-MM-DD HH24:MI:SS.FF6'),
    CASE WHEN t.payload IS NULL AND t.payload_text IS NULL THEN 0 ELSE 1 END +
    65536 * CASE WHEN t.payload_text IS NULL THEN NVL(DBMS_LOB.GETLENGTH(t.payload), 0) ELSE DBMS_LOB.GETLENGTH(as_bytes(t.payload_text)) END + CASE WHEN t.available_at > SYS_EXTRACT_UTC(SYSTIMESTAMP) THEN 2 ELSE 0 END
FROM (SELECT r.*, ROWNUM AS n FROM (
SELECT -1 AS place, GREATEST(NVL((SELECT MAX(id) FROM app."Events"), 0), NVL((SELECT MAX(id) FROM app."Events_held"), 0), NVL((SELECT MAX(id) FROM app."Events_done"), 0)) || ' 0 0 0 ' || SYS_CONTEXT('USERENV', 'DB_UNIQUE_NAME') || '/' || SYS_CONTEXT('USERENV', 'CON_NAME') AS line,
    0 AS id, 0 AS lane, NULL AS message_id, NULL AS topic, NULL AS message_key, NULL AS sinks, EMPTY_BLOB() AS payload, TO_CLOB(NULL) AS payload_text, TO_CLOB(NULL) AS headers,
    CAST(NULL AS TIMESTAMP(6)) AS available_at, CAST(NULL AS TIMESTAMP(6)) AS expires_at, 0 AS priority, 0 AS attempts, 0 AS crashes, CAST(NULL AS TIMESTAMP(6)) AS created_at FROM dual
UNION ALL
SELECT t.place, NULL, t.id, t.lane, t.message_id, t.topic, t.message_key, t.sinks, t.payload, t.payload_text, t.headers, t.available_at, t.expires_at, t.priority, t.attempts, t.crashes, t.created_at
FROM (SELECT t.*, SUM(NVL(DBMS_LOB.GETLENGTH(t.payload), 0) + NVL(DBMS_LOB.GETLENGTH(t.payload_text), 0)) OVER (ORDER BY t.place, t.id ROWS UNBOUNDED PRECEDING) - (NVL(DBMS_LOB.GETLENGTH(t.payload), 0) + NVL(DBMS_LOB.GETLENGTH(t.payload_text), 0)) AS bytes_before
FROM (SELECT t.*, p.place FROM (
    SELECT place, rid FROM (
    SELECT 0 AS place, rid FROM (SELECT /*+ INDEX_ASC(h "Events_lane_id") */ h.ROWID AS rid FROM app."Events" h WHERE h.lane = :1 AND h.id > :2 AND h.id <= :3 ORDER BY h.id) WHERE ROWNUM <= :4
    UNION ALL
    SELECT 1 AS place, rid FROM (SELECT /*+ INDEX_ASC(h "Events_lane_id") */ h.ROWID AS rid FROM app."Events" h WHERE h.lane = :5 AND h.id > :6 AND h.id <= :7 ORDER BY h.id) WHERE ROWNUM <= :8
    ) WHERE ROWNUM <= :9) p
    JOIN app."Events" t ON t.ROWID = p.rid) t) t WHERE t.bytes_before < :10
ORDER BY place, id) r) t;
--   1: 1
--   2: 10
--   3: 20
--   4: 100
--   5: 2
--   6: 11
--   7: 21
--   8: 100
--   9: 100
--   10: 1048576

-- read except
WITH FUNCTION as_bytes(text IN CLOB) RETURN BLOB IS
    bytes BLOB;
    bytes_at INTEGER := 1;
    text_at INTEGER := 1;
    lang INTEGER := DBMS_LOB.DEFAULT_LANG_CTX;
    warning INTEGER;
BEGIN
    DBMS_LOB.CREATETEMPORARY(bytes, TRUE, DBMS_LOB.SESSION);
    IF DBMS_LOB.GETLENGTH(text) > 0 THEN
        DBMS_LOB.CONVERTTOBLOB(bytes, text, DBMS_LOB.LOBMAXSIZE, bytes_at, text_at, NLS_CHARSET_ID('AL32UTF8'), lang, warning);
    END IF;
    RETURN bytes;
END;
SELECT t.line, t.id, t.lane, t.message_id, t.topic, t.message_key, t.sinks,
    CASE WHEN t.payload_text IS NULL THEN t.payload ELSE as_bytes(t.payload_text) END, t.headers,
    TO_CHAR(t.available_at, 'YYYY-MM-DD HH24:MI:SS.FF6'), TO_CHAR(t.expires_at, 'YYYY-MM-DD HH24:MI:SS.FF6'), t.priority, t.attempts, t.crashes, TO_CHAR(t.created_at, 'YYYY-MM-DD HH24:MI:SS.FF6'),
    CASE WHEN t.payload IS NULL AND t.payload_text IS NULL THEN 0 ELSE 1 END +
    65536 * CASE WHEN t.payload_text IS NULL THEN NVL(DBMS_LOB.GETLENGTH(t.payload), 0) ELSE DBMS_LOB.GETLENGTH(as_bytes(t.payload_text)) END + CASE WHEN t.available_at > SYS_EXTRACT_UTC(SYSTIMESTAMP) THEN 2 ELSE 0 END
FROM (SELECT r.*, ROWNUM AS n FROM (
SELECT -1 AS place, GREATEST(NVL((SELECT MAX(id) FROM app."Events"), 0), NVL((SELECT MAX(id) FROM app."Events_held"), 0), NVL((SELECT MAX(id) FROM app."Events_done"), 0)) || ' 0 0 0 ' || SYS_CONTEXT('USERENV', 'DB_UNIQUE_NAME') || '/' || SYS_CONTEXT('USERENV', 'CON_NAME') AS line,
    0 AS id, 0 AS lane, NULL AS message_id, NULL AS topic, NULL AS message_key, NULL AS sinks, EMPTY_BLOB() AS payload, TO_CLOB(NULL) AS payload_text, TO_CLOB(NULL) AS headers,
    CAST(NULL AS TIMESTAMP(6)) AS available_at, CAST(NULL AS TIMESTAMP(6)) AS expires_at, 0 AS priority, 0 AS attempts, 0 AS crashes, CAST(NULL AS TIMESTAMP(6)) AS created_at FROM dual
UNION ALL
SELECT t.place, NULL, t.id, t.lane, t.message_id, t.topic, t.message_key, t.sinks, t.payload, t.payload_text, t.headers, t.available_at, t.expires_at, t.priority, t.attempts, t.crashes, t.created_at
FROM (SELECT t.*, p.place FROM (
    SELECT place, rid FROM (
    SELECT 0 AS place, rid FROM (SELECT /*+ INDEX_ASC(h "Events_lane_id") */ h.ROWID AS rid FROM app."Events" h WHERE h.lane = :1 AND h.id > :2 AND h.id <= :3 ORDER BY h.id) WHERE ROWNUM <= :4
    UNION ALL
    SELECT 1 AS place, rid FROM (SELECT /*+ INDEX_ASC(h "Events_lane_id") */ h.ROWID AS rid FROM app."Events" h WHERE h.lane = :5 AND h.id > :6 AND h.id <= :7 ORDER BY h.id) WHERE ROWNUM <= :8
    ) WHERE ROWNUM <= :9) p
    JOIN app."Events" t ON t.ROWID = p.rid) t
ORDER BY place, id) r) t;
--   1: 1
--   2: 10
--   3: 20
--   4: 100
--   5: 2
--   6: 11
--   7: 21
--   8: 100
--   9: 100

-- read keys
WITH FUNCTION as_bytes(text IN CLOB) RETURN BLOB IS
    bytes BLOB;
    bytes_at INTEGER := 1;
    text_at INTEGER := 1;
    lang INTEGER := DBMS_LOB.DEFAULT_LANG_CTX;
    warning INTEGER;
BEGIN
    DBMS_LOB.CREATETEMPORARY(bytes, TRUE, DBMS_LOB.SESSION);
    IF DBMS_LOB.GETLENGTH(text) > 0 THEN
        DBMS_LOB.CONVERTTOBLOB(bytes, text, DBMS_LOB.LOBMAXSIZE, bytes_at, text_at, NLS_CHARSET_ID('AL32UTF8'), lang, warning);
    END IF;
    RETURN bytes;
END;
SELECT t.line, t.id, t.lane, t.message_id, t.topic, t.message_key, t.sinks,
    CASE WHEN t.payload_text IS NULL THEN t.payload ELSE as_bytes(t.payload_text) END, t.headers,
    TO_CHAR(t.available_at, 'YYYY-MM-DD HH24:MI:SS.FF6'), TO_CHAR(t.expires_at, 'YYYY-MM-DD HH24:MI:SS.FF6'), t.priority, t.attempts, t.crashes, TO_CHAR(t.created_at, 'YYYY-MM-DD HH24:MI:SS.FF6'),
    CASE WHEN t.payload IS NULL AND t.payload_text IS NULL THEN 0 ELSE 1 END +
    65536 * CASE WHEN t.payload_text IS NULL THEN NVL(DBMS_LOB.GETLENGTH(t.payload), 0) ELSE DBMS_LOB.GETLENGTH(as_bytes(t.payload_text)) END + CASE WHEN t.available_at > SYS_EXTRACT_UTC(SYSTIMESTAMP) THEN 2 ELSE 0 END
FROM (SELECT r.*, ROWNUM AS n FROM (
SELECT -1 AS place, GREATEST(NVL((SELECT MAX(id) FROM app."Events"), 0), NVL((SELECT MAX(id) FROM app."Events_held"), 0), NVL((SELECT MAX(id) FROM app."Events_done"), 0)) || ' 0 0 0 ' || SYS_CONTEXT('USERENV', 'DB_UNIQUE_NAME') || '/' || SYS_CONTEXT('USERENV', 'CON_NAME') AS line,
    0 AS id, 0 AS lane, NULL AS message_id, NULL AS topic, NULL AS message_key, NULL AS sinks, EMPTY_BLOB() AS payload, TO_CLOB(NULL) AS payload_text, TO_CLOB(NULL) AS headers,
    CAST(NULL AS TIMESTAMP(6)) AS available_at, CAST(NULL AS TIMESTAMP(6)) AS expires_at, 0 AS priority, 0 AS attempts, 0 AS crashes, CAST(NULL AS TIMESTAMP(6)) AS created_at FROM dual
UNION ALL
SELECT t.place, NULL, t.id, t.lane, t.message_id, t.topic, t.message_key, t.sinks, t.payload, t.payload_text, t.headers, t.available_at, t.expires_at, t.priority, t.attempts, t.crashes, t.created_at
FROM (SELECT t.*, p.place FROM (
    SELECT place, rid FROM (
    SELECT 0 AS place, rid FROM (SELECT /*+ INDEX_ASC(h "Events_lane_id") */ h.ROWID AS rid FROM app."Events" h WHERE h.lane = :1 AND h.id > :2 AND h.id <= :3 AND NLSSORT(h.message_key, 'NLS_SORT=BINARY') = NLSSORT(:4, 'NLS_SORT=BINARY') ORDER BY h.id) WHERE ROWNUM <= :5
    ) WHERE ROWNUM <= :6) p
    JOIN app."Events" t ON t.ROWID = p.rid) t
ORDER BY place, id) r) t;
--   1: 1
--   2: 10
--   3: 20
--   4: a"\k
--   5: 100
--   6: 100

-- candidates
SELECT t.id, t.lane, t.topic, t.message_key, t.sinks, NVL(DBMS_LOB.GETLENGTH(t.payload), 0) + NVL(DBMS_LOB.GETLENGTH(t.payload_text), 0)
FROM (
    SELECT place, rid FROM (
    SELECT 0 AS place, rid FROM (SELECT /*+ INDEX_ASC(h "Events_lane_id") */ h.ROWID AS rid FROM app."Events" h WHERE h.lane = :1 AND h.id > :2 AND h.id <= :3 ORDER BY h.id) WHERE ROWNUM <= :4
    UNION ALL
    SELECT 1 AS place, rid FROM (SELECT /*+ INDEX_ASC(h "Events_lane_id") */ h.ROWID AS rid FROM app."Events" h WHERE h.lane = :5 AND h.id > :6 AND h.id <= :7 ORDER BY h.id) WHERE ROWNUM <= :8
    ) WHERE ROWNUM <= :9) p
JOIN app."Events" t ON t.ROWID = p.rid ORDER BY p.place, t.id;
--   1: 1
--   2: 10
--   3: 20
--   4: 100
--   5: 2
--   6: 11
--   7: 21
--   8: 100
--   9: 100

-- pick
WITH FUNCTION as_bytes(text IN CLOB) RETURN BLOB IS
    bytes BLOB;
    bytes_at INTEGER := 1;
    text_at INTEGER := 1;
    lang INTEGER := DBMS_LOB.DEFAULT_LANG_CTX;
    warning INTEGER;
BEGIN
    DBMS_LOB.CREATETEMPORARY(bytes, TRUE, DBMS_LOB.SESSION);
    IF DBMS_LOB.GETLENGTH(text) > 0 THEN
        DBMS_LOB.CONVERTTOBLOB(bytes, text, DBMS_LOB.LOBMAXSIZE, bytes_at, text_at, NLS_CHARSET_ID('AL32UTF8'), lang, warning);
    END IF;
    RETURN bytes;
END;
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.sinks,
    CASE WHEN t.payload_text IS NULL THEN t.payload ELSE as_bytes(t.payload_text) END, t.headers,
    TO_CHAR(t.available_at, 'YYYY-MM-DD HH24:MI:SS.FF6'), TO_CHAR(t.expires_at, 'YYYY-MM-DD HH24:MI:SS.FF6'), t.priority, t.attempts, t.crashes, TO_CHAR(t.created_at, 'YYYY-MM-DD HH24:MI:SS.FF6'),
    CASE WHEN t.payload IS NULL AND t.payload_text IS NULL THEN 0 ELSE 1 END +
    65536 * CASE WHEN t.payload_text IS NULL THEN NVL(DBMS_LOB.GETLENGTH(t.payload), 0) ELSE DBMS_LOB.GETLENGTH(as_bytes(t.payload_text)) END + CASE WHEN t.available_at > SYS_EXTRACT_UTC(SYSTIMESTAMP) THEN 2 ELSE 0 END
FROM JSON_TABLE(:1, '$[*]' COLUMNS (lane NUMBER PATH '$[0]', id NUMBER PATH '$[1]')) g
JOIN app."Events" t ON t.id = g.id AND t.lane = g.lane;
--   1: [[1,15],[2,16]]

-- pick held
WITH FUNCTION as_bytes(text IN CLOB) RETURN BLOB IS
    bytes BLOB;
    bytes_at INTEGER := 1;
    text_at INTEGER := 1;
    lang INTEGER := DBMS_LOB.DEFAULT_LANG_CTX;
    warning INTEGER;
BEGIN
    DBMS_LOB.CREATETEMPORARY(bytes, TRUE, DBMS_LOB.SESSION);
    IF DBMS_LOB.GETLENGTH(text) > 0 THEN
        DBMS_LOB.CONVERTTOBLOB(bytes, text, DBMS_LOB.LOBMAXSIZE, bytes_at, text_at, NLS_CHARSET_ID('AL32UTF8'), lang, warning);
    END IF;
    RETURN bytes;
END;
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.sinks,
    CASE WHEN t.payload_text IS NULL THEN t.payload ELSE as_bytes(t.payload_text) END, t.headers,
    TO_CHAR(t.available_at, 'YYYY-MM-DD HH24:MI:SS.FF6'), TO_CHAR(t.expires_at, 'YYYY-MM-DD HH24:MI:SS.FF6'), t.priority, t.attempts, t.crashes, TO_CHAR(t.created_at, 'YYYY-MM-DD HH24:MI:SS.FF6'),
    CASE WHEN t.payload IS NULL AND t.payload_text IS NULL THEN 0 ELSE 1 END +
    65536 * CASE WHEN t.payload_text IS NULL THEN NVL(DBMS_LOB.GETLENGTH(t.payload), 0) ELSE DBMS_LOB.GETLENGTH(as_bytes(t.payload_text)) END + CASE WHEN t.state = 'retry' THEN 4 ELSE 0 END + 16 * t.holds
FROM JSON_TABLE(:1, '$[*]' COLUMNS (lane NUMBER PATH '$[0]', id NUMBER PATH '$[1]')) g
JOIN app."Events_held" t ON t.id = g.id AND t.lane = g.lane AND t.state <> 'error';
--   1: [[1,15],[2,16]]

-- attempt logs
SELECT t.id, t.lane, t.message_id, t.sinks, t.attempt_log
FROM JSON_TABLE(:1, '$[*]' COLUMNS (lane NUMBER PATH '$[0]', id NUMBER PATH '$[1]')) g
JOIN app."Events" t ON t.id = g.id AND t.lane = g.lane AND t.attempt_log IS NOT NULL;
--   1: [[1,15],[2,16]]

-- attempt logs of held rows
SELECT t.id, t.lane, t.message_id, t.sinks, t.attempt_log
FROM JSON_TABLE(:1, '$[*]' COLUMNS (lane NUMBER PATH '$[0]', id NUMBER PATH '$[1]')) g
JOIN app."Events_held" t ON t.id = g.id AND t.lane = g.lane AND t.attempt_log IS NOT NULL;
--   1: [[1,15],[2,16]]

-- due
WITH FUNCTION as_bytes(text IN CLOB) RETURN BLOB IS
    bytes BLOB;
    bytes_at INTEGER := 1;
    text_at INTEGER := 1;
    lang INTEGER := DBMS_LOB.DEFAULT_LANG_CTX;
    warning INTEGER;
BEGIN
    DBMS_LOB.CREATETEMPORARY(bytes, TRUE, DBMS_LOB.SESSION);
    IF DBMS_LOB.GETLENGTH(text) > 0 THEN
        DBMS_LOB.CONVERTTOBLOB(bytes, text, DBMS_LOB.LOBMAXSIZE, bytes_at, text_at, NLS_CHARSET_ID('AL32UTF8'), lang, warning);
    END IF;
    RETURN bytes;
END;
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.sinks,
    CASE WHEN t.payload_text IS NULL THEN t.payload ELSE as_bytes(t.payload_text) END, t.headers,
    TO_CHAR(t.available_at, 'YYYY-MM-DD HH24:MI:SS.FF6'), TO_CHAR(t.expires_at, 'YYYY-MM-DD HH24:MI:SS.FF6'), t.priority, t.attempts, t.crashes, TO_CHAR(t.created_at, 'YYYY-MM-DD HH24:MI:SS.FF6'),
    CASE WHEN t.payload IS NULL AND t.payload_text IS NULL THEN 0 ELSE 1 END +
    65536 * CASE WHEN t.payload_text IS NULL THEN NVL(DBMS_LOB.GETLENGTH(t.payload), 0) ELSE DBMS_LOB.GETLENGTH(as_bytes(t.payload_text)) END + CASE WHEN t.state = 'retry' THEN 4 ELSE 0 END + 16 * t.holds
FROM (SELECT r.*, ROWNUM AS n FROM (
SELECT t.* FROM (SELECT t.*, SUM(NVL(DBMS_LOB.GETLENGTH(t.payload), 0) + NVL(DBMS_LOB.GETLENGTH(t.payload_text), 0)) OVER (ORDER BY CASE WHEN t.state <> 'error' THEN NVL(t.available_at, TIMESTAMP '0001-01-01 00:00:00') END, CASE WHEN t.state <> 'error' THEN t.id END ROWS UNBOUNDED PRECEDING) - (NVL(DBMS_LOB.GETLENGTH(t.payload), 0) + NVL(DBMS_LOB.GETLENGTH(t.payload_text), 0)) AS bytes_before
FROM (SELECT * FROM (SELECT t.* FROM app."Events_held" t
    WHERE CASE WHEN t.state <> 'error' THEN NVL(t.available_at, TIMESTAMP '0001-01-01 00:00:00') END <= SYS_EXTRACT_UTC(SYSTIMESTAMP) AND t.lane IN (SELECT j.id FROM JSON_TABLE(:1, '$[*]' COLUMNS (id NUMBER PATH '$')) j)
        AND CASE WHEN t.state <> 'error' THEN NVL(t.available_at, TIMESTAMP '0001-01-01 00:00:00') END >= TO_TIMESTAMP(:2, 'YYYY-MM-DD HH24:MI:SS.FF6') AND (CASE WHEN t.state <> 'error' THEN NVL(t.available_at, TIMESTAMP '0001-01-01 00:00:00') END > TO_TIMESTAMP(:3, 'YYYY-MM-DD HH24:MI:SS.FF6') OR CASE WHEN t.state <> 'error' THEN t.id END > :4)
    ORDER BY CASE WHEN t.state <> 'error' THEN NVL(t.available_at, TIMESTAMP '0001-01-01 00:00:00') END, CASE WHEN t.state <> 'error' THEN t.id END) WHERE ROWNUM <= :5) t) t WHERE t.bytes_before < :6
ORDER BY CASE WHEN t.state <> 'error' THEN NVL(t.available_at, TIMESTAMP '0001-01-01 00:00:00') END, CASE WHEN t.state <> 'error' THEN t.id END) r) t;
--   1: [1,2]
--   2: 2026-01-31 23:59:59.123456
--   3: 2026-01-31 23:59:59.123456
--   4: 9
--   5: 100
--   6: 1048576

-- blocked keys
SELECT t.lane, t.message_key, t.topic, t.sinks, t.id FROM app."Events_held" t
WHERE CASE WHEN t.state = 'retry' OR t.holds > 0 THEN t.lane END IN (SELECT j.id FROM JSON_TABLE(:1, '$[*]' COLUMNS (id NUMBER PATH '$')) j) AND t.message_key IS NOT NULL AND ROWNUM <= :2;
--   1: [1,2]
--   2: 100

-- blocked among keys
SELECT /*+ LEADING(g) USE_NL(t) INDEX(t "Events_held_retry") */ t.lane, MIN(t.message_key), MIN(t.topic), MIN(t.sinks), MIN(t.id)
FROM JSON_TABLE(:1, '$[*]' COLUMNS (lane NUMBER PATH '$[0]', message_key VARCHAR2(255) PATH '$[1]')) g
JOIN app."Events_held" t ON CASE WHEN t.state = 'retry' OR t.holds > 0 THEN t.lane END = g.lane AND NLSSORT(CASE WHEN t.state = 'retry' OR t.holds > 0 THEN t.message_key END, 'NLS_SORT=BINARY') = NLSSORT(g.message_key, 'NLS_SORT=BINARY')
GROUP BY t.lane, NLSSORT(t.message_key, 'NLS_SORT=BINARY'), NLSSORT(t.topic, 'NLS_SORT=BINARY'), NLSSORT(t.sinks, 'NLS_SORT=BINARY');
--   1: [[1,"a\"\\k"],[2,"b"],[1,"c"]]

-- remaining
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.sinks, 1 FROM app."Events_held" t WHERE CASE WHEN t.state <> 'error' THEN NVL(t.available_at, TIMESTAMP '0001-01-01 00:00:00') END <= SYS_EXTRACT_UTC(SYSTIMESTAMP) AND ROWNUM <= :1
UNION ALL SELECT id, lane, message_id, topic, message_key, sinks, 0 FROM app."Events" WHERE (available_at IS NULL OR available_at <= SYS_EXTRACT_UTC(SYSTIMESTAMP)) AND (claimed_until IS NULL OR claimed_until <= SYS_EXTRACT_UTC(SYSTIMESTAMP)) AND ROWNUM <= :2;
--   1: 1000
--   2: 1000

-- list open transactions
SELECT 'number', TO_CHAR(current_scn) FROM v$database
UNION ALL SELECT 'open', TO_CHAR(MIN(start_scn)) FROM gv$transaction HAVING COUNT(*) > 0
UNION ALL SELECT 'server', SYS_CONTEXT('USERENV', 'DB_UNIQUE_NAME') || '/' || SYS_CONTEXT('USERENV', 'CON_NAME') FROM dual;

-- settle: done
BEGIN
    FOR locked IN (
    SELECT lock_id FROM app."Events_locks" WHERE lock_id IN (
        SELECT 8 * g.lane + MOD(SYS_CONTEXT('USERENV', 'SID'), 8) FROM JSON_TABLE(:1, '$[*]' COLUMNS (lane NUMBER PATH '$[0]', fence NUMBER PATH '$[1]')) g)
    ORDER BY lock_id FOR UPDATE) LOOP NULL; END LOOP;
END;
/
--   1: [[1,7]]
SELECT 'lane', l.lane, l.fence FROM JSON_TABLE(:1, '$[*]' COLUMNS (lane NUMBER PATH '$[0]', fence NUMBER PATH '$[1]')) g JOIN app."Events_lanes" l ON l.lane = g.lane AND l.fence = g.fence AND l.owner = :2;
--   1: [[1,7]]
--   2: r
INSERT INTO app."Events_done" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, finished_at, receipt, relay)
SELECT /*+ LEADING(g) USE_NL(t) INDEX(t) */ t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, t.sinks, g.attempts, g.crashes, t.available_at, NVL(g.fault, t.last_error), SYS_EXTRACT_UTC(SYSTIMESTAMP), g.receipt, :1
FROM JSON_TABLE(:2, '$[*]' COLUMNS (
        id NUMBER PATH '$[0]', lane NUMBER PATH '$[1]', claim NUMBER PATH '$[2]', state VARCHAR2(10) PATH '$[3]',
        attempts NUMBER PATH '$[4]', crashes NUMBER PATH '$[5]', delay NUMBER PATH '$[6]', fault VARCHAR2(4000) PATH '$[7]', receipt VARCHAR2(4000) PATH '$[8]', message_id VARCHAR2(36) PATH '$[9]', holds NUMBER PATH '$[10]',
        sinks VARCHAR2(400) PATH '$[11]', part VARCHAR2(400) PATH '$[12]', rest VARCHAR2(400) PATH '$[13]', read_at VARCHAR2(40) PATH '$[14]')) g
    JOIN app."Events_lanes" l ON l.lane = g.lane AND l.fence = g.claim AND l.owner = :3
    JOIN app."Events" t ON t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id;
--   1: r
--   2: [[5,1,7,"done",1,0,0,"","0/5","0197a3b4-0000-7abc-8def-000000000005",0,"","","","9999-12-31 00:00:00
--   3: r
DELETE /*+ INDEX(d) */ FROM app."Events" d WHERE (d.id, d.message_id) IN (SELECT /*+ LEADING(g) USE_NL(t) INDEX(t) */ t.id, t.message_id
FROM JSON_TABLE(:1, '$[*]' COLUMNS (
        id NUMBER PATH '$[0]', lane NUMBER PATH '$[1]', claim NUMBER PATH '$[2]', state VARCHAR2(10) PATH '$[3]',
        attempts NUMBER PATH '$[4]', crashes NUMBER PATH '$[5]', delay NUMBER PATH '$[6]', fault VARCHAR2(4000) PATH '$[7]', receipt VARCHAR2(4000) PATH '$[8]', message_id VARCHAR2(36) PATH '$[9]', holds NUMBER PATH '$[10]',
        sinks VARCHAR2(400) PATH '$[11]', part VARCHAR2(400) PATH '$[12]', rest VARCHAR2(400) PATH '$[13]', read_at VARCHAR2(40) PATH '$[14]')) g
    JOIN app."Events_lanes" l ON l.lane = g.lane AND l.fence = g.claim AND l.owner = :2
    JOIN app."Events" t ON t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id);
--   1: [[5,1,7,"done",1,0,0,"","0/5","0197a3b4-0000-7abc-8def-000000000005",0,"","","","9999-12-31 00:00:00
--   2: r

-- settle: done, with different receipts
BEGIN
    FOR locked IN (
    SELECT lock_id FROM app."Events_locks" WHERE lock_id IN (
        SELECT 8 * g.lane + MOD(SYS_CONTEXT('USERENV', 'SID'), 8) FROM JSON_TABLE(:1, '$[*]' COLUMNS (lane NUMBER PATH '$[0]', fence NUMBER PATH '$[1]')) g)
    ORDER BY lock_id FOR UPDATE) LOOP NULL; END LOOP;
END;
/
--   1: [[1,7]]
SELECT 'lane', l.lane, l.fence FROM JSON_TABLE(:1, '$[*]' COLUMNS (lane NUMBER PATH '$[0]', fence NUMBER PATH '$[1]')) g JOIN app."Events_lanes" l ON l.lane = g.lane AND l.fence = g.fence AND l.owner = :2;
--   1: [[1,7]]
--   2: r
INSERT INTO app."Events_done" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, finished_at, receipt, relay)
SELECT /*+ LEADING(g) USE_NL(t) INDEX(t) */ t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, t.sinks, g.attempts, g.crashes, t.available_at, NVL(g.fault, t.last_error), SYS_EXTRACT_UTC(SYSTIMESTAMP), g.receipt, :1
FROM JSON_TABLE(:2, '$[*]' COLUMNS (
        id NUMBER PATH '$[0]', lane NUMBER PATH '$[1]', claim NUMBER PATH '$[2]', state VARCHAR2(10) PATH '$[3]',
        attempts NUMBER PATH '$[4]', crashes NUMBER PATH '$[5]', delay NUMBER PATH '$[6]', fault VARCHAR2(4000) PATH '$[7]', receipt VARCHAR2(4000) PATH '$[8]', message_id VARCHAR2(36) PATH '$[9]', holds NUMBER PATH '$[10]',
        sinks VARCHAR2(400) PATH '$[11]', part VARCHAR2(400) PATH '$[12]', rest VARCHAR2(400) PATH '$[13]', read_at VARCHAR2(40) PATH '$[14]')) g
    JOIN app."Events_lanes" l ON l.lane = g.lane AND l.fence = g.claim AND l.owner = :3
    JOIN app."Events" t ON t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id;
--   1: r
--   2: [[5,1,7,"done",1,0,0,"","0/5","0197a3b4-0000-7abc-8def-000000000005",0,"","","","9999-12-31 00:00:00
--   3: r
DELETE /*+ INDEX(d) */ FROM app."Events" d WHERE (d.id, d.message_id) IN (SELECT /*+ LEADING(g) USE_NL(t) INDEX(t) */ t.id, t.message_id
FROM JSON_TABLE(:1, '$[*]' COLUMNS (
        id NUMBER PATH '$[0]', lane NUMBER PATH '$[1]', claim NUMBER PATH '$[2]', state VARCHAR2(10) PATH '$[3]',
        attempts NUMBER PATH '$[4]', crashes NUMBER PATH '$[5]', delay NUMBER PATH '$[6]', fault VARCHAR2(4000) PATH '$[7]', receipt VARCHAR2(4000) PATH '$[8]', message_id VARCHAR2(36) PATH '$[9]', holds NUMBER PATH '$[10]',
        sinks VARCHAR2(400) PATH '$[11]', part VARCHAR2(400) PATH '$[12]', rest VARCHAR2(400) PATH '$[13]', read_at VARCHAR2(40) PATH '$[14]')) g
    JOIN app."Events_lanes" l ON l.lane = g.lane AND l.fence = g.claim AND l.owner = :2
    JOIN app."Events" t ON t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id);
--   1: [[5,1,7,"done",1,0,0,"","0/5","0197a3b4-0000-7abc-8def-000000000005",0,"","","","9999-12-31 00:00:00
--   2: r

-- settle: done, not kept
BEGIN
    FOR locked IN (
    SELECT lock_id FROM app."Events_locks" WHERE lock_id IN (
        SELECT 8 * g.lane + MOD(SYS_CONTEXT('USERENV', 'SID'), 8) FROM JSON_TABLE(:1, '$[*]' COLUMNS (lane NUMBER PATH '$[0]', fence NUMBER PATH '$[1]')) g)
    ORDER BY lock_id FOR UPDATE) LOOP NULL; END LOOP;
END;
/
--   1: [[1,7]]
SELECT 'lane', l.lane, l.fence FROM JSON_TABLE(:1, '$[*]' COLUMNS (lane NUMBER PATH '$[0]', fence NUMBER PATH '$[1]')) g JOIN app."Events_lanes" l ON l.lane = g.lane AND l.fence = g.fence AND l.owner = :2;
--   1: [[1,7]]
--   2: r
DELETE /*+ INDEX(d) */ FROM app."Events" d WHERE (d.id, d.message_id) IN (SELECT /*+ LEADING(g) USE_NL(t) INDEX(t) */ t.id, t.message_id
FROM JSON_TABLE(:1, '$[*]' COLUMNS (
        id NUMBER PATH '$[0]', lane NUMBER PATH '$[1]', claim NUMBER PATH '$[2]', state VARCHAR2(10) PATH '$[3]',
        attempts NUMBER PATH '$[4]', crashes NUMBER PATH '$[5]', delay NUMBER PATH '$[6]', fault VARCHAR2(4000) PATH '$[7]', receipt VARCHAR2(4000) PATH '$[8]', message_id VARCHAR2(36) PATH '$[9]', holds NUMBER PATH '$[10]',
        sinks VARCHAR2(400) PATH '$[11]', part VARCHAR2(400) PATH '$[12]', rest VARCHAR2(400) PATH '$[13]', read_at VARCHAR2(40) PATH '$[14]')) g
    JOIN app."Events_lanes" l ON l.lane = g.lane AND l.fence = g.claim AND l.owner = :2
    JOIN app."Events" t ON t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id);
--   1: [[5,1,7,"done",1,0,0,"","0/5","0197a3b4-0000-7abc-8def-000000000005",0,"","","","9999-12-31 00:00:00
--   2: r

-- settle: rows of several kinds
BEGIN
    FOR locked IN (
    SELECT lock_id FROM app."Events_locks" WHERE lock_id IN (
        SELECT 8 * g.lane + MOD(SYS_CONTEXT('USERENV', 'SID'), 8) FROM JSON_TABLE(:1, '$[*]' COLUMNS (lane NUMBER PATH '$[0]', fence NUMBER PATH '$[1]')) g)
    ORDER BY lock_id FOR UPDATE) LOOP NULL; END LOOP;
END;
/
--   1: [[1,7],[2,8]]
SELECT 'lane', l.lane, l.fence FROM JSON_TABLE(:1, '$[*]' COLUMNS (lane NUMBER PATH '$[0]', fence NUMBER PATH '$[1]')) g JOIN app."Events_lanes" l ON l.lane = g.lane AND l.fence = g.fence AND l.owner = :2;
--   1: [[1,7],[2,8]]
--   2: r
INSERT INTO app."Events_done" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, finished_at, receipt, relay)
SELECT /*+ LEADING(g) USE_NL(t) INDEX(t) */ t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, t.sinks, g.attempts, g.crashes, t.available_at, NVL(g.fault, t.last_error), SYS_EXTRACT_UTC(SYSTIMESTAMP), g.receipt, :1
FROM JSON_TABLE(:2, '$[*]' COLUMNS (
        id NUMBER PATH '$[0]', lane NUMBER PATH '$[1]', claim NUMBER PATH '$[2]', state VARCHAR2(10) PATH '$[3]',
        attempts NUMBER PATH '$[4]', crashes NUMBER PATH '$[5]', delay NUMBER PATH '$[6]', fault VARCHAR2(4000) PATH '$[7]', receipt VARCHAR2(4000) PATH '$[8]', message_id VARCHAR2(36) PATH '$[9]', holds NUMBER PATH '$[10]',
        sinks VARCHAR2(400) PATH '$[11]', part VARCHAR2(400) PATH '$[12]', rest VARCHAR2(400) PATH '$[13]', read_at VARCHAR2(40) PATH '$[14]')) g
    JOIN app."Events_lanes" l ON l.lane = g.lane AND l.fence = g.claim AND l.owner = :3
    JOIN app."Events" t ON t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id;
--   1: r
--   2: [[5,1,7,"done",1,0,0,"","0/5","0197a3b4-0000-7abc-8def-000000000005",0,"","","","9999-12-31 00:00:00
--   3: r
DELETE /*+ INDEX(d) */ FROM app."Events" d WHERE (d.id, d.message_id) IN (SELECT /*+ LEADING(g) USE_NL(t) INDEX(t) */ t.id, t.message_id
FROM JSON_TABLE(:1, '$[*]' COLUMNS (
        id NUMBER PATH '$[0]', lane NUMBER PATH '$[1]', claim NUMBER PATH '$[2]', state VARCHAR2(10) PATH '$[3]',
        attempts NUMBER PATH '$[4]', crashes NUMBER PATH '$[5]', delay NUMBER PATH '$[6]', fault VARCHAR2(4000) PATH '$[7]', receipt VARCHAR2(4000) PATH '$[8]', message_id VARCHAR2(36) PATH '$[9]', holds NUMBER PATH '$[10]',
        sinks VARCHAR2(400) PATH '$[11]', part VARCHAR2(400) PATH '$[12]', rest VARCHAR2(400) PATH '$[13]', read_at VARCHAR2(40) PATH '$[14]')) g
    JOIN app."Events_lanes" l ON l.lane = g.lane AND l.fence = g.claim AND l.owner = :2
    JOIN app."Events" t ON t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id);
--   1: [[5,1,7,"done",1,0,0,"","0/5","0197a3b4-0000-7abc-8def-000000000005",0,"","","","9999-12-31 00:00:00
--   2: r
INSERT INTO app."Events_done" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, finished_at, receipt, relay)
SELECT /*+ LEADING(g) USE_NL(t) INDEX(t) */ t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, t.sinks, g.attempts, g.crashes, t.available_at, NVL(g.fault, t.last_error), SYS_EXTRACT_UTC(SYSTIMESTAMP), g.receipt, :1
FROM JSON_TABLE(:2, '$[*]' COLUMNS (
        id NUMBER PATH '$[0]', lane NUMBER PATH '$[1]', claim NUMBER PATH '$[2]', state VARCHAR2(10) PATH '$[3]',
        attempts NUMBER PATH '$[4]', crashes NUMBER PATH '$[5]', delay NUMBER PATH '$[6]', fault VARCHAR2(4000) PATH '$[7]', receipt VARCHAR2(4000) PATH '$[8]', message_id VARCHAR2(36) PATH '$[9]', holds NUMBER PATH '$[10]',
        sinks VARCHAR2(400) PATH '$[11]', part VARCHAR2(400) PATH '$[12]', rest VARCHAR2(400) PATH '$[13]', read_at VARCHAR2(40) PATH '$[14]')) g
    JOIN app."Events_lanes" l ON l.lane = g.lane AND l.fence = g.claim AND l.owner = :3
    JOIN app."Events_held" t ON t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id AND NLSSORT(NVL(t.sinks, ','), 'NLS_SORT=BINARY') = NLSSORT(NVL(g.sinks, ','), 'NLS_SORT=BINARY') AND t.state <> 'error';
--   1: r
--   2: [[8,2,8,"done",0,0,0,"","","0197a3b4-0000-7abc-8def-000000000008",0,"","","","9999-12-31 00:00:00.00
--   3: r
DELETE /*+ INDEX(d) */ FROM app."Events_held" d WHERE (d.id, d.message_id, NVL(d.sinks, ',')) IN (SELECT /*+ LEADING(g) USE_NL(t) INDEX(t) */ t.id, t.message_id, NVL(t.sinks, ',')
FROM JSON_TABLE(:1, '$[*]' COLUMNS (
        id NUMBER PATH '$[0]', lane NUMBER PATH '$[1]', claim NUMBER PATH '$[2]', state VARCHAR2(10) PATH '$[3]',
        attempts NUMBER PATH '$[4]', crashes NUMBER PATH '$[5]', delay NUMBER PATH '$[6]', fault VARCHAR2(4000) PATH '$[7]', receipt VARCHAR2(4000) PATH '$[8]', message_id VARCHAR2(36) PATH '$[9]', holds NUMBER PATH '$[10]',
        sinks VARCHAR2(400) PATH '$[11]', part VARCHAR2(400) PATH '$[12]', rest VARCHAR2(400) PATH '$[13]', read_at VARCHAR2(40) PATH '$[14]')) g
    JOIN app."Events_lanes" l ON l.lane = g.lane AND l.fence = g.claim AND l.owner = :2
    JOIN app."Events_held" t ON t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id AND NLSSORT(NVL(t.sinks, ','), 'NLS_SORT=BINARY') = NLSSORT(NVL(g.sinks, ','), 'NLS_SORT=BINARY') AND t.state <> 'error');
--   1: [[8,2,8,"done",0,0,0,"","","0197a3b4-0000-7abc-8def-000000000008",0,"","","","9999-12-31 00:00:00.00
--   2: r
INSERT INTO app."Events_held" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds)
SELECT /*+ LEADING(g) USE_NL(t) INDEX(t) */ t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, t.sinks, g.attempts, g.crashes, CASE WHEN g.state = 'retry' OR g.holds > 0 THEN SYS_EXTRACT_UTC(SYSTIMESTAMP) + NUMTODSINTERVAL(g.delay / 1000000, 'SECOND') ELSE t.available_at END, NVL(g.fault, t.last_error), NVL(g.attempt_log, t.attempt_log), g.state, g.holds
FROM JSON_TABLE(:1, '$[*]' COLUMNS (
        id NUMBER PATH '$[0]', lane NUMBER PATH '$[1]', claim NUMBER PATH '$[2]', state VARCHAR2(10) PATH '$[3]',
        attempts NUMBER PATH '$[4]', crashes NUMBER PATH '$[5]', delay NUMBER PATH '$[6]', fault VARCHAR2(4000) PATH '$[7]', receipt VARCHAR2(4000) PATH '$[8]', message_id VARCHAR2(36) PATH '$[9]', holds NUMBER PATH '$[10]',
        sinks VARCHAR2(400) PATH '$[11]', part VARCHAR2(400) PATH '$[12]', rest VARCHAR2(400) PATH '$[13]', read_at VARCHAR2(40) PATH '$[14]', attempt_log VARCHAR2(4000) PATH '$[15]')) g
    JOIN app."Events_lanes" l ON l.lane = g.lane AND l.fence = g.claim AND l.owner = :2
    JOIN app."Events" t ON t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id;
--   1: [[6,1,7,"retry",2,0,1000000,"it's \"broken\"","","0197a3b4-0000-7abc-8def-000000000006",0,"","","","
--   2: r
DELETE /*+ INDEX(d) */ FROM app."Events" d WHERE (d.id, d.message_id) IN (SELECT /*+ LEADING(g) USE_NL(t) INDEX(t) */ t.id, t.message_id
FROM JSON_TABLE(:1, '$[*]' COLUMNS (
        id NUMBER PATH '$[0]', lane NUMBER PATH '$[1]', claim NUMBER PATH '$[2]', state VARCHAR2(10) PATH '$[3]',
        attempts NUMBER PATH '$[4]', crashes NUMBER PATH '$[5]', delay NUMBER PATH '$[6]', fault VARCHAR2(4000) PATH '$[7]', receipt VARCHAR2(4000) PATH '$[8]', message_id VARCHAR2(36) PATH '$[9]', holds NUMBER PATH '$[10]',
        sinks VARCHAR2(400) PATH '$[11]', part VARCHAR2(400) PATH '$[12]', rest VARCHAR2(400) PATH '$[13]', read_at VARCHAR2(40) PATH '$[14]')) g
    JOIN app."Events_lanes" l ON l.lane = g.lane AND l.fence = g.claim AND l.owner = :2
    JOIN app."Events" t ON t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id);
--   1: [[6,1,7,"retry",2,0,1000000,"it's \"broken\"","","0197a3b4-0000-7abc-8def-000000000006",0,"","","","
--   2: r
MERGE INTO app."Events_held" t USING (SELECT g.* FROM JSON_TABLE(:1, '$[*]' COLUMNS (
        id NUMBER PATH '$[0]', lane NUMBER PATH '$[1]', claim NUMBER PATH '$[2]', state VARCHAR2(10) PATH '$[3]',
        attempts NUMBER PATH '$[4]', crashes NUMBER PATH '$[5]', delay NUMBER PATH '$[6]', fault VARCHAR2(4000) PATH '$[7]', receipt VARCHAR2(4000) PATH '$[8]', message_id VARCHAR2(36) PATH '$[9]', holds NUMBER PATH '$[10]',
        sinks VARCHAR2(400) PATH '$[11]', part VARCHAR2(400) PATH '$[12]', rest VARCHAR2(400) PATH '$[13]', read_at VARCHAR2(40) PATH '$[14]', attempt_log VARCHAR2(4000) PATH '$[15]')) g
    JOIN app."Events_lanes" l ON l.lane = g.lane AND l.fence = g.claim AND l.owner = :2) g ON (t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id AND NLSSORT(NVL(t.sinks, ','), 'NLS_SORT=BINARY') = NLSSORT(NVL(g.sinks, ','), 'NLS_SORT=BINARY'))
WHEN MATCHED THEN UPDATE SET t.state = g.state, t.holds = g.holds, t.attempts = g.attempts, t.crashes = g.crashes,
    t.available_at = CASE WHEN g.state = 'retry' OR g.holds > 0 THEN SYS_EXTRACT_UTC(SYSTIMESTAMP) + NUMTODSINTERVAL(g.delay / 1000000, 'SECOND') ELSE t.available_at END, t.last_error = NVL(g.fault, t.last_error), t.attempt_log = NVL(g.attempt_log, t.attempt_log)
    WHERE t.state <> 'error' AND (t.holds < 2 OR g.holds = 0 AND g.state <> 'retry') AND (t.available_at IS NULL OR t.available_at <= TO_TIMESTAMP(g.read_at, 'YYYY-MM-DD HH24:MI:SS.FF6'));
--   1: [[7,2,8,"error",0,0,0,"","","0197a3b4-0000-7abc-8def-000000000007",0,"","","","9999-12-31 00:00:00.0
--   2: r

-- settle: dead letters
BEGIN
    FOR locked IN (
    SELECT lock_id FROM app."Events_locks" WHERE lock_id IN (
        SELECT 8 * g.lane + MOD(SYS_CONTEXT('USERENV', 'SID'), 8) FROM JSON_TABLE(:1, '$[*]' COLUMNS (lane NUMBER PATH '$[0]', fence NUMBER PATH '$[1]')) g)
    ORDER BY lock_id FOR UPDATE) LOOP NULL; END LOOP;
END;
/
--   1: [[1,7],[2,8]]
SELECT 'lane', l.lane, l.fence FROM JSON_TABLE(:1, '$[*]' COLUMNS (lane NUMBER PATH '$[0]', fence NUMBER PATH '$[1]')) g JOIN app."Events_lanes" l ON l.lane = g.lane AND l.fence = g.fence AND l.owner = :2;
--   1: [[1,7],[2,8]]
--   2: r
BEGIN
    FOR locked IN (
    SELECT t.id FROM app."Events" t WHERE t.id IN (SELECT j.id FROM JSON_TABLE(:1, '$[*]' COLUMNS (id NUMBER PATH '$')) j)
    ORDER BY t.id FOR UPDATE) LOOP NULL; END LOOP;
END;
/
--   1: [6]
INSERT INTO app."Events" (message_id, topic, message_key, payload, payload_text, headers, priority, expires_at, sinks)
SELECT :1, :2, t.message_key, t.payload, t.payload_text, :3, t.priority, CASE WHEN t.expires_at > SYS_EXTRACT_UTC(SYSTIMESTAMP) THEN t.expires_at END, :4 FROM app."Events" t
WHERE t.id = :5 AND t.lane = :6 AND t.message_id = :7
    AND EXISTS (SELECT 1 FROM app."Events_lanes" l WHERE l.lane = t.lane AND l.fence = :8 AND l.owner = :9);
--   1: 0197a3b4-0000-7abc-8def-000000000020
--   2: dead
--   3: {"rowrelay-dead-letter-sink":"a"}
--   4: c
--   5: 6
--   6: 1
--   7: 0197a3b4-0000-7abc-8def-000000000006
--   8: 7
--   9: r
BEGIN
    FOR locked IN (
    SELECT t.id FROM app."Events_held" t WHERE t.id IN (SELECT j.id FROM JSON_TABLE(:1, '$[*]' COLUMNS (id NUMBER PATH '$')) j)
    ORDER BY t.id FOR UPDATE) LOOP NULL; END LOOP;
END;
/
--   1: [7]
INSERT INTO app."Events" (message_id, topic, message_key, payload, payload_text, headers, priority, expires_at, sinks)
SELECT :1, :2, t.message_key, t.payload, t.payload_text, :3, t.priority, CASE WHEN t.expires_at > SYS_EXTRACT_UTC(SYSTIMESTAMP) THEN t.expires_at END, :4 FROM app."Events_held" t
WHERE t.id = :5 AND t.lane = :6 AND t.message_id = :7 AND NLSSORT(NVL(t.sinks, ','), 'NLS_SORT=BINARY') = NLSSORT(:8, 'NLS_SORT=BINARY') AND t.state <> 'error' AND (t.holds < 2 OR :9 = 0) AND (t.available_at IS NULL OR t.available_at <= TO_TIMESTAMP(:10, 'YYYY-MM-DD HH24:MI:SS.FF6'))
    AND EXISTS (SELECT 1 FROM app."Events_lanes" l WHERE l.lane = t.lane AND l.fence = :11 AND l.owner = :12);
--   1: 0197a3b4-0000-7abc-8def-000000000021
--   2: dead.other
--   3: <nil>
--   4: <nil>
--   5: 7
--   6: 2
--   7: 0197a3b4-0000-7abc-8def-000000000007
--   8: ,
--   9: 1
--   10: 9999-12-31 00:00:00.000000
--   11: 8
--   12: r
INSERT INTO app."Events_done" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, finished_at, receipt, relay)
SELECT /*+ LEADING(g) USE_NL(t) INDEX(t) */ t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, t.sinks, g.attempts, g.crashes, t.available_at, NVL(g.fault, t.last_error), SYS_EXTRACT_UTC(SYSTIMESTAMP), g.receipt, :1
FROM JSON_TABLE(:2, '$[*]' COLUMNS (
        id NUMBER PATH '$[0]', lane NUMBER PATH '$[1]', claim NUMBER PATH '$[2]', state VARCHAR2(10) PATH '$[3]',
        attempts NUMBER PATH '$[4]', crashes NUMBER PATH '$[5]', delay NUMBER PATH '$[6]', fault VARCHAR2(4000) PATH '$[7]', receipt VARCHAR2(4000) PATH '$[8]', message_id VARCHAR2(36) PATH '$[9]', holds NUMBER PATH '$[10]',
        sinks VARCHAR2(400) PATH '$[11]', part VARCHAR2(400) PATH '$[12]', rest VARCHAR2(400) PATH '$[13]', read_at VARCHAR2(40) PATH '$[14]')) g
    JOIN app."Events_lanes" l ON l.lane = g.lane AND l.fence = g.claim AND l.owner = :3
    JOIN app."Events" t ON t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id;
--   1: r
--   2: [[5,1,7,"done",1,0,0,"","0/5","0197a3b4-0000-7abc-8def-000000000005",0,"","","","9999-12-31 00:00:00
--   3: r
DELETE /*+ INDEX(d) */ FROM app."Events" d WHERE (d.id, d.message_id) IN (SELECT /*+ LEADING(g) USE_NL(t) INDEX(t) */ t.id, t.message_id
FROM JSON_TABLE(:1, '$[*]' COLUMNS (
        id NUMBER PATH '$[0]', lane NUMBER PATH '$[1]', claim NUMBER PATH '$[2]', state VARCHAR2(10) PATH '$[3]',
        attempts NUMBER PATH '$[4]', crashes NUMBER PATH '$[5]', delay NUMBER PATH '$[6]', fault VARCHAR2(4000) PATH '$[7]', receipt VARCHAR2(4000) PATH '$[8]', message_id VARCHAR2(36) PATH '$[9]', holds NUMBER PATH '$[10]',
        sinks VARCHAR2(400) PATH '$[11]', part VARCHAR2(400) PATH '$[12]', rest VARCHAR2(400) PATH '$[13]', read_at VARCHAR2(40) PATH '$[14]')) g
    JOIN app."Events_lanes" l ON l.lane = g.lane AND l.fence = g.claim AND l.owner = :2
    JOIN app."Events" t ON t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id);
--   1: [[5,1,7,"done",1,0,0,"","0/5","0197a3b4-0000-7abc-8def-000000000005",0,"","","","9999-12-31 00:00:00
--   2: r
INSERT INTO app."Events_held" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds)
SELECT /*+ LEADING(g) USE_NL(t) INDEX(t) */ t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, t.sinks, g.attempts, g.crashes, CASE WHEN g.state = 'retry' OR g.holds > 0 THEN SYS_EXTRACT_UTC(SYSTIMESTAMP) + NUMTODSINTERVAL(g.delay / 1000000, 'SECOND') ELSE t.available_at END, NVL(g.fault, t.last_error), NVL(g.attempt_log, t.attempt_log), g.state, g.holds
FROM JSON_TABLE(:1, '$[*]' COLUMNS (
        id NUMBER PATH '$[0]', lane NUMBER PATH '$[1]', claim NUMBER PATH '$[2]', state VARCHAR2(10) PATH '$[3]',
        attempts NUMBER PATH '$[4]', crashes NUMBER PATH '$[5]', delay NUMBER PATH '$[6]', fault VARCHAR2(4000) PATH '$[7]', receipt VARCHAR2(4000) PATH '$[8]', message_id VARCHAR2(36) PATH '$[9]', holds NUMBER PATH '$[10]',
        sinks VARCHAR2(400) PATH '$[11]', part VARCHAR2(400) PATH '$[12]', rest VARCHAR2(400) PATH '$[13]', read_at VARCHAR2(40) PATH '$[14]', attempt_log VARCHAR2(4000) PATH '$[15]')) g
    JOIN app."Events_lanes" l ON l.lane = g.lane AND l.fence = g.claim AND l.owner = :2
    JOIN app."Events" t ON t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id;
--   1: [[6,1,7,"error",2,0,1000000,"it's \"broken\"","","0197a3b4-0000-7abc-8def-000000000006",0,"","","","
--   2: r
DELETE /*+ INDEX(d) */ FROM app."Events" d WHERE (d.id, d.message_id) IN (SELECT /*+ LEADING(g) USE_NL(t) INDEX(t) */ t.id, t.message_id
FROM JSON_TABLE(:1, '$[*]' COLUMNS (
        id NUMBER PATH '$[0]', lane NUMBER PATH '$[1]', claim NUMBER PATH '$[2]', state VARCHAR2(10) PATH '$[3]',
        attempts NUMBER PATH '$[4]', crashes NUMBER PATH '$[5]', delay NUMBER PATH '$[6]', fault VARCHAR2(4000) PATH '$[7]', receipt VARCHAR2(4000) PATH '$[8]', message_id VARCHAR2(36) PATH '$[9]', holds NUMBER PATH '$[10]',
        sinks VARCHAR2(400) PATH '$[11]', part VARCHAR2(400) PATH '$[12]', rest VARCHAR2(400) PATH '$[13]', read_at VARCHAR2(40) PATH '$[14]')) g
    JOIN app."Events_lanes" l ON l.lane = g.lane AND l.fence = g.claim AND l.owner = :2
    JOIN app."Events" t ON t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id);
--   1: [[6,1,7,"error",2,0,1000000,"it's \"broken\"","","0197a3b4-0000-7abc-8def-000000000006",0,"","","","
--   2: r
MERGE INTO app."Events_held" t USING (SELECT g.* FROM JSON_TABLE(:1, '$[*]' COLUMNS (
        id NUMBER PATH '$[0]', lane NUMBER PATH '$[1]', claim NUMBER PATH '$[2]', state VARCHAR2(10) PATH '$[3]',
        attempts NUMBER PATH '$[4]', crashes NUMBER PATH '$[5]', delay NUMBER PATH '$[6]', fault VARCHAR2(4000) PATH '$[7]', receipt VARCHAR2(4000) PATH '$[8]', message_id VARCHAR2(36) PATH '$[9]', holds NUMBER PATH '$[10]',
        sinks VARCHAR2(400) PATH '$[11]', part VARCHAR2(400) PATH '$[12]', rest VARCHAR2(400) PATH '$[13]', read_at VARCHAR2(40) PATH '$[14]', attempt_log VARCHAR2(4000) PATH '$[15]')) g
    JOIN app."Events_lanes" l ON l.lane = g.lane AND l.fence = g.claim AND l.owner = :2) g ON (t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id AND NLSSORT(NVL(t.sinks, ','), 'NLS_SORT=BINARY') = NLSSORT(NVL(g.sinks, ','), 'NLS_SORT=BINARY'))
WHEN MATCHED THEN UPDATE SET t.state = g.state, t.holds = g.holds, t.attempts = g.attempts, t.crashes = g.crashes,
    t.available_at = CASE WHEN g.state = 'retry' OR g.holds > 0 THEN SYS_EXTRACT_UTC(SYSTIMESTAMP) + NUMTODSINTERVAL(g.delay / 1000000, 'SECOND') ELSE t.available_at END, t.last_error = NVL(g.fault, t.last_error), t.attempt_log = NVL(g.attempt_log, t.attempt_log)
    WHERE t.state <> 'error' AND (t.holds < 2 OR g.holds = 0 AND g.state <> 'retry') AND (t.available_at IS NULL OR t.available_at <= TO_TIMESTAMP(g.read_at, 'YYYY-MM-DD HH24:MI:SS.FF6'));
--   1: [[7,2,8,"error",0,0,0,"","","0197a3b4-0000-7abc-8def-000000000007",1,"","","","9999-12-31 00:00:00.0
--   2: r

-- settle: failed attempts
BEGIN
    FOR locked IN (
    SELECT lock_id FROM app."Events_locks" WHERE lock_id IN (
        SELECT 8 * g.lane + MOD(SYS_CONTEXT('USERENV', 'SID'), 8) FROM JSON_TABLE(:1, '$[*]' COLUMNS (lane NUMBER PATH '$[0]', fence NUMBER PATH '$[1]')) g)
    ORDER BY lock_id FOR UPDATE) LOOP NULL; END LOOP;
END;
/
--   1: [[1,7],[2,8]]
SELECT 'lane', l.lane, l.fence FROM JSON_TABLE(:1, '$[*]' COLUMNS (lane NUMBER PATH '$[0]', fence NUMBER PATH '$[1]')) g JOIN app."Events_lanes" l ON l.lane = g.lane AND l.fence = g.fence AND l.owner = :2;
--   1: [[1,7],[2,8]]
--   2: r
INSERT INTO app."Events_held" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds)
SELECT /*+ LEADING(g) USE_NL(t) INDEX(t) */ t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, t.sinks, g.attempts, g.crashes, CASE WHEN g.state = 'retry' OR g.holds > 0 THEN SYS_EXTRACT_UTC(SYSTIMESTAMP) + NUMTODSINTERVAL(g.delay / 1000000, 'SECOND') ELSE t.available_at END, NVL(g.fault, t.last_error), NVL(g.attempt_log, t.attempt_log), g.state, g.holds
FROM JSON_TABLE(:1, '$[*]' COLUMNS (
        id NUMBER PATH '$[0]', lane NUMBER PATH '$[1]', claim NUMBER PATH '$[2]', state VARCHAR2(10) PATH '$[3]',
        attempts NUMBER PATH '$[4]', crashes NUMBER PATH '$[5]', delay NUMBER PATH '$[6]', fault VARCHAR2(4000) PATH '$[7]', receipt VARCHAR2(4000) PATH '$[8]', message_id VARCHAR2(36) PATH '$[9]', holds NUMBER PATH '$[10]',
        sinks VARCHAR2(400) PATH '$[11]', part VARCHAR2(400) PATH '$[12]', rest VARCHAR2(400) PATH '$[13]', read_at VARCHAR2(40) PATH '$[14]', attempt_log VARCHAR2(4000) PATH '$[15]')) g
    JOIN app."Events_lanes" l ON l.lane = g.lane AND l.fence = g.claim AND l.owner = :2
    JOIN app."Events" t ON t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id;
--   1: [[6,1,7,"retry",2,0,1000000,"it's \"broken\"","","0197a3b4-0000-7abc-8def-000000000006",0,"","","","
--   2: r
DELETE /*+ INDEX(d) */ FROM app."Events" d WHERE (d.id, d.message_id) IN (SELECT /*+ LEADING(g) USE_NL(t) INDEX(t) */ t.id, t.message_id
FROM JSON_TABLE(:1, '$[*]' COLUMNS (
        id NUMBER PATH '$[0]', lane NUMBER PATH '$[1]', claim NUMBER PATH '$[2]', state VARCHAR2(10) PATH '$[3]',
        attempts NUMBER PATH '$[4]', crashes NUMBER PATH '$[5]', delay NUMBER PATH '$[6]', fault VARCHAR2(4000) PATH '$[7]', receipt VARCHAR2(4000) PATH '$[8]', message_id VARCHAR2(36) PATH '$[9]', holds NUMBER PATH '$[10]',
        sinks VARCHAR2(400) PATH '$[11]', part VARCHAR2(400) PATH '$[12]', rest VARCHAR2(400) PATH '$[13]', read_at VARCHAR2(40) PATH '$[14]')) g
    JOIN app."Events_lanes" l ON l.lane = g.lane AND l.fence = g.claim AND l.owner = :2
    JOIN app."Events" t ON t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id);
--   1: [[6,1,7,"retry",2,0,1000000,"it's \"broken\"","","0197a3b4-0000-7abc-8def-000000000006",0,"","","","
--   2: r
MERGE INTO app."Events_held" t USING (SELECT g.* FROM JSON_TABLE(:1, '$[*]' COLUMNS (
        id NUMBER PATH '$[0]', lane NUMBER PATH '$[1]', claim NUMBER PATH '$[2]', state VARCHAR2(10) PATH '$[3]',
        attempts NUMBER PATH '$[4]', crashes NUMBER PATH '$[5]', delay NUMBER PATH '$[6]', fault VARCHAR2(4000) PATH '$[7]', receipt VARCHAR2(4000) PATH '$[8]', message_id VARCHAR2(36) PATH '$[9]', holds NUMBER PATH '$[10]',
        sinks VARCHAR2(400) PATH '$[11]', part VARCHAR2(400) PATH '$[12]', rest VARCHAR2(400) PATH '$[13]', read_at VARCHAR2(40) PATH '$[14]', attempt_log VARCHAR2(4000) PATH '$[15]')) g
    JOIN app."Events_lanes" l ON l.lane = g.lane AND l.fence = g.claim AND l.owner = :2) g ON (t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id AND NLSSORT(NVL(t.sinks, ','), 'NLS_SORT=BINARY') = NLSSORT(NVL(g.sinks, ','), 'NLS_SORT=BINARY'))
WHEN MATCHED THEN UPDATE SET t.state = g.state, t.holds = g.holds, t.attempts = g.attempts, t.crashes = g.crashes,
    t.available_at = CASE WHEN g.state = 'retry' OR g.holds > 0 THEN SYS_EXTRACT_UTC(SYSTIMESTAMP) + NUMTODSINTERVAL(g.delay / 1000000, 'SECOND') ELSE t.available_at END, t.last_error = NVL(g.fault, t.last_error), t.attempt_log = NVL(g.attempt_log, t.attempt_log)
    WHERE t.state <> 'error' AND (t.holds < 2 OR g.holds = 0 AND g.state <> 'retry') AND (t.available_at IS NULL OR t.available_at <= TO_TIMESTAMP(g.read_at, 'YYYY-MM-DD HH24:MI:SS.FF6'));
--   1: [[7,2,8,"error",0,0,0,"","","0197a3b4-0000-7abc-8def-000000000007",0,"","","","9999-12-31 00:00:00.0
--   2: r

-- settle by rows: a failed attempt
BEGIN
    FOR locked IN (
    SELECT t.id FROM app."Events" t WHERE t.id IN (SELECT j.id FROM JSON_TABLE(:1, '$[*]' COLUMNS (id NUMBER PATH '$')) j)
    ORDER BY t.id FOR UPDATE) LOOP NULL; END LOOP;
END;
/
--   1: [11]
SELECT 'fenced', COUNT(*), 0 FROM JSON_TABLE(:1, '$[*]' COLUMNS (id NUMBER PATH '$[0]', lane NUMBER PATH '$[1]', claim VARCHAR2(255) PATH '$[2]', message_id VARCHAR2(36) PATH '$[9]')) g JOIN app."Events" t ON t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id
WHERE t.claim_token IS NULL OR t.claim_token <> g.claim;
--   1: [[11,2,"t","retry",1,0,1000000,"refused","","0197a3b4-0000-7abc-8def-000000000011",0,"","","","9999-
INSERT INTO app."Events_held" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds)
SELECT /*+ LEADING(g) USE_NL(t) INDEX(t) */ t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, t.sinks, g.attempts, g.crashes, CASE WHEN g.state = 'retry' OR g.holds > 0 THEN SYS_EXTRACT_UTC(SYSTIMESTAMP) + NUMTODSINTERVAL(g.delay / 1000000, 'SECOND') ELSE t.available_at END, NVL(g.fault, t.last_error), NVL(g.attempt_log, t.attempt_log), g.state, g.holds
FROM JSON_TABLE(:1, '$[*]' COLUMNS (
        id NUMBER PATH '$[0]', lane NUMBER PATH '$[1]', claim VARCHAR2(255) PATH '$[2]', state VARCHAR2(10) PATH '$[3]',
        attempts NUMBER PATH '$[4]', crashes NUMBER PATH '$[5]', delay NUMBER PATH '$[6]', fault VARCHAR2(4000) PATH '$[7]', receipt VARCHAR2(4000) PATH '$[8]', message_id VARCHAR2(36) PATH '$[9]', holds NUMBER PATH '$[10]',
        sinks VARCHAR2(400) PATH '$[11]', part VARCHAR2(400) PATH '$[12]', rest VARCHAR2(400) PATH '$[13]', read_at VARCHAR2(40) PATH '$[14]', attempt_log VARCHAR2(4000) PATH '$[15]')) g
    JOIN app."Events" t ON t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id AND t.claim_token = g.claim;
--   1: [[11,2,"t","retry",1,0,1000000,"refused","","0197a3b4-0000-7abc-8def-000000000011",0,"","","","9999-
DELETE /*+ INDEX(d) */ FROM app."Events" d WHERE (d.id, d.message_id) IN (SELECT /*+ LEADING(g) USE_NL(t) INDEX(t) */ t.id, t.message_id
FROM JSON_TABLE(:1, '$[*]' COLUMNS (
        id NUMBER PATH '$[0]', lane NUMBER PATH '$[1]', claim VARCHAR2(255) PATH '$[2]', state VARCHAR2(10) PATH '$[3]',
        attempts NUMBER PATH '$[4]', crashes NUMBER PATH '$[5]', delay NUMBER PATH '$[6]', fault VARCHAR2(4000) PATH '$[7]', receipt VARCHAR2(4000) PATH '$[8]', message_id VARCHAR2(36) PATH '$[9]', holds NUMBER PATH '$[10]',
        sinks VARCHAR2(400) PATH '$[11]', part VARCHAR2(400) PATH '$[12]', rest VARCHAR2(400) PATH '$[13]', read_at VARCHAR2(40) PATH '$[14]')) g
    JOIN app."Events" t ON t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id AND t.claim_token = g.claim);
--   1: [[11,2,"t","retry",1,0,1000000,"refused","","0197a3b4-0000-7abc-8def-000000000011",0,"","","","9999-

-- settle for some sinks
BEGIN
    FOR locked IN (
    SELECT lock_id FROM app."Events_locks" WHERE lock_id IN (
        SELECT 8 * g.lane + MOD(SYS_CONTEXT('USERENV', 'SID'), 8) FROM JSON_TABLE(:1, '$[*]' COLUMNS (lane NUMBER PATH '$[0]', fence NUMBER PATH '$[1]')) g)
    ORDER BY lock_id FOR UPDATE) LOOP NULL; END LOOP;
END;
/
--   1: [[1,7],[2,8]]
SELECT 'lane', l.lane, l.fence FROM JSON_TABLE(:1, '$[*]' COLUMNS (lane NUMBER PATH '$[0]', fence NUMBER PATH '$[1]')) g JOIN app."Events_lanes" l ON l.lane = g.lane AND l.fence = g.fence AND l.owner = :2;
--   1: [[1,7],[2,8]]
--   2: r
INSERT INTO app."Events_done" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, finished_at, receipt, relay)
SELECT /*+ LEADING(g) USE_NL(t) INDEX(t) */ t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, g.part, g.attempts, g.crashes, t.available_at, NVL(g.fault, t.last_error), SYS_EXTRACT_UTC(SYSTIMESTAMP), g.receipt, :1
FROM JSON_TABLE(:2, '$[*]' COLUMNS (
        id NUMBER PATH '$[0]', lane NUMBER PATH '$[1]', claim NUMBER PATH '$[2]', state VARCHAR2(10) PATH '$[3]',
        attempts NUMBER PATH '$[4]', crashes NUMBER PATH '$[5]', delay NUMBER PATH '$[6]', fault VARCHAR2(4000) PATH '$[7]', receipt VARCHAR2(4000) PATH '$[8]', message_id VARCHAR2(36) PATH '$[9]', holds NUMBER PATH '$[10]',
        sinks VARCHAR2(400) PATH '$[11]', part VARCHAR2(400) PATH '$[12]', rest VARCHAR2(400) PATH '$[13]', read_at VARCHAR2(40) PATH '$[14]')) g
    JOIN app."Events_lanes" l ON l.lane = g.lane AND l.fence = g.claim AND l.owner = :3
    JOIN app."Events" t ON t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id AND NLSSORT(NVL(t.sinks, ','), 'NLS_SORT=BINARY') = NLSSORT(NVL(g.sinks, ','), 'NLS_SORT=BINARY');
--   1: r
--   2: [[5,1,7,"done",1,0,0,"","0/5","0197a3b4-0000-7abc-8def-000000000005",0,"","a","b,c","9999-12-31 00:0
--   3: r
INSERT INTO app."Events_held" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds)
SELECT /*+ LEADING(g) USE_NL(t) INDEX(t) */ t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, g.part, g.attempts, g.crashes, CASE WHEN g.state = 'retry' OR g.holds > 0 THEN SYS_EXTRACT_UTC(SYSTIMESTAMP) + NUMTODSINTERVAL(g.delay / 1000000, 'SECOND') ELSE t.available_at END, NVL(g.fault, t.last_error), NVL(g.attempt_log, t.attempt_log), g.state, g.holds
FROM JSON_TABLE(:1, '$[*]' COLUMNS (
        id NUMBER PATH '$[0]', lane NUMBER PATH '$[1]', claim NUMBER PATH '$[2]', state VARCHAR2(10) PATH '$[3]',
        attempts NUMBER PATH '$[4]', crashes NUMBER PATH '$[5]', delay NUMBER PATH '$[6]', fault VARCHAR2(4000) PATH '$[7]', receipt VARCHAR2(4000) PATH '$[8]', message_id VARCHAR2(36) PATH '$[9]', holds NUMBER PATH '$[10]',
        sinks VARCHAR2(400) PATH '$[11]', part VARCHAR2(400) PATH '$[12]', rest VARCHAR2(400) PATH '$[13]', read_at VARCHAR2(40) PATH '$[14]', attempt_log VARCHAR2(4000) PATH '$[15]')) g
    JOIN app."Events_lanes" l ON l.lane = g.lane AND l.fence = g.claim AND l.owner = :2
    JOIN app."Events" t ON t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id AND NLSSORT(NVL(t.sinks, ','), 'NLS_SORT=BINARY') = NLSSORT(NVL(g.sinks, ','), 'NLS_SORT=BINARY');
--   1: [[6,1,7,"retry",2,0,1000000,"it's \"broken\"","","0197a3b4-0000-7abc-8def-000000000006",0,"","a","b"
--   2: r
MERGE INTO app."Events" t USING (SELECT g.* FROM JSON_TABLE(:1, '$[*]' COLUMNS (
        id NUMBER PATH '$[0]', lane NUMBER PATH '$[1]', claim NUMBER PATH '$[2]', state VARCHAR2(10) PATH '$[3]',
        attempts NUMBER PATH '$[4]', crashes NUMBER PATH '$[5]', delay NUMBER PATH '$[6]', fault VARCHAR2(4000) PATH '$[7]', receipt VARCHAR2(4000) PATH '$[8]', message_id VARCHAR2(36) PATH '$[9]', holds NUMBER PATH '$[10]',
        sinks VARCHAR2(400) PATH '$[11]', part VARCHAR2(400) PATH '$[12]', rest VARCHAR2(400) PATH '$[13]', read_at VARCHAR2(40) PATH '$[14]')) g
    JOIN app."Events_lanes" l ON l.lane = g.lane AND l.fence = g.claim AND l.owner = :2) g ON (t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id)
WHEN MATCHED THEN UPDATE SET t.sinks = g.rest
    WHERE NLSSORT(NVL(t.sinks, ','), 'NLS_SORT=BINARY') = NLSSORT(NVL(g.sinks, ','), 'NLS_SORT=BINARY');
--   1: [[5,1,7,"done",1,0,0,"","0/5","0197a3b4-0000-7abc-8def-000000000005",0,"","a","b,c","9999-12-31 00:0
--   2: r
INSERT INTO app."Events_held" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds)
SELECT /*+ LEADING(g) USE_NL(t) INDEX(t) */ t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, g.part, g.attempts, g.crashes, CASE WHEN g.state = 'retry' OR g.holds > 0 THEN SYS_EXTRACT_UTC(SYSTIMESTAMP) + NUMTODSINTERVAL(g.delay / 1000000, 'SECOND') ELSE t.available_at END, NVL(g.fault, t.last_error), NVL(g.attempt_log, t.attempt_log), g.state, g.holds
FROM JSON_TABLE(:1, '$[*]' COLUMNS (
        id NUMBER PATH '$[0]', lane NUMBER PATH '$[1]', claim NUMBER PATH '$[2]', state VARCHAR2(10) PATH '$[3]',
        attempts NUMBER PATH '$[4]', crashes NUMBER PATH '$[5]', delay NUMBER PATH '$[6]', fault VARCHAR2(4000) PATH '$[7]', receipt VARCHAR2(4000) PATH '$[8]', message_id VARCHAR2(36) PATH '$[9]', holds NUMBER PATH '$[10]',
        sinks VARCHAR2(400) PATH '$[11]', part VARCHAR2(400) PATH '$[12]', rest VARCHAR2(400) PATH '$[13]', read_at VARCHAR2(40) PATH '$[14]', attempt_log VARCHAR2(4000) PATH '$[15]')) g
    JOIN app."Events_lanes" l ON l.lane = g.lane AND l.fence = g.claim AND l.owner = :2
    JOIN app."Events_held" t ON t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id AND NLSSORT(NVL(t.sinks, ','), 'NLS_SORT=BINARY') = NLSSORT(NVL(g.sinks, ','), 'NLS_SORT=BINARY') AND t.state <> 'error' AND (t.holds < 2 OR g.holds = 0);
--   1: [[7,2,8,"error",0,0,0,"","","0197a3b4-0000-7abc-8def-000000000007",0,"a,b","b","a","9999-12-31 00:00
--   2: r
MERGE INTO app."Events_held" t USING (SELECT g.* FROM JSON_TABLE(:1, '$[*]' COLUMNS (
        id NUMBER PATH '$[0]', lane NUMBER PATH '$[1]', claim NUMBER PATH '$[2]', state VARCHAR2(10) PATH '$[3]',
        attempts NUMBER PATH '$[4]', crashes NUMBER PATH '$[5]', delay NUMBER PATH '$[6]', fault VARCHAR2(4000) PATH '$[7]', receipt VARCHAR2(4000) PATH '$[8]', message_id VARCHAR2(36) PATH '$[9]', holds NUMBER PATH '$[10]',
        sinks VARCHAR2(400) PATH '$[11]', part VARCHAR2(400) PATH '$[12]', rest VARCHAR2(400) PATH '$[13]', read_at VARCHAR2(40) PATH '$[14]')) g
    JOIN app."Events_lanes" l ON l.lane = g.lane AND l.fence = g.claim AND l.owner = :2) g ON (t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id)
WHEN MATCHED THEN UPDATE SET t.sinks = g.rest
    WHERE NLSSORT(NVL(t.sinks, ','), 'NLS_SORT=BINARY') = NLSSORT(NVL(g.sinks, ','), 'NLS_SORT=BINARY') AND t.state <> 'error' AND (t.holds < 2 OR g.holds = 0);
--   1: [[7,2,8,"error",0,0,0,"","","0197a3b4-0000-7abc-8def-000000000007",0,"a,b","b","a","9999-12-31 00:00
--   2: r

-- settle for some sinks: dead letters
BEGIN
    FOR locked IN (
    SELECT lock_id FROM app."Events_locks" WHERE lock_id IN (
        SELECT 8 * g.lane + MOD(SYS_CONTEXT('USERENV', 'SID'), 8) FROM JSON_TABLE(:1, '$[*]' COLUMNS (lane NUMBER PATH '$[0]', fence NUMBER PATH '$[1]')) g)
    ORDER BY lock_id FOR UPDATE) LOOP NULL; END LOOP;
END;
/
--   1: [[1,7],[2,8]]
SELECT 'lane', l.lane, l.fence FROM JSON_TABLE(:1, '$[*]' COLUMNS (lane NUMBER PATH '$[0]', fence NUMBER PATH '$[1]')) g JOIN app."Events_lanes" l ON l.lane = g.lane AND l.fence = g.fence AND l.owner = :2;
--   1: [[1,7],[2,8]]
--   2: r
BEGIN
    FOR locked IN (
    SELECT t.id FROM app."Events" t WHERE t.id IN (SELECT j.id FROM JSON_TABLE(:1, '$[*]' COLUMNS (id NUMBER PATH '$')) j)
    ORDER BY t.id FOR UPDATE) LOOP NULL; END LOOP;
END;
/
--   1: [6]
INSERT INTO app."Events" (message_id, topic, message_key, payload, payload_text, headers, priority, expires_at, sinks)
SELECT :1, :2, t.message_key, t.payload, t.payload_text, :3, t.priority, CASE WHEN t.expires_at > SYS_EXTRACT_UTC(SYSTIMESTAMP) THEN t.expires_at END, :4 FROM app."Events" t
WHERE t.id = :5 AND t.lane = :6 AND t.message_id = :7 AND NLSSORT(NVL(t.sinks, ','), 'NLS_SORT=BINARY') = NLSSORT(:8, 'NLS_SORT=BINARY')
    AND EXISTS (SELECT 1 FROM app."Events_lanes" l WHERE l.lane = t.lane AND l.fence = :9 AND l.owner = :10);
--   1: 0197a3b4-0000-7abc-8def-000000000020
--   2: dead
--   3: {"rowrelay-dead-letter-sink":"a"}
--   4: c
--   5: 6
--   6: 1
--   7: 0197a3b4-0000-7abc-8def-000000000006
--   8: ,
--   9: 7
--   10: r
BEGIN
    FOR locked IN (
    SELECT t.id FROM app."Events_held" t WHERE t.id IN (SELECT j.id FROM JSON_TABLE(:1, '$[*]' COLUMNS (id NUMBER PATH '$')) j)
    ORDER BY t.id FOR UPDATE) LOOP NULL; END LOOP;
END;
/
--   1: [7]
INSERT INTO app."Events" (message_id, topic, message_key, payload, payload_text, headers, priority, expires_at, sinks)
SELECT :1, :2, t.message_key, t.payload, t.payload_text, :3, t.priority, CASE WHEN t.expires_at > SYS_EXTRACT_UTC(SYSTIMESTAMP) THEN t.expires_at END, :4 FROM app."Events_held" t
WHERE t.id = :5 AND t.lane = :6 AND t.message_id = :7 AND NLSSORT(NVL(t.sinks, ','), 'NLS_SORT=BINARY') = NLSSORT(:8, 'NLS_SORT=BINARY') AND t.state <> 'error' AND (t.holds < 2 OR :9 = 0) AND (t.available_at IS NULL OR t.available_at <= TO_TIMESTAMP(:10, 'YYYY-MM-DD HH24:MI:SS.FF6'))
    AND EXISTS (SELECT 1 FROM app."Events_lanes" l WHERE l.lane = t.lane AND l.fence = :11 AND l.owner = :12);
--   1: 0197a3b4-0000-7abc-8def-000000000021
--   2: dead.other
--   3: <nil>
--   4: <nil>
--   5: 7
--   6: 2
--   7: 0197a3b4-0000-7abc-8def-000000000007
--   8: a,b
--   9: 1
--   10: 9999-12-31 00:00:00.000000
--   11: 8
--   12: r
INSERT INTO app."Events_held" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds)
SELECT /*+ LEADING(g) USE_NL(t) INDEX(t) */ t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, g.part, g.attempts, g.crashes, CASE WHEN g.state = 'retry' OR g.holds > 0 THEN SYS_EXTRACT_UTC(SYSTIMESTAMP) + NUMTODSINTERVAL(g.delay / 1000000, 'SECOND') ELSE t.available_at END, NVL(g.fault, t.last_error), NVL(g.attempt_log, t.attempt_log), g.state, g.holds
FROM JSON_TABLE(:1, '$[*]' COLUMNS (
        id NUMBER PATH '$[0]', lane NUMBER PATH '$[1]', claim NUMBER PATH '$[2]', state VARCHAR2(10) PATH '$[3]',
        attempts NUMBER PATH '$[4]', crashes NUMBER PATH '$[5]', delay NUMBER PATH '$[6]', fault VARCHAR2(4000) PATH '$[7]', receipt VARCHAR2(4000) PATH '$[8]', message_id VARCHAR2(36) PATH '$[9]', holds NUMBER PATH '$[10]',
        sinks VARCHAR2(400) PATH '$[11]', part VARCHAR2(400) PATH '$[12]', rest VARCHAR2(400) PATH '$[13]', read_at VARCHAR2(40) PATH '$[14]', attempt_log VARCHAR2(4000) PATH '$[15]')) g
    JOIN app."Events_lanes" l ON l.lane = g.lane AND l.fence = g.claim AND l.owner = :2
    JOIN app."Events" t ON t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id AND NLSSORT(NVL(t.sinks, ','), 'NLS_SORT=BINARY') = NLSSORT(NVL(g.sinks, ','), 'NLS_SORT=BINARY');
--   1: [[6,1,7,"error",2,0,1000000,"it's \"broken\"","","0197a3b4-0000-7abc-8def-000000000006",0,"","a","b"
--   2: r
MERGE INTO app."Events" t USING (SELECT g.* FROM JSON_TABLE(:1, '$[*]' COLUMNS (
        id NUMBER PATH '$[0]', lane NUMBER PATH '$[1]', claim NUMBER PATH '$[2]', state VARCHAR2(10) PATH '$[3]',
        attempts NUMBER PATH '$[4]', crashes NUMBER PATH '$[5]', delay NUMBER PATH '$[6]', fault VARCHAR2(4000) PATH '$[7]', receipt VARCHAR2(4000) PATH '$[8]', message_id VARCHAR2(36) PATH '$[9]', holds NUMBER PATH '$[10]',
        sinks VARCHAR2(400) PATH '$[11]', part VARCHAR2(400) PATH '$[12]', rest VARCHAR2(400) PATH '$[13]', read_at VARCHAR2(40) PATH '$[14]')) g
    JOIN app."Events_lanes" l ON l.lane = g.lane AND l.fence = g.claim AND l.owner = :2) g ON (t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id)
WHEN MATCHED THEN UPDATE SET t.sinks = g.rest
    WHERE NLSSORT(NVL(t.sinks, ','), 'NLS_SORT=BINARY') = NLSSORT(NVL(g.sinks, ','), 'NLS_SORT=BINARY');
--   1: [[6,1,7,"error",2,0,1000000,"it's \"broken\"","","0197a3b4-0000-7abc-8def-000000000006",0,"","a","b"
--   2: r
INSERT INTO app."Events_held" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds)
SELECT /*+ LEADING(g) USE_NL(t) INDEX(t) */ t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, g.part, g.attempts, g.crashes, CASE WHEN g.state = 'retry' OR g.holds > 0 THEN SYS_EXTRACT_UTC(SYSTIMESTAMP) + NUMTODSINTERVAL(g.delay / 1000000, 'SECOND') ELSE t.available_at END, NVL(g.fault, t.last_error), NVL(g.attempt_log, t.attempt_log), g.state, g.holds
FROM JSON_TABLE(:1, '$[*]' COLUMNS (
        id NUMBER PATH '$[0]', lane NUMBER PATH '$[1]', claim NUMBER PATH '$[2]', state VARCHAR2(10) PATH '$[3]',
        attempts NUMBER PATH '$[4]', crashes NUMBER PATH '$[5]', delay NUMBER PATH '$[6]', fault VARCHAR2(4000) PATH '$[7]', receipt VARCHAR2(4000) PATH '$[8]', message_id VARCHAR2(36) PATH '$[9]', holds NUMBER PATH '$[10]',
        sinks VARCHAR2(400) PATH '$[11]', part VARCHAR2(400) PATH '$[12]', rest VARCHAR2(400) PATH '$[13]', read_at VARCHAR2(40) PATH '$[14]', attempt_log VARCHAR2(4000) PATH '$[15]')) g
    JOIN app."Events_lanes" l ON l.lane = g.lane AND l.fence = g.claim AND l.owner = :2
    JOIN app."Events_held" t ON t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id AND NLSSORT(NVL(t.sinks, ','), 'NLS_SORT=BINARY') = NLSSORT(NVL(g.sinks, ','), 'NLS_SORT=BINARY') AND t.state <> 'error' AND (t.holds < 2 OR g.holds = 0);
--   1: [[7,2,8,"error",0,0,0,"","","0197a3b4-0000-7abc-8def-000000000007",1,"a,b","a","b","9999-12-31 00:00
--   2: r
MERGE INTO app."Events_held" t USING (SELECT g.* FROM JSON_TABLE(:1, '$[*]' COLUMNS (
        id NUMBER PATH '$[0]', lane NUMBER PATH '$[1]', claim NUMBER PATH '$[2]', state VARCHAR2(10) PATH '$[3]',
        attempts NUMBER PATH '$[4]', crashes NUMBER PATH '$[5]', delay NUMBER PATH '$[6]', fault VARCHAR2(4000) PATH '$[7]', receipt VARCHAR2(4000) PATH '$[8]', message_id VARCHAR2(36) PATH '$[9]', holds NUMBER PATH '$[10]',
        sinks VARCHAR2(400) PATH '$[11]', part VARCHAR2(400) PATH '$[12]', rest VARCHAR2(400) PATH '$[13]', read_at VARCHAR2(40) PATH '$[14]')) g
    JOIN app."Events_lanes" l ON l.lane = g.lane AND l.fence = g.claim AND l.owner = :2) g ON (t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id)
WHEN MATCHED THEN UPDATE SET t.sinks = g.rest
    WHERE NLSSORT(NVL(t.sinks, ','), 'NLS_SORT=BINARY') = NLSSORT(NVL(g.sinks, ','), 'NLS_SORT=BINARY') AND t.state <> 'error' AND (t.holds < 2 OR g.holds = 0);
--   1: [[7,2,8,"error",0,0,0,"","","0197a3b4-0000-7abc-8def-000000000007",1,"a,b","a","b","9999-12-31 00:00
--   2: r

-- settle: deferred rows of two sinks
BEGIN
    FOR locked IN (
    SELECT lock_id FROM app."Events_locks" WHERE lock_id IN (
        SELECT 8 * g.lane + MOD(SYS_CONTEXT('USERENV', 'SID'), 8) FROM JSON_TABLE(:1, '$[*]' COLUMNS (lane NUMBER PATH '$[0]', fence NUMBER PATH '$[1]')) g)
    ORDER BY lock_id FOR UPDATE) LOOP NULL; END LOOP;
END;
/
--   1: [[2,8]]
SELECT 'lane', l.lane, l.fence FROM JSON_TABLE(:1, '$[*]' COLUMNS (lane NUMBER PATH '$[0]', fence NUMBER PATH '$[1]')) g JOIN app."Events_lanes" l ON l.lane = g.lane AND l.fence = g.fence AND l.owner = :2;
--   1: [[2,8]]
--   2: r
INSERT INTO app."Events_done" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, finished_at, receipt, relay)
SELECT /*+ LEADING(g) USE_NL(t) INDEX(t) */ t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, t.sinks, g.attempts, g.crashes, t.available_at, NVL(g.fault, t.last_error), SYS_EXTRACT_UTC(SYSTIMESTAMP), g.receipt, :1
FROM JSON_TABLE(:2, '$[*]' COLUMNS (
        id NUMBER PATH '$[0]', lane NUMBER PATH '$[1]', claim NUMBER PATH '$[2]', state VARCHAR2(10) PATH '$[3]',
        attempts NUMBER PATH '$[4]', crashes NUMBER PATH '$[5]', delay NUMBER PATH '$[6]', fault VARCHAR2(4000) PATH '$[7]', receipt VARCHAR2(4000) PATH '$[8]', message_id VARCHAR2(36) PATH '$[9]', holds NUMBER PATH '$[10]',
        sinks VARCHAR2(400) PATH '$[11]', part VARCHAR2(400) PATH '$[12]', rest VARCHAR2(400) PATH '$[13]', read_at VARCHAR2(40) PATH '$[14]')) g
    JOIN app."Events_lanes" l ON l.lane = g.lane AND l.fence = g.claim AND l.owner = :3
    JOIN app."Events_held" t ON t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id AND NLSSORT(NVL(t.sinks, ','), 'NLS_SORT=BINARY') = NLSSORT(NVL(g.sinks, ','), 'NLS_SORT=BINARY') AND t.state <> 'error';
--   1: r
--   2: [[8,2,8,"done",0,0,0,"","","0197a3b4-0000-7abc-8def-000000000008",0,"a","","","9999-12-31 00:00:00.0
--   3: r
DELETE /*+ INDEX(d) */ FROM app."Events_held" d WHERE (d.id, d.message_id, NVL(d.sinks, ',')) IN (SELECT /*+ LEADING(g) USE_NL(t) INDEX(t) */ t.id, t.message_id, NVL(t.sinks, ',')
FROM JSON_TABLE(:1, '$[*]' COLUMNS (
        id NUMBER PATH '$[0]', lane NUMBER PATH '$[1]', claim NUMBER PATH '$[2]', state VARCHAR2(10) PATH '$[3]',
        attempts NUMBER PATH '$[4]', crashes NUMBER PATH '$[5]', delay NUMBER PATH '$[6]', fault VARCHAR2(4000) PATH '$[7]', receipt VARCHAR2(4000) PATH '$[8]', message_id VARCHAR2(36) PATH '$[9]', holds NUMBER PATH '$[10]',
        sinks VARCHAR2(400) PATH '$[11]', part VARCHAR2(400) PATH '$[12]', rest VARCHAR2(400) PATH '$[13]', read_at VARCHAR2(40) PATH '$[14]')) g
    JOIN app."Events_lanes" l ON l.lane = g.lane AND l.fence = g.claim AND l.owner = :2
    JOIN app."Events_held" t ON t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id AND NLSSORT(NVL(t.sinks, ','), 'NLS_SORT=BINARY') = NLSSORT(NVL(g.sinks, ','), 'NLS_SORT=BINARY') AND t.state <> 'error');
--   1: [[8,2,8,"done",0,0,0,"","","0197a3b4-0000-7abc-8def-000000000008",0,"a","","","9999-12-31 00:00:00.0
--   2: r

-- settle by rows: done
BEGIN
    FOR locked IN (
    SELECT t.id FROM app."Events" t WHERE t.id IN (SELECT j.id FROM JSON_TABLE(:1, '$[*]' COLUMNS (id NUMBER PATH '$')) j)
    ORDER BY t.id FOR UPDATE) LOOP NULL; END LOOP;
END;
/
--   1: [10]
SELECT 'fenced', COUNT(*), 0 FROM JSON_TABLE(:1, '$[*]' COLUMNS (id NUMBER PATH '$[0]', lane NUMBER PATH '$[1]', claim VARCHAR2(255) PATH '$[2]', message_id VARCHAR2(36) PATH '$[9]')) g JOIN app."Events" t ON t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id
WHERE t.claim_token IS NULL OR t.claim_token <> g.claim;
--   1: [[10,2,"t","done",0,0,0,"","","0197a3b4-0000-7abc-8def-000000000010",0,"","","","9999-12-31 00:00:00
INSERT INTO app."Events_done" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, finished_at, receipt, relay)
SELECT /*+ LEADING(g) USE_NL(t) INDEX(t) */ t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, t.sinks, g.attempts, g.crashes, t.available_at, NVL(g.fault, t.last_error), SYS_EXTRACT_UTC(SYSTIMESTAMP), g.receipt, :1
FROM JSON_TABLE(:2, '$[*]' COLUMNS (
        id NUMBER PATH '$[0]', lane NUMBER PATH '$[1]', claim VARCHAR2(255) PATH '$[2]', state VARCHAR2(10) PATH '$[3]',
        attempts NUMBER PATH '$[4]', crashes NUMBER PATH '$[5]', delay NUMBER PATH '$[6]', fault VARCHAR2(4000) PATH '$[7]', receipt VARCHAR2(4000) PATH '$[8]', message_id VARCHAR2(36) PATH '$[9]', holds NUMBER PATH '$[10]',
        sinks VARCHAR2(400) PATH '$[11]', part VARCHAR2(400) PATH '$[12]', rest VARCHAR2(400) PATH '$[13]', read_at VARCHAR2(40) PATH '$[14]')) g
    JOIN app."Events" t ON t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id AND t.claim_token = g.claim;
--   1: r
--   2: [[10,2,"t","done",0,0,0,"","","0197a3b4-0000-7abc-8def-000000000010",0,"","","","9999-12-31 00:00:00
DELETE /*+ INDEX(d) */ FROM app."Events" d WHERE (d.id, d.message_id) IN (SELECT /*+ LEADING(g) USE_NL(t) INDEX(t) */ t.id, t.message_id
FROM JSON_TABLE(:1, '$[*]' COLUMNS (
        id NUMBER PATH '$[0]', lane NUMBER PATH '$[1]', claim VARCHAR2(255) PATH '$[2]', state VARCHAR2(10) PATH '$[3]',
        attempts NUMBER PATH '$[4]', crashes NUMBER PATH '$[5]', delay NUMBER PATH '$[6]', fault VARCHAR2(4000) PATH '$[7]', receipt VARCHAR2(4000) PATH '$[8]', message_id VARCHAR2(36) PATH '$[9]', holds NUMBER PATH '$[10]',
        sinks VARCHAR2(400) PATH '$[11]', part VARCHAR2(400) PATH '$[12]', rest VARCHAR2(400) PATH '$[13]', read_at VARCHAR2(40) PATH '$[14]')) g
    JOIN app."Events" t ON t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id AND t.claim_token = g.claim);
--   1: [[10,2,"t","done",0,0,0,"","","0197a3b4-0000-7abc-8def-000000000010",0,"","","","9999-12-31 00:00:00

-- settle by rows
BEGIN
    FOR locked IN (
    SELECT t.id FROM app."Events" t WHERE t.id IN (SELECT j.id FROM JSON_TABLE(:1, '$[*]' COLUMNS (id NUMBER PATH '$')) j)
    ORDER BY t.id FOR UPDATE) LOOP NULL; END LOOP;
END;
/
--   1: [9,10]
SELECT 'fenced', COUNT(*), 0 FROM JSON_TABLE(:1, '$[*]' COLUMNS (id NUMBER PATH '$[0]', lane NUMBER PATH '$[1]', claim VARCHAR2(255) PATH '$[2]', message_id VARCHAR2(36) PATH '$[9]')) g JOIN app."Events" t ON t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id
WHERE t.claim_token IS NULL OR t.claim_token <> g.claim;
--   1: [[9,2,"t","pending",0,0,0,"","","0197a3b4-0000-7abc-8def-000000000009",0,"","","","9999-12-31 00:00:
INSERT INTO app."Events_done" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, finished_at, receipt, relay)
SELECT /*+ LEADING(g) USE_NL(t) INDEX(t) */ t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, t.sinks, g.attempts, g.crashes, t.available_at, NVL(g.fault, t.last_error), SYS_EXTRACT_UTC(SYSTIMESTAMP), g.receipt, :1
FROM JSON_TABLE(:2, '$[*]' COLUMNS (
        id NUMBER PATH '$[0]', lane NUMBER PATH '$[1]', claim VARCHAR2(255) PATH '$[2]', state VARCHAR2(10) PATH '$[3]',
        attempts NUMBER PATH '$[4]', crashes NUMBER PATH '$[5]', delay NUMBER PATH '$[6]', fault VARCHAR2(4000) PATH '$[7]', receipt VARCHAR2(4000) PATH '$[8]', message_id VARCHAR2(36) PATH '$[9]', holds NUMBER PATH '$[10]',
        sinks VARCHAR2(400) PATH '$[11]', part VARCHAR2(400) PATH '$[12]', rest VARCHAR2(400) PATH '$[13]', read_at VARCHAR2(40) PATH '$[14]')) g
    JOIN app."Events" t ON t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id AND t.claim_token = g.claim;
--   1: r
--   2: [[10,2,"t","done",0,0,0,"","","0197a3b4-0000-7abc-8def-000000000010",0,"","","","9999-12-31 00:00:00
DELETE /*+ INDEX(d) */ FROM app."Events" d WHERE (d.id, d.message_id) IN (SELECT /*+ LEADING(g) USE_NL(t) INDEX(t) */ t.id, t.message_id
FROM JSON_TABLE(:1, '$[*]' COLUMNS (
        id NUMBER PATH '$[0]', lane NUMBER PATH '$[1]', claim VARCHAR2(255) PATH '$[2]', state VARCHAR2(10) PATH '$[3]',
        attempts NUMBER PATH '$[4]', crashes NUMBER PATH '$[5]', delay NUMBER PATH '$[6]', fault VARCHAR2(4000) PATH '$[7]', receipt VARCHAR2(4000) PATH '$[8]', message_id VARCHAR2(36) PATH '$[9]', holds NUMBER PATH '$[10]',
        sinks VARCHAR2(400) PATH '$[11]', part VARCHAR2(400) PATH '$[12]', rest VARCHAR2(400) PATH '$[13]', read_at VARCHAR2(40) PATH '$[14]')) g
    JOIN app."Events" t ON t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id AND t.claim_token = g.claim);
--   1: [[10,2,"t","done",0,0,0,"","","0197a3b4-0000-7abc-8def-000000000010",0,"","","","9999-12-31 00:00:00
MERGE INTO app."Events" t USING (SELECT g.* FROM JSON_TABLE(:1, '$[*]' COLUMNS (
        id NUMBER PATH '$[0]', lane NUMBER PATH '$[1]', claim VARCHAR2(255) PATH '$[2]', state VARCHAR2(10) PATH '$[3]',
        attempts NUMBER PATH '$[4]', crashes NUMBER PATH '$[5]', delay NUMBER PATH '$[6]', fault VARCHAR2(4000) PATH '$[7]', receipt VARCHAR2(4000) PATH '$[8]', message_id VARCHAR2(36) PATH '$[9]', holds NUMBER PATH '$[10]',
        sinks VARCHAR2(400) PATH '$[11]', part VARCHAR2(400) PATH '$[12]', rest VARCHAR2(400) PATH '$[13]', read_at VARCHAR2(40) PATH '$[14]', attempt_log VARCHAR2(4000) PATH '$[15]')) g) g ON (t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id)
WHEN MATCHED THEN UPDATE SET t.claimed_by = NULL, t.claim_token = NULL, t.claimed_until = NULL, t.claim_stamp = NULL,
    t.attempts = g.attempts, t.crashes = g.crashes, t.last_error = NVL(g.fault, t.last_error), t.attempt_log = NVL(g.attempt_log, t.attempt_log)
    WHERE t.claim_token = g.claim;
--   1: [[9,2,"t","pending",0,0,0,"","","0197a3b4-0000-7abc-8def-000000000009",0,"","","","9999-12-31 00:00:

-- settle by rows, not kept
BEGIN
    FOR locked IN (
    SELECT t.id FROM app."Events" t WHERE t.id IN (SELECT j.id FROM JSON_TABLE(:1, '$[*]' COLUMNS (id NUMBER PATH '$')) j)
    ORDER BY t.id FOR UPDATE) LOOP NULL; END LOOP;
END;
/
--   1: [10,11]
SELECT 'fenced', COUNT(*), 0 FROM JSON_TABLE(:1, '$[*]' COLUMNS (id NUMBER PATH '$[0]', lane NUMBER PATH '$[1]', claim VARCHAR2(255) PATH '$[2]', message_id VARCHAR2(36) PATH '$[9]')) g JOIN app."Events" t ON t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id
WHERE t.claim_token IS NULL OR t.claim_token <> g.claim;
--   1: [[10,2,"t","done",0,0,0,"","","0197a3b4-0000-7abc-8def-000000000010",0,"","","","9999-12-31 00:00:00
DELETE /*+ INDEX(d) */ FROM app."Events" d WHERE (d.id, d.message_id) IN (SELECT /*+ LEADING(g) USE_NL(t) INDEX(t) */ t.id, t.message_id
FROM JSON_TABLE(:1, '$[*]' COLUMNS (
        id NUMBER PATH '$[0]', lane NUMBER PATH '$[1]', claim VARCHAR2(255) PATH '$[2]', state VARCHAR2(10) PATH '$[3]',
        attempts NUMBER PATH '$[4]', crashes NUMBER PATH '$[5]', delay NUMBER PATH '$[6]', fault VARCHAR2(4000) PATH '$[7]', receipt VARCHAR2(4000) PATH '$[8]', message_id VARCHAR2(36) PATH '$[9]', holds NUMBER PATH '$[10]',
        sinks VARCHAR2(400) PATH '$[11]', part VARCHAR2(400) PATH '$[12]', rest VARCHAR2(400) PATH '$[13]', read_at VARCHAR2(40) PATH '$[14]')) g
    JOIN app."Events" t ON t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id AND t.claim_token = g.claim);
--   1: [[10,2,"t","done",0,0,0,"","","0197a3b4-0000-7abc-8def-000000000010",0,"","","","9999-12-31 00:00:00
INSERT INTO app."Events_held" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds)
SELECT /*+ LEADING(g) USE_NL(t) INDEX(t) */ t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, t.sinks, g.attempts, g.crashes, CASE WHEN g.state = 'retry' OR g.holds > 0 THEN SYS_EXTRACT_UTC(SYSTIMESTAMP) + NUMTODSINTERVAL(g.delay / 1000000, 'SECOND') ELSE t.available_at END, NVL(g.fault, t.last_error), NVL(g.attempt_log, t.attempt_log), g.state, g.holds
FROM JSON_TABLE(:1, '$[*]' COLUMNS (
        id NUMBER PATH '$[0]', lane NUMBER PATH '$[1]', claim VARCHAR2(255) PATH '$[2]', state VARCHAR2(10) PATH '$[3]',
        attempts NUMBER PATH '$[4]', crashes NUMBER PATH '$[5]', delay NUMBER PATH '$[6]', fault VARCHAR2(4000) PATH '$[7]', receipt VARCHAR2(4000) PATH '$[8]', message_id VARCHAR2(36) PATH '$[9]', holds NUMBER PATH '$[10]',
        sinks VARCHAR2(400) PATH '$[11]', part VARCHAR2(400) PATH '$[12]', rest VARCHAR2(400) PATH '$[13]', read_at VARCHAR2(40) PATH '$[14]', attempt_log VARCHAR2(4000) PATH '$[15]')) g
    JOIN app."Events" t ON t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id AND t.claim_token = g.claim;
--   1: [[11,2,"t","retry",1,0,1000000,"refused","","0197a3b4-0000-7abc-8def-000000000011",0,"","","","9999-
DELETE /*+ INDEX(d) */ FROM app."Events" d WHERE (d.id, d.message_id) IN (SELECT /*+ LEADING(g) USE_NL(t) INDEX(t) */ t.id, t.message_id
FROM JSON_TABLE(:1, '$[*]' COLUMNS (
        id NUMBER PATH '$[0]', lane NUMBER PATH '$[1]', claim VARCHAR2(255) PATH '$[2]', state VARCHAR2(10) PATH '$[3]',
        attempts NUMBER PATH '$[4]', crashes NUMBER PATH '$[5]', delay NUMBER PATH '$[6]', fault VARCHAR2(4000) PATH '$[7]', receipt VARCHAR2(4000) PATH '$[8]', message_id VARCHAR2(36) PATH '$[9]', holds NUMBER PATH '$[10]',
        sinks VARCHAR2(400) PATH '$[11]', part VARCHAR2(400) PATH '$[12]', rest VARCHAR2(400) PATH '$[13]', read_at VARCHAR2(40) PATH '$[14]')) g
    JOIN app."Events" t ON t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id AND t.claim_token = g.claim);
--   1: [[11,2,"t","retry",1,0,1000000,"refused","","0197a3b4-0000-7abc-8def-000000000011",0,"","","","9999-

-- settle by rows: a dead letter
BEGIN
    FOR locked IN (
    SELECT t.id FROM app."Events" t WHERE t.id IN (SELECT j.id FROM JSON_TABLE(:1, '$[*]' COLUMNS (id NUMBER PATH '$')) j)
    ORDER BY t.id FOR UPDATE) LOOP NULL; END LOOP;
END;
/
--   1: [10,11]
SELECT 'fenced', COUNT(*), 0 FROM JSON_TABLE(:1, '$[*]' COLUMNS (id NUMBER PATH '$[0]', lane NUMBER PATH '$[1]', claim VARCHAR2(255) PATH '$[2]', message_id VARCHAR2(36) PATH '$[9]')) g JOIN app."Events" t ON t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id
WHERE t.claim_token IS NULL OR t.claim_token <> g.claim;
--   1: [[10,2,"t","done",0,0,0,"","","0197a3b4-0000-7abc-8def-000000000010",0,"","","","9999-12-31 00:00:00
BEGIN
    FOR locked IN (
    SELECT t.id FROM app."Events" t WHERE t.id IN (SELECT j.id FROM JSON_TABLE(:1, '$[*]' COLUMNS (id NUMBER PATH '$')) j)
    ORDER BY t.id FOR UPDATE) LOOP NULL; END LOOP;
END;
/
--   1: [11]
INSERT INTO app."Events" (message_id, topic, message_key, payload, payload_text, headers, priority, expires_at, sinks)
SELECT :1, :2, t.message_key, t.payload, t.payload_text, :3, t.priority, CASE WHEN t.expires_at > SYS_EXTRACT_UTC(SYSTIMESTAMP) THEN t.expires_at END, :4 FROM app."Events" t
WHERE t.id = :5 AND t.lane = :6 AND t.message_id = :7 AND t.claim_token = :8;
--   1: 0197a3b4-0000-7abc-8def-000000000020
--   2: dead
--   3: {"rowrelay-dead-letter-sink":"a"}
--   4: c
--   5: 11
--   6: 2
--   7: 0197a3b4-0000-7abc-8def-000000000011
--   8: t
DELETE /*+ INDEX(d) */ FROM app."Events" d WHERE (d.id, d.message_id) IN (SELECT /*+ LEADING(g) USE_NL(t) INDEX(t) */ t.id, t.message_id
FROM JSON_TABLE(:1, '$[*]' COLUMNS (
        id NUMBER PATH '$[0]', lane NUMBER PATH '$[1]', claim VARCHAR2(255) PATH '$[2]', state VARCHAR2(10) PATH '$[3]',
        attempts NUMBER PATH '$[4]', crashes NUMBER PATH '$[5]', delay NUMBER PATH '$[6]', fault VARCHAR2(4000) PATH '$[7]', receipt VARCHAR2(4000) PATH '$[8]', message_id VARCHAR2(36) PATH '$[9]', holds NUMBER PATH '$[10]',
        sinks VARCHAR2(400) PATH '$[11]', part VARCHAR2(400) PATH '$[12]', rest VARCHAR2(400) PATH '$[13]', read_at VARCHAR2(40) PATH '$[14]')) g
    JOIN app."Events" t ON t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id AND t.claim_token = g.claim);
--   1: [[10,2,"t","done",0,0,0,"","","0197a3b4-0000-7abc-8def-000000000010",0,"","","","9999-12-31 00:00:00
INSERT INTO app."Events_held" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds)
SELECT /*+ LEADING(g) USE_NL(t) INDEX(t) */ t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, t.sinks, g.attempts, g.crashes, CASE WHEN g.state = 'retry' OR g.holds > 0 THEN SYS_EXTRACT_UTC(SYSTIMESTAMP) + NUMTODSINTERVAL(g.delay / 1000000, 'SECOND') ELSE t.available_at END, NVL(g.fault, t.last_error), NVL(g.attempt_log, t.attempt_log), g.state, g.holds
FROM JSON_TABLE(:1, '$[*]' COLUMNS (
        id NUMBER PATH '$[0]', lane NUMBER PATH '$[1]', claim VARCHAR2(255) PATH '$[2]', state VARCHAR2(10) PATH '$[3]',
        attempts NUMBER PATH '$[4]', crashes NUMBER PATH '$[5]', delay NUMBER PATH '$[6]', fault VARCHAR2(4000) PATH '$[7]', receipt VARCHAR2(4000) PATH '$[8]', message_id VARCHAR2(36) PATH '$[9]', holds NUMBER PATH '$[10]',
        sinks VARCHAR2(400) PATH '$[11]', part VARCHAR2(400) PATH '$[12]', rest VARCHAR2(400) PATH '$[13]', read_at VARCHAR2(40) PATH '$[14]', attempt_log VARCHAR2(4000) PATH '$[15]')) g
    JOIN app."Events" t ON t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id AND t.claim_token = g.claim;
--   1: [[11,2,"t","error",1,0,1000000,"refused","","0197a3b4-0000-7abc-8def-000000000011",0,"","","","9999-
DELETE /*+ INDEX(d) */ FROM app."Events" d WHERE (d.id, d.message_id) IN (SELECT /*+ LEADING(g) USE_NL(t) INDEX(t) */ t.id, t.message_id
FROM JSON_TABLE(:1, '$[*]' COLUMNS (
        id NUMBER PATH '$[0]', lane NUMBER PATH '$[1]', claim VARCHAR2(255) PATH '$[2]', state VARCHAR2(10) PATH '$[3]',
        attempts NUMBER PATH '$[4]', crashes NUMBER PATH '$[5]', delay NUMBER PATH '$[6]', fault VARCHAR2(4000) PATH '$[7]', receipt VARCHAR2(4000) PATH '$[8]', message_id VARCHAR2(36) PATH '$[9]', holds NUMBER PATH '$[10]',
        sinks VARCHAR2(400) PATH '$[11]', part VARCHAR2(400) PATH '$[12]', rest VARCHAR2(400) PATH '$[13]', read_at VARCHAR2(40) PATH '$[14]')) g
    JOIN app."Events" t ON t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id AND t.claim_token = g.claim);
--   1: [[11,2,"t","error",1,0,1000000,"refused","","0197a3b4-0000-7abc-8def-000000000011",0,"","","","9999-

-- purge
UPDATE app."Events_settings" SET value = value WHERE name = 'schema';
DELETE FROM app."Events_done" WHERE ROWID IN (SELECT place FROM (
    SELECT ROWID AS place FROM app."Events_done" WHERE finished_at < SYS_EXTRACT_UTC(SYSTIMESTAMP) + NUMTODSINTERVAL(:1 / 1000000, 'SECOND')
    ORDER BY finished_at) WHERE ROWNUM <= :2);
--   1: -86400000000
--   2: 100
DELETE FROM app."Events_ids" WHERE message_id IN (SELECT message_id FROM (
    SELECT i.message_id FROM app."Events_ids" i
    WHERE i.written_at < SYS_EXTRACT_UTC(SYSTIMESTAMP) + NUMTODSINTERVAL(:1 / 1000000, 'SECOND')
        AND i.written_at < NVL((SELECT h.created_at FROM app."Events" h WHERE h.id = (SELECT MIN(id) FROM app."Events")) - INTERVAL '10' MINUTE, SYS_EXTRACT_UTC(SYSTIMESTAMP))
        AND NOT EXISTS (SELECT 1 FROM app."Events_held" h WHERE h.message_id = i.message_id)
    ORDER BY i.written_at) WHERE ROWNUM <= :2);
--   1: -86400000000
--   2: 100
DELETE FROM app."Events_relays" WHERE until < SYS_EXTRACT_UTC(SYSTIMESTAMP) - INTERVAL '1' DAY;

-- claim the oldest
DECLARE
    this_transaction VARCHAR2(64) := DBMS_TRANSACTION.LOCAL_TRANSACTION_ID(TRUE);
    TYPE numbers IS TABLE OF NUMBER INDEX BY PLS_INTEGER;
    ids numbers;
    sizes numbers;
    fitting PLS_INTEGER := 0;
    bytes_left NUMBER;
    CURSOR free_rows IS SELECT /*+ INDEX(t "Events_claim_id") */ id, NVL(DBMS_LOB.GETLENGTH(t.payload), 0) + NVL(DBMS_LOB.GETLENGTH(t.payload_text), 0) FROM app."Events" t WHERE (SELECT value FROM app."Events_settings" WHERE name = 'claim') = 'rows' AND CASE WHEN claimed_until IS NULL THEN id END IS NOT NULL
        ORDER BY CASE WHEN claimed_until IS NULL THEN id END FOR UPDATE SKIP LOCKED;
BEGIN
    FOR locked IN (SELECT lock_id FROM app."Events_locks" WHERE lock_id = MOD(SYS_CONTEXT('USERENV', 'SID'), 64 * 8) FOR UPDATE) LOOP NULL; END LOOP;
    OPEN free_rows;
    FETCH free_rows BULK COLLECT INTO ids, sizes LIMIT :1;
    CLOSE free_rows;
    bytes_left := :2;
    WHILE fitting < ids.COUNT AND bytes_left > 0 LOOP
        fitting := fitting + 1;
        bytes_left := bytes_left - sizes(fitting);
    END LOOP;
    FORALL i IN 1 .. fitting
        UPDATE app."Events" SET claimed_by = :3, claim_token = :4, claimed_until = SYS_EXTRACT_UTC(SYSTIMESTAMP) + NUMTODSINTERVAL(:5 / 1000000, 'SECOND'), claim_stamp = this_transaction
        WHERE id = ids(i) AND claimed_until IS NULL;
END;
/
--   1: 10
--   2: 9223372036854775807
--   3: r
--   4: t
--   5: 60000000
WITH FUNCTION as_bytes(text IN CLOB) RETURN BLOB IS
    bytes BLOB;
    bytes_at INTEGER := 1;
    text_at INTEGER := 1;
    lang INTEGER := DBMS_LOB.DEFAULT_LANG_CTX;
    warning INTEGER;
BEGIN
    DBMS_LOB.CREATETEMPORARY(bytes, TRUE, DBMS_LOB.SESSION);
    IF DBMS_LOB.GETLENGTH(text) > 0 THEN
        DBMS_LOB.CONVERTTOBLOB(bytes, text, DBMS_LOB.LOBMAXSIZE, bytes_at, text_at, NLS_CHARSET_ID('AL32UTF8'), lang, warning);
    END IF;
    RETURN bytes;
END;
SELECT /*+ INDEX(t "Events_claim_until") */ t.id, t.lane, t.message_id, t.topic, t.message_key, t.sinks,
    CASE WHEN t.payload_text IS NULL THEN t.payload ELSE as_bytes(t.payload_text) END, t.headers,
    TO_CHAR(t.available_at, 'YYYY-MM-DD HH24:MI:SS.FF6'), TO_CHAR(t.expires_at, 'YYYY-MM-DD HH24:MI:SS.FF6'), t.priority, t.attempts, t.crashes, TO_CHAR(t.created_at, 'YYYY-MM-DD HH24:MI:SS.FF6'),
    CASE WHEN t.payload IS NULL AND t.payload_text IS NULL THEN 0 ELSE 1 END +
    65536 * CASE WHEN t.payload_text IS NULL THEN NVL(DBMS_LOB.GETLENGTH(t.payload), 0) ELSE DBMS_LOB.GETLENGTH(as_bytes(t.payload_text)) END + CASE WHEN t.available_at > SYS_EXTRACT_UTC(SYSTIMESTAMP) THEN 2 ELSE 0 END
FROM app."Events" t WHERE t.claimed_until IS NOT NULL AND t.claim_stamp = (SELECT DBMS_TRANSACTION.LOCAL_TRANSACTION_ID FROM dual);

-- claim the highest priorities of some topics
DECLARE
    this_transaction VARCHAR2(64) := DBMS_TRANSACTION.LOCAL_TRANSACTION_ID(TRUE);
    TYPE numbers IS TABLE OF NUMBER INDEX BY PLS_INTEGER;
    ids numbers;
    sizes numbers;
    fitting PLS_INTEGER := 0;
    bytes_left NUMBER;
    CURSOR free_rows IS SELECT /*+ INDEX(t "Events_claim_priority") */ id, NVL(DBMS_LOB.GETLENGTH(t.payload), 0) + NVL(DBMS_LOB.GETLENGTH(t.payload_text), 0) FROM app."Events" t WHERE (SELECT value FROM app."Events_settings" WHERE name = 'claim') = 'rows' AND CASE WHEN claimed_until IS NULL THEN -priority END IS NOT NULL
        AND NLSSORT(topic, 'NLS_SORT=BINARY') IN (SELECT NLSSORT(j.text, 'NLS_SORT=BINARY') FROM JSON_TABLE(:1, '$[*]' COLUMNS (text VARCHAR2(255) PATH '$')) j)
        AND NLSSORT(topic, 'NLS_SORT=BINARY') NOT IN (SELECT NLSSORT(j.text, 'NLS_SORT=BINARY') FROM JSON_TABLE(:2, '$[*]' COLUMNS (text VARCHAR2(255) PATH '$')) j)
        ORDER BY CASE WHEN claimed_until IS NULL THEN -priority END, CASE WHEN claimed_until IS NULL THEN id END FOR UPDATE SKIP LOCKED;
BEGIN
    FOR locked IN (SELECT lock_id FROM app."Events_locks" WHERE lock_id = MOD(SYS_CONTEXT('USERENV', 'SID'), 64 * 8) FOR UPDATE) LOOP NULL; END LOOP;
    OPEN free_rows;
    FETCH free_rows BULK COLLECT INTO ids, sizes LIMIT :3;
    CLOSE free_rows;
    bytes_left := :4;
    WHILE fitting < ids.COUNT AND bytes_left > 0 LOOP
        fitting := fitting + 1;
        bytes_left := bytes_left - sizes(fitting);
    END LOOP;
    FORALL i IN 1 .. fitting
        UPDATE app."Events" SET claimed_by = :5, claim_token = :6, claimed_until = SYS_EXTRACT_UTC(SYSTIMESTAMP) + NUMTODSINTERVAL(:7 / 1000000, 'SECOND'), claim_stamp = this_transaction
        WHERE id = ids(i) AND claimed_until IS NULL;
END;
/
--   1: ["a","b"]
--   2: ["c"]
--   3: 10
--   4: 1048576
--   5: r
--   6: t
--   7: 60000000
WITH FUNCTION as_bytes(text IN CLOB) RETURN BLOB IS
    bytes BLOB;
    bytes_at INTEGER := 1;
    text_at INTEGER := 1;
    lang INTEGER := DBMS_LOB.DEFAULT_LANG_CTX;
    warning INTEGER;
BEGIN
    DBMS_LOB.CREATETEMPORARY(bytes, TRUE, DBMS_LOB.SESSION);
    IF DBMS_LOB.GETLENGTH(text) > 0 THEN
        DBMS_LOB.CONVERTTOBLOB(bytes, text, DBMS_LOB.LOBMAXSIZE, bytes_at, text_at, NLS_CHARSET_ID('AL32UTF8'), lang, warning);
    END IF;
    RETURN bytes;
END;
SELECT /*+ INDEX(t "Events_claim_until") */ t.id, t.lane, t.message_id, t.topic, t.message_key, t.sinks,
    CASE WHEN t.payload_text IS NULL THEN t.payload ELSE as_bytes(t.payload_text) END, t.headers,
    TO_CHAR(t.available_at, 'YYYY-MM-DD HH24:MI:SS.FF6'), TO_CHAR(t.expires_at, 'YYYY-MM-DD HH24:MI:SS.FF6'), t.priority, t.attempts, t.crashes, TO_CHAR(t.created_at, 'YYYY-MM-DD HH24:MI:SS.FF6'),
    CASE WHEN t.payload IS NULL AND t.payload_text IS NULL THEN 0 ELSE 1 END +
    65536 * CASE WHEN t.payload_text IS NULL THEN NVL(DBMS_LOB.GETLENGTH(t.payload), 0) ELSE DBMS_LOB.GETLENGTH(as_bytes(t.payload_text)) END + CASE WHEN t.available_at > SYS_EXTRACT_UTC(SYSTIMESTAMP) THEN 2 ELSE 0 END
FROM app."Events" t WHERE t.claimed_until IS NOT NULL AND t.claim_stamp = (SELECT DBMS_TRANSACTION.LOCAL_TRANSACTION_ID FROM dual);

-- has free rows

-- has ended claims

-- extend
DECLARE
    this_transaction VARCHAR2(64) := DBMS_TRANSACTION.LOCAL_TRANSACTION_ID(TRUE);
    TYPE numbers IS TABLE OF NUMBER INDEX BY PLS_INTEGER;
    ids numbers;
    sizes numbers;
    fitting PLS_INTEGER := 0;
    bytes_left NUMBER;
    CURSOR free_rows IS SELECT id, 0 FROM app."Events" WHERE (SELECT value FROM app."Events_settings" WHERE name = 'claim') = 'rows' AND id IN (SELECT j.id FROM JSON_TABLE(:1, '$[*]' COLUMNS (id NUMBER PATH '$')) j) AND claim_token = :2 FOR UPDATE SKIP LOCKED;
BEGIN
    FOR locked IN (SELECT lock_id FROM app."Events_locks" WHERE lock_id = MOD(SYS_CONTEXT('USERENV', 'SID'), 64 * 8) FOR UPDATE) LOOP NULL; END LOOP;
    OPEN free_rows;
    FETCH free_rows BULK COLLECT INTO ids, sizes LIMIT :3;
    CLOSE free_rows;
    bytes_left := 1;
    WHILE fitting < ids.COUNT AND bytes_left > 0 LOOP
        fitting := fitting + 1;
        bytes_left := bytes_left - sizes(fitting);
    END LOOP;
    FORALL i IN 1 .. fitting
        UPDATE app."Events" SET claimed_until = SYS_EXTRACT_UTC(SYSTIMESTAMP) + NUMTODSINTERVAL(:4 / 1000000, 'SECOND') WHERE id = ids(i) AND claim_token = :5;
END;
/
--   1: [1,2]
--   2: t
--   3: 2
--   4: 60000000
--   5: t
SELECT id FROM app."Events" WHERE id IN (SELECT j.id FROM JSON_TABLE(:1, '$[*]' COLUMNS (id NUMBER PATH '$')) j) AND claim_token = :2;
--   1: [1,2]
--   2: t

-- reclaim
UPDATE app."Events_settings" SET value = value WHERE name = 'schema';
SELECT id FROM app."Events" WHERE (SELECT value FROM app."Events_settings" WHERE name = 'claim') = 'rows' AND claimed_until < SYS_EXTRACT_UTC(SYSTIMESTAMP) AND id IN (SELECT id FROM (
    SELECT id FROM app."Events" WHERE claimed_until < SYS_EXTRACT_UTC(SYSTIMESTAMP)
    ORDER BY claimed_until) WHERE ROWNUM <= :1) FOR UPDATE SKIP LOCKED;
--   1: 10
UPDATE app."Events" SET claimed_by = NULL, claim_token = NULL, claimed_until = NULL, claim_stamp = NULL, crashes = crashes + 1
WHERE claimed_until < SYS_EXTRACT_UTC(SYSTIMESTAMP) AND id IN (SELECT j.id FROM JSON_TABLE(:1, '$[*]' COLUMNS (id NUMBER PATH '$')) j);
--   1: [1,2]
UPDATE app."Events_settings" SET value = value WHERE name = 'schema';
INSERT INTO app."Events" (id, message_id, topic, message_key, payload, payload_text, headers, priority, attempts, crashes, available_at, last_error, attempt_log, created_at, expires_at, sinks, claim_stamp)
SELECT t.id, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.attempts, t.crashes, t.available_at, t.last_error, t.attempt_log, t.created_at, t.expires_at, t.sinks, (SELECT DBMS_TRANSACTION.LOCAL_TRANSACTION_ID FROM dual)
FROM (SELECT t.* FROM app."Events_held" t WHERE (SELECT value FROM app."Events_settings" WHERE name = 'claim') = 'rows' AND CASE WHEN t.state <> 'error' THEN NVL(t.available_at, TIMESTAMP '0001-01-01 00:00:00') END <= SYS_EXTRACT_UTC(SYSTIMESTAMP)
    AND (SELECT COUNT(*) FROM app."Events" h WHERE h.lane = t.lane AND h.id = t.id) = 0 AND (SELECT COUNT(*) FROM app."Events_held" o WHERE o.lane = t.lane AND o.id = t.id AND (o.message_id < t.message_id OR o.message_id = t.message_id AND NLSSORT(NVL(o.sinks, ','), 'NLS_SORT=BINARY') < NLSSORT(NVL(t.sinks, ','), 'NLS_SORT=BINARY')) AND o.state <> 'error' AND NVL(o.available_at, TIMESTAMP '0001-01-01 00:00:00') <= SYS_EXTRACT_UTC(SYSTIMESTAMP)) = 0
    ORDER BY CASE WHEN t.state <> 'error' THEN NVL(t.available_at, TIMESTAMP '0001-01-01 00:00:00') END, CASE WHEN t.state <> 'error' THEN t.id END) t WHERE ROWNUM <= :1;
--   1: 10
DELETE FROM app."Events_held" WHERE (id, message_id, NVL(sinks, ',')) IN (SELECT /*+ INDEX(h "Events_claim_until") */ h.id, h.message_id, NVL(h.sinks, ',') FROM app."Events" h
    WHERE h.claimed_until IS NULL AND h.claim_stamp = (SELECT DBMS_TRANSACTION.LOCAL_TRANSACTION_ID FROM dual));

-- list
WITH FUNCTION as_bytes(text IN CLOB) RETURN BLOB IS
    bytes BLOB;
    bytes_at INTEGER := 1;
    text_at INTEGER := 1;
    lang INTEGER := DBMS_LOB.DEFAULT_LANG_CTX;
    warning INTEGER;
BEGIN
    DBMS_LOB.CREATETEMPORARY(bytes, TRUE, DBMS_LOB.SESSION);
    IF DBMS_LOB.GETLENGTH(text) > 0 THEN
        DBMS_LOB.CONVERTTOBLOB(bytes, text, DBMS_LOB.LOBMAXSIZE, bytes_at, text_at, NLS_CHARSET_ID('AL32UTF8'), lang, warning);
    END IF;
    RETURN bytes;
END;
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.sinks,
    CASE WHEN t.payload_text IS NULL THEN t.payload ELSE as_bytes(t.payload_text) END, t.headers,
    TO_CHAR(t.available_at, 'YYYY-MM-DD HH24:MI:SS.FF6'), TO_CHAR(t.expires_at, 'YYYY-MM-DD HH24:MI:SS.FF6'), t.priority, t.attempts, t.crashes, TO_CHAR(t.created_at, 'YYYY-MM-DD HH24:MI:SS.FF6'),
    CASE WHEN t.payload IS NULL AND t.payload_text IS NULL THEN 0 ELSE 1 END +
    65536 * CASE WHEN t.payload_text IS NULL THEN NVL(DBMS_LOB.GETLENGTH(t.payload), 0) ELSE DBMS_LOB.GETLENGTH(as_bytes(t.payload_text)) END + CASE WHEN t.available_at > SYS_EXTRACT_UTC(SYSTIMESTAMP) THEN 2 ELSE 0 END + CASE WHEN t.state = 'retry' THEN 4 ELSE 0 END + 16 * t.holds, t.state, t.last_error, t.receipt, t.claimed_by, TO_CHAR(t.finished_at, 'YYYY-MM-DD HH24:MI:SS.FF6')
FROM (SELECT r.*, ROWNUM AS n FROM (
SELECT t.* FROM app."Events_messages" t WHERE t.id > :1
ORDER BY t.id) r WHERE ROWNUM <= :2) t;
--   1: 0
--   2: 10

-- list by filter
WITH FUNCTION as_bytes(text IN CLOB) RETURN BLOB IS
    bytes BLOB;
    bytes_at INTEGER := 1;
    text_at INTEGER := 1;
    lang INTEGER := DBMS_LOB.DEFAULT_LANG_CTX;
    warning INTEGER;
BEGIN
    DBMS_LOB.CREATETEMPORARY(bytes, TRUE, DBMS_LOB.SESSION);
    IF DBMS_LOB.GETLENGTH(text) > 0 THEN
        DBMS_LOB.CONVERTTOBLOB(bytes, text, DBMS_LOB.LOBMAXSIZE, bytes_at, text_at, NLS_CHARSET_ID('AL32UTF8'), lang, warning);
    END IF;
    RETURN bytes;
END;
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.sinks,
    CASE WHEN t.payload_text IS NULL THEN t.payload ELSE as_bytes(t.payload_text) END, t.headers,
    TO_CHAR(t.available_at, 'YYYY-MM-DD HH24:MI:SS.FF6'), TO_CHAR(t.expires_at, 'YYYY-MM-DD HH24:MI:SS.FF6'), t.priority, t.attempts, t.crashes, TO_CHAR(t.created_at, 'YYYY-MM-DD HH24:MI:SS.FF6'),
    CASE WHEN t.payload IS NULL AND t.payload_text IS NULL THEN 0 ELSE 1 END +
    65536 * CASE WHEN t.payload_text IS NULL THEN NVL(DBMS_LOB.GETLENGTH(t.payload), 0) ELSE DBMS_LOB.GETLENGTH(as_bytes(t.payload_text)) END + CASE WHEN t.available_at > SYS_EXTRACT_UTC(SYSTIMESTAMP) THEN 2 ELSE 0 END + CASE WHEN t.state = 'retry' THEN 4 ELSE 0 END + 16 * t.holds, t.state, t.last_error, t.receipt, t.claimed_by, TO_CHAR(t.finished_at, 'YYYY-MM-DD HH24:MI:SS.FF6')
FROM (SELECT r.*, ROWNUM AS n FROM (
SELECT t.* FROM app."Events_messages" t WHERE t.id > :1 AND (t.id IN (SELECT j.id FROM JSON_TABLE(:2, '$[*]' COLUMNS (id NUMBER PATH '$')) j) OR NLSSORT(LOWER(t.message_id), 'NLS_SORT=BINARY') IN (SELECT NLSSORT(j.text, 'NLS_SORT=BINARY') FROM JSON_TABLE(:3, '$[*]' COLUMNS (text VARCHAR2(255) PATH '$')) j)) AND NLSSORT(t.topic, 'NLS_SORT=BINARY') = NLSSORT(:4, 'NLS_SORT=BINARY') AND NLSSORT(t.message_key, 'NLS_SORT=BINARY') = NLSSORT(:5, 'NLS_SORT=BINARY') AND INSTR(',' || t.sinks || ',', :6) > 0 AND t.state = :7 AND t.created_at >= TO_TIMESTAMP(:8, 'YYYY-MM-DD HH24:MI:SS.FF6') AND INSTR(t.last_error, :9) > 0
ORDER BY t.id) r WHERE ROWNUM <= :10) t;
--   1: 3
--   2: [1]
--   3: ["0197a3b4-0000-7abc-8def-0123456789ab"]
--   4: t
--   5: k
--   6: ,s,
--   7: error
--   8: 2026-01-31 00:00:00.000000
--   9: refused
--   10: 10

-- list by filter, with a limit of rows to examine
WITH FUNCTION as_bytes(text IN CLOB) RETURN BLOB IS
    bytes BLOB;
    bytes_at INTEGER := 1;
    text_at INTEGER := 1;
    lang INTEGER := DBMS_LOB.DEFAULT_LANG_CTX;
    warning INTEGER;
BEGIN
    DBMS_LOB.CREATETEMPORARY(bytes, TRUE, DBMS_LOB.SESSION);
    IF DBMS_LOB.GETLENGTH(text) > 0 THEN
        DBMS_LOB.CONVERTTOBLOB(bytes, text, DBMS_LOB.LOBMAXSIZE, bytes_at, text_at, NLS_CHARSET_ID('AL32UTF8'), lang, warning);
    END IF;
    RETURN bytes;
END;
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.sinks,
    CASE WHEN t.payload_text IS NULL THEN t.payload ELSE as_bytes(t.payload_text) END, t.headers,
    TO_CHAR(t.available_at, 'YYYY-MM-DD HH24:MI:SS.FF6'), TO_CHAR(t.expires_at, 'YYYY-MM-DD HH24:MI:SS.FF6'), t.priority, t.attempts, t.crashes, TO_CHAR(t.created_at, 'YYYY-MM-DD HH24:MI:SS.FF6'),
    CASE WHEN t.payload IS NULL AND t.payload_text IS NULL THEN 0 ELSE 1 END +
    65536 * CASE WHEN t.payload_text IS NULL THEN NVL(DBMS_LOB.GETLENGTH(t.payload), 0) ELSE DBMS_LOB.GETLENGTH(as_bytes(t.payload_text)) END + CASE WHEN t.available_at > SYS_EXTRACT_UTC(SYSTIMESTAMP) THEN 2 ELSE 0 END + CASE WHEN t.state = 'retry' THEN 4 ELSE 0 END + 16 * t.holds, t.state, t.last_error, t.receipt, t.claimed_by, TO_CHAR(t.finished_at, 'YYYY-MM-DD HH24:MI:SS.FF6')
FROM (SELECT r.*, ROWNUM AS n FROM (
SELECT t.* FROM app."Events_messages" t WHERE t.id > :1 AND NLSSORT(t.topic, 'NLS_SORT=BINARY') = NLSSORT(:2, 'NLS_SORT=BINARY')
ORDER BY t.id) r WHERE ROWNUM <= :3) t;
--   1: 3
--   2: t
--   3: 10

-- list by a message's id, among few rows
WITH FUNCTION as_bytes(text IN CLOB) RETURN BLOB IS
    bytes BLOB;
    bytes_at INTEGER := 1;
    text_at INTEGER := 1;
    lang INTEGER := DBMS_LOB.DEFAULT_LANG_CTX;
    warning INTEGER;
BEGIN
    DBMS_LOB.CREATETEMPORARY(bytes, TRUE, DBMS_LOB.SESSION);
    IF DBMS_LOB.GETLENGTH(text) > 0 THEN
        DBMS_LOB.CONVERTTOBLOB(bytes, text, DBMS_LOB.LOBMAXSIZE, bytes_at, text_at, NLS_CHARSET_ID('AL32UTF8'), lang, warning);
    END IF;
    RETURN bytes;
END;
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.sinks,
    CASE WHEN t.payload_text IS NULL THEN t.payload ELSE as_bytes(t.payload_text) END, t.headers,
    TO_CHAR(t.available_at, 'YYYY-MM-DD HH24:MI:SS.FF6'), TO_CHAR(t.expires_at, 'YYYY-MM-DD HH24:MI:SS.FF6'), t.priority, t.attempts, t.crashes, TO_CHAR(t.created_at, 'YYYY-MM-DD HH24:MI:SS.FF6'),
    CASE WHEN t.payload IS NULL AND t.payload_text IS NULL THEN 0 ELSE 1 END +
    65536 * CASE WHEN t.payload_text IS NULL THEN NVL(DBMS_LOB.GETLENGTH(t.payload), 0) ELSE DBMS_LOB.GETLENGTH(as_bytes(t.payload_text)) END + CASE WHEN t.available_at > SYS_EXTRACT_UTC(SYSTIMESTAMP) THEN 2 ELSE 0 END + CASE WHEN t.state = 'retry' THEN 4 ELSE 0 END + 16 * t.holds, t.state, t.last_error, t.receipt, t.claimed_by, TO_CHAR(t.finished_at, 'YYYY-MM-DD HH24:MI:SS.FF6')
FROM (SELECT r.*, ROWNUM AS n FROM (
SELECT t.* FROM app."Events_messages" t WHERE t.id > :1 AND (t.id IN (SELECT j.id FROM JSON_TABLE(:2, '$[*]' COLUMNS (id NUMBER PATH '$')) j) OR NLSSORT(LOWER(t.message_id), 'NLS_SORT=BINARY') IN (SELECT NLSSORT(j.text, 'NLS_SORT=BINARY') FROM JSON_TABLE(:3, '$[*]' COLUMNS (text VARCHAR2(255) PATH '$')) j))
ORDER BY t.id) r WHERE ROWNUM <= :4) t;
--   1: 0
--   2: []
--   3: ["0197a3b4-0000-7abc-8def-0123456789ab"]
--   4: 10

-- requeue
SELECT id, ROWIDTOCHAR(ROWID) FROM app."Events_held" WHERE state = 'error' AND ROWID IN (SELECT place FROM (
    SELECT t.ROWID AS place FROM app."Events_held" t WHERE CASE WHEN t.state = 'error' THEN t.id END IS NOT NULL AND t.id > :1 AND (t.id IN (SELECT j.id FROM JSON_TABLE(:2, '$[*]' COLUMNS (id NUMBER PATH '$')) j) OR NLSSORT(LOWER(t.message_id), 'NLS_SORT=BINARY') IN (SELECT NLSSORT(j.text, 'NLS_SORT=BINARY') FROM JSON_TABLE(:3, '$[*]' COLUMNS (text VARCHAR2(255) PATH '$')) j)) AND NLSSORT(t.topic, 'NLS_SORT=BINARY') = NLSSORT(:4, 'NLS_SORT=BINARY') AND NLSSORT(t.message_key, 'NLS_SORT=BINARY') = NLSSORT(:5, 'NLS_SORT=BINARY') AND INSTR(',' || t.sinks || ',', :6) > 0 AND t.created_at >= TO_TIMESTAMP(:7, 'YYYY-MM-DD HH24:MI:SS.FF6') AND INSTR(t.last_error, :8) > 0
    ORDER BY CASE WHEN t.state = 'error' THEN t.id END) WHERE ROWNUM <= :9)
ORDER BY id FOR UPDATE;
--   1: 3
--   2: [1]
--   3: ["0197a3b4-0000-7abc-8def-0123456789ab"]
--   4: t
--   5: k
--   6: ,s,
--   7: 2026-01-31 00:00:00.000000
--   8: refused
--   9: 10
UPDATE app."Events_held" t SET state = CASE WHEN holds > 0 THEN 'retry' ELSE 'scheduled' END, holds = 0, attempts = 0, crashes = 0, available_at = SYS_EXTRACT_UTC(SYSTIMESTAMP),
    expires_at = CASE WHEN last_error LIKE 'expired: %' THEN TIMESTAMP '9999-01-01 00:00:00' ELSE expires_at END WHERE t.ROWID IN (SELECT CHARTOROWID(g.place) FROM JSON_TABLE(:1, '$[*]' COLUMNS (place VARCHAR2(18) PATH '$')) g);
--   1: ["AAAR3sAAEAAAACXAAA","AAAR3sAAEAAAACXAAB"]

-- list by a topic's prefix
WITH FUNCTION as_bytes(text IN CLOB) RETURN BLOB IS
    bytes BLOB;
    bytes_at INTEGER := 1;
    text_at INTEGER := 1;
    lang INTEGER := DBMS_LOB.DEFAULT_LANG_CTX;
    warning INTEGER;
BEGIN
    DBMS_LOB.CREATETEMPORARY(bytes, TRUE, DBMS_LOB.SESSION);
    IF DBMS_LOB.GETLENGTH(text) > 0 THEN
        DBMS_LOB.CONVERTTOBLOB(bytes, text, DBMS_LOB.LOBMAXSIZE, bytes_at, text_at, NLS_CHARSET_ID('AL32UTF8'), lang, warning);
    END IF;
    RETURN bytes;
END;
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.sinks,
    CASE WHEN t.payload_text IS NULL THEN t.payload ELSE as_bytes(t.payload_text) END, t.headers,
    TO_CHAR(t.available_at, 'YYYY-MM-DD HH24:MI:SS.FF6'), TO_CHAR(t.expires_at, 'YYYY-MM-DD HH24:MI:SS.FF6'), t.priority, t.attempts, t.crashes, TO_CHAR(t.created_at, 'YYYY-MM-DD HH24:MI:SS.FF6'),
    CASE WHEN t.payload IS NULL AND t.payload_text IS NULL THEN 0 ELSE 1 END +
    65536 * CASE WHEN t.payload_text IS NULL THEN NVL(DBMS_LOB.GETLENGTH(t.payload), 0) ELSE DBMS_LOB.GETLENGTH(as_bytes(t.payload_text)) END + CASE WHEN t.available_at > SYS_EXTRACT_UTC(SYSTIMESTAMP) THEN 2 ELSE 0 END + CASE WHEN t.state = 'retry' THEN 4 ELSE 0 END + 16 * t.holds, t.state, t.last_error, t.receipt, t.claimed_by, TO_CHAR(t.finished_at, 'YYYY-MM-DD HH24:MI:SS.FF6')
FROM (SELECT r.*, ROWNUM AS n FROM (
SELECT t.* FROM app."Events_messages" t WHERE t.id > :1 AND INSTR(t.topic, :2) = 1
ORDER BY t.id) r WHERE ROWNUM <= :3) t;
--   1: 0
--   2: orders.
--   3: 10

-- redirect
SELECT id, ROWIDTOCHAR(ROWID) FROM app."Events_held" WHERE state = 'error' AND ROWID IN (SELECT place FROM (
    SELECT t.ROWID AS place FROM app."Events_held" t WHERE CASE WHEN t.state = 'error' THEN t.id END IS NOT NULL AND t.holds = 0 AND NOT EXISTS (SELECT 1 FROM app."Events_held" o WHERE o.lane = t.lane AND o.id = t.id AND o.message_id = t.message_id AND NVL(o.sinks, ',') <> NVL(t.sinks, ',')) AND NOT EXISTS (SELECT 1 FROM app."Events" o WHERE o.lane = t.lane AND o.id = t.id AND o.message_id = t.message_id) AND t.id > :1 AND NLSSORT(t.topic, 'NLS_SORT=BINARY') = NLSSORT(:2, 'NLS_SORT=BINARY')
    ORDER BY CASE WHEN t.state = 'error' THEN t.id END) WHERE ROWNUM <= :3)
ORDER BY id FOR UPDATE;
--   1: 0
--   2: t
--   3: 10
UPDATE app."Events_held" t SET state = CASE WHEN holds > 0 THEN 'retry' ELSE 'scheduled' END, holds = 0, attempts = 0, crashes = 0, available_at = SYS_EXTRACT_UTC(SYSTIMESTAMP),
    expires_at = CASE WHEN last_error LIKE 'expired: %' THEN TIMESTAMP '9999-01-01 00:00:00' ELSE expires_at END, t.sinks = :1 WHERE t.ROWID IN (SELECT CHARTOROWID(g.place) FROM JSON_TABLE(:2, '$[*]' COLUMNS (place VARCHAR2(18) PATH '$')) g);
--   1: other
--   2: ["AAAR3sAAEAAAACXAAA","AAAR3sAAEAAAACXAAB"]

-- redirect rows in the state retry
SELECT id, ROWIDTOCHAR(ROWID) FROM app."Events_held" WHERE state = 'retry' AND ROWID IN (SELECT place FROM (
    SELECT t.ROWID AS place FROM app."Events_held" t WHERE CASE WHEN t.state = 'retry' THEN t.id END IS NOT NULL AND t.holds = 0 AND t.sinks NOT LIKE '%,%' AND NOT EXISTS (SELECT 1 FROM app."Events_held" o WHERE o.lane = t.lane AND o.id = t.id AND o.message_id = t.message_id AND NVL(o.sinks, ',') <> NVL(t.sinks, ',')) AND NOT EXISTS (SELECT 1 FROM app."Events" o WHERE o.lane = t.lane AND o.id = t.id AND o.message_id = t.message_id) AND t.id > :1 AND NLSSORT(t.topic, 'NLS_SORT=BINARY') = NLSSORT(:2, 'NLS_SORT=BINARY') AND INSTR(',' || t.sinks || ',', :3) > 0
    ORDER BY CASE WHEN t.state = 'retry' THEN t.id END) WHERE ROWNUM <= :4)
ORDER BY id FOR UPDATE;
--   1: 0
--   2: t
--   3: ,s,
--   4: 10
UPDATE app."Events_held" t SET attempts = 0, crashes = 0, available_at = NULL, t.sinks = :1 WHERE t.ROWID IN (SELECT CHARTOROWID(g.place) FROM JSON_TABLE(:2, '$[*]' COLUMNS (place VARCHAR2(18) PATH '$')) g);
--   1: other
--   2: ["AAAR3sAAEAAAACXAAA","AAAR3sAAEAAAACXAAB"]

-- redirect rows in the state scheduled
SELECT id, ROWIDTOCHAR(ROWID) FROM app."Events_held" WHERE state = 'scheduled' AND ROWID IN (SELECT place FROM (
    SELECT t.ROWID AS place FROM app."Events_held" t WHERE CASE WHEN t.state = 'scheduled' THEN t.id END IS NOT NULL AND t.holds = 0 AND t.sinks NOT LIKE '%,%' AND NOT EXISTS (SELECT 1 FROM app."Events_held" o WHERE o.lane = t.lane AND o.id = t.id AND o.message_id = t.message_id AND NVL(o.sinks, ',') <> NVL(t.sinks, ',')) AND NOT EXISTS (SELECT 1 FROM app."Events" o WHERE o.lane = t.lane AND o.id = t.id AND o.message_id = t.message_id) AND t.id > :1 AND NLSSORT(t.topic, 'NLS_SORT=BINARY') = NLSSORT(:2, 'NLS_SORT=BINARY') AND INSTR(',' || t.sinks || ',', :3) > 0
    ORDER BY CASE WHEN t.state = 'scheduled' THEN t.id END) WHERE ROWNUM <= :4)
ORDER BY id FOR UPDATE;
--   1: 0
--   2: t
--   3: ,s,
--   4: 10
UPDATE app."Events_held" t SET attempts = 0, crashes = 0, t.sinks = :1 WHERE t.ROWID IN (SELECT CHARTOROWID(g.place) FROM JSON_TABLE(:2, '$[*]' COLUMNS (place VARCHAR2(18) PATH '$')) g);
--   1: other
--   2: ["AAAR3sAAEAAAACXAAA","AAAR3sAAEAAAACXAAB"]

-- redirect rows in the state pending
SELECT id, ROWIDTOCHAR(ROWID) FROM app."Events" WHERE ROWID IN (SELECT place FROM (
    SELECT t.ROWID AS place FROM app."Events" t WHERE 1 = 1 AND (t.claimed_until IS NULL OR t.claimed_until < SYS_EXTRACT_UTC(SYSTIMESTAMP)) AND t.sinks NOT LIKE '%,%' AND NOT EXISTS (SELECT 1 FROM app."Events_held" o WHERE o.lane = t.lane AND o.id = t.id AND o.message_id = t.message_id) AND t.id > :1 AND NLSSORT(t.topic, 'NLS_SORT=BINARY') = NLSSORT(:2, 'NLS_SORT=BINARY') AND INSTR(',' || t.sinks || ',', :3) > 0
    ORDER BY t.id) WHERE ROWNUM <= :4)
ORDER BY id FOR UPDATE;
--   1: 0
--   2: t
--   3: ,s,
--   4: 10
INSERT INTO app."Events_held" (id, lane, message_id, topic, message_key, payload, payload_text, headers, priority, created_at, expires_at, sinks, attempts, crashes, available_at, last_error, attempt_log, state, holds)
SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.payload, t.payload_text, t.headers, t.priority, t.created_at, t.expires_at, :1, 0, 0, t.available_at, t.last_error, t.attempt_log, 'scheduled', 0
FROM app."Events" t WHERE t.ROWID IN (SELECT CHARTOROWID(g.place) FROM JSON_TABLE(:2, '$[*]' COLUMNS (place VARCHAR2(18) PATH '$')) g);
--   1: other
--   2: ["AAAR3sAAEAAAACXAAA","AAAR3sAAEAAAACXAAB"]
DELETE FROM app."Events" t WHERE t.ROWID IN (SELECT CHARTOROWID(g.place) FROM JSON_TABLE(:1, '$[*]' COLUMNS (place VARCHAR2(18) PATH '$')) g);
--   1: ["AAAR3sAAEAAAACXAAA","AAAR3sAAEAAAACXAAB"]

-- ask for a skip
SELECT id, ROWIDTOCHAR(ROWID) FROM app."Events_held" WHERE state = 'error' AND ROWID IN (SELECT place FROM (
    SELECT t.ROWID AS place FROM app."Events_held" t WHERE CASE WHEN t.state = 'error' THEN t.id END IS NOT NULL AND t.holds = 1 AND t.id > :1 AND (t.id IN (SELECT j.id FROM JSON_TABLE(:2, '$[*]' COLUMNS (id NUMBER PATH '$')) j) OR NLSSORT(LOWER(t.message_id), 'NLS_SORT=BINARY') IN (SELECT NLSSORT(j.text, 'NLS_SORT=BINARY') FROM JSON_TABLE(:3, '$[*]' COLUMNS (text VARCHAR2(255) PATH '$')) j)) AND NLSSORT(t.topic, 'NLS_SORT=BINARY') = NLSSORT(:4, 'NLS_SORT=BINARY') AND NLSSORT(t.message_key, 'NLS_SORT=BINARY') = NLSSORT(:5, 'NLS_SORT=BINARY') AND INSTR(',' || t.sinks || ',', :6) > 0 AND t.created_at >= TO_TIMESTAMP(:7, 'YYYY-MM-DD HH24:MI:SS.FF6') AND INSTR(t.last_error, :8) > 0
    ORDER BY CASE WHEN t.state = 'error' THEN t.id END) WHERE ROWNUM <= :9)
ORDER BY id FOR UPDATE;
--   1: 3
--   2: [1]
--   3: ["0197a3b4-0000-7abc-8def-0123456789ab"]
--   4: t
--   5: k
--   6: ,s,
--   7: 2026-01-31 00:00:00.000000
--   8: refused
--   9: 10
UPDATE app."Events_held" t SET state = 'retry', holds = 2, available_at = SYS_EXTRACT_UTC(SYSTIMESTAMP) WHERE t.ROWID IN (SELECT CHARTOROWID(g.place) FROM JSON_TABLE(:1, '$[*]' COLUMNS (place VARCHAR2(18) PATH '$')) g);
--   1: ["AAAR3sAAEAAAACXAAA","AAAR3sAAEAAAACXAAB"]

-- ask for a discard
SELECT id, ROWIDTOCHAR(ROWID) FROM app."Events_held" WHERE state = 'error' AND ROWID IN (SELECT place FROM (
    SELECT t.ROWID AS place FROM app."Events_held" t WHERE CASE WHEN t.state = 'error' THEN t.id END IS NOT NULL AND t.holds = 1 AND t.id > :1 AND (t.id IN (SELECT j.id FROM JSON_TABLE(:2, '$[*]' COLUMNS (id NUMBER PATH '$')) j) OR NLSSORT(LOWER(t.message_id), 'NLS_SORT=BINARY') IN (SELECT NLSSORT(j.text, 'NLS_SORT=BINARY') FROM JSON_TABLE(:3, '$[*]' COLUMNS (text VARCHAR2(255) PATH '$')) j)) AND NLSSORT(t.topic, 'NLS_SORT=BINARY') = NLSSORT(:4, 'NLS_SORT=BINARY') AND NLSSORT(t.message_key, 'NLS_SORT=BINARY') = NLSSORT(:5, 'NLS_SORT=BINARY') AND INSTR(',' || t.sinks || ',', :6) > 0 AND t.created_at >= TO_TIMESTAMP(:7, 'YYYY-MM-DD HH24:MI:SS.FF6') AND INSTR(t.last_error, :8) > 0
    ORDER BY CASE WHEN t.state = 'error' THEN t.id END) WHERE ROWNUM <= :9)
ORDER BY id FOR UPDATE;
--   1: 3
--   2: [1]
--   3: ["0197a3b4-0000-7abc-8def-0123456789ab"]
--   4: t
--   5: k
--   6: ,s,
--   7: 2026-01-31 00:00:00.000000
--   8: refused
--   9: 10
UPDATE app."Events_held" t SET state = 'retry', holds = 3, available_at = SYS_EXTRACT_UTC(SYSTIMESTAMP) WHERE t.ROWID IN (SELECT CHARTOROWID(g.place) FROM JSON_TABLE(:1, '$[*]' COLUMNS (place VARCHAR2(18) PATH '$')) g);
--   1: ["AAAR3sAAEAAAACXAAA","AAAR3sAAEAAAACXAAB"]

-- discard
SELECT id, ROWIDTOCHAR(ROWID) FROM app."Events_held" WHERE state = 'error' AND ROWID IN (SELECT place FROM (
    SELECT t.ROWID AS place FROM app."Events_held" t WHERE CASE WHEN t.state = 'error' THEN t.id END IS NOT NULL AND t.holds = 0 AND t.id > :1 AND (t.id IN (SELECT j.id FROM JSON_TABLE(:2, '$[*]' COLUMNS (id NUMBER PATH '$')) j) OR NLSSORT(LOWER(t.message_id), 'NLS_SORT=BINARY') IN (SELECT NLSSORT(j.text, 'NLS_SORT=BINARY') FROM JSON_TABLE(:3, '$[*]' COLUMNS (text VARCHAR2(255) PATH '$')) j)) AND NLSSORT(t.topic, 'NLS_SORT=BINARY') = NLSSORT(:4, 'NLS_SORT=BINARY') AND NLSSORT(t.message_key, 'NLS_SORT=BINARY') = NLSSORT(:5, 'NLS_SORT=BINARY') AND INSTR(',' || t.sinks || ',', :6) > 0 AND t.created_at >= TO_TIMESTAMP(:7, 'YYYY-MM-DD HH24:MI:SS.FF6') AND INSTR(t.last_error, :8) > 0
    ORDER BY CASE WHEN t.state = 'error' THEN t.id END) WHERE ROWNUM <= :9)
ORDER BY id FOR UPDATE;
--   1: 3
--   2: [1]
--   3: ["0197a3b4-0000-7abc-8def-0123456789ab"]
--   4: t
--   5: k
--   6: ,s,
--   7: 2026-01-31 00:00:00.000000
--   8: refused
--   9: 10
DELETE FROM app."Events_held" t WHERE t.ROWID IN (SELECT CHARTOROWID(g.place) FROM JSON_TABLE(:1, '$[*]' COLUMNS (place VARCHAR2(18) PATH '$')) g);
--   1: ["AAAR3sAAEAAAACXAAA","AAAR3sAAEAAAACXAAB"]

-- parked
SELECT t.id, t.lane, t.topic, t.message_key, t.sinks, t.holds, SUBSTR(t.last_error, 1, 200)
FROM app."Events_held" t
WHERE t.state = 'error' AND t.id > :1 AND (t.id IN (SELECT j.id FROM JSON_TABLE(:2, '$[*]' COLUMNS (id NUMBER PATH '$')) j) OR NLSSORT(LOWER(t.message_id), 'NLS_SORT=BINARY') IN (SELECT NLSSORT(j.text, 'NLS_SORT=BINARY') FROM JSON_TABLE(:3, '$[*]' COLUMNS (text VARCHAR2(255) PATH '$')) j)) AND NLSSORT(t.topic, 'NLS_SORT=BINARY') = NLSSORT(:4, 'NLS_SORT=BINARY') AND NLSSORT(t.message_key, 'NLS_SORT=BINARY') = NLSSORT(:5, 'NLS_SORT=BINARY') AND INSTR(',' || t.sinks || ',', :6) > 0 AND t.created_at >= TO_TIMESTAMP(:7, 'YYYY-MM-DD HH24:MI:SS.FF6') AND INSTR(t.last_error, :8) > 0
ORDER BY t.id;
--   1: 3
--   2: [1]
--   3: ["0197a3b4-0000-7abc-8def-0123456789ab"]
--   4: t
--   5: k
--   6: ,s,
--   7: 2026-01-31 00:00:00.000000
--   8: refused

-- parked, and overtaken rows
SELECT min(t.id) FROM app."Events_held" t
WHERE t.state = 'error' AND t.id > :1 AND NLSSORT(t.topic, 'NLS_SORT=BINARY') = NLSSORT(:2, 'NLS_SORT=BINARY');
--   1: 0
--   2: t
SELECT d.message_key, max(d.id)
FROM app."Events_done" d
WHERE d.id > 15 AND d.id <= 1015
    AND d.message_key IN (SELECT t.message_key FROM app."Events_held" t
WHERE t.state = 'error' AND t.id > :1 AND NLSSORT(t.topic, 'NLS_SORT=BINARY') = NLSSORT(:2, 'NLS_SORT=BINARY'))
    AND (d.headers IS NULL OR d.headers NOT LIKE '%"rowrelay-dead-letter-%' AND d.headers NOT LIKE '%"rowrelay-replayed"%')
GROUP BY d.message_key;
--   1: 0
--   2: t
SELECT t.id, t.lane, t.topic, t.message_key, t.sinks, t.holds, SUBSTR(t.last_error, 1, 200)
FROM app."Events_held" t
WHERE t.state = 'error' AND t.id > :1 AND NLSSORT(t.topic, 'NLS_SORT=BINARY') = NLSSORT(:2, 'NLS_SORT=BINARY')
ORDER BY t.id;
--   1: 0
--   2: t

-- replays
SELECT SUBSTR(name, 8), value FROM app."Events_settings" WHERE name LIKE 'replay.%' ORDER BY name;

-- last delivered
SELECT NVL(MAX(id), 0) FROM app."Events_done";

-- controls
SELECT kind, name, NVL(rate, 0), TO_CHAR(ends_at, 'YYYY-MM-DD HH24:MI:SS.FF6'), made_by, TO_CHAR(made_at, 'YYYY-MM-DD HH24:MI:SS.FF6'), reason FROM app."Events_controls" WHERE ends_at IS NULL OR ends_at > SYS_EXTRACT_UTC(SYSTIMESTAMP) ORDER BY kind, name;

-- set a control
DELETE FROM app."Events_controls" WHERE ends_at <= SYS_EXTRACT_UTC(SYSTIMESTAMP);
DELETE FROM app."Events_controls" WHERE kind = :1 AND name = :2;
--   1: sink
--   2: kafka
INSERT INTO app."Events_controls" (kind, name, rate, ends_at, made_by, made_at, reason)
VALUES (:1, :2, :3, SYS_EXTRACT_UTC(SYSTIMESTAMP) + NUMTODSINTERVAL(:4 / 1000000, 'SECOND'), :5, SYS_EXTRACT_UTC(SYSTIMESTAMP), :6);
--   1: sink
--   2: kafka
--   3: 0
--   4: 60000000
--   5: ann@host
--   6: why

-- lift a control
DELETE FROM app."Events_controls" WHERE ends_at <= SYS_EXTRACT_UTC(SYSTIMESTAMP);
DELETE FROM app."Events_controls" WHERE kind = :1 AND name = :2;
--   1: sink
--   2: kafka

-- begin an action
INSERT INTO app."Events_actions" (id, made_by, action, target, reason, made_at) VALUES (:1, :2, :3, :4, :5, SYS_EXTRACT_UTC(SYSTIMESTAMP));
--   1: 0197a3b4-ffff-7abc-8def-0123456789ab
--   2: ann@host
--   3: resume
--   4: sink kafka
--   5: why

-- end an action
UPDATE app."Events_actions" SET changed = :1 WHERE id = :2;
--   1: 1
--   2: 0197a3b4-ffff-7abc-8def-0123456789ab

-- actions
SELECT id, TO_CHAR(made_at, 'YYYY-MM-DD HH24:MI:SS.FF6'), made_by, action, target, reason, NVL(changed, -1) FROM app."Events_actions" ORDER BY made_at DESC, id DESC;

-- old done rows
DELETE FROM app."Events_done" WHERE finished_at < SYS_EXTRACT_UTC(SYSTIMESTAMP) - INTERVAL '1' DAY AND ROWNUM <= 10000;

-- delivered
SELECT * FROM (
    SELECT t.id, t.lane, t.message_id, t.topic, t.headers, t.sinks FROM app."Events_done" t
    WHERE t.id > :1 AND (t.id IN (SELECT j.id FROM JSON_TABLE(:2, '$[*]' COLUMNS (id NUMBER PATH '$')) j) OR NLSSORT(LOWER(t.message_id), 'NLS_SORT=BINARY') IN (SELECT NLSSORT(j.text, 'NLS_SORT=BINARY') FROM JSON_TABLE(:3, '$[*]' COLUMNS (text VARCHAR2(255) PATH '$')) j)) AND NLSSORT(t.topic, 'NLS_SORT=BINARY') = NLSSORT(:4, 'NLS_SORT=BINARY') AND NLSSORT(t.message_key, 'NLS_SORT=BINARY') = NLSSORT(:5, 'NLS_SORT=BINARY') AND INSTR(',' || t.sinks || ',', :6) > 0 AND t.finished_at >= TO_TIMESTAMP(:7, 'YYYY-MM-DD HH24:MI:SS.FF6') AND t.finished_at < TO_TIMESTAMP(:8, 'YYYY-MM-DD HH24:MI:SS.FF6') AND INSTR(t.last_error, :9) > 0 AND t.id <= :10
    ORDER BY t.id) WHERE ROWNUM <= :11;
--   1: 3
--   2: [1]
--   3: ["0197a3b4-0000-7abc-8def-0123456789ab"]
--   4: t
--   5: k
--   6: ,s,
--   7: 2026-01-31 00:00:00.000000
--   8: 2026-02-01 00:00:00.000000
--   9: refused
--   10: 9
--   11: 10

-- last delivered rows
SELECT * FROM (
    SELECT t.id, t.lane, t.message_id, t.topic, t.message_key, t.sinks, t.attempts, TO_CHAR(t.created_at, 'YYYY-MM-DD HH24:MI:SS.FF6'), TO_CHAR(t.finished_at, 'YYYY-MM-DD HH24:MI:SS.FF6')
    FROM app."Events_done" t WHERE t.id > :1 AND t.finished_at >= TO_TIMESTAMP(:2, 'YYYY-MM-DD HH24:MI:SS.FF6')
    ORDER BY t.finished_at DESC) WHERE ROWNUM <= :3;
--   1: 0
--   2: 2026-01-31 00:00:00.000000
--   3: 200

-- begin a replay
UPDATE app."Events_settings" SET value = value WHERE name = 'schema';
MERGE INTO app."Events_settings" s USING (SELECT 'replay.' || :1 AS name, :2 AS value FROM dual) g ON (s.name = g.name)
WHEN NOT MATCHED THEN INSERT (name, value) VALUES (g.name, g.value);
--   1: r
--   2: {}

-- replay
UPDATE app."Events_settings" SET value = value WHERE name = 'schema';
SELECT GREATEST(NVL((SELECT MAX(id) FROM app."Events"), 0), NVL((SELECT MAX(id) FROM app."Events_held"), 0), NVL((SELECT MAX(id) FROM app."Events_done"), 0)) FROM dual;
INSERT INTO app."Events" (message_id, topic, message_key, payload, payload_text, headers, priority, expires_at, sinks)
SELECT :1, :2, t.message_key, t.payload, t.payload_text, :3, t.priority, CASE WHEN t.expires_at > SYS_EXTRACT_UTC(SYSTIMESTAMP) THEN t.expires_at END, :4 FROM app."Events_done" t
WHERE t.id = :5 AND t.message_id = :6 AND NLSSORT(NVL(t.sinks, ','), 'NLS_SORT=BINARY') = NLSSORT(:7, 'NLS_SORT=BINARY');
--   1: 0197a3b4-0000-7abc-8def-000000000005
--   2: t
--   3: {"n":"5"}
--   4: <nil>
--   5: 5
--   6: 0197a3b4-0000-7abc-8def-000000000005
--   7: ,
INSERT INTO app."Events" (message_id, topic, message_key, payload, payload_text, headers, priority, expires_at, sinks)
SELECT :1, :2, t.message_key, t.payload, t.payload_text, :3, t.priority, CASE WHEN t.expires_at > SYS_EXTRACT_UTC(SYSTIMESTAMP) THEN t.expires_at END, :4 FROM app."Events_done" t
WHERE t.id = :5 AND t.message_id = :6 AND NLSSORT(NVL(t.sinks, ','), 'NLS_SORT=BINARY') = NLSSORT(:7, 'NLS_SORT=BINARY');
--   1: 0197a3b4-0000-7abc-8def-000000000006
--   2: t
--   3: {"n":"6"}
--   4: <nil>
--   5: 6
--   6: 0197a3b4-0000-7abc-8def-000000000006
--   7: ,
SELECT t.lane, t.id FROM app."Events" t WHERE t.id > :1 AND t.message_id IN (SELECT NLSSORT(j.text, 'NLS_SORT=BINARY') FROM JSON_TABLE(:2, '$[*]' COLUMNS (text VARCHAR2(255) PATH '$')) j);
--   1: 0
--   2: ["0197a3b4-0000-7abc-8def-000000000005","0197a3b4-0000-7abc-8def-000000000006"]
UPDATE app."Events_settings" SET value = :1 WHERE name = 'replay.' || :2 AND value = :3;
--   1: {"n":1}
--   2: r
--   3: {}

-- count pending
SELECT count(*) FROM app."Events" t WHERE (t.lane = 1 AND t.id IN (15,17)
    OR t.lane = 2 AND t.id IN (16));

-- status
SELECT value FROM app."Events_settings" WHERE name = 'claim';
SELECT r.name, r.host, r.version, r.claim, TO_CHAR(r.since, 'YYYY-MM-DD HH24:MI:SS.FF6'), TO_CHAR(r.last_heartbeat, 'YYYY-MM-DD HH24:MI:SS.FF6'),
    CASE WHEN r.until >= SYS_EXTRACT_UTC(SYSTIMESTAMP) THEN 1 ELSE 0 END,
    (SELECT COUNT(*) FROM app."Events_lanes" l WHERE l.owner = r.name AND l.until >= SYS_EXTRACT_UTC(SYSTIMESTAMP)), r.setup
FROM app."Events_relays" r ORDER BY r.name;
SELECT COUNT(*) FROM app."Events_lanes" WHERE owner IS NOT NULL AND until >= SYS_EXTRACT_UTC(SYSTIMESTAMP);
SELECT topic, COUNT(*) FROM (SELECT topic FROM (
    SELECT topic FROM app."Events" WHERE (available_at IS NULL OR available_at <= SYS_EXTRACT_UTC(SYSTIMESTAMP)) AND (claimed_until IS NULL OR claimed_until <= SYS_EXTRACT_UTC(SYSTIMESTAMP))
    UNION ALL SELECT topic FROM app."Events_held" WHERE state = 'scheduled' AND (available_at IS NULL OR available_at <= SYS_EXTRACT_UTC(SYSTIMESTAMP))
) WHERE ROWNUM <= :1) GROUP BY topic;
--   1: 1000
SELECT GREATEST(0, NVL(ROUND(EXTRACT(DAY FROM age) * 86400000 + EXTRACT(HOUR FROM age) * 3600000 + EXTRACT(MINUTE FROM age) * 60000 + EXTRACT(SECOND FROM age) * 1000), 0)) FROM (
    SELECT SYS_EXTRACT_UTC(SYSTIMESTAMP) - MIN(since) AS age FROM (
    SELECT GREATEST(created_at, NVL(available_at, created_at)) AS since FROM app."Events" WHERE (available_at IS NULL OR available_at <= SYS_EXTRACT_UTC(SYSTIMESTAMP)) AND (claimed_until IS NULL OR claimed_until <= SYS_EXTRACT_UTC(SYSTIMESTAMP))
    UNION ALL SELECT GREATEST(created_at, NVL(available_at, created_at)) AS since FROM app."Events_held" WHERE state = 'scheduled' AND (available_at IS NULL OR available_at <= SYS_EXTRACT_UTC(SYSTIMESTAMP))));
SELECT n, NVL(ROUND(EXTRACT(DAY FROM age) * 86400000 + EXTRACT(HOUR FROM age) * 3600000 + EXTRACT(MINUTE FROM age) * 60000 + EXTRACT(SECOND FROM age) * 1000), 0) FROM (
    SELECT COUNT(*) AS n, SYS_EXTRACT_UTC(SYSTIMESTAMP) - MIN(available_at) AS age FROM app."Events_held" WHERE state = 'error' AND holds = 1);
SELECT 'hot', state, COUNT(*) FROM (
    SELECT CASE WHEN claimed_until > SYS_EXTRACT_UTC(SYSTIMESTAMP) THEN 'claimed' WHEN available_at > SYS_EXTRACT_UTC(SYSTIMESTAMP) THEN 'scheduled' ELSE 'pending' END AS state FROM app."Events" WHERE ROWNUM <= :1
) GROUP BY state
UNION ALL SELECT 'held', state, COUNT(*) FROM (
    SELECT CASE WHEN state = 'scheduled' AND (available_at IS NULL OR available_at <= SYS_EXTRACT_UTC(SYSTIMESTAMP)) THEN 'pending' ELSE state END AS state FROM app."Events_held" WHERE state <> 'error' AND ROWNUM <= :2
) GROUP BY state
UNION ALL SELECT 'error', 'error', COUNT(*) FROM app."Events_held" WHERE state = 'error' AND ROWNUM <= :3
UNION ALL SELECT 'done', 'done', COUNT(*) FROM app."Events_done" WHERE ROWNUM <= :4;
--   1: 50000
--   2: 50000
--   3: 50000
--   4: 50000
SELECT GREATEST(0, NVL(ROUND(EXTRACT(DAY FROM age) * 86400000 + EXTRACT(HOUR FROM age) * 3600000 + EXTRACT(MINUTE FROM age) * 60000 + EXTRACT(SECOND FROM age) * 1000), 0)) FROM (
    SELECT SYS_EXTRACT_UTC(SYSTIMESTAMP) - MIN(created_at) AS age FROM app."Events_held" WHERE state = 'retry');

