package history

import (
	"slices"
	"strings"
)

// Match reports whether all terms of q match r. Call it on a query with absolute times, see
// [Query.At]. Every store must select the same records as Match.
func (q Query) Match(r *Record) bool {
	return !slices.ContainsFunc(q.Terms, func(t Term) bool { return t.holds(r) == t.Not })
}

// holds reports whether r meets the condition of t, whatever t.Not is.
func (t *Term) holds(r *Record) bool {
	switch t.Field {
	case FieldState:
		return slices.ContainsFunc(t.Values, func(v Value) bool {
			return v.Text == string(r.State) || v.Text == StateDead && r.State == Failed && r.DeadLetter
		})
	case FieldError:
		return strings.Contains(lower(r.Error), lower(t.Values[0].Text))
	case FieldHeader:
		value, ok := r.Headers[t.Key]
		return ok && t.has(value)
	case FieldRoot:
		return t.has(string(r.Root)) || r.Root == "" && t.has(string(r.ID))
	case FieldWait:
		return t.compares(int64(r.Wait), int64(t.Duration))
	case FieldRun:
		return t.compares(int64(r.Run), int64(t.Duration))
	case FieldAttempts:
		return t.compares(int64(r.Attempts), int64(t.Number))
	case FieldSince:
		return !r.Changed.Before(t.Time.At)
	case FieldBefore:
		return r.Changed.Before(t.Time.At)
	}
	return t.has(t.Field.text(r))
}

// text returns the value of the field f of r, for fields that hold one text. For other fields it
// returns "".
func (f Field) text(r *Record) string {
	switch f {
	case FieldID:
		return string(r.ID)
	case FieldName:
		return r.Name
	case FieldQueue:
		return r.Queue
	case FieldNode:
		return r.Node
	case FieldParent:
		return string(r.Parent)
	case FieldGroup:
		return string(r.Group)
	case FieldClass:
		return r.Class
	}
	return ""
}

// has reports whether one of the values of t matches the text s.
func (t *Term) has(s string) bool {
	return slices.ContainsFunc(t.Values, func(v Value) bool { return v.Match(s) })
}

// Match reports whether v matches s: the texts are equal, or v is a prefix and s begins with its
// text.
func (v Value) Match(s string) bool { return v.Text == s || v.Prefix && strings.HasPrefix(s, v.Text) }

// compares reports whether have, a number of a record, meets the operator of t with the number
// want. A negative have is not known and never matches.
func (t *Term) compares(have, want int64) bool {
	switch t.Op {
	case OpMore:
		return have > want
	case OpLess:
		return have >= 0 && have < want
	}
	return have == want
}

// lower returns s with small letters for A to Z, as databases do it in any locale.
func lower(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, s)
}
