package redisconn

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/swarmiji/swarmiji/internal/wake"
)

// Script is a Lua script with its digest. Make one with [NewScript] and keep it.
type Script struct {
	source string
	hash   string
}

// NewScript makes a script of its source.
func NewScript(source string) *Script {
	return &Script{source: source, hash: redis.NewScript(source).Hash()}
}

// Hash returns the digest by which the server knows the script.
func (s *Script) Hash() string { return s.hash }

// once is a command that the client of a cluster does not repeat when the connection is lost.
type once struct{ *redis.Cmd }

// NoRetry tells the client.
func (once) NoRetry() bool { return true }

// Eval executes a script and returns its answer as go-redis does: nil, int64, string or []any of these. It is repeated while
// it was surely not executed, until ctx ends, and never when it may have been. A script that the server does not know, or
// has forgotten, is sent in full. On a cluster all keys must lie in one slot; there must be at least one.
func (c *Conn) Eval(ctx context.Context, s *Script, keys []string, args ...any) (any, error) {
	return c.repeat(ctx, first(keys), func(ctx context.Context) (any, error) { return c.evalOnce(ctx, c.process, s, keys, args) })
}

// EvalOnce is Eval without repetition: for a caller that waits in its own way.
func (c *Conn) EvalOnce(ctx context.Context, s *Script, keys []string, args ...any) (any, error) {
	return c.attempt(ctx, first(keys), func(ctx context.Context) (any, error) { return c.evalOnce(ctx, c.process, s, keys, args) })
}

// Do executes one command, under the same rules as Eval. A nil answer is redis.Nil.
func (c *Conn) Do(ctx context.Context, args ...any) (any, error) {
	return c.repeat(ctx, "", func(ctx context.Context) (any, error) { return c.process(ctx, args) })
}

// Call makes one attempt at what call does with the client, and returns when ctx ends although the client does not: call may
// then be under way, and must not write to what the caller reads. Its error is classed, as that of EvalOnce.
func (c *Conn) Call(ctx context.Context, call func(ctx context.Context) (any, error)) (any, error) {
	return c.attempt(ctx, "", call)
}

// process is one command on a connection of the client's choice.
func (c *Conn) process(ctx context.Context, args []any) (any, error) {
	cmd := redis.NewCmd(ctx, args...)
	_ = c.client.Process(ctx, once{cmd})
	return cmd.Result()
}

// evalOnce asks for a script by its digest, and sends it in full if the server does not know it.
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

// attempt makes one call, notes what it says of the connection, and classes its error.
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
		err = c.closing(classify(err, c.sent.Load() != before))
	}
	c.note(ctx, key, err)
	return v, err
}

// closing tells whether the Conn was closed: then Close took the connection away, and what was not sent is [ErrClosed]. Else
// it was another's, such as that of a node which has left the cluster.
func (c *Conn) closing(err error) error {
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

// repeat makes a call until it was executed, or may have been.
func (c *Conn) repeat(ctx context.Context, key string, call func(context.Context) (any, error)) (any, error) {
	var last error
	for i := 0; ; i++ {
		v, err := c.attempt(ctx, key, call)
		if !Repeatable(err) {
			return v, err
		}
		if ctx.Err() != nil {
			if last != nil { // it tells more than that ctx has ended
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

// Repeatable reports whether a call that failed with err was surely not executed, and may do better later.
func Repeatable(err error) bool {
	return errors.Is(err, ErrUnavailable) || errors.Is(err, ErrBlocked)
}

// Classify puts the class beside an error of a command that the caller has made with Client. sent says whether it may have
// been executed if it is an error of the network.
func (c *Conn) Classify(err error, sent bool) error { return classify(err, sent) }

// reload makes a cluster's client look again who is master of what: by itself it does so every 10 s, or when it is told of a
// move, and a dead node tells nothing.
func (c *Conn) reload(ctx context.Context, err error) {
	cluster, ok := c.client.(*redis.ClusterClient)
	if ok && errors.Is(err, ErrUnavailable) {
		cluster.ReloadState(ctx)
	}
}

// hurry is less time than an attempt should have: one that begins just before the end of ctx may leave behind that nobody knows
// whether it was executed.
const hurry = 5 * time.Millisecond

// pause waits; false if ctx ended, or would soon, or the Conn was closed.
func (c *Conn) pause(ctx context.Context, d time.Duration) bool {
	if end, ok := ctx.Deadline(); ok && time.Until(end) < d+hurry {
		select {
		case <-ctx.Done():
		case <-c.done:
		}
		return false
	}
	return wake.SleepOr(ctx, c.done, d)
}

func first(keys []string) string {
	if len(keys) == 0 {
		return ""
	}
	return keys[0]
}

// EvalWait is EvalOnce, after which the server waits, for at most the timeout, until so many replicas have what it wrote. It
// returns how many have. An error of the waiting alone is [ErrIndeterminate].
func (c *Conn) EvalWait(ctx context.Context, replicas int, timeout time.Duration, s *Script, keys []string, args ...any) (any, int, error) {
	type answer struct {
		v    any
		have int
	}
	v, err := c.attempt(ctx, first(keys), func(ctx context.Context) (any, error) {
		client, err := c.node(ctx, first(keys))
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

// node returns the client of the server that keeps a key.
func (c *Conn) node(ctx context.Context, key string) (*redis.Client, error) {
	switch client := c.client.(type) {
	case *redis.Client:
		return client, nil
	case *redis.ClusterClient:
		return client.MasterForKey(ctx, key)
	}
	return nil, errors.New("redis: no single server")
}

// evalWait is one script and a WAIT on the same connection. A WAIT that may take long gets its time beside the client's own
// timeout: an answer that is cut off does not tell how many replicas there are.
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
