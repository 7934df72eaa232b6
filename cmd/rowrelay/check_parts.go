package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/rowrelay/rowrelay/internal/config"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay"
)

// addProblems makes a finding of each thing that is wrong with the file.
func (c *check) addProblems(err error) {
	var problems *config.Problems
	if !errors.As(err, &problems) {
		c.add(finding{Name: "config", Detail: err.Error()})
		return
	}
	for _, problem := range problems.List {
		c.add(finding{Name: "config", Detail: problems.File + ":" + problem.String()})
	}
}

// checkSource checks a table. A check that fails ends it, since the next ones
// would fail for the same reason.
func (c *check) checkSource(ctx context.Context, source config.Source) {
	name := "source " + source.Name + ": "
	db, d, err := openDatabase(ctx, source.Database, false)
	if !c.tried(name+"connection", source.Database.String(), err) {
		return
	}
	c.checkTable(ctx, name, source, db, d)
	if err := db.Close(); err != nil {
		c.tried(name+"disconnection", "", err)
	}
}

func (c *check) checkTable(ctx context.Context, name string, source config.Source, db *sql.DB, d dialect.Dialect) {
	store, err := openStoreOn(ctx, source, db, d)
	if !c.tried(name+"schema", "table "+source.Table, explain(source, err)) {
		return
	}
	for _, found := range store.Check(ctx, wantedClaim(source)) {
		// These two are checked here: the schema above, with the whole command to
		// run, and the claim below, which only a living relay contradicts.
		if found.Name != "schema" && found.Name != "claim" {
			c.add(finding{Name: name + found.Name, OK: found.OK, Detail: found.Detail, Hint: found.Hint})
		}
	}
	status, err := store.Status(ctx)
	if err == nil {
		err = claimable(source, status)
	}
	c.tried(name+"claim", "by "+string(wantedClaim(source)), explain(source, err))
}

func wantedClaim(source config.Source) relay.Claim {
	if source.Claim == "" {
		return relay.ByLanes
	}
	return source.Claim
}

// claimable says whether a relay could claim the table the way that it is told.
func claimable(source config.Source, status relay.Status) error {
	if status.Claim == "" || status.Claim == wantedClaim(source) {
		return nil
	}
	for _, each := range status.Relays {
		if each.Alive {
			return fmt.Errorf("the relay %s claims by %s: %w", each.Name, status.Claim, relay.ErrOtherClaim)
		}
	}
	return nil
}

// checkSink makes a sink, opens it and closes it again.
func (c *check) checkSink(ctx context.Context, source config.Source, to config.Sink) {
	limited, cancel := context.WithTimeout(ctx, sinkTimeout)
	defer cancel()
	sink, err := to.Make(c.kinds)
	if err == nil {
		err = errors.Join(sink.Open(limited), sink.Close(limited))
	}
	c.tried("source "+source.Name+": sink "+to.Name, "can be opened", err)
}

// tried adds the finding of something that was tried, and says whether it
// worked.
func (c *check) tried(name, detail string, err error) bool {
	if err == nil {
		c.add(finding{Name: name, OK: true, Detail: detail})
		return true
	}
	f := finding{Name: name, Detail: err.Error()}
	var explained *explainedError
	if errors.As(err, &explained) {
		f.Detail, f.Hint = explained.error.Error(), explained.hint
	}
	c.add(f)
	return false
}
