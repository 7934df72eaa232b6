{{define "function"}}-- Tells listening relays of rows that a plain INSERT, or a COPY, writes. What it announces is heard
-- when the transaction commits, and never if it is rolled back.
--
-- A notification takes a lock of the whole server at the commit, so of writers at work at the same
-- time one announces for all: the one that has the advisory lock of this hundredth of a second. Who
-- doesn't get it waits for nothing. Where that one commits before another, the other's rows wait for
-- the relays' next look, or the next notification.
--
-- A queue that is half full, as a listener that hangs has made it, is let alone: when it is full,
-- commits fail. Needs no rights but the writer's to INSERT.
CREATE OR REPLACE FUNCTION {{.Index "notify"}}() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    announced CONSTANT text := 'rowrelay.announced_' || TG_RELID; -- until this transaction ends
    hundredth CONSTANT bigint := date_part('epoch', clock_timestamp()) * 100;
    nothing   text; -- to assign to it is quicker than PERFORM
BEGIN
    IF current_setting(announced, true) = 'yes' THEN
        RETURN NULL;
    END IF;
    IF pg_try_advisory_xact_lock(TG_RELID::integer, (hundredth % 2147483647)::integer) AND pg_notification_queue_usage() < 0.5 THEN
        nothing := set_config(announced, 'yes', true);
        nothing := pg_notify(('rowrelay_' || TG_TABLE_NAME)::name::text, TG_RELID::text);
    END IF;
    RETURN NULL;
END
$${{end}}

{{define "trigger"}}CREATE TRIGGER {{.IndexName "notify"}} AFTER INSERT ON {{.Pending}} FOR EACH STATEMENT EXECUTE FUNCTION {{.Index "notify"}}(){{end}}

{{define "drop"}}DROP FUNCTION IF EXISTS {{.Index "notify"}}() CASCADE{{end}}

{{define "there"}}SELECT EXISTS (SELECT FROM pg_trigger WHERE tgrelid = to_regclass('{{.Pending}}') AND tgname = '{{.Name}}_notify' AND tgenabled <> 'D'){{end}}
