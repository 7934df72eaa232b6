package readme

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// bar is one line of a chart.
type bar struct {
	label, shown string
	value        float64
	ours         bool
}

// charts returns the charts of bench's figures, by the name of the file in docs.
func charts(t testing.TB) map[string]string {
	t.Helper()
	find := func(row, what string) measured { return figure(t, row, what) }
	perSecond := func(label, text string, ours bool) bar {
		value := number(t, text, `(\d+) /s`)
		return bar{label, thousands(value) + " /s", value, ours}
	}
	drain := find("drain", "PostgreSQL 15, lanes, kept, 256 B, batches of 500")
	river, watermill := find("peers", "PostgreSQL 15, kept, by River"), find("peers", "PostgreSQL 15, kept, by Watermill forwarder")
	throughput := []bar{ // figures of two runs, each with its own comparison
		perSecond("rowrelay", river.Value, true),
		perSecond("Watermill's forwarder", watermill.Reference, false),
		perSecond("River", river.Reference, false),
		perSecond("rowrelay, a second run", drain.Value, true),
		perSecond("a loop by hand, same run", drain.Reference, false),
	}
	var latency, snapshot []bar
	for _, way := range []string{"Wake", "NOTIFY", "poll", "a loop every ms"} {
		f := find("latency", "PostgreSQL 15, 200/s, "+way)
		m := regexp.MustCompile(`^([\d.]+), ([\d.]+), .* ms, ([\d.]+ % CPU)`).FindStringSubmatch(f.Value)
		if m == nil {
			t.Fatalf("%s: %q", f.What, f.Value)
		}
		label := map[string]string{"poll": "a plain INSERT, polled"}[way]
		latency = append(latency, bar{cmp.Or(label, way), m[1] + " ms, p99 " + m[2] + " ms, " + m[3], number(t, m[2], `([\d.]+)`), way != "a loop every ms"})
	}
	for _, database := range []string{"PostgreSQL 15", "MariaDB 10.11", "MySQL 9.7"} {
		f := find("snapshot", database+", rowrelay, kept")
		first, last := number(t, f.Value, `^(\d+)`), number(t, f.Value, `→ (\d+)`)
		snapshot = append(snapshot, bar{database + ", first", thousands(first) + " /s", first, false}, bar{"held for ten rounds", thousands(last) + " /s", last, true})
	}
	size := number(t, find("growth", "memory of rowrelay run, 10 M × 256 B").Value, `^(\d+) MiB`)
	memory := []bar{{"10 million messages wait", fmt.Sprintf("%.0f MiB", size), size, true}, {"their payloads", "2,441 MiB", 2441, false}}
	return map[string]string{
		"throughput.svg": chart("Messages a second, PostgreSQL 15, delivered ones kept", throughput),
		"latency.svg":    chart("From commit to delivery, 200 a second, PostgreSQL 15: median, and p99 as the bar", latency),
		"memory.svg":     chart("Memory of rowrelay run", memory),
		"snapshot.svg":   chart("Messages a second while a snapshot is held open", snapshot),
	}
}

func number(t testing.TB, text, pattern string) float64 {
	t.Helper()
	m := regexp.MustCompile(pattern).FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("%q has no %s", text, pattern)
	}
	value, err := strconv.ParseFloat(m[1], 64)
	check(t, err)
	return value
}

func thousands(value float64) string {
	text := strconv.Itoa(int(value))
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// chart draws a bar chart that fits light and dark mode.
func chart(title string, bars []bar) string {
	const width, left, row, widest = 620, 170, 24, 240
	largest := 0.0
	for _, b := range bars {
		largest = max(largest, b.value)
	}
	height := 34 + row*len(bars)
	var svg strings.Builder
	fmt.Fprintf(&svg, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img">
<title>%s</title>
<style>
text { font: 12px system-ui, sans-serif; fill: #1f2328 }
.title { font-weight: 600 }
.ours { fill: #1a7f5a } .other { fill: #9aa4af }
@media (prefers-color-scheme: dark) { text { fill: #d6dde6 } .ours { fill: #3fb984 } .other { fill: #59636e } }
</style>
<text class="title" x="4" y="16">%[5]s</text>
`, width, height, width, height, escaped(title))
	for i, b := range bars {
		class, y := "other", 30+row*i
		if b.ours {
			class = "ours"
		}
		fmt.Fprintf(&svg, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>\n<rect class=\"%s\" x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"16\" rx=\"2\"/>\n<text x=\"%.1f\" y=\"%d\">%s</text>\n",
			left-8, y+13, escaped(b.label), class, left, y, max(2, widest*b.value/largest), left+max(2, widest*b.value/largest)+6, y+13, escaped(b.shown))
	}
	return svg.String() + "</svg>\n"
}

func escaped(text string) string {
	var out strings.Builder
	_ = xml.EscapeText(&out, []byte(text))
	return out.String()
}

func TestChartsAreFresh(t *testing.T) {
	t.Parallel()
	for name, want := range charts(t) {
		file := filepath.Join(root, "docs", name)
		got, err := os.ReadFile(file)
		if err == nil && string(got) == want {
			continue
		}
		if !*update {
			t.Errorf("%s is stale: go test ./internal/readme -update draws it again", file)
			continue
		}
		check(t, os.WriteFile(file, []byte(want), 0o644))
	}
}

// The animated picture shows a demo that succeeded.
func TestDemoPictureShowsASuccess(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "docs/demo.svg"))
	check(t, err)
	check(t, xml.Unmarshal(text, new(struct{})))
	for _, line := range []string{"$ rowrelay demo", "order        kept for each of", "The promise holds."} {
		if !strings.Contains(string(text), line) {
			t.Errorf("docs/demo.svg lacks %q: go run ./internal/picture > docs/demo.svg", line)
		}
	}
}
