package dialect_test

import (
	"cmp"
	"maps"
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/outbox/dialect"
)

func TestMySQLFits(t *testing.T) {
	t.Parallel()
	const mysql, mariadb = "8.0.36", "10.11.6-MariaDB-log"
	for name, test := range map[string]struct {
		dialect dialect.Dialect
		facts   string // name=value, separated by blanks
		wrong   string // part of the error; empty: it fits
		fits    string // the variant's name; empty: the dialect's own
		notes   string // the names of notes that aren't well, separated by commas
	}{
		"MySQL 8.0":                        {dialect: dialect.MySQL(), facts: "version=" + mysql},
		"MySQL 9":                          {dialect: dialect.MySQL(), facts: "version=9.7.4-2 auto_increment_increment=1 read_only=OFF innodb_max_purge_lag=0 group_replication_single_primary_mode=ON"},
		"the first that does":              {dialect: dialect.MySQL(), facts: "version=8.0.13"},
		"MariaDB":                          {dialect: dialect.MariaDB(), facts: "version=" + mariadb + " wsrep_on=OFF"},
		"MariaDB, as replicas name it":     {dialect: dialect.MariaDB(), facts: "version=5.5.5-10.6.1-MariaDB"},
		"MariaDB, by its comment":          {dialect: dialect.MariaDB(), facts: "version=11.4.2 version_comment=MariaDB-Server"},
		"MariaDB 10.5":                     {dialect: dialect.MariaDB(), facts: "version=10.5.0-MariaDB"},
		"the last without expressions":     {dialect: dialect.MySQL(), facts: "version=8.0.12", wrong: "the server is MySQL 8.0.12: MySQL 8.0.13 or later is needed"},
		"MySQL 5.7":                        {dialect: dialect.MySQL(), facts: "version=5.7.44-log", wrong: "the server is MySQL 5.7.44-log: MySQL 8.0.13 or later is needed"},
		"an old MariaDB":                   {dialect: dialect.MariaDB(), facts: "version=10.4.34-MariaDB", wrong: "the server is MariaDB 10.4.34-MariaDB: MariaDB 10.5 or later is needed"},
		"no version":                       {dialect: dialect.MySQL(), facts: "version=none", wrong: "MySQL 8.0.13 or later"},
		"MariaDB taken for MySQL":          {dialect: dialect.MySQL(), facts: "version=" + mariadb, wrong: "use a URL that begins with mariadb://, or dialect.MariaDB()"},
		"MySQL taken for MariaDB":          {dialect: dialect.MariaDB(), facts: "version=" + mysql, wrong: "use a URL that begins with mysql://, or dialect.MySQL()"},
		"reading what isn't committed":     {dialect: dialect.MySQL(), facts: "version=" + mysql + " transaction_isolation=READ-UNCOMMITTED", wrong: "transaction_isolation of this session"},
		"the same on MariaDB":              {dialect: dialect.MariaDB(), facts: "version=" + mariadb + " tx_isolation=READ-UNCOMMITTED", wrong: "tx_isolation of this session"},
		"no autocommit":                    {dialect: dialect.MySQL(), facts: "version=" + mysql + " autocommit=OFF", wrong: "autocommit of this session is OFF"},
		"texts as they are":                {dialect: dialect.MySQL(), facts: "version=" + mysql + " character_set_client=utf8mb4 character_set_connection=utf8mb4 character_set_results="},
		"texts that change when written":   {dialect: dialect.MySQL(), facts: "version=" + mysql + " character_set_client=utf8mb3", wrong: "character_set_client of this session is utf8mb3"},
		"texts that change when read":      {dialect: dialect.MariaDB(), facts: "version=" + mariadb + " character_set_client=utf8mb4 character_set_results=latin1", wrong: "character_set_results of this session is latin1"},
		"Galera":                           {dialect: dialect.MariaDB(), facts: "version=" + mariadb + " wsrep_on=ON", notes: "order"},
		"several primaries":                {dialect: dialect.MySQL(), facts: "version=" + mysql + " group_replication_group_name=x group_replication_single_primary_mode=OFF", notes: "order"},
		"ids in steps":                     {dialect: dialect.MySQL(), facts: "version=" + mysql + " auto_increment_increment=2", notes: "order"},
		"TiDB":                             {dialect: dialect.MySQL(), facts: "version=8.0.11-TiDB-v8.5.1 tidb_txn_mode=pessimistic time_zone=+00:00", fits: "tidb"},
		"TiDB in UTC by itself":            {dialect: dialect.TiDB(), facts: "version=8.0.11-TiDB-v7.5.0 tidb_txn_mode=pessimistic time_zone=SYSTEM system_time_zone=UTC", fits: "tidb"},
		"an old TiDB":                      {dialect: dialect.MySQL(), facts: "version=5.7.25-TiDB-v7.1.6", wrong: "the server is TiDB 5.7.25-TiDB-v7.1.6: TiDB 7.5 or later is needed"},
		"TiDB without locks":               {dialect: dialect.MySQL(), facts: "version=8.0.11-TiDB-v8.5.1 tidb_txn_mode=optimistic", wrong: "set it to pessimistic"},
		"TiDB elsewhere":                   {dialect: dialect.MySQL(), facts: "version=8.0.11-TiDB-v8.5.1 tidb_txn_mode=pessimistic time_zone=SYSTEM system_time_zone=CET", wrong: "time_zone of this session isn't UTC"},
		"a replica":                        {dialect: dialect.MySQL(), facts: "version=" + mysql + " read_only=ON", notes: "writable"},
		"writers that wait for each other": {dialect: dialect.MySQL(), facts: "version=" + mysql + " innodb_thread_concurrency=8 innodb_max_purge_lag=1000", notes: "settings,settings"},
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
					t.Errorf("the note %q says too little", note.Name)
				}
			}
			if got := strings.Join(wrong, ","); got != test.notes || fit.Unordered != (test.notes == "order" || test.fits == "tidb") {
				t.Errorf("noted %q, without order: %t", got, fit.Unordered)
			}
		})
	}
}
