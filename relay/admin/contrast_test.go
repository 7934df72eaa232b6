package admin

import (
	"math"
	"regexp"
	"strconv"
	"testing"
)

// In light and dark mode, the page's texts have a contrast of at least 4.5 to their backgrounds. The edges of fields and the
// lines of charts have a contrast of at least 3 (WCAG 2.2, AA).
func TestContrast(t *testing.T) {
	t.Parallel()
	schemes := regexp.MustCompile(`(?s):root \{(.*?)\}`).FindAllStringSubmatch(string(pageCSS), -1)
	if len(schemes) != 2 {
		t.Fatalf("%d schemes", len(schemes))
	}
	for i, scheme := range schemes {
		colours := map[string]string{}
		for _, each := range regexp.MustCompile(`--([a-z0-9-]+): (#[0-9a-f]+)`).FindAllStringSubmatch(scheme[1], -1) {
			colours[each[1]] = each[2]
		}
		for least, pairs := range map[float64][][2]string{
			4.5: {{"ink", "paper"}, {"quiet", "paper"}, {"quiet", "ground"}, {"quiet", "bad-paper"}, {"quiet", "warn-paper"}, {"quiet", "good-paper"}, {"good", "good-paper"}, {"warn", "warn-paper"}, {"bad", "bad-paper"},
				{"bad", "paper"}, {"accent", "paper"}, {"accent", "ground"}, {"accent", "bad-paper"}, {"accent", "warn-paper"}, {"on-accent", "accent"}, {"on-accent", "bad"}},
			3: {{"edge", "paper"}, {"series1", "paper"}, {"series2", "paper"}, {"series3", "paper"}},
		} {
			for _, pair := range pairs {
				a, b := luminance(t, colours[pair[0]]), luminance(t, colours[pair[1]])
				if got := (max(a, b) + .05) / (min(a, b) + .05); got < least {
					t.Errorf("scheme %d: %s on %s is %.2f, want %.1f", i, pair[0], pair[1], got, least)
				}
			}
		}
	}
}

func luminance(t *testing.T, colour string) float64 {
	t.Helper()
	if len(colour) == 4 {
		colour = "#" + colour[1:2] + colour[1:2] + colour[2:3] + colour[2:3] + colour[3:4] + colour[3:4]
	}
	if len(colour) != 7 {
		t.Fatalf("%q is no colour", colour)
	}
	sum := 0.0
	for i, weight := range []float64{.2126, .7152, .0722} {
		part, err := strconv.ParseUint(colour[1+2*i:3+2*i], 16, 8)
		if err != nil {
			t.Fatal(err)
		}
		value := float64(part) / 255
		if value <= .04045 {
			value /= 12.92
		} else {
			value = math.Pow((value+.055)/1.055, 2.4)
		}
		sum += weight * value
	}
	return sum
}
