package dialect

// ManyClaims is implemented by a dialect whose database is faster with several
// claims of one relay under way. MySQL and MariaDB were slower: a claim passes over
// what another has locked, one row after the other.
type ManyClaims interface {
	// ClaimsAtOnce is how many.
	ClaimsAtOnce() int
}

// ClaimsAtOnce implements [ManyClaims].
func (postgres) ClaimsAtOnce() int { return 2 }

// ClaimsAtOnce is what is right for a database that aborts who meets another.
func (kin) ClaimsAtOnce() int { return 1 }
