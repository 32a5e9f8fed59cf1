package redis

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"time"

	"github.com/swarmiji/swarmiji/celery/wire"
	"github.com/swarmiji/swarmiji/internal/redisconn"
	corewire "github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// The scripts of chords.
var (
	//go:embed arrive.lua
	arriveSource string
	//go:embed group.lua
	groupSource string
	//go:embed begin.lua
	beginSource string
	//go:embed size.lua
	sizeSource string
)

// groupKeys returns the keys of a chord, in the order of the scripts.
func (s *Store) groupKeys(group task.ID) []string {
	celery := s.cfg.KeyPrefix + "celery-taskset-meta-" + string(group)
	return []string{s.cfg.KeyPrefix + "swarmiji-chord-" + string(group), celery + ".j", celery + ".s", celery + ".t"}
}

// SetChordSize stores the number of members of a group, before the first of them is sent. Python
// workers count a chord only with it. Another call changes nothing; nor does one after a member has
// brought the size, or after Go has decided the chord, as when another member is retried then. The
// key expires as a group that waits does, after [resultstore.DefaultGroupWait].
//
// Returns [resultstore.ErrMalformed] for a size below 1 and [task.ErrBadID] for an invalid group.
// Its other errors are those of Load.
func (s *Store) SetChordSize(ctx context.Context, group task.ID, size int) error {
	if err := s.check(ctx, group); err != nil {
		return err
	}
	if size < 1 {
		return fmt.Errorf("%w: a chord of %d members", resultstore.ErrMalformed, size)
	}
	keys := s.groupKeys(group)
	_, err := s.untilAnswered(ctx, func() (any, error) {
		return s.conn.Eval(ctx, s.size, []string{keys[0], keys[2]}, size, resultstore.DefaultGroupWait.Milliseconds())
	})
	return failure("chord size", err)
}

// Arrive implements [resultstore.Gatherer]: it stores the end of a member in Celery's counters and
// in a hash of this package, as one step. The member that completes the group is its decider,
// unless Python completes it; Python then sends the task behind it.
//
// Returns ErrMalformed if Size or Index does not fit the group, ErrTooLarge for a Result above
// Config.MaxResult, and task.ErrBadID for an invalid id. Its other errors are those of Load.
func (s *Store) Arrive(ctx context.Context, a resultstore.Arrival) (resultstore.Gathered, error) {
	if err := s.check(ctx, a.Group); err != nil {
		return resultstore.Gathered{}, err
	}
	if err := a.Check(); err != nil {
		return resultstore.Gathered{}, err
	}
	if len(a.Record.Result) > s.cfg.MaxResult {
		return resultstore.Gathered{}, fmt.Errorf("%w: the result has %d bytes, more than the MaxResult of %d", resultstore.ErrTooLarge, len(a.Record.Result), s.cfg.MaxResult)
	}
	r := resultstore.Record{ID: a.Record.ID, Name: a.Record.Name, State: a.Record.State, ContentType: a.Record.ContentType, Result: a.Record.Result, Error: a.Record.Error}
	own, err := corewire.EncodeRecord(&r)
	if err != nil {
		return resultstore.Gathered{}, err
	}
	part, err := wire.EncodePart(&r, s.cfg.content())
	if err != nil {
		return resultstore.Gathered{}, err
	}
	args := []any{
		a.Index, a.Size, flag(r.State != task.StateSucceeded), flag(a.Decides), own, part,
		redisconn.Expiry(a.Kept(true), 0), redisconn.Expiry(a.Kept(false), 0),
	}
	answer, err := s.untilAnswered(ctx, func() (any, error) {
		return s.conn.Eval(ctx, s.arrive, s.groupKeys(a.Group), args...)
	})
	if err != nil {
		return resultstore.Gathered{}, failure("gather", err)
	}
	n, err := numbers(answer)
	if err == nil && len(n) == 1 {
		return resultstore.Gathered{}, fmt.Errorf("celery/redis gather: %w: member %d of %d does not fit the known members of group %s", resultstore.ErrMalformed, a.Index, a.Size, a.Group)
	}
	return gathered(n, err)
}

// flag returns 1 for true and 0 for false, as the scripts read them.
func flag(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// numbers returns the numbers of a script's answer. Returns errAnswer for another answer.
func numbers(answer any) ([]int, error) {
	list, ok := answer.([]any)
	if !ok {
		return nil, errAnswer
	}
	n := make([]int, len(list))
	for i := range list {
		v, ok := list[i].(int64)
		if !ok {
			return nil, errAnswer
		}
		n[i] = int(v)
	}
	return n, nil
}

// gathered returns the state of a group from a script's answer.
func gathered(n []int, err error) (resultstore.Gathered, error) {
	if err == nil && len(n) != 4 {
		err = errAnswer
	}
	if err != nil {
		return resultstore.Gathered{}, failure("gather", err)
	}
	return resultstore.Gathered{Size: n[0], Done: n[1], Failed: n[2], Decider: n[3]}, nil
}

// Group implements [resultstore.Gatherer]: it returns the state of a group. Of an undecided group,
// Failed counts only members that Go ran. Returns ErrNotFound if no member has arrived, the group
// has expired, or Python has sent the task behind it and no member ran in Go. Its other errors are
// those of Load.
func (s *Store) Group(ctx context.Context, group task.ID) (resultstore.Gathered, error) {
	if err := s.check(ctx, group); err != nil {
		return resultstore.Gathered{}, err
	}
	answer, err := s.untilAnswered(ctx, func() (any, error) { return s.conn.Eval(ctx, s.group, s.groupKeys(group)) })
	if err != nil {
		return resultstore.Gathered{}, failure("group", err)
	}
	n, err := numbers(answer)
	if err == nil && len(n) == 0 {
		return resultstore.Gathered{}, resultstore.ErrNotFound
	}
	return gathered(n, err)
}

// Members implements [resultstore.Gatherer]: it returns the stored members from index from on, in
// order. It stops at limit, at MaxMembersPage, or at the first index that has not arrived. A from
// below 0 counts as 0. Members that Python ran have no Name. One whose result cannot be read, such
// as a NaN in JSON, has failed with [task.ErrBadResult].
//
// Returns ErrMalformed if a member that Go stored cannot be read. Its other errors are those of
// Load.
func (s *Store) Members(ctx context.Context, group task.ID, from, limit int) ([]resultstore.Record, error) {
	if err := s.check(ctx, group); err != nil {
		return nil, err
	}
	if limit = min(limit, resultstore.MaxMembersPage); limit <= 0 {
		return nil, nil
	}
	from = max(from, 0)
	keys := s.groupKeys(group)
	args := make([]any, 0, limit+2)
	args = append(args, "HMGET", keys[0])
	for i := range limit {
		args = append(args, strconv.Itoa(from+i))
	}
	own, err := s.untilAnswered(ctx, func() (any, error) { return s.conn.Do(ctx, args...) })
	if err != nil {
		return nil, failure("members", err)
	}
	list, _ := own.([]any)
	var python map[int]string // read when a member is missing in the hash
	var page []resultstore.Record
	for i, v := range list {
		if value, ok := v.(string); ok {
			r, err := corewire.DecodeRecord([]byte(value))
			if err != nil {
				return nil, err
			}
			page = append(page, r)
			continue
		}
		if python == nil {
			if python, err = s.parts(ctx, keys[1], from+i, from+limit-1); err != nil {
				return nil, failure("members", err)
			}
		}
		part, ok := python[from+i]
		if !ok {
			break
		}
		r, err := wire.DecodePart([]byte(part))
		if err != nil { // reading it again does not help
			err = fmt.Errorf("%w: member %d of group %s: %w", task.ErrBadResult, from+i, group, err)
			r = resultstore.Record{ID: corewire.MemberID(group, from+i), State: task.StateFailed, Error: task.Remote(err)}
		}
		page = append(page, r)
	}
	s.rememberFailed(page)
	return page, nil
}

// maxFailed limits the failed members that a Store remembers.
const maxFailed = 4096

// rememberFailed remembers the members in page that failed. The consumer that has read them next
// saves the failure of the task behind the chord, which Python expects as a ChordError.
func (s *Store) rememberFailed(page []resultstore.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range page {
		if page[i].State == task.StateSucceeded {
			continue
		}
		if len(s.failed) >= maxFailed {
			clear(s.failed)
		}
		s.failed[page[i].ID] = struct{}{}
	}
}

// failedMember reports whether id is a failed member of a chord that this store has returned.
func (s *Store) failedMember(id task.ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.failed[id]
	return ok
}

// parts returns Celery's ends of the parts with the indexes from low to high, by their index.
func (s *Store) parts(ctx context.Context, key string, low, high int) (map[int]string, error) {
	answer, err := s.untilAnswered(ctx, func() (any, error) {
		return s.conn.Do(ctx, "ZRANGEBYSCORE", key, low, high, "WITHSCORES")
	})
	if err != nil {
		return nil, err
	}
	parts := map[int]string{}
	list, _ := answer.([]any)
	if pair, ok := answer.([]any); ok && len(pair) > 0 {
		if _, nested := pair[0].([]any); nested { // as protocol version 3 has it
			list = nil
			for _, p := range pair {
				both, _ := p.([]any)
				list = append(list, both...)
			}
		}
	}
	for i := 0; i+1 < len(list); i += 2 {
		value, ok := list[i].(string)
		if !ok {
			return nil, errAnswer
		}
		switch score := list[i+1].(type) {
		case float64:
			parts[int(score)] = value
		case string:
			n, err := strconv.ParseFloat(score, 64)
			if err != nil {
				return nil, errAnswer
			}
			parts[int(n)] = value
		default:
			return nil, errAnswer
		}
	}
	return parts, nil
}

// Begin implements [resultstore.Gatherer]: it claims task id for the copy that which names, if no
// copy has an unexpired claim. It reports whether that copy has the claim then. A ttl of 0 or less
// is DefaultGatherTTL. After an error the first result is false. Its errors are those of Load.
func (s *Store) Begin(ctx context.Context, id task.ID, which string, ttl time.Duration) (bool, error) {
	if err := s.check(ctx, id); err != nil {
		return false, err
	}
	answer, err := s.untilAnswered(ctx, func() (any, error) {
		return s.conn.Eval(ctx, s.begin, []string{s.cfg.KeyPrefix + "swarmiji-begun-" + string(id)}, which, redisconn.Expiry(ttl, resultstore.DefaultGatherTTL))
	})
	if err != nil {
		return false, failure("begin", err)
	}
	first, ok := answer.(string)
	if !ok {
		return false, failure("begin", errAnswer)
	}
	return first == which, nil
}

var _ resultstore.Gatherer = (*Store)(nil)
