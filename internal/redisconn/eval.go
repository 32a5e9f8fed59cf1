package redisconn

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/swarmiji/swarmiji/internal/wake"
)

// Script is a Lua script with its digest. Make one with [NewScript] and reuse it.
type Script struct {
	source string
	hash   string
}

// NewScript makes a Script from its source.
func NewScript(source string) *Script {
	return &Script{source: source, hash: redis.NewScript(source).Hash()}
}

// Hash returns the digest by which the server knows the script.
func (s *Script) Hash() string { return s.hash }

// once is a command that a cluster client does not repeat after a lost connection.
type once struct{ *redis.Cmd }

// NoRetry returns true, which tells the client not to repeat the command.
func (once) NoRetry() bool { return true }

// Eval executes a script and returns its answer in the types of go-redis: nil, int64, string or
// []any of these. It repeats the call until ctx ends while the script was certainly not executed
// ([ErrUnavailable], [ErrBlocked]), and never otherwise. A script that the server does not know is
// sent in full. On a cluster all keys must be in one slot, and at least one key is needed.
//
// When ctx ends it returns the error of the last attempt, or [ErrIndeterminate] if the script may
// have been executed. Returns [ErrAccess] or [ErrRefused] after the server's error answer,
// [ErrClosed] after Close.
func (c *Conn) Eval(ctx context.Context, s *Script, keys []string, args ...any) (any, error) {
	return c.repeat(ctx, first(keys), func(ctx context.Context) (any, error) { return c.evalOnce(ctx, c.process, s, keys, args) })
}

// EvalOnce executes a script like Eval, but in one attempt. Callers use it to repeat in their own
// way. It also returns [ErrUnavailable] and [ErrBlocked] at once; the script was not executed then.
func (c *Conn) EvalOnce(ctx context.Context, s *Script, keys []string, args ...any) (any, error) {
	return c.attempt(ctx, first(keys), func(ctx context.Context) (any, error) { return c.evalOnce(ctx, c.process, s, keys, args) })
}

// Do executes one command and repeats it by the same rules as Eval, with the same errors. A nil
// answer is the error redis.Nil.
func (c *Conn) Do(ctx context.Context, args ...any) (any, error) {
	return c.repeat(ctx, "", func(ctx context.Context) (any, error) { return c.process(ctx, args) })
}

// Call runs call, which uses the client, in one attempt, and returns its results. It returns when
// ctx ends even if call has not returned. call must therefore not write to memory that the caller
// reads. The error has a class like that of EvalOnce. call runs on another goroutine if ctx can
// end.
func (c *Conn) Call(ctx context.Context, call func(ctx context.Context) (any, error)) (any, error) {
	return c.attempt(ctx, "", call)
}

// process executes one command on a connection that the client selects, and waits for the answer.
// The error is that of the client, without a class; redis.Nil stands for a nil answer.
func (c *Conn) process(ctx context.Context, args []any) (any, error) {
	cmd := redis.NewCmd(ctx, args...)
	_ = c.client.Process(ctx, once{cmd})
	return cmd.Result()
}

// evalOnce executes a script by its digest with do, and sends the source if the server does not
// know it. It waits for the answers and returns the error of do. A nil answer is nil without an
// error.
func (c *Conn) evalOnce(ctx context.Context, do func(context.Context, []any) (any, error), s *Script, keys []string, args []any) (any, error) {
	full := make([]any, 0, 3+len(keys)+len(args))
	full = append(full, "evalsha", s.hash, len(keys))
	for _, k := range keys {
		full = append(full, k)
	}
	full = append(full, args...)
	v, err := do(ctx, full)
	if IsNoScript(err) {
		full[0], full[1] = "eval", s.source
		v, err = do(ctx, full)
	}
	if errors.Is(err, redis.Nil) {
		return nil, nil //nolint:nilnil // a script may answer with nothing
	}
	return v, err
}

// attempt makes one call, updates the connection state from its result, and returns its error with
// a class. key, which may be empty, is a key of the call, for the test of a blocked server (see
// probeBlocked). Returns ErrUnavailable without a call if ctx has ended, and ErrClosed after Close.
// It takes c.mu, but not while it waits.
func (c *Conn) attempt(ctx context.Context, key string, call func(context.Context) (any, error)) (any, error) {
	select {
	case <-c.done:
		return nil, &failure{ErrClosed, redis.ErrClosed}
	default:
	}
	if err := ctx.Err(); err != nil {
		return nil, &failure{ErrUnavailable, err}
	}
	before := c.sent.Load()
	v, err := c.await(ctx, call)
	if err != nil {
		err = c.adjustClosed(c.classify(err, c.sent.Load() != before))
	}
	c.updateState(ctx, key, err)
	return v, err
}

// adjustClosed corrects the class of an error that depends on whether the Conn was closed, and
// returns any other error unchanged. After Close an unsent command returns [ErrClosed]. Before that
// a closed connection belongs to the client, such as one to a node that left the cluster, and
// returns ErrUnavailable.
func (c *Conn) adjustClosed(err error) error {
	f, ok := err.(*failure) //nolint:errorlint // as classify made it
	if !ok {
		return err
	}
	closed := false
	select {
	case <-c.done:
		closed = true
	default:
	}
	switch {
	case closed && f.class == ErrUnavailable: //nolint:errorlint // a class
		return &failure{ErrClosed, f.cause}
	case !closed && f.class == ErrClosed: //nolint:errorlint // a class
		return &failure{ErrUnavailable, f.cause}
	}
	return err
}

// repeat calls call until it was executed or may have been executed, with backoff between attempts.
// It returns the first error that is not [Repeatable] at once. When ctx ends it returns the last
// error of an attempt with ctx's error. Returns ErrClosed after Close.
func (c *Conn) repeat(ctx context.Context, key string, call func(context.Context) (any, error)) (any, error) {
	var last error
	for i := 0; ; i++ {
		v, err := c.attempt(ctx, key, call)
		if !Repeatable(err) {
			return v, err
		}
		if ctx.Err() != nil {
			if last != nil { // more informative than the end of ctx
				err = last
			}
			return nil, c.ended(ctx, err)
		}
		last = err
		c.reload(ctx, err)
		if !c.pause(ctx, c.backoff.Interval(i)) {
			return nil, c.ended(ctx, last)
		}
	}
}

// keysCount is the number of keys that the server looks at in one call of SCAN.
const keysCount = 1000

// Keys returns the keys of the database that match a pattern, in no order, on a cluster those of
// all masters. A key that exists during the whole call is returned, perhaps twice. It makes a call
// for each 1,000 keys of the database, and repeats all of them by the rules of Eval, with the same
// errors.
func (c *Conn) Keys(ctx context.Context, pattern string) ([]string, error) {
	v, err := c.repeat(ctx, "", func(ctx context.Context) (any, error) {
		if cluster, ok := c.client.(*redis.ClusterClient); ok {
			var mu sync.Mutex
			var all []string
			err := cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
				keys, err := scanKeys(ctx, node, pattern)
				mu.Lock()
				defer mu.Unlock()
				all = append(all, keys...)
				return err
			})
			return all, err
		}
		node, err := c.Node(ctx, "")
		if err != nil {
			return nil, &failure{ErrUnavailable, err}
		}
		return scanKeys(ctx, node, pattern)
	})
	keys, _ := v.([]string)
	return keys, err
}

// scanKeys returns the keys of one server that match a pattern. It waits for the server, with a
// request for each 1,000 keys of the database. Returns the error of the client.
func scanKeys(ctx context.Context, node *redis.Client, pattern string) (all []string, err error) {
	for cursor := uint64(0); ; {
		keys, next, err := node.Scan(ctx, cursor, pattern, keysCount).Result()
		if err != nil {
			return nil, err
		}
		all = append(all, keys...)
		if cursor = next; cursor == 0 {
			return all, nil
		}
	}
}

// Repeatable reports whether a call that failed with err was certainly not executed and may succeed
// later.
func Repeatable(err error) bool {
	return errors.Is(err, ErrUnavailable) || errors.Is(err, ErrBlocked)
}

// Classify wraps the error of a command that the caller executed with a client of [Conn.Node] with
// its class. sent reports whether a network error may have left the command executed.
func (c *Conn) Classify(err error, sent bool) error { return c.classify(err, sent) }

// reload makes a cluster client read the cluster's topology again after ErrUnavailable. By itself
// it does so every 10 s or after a redirection, but a dead node sends none. It does nothing after
// other errors and for a client of another kind.
func (c *Conn) reload(ctx context.Context, err error) {
	cluster, ok := c.client.(*redis.ClusterClient)
	if ok && errors.Is(err, ErrUnavailable) {
		cluster.ReloadState(ctx)
	}
}

// minAttemptTime is the least time for an attempt. An attempt that begins just before ctx ends
// could have an unknown outcome.
const minAttemptTime = 5 * time.Millisecond

// pause waits for d and returns true. It returns false if the Conn was closed or ctx ended during
// the wait. If ctx ends too soon for another attempt after d, pause waits until ctx ends or the
// Conn is closed, and returns false.
func (c *Conn) pause(ctx context.Context, d time.Duration) bool {
	if end, ok := ctx.Deadline(); ok && time.Until(end) < d+minAttemptTime {
		select {
		case <-ctx.Done():
		case <-c.done:
		}
		return false
	}
	return wake.SleepOr(ctx, c.done, d)
}

// first returns the first key, "" without keys.
func first(keys []string) string {
	if len(keys) == 0 {
		return ""
	}
	return keys[0]
}

// EvalWait executes a script like EvalOnce. Then the server waits, for at most timeout, until the
// given number of replicas has its writes. It returns the script's answer and the number of
// replicas that have them, which may be too low without an error. If only that wait fails the error
// is [ErrIndeterminate]. After any error the answer is nil and the number 0.
func (c *Conn) EvalWait(ctx context.Context, replicas int, timeout time.Duration, s *Script, keys []string, args ...any) (any, int, error) {
	type answer struct {
		v    any
		have int
	}
	v, err := c.attempt(ctx, first(keys), func(ctx context.Context) (any, error) {
		client, err := c.Node(ctx, first(keys))
		if err != nil {
			return nil, &failure{ErrUnavailable, err}
		}
		have := 0
		v, err := c.evalOnce(ctx, func(ctx context.Context, full []any) (any, error) {
			v, n, err := evalWait(ctx, client, replicas, timeout, full)
			have = n
			return v, err
		}, s, keys, args)
		return answer{v, have}, err
	})
	a, _ := v.(answer)
	return a.v, a.have, err
}

// Node returns the client of the server that holds a key, for commands whose errors the caller
// classifies with [Conn.Classify]. On a cluster it may wait until a node has told the topology, and
// returns an error if none does. Without a cluster it ignores key. Such a client never repeats a
// command.
func (c *Conn) Node(ctx context.Context, key string) (*redis.Client, error) {
	switch client := c.client.(type) {
	case *redis.Client:
		return client, nil
	case *redis.ClusterClient:
		return client.MasterForKey(ctx, key)
	}
	return nil, errors.New("redis: no single server")
}

// evalWait sends a script and WAIT on one connection and waits for both answers. It returns the
// script's answer and the number of replicas that WAIT counted. It extends the client's read
// timeout if WAIT may take long, because a cut answer does not tell the number of replicas.
//
// An error of the script is returned as it is; a nil answer is redis.Nil with the number. If only
// WAIT fails it returns ErrIndeterminate.
func evalWait(ctx context.Context, client *redis.Client, replicas int, timeout time.Duration, full []any) (any, int, error) {
	if read := client.Options().ReadTimeout; read > 0 && timeout > read/2 {
		client = client.WithTimeout(read + timeout)
	}
	p := client.Pipeline()
	eval := p.Do(ctx, full...)
	wait := p.Do(ctx, "wait", replicas, timeout.Milliseconds())
	_, _ = p.Exec(ctx)
	v, err := eval.Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, 0, err
	}
	n, werr := wait.Int()
	if werr != nil {
		return nil, 0, &failure{ErrIndeterminate, werr}
	}
	return v, n, err
}
