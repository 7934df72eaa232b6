package readme

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rowrelay/rowrelay/internal/proof"
)

// brokers returns the table of the versions of brokers on which recorded scenes have run.
func brokers(t testing.TB) string {
	t.Helper()
	lines, groups := proofLines(t, func(r proof.Result) proofGroup { return proofGroup{server: r.Broker, sink: r.Sink} })
	count := func(n int) string { return thousands(float64(n)) }
	var table strings.Builder
	table.WriteString("| broker | sink | messages | faults | lost | reordered | duplicates | date |\n| --- | --- | --: | --- | --: | --: | --: | --- |\n")
	for i, l := range lines {
		if groups[i].server == "" {
			continue // the broker's version isn't known, or the destination is no broker
		}
		fmt.Fprintf(&table, "| %s | %s | %s | %s | %s | %s | %s | %s |\n", groups[i].server, groups[i].sink, count(l.Messages), l.happened(),
			count(l.Lost+l.Uncommitted), count(l.Reordered), count(l.Duplicates), l.dates())
	}
	return table.String()
}
