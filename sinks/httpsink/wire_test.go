package httpsink

import (
	"net"
	"net/http/httptrace"
	"testing"
)

func TestMayHaveArrived(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		shared, began bool
		written       string
		want          bool
	}{
		"nothing written":                  {false, false, "", false},
		"in the buffer":                    {false, true, "", false},
		"a part of the header":             {false, false, "POST", true},
		"all":                              {false, true, "POST /", true},
		"other requests on the connection": {true, false, "frames", false},
		"HTTP/2":                           {true, true, "frames", true},
		"HTTP/2 on a broken connection":    {true, true, "", false},
	}
	for name, test := range tests {
		client, server := net.Pipe()
		go func() { _, _ = server.Read(make([]byte, 100)) }()
		conn := &countingConn{Conn: client}
		conn.written.Store(1000) // of earlier requests
		var on wire
		on.gotConn(httptrace.GotConnInfo{Conn: conn})
		on.shared.Store(test.shared)
		on.began.Store(test.began)
		if test.written != "" {
			if _, err := conn.Write([]byte(test.written)); err != nil {
				t.Fatal(err)
			}
		}
		if got := on.mayHaveArrived(); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
		_, _ = client.Close(), server.Close()
	}
	if new(wire).mayHaveArrived() {
		t.Error("a request without a connection counts as arrived")
	}
}

// The client retries on another connection if nothing was sent.
func TestWireStartsAgainOnAnotherConnection(t *testing.T) {
	t.Parallel()
	first, second := &countingConn{}, &countingConn{}
	second.written.Store(5)
	var on wire
	on.gotConn(httptrace.GotConnInfo{Conn: first})
	first.written.Store(7)
	on.began.Store(true)
	on.gotConn(httptrace.GotConnInfo{Conn: second})
	if on.mayHaveArrived() || on.began.Load() {
		t.Error("bytes written on the first connection are counted")
	}
}
