package e2e

import (
	endian "encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// network is a Linux network namespace for relays. A wire connects it with this machine. In the
// namespace, 127.0.0.1 is this machine, so that relays reach the servers at their usual addresses.
type network struct {
	t    *testing.T
	name string

	mu   sync.Mutex
	wire map[int]condition // the state of the wire, by the server's port
}

// condition is the state of the connections with one server.
type condition struct {
	toServer, toRelay bool          // packets in this direction are dropped
	delay, jitter     time.Duration // how long a packet takes in each direction, and how much longer at most
	loss              float64       // the share of packets that are dropped
}

var (
	cutBoth     = condition{toServer: true, toRelay: true}
	cutToServer = condition{toServer: true}
	cutToRelay  = condition{toRelay: true}
	slowWire    = condition{delay: 100 * time.Millisecond, jitter: 50 * time.Millisecond, loss: 0.01} // 200 to 300 ms there and back
)

// newNetwork returns a network without faults. The test is skipped where namespaces can't be made,
// or fails if servers are required.
func newNetwork(t *testing.T) *network {
	t.Helper()
	if os.Getuid() != 0 {
		noNetworks(t, "the test doesn't run as root")
	}
	n := &network{t: t, wire: map[int]condition{}}
	number := 0
	for n.name == "" {
		number = 1 + rand.IntN(254)
		name := fmt.Sprint("rowrelay-", number)
		out, err := exec.Command("ip", "netns", "add", name).CombinedOutput()
		switch {
		case err == nil:
			n.name = name
		case !strings.Contains(string(out), "File exists"):
			noNetworks(t, fmt.Sprintf("ip netns add: %v %s", err, out))
		}
	}
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "delete", n.name).Run() })
	here, there := fmt.Sprintf("rowrelay%dh", number), fmt.Sprintf("rowrelay%dn", number)
	ours, theirs := openTunnel(t, here), openTunnel(t, there)
	local, remote := fmt.Sprintf("10.213.%d.1", number), fmt.Sprintf("10.213.%d.2", number)
	for _, command := range []string{
		"ip link set " + there + " netns " + n.name,
		"ip address add " + local + " peer " + remote + " dev " + here,
		"sysctl -q -w net.ipv4.conf." + here + ".route_localnet=1",
		"ip link set " + here + " up",
		"ip netns exec " + n.name + " sysctl -q -w net.ipv4.conf." + there + ".route_localnet=1",
		"ip -n " + n.name + " address add " + remote + " peer " + local + " dev " + there,
		"ip -n " + n.name + " link set " + there + " up",
		"ip -n " + n.name + " route add 127.0.0.1 dev " + there,
	} {
		words := strings.Fields(command)
		if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
	}
	var running sync.WaitGroup
	running.Go(func() { n.carry(ours, theirs, false) })
	running.Go(func() { n.carry(theirs, ours, true) })
	t.Cleanup(func() {
		_, _ = ours.Close(), theirs.Close()
		running.Wait()
	})
	return n
}

func noNetworks(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("REQUIRE_SERVERS") == "1" {
		t.Fatalf("network namespaces are required: %s", why)
	}
	t.Skipf("no network namespaces: %s", why)
}

// openTunnel creates a TUN device. Packets that the kernel sends to the device are read from the
// file, and packets written to the file arrive from the device.
func openTunnel(t *testing.T, name string) *os.File {
	t.Helper()
	fd, err := syscall.Open("/dev/net/tun", syscall.O_RDWR|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		noNetworks(t, "open /dev/net/tun: "+err.Error())
	}
	var request struct {
		name  [16]byte
		flags uint16
		_     [22]byte
	}
	copy(request.name[:], name)
	request.flags = syscall.IFF_TUN | syscall.IFF_NO_PI
	if _, _, code := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), syscall.TUNSETIFF, uintptr(unsafe.Pointer(&request))); code != 0 {
		_ = syscall.Close(fd)
		t.Fatalf("create the device %s: %v", name, code)
	}
	return os.NewFile(uintptr(fd), name) // after TUNSETIFF, because the poller doesn't take a tunnel without a device
}

// packet is a packet that is on its way.
type packet struct {
	bytes []byte
	due   time.Time
}

// carry carries packets from one device to the other, until the devices are closed.
func (n *network) carry(from, to *os.File, toServer bool) {
	way := make(chan packet, 1<<16)
	var arriving sync.WaitGroup
	arriving.Go(func() {
		for p := range way {
			<-time.After(time.Until(p.due)) // returns immediately without a delay
			_, _ = to.Write(p.bytes)        // fails while the devices are being closed
		}
	})
	defer arriving.Wait()
	defer close(way)
	for buffer := make([]byte, 1<<16); ; {
		length, err := from.Read(buffer)
		if errors.Is(err, os.ErrClosed) {
			return
		}
		if err != nil {
			n.t.Errorf("the wire of %s: %v", n.name, err)
			return
		}
		delay, arrives := n.fate(portOf(buffer[:length], toServer), toServer)
		if arrives {
			way <- packet{append([]byte(nil), buffer[:length]...), time.Now().Add(delay)}
		}
	}
}

// portOf returns the server's port of a TCP packet, or 0 for another packet.
func portOf(b []byte, toServer bool) int {
	const tcp = 6
	if len(b) < 40 || b[0]>>4 != 4 || b[9] != tcp {
		return 0
	}
	header := int(b[0]&15) * 4
	if toServer {
		return int(endian.BigEndian.Uint16(b[header+2:]))
	}
	return int(endian.BigEndian.Uint16(b[header:]))
}

// fate returns how long a packet takes, and whether it arrives.
func (n *network) fate(port int, toServer bool) (delay time.Duration, arrives bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := n.wire[port]
	if toServer && c.toServer || !toServer && c.toRelay || rand.Float64() < c.loss {
		return 0, false
	}
	if c.jitter > 0 {
		delay = rand.N(c.jitter)
	}
	return c.delay + delay, true
}

// set sets the state of the connections with the servers at these ports. Open connections stay open,
// and no end of a connection learns what happens to its packets.
func (n *network) set(c condition, ports ...int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, port := range ports {
		n.wire[port] = c
	}
}

// relay is like [scene.relay] for a relay in the network.
func (n *network) relay(s *scene, name, sink string, arguments ...string) *process {
	s.t.Helper()
	return s.startAs("ip", name, append([]string{"netns", "exec", n.name, binary, "run", "--database", s.URL, "--sink", sink}, arguments...)...)
}
