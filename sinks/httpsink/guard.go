package httpsink

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"syscall"
)

// inside lists the networks whose addresses are not public on the Internet, or belong
// to services of the machine or of its cloud provider (IANA's special-purpose
// registries, RFC 6890). Some IPv6 addresses contain an IPv4 address, to which a
// gateway forwards their packets (see nat64). Instead of such an IPv6 address, the
// guard judges the IPv4 address.
var inside = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),        // this host
	netip.MustParsePrefix("10.0.0.0/8"),       // private
	netip.MustParsePrefix("100.64.0.0/10"),    // shared address space; also metadata services
	netip.MustParsePrefix("127.0.0.0/8"),      // loopback
	netip.MustParsePrefix("169.254.0.0/16"),   // link-local; also metadata services
	netip.MustParsePrefix("172.16.0.0/12"),    // private
	netip.MustParsePrefix("192.0.0.0/24"),     // protocol assignments
	netip.MustParsePrefix("192.0.2.0/24"),     // documentation
	netip.MustParsePrefix("192.88.99.0/24"),   // 6to4 relays
	netip.MustParsePrefix("192.168.0.0/16"),   // private
	netip.MustParsePrefix("198.18.0.0/15"),    // benchmarks
	netip.MustParsePrefix("198.51.100.0/24"),  // documentation
	netip.MustParsePrefix("203.0.113.0/24"),   // documentation
	netip.MustParsePrefix("224.0.0.0/3"),      // multicast, reserved, broadcast
	netip.MustParsePrefix("168.63.129.16/32"), // Azure's own services
	netip.MustParsePrefix("::/3"),             // all non-global addresses: unspecified, loopback, mapped, private NAT64
	netip.MustParsePrefix("2001::/23"),        // protocol assignments, Teredo
	netip.MustParsePrefix("2001:db8::/32"),    // documentation
	netip.MustParsePrefix("2002::/16"),        // 6to4
	netip.MustParsePrefix("3fff::/20"),        // documentation
	netip.MustParsePrefix("4000::/2"),         // unallocated
	netip.MustParsePrefix("8000::/1"),         // unique local, link-local, multicast, unallocated
}

// nat64 is the prefix of IPv6 addresses that stand for the IPv4 address in their
// last 32 bits (RFC 6052). In an IPv6-only network, all IPv4 destinations have such
// addresses.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// insideError is returned for an address that the sink must not connect to.
type insideError struct{ address netip.Addr }

func (e insideError) Error() string {
	return fmt.Sprintf("the address %s is not public, and this sink connects only to public addresses", e.address)
}

// guard allows only connections to public addresses and to the allowed networks. It
// judges each address after the name was resolved, just before connecting. So a DNS
// server can't evade the guard with changing answers.
type guard struct{ allowed []netip.Prefix }

// judge returns an insideError for an address that the sink must not connect to.
func (g guard) judge(address string) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("parse the address to connect to: %w", err)
	}
	ip := to.Addr().Unmap().WithZone("")
	holds := func(prefix netip.Prefix) bool { return prefix.Contains(ip) }
	if slices.ContainsFunc(g.allowed, holds) {
		return nil
	}
	if nat64.Contains(ip) {
		embedded := ip.As16()
		ip = netip.AddrFrom4([4]byte(embedded[12:]))
	}
	if slices.ContainsFunc(inside, holds) {
		return insideError{to.Addr()}
	}
	return nil
}

// errMixed is returned if a host has both public and other addresses, and none of its
// public addresses can be reached.
var errMixed = errors.New("the host's public addresses can't be reached, and its other addresses are not public")

// dial returns a DialContext function that lets the guard judge each address before it
// connects.
func (g guard) dial(plain net.Dialer) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		guarded := plain
		var passed atomic.Bool
		guarded.ControlContext = func(ctx context.Context, network, address string, conn syscall.RawConn) error {
			if err := g.judge(address); err != nil {
				return err
			}
			passed.Store(true)
			if plain.ControlContext != nil {
				return plain.ControlContext(ctx, network, address, conn)
			}
			return nil
		}
		conn, err := guarded.DialContext(ctx, network, address)
		if passed.Load() && errors.As(err, new(insideError)) {
			err = errMixed
		}
		return conn, err
	}
}

// parseNetworks parses the allowed networks. It refuses large networks, which would
// make the guard useless.
func parseNetworks(texts []string) (networks []netip.Prefix, err error) {
	for _, text := range texts {
		network, err := netip.ParsePrefix(text)
		switch {
		case err != nil:
			return nil, fmt.Errorf("contain %q, which is not a network like 10.1.0.0/16", text)
		case network.Bits() < 8:
			return nil, fmt.Errorf("contain %q, which is too large: a network's prefix must have 8 bits or more", text)
		}
		networks = append(networks, network.Masked())
	}
	return networks, nil
}
