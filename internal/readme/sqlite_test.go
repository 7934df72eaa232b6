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

// onSQLite changes the first program to use SQLite, as docs/library.md describes. The changed
// program takes the database's file as its argument, and pays four orders concurrently, each in a
// transaction that reads before it writes.
func onSQLite(t testing.TB) block {
	t.Helper()
	first := blocks(t, "go")[0]
	replace := func(old, with string) {
		if !strings.Contains(first.text, old) {
			t.Fatalf("the first program lacks %q", old)
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

// Four processes run the first program on one new file, ten times. No transaction fails because
// another transaction writes.
func TestFirstProgramSharesAnSQLiteFile(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(t.TempDir(), "first")
	flag, packages := overlay(t, []block{onSQLite(t)})
	if out, err := exec.Command("go", "build", flag, "-o", binary, packages[0]).CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	for range 10 {
		runFour(t, binary, filepath.Join(t.TempDir(), "shop.db"))
	}
}

// runFour runs four processes and checks that each of the 16 messages arrives once.
func runFour(t *testing.T, binary, file string) {
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
			_ = program.Process.Signal(syscall.SIGQUIT) // makes the program print its goroutines
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
		early := strings.HasSuffix(said, "context canceled\n") // interrupted while its relay was starting
		if (err != nil || regexp.MustCompile("WARN|ERROR|panic").MatchString(said)) && !early {
			t.Errorf("a program ended with %v: %s", err, said)
		}
	}
	if n != 16 {
		t.Errorf("%d messages arrived, want 16", n)
	}
}
