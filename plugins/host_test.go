package plugins_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/plugins"
)

// host is what TestKilledHost kills: it starts a plug-in, says which process it
// is, and does nothing more.
func host() {
	path, _ := os.Executable()
	sink, err := plugins.New(plugins.Options{Path: path, Args: []string{"scripted"}, Directory: os.Args[2]})
	if err == nil {
		err = sink.Open(context.Background())
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	if os.Args[3] == "sending" {
		go sink.Send(context.Background(), orders("wait"))
	}
	fmt.Println(sink.PID())
	linger()
}

// A plug-in doesn't outlive a relay that is killed, and what is left of it is
// cleared away by the next.
func TestKilledHost(t *testing.T) {
	t.Parallel()
	for _, doing := range []string{"idle", "sending"} {
		t.Run(doing, func(t *testing.T) {
			t.Parallel()
			shared := directory(t)
			program, err := os.Executable()
			check(t, err)
			relay := exec.Command(program, "host", shared, doing)
			relay.Env = []string{"ROWRELAY_PLUGIN=no", "GORACE=atexit_sleep_ms=0"}
			out, err := relay.StdoutPipe()
			check(t, err)
			check(t, relay.Start())
			line, _ := bufio.NewReader(out).ReadString('\n')
			pid, err := strconv.Atoi(strings.TrimSpace(line))
			if err != nil || !lives(pid) {
				t.Errorf("the host said %q", line)
			}
			check(t, relay.Process.Kill())
			killed := time.Now()
			if err := relay.Wait(); !errors.As(err, new(*exec.ExitError)) {
				t.Error(err)
			}
			eventually(t, "the plug-in is gone", func() bool { return !lives(pid) })
			if took := time.Since(killed); took > 5*time.Second {
				t.Errorf("it took the plug-in %v", took)
			}
			cleared(t, shared)
		})
	}
}

// cleared starts another plug-in when the leftovers are old enough to be taken
// for such.
func cleared(t *testing.T, shared string) {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(shared, "*"))
	if err != nil || len(left) != 1 {
		t.Fatalf("left is %v (%v), want one directory", left, err)
	}
	old := time.Now().Add(-time.Hour)
	check(t, os.Chtimes(left[0], old, old))
	o := options(t, "scripted")
	o.Directory = shared
	sink := running(t, o)
	if _, err := os.Stat(left[0]); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there (%v)", left[0], err)
	}
	ask(t, sink, "hello")
}
