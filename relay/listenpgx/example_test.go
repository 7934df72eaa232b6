package listenpgx_test

import (
	"fmt"
	"log"

	"github.com/rowrelay/rowrelay/relay"
	"github.com/rowrelay/rowrelay/relay/listenpgx"
)

// The relay connects when it runs, and polls while it can't listen. Producers
// announce their messages with outbox.WithNotify.
func ExampleNew() {
	listener, err := listenpgx.New("postgres://relay@localhost:5432/shop", listenpgx.Options{})
	if err != nil {
		log.Fatal(err)
	}
	options := relay.Options{Listener: listener} // and sinks
	fmt.Println("listens:", options.Listener != nil)
	// Output:
	// listens: true
}
