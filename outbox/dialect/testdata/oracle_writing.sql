-- insert
INSERT INTO app."Events" (message_id, topic, message_key, available_at, priority, headers, payload) VALUES (:1, :2, :3, TO_TIMESTAMP(:4, 'YYYY-MM-DD HH24:MI:SS.FF6'), :5, :6, :7);
--   1: i
--   2: t"\
--   3: k
--   4: 2030-01-02 03:04:05.678901
--   5: 3
--   6: {}
--   7: [112 112]

-- insert several
BEGIN
    INSERT INTO app."Events" (message_id, topic) VALUES (:1, :2);
    INSERT INTO app."Events" (message_id, topic, message_key, available_at, priority, headers, payload) VALUES (:3, :4, :5, TO_TIMESTAMP(:6, 'YYYY-MM-DD HH24:MI:SS.FF6'), :7, :8, :9);
    INSERT INTO app."Events" (message_id, topic) VALUES (:10, :11);
    INSERT INTO app."Events" (message_id, topic, message_key, available_at, priority, headers, payload) VALUES (:12, :13, :14, TO_TIMESTAMP(:15, 'YYYY-MM-DD HH24:MI:SS.FF6'), :16, :17, :18);
END;
/
--   1: i
--   2: t
--   3: i
--   4: t"\
--   5: k
--   6: 2030-01-02 03:04:05.678901
--   7: 3
--   8: {}
--   9: [112 112]
--   10: i
--   11: t
--   12: i
--   13: t"\
--   14: k
--   15: 2030-01-02 03:04:05.678901
--   16: 3
--   17: {}
--   18: [112 112]

-- lock keys
BEGIN
    FOR locked IN (
    SELECT lock_id FROM app."Events_locks" WHERE lock_id IN (
        SELECT 1000 + ORA_HASH(NLSSORT(k.message_key, 'NLS_SORT=BINARY'), 1023) FROM JSON_TABLE(:1, '$[*]' COLUMNS (message_key VARCHAR2(255) PATH '$')) k)
    ORDER BY lock_id FOR UPDATE) LOOP NULL; END LOOP;
END;
/
--   1: ["b","a"]

-- written
SELECT message_id, topic, message_key, payload, CASE WHEN payload IS NULL THEN 1 ELSE 0 END, payload_text, headers,
    TO_CHAR(available_at, 'YYYY-MM-DD HH24:MI:SS.FF6'), priority FROM app."Events_messages" ORDER BY id;

-- server
SELECT 'version', MAX(version) FROM product_component_version WHERE product LIKE 'Oracle%'
UNION ALL SELECT LOWER(parameter), value FROM nls_session_parameters WHERE parameter = 'NLS_COMP'
UNION ALL SELECT LOWER(parameter), value FROM nls_database_parameters WHERE parameter = 'NLS_CHARACTERSET';

-- observe
SELECT 'number', TO_CHAR(current_scn) FROM v$database
UNION ALL SELECT 'open', TO_CHAR(MIN(start_scn)) FROM gv$transaction HAVING COUNT(*) > 0
UNION ALL SELECT 'server', SYS_CONTEXT('USERENV', 'DB_UNIQUE_NAME') || '/' || SYS_CONTEXT('USERENV', 'CON_NAME') FROM dual;

-- settle many
BEGIN
    FOR locked IN (
    SELECT lock_id FROM app."Events_locks" WHERE lock_id IN (
        SELECT 8 * g.lane + MOD(SYS_CONTEXT('USERENV', 'SID'), 8) FROM JSON_TABLE(:1, '$[*]' COLUMNS (lane NUMBER PATH '$[0]', fence NUMBER PATH '$[1]')) g)
    ORDER BY lock_id FOR UPDATE) LOOP NULL; END LOOP;
END;
/
--   1: [[0,7],[1,7],[2,7],[3,7],[4,7],[5,7],[6,7],[7,7],[8,7],[9,7],[10,7],[11,7],[12,7],[13,7],[14,7],[15,
SELECT 'lane', l.lane, l.fence FROM JSON_TABLE(:1, '$[*]' COLUMNS (lane NUMBER PATH '$[0]', fence NUMBER PATH '$[1]')) g JOIN app."Events_lanes" l ON l.lane = g.lane AND l.fence = g.fence AND l.owner = :2;
--   1: [[0,7],[1,7],[2,7],[3,7],[4,7],[5,7],[6,7],[7,7],[8,7],[9,7],[10,7],[11,7],[12,7],[13,7],[14,7],[15,
--   2: r
DELETE /*+ INDEX(d) */ FROM app."Events" d WHERE (d.id, d.message_id) IN (SELECT /*+ LEADING(g) USE_NL(t) INDEX(t) */ t.id, t.message_id
FROM JSON_TABLE(TO_CLOB(:1) || TO_CLOB(:2), '$[*]' COLUMNS (
        id NUMBER PATH '$[0]', lane NUMBER PATH '$[1]', claim NUMBER PATH '$[2]', state VARCHAR2(10) PATH '$[3]',
        attempts NUMBER PATH '$[4]', crashes NUMBER PATH '$[5]', delay NUMBER PATH '$[6]', fault VARCHAR2(4000) PATH '$[7]', receipt VARCHAR2(4000) PATH '$[8]', message_id VARCHAR2(36) PATH '$[9]')) g
    JOIN app."Events_lanes" l ON l.lane = g.lane AND l.fence = g.claim AND l.owner = :3
    JOIN app."Events" t ON t.id = g.id AND t.lane = g.lane AND t.message_id = g.message_id);
--   1: [[1000,0,7,"done",1,0,0,"","0/5",""],[1001,1,7,"done",1,0,0,"","0/5",""],[1002,2,7,"done",1,0,0,"","
--   2: ,"","0/5",""],[1109,45,7,"done",1,0,0,"","0/5",""],[1110,46,7,"done",1,0,0,"","0/5",""],[1111,47,7,"
--   3: r

