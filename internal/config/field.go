package config

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/rowrelay/rowrelay/sinks/settings"
)

// field is one setting of a T: its name in the file, and a function that reads it.
type field[T any] struct {
	name   string
	secret bool // the setting may also be given as name_file or name_command
	set    func(*reader, *T, *node)
}

// value returns a field whose value is a scalar.
func value[T, V any](name string, parse parseFunc[V], place func(*T) *V) field[T] {
	return field[T]{name: name, set: func(r *reader, target *T, n *node) {
		set(r, n, strconv.Quote(n.raw), parse, place(target))
	}}
}

// secret returns a field whose value is a secret scalar. Errors don't show the value. The
// value may also come from the file that the setting name_file names, or from the command name_command.
func secret[T, V any](name string, parse parseFunc[V], place func(*T) *V) field[T] {
	return field[T]{name: name, secret: true, set: func(r *reader, target *T, n *node) {
		set(r, n, "the value", parse, place(target))
	}}
}

// set parses a scalar and stores the result in *place. If the scalar can't be parsed, set
// reports a problem that begins with `shown`: the scalar's text, or "the value" for a secret.
func set[V any](r *reader, n *node, shown string, parse parseFunc[V], place *V) {
	text, ok := r.scalar(n)
	if !ok {
		return
	}
	parsed, err := parse(text)
	if err != nil {
		r.fail(n, shown+" "+err.Error())
		return
	}
	*place = parsed
}

// values returns a field whose value is a list of scalars, all of them different.
func values[T any, V comparable](name string, parse parseFunc[V], place func(*T) *[]V) field[T] {
	return field[T]{name: name, set: func(r *reader, target *T, n *node) {
		for _, item := range r.items(n) {
			var parsed V
			set(r, item, strconv.Quote(item.raw), parse, &parsed)
			if !item.broken && slices.Contains(*place(target), parsed) {
				r.fail(item, fmt.Sprintf("%q is given twice", item.raw))
			}
			*place(target) = append(*place(target), parsed)
		}
	}}
}

// group returns a field whose value is a mapping with fields.
func group[T, V any](name string, fields []field[V], place func(*T) *V) field[T] {
	return field[T]{name: name, set: func(r *reader, target *T, n *node) {
		fill(r, n, fields, place(target))
	}}
}

// fill sets the fields of a target from a mapping. It reports a problem for each key that no
// field has.
func fill[T any](r *reader, n *node, fields []field[T], target *T) {
	if !r.mapping(n) {
		return
	}
	for _, unknown := range fillKnown(r, n, fields, target) {
		r.unknown(n, unknown, names(fields))
	}
}

// fillKnown is like fill, but returns the entries whose key no field has.
func fillKnown[T any](r *reader, n *node, fields []field[T], target *T) (others []entry) {
	for _, e := range n.entries {
		if found, ok := find(fields, e.key); ok {
			found.set(r, target, e.node)
		} else if found, ok := findSecret(fields, e.key); ok {
			if held := r.fromOrigin(n, e, found.name); held != nil {
				found.set(r, target, held)
			}
		} else {
			others = append(others, e)
		}
	}
	return others
}

func find[T any](fields []field[T], name string) (field[T], bool) {
	i := slices.IndexFunc(fields, func(f field[T]) bool { return f.name == name })
	if i < 0 {
		return field[T]{}, false
	}
	return fields[i], true
}

func findSecret[T any](fields []field[T], name string) (field[T], bool) {
	base, derived := derivedFrom(name)
	found, ok := find(fields, base)
	return found, ok && derived && found.secret
}

func names[T any](fields []field[T]) (found []string) {
	for _, f := range fields {
		found = append(found, f.name)
		if f.secret {
			found = append(found, f.name+"_file", f.name+"_command")
		}
	}
	return found
}

// setText sets one field of a target from the text of a flag.
func setText[T any](fields []field[T], target *T, name, text string) error {
	return setNode(fields, target, name, textNode("", text))
}

func setNode[T any](fields []field[T], target *T, name string, n *node) error {
	found, ok := find(fields, name)
	if !ok {
		return fmt.Errorf("the setting %s doesn't exist", name)
	}
	r := newReader(nil)
	found.set(r, target, n)
	if len(r.problems.List) > 0 {
		return errors.New(r.problems.List[0].Text)
	}
	return nil
}

// parseFunc parses a text. Its error continues a sentence that begins with the text ("must
// be …", "isn't …"). The error never repeats the text, because the text may be a secret.
type parseFunc[V any] func(text string) (V, error)

// as returns a function that parses text in the same way as the settings of sinks are
// parsed, so that all settings of the file have the same syntax.
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

// text returns a function that accepts any text that isn't empty and has at most this number
// of bytes.
func text(most int) parseFunc[string] {
	return as[string](settings.Field{Type: settings.TypeString, Required: true, Check: settings.Check(func(value string) error {
		if len(value) > most {
			return fmt.Errorf("is longer than %d bytes", most)
		}
		return nil
	})})
}

// orWord extends a parse function so that it also accepts a word, such as never or
// unlimited. The second argument is the word's value.
func orWord[T any](word string, meaning T, parse parseFunc[T]) parseFunc[T] {
	return func(text string) (T, error) {
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

// orZero extends a parse function so that it also accepts a duration of zero, for which it
// returns the first argument.
func orZero(meaning time.Duration, parse parseFunc[time.Duration]) parseFunc[time.Duration] {
	return func(text string) (time.Duration, error) {
		if value, err := duration("", "")(text); err == nil && value == 0 {
			return meaning, nil
		}
		return parse(text)
	}
}
