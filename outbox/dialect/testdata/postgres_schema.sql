-- schema version
SELECT value FROM app."Events_settings" WHERE name = 'schema';

-- make indexes for rows
CREATE INDEX IF NOT EXISTS "Events_claim_id" ON app."Events" (id) WHERE claimed_until IS NULL;
CREATE INDEX IF NOT EXISTS "Events_claim_priority" ON app."Events" (priority DESC, id) WHERE claimed_until IS NULL;
CREATE INDEX IF NOT EXISTS "Events_claim_until" ON app."Events" (claimed_until) WHERE claimed_until IS NOT NULL;

-- drop indexes for rows
DROP INDEX IF EXISTS app."Events_claim_id";
DROP INDEX IF EXISTS app."Events_claim_priority";
DROP INDEX IF EXISTS app."Events_claim_until";

-- count indexes for rows
SELECT count(to_regclass(name)) FROM unnest($1::text[]) AS n (name);
--   1: {"app.\"Events_claim_id\"","app.\"Events_claim_priority\"","app.\"Events_claim_until\""}

