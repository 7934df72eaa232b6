package main

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/rowrelay/rowrelay/internal/config"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/relaypgx"
)

func openPostgres(_ context.Context, database config.Database, _ pool) (*sql.DB, error) {
	connector, err := newRenewing(database, refusesPostgres, connectPostgres)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	db.SetConnMaxIdleTime(maxIdleTime)
	return db, nil
}

func connectPostgres(database config.Database) (driver.Connector, error) {
	settings, err := pgx.ParseConfig(database.Secret())
	if err != nil {
		return nil, unparsed(err)
	}
	settings.ConnectTimeout = cmp.Or(settings.ConnectTimeout, connectTimeout)
	if _, named := settings.RuntimeParams["application_name"]; !named {
		settings.RuntimeParams["application_name"] = "rowrelay"
	}
	return stdlib.GetConnector(*settings, stdlib.OptionAfterConnect(setUpSession)), nil
}

// refusesPostgres reports whether the server refuses the login.
func refusesPostgres(err error) bool {
	var coded interface{ SQLState() string }
	return errors.As(err, &coded) && strings.HasPrefix(coded.SQLState(), "28")
}

// setUpSession overrides settings that the server, the database or the user may have changed. It uses a statement, because
// poolers refuse connection parameters that they don't know.
func setUpSession(ctx context.Context, conn *pgx.Conn) error {
	var calls []string
	for _, setting := range dialect.Settings(dialect.Postgres()) {
		calls = append(calls, "set_config('"+setting.Name+"', '"+setting.Value+"', false)")
	}
	_, err := conn.Exec(ctx, "SELECT "+strings.Join(calls, ", "), pgx.QueryExecModeExec)
	if conn.IsClosed() {
		return err
	}
	return nil
}

func hintPostgres(err error) string {
	const pooler = "the URL is the address of a pooler in transaction mode, which doesn't support prepared statements: add default_query_exec_mode=exec to the URL, or set PgBouncer's max_prepared_statements (1.21 and later)"
	var coded interface{ SQLState() string }
	if !errors.As(err, &coded) {
		return ""
	}
	limit := func(setting string) string {
		return "the user's " + setting + " is too short for this statement, or somebody cancelled it: add " + setting + "=0 to the URL, or run ALTER ROLE … SET " + setting + " = 0"
	}
	return map[string]string{
		"57014": limit("statement_timeout"),
		"25P03": limit("idle_in_transaction_session_timeout"),
		"25P04": limit("transaction_timeout"),
		"25006": "the server is a standby: use the primary; or default_transaction_read_only is on: run ALTER ROLE … SET default_transaction_read_only = off",
		"28P01": hintPassword,
		"28000": "the server refuses the user: check the user of the URL, and the server's pg_hba.conf",
		"3D000": hintDatabase,
		"53300": hintFull,
		"57P03": "the server is starting or stopping: try again in a moment",
		"42P05": pooler, // the prepared statement exists already
		"26000": pooler, // the prepared statement doesn't exist
	}[coded.SQLState()]
}

// newListener returns a listener that wakes a relay on NOTIFY.
func newListener(source config.Source) (relay.Listener, error) {
	listener, err := relaypgx.NewListener(source.Database.Secret(), relaypgx.ListenerOptions{
		Table: source.Table, Connection: func(ctx context.Context) (string, error) {
			current, _ := source.Database.Current(ctx) // if the login can't be read, the previous one may still be valid
			return current.Secret(), nil
		},
	})
	if err != nil {
		return nil, unparsed(err)
	}
	return listener, nil
}

// unparsed returns the reason why pgx can't parse a URL. The reason leaves out the URL, because pgx doesn't redact every password
// in a URL.
func unparsed(err error) error {
	text, mark := err.Error(), "`: "
	i := strings.LastIndex(text, mark)
	if i < 0 {
		return errURL
	}
	return fmt.Errorf("%w: %s", errURL, text[i+len(mark):])
}
