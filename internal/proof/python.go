package proof

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
)

//go:embed judge.py
var judge string

// CheckInPython judges the histories in these files with judge.py, which needs Python 3.9 or
// later.
func CheckInPython(ctx context.Context, files []string) ([]Verdict, error) {
	command := exec.CommandContext(ctx, "python3", append([]string{"-"}, files...)...)
	var problem bytes.Buffer
	command.Stdin, command.Stderr = strings.NewReader(judge), &problem
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("run judge.py: %w: %s", err, bytes.TrimSpace(problem.Bytes()))
	}
	var all []Verdict
	for line := range bytes.Lines(out) {
		var v Verdict
		if err := json.Unmarshal(line, &v); err != nil {
			return nil, fmt.Errorf("read what judge.py has printed: %w: %s", err, line)
		}
		all = append(all, v)
	}
	if len(all) != len(files) {
		return nil, fmt.Errorf("judge.py printed %d verdicts for %d files", len(all), len(files))
	}
	return all, nil
}
