package redisresults

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/swarmiji/swarmiji/internal/redisconn"
	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/resultstore"
)

// save stores a record in one batch with concurrent records for the same server and waits for the
// outcome. Each cluster node has its own saver, so that a silent node delays only its own records.
// If a batch fails with an unknown outcome, it repeats this record alone until ctx ends.
//
// Returns ErrStale, errNoRecord or errAnswer as outcome does, ErrClosed after Close, and other
// errors of the server. It returns ctx's error when ctx ends: the record may be stored then.
func (s *Store) save(ctx context.Context, v *save) error {
	to, err := s.saverFor(ctx, v.key)
	switch {
	case errors.Is(err, resultstore.ErrClosed):
		return err
	case err != nil: // no node is known yet; saveOne repeats the lookup
		return s.saveOne(ctx, v)
	}
	c := &call{saves: []*save{v}}
	to.add(c)
	defer to.release(c) // Close waits for saveOne too
	if err = to.wait(ctx, c)[0]; retryable(err) && ctx.Err() == nil {
		return s.saveOne(ctx, v)
	}
	return err
}

// saveEach sends each record of which the error in errs is nil, once, and stores the outcomes in
// errs. It waits for all servers.
func (s *Store) saveEach(ctx context.Context, saves []*save, errs []error) {
	calls, at := make(map[*saver]*call, 1), make(map[*saver][]int, 1)
	for i, v := range saves {
		if errs[i] != nil {
			continue
		}
		to, err := s.saverFor(ctx, v.key)
		if errs[i] = failure("save", err); err != nil {
			continue
		}
		if calls[to] == nil {
			calls[to] = &call{saves: make([]*save, 0, len(saves)-i)}
		}
		calls[to].saves, at[to] = append(calls[to].saves, v), append(at[to], i)
	}
	for to, c := range calls {
		to.add(c)
	}
	for to, c := range calls {
		for i, err := range to.wait(ctx, c) {
			errs[at[to][i]] = failure("save", err)
		}
		to.release(c)
	}
}

// saverFor returns the saver of the server that holds key. Returns ErrClosed after Close, and an
// error if no node of a cluster is known yet.
func (s *Store) saverFor(ctx context.Context, key string) (*saver, error) {
	var node *redis.Client
	if s.conn.Clustered() {
		var err error
		if node, err = s.conn.Node(ctx, key); err != nil {
			return nil, err
		}
	}
	if to := s.saverOf(node); to != nil {
		return to, nil
	}
	return nil, resultstore.ErrClosed
}

// saverOf returns the saver of a node of the cluster, or of the only server for nil. It makes the
// saver at the first call. It returns nil after Close. It takes s.mu.
func (s *Store) saverOf(node *redis.Client) *saver {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed.Load() {
		return nil
	}
	v := s.savers[node]
	if v == nil {
		v = &saver{sendBatch: s.saveBatch, goroutines: s.goroutines}
		if node != nil {
			v.sendBatch = func(saves []*save) { s.savePipelined(node, saves) }
		}
		s.savers[node] = v
	}
	return v
}

// saveBatch stores the records with one call of the script and sets their outcomes. It sends the
// call once and waits for the answer without a deadline. An error of the call is the outcome of
// all.
func (s *Store) saveBatch(saves []*save) {
	keys, args := scriptArgs(saves...)
	answers, err := s.conn.EvalOnce(context.Background(), s.script, keys, args...)
	for i, v := range saves {
		v.err = outcome(answers, i, err)
	}
}

// savePipelined stores the records on one cluster node with one pipeline, because a script there
// takes the keys of one task. It sets their outcomes, and waits for the server without a deadline.
// If the node moved a key or lost the script, the outcome is retryable, and save calls saveOne.
func (s *Store) savePipelined(node *redis.Client, saves []*save) {
	made, err := s.conn.Call(context.Background(), func(ctx context.Context) (any, error) {
		cmds := make([]*redis.Cmd, len(saves))
		pipe := node.Pipeline()
		for i, v := range saves {
			keys, args := scriptArgs(v)
			cmds[i] = pipe.EvalSha(ctx, s.script.Hash(), keys, args...)
		}
		_, err := pipe.Exec(ctx)
		return cmds, err
	})
	cmds, ok := made.([]*redis.Cmd)
	for i, v := range saves {
		if !ok { // the store is closed
			v.err = err
			continue
		}
		answers, err := cmds[i].Result() // each command has its own error
		// this node left the cluster; saveOne detects whether the store is closed
		if errors.Is(err, redis.ErrClosed) {
			err = redisconn.ErrUnavailable
		}
		v.err = outcome(answers, 0, s.conn.Classify(err, true))
	}
}

// saveOne stores one record and returns its outcome. It repeats the call while the outcome is
// unknown, until ctx ends or the store is closed: then it returns the last error.
func (s *Store) saveOne(ctx context.Context, v *save) error {
	keys, args := scriptArgs(v)
	answers, err := s.untilAnswered(ctx, func() (any, error) {
		return s.conn.Eval(ctx, s.script, keys, args...)
	})
	return outcome(answers, 0, err)
}

// scriptArgs returns the keys and arguments of the script for these records.
func scriptArgs(saves ...*save) (keys []string, args []any) {
	keys, args = make([]string, 0, len(saves)+1), make([]any, 0, 4*len(saves)+1)
	for _, v := range saves {
		keys = append(keys, v.key)
		args = append(args, v.value, v.ttl, v.channel, v.note)
	}
	for i, v := range saves {
		if v.drop != "" {
			keys, args = append(keys, v.drop), append(args, i+1)
		}
	}
	return keys, args
}

var errAnswer = errors.New("the script returned an unknown answer")

// outcome returns the error that the script's answers hold for record i: nil, ErrStale,
// errNoRecord, or errAnswer for an unknown answer. It returns err if err is not nil.
func outcome(answers any, i int, err error) error {
	if err != nil {
		return err
	}
	list, _ := answers.([]any)
	if i >= len(list) {
		return errAnswer
	}
	switch list[i] {
	case int64(1), int64(0):
		return nil
	case int64(-1):
		return resultstore.ErrStale
	case int64(-2):
		return errNoRecord
	default:
		return errAnswer
	}
}

var errNoRecord = fmt.Errorf("%w: the key holds a value that is not a record", resultstore.ErrMalformed)

// retryable reports whether a Save that failed with err may be repeated: the server certainly did
// not execute it, or the outcome is unknown. The latter is allowed because saving twice is safe.
func retryable(err error) bool {
	return redisconn.Repeatable(err) || errors.Is(err, redisconn.ErrIndeterminate)
}

// untilAnswered calls call again while it returns ErrIndeterminate, with a growing delay between
// calls. Then it returns the result of the last call. When ctx ends or the store is closed it
// returns the last error. Only calls that may safely execute twice are allowed.
func (s *Store) untilAnswered(ctx context.Context, call func() (any, error)) (any, error) {
	for attempt := 0; ; attempt++ {
		v, err := call()
		if !errors.Is(err, redisconn.ErrIndeterminate) {
			return v, err
		}
		if !wake.SleepOr(ctx, s.conn.Done(), s.conn.Backoff().Interval(attempt)) {
			return nil, err
		}
	}
}
