package testdb

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"testing"
)

// portsFolder has a folder for each port in use. All test programs and deploy/servers of a
// machine share this folder, even if they belong to different clones of the repository.
const portsFolder = "/tmp/rowrelay-ports"

// FreePort returns a port of 127.0.0.1 for a server that the test starts, and may stop and restart.
// No other test gets the port until the test ends. The port is below the range of ports that the
// system assigns to clients.
func FreePort(t testing.TB) int {
	t.Helper()
	if err := os.Mkdir(portsFolder, 0o700); err == nil {
		err = os.Chmod(portsFolder, 0o777|os.ModeSticky) // sets the mode regardless of the process's umask
		if err != nil {
			t.Fatal(err)
		}
	}
	for range 10_000 {
		port := 20_000 + rand.IntN(10_000)
		reserved := filepath.Join(portsFolder, fmt.Sprint(port))
		if err := os.Mkdir(reserved, 0o700); errors.Is(err, fs.ErrExist) {
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		listener, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", port))
		if err != nil {
			_ = os.Remove(reserved)
			continue
		}
		_ = listener.Close()
		t.Cleanup(func() { _ = os.Remove(reserved) })
		return port
	}
	t.Fatal("no port is free")
	return 0
}
