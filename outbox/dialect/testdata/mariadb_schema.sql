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

