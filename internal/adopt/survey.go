package adopt

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// Survey describes the table's rows, for a plan or a status.
type Survey struct {
	Waiting int64         // rows that wait in the table; -1 if that is unknown
	Took    time.Duration // how long the count took. Writers wait about as long while Run forwards the last waiting rows.

	Adopted   Way   // the way in which the table is adopted; empty: it isn't
	Forwarded int64 // rows of the backlog that were forwarded
	Complete  bool  // the whole backlog was forwarded

	Parked int64 // messages that are parked because the outbox would have refused them, or because the mapping failed

	// If the table has rows, Sampled is true, and Topic, Key and ID are the values of the first row that waits or, if no row waits,
	// of any row.
	Sampled        bool
	Topic, Key, ID sql.NullString

	Missing  []string // rights that the database's user lacks, as GRANT statements or sentences
	Warnings []string // sentences about the database's user and about waiting rows whose order is lost
}

// Survey reads the table. It fails if an expression of the mapping is invalid or fails for a waiting row. If a statement fails
// because of another session's lock, such as the lock of an earlier run that was killed, Survey tries again as Run does.
func (a *Adoption) Survey(ctx context.Context) (s Survey, err error) {
	err = a.patiently(ctx, func(int) error {
		s, err = a.survey(ctx)
		return err
	})
	return s, err
}

func (a *Adoption) survey(ctx context.Context) (s Survey, err error) {
	r, _, err := a.readRecord(ctx, a.db, "read")
	if err != nil {
		return s, err
	}
	tx, err := a.db.BeginTx(ctx, nil)
	if err != nil {
		return s, err
	}
	defer func() { _ = tx.Rollback() }()
	if err := a.execute(ctx, tx, "path"); err != nil {
		return s, err
	}
	s = Survey{Waiting: -1, Adopted: a.placed.Way, Forwarded: r.Forwarded, Complete: r.Complete}
	if err := a.select1(ctx, tx, "count parked", &s.Parked); err != nil {
		return s, err
	}
	for template, list := range map[string]*[]string{"missing rights": &s.Missing, "warnings": &s.Warnings} {
		if *list, err = a.texts(ctx, tx, template); err != nil {
			return s, err
		}
	}
	if a.Check() != nil { // the mapping isn't complete
		return s, nil
	}
	switch {
	case a.onlyNew(), a.placed.Way != "" && !a.marksNew() && r.Complete: // each row is forwarded when it is written
		s.Waiting = 0
	case a.placed.Way != "" && !a.marksNew(): // forwarded rows can't be distinguished from rows that wait
	default:
		begin := time.Now()
		if err := a.select1(ctx, tx, "count", &s.Waiting); err != nil {
			return s, fmt.Errorf("count the rows that wait in %s: %w", a.Table.Name, err)
		}
		s.Took = time.Since(begin)
		lost, err := a.texts(ctx, tx, "lost order")
		if err != nil {
			return s, err
		}
		s.Warnings = append(s.Warnings, lost...)
	}
	return s, a.sample(ctx, tx, &s)
}

// Parked returns the number of messages that are parked because the outbox would have refused their rows, or because the mapping
// failed for them.
func (a *Adoption) Parked(ctx context.Context) (count int64, err error) {
	err = a.select1(ctx, a.db, "count parked", &count)
	return count, err
}

// Verify lets the database check the statements that forward rows and mark them, and executes none of them. If this user
// has no right to execute them, it returns nil without a check.
func (a *Adoption) Verify(ctx context.Context) error {
	if err := a.Check(); err != nil || a.onlyNew() && !a.marks() {
		return err
	}
	checked := *a
	if a.onlyNew() { // no backlog is forwarded, but the statements have the assignments with which the triggers mark rows
		checked.Mapping.Waiting, checked.Mapping.Order = "1 = 0", cmp.Or(a.Mapping.Order, "1")
	}
	if err := a.patiently(ctx, func(int) error { return checked.explain(ctx) }); err != nil && !a.denied(err) {
		return fmt.Errorf("check the statements that forward the rows of %s: %w", a.Table.Name, err)
	}
	return nil
}

// explain lets the database explain the statements of a batch.
func (a *Adoption) explain(ctx context.Context) error {
	list, err := a.statements("batch", firstRows)
	if err != nil {
		return err
	}
	tx, err := a.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if err := a.execute(ctx, tx, "path", "unprepare", "prepare", "prepare explain"); err != nil {
		return err
	}
	for _, statement := range list {
		rows, err := tx.QueryContext(ctx, "EXPLAIN "+statement)
		if err == nil {
			err = errors.Join(rows.Close(), rows.Err())
		}
		if err != nil {
			return err
		}
	}
	return a.execute(ctx, tx, "unprepare")
}

// sample maps a row in the same way as the trigger.
func (a *Adoption) sample(ctx context.Context, q queryer, s *Survey) error {
	for _, template := range []string{"sample", "sample any"} {
		err := a.select1(ctx, q, template, &s.Topic, &s.Key, &s.ID)
		if s.Sampled = err == nil; s.Sampled {
			return nil
		}
		if !errors.Is(err, sql.ErrNoRows) {
			return fmt.Errorf("the mapping fails for a row of %s: %w", a.Table.Name, err)
		}
	}
	return nil
}

// texts returns the texts that a template selects. It returns none if the template is empty for this database.
func (a *Adoption) texts(ctx context.Context, q queryer, template string) (list []string, err error) {
	statement, err := a.render(template, 0)
	if err != nil || statement == "" {
		return nil, err
	}
	var text string
	err = all(ctx, q, statement, nil, func() { list = append(list, text) }, &text)
	return list, err
}

// select1 scans the only row that a template selects.
func (a *Adoption) select1(ctx context.Context, q queryer, template string, destinations ...any) error {
	statement, err := a.render(template, 0)
	if err != nil {
		return err
	}
	return q.QueryRowContext(ctx, statement).Scan(destinations...)
}
