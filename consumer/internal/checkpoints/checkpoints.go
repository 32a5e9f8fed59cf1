// Package checkpoints reads and stores the checkpoints of the tasks that a consumer runs.
//
// A first attempt reads nothing. Any other one reads all checkpoints of its task when its handler
// first uses one. That read also fences older attempts: they cannot store a step that this attempt
// may repeat.
package checkpoints

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/consumer/internal/lives"
	"github.com/swarmiji/swarmiji/consumer/internal/stores"
	"github.com/swarmiji/swarmiji/consumer/internal/workflow"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// Config holds the settings for all attempts of a consumer. All fields are required.
type Config struct {
	Stores *stores.Stores
	Codec  *wire.Codec
	Limit  time.Duration // the longest time of one read or write
}

// Attempt is the use of checkpoints by one attempt. Call Begin before the handler. It implements
// [task.Checkpointer]. Safe for concurrent use.
type Attempt struct {
	cfg   *Config
	r     *task.Request
	ended atomic.Bool // the handler has returned
	used  atomic.Pointer[used]
	waits atomic.Pointer[string] // the first name for which Sleep or Await ends the attempt
	// the last name for which Await has reserved its key
	reserving atomic.Pointer[string]
}

// used holds the checkpoints of an attempt that uses them.
type used struct {
	store resultstore.ResultStore
	to    resultstore.Checkpointer

	mu     sync.Mutex // held during the read
	read   bool
	values map[string]resultstore.Checkpoint // as they are stored
	names  map[string]use                    // that this attempt has used
}

// use says which call has used a name.
type use int

const (
	saved   use = 1 + iota // by task.Save
	claimed                // by task.Checkpoint
)

// Begin makes a ready for the attempt of r.
func (a *Attempt) Begin(cfg *Config, r *task.Request) {
	a.cfg, a.r = cfg, r
	r.CheckpointBy(a)
}

// End ends the use of checkpoints: later calls return [task.ErrNoCheckpoints]. A write that runs
// may still succeed.
func (a *Attempt) End() { a.ended.Store(true) }

// Used reports whether the handler has used checkpoints.
func (a *Attempt) Used() bool { return a.used.Load() != nil }

// Drops reports whether the store must delete checkpoints with a record of this state: the state
// ends the task for good, and the task may have checkpoints. answered says that an answer settles
// the task, whose attempt was another run.
//
// A success whose attempt used no checkpoints drops none. So tasks without checkpoints need no
// right on their table; those of an earlier attempt expire.
func (a *Attempt) Drops(state task.State, answered bool) bool {
	switch state {
	case task.StateSucceeded:
		return answered || a.Used()
	case task.StateRevoked: // its handler may not have run
		return answered || a.Used() || !a.first()
	}
	return false
}

// first reports whether no earlier attempt can have stored a checkpoint. A broker that does not
// count deliveries may report a later one as the first.
func (a *Attempt) first() bool { return a.r.Generation == 0 && a.r.Deliveries <= 1 && a.r.Exact }

// afterEnd limits a write whose context has already ended.
const afterEnd = 5 * time.Second

// UseCheckpoint implements [task.Checkpointer].
func (a *Attempt) UseCheckpoint(ctx context.Context, name string, once bool) error {
	if err := (&resultstore.Checkpoint{Name: name}).Check(); err != nil {
		return fmt.Errorf("%w: %w", task.ErrBadCheckpoint, err)
	}
	u, err := a.open(ctx)
	if err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	switch before := u.names[name]; {
	case before == claimed, once && before == saved:
		return fmt.Errorf("%w: the name %q is used twice in this attempt; give each call of Checkpoint, Sleep and Await a name of its own", task.ErrBadCheckpoint, name)
	case once:
		u.names[name] = claimed
	default:
		u.names[name] = saved
	}
	if _, there := u.values[name]; !there && len(u.values) >= resultstore.MaxCheckpoints {
		return resultstore.CheckCheckpoints(name, len(u.values)+1, 0)
	}
	return nil
}

// LoadCheckpoint implements [task.Checkpointer].
func (a *Attempt) LoadCheckpoint(ctx context.Context, name string, into any) (found bool, err error) {
	return a.load(ctx, name, into, a.cfg.Codec.Unmarshal)
}

// load decodes the stored value of name into the pointer into, with decode. Returns false without a
// stored value.
func (a *Attempt) load(ctx context.Context, name string, into any, decode func(contentType string, data []byte, v any) error) (found bool, err error) {
	u, err := a.open(ctx)
	if err != nil {
		return false, err
	}
	u.mu.Lock()
	c, there := u.values[name]
	u.mu.Unlock()
	if !there {
		return false, nil
	}
	if err = a.cfg.Codec.OpenCheckpoint(a.r.ID, &c); err == nil {
		err = decode(c.ContentType, c.Value, into)
	}
	if err != nil {
		return true, fmt.Errorf("%w: the value of %q cannot be read as a %T; rename the checkpoint to run it again: %w", task.ErrBadCheckpoint, name, into, err)
	}
	return true, nil
}

// SaveCheckpoint implements [task.Checkpointer].
func (a *Attempt) SaveCheckpoint(ctx context.Context, name string, v any) error {
	u, err := a.open(ctx)
	if err != nil {
		return err
	}
	contentType, ok := a.r.Effective.Serializer.Get()
	if !ok && a.cfg.Codec.Knows(a.r.ContentType) {
		contentType = a.r.ContentType
	}
	c := resultstore.Checkpoint{Name: name}
	if c.Value, c.ContentType, err = workflow.Encode(a.cfg.Codec, contentType, v, resultstore.MaxCheckpointBytes); err != nil {
		return unfit(name, err)
	}
	return a.save(ctx, u, a.token(), c)
}

// unfit returns the error of a value that cannot be stored.
func unfit(name string, err error) error {
	return fmt.Errorf("%w: the value of %q cannot be stored: %w", task.ErrBadCheckpoint, name, err)
}

// save compresses, seals and stores c. It tries once, for a few seconds even if ctx has ended.
func (a *Attempt) save(ctx context.Context, u *used, at resultstore.Attempt, c resultstore.Checkpoint) error {
	if err := a.cfg.Codec.ProtectCheckpoint(a.r.ID, &c, a.r.Effective.Compression); err != nil {
		return unfit(c.Name, err)
	}
	// The effect is done, and losing its value would repeat it. The token fences a stale attempt.
	if ctx.Err() != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), afterEnd)
		defer cancel()
	}
	err := a.call(ctx, u, func(ctx context.Context) error { return u.to.SaveCheckpoint(ctx, at, c) })
	if err != nil {
		return fmt.Errorf("swarmiji: store checkpoint %q: %w", c.Name, err)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.values[c.Name] = c
	return nil
}

// open returns the checkpoints of the attempt. The first call reads those of earlier attempts.
// Returns [task.ErrNoCheckpoints] after End, [resultstore.ErrUnsupported] if the result store of
// the task keeps no checkpoints, and errors of the store.
func (a *Attempt) open(ctx context.Context) (*used, error) {
	if a.ended.Load() {
		return nil, fmt.Errorf("%w: the handler has returned", task.ErrNoCheckpoints)
	}
	u, err := a.find()
	if err != nil {
		return nil, err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.read || a.first() {
		return u, nil
	}
	all, err := a.read(ctx, u, a.token())
	if err != nil {
		return nil, err
	}
	for _, c := range all {
		u.values[c.Name] = c
	}
	u.read = true
	return u, nil
}

// find returns the checkpoints of the attempt, which are not read yet. Returns
// [resultstore.ErrUnsupported] if the result store of the task keeps no checkpoints.
func (a *Attempt) find() (*used, error) {
	if u := a.used.Load(); u != nil {
		return u, nil
	}
	store := a.cfg.Stores.Of(a.r.Effective, a.r.ReplyTo)
	to, ok := capability.As[resultstore.Checkpointer](store)
	if !ok {
		return nil, unsupported(a.r.Effective, store)
	}
	a.used.CompareAndSwap(nil, &used{store: store, to: to, values: make(map[string]resultstore.Checkpoint), names: make(map[string]use)})
	return a.used.Load(), nil
}

// read reads the checkpoints of the task from the store.
func (a *Attempt) read(ctx context.Context, u *used, at resultstore.Attempt) (all []resultstore.Checkpoint, err error) {
	err = a.call(ctx, u, func(ctx context.Context) (err error) {
		all, err = u.to.LoadCheckpoints(ctx, at)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("swarmiji: read the checkpoints of the task: %w", err)
	}
	return all, nil
}

// unsupported returns why a task with these metadata can use no checkpoints.
func unsupported(meta *task.Metadata, store resultstore.ResultStore) error {
	why := "the result store of the task keeps no checkpoints; use one in Redis, NATS, PostgreSQL, SQLite or memory"
	switch {
	case meta.IgnoreResult.Or(false):
		why = "the task keeps no result (IgnoreResult), and checkpoints are kept beside it"
	case store == nil:
		why = "the consumer has no result store for this task (Config.Results)"
	case resultstore.RepliesOnly(store):
		why = "reply queues keep no checkpoints; use a result store in Redis, NATS, PostgreSQL, SQLite or memory"
	}
	return fmt.Errorf("%w: %s", resultstore.ErrUnsupported, why)
}

// token returns the attempt as the store knows it.
func (a *Attempt) token() resultstore.Attempt {
	return resultstore.Attempt{
		ID: a.r.ID, Generation: a.r.Generation, Deliveries: a.r.Deliveries,
		TTL: max(a.r.Effective.ResultTTL.Or(0), resultstore.DefaultCheckpointTTL),
	}
}

// call calls step within Config.Limit. If the store has a failure of an earlier life of the task,
// it reopens that record and calls step again. It returns the error of step.
func (a *Attempt) call(ctx context.Context, u *used, step func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.Limit)
	defer cancel()
	err := step(ctx)
	if !errors.Is(err, resultstore.ErrStale) || a.r.Life == 0 {
		return err
	}
	rec, lerr := u.store.Load(ctx, a.r.ID)
	if lerr != nil || !lives.Earlier(&rec, a.r.Envelope) || lives.Reopen(ctx, a.r, u.store.Save) != nil {
		return err
	}
	return step(ctx)
}
