package dialect

import "fmt"

// Setting is a setting of a database session that affects relays.
type Setting struct {
	Name string // the setting's name on the server

	// The rowrelay command sets the setting to Value, an SQL literal, on each of its connections. Why explains
	// this. A Writer, and a store that uses an application's pool, don't change any settings.
	Value, Why string

	// Refused describes the values with which a store refuses to open. If it is empty, the store accepts any value.
	Refused string

	Only string // the name of the only dialect whose servers have the setting; empty if all servers have it

	unfit        func(value string) bool // reports whether the value is refused; nil if the value isn't checked here
	wrong, right string                  // the effect of a refused value; the value to set instead
}

// Settings returns all settings of a dialect, or nil for a dialect without settings. MySQL and MariaDB share one list.
func Settings(d Dialect) []Setting {
	if of, ok := d.(interface{ settings() []Setting }); ok {
		return of.settings()
	}
	return nil
}

// fits returns an error if a setting of the session has a refused value. It ignores settings that the map doesn't
// contain.
func fits(settings []Setting, values map[string]string) error {
	for _, s := range settings {
		if value := values[s.Name]; value != "" && s.unfit != nil && s.unfit(value) {
			return fmt.Errorf("%s of this session is %s: %s; set it to %s, in the URL or in the server", s.Name, value, s.wrong, s.right)
		}
	}
	return nil
}
