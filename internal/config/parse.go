package config

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// parseFunc reads a text. Its error goes on after the text ("isn't one of …",
// "is below …") and never repeats it, since it may be a secret.
type parseFunc[V any] func(text string) (V, error)

var days = regexp.MustCompile(`^([0-9]{1,5})d$`)

// ParseDuration reads a duration as the file has it (250ms, 15s, 2m, 24h or 7d)
// within limits. The error goes on after the text and doesn't repeat it.
func ParseDuration(text string, least, most time.Duration) (time.Duration, error) {
	return duration(least, most)(text)
}

// ParseSize reads a number of bytes as the file has it (1000, 512KiB or 4MiB)
// within limits. The error goes on after the text and doesn't repeat it.
func ParseSize(text string, least, most int) (int, error) { return size(least, most)(text) }

// duration parses 250ms, 15s, 2m, 24h or 7d within limits.
func duration(least, most time.Duration) parseFunc[time.Duration] {
	return func(text string) (time.Duration, error) {
		value, err := parseDuration(text)
		if err != nil {
			return 0, err
		}
		return value, within(value, least, most)
	}
}

func parseDuration(text string) (time.Duration, error) {
	if whole := days.FindStringSubmatch(text); whole != nil {
		count, _ := strconv.Atoi(whole[1]) // five digits always fit
		return time.Duration(count) * 24 * time.Hour, nil
	}
	value, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("isn't a duration: write a number and a unit, such as 250ms, 15s, 2m, 24h or 7d")
	}
	return value, nil
}

var units = map[string]int{
	"": 1, "B": 1, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30,
}

var sizes = regexp.MustCompile(`^([0-9]{1,10}) ?([A-Za-z]*)$`)

// size parses a number of bytes within limits: 4MiB, 512KiB, 1000.
func size(least, most int) parseFunc[int] {
	return func(text string) (int, error) {
		parts := sizes.FindStringSubmatch(text)
		unit := 0
		if parts != nil {
			unit = units[parts[2]]
		}
		if unit == 0 {
			return 0, fmt.Errorf("isn't a size: write a whole number and a unit, such as 512KiB or 4MiB")
		}
		count, _ := strconv.Atoi(parts[1]) // ten digits always fit
		if count > most/unit {
			return 0, fmt.Errorf("is above the most, %s", sizeText(most))
		}
		if count*unit < least {
			return 0, fmt.Errorf("is below the least, %s", sizeText(least))
		}
		return count * unit, nil
	}
}

func sizeText(bytes int) string {
	for _, unit := range []string{"GiB", "MiB", "KiB"} {
		if bytes%units[unit] == 0 {
			return strconv.Itoa(bytes/units[unit]) + unit
		}
	}
	return strconv.Itoa(bytes) + "B"
}

// number parses a whole number within limits.
func number(least, most int) parseFunc[int] {
	return func(text string) (int, error) {
		value, err := strconv.Atoi(text)
		if err != nil {
			return 0, fmt.Errorf("isn't a whole number between %d and %d", least, most)
		}
		return value, within(value, least, most)
	}
}

func within[V int | time.Duration](value, least, most V) error {
	if value < least {
		return fmt.Errorf("is below the least, %s", limitText(least))
	}
	if value > most {
		return fmt.Errorf("is above the most, %s", limitText(most))
	}
	return nil
}

// limitText writes 24h rather than 24h0m0s.
func limitText[V int | time.Duration](limit V) string {
	text := fmt.Sprint(limit)
	if short, cut := strings.CutSuffix(text, "m0s"); cut {
		text = short + "m"
	}
	if short, cut := strings.CutSuffix(text, "h0m"); cut {
		text = short + "h"
	}
	return text
}

// oneOf parses one of a few words.
func oneOf[V ~string](words ...V) parseFunc[V] {
	return func(text string) (V, error) {
		if slices.Contains(words, V(text)) {
			return V(text), nil
		}
		return "", fmt.Errorf("isn't one of %s", join(words))
	}
}

func join[V ~string](words []V) string {
	texts := make([]string, len(words))
	for i, word := range words {
		texts[i] = string(word)
	}
	return strings.Join(texts, ", ")
}

// text parses 1 to most bytes.
func text(most int) parseFunc[string] {
	return func(text string) (string, error) {
		switch {
		case text == "":
			return "", fmt.Errorf("is empty")
		case len(text) > most:
			return "", fmt.Errorf("is longer than %d bytes", most)
		}
		return text, nil
	}
}
