package dialect

import "fmt"

// Setting is a setting of a database's sessions on which a relay depends.
type Setting struct {
	Name string // as the server calls it

	// Value is what the rowrelay command sets on each of its connections, as the server's language has it, and Why
	// the reason. A Writer, and a store on an application's pool, set nothing.
	Value, Why string

	// Refused are the values with which a store doesn't open. Empty: it opens with any.
	Refused string

	Only string // the dialect whose servers have the setting; empty: all servers have it

	unfit        func(value string) bool // nil: the backend tries what the session does
	wrong, right string                  // what happens with an unfit value, and what to set instead
}

// Settings are all of a dialect's settings; those of MySQL and of MariaDB are one list. It is empty where none is known.
func Settings(d Dialect) []Setting {
	if of, ok := d.(interface{ settings() []Setting }); ok {
		return of.settings()
	}
	return nil
}

// fits refuses a session by the values of its settings. One that isn't known is passed over.
func fits(settings []Setting, values map[string]string) error {
	for _, s := range settings {
		if value := values[s.Name]; value != "" && s.unfit != nil && s.unfit(value) {
			return fmt.Errorf("%s of this session is %s, with which %s: set it to %s, in the URL or in the server", s.Name, value, s.wrong, s.right)
		}
	}
	return nil
}
