// Command judge judges histories with the two programs of package proof, one written in Go and one in
// Python, and compares their verdicts.
//
//	judge [-results FILE] FOLDER|FILE…
//
// The command prints a line for each history, and fails if the programs disagree, or if a history
// breaks what docs/semantics.md promises. If the command succeeds and -results is given, it also
// appends the results to a file.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"

	"github.com/rowrelay/rowrelay/internal/proof"
)

func main() {
	results := flag.String("results", "", "the file to which the results are appended")
	flag.Parse()
	if err := run(context.Background(), flag.Args(), *results); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, arguments []string, results string) error {
	files, err := historiesIn(arguments)
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return errors.New("judge: no history was found: pass files, or folders that contain files *.jsonl.gz")
	}
	var judged []proof.Result
	var problems []error
	for _, file := range files {
		result, err := judge(ctx, file)
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", file, err))
			continue
		}
		judged = append(judged, result)
		fmt.Printf("%s: both agree: %d messages, %d lost, %d reordered, %d uncommitted, %d duplicates, %d of them outside all windows, %d fenced, %d owned\n",
			filepath.Base(file), result.Messages, result.Lost, result.Reordered, result.Uncommitted, result.Duplicates, result.Outside, result.Fenced, result.Owned)
		if !result.Holds() {
			problems = append(problems, fmt.Errorf("%s: the history breaks what docs/semantics.md promises", file))
		}
	}
	if len(problems) > 0 || results == "" {
		return errors.Join(problems...)
	}
	for _, result := range judged {
		if err := result.Append(results); err != nil {
			return err
		}
	}
	return nil
}

// judge returns the verdict on which both programs agree.
func judge(ctx context.Context, file string) (proof.Result, error) {
	h, err := proof.Read(file)
	if err != nil {
		return proof.Result{}, err
	}
	inGo, err := proof.Check(h)
	if err != nil {
		return proof.Result{}, err
	}
	inPython, err := proof.CheckInPython(ctx, []string{file})
	if err != nil {
		return proof.Result{}, err
	}
	if !reflect.DeepEqual(inGo, inPython[0]) {
		return proof.Result{}, fmt.Errorf("the programs disagree:\n  in Go:     %+v\n  in Python: %+v", inGo, inPython[0])
	}
	return proof.Result{Header: h.Header, Verdict: inGo, File: filepath.Base(file)}, nil
}

// historiesIn returns the paths of the given files, and of the histories in the given folders.
func historiesIn(arguments []string) (files []string, err error) {
	for _, argument := range arguments {
		info, err := os.Stat(argument)
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			files = append(files, argument)
			continue
		}
		found, err := filepath.Glob(filepath.Join(argument, "*.jsonl.gz"))
		if err != nil {
			return nil, err
		}
		files = append(files, found...)
	}
	return files, nil
}
