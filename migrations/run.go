package migrations

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"

	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// Another process that is applying the same step makes ours fail, in one of
// many ways; what it did then shows at the next try. A busy database is worth
// more patience.
const (
	tries     = 4
	busyTries = 60
	pause     = 250 * time.Millisecond // at most
)

func (m *Migrations) run(ctx context.Context, action func(context.Context) error) error {
	for try := 1; ; try++ {
		err := action(ctx)
		if err == nil || m.hopeless(err) || try >= busyTries || try >= tries && !m.dialect.Busy(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", ctx.Err(), err)
		case <-time.After(rand.N(pause)):
		}
	}
}

func (m *Migrations) hopeless(err error) bool {
	return m.dialect.Denied(err) || m.schemaMissing(err)
}

// schemaMissing can't be told from a missing table everywhere; but no step
// that fits the one before it misses a table.
func (m *Migrations) schemaMissing(err error) bool {
	return m.table.Schema() != "" && m.dialect.Missing(err)
}

// provider makes a new one for each try: one whose table of versions couldn't be
// made doesn't try that again. It is never closed: that would close the user's
// pool.
func (m *Migrations) provider() (*goose.Provider, error) {
	store, err := versionStore(m.dialect, m.table)
	if err != nil {
		return nil, err
	}
	options := []goose.ProviderOption{goose.WithStore(store), goose.WithDisableGlobalRegistry(true)}
	if isMySQL(m.dialect.Name()) {
		options = append(options, goose.WithSessionLocker(mysqlLock{m.table}))
	}
	if repeating, ok := m.dialect.(dialect.Repeating); ok {
		return goose.NewProvider(database.DialectCustom, m.db, nil, append(options, goose.WithGoMigrations(m.repeated(repeating)...))...)
	}
	return goose.NewProvider(database.DialectCustom, m.db, stepFiles(m.steps), options...)
}

// explain adds what an operator can do.
func (m *Migrations) explain(err error) error {
	switch {
	case m.schemaMissing(err):
		return fmt.Errorf("%w; create the schema %s first, which is not done here", err, m.table.Schema())
	case m.dialect.Denied(err):
		return fmt.Errorf("%w; run this as a user who may create tables, or have somebody run the printed SQL", err)
	case m.dialect.Name() == "sqlite" && m.dialect.Busy(err):
		return fmt.Errorf("%w; open the file with a busy_timeout of some seconds", err)
	default:
		return err
	}
}
