package outboxtest_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/outbox/outboxtest"
)

func TestRecorderKeepsWhatWasWritten(t *testing.T) {
	t.Parallel()
	var recorder outboxtest.Recorder
	payload := []byte("before")
	if err := recorder.Write(t.Context(), nil, outbox.Message{Topic: "a", Payload: payload}, outbox.Message{Topic: "b"}); err != nil {
		t.Fatal(err)
	}
	copy(payload, "after!")
	outboxtest.Expect(t, recorder.Messages(), outbox.Message{Topic: "a", Payload: []byte("before")}, outbox.Message{Topic: "b"})
}

func TestRecorderRefusesAsAWriterDoes(t *testing.T) {
	t.Parallel()
	var recorder outboxtest.Recorder
	err := recorder.Write(t.Context(), nil, outbox.Message{Topic: "a"}, outbox.Message{})
	if !errors.Is(err, outbox.ErrInvalid) || len(recorder.Messages()) > 0 {
		t.Errorf("Write: %v, recorded %v", err, recorder.Messages())
	}
}

func TestRecorderCancels(t *testing.T) {
	t.Parallel()
	var recorder outboxtest.Recorder
	later, soon := outbox.NewID(), outbox.NewID()
	if err := recorder.Write(t.Context(), nil, outbox.Message{ID: later, Topic: "later", AvailableAt: time.Now().Add(time.Hour)},
		outbox.Message{ID: soon, Topic: "soon", AvailableAt: time.Now().Add(time.Second)}); err != nil {
		t.Fatal(err)
	}
	cancelled, err := recorder.Cancel(t.Context(), nil, strings.ToUpper(later), soon, outbox.NewID())
	if err != nil || !slices.Equal(cancelled, []string{later}) {
		t.Errorf("Cancel = %v, %v; want %s", cancelled, err, later)
	}
	if left := recorder.Messages(); len(left) != 1 || left[0].Topic != "soon" {
		t.Errorf("the remaining messages are %v, want only the one that is due soon", left)
	}
	if _, err := recorder.Cancel(t.Context(), nil, "42"); !errors.Is(err, outbox.ErrInvalid) {
		t.Errorf("Cancel of an id that isn't a UUID: %v", err)
	}
}

func TestRecorderFailsOnRequest(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	recorder := outboxtest.Recorder{Err: broken}
	if err := recorder.Write(t.Context(), nil, outbox.Message{Topic: "a"}); !errors.Is(err, broken) || len(recorder.Messages()) > 0 {
		t.Errorf("Write: %v, recorded %v", err, recorder.Messages())
	}
}

func TestRecorderTakesConcurrentWrites(t *testing.T) {
	t.Parallel()
	var recorder outboxtest.Recorder
	var running sync.WaitGroup
	for range 8 {
		running.Go(func() {
			for range 100 {
				if err := recorder.Write(t.Context(), nil, outbox.Message{Topic: "a"}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	running.Wait()
	if got := len(recorder.Messages()); got != 800 {
		t.Errorf("%d messages, want 800", got)
	}
}
