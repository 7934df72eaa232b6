package relay

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
)

// isGone returns true only for a process that ran on this host since the last boot, and has ended.
func TestIsGoneDetectsEndedProcesses(t *testing.T) {
	t.Parallel()
	this := thisProcess()
	if runtime.GOOS != "linux" {
		t.Skip("this test reads /proc, which only Linux has")
	}
	child := exec.Command("true")
	if err := child.Run(); err != nil {
		t.Fatal(err)
	}
	named := func(change func(*process)) string {
		p := this
		change(&p)
		return p.name()
	}
	waiting := exec.Command("cat")
	in, err := waiting.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := waiting.Start(); err != nil {
		t.Fatal(err)
	}
	alive := named(func(p *process) { p.pid, p.began = waiting.Process.Pid, beginning(waiting.Process.Pid) })
	for name, test := range map[string]struct {
		relay string
		want  bool
	}{
		"itself":                               {named(func(*process) {}), false},
		"another process that is alive":        {alive, false},
		"a process that has ended":             {named(func(p *process) { p.pid = child.Process.Pid }), true},
		"its process id is reused":             {named(func(p *process) { p.began = "1" }), true},
		"before the boot, elsewhere":           {named(func(p *process) { p.pid, p.space = child.Process.Pid, "00000000" }), false},
		"on another host":                      {named(func(p *process) { p.pid, p.host = child.Process.Pid, p.host+"-2" }), false},
		"a system without process information": {named(func(p *process) { p.pid, p.space = child.Process.Pid, "" }), false},
		"an operator's name":                   {"shop", false},
		"an operator's name of the same form":  {strings.Join([]string{this.host, "x", "1", this.space, "ab"}, "-"), false},
		"no process":                           {fmt.Sprintf("%s-0-1-%s-ab", this.host, this.space), false},
	} {
		if got := this.isGone(test.relay); got != test.want {
			t.Errorf("%s: the process of %q is gone: %v, want %v", name, test.relay, got, test.want)
		}
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	state, err := waiting.Process.Wait()
	if err != nil || !state.Success() {
		t.Fatal(state, err)
	}
	if !this.isGone(alive) {
		t.Error("a process that has ended is reported as alive")
	}
	if beginning(os.Getpid()) == "" {
		t.Error("the start time of this process is unknown")
	}
}
