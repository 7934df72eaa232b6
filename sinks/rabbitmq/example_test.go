package rabbitmq_test

import (
	"context"
	"fmt"
	"time"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/rabbitmq"
)

func ExampleNew() {
	sink, err := rabbitmq.New(rabbitmq.Options{
		Hosts:    []string{"rabbit-1.example", "rabbit-2.example"},
		Username: "relay", Password: "from-a-safe-place",
		Exchange: "orders", RoutingKey: "{topic}.{header:country}",
		Expiration: time.Hour,
	})
	if err != nil {
		panic(err)
	}
	// A relay opens the sink, sends, and closes it at the end.
	if err := sink.Close(context.Background()); err != nil {
		panic(err)
	}
	fmt.Println(sink.Order() == sinks.OrderPrefix)
	// Output: true
}

// New reports all problems of the options, without connecting.
func ExampleNew_wrong() {
	_, err := rabbitmq.New(rabbitmq.Options{Hosts: []string{"rabbit-1.example"}, RoutingKey: "{customer}", Window: 5000})
	fmt.Println(err)
	// Output:
	// make a rabbitmq sink: the routing key has an unknown placeholder: use {topic}, {key}, {id} or {header:NAME}, and {{ and }} for braces
	// the window must be 1 to 1000
}
