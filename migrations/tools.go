package migrations

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// File is a migration in the format of another tool.
type File struct {
	Name string // the path in the tool's folder of migrations
	Text string
	Down bool // the file has only the statements that revert the steps
}

// FileOptions select what [Migrations.Files] returns.
type FileOptions struct {
	// After is the version that the tables already have, or 0 for new tables.
	After int64

	// Inbox is the name of an inbox that the first file also creates. Inbox requires that After is 0.
	Inbox string

	// Folder is the tool's folder of migrations. The new files continue the folder's numbers or, for alembic, its revisions.
	// If Folder is nil, the files' number is the current time.
	Folder fs.FS
}

// tool describes a migration tool other than rowrelay migrate.
type tool struct {
	write   func(change, number) []File
	numbers *regexp.Regexp // finds the number in the name of a migration; nil if the names have no numbers
	times   bool           // the migrations' numbers are always times
}

var tools = map[string]tool{
	"goose":          {write: forGoose, numbers: regexp.MustCompile(`^(\d+)_`)},
	"golang-migrate": {write: forGolangMigrate, numbers: regexp.MustCompile(`^(\d+)_`)},
	"flyway":         {write: forFlyway, numbers: regexp.MustCompile(`^V(\d+)(?:[._]\d+)*__`)},
	"liquibase":      {write: forLiquibase, numbers: regexp.MustCompile(`^(\d+)[_-]`)},
	"alembic":        {write: forAlembic},
	"rails":          {write: forRails, numbers: regexp.MustCompile(`^(\d+)_`), times: true},
	"prisma":         {write: forPrisma, numbers: regexp.MustCompile(`^(\d+)_`), times: true},
}

// Tools returns the names of the migration tools that [Migrations.Files] supports.
func Tools() []string { return slices.Sorted(maps.Keys(tools)) }

// Files returns the steps after a version as one migration for another tool. The migration has the statements that apply the
// steps and the statements that revert the steps, which some tools need in a second file. Files returns no files if there is
// nothing to do. The migration also contains the statements for Options.Claim and Options.Notify. It has no BEGIN and no
// COMMIT, because the tools run it in a transaction if the database can roll back DDL. On PostgreSQL it creates the table's
// schema.
func (m *Migrations) Files(name string, options FileOptions) ([]File, error) {
	if err := m.notMade(); err != nil {
		return nil, err
	}
	tool, known := tools[name]
	switch {
	case !known:
		return nil, fmt.Errorf("the tool %q is not known: it must be %s or plain", name, strings.Join(Tools(), ", "))
	case m.schema.Scripts:
		return nil, fmt.Errorf("migrations for %s on %s: only plain SQL can be printed for this database", name, m.dialect.Name())
	}
	all, err := m.change(options)
	if err != nil || len(all.up) == 0 {
		return nil, err
	}
	next, err := tool.next(options.Folder)
	if err != nil {
		return nil, err
	}
	if name == "alembic" && slices.Contains(next.revisions, all.revision()) {
		return nil, fmt.Errorf("the folder already has the revision %s, %q: with --after N only the migrations after version N are printed", all.revision(), all.title)
	}
	return tool.write(all, next), nil
}

// change is a migration for another tool, before it is written in the tool's format.
type change struct {
	name     string // a word for the file's name
	title    string
	up, down []statement
	bare     bool // a step can't run in a transaction
}

// statement is one statement without its semicolon.
type statement struct {
	comment string // whole lines, or empty
	sql     string
	block   bool // has semicolons inside
}

// change returns the steps after a version, and the statements for the options.
func (m *Migrations) change(options FileOptions) (change, error) {
	pending, err := m.after(options.After)
	if err != nil {
		return change{}, err
	}
	all := change{name: "rowrelay_" + m.table.Name}
	switch {
	case len(pending) == 0:
		all.name += "_options"
		all.title = fmt.Sprintf("rowrelay: options of %s", m.table)
	default:
		newest := pending[len(pending)-1].version
		all.title = fmt.Sprintf("rowrelay: %s, version %d", m.table, newest)
		if options.After > 0 {
			all.name += "_" + strconv.FormatInt(newest, 10)
		} else {
			all = all.and(m.makeSchema(), nil)
		}
	}
	for _, step := range pending {
		up, down := split(step.sql)
		bare, isBare := strings.CutPrefix(up, noTransaction)
		all = all.and(parse(cmp.Or(bare, up)), parse(down))
		all.bare = all.bare || isBare
	}
	if options.Inbox != "" {
		if options.After != 0 {
			return change{}, errors.New("an inbox can't be printed together with an upgrade of an outbox: print the inbox separately")
		}
		inbox, err := NewInbox(nil, m.dialect, options.Inbox)
		if err != nil {
			return change{}, err
		}
		part, err := inbox.change(FileOptions{})
		if err != nil {
			return change{}, err
		}
		if inbox.table.Schema == m.table.Schema { // the outbox's statements already create the schema
			part.up = part.up[len(inbox.makeSchema()):]
		}
		all = all.and(part.up, part.down)
	}
	up, down := m.optional()
	if options.After == 0 {
		down = nil // the statements that revert the first step drop the tables with these objects
	}
	return all.and(up, down), nil
}

// and appends `up` to c.up, inserts `down` before c.down, and returns the result.
func (c change) and(up, down []statement) change {
	c.up, c.down = slices.Concat(c.up, up), slices.Concat(down, c.down)
	return c
}

// makeSchema returns the statement that creates the table's schema, if the database has one.
func (m *Migrations) makeSchema() []statement {
	if m.schema.MakeSchema == nil || m.table.Schema == "" {
		return nil
	}
	return parse(m.schema.MakeSchema(m.table))
}

// optional returns the statements for Options.Claim and Options.Notify, and the statements that revert them.
func (m *Migrations) optional() (up, down []statement) {
	if m.options.Claim == "rows" {
		comment := "-- Indexes for claiming by rows."
		for _, query := range m.dialect.MakeRowIndexes(m.table) {
			up = append(up, statement{comment: comment, sql: query.SQL})
			comment = ""
		}
		for _, query := range m.dialect.DropRowIndexes(m.table) {
			down = append(down, statement{sql: query.SQL})
		}
	}
	create := append(parse(statementBegin+"\n"+m.notify.function+";\n"+statementEnd), statement{sql: m.notify.trigger})
	drop := []statement{{sql: m.notify.drop}}
	switch m.options.Notify {
	case "on":
		up, down = append(up, create...), append(drop, down...)
	case "off":
		up, down = append(up, drop...), append(create, down...)
	}
	return up, down
}

// parse splits a step into statements, with their comments. A statement is a block between goose's marks, or ends at the
// first line that ends with a semicolon.
func parse(script string) (all []statement) {
	var comment, lines []string
	var block bool
	end := func() {
		if len(lines) == 0 {
			return
		}
		sql := strings.TrimSuffix(strings.TrimSpace(strings.Join(lines, "\n")), ";")
		all = append(all, statement{strings.Join(comment, "\n"), sql, hasSemicolon(sql)})
		comment, lines = nil, nil
	}
	for line := range strings.Lines(script) {
		line = strings.TrimRight(line, " \t\r\n")
		trimmed := strings.TrimSpace(line)
		isComment := strings.HasPrefix(trimmed, "--")
		switch {
		case trimmed == statementBegin:
			block = true
		case trimmed == statementEnd:
			block = false
			end()
		case len(lines) == 0 && trimmed == "":
			comment = nil // this comment belongs to no statement
		case len(lines) == 0 && isComment:
			comment = append(comment, line)
		default:
			lines = append(lines, line)
			if !block && !isComment && strings.HasSuffix(line, ";") {
				end()
			}
		}
	}
	end()
	return all
}

// hasSemicolon reports whether a tool that splits at semicolons would split the statement.
func hasSemicolon(sql string) bool {
	return strings.Contains(lineComment.ReplaceAllString(sql, ""), ";")
}

var lineComment = regexp.MustCompile(`--.*`)

// number is the number of a new migration. Alembic's migrations have no numbers, but each one names the revision before it.
type number struct {
	value  uint64
	digits int
	parent string // alembic: the newest revision; empty if none is known

	revisions []string // alembic: all revisions
}

func (n number) String() string { return fmt.Sprintf("%0*d", n.digits, n.value) }

// next returns the number of a new migration, which is the current time in 14 digits by default. But if the folder's highest
// number isn't below the current time, or if the tool permits short numbers and the folder's files have short numbers, next
// returns the highest number plus one.
func (t tool) next(folder fs.FS) (number, error) {
	now, _ := strconv.ParseUint(time.Now().UTC().Format("20060102150405"), 10, 64)
	next := number{value: now, digits: 14}
	if folder == nil {
		return next, nil
	}
	if t.numbers == nil {
		var err error
		next.parent, next.revisions, err = revisionsIn(folder)
		return next, err
	}
	entries, err := fs.ReadDir(folder, ".")
	if err != nil {
		return next, fmt.Errorf("read the folder of migrations: %w", err)
	}
	var last number
	for _, entry := range entries {
		if found := t.numbers.FindStringSubmatch(entry.Name()); found != nil {
			if value, err := strconv.ParseUint(found[1], 10, 64); err == nil && value >= last.value {
				last = number{value: value, digits: len(found[1])}
			}
		}
	}
	if last.digits > 0 && (last.digits < 14 && !t.times || last.value >= now) {
		next = number{value: last.value + 1, digits: last.digits}
	}
	return next, nil
}

var (
	revisionLine = regexp.MustCompile(`(?m)^revision\b[^=\n]*=\s*["']([^"']+)["']`)
	parentLine   = regexp.MustCompile(`(?m)^down_revision\b[^=\n]*=(.*)$`)
	quotedWord   = regexp.MustCompile(`["']([^"']+)["']`)
)

// revisionsIn returns the head of an Alembic folder, which is the revision that no other revision follows, and all revisions.
// The head is "" if the folder has no revisions. If the folder has several heads, revisionsIn returns an error.
func revisionsIn(folder fs.FS) (head string, all []string, err error) {
	files, err := fs.Glob(folder, "*.py")
	if err != nil {
		return "", nil, err
	}
	followed := map[string]bool{}
	for _, file := range files {
		text, err := fs.ReadFile(folder, file)
		if err != nil {
			return "", nil, fmt.Errorf("read the revision %s: %w", file, err)
		}
		found := revisionLine.FindSubmatch(text)
		if found == nil {
			continue
		}
		all = append(all, string(found[1]))
		if parents := parentLine.FindSubmatch(text); parents != nil {
			for _, parent := range quotedWord.FindAllSubmatch(parents[1], -1) {
				followed[string(parent[1])] = true
			}
		}
	}
	heads := slices.DeleteFunc(slices.Clone(all), func(revision string) bool { return followed[revision] })
	if len(heads) > 1 {
		return "", nil, fmt.Errorf("the folder has several heads (%s): merge them with alembic merge heads first", strings.Join(heads, ", "))
	}
	return strings.Join(heads, ""), all, nil
}

// revision returns an Alembic revision id. It depends only on the title, so it is the same in every project.
func (c change) revision() string {
	sum := sha256.Sum256([]byte(c.title))
	return hex.EncodeToString(sum[:6])
}

// sqlOf writes statements as SQL. It passes statements that have semicolons inside to the function `block`.
func sqlOf(statements []statement, block func(string) string) string {
	var text strings.Builder
	for _, s := range statements {
		if s.comment != "" {
			text.WriteString("\n" + s.comment)
		}
		sql := s.sql + ";"
		if s.block {
			sql = block(sql)
		}
		text.WriteString("\n" + sql + "\n")
	}
	return text.String()
}

func unmarked(sql string) string { return sql }

func forGoose(c change, n number) []File {
	marked := func(sql string) string { return statementBegin + "\n" + sql + "\n" + statementEnd }
	text := "-- +goose Up\n" + sqlOf(c.up, marked) + "\n-- +goose Down\n" + sqlOf(c.down, marked)
	if c.bare {
		text = noTransaction + "\n" + text
	}
	return []File{{Name: n.String() + "_" + c.name + ".sql", Text: text}}
}

// twoFiles returns one file that applies the steps and one that reverts them.
func twoFiles(c change, up, down string) []File {
	return []File{
		{Name: up, Text: "-- " + c.title + "\n" + sqlOf(c.up, unmarked)},
		{Name: down, Text: "-- " + c.title + ", the way down\n" + sqlOf(c.down, unmarked), Down: true},
	}
}

func forGolangMigrate(c change, n number) []File {
	return twoFiles(c, n.String()+"_"+c.name+".up.sql", n.String()+"_"+c.name+".down.sql")
}

func forFlyway(c change, n number) []File {
	return twoFiles(c, "V"+n.String()+"__"+c.name+".sql", "U"+n.String()+"__"+c.name+".sql")
}

func forPrisma(c change, n number) []File {
	folder := n.String() + "_" + c.name
	return twoFiles(c, path.Join(folder, "migration.sql"), path.Join(folder, "down.sql"))
}

// forLiquibase ends each statement with a line that has only a slash, because Liquibase would split functions at their
// semicolons.
func forLiquibase(c change, n number) []File {
	var text strings.Builder
	fmt.Fprintf(&text, "--liquibase formatted sql\n\n--changeset rowrelay:%s splitStatements:true endDelimiter:/ rollbackEndDelimiter:/\n--comment: %s\n", c.name, c.title)
	for _, s := range c.up {
		text.WriteString("\n")
		if s.comment != "" {
			text.WriteString(s.comment + "\n")
		}
		text.WriteString(s.sql + "\n/\n")
	}
	text.WriteString("\n")
	for _, s := range c.down {
		for line := range strings.Lines(s.sql + "\n/\n") {
			text.WriteString("--rollback " + line)
		}
	}
	return []File{{Name: n.String() + "_" + c.name + ".sql", Text: text.String()}}
}

// boundName matches a part of a text that SQLAlchemy would replace as a parameter.
var boundName = regexp.MustCompile(`(^|[^:\w\\]):(\w+)`)

func forAlembic(c change, n number) []File {
	parent := "None"
	hint := "  # set this to your newest revision: alembic heads prints it"
	if n.parent != "" {
		parent, hint = strconv.Quote(n.parent), ""
	}
	var text strings.Builder
	fmt.Fprintf(&text, "\"\"\"%s\"\"\"\nfrom alembic import op\n\nrevision = %q\ndown_revision = %s%s\nbranch_labels = None\ndepends_on = None\n", c.title, c.revision(), parent, hint)
	for _, way := range []struct {
		name       string
		statements []statement
	}{{"upgrade", c.up}, {"downgrade", c.down}} {
		fmt.Fprintf(&text, "\n\ndef %s():\n", way.name)
		for i, s := range way.statements {
			if s.comment != "" && i > 0 {
				text.WriteString("\n")
			}
			text.WriteString(indented("    ", hashes(s.comment)))
			sql := boundName.ReplaceAllString(s.sql, `$1\:$2`)
			if strings.ContainsAny(sql, "\n\"\\") {
				text.WriteString("    op.execute(r\"\"\"\n" + indented("        ", sql) + "    \"\"\")\n")
			} else {
				text.WriteString("    op.execute(\"" + sql + "\")\n")
			}
		}
	}
	return []File{{Name: c.revision() + "_" + c.name + ".py", Text: text.String()}}
}

func forRails(c change, n number) []File {
	class := "Create"
	for word := range strings.SplitSeq(c.name, "_") {
		if word != "" {
			class += strings.ToUpper(word[:1]) + word[1:]
		}
	}
	var text strings.Builder
	fmt.Fprintf(&text, "# %s\nclass %s < ActiveRecord::Migration[6.0]\n", c.title, class)
	for i, way := range [][]statement{c.up, c.down} {
		fmt.Fprintf(&text, "%s  def %s\n", []string{"", "\n"}[i], []string{"up", "down"}[i])
		for j, s := range way {
			if s.comment != "" && j > 0 {
				text.WriteString("\n")
			}
			text.WriteString(indented("    ", hashes(s.comment)))
			if strings.ContainsAny(s.sql, "\n'\\") {
				text.WriteString("    execute <<~'SQL'\n" + indented("      ", s.sql) + "    SQL\n")
			} else {
				text.WriteString("    execute '" + s.sql + "'\n")
			}
		}
		text.WriteString("  end\n")
	}
	text.WriteString("end\n")
	return []File{{Name: n.String() + "_create_" + c.name + ".rb", Text: text.String()}}
}

// hashes replaces the -- of SQL comments with #, which begins a comment in Python and Ruby.
func hashes(comment string) string { return strings.ReplaceAll("\n"+comment, "\n--", "\n#")[1:] }

// indented puts spaces before each line that isn't empty, and ends with a line break unless the text is empty.
func indented(spaces, text string) string {
	if text == "" {
		return ""
	}
	var out strings.Builder
	for line := range strings.Lines(text) {
		if strings.TrimSpace(line) != "" {
			out.WriteString(spaces)
		}
		out.WriteString(line)
	}
	return out.String() + "\n"
}
