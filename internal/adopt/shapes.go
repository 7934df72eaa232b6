package adopt

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
)

// shape is a kind of outbox table that is recognised by its columns.
type shape struct {
	name    string
	columns []string // the names of columns that the table must have; compared in lower case, without underscores
	mapping func(proposal) Mapping
}

// proposal is a table whose mapping is proposed.
type proposal struct {
	kind  string // the dialect's name
	table Table
}

// shapes are the known kinds. If several kinds fit a table, the first one is used.
var shapes = []shape{
	{"MassTransit's OutboxMessage", []string{"SequenceNumber", "MessageId", "DestinationAddress", "Body", "InboxMessageId"}, func(p proposal) Mapping {
		return Mapping{
			Topic: p.col("DestinationAddress"), Key: p.col("OutboxId"), Payload: p.col("Body"), ID: p.col("MessageId"),
			Header: p.headers("content-type", "ContentType", "message-type", "MessageType", "conversation-id", "ConversationId", "correlation-id", "CorrelationId"),
			// Rows with an InboxMessageId are sent by the consumer that wrote them.
			Waiting: p.col("InboxMessageId") + " IS NULL", Order: p.col("SequenceNumber"), Published: []string{"delete"},
		}
	}},
	{"Axon's event store", []string{"globalIndex", "aggregateIdentifier", "eventIdentifier", "payloadType", "payload"}, func(p proposal) Mapping {
		return Mapping{
			Topic: p.col("payloadType"), Key: p.col("aggregateIdentifier"), Payload: p.col("payload"), ID: p.col("eventIdentifier"),
			Header: p.headers("aggregate-type", "type", "payload-revision", "payloadRevision", "sequence-number", "sequenceNumber"),
			// An event store keeps all events, so no column shows which events have been sent.
			Waiting: "false", Order: p.col("globalIndex"),
		}
	}},
	{"Eventuate's message", []string{"id", "destination", "headers", "payload", "published"}, func(p proposal) Mapping {
		return Mapping{
			Topic: p.col("destination"), Key: p.member(p.col("headers"), "PARTITION_ID"), Payload: p.col("payload"), Headers: p.col("headers"),
			Header:  []Header{{"ID", "nullif(" + p.col("id") + ", '')"}}, // empty if the database numbers the rows
			Waiting: p.col("published") + " = 0", Order: cmp.Or(p.col("dbid"), p.list("creation_time", "id")), Published: []string{p.col("published") + " = 1"},
		}
	}},
	{"Spring Modulith's event_publication", []string{"id", "listenerId", "eventType", "serializedEvent", "publicationDate", "completionDate"}, func(p proposal) Mapping {
		m := Mapping{
			Topic: p.col("eventType"), Payload: p.col("serializedEvent"), ID: p.id("id"), Header: p.headers("listener-id", "listenerId"),
			Waiting: p.col("completionDate") + " IS NULL", Order: p.orderAfter(p.col("publicationDate")), Published: []string{p.now("completionDate")},
		}
		if status := p.col("status"); status != "" {
			m.Published = append(m.Published, status+" = 'COMPLETED'")
		}
		return m
	}},
	{"CAP's published", []string{"Id", "Version", "Name", "Content", "Retries", "Added", "ExpiresAt", "StatusName"}, func(p proposal) Mapping {
		return Mapping{
			Topic: p.col("Name"), Key: p.member(p.object(p.col("Content"), "Headers"), "cap-kafka-key"), Payload: p.object(p.col("Content"), "Value"), Headers: p.object(p.col("Content"), "Headers"),
			Waiting: p.col("StatusName") + " IN ('Scheduled', 'Delayed', 'Queued', 'Failed')", Order: p.list("Added", "Id"),
			// CAP deletes rows after their ExpiresAt.
			Published: []string{p.col("StatusName") + " = 'Succeeded'", p.now("ExpiresAt")},
		}
	}},
	{"namastack's outbox_record", []string{"id", "payload", "status", "createdAt", "completedAt", "failureCount"}, func(p proposal) Mapping {
		return Mapping{
			Topic: p.first("recordType", "eventType"), Key: p.first("recordKey", "aggregateId"), Payload: p.col("payload"), ID: p.id("id"), Headers: p.col("context"),
			Waiting: p.col("status") + " = 'NEW'", Order: p.orderAfter(p.col("created_at")), Published: []string{p.col("status") + " = 'COMPLETED'", p.now("completedAt")},
		}
	}},
	{"laravel-outbox's outbox_messages", []string{"id", "transactionId", "sequenceNumber", "messageType", "aggregateId", "payload", "status", "availableAt"}, func(p proposal) Mapping {
		return Mapping{
			Topic: p.col("messageType"), Key: p.col("aggregateId"), Payload: p.col("payload"), ID: p.id("id"),
			Header:  p.headers("type", "type", "correlation-id", "correlationId"),
			Waiting: p.col("status") + " = 'pending'", Order: p.list("availableAt", "sequenceNumber"), Published: []string{p.col("status") + " = 'completed'", p.now("processedAt")},
		}
	}},
	{"Debezium's outbox", []string{"id", "aggregateType", "aggregateId", "type", "payload"}, func(p proposal) Mapping {
		m := Mapping{
			Topic: p.concat("'outbox.event.'", p.col("aggregateType")), Key: p.col("aggregateId"), Payload: p.col("payload"), ID: p.id("id"),
			Header: p.headers("id", "id", "eventType", "type"),
		}
		if m.Waiting, m.Published = p.mark(); m.Waiting == "" {
			m.Waiting = "false" // the connector reads all rows; programs delete them, or keep them without a mark
		}
		m.Order = p.order()
		return m
	}},
}

// propose returns the mapping for a table: the mapping of the first shape that fits, or one that the names of the columns suggest.
func propose(kind string, table Table) Mapping {
	p := proposal{kind, table}
	for _, s := range shapes {
		if !slices.ContainsFunc(s.columns, func(column string) bool { return p.col(column) == "" }) {
			m := s.mapping(p)
			m.Shape = s.name
			return m
		}
	}
	m := Mapping{
		Topic:   p.first("topic", "destination", "routing_key", "event_type", "event_name", "message_type", "type", "kind", "name", "aggregate_type"),
		Key:     p.first("message_key", "partition_key", "aggregate_id", "entity_id", "key"),
		Payload: p.first("payload", "payload_text", "body", "data", "content", "message", "event"),
		Headers: p.first("headers"),
		Order:   p.order(),
	}
	if m.ID = p.id("message_id"); m.ID == "" {
		if m.ID = p.id("event_id"); m.ID == "" {
			if m.ID = p.id("uuid"); m.ID == "" {
				m.ID = p.id("id")
			}
		}
	}
	m.Waiting, m.Published = p.mark()
	return m
}

// col returns the name of the column that has this name if case and underscores are ignored, or "" if there is no such column.
func (p proposal) col(name string) string {
	plain := func(name string) string { return strings.ToLower(strings.ReplaceAll(name, "_", "")) }
	for _, c := range p.table.Columns {
		if plain(c.Name) == plain(name) {
			return c.Name
		}
	}
	return ""
}

// first returns the first of these columns that exists.
func (p proposal) first(names ...string) string {
	for _, name := range names {
		if column := p.col(name); column != "" {
			return column
		}
	}
	return ""
}

// list returns the columns that exist in the table, separated by commas.
func (p proposal) list(names ...string) string {
	var found []string
	for _, name := range names {
		if column := p.col(name); column != "" {
			found = append(found, column)
		}
	}
	return strings.Join(found, ", ")
}

// headers returns the headers whose columns exist. The arguments are pairs: the name of a header, and its column.
func (p proposal) headers(pairs ...string) (list []Header) {
	for i := 0; i < len(pairs); i += 2 {
		if column := p.col(pairs[i+1]); column != "" {
			list = append(list, Header{pairs[i], column})
		}
	}
	return list
}

// id returns the name of the column if its type shows that it holds UUIDs, and "" otherwise.
func (p proposal) id(name string) string {
	c, _ := p.table.column(p.col(name))
	switch strings.ToLower(c.Type) {
	case "uuid", "char(36)", "varchar(36)", "character(36)", "character varying(36)", "binary(16)":
		return c.Name
	}
	return ""
}

// order returns the order of the backlog: a column whose values ascend, or otherwise a time and the primary key.
func (p proposal) order() string {
	for _, c := range p.table.Columns {
		if strings.HasPrefix(c.Default, "nextval(") {
			return c.Name
		}
	}
	if number := p.table.number(); number != "" {
		return number
	}
	at := p.first("created_at", "created_on", "occurred_at", "occurred_on", "inserted_at", "creation_date", "creation_time", "timestamp", "created")
	return p.orderAfter(at)
}

// orderAfter returns an order: first by the column at, unless at is empty, and then by the primary key. On PostgreSQL, if the key is
// random, the order has cmin (the number of the INSERT in its transaction) and ctid (the row's place in the table) instead of the key,
// because all rows of one transaction have the same now().
func (p proposal) orderAfter(at string) string {
	columns := p.table.Key
	if p.kind == "postgres" && slices.ContainsFunc(columns, func(name string) bool { return p.id(name) != "" }) {
		columns = []string{"cmin::text::bigint", "ctid"}
	}
	if at == "" {
		return strings.Join(columns, ", ")
	}
	return strings.Join(append([]string{at}, columns...), ", ")
}

// now returns the assignment of the current time to a column, on MySQL and MariaDB with the column's fractional digits.
func (p proposal) now(name string) string {
	digits := ""
	if c, _ := p.table.column(p.col(name)); p.kind == "mysql" || p.kind == "mariadb" {
		digits = fractional.FindString(c.Type)
	}
	return p.col(name) + " = current_timestamp" + digits
}

var fractional = regexp.MustCompile(`\([1-6]\)$`)

var defaultText = regexp.MustCompile(`^'?([A-Za-z_]+)'?(::.*)?$`)

// mark returns the condition that a row waits, and the assignments that mark a row as sent. The results are empty if no column shows
// which rows have been sent.
func (p proposal) mark() (waiting string, published []string) {
	at := p.first("published_at", "sent_at", "processed_at", "dispatched_at", "delivered_at", "completed_at", "published_on", "processed_on", "processed_on_utc", "processed_date")
	if at != "" {
		published = []string{p.now(at)}
		waiting = at + " IS NULL"
	}
	status, found := p.table.column(p.first("status", "state"))
	if word := defaultText.FindStringSubmatch(status.Default); found && word != nil && !strings.EqualFold(word[1], "null") {
		sent := "sent"
		switch {
		case word[1] == strings.ToUpper(word[1]):
			sent = "SENT"
		case word[1][0] >= 'A' && word[1][0] <= 'Z':
			sent = "Sent"
		}
		return status.Name + " = '" + word[1] + "'", append(published, status.Name+" = '"+sent+"'")
	}
	flag, found := p.table.column(p.first("published", "sent", "processed", "dispatched", "is_published", "is_sent", "is_processed"))
	if found && at == "" {
		switch kind := strings.ToLower(flag.Type); {
		case strings.HasPrefix(kind, "bool"):
			return flag.Name + " IS NOT TRUE", []string{flag.Name + " = true"}
		case strings.Contains(kind, "int"), strings.Contains(kind, "numeric"):
			return flag.Name + " = 0", []string{flag.Name + " = 1"}
		case strings.Contains(kind, "char"):
			return flag.Name + " = 'N'", []string{flag.Name + " = 'Y'"}
		}
	}
	return waiting, published
}

// concat returns the concatenation of expressions.
func (p proposal) concat(expressions ...string) string {
	if p.kind == "sqlite" {
		return strings.Join(expressions, " || ")
	}
	return "concat(" + strings.Join(expressions, ", ") + ")"
}

// member returns the text of a member of a JSON object.
func (p proposal) member(column, name string) string {
	switch p.kind {
	case "postgres":
		return "(" + column + ")::json ->> '" + name + "'"
	case "sqlite":
		return "json_extract(" + column + `, '$."` + name + `"')`
	}
	return "json_unquote(json_extract(" + column + `, '$."` + name + `"'))`
}

// object returns a member of a JSON object as JSON.
func (p proposal) object(column, name string) string {
	if p.kind == "postgres" {
		return column + "::json -> '" + name + "'"
	}
	return "json_extract(" + column + ", '$." + name + "')"
}
