package dialect

import (
	"strconv"
	"strings"
)

// itemsOf is a column of the rows as an array.
func itemsOf(rows []Row, column insertColumn) string {
	text := arrayFor(rows)
	for i := range rows {
		text = append(appendItem(text, column.value(rows[i])), ',')
	}
	return closed(text)
}

// arrayFor is the beginning of an array's text, with room for most.
func arrayFor(rows []Row) []byte { return append(make([]byte, 0, 2+24*len(rows)), '{') }

func closed(text []byte) string {
	text[len(text)-1] = '}' // in place of the last comma
	return string(text)
}

// arrayOf is PostgreSQL's text form of an array.
func arrayOf[T any](items []T, form func(T) string) string {
	var text strings.Builder
	separator := byte('{')
	for _, item := range items {
		text.WriteByte(separator)
		text.WriteString(form(item))
		separator = ','
	}
	text.WriteByte('}')
	return text.String()
}

func quotedItem(text string) string { return string(appendQuoted(nil, text)) }

// appendItem adds a column's value, as it stands in an array.
func appendItem(array []byte, value any) []byte {
	switch value := value.(type) {
	case string:
		return appendQuoted(array, value)
	case int64:
		return strconv.AppendInt(array, value, 10)
	}
	return append(array, "NULL"...)
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
