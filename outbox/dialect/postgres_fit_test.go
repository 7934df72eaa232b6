package dialect_test

import (
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/outbox/dialect"
)

func TestPostgresFitsItsServer(t *testing.T) {
	t.Parallel()
	tests := []struct{ version, number, want, wrong string }{
		{"PostgreSQL 15.14 (Debian 15.14-0+deb12u1) on x86_64-pc-linux-gnu, compiled by gcc", "150014", "postgres", ""},
		{"PostgreSQL 18.4 on x86_64-pc-linux-gnu", "180004", "postgres", ""},
		{"PostgreSQL 12.22 on x86_64-pc-linux-gnu", "120022", "", "PostgreSQL 12.22: PostgreSQL 13 or later is needed"},
		{"CockroachDB CCL v25.1.3 (x86_64-pc-linux-gnu, built 2025/03/17 17:04:33, go1.22.8)", "130000", "", "CockroachDB, which isn't supported: PostgreSQL 13 or later is needed"},
		{"PostgreSQL 15.12-YB-2025.1.1.2-b3 on x86_64-pc-linux-gnu, compiled by clang", "150012", "", "YugabyteDB, which isn't supported: PostgreSQL 13 or later is needed"},
		{"", "", "", "13 or later"},
	}
	for _, test := range tests {
		fit, err := dialect.Postgres().(dialect.Fitting).Fit(server(test.version, test.number))
		switch {
		case test.wrong != "":
			if err == nil || !strings.Contains(err.Error(), test.wrong) {
				t.Errorf("%s: %v, want an error with %q", test.version, err, test.wrong)
			}
		case err != nil || fit.Dialect.Name() != test.want:
			t.Errorf("%s: %v, %v; want %s", test.version, fit.Dialect, err, test.want)
		case len(fit.Notes) == 0 || fit.Notes[0].Name != "server" || !fit.Notes[0].OK:
			t.Errorf("%s: %+v; want a note that names the server", test.version, fit.Notes)
		}
	}
}

// Sessions that compile their plans are told of.
func TestPostgresFindsJIT(t *testing.T) {
	t.Parallel()
	for setting, ok := range map[string]bool{"on": false, "off": true, "": true} {
		found := server("PostgreSQL 18.4 on x86_64-pc-linux-gnu", "180004")
		found.Facts["jit"] = setting
		fit, err := dialect.Postgres().(dialect.Fitting).Fit(found)
		if err != nil {
			t.Fatal(err)
		}
		if note := fit.Notes[len(fit.Notes)-1]; note.Name != "jit" || note.OK != ok {
			t.Errorf("jit = %q: %+v, want OK %t", setting, note, ok)
		}
	}
}

func server(version, number string) dialect.Server {
	return dialect.Server{Facts: map[string]string{"version": version, "server_version_num": number}, Skips: true}
}
