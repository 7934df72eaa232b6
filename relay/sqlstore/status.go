package sqlstore

import (
	"context"

	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
)

// Status implements [relay.Operator]. It counts all rows that are not done, and
// done rows up to a million; if there are more, it returns an estimate, which is
// the server's own on PostgreSQL, and the span of their ids on SQLite.
func (s *Store) Status(ctx context.Context) (status relay.Status, err error) {
	err = s.try(ctx, "read the status of table", func() error {
		status, err = backend.ReadStatus(ctx, s.db, s.traits.Queries.Status)
		return err
	})
	return status, err
}
