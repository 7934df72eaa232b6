package readme

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var metric = regexp.MustCompile(`rowrelay_([a-z_]+)`)

// The metrics that docs/operating.md names exist.
func TestMetricsExist(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(root, "relay/metrics/*.go"))
	check(t, err)
	var code strings.Builder
	for _, file := range files {
		if !strings.HasSuffix(file, "_test.go") {
			code.WriteString(read(t, "relay/metrics/"+filepath.Base(file)).text)
		}
	}
	found := metric.FindAllStringSubmatch(read(t, "docs/operating.md").text, -1)
	for _, m := range found {
		if !strings.Contains(code.String(), `"`+m[1]+`"`) && !strings.Contains(code.String(), `"`+m[0]+`"`) {
			t.Errorf("the metric %s doesn't exist", m[0])
		}
	}
	if len(found) < 5 {
		t.Errorf("only %d metrics were found", len(found))
	}
}
