package wire

import (
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// A dead letter that is requeued has a new life: its counters begin again, and it may still succeed. The number of the life travels
// in a header of the message, outside of the envelope, since who requeues a sealed message cannot open it. The envelope has the life
// that its counters belong to. A consumer that reads a higher number outside begins that life.

// The headers of a message of a life above 0. They have not the prefix that adapters keep for headers of their own.
const (
	HeaderLife     = "swarmiji-life"      // int64
	HeaderLifeCopy = "swarmiji-life-copy" // string; names this requeueing, as task.Envelope.Copy does
)

// Life returns the life of a message, 0 for the first one.
func Life(m *broker.Message) int {
	switch v := m.Headers[HeaderLife].(type) {
	case int64:
		return int(min(max(v, 0), maxLife))
	case string: // of a broker whose headers are texts
		n, err := strconv.ParseUint(v, 10, 31)
		if err == nil {
			return int(min(n, maxLife))
		}
	}
	return 0
}

// LifeCopy returns the name of the requeueing that m comes from, "" for none.
func LifeCopy(m *broker.Message) string {
	s, _ := m.Headers[HeaderLifeCopy].(string)
	if len(s) > serializer.MaxText || !utf8.ValidString(s) {
		return ""
	}
	return s
}

// maxLife is the last life whose generations records and brokers can hold.
const maxLife = 2000

// FirstGeneration is the generation with which a life begins. No attempt of an earlier life ever has it or a later one: a message of
// the old life that is still queued must not be taken for the new one, and all letters of one life begin the same new one.
func FirstGeneration(life int) int { return life << 20 }

// NewLife returns a copy of m for its next life. The copy shares m's body, and never expires.
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

// stampLife gives the message of a task of a life above 0 its number, so that whoever requeues it knows what comes next, and so that
// its results replace what an earlier life recorded.
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

// LifeID returns id as it is known in a life: id itself in the first one, and else an id of its own.
func LifeID(id task.ID, life int) task.ID {
	if life == 0 {
		return id
	}
	return task.Derive(id, "life"+strconv.Itoa(life))
}

// EachStep calls do for each step of links whose id was chosen at submission, and for those that follow it, until do returns false. Ids
// that were not chosen then nobody has, and so nobody waits for them.
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
