package redisresults

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"time"

	"github.com/swarmiji/swarmiji/internal/redisconn"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

//go:embed gather.lua
var gatherSource string

// Arrive implements [resultstore.Gatherer]: it stores the end of a member, unless its index is
// stored already, and returns the state of the group. One script does both and begins the retention
// of the group again. While its outcome is unknown it repeats the call, until ctx ends. After
// [resultstore.ErrUnavailable] the member may have been stored; repeating the call is safe. It also
// returns:
//
//   - ErrMalformed if a does not fit the group or its record cannot be encoded
//   - [task.ErrBadID] for an invalid id
//   - [resultstore.ErrTooLarge] for a Result above Config.MaxResult
//   - ErrClosed after Close, and ctx's error if ctx has already ended
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
	r := &a.Record
	value, err := wire.EncodeRecord(&resultstore.Record{ID: r.ID, Name: r.Name, State: r.State, ContentType: r.ContentType, Result: r.Result, Error: r.Error})
	if err != nil {
		return resultstore.Gathered{}, err
	}
	args := []any{
		a.Index, a.Size, flag(r.State != task.StateSucceeded), flag(a.Decides), value,
		redisconn.Expiry(a.Kept(true), 0), redisconn.Expiry(a.Kept(false), 0),
	}
	answer, err := s.untilAnswered(ctx, func() (any, error) {
		return s.conn.Eval(ctx, s.gather, []string{s.names.group(a.Group)}, args...)
	})
	if err != nil {
		return resultstore.Gathered{}, failure("gather", err)
	}
	return gathered(answer, &a)
}

// flag returns 1 for true and 0 for false, as the scripts read them.
func flag(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// gathered converts the script's answer to the state of the group. Returns ErrMalformed if the
// script found that a does not fit its group, ErrUnavailable for an answer of another form.
func gathered(answer any, a *resultstore.Arrival) (resultstore.Gathered, error) {
	list, _ := answer.([]any)
	var n [4]int
	for i := range min(len(list), len(n)) {
		v, ok := list[i].(int64)
		if !ok {
			return resultstore.Gathered{}, failure("gather", errAnswer)
		}
		n[i] = int(v)
	}
	switch {
	case len(list) == 1 && n[0] == -1:
		return resultstore.Gathered{}, fmt.Errorf("redis gather: %w: member %d of %d does not fit the known members of group %s", resultstore.ErrMalformed, a.Index, a.Size, a.Group)
	case len(list) != len(n):
		return resultstore.Gathered{}, failure("gather", errAnswer)
	}
	return resultstore.Gathered{Size: n[0], Done: n[1], Failed: n[2], Decider: n[3]}, nil
}

// Group implements [resultstore.Gatherer]: it returns the state of a group. Returns ErrNotFound if
// no member has arrived or the group has expired, and task.ErrBadID for an invalid id. Returns
// ErrClosed after Close, and ctx's error if ctx has already ended. While the outcome is unknown it
// repeats the call, until ctx ends. Then, and for an answer that cannot be read, it returns
// ErrUnavailable.
func (s *Store) Group(ctx context.Context, group task.ID) (resultstore.Gathered, error) {
	if err := s.check(ctx, group); err != nil {
		return resultstore.Gathered{}, err
	}
	answer, err := s.untilAnswered(ctx, func() (any, error) {
		return s.conn.Do(ctx, "HMGET", s.names.group(group), "size", "done", "failed", "decider")
	})
	if err != nil {
		return resultstore.Gathered{}, failure("group", err)
	}
	list, _ := answer.([]any)
	var n [4]int
	for i := range min(len(list), len(n)) {
		text, there := list[i].(string)
		if !there {
			return resultstore.Gathered{}, resultstore.ErrNotFound
		}
		if n[i], err = strconv.Atoi(text); err != nil {
			return resultstore.Gathered{}, failure("group", errAnswer)
		}
	}
	if len(list) != len(n) {
		return resultstore.Gathered{}, failure("group", errAnswer)
	}
	return resultstore.Gathered{Size: n[0], Done: n[1], Failed: n[2], Decider: n[3]}, nil
}

// Members implements [resultstore.Gatherer]: it returns the stored members from index from on, in
// order. It stops at limit, at MaxMembersPage, or at the first index that has not arrived. A from
// below 0 counts as 0. A group that is unknown or has expired has no members.
//
// Returns ErrMalformed if a stored member is not a record, and task.ErrBadID for an invalid id.
// Returns ErrClosed after Close, and ctx's error if ctx has already ended. While the outcome is
// unknown it repeats the call, until ctx ends; then it returns ErrUnavailable.
func (s *Store) Members(ctx context.Context, group task.ID, from, limit int) ([]resultstore.Record, error) {
	if err := s.check(ctx, group); err != nil {
		return nil, err
	}
	if limit = min(limit, resultstore.MaxMembersPage); limit <= 0 {
		return nil, nil
	}
	args := make([]any, 0, limit+2)
	args = append(args, "HMGET", s.names.group(group))
	for i := range limit {
		args = append(args, strconv.Itoa(max(from, 0)+i))
	}
	answer, err := s.untilAnswered(ctx, func() (any, error) { return s.conn.Do(ctx, args...) })
	if err != nil {
		return nil, failure("members", err)
	}
	list, _ := answer.([]any)
	var page []resultstore.Record
	for _, v := range list {
		value, there := v.(string)
		if !there {
			break
		}
		r, err := wire.DecodeRecord([]byte(value))
		if err != nil {
			return nil, err
		}
		page = append(page, r)
	}
	return page, nil
}

// Begin implements [resultstore.Gatherer]: it claims task id for the copy that which names, if no
// copy has an unexpired claim. It reports whether that copy has the claim then. A ttl of 0 or less
// is DefaultGatherTTL.
//
// Returns task.ErrBadID for an invalid id, ErrClosed after Close, and ctx's error if ctx has
// already ended. While the outcome of its script is unknown it repeats the call, until ctx ends;
// then it returns ErrUnavailable. After an error the first result is false.
func (s *Store) Begin(ctx context.Context, id task.ID, which string, ttl time.Duration) (bool, error) {
	if err := s.check(ctx, id); err != nil {
		return false, err
	}
	first, err := s.claim(ctx, "begin", s.names.begun(id), which, redisconn.Expiry(ttl, resultstore.DefaultGatherTTL))
	return err == nil && first == which, err
}

var _ resultstore.Gatherer = (*Store)(nil)
