package wire

import (
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// A dead letter that is requeued begins a new life: its counters start again, and it may still
// succeed. The number of the life is also in a header of the message, because a sealed envelope
// cannot be opened for requeueing. The envelope holds the life to which its counters belong. A
// consumer that reads a higher number in the header starts that life.

// Headers of a message whose life is above 0. They do not use the prefix that adapters reserve for
// their own headers.
const (
	HeaderLife = "swarmiji-life" // int64
	// string; identifies this requeueing, like task.Envelope.Copy
	HeaderLifeCopy = "swarmiji-life-copy"
)

// Life returns the life of a message from its header. It is 0 without a valid header, and at most
// maxLife.
func Life(m *broker.Message) int {
	switch v := m.Headers[HeaderLife].(type) {
	case int64:
		return int(min(max(v, 0), maxLife))
	case string: // from a broker whose headers are texts
		n, err := strconv.ParseUint(v, 10, 31)
		if err == nil {
			return int(min(n, maxLife))
		}
	}
	return 0
}

// LifeCopy returns the identifier of the requeueing that made m, or "" if m was never requeued.
func LifeCopy(m *broker.Message) string {
	s, _ := m.Headers[HeaderLifeCopy].(string)
	if len(s) > serializer.MaxText || !utf8.ValidString(s) {
		return ""
	}
	return s
}

// maxLife is the last life whose generations fit into records and brokers.
const maxLife = 2000

// FirstGeneration returns the first generation of a life. It is higher than every generation of an
// earlier life: a queued message of the old life must not count as the new one. All dead letters of
// one life begin the next life with the same generation.
func FirstGeneration(life int) int { return life << 20 }

// NewLife returns a copy of m for its next life, with copyName as the identifier of the requeueing.
// The copy shares the body of m and never expires.
func NewLife(m *broker.Message, copyName string) *broker.Message {
	next := *m
	life := min(Life(m)+1, maxLife)
	next.Generation = FirstGeneration(life)
	next.Expires = time.Time{}
	next.Headers = make(map[string]any, len(m.Headers)+2)
	for k, v := range m.Headers {
		next.Headers[k] = v
	}
	next.Headers[HeaderLife], next.Headers[HeaderLifeCopy] = int64(life), copyName
	next.Properties = make(map[string]string, len(m.Properties))
	for k, v := range m.Properties {
		if k != "expiration" {
			next.Properties[k] = v
		}
	}
	return &next
}

// stampLife sets the life and its first generation in a message, if life is above 0. Requeueing
// then knows the next life, and its results replace the records of earlier lives.
func stampLife(m *broker.Message, life int) {
	if life == 0 {
		return
	}
	if m.Headers == nil {
		m.Headers = make(map[string]any, 1)
	}
	m.Headers[HeaderLife] = int64(life)
	m.Generation = FirstGeneration(life)
}

// BeginLife changes e to the life of its message m, if that is later than the life in e, and else
// does nothing. It sets the life and the name of the copy. It resets the counts of retries and
// delays, the earliest start and the expiry. The copies of m carry the life in their envelopes, so
// that it begins only once.
//
// A sealed task keeps its expiry, which limits how long its message can be replayed: any writer can
// set the life, since it is outside of the seal.
func BeginLife(e *task.Envelope, m *broker.Message, sealed bool) {
	life := Life(m)
	if life <= e.Life {
		return
	}
	e.Life, e.Copy = life, LifeCopy(m)
	e.Retries, e.Parked, e.Crashes = 0, 0, 0
	never := task.Set(time.Time{}) // a set zero time overrides the times of every layer
	e.Meta.NotBefore = never
	if !sealed {
		e.Meta.Expires = never
	}
}

// LifeID returns the id that a task has in a life: id itself in life 0, otherwise an id derived
// from it.
func LifeID(id task.ID, life int) task.ID {
	if life == 0 {
		return id
	}
	return task.Derive(id, "life"+strconv.Itoa(life))
}

// EachStep calls do for each step of links whose id was set at submission, and for its successors,
// until do returns false. It returns false if do did. No submitter waits for steps without such an
// id.
func EachStep(links []task.Link, do func(*task.Link) bool) bool {
	for i := range links {
		l := &links[i]
		if l.ID != "" && len(l.Members) == 0 && !do(l) || !EachStep(l.Then, do) {
			return false
		}
		if !l.Each && !EachStep(l.Members, do) {
			return false
		}
		if l.Chord != nil && len(l.Members) > 0 && !EachStep([]task.Link{*l.Chord}, do) {
			return false
		}
	}
	return true
}
