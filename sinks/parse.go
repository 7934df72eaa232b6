package sinks

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"time"
)

// parsers read a value as a configuration file, a URL or Go code holds it. No
// error of theirs shows a value that could be a secret in the wrong place.
var parsers = map[FieldType]func(raw any) (any, error){
	TypeString:    parseString,
	TypeInt:       parseInt,
	TypeBool:      parseBool,
	TypeDuration:  parseDuration,
	TypeSize:      parseSize,
	TypeList:      parseList,
	TypeMap:       parseMap,
	TypeSecret:    parseSecret,
	TypeSecretMap: parseSecretMap,
}

var zeroes = map[FieldType]any{
	TypeString:    "",
	TypeInt:       int(0),
	TypeBool:      false,
	TypeDuration:  time.Duration(0),
	TypeSize:      int64(0),
	TypeList:      []string(nil),
	TypeMap:       map[string]string(nil),
	TypeSecret:    Secret(""),
	TypeSecretMap: map[string]Secret(nil),
}

// magnitude is the number to compare with limits.
func magnitude(value any) (int64, bool) {
	switch v := value.(type) {
	case int:
		return int64(v), true
	case int64:
		return v, true
	case time.Duration:
		return int64(v), true
	}
	return 0, false
}

func parseString(raw any) (any, error) {
	if text, ok := raw.(string); ok {
		return text, nil
	}
	return nil, notText(raw)
}

func parseSecret(raw any) (any, error) {
	switch v := raw.(type) {
	case Secret:
		return v, nil
	case string:
		if v == "" {
			return nil, errors.New("is empty; leave it out where there is none")
		}
		return Secret(v), nil
	}
	return nil, notText(raw)
}

func parseInt(raw any) (any, error) {
	n, err := strconv.ParseInt(wholeNumber(raw), 10, strconv.IntSize)
	if err != nil {
		return nil, fmt.Errorf("must be a whole number, not %s", described(raw))
	}
	return int(n), nil
}

// wholeNumber writes a number of any Go type as decimal digits, and anything
// else as what isn't one.
func wholeNumber(raw any) string {
	switch v := raw.(type) {
	case string:
		return v
	case int, int8, int16, int32, int64, uint, uint8, uint16, uint32, uint64:
		return fmt.Sprint(v)
	case float64: // what a JSON decoder makes of every number
		if v == math.Trunc(v) {
			return strconv.FormatFloat(v, 'f', -1, 64)
		}
	}
	return ""
}

func parseBool(raw any) (any, error) {
	switch raw {
	case true, "true":
		return true, nil
	case false, "false":
		return false, nil
	}
	return nil, fmt.Errorf("must be true or false, not %s", described(raw))
}

func parseDuration(raw any) (any, error) {
	if d, ok := raw.(time.Duration); ok {
		return d, nil
	}
	text, _ := raw.(string)
	d, err := time.ParseDuration(text)
	if err != nil {
		return nil, fmt.Errorf("must be a number with a unit, such as 250ms or 10s, not %s", described(raw))
	}
	return d, nil
}

var sizeText = regexp.MustCompile(`^([0-9]+) ?(B|kB|KB|MB|GB|KiB|MiB|GiB)?$`)

var sizeUnits = map[string]int64{
	"": 1, "B": 1,
	"kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9,
	"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30,
}

func parseSize(raw any) (any, error) {
	parts := sizeText.FindStringSubmatch(wholeNumber(raw))
	if parts == nil {
		return nil, fmt.Errorf("must be a number of bytes, such as 4096, 64KiB or 1MiB, not %s", described(raw))
	}
	n, err := strconv.ParseInt(parts[1], 10, 64)
	if unit := sizeUnits[parts[2]]; err == nil && n <= math.MaxInt64/unit {
		return n * unit, nil
	}
	return nil, fmt.Errorf("is a larger number of bytes than there can be: %s", described(raw))
}
