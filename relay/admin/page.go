package admin

import _ "embed"

// The page consists of four files, which need no build step and load no other files.
var (
	//go:embed page/index.html
	indexHTML []byte
	//go:embed page/page.css
	pageCSS []byte
	//go:embed page/page.js
	pageJS []byte
	//go:embed page/favicon.svg
	favicon []byte

	// openAPI describes the API, in the format of OpenAPI 3.
	//go:embed openapi.yaml
	openAPI []byte
)

var assets = map[string]struct {
	kind    string
	content []byte
}{
	"/{$}":         {"text/html; charset=utf-8", indexHTML},
	"/page.css":    {"text/css; charset=utf-8", pageCSS},
	"/favicon.svg": {"image/svg+xml", favicon},
	"/page.js":     {"text/javascript; charset=utf-8", pageJS},

	"/api/openapi.yaml": {"application/yaml", openAPI},
}
