-- schema version
SELECT value FROM app."Events_settings" WHERE name = 'schema';

-- make indexes for rows
CREATE INDEX IF NOT EXISTS app."Events_claim_id" ON "Events" (id) WHERE claimed_until IS NULL;
CREATE INDEX IF NOT EXISTS app."Events_claim_priority" ON "Events" (priority DESC, id) WHERE claimed_until IS NULL;
CREATE INDEX IF NOT EXISTS app."Events_claim_until" ON "Events" (claimed_until) WHERE claimed_until IS NOT NULL;

-- drop indexes for rows
DROP INDEX IF EXISTS app."Events_claim_id";
DROP INDEX IF EXISTS app."Events_claim_priority";
DROP INDEX IF EXISTS app."Events_claim_until";

-- count indexes for rows
SELECT count(*) FROM app.sqlite_master WHERE type = 'index' AND name IN (?, ?, ?);
--   1: Events_claim_id
--   2: Events_claim_priority
--   3: Events_claim_until

