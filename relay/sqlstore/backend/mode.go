package backend

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// ChangeMode changes the way of claiming, in a transaction, and then the indexes that
// claiming by rows needs. It changes nothing if the way is the stored one, and fails
// with storage.ErrOtherClaim while a relay lives that claims the other way. Set stores
// the new way. The other statements are those that are named here: each database's .sql has them
// under these names ("lock lanes" only where rows have to be locked first), or backendtest.Golden panics.
//
// What the other way has left is taken away: leases, also from who still believes in
// them; marks, above which rows come back; claims, which nobody would free; and what parked rows
// hold: those of which an operator wants something else are parked as before.
func ChangeMode(ctx context.Context, tx *sql.Tx, statements Statements, d dialect.Dialect, table dialect.Table, claim storage.Claim, set Query) error {
	var stored storage.Claim
	if err := One(ctx, tx, statements.Query("lock claim mode"), &stored); err != nil {
		return err
	}
	if stored != claim {
		var others []string
		var name string
		if err := All(ctx, tx, statements.Query("relays that claim another way", string(claim)), func() { others = append(others, name) }, &name); err != nil {
			return err
		}
		if len(others) > 0 {
			return fmt.Errorf("%w: by %s, and these relays live: %s; stop them first, or start this one with that way of claiming",
				storage.ErrOtherClaim, stored, strings.Join(others, ", "))
		}
		if _, err := Exec(ctx, tx, set); err != nil {
			return err
		}
		if stored != "" {
			forget := []Query{statements.Query("forget leases"), statements.Query("forget claims"), statements.Query("forget holds")}
			if _, locks := statements["lock lanes"]; locks {
				forget = append([]Query{statements.Query("lock lanes")}, forget...)
			}
			if _, err := Exec(ctx, tx, forget...); err != nil {
				return err
			}
		}
	}
	return changeIndexes(ctx, tx, d, table, claim)
}

func changeIndexes(ctx context.Context, tx *sql.Tx, d dialect.Dialect, table dialect.Table, claim storage.Claim) error {
	var there int
	if err := One(ctx, tx, d.RowIndexes(table), &there); err != nil {
		return err
	}
	var queries []Query
	why := ""
	switch {
	case claim == storage.ByRows && there < dialect.RowIndexCount:
		queries, why = d.MakeRowIndexes(table), "claiming by rows needs indexes"
	case claim == storage.ByLanes && there > 0:
		queries, why = d.DropRowIndexes(table), "claiming by lanes needs no indexes"
	}
	if _, err := Exec(ctx, tx, queries...); err != nil {
		if d.Denied(err) {
			return fmt.Errorf("%s, and this user may not change them (%w); have the table's owner run: %s", why, err, script(queries))
		}
		return err
	}
	return nil
}

func script(queries []Query) string {
	var text strings.Builder
	for _, query := range queries {
		text.WriteString(query.SQL + "; ")
	}
	return strings.TrimSpace(text.String())
}
