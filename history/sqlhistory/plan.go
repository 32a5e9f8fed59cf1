package sqlhistory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/swarmiji/swarmiji/history"
	"github.com/swarmiji/swarmiji/internal/sqlconn"
)

const (
	never = math.MaxInt64 >> 16 // milliseconds, after every time
	// maxArms limits the parts of an index that one page reads side by side. A term with more values
	// only filters.
	maxArms = 64
	// probed limits the entries of an index that are counted to compare it with others.
	probed = 1000
)

// plan describes how a query is answered: a driver lists the entries of one index, and the residual
// terms filter these entries.
type plan struct {
	ns       int64
	dialect  sqlconn.Dialect
	labels   map[int64]map[string]int64 // by kind and text, of the kinds that the query has
	begin    history.Cursor
	since    int64
	driver   *driver
	residual []*history.Term // without the term of driver, and those about time
}

// driver is a part of a plan: a term, and the parts of an index that list all records of that term.
type driver struct {
	term *history.Term // nil: all records
	arms []arm         // parts of the index, without common records
}

// arm is a part of an index: its condition, and whether it is one of the headers' table. index is
// the name of the index without "swarmiji_history_"; "": the unique one of the id.
type arm struct {
	headers bool
	index   string
	cond    func(b *builder) string
}

// builder collects the arguments of a statement.
type builder struct {
	dialect sqlconn.Dialect
	args    []any
}

// arg adds v to the arguments and returns its parameter, such as "$3".
func (b *builder) arg(v any) string {
	b.args = append(b.args, v)
	return "$" + strconv.Itoa(len(b.args))
}

// newPlan makes the plan of a query with absolute times for the namespace with the number ns. begin
// is the position with which the page begins. It reads labels and may count entries of indexes in
// tx, and returns the errors of the database.
func newPlan(ctx context.Context, tx *sqlconn.Tx, ns int64, q history.Query, begin history.Cursor) (*plan, error) {
	p := &plan{ns: ns, dialect: tx.Dialect(), begin: begin}
	if since, _ := q.Span(); !since.IsZero() {
		p.since = since.UnixMilli()
	}
	if err := p.readLabels(ctx, tx, q); err != nil {
		return nil, err
	}
	var drivers []*driver
	for i := range q.Terms {
		t := &q.Terms[i]
		if t.Field == history.FieldSince || t.Field == history.FieldBefore {
			continue
		}
		p.residual = append(p.residual, t)
		if arms := p.arms(t); len(arms) > 0 && len(arms) <= maxArms {
			drivers = append(drivers, &driver{t, arms})
		}
	}
	if err := p.choose(ctx, tx, drivers); err != nil {
		return nil, err
	}
	// the index of errors has also those that do not contain the text
	if i := slices.Index(p.residual, p.driver.term); i >= 0 && p.driver.term.Field != history.FieldError {
		p.residual = slices.Delete(p.residual, i, i+1)
	}
	if len(p.residual) == 0 {
		p.residual = nil
	}
	return p, nil
}

// labelKind returns the kind of label by which the table stores the values of f, or 0 if it stores
// them as texts.
func labelKind(f history.Field) int64 {
	switch f {
	case history.FieldName:
		return labelName
	case history.FieldQueue:
		return labelQueue
	case history.FieldClass:
		return labelClass
	case history.FieldHeader:
		return labelHeader
	}
	return 0
}

// readLabels reads into p.labels all labels of the kinds that terms of q need. It waits for the
// database and returns its errors.
func (p *plan) readLabels(ctx context.Context, tx *sqlconn.Tx, q history.Query) error {
	p.labels = make(map[int64]map[string]int64)
	for i := range q.Terms {
		if kind := labelKind(q.Terms[i].Field); kind != 0 && p.labels[kind] == nil {
			p.labels[kind] = map[string]int64{"": 0}
		}
	}
	if len(p.labels) == 0 {
		return nil
	}
	in, list := within(p.dialect, 2, slices.Sorted(maps.Keys(p.labels)))
	rows, err := tx.Query(ctx, "SELECT id, kind, text FROM swarmiji_history_label WHERE ns = $1 AND kind "+in, p.ns, list)
	if err != nil {
		return err
	}
	for rows.Next() {
		var id, kind int64
		var text string
		if err := rows.Scan(&id, &kind, &text); err != nil {
			return err
		}
		p.labels[kind][text] = id
	}
	return errors.Join(rows.Err(), rows.Close())
}

// matching returns the numbers of the labels whose text matches a value of t, in ascending order.
func (p *plan) matching(t *history.Term) []int64 {
	var ids []int64
	for text, id := range p.labels[labelKind(t.Field)] {
		if slices.ContainsFunc(t.Values, func(v history.Value) bool { return v.Match(text) }) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// states returns the stored numbers of the states that the values of t select, in ascending order.
// Failed also selects tasks with a dead letter.
func states(t *history.Term) []int64 {
	var codes []int64
	for _, v := range t.Values {
		switch v.Text {
		case history.StateDead:
			codes = append(codes, stateDead)
		case string(history.Failed):
			codes = append(codes, state(history.Failed, false), stateDead)
		default:
			codes = append(codes, state(history.State(v.Text), false))
		}
	}
	slices.Sort(codes)
	return slices.Compact(codes)
}

// exact returns the texts of the values of t, sorted and without duplicates. ok is false if a value
// is a prefix or empty, since an index cannot find those.
func exact(t *history.Term) (texts []string, ok bool) {
	for _, v := range t.Values {
		if v.Prefix || v.Text == "" {
			return nil, false
		}
		texts = append(texts, v.Text)
	}
	slices.Sort(texts)
	return slices.Compact(texts), true
}

// arms returns the parts of an index that together list the records of t, each record once. It
// returns none if no index does, or if t is negated. Only the tasks with any root have an index.
func (p *plan) arms(t *history.Term) []arm {
	if t.Not && t.Field == history.FieldRoot && len(t.Values) == 1 && t.Values[0] == (history.Value{}) {
		some := "h.root <> ''"
		if p.dialect == sqlconn.Postgres {
			some = "octet_length(h.root) > 0" // as the index says
		}
		return []arm{{index: "step", cond: func(b *builder) string { return "h.ns = " + b.arg(p.ns) + " AND " + some }}}
	}
	if t.Not {
		return nil
	}
	in := func(index, cond string, arg any) arm {
		return arm{index: index, cond: func(b *builder) string { return "h.ns = " + b.arg(p.ns) + " AND " + cond + b.arg(arg) }}
	}
	var arms []arm
	switch t.Field {
	case history.FieldState:
		for _, code := range states(t) {
			arms = append(arms, in("state", "h.state > 0 AND h.state = ", code))
		}
	case history.FieldName, history.FieldQueue, history.FieldClass:
		column := "h." + string(t.Field)
		for _, id := range p.matching(t) {
			if id == 0 { // its number is that of other namespaces too
				return nil
			}
			arms = append(arms, arm{index: string(t.Field), cond: func(b *builder) string { return column + " > 0 AND " + column + " = " + b.arg(id) }})
		}
	case history.FieldError:
		return []arm{{index: "error", cond: func(b *builder) string { return "h.ns = " + b.arg(p.ns) + " AND h.error <> ''" }}}
	case history.FieldID, history.FieldRoot, history.FieldGroup:
		texts, ok := exact(t)
		if !ok {
			return nil
		}
		for _, id := range texts {
			switch t.Field {
			case history.FieldID:
				arms = append(arms, in("", "h.id = ", id))
			case history.FieldRoot: // the root itself has no root
				arms = append(arms, in("root", "h.root <> '' AND h.root = ", id), in("", "h.root = '' AND h.id = ", id))
			default:
				arms = append(arms, in("grp", "h.grp <> '' AND h.grp = ", id))
			}
		}
	case history.FieldHeader:
		texts, ok := exact(t)
		key := p.labels[labelHeader][t.Key]
		if !ok || key == 0 {
			return nil
		}
		for _, v := range texts {
			cond := func(b *builder) string { return "k.label = " + b.arg(key) + " AND k.value = " + b.arg(v) }
			arms = append(arms, arm{headers: true, index: "header_value", cond: cond})
		}
	}
	return arms
}

// choose sets p.driver. Without drivers it is the index of all records. With one driver it is that
// one. Of several it is the one with the fewest entries; it counts up to probed of each, and the
// first one wins if all have as many. It waits for the database and returns its errors.
func (p *plan) choose(ctx context.Context, tx *sqlconn.Tx, drivers []*driver) error {
	switch len(drivers) {
	case 0:
		// PostgreSQL uses this index only with the condition about seq, and that of states with state > 0
		p.driver = &driver{arms: []arm{{index: "changed", cond: func(b *builder) string { return "h.seq > 0 AND h.ns = " + b.arg(p.ns) }}}}
		return nil
	case 1:
		p.driver = drivers[0]
		return nil
	}
	b := &builder{dialect: p.dialect}
	counts := make([]string, len(drivers))
	numbers, dest := make([]int, len(drivers)), make([]any, len(drivers))
	for i, d := range drivers {
		counts[i] = fmt.Sprintf("(SELECT count(*) FROM (%s LIMIT %d) AS c%d)", p.entries(b, d, p.begin, probed, nil), probed, i)
		dest[i] = &numbers[i]
	}
	if err := tx.Row(ctx, "SELECT "+strings.Join(counts, ", "), b.args...).Scan(dest...); err != nil {
		return err
	}
	p.driver = drivers[slices.Index(numbers, slices.Min(numbers))]
	return nil
}

// entries returns a SQL query of the entries of d after at, of each arm the first n. The columns
// are seq, changed and those that the residual terms read. It adds the arguments to b.
func (p *plan) entries(b *builder, d *driver, at history.Cursor, n int, residual []*history.Term) string {
	since, changed, seq := b.arg(p.since), b.arg(at.Changed.UnixMilli()), b.arg(at.Number)
	columns := ""
	for _, c := range columnsOf(residual) {
		columns += ", h." + c
	}
	cross := "JOIN"
	if p.dialect == sqlconn.SQLite {
		cross = "CROSS JOIN" // the index of the headers comes first
	}
	parts := make([]string, len(d.arms))
	for i, a := range d.arms {
		table, from, by := "h", "swarmiji_history AS h", ""
		// without statistics SQLite prefers an index by time
		if a.index != "" && p.dialect == sqlconn.SQLite {
			by = " INDEXED BY swarmiji_history_" + a.index
		}
		if a.headers {
			table, from = "k", "swarmiji_history_header AS k"
		}
		if from += by; a.headers {
			if columns != "" {
				from += " " + cross + " swarmiji_history AS h ON h.seq = k.seq"
			}
		}
		parts[i] = fmt.Sprintf("SELECT * FROM (SELECT %[1]s.seq, %[1]s.changed%[2]s FROM %[3]s WHERE %[4]s AND %[1]s.changed >= %[5]s AND (%[1]s.changed, %[1]s.seq) < (%[6]s, %[7]s) ORDER BY %[1]s.changed DESC, %[1]s.seq DESC LIMIT %[8]d) AS a%[9]d",
			table, columns, from, a.cond(b), since, changed, seq, n, i)
	}
	return strings.Join(parts, " UNION ALL ")
}

// examined returns the WITH clause of a statement: e is the first n entries of all arms after at.
// It adds the arguments to b.
func (p *plan) examined(b *builder, at history.Cursor, n int) string {
	return fmt.Sprintf("WITH e AS MATERIALIZED (SELECT * FROM (%s) AS u ORDER BY changed DESC, seq DESC LIMIT %d) ",
		p.entries(b, p.driver, at, n, p.residual), n)
}

// pageText returns the statement of a step and its arguments. The statement examines the first n
// entries after at. Each of up to limit matching records is a row of 0, seq, changed, 0 and its
// facts. The last row is 1, seq and changed of the last examined entry, and the number of examined
// entries.
func (p *plan) pageText(at history.Cursor, n, limit int) (string, []any) {
	b := &builder{dialect: p.dialect}
	text := p.examined(b, at, n) + fmt.Sprintf(`SELECT 0, m.seq, m.changed, 0, (SELECT f.facts FROM swarmiji_history AS f WHERE f.seq = m.seq)
		FROM (SELECT seq, changed FROM e WHERE %s ORDER BY changed DESC, seq DESC LIMIT %d) AS m
		UNION ALL SELECT 1, t.seq, t.changed, t.n, NULL FROM (SELECT seq, changed, (SELECT count(*) FROM e) AS n FROM e ORDER BY changed, seq LIMIT 1) AS t
		ORDER BY 1, 3 DESC, 2 DESC`, p.where(b), limit)
	return text, b.args
}

// countText returns a statement and its arguments. The statement has one row: the number of
// examined entries, at most n, and the number of matching ones among them, at most MaxCount and
// one.
func (p *plan) countText(n int) (string, []any) {
	b := &builder{dialect: p.dialect}
	text := p.examined(b, p.begin, n) + fmt.Sprintf("SELECT (SELECT count(*) FROM e), (SELECT count(*) FROM (SELECT 1 FROM e WHERE %s LIMIT %d) AS c)",
		p.where(b), history.MaxCount+1)
	return text, b.args
}
