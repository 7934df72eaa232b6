package dialect

import (
	"slices"
	"strings"
)

// Probes are fewer than the other one's: neither the settings nor the plans are
// the same.
func (k kin) Probes(table Table, _ string) []Probe {
	return []Probe{
		{"rights", kinRights(table), listOf("this user lacks: ", "have the tables' owner run GRANT, as outbox/dialect/POSTGRES.md says, or migrate as the user who relays")},
		{"isolation", kinIsolation(), kinLevel},
	}
}

func kinRights(table Table) Query {
	var a postgresArgs
	needs := slices.DeleteFunc(postgresNeeds(table, "rows"), func(r right) bool { return r.table == table.Epoch() })
	return a.query(postgresLacking(&a, needs))
}

// kinIsolation asks which level a transaction gets that asks for READ COMMITTED,
// where the server tells.
func kinIsolation() Query {
	return Query{SQL: "SELECT current_setting('yb_effective_transaction_isolation_level', true)"}
}

func kinLevel(answer []string) (wrong, hint string) {
	if len(answer) == 0 || answer[0] == "" || strings.EqualFold(answer[0], "read committed") {
		return "", ""
	}
	return "transactions run at " + answer[0],
		"set yb_enable_read_committed_isolation on the servers, and no other level for this user: with SERIALIZABLE, SKIP LOCKED waits for locks"
}
