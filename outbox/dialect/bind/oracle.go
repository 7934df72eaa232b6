package bind

import (
	"strconv"
	"unicode/utf8"
)

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
