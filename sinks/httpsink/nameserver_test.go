package httpsink_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// names is a name server with configured answers. A name with several answers
// returns one after the other, and repeats the last one.
type names struct {
	address string

	mu      sync.Mutex
	answers map[string][]string // by name: comma-separated addresses
	asked   map[string]int      // queries for IPv4 addresses
}

func newNames(t *testing.T, answers map[string][]string) *names {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &names{address: conn.LocalAddr().String(), answers: answers, asked: map[string]int{}}
	served := make(chan struct{})
	go func() { defer close(served); n.serve(conn) }()
	t.Cleanup(func() { _ = conn.Close(); <-served })
	return n
}

func (n *names) serve(conn net.PacketConn) {
	question := make([]byte, 1500)
	for {
		length, from, err := conn.ReadFrom(question)
		if err != nil {
			return
		}
		if length > 12 {
			_, _ = conn.WriteTo(n.answer(question[:length]), from)
		}
	}
}

// The types of queries (RFC 1035, 3596).
const (
	typeA    = 1
	typeAAAA = 28
)

// answer returns the reply to a query with one name.
func (n *names) answer(question []byte) []byte {
	var labels []string
	at := 12
	for ; question[at] != 0; at += int(question[at]) + 1 {
		labels = append(labels, string(question[at+1:at+1+int(question[at])]))
	}
	kind := int(question[at+1])<<8 | int(question[at+2])
	addresses, known := n.look(strings.ToLower(strings.Join(labels, ".")), kind)
	reply := append([]byte{question[0], question[1], 0x81, 0x80, 0, 1, 0, byte(len(addresses)), 0, 0, 0, 0}, question[12:at+5]...)
	if !known {
		reply[3] |= 3 // no such name
	}
	for _, address := range addresses {
		data := address.AsSlice()
		reply = append(reply, 0xc0, 12, byte(kind>>8), byte(kind), 0, 1, 0, 0, 0, 0, 0, byte(len(data)))
		reply = append(reply, data...)
	}
	return reply
}

func (n *names) look(name string, kind int) (addresses []netip.Addr, known bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	answers, known := n.answers[name]
	if !known {
		return nil, false
	}
	if kind == typeA {
		n.asked[name]++
	}
	turn := min(max(n.asked[name]-1, 0), len(answers)-1)
	for text := range strings.SplitSeq(answers[turn], ",") {
		address := netip.MustParseAddr(text)
		if address.Is4() == (kind == typeA) && (kind == typeA || kind == typeAAAA) {
			addresses = append(addresses, address)
		}
	}
	return addresses, true
}

func (n *names) times(name string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.asked[name]
}

var errOutside = errors.New("an address outside, to which no test connects")

// dialer returns a dialer that uses this name server. As a safeguard, it refuses to
// connect to addresses other than loopback.
func (n *names) dialer() net.Dialer {
	toUs := func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, n.address)
	}
	return net.Dialer{
		Resolver: &net.Resolver{PreferGo: true, Dial: toUs},
		ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
			if to, err := netip.ParseAddrPort(address); err == nil && to.Addr().Unmap().IsLoopback() {
				return nil
			}
			return errOutside
		},
	}
}
