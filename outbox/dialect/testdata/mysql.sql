-- insert
INSERT INTO `app`.`Events` (message_id, topic, message_key, payload, headers, available_at, expires_at, priority) VALUES (?,?,?,?,?,?,?,?);
--   1: i
--   2: t"\
--   3: k
--   4: [112 112]
--   5: {}
--   6: 2030-01-02 03:04:05.678901
--   7: 2030-01-03 00:00:00.000000
--   8: 3

-- insert several
INSERT INTO `app`.`Events` (message_id, topic, message_key, payload, headers, available_at, expires_at, priority) VALUES (?,?,?,?,?,?,?,?),(?,?,?,?,?,?,?,?),(?,?,?,?,?,?,?,?),(?,?,?,?,?,?,?,?);
--   1: i
--   2: t
--   3: <nil>
--   4: <nil>
--   5: <nil>
--   6: <nil>
--   7: <nil>
--   8: 0
--   9: i
--   10: t"\
--   11: k
--   12: [112 112]
--   13: {}
--   14: 2030-01-02 03:04:05.678901
--   15: 2030-01-03 00:00:00.000000
--   16: 3
--   17: i
--   18: t
--   19: <nil>
--   20: <nil>
--   21: <nil>
--   22: <nil>
--   23: <nil>
--   24: 0
--   25: i
--   26: t"\
--   27: k
--   28: [112 112]
--   29: {}
--   30: 2030-01-02 03:04:05.678901
--   31: 2030-01-03 00:00:00.000000
--   32: 3

-- insert ids
INSERT IGNORE INTO `app`.`Events_ids` (message_id, write_token) VALUES (?,42),(?,42);
--   1: i
--   2: 0197a3b4-0000-7abc-8def-0123456789ab

-- delete ids
DELETE FROM `app`.`Events_ids` WHERE message_id IN (?,?) AND 42 IN (0, write_token);
--   1: i
--   2: 0197a3b4-0000-7abc-8def-0123456789ab

-- cancel
SELECT 1, lane, id FROM `app`.`Events_held` WHERE message_id = ? AND state = 'scheduled' AND available_at > utc_timestamp(6) + INTERVAL 5000000 MICROSECOND UNION ALL SELECT 0, lane, id FROM `app`.`Events` WHERE message_id = ? AND available_at > utc_timestamp(6) + INTERVAL 5000000 MICROSECOND AND NOT EXISTS (SELECT 1 FROM `app`.`Events_held` WHERE message_id = ? AND state = 'scheduled' AND available_at > utc_timestamp(6) + INTERVAL 5000000 MICROSECOND) LIMIT 1;
--   1: i
--   2: i
--   3: i
DELETE t FROM `app`.`Events` AS t FORCE INDEX (PRIMARY) WHERE lane = ? AND id = ? AND message_id = ? AND available_at > utc_timestamp(6) + INTERVAL 5000000 MICROSECOND;
--   1: i
DELETE t FROM `app`.`Events_held` AS t FORCE INDEX (PRIMARY) WHERE lane = ? AND id = ? AND message_id = ? AND sinks = '' AND state = 'scheduled' AND available_at > utc_timestamp(6) + INTERVAL 5000000 MICROSECOND;
--   1: i

-- lock keys
SELECT slot FROM `app`.`Events_key_locks` FORCE INDEX (PRIMARY) WHERE slot IN (454,930) ORDER BY slot FOR UPDATE;

-- notify

-- written
SELECT message_id, topic, message_key, payload, payload IS NULL, payload_text, headers, CAST(available_at AS CHAR), CAST(expires_at AS CHAR), priority FROM `app`.`Events_messages` ORDER BY id;

-- receive
INSERT INTO `app`.`Received` (consumer, message_id) VALUES (?, ?);
--   1: billing
--   2: 0197a3b4-0000-7abc-8def-0123456789ab

-- purge received
DELETE FROM `app`.`Received` WHERE consumer = ? AND received_at < utc_timestamp(6) + INTERVAL -604800000000 MICROSECOND ORDER BY received_at, message_id LIMIT 1000;
--   1: billing

-- inbox's version
SELECT CASE WHEN COUNT(*) >= 0 THEN '1' END FROM `app`.`Received` WHERE consumer IS NULL;

-- schema version
SELECT value FROM `app`.`Events_settings` WHERE name = 'schema';

-- make indexes for rows
ALTER TABLE `app`.`Events` ADD INDEX claim_id (claimed_until, id), ADD INDEX claim_priority (claimed_until, urgency, id);

-- drop indexes for rows
ALTER TABLE `app`.`Events` DROP INDEX claim_id, DROP INDEX claim_priority;

-- count indexes for rows
SELECT coalesce(sum(CASE index_name WHEN 'claim_id' THEN 2 ELSE 1 END), 0) FROM information_schema.statistics WHERE table_schema = ? AND table_name = ? AND index_name IN ('claim_id', 'claim_priority') AND seq_in_index = 1;
--   1: app
--   2: Events

-- server
SHOW VARIABLES WHERE variable_name IN ('version', 'version_comment', 'aurora_version', 'auto_increment_increment', 'wsrep_on', 'group_replication_group_name', 'group_replication_single_primary_mode', 'innodb_thread_concurrency', 'innodb_max_purge_lag', 'read_only', 'innodb_read_only', 'log_bin', 'binlog_format', 'transaction_isolation', 'tx_isolation', 'completion_type', 'sql_mode', 'range_optimizer_max_mem_size', 'autocommit', 'sql_safe_updates', 'sql_select_limit', 'sql_big_selects', 'character_set_client', 'character_set_connection', 'character_set_results', 'time_zone', 'max_execution_time', 'max_statement_time');

-- trial
SET @lock_wait_timeout = @@SESSION.innodb_lock_wait_timeout, SESSION innodb_lock_wait_timeout = 1;
SELECT lane FROM `app`.`Events_lanes` WHERE lane = 0 FOR UPDATE;
SELECT lane FROM `app`.`Events_lanes` WHERE lane IN (0, 1) ORDER BY lane FOR UPDATE SKIP LOCKED;
SET SESSION innodb_lock_wait_timeout = @lock_wait_timeout;

