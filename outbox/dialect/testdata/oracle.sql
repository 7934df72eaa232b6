-- insert
INSERT INTO app."Events" (message_id, topic, message_key, available_at, expires_at, priority, headers, payload) VALUES (:1, :2, :3, TO_TIMESTAMP(:4, 'YYYY-MM-DD HH24:MI:SS.FF6'), TO_TIMESTAMP(:5, 'YYYY-MM-DD HH24:MI:SS.FF6'), :6, :7, :8);
--   1: i
--   2: t"\
--   3: k
--   4: 2030-01-02 03:04:05.678901
--   5: 2030-01-03 00:00:00.000000
--   6: 3
--   7: {}
--   8: [112 112]

-- insert several
BEGIN
    INSERT INTO app."Events" (message_id, topic) VALUES (:1, :2);
    INSERT INTO app."Events" (message_id, topic, message_key, available_at, expires_at, priority, headers, payload) VALUES (:3, :4, :5, TO_TIMESTAMP(:6, 'YYYY-MM-DD HH24:MI:SS.FF6'), TO_TIMESTAMP(:7, 'YYYY-MM-DD HH24:MI:SS.FF6'), :8, :9, :10);
    INSERT INTO app."Events" (message_id, topic) VALUES (:11, :12);
    INSERT INTO app."Events" (message_id, topic, message_key, available_at, expires_at, priority, headers, payload) VALUES (:13, :14, :15, TO_TIMESTAMP(:16, 'YYYY-MM-DD HH24:MI:SS.FF6'), TO_TIMESTAMP(:17, 'YYYY-MM-DD HH24:MI:SS.FF6'), :18, :19, :20);
END;
/
--   1: i
--   2: t
--   3: i
--   4: t"\
--   5: k
--   6: 2030-01-02 03:04:05.678901
--   7: 2030-01-03 00:00:00.000000
--   8: 3
--   9: {}
--   10: [112 112]
--   11: i
--   12: t
--   13: i
--   14: t"\
--   15: k
--   16: 2030-01-02 03:04:05.678901
--   17: 2030-01-03 00:00:00.000000
--   18: 3
--   19: {}
--   20: [112 112]

-- insert ids
INSERT INTO app."Events_ids" (message_id, write_token) SELECT g.message_id, :1 FROM JSON_TABLE(:2, '$[*]' COLUMNS (message_id VARCHAR2(36) PATH '$')) g;
--   1: 42
--   2: ["i","0197a3b4-0000-7abc-8def-0123456789ab"]

-- delete ids
DELETE FROM app."Events_ids" WHERE message_id IN (SELECT g.message_id FROM JSON_TABLE(:1, '$[*]' COLUMNS (message_id VARCHAR2(36) PATH '$')) g) AND :2 IN (0, write_token);
--   1: ["i","0197a3b4-0000-7abc-8def-0123456789ab"]
--   2: 42

-- cancel
DELETE FROM app."Events" WHERE CASE WHEN available_at IS NOT NULL THEN message_id END = :1 AND available_at > SYS_EXTRACT_UTC(SYSTIMESTAMP) + NUMTODSINTERVAL(:2 / 1000000, 'SECOND');
--   1: i
--   2: 5000000
DELETE FROM app."Events_held" WHERE message_id = :1 AND available_at > SYS_EXTRACT_UTC(SYSTIMESTAMP) + NUMTODSINTERVAL(:2 / 1000000, 'SECOND') AND state = 'scheduled';
--   1: i
--   2: 5000000

-- lock keys
BEGIN
    FOR locked IN (
    SELECT lock_id FROM app."Events_locks" WHERE lock_id IN (
        SELECT 1000 + ORA_HASH(NLSSORT(k.message_key, 'NLS_SORT=BINARY'), 1023) FROM JSON_TABLE(:1, '$[*]' COLUMNS (message_key VARCHAR2(255) PATH '$')) k)
    ORDER BY lock_id FOR UPDATE) LOOP NULL; END LOOP;
END;
/
--   1: ["b","a","b"]

-- notify

-- written
SELECT message_id, topic, message_key, payload, CASE WHEN payload IS NULL THEN 1 ELSE 0 END, payload_text, headers,
    TO_CHAR(available_at, 'YYYY-MM-DD HH24:MI:SS.FF6'), TO_CHAR(expires_at, 'YYYY-MM-DD HH24:MI:SS.FF6'), priority FROM app."Events_messages" ORDER BY id;

-- receive
INSERT INTO app."Received" (consumer, message_id) VALUES (:1, :2);
--   1: billing
--   2: 0197a3b4-0000-7abc-8def-0123456789ab

-- purge received
DELETE FROM app."Received" WHERE consumer = :1 AND received_at < SYS_EXTRACT_UTC(SYSTIMESTAMP) + NUMTODSINTERVAL(:2 / 1000000, 'SECOND') AND ROWNUM <= :3;
--   1: billing
--   2: -604800000000
--   3: 1000

-- inbox's version
SELECT CASE WHEN COUNT(*) >= 0 THEN '1' END FROM app."Received" WHERE consumer IS NULL;

-- schema version
SELECT value FROM app."Events_settings" WHERE name = 'schema';

-- make indexes for rows
DECLARE code NUMBER;
BEGIN
    EXECUTE IMMEDIATE 'ALTER SESSION SET DDL_LOCK_TIMEOUT = 3';
    EXECUTE IMMEDIATE 'CREATE INDEX app."Events_claim_id" ON app."Events" (CASE WHEN claimed_until IS NULL THEN id END)';
    EXECUTE IMMEDIATE 'ALTER SESSION SET DDL_LOCK_TIMEOUT = 0';
EXCEPTION WHEN OTHERS THEN
    code := SQLCODE;
    EXECUTE IMMEDIATE 'ALTER SESSION SET DDL_LOCK_TIMEOUT = 0';
    IF code NOT IN (-955, -1408) THEN RAISE; END IF;
END;
/
DECLARE code NUMBER;
BEGIN
    EXECUTE IMMEDIATE 'ALTER SESSION SET DDL_LOCK_TIMEOUT = 3';
    EXECUTE IMMEDIATE 'CREATE INDEX app."Events_claim_priority" ON app."Events" (CASE WHEN claimed_until IS NULL THEN -priority END, CASE WHEN claimed_until IS NULL THEN id END)';
    EXECUTE IMMEDIATE 'ALTER SESSION SET DDL_LOCK_TIMEOUT = 0';
EXCEPTION WHEN OTHERS THEN
    code := SQLCODE;
    EXECUTE IMMEDIATE 'ALTER SESSION SET DDL_LOCK_TIMEOUT = 0';
    IF code NOT IN (-955, -1408) THEN RAISE; END IF;
END;
/
DECLARE code NUMBER;
BEGIN
    EXECUTE IMMEDIATE 'ALTER SESSION SET DDL_LOCK_TIMEOUT = 3';
    EXECUTE IMMEDIATE 'CREATE INDEX app."Events_claim_until" ON app."Events" (claimed_until, claim_stamp)';
    EXECUTE IMMEDIATE 'ALTER SESSION SET DDL_LOCK_TIMEOUT = 0';
EXCEPTION WHEN OTHERS THEN
    code := SQLCODE;
    EXECUTE IMMEDIATE 'ALTER SESSION SET DDL_LOCK_TIMEOUT = 0';
    IF code NOT IN (-955, -1408) THEN RAISE; END IF;
END;
/

-- drop indexes for rows
DECLARE code NUMBER;
BEGIN
    EXECUTE IMMEDIATE 'ALTER SESSION SET DDL_LOCK_TIMEOUT = 3';
    EXECUTE IMMEDIATE 'DROP INDEX app."Events_claim_id"';
    EXECUTE IMMEDIATE 'ALTER SESSION SET DDL_LOCK_TIMEOUT = 0';
EXCEPTION WHEN OTHERS THEN
    code := SQLCODE;
    EXECUTE IMMEDIATE 'ALTER SESSION SET DDL_LOCK_TIMEOUT = 0';
    IF code NOT IN (-1418) THEN RAISE; END IF;
END;
/
DECLARE code NUMBER;
BEGIN
    EXECUTE IMMEDIATE 'ALTER SESSION SET DDL_LOCK_TIMEOUT = 3';
    EXECUTE IMMEDIATE 'DROP INDEX app."Events_claim_priority"';
    EXECUTE IMMEDIATE 'ALTER SESSION SET DDL_LOCK_TIMEOUT = 0';
EXCEPTION WHEN OTHERS THEN
    code := SQLCODE;
    EXECUTE IMMEDIATE 'ALTER SESSION SET DDL_LOCK_TIMEOUT = 0';
    IF code NOT IN (-1418) THEN RAISE; END IF;
END;
/
DECLARE code NUMBER;
BEGIN
    EXECUTE IMMEDIATE 'ALTER SESSION SET DDL_LOCK_TIMEOUT = 3';
    EXECUTE IMMEDIATE 'DROP INDEX app."Events_claim_until"';
    EXECUTE IMMEDIATE 'ALTER SESSION SET DDL_LOCK_TIMEOUT = 0';
EXCEPTION WHEN OTHERS THEN
    code := SQLCODE;
    EXECUTE IMMEDIATE 'ALTER SESSION SET DDL_LOCK_TIMEOUT = 0';
    IF code NOT IN (-1418) THEN RAISE; END IF;
END;
/

-- count indexes for rows
SELECT COUNT(*) FROM all_indexes WHERE owner = 'APP' AND index_name IN ('Events_claim_id', 'Events_claim_priority', 'Events_claim_until');

-- server
SELECT 'version', MAX(version) FROM product_component_version WHERE product LIKE 'Oracle%'
UNION ALL SELECT LOWER(parameter), value FROM nls_session_parameters WHERE parameter = 'NLS_COMP'
UNION ALL SELECT LOWER(parameter), value FROM nls_database_parameters WHERE parameter = 'NLS_CHARACTERSET';

