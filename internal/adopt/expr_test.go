package adopt

import (
	"slices"
	"strings"
	"testing"
)

func TestQualified(t *testing.T) {
	t.Parallel()
	a := &Adoption{base: postgres{}, Table: Table{Name: "events", Columns: []Column{{Name: "id"}, {Name: "kind"}, {Name: "date"}, {Name: "MessageId"}, {Name: "a b"}, {Name: "type"}}}}
	for _, test := range []struct{ expression, want string }{
		{"kind", "NEW.kind"},
		{"KIND", "NEW.kind"},
		{"events.kind", "NEW.kind"},
		{"concat('kind ', kind, type)", "concat('kind ', NEW.kind, NEW.type)"},
		{"'it''s a kind'", "'it''s a kind'"},
		{`"a b" || messageid`, `NEW."a b" || NEW."MessageId"`},
		{"CAST(date AS date)", `CAST(NEW."date" AS date)`},
		{"kind::date", "NEW.kind::date"},
		{"kind:: date", "NEW.kind:: date"},
		{"date(id)", "date(NEW.id)"},
		{"id > 1e5 AND kind = 'x'", "NEW.id > 1e5 AND NEW.kind = 'x'"},
		{"body #>> '{a,kind}'", "body #>> '{a,kind}'"},
		{"other.kind", "other.kind"},
		{"", ""},
	} {
		got, err := a.qualified(test.expression, "NEW.")
		if err != nil || got != test.want {
			t.Errorf("%s becomes %s (%v), want %s", test.expression, got, err, test.want)
		}
	}
	for _, wrong := range []string{"kind; DROP TABLE events", "kind -- comment", "kind /* comment */", "'open", `"open`, "(kind", "kind) FROM events; (", "kind)(", "$$kind$$"} {
		if got, err := a.qualified(wrong, "NEW."); err == nil {
			t.Errorf("%s becomes %s, want an error", wrong, got)
		}
	}
}

func TestProposals(t *testing.T) {
	t.Parallel()
	columns := func(names ...string) (list []Column) {
		for _, name := range names {
			list = append(list, Column{Name: name})
		}
		return list
	}
	for _, test := range []struct {
		name  string
		table Table
		want  Mapping // only the fields that are set
	}{
		{"Debezium", Table{Columns: columns("id", "aggregatetype", "aggregateid", "type", "payload")},
			Mapping{Shape: "Debezium's outbox", Topic: "concat('outbox.event.', aggregatetype)", Key: "aggregateid", Waiting: "false"}},
		{"Axon with names in camel case", Table{Columns: columns("globalIndex", "aggregateIdentifier", "eventIdentifier", "payloadType", "payload")},
			Mapping{Shape: "Axon's event store", Topic: "payloadType", Key: "aggregateIdentifier", Waiting: "false", Order: "globalIndex"}},
		{"a time", Table{Columns: columns("id", "event_type", "aggregate_id", "payload", "created_at", "published_at"), Key: []string{"id"}},
			Mapping{Topic: "event_type", Key: "aggregate_id", Payload: "payload", Waiting: "published_at IS NULL", Order: "created_at, id"}},
		{"a status", Table{Columns: []Column{{Name: "topic"}, {Name: "status", Default: "'PENDING'::character varying"}}},
			Mapping{Topic: "topic", Waiting: "status = 'PENDING'"}},
		{"a flag", Table{Columns: []Column{{Name: "topic"}, {Name: "sent", Type: "boolean"}}}, Mapping{Topic: "topic", Waiting: "sent IS NOT TRUE"}},
		{"a number", Table{Columns: []Column{{Name: "n", Default: "nextval('n')"}, {Name: "topic"}}}, Mapping{Topic: "topic", Order: "n"}},
		{"nothing known", Table{Columns: columns("x", "y")}, Mapping{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got := propose("postgres", test.table)
			for _, field := range []struct{ name, got, want string }{
				{"shape", got.Shape, test.want.Shape}, {"topic", got.Topic, test.want.Topic}, {"key", got.Key, test.want.Key}, {"waiting", got.Waiting, test.want.Waiting},
			} {
				if field.got != field.want {
					t.Errorf("the %s is %q, want %q", field.name, field.got, field.want)
				}
			}
			if test.want.Order != "" && got.Order != test.want.Order {
				t.Errorf("the order is %q, want %q", got.Order, test.want.Order)
			}
		})
	}
}

func TestNotForwarded(t *testing.T) {
	t.Parallel()
	a := &Adoption{base: postgres{}, Table: Table{Name: "events", Columns: []Column{{Name: "id"}, {Name: "kind"}, {Name: "meta"}, {Name: "source"}, {Name: "sent_at"}, {Name: "created_at"}}}}
	a.Mapping = Mapping{Topic: "concat('meta', kind)", ID: "id", Header: []Header{{"source", "source"}}, Waiting: "sent_at IS NULL", Order: "created_at"}
	if got := a.NotForwarded(); !slices.Equal(got, []string{"meta", "created_at"}) {
		t.Errorf("the columns that are not forwarded are %q", got)
	}
}

func TestWritersMayBeMissingOnMySQL(t *testing.T) {
	t.Parallel()
	a := &Adoption{base: mysql{}, Table: Table{Writers: []string{"'app'@'%'"}}}
	if rights := strings.Join(a.Facts().Rights, "\n"); !strings.Contains(rights, "may be incomplete") {
		t.Errorf("the rights are %s", rights)
	}
}
