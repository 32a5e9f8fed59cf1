package sqlhistory

import (
	"fmt"
	"slices"
	"strings"

	"github.com/swarmiji/swarmiji/history"
	"github.com/swarmiji/swarmiji/internal/sqlconn"
)

// columnsOf returns the columns of swarmiji_history that the conditions of terms read, sorted and
// without duplicates. Headers are in another table, so their terms read no column.
func columnsOf(terms []*history.Term) []string {
	var all []string
	for _, t := range terms {
		switch t.Field {
		case history.FieldHeader:
		case history.FieldGroup:
			all = append(all, "grp")
		case history.FieldRoot:
			all = append(all, "root", "id")
		default:
			all = append(all, string(t.Field))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// where returns the SQL condition that all residual terms match an entry e, and adds their
// arguments to b. It selects the same entries as Query.Match. Without residual terms it returns a
// condition that is always true.
func (p *plan) where(b *builder) string {
	conds := make([]string, 0, len(p.residual))
	for _, t := range p.residual {
		cond := p.cond(b, t)
		if t.Not {
			cond = "NOT " + cond
		}
		conds = append(conds, cond)
	}
	if len(conds) == 0 {
		return "1 = 1"
	}
	return strings.Join(conds, " AND ")
}

// cond returns the SQL condition of t, whatever t.Not is, in brackets, and adds its arguments to b.
func (p *plan) cond(b *builder, t *history.Term) string {
	switch t.Field {
	case history.FieldState:
		return oneOf("e.state", states(t))
	case history.FieldName, history.FieldQueue, history.FieldClass:
		return oneOf("e."+string(t.Field), p.matching(t))
	case history.FieldHeader:
		key := p.labels[labelHeader][t.Key]
		return fmt.Sprintf("(EXISTS (SELECT 1 FROM swarmiji_history_header AS k WHERE k.seq = e.seq AND k.label = %d AND %s))", key, b.text("k.value", t.Values))
	case history.FieldError:
		position := "instr"
		if p.dialect == sqlconn.Postgres {
			position = "strpos"
		}
		// the comparison of the "C" collation changes only A to Z, as SQLite does
		return fmt.Sprintf("(%s(lower(e.error), lower(%s)) > 0)", position, b.c(b.arg(t.Values[0].Text)))
	case history.FieldRoot:
		return "(" + b.text("e.root", t.Values) + " OR e.root = '' AND " + b.text("e.id", t.Values) + ")"
	case history.FieldGroup:
		return b.text("e.grp", t.Values)
	case history.FieldWait, history.FieldRun:
		return b.compare("e."+string(t.Field), t.Op, int64(t.Duration))
	case history.FieldAttempts:
		return b.compare("e.attempts", t.Op, int64(t.Number))
	}
	return b.text("e."+string(t.Field), t.Values)
}

// oneOf returns the SQL condition, in brackets, that a column has one of these numbers. Without
// numbers it is never true.
func oneOf(column string, numbers []int64) string {
	if len(numbers) == 0 {
		return "(1 = 0)"
	}
	texts := make([]string, len(numbers))
	for i, n := range numbers {
		texts[i] = fmt.Sprint(n)
	}
	return "(" + column + " IN (" + strings.Join(texts, ", ") + "))"
}

// compare returns the SQL condition, in brackets, that a column meets op with the number n, and
// adds n to the arguments. A negative number of a record is not known, so it is not less than n.
func (b *builder) compare(column string, op history.Op, n int64) string {
	switch op {
	case history.OpMore:
		return "(" + column + " > " + b.arg(n) + ")"
	case history.OpLess:
		return "(" + column + " >= 0 AND " + column + " < " + b.arg(n) + ")"
	}
	return "(" + column + " = " + b.arg(n) + ")"
}

// text returns the SQL condition, in brackets, that a column matches one of these values, and adds
// their texts to the arguments.
func (b *builder) text(column string, values []history.Value) string {
	conds := make([]string, len(values))
	for i, v := range values {
		if v.Prefix {
			param := b.c(b.arg(v.Text))
			conds[i] = fmt.Sprintf("substr(%s, 1, length(%s)) = %s", column, param, param)
		} else {
			conds[i] = column + " = " + b.arg(v.Text)
		}
	}
	return "(" + strings.Join(conds, " OR ") + ")"
}

// c returns the SQL expression of a text parameter, such as "$3", with the collation that compares
// byte by byte. SQLite needs none.
func (b *builder) c(param string) string {
	if b.dialect == sqlconn.Postgres {
		return "(" + param + "::text COLLATE \"C\")"
	}
	return param
}
