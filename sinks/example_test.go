package sinks_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

// printer is a complete sink that prints messages.
type printer struct {
	prefix string
	fan    *sinks.Fan
}

func newPrinter(prefix string) *printer { return &printer{prefix: prefix, fan: sinks.NewFan(1)} }

func (p *printer) Open(context.Context) error  { return nil }
func (p *printer) Close(context.Context) error { return nil }
func (p *printer) Order() sinks.Order          { return sinks.OrderPrefix }

func (p *printer) Send(ctx context.Context, batch []sinks.Message) []sinks.Outcome {
	return p.fan.Send(ctx, batch, p.print)
}

func (p *printer) print(_ context.Context, m sinks.Message) sinks.Outcome {
	if m.Payload == nil {
		return sinks.Fail(sinks.Reject, sinks.ReasonInvalid, "there is nothing to print")
	}
	fmt.Printf("%s%s: %s\n", p.prefix, m.Topic, m.Payload)
	return sinks.Ok("printed")
}

// printerKind describes printer, so that configuration files and URLs can name it.
func printerKind() sinks.Kind {
	return sinks.Kind{
		Name:    "printer",
		Summary: "Prints each message.",
		Schemes: []string{"printer"},
		Fields:  []settings.Field{{Name: "prefix", Type: settings.TypeString, Default: "-", Help: "What each line begins with."}},
		FromURL: func(u *url.URL) (map[string]any, error) {
			if u.Opaque == "" {
				return nil, errors.New("write printer:prefix")
			}
			return map[string]any{"prefix": u.Opaque}, nil
		},
		New: func(s settings.Values) (sinks.Sink, error) { return newPrinter(s.Text("prefix")), nil },
	}
}

// A Registry makes sinks by name, from the settings of a configuration file or from
// a URL. Its error lists every problem of the settings.
func Example() {
	registry, err := sinks.NewRegistry(printerKind())
	if err != nil {
		panic(err)
	}
	batch := []sinks.Message{
		{Message: outbox.Message{Topic: "orders", Key: "42", Payload: []byte("paid")}},
		{Message: outbox.Message{Topic: "orders", Key: "42"}},
		{Message: outbox.Message{Topic: "orders", Key: "42", Payload: []byte("shipped")}},
		{Message: outbox.Message{Topic: "orders", Key: "43", Payload: []byte("paid")}},
	}
	sink, err := registry.Make("printer", map[string]any{"prefix": "* "})
	if err != nil {
		panic(err)
	}
	for i, o := range sink.Send(context.Background(), batch) {
		fmt.Printf("%d %v %q\n", i, o.Result, o.Reason)
	}

	_, err = registry.Make("printer", map[string]any{"prefix": 7, "size": 9})
	fmt.Println(err)
	// Output:
	// * orders: paid
	// * orders: paid
	// 0 delivered ""
	// 1 reject "invalid"
	// 2 unsent "blocked"
	// 3 delivered ""
	// sink kind printer, setting prefix: must be text, not a number: write the value in quotes
	// sink kind printer, setting size: is not known; this kind has prefix
}

func ExampleKind_Markdown() {
	fmt.Print(printerKind().Markdown())
	// Output:
	// | Setting | Type | Default and limits | What it does |
	// | --- | --- | --- | --- |
	// | `prefix` | string | - | What each line begins with. |
}

func ExampleSecret() {
	options := struct {
		User     string
		Password settings.Secret
	}{"shop", "hunter2"}
	fmt.Printf("%+v\n", options)
	// Output: {User:shop Password:[secret]}
}
