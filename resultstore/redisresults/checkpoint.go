package redisresults

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/swarmiji/swarmiji/internal/redisconn"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/resultstore"
)

//go:embed checkpoint.lua
var checkpointSource string

// SaveCheckpoint implements [resultstore.Checkpointer]: one script compares the tokens of the
// record and of the checkpoints and stores c. While its outcome is unknown it repeats the call,
// until ctx ends. After [resultstore.ErrUnavailable] the checkpoint may have been stored; repeating
// the call is safe. It also returns:
//
//   - [resultstore.ErrStale] for a stale attempt
//   - [resultstore.ErrTooLarge] if the task would have too many checkpoints
//   - [resultstore.ErrMalformed] for an invalid name, or if the key of the record holds a value
//     that is not a record
//   - [task.ErrBadID] for an invalid id
//   - ErrClosed after Close, and ctx's error if ctx has already ended
func (s *Store) SaveCheckpoint(ctx context.Context, a resultstore.Attempt, c resultstore.Checkpoint) error {
	if err := c.Check(); err != nil {
		return err
	}
	value := append([]byte(strconv.Itoa(c.Size())+"\n"), wire.EncodeCheckpoint(&c)...)
	answer, err := s.checkpoints(ctx, &a, ":"+c.Name, value)
	if err != nil {
		return err
	}
	if n := ints(answer); len(n) == 2 {
		if err := resultstore.CheckCheckpoints(c.Name, n[0], n[1]); err != nil {
			return fmt.Errorf("redis checkpoint: %w", err)
		}
	}
	return nil
}

// LoadCheckpoints implements [resultstore.Checkpointer]: one script takes over the token of a and
// reads the hash. Its errors are those of SaveCheckpoint, and ErrMalformed for a stored value that
// is not a checkpoint.
func (s *Store) LoadCheckpoints(ctx context.Context, a resultstore.Attempt) ([]resultstore.Checkpoint, error) {
	answer, err := s.checkpoints(ctx, &a, "", nil)
	if err != nil {
		return nil, err
	}
	var all []resultstore.Checkpoint
	for i := 0; i+1 < len(answer); i += 2 {
		field, _ := answer[i].(string)
		value, _ := answer[i+1].(string)
		if !strings.HasPrefix(field, ":") {
			continue
		}
		_, value, _ = strings.Cut(value, "\n")
		c, err := wire.DecodeCheckpoint([]byte(value))
		if err != nil {
			return nil, fmt.Errorf("redis checkpoint: %w", err)
		}
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b resultstore.Checkpoint) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}

// checkpoints runs the script for attempt a and returns its answer. It waits for the server. It
// returns the errors of SaveCheckpoint except for ErrTooLarge.
func (s *Store) checkpoints(ctx context.Context, a *resultstore.Attempt, field string, value []byte) ([]any, error) {
	if err := s.check(ctx, a.ID); err != nil {
		return nil, err
	}
	keys := []string{s.names.key(a.ID), s.names.checkpoints(a.ID)}
	answer, err := s.untilAnswered(ctx, func() (any, error) {
		return s.conn.Eval(ctx, s.checkpoint, keys, a.Generation, a.Deliveries, redisconn.Expiry(a.Kept(), 0), field, value,
			resultstore.MaxCheckpoints, resultstore.MaxCheckpointBytes)
	})
	switch v := answer.(type) {
	case []any:
		return v, failure("checkpoint", err)
	case int64:
		switch v {
		case -1:
			err = resultstore.ErrStale
		case -2:
			err = errNoRecord
		default:
			err = errAnswer
		}
	case nil:
		if err == nil {
			err = errAnswer
		}
	default:
		err = errAnswer
	}
	return nil, failure("checkpoint", err)
}

// ints returns the numbers of an answer, or nil if it has another element.
func ints(answer []any) []int {
	var all []int
	for _, v := range answer {
		n, ok := v.(int64)
		if !ok {
			return nil
		}
		all = append(all, int(n))
	}
	return all
}

var _ resultstore.Checkpointer = (*Store)(nil)
