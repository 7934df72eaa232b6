package relaypgx_test

import (
	"fmt"
	"log"

	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/relaypgx"
)

// The relay connects when it runs, and polls while it can't listen. Producers
// announce their messages with outbox.Options.Notify.
func ExampleNewListener() {
	listener, err := relaypgx.NewListener("postgres://relay@localhost:5432/shop", relaypgx.ListenerOptions{})
	if err != nil {
		log.Fatal(err)
	}
	options := relay.Options{Listener: listener} // and sinks
	fmt.Println("listens:", options.Listener != nil)
	// Output:
	// listens: true
}
