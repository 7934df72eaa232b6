{{/* PostgreSQL: the statements that forward the rows of a table. See plan.go for the names. */}}

{{define "refusal"}}CASE WHEN m.topic IS NULL OR m.topic = '' THEN 'the topic is empty'
             WHEN octet_length(m.topic) > 255 THEN 'the topic has ' || octet_length(m.topic) || ' bytes, and at most 255 are allowed'
             WHEN octet_length(m.message_key) > 255 THEN 'the key has ' || octet_length(m.message_key) || ' bytes, and at most 255 are allowed'
{{- if .Row.Headers}}
             WHEN json_typeof(m.headers) <> 'object' THEN 'the headers are not a JSON object'
{{- end}} END{{end}}

{{define "function"}}-- Inserts a message for the row that a program has inserted, in the program's transaction. It runs with the rights of its
-- owner, so programs need no rights on {{.Outbox.Pending}}.
CREATE OR REPLACE FUNCTION {{.Function}}() RETURNS trigger LANGUAGE plpgsql
SECURITY DEFINER SET search_path = {{.Path}} AS $rowrelay$
{{- if .Refuse}}
BEGIN
{{- if .New.Waiting}}
    IF ({{.New.Waiting}}) IS NOT TRUE THEN
        RETURN {{.Return}};
    END IF;
{{- end}}
    INSERT INTO {{.Outbox.Pending}} ({{.Columns}})
    VALUES ({{.New.Values}});
{{- else}}
DECLARE
    m       record;
    refused text;
    new_id  bigint;
BEGIN
    BEGIN
{{- if .New.Waiting}}
        IF ({{.New.Waiting}}) IS NOT TRUE THEN
            RETURN {{.Return}};
        END IF;
{{- end}}
        SELECT {{.New.Named}} INTO m;
        refused := {{template "refusal" .}};
    EXCEPTION WHEN OTHERS THEN
        IF SQLSTATE LIKE '40%' THEN
            RAISE;
        END IF;
        -- The mapping fails for this row. It must not fail the program's transaction.
        SELECT {{.FailedNamed}} INTO m;
        refused := 'the mapping fails with SQLSTATE ' || SQLSTATE || '; the payload is the whole row';
    END;
    IF refused IS NULL THEN
        INSERT INTO {{.Outbox.Pending}} ({{.Columns}})
        VALUES ({{.Message}});
    ELSE
        -- The outbox would refuse the message. It is parked with the reason.
        new_id := nextval(pg_get_serial_sequence('{{.Outbox.Pending}}', 'id'));
        INSERT INTO {{.Outbox.Held}} (id, lane, state, last_error, attempts, crashes, priority, created_at, {{.HeldColumns}})
        VALUES (new_id, {{template "lane" "new_id"}}, 'error', 'rowrelay adopt: ' || refused, 0, 0, 0, clock_timestamp(), {{.HeldMessage}});
    END IF;
{{- end}}
{{- if and .Marks (not .View)}}
    {{template "mark" .}};
{{- end}}
    RETURN {{.Return}};
END $rowrelay$;

-- A trigger needs no right to call its function.
REVOKE EXECUTE ON FUNCTION {{.Function}}() FROM PUBLIC;
{{end}}

{{define "lane"}}(CASE WHEN m.message_key IS NULL OR m.message_key = '' THEN {{.}} ELSE hashtextextended(m.message_key COLLATE "C", 0) END) & 63{{end}}

{{define "mark"}}{{if .Delete}}DELETE FROM {{.From}} WHERE {{.KeyIsNew}}{{else}}UPDATE {{.From}} SET {{.New.Marks}} WHERE {{.KeyIsNew}}{{end}}{{end}}

{{define "trigger"}}DROP TRIGGER IF EXISTS {{.Trigger}} ON {{.From}};

CREATE TRIGGER {{.Trigger}} AFTER INSERT ON {{.From}} FOR EACH ROW EXECUTE FUNCTION {{.Function}}();
{{end}}

{{define "batch"}}WITH waiting AS MATERIALIZED (
    SELECT r.* FROM {{.From}} AS r WHERE {{.Row.Waiting}} ORDER BY {{.Row.Order}}{{if .Limit}} LIMIT {{.Limit}}{{end}} FOR UPDATE
), mapped AS MATERIALIZED (
    SELECT row_number() OVER (ORDER BY {{.Row.Order}}) AS place, {{.Row.Named}}{{if .Marks}}, {{.RowKeys}}{{end}} FROM waiting AS r
), checked AS MATERIALIZED (
    SELECT m.*, {{if .Refuse}}NULL{{else}}{{template "refusal" .}}{{end}} AS refused FROM mapped AS m
), sent AS (
    INSERT INTO {{.Outbox.Pending}} ({{.Columns}})
    SELECT {{.Message}} FROM checked AS m WHERE m.refused IS NULL ORDER BY m.place
{{- if not .Refuse}}
), parked AS (
    INSERT INTO {{.Outbox.Held}} (id, lane, state, last_error, attempts, crashes, priority, created_at, {{.HeldColumns}})
    SELECT m.new_id, {{template "lane" "m.new_id"}}, 'error', 'rowrelay adopt: ' || m.refused, 0, 0, 0, clock_timestamp(), {{.HeldMessage}}
    FROM (SELECT m.*, nextval(pg_get_serial_sequence('{{.Outbox.Pending}}', 'id')) AS new_id FROM checked AS m WHERE m.refused IS NOT NULL ORDER BY m.place) AS m
{{- end}}
{{- if .Marks}}
), marked AS (
    {{if .Delete}}DELETE FROM {{.From}} AS r USING checked AS m WHERE {{.KeyIsRow}}{{else}}UPDATE {{.From}} AS r SET {{.Row.Marks}} FROM checked AS m WHERE {{.KeyIsRow}}{{end}}
{{- end}}
)
SELECT count(*) FROM checked{{end}}

{{define "script"}}BEGIN;

-- Wait at most half a second for the lock, because all programs that write to the table wait behind this statement. If it
-- fails, run the script again.
SET LOCAL lock_timeout = '500ms';
LOCK TABLE {{.From}} IN EXCLUSIVE MODE;
{{if .Row.Waiting}}
-- The rows that wait, in their order. Programs wait until this script commits, so no row is left out or overtaken.
{{template "batch" .}};
{{end}}
{{template "function" .}}
{{template "trigger" .}}
COMMIT;
{{end}}

{{define "undo"}}BEGIN;

SET LOCAL lock_timeout = '500ms';
{{template "remove" .}}

COMMIT;
{{end}}

{{define "remove"}}DROP TRIGGER IF EXISTS {{.Trigger}} ON {{.From}};

DROP FUNCTION IF EXISTS {{.Function}}();
{{- end}}
