// Command picture runs `rowrelay demo` and prints its output as an animated SVG:
//
//	go run ./internal/picture > docs/demo.svg
//
// Each line appears at the time when the demo printed it, and the animation repeats. Without animation,
// for example on paper, all lines are visible.
package main

import (
	"bufio"
	"encoding/xml"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// line is a line of the demo's output, with the time from the demo's start until the demo printed the line.
type line struct {
	text string
	at   time.Duration
}

func main() {
	lines, err := record()
	if err != nil {
		fmt.Fprintln(os.Stderr, "picture:", err)
		os.Exit(1)
	}
	fmt.Print(picture(lines))
}

// record runs the demo in an empty folder.
func record() (lines []line, err error) {
	dir, err := os.MkdirTemp("", "rowrelay-picture-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	binary := dir + "/rowrelay"
	if out, err := exec.Command("go", "build", "-o", binary, "./cmd/rowrelay").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the command: %w\n%s", err, out)
	}
	demo := exec.Command(binary, "demo")
	demo.Dir = dir
	out, err := demo.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := demo.Start(); err != nil {
		return nil, err
	}
	lines = append(lines, line{"$ rowrelay demo", 0})
	began := time.Now()
	for scanner := bufio.NewScanner(out); scanner.Scan(); {
		lines = append(lines, line{strings.TrimRight(scanner.Text(), " "), time.Since(began)})
	}
	return lines, demo.Wait()
}

const (
	rowHeight = 19
	charWidth = 7.3
	margin    = 16
	hold      = 5 * time.Second // the time for which all lines stay visible before the animation repeats
)

func picture(lines []line) string {
	widest := 0
	for _, l := range lines {
		widest = max(widest, len(l.text))
	}
	whole := lines[len(lines)-1].at + hold
	width, height := int(float64(widest)*charWidth)+2*margin, len(lines)*rowHeight+2*margin
	var svg, styles strings.Builder
	for i, l := range lines {
		began := 100 * l.at.Seconds() / whole.Seconds()
		fmt.Fprintf(&styles, "@keyframes l%d { 0%% { opacity: 0 } %.2f%% { opacity: 0 } %.2f%% { opacity: 1 } 100%% { opacity: 1 } }\n", i, began, began+0.01)
		fmt.Fprintf(&styles, "#l%d { animation: l%d %.2fs step-end infinite }\n", i, i, whole.Seconds())
		class := "out"
		switch {
		case i == 0:
			class = "asked"
		case strings.Contains(l.text, "holds"):
			class = "good"
		}
		fmt.Fprintf(&svg, "<text id=\"l%d\" class=\"%s\" x=\"%d\" y=\"%d\" xml:space=\"preserve\">", i, class, margin, margin+(i+1)*rowHeight-5)
		_ = xml.EscapeText(&svg, []byte(l.text))
		svg.WriteString("</text>\n")
	}
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img" aria-label="rowrelay demo, as it runs in a terminal">
<style>
text { font: 12px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; fill: #d6dde6 }
.asked { fill: #7ee0a8 }
.good { fill: #7ee0a8; font-weight: bold }
%s@media (prefers-reduced-motion: reduce) { text { animation: none !important } }
</style>
<rect width="100%%" height="100%%" rx="8" fill="#161b22"/>
%s</svg>
`, width, height, width, height, styles.String(), svg.String())
}
