package admin_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"

	"github.com/rowrelay/rowrelay/relay/admin"
)

// An application with a server of its own can serve the pages there.
func ExampleHandler() {
	pages := admin.Handler(admin.Options{
		Sources: []admin.Source{{
			Name:    "shop",
			Healthy: func() error { return errors.New("the database didn't answer for 20s") }, // a relay's Healthy
		}},
		Metrics: http.NotFoundHandler(),
		Logger:  slog.Default(),
	})
	answer := httptest.NewRecorder()
	pages.ServeHTTP(answer, httptest.NewRequest("GET", "/readyz", nil))
	fmt.Print(answer.Code, " ", answer.Body)
	// Output:
	// 503 shop: the database didn't answer for 20s
}
