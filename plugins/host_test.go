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
	"syscall"
	"testing"
	"time"

	"github.com/rowrelay/rowrelay/plugins"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

// host is the relay that TestPluginEndsWithAKilledRelay kills: it starts a plug-in, prints the
// plug-in's process id, and waits.
func host() {
	path, _ := os.Executable()
	sink, err := plugins.New(plugins.Options{Path: path, Args: []string{"scripted"}, Directory: os.Args[2],
		Env: map[string]settings.Secret{"PATH": "/usr/bin:/bin"}})
	if err == nil {
		err = sink.Open(context.Background())
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	switch os.Args[3] {
	case "sending":
		go sink.Send(context.Background(), orders("wait"))
	case "forking":
		fmt.Println(sink.Send(context.Background(), orders("fork away"))[0].Receipt)
	}
	fmt.Println(sink.PID())
	linger()
}

// A plug-in ends when its relay is killed, and the next relay removes its files.
func TestPluginEndsWithAKilledRelay(t *testing.T) {
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
				t.Errorf("the host printed %q", line)
			}
			check(t, relay.Process.Kill())
			if err := relay.Wait(); !errors.As(err, new(*exec.ExitError)) {
				t.Error(err)
			}
			eventually(t, "the plug-in is gone", func() bool { return !lives(pid) })
			cleared(t, shared)
		})
	}
}

// A process that the plug-in has started in its own session may outlive a relay that is
// killed. The next relay kills that process.
func TestNextRelayEndsProcessesOfAKilledRelay(t *testing.T) {
	t.Parallel()
	shared := directory(t)
	program, err := os.Executable()
	check(t, err)
	relay := exec.Command(program, "host", shared, "forking")
	relay.Env = []string{"ROWRELAY_PLUGIN=no", "GORACE=atexit_sleep_ms=0"}
	out, err := relay.StdoutPipe()
	check(t, err)
	check(t, relay.Start())
	var plugin, child int
	lines := bufio.NewScanner(out)
	for _, number := range []*int{&child, &plugin} {
		lines.Scan()
		if *number, err = strconv.Atoi(lines.Text()); err != nil {
			t.Fatalf("the host printed %q", lines.Text())
		}
	}
	check(t, relay.Process.Kill())
	_ = relay.Wait()
	eventually(t, "the plug-in is gone", func() bool { return !lives(plugin) })
	t.Cleanup(func() { _ = syscall.Kill(child, syscall.SIGKILL) })
	if !lives(child) {
		t.Fatal("the plug-in's child has already exited, so the test proves nothing")
	}
	cleared(t, shared)
	eventually(t, "the plug-in's child is gone", func() bool { return !lives(child) })
}

// cleared makes the leftovers look old enough to be removed, and starts another plug-in.
func cleared(t *testing.T, shared string) {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(shared, "*"))
	if err != nil || len(left) != 1 {
		t.Fatalf("left behind: %v (%v), want one directory", left, err)
	}
	old := time.Now().Add(-time.Hour)
	check(t, os.Chtimes(left[0], old, old))
	o := options(t, "scripted")
	o.Directory = shared
	sink := running(t, o)
	if _, err := os.Stat(left[0]); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s still exists (%v)", left[0], err)
	}
	ask(t, sink, "hello")
}
