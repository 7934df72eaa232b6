package config

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/rowrelay/rowrelay/sinks/settings"
)

// command gets a secret, such as a token that expires, from a program that prints the secret. It keeps the last secret. When a caller
// requests the secret and its age exceeds 80 % of `cache`, command runs the program again in the background. The methods may be called
// concurrently.
type command struct {
	argv    []string      // the program and its arguments, which may contain secrets
	timeout time.Duration // after this time the program is killed
	cache   time.Duration // the age up to which a secret is used without waiting for another run
	run     func(ctx context.Context, argv []string) (stdout, stderr []byte, err error)

	mu      sync.Mutex
	secret  string
	at      time.Time     // when the run that printed the secret began; zero: no run has succeeded
	began   time.Time     // when the last run began
	err     error         // the error of the last run
	running chan struct{} // closed when the current run has ended; nil if none is running
}

const (
	defaultCommandTimeout = 10 * time.Second
	defaultCommandCache   = 10 * time.Minute

	// commandPause is the minimum time between the starts of two runs after a failure, or if destinations refuse the secret.
	commandPause = 5 * time.Second
)

// urgency is how current the secret of a command has to be.
type urgency int

const (
	lastKnown urgency = iota // any secret will do: wait only for the first run
	inTime                   // wait for a run if the secret is older than `cache`, unless the last run failed
	refused                  // a destination has refused the secret: wait for another run
)

// text returns the secret. If the last run has failed, text returns the previous secret together with the error. The secret is empty
// only if no run has ever succeeded. The context limits only the wait.
func (c *command) text(ctx context.Context, how urgency) (string, error) {
	c.mu.Lock()
	age, again := time.Since(c.at), time.Since(c.began) > commandPause
	due := c.at.IsZero() || age > c.cache*8/10 || how == refused
	if due && c.running == nil && (c.began.IsZero() || c.err == nil && how != refused || again) {
		c.began, c.running = time.Now(), make(chan struct{})
		go c.renew(context.WithoutCancel(ctx), c.began, c.running)
	}
	wait := c.running
	if !c.at.IsZero() && how != refused && (how == lastKnown || age <= c.cache || c.err != nil) {
		wait = nil
	}
	c.mu.Unlock()
	if wait != nil {
		select {
		case <-wait:
		case <-ctx.Done():
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at.IsZero() && c.err == nil {
		return "", errors.New("the command " + c.name() + " was interrupted")
	}
	return c.secret, c.err
}

// renew runs the program, and then closes the channel `done`.
func (c *command) renew(ctx context.Context, began time.Time, done chan struct{}) {
	limited, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	stdout, stderr, err := c.run(limited, c.argv)
	secret := strings.TrimSuffix(strings.TrimSuffix(string(stdout), "\n"), "\r")
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case limited.Err() != nil:
		err = fmt.Errorf("the command %s hasn't ended within its timeout of %v", c.name(), c.timeout)
	case err != nil:
		err = fmt.Errorf("the command %s failed: %w%s", c.name(), err, c.complaint(stdout, stderr))
	case secret == "":
		err = fmt.Errorf("the command %s printed nothing", c.name())
	case len(stdout) > maxSecret:
		err = fmt.Errorf("the command %s printed more than %d bytes", c.name(), maxSecret)
	default:
		c.secret, c.at = secret, began
	}
	c.err, c.running = err, nil
	close(done)
}

// name returns the program's name. The arguments are left out, because they may contain secrets.
func (c *command) name() string { return filepath.Base(c.argv[0]) }

// complaint returns the first line of a failed program's standard error. The line is left out if the program has printed
// something to its standard output, because then the line may repeat a part of a secret. The last secret and the
// program's arguments of at least shortestToken bytes are removed from the line.
func (c *command) complaint(stdout, stderr []byte) string {
	line, _, _ := bytes.Cut(bytes.TrimSpace(stderr), []byte("\n"))
	if len(line) == 0 || len(bytes.TrimSpace(stdout)) > 0 {
		return ""
	}
	known := []settings.Secret{settings.Secret(c.secret)}
	for _, argument := range c.argv[1:] {
		if len(argument) >= shortestToken {
			known = append(known, settings.Secret(argument))
		}
	}
	return ": " + settings.NewRedactor(known...).Present(string(line), 200)
}

// execute runs a program with the daemon's environment and without input. When the context ends, it kills the program and the
// processes that the program has started.
func execute(ctx context.Context, argv []string) (stdout, stderr []byte, err error) {
	command := exec.CommandContext(ctx, argv[0], argv[1:]...)
	out, complaints := &limitedBuffer{most: maxSecret + 1}, &limitedBuffer{most: 4096}
	command.Stdout, command.Stderr = out, complaints
	command.WaitDelay = time.Second // a process that has left the group may keep the output open
	killable(command)
	err = command.Run()
	return out.Bytes(), complaints.Bytes(), err
}

// limitedBuffer keeps the beginning of what is written to it.
type limitedBuffer struct {
	bytes.Buffer
	most int
}

func (b *limitedBuffer) Write(text []byte) (int, error) {
	_, _ = b.Buffer.Write(text[:min(len(text), b.most-b.Len())]) // never fails
	return len(text), nil
}

// commands has the commands of a configuration. Settings with the same command share its runs.
type commands struct {
	run func(ctx context.Context, argv []string) (stdout, stderr []byte, err error)

	mu    sync.Mutex
	known map[string]*command
}

func newCommands() *commands { return &commands{run: execute, known: map[string]*command{}} }

// of returns the command with these settings.
func (c *commands) of(s commandSettings) *command {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := fmt.Sprintf("%q", s)
	if c.known[key] == nil {
		c.known[key] = &command{
			argv: s.Command, timeout: cmp.Or(s.Timeout, defaultCommandTimeout), cache: cmp.Or(s.Cache, defaultCommandCache), run: c.run,
		}
	}
	return c.known[key]
}

// commandSettings are the settings of a command.
type commandSettings struct {
	Command        []string
	Timeout, Cache time.Duration
}

func commandFields() []field[commandSettings] {
	return []field[commandSettings]{
		{name: "command", set: func(r *reader, s *commandSettings, n *node) { s.Command = r.argv(n) }},
		value("timeout", duration("100ms", "5m"), func(s *commandSettings) *time.Duration { return &s.Timeout }),
		value("cache", duration("1s", "24h"), func(s *commandSettings) *time.Duration { return &s.Cache }),
	}
}

// commandOf reads the value of a ..._command setting: a list of the program and its arguments, or a mapping with such a list.
func (r *reader) commandOf(n *node) (s commandSettings, ok bool) {
	if n.kind == isMapping {
		before := len(r.problems.List)
		fill(r, n, commandFields(), &s)
		if n.get("command") == nil {
			r.fail(n, "needs a command: a list of the program and its arguments")
		}
		return s, len(r.problems.List) == before
	}
	s.Command = r.argv(n)
	return s, !n.broken && !anyBroken(n)
}

func (r *reader) argv(n *node) (argv []string) {
	if n.kind != isList || len(n.items) == 0 {
		r.fail(n, "needs a list of the program and its arguments, such as [vault, read, -field=password, database/creds/relay]")
		return nil
	}
	for i, item := range n.items {
		text, _ := r.scalar(item)
		if i == 0 && text == "" {
			r.fail(item, "is empty: it must be the name or the path of a program")
		}
		argv = append(argv, text)
	}
	return argv
}
