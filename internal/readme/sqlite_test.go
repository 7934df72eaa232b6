package readme

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// onSQLite makes of the first program what docs/library.md says of SQLite, for a file that
// is its argument; and has it pay four orders, each in a transaction that reads before
// it writes, at the same time.
func onSQLite(t testing.TB) block {
	t.Helper()
	first := blocks(t, "go")[0]
	replace := func(old, with string) {
		if !strings.Contains(first.text, old) {
			t.Fatalf("the first program hasn't %q", old)
		}
		first.text = strings.ReplaceAll(first.text, old, with)
	}
	replace(`_ "github.com/jackc/pgx/v5/stdlib"`, `_ "modernc.org/sqlite"; "sync"`)
	replace(`"pgx", os.Getenv("DATABASE_URL")`, `"sqlite", rowrelay.SQLiteFile(os.Args[1])`)
	replace("rowrelay.Postgres", "rowrelay.SQLite")
	replace("\ttx := must(db.BeginTx(ctx, nil))\n", "\tvar tills sync.WaitGroup\n\tfor range 4 { tills.Go(func() {\n\ttx := must(db.BeginTx(ctx, nil))\n"+
		"\tvar orders int\n\tcheck(tx.QueryRowContext(ctx, \"SELECT count(*) FROM orders\").Scan(&orders))\n")
	replace("\tapp.Wake()", "\t}) }\n\ttills.Wait()\n\tapp.Wake()")
	return first
}

// Four processes run the first program on one new file, ten times: no transaction
// is ever refused because another one writes.
func TestTheFirstProgramOnSQLite(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(t.TempDir(), "first")
	flag, packages := overlay(t, []block{onSQLite(t)})
	if out, err := exec.Command("go", "build", flag, "-o", binary, packages[0]).CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	for range 10 {
		fourAtOnce(t, binary, filepath.Join(t.TempDir(), "shop.db"))
	}
}

// fourAtOnce holds that each of the 16 messages arrives once, at one of the four.
func fourAtOnce(t *testing.T, binary, file string) {
	t.Helper()
	arrived := make(chan string, 100)
	var reading sync.WaitGroup
	var programs []*exec.Cmd
	for range 4 {
		program := exec.Command(binary, file)
		program.Stderr = new(bytes.Buffer)
		out, err := program.StdoutPipe()
		check(t, err)
		check(t, program.Start())
		programs = append(programs, program)
		reading.Go(func() {
			for lines := bufio.NewScanner(out); lines.Scan(); {
				arrived <- lines.Text()
			}
		})
	}
	late := time.AfterFunc(5*time.Minute, func() {
		for _, program := range programs {
			_ = program.Process.Signal(syscall.SIGQUIT) // which shows where it stands
		}
	})
	go func() { reading.Wait(); close(arrived) }()
	defer late.Stop()
	n := 0
	for line := range arrived {
		if line != `orders.paid order-42: {"order": 42}` {
			t.Errorf("it printed %q", line)
		}
		if n++; n == 16 {
			for _, program := range programs {
				check(t, program.Process.Signal(os.Interrupt))
			}
		}
	}
	for _, program := range programs {
		err := program.Wait()
		said := program.Stderr.(*bytes.Buffer).String()
		early := strings.HasSuffix(said, "context canceled\n") // it was told to end while its relay started
		if (err != nil || regexp.MustCompile("WARN|ERROR|panic").MatchString(said)) && !early {
			t.Errorf("a program ended with %v: %s", err, said)
		}
	}
	if n != 16 {
		t.Errorf("%d messages arrived, want 16", n)
	}
}
