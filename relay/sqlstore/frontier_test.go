package sqlstore

import (
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// A backend that names no frontier is refused. With the wrong frontier a key's order would be lost
// without an error.
func TestBackendWithoutFrontierIsRefused(t *testing.T) {
	t.Parallel()
	s := &Store{dialect: dialect.SQLite()}
	if err := s.openFrontier(t.Context(), 0, false); err == nil || !strings.Contains(err.Error(), "Capabilities.Frontier") {
		t.Errorf("a backend without a frontier: %v, want an error that names Capabilities.Frontier", err)
	}
}
