//go:build !unix

package plugins

import (
	"errors"
	"net"
	"os"
	"os/exec"
)

// Where no socket can be passed to another process, everything goes by gRPC.

func newDirect(*exec.Cmd) (*direct, *os.File, error) { return nil, nil, nil }

func connect(*net.UnixConn) (*net.UnixConn, error) { return nil, errors.ErrUnsupported }

func accept(*net.UnixConn) (*net.UnixConn, error) { return nil, errors.ErrUnsupported }

func saidHello(*net.UnixConn) bool { return false }

func inherited(string) *net.UnixConn { return nil }
