{{/* PostgreSQL: the statements that forward the rows of a table. plan.go has the names. */}}

{{define "refusal"}}CASE WHEN m.topic IS NULL OR m.topic = '' THEN 'the topic is empty'
             WHEN octet_length(m.topic) > 255 THEN 'the topic has ' || octet_length(m.topic) || ' bytes, and at most 255 are allowed'
{{- if .Sets "message_key"}}
             WHEN octet_length(m.message_key) > 255 THEN 'the key has ' || octet_length(m.message_key) || ' bytes, and at most 255 are allowed'
{{- end}}
{{- if .Sets "headers"}}
             WHEN json_typeof(m.headers) <> 'object' THEN 'the headers are not a JSON object'
{{- end}} END{{end}}

{{define "parked columns"}}id, lane, state, last_error, attempts, crashes, priority, created_at, {{.Columns}}{{if not (.Sets "message_id")}}, message_id{{end}}{{end}}

{{define "parked values"}}{{if .Sets "message_key"}}CASE WHEN m.message_key IS NULL OR m.message_key = '' THEN new_id ELSE hashtextextended(m.message_key COLLATE "C", 0) END{{else}}new_id{{end}} & 63, 'error', 'rowrelay adopt: ' || refused, 0, 0, 0, clock_timestamp(),
            {{.Message "m."}}{{if not (.Sets "message_id")}}, gen_random_uuid(){{end}}{{end}}

{{define "function"}}-- Inserts a message for the row that a program has inserted, in the program's transaction. It runs with the rights of its
-- owner, so programs need no rights on {{.Outbox.Pending}}. Its search_path has no schema in which
-- other users may create functions.
CREATE OR REPLACE FUNCTION {{.Function}}() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $rowrelay$
{{- if not .Refuse}}
DECLARE
    m       record;
    waits   boolean;
    refused text;
    new_id  bigint;
{{- end}}
BEGIN
{{- range .Filled}}
    IF NEW.{{.Column}} IS NULL THEN
        NEW.{{.Column}} := {{.Value}};
    END IF;
{{- end}}
{{- if .Refuse}}
    IF ({{.New.Waiting}}) IS NOT TRUE THEN
        {{template "keep" .}}
    END IF;
    INSERT INTO {{.Outbox.Pending}} ({{.Columns}})
    VALUES ({{.New.Values}});
{{- else}}
    BEGIN
        waits := ({{.New.Waiting}}) IS TRUE;
        SELECT {{.New.Named}} INTO m;
        refused := {{template "refusal" .}};
    EXCEPTION WHEN OTHERS THEN
        IF SQLSTATE LIKE '40%' THEN -- a deadlock, or a conflict of serializable transactions
            RAISE;
        END IF;
        -- The mapping fails for this row, but the program's transaction must not fail.
        SELECT {{.New.Failed}} INTO m;
        refused := 'the mapping fails with SQLSTATE ' || SQLSTATE || '; the payload is the whole row';
    END;
    IF NOT waits THEN
        {{template "keep" .}}
    ELSIF refused IS NULL THEN
        INSERT INTO {{.Outbox.Pending}} ({{.Columns}})
        VALUES ({{.Message "m."}});
    ELSE
        -- The outbox would refuse the message. It is parked with the reason.
        new_id := nextval(pg_get_serial_sequence('{{.Outbox.Pending}}', 'id'));
        m.topic := coalesce(nullif(m.topic, ''), 'unknown');
        INSERT INTO {{.Outbox.Held}} ({{template "parked columns" .}})
        VALUES (new_id, {{template "parked values" .}});
    END IF;
{{- end}}
{{- if .View}}
    RETURN NEW;
{{- else}}
{{- if .Delete}}
    DELETE FROM {{.From}} WHERE {{.KeyIs "" "NEW." false}};
{{- else if .Marks}}
    UPDATE {{.From}} SET {{.New.Assignments ""}} WHERE {{.KeyIs "" "NEW." false}};
{{- end}}
    RETURN NULL;
{{- end}}
END $rowrelay$;

-- Nobody needs this right, because the trigger calls the function without it.
REVOKE EXECUTE ON FUNCTION {{.Function}}() FROM PUBLIC;
{{end}}

{{define "keep"}}{{if .View}}-- The row doesn't wait to be sent, so it is stored in the table.
        INSERT INTO {{.Renamed}} ({{.Stored ""}}) OVERRIDING SYSTEM VALUE VALUES ({{.Stored "NEW."}});
        RETURN NEW;{{else}}RETURN NULL;{{end}}{{end}}

{{define "view"}}ALTER TABLE {{.From}} RENAME TO {{.RenamedBare}};

CREATE VIEW {{.View}} AS SELECT {{.Selected}} FROM {{.Renamed}};

ALTER VIEW {{.View}} OWNER TO {{.Owner}};
{{range .Defaults}}
ALTER VIEW {{$.View}} ALTER COLUMN {{.Column}} SET DEFAULT {{.Value}};
{{end}}{{range .Grants}}
GRANT {{.Privilege}} ON {{$.View}} TO {{.Grantee}};
{{end}}
{{template "function" .}}
CREATE TRIGGER {{.Trigger}} INSTEAD OF INSERT ON {{.View}} FOR EACH ROW EXECUTE FUNCTION {{.Function}}();
{{end}}

{{define "remove view"}}DROP VIEW {{.View}};

DROP FUNCTION {{.Function}}();

ALTER TABLE {{.Renamed}} RENAME TO {{.ViewBare}};
{{- end}}

{{define "trigger"}}{{if not .Placed}}CREATE TRIGGER {{.Trigger}} AFTER INSERT ON {{.From}} FOR EACH ROW EXECUTE FUNCTION {{.Function}}();
{{end}}{{end}}

{{/* The rows of "waiting" keep their order. Ordering them again would fail for ctid, which they don't have. */}}
{{define "batch"}}WITH waiting AS MATERIALIZED (
    SELECT r.* FROM {{.From}} AS r WHERE {{.Row.Waiting}} ORDER BY {{.Row.Order}}{{if .Limit}} LIMIT {{.Limit}}{{end}} FOR UPDATE
), mapped AS MATERIALIZED (
    SELECT row_number() OVER () AS place, {{.Row.Named}}{{if .Marks}}, {{.KeyNamed}}{{end}} FROM waiting AS r
), checked AS MATERIALIZED (
    SELECT m.*, {{if .Refuse}}NULL{{else}}{{template "refusal" .}}{{end}} AS refused FROM mapped AS m
), sent AS (
    INSERT INTO {{.Outbox.Pending}} ({{.Columns}})
    SELECT {{.Message "m."}} FROM checked AS m WHERE m.refused IS NULL ORDER BY m.place
{{- if not .Refuse}}
), parked AS (
    INSERT INTO {{.Outbox.Held}} ({{template "parked columns" .}})
    SELECT new_id, {{template "parked values" .}}
    FROM (
        SELECT {{range .Row.Fields}}{{if eq .Column "topic"}}coalesce(nullif(m.topic, ''), 'unknown') AS topic{{else}}m.{{.Column}}{{end}}, {{end}}m.refused, nextval(pg_get_serial_sequence('{{.Outbox.Pending}}', 'id')) AS new_id
        FROM checked AS m WHERE m.refused IS NOT NULL ORDER BY m.place) AS m
{{- end}}
{{- if .Delete}}
), deleted AS (
    DELETE FROM {{.From}} AS r USING checked AS m WHERE {{.KeyIs "r." "m." true}}
{{- else if .Marks}}
), marked AS (
    UPDATE {{.From}} AS r SET {{.Row.Assignments ""}} FROM checked AS m WHERE {{.KeyIs "r." "m." true}}
{{- end}}
)
SELECT count(*) FROM checked{{end}}

{{/* With this search_path, the mapping's expressions call no function that another user has created. */}}
{{define "path"}}SET LOCAL search_path = pg_catalog, pg_temp{{end}}

{{define "placed"}}SELECT CASE c.relkind WHEN 'v' THEN 'view' ELSE 'trigger' END
FROM pg_trigger AS t JOIN pg_class AS c ON c.oid = t.tgrelid
WHERE t.tgname = {{.Literal .TriggerName}} AND NOT t.tgisinternal AND c.oid = {{if .View}}{{.Literal .View}}{{else}}{{.Literal .From}}{{end}}::regclass{{end}}

{{define "lock"}}LOCK TABLE {{.From}} IN {{if .View}}ACCESS {{end}}EXCLUSIVE MODE{{end}}

{{define "script"}}BEGIN;

-- Wait at most half a second for the lock, because meanwhile all programs that write to the table wait. If the script fails, run
-- it again.
SET LOCAL lock_timeout = '500ms';
{{template "path" .}};
{{template "lock" .}};
{{if not .OnlyNew}}
-- The rows that wait, in their order. Programs wait until this script commits, so no row is left out or overtaken.
{{template "batch" .}};
{{end}}
{{if .View}}{{template "view" .}}{{else}}{{template "function" .}}
{{template "trigger" .}}{{end}}
COMMIT;
{{end}}

{{define "undo"}}BEGIN;

SET LOCAL lock_timeout = '500ms';
{{if .View}}{{template "remove view" .}}{{else}}{{template "remove" .}}{{end}}

{{template "delete record" .}}
COMMIT;
{{end}}

{{define "remove"}}DROP TRIGGER IF EXISTS {{.Trigger}} ON {{.From}};

DROP FUNCTION IF EXISTS {{.Function}}();
{{- end}}

{{/* The rights that the current user lacks. This user will own the function. */}}
{{define "missing rights"}}SELECT needed FROM pg_class AS c, LATERAL (VALUES
    (pg_has_role(c.relowner, 'USAGE'), 'it does not own {{.From}}, and only the owner can drop a trigger: ALTER TABLE {{.From}} OWNER TO ' || quote_ident(current_user)),
    (has_schema_privilege(c.relnamespace, 'CREATE'), 'GRANT CREATE ON SCHEMA ' || c.relnamespace::regnamespace || ' TO ' || quote_ident(current_user)),
    (has_table_privilege('{{.Outbox.Pending}}', 'INSERT'), 'GRANT INSERT ON {{.Outbox.Pending}} TO ' || quote_ident(current_user)),
    (has_table_privilege('{{.Outbox.Held}}', 'INSERT'), 'GRANT INSERT ON {{.Outbox.Held}} TO ' || quote_ident(current_user)),
    (has_sequence_privilege(pg_get_serial_sequence('{{.Outbox.Pending}}', 'id'), 'USAGE'), 'GRANT USAGE ON SEQUENCE ' || pg_get_serial_sequence('{{.Outbox.Pending}}', 'id') || ' TO ' || quote_ident(current_user)),
    (has_table_privilege('{{.Outbox.Settings}}', 'INSERT') AND has_table_privilege('{{.Outbox.Settings}}', 'UPDATE') AND has_table_privilege('{{.Outbox.Settings}}', 'DELETE'),
        'GRANT INSERT, UPDATE, DELETE ON {{.Outbox.Settings}} TO ' || quote_ident(current_user))
    ) AS needs (granted, needed) WHERE c.oid = '{{.From}}'::regclass AND NOT granted{{end}}

{{define "warnings"}}SELECT 'the user ' || rolname || ' is a superuser, so the expressions of the mapping run with a superuser''s rights in every INSERT: use a role that owns the table' FROM pg_roles WHERE rolname = current_user AND rolsuper{{end}}

{{define "lost order"}}{{if .ByCmin}}SELECT count(*) || ' of the waiting rows were locked, or changed by a transaction that was rolled back, such as that of a killed loop. A changed row has lost the number of its INSERT statement: give --order if rows with equal times must keep their order'
FROM {{.From}} AS r WHERE ({{.Row.Waiting}}) AND r.xmax <> 0 HAVING count(*) > 0{{if and .Row.BeforePlace (.Sets "message_key")}}
UNION ALL
SELECT sum(equal) || ' of the waiting rows have the key and the time of other waiting rows, and the same INSERT statement wrote them: they are forwarded in the order of their places in the table, which is not always the order in which the statement named them. Give --order with a column that has the right order, if there is one'
FROM (SELECT count(*) AS equal
    FROM (SELECT {{.Row.Named}}, ROW({{.Row.BeforePlace}})::text AS before_place FROM {{.From}} AS r WHERE {{.Row.Waiting}}) AS m
    WHERE m.message_key <> '' GROUP BY m.message_key, m.before_place HAVING count(*) > 1) AS g
HAVING sum(equal) > 0{{end}}{{end}}{{end}}

{{define "value 1"}}$1{{end}}

{{define "value 2"}}$2{{end}}
