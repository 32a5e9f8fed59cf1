package natsschedule

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/swarmiji/swarmiji/internal/natsconn"
	"github.com/swarmiji/swarmiji/schedule"
)

// headerGroup marks the message of a group.
const headerGroup = "Swj-Group"

// group is the content of a group's message. A group in the cache is never changed, only replaced.
type group struct {
	Name     string   `json:"name"`
	Revision int64    `json:"revision"`
	IDs      []string `json:"ids"` // sorted; entries that a change adds are listed before they exist

	seq uint64 // of the message; 0: there is no message
}

// decodeGroup returns the group in the data of a message with the sequence seq. Returns an error if
// data is not a JSON object.
func decodeGroup(data []byte, seq uint64) (*group, error) {
	g := &group{seq: seq}
	if err := json.Unmarshal(data, g); err != nil {
		return nil, fmt.Errorf("natsschedule: a message is not a group: %w", err)
	}
	return g, nil
}

// applyGroup puts a group into the table unless the table has a newer one. Call it with the Store's
// mu held.
func (t *table) applyGroup(g *group) {
	if old := t.groups[g.Name]; old == nil || old.seq < g.seq {
		t.groups[g.Name] = g
	}
}

// group returns the group with this name, or an empty one if no message of it exists. Do not change
// it. Call it with the Store's mu held.
func (t *table) group(name string) *group {
	if g := t.groups[name]; g != nil {
		return g
	}
	return &group{Name: name}
}

// outdated reports whether the group of the change has a higher revision than the change, and
// returns that revision. Otherwise, and without a group, it returns 0 and false. Call it with the
// Store's mu held.
func (t *table) outdated(c *schedule.Change) (int64, bool) {
	if g := t.groups[c.Group]; g != nil && c.Group != "" && g.Revision > c.Revision {
		return g.Revision, true
	}
	return 0, false
}

// storeGroup stores the message of a group in place of that with the sequence old; 0: no message
// exists. It then sets g.seq and puts g into the cache. It returns false if another process has
// stored the group meanwhile, and other errors of the server. It takes s.mu, but not while it
// waits.
func (s *Store) storeGroup(ctx context.Context, g *group, old uint64) (bool, error) {
	data, err := json.Marshal(g)
	if err != nil {
		return false, err
	}
	pubs := []natsconn.Pub{{Msg: &nats.Msg{
		Subject: s.prefix + "g" + hex.EncodeToString([]byte(g.Name)),
		Header:  nats.Header{headerGroup: {"1"}, headerExpect: {strconv.FormatUint(old, 10)}},
		Data:    data,
	}}}
	s.conn.PublishBatch(ctx, pubs)
	if err := pubs[0].Err; err != nil {
		if errors.Is(err, natsconn.ErrWrongSequence) {
			return false, nil
		}
		return false, err
	}
	g.seq = pubs[0].Ack.Sequence
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fresh {
		s.cache.applyGroup(g)
	}
	return true, nil
}

// Change implements [schedule.Changer]. It stores the group with its revision and the ids of all
// entries that the change concerns. Then each entry is one step, which fails if the group has a
// higher revision. At last it stores the ids that the group has.
//
// If c is invalid, it returns [schedule.ErrBadEntry]. Other errors are wrapped by wrap; a part of
// the change may have been made then, and a repetition completes it.
func (s *Store) Change(ctx context.Context, c schedule.Change) (schedule.Changed, error) {
	if err := c.Check(); err != nil {
		return schedule.Changed{}, err
	}
	for {
		p := &changing{s: s, c: &c, removed: make(map[string]schedule.Entry)}
		if err := p.plan(ctx); err != nil {
			return schedule.Changed{}, wrap("change", err)
		}
		if changed := p.answer(); c.DryRun || !changed.Applied(&c) {
			return changed, nil
		}
		ok, err := p.reserve(ctx)
		if err != nil {
			return schedule.Changed{}, wrap("change", err)
		}
		if !ok { // another process changes the group
			continue
		}
		if err := p.execute(ctx); err != nil {
			return schedule.Changed{}, err
		}
		return p.answer(), nil
	}
}

// changing is the state of one call of Change. Only its own goroutine uses it.
type changing struct {
	s *Store
	c *schedule.Change

	group   *group   // as it is stored
	before  []string // the ids that the group had at first
	all     []string // ids of the change's entries, then those of the group's other entries
	changed schedule.Changed
	removed map[string]schedule.Entry
}

// answer returns the answer of the call so far. If the group has a higher revision than the change,
// only Revision is set.
func (p *changing) answer() schedule.Changed {
	if p.c.Group != "" && p.changed.Revision > p.c.Revision {
		return schedule.Changed{Revision: p.changed.Revision}
	}
	p.changed.Removed = slices.SortedFunc(maps.Values(p.removed), func(a, b schedule.Entry) int { return cmp.Compare(a.ID, b.ID) })
	return p.changed
}

// plan waits for the cache (sync), reads the group into p and decides all entries. It changes only
// p. Returns the errors of sync. It takes s.mu, but not while it waits.
func (p *changing) plan(ctx context.Context) error {
	now, err := p.s.sync(ctx)
	if err != nil {
		return err
	}
	defer p.s.mu.Unlock()
	n := len(p.c.Entries)
	p.changed.Outcomes, p.changed.Next = make([]schedule.Outcome, n), make([]time.Time, n)
	p.group = &group{}
	if p.c.Group != "" {
		p.group, p.changed.Revision = p.s.cache.group(p.c.Group), p.c.Revision
	}
	if higher, is := p.s.cache.outdated(p.c); is { // decide sees it only if there are entries
		p.changed.Revision = higher
		return nil
	}
	p.before = p.group.IDs
	for i := range p.c.Entries {
		p.all = append(p.all, p.c.Entries[i].ID)
	}
	p.all = append(p.all, p.others()...)
	for i, id := range p.all {
		r, _ := p.s.cache.get(id)
		if r != nil {
			r = r.clone()
		}
		p.decide(now, r, i)
	}
	return nil
}

// others returns the ids of entries that are or may be in the group and are not in the change,
// sorted. Call it with s.mu held.
func (p *changing) others() []string {
	if p.c.Group == "" {
		return nil
	}
	ids := make(map[string]bool)
	for _, id := range p.group.IDs {
		ids[id] = true
	}
	for id, k := range p.s.cache.entries {
		if k.rec.Group == p.c.Group && !k.rec.Gone {
			ids[id] = true
		}
	}
	for i := range p.c.Entries {
		delete(ids, p.c.Entries[i].ID)
	}
	return slices.Sorted(maps.Keys(ids))
}

// reserve stores the group with the revision of the change and with the ids of all entries that the
// change concerns. It returns false if another process has stored the group since plan read it.
// Without a group it only returns true.
//
// A process that changes the group later then knows of entries that this one may add late.
func (p *changing) reserve(ctx context.Context) (bool, error) {
	if p.c.Group == "" {
		return true, nil
	}
	return p.store(ctx, p.all)
}

// store stores the group with these ids and the revision of the change, unless it is stored so
// already. It returns false if another process has stored it since plan or store read it, and other
// errors of the server.
func (p *changing) store(ctx context.Context, ids []string) (bool, error) {
	g := &group{Name: p.c.Group, Revision: p.c.Revision, IDs: slices.Sorted(slices.Values(ids))}
	if p.group.seq > 0 && p.group.Revision == g.Revision && slices.Equal(p.group.IDs, g.IDs) {
		return true, nil
	}
	ok, err := p.s.storeGroup(ctx, g, p.group.seq)
	if ok {
		p.group = g
	}
	return ok, err
}

// execute changes the entries, each in one step, and then stores the group with the ids that it
// has. If an entry could not be changed (Late, Taken, a higher revision), it does not store the
// group. Its errors are wrapped by wrap.
func (p *changing) execute(ctx context.Context) error {
	clear(p.removed)
	if _, err := p.s.change(ctx, "change", len(p.all), func(i int) string { return p.all[i] }, p.decide); err != nil {
		return err
	}
	if p.c.Group == "" || !p.changed.Applied(p.c) {
		return nil
	}
	var ids []string
	for i, outcome := range p.changed.Outcomes {
		if outcome != schedule.EntryOver {
			ids = append(ids, p.all[i])
		}
	}
	_, err := p.store(ctx, ids) // if another process was faster, its group is newer
	return wrap("change", err)
}

// decide is the decideFunc for p.all. It changes the record r and returns it with the outcome. It
// sets the outcome of the entry in p.changed, or calls remove for an entry that the change does not
// have. It changes nothing if the group has a higher revision, which it stores in p.changed. Call
// it with s.mu held.
func (p *changing) decide(now int64, r *record, i int) (*record, outcome) {
	if higher, is := p.s.cache.outdated(p.c); is {
		p.changed.Revision = higher
		return r, outcome{}
	}
	if r != nil && r.Group == "" {
		if _, is := slices.BinarySearch(p.before, r.ID); is {
			r.Group = p.c.Group // a process of an older version has lost it
		}
	}
	if i >= len(p.c.Entries) {
		return p.remove(r, p.all[i])
	}
	var old *schedule.Entry
	if r != nil {
		e := r.entry()
		old = &e
	}
	is, next := p.c.Decide(i, old, r != nil && len(r.Claims) > 0, moment(now))
	p.changed.Outcomes[i], p.changed.Next[i] = is, next
	e := &p.c.Entries[i]
	switch is {
	case schedule.EntryAdded:
		return &record{ID: e.ID, payload: e.Payload, Next: next.UnixMilli(), Timed: true, Group: p.c.Group}, outcome{true, true}
	case schedule.EntryChanged:
		if r.Timed && r.Next <= now {
			r.Claims = append(r.Claims, claim{Due: r.Next, Owner: schedule.NoOwner, Until: r.Next})
		}
		r.payload = e.Payload
		r.schedule(next)
		return r, outcome{true, true}
	case schedule.EntryOver:
		if r != nil {
			r.Gone = true
		}
		return r, outcome{true, r != nil}
	case schedule.EntryUnchanged:
		return r, outcome{true, !next.IsZero() && r.repair(next)}
	default:
		return r, outcome{}
	}
}

// remove marks r as removed, an entry of the group that the change does not have, and adds it to
// p.removed. An entry of another group stays as it is.
//
// For an entry that does not exist it returns a record that is marked as removed: a process with a
// lower revision may add the entry late, and the message of that record makes it fail.
func (p *changing) remove(r *record, id string) (*record, outcome) {
	switch {
	case r == nil:
		return &record{ID: id, Gone: true}, outcome{true, true}
	case r.Group != p.c.Group:
		return r, outcome{}
	}
	p.removed[id] = r.entry()
	r.Gone = true
	return r, outcome{true, true}
}
