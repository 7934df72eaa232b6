package httpsink

import (
	"fmt"
	"net/netip"
	"syscall"
)

// inside are the addresses that are nobody's on the Internet, or that lead to a
// machine's or a provider's own services (IANA's special-purpose registries,
// RFC 6890). What embeds an IPv4 address is judged by it.
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
	netip.MustParsePrefix("::/3"),             // all but what is global: unspecified, loopback, mapped, NAT64
	netip.MustParsePrefix("2001::/23"),        // protocol assignments, Teredo
	netip.MustParsePrefix("2001:db8::/32"),    // documentation
	netip.MustParsePrefix("2002::/16"),        // 6to4
	netip.MustParsePrefix("3fff::/20"),        // documentation
	netip.MustParsePrefix("4000::/2"),         // not given out
	netip.MustParsePrefix("8000::/1"),         // unique local, link-local, multicast, and what is not given out
}

// insideError says that an address may not be reached.
type insideError struct{ address netip.Addr }

func (e insideError) Error() string {
	return fmt.Sprintf("the address %s is inside this network, where this sink must not send", e.address)
}

// outside lets a dialer connect to addresses of the Internet only. It judges
// the address that is connected to, after the name was resolved, so a name that
// changes its answer gains nothing.
func outside(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("judge the address to connect to: %w", err)
	}
	ip := to.Addr().Unmap().WithZone("")
	for _, prefix := range inside {
		if prefix.Contains(ip) {
			return insideError{ip}
		}
	}
	return nil
}
