package history

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/swarmiji/swarmiji/task"
)

// Limits of a query.
const (
	MaxQuery  = 4096 // bytes
	MaxTerms  = 32
	MaxValues = 64 // values of one term
)

// QueryError reports the place at which a text is not a query. It wraps [ErrQuery].
type QueryError struct {
	Pos   int    // in bytes, from 0
	Found string // the text there; "": the end of the text
	Want  string // the expected text
}

// Error names the position, from 1, and the expected text.
func (e *QueryError) Error() string {
	found := "the query ends"
	if e.Found != "" {
		found = fmt.Sprintf("%q", e.Found)
	}
	return fmt.Sprintf("query: at %d: %s, want %s", e.Pos+1, found, e.Want)
}

// Unwrap returns [ErrQuery].
func (e *QueryError) Unwrap() error { return ErrQuery }

// Parse returns the query that text describes.
//
//	query = term { " " term } ;  term = [ "-" ] field op value ;  op = ":" | "=" | "~" | ">" | "<"
//
//	field                                   op    value
//	id state name queue node root parent
//	group class header.KEY                  : =   texts, one must match: a,b  prefix*  "a b"
//	error                                   ~     a text that it contains
//	wait run                                > <   a duration: 500ms 2m
//	attempts                                : = > <   a number
//	since before                            : =   2h (ago)  2006-01-02T15:04:05Z  15:04 (today)
//
// All terms must match; "-" before a term negates it. States are those of [States] and [StateDead].
// For another text it returns a [*QueryError] with the position. Times stay as they are written
// until [Query.At].
func Parse(text string) (Query, error) {
	p := parser{text: text}
	if len(text) > MaxQuery {
		return Query{}, p.failAt(MaxQuery, "at most "+strconv.Itoa(MaxQuery)+" bytes")
	}
	var q Query
	for p.blanks(); p.pos < len(text); p.blanks() {
		if len(q.Terms) == MaxTerms {
			return Query{}, p.fail("at most " + strconv.Itoa(MaxTerms) + " terms")
		}
		t, err := p.term()
		if err != nil {
			return Query{}, err
		}
		q.Terms = append(q.Terms, t)
		if r, _ := p.next(); p.pos < len(text) && !unicode.IsSpace(r) {
			return Query{}, p.fail("a blank before the next term")
		}
	}
	return q, nil
}

// parser reads a query from text at pos.
type parser struct {
	text string
	pos  int
}

// next returns the character at the current position and its length in bytes. It does not move the
// position.
func (p *parser) next() (rune, int) { return utf8.DecodeRuneInString(p.text[p.pos:]) }

// blanks moves the position behind white space.
func (p *parser) blanks() {
	for p.pos < len(p.text) {
		r, n := p.next()
		if !unicode.IsSpace(r) {
			return
		}
		p.pos += n
	}
}

// fail returns a QueryError at the current position; want names the expected text.
func (p *parser) fail(want string) error { return p.failAt(p.pos, want) }

// failAt returns a QueryError at pos with the text there, up to a space and 20 characters. want
// names the expected text.
func (p *parser) failAt(pos int, want string) error {
	found, _, _ := strings.Cut(p.text[pos:], " ")
	if r := []rune(found); len(r) > 20 {
		found = string(r[:20])
	}
	if found == "" && pos < len(p.text) {
		found = " "
	}
	return &QueryError{Pos: pos, Found: found, Want: want}
}

// fieldsText lists the fields for an error.
const fieldsText = "a field: id, state, name, queue, node, root, parent, group, class, error, header.KEY, wait, run, attempts, since or before"

// term reads a term from the current position and moves the position behind it. Returns a
// QueryError for another text.
func (p *parser) term() (Term, error) {
	var t Term
	if t.Not = p.text[p.pos] == '-'; t.Not {
		p.pos++
	}
	begin := p.pos
	for p.pos < len(p.text) && p.text[p.pos] >= 'a' && p.text[p.pos] <= 'z' {
		p.pos++
	}
	t.Field = Field(p.text[begin:p.pos])
	ops := t.Field.ops()
	if ops == "" {
		return t, p.failAt(begin, fieldsText)
	}
	if t.Field == FieldHeader {
		if err := p.headerKey(&t); err != nil {
			return t, err
		}
	}
	if p.pos == len(p.text) || !strings.Contains(ops, p.text[p.pos:p.pos+1]) {
		return t, p.fail("one of " + strings.Join(strings.Split(ops, ""), " ") + " after " + p.text[begin:p.pos])
	}
	t.Op = Op(p.text[p.pos : p.pos+1])
	if t.Op == "=" {
		t.Op = OpIs
	}
	p.pos++
	return t, p.value(&t)
}

// ops returns the characters of the operators that f takes, such as ":=", or "" for an unknown
// field.
func (f Field) ops() string {
	switch f {
	case FieldID, FieldState, FieldName, FieldQueue, FieldNode, FieldRoot, FieldParent, FieldGroup, FieldClass, FieldHeader, FieldSince, FieldBefore:
		return ":="
	case FieldError:
		return "~"
	case FieldWait, FieldRun:
		return "><"
	case FieldAttempts:
		return ":=><"
	}
	return ""
}

// headerKey reads ".KEY" into t.Key and moves the position behind it. Returns a QueryError for
// another text.
func (p *parser) headerKey(t *Term) error {
	if !strings.HasPrefix(p.text[p.pos:], ".") {
		return p.fail("header.KEY, with the name of a header")
	}
	p.pos++
	begin := p.pos
	for p.pos < len(p.text) && !strings.ContainsRune(":=", rune(p.text[p.pos])) {
		r, n := p.next()
		if !wordRune(r) {
			break
		}
		p.pos += n
	}
	if t.Key = p.text[begin:p.pos]; t.Key == "" {
		return p.fail("the name of a header")
	}
	return nil
}

// wordRune reports whether a value may contain r without quotes.
func wordRune(r rune) bool {
	return r != utf8.RuneError && unicode.IsPrint(r) && !strings.ContainsRune(` ",*\`, r)
}

// value reads the values of t, with commas between them, into the field of t for them. It moves the
// position behind them. Returns a QueryError for a text that t cannot have as a value, and for too
// many values.
func (p *parser) value(t *Term) error {
	begin := p.pos
	for {
		at := p.pos
		v, quoted, err := p.text1()
		if err != nil {
			return err
		}
		if err := t.take(v, quoted); err != "" {
			return p.failAt(at, err)
		}
		if p.pos == len(p.text) || p.text[p.pos] != ',' {
			return nil
		}
		if len(t.Values) == 0 || t.Op == OpContains {
			return p.fail("one value only")
		}
		if len(t.Values) == MaxValues {
			return p.failAt(begin, "at most "+strconv.Itoa(MaxValues)+" values")
		}
		p.pos++
	}
}

// text1 reads one value, a word or a text in quotes, and a * behind it, which sets v.Prefix. It
// moves the position behind them. quoted reports whether the text was in quotes. Returns a
// QueryError for an empty word or an invalid text in quotes.
func (p *parser) text1() (v Value, quoted bool, err error) {
	if strings.HasPrefix(p.text[p.pos:], `"`) {
		quoted = true
		if v.Text, err = p.quoted(); err != nil {
			return v, quoted, err
		}
	} else {
		begin := p.pos
		for p.pos < len(p.text) {
			r, n := p.next()
			if !wordRune(r) {
				break
			}
			p.pos += n
		}
		v.Text = p.text[begin:p.pos]
	}
	if v.Prefix = strings.HasPrefix(p.text[p.pos:], "*"); v.Prefix {
		p.pos++
	}
	if v.Text == "" && !quoted && !v.Prefix {
		return v, quoted, p.fail("a value")
	}
	return v, quoted, nil
}

// quoted reads a text in quotes and returns it without the quotes and backslashes. It moves the
// position behind the closing quote. Returns a QueryError for invalid UTF-8, NUL, another character
// behind a backslash, or a missing quote.
func (p *parser) quoted() (string, error) {
	begin := p.pos
	var b strings.Builder
	for p.pos++; p.pos < len(p.text); {
		r, n := p.next()
		switch {
		case r == utf8.RuneError && n == 1 || r == 0:
			return "", p.fail("UTF-8 without NUL")
		case r == '"':
			p.pos++
			return b.String(), nil
		case r == '\\':
			p.pos++
			if r, n = p.next(); r != '"' && r != '\\' {
				return "", p.fail(`\" or \\`)
			}
		}
		b.WriteRune(r)
		p.pos += n
	}
	return "", p.failAt(begin, "a closing quote")
}

// take stores v in the field of t for values of its kind: it sets Duration, Number or Time, or
// appends v to Values. It returns "". If t cannot have v as a value, it returns a description of
// the expected value, and t must not be used.
func (t *Term) take(v Value, quoted bool) (want string) {
	plain := !quoted && !v.Prefix
	switch t.Field {
	case FieldWait, FieldRun:
		d, err := time.ParseDuration(v.Text)
		if t.Duration = d; err != nil || d < 0 || !plain {
			return "a duration such as 500ms or 2m"
		}
	case FieldAttempts:
		n, err := strconv.Atoi(v.Text)
		if t.Number = n; err != nil || n < 0 || n > 1<<31-1 || !plain || v.Text[0] == '+' {
			return "a number"
		}
	case FieldSince, FieldBefore:
		m, ok := moment(v.Text)
		if t.Time = m; !ok || !plain {
			return "a time: 2h (ago), 2006-01-02T15:04:05Z or 15:04 (today)"
		}
	default:
		if want := t.wantText(v); want != "" {
			return want
		}
		t.Values = append(t.Values, v)
	}
	return ""
}

// wantText returns "" if v is a text that the field of t accepts, otherwise a description of these
// texts.
func (t *Term) wantText(v Value) string {
	switch t.Field {
	case FieldState:
		if v.Prefix || v.Text != StateDead && !slices.Contains(States(), State(v.Text)) {
			return "a state: pending, received, started, awaiting, retrying, succeeded, failed, dead, revoked or expired"
		}
	case FieldID, FieldRoot, FieldParent, FieldGroup:
		if v.Text != "" && task.ID(v.Text).Check() != nil {
			return "the id of a task"
		}
	case FieldError:
		if v.Prefix || v.Text == "" {
			return "a text, in quotes if it has blanks"
		}
	}
	return ""
}

// moment returns the time that s names: a duration before now, also in days such as "7d", a time of
// day, or an absolute time. It returns false for another text.
func moment(s string) (Moment, bool) {
	if d, err := time.ParseDuration(s); err == nil {
		return Moment{Ago: d}, d >= 0
	}
	if d, ok := days(s); ok {
		return Moment{Ago: d}, true
	}
	if _, err := time.Parse("15:04", s); err == nil && len(s) == len("15:04") {
		return Moment{Clock: s}, true
	}
	at, err := time.Parse(time.RFC3339, s)
	return Moment{At: at}, err == nil && at.Year() >= 1970 && at.Year() < 10_000
}

// days returns the duration of a number of days, such as "7d", up to 65,535. It returns false for
// another text.
func days(s string) (time.Duration, bool) {
	number, ok := strings.CutSuffix(s, "d")
	n, err := strconv.ParseUint(number, 10, 16)
	return time.Duration(n) * 24 * time.Hour, ok && err == nil
}
