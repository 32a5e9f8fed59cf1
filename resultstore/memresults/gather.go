package memresults

import (
	"bytes"
	"context"
	"time"

	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// gathering holds the groups, the tasks that have begun, and the claims of a table. sweep removes
// expired ones. Guarded by table.mu.
type gathering struct {
	groups map[task.ID]*members
	begun  map[task.ID]begun // begun also holds the claims, see claimKey.
	swept  time.Duration
}

// members holds the arrived members of one group.
type members struct {
	ends    map[int]resultstore.Record
	size    int // number of members; 0: not known
	failed  int
	decider int // index of the member that decided the group; -1: undecided
	largest int // largest index that has arrived; -1: none
	expires time.Duration
}

// begun names the running copy of a task or the holder of a claim.
type begun struct {
	which   string
	expires time.Duration
}

const gatherSweep = time.Minute

// sweep removes expired groups, begun tasks and claims, at most once per gatherSweep. It makes the
// maps at its first call. Call it with table.mu held, before an entry is added.
func (g *gathering) sweep(now time.Duration) {
	if g.groups == nil {
		g.groups, g.begun = make(map[task.ID]*members), make(map[task.ID]begun)
	}
	if now-g.swept < gatherSweep {
		return
	}
	g.swept = now
	for id, m := range g.groups {
		if m.expires <= now {
			delete(g.groups, id)
		}
	}
	for id, b := range g.begun {
		if b.expires <= now {
			delete(g.begun, id)
		}
	}
}

// Arrive implements [resultstore.Gatherer]: it stores a copy of the end of a member, unless its
// index is stored already. It sets the size and the decider of the group if they become known,
// begins its retention again and returns its state. An expired group begins again without members.
// It takes t.mu.
//
// Returns ErrMalformed if a does not fit the group, [task.ErrBadID] for an invalid id, ErrClosed
// after Close, and ctx's error if ctx has ended.
func (s *Store) Arrive(ctx context.Context, a resultstore.Arrival) (resultstore.Gathered, error) {
	if err := check(ctx, a.Group); err != nil {
		return resultstore.Gathered{}, err
	}
	if err := a.Check(); err != nil {
		return resultstore.Gathered{}, err
	}
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	if s.closed {
		return resultstore.Gathered{}, resultstore.ErrClosed
	}
	now := s.t.now()
	g := &s.t.gathering
	g.sweep(now)
	m := g.groups[a.Group]
	if m == nil || m.expires <= now {
		m = &members{ends: make(map[int]resultstore.Record), decider: -1, largest: -1}
	}
	if err := m.check(&a); err != nil {
		return resultstore.Gathered{}, err
	}
	g.groups[a.Group] = m
	m.arrive(&a)
	m.expires = deadline(now, a.Kept(m.decider >= 0))
	return m.known(), nil
}

// known returns size, arrived and failed members and decider of the group as a
// [resultstore.Gathered]. Call it with table.mu held.
func (m *members) known() resultstore.Gathered {
	return resultstore.Gathered{Size: m.size, Done: len(m.ends), Failed: m.failed, Decider: m.decider}
}

// Group implements [resultstore.Gatherer]: it returns the state of a group. Returns ErrNotFound if
// no member has arrived or the group has expired. Returns ErrClosed after Close, task.ErrBadID for
// an invalid id, and ctx's error if ctx has ended. It takes t.mu.
func (s *Store) Group(ctx context.Context, group task.ID) (resultstore.Gathered, error) {
	if err := check(ctx, group); err != nil {
		return resultstore.Gathered{}, err
	}
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	if s.closed {
		return resultstore.Gathered{}, resultstore.ErrClosed
	}
	m := s.t.gathering.groups[group]
	if m == nil || m.expires <= s.t.now() {
		return resultstore.Gathered{}, resultstore.ErrNotFound
	}
	return m.known(), nil
}

// check returns ErrMalformed if Index or Size of a does not fit the known size of the group. It
// also does so if Size of a is not above the largest index that has arrived. Call it with table.mu
// held.
func (m *members) check(a *resultstore.Arrival) error {
	if err := a.CheckPlace(m.size); err != nil {
		return err
	}
	if a.Size > 0 && m.largest >= a.Size {
		known := *a
		known.Index = m.largest
		return known.CheckPlace(a.Size)
	}
	return nil
}

// arrive stores a copy of the end of the member in the arrival a, which fits the group, unless
// its index is stored already. It sets the size if a has it. It decides the group if a says so or
// completes it. Call it with table.mu held.
func (m *members) arrive(a *resultstore.Arrival) {
	if a.Size > 0 {
		m.size = a.Size
	}
	if _, there := m.ends[a.Index]; !there {
		r := a.Record
		m.ends[a.Index] = resultstore.Record{
			ID: r.ID, Name: r.Name, State: r.State, ContentType: r.ContentType, Result: bytes.Clone(r.Result), Error: r.Error,
		}
		m.largest = max(m.largest, a.Index)
		if r.State != task.StateSucceeded {
			m.failed++
		}
		if m.decider < 0 && a.Decides {
			m.decider = a.Index
		}
	}
	if m.decider < 0 && len(m.ends) == m.size {
		m.decider = a.Index
	}
}

// Members implements [resultstore.Gatherer]: it returns copies of the stored members from index
// from on, in order. It stops at limit, at MaxMembersPage, or at the first index that has not
// arrived. A from below 0 counts as 0. A group that is unknown or has expired has no members.
// Returns ErrClosed after Close, task.ErrBadID for an invalid id, and ctx's error if ctx has ended.
// It takes t.mu.
func (s *Store) Members(ctx context.Context, group task.ID, from, limit int) ([]resultstore.Record, error) {
	if err := check(ctx, group); err != nil {
		return nil, err
	}
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	if s.closed {
		return nil, resultstore.ErrClosed
	}
	m := s.t.gathering.groups[group]
	if m == nil || m.expires <= s.t.now() {
		return nil, nil
	}
	var page []resultstore.Record
	for i := max(from, 0); len(page) < min(limit, resultstore.MaxMembersPage); i++ {
		r, there := m.ends[i]
		if !there {
			break
		}
		r.Result = bytes.Clone(r.Result)
		page = append(page, r)
	}
	return page, nil
}

// Begin implements [resultstore.Gatherer]: it claims task id for the copy that which names, if no
// copy has an unexpired claim. It returns true if that copy has the claim after the call. A ttl of
// 0 or less is DefaultGatherTTL. Returns ErrClosed after Close, task.ErrBadID for an invalid id,
// and ctx's error if ctx has ended. It takes t.mu.
func (s *Store) Begin(ctx context.Context, id task.ID, which string, ttl time.Duration) (bool, error) {
	if err := check(ctx, id); err != nil {
		return false, err
	}
	s.t.mu.Lock()
	defer s.t.mu.Unlock()
	if s.closed {
		return false, resultstore.ErrClosed
	}
	return s.t.claim(id, which, positive(ttl, resultstore.DefaultGatherTTL)) == which, nil
}

var _ resultstore.Gatherer = (*Store)(nil)
