package kafka_test

import (
	"cmp"
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/kafka"
)

func Example() {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(3, "orders"))
	if err != nil {
		panic(err)
	}
	defer cluster.Close()

	sink, err := kafka.New(kafka.Options{Brokers: cluster.ListenAddrs()})
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	if err := sink.Open(ctx); err != nil {
		panic(err)
	}
	for _, o := range sink.Send(ctx, []sinks.Message{
		{Message: outbox.Message{ID: "0195c0de-0000-7000-8000-000000000001", Topic: "orders", Key: "42", Payload: []byte(`{"order":42}`)}},
		{Message: outbox.Message{ID: "0195c0de-0000-7000-8000-000000000002", Topic: "ordres", Key: "43", Payload: []byte(`{"order":43}`)}},
		{Message: outbox.Message{ID: "0195c0de-0000-7000-8000-000000000003", Topic: "orders", Key: "42"}},
	}) {
		fmt.Printf("%s %v %q\n", cmp.Or(o.Receipt, "-"), o.Result, o.Reason)
	}
	if err := sink.Close(ctx); err != nil {
		panic(err)
	}
	// Output:
	// 1/0 delivered ""
	// - unsent "unroutable"
	// 1/1 delivered ""
}

func ExampleKind() {
	registry, err := sinks.NewRegistry(kafka.Kind())
	if err != nil {
		panic(err)
	}
	_, err = registry.FromURL("kafka://user:password@host:9092/orders?compression=zip")
	fmt.Println(err)
	// Output:
	// sink kind kafka, setting compression: must be one of none, gzip, snappy, lz4, zstd
}
