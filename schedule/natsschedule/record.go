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
	// goneTTL is for how many seconds a removed entry's message stays, so that those hear of it who were away for a moment.
	goneTTL = 60
)

// record is an entry as its message holds it. One that is handed out is not changed any more, only replaced.
type record struct {
	ID     string  `json:"id,omitempty"`
	Size   int     `json:"size,omitempty"` // of the payload
	Next   int64   `json:"next,omitempty"` // with Timed
	Timed  bool    `json:"timed,omitempty"`
	Paused bool    `json:"paused,omitempty"`
	Last   *int64  `json:"last,omitempty"`
	Claims []claim `json:"claims,omitempty"`
	Gone   bool    `json:"gone,omitempty"`

	payload, state []byte
}

type claim struct {
	Due   int64  `json:"due"`
	Owner string `json:"owner"`
	Until int64  `json:"until"`
}

// subject is where an entry's message lies.
func (s *Store) subject(id string) string {
	if plain(id) {
		return s.prefix + "i" + id
	}
	return s.prefix + "h" + hex.EncodeToString([]byte(id))
}

// message writes a record, to replace the message of a sequence; 0: there is none.
func (s *Store) message(r *record, expected uint64) *nats.Msg {
	if r.Gone {
		r.payload, r.state, r.Claims = nil, nil, nil
	}
	r.Size = len(r.payload)
	head, _ := json.Marshal(r) // texts and numbers always have a form
	m := &nats.Msg{Subject: s.subject(r.ID), Header: nats.Header{
		headerEntry:  {string(head)},
		headerExpect: {strconv.FormatUint(expected, 10)},
	}}
	if r.Gone {
		m.Header[headerTTL] = []string{strconv.Itoa(goneTTL)}
		return m
	}
	m.Data = append(slices.Clone(r.payload), r.state...)
	return m
}

// decode reads a message.
func decode(h nats.Header, data []byte) (*record, error) {
	r := &record{}
	if err := json.Unmarshal([]byte(h.Get(headerEntry)), r); err != nil {
		return nil, fmt.Errorf("natsschedule: a message that is no entry: %w", err)
	}
	if r.Size < 0 || r.Size > len(data) {
		return nil, fmt.Errorf("natsschedule: a message of %d bytes with a payload of %d", len(data), r.Size)
	}
	r.payload, r.state = data[:r.Size:r.Size], data[r.Size:]
	return r, nil
}

// clone is a record that may be changed.
func (r *record) clone() *record {
	c := *r
	c.Claims = slices.Clone(r.Claims)
	return &c
}

// entry is the record as the port shows it.
func (r *record) entry() schedule.Entry {
	e := schedule.Entry{ID: r.ID, Payload: slices.Clone(r.payload), Paused: r.Paused}
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

// claimed returns the place of the claim on a tick, or -1.
func (r *record) claimed(due time.Time) int {
	return slices.IndexFunc(r.Claims, func(c claim) bool { return c.Due == due.UnixMilli() })
}

// held returns the owner's claim on a tick, or -1.
func (r *record) held(owner string, due time.Time) int {
	if i := r.claimed(due); i >= 0 && r.Claims[i].Owner == owner {
		return i
	}
	return -1
}

// schedule gives the entry its next time; zero, or a pause: none.
func (r *record) schedule(next time.Time) {
	r.Next, r.Timed = 0, false
	if !next.IsZero() && !r.Paused {
		r.Next, r.Timed = next.UnixMilli(), true
	}
}

// astray reports whether nothing would ever make the entry due.
func (r *record) astray() bool { return !r.Timed && len(r.Claims) == 0 && !r.Paused && !r.Gone }

// mend gives an entry that is astray a time, and reports whether it was.
func (r *record) mend(next time.Time) bool {
	if !r.astray() {
		return false
	}
	r.schedule(next)
	return true
}

// claim compares and sets.
func (r *record) claim(now int64, owner string, lease time.Duration, c *schedule.Claim) bool {
	until := now + lease.Milliseconds()
	if i := r.claimed(c.Due); i >= 0 {
		held := &r.Claims[i]
		if held.Owner == owner { // asked for again
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
		r.Last = &last
	}
	return true
}

func moment(ms int64) time.Time { return time.UnixMilli(ms).UTC() }
