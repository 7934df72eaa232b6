package figure

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"slices"
)

// Record is a file of figures. A new figure replaces the figure with the same Row and
// What.
type Record struct{ Path string }

// Put adds figures to the file.
func (r Record) Put(figures ...Figure) error {
	all, err := r.All()
	if err != nil {
		return err
	}
	for _, f := range figures {
		same := func(other Figure) bool { return other.Row == f.Row && other.What == f.What }
		if at := slices.IndexFunc(all, same); at >= 0 {
			all[at] = f
		} else {
			all = append(all, f)
		}
	}
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(r.Path, append(text, '\n'), 0o644)
}

// All returns the figures of the file, or no figures if the file doesn't exist.
func (r Record) All() (all []Figure, err error) {
	text, err := os.ReadFile(r.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return all, json.Unmarshal(text, &all)
}
