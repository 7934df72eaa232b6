package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/internal/config"
	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// An operator names a database by its URL, and so is told which one.
func TestAnotherKindOfDatabaseIsAnotherURL(t *testing.T) {
	t.Parallel()
	_, err := dialect.MySQL().(dialect.Fitting).Fit(dialect.Server{Facts: map[string]string{"version": "10.11.6-MariaDB"}})
	got := explain(config.Source{}, fmt.Errorf("open table outbox: %w", err))
	if want := "MariaDB 10.11.6-MariaDB: use a URL that begins with mariadb://"; err == nil || !strings.Contains(got.Error(), want) || strings.Contains(got.Error(), "dialect.") {
		t.Errorf("got %v, want %q", got, want)
	}
}
