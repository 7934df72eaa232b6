-- schema version
SELECT value FROM app."Events_settings" WHERE name = N'schema';

-- make indexes for rows
IF NOT EXISTS (SELECT name FROM sys.indexes WHERE object_id = OBJECT_ID(N'[app].[Events]') AND name = N'Events_claim_id')
CREATE INDEX "Events_claim_id" ON app."Events" (id) WHERE claimed_until IS NULL WITH (ALLOW_PAGE_LOCKS = OFF);
IF NOT EXISTS (SELECT name FROM sys.indexes WHERE object_id = OBJECT_ID(N'[app].[Events]') AND name = N'Events_claim_priority')
CREATE INDEX "Events_claim_priority" ON app."Events" (priority DESC, id) WHERE claimed_until IS NULL WITH (ALLOW_PAGE_LOCKS = OFF);
IF NOT EXISTS (SELECT name FROM sys.indexes WHERE object_id = OBJECT_ID(N'[app].[Events]') AND name = N'Events_claim_until')
CREATE INDEX "Events_claim_until" ON app."Events" (claimed_until) INCLUDE (claim_token) WHERE claimed_until IS NOT NULL WITH (ALLOW_PAGE_LOCKS = OFF);

-- drop indexes for rows
DROP INDEX IF EXISTS "Events_claim_id" ON app."Events";
DROP INDEX IF EXISTS "Events_claim_priority" ON app."Events";
DROP INDEX IF EXISTS "Events_claim_until" ON app."Events";

-- count indexes for rows
SELECT COUNT(*) FROM (SELECT name FROM sys.indexes WHERE object_id = OBJECT_ID(N'[app].[Events]') AND name IN (N'Events_claim_id', N'Events_claim_priority', N'Events_claim_until')) AS i;

