package main

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/rowrelay/rowrelay/bench/figure"
	"github.com/rowrelay/rowrelay/bench/peers"
	"github.com/rowrelay/rowrelay/bench/table"
	"github.com/rowrelay/rowrelay/relay/sqlstore"
	"github.com/rowrelay/rowrelay/relay/storage"
)

const (
	snapshotRounds = 10
	snapshotRound  = 30_000 // messages of a round
	// ahead is a number of messages that is higher than the number that any relay or peer reads into
	// memory while its handler is blocked.
	ahead = 6_000
)

// underSnapshot holds a snapshot open, as a long report or a forgotten session does, so that the
// server can't remove dead rows. It compares the last of ten rounds with the first. After the first
// round it renews the leases of rowrelay's relay as often as a relay does in an hour.
func underSnapshot(ctx context.Context, s settings, report func(figure.Figure)) error {
	for _, name := range []string{"postgres15", "postgres18", "mysql", "mariadb1011"} {
		server := table.Servers[name]
		if server.Missing() || s.servers != "" && !strings.Contains(s.servers, name) {
			continue
		}
		if err := serverUnderSnapshot(ctx, server, s, report); err != nil {
			return err
		}
	}
	return nil
}

func serverUnderSnapshot(ctx context.Context, server table.Server, s settings, report func(figure.Figure)) error {
	var contenders []figure.Contender
	all := only(drainers(server), s)
	slowed := make([]slowing, len(all))
	for i, c := range all {
		turn := func(ctx context.Context) (float64, error) { return slowed[i].measure(ctx, server, c) }
		contenders = append(contenders, figure.Contender{Name: c.String(), Turn: turn})
	}
	values, err := figure.Turns(ctx, s.rounds, contenders...)
	if err != nil {
		return err
	}
	for i, c := range all {
		f := figure.Figure{What: server.Name + ", " + c.String(), Value: slowed[i].String()}
		f.Ratio, f.Reference = figure.Median(values[i]), "its first round"
		if _, ok := c.(own); ok {
			f.Goal, f.Met = "≥ 0.9", f.Ratio >= 0.9
		}
		report(f)
	}
	return nil
}

// slowing has the rates of the first and the last round of each turn.
type slowing struct{ first, last []float64 }

func (s *slowing) String() string {
	return fmt.Sprintf("%.0f → %.0f /s", figure.Median(s.first), figure.Median(s.last))
}

func (s *slowing) measure(ctx context.Context, server table.Server, c drainer) (ratio float64, err error) {
	d, err := server.Create(ctx)
	if err != nil {
		return 0, err
	}
	defer d.Close()
	if err := c.create(ctx, d); err != nil {
		return 0, err
	}
	rates, err := ratesUnderSnapshot(ctx, d, c)
	if err != nil {
		return 0, err
	}
	first, last := rates[0], rates[len(rates)-1]
	s.first, s.last = append(s.first, first), append(s.last, last)
	return last / first, nil
}

func ratesUnderSnapshot(ctx context.Context, d *table.Database, c drainer) (rates []float64, err error) {
	r := rounds{Database: d, drainer: c}
	stop, err := c.start(ctx, d, r.count.Around(r.gate.handle))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if _, err := r.round(ctx); err != nil { // a warm-up, which isn't measured
		return nil, err
	}
	snapshot, err := holdSnapshot(ctx, d)
	if err != nil {
		return nil, err
	}
	defer snapshot.Rollback()
	for n := range snapshotRounds {
		if _, leases := c.(own); leases && n == 1 {
			if err := renewForAnHour(ctx, d); err != nil {
				return nil, err
			}
		}
		rate, err := r.round(ctx)
		if err != nil {
			return nil, err
		}
		rates = append(rates, rate)
	}
	fmt.Fprintf(os.Stderr, "  %s: %.0f /s\n", c, rates)
	return rates, nil
}

// hourOfRenewals is the number of a relay's renewals in an hour, one every two seconds.
const hourOfRenewals = 1800

// renewForAnHour sends the heartbeats and renewals of an hour, without waiting in between. It uses the leases and
// marks of the running relay, which is idle during this time.
func renewForAnHour(ctx context.Context, d *table.Database) error {
	store, err := sqlstore.Open(ctx, d.DB, d.Dialect, sqlstore.Options{})
	if err != nil {
		return err
	}
	rows, err := d.DB.QueryContext(ctx, "SELECT owner, lane, fence, marks FROM outbox_lanes WHERE owner IS NOT NULL")
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	var owner string
	var renewals []storage.Renewal
	for rows.Next() {
		var renewal storage.Renewal
		var marks []byte
		if err := rows.Scan(&owner, &renewal.Lane, &renewal.Fence, &marks); err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(cmp.Or(string(marks), "{}")), &renewal.Marks); err != nil {
			return err
		}
		renewals = append(renewals, renewal)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return err
	}
	for range hourOfRenewals {
		if _, err := store.Heartbeat(ctx, storage.Identity{Name: owner, Claim: storage.ByLanes}, 15*time.Second); err != nil {
			return err
		}
		if held, err := store.Renew(ctx, owner, renewals, 15*time.Second); err != nil || len(held) != len(renewals) {
			return fmt.Errorf("renewed %d of %d leases: %v", len(held), len(renewals), err)
		}
	}
	return nil
}

// holdSnapshot opens a transaction that reads once and then does nothing.
func holdSnapshot(ctx context.Context, d *table.Database) (*sql.Tx, error) {
	tx, err := d.DB.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	if err != nil {
		return nil, err
	}
	look := "SELECT 1" // on PostgreSQL any statement takes a snapshot
	if d.Dialect.Name() != "postgres" {
		look = "SELECT count(*) FROM outbox"
	}
	var count int
	if err := tx.QueryRowContext(ctx, look).Scan(&count); err != nil {
		return nil, errors.Join(err, tx.Rollback())
	}
	return tx, nil
}

// rounds writes each round's messages while the handler of a relay or peer is blocked. When the
// handler is unblocked, the relay or peer, which runs during all rounds, drains the messages.
type rounds struct {
	*table.Database
	drainer
	count   peers.Counter
	gate    gate
	handled int
}

// round returns the delivery rate of the messages that the relay or peer did not have in memory yet. The check
// that all messages are done is not timed, because it takes long if there are many dead rows.
func (r *rounds) round(ctx context.Context) (rate float64, err error) {
	r.gate.Lock()
	err = r.write(ctx, r.Database, snapshotRound)
	r.gate.Unlock()
	if err == nil {
		err = r.count.Wait(ctx, r.handled+ahead)
	}
	if err != nil {
		return 0, err
	}
	began := time.Now()
	r.handled += snapshotRound
	if err := r.count.Wait(ctx, r.handled); err != nil {
		return 0, err
	}
	took := time.Since(began)
	return (snapshotRound - ahead) / took.Seconds(), r.untilDone(ctx, r.Database)
}

// gate blocks a handler while the gate is locked.
type gate struct{ sync.RWMutex }

func (g *gate) handle(context.Context, []byte) error {
	g.RLock()
	defer g.RUnlock()
	return nil
}
