package figure

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
)

// Machine returns the date and the machine, for figures.
func Machine() string {
	return fmt.Sprintf("%s, %d cores (%s), %s", time.Now().UTC().Format(time.DateOnly), runtime.NumCPU(), processor(), runtime.Version())
}

func processor() string {
	file, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}
