package backend

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// ownTable is a table or a view that rowrelay creates, with columns that it has in every version.
type ownTable struct{ suffix, columns string }

var (
	ownOutbox = []ownTable{{"", "id lane message_id topic"}, {"messages", "id lane state"}, {"settings", "name value"}}
	ownInbox  = []ownTable{{"", "consumer message_id"}}
)

// ForeignOutbox returns a table or view that has the name of an outbox table, but was created by another program. It
// returns nil if no such table or view exists. The names in the argument `table` must be quoted for the database. A table
// that doesn't exist, or whose columns can't be read, is not foreign.
func ForeignOutbox(ctx context.Context, q Querier, table dialect.Table) *storage.ForeignTable {
	return foreign(ctx, q, table, ownOutbox)
}

// ForeignInbox is like [ForeignOutbox], but for an inbox.
func ForeignInbox(ctx context.Context, q Querier, table dialect.Table) *storage.ForeignTable {
	return foreign(ctx, q, table, ownInbox)
}

func foreign(ctx context.Context, q Querier, table dialect.Table, all []ownTable) *storage.ForeignTable {
	for _, own := range all {
		name, shown := table.Pending, table.String()
		if own.suffix != "" {
			name, shown = table.Index(own.suffix), shown+"_"+own.suffix
		}
		columns, err := TableColumns(ctx, q, name)
		if err != nil {
			continue
		}
		for column := range strings.FieldsSeq(own.columns) {
			if !slices.Contains(columns, column) {
				return &storage.ForeignTable{Table: shown, Columns: columns}
			}
		}
	}
	return nil
}

// TableColumns returns the names of a table's columns in lower case.
func TableColumns(ctx context.Context, q Querier, table string) ([]string, error) {
	rows, err := q.QueryContext(ctx, "SELECT * FROM "+table+" WHERE 1 = 0")
	if err != nil {
		return nil, err
	}
	columns, err := rows.Columns()
	for i := range columns {
		columns[i] = strings.ToLower(columns[i])
	}
	return columns, errors.Join(err, rows.Close())
}
