package plugins_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rowrelay/rowrelay/sinks"
	"github.com/rowrelay/rowrelay/sinks/settings"
)

// scripted is the sink of a plug-in that does what a message's payload says.
type scripted struct{ secret string }

func scriptedKind() sinks.Kind {
	return sinks.Kind{
		Name: "scripted", Summary: "Does what messages say.",
		Fields: []settings.Field{{Name: "secret", Type: settings.TypeSecret, Help: "What it gives away."}},
		New: func(s settings.Values) (sinks.Sink, error) {
			return scripted{s.Secret("secret").Reveal()}, nil
		},
	}
}

func (s scripted) Open(context.Context) error  { return nil }
func (s scripted) Close(context.Context) error { return nil }
func (s scripted) Order() sinks.Order          { return sinks.OrderPrefix }

// Send ignores the order of keys, unlike a correct sink.
func (s scripted) Send(ctx context.Context, batch []sinks.Message) (outcomes []sinks.Outcome) {
	for _, m := range batch {
		if ctx.Err() != nil {
			outcomes = append(outcomes, sinks.Fail(sinks.Unsent, sinks.ReasonCancelled, ""))
			continue
		}
		outcomes = append(outcomes, s.obey(ctx, string(m.Payload)))
	}
	return outcomes
}

func (s scripted) obey(ctx context.Context, order string) sinks.Outcome {
	switch verb, rest, _ := strings.Cut(order, " "); verb {
	case "die":
		os.Exit(7)
	case "panic":
		panic("as told, with " + s.secret)
	case "crash":
		go panic("where nobody recovers")
		<-ctx.Done()
	case "stop": // like a debugger
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		<-ctx.Done() // a stopped process's other threads may run a little longer
	case "eat":
		eat()
	case "wait":
		<-ctx.Done()
		return sinks.Fail(sinks.Unsent, sinks.ReasonCancelled, "")
	case "postpone":
		return sinks.Postpone(sinks.Reason(rest), "its part is in trouble", 1500*time.Millisecond)
	case "env":
		return sinks.Ok(strings.Join(names(os.Environ()), " "))
	case "exe":
		path, _ := os.Executable()
		return sinks.Ok(path)
	case "fork":
		return fork(rest)
	case "log":
		slog.Warn("as told", "secret", s.secret)
		fmt.Println("printed", s.secret)
		fmt.Fprintln(os.Stderr, strings.Repeat("long ", 1<<18))
	}
	return sinks.Ok(order)
}

// fork starts a program that the plug-in doesn't end. The program has the plug-in's
// standard input, output and error and, if how is "away", its own session.
func fork(how string) sinks.Outcome {
	sleep := exec.Command("sleep", "1000")
	sleep.Stdout, sleep.Stderr = os.Stdout, os.Stderr
	sleep.SysProcAttr = &syscall.SysProcAttr{Setsid: how == "away"}
	if err := sleep.Start(); err != nil {
		return sinks.Fail(sinks.Reject, sinks.ReasonRefused, err.Error())
	}
	return sinks.Ok(fmt.Sprint(sleep.Process.Pid))
}

// eat uses 400 MiB until the process is killed.
func eat() {
	food := bytes.Repeat([]byte{1}, 400<<20)
	linger()
	fmt.Println(len(food))
}

func names(environment []string) (names []string) {
	for _, variable := range environment {
		name, _, _ := strings.Cut(variable, "=")
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// limited is the sink of a plug-in with small limits. Each receipt is the size of
// the message's batch.
type limited struct{ sinks.Sink }

func (limited) Limits() sinks.Limits { return sinks.Limits{Messages: 3, Bytes: 100, Workers: 1} }

func (limited) Send(_ context.Context, batch []sinks.Message) []sinks.Outcome {
	return sinks.All(len(batch), sinks.Ok(fmt.Sprint(len(batch))))
}

// deduplicating is the sink of a plug-in that would need references to batches,
// which the protocol doesn't carry.
type deduplicating struct{ scripted }

func (deduplicating) Plan(_ context.Context, batch []sinks.Message) ([]sinks.BatchRef, []sinks.Outcome) {
	return make([]sinks.BatchRef, len(batch)), make([]sinks.Outcome, len(batch))
}

// spoiling is the sink of a plug-in that returns the text of each message and then
// changes everything in the message that can be changed.
type spoiling struct{ scripted }

func (spoiling) Send(_ context.Context, batch []sinks.Message) (outcomes []sinks.Outcome) {
	for i := range batch {
		m := &batch[i]
		outcomes = append(outcomes, sinks.Ok(seen(*m)))
		for j := range m.Payload {
			m.Payload[j] = '#'
		}
		_ = append(m.Payload, strings.Repeat("#", 1000)...)
		for name := range m.Headers {
			m.Headers[name] = "#"
		}
		m.Headers["#"] = "#"
	}
	return outcomes
}

func seen(m sinks.Message) string {
	return fmt.Sprintf("%s %s %s %s %v %d", m.ID, m.Topic, m.Key, m.Payload, m.Headers, m.Sequence)
}
