package history

import (
	"cmp"
	"encoding/base64"
	"slices"
	"strings"
	"time"

	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/task"
)

const (
	// Of more than firstEntries+lastEntries entries, the first and the last ones are kept.
	firstEntries = 20
	lastEntries  = 60

	maxEntryError = 256 // bytes
	maxNote       = 256
)

// EventTypes returns the types of events that a history is made of, for an events.Filter.
func EventTypes() []string {
	return []string{
		events.TaskSent, events.TaskReceived, events.TaskStarted, events.TaskSucceeded, events.TaskFailed, events.TaskRevoked,
		events.TaskAwaiting, events.TaskProgress,
	}
}

// Facts hold the facts about one task that its events told. They are merged in any order,
// any number of times, with the same result. Not safe for concurrent use.
type Facts struct {
	ID task.ID

	entries []Entry          // sorted, without duplicates; no KindProgress
	facts   [factKinds]*fact // nil: not told
}

// fact is a part of the record that one event tells, and later events replace. It does not change.
type fact struct {
	at   Entry    // of the event
	text []string // see the kinds
}

// The kinds of facts.
const (
	factTask     = iota // name, queue, parent, root, group, then names and values of headers
	factArgs            // preview
	factResult          // preview
	factError           // error, class, stack
	factProgress        // in fact.at
	factOriginal        // media type, and the kept task in base64
	factKinds
)

// compare returns -1, 0 or +1: it orders facts by their events, and those of equal events by their
// texts.
func (f *fact) compare(o *fact) int {
	return cmp.Or(f.at.compare(&o.at), slices.Compare(f.text, o.text))
}

// NewFacts returns the facts about a task that one event tells, with NUL characters removed. It
// does not change the event. It returns nil for an event without a task, and for another type than
// those of [EventTypes].
func NewFacts(of *events.Event) *Facts {
	if of.TaskID == "" {
		return nil
	}
	copied := *of
	e := &copied
	f := &Facts{ID: e.TaskID}
	info := e.Info()
	storable(&e.NodeID, &e.Name, &e.Queue, &e.Args, &e.Result, &e.Exception, &e.Stack, &info.Class)
	at := Entry{
		Time: time.UnixMilli(e.Time.UnixMilli()).UTC(), Node: e.NodeID, Life: info.Life, Attempt: max(info.Attempt, e.Retries+1), Generation: info.Generation,
	}
	set := func(kind int, text ...string) { f.facts[kind] = &fact{at: at, text: text} }
	switch e.Type {
	case events.TaskSent, events.TaskReceived:
		at.Kind, at.Queue = KindSent, e.Queue
		if e.Type == events.TaskReceived {
			at.Kind = KindReceived
		} else {
			at.Due = info.Due
		}
		set(factTask, taskTexts(e, &info)...)
		if e.Args != "" {
			set(factArgs, e.Args)
		}
		if len(info.Original) > 0 {
			set(factOriginal, info.OriginalType, base64.StdEncoding.EncodeToString(info.Original))
		}
	case events.TaskStarted:
		at.Kind = KindStarted
	case events.TaskAwaiting:
		at.Kind = KindAwaiting
	case events.TaskSucceeded:
		at.Kind, at.Run = KindSucceeded, e.Runtime
		if e.Result != "" {
			set(factResult, e.Result)
		}
	case events.TaskFailed:
		at.Kind, at.Run, at.Error, at.Class, at.DeadLetter = KindFailed, e.Runtime, utf.Cut(e.Exception, maxEntryError), info.Class, info.DeadLetter
		if e.Retry {
			at.Kind, at.DeadLetter = KindRetried, false
		}
		set(factError, e.Exception, info.Class, e.Stack)
	case events.TaskRevoked:
		at.Kind = KindRevoked
		if expired, _ := e.Fields["expired"].(bool); expired {
			at.Kind = KindExpired
		}
	case events.TaskProgress:
		at.Kind, at.Done, at.Total = KindProgress, whole(e.Fields["done"]), whole(e.Fields["total"])
		note, _ := e.Fields["note"].(string)
		storable(&note)
		at.Note = utf.Cut(note, maxNote)
		set(factProgress)
		return f
	default:
		return nil
	}
	f.entries = []Entry{at}
	return f
}

// taskTexts returns the texts of a fact factTask: name, queue, parent, root and group, then key and
// value of each header, in the order of the keys.
func taskTexts(e *events.Event, info *events.TaskInfo) []string {
	text := []string{e.Name, e.Queue, string(info.Parent), string(info.Root), string(info.Group)}
	keys := make([]string, 0, len(info.Headers))
	for k := range info.Headers {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		v := info.Headers[k]
		storable(&k, &v)
		text = append(text, k, v)
	}
	return text
}

// storable removes the NUL characters from each of the texts, since PostgreSQL cannot store them.
func storable(texts ...*string) {
	for _, t := range texts {
		if strings.IndexByte(*t, 0) >= 0 {
			*t = strings.ReplaceAll(*t, "\x00", "")
		}
	}
}

// whole returns v, a value in the Fields of an event, as a whole number. It returns 0 unless v is a
// number above 0 and up to 2^53.
func whole(v any) int64 {
	f, _ := v.(float64)
	if !(f > 0 && f <= 1<<53) {
		return 0
	}
	return int64(f)
}

// Merge adds the facts of o, about the same task, to f, and reports whether that changed f. A fact
// of a later event replaces an earlier one. Of more than 80 entries it keeps the first 20 and the
// last 60. It does not change o.
func (f *Facts) Merge(o *Facts) (changed bool) {
	for i := range f.facts {
		if have, more := f.facts[i], o.facts[i]; more != nil && (have == nil || have.compare(more) < 0) {
			f.facts[i], changed = more, true
		}
	}
	before := f.entries
	for i := range o.entries {
		at, found := slices.BinarySearchFunc(f.entries, &o.entries[i], func(e Entry, t *Entry) int { return e.compare(t) })
		if !found {
			f.entries = slices.Insert(slices.Clip(f.entries), at, o.entries[i])
		}
	}
	if n := len(f.entries); n > firstEntries+lastEntries {
		f.entries = slices.Delete(slices.Clone(f.entries), firstEntries, n-lastEntries)
	}
	return changed || !slices.Equal(before, f.entries)
}

// Buckets returns a count of 1 for each counted entry of f that is not in old, the facts before a
// merge. old may be nil. A store adds these to its counts, so that an entry counts once.
func (f *Facts) Buckets(old *Facts) []Bucket {
	var added []Bucket
	var name, queue string
	if t := f.texts(factTask); len(t) >= 5 {
		name, queue = t[0], t[1]
	}
	f.each(func(e *Entry, wait time.Duration) {
		if !e.Kind.Counted() || old != nil && old.has(e) {
			return
		}
		b := Bucket{Minute: e.Time.Truncate(time.Minute), Queue: queue, Name: name, Kind: e.Kind, N: 1, Run: e.Run}
		if e.Kind == KindStarted {
			b.Wait = max(0, wait)
		}
		added = append(added, b)
	})
	return added
}

// has reports whether f has an entry equal to e.
func (f *Facts) has(e *Entry) bool {
	_, found := slices.BinarySearchFunc(f.entries, e, func(e Entry, t *Entry) int { return e.compare(t) })
	return found
}

// Record returns the record of the task that follows from its facts, with its timeline. The caller
// may change it.
func (f *Facts) Record() Record {
	r := f.Summary()
	r.Original, r.OriginalType = f.original()
	r.Timeline = slices.Clone(f.entries)
	if f.facts[factProgress] != nil {
		p := f.facts[factProgress].at
		at, _ := slices.BinarySearchFunc(r.Timeline, &p, func(e Entry, t *Entry) int { return e.compare(t) })
		r.Timeline = slices.Insert(r.Timeline, at, p)
	}
	showDeliveries(r.Timeline)
	return r
}

// Summary returns the record as a [Page] has it: without timeline and original message. The caller
// may change it.
func (f *Facts) Summary() Record {
	r := Record{ID: f.ID, Wait: -1, Run: -1}
	if t := f.texts(factTask); len(t) >= 5 {
		r.Name, r.Queue, r.Parent, r.Root, r.Group = t[0], t[1], task.ID(t[2]), task.ID(t[3]), task.ID(t[4])
		for h := t[5:]; len(h) >= 2; h = h[2:] {
			if r.Headers == nil {
				r.Headers = make(map[string]string)
			}
			r.Headers[h[0]] = h[1]
		}
	}
	r.Args, r.Result = f.first(factArgs), f.first(factResult)
	f.times(&r)
	if e := f.facts[factError]; e != nil && len(e.text) == 3 && e.at.Life == r.Life && r.State != Succeeded {
		r.Error, r.Class, r.Stack = e.text[0], e.text[1], e.text[2]
	}
	if f.facts[factProgress] != nil {
		p := &f.facts[factProgress].at
		r.Progress = &Progress{Done: p.Done, Total: p.Total, Note: p.Note, Time: p.Time}
		r.Changed = latest(r.Changed, p.Time)
		if len(f.entries) == 0 {
			r.State, r.Node, r.Life, r.Attempts = Started, p.Node, p.Life, p.Attempt
		}
	}
	return r
}

// original returns the kept task and its media type, or nil. After a later first receipt without
// one it is nil too: the id was used again, for other arguments.
func (f *Facts) original() (data []byte, mediaType string) {
	o := f.facts[factOriginal]
	if o == nil || len(o.text) != 2 || slices.ContainsFunc(f.entries, func(e Entry) bool {
		return e.Kind == KindReceived && e.Generation == 0 && e.Attempt == o.at.Attempt && e.Time.After(o.at.Time)
	}) {
		return nil, ""
	}
	data, err := base64.StdEncoding.DecodeString(o.text[1])
	if err != nil {
		return nil, ""
	}
	return data, o.text[0]
}

// first returns the first text of a fact, or "".
func (f *Facts) first(kind int) string {
	if text := f.texts(kind); len(text) > 0 {
		return text[0]
	}
	return ""
}

// texts returns the texts of a fact, or nil.
func (f *Facts) texts(kind int) []string {
	if f.facts[kind] == nil {
		return nil
	}
	return f.facts[kind].text
}

// each calls do for each entry in order. wait is the time that an attempt has waited before its
// start, for a start whose sending or receipt is known. For every other entry it is -1.
func (f *Facts) each(do func(e *Entry, wait time.Duration)) {
	var base time.Time // from which the wait counts
	var of Entry       // the entry that has set base
	for i := range f.entries {
		e := &f.entries[i]
		known := of.Kind != "" && of.Life == e.Life && of.Attempt == e.Attempt
		wait := time.Duration(-1)
		switch {
		case e.Kind == KindSent:
			base, of = latest(e.Time, e.Due), *e
		case e.Kind == KindReceived && !known: // its sending was not heard
			base, of = e.Time, *e
		case e.Kind == KindStarted && known:
			wait = max(0, e.Time.Sub(base))
		}
		do(e, wait)
	}
}

// times sets the fields of r that follow from the entries: Life, State, DeadLetter, Changed, Node,
// the times, Wait, Run and Attempts. Without entries it does nothing.
func (f *Facts) times(r *Record) {
	if len(f.entries) == 0 {
		return
	}
	last := &f.entries[len(f.entries)-1]
	r.Life, r.State, r.DeadLetter = last.Life, last.state(), last.DeadLetter
	f.each(func(e *Entry, wait time.Duration) {
		r.Changed = latest(r.Changed, e.Time)
		if e.Life != last.Life {
			return
		}
		if e.Kind != KindSent || r.Node == "" {
			r.Node = e.Node
		}
		switch e.Kind {
		case KindSent:
			if r.Sent.IsZero() || e.Time.Before(r.Sent) {
				r.Sent = e.Time
			}
			r.Due = e.Due
		case KindReceived:
			r.Received = e.Time
		case KindStarted:
			r.Started, r.Attempts, r.Wait = e.Time, e.Attempt, wait
		case KindRetried, KindSucceeded, KindFailed:
			r.Run, r.Attempts = e.Run, e.Attempt
		}
	})
	if r.State.Terminal() {
		r.Ended = last.Time
	}
}

// state returns the state of a task whose last entry is e.
func (e *Entry) state() State {
	switch e.Kind {
	case KindSent:
		if e.Attempt > 1 {
			return Retrying
		}
		return Pending
	case KindReceived:
		return Received
	case KindStarted, KindProgress:
		return Started
	case KindAwaiting:
		return Awaiting
	case KindRetried:
		return Retrying
	case KindSucceeded:
		return Succeeded
	case KindRevoked:
		return Revoked
	case KindExpired:
		return Expired
	}
	return Failed
}

// latest returns the later one of two times.
func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
