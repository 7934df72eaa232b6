package debezium

import (
	"context"
	"fmt"
	"os/exec"
	"time"

	"github.com/rowrelay/rowrelay/bench/daemon"
	"github.com/rowrelay/rowrelay/bench/table"
)

// Rowrelay is the rowrelay command. If it is started with settings for a low latency, its table
// gets the trigger that notifies relays.
type Rowrelay struct {
	Database *table.Database
	Kafka    Kafka

	// Idempotent selects the idempotent sink, with which Kafka drops messages that a dead relay had
	// already sent. With this sink, the relay writes each batch to the journal in a transaction
	// before it sends the batch.
	Idempotent bool
}

var _ Side = Rowrelay{}

func (r Rowrelay) Prepare(ctx context.Context) error { return r.Database.Migrate(ctx) }

func (Rowrelay) Insert() string {
	return "INSERT INTO outbox (topic, message_key, payload_text) VALUES ($1, $2, $3)"
}

func (Rowrelay) Fill(selected string) string {
	return "INSERT INTO outbox (topic, message_key, payload_text) " + selected
}

func (r Rowrelay) Start(ctx context.Context, quick bool) (*Process, error) {
	program, err := daemon.Program()
	if err == nil && quick {
		err = r.Database.NotifyByTrigger(ctx)
	}
	if err != nil {
		return nil, err
	}
	sink := "kafka://" + string(r.Kafka)
	if r.Idempotent {
		sink += "?idempotent=true"
	}
	return start("rowrelay", program, "run", "--database", r.Database.URL, "--sink", sink)
}

// Ready waits until the relay has leased all lanes.
func (r Rowrelay) Ready(ctx context.Context, p *Process) error {
	return until(ctx, "rowrelay has its lanes", p, func() (ready bool, err error) {
		err = r.Database.DB.QueryRowContext(ctx, "SELECT count(*) = 64 FROM outbox_lanes WHERE until > now()").Scan(&ready)
		return ready, err
	})
}

// Pause pauses the sink, and waits for two seconds, because the relay reads the pause with a delay. Without this
// wait, the relay could deliver the first of the next messages while the others are still being
// written, and the time of writing would count as the relay's.
func (r Rowrelay) Pause(ctx context.Context) error {
	err := r.command(ctx, "pause", "sink", "sink")
	select {
	case <-time.After(2 * time.Second):
	case <-ctx.Done():
		err = ctx.Err()
	}
	return err
}

func (r Rowrelay) Resume(ctx context.Context) error { return r.command(ctx, "resume", "sink", "sink") }

func (r Rowrelay) command(ctx context.Context, words ...string) error {
	program, err := daemon.Program()
	if err != nil {
		return err
	}
	if output, err := exec.CommandContext(ctx, program, append(words, "--database", r.Database.URL)...).CombinedOutput(); err != nil {
		return fmt.Errorf("rowrelay %s: %w: %s", words[0], err, output)
	}
	return nil
}

func (Rowrelay) Held(context.Context) (int64, error) { return 0, nil }
func (Rowrelay) Close(context.Context) error         { return nil }
