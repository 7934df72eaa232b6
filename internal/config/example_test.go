package config_test

import (
	"fmt"

	"github.com/rowrelay/rowrelay/internal/config"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/discard"
	"github.com/rowrelay/rowrelay/sinks/stdout"
)

func ExampleParse() {
	kinds, err := sinks.NewRegistry(discard.Kind(), stdout.Kind())
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = config.Parse("rowrelay.yaml", []byte(`
sources:
  shop:
    database: sqlite:shop.db
    lease: 500ms
sinks:
  lines: {type: stdout, batches: 10}
  nothing: {type: discard}
routes:
  - {topic: orders, sink: line}
`), kinds)
	fmt.Println(err)
	// Output:
	// rowrelay.yaml:5:12: sources.shop.lease: "500ms" must be at least 1s
	// rowrelay.yaml:7:25: sinks.lines.batches: is not a setting here: did you mean batch?
	// rowrelay.yaml:10:27: routes[0].sink: there is no sink "line": did you mean lines?
}

func ExampleDatabase() {
	database, err := config.ParseDatabase("postgres://rowrelay:secret@localhost:5432/shop")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(database.Kind(), database)
	// Output:
	// postgres postgres://rowrelay:xxxxx@localhost:5432/shop
}
