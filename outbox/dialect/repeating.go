package dialect

// Repeating is implemented by a dialect of a database that commits each
// statement which makes or drops something: of a migration that failed, what came
// before stays, and it is run again from its beginning.
type Repeating interface {
	// Made says that a statement failed because what it makes is there already;
	// Gone, that it failed because what it drops isn't there.
	Made(err error) bool
	Gone(err error) bool
}
