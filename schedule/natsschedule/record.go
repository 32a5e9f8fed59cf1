package natsschedule

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/swarmiji/swarmiji/schedule"
)

const (
	headerEntry  = "Swj-Entry"
	headerExpect = "Nats-Expected-Last-Subject-Sequence"
	headerTTL    = "Nats-TTL"
	// removedTTL is the number of seconds for which the message of a removed entry is kept. Processes
	// that were disconnected briefly receive it in this time.
	removedTTL = 60
)

// record is the content of an entry's message. A record in the cache is never changed, only
// replaced; change a clone.
type record struct {
	ID     string  `json:"id,omitempty"`
	Size   int     `json:"size,omitempty"` // bytes of the payload
	Next   int64   `json:"next,omitempty"` // valid only if Timed
	Timed  bool    `json:"timed,omitempty"`
	Paused bool    `json:"paused,omitempty"`
	Last   *int64  `json:"last,omitempty"`
	Runs   []int64 `json:"runs,omitempty"`  // instants of the last runs, the newest first
	Group  string  `json:"group,omitempty"` // see group
	Claims []claim `json:"claims,omitempty"`
	Gone   bool    `json:"gone,omitempty"`

	payload, state []byte
}

// claim is the claim of an owner on the tick due; its lease ends at until. Times are Unix
// milliseconds.
type claim struct {
	Due   int64  `json:"due"`
	Owner string `json:"owner"`
	Until int64  `json:"until"`
}

// subject returns the subject of an entry's message: the schedule's prefix, then "i" and the id, or
// "h" and the id in hex if a subject cannot contain the id.
func (s *Store) subject(id string) string {
	if plain(id) {
		return s.prefix + "i" + id
	}
	return s.prefix + "h" + hex.EncodeToString([]byte(id))
}

// message returns the message that stores r and replaces the entry's message with the sequence
// expected. 0: the entry has no message yet. It does not send the message. Its header Swj-Entry
// holds r as JSON. Its data are the payload, then the state.
//
// It changes r: it sets r.Size to the length of the payload. For a removed record it first clears
// the payload, state and claims; the message then has no data and expires after removedTTL seconds.
func (s *Store) message(r *record, expected uint64) *nats.Msg {
	if r.Gone {
		r.payload, r.state, r.Claims = nil, nil, nil
	}
	r.Size = len(r.payload)
	head, _ := json.Marshal(r) // strings and numbers can always be encoded
	m := &nats.Msg{Subject: s.subject(r.ID), Header: nats.Header{
		headerEntry:  {string(head)},
		headerExpect: {strconv.FormatUint(expected, 10)},
	}}
	if r.Gone {
		m.Header[headerTTL] = []string{strconv.Itoa(removedTTL)}
		return m
	}
	m.Data = append(slices.Clone(r.payload), r.state...)
	return m
}

// decode returns the record of a message. Its payload and state share memory with data. Returns an
// error if the header Swj-Entry is missing or not JSON, or if the payload's size in it does not fit
// data.
func decode(h nats.Header, data []byte) (*record, error) {
	r := &record{}
	if err := json.Unmarshal([]byte(h.Get(headerEntry)), r); err != nil {
		return nil, fmt.Errorf("natsschedule: a message is not an entry: %w", err)
	}
	if r.Size < 0 || r.Size > len(data) {
		return nil, fmt.Errorf("natsschedule: a message has %d bytes, but its payload has %d", len(data), r.Size)
	}
	r.payload, r.state = data[:r.Size:r.Size], data[r.Size:]
	return r, nil
}

// clone returns a copy of the record that the caller may change. Payload and state are shared;
// replace them, do not change their bytes.
func (r *record) clone() *record {
	c := *r
	c.Claims = slices.Clone(r.Claims)
	return &c
}

// entry returns the record as an entry of the port. It shares no memory with the record.
func (r *record) entry() schedule.Entry {
	e := schedule.Entry{ID: r.ID, Payload: slices.Clone(r.payload), Paused: r.Paused, Group: r.Group}
	for _, ms := range r.Runs {
		e.Runs = append(e.Runs, moment(ms))
	}
	if len(r.state) > 0 {
		e.State = slices.Clone(r.state)
	}
	if r.Timed {
		e.Next = moment(r.Next)
	}
	if r.Last != nil {
		e.Last = moment(*r.Last)
	}
	return e
}

// claimed returns the index of the claim on the tick due, valid or expired; -1 if the tick has no
// claim.
func (r *record) claimed(due time.Time) int {
	return slices.IndexFunc(r.Claims, func(c claim) bool { return c.Due == due.UnixMilli() })
}

// held returns the index of the owner's claim on the tick due, valid or expired; -1 if the owner
// has no claim on it.
func (r *record) held(owner string, due time.Time) int {
	if i := r.claimed(due); i >= 0 && r.Claims[i].Owner == owner {
		return i
	}
	return -1
}

// schedule sets the due time of the entry to next, in place of an earlier one; a zero next only
// removes it. A paused entry gets no due time. It changes only r.
func (r *record) schedule(next time.Time) {
	r.Next, r.Timed = 0, false
	if !next.IsZero() && !r.Paused {
		r.Next, r.Timed = next.UnixMilli(), true
	}
}

// unscheduled reports whether the entry would never become due: it has no due time and no claim,
// and is neither paused nor removed.
func (r *record) unscheduled() bool { return !r.Timed && len(r.Claims) == 0 && !r.Paused && !r.Gone }

// repair sets the due time of an entry without due time, claim and pause, and reports whether it
// did so. Other records, also removed ones, stay unchanged.
func (r *record) repair(next time.Time) bool {
	if !r.unscheduled() {
		return false
	}
	r.schedule(next)
	return true
}

// claim claims a tick for owner at the time now and reports whether the owner holds it now. It
// changes only r. The claim ends lease after now. It gives the entry its next due time and, with
// c.Remember, adds the tick to its last runs.
//
//   - The owner's own claim is renewed, expired or not, and nothing else changes.
//   - An expired claim of c.Owner is taken over. The entry gets c.Next only if it has no due time.
//   - A tick without a claim must be the entry's due time, and c.Owner must be "".
//
// In all other cases it returns false and changes nothing.
func (r *record) claim(now int64, owner string, lease time.Duration, c *schedule.Claim) bool {
	until := now + lease.Milliseconds()
	if i := r.claimed(c.Due); i >= 0 {
		held := &r.Claims[i]
		if held.Owner == owner { // a repeated call
			held.Until = until
			return true
		}
		if held.Owner != c.Owner || held.Until > now {
			return false
		}
		held.Owner, held.Until = owner, until
		if !r.Timed {
			r.schedule(c.Next)
		}
	} else {
		if c.Owner != "" || !r.Timed || r.Next != c.Due.UnixMilli() {
			return false
		}
		r.schedule(c.Next)
		r.Claims = append(r.Claims, claim{Due: c.Due.UnixMilli(), Owner: owner, Until: until})
	}
	if c.Remember {
		last := c.Due.UnixMilli()
		runs := schedule.AddRun(r.entry().Runs, c.Due)
		r.Last, r.Runs = &last, make([]int64, len(runs))
		for i, t := range runs {
			r.Runs[i] = t.UnixMilli()
		}
	}
	return true
}

// moment returns the UTC time of milliseconds since 1970.
func moment(ms int64) time.Time { return time.UnixMilli(ms).UTC() }
