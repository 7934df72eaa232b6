package proof

import (
	"encoding/json"
	"errors"
	"os"
	"time"
)

// Result is the verdict on a history with what names it: a line of results.jsonl.
type Result struct {
	Header
	Verdict
	File string `json:"file"`
}

// Append adds the result to a file of such lines. The file may be shared by processes.
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
