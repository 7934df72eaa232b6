// Package bind puts values into a statement's arguments where a plain placeholder isn't
// enough: above all lists, each of which is one parameter. Dialects and the relay's store
// share it.
package bind

import (
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Nullable is the text, or NULL if it is empty.
func Nullable(text string) any {
	if text == "" {
		return nil
	}
	return text
}

// PostgresArray is the text form of an array, which every driver sends. Values are of int,
// int64, bool or string; any other one, nil among them, is NULL.
func PostgresArray[T any](values []T) string {
	text := append(make([]byte, 0, 2+24*len(values)), '{')
	for i, value := range values {
		if i > 0 {
			text = append(text, ',')
		}
		switch value := any(value).(type) {
		case int:
			text = strconv.AppendInt(text, int64(value), 10)
		case int64:
			text = strconv.AppendInt(text, value, 10)
		case bool:
			text = strconv.AppendBool(text, value)
		case string:
			text = append(text, '"')
			for j := range len(value) {
				if value[j] == '"' || value[j] == '\\' {
					text = append(text, '\\')
				}
				text = append(text, value[j])
			}
			text = append(text, '"')
		default:
			text = append(text, "NULL"...)
		}
	}
	return string(append(text, '}'))
}

// JSON is a list as text; never null. The items are numbers, texts, flags, or lists of them.
func JSON[T any](items []T) string {
	if len(items) == 0 {
		return "[]"
	}
	text, err := json.Marshal(items)
	if err != nil {
		panic(err) // such items always have a form
	}
	return string(text)
}

// SQLServerList is JSON for OPENJSON: there may be no more than 2,100 parameters. Blanks at
// its end see to it that a list has one of two types: the server keeps a plan for each type
// of a parameter, and the driver declares nvarchar of just the length that a text has, up
// to 4,000.
func SQLServerList[T any](items []T) string {
	text := JSON(items)
	units := 0 // of UTF-16
	for _, r := range text {
		units++
		if r > 0xFFFF {
			units++
		}
	}
	switch {
	case len(items) == 0 || units > 4000:
		return text
	case units <= 500:
		return text + strings.Repeat(" ", 500-units)
	default:
		return text + strings.Repeat(" ", 4001-units)
	}
}

// OracleMaxText is how many bytes of text a parameter has at most: a driver sends a longer
// one as a LONG, which is good for nothing but a column.
const OracleMaxText = 4000

// Oracle collects a statement's arguments. Drivers bind them by their place in the text, so
// that each is added where it stands, and stands once.
type Oracle struct{ Args []any }

// Add returns the placeholder for a value.
func (o *Oracle) Add(value any) string {
	o.Args = append(o.Args, value)
	return ":" + strconv.Itoa(len(o.Args))
}

// OracleGiven is a FROM item: a list as rows of the columns, as JSON_TABLE has them. It goes
// as JSON in texts that each are short enough to be a VARCHAR2; how many they are is a power
// of two, so that there are few statements.
func OracleGiven[T any](o *Oracle, alias string, items []T, columns string) string {
	var parts []string
	for text := JSON(items); text != "" || len(parts)&(len(parts)-1) != 0; {
		part := OracleCut(text)
		parts, text = append(parts, part), text[len(part):]
	}
	source := o.Add(parts[0])
	if len(parts) > 1 {
		source = "TO_CLOB(" + source + ")"
	}
	for _, part := range parts[1:] {
		source += " || TO_CLOB(" + o.Add(part) + ")"
	}
	return "JSON_TABLE(" + source + ", '$[*]' COLUMNS (" + columns + ")) " + alias
}

// OracleCut is the beginning of a text that a parameter has room for.
func OracleCut(text string) string {
	if len(text) <= OracleMaxText {
		return text
	}
	end := OracleMaxText
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}
