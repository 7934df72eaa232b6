package dialect

// Fitting is implemented by a dialect whose servers differ in what they can do.
// Whoever opens a table asks the server, and goes on with the variant that fits.
type Fitting interface {
	// Server selects what there is to know of the server: lines of a name, in
	// lower case, and a value. It needs no table and no right.
	Server() Query

	// Skipping is the trial that shows whether a select passes over rows that
	// another transaction has locked, without waiting. Nil: there is no need to
	// try.
	Skipping(table Table) *Trial

	// Fit returns the variant for a server that has answered so. It fails if
	// there is none; the error names the server's version, and what is needed.
	Fit(server Server) (Fit, error)
}

// Trial is made with two transactions: Hold runs in the one, and while that is
// open Pass runs in the other. Neither changes anything. Both select one column.
type Trial struct {
	// Begin comes first in both transactions: it bounds their wait for a lock to about a
	// second, so that a server which waits says so, and a slow one doesn't seem to. End
	// comes last, where the bound is the session's.
	Begin, End []Query

	Hold Query  // locks one row
	Pass Query  // selects that row, and another one, but those that are locked
	Want string // what Pass then selects, as text: the other row alone
}

// Server is what a server has answered.
type Server struct {
	Facts map[string]string // by name, as [Fitting.Server] selects them
	Skips bool              // the trial went well; true if there was none
}

// Fit is a dialect that fits a server.
type Fit struct {
	Dialect Dialect

	// Unordered says that ids aren't given out in one order for all who write,
	// as several servers do so at a time: rows may appear below others as long
	// as the longest transaction lasts, and no observation tells when.
	Unordered bool

	// Notes are what an operator should know: for a check, and for the log.
	Notes []Note
}

// Note is one thing to know about a server.
type Note struct {
	Name   string // of one or two words
	OK     bool
	Detail string // what was found
	Hint   string // what to do, if it isn't OK
}

// RowsOnly is implemented by a dialect whose tables can't be claimed by lanes.
type RowsOnly interface {
	// NoLanes says why, as part of an error.
	NoLanes() string
}
