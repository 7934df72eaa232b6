{{/* MySQL and MariaDB: the statements that forward the rows of a table. plan.go has the names. */}}

{{define "uuid"}}'^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$'{{end}}

{{define "refusal"}}CASE WHEN coalesce({{.P}}topic, '') = '' THEN 'the topic is empty'
            WHEN octet_length({{.P}}topic) > 255 THEN concat('the topic has ', octet_length({{.P}}topic), ' bytes, and at most 255 are allowed')
{{- if .Sets "message_key"}}
            WHEN octet_length({{.P}}message_key) > 255 THEN concat('the key has ', octet_length({{.P}}message_key), ' bytes, and at most 255 are allowed')
{{- end}}
{{- if .Sets "message_id"}}
            WHEN {{.P}}message_id NOT REGEXP {{template "uuid"}} THEN concat('the id "', left({{.P}}message_id, 100), '" is not a UUID')
{{- end}}
{{- if .Sets "headers"}}
            WHEN NOT json_valid({{.P}}headers) THEN 'the headers are not JSON'
            WHEN json_type({{.P}}headers) <> 'OBJECT' THEN 'the headers are not a JSON object'
{{- end}} END{{end}}

{{define "accepted"}}{{range $i, $f := .Row.Fields}}{{if $i}},
           {{end}}
{{- if eq .Column "topic"}}CASE WHEN coalesce({{$.P}}topic, '') = '' THEN 'unknown' WHEN octet_length({{$.P}}topic) > 255 THEN left({{$.P}}topic, 63) ELSE {{$.P}}topic END
{{- else if eq .Column "message_key"}}CASE WHEN octet_length({{$.P}}message_key) > 255 THEN left({{$.P}}message_key, 63) ELSE {{$.P}}message_key END
{{- else if eq .Column "message_id"}}CASE WHEN {{$.P}}message_id REGEXP {{template "uuid"}} THEN {{$.P}}message_id ELSE uuid() END
{{- else if eq .Column "headers"}}CASE WHEN json_valid({{$.P}}headers) THEN CASE WHEN json_type({{$.P}}headers) = 'OBJECT' THEN {{$.P}}headers END END
{{- else}}{{$.P}}{{.Column}}{{end}}{{end}}{{end}}

{{define "park"}}INSERT INTO {{.Outbox.Held}} (id, lane, state, message_id, topic, message_key, payload, payload_text, headers, priority, attempts, crashes, last_error, created_at)
{{if .P}}            {{end}}SELECT id, lane, 'error', message_id, topic, message_key, payload, payload_text, headers, priority, attempts, crashes, last_error, created_at
{{if .P}}            {{end}}FROM {{.Outbox.Pending}} WHERE{{end}}

{{define "forward"}}-- Inserts a message for the row that a program has inserted, in the program's transaction. It runs with the rights of its
-- definer, so programs need no rights on {{.Outbox.Pending}}.
CREATE TRIGGER {{.Trigger}} AFTER INSERT ON {{.From}} FOR EACH ROW
BEGIN
{{- if not .Refuse}}
    DECLARE m_topic, m_message_key, m_payload_text, m_headers longtext CHARACTER SET utf8mb4;
    DECLARE m_payload longblob;
    DECLARE m_message_id, refused varchar(255) CHARACTER SET utf8mb4;
    DECLARE new_id bigint;
{{- end}}
    IF {{if and .Marks (not .Delete)}}{{.Flag}} IS TRUE AND ({{.New.Waiting}}) IS NOT TRUE{{else}}({{.New.Waiting}}) IS TRUE{{end}} THEN
{{- if and .Marks (not .Delete)}}
        SET {{.Flag}} = NULL; -- the other trigger sets the variable and marks the row; if the variable isn't set, no row is forwarded
{{- end}}
{{- if .Refuse}}
        INSERT INTO {{.Outbox.Pending}} ({{.Columns}})
        VALUES ({{.New.Values}});
{{- else}}
        BEGIN
            DECLARE EXIT HANDLER FOR SQLEXCEPTION
            BEGIN
                -- The mapping fails for this row, but the program's transaction must not fail.
                GET DIAGNOSTICS CONDITION 1 @rowrelay_errno = MYSQL_ERRNO;
                IF @rowrelay_errno IN (1205, 1213) THEN -- a time-out of a lock, or a deadlock
                    RESIGNAL;
                END IF;
                SET {{range .New.Fields}}m_{{.Column}} = {{.Failed}}, {{end}}refused = concat('the mapping fails with error ', @rowrelay_errno, '; the payload is the whole row');
            END;
            SET {{range $i, $f := .New.Fields}}{{if $i}}, {{end}}m_{{$f.Column}} = {{$f.Value}}{{end}};
            SET refused = {{template "refusal" (.With "m_")}};
        END;
        INSERT INTO {{.Outbox.Pending}} (last_error, {{.Columns}})
        VALUES (concat('rowrelay adopt: ', refused),
           {{template "accepted" (.With "m_")}});
        IF refused IS NOT NULL THEN
            -- The outbox would refuse the message. It is parked with the reason.
            SET new_id = last_insert_id();
            {{template "park" (.With "m_")}} id = new_id;
            DELETE FROM {{.Outbox.Pending}} WHERE id = new_id;
        END IF;
{{- end}}
    END IF;
END;
{{end}}

{{define "marker"}}{{if and .Marks (not .Delete)}}-- Marks a waiting row as sent. The server allows this only in a trigger before the INSERT. The other trigger forwards the row after
-- the INSERT, because rows that INSERT IGNORE skips or ON DUPLICATE KEY UPDATE changes must not be forwarded.
CREATE TRIGGER {{.Marker}} BEFORE INSERT ON {{.From}} FOR EACH ROW
BEGIN
    SET {{.Flag}} = ({{.New.Waiting}}) IS TRUE;
    IF {{.Flag}} THEN
        SET {{.New.Assignments "NEW."}};
    END IF;
END;
{{end}}{{end}}

{{define "isolate"}}SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;
{{end}}

{{/* Programs have the server's time zone, unless they set another one. The driver's connections have UTC. */}}
{{define "path"}}SET SESSION time_zone = @@global.time_zone{{end}}

{{define "placed"}}SELECT 'trigger' FROM information_schema.triggers
WHERE event_object_schema = {{.Literal .Table.Schema}} AND event_object_table = {{.Literal .Table.Name}} AND trigger_name = {{.Literal .TriggerName}}{{end}}

{{define "unprepare"}}DROP TEMPORARY TABLE IF EXISTS rowrelay_batch{{if .Lists}}, {{.Forwarded}}{{end}};
{{end}}

{{define "prepare"}}{{if not .OnlyNew}}CREATE TEMPORARY TABLE rowrelay_batch (place int AUTO_INCREMENT PRIMARY KEY) AS SELECT {{.KeyNamed}} FROM {{.From}} AS r WHERE false;
{{end}}{{end}}

{{/* The list of forwarded rows is empty while no run is in progress. A killed run leaves the keys of the rows that it has
forwarded, and of the rows that a replaced trigger has forwarded. */}}
{{define "create list"}}{{if .Lists}}CREATE TABLE IF NOT EXISTS {{.Forwarded}}{{if .KeysHaveIndex}} (PRIMARY KEY ({{range $i, $k := .Keys}}{{if $i}}, {{end}}{{$k.Short}}{{end}})){{end}} AS SELECT {{.KeyNamed}} FROM {{.From}} AS r WHERE false;
{{end}}{{end}}

{{define "prepare explain"}}{{if .Lists}}CREATE TEMPORARY TABLE {{.Forwarded}} AS SELECT {{.KeyNamed}} FROM {{.From}} AS r WHERE false;
{{end}}{{end}}

{{define "list all"}}{{if .Lists}}DELETE FROM {{.Forwarded}};

INSERT INTO {{.Forwarded}} SELECT {{.KeyNamed}} FROM {{.From}} AS r;
{{end}}{{end}}

{{define "empty list"}}TRUNCATE TABLE {{.Forwarded}};
{{end}}

{{define "drop list"}}{{if .Lists}}DROP TABLE {{.Forwarded}};
{{end}}{{end}}

{{define "waiting"}}{{if .Lists}}({{.Row.Waiting}}) AND NOT EXISTS (SELECT 1 FROM {{.Forwarded}} AS f WHERE {{.KeyIs "r." "f." true}}){{else}}{{.Row.Waiting}}{{end}}{{end}}

{{/* With READ COMMITTED the first SELECT takes no locks, so it doesn't wait for rows that aren't committed. */}}
{{define "batch"}}DELETE FROM rowrelay_batch;

INSERT INTO rowrelay_batch ({{range $i, $k := .Keys}}{{if $i}}, {{end}}{{$k.Short}}{{end}})
SELECT {{range $i, $k := .Keys}}{{if $i}}, {{end}}r.{{$k.Column}}{{end}} FROM {{.From}} AS r WHERE {{template "waiting" .}} ORDER BY {{.Row.Order}}{{if .Limit}} LIMIT {{.Limit}}{{end}};

INSERT INTO {{.Outbox.Pending}} ({{if not .Refuse}}last_error, {{end}}{{.Columns}})
SELECT {{if not .Refuse}}concat('rowrelay adopt: ', {{template "refusal" (.With "m.")}}),
           {{template "accepted" (.With "m.")}}{{else}}{{.Message "m."}}{{end}}
FROM (
    SELECT b.place, {{.Row.Named}}
    FROM rowrelay_batch AS b STRAIGHT_JOIN {{.From}} AS r ON {{.KeyIs "r." "b." true}}) AS m ORDER BY m.place;
{{if not .Refuse}}
-- Park the messages whose original values the outbox would refuse.
{{template "park" .}} id >= last_insert_id() AND last_error LIKE 'rowrelay adopt: %';

DELETE FROM {{.Outbox.Pending}} WHERE id >= last_insert_id() AND last_error LIKE 'rowrelay adopt: %';
{{end}}
{{if .Delete}}DELETE r FROM rowrelay_batch AS b STRAIGHT_JOIN {{.From}} AS r ON {{.KeyIs "r." "b." true}};
{{else if .Lists}}INSERT INTO {{.Forwarded}} SELECT {{range $i, $k := .Keys}}{{if $i}}, {{end}}b.{{$k.Short}}{{end}} FROM rowrelay_batch AS b;
{{else if .Marks}}UPDATE rowrelay_batch AS b STRAIGHT_JOIN {{.From}} AS r ON {{.KeyIs "r." "b." true}} SET {{.Row.Assignments "r."}};
{{end}}{{end}}

{{/* The server always locks the tables to which foreign keys refer. If the statement names them, they are locked together with the
adopted table. Otherwise the server locks them afterwards, and starts from the beginning whenever this causes a deadlock with a
program. If several sessions do this at the same time, none of them ever ends, and the server's memory grows by 100 MB per second
(seen with MySQL 9.7). */}}
{{define "parents"}}{{range .Table.Parents}}, {{.}} READ{{end}}{{end}}

{{define "lock"}}LOCK TABLES {{.From}} WRITE, {{.From}} AS r WRITE, {{.Outbox.Pending}} WRITE, {{.Outbox.Held}} WRITE, {{.Outbox.Settings}} WRITE
{{- if .Lists}}, {{.Forwarded}} WRITE, {{.Forwarded}} AS f WRITE{{end}}{{template "parents" .}};
{{end}}

{{define "lock alone"}}LOCK TABLES {{.From}} WRITE, {{.Outbox.Settings}} WRITE{{if .Lists}}, {{.Forwarded}} WRITE{{end}}{{template "parents" .}}{{end}}

{{define "script"}}-- Wait at most a second for the locks, because meanwhile all programs that write to the tables wait. If LOCK TABLES fails, run the
-- script again.
SET SESSION lock_wait_timeout = 1, SESSION autocommit = 0;

{{template "isolate"}}

{{template "unprepare" .}}
{{template "prepare" .}}
{{if .Lists}}-- The keys of forwarded rows. If the script fails after the COMMIT, it can be run again, and then leaves these rows out.
{{template "create list" .}}
{{end}}{{template "lock" .}}
{{if not .OnlyNew}}-- The rows that wait, in their order. Programs wait until the tables are unlocked, so no row is left out or overtaken.
{{template "batch" .}}
COMMIT;
{{end}}
DELIMITER //

{{template "forward" .}}//
{{if .Marks}}
{{template "marker" .}}//
{{end}}
DELIMITER ;
{{if .Lists}}
{{template "empty list" .}}{{end}}
UNLOCK TABLES;
SET SESSION autocommit = 1;
{{end}}

{{define "remove"}}DROP TRIGGER IF EXISTS {{.Marker}};

DROP TRIGGER IF EXISTS {{.Trigger}};
{{end}}

{{define "undo"}}SET SESSION lock_wait_timeout = 1;

{{template "create list" .}}
{{template "lock alone" .}};

{{template "drop list" .}}
{{template "delete record" .}}
{{template "remove" .}}
UNLOCK TABLES;
{{end}}

{{define "missing rights"}}SELECT 'the server has binary logging and log_bin_trust_function_creators=0, so that only users with SUPER can create triggers: SET GLOBAL log_bin_trust_function_creators = 1, or give this user SUPER while the command runs'
FROM (SELECT @@global.log_bin AS logs, @@global.log_bin_trust_function_creators AS trusts) AS s
WHERE logs <> 0 AND trusts = 0 AND NOT EXISTS (SELECT 1 FROM information_schema.user_privileges WHERE privilege_type = 'SUPER' AND replace(grantee, '''', '') = current_user()){{end}}

{{define "value 1"}}?{{end}}

{{define "value 2"}}?{{end}}
