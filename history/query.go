package history

import (
	"strconv"
	"strings"
	"time"
)

// Field names a property of records in a query.
type Field string

// The fields of queries.
const (
	FieldID       Field = "id"
	FieldState    Field = "state"
	FieldName     Field = "name"
	FieldQueue    Field = "queue"
	FieldNode     Field = "node"
	FieldRoot     Field = "root" // the root itself matches too
	FieldParent   Field = "parent"
	FieldGroup    Field = "group"
	FieldClass    Field = "class"
	FieldError    Field = "error"
	FieldHeader   Field = "header" // written header.KEY
	FieldWait     Field = "wait"
	FieldRun      Field = "run"
	FieldAttempts Field = "attempts"
	FieldSince    Field = "since"
	FieldBefore   Field = "before"
)

// StateDead is a value of [FieldState]: failed tasks whose message is a dead letter. "failed"
// matches these too.
const StateDead = "dead"

// Op is an operator of a query.
type Op string

// The operators.
const (
	OpIs       Op = ":" // has one of the values; "=" is the same
	OpContains Op = "~" // contains the text; letters A to Z match both cases
	OpMore     Op = ">"
	OpLess     Op = "<"
)

// Query selects records. All its terms must match; the zero value selects all records. Make one
// with [Parse].
type Query struct{ Terms []Term }

// Term is a condition of a query. Exactly one of Values, Duration, Number and Time is used, as the
// field demands.
type Term struct {
	Not   bool // the condition must not hold
	Field Field
	Key   string // of FieldHeader
	Op    Op

	Values   []Value       // texts, of which one must match
	Duration time.Duration // of wait and run
	Number   int           // of attempts
	Time     Moment        // of since and before
}

// Value is a text of a term.
type Value struct {
	Text   string
	Prefix bool // matches texts that begin with Text; written with a * at the end
}

// Moment is a time of a query. Either At or one of the others is set.
type Moment struct {
	At    time.Time     // absolute
	Ago   time.Duration // before now
	Clock string        // "15:04", of today
}

// String returns q as a text that [Parse] reads as the same query.
func (q Query) String() string {
	parts := make([]string, len(q.Terms))
	for i := range q.Terms {
		parts[i] = q.Terms[i].String()
	}
	return strings.Join(parts, " ")
}

// MarshalText returns the text of the query.
func (q Query) MarshalText() ([]byte, error) { return []byte(q.String()), nil }

// UnmarshalText sets q to the query in text. Returns the error of [Parse], and q is then the zero
// value.
func (q *Query) UnmarshalText(text []byte) (err error) {
	*q, err = Parse(string(text))
	return err
}

// String returns t as [Parse] reads it, with "-" in front if t.Not is set.
func (t *Term) String() string {
	var b strings.Builder
	if t.Not {
		b.WriteByte('-')
	}
	b.WriteString(string(t.Field))
	if t.Field == FieldHeader {
		b.WriteString("." + t.Key)
	}
	b.WriteString(string(t.Op))
	switch t.Field {
	case FieldWait, FieldRun:
		b.WriteString(t.Duration.String())
	case FieldAttempts:
		b.WriteString(strconv.Itoa(t.Number))
	case FieldSince, FieldBefore:
		b.WriteString(t.Time.String())
	default:
		for i, v := range t.Values {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(v.String())
		}
	}
	return b.String()
}

// String returns v as it is written in a query: in quotes unless it is a single word.
func (v Value) String() string {
	text := v.Text
	if text == "" && !v.Prefix || strings.ContainsFunc(text, func(r rune) bool { return !wordRune(r) }) {
		text = quote(text)
	}
	if v.Prefix {
		text += "*"
	}
	return text
}

// quote returns s in double quotes. Quotes and backslashes get a backslash in front.
func quote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

// String returns m as [Parse] reads it: the time of day, the duration before now, or the absolute
// time.
func (m Moment) String() string {
	switch {
	case m.Clock != "":
		return m.Clock
	case m.At.IsZero():
		return m.Ago.String()
	}
	return m.At.Format(time.RFC3339Nano)
}

// At returns a copy of q with absolute times, in the zone of now: a duration counts back from now,
// and a time of day is one of the day of now.
func (q Query) At(now time.Time) Query {
	terms := make([]Term, len(q.Terms))
	copy(terms, q.Terms)
	for i := range terms {
		if t := &terms[i]; t.Field == FieldSince || t.Field == FieldBefore {
			t.Time = Moment{At: t.Time.at(now)}
		}
	}
	return Query{terms}
}

// at returns the absolute time of m, seen from now. It cuts a time that counts from now to whole
// milliseconds, since events have no smaller unit.
func (m Moment) at(now time.Time) time.Time {
	if clock, err := time.Parse("15:04", m.Clock); err == nil {
		y, month, d := now.Date()
		return time.Date(y, month, d, clock.Hour(), clock.Minute(), 0, 0, now.Location())
	}
	if !m.At.IsZero() {
		return m.At
	}
	return now.Add(-m.Ago).Round(0).Truncate(time.Millisecond)
}

// Span returns the limits that the terms with the fields since and before set on the last change of
// a record: the latest since and the earliest before. A zero time stands for a missing limit. A
// negated term is the opposite one. Call it on a query with absolute times.
func (q Query) Span() (since, before time.Time) {
	for i := range q.Terms {
		t := &q.Terms[i]
		switch {
		case (t.Field == FieldSince) != t.Not && t.Field.time():
			since = latest(since, t.Time.At)
		case t.Field.time() && (before.IsZero() || t.Time.At.Before(before)):
			before = t.Time.At
		}
	}
	return since, before
}

// time reports whether f takes a time: since or before.
func (f Field) time() bool { return f == FieldSince || f == FieldBefore }
