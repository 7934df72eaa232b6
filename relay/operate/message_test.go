package operate_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay/operate"
	"github.com/rowrelay/rowrelay/relay/storage"
)

// The JSON of a message has times in UTC, and leaves out zero times.
func TestMessageAsJSON(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 13, 0, 0, 5000, time.FixedZone("", 3600))
	full := storage.Info{State: storage.StateDone, FinishedAt: at}
	full.ID, full.CreatedAt, full.Message = 7, at, outbox.Message{ID: "0195", Topic: "orders", AvailableAt: at, ExpiresAt: at}
	const begin = `{"id":7,"message_id":"0195","state":"done","topic":"orders","lane":0,"priority":0,"attempts":0,"crashes":0,"created_at":"2026-03-01T12:00:00.000005Z"`
	bare := full
	bare.Message.AvailableAt, bare.Message.ExpiresAt, bare.FinishedAt = time.Time{}, time.Time{}, time.Time{}
	for _, test := range []struct {
		info storage.Info
		want string
	}{
		{full, begin + `,"available_at":"2026-03-01T12:00:00.000005Z","expires_at":"2026-03-01T12:00:00.000005Z","finished_at":"2026-03-01T12:00:00.000005Z"}`},
		{bare, begin + `}`},
	} {
		if got, err := json.Marshal(operate.NewMessage(test.info)); err != nil || string(got) != test.want {
			t.Errorf("%v\n got %s\nwant %s", err, got, test.want)
		}
	}
}
