package natsresults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/swarmiji/swarmiji/internal/natsconn"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// A group has one message with its state, and one for each member that has arrived. The state is
// written with compare-and-set on the sequence of its subject, so that each arrival is one atomic
// step. A member's message is written before the state and its content never changes. The keys
// begin with a space, which is not allowed in an id.

// groupKey returns the key of the message with the state of a group.
func groupKey(group task.ID) string { return " g" + string(group) }

// memberKey returns the key of the message with the end of a member.
func memberKey(group task.ID, index int) string {
	return " m" + strconv.Itoa(index) + " " + string(group)
}

// begunKey returns the key of the message that holds the running copy of a task.
func begunKey(id task.ID) string { return " b" + string(id) }

// maxMembers is the largest size of a group. The state of a larger one would exceed the usual
// max_payload. The limit also keeps a forged index from allocating memory for all indexes below it.
const maxMembers = 4 << 20

// groupState holds the stored state of a group, with a bit for each index whose member has arrived.
type groupState struct {
	size, failed, decider, largest int
	arrived                        []byte // a bit for each index
	done                           int
}

// has reports whether the member at index has arrived.
func (g *groupState) has(index int) bool {
	return index/8 < len(g.arrived) && g.arrived[index/8]&(1<<(index%8)) != 0
}

// add records that the member at index, which must not have arrived before, has arrived: it sets
// the bit and adjusts done and largest.
func (g *groupState) add(index int) {
	if n := index/8 + 1; n > len(g.arrived) {
		g.arrived = append(g.arrived, make([]byte, n-len(g.arrived))...)
	}
	g.arrived[index/8] |= 1 << (index % 8)
	g.done++
	g.largest = max(g.largest, index)
}

// decidedBy reports whether the group is decided after the arrival a, which is not yet part of g.
func (g *groupState) decidedBy(a *resultstore.Arrival) bool {
	return g.decider >= 0 || a.Decides || max(g.size, a.Size) == g.done+1
}

// known returns size, done, failed and decider of g as a [resultstore.Gathered].
func (g *groupState) known() resultstore.Gathered {
	return resultstore.Gathered{Size: g.size, Done: g.done, Failed: g.failed, Decider: g.decider}
}

// arrive adds the arrival a to g and reports whether that changed g. It sets the size if it was
// unknown, and adds the member if it is the first one at its index. It sets the decider if the new
// member decides the group or the group is complete.
func (g *groupState) arrive(a *resultstore.Arrival) (changed bool) {
	if g.size == 0 && a.Size > 0 {
		g.size, changed = a.Size, true
	}
	if !g.has(a.Index) {
		changed = true
		g.add(a.Index)
		if a.Record.State != task.StateSucceeded {
			g.failed++
		}
		if g.decider < 0 && a.Decides {
			g.decider = a.Index
		}
	}
	if g.decider < 0 && g.size > 0 && g.done == g.size {
		g.decider, changed = a.Index, true
	}
	return changed
}

// encode returns the stored form: a line with five numbers, then a bit for each index that has
// arrived.
func (g *groupState) encode() []byte {
	return append(fmt.Appendf(nil, "%d %d %d %d %d\n", g.size, g.done, g.failed, g.decider, g.largest), g.arrived...)
}

// decodeGroup returns the state of a group, which is empty for no data. Returns ErrMalformed for
// data that it cannot read.
func decodeGroup(data []byte) (*groupState, error) {
	g := &groupState{decider: -1, largest: -1}
	if len(data) == 0 {
		return g, nil
	}
	for i := range data {
		if data[i] != '\n' {
			continue
		}
		if _, err := fmt.Sscanf(string(data[:i]), "%d %d %d %d %d", &g.size, &g.done, &g.failed, &g.decider, &g.largest); err != nil {
			break
		}
		g.arrived = append([]byte(nil), data[i+1:]...)
		return g, nil
	}
	return nil, fmt.Errorf("%w: the state of a group cannot be read", resultstore.ErrMalformed)
}

// Arrive implements [resultstore.Gatherer]: it stores the end of a member and returns the state of
// its group. A repeated arrival that changes nothing does not begin the retention again. It makes
// three round trips, and two more for each process that reports to the same group at the same time.
// Arrivals of one process at the same group run one after the other.
//
// It also returns [task.ErrBadID] for an invalid id, [resultstore.ErrMalformed] for an Index or
// Size beyond 4,194,304, and [resultstore.ErrTooLarge] for a Result above Config.MaxResult. Returns
// ErrClosed after Close, and ctx's error if ctx has already ended. After
// [resultstore.ErrUnavailable] the member may have been stored; repeating the call is safe.
func (s *Store) Arrive(ctx context.Context, a resultstore.Arrival) (resultstore.Gathered, error) {
	if err := errors.Join(check(ctx, a.Group), a.Check()); err != nil {
		return resultstore.Gathered{}, err
	}
	if a.Index >= maxMembers || a.Size > maxMembers {
		return resultstore.Gathered{}, fmt.Errorf("%w: member %d of %d, a group has at most %d", resultstore.ErrMalformed, a.Index, a.Size, maxMembers)
	}
	r := &a.Record
	if len(r.Result) > s.cfg.MaxResult {
		return resultstore.Gathered{}, fmt.Errorf("%w: the result has %d bytes, more than the MaxResult of %d", resultstore.ErrTooLarge, len(r.Result), s.cfg.MaxResult)
	}
	body, err := wire.EncodeRecord(&resultstore.Record{ID: r.ID, Name: r.Name, State: r.State, ContentType: r.ContentType, Result: r.Result, Error: r.Error})
	if err != nil {
		return resultstore.Gathered{}, err
	}
	if !s.begin() {
		return resultstore.Gathered{}, resultstore.ErrClosed
	}
	defer s.end()
	unlock, err := s.lockGroup(ctx, a.Group)
	if err != nil {
		return resultstore.Gathered{}, failure("gather", err)
	}
	defer unlock()
	var g *groupState
	err = s.withStream(ctx, func(st *stream) (err error) {
		g, err = s.arrive(ctx, st, &a, body)
		return err
	})
	if err != nil {
		return resultstore.Gathered{}, failure("gather", err)
	}
	return g.known(), nil
}

// Group implements [resultstore.Gatherer]: it returns the state of a group. It makes one round
// trip. After a lost answer it tries again until ctx ends; then it returns ErrUnavailable. It also
// returns:
//
//   - ErrNotFound if no member has arrived or the group has expired
//   - ErrMalformed if the stored state cannot be read
//   - task.ErrBadID for an invalid id
//   - ErrClosed after Close, and ctx's error if ctx has already ended
func (s *Store) Group(ctx context.Context, group task.ID) (resultstore.Gathered, error) {
	if err := check(ctx, group); err != nil {
		return resultstore.Gathered{}, err
	}
	if !s.begin() {
		return resultstore.Gathered{}, resultstore.ErrClosed
	}
	defer s.end()
	var state []byte
	err := s.withStream(ctx, func(st *stream) (err error) {
		state, _, err = s.get(ctx, st, groupKey(group))
		return err
	})
	switch {
	case err != nil:
		return resultstore.Gathered{}, failure("group", err)
	case state == nil:
		return resultstore.Gathered{}, resultstore.ErrNotFound
	}
	g, err := decodeGroup(state)
	if err != nil {
		return resultstore.Gathered{}, failure("group", err)
	}
	return g.known(), nil
}

// lockStripes is the number of locks that all groups share.
const lockStripes = 64

// lockGroup waits for the lock of a group and takes it against other arrivals of this process,
// which would only cause conflicts. If ctx ends first it returns ErrUnavailable. Call unlock after
// the arrival. Groups with the same hash share a lock.
func (s *Store) lockGroup(ctx context.Context, group task.ID) (unlock func(), err error) {
	lock := s.groupLocks[maphash.String(s.seed, string(group))%lockStripes]
	select {
	case lock <- struct{}{}:
		return func() { <-lock }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", natsconn.ErrUnavailable, ctx.Err())
	}
}

// arrive stores the member of a and then the state of its group with compare-and-set, and returns
// that state. If another end of the member is stored already, the group counts the stored end. If
// the arrival changes nothing it writes no state. It reads the state again and repeats the write
// after a conflict or a lost answer, until ctx ends. Call it with the group locked.
//
// If this member is the decider it shortens the retention of all members; if the group was decided
// meanwhile, only that of this member. Returns ErrMalformed if a does not fit the group, or if the
// stored state or member cannot be read. It returns other errors of the server at once.
func (s *Store) arrive(ctx context.Context, st *stream, a *resultstore.Arrival, body []byte) (*groupState, error) {
	stored, waits := false, false
	for attempt := 0; ; attempt++ {
		old, seq, err := s.get(ctx, st, groupKey(a.Group))
		if err != nil {
			return nil, err
		}
		g, err := decodeGroup(old)
		if err != nil {
			return nil, err
		}
		if err := a.CheckPlace(g.size); err != nil {
			return nil, err
		}
		if a.Size > 0 && g.largest >= a.Size {
			return nil, fmt.Errorf("%w: the size %d of the group does not fit its member %d", resultstore.ErrMalformed, a.Size, g.largest)
		}
		if !g.has(a.Index) && !stored {
			waits = !g.decidedBy(a)
			kept, err := s.addMember(ctx, st, a, body, 2*a.Kept(!waits))
			if err != nil {
				return nil, err
			}
			// A process stored this member and died before it changed the state: its first end counts.
			if kept != nil {
				a = kept
			}
			stored = true
		}
		changed := g.arrive(a)
		if changed {
			err = s.set(ctx, st, groupKey(a.Group), seq, g.encode(), a.Kept(g.decider >= 0))
		}
		switch {
		case err == nil && g.decider == a.Index:
			s.shorten(ctx, st, a, g, 0, g.largest)
			return g, nil
		case err == nil && g.decider >= 0 && waits: // another process decided it meanwhile
			s.shorten(ctx, st, a, g, a.Index, a.Index)
			return g, nil
		case err == nil:
			return g, nil
		case !s.retryable(ctx, err) || !pause(ctx, attempt+1):
			return nil, err
		}
	}
}

// retryable reports whether a write that failed with err may be repeated after the key was read
// again. It returns true after a conflict, and, unless ctx has ended, after a lost or missing
// answer. It returns false if the connection was closed for good, and after any other error.
func (s *Store) retryable(ctx context.Context, err error) bool {
	return errors.Is(err, natsconn.ErrWrongSequence) ||
		(errors.Is(err, natsconn.ErrIndeterminate) && !errors.Is(err, natsconn.ErrClosed) || errors.Is(err, context.DeadlineExceeded)) && ctx.Err() == nil
}

// addMember stores the end of a member and waits for the server. It returns nil if it has stored
// body, or if the same body is stored already. If another end is stored, it leaves that and returns
// a copy of a with that end as Record. Decides of the copy is false if the stored member succeeded.
// Returns ErrMalformed if the stored end cannot be decoded, and the errors of setFirst.
func (s *Store) addMember(ctx context.Context, st *stream, a *resultstore.Arrival, body []byte, ttl time.Duration) (kept *resultstore.Arrival, err error) {
	there, err := s.setFirst(ctx, st, memberKey(a.Group, a.Index), body, ttl)
	if err != nil || there == nil || bytes.Equal(there, body) {
		return nil, err
	}
	first := *a
	if first.Record, err = wire.DecodeRecord(there); err != nil {
		return nil, err
	}
	first.Decides = a.Decides && first.Record.State != task.StateSucceeded
	return &first, nil
}

// setFirst writes a message if none exists for key. It returns nil if it has written the message,
// otherwise the existing one. It writes before it reads, because in most cases no message exists.
// After a failed write that retryable allows it reads the key and writes again, until ctx ends. It
// returns any other error at once. It waits for the server.
func (s *Store) setFirst(ctx context.Context, st *stream, key string, data []byte, ttl time.Duration) (there []byte, err error) {
	seq := uint64(0)
	for attempt := 0; ; attempt++ {
		if err = s.set(ctx, st, key, seq, data, ttl); err == nil || !s.retryable(ctx, err) || attempt > 0 && !pause(ctx, attempt) {
			return nil, err
		}
		if there, seq, err = s.get(ctx, st, key); err != nil || there != nil {
			return there, err
		}
	}
}

// get reads the message of a group, a member, a begun task or a claim, and waits for the server.
// data is nil if no message exists or it has expired. seq is the sequence to expect for the next
// write, 0 if no message exists.
func (s *Store) get(ctx context.Context, st *stream, key string) (data []byte, seq uint64, err error) {
	data, seq, _, err = s.getTimed(ctx, st, key)
	return data, seq, err
}

// getTimed reads the message of a key and waits for the server. Also for an expired message it
// returns seq, the sequence to expect for the next write. Returns errors of the server, except for
// a message that does not exist.
//
//   - No message exists: data is nil and seq 0.
//   - It has expired: data is nil.
//   - It does not expire: left is 0.
//   - Otherwise left is its remaining retention.
func (s *Store) getTimed(ctx context.Context, st *stream, key string) (data []byte, seq uint64, left time.Duration, err error) {
	read := s.fromLeader
	if st.direct {
		read = s.fromAny
	}
	raw, err := read(ctx, task.ID(key))
	switch {
	case errors.Is(err, natsconn.ErrNotFound):
		return nil, 0, 0, nil
	case err != nil:
		return nil, 0, 0, err
	}
	if ttl := lifetimeOf(raw.Header); ttl > 0 {
		if left = raw.Time.Add(ttl).Sub(st.now()); left <= 0 {
			return nil, raw.Seq, 0, nil
		}
	}
	return raw.Data, raw.Seq, left, nil
}

// set publishes a message for key with retention ttl, which lifetime rounds and limits, and waits
// for one try. The message is stored only if the last sequence of its subject is seq; otherwise set
// returns natsconn.ErrWrongSequence. After another error of publish it may be stored.
func (s *Store) set(ctx context.Context, st *stream, key string, seq uint64, data []byte, ttl time.Duration) error {
	m := &nats.Msg{Subject: s.names.record(task.ID(key)), Header: make(nats.Header, 3), Data: data}
	seconds, exact := s.lifetime(ttl)
	if st.ttl {
		m.Header[natsTTL] = []string{strconv.FormatInt(seconds, 10)}
	}
	m.Header[headerTTL] = []string{strconv.FormatInt(exact.Milliseconds(), 10)}
	m.Header[natsExpect] = []string{strconv.FormatUint(seq, 10)}
	_, err := s.publish(ctx, m)
	return err
}

// Members implements [resultstore.Gatherer]: it returns the stored members from index from on, in
// order. It stops at limit, at MaxMembersPage, or at the first index that has not arrived or has
// expired. A from below 0 counts as 0. A group that is unknown or has expired has no members. It
// makes one round trip for the group and one for each member.
//
// Returns ErrMalformed if a stored message cannot be read, and task.ErrBadID for an invalid id.
// Returns ErrClosed after Close, and ctx's error if ctx has already ended. After a lost answer it
// tries again until ctx ends; then it returns ErrUnavailable. With an error the list may be
// incomplete.
func (s *Store) Members(ctx context.Context, group task.ID, from, limit int) ([]resultstore.Record, error) {
	if err := check(ctx, group); err != nil {
		return nil, err
	}
	if !s.begin() {
		return nil, resultstore.ErrClosed
	}
	defer s.end()
	var page []resultstore.Record
	err := s.withStream(ctx, func(st *stream) error {
		page = nil
		state, _, err := s.get(ctx, st, groupKey(group))
		if err != nil {
			return err
		}
		g, err := decodeGroup(state)
		if err != nil {
			return err
		}
		for i := max(from, 0); g.has(i) && len(page) < min(limit, resultstore.MaxMembersPage); i++ {
			data, _, err := s.get(ctx, st, memberKey(group, i))
			if err != nil {
				return err
			}
			if data == nil { // expired
				break
			}
			r, err := wire.DecodeRecord(data)
			if err != nil {
				return err
			}
			page = append(page, r)
		}
		return nil
	})
	return page, failure("members", err)
}

// Begin implements [resultstore.Gatherer]: it claims task id for the copy that which names, if no
// copy has an unexpired claim. It reports whether that copy has the claim then. A ttl of 0 or less
// is DefaultGatherTTL. It makes one round trip for the first copy and two for any other.
//
// Returns task.ErrBadID for an invalid id, ErrClosed after Close, and ctx's error if ctx has
// already ended. After a lost answer it tries again until ctx ends; then it returns ErrUnavailable.
// After an error the first result is false.
func (s *Store) Begin(ctx context.Context, id task.ID, which string, ttl time.Duration) (bool, error) {
	if err := check(ctx, id); err != nil {
		return false, err
	}
	if !s.begin() {
		return false, resultstore.ErrClosed
	}
	defer s.end()
	if ttl <= 0 {
		ttl = resultstore.DefaultGatherTTL
	}
	first := false
	err := s.withStream(ctx, func(st *stream) error {
		has, err := s.claim(ctx, st, begunKey(id), which, ttl)
		first = has == which
		return err
	})
	return first && err == nil, failure("begin", err)
}

var _ resultstore.Gatherer = (*Store)(nil)
