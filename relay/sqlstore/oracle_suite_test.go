package sqlstore_test

import (
	"context"
	"sync"
	"testing"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/outbox/dialect"
	"github.com/rowrelay/rowrelay/relay/storetest"
)

// oracleTable is a table whose rows can be locked. The driver returns an INSERT's id only in an output
// parameter, so Insert queries the id.
type oracleTable struct{ table }

func (o oracleTable) Begin(t testing.TB) storetest.Tx {
	tx := o.table.Begin(t)
	if tx == nil {
		return nil
	}
	return oracleProducer{tx.(*producer)}
}

type oracleProducer struct{ *producer }

func (p oracleProducer) Insert(message outbox.Message) (id int64) {
	rows := []dialect.Row{p.row(message)}
	for _, query := range p.dialect.Insert(outboxTable, rows) {
		if _, err := p.tx.Exec(query.SQL, query.Args...); err != nil {
			p.t.Errorf("insert: %v", err)
			return 0
		}
	}
	if err := p.tx.QueryRow("SELECT MAX(id) FROM outbox WHERE message_id = :1", rows[0].MessageID).Scan(&id); err != nil {
		p.t.Error(err)
	}
	return id
}

func (o oracleTable) LockRow(t testing.TB, id int64) (waiting func() bool, unlock func()) {
	tx, err := o.OpenAnother(t).BeginTx(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var session int64
	if err := tx.QueryRow("SELECT SYS_CONTEXT('USERENV', 'SID') FROM outbox WHERE id = :1 FOR UPDATE", id).Scan(&session); err != nil {
		t.Fatal(err)
	}
	waiting = func() bool {
		var blocked int
		if err := o.DB.QueryRow("SELECT COUNT(*) FROM v$session WHERE blocking_session = :1", session).Scan(&blocked); err != nil {
			t.Error(err)
		}
		return blocked > 0
	}
	unlock = sync.OnceFunc(func() { _ = tx.Rollback() })
	t.Cleanup(unlock)
	return waiting, unlock
}
