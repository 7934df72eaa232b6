package storage

// Finding is one result of a check of a store and its server.
type Finding struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail,omitempty"` // what was found
	Hint   string `json:"hint,omitempty"`   // what to do, if it isn't OK
}

// String is the finding as a line of a log.
func (f Finding) String() string {
	if f.Hint == "" {
		return f.Name + ": " + f.Detail
	}
	return f.Name + ": " + f.Detail + "; " + f.Hint
}
