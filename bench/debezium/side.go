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

// Side is one of the compared systems, with its own database.
type Side interface {
	// Prepare creates the system's table in an empty database.
	Prepare(ctx context.Context) error

	// Insert returns a plain INSERT of topic, key and payload. Fill returns an INSERT of the same
	// columns from the given SELECT.
	Insert() string
	Fill(selected string) string

	// Start starts the system. If the argument `quick` is true, it selects settings for a low latency.
	Start(ctx context.Context, quick bool) (*Process, error)

	// Ready waits until the system delivers new messages.
	Ready(ctx context.Context, p *Process) error

	// Pause stops the delivery, and Resume continues it, while the process keeps running.
	Pause(ctx context.Context) error
	Resume(ctx context.Context) error

	// Held returns the number of bytes in the write-ahead log that the server can't remove because
	// of the system.
	Held(ctx context.Context) (int64, error)

	// Close removes everything that the system has created outside its database. The system must
	// not be running.
	Close(ctx context.Context) error
}

// Kafka is the broker's address.
type Kafka string

// Process returns the id of the broker's process, which deploy/servers has started.
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

// until calls the function `ready` repeatedly, until the function returns true.
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
