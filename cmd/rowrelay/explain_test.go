package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/rowrelay/rowrelay/internal/config"
	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// The error for a URL of another kind of database names the right scheme.
func TestWrongSchemeIsExplained(t *testing.T) {
	t.Parallel()
	_, err := dialect.MySQL().(dialect.Fitting).Fit(dialect.Server{Facts: map[string]string{"version": "10.11.6-MariaDB"}})
	got := explain(config.Source{}, fmt.Errorf("open table outbox: %w", err))
	if want := "MariaDB 10.11.6-MariaDB: use a URL that begins with mariadb://"; err == nil || !strings.Contains(got.Error(), want) || strings.Contains(got.Error(), "dialect.") {
		t.Errorf("got %v, want %q", got, want)
	}
}

// The hint for a command that fails because of a server's setting names the setting.
func TestHintsForServerSettings(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"statement_timeout=0":                   &pgconn.PgError{Code: "57014"},
		"idle_in_transaction_session_timeout=0": &pgconn.PgError{Code: "25P03"},
		"transaction_timeout=0":                 &pgconn.PgError{Code: "25P04"},
		"default_transaction_read_only":         &pgconn.PgError{Code: "25006"},
		"transaction_read_only = OFF":           &mysql.MySQLError{Number: 1792},
	} {
		hint := hintPostgres
		if errors.As(err, new(*mysql.MySQLError)) {
			hint = hintMySQL
		}
		if got := hint(fmt.Errorf("settle: %w", err)); !strings.Contains(got, want) {
			t.Errorf("%v: got %q, want %q in it", err, got, want)
		}
	}
}
