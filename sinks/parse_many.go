package sinks

import (
	"fmt"
	"strconv"
)

func parseList(raw any) (any, error) {
	switch v := raw.(type) {
	case []string:
		return v, nil
	case []any:
		return eachText(v)
	}
	return nil, fmt.Errorf("must be a list of texts, not %s", typeOf(raw))
}

func eachText(elements []any) (any, error) {
	list := make([]string, len(elements))
	for i, element := range elements {
		text, ok := element.(string)
		if !ok {
			return nil, fmt.Errorf("must be a list of texts: write element %d, now %s, in quotes", i+1, typeOf(element))
		}
		list[i] = text
	}
	return list, nil
}

func parseMap(raw any) (any, error) { return textsByName[string](raw) }

func parseSecretMap(raw any) (any, error) { return textsByName[Secret](raw) }

func textsByName[T ~string](raw any) (any, error) {
	texts := map[string]T{}
	switch v := raw.(type) {
	case map[string]T:
		return v, nil
	case map[string]string:
		for name, text := range v {
			texts[name] = T(text)
		}
	case map[string]any:
		for name, value := range v {
			text, ok := value.(string)
			if !ok {
				return nil, fmt.Errorf("must have texts as values: write that of %q, now %s, in quotes", name, typeOf(value))
			}
			texts[name] = T(text)
		}
	default:
		return nil, fmt.Errorf("must be a map of texts by name, not %s", typeOf(raw))
	}
	return texts, nil
}

func notText(raw any) error {
	return fmt.Errorf("must be text; write the value, now %s, in quotes", typeOf(raw))
}

// typeOf names the type of a value without showing the value, which may be a
// secret.
func typeOf(raw any) string {
	switch raw.(type) {
	case nil:
		return "nothing"
	case string:
		return "text"
	case bool:
		return "true or false"
	case int, int8, int16, int32, int64, uint, uint8, uint16, uint32, uint64, float32, float64:
		return "a number"
	case []any, []string:
		return "a list"
	case map[string]any, map[string]string:
		return "a map"
	}
	return fmt.Sprintf("a value of type %T", raw)
}

// described shows a value where a type was asked for that no secret has.
func described(raw any) string {
	switch v := raw.(type) {
	case string:
		return strconv.Quote(v)
	case bool, int, int64, uint64, float64:
		return fmt.Sprint(v)
	}
	return typeOf(raw)
}
