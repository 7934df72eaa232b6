package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rowrelay/rowrelay/internal/config"
)

// aTerminal starts the program on a terminal of 100 columns. It returns the output of the terminal, and a writer for its
// input.
func aTerminal(t *testing.T, command *exec.Cmd) (screen *log, keys *os.File) {
	t.Helper()
	keys, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = keys.Close() })
	var number int
	control, err := keys.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	failed := control.Control(func(fd uintptr) {
		number, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		err = errors.Join(err, unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0), unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: 30, Col: 100}))
	})
	if err := errors.Join(err, failed); err != nil {
		t.Fatal(err)
	}
	far, err := os.OpenFile(fmt.Sprint("/dev/pts/", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	command.Stdin, command.Stdout, command.Stderr = far, far, far
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := errors.Join(command.Start(), far.Close()); err != nil {
		t.Fatal(err)
	}
	screen = newLog()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		text := make([]byte, 4096)
		for {
			n, err := keys.Read(text)
			_, _ = screen.Write(text[:n])
			if err != nil { // the read fails when the program has closed the terminal
				return
			}
		}
	}()
	t.Cleanup(func() { _ = command.Wait(); <-ended })
	return screen, keys
}

func press(t *testing.T, keys *os.File, typed string) {
	t.Helper()
	if _, err := keys.WriteString(typed); err != nil {
		t.Fatal(err)
	}
}

// manyParked returns a table with this number of parked messages.
func manyParked(t *testing.T, n int) (database string) {
	t.Helper()
	database = "sqlite:" + filepath.Join(t.TempDir(), "a.db")
	mustRun(t, "migrate", "up", "--database", database)
	mustCall(t, jsonLines("t", n, 7), "enqueue", "--database", database)
	parsed, err := config.ParseDatabase(database)
	if err != nil {
		t.Fatal(err)
	}
	db, _, err := openDatabase(t.Context(), parsed, pool{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	execute(t, db, "INSERT INTO outbox_held (id, lane, state, message_id, topic, message_key, priority, attempts, crashes, created_at) SELECT id, lane, 'error', message_id, topic, message_key, 0, 1, 0, created_at FROM outbox")
	execute(t, db, "DELETE FROM outbox")
	return database
}

// On a terminal, long work has a progress bar, and after Ctrl-C the command prints how far it got.
func TestInterruptedAtATerminal(t *testing.T) {
	t.Parallel()
	const all = 30
	database := manyParked(t, all)
	requeue := process(t, database, "messages", "requeue", "--all", "--rate", "2")
	screen, keys := aTerminal(t, requeue)
	screen.wait(t, `\[#+-+\] requeued \d+ of 30, `)
	press(t, keys, "\x03")
	done := screen.wait(t, `rowrelay: interrupted: (\d+) of 30 requeued; run the command again to continue`)
	var ended *exec.ExitError
	if err := requeue.Wait(); !errors.As(err, &ended) || ended.ExitCode() != exitInterrupted {
		t.Errorf("it ended with %v", err)
	}
	got := mustRun(t, "status", "--database", database, "--json").stdout
	var changed int
	if _, err := fmt.Sscan(done, &changed); err != nil || !strings.Contains(got, fmt.Sprintf(`"error": %d,`, all-changed)) {
		t.Errorf("%s were requeued, %v, and the status is %s", done, err, got)
	}
	if got := mustRun(t, "messages", "requeue", "--all", "--rate", "0", "--database", database).stdout; got != fmt.Sprintf("requeued %d\n", all-changed) {
		t.Errorf("then %s", got)
	}
}

// The question appears on the terminal, and Ctrl-C doesn't count as yes.
func TestQuestionAtATerminal(t *testing.T) {
	t.Parallel()
	database := manyParked(t, 3)
	for typed, want := range map[string]int{"n\r": exitFailed, "\x03": exitInterrupted} {
		discard := process(t, database, "messages", "discard", "--all")
		screen, keys := aTerminal(t, discard)
		screen.wait(t, `3 messages will be discarded: .* \[y/N\]`)
		press(t, keys, typed)
		screen.wait(t, "nothing was changed")
		var ended *exec.ExitError
		if err := discard.Wait(); !errors.As(err, &ended) || ended.ExitCode() != want {
			t.Errorf("%q: it ended with %v, want %d", typed, err, want)
		}
	}
	discard := process(t, database, "messages", "discard", "--all")
	screen, keys := aTerminal(t, discard)
	screen.wait(t, `\[y/N\]`)
	press(t, keys, "y\r")
	screen.wait(t, "discarded 3")
	if err := discard.Wait(); err != nil {
		t.Error(err)
	}
}

// status --watch redraws in place, and ends without an error after Ctrl-C.
func TestWatchAtATerminal(t *testing.T) {
	t.Parallel()
	watch := process(t, manyParked(t, 3), "status", "--watch", "--interval", "100ms")
	watch.Env = append(watch.Env, "TERM=xterm", "NO_COLOR=")
	screen, keys := aTerminal(t, watch)
	screen.wait(t, `(?s)\x1b\[2J\x1b\[H.*\x1b\[31merror\x1b\[0m +3.*\x1b\[J\x1b\[H.*error.*\x1b\[J`)
	press(t, keys, "\x03")
	if err := watch.Wait(); err != nil {
		t.Error(err)
	}
}
