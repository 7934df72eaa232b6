package sqlstore

import (
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/outbox/dialect"
)

// A backend that doesn't say where rows may still appear is refused: the wrong answer would
// lose a key's order, and nobody would see it.
func TestFrontierIsNamed(t *testing.T) {
	t.Parallel()
	s := &Store{dialect: dialect.SQLite()}
	if err := s.openFrontier(t.Context(), 0, false); err == nil || !strings.Contains(err.Error(), "Capabilities.Frontier") {
		t.Errorf("a backend without a frontier: %v, want an error that names Capabilities.Frontier", err)
	}
}
