package dialect

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// RowsOnly is implemented by a dialect whose tables can't be claimed by lanes.
type RowsOnly interface {
	// NoLanes says why, as part of an error.
	NoLanes() string
}

// Server asks for the version, by which CockroachDB and YugabyteDB tell
// themselves apart from PostgreSQL: they take its URLs and drivers.
func (postgres) Server() Query {
	return Query{SQL: "SELECT 'version', version() UNION ALL SELECT 'server_version_num', current_setting('server_version_num')" +
		" UNION ALL SELECT 'jit', COALESCE(current_setting('jit', true), 'off')"}
}

// Skipping needs no trial: PostgreSQL passes over what is locked.
func (postgres) Skipping(Table) *Trial { return nil }

// Skipping tries what a claim builds on: the row limit counts after locked rows
// were passed over, which wasn't always so.
func (kin) Skipping(table Table) *Trial {
	lanes := "SELECT lane FROM " + table.Lanes()
	return &Trial{
		Begin: []Query{{SQL: "SET LOCAL lock_timeout = '1s'"}},
		Hold:  Query{SQL: lanes + " WHERE lane = 0 FOR UPDATE"},
		Pass:  Query{SQL: lanes + " WHERE lane IN (0, 1) ORDER BY lane LIMIT 1 FOR UPDATE SKIP LOCKED"},
		Want:  "1", Limited: true,
	}
}

var (
	cockroachVersion = regexp.MustCompile(`CockroachDB.* v(\d+)\.(\d+)`)
	yugabyteVersion  = regexp.MustCompile(`PostgreSQL (\d+)\.\S*-YB-(\d[\d.]*\d)`)
	postgresNumbers  = regexp.MustCompile(`PostgreSQL ([\d.]+)`)
)

// Fit knows CockroachDB and YugabyteDB, and takes any other server for
// PostgreSQL.
func (postgres) Fit(server Server) (Fit, error) {
	version := server.Facts["version"]
	if found := cockroachVersion.FindStringSubmatch(version); found != nil {
		return fitCockroach(found)
	}
	if found := yugabyteVersion.FindStringSubmatch(version); found != nil {
		return fitYugabyte(found)
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

// Fit refuses a server that isn't of the kind, or that didn't pass the trial.
func (k kin) Fit(server Server) (Fit, error) {
	fit, err := k.postgres.Fit(server)
	switch {
	case err != nil:
		return Fit{}, err
	case fit.Dialect.Name() != k.name:
		return Fit{}, fmt.Errorf("the server is %s: use the dialect %s", firstWords(server.Facts["version"]), fit.Dialect.Name())
	case !server.Skips:
		return Fit{}, fmt.Errorf("this %s doesn't pass over locked rows with SKIP LOCKED, as a trial with two transactions showed: it can't be claimed", k.product)
	}
	return fit, nil
}

// fitCockroach asks for the first release all of whose SKIP LOCKED with a LIMIT
// is right at READ COMMITTED.
func fitCockroach(version []string) (Fit, error) {
	major, _ := strconv.Atoi(version[1])
	minor, _ := strconv.Atoi(version[2])
	if major < 24 || major == 24 && minor < 3 {
		return Fit{}, fmt.Errorf("the server is CockroachDB %d.%d: 24.3 or later is needed, as earlier ones pass over rows that nobody has locked", major, minor)
	}
	return fitKin(CockroachDB(), fmt.Sprintf("CockroachDB %d.%d", major, minor)), nil
}

// fitYugabyte asks for the first series that builds on PostgreSQL 15: those on
// PostgreSQL 11 have no generated columns.
func fitYugabyte(version []string) (Fit, error) {
	if base, _ := strconv.Atoi(version[1]); base < 15 {
		return Fit{}, fmt.Errorf("the server is YugabyteDB %s, on PostgreSQL %d: 2025.1 or later is needed, on PostgreSQL 15", version[2], base)
	}
	return fitKin(YugabyteDB(), "YugabyteDB "+version[2]), nil
}

func fitKin(d Dialect, version string) Fit {
	return Fit{Dialect: d, Unordered: true, Notes: []Note{{
		Name: "server", OK: true,
		Detail: version + ", by rows only: no test has run on such a server, its SQL has only been read and tried on PostgreSQL",
	}}}
}

// firstWords are those before what a version says of its build.
func firstWords(version string) string {
	if found := postgresNumbers.FindString(version); found != "" {
		return found
	}
	before, _, _ := strings.Cut(version, " on ")
	return before
}
