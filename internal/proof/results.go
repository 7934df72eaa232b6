package proof

import (
	"encoding/json"
	"errors"
	"os"
	"time"
)

// Result is the verdict on a history, with the history's header and the name of its file. Each line of results.jsonl is a Result.
type Result struct {
	Header
	Verdict
	File string `json:"file"`
}

// Append adds the result as a line to a file. Several processes may append to one file concurrently.
func (r Result) Append(path string) (err error) {
	r.Began = r.Began.UTC().Truncate(time.Second)
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	_, err = file.Write(append(line, '\n'))
	return err
}
