package adopt

import (
	"strings"
	"testing"
)

// The joined tokens of an expression equal the expression, so a rewritten expression differs only in its columns.
func FuzzTokens(f *testing.F) {
	for _, expression := range []string{"concat(kind, '.x')", `"Content"::json -> 'Headers'`, "a;b", "'it''s'", "`a``b`", "1e5", "x #> '{a}'", "(a", "'", "n'é'"} {
		f.Add(expression)
	}
	f.Fuzz(func(t *testing.T, expression string) {
		list, err := tokens(expression)
		if err != nil {
			return
		}
		var all strings.Builder
		for _, token := range list {
			if token.text == "" {
				t.Fatalf("%q has an empty token", expression)
			}
			if token.text == ";" || strings.HasPrefix(token.text, "--") {
				t.Errorf("%q has the token %q", expression, token.text)
			}
			all.WriteString(token.text)
		}
		if all.String() != expression {
			t.Errorf("%q has the tokens %q", expression, all.String())
		}
	})
}
