package debezium

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/bench/table"
)

// Side is one of the two. It keeps what belongs to its database.
type Side interface {
	// Prepare makes its table in an empty database.
	Prepare(ctx context.Context) error

	// Insert is a plain INSERT of topic, key and payload. Fill writes the same columns, and the
	// select that it is given.
	Insert() string
	Fill(selected string) string

	// Start starts it; quick is with the settings for a low latency.
	Start(ctx context.Context, quick bool) (*Process, error)

	// Ready waits until it delivers what is written from now on.
	Ready(ctx context.Context, p *Process) error

	// Pause has it deliver nothing, and Resume go on, while its process lives.
	Pause(ctx context.Context) error
	Resume(ctx context.Context) error

	// Held is how much of the write-ahead log it keeps the server from removing, in bytes.
	Held(ctx context.Context) (int64, error)

	// Close removes what it has outside its database. It doesn't run.
	Close(ctx context.Context) error
}

// Kafka is the broker's address.
type Kafka string

// Process is the broker's, as deploy/servers has started it.
func (Kafka) Process() (int, error) {
	logins, err := url.ParseQuery(os.Getenv("ROWRELAY_TEST_KAFKA_LOGINS"))
	if err != nil {
		return 0, err
	}
	text, err := os.ReadFile(filepath.Join(logins.Get("folder"), "1.pid"))
	if err != nil {
		return 0, fmt.Errorf("find Kafka's process, which deploy/servers has to start: %w", err)
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

// until calls ready until it says so.
func until(ctx context.Context, what string, p *Process, ready func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	for {
		ok, err := ready()
		if err == nil && !ok && p != nil {
			err = p.Alive()
		}
		if ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w", what, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func do(ctx context.Context, d *table.Database, statements ...string) error {
	for _, statement := range statements {
		if _, err := d.DB.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}
