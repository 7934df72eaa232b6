{{/* SQLite: the statements that forward the rows of a table. plan.go has the names. */}}

{{define "uuid"}}GLOB replace('hhhhhhhh-hhhh-hhhh-hhhh-hhhhhhhhhhhh', 'h', '[0-9A-Fa-f]'){{end}}

{{define "refusal"}}CASE WHEN coalesce(m.topic, '') = '' THEN 'the topic is empty'
            WHEN length(CAST(m.topic AS BLOB)) > 255 THEN 'the topic has ' || length(CAST(m.topic AS BLOB)) || ' bytes, and at most 255 are allowed'
{{- if .Sets "message_key"}}
            WHEN length(CAST(m.message_key AS BLOB)) > 255 THEN 'the key has ' || length(CAST(m.message_key AS BLOB)) || ' bytes, and at most 255 are allowed'
{{- end}}
{{- if .Sets "message_id"}}
            WHEN NOT m.message_id {{template "uuid"}} THEN 'the id "' || substr(m.message_id, 1, 100) || '" is not a UUID'
{{- end}}
{{- if .Sets "headers"}}
            WHEN NOT json_valid(m.headers) THEN 'the headers are not JSON'
            WHEN json_type(m.headers) <> 'object' THEN 'the headers are not a JSON object'
{{- end}} END{{end}}

{{define "accepted"}}{{range $i, $f := .Row.Fields}}{{if $i}},
           {{end}}
{{- if eq .Column "topic"}}CASE WHEN coalesce(m.topic, '') = '' THEN 'unknown' WHEN length(CAST(m.topic AS BLOB)) > 255 THEN substr(m.topic, 1, 63) ELSE m.topic END
{{- else if eq .Column "message_key"}}CASE WHEN length(CAST(m.message_key AS BLOB)) > 255 THEN substr(m.message_key, 1, 63) ELSE m.message_key END
{{- else if eq .Column "message_id"}}CASE WHEN m.message_id {{template "uuid"}} THEN m.message_id ELSE {{$.NewID}} END
{{- else if eq .Column "headers"}}CASE WHEN json_valid(m.headers) THEN CASE WHEN json_type(m.headers) = 'object' THEN m.headers END END
{{- else}}m.{{.Column}}{{end}}{{end}}{{end}}

{{define "insert"}}INSERT INTO {{.Outbox.Pending}} ({{if not .Refuse}}last_error, {{end}}{{.Columns}})
    SELECT {{if not .Refuse}}'rowrelay adopt: ' || {{template "refusal" .}},
           {{template "accepted" .}}{{else}}{{.Message "m."}}{{end}}{{end}}

{{define "park"}}INSERT INTO {{.Outbox.Held}} (id, lane, state, message_id, topic, message_key, payload, payload_text, headers, priority, attempts, crashes, last_error, created_at)
    SELECT id, lane, 'error', message_id, topic, message_key, payload, payload_text, headers, priority, attempts, crashes, last_error, created_at
    FROM {{.Outbox.Pending}}{{end}}

{{define "trigger"}}-- Inserts a message for the row that a program has inserted, in the program's transaction.
CREATE TRIGGER {{.Trigger}} AFTER INSERT ON {{.Bare}} WHEN {{.New.Waiting}}
BEGIN
{{- if .Refuse}}
    -- A program's INSERT OR IGNORE would also ignore that the outbox refuses the message.
    SELECT RAISE(ABORT, 'rowrelay adopt: the outbox refuses the message') FROM (SELECT {{.New.Named}}) AS m WHERE {{template "refusal" .}} IS NOT NULL;
{{- end}}
    {{template "insert" .}}
    FROM (SELECT {{.New.Named}}) AS m;
{{- if not .Refuse}}
    -- If the outbox would refuse the message, it is parked with the reason.
    {{template "park" .}} WHERE id = last_insert_rowid() AND last_error LIKE 'rowrelay adopt: %';
    DELETE FROM {{.Outbox.Pending}} WHERE id = last_insert_rowid() AND last_error LIKE 'rowrelay adopt: %';
{{- end}}
{{- if .Delete}}
    DELETE FROM {{.Bare}} WHERE {{.KeyIs "" "NEW." false}};
{{- else if .Marks}}
    UPDATE {{.Bare}} SET {{.New.Assignments ""}} WHERE {{.KeyIs "" "NEW." false}};
{{- end}}
END;
{{end}}

{{define "chosen"}}({{range $i, $k := .Keys}}{{if $i}}, {{end}}{{$k.Column}}{{end}}) IN (
        SELECT {{range $i, $k := .Keys}}{{if $i}}, {{end}}r.{{$k.Column}}{{end}} FROM {{.From}} AS r WHERE {{.Row.Waiting}} ORDER BY {{.Row.Order}}{{if .Limit}} LIMIT {{.Limit}}{{end}}){{end}}

{{define "batch"}}{{template "insert" .}}
    FROM (SELECT row_number() OVER (ORDER BY {{.Row.Order}}) AS place, {{.Row.Named}} FROM {{.From}} AS r WHERE {{.Row.Waiting}} ORDER BY {{.Row.Order}}{{if .Limit}} LIMIT {{.Limit}}{{end}}) AS m ORDER BY m.place;
{{if not .Refuse}}
-- Park the messages whose original values the outbox would refuse.
{{template "park" .}} WHERE {{if .Limit}}id > last_insert_rowid() - {{.Limit}} AND {{end}}last_error LIKE 'rowrelay adopt: %';

DELETE FROM {{.Outbox.Pending}} WHERE {{if .Limit}}id > last_insert_rowid() - {{.Limit}} AND {{end}}last_error LIKE 'rowrelay adopt: %';
{{end}}
{{if .Delete}}DELETE FROM {{.From}} WHERE {{template "chosen" .}};
{{else if .Marks}}UPDATE {{.From}} SET {{.Plain.Assignments ""}} WHERE {{template "chosen" .}};
{{end}}{{end}}

{{define "script"}}BEGIN IMMEDIATE;
{{if not .OnlyNew}}
-- The rows that wait, in their order.
{{template "batch" .}}{{end}}
{{template "trigger" .}}
COMMIT;
{{end}}

{{define "remove"}}DROP TRIGGER IF EXISTS {{.Trigger}};
{{end}}

{{define "undo"}}{{template "remove" .}}
{{template "delete record" .}}{{end}}

{{define "placed"}}SELECT 'trigger' FROM sqlite_schema WHERE type = 'trigger' AND name = {{.Literal .TriggerName}}{{end}}

{{define "hold"}}{{template "read" .}}{{end}}

{{define "value 1"}}?{{end}}

{{define "value 2"}}?{{end}}
