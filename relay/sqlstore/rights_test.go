package sqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/migrations"
	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay/sqlstore"
	"github.com/rowrelay/rowrelay/relay/storage"
)

const (
	postgresPage = root + "/outbox/dialect/POSTGRES.md"
	producerPage = root + "/outbox/README.md" // also has the rights of producers that cancel messages or refuse duplicates
)

var grant = regexp.MustCompile(`(?m)^GRANT (.*) ON (.*) TO (shop_\w+);$`)

// grants returns the rights that a page's GRANT statements give to a role, one by one, for example
// "SELECT ON outbox".
func grants(t *testing.T, page, role string) (single []string) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range grant.FindAllStringSubmatch(string(text), -1) {
		if line[3] != role {
			continue
		}
		for right := range strings.SplitSeq(line[1], ", ") {
			for table := range strings.SplitSeq(line[2], ", ") {
				single = append(single, right+" ON "+table)
			}
		}
	}
	if len(single) == 0 {
		t.Fatalf("%s grants nothing to %s", page, role)
	}
	return single
}

// newUser creates a user with these rights, and returns its name and its pool.
func newUser(t *testing.T, table table, role string, rights []string) (string, *sql.DB) {
	t.Helper()
	address, err := url.Parse(table.DSN)
	if err != nil {
		t.Fatal(err)
	}
	name := role + strings.TrimPrefix(address.Path, "/rowrelay_test")
	exec(t, table.DB, "CREATE ROLE "+name+" LOGIN PASSWORD 'poor'")
	t.Cleanup(func() {
		exec(t, table.DB, "DROP OWNED BY "+name)
		exec(t, table.DB, "DROP ROLE "+name)
	})
	for _, right := range rights {
		exec(t, table.DB, "GRANT "+right+" TO "+name)
	}
	address.User = url.UserPassword(name, "poor")
	pool, err := sql.Open(table.Driver, address.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pool.Close() })
	return name, pool
}

func TestProducerRightsSuffice(t *testing.T) {
	onPgx(t, func(t *testing.T, table table) {
		_, pool := newUser(t, table, "shop_producer", grants(t, postgresPage, "shop_producer"))
		writer, err := outbox.NewWriter(table.dialect, outbox.Options{KeyLocks: true, Notify: true, NotifyInterval: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		for _, count := range []int{1, 50} {
			tx, err := pool.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(writer.Write(t.Context(), tx, messages(count)...), tx.Commit()); err != nil {
				t.Errorf("write %d: %v", count, err)
			}
		}
		if _, err := pool.Exec("SELECT 1 FROM outbox"); !table.dialect.Denied(err) {
			t.Errorf("read: %v, want a denied permission", err)
		}
	})
}

// A producer that refuses duplicates and cancels messages needs exactly the rights that outbox/README.md lists.
func TestRightsToCancelAndToRefuseDuplicates(t *testing.T) {
	onPgx(t, func(t *testing.T, table table) {
		rights := grants(t, producerPage, "shop_producer")
		name, pool := newUser(t, table, "shop_canceller", rights)
		if err := writeOnceAndCancel(t.Context(), pool, table); err != nil {
			t.Fatalf("with all rights: %v", err)
		}
		for _, right := range rights {
			exec(t, table.DB, "REVOKE "+right+" FROM "+name)
			if err := writeOnceAndCancel(t.Context(), pool, table); !table.dialect.Denied(err) {
				t.Errorf("without %s: %v, want a denied permission", right, err)
			}
			exec(t, table.DB, "GRANT "+right+" TO "+name)
		}
	})
}

// writeOnceAndCancel writes a scheduled message, requires that a duplicate is refused, and cancels the
// message.
func writeOnceAndCancel(ctx context.Context, pool *sql.DB, table table) error {
	writer, err := outbox.NewWriter(table.dialect, outbox.Options{Duplicates: outbox.RefuseDuplicates})
	if err != nil {
		return err
	}
	tx, err := pool.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	m := outbox.Message{ID: "019e2f6c-7c4b-7d5e-8a90-1b2c3d4e5f60", Topic: "a", AvailableAt: time.Now().Add(time.Hour)}
	if err := writer.Write(ctx, tx, m); err != nil {
		return err
	}
	if err := writer.Write(ctx, tx, m); !errors.Is(err, outbox.ErrDuplicate) {
		return fmt.Errorf("the writer accepted a duplicate: %w", err)
	}
	cancelled, err := writer.Cancel(ctx, tx, m.ID, "019e2f6c-7c4b-7d5e-8a90-000000000000") // the absent id is searched for in both tables
	if err == nil && len(cancelled) != 1 {
		return errors.New("the message was not cancelled")
	}
	return err
}

func messages(count int) []outbox.Message {
	return slices.Repeat([]outbox.Message{{Topic: "a", Key: "k"}}, count)
}

// The rights that the documentation lists suffice for a relay that claims by rows. For a relay that claims
// by lanes, TestRightsNamedByCheckSuffice shows that the rights that the check names suffice.
func TestRelayRightsSuffice(t *testing.T) {
	onPgx(t, func(t *testing.T, table table) {
		migrate(t, table.DB, table.dialect, migrations.Options{Claim: "rows"})
		_, pool := newUser(t, table, "shop_relay", grants(t, postgresPage, "shop_relay"))
		for _, claim := range []storage.Claim{storage.ByLanes, storage.ByRows} {
			for _, finding := range sqlstore.Check(t.Context(), pool, table.dialect, sqlstore.Options{}, claim) {
				if !finding.OK && finding.Name != "transactions" {
					t.Errorf("the check for claiming by %s reports %+v", claim, finding)
				}
			}
		}
		exec(t, table.DB, "INSERT INTO outbox (topic) VALUES ('a'), ('b')")
		if err := relayByRows(t.Context(), pool, table); err != nil {
			t.Errorf("by rows: %v", err)
		}
		store, err := sqlstore.Open(t.Context(), pool, table.dialect, sqlstore.Options{})
		if err == nil {
			err = store.SetControl(t.Context(), storage.Control{Kind: storage.PauseSink, Name: "a"}, 0)
		}
		if err != nil {
			t.Errorf("pause a sink, as the breaker does: %v", err)
		}
	})
}

// relayByRows calls the store methods that a relay calls if it claims by rows.
func relayByRows(ctx context.Context, pool *sql.DB, table table) error {
	store, err := sqlstore.Open(ctx, pool, table.dialect, sqlstore.Options{})
	if err != nil {
		return err
	}
	mode := store.SetClaimMode(ctx, storage.ByRows)
	_, beat := store.Heartbeat(ctx, storage.Identity{Name: "r", Claim: storage.ByRows}, time.Minute)
	rows, claim := store.Claim(ctx, storage.ClaimRequest{Relay: "r", Token: "t", TTL: time.Minute, Limit: 2})
	if err := errors.Join(mode, beat, claim); err != nil || len(rows) != 2 {
		return fmt.Errorf("%d rows claimed, want 2: %w", len(rows), err)
	}
	var settlements []storage.Settlement
	for i, row := range rows {
		settlements = append(settlements, storage.Settlement{ID: row.ID, Lane: row.Lane, MessageID: row.Message.ID, Token: "t", State: []storage.State{storage.StateDone, storage.StateError}[i]})
	}
	settlements[1].DeadLetter = &storage.Copy{MessageID: outbox.NewID(), Topic: "dead"}
	_, extend := store.Extend(ctx, "t", []int64{1, 2}, time.Minute)
	_, settle := store.Settle(ctx, "r", true, settlements)
	_, reclaim := store.Reclaim(ctx, 10)
	_, purge := store.Purge(ctx, 0, 10)
	return errors.Join(extend, settle, reclaim, purge, store.Deregister(ctx, "r"))
}

// An operator needs exactly the rights that the documentation lists.
func TestOperatorRightsAreEachRequired(t *testing.T) {
	onPgx(t, func(t *testing.T, table table) {
		rights := grants(t, postgresPage, "shop_operator")
		name, pool := newUser(t, table, "shop_operator", rights)
		if err := operate(t.Context(), pool, table); err != nil {
			t.Fatalf("with all rights: %v", err)
		}
		for _, right := range rights {
			exec(t, table.DB, "REVOKE "+right+" FROM "+name)
			// Without the right to see the sequence, newer servers return no value and no error.
			tellsNothing := strings.Contains(right, "SEQUENCE") && table.Name != "postgres15/pgx"
			if err := operate(t.Context(), pool, table); !table.dialect.Denied(err) && !tellsNothing {
				t.Errorf("without %s: %v, want a denied permission", right, err)
			}
			exec(t, table.DB, "GRANT "+right+" TO "+name)
		}
	})
}

// operate makes the calls of an operator.
func operate(ctx context.Context, pool *sql.DB, table table) error {
	store, err := sqlstore.Open(ctx, pool, table.dialect, sqlstore.Options{})
	if err != nil {
		return err
	}
	_, status := store.Status(ctx)
	_, list := store.List(ctx, storage.Filter{})
	_, requeue := store.Requeue(ctx, storage.Filter{})
	_, skip := store.Skip(ctx, storage.Filter{})
	_, discard := store.Discard(ctx, storage.Filter{})
	pause := storage.Control{Kind: storage.PauseSink, Name: "a"}
	set := store.SetControl(ctx, pause, 0)
	_, lift := store.LiftControl(ctx, pause)
	_, actions := store.Actions(ctx, 1)
	return errors.Join(status, list, requeue, skip, discard, set, lift, actions)
}
