package relay

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rowrelay/rowrelay/relay/storage"
	"github.com/rowrelay/rowrelay/sinks"
)

// Who takes part. Each relay tells the others what its sinks and routes are. One that begins beside relays of
// another setup would take its share of the messages, and send them elsewhere. So it waits until those have
// ended, unless it was told to join. What must hold: all relays that take part, and weren't told to join, have the
// same setup. For this a relay first says that it begins, and only then looks whether a relay of another setup is
// there: of two that begin at the same time, the later one finds the other.
//
// A relay that takes part goes on, whoever comes. No relay waits for one that waits, or for one that was told to join: else
// those beside which it has joined would wait for it once they restart. Where one of its own setup takes part, a relay does,
// too: it brings nothing new.

// destinationOf says where a sink leads, or else of which type it is, as where it panics.
func destinationOf(sink sinks.Sink) (destination string) {
	defer func() {
		if recover() != nil {
			destination = fmt.Sprintf("%T", sink)
		}
	}()
	if known, ok := sink.(sinks.Destined); ok {
		return known.Destination()
	}
	return fmt.Sprintf("%T", sink)
}

// setupOf is what a relay tells the others of its sinks and routes.
func setupOf(o Options, names []string) storage.Config {
	setup := storage.Config{Topics: slices.Sorted(slices.Values(o.Topics)), Joins: o.Join}
	for _, name := range names {
		setup.Sinks = append(setup.Sinks, name+": "+destinationOf(o.Sinks[name].Sink))
	}
	var patterns []string // whose order counts
	for i := range o.Routes {
		r := &o.Routes[i]
		to := slices.Clone(r.Sinks)
		if r.Sink != "" {
			to = append(to, r.Sink)
		}
		slices.Sort(to)
		text := " to " + strings.Join(to, ", ")
		if r.Also {
			text += ", also"
		}
		if r.ExpireAfter > 0 {
			text += fmt.Sprintf(", expires after %v (%s)", r.ExpireAfter, cmp.Or(r.OnExpire, ParkExpired))
		}
		switch {
		case r.Pattern != "":
			patterns = append(patterns, "pattern "+r.Pattern+text)
		case r.Prefix != "":
			setup.Routes = append(setup.Routes, "prefix "+r.Prefix+text)
		default:
			setup.Routes = append(setup.Routes, "topic "+r.Topic+text)
		}
	}
	slices.Sort(setup.Routes)
	setup.Routes = append(setup.Routes, patterns...)
	all, _ := json.Marshal([][]string{setup.Sinks, setup.Routes, setup.Topics})
	digest := sha256.Sum256(all)
	setup.Print = hex.EncodeToString(digest[:8])

	for setup.Membership = storage.StandingDown; len(setup.Text()) > storage.MaxConfig; { // with the longest of all parts
		longest := &setup.Sinks
		for _, list := range []*[]string{&setup.Routes, &setup.Topics} {
			if len(strings.Join(*list, "")) > len(strings.Join(*longest, "")) {
				longest = list
			}
		}
		if longest == &setup.Topics { // of which a part is worth nothing
			setup.Topics = nil
			continue
		}
		*longest = append((*longest)[:max(0, len(*longest)-2)], "…")
	}
	setup.Membership = storage.Active
	return setup
}

// participation is what the leaser knows of its relay's part among the others.
type participation struct {
	base       *base
	process    process
	self       storage.Identity
	takes      bool      // else it waits
	heard      time.Time // by the database's clock: the last sign of life
	waitsUntil time.Time // until then a relay that waits goes on waiting: it wasn't heard for a while, and others may be back
}

// beat gives a sign of life. It returns the living relays that take part, with this one, and why this one
// doesn't; empty if it does.
func (p *participation) beat(ctx context.Context, standsDown bool) (members storage.Members, waits string, err error) {
	tell := func(part storage.Membership) (err error) {
		p.self.Config.Membership, waits = part, ""
		beat := func() (storage.Members, error) { return p.base.store.Heartbeat(ctx, p.self, p.base.options.Lease) }
		if members, err = beat(); err == nil && len(members.Relays) > 1 {
			p.bury(ctx, &members, beat)
			if waits = othersIn(p.self, members.Relays); waits != "" {
				waits += ". It takes no message until they have stopped; to have it share the messages with them, start it with --join (join: true in a configuration, Join in relay.Options)"
			}
		}
		return err
	}
	part := storage.Standby
	if p.takes {
		if part = storage.Active; standsDown {
			part = storage.StandingDown
		}
	}
	if err := tell(part); err != nil {
		return members, "", err
	}
	// A relay that wasn't heard for so long may have been taken for dead. One that took part and
	// finds others there waits. One that waits gives the others time to be back: whoever couldn't reach
	// the database, they couldn't either.
	silent := !p.heard.IsZero() && members.Now.Sub(p.heard) > p.base.options.Lease*3/4
	p.heard = members.Now
	if silent {
		p.waitsUntil = time.Now().Add(p.base.options.Lease)
	}
	switch {
	case p.base.options.Join:
		waits = ""
	case p.takes && silent && waits != "":
		p.takes = false
		err = tell(storage.Standby)
	case p.takes:
		waits = ""
	case waits == "" && time.Now().Before(p.waitsUntil):
		waits = "it couldn't reach the database for a while, and waits for relays of another setup that may be back"
	case waits == "":
		if err = tell(storage.Begins); err == nil && waits != "" {
			err = tell(storage.Standby)
		} else if err == nil {
			p.takes = true
		}
	}
	members.Relays = slices.DeleteFunc(members.Relays, func(m storage.Member) bool {
		return m.Name != p.self.Name && (m.Config.Membership == storage.Standby || m.Config.Membership == storage.StandingDown)
	})
	return members, waits, err
}

// bury ends the leases or claims of members whose processes are known to be dead, and takes these relays out of members.
// Before that it beats once more: a relay that has deregistered and exited since the last beat is no member any more,
// and needs no burying. What fails is tried again at the next renewal.
func (p *participation) bury(ctx context.Context, members *storage.Members, beat func() (storage.Members, error)) {
	var dead []string
	for _, m := range members.Relays {
		if m.Name != p.base.options.Name && p.process.isGone(m.Name) {
			dead = append(dead, m.Name)
		}
	}
	if len(dead) == 0 {
		return
	}
	again, err := beat()
	for _, name := range dead {
		if err == nil && slices.ContainsFunc(again.Relays, func(m storage.Member) bool { return m.Name == name }) {
			p.base.options.Logger.Info("relay: a relay's process is no more, its part is taken over at once", "relay", p.base.options.Name, "dead", name)
			err = p.base.store.FenceRelay(ctx, name, p.base.options.Claim)
		}
	}
	if err != nil {
		p.base.failed("lease", err)
		return
	}
	members.Relays = slices.DeleteFunc(members.Relays, func(m storage.Member) bool { return slices.Contains(dead, m.Name) })
}

// othersIn says which relays one of this setup waits for, and what they differ in; empty if it needn't.
func othersIn(self storage.Identity, members []storage.Member) string {
	own := &self.Config
	var names []string
	var first *storage.Config
	for i := range members {
		m := &members[i]
		switch {
		case m.Name == self.Name || m.Config.Print == "" || m.Config.Membership == storage.Standby:
		case m.Config.Joins && m.Config.Print != own.Print: // it shares with anyone
		case m.Config.Print == own.Print:
			if m.Config.Membership != storage.Begins {
				return ""
			}
		case len(own.Topics) > 0 && len(m.Config.Topics) > 0 && !slices.ContainsFunc(own.Topics, func(topic string) bool { return slices.Contains(m.Config.Topics, topic) }):
		default:
			if names = append(names, m.Name); first == nil {
				first = &m.Config
			}
		}
	}
	if first == nil {
		return ""
	}
	name := names[0]
	if len(names) > 5 {
		names = append(names[:5], fmt.Sprintf("and %d more", len(names)-5))
	}
	return fmt.Sprintf("its sinks or routes aren't those of the relays that work on this table: %s. %s", strings.Join(names, ", "), difference(own, name, first))
}

// difference says what of this relay's setup another hasn't, and the other way round.
func difference(own *storage.Config, name string, other *storage.Config) string {
	only := func(of, without *storage.Config) string {
		var all []string
		for _, list := range []struct {
			what    string
			has, no []string
		}{{"sink ", of.Sinks, without.Sinks}, {"route ", of.Routes, without.Routes}, {"only topic ", of.Topics, without.Topics}} {
			for _, text := range list.has {
				if !slices.Contains(list.no, text) && text != "…" {
					all = append(all, list.what+text)
				}
			}
		}
		if len(all) > 3 {
			all = append(all[:3], "…")
		}
		return strings.Join(all, "; ")
	}
	here, there := only(own, other), only(other, own)
	if here == "" && there == "" {
		return "They differ in what is too much to be shown, or in the order of patterns"
	}
	return fmt.Sprintf("This one has: %s. %s has: %s", cmp.Or(here, "nothing else"), name, cmp.Or(there, "nothing else"))
}
