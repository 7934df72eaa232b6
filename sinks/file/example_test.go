package file_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/file"
)

func Example() {
	folder, err := os.MkdirTemp("", "")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(folder)

	ctx, path := context.Background(), filepath.Join(folder, "orders.jsonl")
	sink, err := file.New(file.Options{Path: path})
	if err != nil {
		panic(err)
	}
	if err := sink.Open(ctx); err != nil {
		panic(err)
	}
	sink.Send(ctx, []sinks.Message{
		{Message: outbox.Message{Topic: "orders", Key: "42", Payload: []byte(`{"order":42}`)}, Attempt: 1, Sequence: 7},
	})
	if err := sink.Close(ctx); err != nil {
		panic(err)
	}

	text, err := os.ReadFile(path)
	fmt.Print(string(text), err)
	// Output:
	// {"topic":"orders","key":"42","payload":"{\"order\":42}","attempt":1,"sequence":7}
	// <nil>
}
