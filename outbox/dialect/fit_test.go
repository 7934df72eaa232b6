package dialect_test

import (
	"cmp"
	"maps"
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/outbox/dialect"
)

func TestFitMySQL(t *testing.T) {
	t.Parallel()
	const mysql, mariadb = "8.0.36", "10.11.6-MariaDB-log"
	for name, test := range map[string]struct {
		dialect dialect.Dialect
		facts   string // name=value, separated by spaces
		wrong   string // part of the error; empty if it fits
		fits    string // the variant's name; empty if it is the dialect's name
		notes   string // the names of notes that aren't OK, separated by commas
	}{
		"MySQL 8.0":                        {dialect: dialect.MySQL(), facts: "version=" + mysql},
		"MySQL 9":                          {dialect: dialect.MySQL(), facts: "version=9.7.4-2 auto_increment_increment=1 read_only=OFF innodb_max_purge_lag=0 group_replication_single_primary_mode=ON"},
		"the oldest supported":             {dialect: dialect.MySQL(), facts: "version=8.0.13"},
		"MariaDB":                          {dialect: dialect.MariaDB(), facts: "version=" + mariadb + " wsrep_on=OFF"},
		"MariaDB, as replicas name it":     {dialect: dialect.MariaDB(), facts: "version=5.5.5-10.6.1-MariaDB"},
		"MariaDB, by its comment":          {dialect: dialect.MariaDB(), facts: "version=11.4.2 version_comment=MariaDB-Server"},
		"MariaDB 10.5":                     {dialect: dialect.MariaDB(), facts: "version=10.5.0-MariaDB"},
		"the newest unsupported":           {dialect: dialect.MySQL(), facts: "version=8.0.12", wrong: "the server is MySQL 8.0.12: MySQL 8.0.13 or later is needed"},
		"MySQL 5.7":                        {dialect: dialect.MySQL(), facts: "version=5.7.44-log", wrong: "the server is MySQL 5.7.44-log: MySQL 8.0.13 or later is needed"},
		"an old MariaDB":                   {dialect: dialect.MariaDB(), facts: "version=10.4.34-MariaDB", wrong: "the server is MariaDB 10.4.34-MariaDB: MariaDB 10.5 or later is needed"},
		"no version":                       {dialect: dialect.MySQL(), facts: "version=none", wrong: "MySQL 8.0.13 or later"},
		"MariaDB, with dialect MySQL":      {dialect: dialect.MySQL(), facts: "version=" + mariadb, wrong: "pass dialect.MariaDB()"},
		"MySQL, with dialect MariaDB":      {dialect: dialect.MariaDB(), facts: "version=" + mysql, wrong: "pass dialect.MySQL()"},
		"READ UNCOMMITTED":                 {dialect: dialect.MySQL(), facts: "version=" + mysql + " transaction_isolation=READ-UNCOMMITTED", wrong: "transaction_isolation of this session"},
		"READ UNCOMMITTED on MariaDB":      {dialect: dialect.MariaDB(), facts: "version=" + mariadb + " tx_isolation=READ-UNCOMMITTED", wrong: "tx_isolation of this session"},
		"no autocommit":                    {dialect: dialect.MySQL(), facts: "version=" + mysql + " autocommit=OFF", wrong: "autocommit of this session is OFF"},
		"utf8mb4":                          {dialect: dialect.MySQL(), facts: "version=" + mysql + " character_set_client=utf8mb4 character_set_connection=utf8mb4 character_set_results="},
		"another character set of clients": {dialect: dialect.MySQL(), facts: "version=" + mysql + " character_set_client=utf8mb3", wrong: "character_set_client of this session is utf8mb3"},
		"another character set of results": {dialect: dialect.MariaDB(), facts: "version=" + mariadb + " character_set_client=utf8mb4 character_set_results=latin1", wrong: "character_set_results of this session is latin1"},
		"a binary log of statements":       {dialect: dialect.MySQL(), facts: "version=" + mysql + " log_bin=ON binlog_format=STATEMENT", wrong: "set binlog_format to ROW or MIXED"},
		"a binary log of rows":             {dialect: dialect.MySQL(), facts: "version=" + mysql + " log_bin=ON binlog_format=ROW"},
		"no binary log":                    {dialect: dialect.MariaDB(), facts: "version=" + mariadb + " log_bin=OFF binlog_format=STATEMENT"},
		"Galera":                           {dialect: dialect.MariaDB(), facts: "version=" + mariadb + " wsrep_on=ON", notes: "order"},
		"several primaries":                {dialect: dialect.MySQL(), facts: "version=" + mysql + " group_replication_group_name=x group_replication_single_primary_mode=OFF", notes: "order"},
		"an increment of 2":                {dialect: dialect.MySQL(), facts: "version=" + mysql + " auto_increment_increment=2", notes: "order"},
		"TiDB":                             {dialect: dialect.MySQL(), facts: "version=8.0.99-TiDB-v9.9.9", wrong: "the server is TiDB 8.0.99-TiDB-v9.9.9, which rowrelay does not support"},
		"a replica":                        {dialect: dialect.MySQL(), facts: "version=" + mysql + " read_only=ON", notes: "writable"},
		"settings that delay writers":      {dialect: dialect.MySQL(), facts: "version=" + mysql + " innodb_thread_concurrency=8 innodb_max_purge_lag=1000", notes: "settings,settings"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			facts := map[string]string{}
			for fact := range strings.FieldsSeq(test.facts) {
				name, value, _ := strings.Cut(fact, "=")
				maps.Copy(facts, map[string]string{name: value})
			}
			fit, err := test.dialect.(dialect.Fitting).Fit(dialect.Server{Facts: facts, Skips: true})
			if test.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), test.wrong) {
					t.Errorf("the error is %v, want one with %q", err, test.wrong)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got, want := fit.Dialect.Name(), cmp.Or(test.fits, test.dialect.Name()); got != want {
				t.Errorf("the variant is %s, want %s", got, want)
			}
			var wrong []string
			for _, note := range fit.Notes {
				if !note.OK {
					wrong = append(wrong, note.Name)
				}
				if note.Detail == "" || !note.OK && note.Hint == "" {
					t.Errorf("the note %q has no detail or no hint", note.Name)
				}
			}
			if got := strings.Join(wrong, ","); got != test.notes || fit.Unordered != (test.notes == "order") {
				t.Errorf("the notes that aren't OK are %q, and Unordered is %t; want %q", got, fit.Unordered, test.notes)
			}
		})
	}
}

func TestFitOracle(t *testing.T) {
	t.Parallel()
	fitting := dialect.Oracle().(dialect.Fitting)
	for version, fits := range map[string]bool{"12.2.0.1.0": true, "19.0.0.0.0": true, "23.0.0.0.0": true, "12.1.0.2.0": false, "11.2.0.4.0": false, "": false} {
		fit, err := fitting.Fit(dialect.Server{Facts: map[string]string{"version": version, "nls_comp": "LINGUISTIC", "nls_characterset": "AL32UTF8"}})
		if (err == nil) != fits {
			t.Errorf("version %q: Fit returned %v, want success: %t", version, err, fits)
		}
		if err == nil && (fit.Notes[1].OK != true || fit.Notes[2].OK != false) {
			t.Errorf("the notes are %+v, want OK in the note on the character set but not in the note on comparison", fit.Notes)
		}
	}
}

func TestFitPostgres(t *testing.T) {
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

// Fit warns if jit is on.
func TestFitPostgresWarnsOfJIT(t *testing.T) {
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

func sqlServer(facts map[string]string) dialect.Server {
	all := map[string]string{"version": "16.0.4135.4", "edition": "3", "database": "shop", "level": "160", "snapshot": "0", "read committed snapshot": "0"}
	for name, value := range facts {
		all[name] = value
	}
	return dialect.Server{Facts: all, Skips: true}
}

func TestFitSQLServer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		facts   map[string]string
		reading string // the isolation level of reads
		wrong   string // part of the error; empty if it fits
	}{
		"snapshot isolation allowed":   {map[string]string{"snapshot": "1"}, "SNAPSHOT", ""},
		"read committed snapshot on":   {map[string]string{"read committed snapshot": "1"}, "READ COMMITTED", ""},
		"both":                         {map[string]string{"snapshot": "1", "read committed snapshot": "1"}, "READ COMMITTED", ""},
		"neither":                      {nil, "", "ALTER DATABASE [shop] SET ALLOW_SNAPSHOT_ISOLATION ON"},
		"snapshot isolation pending":   {map[string]string{"snapshot": "2"}, "", "ALLOW_SNAPSHOT_ISOLATION"},
		"SQL Server 2016":              {map[string]string{"version": "13.0.7024.30", "level": "130", "snapshot": "1"}, "SNAPSHOT", ""},
		"SQL Server 2014":              {map[string]string{"version": "12.0.6024.0", "level": "120", "snapshot": "1"}, "", `"12.0.6024.0": SQL Server 2016`},
		"Azure's version":              {map[string]string{"version": "12.0.2000.8", "edition": "5", "read committed snapshot": "1"}, "READ COMMITTED", ""},
		"a managed instance's version": {map[string]string{"version": "12.0.2000.8", "edition": "8", "snapshot": "1"}, "SNAPSHOT", ""},
		"an old database":              {map[string]string{"level": "110", "snapshot": "1"}, "", "COMPATIBILITY_LEVEL = 130"},
		"no version":                   {map[string]string{"version": ""}, "", "SQL Server 2016"},
	} {
		got, err := dialect.SQLServer().(dialect.Fitting).Fit(sqlServer(c.facts))
		if c.wrong != "" {
			if err == nil || !strings.Contains(err.Error(), c.wrong) {
				t.Errorf("%s: %v, want an error with %q", name, err, c.wrong)
			}
			continue
		}
		if err != nil || got.Dialect.Name() != "sqlserver" || got.Unordered {
			t.Errorf("%s: %+v, %v", name, got, err)
			continue
		}
		level := "SET TRANSACTION ISOLATION LEVEL " + c.reading + ";\nSELECT"
		if query := got.Dialect.Written(mustTable(t, "outbox")); !strings.Contains(query.SQL, level) || dialect.ReadingLevel(got.Dialect) != c.reading {
			t.Errorf("%s: reads with %s, want %s", name, query.SQL, level)
		}
	}
	server := sqlServer(map[string]string{"snapshot": "1"})
	server.Skips = false
	if _, err := dialect.SQLServer().(dialect.Fitting).Fit(server); err == nil {
		t.Error("Fit accepts a server that doesn't skip locked rows, want an error")
	}
}
