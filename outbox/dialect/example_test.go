package dialect_test

import (
	"fmt"

	"github.com/rowrelay/rowrelay/outbox/dialect"
)

func ExampleParseTable() {
	table, err := dialect.ParseTable("shop.outbox")
	fmt.Println(table.Pending, table.Messages, err)
	_, err = dialect.ParseTable("out box")
	fmt.Println(err)
	// Output:
	// shop.outbox shop.outbox_messages <nil>
	// table "out box": the table's name must consist of the letters A to Z and a to z, digits and underscores, and not begin with a digit
}
