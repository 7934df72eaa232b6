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

// Membership. Each relay's heartbeat contains its configuration: its sinks and routes. If a relay became active while relays with
// another configuration were active, it would take its share of the messages and send them to other destinations. So it stands by
// until those relays have stopped, unless it has the option Join. What must hold: all active relays without Join have the same
// configuration, unless they claim different topics. So a relay first announces that it is about to become active (storage.Begins),
// and only then looks for active relays with another configuration. If two relays do this at the same time, the second relay to
// announce itself finds the first.
//
// An active relay stays active when others start. A relay doesn't wait for relays that stand by, or for relays with Join: these
// relays may have started with another configuration while this relay was active, and must not keep it from becoming active again
// after a restart. A relay also becomes active if some active relay has the same configuration.

// destinationOf returns the sink's description of its destination, or the sink's type if it gives no description or if
// Destination panics.
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

// setupOf returns the configuration that a relay announces to the others.
func setupOf(o Options, names []string) storage.Config {
	setup := storage.Config{Topics: slices.Sorted(slices.Values(o.Topics)), Joins: o.Join}
	for _, name := range names {
		setup.Sinks = append(setup.Sinks, name+": "+destinationOf(o.Sinks[name].Sink))
	}
	var patterns []string // patterns are not sorted, because their order matters
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

	for setup.Membership = storage.StandingDown; len(setup.Text()) > storage.MaxConfig; { // the text is measured with the longest value of Membership
		longest := &setup.Sinks
		for _, list := range []*[]string{&setup.Routes, &setup.Topics} {
			if len(strings.Join(*list, "")) > len(strings.Join(*longest, "")) {
				longest = list
			}
		}
		if longest == &setup.Topics { // this list is omitted as a whole, because an incomplete one would be useless
			setup.Topics = nil
			continue
		}
		*longest = append((*longest)[:max(0, len(*longest)-2)], "…")
	}
	setup.Membership = storage.Active
	return setup
}

// participation is the state of a relay's membership. Only the leaser uses it.
type participation struct {
	base       *base
	process    process
	self       storage.Identity
	takes      bool      // the relay is active, or has left its lanes to others (StandingDown); otherwise it stands by
	heard      time.Time // the time of the last heartbeat, on the database's clock
	waitsUntil time.Time // a relay that stands by doesn't become active before this time: after a gap in its heartbeats, this gives other relays time to return
}

// beat sends a heartbeat. It returns the active relays, including this one, and the reason why this relay stands by, which is
// empty if the relay is active.
func (p *participation) beat(ctx context.Context, standsDown bool) (members storage.Members, waits string, err error) {
	announce := func(part storage.Membership) (err error) {
		p.self.Config.Membership, waits = part, ""
		beat := func() (storage.Members, error) { return p.base.store.Heartbeat(ctx, p.self, p.base.options.Lease) }
		if members, err = beat(); err == nil && len(members.Relays) > 1 {
			p.bury(ctx, &members, beat)
			if waits = othersIn(p.self, members.Relays); waits != "" {
				waits += ". This relay sends no messages until the others have stopped; to share the messages with them, start it with --join (join: true in a configuration, Join in relay.Options)"
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
	if err := announce(part); err != nil {
		return members, "", err
	}
	// If this relay had sent no heartbeat for most of a lease, the other relays may have treated it as dead. If it was active, and
	// relays with another configuration are active now, it stands by. If it stood by, it continues to stand by for the duration of
	// a lease: the relays that it waited for may not have reached the database either, and may return.
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
		err = announce(storage.Standby)
	case p.takes:
		waits = ""
	case waits == "" && time.Now().Before(p.waitsUntil):
		waits = "it couldn't reach the database for most of a lease. It waits, because relays with another configuration may have lost the database, too, and may return"
	case waits == "":
		if err = announce(storage.Begins); err == nil && waits != "" {
			err = announce(storage.Standby)
		} else if err == nil {
			p.takes = true
		}
	}
	members.Relays = slices.DeleteFunc(members.Relays, func(m storage.Member) bool {
		return m.Name != p.self.Name && (m.Config.Membership == storage.Standby || m.Config.Membership == storage.StandingDown)
	})
	return members, waits, err
}

// bury ends the leases or claims of members whose processes no longer exist, and removes these relays from members. Before
// that it sends another heartbeat: a relay that deregistered and exited after the first heartbeat has no leases or claims
// left, and isn't among the second heartbeat's members. Errors are logged, and the next renewal tries again.
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
			p.base.options.Logger.Info("relay: a relay's process no longer exists; taking over its lanes or rows", "relay", p.base.options.Name, "dead", name)
			err = p.base.store.FenceRelay(ctx, name, p.base.options.Claim)
		}
	}
	if err != nil {
		p.base.failed("lease", err)
		return
	}
	members.Relays = slices.DeleteFunc(members.Relays, func(m storage.Member) bool { return slices.Contains(dead, m.Name) })
}

// othersIn returns why a relay with this configuration stands by: it names the other relays, and describes how their
// configuration differs. The text is empty if the relay needn't stand by.
func othersIn(self storage.Identity, members []storage.Member) string {
	own := &self.Config
	var names []string
	var first *storage.Config
	for i := range members {
		m := &members[i]
		switch {
		case m.Name == self.Name || m.Config.Print == "" || m.Config.Membership == storage.Standby:
		case m.Config.Joins && m.Config.Print != own.Print: // a relay with Join shares the messages with any relay
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
	return fmt.Sprintf("its sinks or routes differ from those of the active relays of this table: %s. %s", strings.Join(names, ", "), difference(own, name, first))
}

// difference describes what only one of the two configurations has.
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
		return "The difference is too long to show, or lies only in the order of the patterns"
	}
	return fmt.Sprintf("This relay has: %s. %s has: %s", cmp.Or(here, "no other sink, route or topic"), name, cmp.Or(there, "no other sink, route or topic"))
}
