package plugins_test

import (
	"fmt"
	"testing"

	"github.com/rowrelay/rowrelay/sinks"
)

// A message is unchanged, whatever the sink has done with the messages before it.
func TestChangedMessagesDoNotAffectLaterOnes(t *testing.T) {
	t.Parallel()
	sink, batch := running(t, options(t, "spoiling")), measured()
	for i := range batch {
		batch[i].Payload = fmt.Append(nil, "payload-", i)
		batch[i].Headers["number"] = fmt.Sprint(i / 3)
	}
	for range 3 {
		for i, got := range sink.Send(t.Context(), batch) {
			if want := sinks.Ok(seen(batch[i])); got != want {
				t.Fatalf("message %d was seen as\n%+v\nwant\n%+v", i, got, want)
			}
		}
	}
}
