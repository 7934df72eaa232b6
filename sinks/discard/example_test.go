package discard_test

import (
	"context"
	"fmt"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/discard"
)

func Example() {
	sink := discard.New()
	outcomes := sink.Send(context.Background(), []sinks.Message{
		{Message: outbox.Message{Topic: "orders", Payload: []byte(`{"order":1}`)}},
	})
	fmt.Println(outcomes[0].Result)
	// Output: delivered
}
