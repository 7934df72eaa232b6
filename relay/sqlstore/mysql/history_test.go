package mysql

import (
	"strings"
	"testing"
)

// A long history takes minutes to make on a server, so this tests only judgeHistory.
// TestMySQLHistoryLengthIsRead of sqlstore shows that the server returns the length.
func TestJudgeHistoryReportsALongHistory(t *testing.T) {
	t.Parallel()
	if wrong, _ := judgeHistory(500_000); wrong != "" {
		t.Errorf("500,000 transactions are reported as a problem: %s", wrong)
	}
	if wrong, hint := judgeHistory(2_000_000); !strings.Contains(wrong, "2000000 transactions") || !strings.Contains(hint, "innodb_trx") {
		t.Errorf("for 2,000,000 transactions the problem is %q, with the hint %q", wrong, hint)
	}
}
