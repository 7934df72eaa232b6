package config

import (
	"fmt"
	"reflect"
	"time"

	"github.com/rowrelay/rowrelay/sinks/settings"
)

// parseFunc reads a text. Its error goes on after the text ("must be …", "isn't …")
// and never repeats it, since it may be a secret.
type parseFunc[V any] func(text string) (V, error)

// as reads what the field of a sink's setting describes, so that all settings of
// the file are written in one way.
func as[V any](f settings.Field) parseFunc[V] {
	return func(text string) (value V, err error) {
		read, err := f.Parse(text)
		if err == nil {
			reflect.ValueOf(&value).Elem().Set(reflect.ValueOf(read).Convert(reflect.TypeFor[V]()))
		}
		return value, err
	}
}

func number(least, most string) parseFunc[int] {
	return as[int](settings.Field{Type: settings.TypeInt, Min: least, Max: most})
}

func duration(least, most string) parseFunc[time.Duration] {
	return as[time.Duration](settings.Field{Type: settings.TypeDuration, Min: least, Max: most})
}

func size(least, most string) parseFunc[int] {
	return as[int](settings.Field{Type: settings.TypeSize, Min: least, Max: most})
}

func oneOf[V ~string](words ...V) parseFunc[V] {
	f := settings.Field{Type: settings.TypeString}
	for _, word := range words {
		f.Choices = append(f.Choices, string(word))
	}
	return as[V](f)
}

// text parses 1 to most bytes.
func text(most int) parseFunc[string] {
	return as[string](settings.Field{Type: settings.TypeString, Required: true, Check: func(value any) error {
		if len(value.(string)) > most {
			return fmt.Errorf("is longer than %d bytes", most)
		}
		return nil
	}})
}

// orWord lets a word stand for a number: never, unlimited.
func orWord(word string, meaning int, parse parseFunc[int]) parseFunc[int] {
	return func(text string) (int, error) {
		if text == word {
			return meaning, nil
		}
		value, err := parse(text)
		if err != nil {
			err = fmt.Errorf("%w; or write %s", err, word)
		}
		return value, err
	}
}

// orZero lets zero stand for a duration that the limits leave out.
func orZero(meaning time.Duration, parse parseFunc[time.Duration]) parseFunc[time.Duration] {
	return func(text string) (time.Duration, error) {
		if value, err := duration("", "")(text); err == nil && value == 0 {
			return meaning, nil
		}
		return parse(text)
	}
}
