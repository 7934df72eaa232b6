package dialect

// insertColumns are the columns that a producer fills, in the order of
// rowArguments. All others have defaults.
const insertColumns = "(message_id, topic, message_key, payload, headers, available_at, priority)"

const insertColumnCount = 7

// chunks cuts rows so that no part has more rows than the limit, or more than
// maxBytes of payload unless it is a single row.
func chunks(rows []Row, limit, maxBytes int) [][]Row {
	var parts [][]Row
	for len(rows) > 0 {
		n := chunkLength(rows, limit, maxBytes)
		parts = append(parts, rows[:n])
		rows = rows[n:]
	}
	return parts
}

func chunkLength(rows []Row, limit, maxBytes int) int {
	bytes := 0
	for i, row := range rows {
		bytes += len(row.Payload)
		if i > 0 && (i == limit || bytes > maxBytes) {
			return i
		}
	}
	return len(rows)
}

// nullable is the text, or NULL if it is empty.
func nullable(text string) any {
	if text == "" {
		return nil
	}
	return text
}

// nullableBytes keeps an empty payload apart from none: some drivers send a
// typed nil slice as an empty value.
func nullableBytes(bytes []byte) any {
	if bytes == nil {
		return nil
	}
	return bytes
}
