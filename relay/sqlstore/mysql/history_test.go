package mysql

import (
	"strings"
	"testing"
)

// A server with a history that long takes minutes to make: the judge is asked alone. That the server
// tells the length, see TestMySQLHistory of sqlstore.
func TestJudgeHistory(t *testing.T) {
	t.Parallel()
	if wrong, _ := judgeHistory(500_000); wrong != "" {
		t.Errorf("500,000: %s", wrong)
	}
	if wrong, hint := judgeHistory(2_000_000); !strings.Contains(wrong, "2000000 transactions") || !strings.Contains(hint, "innodb_trx") {
		t.Errorf("2,000,000: %s, %s", wrong, hint)
	}
}
