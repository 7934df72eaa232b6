package adopt

import (
	"errors"
	"fmt"
	"strings"
)

// Facts are sentences about a plan, for the person who decides whether to run it.
type Facts struct{ Costs, Locks, Rights, Limits []string }

// Facts returns the costs, locks, rights and limits of adopting the table by a trigger or a view (a.Way). It doesn't read the
// table's rows.
func (a *Adoption) Facts() (f Facts) {
	a.base.facts(a, &f)
	if len(a.Table.Writers) > 0 {
		text := "These users may write to the table, and need no further rights: " + strings.Join(a.Table.Writers, ", ") + "."
		if _, isMySQL := a.base.(mysql); isMySQL {
			text += " The list has only users whose rights on the table or its database this user can see, so it may be incomplete."
		}
		f.Rights = append(f.Rights, text)
	}
	if len(a.Table.Triggers) > 0 {
		f.Limits = append(f.Limits, "The table has other triggers: "+strings.Join(a.Table.Triggers, ", ")+".")
	}
	f.Limits = append(f.Limits,
		"Stop the loop or connector that sends the rows today. Otherwise it also sends rows that are forwarded.",
		"An UPDATE that makes a row wait again is not forwarded; rowrelay adopt --status counts such rows, and running the command again forwards them.")
	if limit := a.orderLimit(); limit != "" {
		f.Limits = append(f.Limits, limit)
	}
	if !a.marks() {
		f.Limits = append(f.Limits, "Forwarded rows are not marked. If the old loop is started again, it may send them again.")
	}
	return f
}

// orderLimit describes the rows of the backlog that may be forwarded in a different order from their INSERTs. It returns ""
// unless the last expression of the order is ctid or a column that may hold UUIDs.
func (a *Adoption) orderLimit() string {
	last := a.Mapping.Order[strings.LastIndex(a.Mapping.Order, ",")+1:]
	column, _ := a.bareColumn(last)
	switch {
	case a.onlyNew():
	case strings.EqualFold(strings.TrimSpace(last), "ctid"):
		return "Waiting rows that are equal in the order's other expressions, such as rows that one transaction wrote with created_at = now(), are forwarded in the order of the INSERT statements in their transaction (cmin). Rows of one statement are forwarded in the order of their places in the table (ctid), which is not always the order in which they were inserted. An UPDATE changes a row's cmin and ctid. Even if the UPDATE was rolled back, for example because the loop was killed, the row has lost the cmin of its INSERT."
	case proposal{table: a.Table}.id(column.Name) != "":
		return "Waiting rows that are equal in the order's other expressions are forwarded in the order of " + column.Name + ". If its values are random, this is not the order of the INSERTs."
	}
	return ""
}

// checkWay returns an error if the table can't be adopted in this way.
func (a *Adoption) checkWay() error {
	_, isPostgres := a.base.(postgres)
	switch {
	case a.Way == View && !isPostgres:
		return errors.New("a view can take the table's place on PostgreSQL only")
	case a.Way == View && a.Table.Secured:
		return errors.New("the table has row level security, which a view would circumvent: use the trigger")
	case a.placed.Way != "" && a.placed.Way != a.Way:
		return fmt.Errorf("the table is adopted by a %s: run rowrelay adopt with --undo first", a.placed.Way)
	}
	return nil
}

// String returns the table's name in the form that Open accepts.
func (t Table) String() string {
	if t.Schema == "" {
		return t.Name
	}
	return t.Schema + "." + t.Name
}

const pathLimit = "An expression of the mapping that calls a function of your own must name the function's schema: without a schema, only PostgreSQL's own functions are found."

const lastvalLimit = "After an INSERT, lastval() returns the id of the message. Programs must use RETURNING or currval() instead; PHP's lastInsertId() without a sequence uses lastval()."

func (postgres) facts(a *Adoption, f *Facts) {
	f.Rights = []string{"The function runs with the rights of the user that runs this command. The user must own the table, and needs INSERT on the outbox. Don't drop this user, because INSERTs would fail."}
	if a.Way == View {
		f.Costs = []string{"Each new row is written once, to the outbox only. In a test with messages of 200 bytes, writing and delivering together wrote 5 % more write-ahead log than with a loop over the table, and 49 % less with retention: 0."}
		f.Locks = []string{"LOCK TABLE … IN ACCESS EXCLUSIVE MODE: all programs wait. The command waits for it at most half a second at a time, and tries for ten minutes. --undo waits in the same way."}
		f.Limits = []string{
			"New rows are not in the table, so a SELECT, UPDATE or DELETE of a program doesn't find them. A program that checks how many rows its UPDATE or DELETE changed, as Hibernate does, fails.",
			"These fail: INSERT … ON CONFLICT with columns or a constraint, TRUNCATE, and an INSERT into another table with a foreign key that refers to a new row.",
			"The table's constraints are not checked for new rows, and its triggers don't run. So a duplicate key is not refused.",
			lastvalLimit, pathLimit,
			"RETURNING, DEFAULT, COPY and defaults of columns work. Generated columns are NULL.",
			"After --undo, rows that were inserted into the view are not in the table. They are in the outbox, and the relay delivers them.",
		}
		return
	}
	mark := ""
	if a.marks() {
		mark = ", and updated once to mark it"
	}
	f.Costs = []string{"Each row is written to the table and to the outbox" + mark + ". In a test with messages of 200 bytes, writing and delivering together wrote 69 % more write-ahead log than with a loop over the table, and 18 % more with retention: 0. A view (--view) writes less."}
	f.Locks = []string{
		"LOCK TABLE … IN EXCLUSIVE MODE: programs that write wait, and programs that read don't. The command waits for it at most half a second at a time, and tries for ten minutes.",
		"--undo locks the table IN ACCESS EXCLUSIVE MODE: programs that read wait, too.",
	}
	f.Limits = []string{lastvalLimit, pathLimit}
}

func (m mysql) facts(a *Adoption, f *Facts) {
	f.Costs = []string{"Each row is written twice, to the table and to the outbox."}
	f.Locks = []string{
		"LOCK TABLES … WRITE on the table and on the outbox: programs and relays wait. The command waits for it at most a second at a time, and tries for ten minutes.",
		"--undo locks the table in the same way.",
	}
	f.Rights = []string{
		"The triggers run with the rights of the user that runs this command, their DEFINER. Don't drop this user: INSERTs would fail.",
		"The user needs SELECT, UPDATE, TRIGGER and LOCK TABLES on the table, SELECT, INSERT and DELETE on the outbox's tables, and CREATE TEMPORARY TABLES. With binary logging and without SUPER, the server must have log_bin_trust_function_creators=1.",
	}
	if a.lists() {
		f.Rights = append(f.Rights, "The user also needs CREATE, DROP, SELECT, INSERT and DELETE on the table "+m.list(a)+", which lists the keys of forwarded rows until the trigger exists. --undo drops it.")
	}
	if parents := strings.Join(a.Table.Parents, ", "); parents != "" {
		f.Limits = append(f.Limits, "The table has foreign keys, so "+parents+" must be locked, too; the user needs SELECT and LOCK TABLES on them. While the command takes the lock, a transaction that has written to one of them can fail with the error 1213 (deadlock). Programs have to repeat it, as after any deadlock.")
	}
	if a.deletes() {
		f.Limits = append(f.Limits, "A trigger can't delete the row that it forwards. So new rows stay in the table: delete old ones from time to time, and all of them before the old loop is started again, because it would send them again.")
	}
}

func (sqlite) facts(_ *Adoption, f *Facts) {
	f.Rights = []string{"Programs that can write to the file need no further rights."}
	f.Costs = []string{"Each row is written twice, to the table and to the outbox."}
	f.Locks = []string{"Each step is a transaction, and other writers wait for it, as for any transaction of SQLite."}
	f.Limits = []string{"If an expression of the mapping fails for a row, such as json_extract for a text that is not JSON, the program's INSERT fails: SQLite's triggers can't catch an error."}
}
