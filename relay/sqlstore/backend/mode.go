package backend

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// ModeChange are the statements that change the way of claiming.
type ModeChange struct {
	Lock   Query // selects the stored way, and keeps others from changing it
	Others Query // selects the names of the living relays that claim another way
	Set    Query // stores the new way

	// Forget takes away what the other way has left: leases, also from who still
	// believes in them; marks, above which rows come back; and claims, which nobody
	// would free.
	Forget []Query
}

// ChangeMode changes the way of claiming, in a transaction, and then the indexes that
// claiming by rows needs. It changes nothing if the way is the stored one, and fails
// with storage.ErrOtherClaim while a relay lives that claims the other way.
func ChangeMode(ctx context.Context, tx *sql.Tx, d dialect.Dialect, table dialect.Table, claim storage.Claim, change ModeChange) error {
	var stored storage.Claim
	if err := One(ctx, tx, change.Lock, &stored); err != nil {
		return err
	}
	if stored != claim {
		var others []string
		var name string
		if err := All(ctx, tx, change.Others, func() { others = append(others, name) }, &name); err != nil {
			return err
		}
		if len(others) > 0 {
			return fmt.Errorf("%w: by %s, and these relays live: %s; stop them first, or start this one with that way of claiming",
				storage.ErrOtherClaim, stored, strings.Join(others, ", "))
		}
		if _, err := Exec(ctx, tx, change.Set); err != nil {
			return err
		}
		if stored != "" {
			if _, err := Exec(ctx, tx, change.Forget...); err != nil {
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
