package history

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

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
func (f *Facts) MarshalJSON() ([]byte, error) {
	s := storedFacts{ID: f.ID, Entries: make([]storedEntry, 0, len(f.entries)), Facts: make([]storedFact, 0, len(f.facts))}
	for i := range f.entries {
		s.Entries = append(s.Entries, f.entries[i].stored())
	}
	for kind := range f.facts {
		if one := f.facts[kind]; one != nil {
			s.Facts = append(s.Facts, storedFact{Kind: kind, At: one.at.stored(), Text: one.text})
		}
	}
	return json.Marshal(&s)
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
