{{define "function"}}-- Notifies rowrelay of new rows in the outbox table. A rowrelay that listens reads the table
-- when it is notified, and doesn't wait for its next poll. PostgreSQL sends the notification when the
-- transaction with the INSERT or COPY commits. If the transaction is rolled back, PostgreSQL sends
-- nothing.
--
-- A commit with a notification takes a lock that only one commit of the whole server can hold. So if
-- several transactions insert in the same hundredth of a second, only one of them notifies: the one
-- that gets an advisory lock, whose keys are the table's OID and this hundredth of a second. The other
-- transactions don't wait for the advisory lock. If the notifying transaction commits before them or is
-- rolled back, their rows wait for rowrelay's next poll or the next notification.
--
-- While the server's notification queue is at least half full, for example because a listening session
-- hangs, the function doesn't notify, because commits with notifications fail when the queue is full.
-- A role that inserts needs no privilege except INSERT.
CREATE OR REPLACE FUNCTION {{.Index "notify"}}() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    announced CONSTANT text := 'rowrelay.announced_' || TG_RELID; -- a setting: yes until this transaction ends
    hundredth CONSTANT bigint := date_part('epoch', clock_timestamp()) * 100;
    nothing   text; -- assigning a result is faster than PERFORM
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
