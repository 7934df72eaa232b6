{{/* The statements that all databases share. A database's own file has "value 1" and "value 2", its placeholders, and may redefine
the others. */}}

{{define "read"}}SELECT value FROM {{.Outbox.Settings}} WHERE name = {{template "value 1"}}{{end}}

{{define "hold"}}SELECT value FROM {{.Outbox.Settings}} WHERE name = {{template "value 1"}} FOR UPDATE{{end}}

{{define "create record"}}INSERT INTO {{.Outbox.Settings}} (value, name) VALUES ({{template "value 1"}}, {{template "value 2"}}){{end}}

{{define "save record"}}UPDATE {{.Outbox.Settings}} SET value = {{template "value 1"}} WHERE name = {{template "value 2"}}{{end}}

{{define "delete record"}}DELETE FROM {{.Outbox.Settings}} WHERE name = {{.Record}};
{{end}}

{{define "count"}}SELECT count(*) FROM {{.From}} AS r WHERE {{.Row.Waiting}}{{end}}

{{define "count parked"}}SELECT count(*) FROM {{.Outbox.Held}} WHERE state = 'error' AND last_error LIKE 'rowrelay adopt: %'{{end}}

{{define "sample"}}SELECT m.topic, {{if .Sets "message_key"}}m.message_key{{else}}NULL{{end}}, {{if .Sets "message_id"}}m.message_id{{else}}NULL{{end}}
FROM (SELECT {{.Row.Named}} FROM {{.From}} AS r WHERE {{.Row.Waiting}}{{if .Row.Order}} ORDER BY {{.Row.Order}}{{end}} LIMIT 1) AS m{{end}}

{{define "sample any"}}SELECT m.topic, {{if .Sets "message_key"}}m.message_key{{else}}NULL{{end}}, {{if .Sets "message_id"}}m.message_id{{else}}NULL{{end}}
FROM (SELECT {{.Row.Named}} FROM {{.From}} AS r LIMIT 1) AS m{{end}}

{{/* The condition of the rows that a batch forwards. */}}
{{define "waiting"}}{{.Row.Waiting}}{{end}}

{{define "first"}}SELECT {{range $i, $k := .Keys}}{{if $i}}, {{end}}r.{{$k.Column}}{{end}} FROM {{.From}} AS r WHERE {{template "waiting" .}} ORDER BY {{.Row.Order}} LIMIT 1{{end}}

{{define "path"}}{{end}}

{{define "prepare"}}{{end}}

{{define "unprepare"}}{{end}}

{{define "prepare explain"}}{{end}}

{{define "missing rights"}}{{end}}

{{define "warnings"}}{{end}}

{{define "lost order"}}{{end}}
