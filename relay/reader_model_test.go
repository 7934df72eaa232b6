package relay

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/rowrelay/rowrelay/outbox"
	"github.com/rowrelay/rowrelay/relay/storage"
)

var readerSteps = flag.Int("reader-steps", 100_000, "how many random steps TestReadersAgainstAModel makes")

// TestReadersAgainstAModel runs three readers of a lane against a model of a table. Its random steps are commits, pages that
// are read before the previous page was merged, full sinks, pauses, blocked and forgotten keys, rewinds and takeovers. After
// each step, the test checks the invariant of reader.go. At the end everything must be delivered.
func TestReadersAgainstAModel(t *testing.T) {
	t.Parallel()
	const each = 2_000
	for seed := range uint64(max(1, *readerSteps/each)) {
		if problem := newReaderModel(seed, readerOps()).run(each); problem != "" {
			t.Fatalf("seed %d: %s", seed, problem)
		}
	}
}

// modelOps has the operations of readers that a mutant can replace by wrong ones.
type modelOps struct {
	offer    func(r *reader, row *storage.Row, m meeting) answer
	rewind   func(r *reader, place int64)
	leaveOut func(r *reader, id int64)
	closeGap func(r *reader)
	advance  func(rs readers, after, through int64, takesPart func(int) bool)
	marks    func(rs readers, final int64) (int64, map[int]int64)
	recalled func(r *reader, k *key)                    // called when a forgotten key is blocked again
	resumeTo func(r *reader, k *key) int64              // up to which id the dropped rows of a key were read
	willMeet func(p *places, id int64, key string) bool // whether the reader will read the row, so that a scan doesn't return it
	keeps    func(reading int) bool                     // whether a settled row stays known while this number of reads is in progress
	hasty    bool                                       // a page's safe id limits the marks before the page is merged
}

func readerOps() modelOps {
	return modelOps{
		offer: (*reader).offer, rewind: (*reader).rewind, leaveOut: (*reader).leaveOut, closeGap: (*reader).closeGap,
		advance: readers.advance, marks: readers.marks,
		recalled: func(r *reader, k *key) {
			if r.gap != none {
				k.dropAt(r.gap + 1)
			}
		},
		resumeTo: func(r *reader, _ *key) int64 { return r.cursor },
		willMeet: (*places).willMeet,
		keeps:    func(reading int) bool { return reading > 0 },
	}
}

// TestReaderModelFindsMutants shows that TestReadersAgainstAModel detects defects: for each wrong operation, some history
// fails.
func TestReaderModelFindsMutants(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(o *modelOps){
		"a row above the cursor is taken": func(o *modelOps) {
			o.offer = func(r *reader, row *storage.Row, m meeting) answer {
				return offerAt(r, max(r.cursor, row.ID), row, m)
			}
		},
		"a full sink skips rows": func(o *modelOps) {
			o.offer = func(r *reader, row *storage.Row, m meeting) answer {
				before := r.cursor
				a := r.offer(row, m)
				if a == rowStopped && !m.leaving {
					r.cursor = before
				}
				return a
			}
		},
		"a full sink stops at the row, not before it": func(o *modelOps) {
			o.offer = func(r *reader, row *storage.Row, m meeting) answer {
				a := r.offer(row, m)
				if a == rowStopped {
					r.cursor++
				}
				return a
			}
		},
		"a full sink stops, and takes later rows": func(o *modelOps) {
			stopped := int64(0)
			o.offer = func(r *reader, row *storage.Row, m meeting) answer {
				if row.ID > r.cursor && r.cursor == stopped {
					return offerAt(r, row.ID, row, m)
				}
				a := r.offer(row, m)
				if a == rowStopped {
					stopped = r.cursor
				}
				return a
			}
		},
		"a lane that is given up skips rows": func(o *modelOps) {
			o.rewind = func(*reader, int64) {}
		},
		"a known row is taken again": func(o *modelOps) {
			o.offer = func(r *reader, row *storage.Row, m meeting) answer {
				a := r.offer(row, m)
				if it := r.known[row.ID]; a == rowKnown && it.stage == written {
					return rowTaken
				}
				return a
			}
		},
		"a settled row is forgotten while a page is read": func(o *modelOps) { o.keeps = func(int) bool { return false } },
		"a paused row leaves no gap": func(o *modelOps) {
			o.offer = func(r *reader, row *storage.Row, m meeting) answer {
				gap := r.gap
				a := r.offer(row, m)
				r.gap = gap
				return a
			}
		},
		"a gap keeps the last position": func(o *modelOps) {
			o.leaveOut = func(r *reader, id int64) { r.gap = id - 1 }
		},
		"a gap is forgotten when a reader is rewound": func(o *modelOps) {
			o.rewind = func(r *reader, place int64) { r.rewind(place); r.gap = none }
		},
		"a gap is not read again": func(o *modelOps) { o.closeGap = func(r *reader) { r.gap = none } },
		"a forgotten key leaves no gap": func(o *modelOps) {
			o.leaveOut = func(*reader, int64) {}
		},
		"a recalled key starts at the offered row": func(o *modelOps) { o.recalled = func(*reader, *key) {} },
		"a page moves readers below it": func(o *modelOps) {
			o.advance = func(rs readers, _, through int64, takesPart func(int) bool) { rs.advance(0, through, takesPart) }
		},
		"a page for one sink moves all": func(o *modelOps) {
			o.advance = func(rs readers, after, through int64, _ func(int) bool) {
				rs.advance(after, through, func(int) bool { return true })
			}
		},
		"a page moves readers too far": func(o *modelOps) {
			o.advance = func(rs readers, after, through int64, takesPart func(int) bool) {
				rs.advance(after, through+1, takesPart)
			}
		},
		"a key continues before all its rows are read": func(o *modelOps) {
			o.resumeTo = func(r *reader, _ *key) int64 { return r.cursor - 2 }
		},
		"a scan expects all rows of a gap": func(o *modelOps) {
			o.willMeet = func(p *places, id int64, key string) bool { return p.willMeet(id, key) || p.mayLeaveOut(id) }
		},
		"a scan expects the row at the cursor": func(o *modelOps) {
			o.willMeet = func(p *places, id int64, key string) bool { return p.willMeet(id+1, key) }
		},
		"a safe id holds before its page is merged": func(o *modelOps) { o.hasty = true },
		"a mark passes a gap":                       marksWithout(func(r *reader) { r.gap = none }),
		"a mark passes the position of a key":       marksWithout(func(r *reader) { r.keys = nil }),
		"a mark passes known rows":                  marksWithout(func(r *reader) { r.known = nil }),
		"a mark passes readers that are behind": func(o *modelOps) {
			o.marks = func(rs readers, final int64) (int64, map[int]int64) {
				main, _ := rs.marks(final)
				return main, nil
			}
		},
		"a mark passes ids that aren't final": func(o *modelOps) {
			o.marks = func(rs readers, _ int64) (int64, map[int]int64) { return rs.marks(1 << 40) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ops := readerOps()
			spoil(&ops)
			for seed := range uint64(100) {
				if problem := newReaderModel(seed, ops).run(2000); problem != "" {
					t.Logf("seed %d: %s", seed, problem)
					return
				}
			}
			t.Error("no history detected this mutant")
		})
	}
}

// offerAt offers a row to the reader as if it had this cursor.
func offerAt(r *reader, cursor int64, row *storage.Row, m meeting) answer {
	before := r.cursor
	r.cursor = cursor
	a := r.offer(row, m)
	r.cursor = min(r.cursor, before)
	return a
}

// marksWithout computes the marks of readers that were changed by the given function.
func marksWithout(change func(r *reader)) func(*modelOps) {
	return func(o *modelOps) {
		o.marks = func(rs readers, final int64) (int64, map[int]int64) {
			rs = slices.Clone(rs)
			for i := range rs {
				change(&rs[i])
			}
			return rs.marks(final)
		}
	}
}

const (
	modelSinks = 2 // the number of sinks; there is also a reader for rows without a route
	modelRoom  = 3 // how many rows each sink's queue can hold
)

// modelRow is a row of the modelled table, with its state for each sink.
type modelRow struct {
	storage.Row
	needs    [modelSinks + 1]bool
	finished [modelSinks + 1]bool
	deferred [modelSinks + 1]bool
	appeared int // when it was committed; 0: it is not committed
}

func (m *modelRow) pending(queue int) bool {
	return m.needs[queue] && !m.finished[queue] && !m.deferred[queue]
}

// modelPage is a read in progress, with the rows that it returns.
type modelPage struct {
	queue          int // the queue whose rows it reads; -1: it reads new rows for all queues
	without        int // the sink whose topics a read of new rows excludes, and whose reader doesn't move; -1: none
	key            *key
	after, through int64
	more           bool
	rows           []modelRow
	safeID, late   int64
	seen           int // when it was read
}

type readerModel struct {
	*rand.Rand
	ops modelOps

	now    int
	table  []*modelRow
	lastID int64
	readAt int   // the time of the last read
	readID int64 // lastID at that time

	rs         readers
	keysKnown  bool
	safeID     int64 // of the last page that was merged
	mergedAt   int   // when this page was read
	unreported int64 // above this id, rows may have appeared that no merged page has reported; or none
	pages      []*modelPage
	seen       map[*item]int // when the page of an item was read
	settled    []*item       // settled while a read was in progress
	pauses     *pauses
	passed     *keySet

	problem string
}

func newReaderModel(seed uint64, ops modelOps) *readerModel {
	m := &readerModel{Rand: rand.New(rand.NewPCG(seed, 35)), ops: ops, now: 1, unreported: none, keysKnown: true}
	m.takeOver(0, nil)
	return m
}

func (m *readerModel) fail(format string, args ...any) {
	if m.problem == "" {
		m.problem = fmt.Sprintf("moment %d: "+format, append([]any{m.now}, args...)...)
	}
}

// run makes random steps, and then steps that deliver everything.
func (m *readerModel) run(steps int) string {
	for range steps {
		m.step()
		if m.check(); m.problem != "" {
			return m.problem
		}
	}
	m.setPauses(nil)
	for _, row := range m.table {
		m.commit(row)
	}
	for range 1000 {
		m.read()
		m.merge()
		for queue := range modelSinks {
			m.catchUp(queue)
			m.merge()
			m.readKey(queue)
			m.merge()
			m.due(queue)
			for m.send(queue, 0) {
			}
		}
		m.learnKeys()
		if m.check(); m.problem != "" {
			return m.problem
		}
		if len(m.table) == 0 || !slices.ContainsFunc(m.table, func(row *modelRow) bool { return !row.needs[modelSinks] }) {
			return ""
		}
	}
	return fmt.Sprintf("%d rows never arrived, the first has id %d", len(m.table), m.table[0].ID)
}

// final returns the id at or below which no row can appear.
func (m *readerModel) final() int64 {
	if m.unreported != none {
		return min(m.safeID, m.unreported)
	}
	return m.safeID
}

func (m *readerModel) step() {
	m.now++
	queue := m.IntN(modelSinks)
	switch m.IntN(24) {
	case 0, 1, 2:
		m.write()
	case 3, 4:
		if len(m.table) > 0 {
			m.commit(m.table[m.IntN(len(m.table))])
		}
	case 5, 6, 7:
		m.read()
	case 8, 9, 10, 11:
		m.merge()
	case 12:
		m.readWithout(queue)
	case 13:
		m.catchUp(queue)
	case 14:
		m.readKey(queue)
	case 15, 16, 17, 18:
		m.send(queue, 4)
	case 19:
		m.due(queue)
	case 20:
		m.changePauses()
	case 21:
		if m.IntN(3) > 0 {
			m.forgetKeys()
		} else {
			m.learnKeys()
		}
	case 22:
		if m.IntN(3) == 0 {
			m.giveUp()
		}
	case 23:
		if m.IntN(6) == 0 {
			main, behind := m.ops.marks(m.rs, m.final())
			m.takeOver(main, behind)
		}
	}
}

// write adds a few rows to the table, and commits some of them immediately.
func (m *readerModel) write() {
	if len(m.table) > 40 {
		return
	}
	for range 1 + m.IntN(3) {
		m.lastID += 1 + int64(m.IntN(2))
		row := &modelRow{}
		row.ID, row.Message = m.lastID, outbox.Message{ID: fmt.Sprint(m.lastID), Topic: string(rune('s' + m.IntN(2)))}
		if m.IntN(4) > 0 {
			row.Message.Key = string(rune('a' + m.IntN(3)))
		}
		switch m.IntN(16) {
		case 0:
			if len(m.table) < 30 {
				row.needs[modelSinks] = true
				break
			}
			fallthrough
		case 1, 2:
			row.needs = [modelSinks + 1]bool{true, true}
		default:
			row.needs[m.IntN(modelSinks)] = true
		}
		m.table = append(m.table, row)
		if m.IntN(3) > 0 {
			m.commit(row)
		}
	}
}

func (m *readerModel) commit(row *modelRow) {
	if row.appeared == 0 {
		row.appeared = m.now
	}
}

// ask sets a page's safe id and LateAfter as a store does: LateAfter covers the time since the previous read.
func (m *readerModel) ask(p *modelPage) {
	p.safeID, p.late, p.seen = m.lastID, none, m.now
	for _, row := range m.table {
		if row.appeared == 0 {
			p.safeID = min(p.safeID, row.ID-1)
		}
		if row.appeared > m.readAt && row.ID <= max(m.readID, p.through) {
			p.late = lowestSet(p.late, row.ID-1)
		}
	}
	m.now++ // the next read reports later commits
	m.readAt, m.readID = m.now-1, m.lastID
}

// start reads a page.
func (m *readerModel) start(p *modelPage, until int64, limit int) {
	p.through = until
	for _, row := range m.table {
		wanted := row.appeared > 0 && row.ID > p.after && (until == 0 || row.ID <= until) && (p.key == nil || row.Message.Key == p.key.ref.key) &&
			(row.pending(0) && p.without != 0 || row.pending(1) && p.without != 1 || row.pending(modelSinks))
		if wanted && len(p.rows) == limit {
			p.more = true
			break
		}
		if wanted {
			p.rows = append(p.rows, *row)
		}
	}
	m.ask(p)
	switch {
	case p.more:
		p.through = p.rows[limit-1].ID
	case until == 0:
		p.through = p.safeID
		if len(p.rows) > 0 {
			p.through = max(p.through, p.rows[len(p.rows)-1].ID)
		}
	}
	if m.pages = append(m.pages, p); m.ops.hasty {
		m.safeID = p.safeID
	}
}

func (m *readerModel) read() {
	if len(m.pages) == 0 {
		m.start(&modelPage{queue: -1, without: -1, after: max(0, m.rs.head()-int64(m.IntN(4)))}, 0, 1+m.IntN(5))
	}
}

// readWithout reads some new rows for all sinks except one, whose topics it excludes.
func (m *readerModel) readWithout(queue int) {
	if head := m.rs.head(); len(m.pages) == 0 && head < m.lastID {
		m.start(&modelPage{queue: -1, without: queue, after: max(0, head-int64(m.IntN(4)))}, min(head+1+int64(m.IntN(12)), m.lastID), 1+m.IntN(5))
	}
}

func (m *readerModel) catchUp(queue int) {
	if r := &m.rs[queue]; len(m.pages) == 0 && r.cursor < m.rs.head() && m.room(queue) > 0 {
		m.start(&modelPage{queue: queue, without: -1, after: r.cursor}, m.rs.head(), 1+m.IntN(4))
	}
}

func (m *readerModel) readKey(queue int) {
	r := &m.rs[queue]
	if len(m.pages) > 0 {
		return
	}
	for _, name := range []string{"a", "b", "c"} {
		k := r.keys[name]
		if k == nil || k.blocked || !k.dropped || k.fromDatabase && !m.askAgain(queue, k) {
			continue
		}
		until := min(m.ops.resumeTo(r, k), m.rs.head())
		if k.resumeFrom < until {
			m.start(&modelPage{queue: queue, without: -1, key: k, after: k.resumeFrom}, until, 1+m.IntN(3))
			return
		}
		k.dropped = false // all dropped rows were read; the key's other rows are above the cursor
		m.forgetKey(r, k)
	}
}

// askAgain asks the table whether another row blocks the key. It returns true if no other row does.
func (m *readerModel) askAgain(queue int, k *key) bool {
	k.fromDatabase = false
	if holder := m.holder(queue, k.ref.key); holder != nil {
		k.blocked, k.blockedBy, k.fromDatabase = true, holder.ID, true
	}
	return !k.blocked
}

// merge merges the first page, after a scan for late rows.
func (m *readerModel) merge() {
	if len(m.pages) == 0 {
		return
	}
	p := m.pages[0]
	m.pages = m.pages[1:]
	m.now++
	late := lowestSet(p.late, m.unreported)
	m.unreported = none
	if late != none {
		m.scan(late)
	}
	if p.key != nil {
		m.mergeKey(p)
	} else {
		m.ops.advance(m.rs, p.after, p.through, func(queue int) bool { return (p.queue < 0 || p.queue == queue) && queue != p.without })
		if p.queue < 0 && p.more && m.IntN(2) == 0 { // start the next read before this page is admitted
			m.start(&modelPage{queue: -1, without: -1, after: max(0, p.through-int64(m.IntN(4)))}, 0, 1+m.IntN(5))
		}
		for i := range p.rows {
			for queue := range m.rs {
				if p.queue < 0 || p.rows[i].needs[p.queue] {
					m.offer(queue, &p.rows[i], p.seen)
				}
			}
		}
	}
	m.safeID, m.mergedAt = p.safeID, p.seen
	for _, it := range m.settled {
		m.drop(it)
	}
	m.settled = nil
}

// mergeKey merges the dropped rows of a key that was unblocked.
func (m *readerModel) mergeKey(p *modelPage) {
	k, r := p.key, &m.rs[p.queue]
	if r.keys[k.ref.key] != k || k.blocked || !k.dropped || k.resumeFrom != p.after {
		return
	}
	for i := range p.rows {
		if k.resumeFrom = p.rows[i].ID; m.room(p.queue) <= 0 {
			k.resumeFrom--
			return
		}
		if m.offer(p.queue, &p.rows[i], p.seen); k.resumeFrom < p.rows[i].ID || k.blocked {
			return
		}
	}
	if k.resumeFrom = p.through; !p.more && k.resumeFrom >= m.ops.resumeTo(r, k) {
		k.dropped = false
		m.forgetKey(r, k)
	}
}

// scan scans for late rows, until it has all rows that must be delivered before the rows that it has found.
func (m *readerModel) scan(late int64) {
	var found []modelRow
	seen, room := m.now, 4
	full := map[int]int64{}
	for after := late; after != none; {
		more := false
		for _, row := range m.table {
			if row.appeared == 0 || row.ID <= after || row.ID > m.rs.head() || slices.ContainsFunc(found, func(f modelRow) bool { return f.ID == row.ID }) {
				continue
			}
			for queue := range m.rs {
				if !row.pending(queue) || m.expected(queue, row) {
					continue
				}
				if room <= 0 {
					if first, ok := full[queue]; !ok || row.ID < first {
						full[queue] = row.ID
					}
					continue
				}
				room--
				more = true
				found = append(found, *row)
				break
			}
		}
		if after = none; more {
			p := &modelPage{}
			m.ask(p)
			if seen = p.seen; p.late != none && p.late < late {
				late, after = p.late, p.late
			}
			m.unreported = lowestSet(m.unreported, p.late)
		}
	}
	for queue, id := range full {
		m.ops.rewind(&m.rs[queue], id-1)
	}
	slices.SortFunc(found, func(a, b modelRow) int { return cmp.Compare(a.ID, b.ID) })
	for i := range found {
		for queue := range m.rs {
			m.offer(queue, &found[i], seen)
		}
	}
}

// expected reports whether the reader has the row in memory, or will read it later.
func (m *readerModel) expected(queue int, row *modelRow) bool {
	r := &m.rs[queue]
	p := r.places()
	switch {
	case r.known[row.ID] != nil, m.ops.willMeet(&p, row.ID, row.Message.Key):
		return true
	case p.mayLeaveOut(row.ID) && m.pauses.cover(row.Message.Topic, row.Message.Key, queue, m.passed):
		if row.Message.Key != "" && m.pauses.topics[row.Message.Topic] {
			m.passed.add(queue, row.Message.Key)
		}
		return true
	}
	return false
}

// room returns how many more rows a sink may take.
func (m *readerModel) room(queue int) int {
	if queue == modelSinks {
		return 0
	}
	return modelRoom - len(m.rs[queue].known)
}

// offer offers a row to a reader, and carries out the answer.
func (m *readerModel) offer(queue int, row *modelRow, seen int) {
	if !row.pending(queue) {
		return
	}
	r, as := &m.rs[queue], row.Row
	paused := m.pauses != nil && m.pauses.cover(row.Message.Topic, row.Message.Key, queue, m.passed)
	meets := meeting{room: m.room(queue), paused: paused, keyKnown: m.keysKnown}
	a := m.ops.offer(r, &as, meets)
	if a == rowUnasked {
		if m.IntN(8) == 0 { // as if the database hadn't been asked about the key
			m.ops.rewind(r, row.ID-1)
			return
		}
		if holder := m.holder(queue, row.Message.Key); holder != nil && r.known[holder.ID] == nil {
			m.blockAgain(queue, row.Message.Key, holder.ID)
		}
		meets.keyKnown = true
		a = m.ops.offer(r, &as, meets)
	}
	switch {
	case a == rowPaused && row.Message.Key != "" && len(m.pauses.topics) > 0:
		m.passed.add(queue, row.Message.Key)
	case a == rowTaken:
		if current := m.row(row.ID); current == nil || !current.pending(queue) {
			m.fail("row %d was offered to sink %d after it was settled", row.ID, queue)
		}
		m.take(queue, as, seen)
	}
}

func (m *readerModel) take(queue int, row storage.Row, seen int) *item {
	r := &m.rs[queue]
	it := &item{row: row, slot: queue}
	r.known[row.ID], m.seen[it] = it, seen
	if row.Message.Key != "" {
		k := r.keys[row.Message.Key]
		if k == nil {
			k = &key{ref: keyRef{queue, row.Message.Key}}
			r.keys[row.Message.Key] = k
		}
		it.key = k
		k.add(it)
	}
	return it
}

func (m *readerModel) row(id int64) *modelRow {
	if at := slices.IndexFunc(m.table, func(row *modelRow) bool { return row.ID == id }); at >= 0 {
		return m.table[at]
	}
	return nil
}

// holder returns the key's deferred row with the lowest id in the table.
func (m *readerModel) holder(queue int, key string) *modelRow {
	for _, row := range m.table {
		if row.deferred[queue] && row.Message.Key == key && key != "" {
			return row
		}
	}
	return nil
}

func (m *readerModel) blockAgain(queue int, name string, holder int64) {
	r := &m.rs[queue]
	k := &key{ref: keyRef{queue, name}, blocked: true, blockedBy: holder, fromDatabase: true}
	r.keys[name] = k
	m.ops.recalled(r, k)
}

// drop removes an item from memory.
func (m *readerModel) drop(it *item) {
	r := &m.rs[it.slot]
	if r.known[it.row.ID] == it {
		delete(r.known, it.row.ID)
	}
	delete(m.seen, it)
	m.forgetKey(r, it.key)
}

func (m *readerModel) forgetKey(r *reader, k *key) {
	if k != nil && r.keys[k.ref.key] == k && len(k.items) == 0 && !k.blocked && !k.dropped {
		delete(r.keys, k.ref.key)
	}
}

// send sends a row. One send in `retries` fails, and the row's key waits.
func (m *readerModel) send(queue, retries int) bool {
	r := &m.rs[queue]
	var ready []*item
	for _, it := range r.known {
		if it.stage == inQueue && (it.key == nil || it.key.blocked && it.key.blockedBy == it.row.ID || !it.key.blocked && it.key.items[0] == it) {
			ready = append(ready, it)
		}
	}
	if len(ready) == 0 {
		return false
	}
	slices.SortFunc(ready, func(a, b *item) int { return cmp.Compare(a.row.ID, b.row.ID) })
	it := ready[m.IntN(len(ready))]
	row := m.row(it.row.ID)
	if row == nil || row.finished[queue] {
		m.fail("row %d was sent twice to sink %d", it.row.ID, queue)
		return false
	}
	for _, other := range m.table {
		if !it.row.Deferred && it.key != nil && other.ID < it.row.ID && other.Message.Key == it.row.Message.Key && other.needs[queue] && !other.finished[queue] &&
			other.appeared > 0 && other.appeared <= m.seen[it] {
			m.fail("sink %d received row %d before row %d", queue, it.row.ID, other.ID)
		}
	}
	if it.key != nil {
		it.key.remove(it)
	}
	it.stage = written
	if retries > 0 && m.IntN(retries) == 0 {
		row.deferred[queue] = true
		if k := it.key; k != nil {
			k.blocked, k.blockedBy = true, it.row.ID
			for _, later := range slices.Clone(k.items) {
				k.remove(later)
				k.dropAt(later.row.ID)
				m.drop(later)
			}
		}
	} else {
		row.finished[queue] = true
		row.deferred[queue] = false
		if k := it.key; k != nil && k.blocked && k.blockedBy == it.row.ID {
			if k.blocked = false; k.fromDatabase && !k.dropped {
				k.dropAt(r.cursor + 1)
			}
		}
		if row.finished == row.needs {
			m.table = slices.DeleteFunc(m.table, func(other *modelRow) bool { return other == row })
		}
	}
	if m.ops.keeps(len(m.pages)) {
		m.settled = append(m.settled, it)
	} else {
		m.drop(it)
	}
	return true
}

// due returns a deferred row to memory, unless it is paused.
func (m *readerModel) due(queue int) {
	r := &m.rs[queue]
	for _, row := range m.table {
		if !row.deferred[queue] || r.known[row.ID] != nil || m.pauses.cover(row.Message.Topic, row.Message.Key, queue, nil) {
			continue
		}
		as := row.Row
		as.Deferred = true
		if k := r.keys[row.Message.Key]; !k.takes(&as) {
			continue
		}
		if m.keysKnown || row.Message.Key == "" || r.keys[row.Message.Key] != nil {
			it := m.take(queue, as, m.now)
			if k := it.key; k != nil {
				k.blocked, k.blockedBy = true, row.ID
				for _, other := range slices.Clone(k.items) {
					if other != it {
						k.remove(other)
						k.dropAt(other.row.ID)
						m.drop(other)
					}
				}
			}
		} else {
			m.blockAgain(queue, row.Message.Key, m.holder(queue, row.Message.Key).ID)
		}
		return
	}
}

func (m *readerModel) changePauses() {
	names := func(all ...string) map[string]bool {
		some := map[string]bool{}
		for _, name := range all {
			if m.IntN(3) == 0 {
				some[name] = true
			}
		}
		return some
	}
	p := &pauses{names("s"), names("b", "c")}
	if len(p.topics)+len(p.keys) == 0 {
		p = nil
	}
	m.setPauses(p)
}

// setPauses does what byLanes.controlled does when pauses change.
func (m *readerModel) setPauses(p *pauses) {
	was := m.pauses
	if was.equal(p) {
		return
	}
	m.pauses = p
	before := m.passed
	m.passed = newKeySet()
	if !was.within(p) {
		for i := range m.rs {
			m.ops.closeGap(&m.rs[i])
		}
		before = nil
	}
	var dropped []*item
	for _, it := range m.waiting() {
		if p.cover(it.row.Message.Topic, it.row.Message.Key, it.slot, m.passed) && !it.row.Deferred {
			m.ops.leaveOut(&m.rs[it.slot], it.row.ID)
			if it.key != nil && len(p.topics) > 0 {
				m.passed.add(it.slot, it.row.Message.Key)
			}
			if it.key != nil {
				it.key.remove(it)
			}
			m.drop(it)
			dropped = append(dropped, it)
		}
	}
	if before != nil {
		for _, it := range dropped {
			if it.key != nil {
				before.add(it.slot, it.row.Message.Key)
			}
		}
		m.passed = before
	}
}

// waiting returns the items in queues, ordered by id.
func (m *readerModel) waiting() (items []*item) {
	for i := range m.rs {
		for _, it := range m.rs[i].known {
			if it.stage == inQueue {
				items = append(items, it)
			}
		}
	}
	slices.SortFunc(items, func(a, b *item) int { return cmp.Or(cmp.Compare(a.row.ID, b.row.ID), a.slot-b.slot) })
	return items
}

// forgetKeys forgets blocked keys without items in memory.
func (m *readerModel) forgetKeys() {
	for i := range m.rs {
		r := &m.rs[i]
		for _, name := range []string{"a", "b", "c"} {
			k := r.keys[name]
			if k == nil || !k.blocked || len(k.items) > 0 || r.known[k.blockedBy] != nil || len(m.pages) > 0 || m.holder(i, name) == nil {
				continue
			}
			if k.dropped {
				m.ops.leaveOut(r, k.resumeFrom+1)
			}
			delete(r.keys, name)
			m.keysKnown = false
		}
	}
}

// learnKeys reads all blocked keys of the table.
func (m *readerModel) learnKeys() {
	if m.keysKnown || len(m.pages) > 0 {
		return
	}
	for i := range m.rs {
		for _, name := range []string{"a", "b", "c"} {
			if holder := m.holder(i, name); holder != nil && m.rs[i].keys[name] == nil && m.rs[i].known[holder.ID] == nil {
				m.blockAgain(i, name, holder.ID)
			}
		}
		if m.pauses == nil {
			m.rs[i].gap = none
		}
	}
	m.keysKnown = true
}

// giveUp drops all waiting items, as if the relay had begun to give up the lane and then kept it.
func (m *readerModel) giveUp() {
	for _, it := range m.waiting() {
		if k := it.key; k != nil && k.blocked && k.blockedBy != it.row.ID {
			continue
		}
		if it.key != nil {
			it.key.remove(it)
		}
		if !it.row.Deferred {
			for i := range m.rs {
				m.ops.rewind(&m.rs[i], it.row.ID-1)
			}
		}
		m.drop(it)
	}
}

// takeOver replaces the readers by new ones that begin at the stored marks, as a new holder of the lane does.
func (m *readerModel) takeOver(main int64, behind map[int]int64) {
	m.rs, m.pages, m.settled, m.seen = nil, nil, nil, map[*item]int{}
	for i := range modelSinks + 1 {
		r := newReader(main)
		if mark, ok := behind[i]; ok {
			r.cursor = min(main, mark)
		}
		r.routeless = i == modelSinks
		m.rs = append(m.rs, r)
	}
	m.keysKnown, m.passed = false, newKeySet()
	m.unreported, m.readAt, m.mergedAt = main, m.now, m.now // the new holder's store reports all rows above its first safe id as late
	m.safeID = main
}

// check checks the invariant.
func (m *readerModel) check() {
	main, behind := m.ops.marks(m.rs, m.final())
	for _, row := range m.table {
		for queue := range m.rs {
			r := &m.rs[queue]
			if !row.pending(queue) {
				continue
			}
			mark, ok := behind[queue]
			if !ok {
				mark = main
			}
			if row.ID <= mark {
				m.fail("the mark of sink %d is %d, and row %d isn't settled", queue, mark, row.ID)
			}
			if row.appeared == 0 || row.ID > min(r.cursor, m.rs.head()) {
				continue
			}
			k := r.keys[row.Message.Key]
			switch {
			case r.known[row.ID] != nil, k != nil && k.dropped && row.ID > k.resumeFrom:
			case row.appeared > m.mergedAt, m.unreported != none && row.ID > m.unreported: // a later page will report it as late
			case r.gap != none && row.ID > r.gap && (m.pauses.cover(row.Message.Topic, row.Message.Key, queue, m.passed) ||
				!m.keysKnown && k == nil && m.holder(queue, row.Message.Key) != nil):
			default:
				m.fail("row %d is lost for sink %d: cursor %d, gap %d", row.ID, queue, r.cursor, r.gap)
			}
		}
	}
}
