package postgres

import (
	"strconv"
	"strings"

	"github.com/rowrelay/rowrelay/relay/sqlstore/backend"
)

// args collects the arguments of a statement that is built. Arrays go as text, which
// every driver sends.
type args struct{ list []any }

// add returns the placeholder for a value, cast to the type.
func (a *args) add(value any, as string) string {
	a.list = append(a.list, value)
	return "$" + strconv.Itoa(len(a.list)) + "::" + as
}

func (a *args) int(value int) string { return a.add(int64(value), "bigint") }

func (a *args) text(value string) string { return a.add(value, "text") }

func (a *args) ids(values []int64) string { return a.add(idArray(values), "bigint[]") }

func (a *args) texts(values []string) string { return a.add(texts(values), "text[]") }

func (a *args) query(lines ...string) backend.Query {
	return backend.Query{SQL: strings.Join(lines, "\n"), Args: a.list}
}

// The text forms of arrays.

func array[T any](items []T, add func(text []byte, item *T) []byte) string {
	text := append(make([]byte, 0, 2+24*len(items)), '{')
	for i := range items {
		if i > 0 {
			text = append(text, ',')
		}
		text = add(text, &items[i])
	}
	return string(append(text, '}'))
}

func intArray[T any](items []T, of func(*T) int64) string {
	return array(items, func(text []byte, item *T) []byte { return strconv.AppendInt(text, of(item), 10) })
}

func boolArray[T any](items []T, of func(*T) bool) string {
	return array(items, func(text []byte, item *T) []byte { return strconv.AppendBool(text, of(item)) })
}

func textArray[T any](items []T, of func(*T) string) string {
	return array(items, func(text []byte, item *T) []byte { return appendQuoted(text, of(item)) })
}

func idArray(ids []int64) string { return intArray(ids, func(id *int64) int64 { return *id }) }

func laneArray(lanes []int) string {
	return intArray(lanes, func(lane *int) int64 { return int64(*lane) })
}

func texts(values []string) string {
	return textArray(values, func(value *string) string { return *value })
}

func appendQuoted(array []byte, text string) []byte {
	array = append(array, '"')
	for i := range len(text) {
		if text[i] == '"' || text[i] == '\\' {
			array = append(array, '\\')
		}
		array = append(array, text[i])
	}
	return append(array, '"')
}
