package relaypgx_test

import (
	"fmt"
	"log"

	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/relaypgx"
)

// The listener connects when the relay runs. While it can't listen, the relay only
// polls. Producers send notifications if outbox.Options.Notify is set.
func ExampleNewListener() {
	listener, err := relaypgx.NewListener("postgres://relay@localhost:5432/shop", relaypgx.ListenerOptions{})
	if err != nil {
		log.Fatal(err)
	}
	options := relay.Options{Listener: listener} // a relay also needs sinks
	fmt.Println("listens:", options.Listener != nil)
	// Output:
	// listens: true
}
