package stdout_test

import (
	"context"
	"fmt"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/stdout"
)

func Example() {
	sink := stdout.New(stdout.Options{})
	sink.Send(context.Background(), []sinks.Message{
		{Message: outbox.Message{Topic: "orders", Key: "42", Payload: []byte(`{"order":42}`)}, Attempt: 1, Sequence: 7},
		{Message: outbox.Message{Topic: "images", Payload: []byte{0x89, 'P', 'N', 'G'}}, Attempt: 1, Sequence: 8},
		{Message: outbox.Message{Topic: "orders", Key: "42"}, Attempt: 1, Sequence: 9},
	})
	if err := sink.Close(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// {"topic":"orders","key":"42","payload":"{\"order\":42}","attempt":1,"sequence":7}
	// {"topic":"images","payload_base64":"iVBORw==","attempt":1,"sequence":8}
	// {"topic":"orders","key":"42","payload":null,"attempt":1,"sequence":9}
}
