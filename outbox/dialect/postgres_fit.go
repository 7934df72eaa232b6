package dialect

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Server asks for the version, by which servers that take PostgreSQL's URLs and
// drivers tell themselves apart from it.
func (postgres) Server() Query {
	return Query{SQL: "SELECT 'version', version() UNION ALL SELECT 'server_version_num', current_setting('server_version_num')" +
		" UNION ALL SELECT 'jit', COALESCE(current_setting('jit', true), 'off')"}
}

// Skipping needs no trial: PostgreSQL passes over what is locked.
func (postgres) Skipping(Table) *Trial { return nil }

var postgresNumbers = regexp.MustCompile(`PostgreSQL ([\d.]+)`)

// Fit refuses servers that speak PostgreSQL's language and show neither its
// snapshots nor its transactions, as they would lose messages that commit late.
func (postgres) Fit(server Server) (Fit, error) {
	version := server.Facts["version"]
	for mark, product := range map[string]string{"CockroachDB": "CockroachDB", "-YB-": "YugabyteDB"} {
		if strings.Contains(version, mark) {
			return Fit{}, fmt.Errorf("the server is %s, which isn't supported: PostgreSQL 13 or later is needed", product)
		}
	}
	number, err := strconv.Atoi(server.Facts["server_version_num"])
	if err != nil || number < 130000 {
		return Fit{}, fmt.Errorf("the server is of version %s: PostgreSQL 13 or later is needed", firstWords(version))
	}
	return Fit{Dialect: Postgres(), Notes: []Note{{Name: "server", OK: true, Detail: firstWords(version)}, postgresJIT(server)}}, nil
}

// postgresJIT warns of sessions that compile their plans. After a burst the index
// is large and the table nearly empty, and the planner reckons four pages of the
// index for each of its few rows: any statement then seems dear enough to be
// compiled, anew each time, which takes a hundred times as long as to run it.
func postgresJIT(server Server) Note {
	if server.Facts["jit"] != "on" {
		return Note{Name: "jit", OK: true, Detail: "off in these sessions"}
	}
	return Note{Name: "jit", Detail: "on in these sessions: short statements may be compiled, and take 0.1 s or more, once the table has been large",
		Hint: "turn it off where they begin (?jit=off in pgx's URL, options=-cjit=off in others'), or with ALTER ROLE … SET jit = off"}
}

// firstWords are those before what a version says of its build.
func firstWords(version string) string {
	if found := postgresNumbers.FindString(version); found != "" {
		return found
	}
	before, _, _ := strings.Cut(version, " on ")
	return before
}
