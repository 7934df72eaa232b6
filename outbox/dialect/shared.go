package dialect

import (
	"strconv"
	"strings"
)

// What the dialects share that have their own statements for relays still.

// moving are the columns that a held row takes back to the hot table, which
// computes the lane again.
const moving = "id, message_id, topic, message_key, payload, payload_text, headers, priority, attempts, crashes, available_at, last_error, created_at"

func nothingWrong([]string) (wrong, hint string) { return "", "" }

// listOf is for a query that selects what is wrong.
func listOf(wrong, hint string) func([]string) (string, string) {
	return func(answer []string) (string, string) {
		if len(answer) == 0 {
			return "", ""
		}
		return wrong + strings.Join(answer, ", "), hint
	}
}

func indexProbe(query Query) Probe {
	return Probe{"indexes", query, func(answer []string) (string, string) {
		if answer[0] == strconv.Itoa(RowIndexCount) {
			return "", ""
		}
		return "indexes for claiming by rows are missing", "the first relay makes them if it may; else run rowrelay migrate up --claim rows as the tables' owner"
	}}
}

// column has one thing of each row.
func column[T, C any](rows []T, of func(T) C) []C {
	values := make([]C, len(rows))
	for i, row := range rows {
		values[i] = of(row)
	}
	return values
}

func allEqual[T comparable](values []T) bool {
	for _, value := range values {
		if value != values[0] {
			return false
		}
	}
	return true
}

func keyed(positions []Position) bool {
	return len(positions) > 0 && positions[0].Key != ""
}

// claimOrder is that of one of the indexes for claiming by rows.
func claimOrder(pick string) string {
	switch pick {
	case "newest":
		return "id DESC"
	case "priority":
		return "priority DESC, id"
	default:
		return "id"
	}
}

// claimFitting says of each row that was picked how many bytes come before it: in an
// order, or as they were picked.
func claimFitting(order string) string {
	return "fitting AS (SELECT *, sum(size) OVER (" + order + "ROWS UNBOUNDED PRECEDING) - size AS bytes_before FROM picked)"
}

func forget(table Table) []Query {
	return []Query{
		{SQL: "UPDATE " + table.Lanes() + " SET owner = NULL, until = NULL, fence = fence + 1, marks = NULL, journal = NULL, crashes = 0"},
		{SQL: "UPDATE " + table.Hot() + " SET claimed_by = NULL, claim_token = NULL, claimed_until = NULL WHERE claimed_until IS NOT NULL"},
	}
}
