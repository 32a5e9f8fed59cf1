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

// save saves a record with others that go to the same server at the same time. The nodes of a cluster have a saver each,
// so that one that is silent holds up its own records only.
func (s *Store) save(ctx context.Context, v *save) error {
	var node *redis.Client
	if cluster, ok := s.conn.Client().(*redis.ClusterClient); ok {
		var err error
		if node, err = cluster.MasterForKey(ctx, v.key); err != nil { // nobody can say; saveAlone asks until somebody can
			return s.saveAlone(ctx, v)
		}
	}
	to := s.saverOf(node)
	if to == nil {
		return resultstore.ErrClosed
	}
	return to.do(ctx, v)
}

// saverOf returns the saver of a node, nil when the store is closed.
func (s *Store) saverOf(node *redis.Client) *saver {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed.Load() {
		return nil
	}
	v := s.savers[node]
	if v == nil {
		v = &saver{together: s.saveTogether, alone: s.saveAlone, passing: passing, crew: s.crew}
		if node != nil {
			v.together = func(saves []*save) { s.savePiped(node, saves) }
		}
		s.savers[node] = v
	}
	return v
}

// saveTogether saves with one call of the script.
func (s *Store) saveTogether(saves []*save) {
	keys, args := make([]string, 0, len(saves)), make([]any, 0, 4*len(saves))
	for _, v := range saves {
		keys = append(keys, v.key)
		args = v.appendArgs(args)
	}
	answers, err := s.conn.EvalOnce(context.Background(), s.script, keys, args...)
	for i, v := range saves {
		v.answer <- outcome(answers, i, err)
	}
}

// savePiped saves on one node of a cluster, where a script is given one key at a time, with one pipeline. A node that has
// moved a key away, or does not know the script, leaves the record to saveAlone.
func (s *Store) savePiped(node *redis.Client, saves []*save) {
	made, err := s.conn.Call(context.Background(), func(ctx context.Context) (any, error) {
		cmds := make([]*redis.Cmd, len(saves))
		pipe := node.Pipeline()
		for i, v := range saves {
			cmds[i] = pipe.EvalSha(ctx, s.script.Hash(), []string{v.key}, v.appendArgs(nil)...)
		}
		_, err := pipe.Exec(ctx)
		return cmds, err
	})
	cmds, ok := made.([]*redis.Cmd)
	for i, v := range saves {
		if !ok { // the store is closed
			v.answer <- err
			continue
		}
		answers, err := cmds[i].Result()     // each command has its own error
		if errors.Is(err, redis.ErrClosed) { // this node has left the cluster; whether the store is closed, saveAlone will see
			err = redisconn.ErrUnavailable
		}
		v.answer <- outcome(answers, 0, s.conn.Classify(err, true))
	}
}

// saveAlone saves until there is an answer.
func (s *Store) saveAlone(ctx context.Context, v *save) error {
	answers, err := s.untilAnswered(ctx, func() (any, error) {
		return s.conn.Eval(ctx, s.script, []string{v.key}, v.appendArgs(nil)...)
	})
	return outcome(answers, 0, err)
}

// appendArgs appends the arguments of the script for one record.
func (v *save) appendArgs(args []any) []any {
	return append(args, v.value, v.ttl, v.channel, v.note)
}

var errAnswer = errors.New("the script's answer is none")

// outcome is what the script's answer means for its i-th record.
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

var errNoRecord = fmt.Errorf("%w: what is there is no record", resultstore.ErrMalformed)

// passing reports whether what failed with err may do better later. Saves may be repeated whatever became of them.
func passing(err error) bool {
	return redisconn.Repeatable(err) || errors.Is(err, redisconn.ErrIndeterminate)
}

// untilAnswered repeats what may be repeated although it may have been executed, until ctx ends.
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
