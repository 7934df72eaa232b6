// Command testrun runs go test for one target of the Makefile, and prints each result immediately: a package's closing
// line when the package ends, and a failed test's output when the test fails. If go test prints nothing for half a
// minute, testrun prints the three tests that have been running longest. Each line begins with the target's name.
//
//	testrun NAME ARGUMENT…
//
// runs go test -json ARGUMENT… and exits with the status of go test. If the environment variable RESULTS names a
// folder, testrun writes the closing lines of the packages to the file ok-NAME and, if go test fails, to the file
// failed-NAME in that folder. failed-NAME also has the beginning and the end of each failed test's output.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

const quiet = 30 * time.Second

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: testrun NAME [ARGUMENT OF go test]…")
		os.Exit(2)
	}
	name, arguments := os.Args[1], os.Args[2:]
	// Ignore interrupts: go test receives them, too, and testrun must still read its last output.
	signal.Notify(make(chan os.Signal, 1), os.Interrupt, syscall.SIGTERM)
	command := exec.Command("go", append([]string{"test", "-json"}, arguments...)...)
	lines := make(chan string)
	reader, writer := io.Pipe()
	command.Stdout, command.Stderr = writer, writer
	if err := command.Start(); err != nil {
		fmt.Fprintf(os.Stderr, "testrun: start go test: %v\n", err)
		os.Exit(1)
	}
	go func() {
		_ = command.Wait()
		_ = writer.Close()
	}()
	go readLines(reader, lines)
	r := newReport(os.Stdout, name, slices.Contains(arguments, "-v"))
	for open, line := true, ""; open; {
		select {
		case line, open = <-lines:
			r.read(line)
		case <-time.After(quiet):
			r.printRunning(time.Now())
		}
	}
	status := command.ProcessState.ExitCode()
	if err := r.save(os.Getenv("RESULTS"), status); err != nil {
		fmt.Fprintf(os.Stderr, "testrun: %v\n", err)
		status = 1
	}
	os.Exit(status)
}

// readLines sends each line without its line end, and closes the channel after the last line.
func readLines(from io.Reader, to chan<- string) {
	buffered := bufio.NewReader(from)
	for {
		line, err := buffered.ReadString('\n')
		if line != "" {
			to <- strings.TrimSuffix(line, "\n")
		}
		if err != nil {
			close(to)
			return
		}
	}
}

// event is an event of go test -json; go doc test2json describes it.
type event struct{ Action, Package, Test, Output string }

// test identifies a test or, if the name is empty, the package's output outside tests.
type test struct{ folder, name string }

type report struct {
	out        io.Writer
	name       string
	all        bool // also print the output of passing tests
	output     map[test][]string
	running    map[test]time.Time // when each running test started
	passed     int
	ok, failed []string // the lines that save writes to the files ok-NAME and failed-NAME
}

func newReport(out io.Writer, name string, all bool) *report {
	return &report{out: out, name: name, all: all, output: map[test][]string{}, running: map[test]time.Time{}}
}

// print writes each line with a single call, so that concurrent output of other targets can't appear within a line.
func (r *report) print(lines ...string) {
	for _, line := range lines {
		fmt.Fprintf(r.out, "%s: %s\n", r.name, line)
	}
}

func (r *report) read(line string) {
	var e event
	if json.Unmarshal([]byte(line), &e) != nil {
		if line != "" {
			r.print(line) // a message of the go command itself, for example about a download
		}
		return
	}
	t := test{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		r.print(strings.TrimSuffix(e.Output, "\n"))
	case "output":
		r.addOutput(t, strings.TrimSuffix(e.Output, "\n"))
	case "run", "cont":
		r.running[t] = time.Now()
	case "pause":
		delete(r.running, t)
	case "pass", "skip", "fail":
		r.end(t, e.Action)
	}
}

func (r *report) addOutput(t test, line string) {
	isStep := t.name != "" && strings.HasPrefix(line, "=== ")
	switch {
	case r.all:
		r.print(line)
	case isStep:
		return
	}
	r.output[t] = append(r.output[t], line)
}

func (r *report) end(t test, action string) {
	delete(r.running, t)
	switch {
	case t.name == "":
		r.endPackage(t, action)
	case action == "fail":
		if !r.all {
			r.print(r.output[t]...)
		}
		r.failed = append(r.failed, shortened(r.output[t])...)
	case action == "pass":
		r.passed++
	}
	delete(r.output, t)
}

// endPackage prints the package's closing line. For a failed package it also prints all output that has not been printed,
// because the tests of a program that panics or times out never end.
func (r *report) endPackage(t test, action string) {
	lines := r.output[t]
	if action != "fail" {
		lines = prefixed(lines, "ok", "?")
		r.ok = append(r.ok, lines...)
	} else {
		for other, unfinished := range r.output {
			if other.folder == t.folder && other.name != "" {
				lines = append(unfinished, lines...)
				delete(r.output, other)
			}
		}
		crash := slices.IndexFunc(lines, func(line string) bool {
			return strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ")
		})
		if crash >= 0 {
			r.failed = append(r.failed, shortened(lines[crash:])...)
		} else {
			r.failed = append(r.failed, prefixed(lines, "FAIL\t")...)
		}
	}
	if !r.all {
		r.print(lines...)
	}
	for other := range r.running {
		if other.folder == t.folder {
			delete(r.running, other)
		}
	}
}

// shortened removes the lines that begin with ===, and the middle of long output.
func shortened(lines []string) []string {
	const first, last = 20, 5
	lines = slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return strings.HasPrefix(line, "=== ") })
	if len(lines) <= first+last+1 {
		return lines
	}
	return slices.Concat(lines[:first], []string{fmt.Sprintf("… %d lines …", len(lines)-first-last)}, lines[len(lines)-last:])
}

func prefixed(lines []string, prefixes ...string) (found []string) {
	for _, line := range lines {
		if slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(line, prefix) }) {
			found = append(found, line)
		}
	}
	return found
}

// printRunning prints the three tests that have been running longest.
func (r *report) printRunning(now time.Time) {
	var tests []test
	for t := range r.running {
		tests = append(tests, t)
	}
	slices.SortFunc(tests, func(a, b test) int {
		if order := r.running[a].Compare(r.running[b]); order != 0 {
			return order
		}
		return strings.Compare(a.name, b.name)
	})
	line := fmt.Sprintf("%d tests passed", r.passed)
	if len(tests) == 0 {
		line += ", no test is running: packages are being compiled"
	}
	for _, t := range tests[:min(3, len(tests))] {
		line += fmt.Sprintf(", %s has been running for %s", t.name, now.Sub(r.running[t]).Round(time.Second))
	}
	r.print(line)
}

// save writes the files ok-NAME and failed-NAME to the folder.
func (r *report) save(folder string, status int) error {
	if folder == "" {
		return nil
	}
	files := map[string][]string{"ok-": r.ok}
	if status != 0 {
		files["failed-"] = append([]string{r.name + ": go test ended with status " + fmt.Sprint(status)}, r.failed...)
	}
	for prefix, lines := range files {
		content := strings.Join(append(lines, ""), "\n")
		if err := os.WriteFile(filepath.Join(folder, prefix+r.name), []byte(content), 0o600); err != nil {
			return fmt.Errorf("save results: %w", err)
		}
	}
	return nil
}
