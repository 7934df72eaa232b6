package dialect_test

import (
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/outbox/dialect/bind"
)

func TestPostgresArray(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]string{
		dialect.PostgresArray([]int(nil)):                      `{}`,
		dialect.PostgresArray([]int{-1, 2}):                    `{-1,2}`,
		dialect.PostgresArray([]int64{1 << 62}):                `{4611686018427387904}`,
		dialect.PostgresArray([]bool{true, false}):             `{true,false}`,
		dialect.PostgresArray([]string{"", `a"b\`, "NULL,{}"}): `{"","a\"b\\","NULL,{}"}`,
		dialect.PostgresArray([]any{"a", nil, int64(3)}):       `{"a",NULL,3}`,
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// OracleGiven splits a list of any length into 1, 2, 4, … texts that are short enough for a parameter, and splits no character.
func TestOracleGivenSplitsLongLists(t *testing.T) {
	t.Parallel()
	for _, count := range []int{0, 1, 1200, 2000, 3000, 9000} {
		var args dialect.OracleArgs
		texts := make([]string, count)
		for i := range texts {
			texts[i] = "ü"
		}
		sql := dialect.OracleGiven(&args, "g", texts, "text VARCHAR2(2) PATH '$'")
		joined := ""
		for _, arg := range args.Args {
			if len(arg.(string)) > dialect.OracleMaxText {
				t.Errorf("%d texts: an argument has %d bytes", count, len(arg.(string)))
			}
			joined += arg.(string)
		}
		if n := len(args.Args); n&(n-1) != 0 || strings.Count(sql, ":") != n || joined != bind.JSON(texts) {
			t.Errorf("%d texts: %d arguments, in %s", count, n, sql)
		}
	}
}
