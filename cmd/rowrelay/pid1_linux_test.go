package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// In a container the relay is process 1, and must reap the orphans of plug-ins.
func TestProcessOneReapsOrphansOfPlugins(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	orphan := filepath.Join(folder, "orphan")
	plugin := filepath.Join(folder, "plugin")
	script := "#!/bin/sh\n" +
		"PATH=/usr/bin:/bin\n" +
		"setsid sh -c 'sleep 0.1; touch \"" + orphan + "\"' </dev/null >/dev/null 2>&1 &\n" +
		"sleep 0.05\n" +
		"exit 3\n"
	if err := os.WriteFile(plugin, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	database := "sqlite:" + filepath.Join(folder, "a.db")
	mustRun(t, "migrate", "up", "--database", database)

	logged := newLog()
	relay := process(t, database, "run", "--sink", "plugin:"+plugin)
	relay.Stderr = logged
	relay.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	if os.Getuid() != 0 {
		relay.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
	}
	if err := relay.Start(); err != nil {
		if os.Getenv("REQUIRE_SERVERS") == "1" {
			t.Fatal("no process namespace can be made here:", err)
		}
		t.Skip("no process namespace can be made here:", err)
	}
	eventually(t, "an orphan has ended", func() bool { _, err := os.Stat(orphan); return err == nil })
	eventually(t, "process 1 has no zombies", func() bool { return zombies(t, relay.Process.Pid) == 0 })
	send(t, relay, syscall.SIGTERM)
	if err := relay.Wait(); err != nil {
		said, _ := logged.read()
		t.Errorf("%v: %s", err, said)
	}
}

// zombies counts the children of a process that have ended and were not reaped.
func zombies(t *testing.T, parent int) (count int) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range stats {
		text, _ := os.ReadFile(path)
		if strings.Contains(string(text), fmt.Sprintf(") Z %d ", parent)) {
			count++
		}
	}
	return count
}
