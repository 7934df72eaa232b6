package bind

import "strconv"

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
