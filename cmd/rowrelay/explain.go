package main

import (
	"errors"
	"strings"

	"github.com/rowrelay/rowrelay/internal/config"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay"
)

// explain adds to an error about a table what to do about it.
func explain(source config.Source, err error) error {
	where := whereIs(source)
	switch {
	case err == nil || errors.As(err, new(*explainedError)):
		return err
	case errors.Is(err, relay.ErrNoSchema), refused(source, err, dialect.Dialect.Missing):
		return hinted(err, "run rowrelay migrate up"+where)
	case errors.Is(err, relay.ErrOtherClaim):
		return hinted(err, "tell this relay the same with --claim (claim: in a configuration), or stop all relays of the table first: rowrelay status"+where+" lists them")
	case refused(source, err, dialect.Dialect.Denied):
		return hinted(err, "grant the database's user what it lacks: rowrelay check"+where+" tells")
	}
	return err
}

// refused says whether the source's database gave this kind of error.
func refused(source config.Source, err error, is func(dialect.Dialect, error) bool) bool {
	d, unknown := dialect.ByName(source.Database.Kind())
	return unknown == nil && is(d, err)
}

// whereIs is the flags that name a source, without its password.
func whereIs(source config.Source) string {
	if source.Database.Kind() == "" {
		return "" // there are several
	}
	where := " --database " + shellQuote(source.Database.String())
	if source.Table != config.DefaultTable {
		where += " --table " + source.Table
	}
	return where
}

// explainedError is an error with what to do about it.
type explainedError struct {
	error
	hint string
}

func hinted(err error, hint string) error {
	if hint == "" {
		return err
	}
	return &explainedError{err, hint}
}

func (e *explainedError) Error() string { return e.error.Error() + "\n  " + e.hint }
func (e *explainedError) Unwrap() error { return e.error }

// shellQuote makes a word that a shell takes as it is.
func shellQuote(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:@%+=,", r)
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
