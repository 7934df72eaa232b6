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

// inside are the addresses that are nobody's on the Internet, or that lead to a
// machine's or a provider's own services (IANA's special-purpose registries,
// RFC 6890). What embeds an IPv4 address is judged by it, where it leads to it.
var inside = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),        // this host
	netip.MustParsePrefix("10.0.0.0/8"),       // private
	netip.MustParsePrefix("100.64.0.0/10"),    // shared, also providers' metadata
	netip.MustParsePrefix("127.0.0.0/8"),      // loopback
	netip.MustParsePrefix("169.254.0.0/16"),   // link-local, also metadata
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
	netip.MustParsePrefix("::/3"),             // all but what is global: unspecified, loopback, mapped, private NAT64
	netip.MustParsePrefix("2001::/23"),        // protocol assignments, Teredo
	netip.MustParsePrefix("2001:db8::/32"),    // documentation
	netip.MustParsePrefix("2002::/16"),        // 6to4
	netip.MustParsePrefix("3fff::/20"),        // documentation
	netip.MustParsePrefix("4000::/2"),         // not given out
	netip.MustParsePrefix("8000::/1"),         // unique local, link-local, multicast, and what is not given out
}

// nat64 leads to the IPv4 address in its last 32 bits (RFC 6052), as all of the
// Internet's do where a network has no other.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// insideError says that an address may not be reached.
type insideError struct{ address netip.Addr }

func (e insideError) Error() string {
	return fmt.Sprintf("the address %s is inside this network, where this sink must not send", e.address)
}

// guard lets connections go to addresses of the Internet only, and to the
// networks that are allowed all the same. It judges the address that is connected
// to, after the name was resolved, so a name that changes its answer gains
// nothing.
type guard struct{ allowed []netip.Prefix }

// judge returns an insideError for an address that may not be reached.
func (g guard) judge(address string) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("judge the address to connect to: %w", err)
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

// errMixed is what becomes of a name with addresses on both sides, of which
// those outside can't be reached.
var errMixed = errors.New("the addresses outside can't be reached, and others are inside this network")

// dial is DialContext of a dialer with the guard in front of each connection.
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

// parseNetworks reads the networks that are allowed. A guard with a hole as
// large as the Internet would be none.
func parseNetworks(texts []string) (networks []netip.Prefix, err error) {
	for _, text := range texts {
		network, err := netip.ParsePrefix(text)
		switch {
		case err != nil:
			return nil, fmt.Errorf("have %q, which is no network like 10.1.0.0/16", text)
		case network.Bits() < 8:
			return nil, fmt.Errorf("have %q, which is too large: a network's prefix must have 8 bits or more", text)
		}
		networks = append(networks, network.Masked())
	}
	return networks, nil
}
