package readme

import (
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// The nightly job runs parts of make proof that exist.
func TestNightlyPartsExist(t *testing.T) {
	t.Parallel()
	parts := map[string]bool{}
	makefile := read(t, "Makefile").text
	for _, name := range []string{"PROOFS", "VERSIONS"} {
		m := regexp.MustCompile(`(?m)^` + name + ` = (.*)$`).FindStringSubmatch(makefile)
		if m == nil {
			t.Fatalf("the Makefile has no variable %s", name)
		}
		for word := range strings.FieldsSeq(m[1]) {
			parts[map[string]string{"VERSIONS": "version-"}[name]+word] = true
		}
	}
	var workflow struct {
		Jobs struct {
			Part struct {
				Strategy struct{ Matrix struct{ Part []string } }
			}
		}
	}
	check(t, yaml.Unmarshal([]byte(read(t, ".github/workflows/proof.yaml").text), &workflow))
	nightly := workflow.Jobs.Part.Strategy.Matrix.Part
	if len(nightly) == 0 {
		t.Error("the nightly job runs no part")
	}
	for _, part := range nightly {
		if !parts[part] {
			t.Errorf("the nightly job runs make proof-%s, which doesn't exist", part)
		}
	}
}
