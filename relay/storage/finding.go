package storage

// Finding is one result of a check of a store and its server.
type Finding struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail,omitempty"` // what was found
	Hint   string `json:"hint,omitempty"`   // how to fix it, if OK is false
}

// String returns the finding as one line of text.
func (f Finding) String() string {
	if f.Hint == "" {
		return f.Name + ": " + f.Detail
	}
	return f.Name + ": " + f.Detail + "; " + f.Hint
}
