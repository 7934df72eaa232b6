package admin

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// patterns is a mux that records the routes that are added to it.
type patterns []string

func (p *patterns) Handle(pattern string, _ http.Handler) { *p = append(*p, pattern) }

// openapi.yaml describes all routes of the API and of the probes, and no others. A test in internal/browser compares the
// answers with its schemas, because it needs a library that only that module requires.
func TestOpenAPIDescribesAllRoutes(t *testing.T) {
	t.Parallel()
	d := newDesk(t, 0, nil)
	var described, served patterns
	path := ""
	for _, line := range regexp.MustCompile(`(?m)^  (/\S*):$|^    (get|post):$`).FindAllStringSubmatch(string(openAPI), -1) {
		if line[1] != "" {
			path = line[1]
		} else {
			described = append(described, strings.ToUpper(line[2])+" "+path)
		}
	}
	d.api.routes(&served)
	served = slices.DeleteFunc(served, func(pattern string) bool { return pattern == "/api/" }) // the answer for unknown routes
	slices.Sort(described)
	slices.Sort(served)
	if !slices.Equal(described, served) {
		t.Errorf("openapi.yaml describes\n%s\nbut the server has\n%s", strings.Join(described, "\n"), strings.Join(served, "\n"))
	}
	if answer := d.ask("GET", "/api/openapi.yaml", ""); answer.Code != 200 || answer.Body.String() != string(openAPI) || answer.Header().Get("Content-Type") != "application/yaml" {
		t.Errorf("the file is served as %d %v", answer.Code, answer.Header())
	}
}
