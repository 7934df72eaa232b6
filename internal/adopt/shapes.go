package adopt

import "strings"

// shape is a kind of outbox table that is recognised by its columns. Names are compared in lower case, without underscores.
type shape struct {
	name    string
	columns []string // the table has all of them
	mapping func(has func(string) string) Mapping
}

// propose returns the mapping for a table: that of the first shape that fits, or what the names of the columns suggest.
func propose(kind string, table Table) Mapping {
	// has returns the column with this name, or "".
	has := func(name string) string {
		for _, c := range table.Columns {
			if plain(c.Name) == plain(name) {
				return c.Name
			}
		}
		return ""
	}
	_ = kind
	first := func(names ...string) string {
		for _, name := range names {
			if column := has(name); column != "" {
				return column
			}
		}
		return ""
	}
	m := Mapping{
		Topic:   first("topic", "destination", "aggregatetype", "event_type", "type", "kind"),
		Key:     first("message_key", "aggregate_id", "aggregateid", "partition_key", "key"),
		Payload: first("payload", "payload_text", "body", "data", "content", "message"),
		Headers: first("headers"),
		Order:   first("id"),
	}
	if column := first("published_at", "sent_at", "processed_at", "completion_date"); column != "" {
		m.Waiting, m.Published = column+" IS NULL", []string{column + " = current_timestamp"}
	}
	if id, ok := table.column(first("message_id", "event_id", "id")); ok && strings.EqualFold(id.Type, "uuid") {
		m.ID = id.Name
		if column := first("created_at", "occurred_at", "timestamp"); column != "" {
			m.Order = column + ", " + id.Name
		}
	}
	return m
}

func plain(name string) string { return strings.ToLower(strings.ReplaceAll(name, "_", "")) }
