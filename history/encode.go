package history

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/swarmiji/swarmiji/task"
)

// The stored form of Facts is a JSON object with short names. Names of later versions are ignored,
// and values that a version does not write are zero.
type (
	storedFacts struct {
		ID      task.ID       `json:"i"`
		Entries []storedEntry `json:"e,omitempty"`
		Facts   []storedFact  `json:"f,omitempty"`
	}
	storedEntry struct {
		Kind       int    `json:"k"`
		Time       int64  `json:"t"` // milliseconds since 1970
		Node       string `json:"n,omitempty"`
		Life       int    `json:"l,omitempty"`
		Attempt    int    `json:"a,omitempty"` // minus 1
		Generation int    `json:"g,omitempty"`
		Queue      string `json:"q,omitempty"`
		Due        int64  `json:"d,omitempty"` // milliseconds since 1970
		Run        int64  `json:"r,omitempty"` // nanoseconds
		Error      string `json:"e,omitempty"`
		Class      string `json:"c,omitempty"`
		DeadLetter bool   `json:"x,omitempty"`
		Done       int64  `json:"p,omitempty"`
		Total      int64  `json:"o,omitempty"`
		Note       string `json:"m,omitempty"`
	}
	storedFact struct {
		Kind int         `json:"k"`
		At   storedEntry `json:"a"`
		Text []string    `json:"t,omitempty"`
	}
)

// kinds returns the kinds of entries; the index of a kind is its number in the stored form. A
// number is never used again for another kind.
func kinds() []Kind {
	return []Kind{
		KindSent, KindReceived, KindStarted, KindProgress, KindAwaiting, KindRetried, KindSucceeded, KindFailed, KindRevoked,
		KindExpired,
	}
}

// MarshalJSON returns the stored form of the facts, a JSON object, for adapters. It does not fail.
// It appends the text by itself, because a recorder makes one for each task.
func (f *Facts) MarshalJSON() ([]byte, error) {
	out := make([]byte, 0, 1024)
	out = appendString(append(out, `{"i":`...), string(f.ID))
	for i := range f.entries {
		out = append(out, separator(i == 0, `,"e":[`)...)
		e := f.entries[i].stored()
		out = e.append(out)
	}
	if len(f.entries) > 0 {
		out = append(out, ']')
	}
	none := true
	for kind, one := range f.facts {
		if one == nil {
			continue
		}
		out = append(out, separator(none, `,"f":[`)...)
		none = false
		out = strconv.AppendInt(append(out, `{"k":`...), int64(kind), 10)
		at := one.at.stored()
		out = at.append(append(out, `,"a":`...))
		for i, text := range one.text {
			out = appendString(append(out, separator(i == 0, `,"t":[`)...), text)
		}
		if len(one.text) > 0 {
			out = append(out, ']')
		}
		out = append(out, '}')
	}
	if !none {
		out = append(out, ']')
	}
	return append(out, '}'), nil
}

// separator returns begin before the first element of a list, and a comma before the others.
func separator(first bool, begin string) string {
	if first {
		return begin
	}
	return ","
}

// append appends s as json.Marshal writes it.
func (s *storedEntry) append(out []byte) []byte {
	out = strconv.AppendInt(append(out, `{"k":`...), int64(s.Kind), 10)
	out = strconv.AppendInt(append(out, `,"t":`...), s.Time, 10)
	text := func(name, v string) {
		if v != "" {
			out = appendString(append(out, name...), v)
		}
	}
	number := func(name string, v int64) {
		if v != 0 {
			out = strconv.AppendInt(append(out, name...), v, 10)
		}
	}
	text(`,"n":`, s.Node)
	number(`,"l":`, int64(s.Life))
	number(`,"a":`, int64(s.Attempt))
	number(`,"g":`, int64(s.Generation))
	text(`,"q":`, s.Queue)
	number(`,"d":`, s.Due)
	number(`,"r":`, s.Run)
	text(`,"e":`, s.Error)
	text(`,"c":`, s.Class)
	if s.DeadLetter {
		out = append(out, `,"x":true`...)
	}
	number(`,"p":`, s.Done)
	number(`,"o":`, s.Total)
	text(`,"m":`, s.Note)
	return append(out, '}')
}

// appendString appends s as a JSON string, as json.Marshal writes it.
func appendString(out []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= utf8.RuneSelf || strings.IndexByte(`"\<>&`, c) >= 0 {
			quoted, _ := json.Marshal(s) // a string has no error
			return append(out, quoted...)
		}
	}
	return append(append(append(out, '"'), s...), '"')
}

// UnmarshalJSON replaces f by the facts in data, their stored form. Kinds of facts of later
// versions are ignored. Returns [ErrMalformed] for other data, without an id, with an unknown kind
// of entry or with entries out of order. Then f does not change.
func (f *Facts) UnmarshalJSON(data []byte) error {
	var s storedFacts
	if err := json.Unmarshal(data, &s); err != nil {
		return fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if s.ID.Check() != nil {
		return fmt.Errorf("%w: no task id", ErrMalformed)
	}
	read := Facts{ID: s.ID}
	for i := range s.Entries {
		e, err := s.Entries[i].entry()
		if err != nil {
			return err
		}
		read.entries = append(read.entries, e)
	}
	if !slices.IsSortedFunc(read.entries, func(a, b Entry) int { return a.compare(&b) }) {
		return fmt.Errorf("%w: a timeline is not in order", ErrMalformed)
	}
	for i := range s.Facts {
		one := &s.Facts[i]
		at, err := one.At.entry()
		if err != nil {
			return err
		}
		if one.Kind >= 0 && one.Kind < factKinds {
			read.facts[one.Kind] = &fact{at: at, text: one.Text}
		}
	}
	*f = read
	return nil
}

// stored returns the stored form of e.
func (e *Entry) stored() storedEntry {
	s := storedEntry{
		Kind: slices.Index(kinds(), e.Kind), Time: e.Time.UnixMilli(), Node: e.Node, Life: e.Life, Attempt: e.Attempt - 1, Generation: e.Generation,
		Queue: e.Queue, Run: int64(e.Run), Error: e.Error, Class: e.Class, DeadLetter: e.DeadLetter, Done: e.Done, Total: e.Total, Note: e.Note,
	}
	if !e.Due.IsZero() {
		s.Due = e.Due.UnixMilli()
	}
	return s
}

// entry returns the entry of a stored form. Returns ErrMalformed for an unknown kind.
func (s *storedEntry) entry() (Entry, error) {
	if s.Kind < 0 || s.Kind >= len(kinds()) {
		return Entry{}, fmt.Errorf("%w: an entry of kind %d", ErrMalformed, s.Kind)
	}
	e := Entry{
		Kind: kinds()[s.Kind], Time: time.UnixMilli(s.Time).UTC(), Node: s.Node, Life: s.Life, Attempt: s.Attempt + 1, Generation: s.Generation,
		Queue: s.Queue, Run: time.Duration(s.Run), Error: s.Error, Class: s.Class, DeadLetter: s.DeadLetter, Done: s.Done, Total: s.Total, Note: s.Note,
	}
	if s.Due != 0 {
		e.Due = time.UnixMilli(s.Due).UTC()
	}
	return e, nil
}
