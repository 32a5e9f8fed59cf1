package checkpoints

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/consumer/internal/workflow"
	"github.com/swarmiji/swarmiji/deferral"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// wait is the checkpoint of Sleep, which is stored at its first call, or that of Await, which is
// stored when the answer comes. Consumers of other versions read it.
type wait struct {
	Kind    waitKind        `json:"kind"`
	Wake    int64           `json:"wakeMillis,omitzero"` // milliseconds since 1970
	Answer  json.RawMessage `json:"answer,omitempty"`
	Refusal string          `json:"refusal,omitzero"`
	// the life of the task in which it was stored: errors of earlier lives do not count
	Life int `json:"life,omitzero"`
}

// waitKind says which field of a wait counts.
type waitKind string

const (
	sleeping waitKind = "sleep"
	answered waitKind = "answer"
	refused  waitKind = "refusal"
	timedOut waitKind = "timeout"
)

// contentWait is the media type of a wait.
const contentWait = "application/vnd.swarmiji.wait"

// overDeliveries is the number of deliveries in the fencing token of an answer. The generation has
// ended, and a later delivery of its message must not count as newer.
const overDeliveries = 1 << 30

// Unfinished returns nil if no call of Sleep or Await has ended the attempt. Otherwise it returns
// the failure of a task whose handler returned nil nevertheless.
func (a *Attempt) Unfinished() error {
	name := a.waits.Load()
	if name == nil {
		return nil
	}
	return task.Fail(fmt.Errorf("%w: the handler returned nil, but the wait %q has not ended; return the errors of Sleep and Await", task.ErrBadCheckpoint, *name))
}

// Sleep implements [task.Checkpointer].
func (a *Attempt) Sleep(ctx context.Context, name string, d time.Duration) error {
	w, found, err := a.begin(ctx, name)
	switch {
	case err != nil:
		return err
	case !found:
		d = min(max(d, 0), task.MaxTimeLimit)
		w = wait{Kind: sleeping, Wake: time.Now().Add(d + time.Millisecond - 1).UnixMilli()}
		at := a.token()
		at.TTL += d
		if err := a.store(ctx, at, name, w); err != nil || d == 0 {
			return err
		}
	case w.Kind != sleeping:
		return otherWait(name)
	}
	wake := time.UnixMilli(w.Wake)
	rest := time.Until(wake)
	// A message that the broker held until then is not early, whatever the clock of this process says.
	// That of a first call was held for another reason.
	if rest <= 0 || found && !a.r.Effective.NotBefore.Or(time.Time{}).Before(wake) {
		return nil
	}
	if found { // the read of this attempt has shortened the expiry
		if err := a.keepFor(ctx, rest); err != nil {
			return err
		}
	}
	a.waits.CompareAndSwap(nil, &name)
	return task.Snooze(rest)
}

// Await implements [task.Checkpointer].
func (a *Attempt) Await(ctx context.Context, v *task.DeferVerdict, into any) error {
	name := v.Checkpoint
	w, found, err := a.begin(ctx, name)
	switch {
	case err != nil:
		return err
	case found && w.Kind == sleeping:
		return otherWait(name)
	case found && w.Kind == answered:
		return a.decode(name, w.Answer, into)
	case found && w.Life >= a.r.Life && w.Kind == refused:
		return task.Rejected(w.Refusal)
	case found && w.Life >= a.r.Life:
		return task.ErrAnswerTimeout
	}
	if err := a.keepFor(ctx, v.Timeout.Or(task.DefaultAnswerWithin)); err != nil {
		return err
	}
	if v.Request != nil {
		a.reserving.Store(&name)
		if err := task.Expect(ctx, v.Key); err != nil {
			return err
		}
		if err := v.Request(ctx); err != nil {
			return err
		}
	}
	a.waits.CompareAndSwap(nil, &name)
	return v
}

// Reserving returns the name for which Await has reserved its key; "": it has reserved none.
func (a *Attempt) Reserving() string {
	if name := a.reserving.Load(); name != nil {
		return *name
	}
	return ""
}

// SaveAnswer stores the outcome of the wait for an answer under name, the name of Await. The next
// generation of the task finds it. Call it when a deferral of the attempt is due.
//
// Returns [resultstore.ErrStale] if the next generation uses its checkpoints already, or the task
// has ended. Its other errors are those of SaveCheckpoint.
func (a *Attempt) SaveAnswer(ctx context.Context, name string, o *deferral.Outcome) error {
	w := wait{Kind: timedOut, Life: a.r.Life}
	switch o.Kind {
	case deferral.Answered:
		w.Kind, w.Answer = answered, o.Answer
	case deferral.Refused:
		w.Kind, w.Refusal = refused, o.Refusal
	}
	at := a.token()
	at.Deliveries = overDeliveries
	return a.store(ctx, at, name, w)
}

// Unstorable reports whether err of SaveAnswer says that the answer can never be stored.
func Unstorable(err error) bool {
	return errors.Is(err, resultstore.ErrTooLarge) || errors.Is(err, resultstore.ErrMalformed) || errors.Is(err, task.ErrBadCheckpoint)
}

// begin claims the name of a wait for this attempt and returns the stored wait.
func (a *Attempt) begin(ctx context.Context, name string) (w wait, found bool, err error) {
	if err := a.UseCheckpoint(ctx, name, true); err != nil {
		return w, false, err
	}
	found, err = a.load(ctx, name, &w, func(contentType string, data []byte, v any) error {
		if contentType != contentWait {
			return fmt.Errorf("it is a value of type %s, and not of Sleep or Await", contentType)
		}
		return json.Unmarshal(data, v)
	})
	return w, found, err
}

// store stores the wait of name.
func (a *Attempt) store(ctx context.Context, at resultstore.Attempt, name string, w wait) error {
	u, err := a.find()
	if err != nil {
		return err
	}
	c := resultstore.Checkpoint{Name: name, ContentType: contentWait}
	if c.Value, err = json.Marshal(&w); err != nil {
		return unfit(name, err)
	}
	return a.save(ctx, u, at, c)
}

// keepFor renews the expiry of the checkpoints before a wait that is longer than they are kept.
func (a *Attempt) keepFor(ctx context.Context, d time.Duration) error {
	at := a.token()
	if d < at.TTL-task.DefaultResultTTL { // the last use of a checkpoint was in this attempt
		return nil
	}
	u, err := a.find()
	if err != nil {
		return err
	}
	at.TTL += d
	_, err = a.read(ctx, u, at)
	return err
}

// decode decodes an answer, a JSON value, as a result of the task.
func (a *Attempt) decode(name string, answer []byte, into any) error {
	data, contentType, err := workflow.EncodeJSON(a.cfg.Codec, a.r.Effective.Serializer.Or(""), answer, resultstore.MaxCheckpointBytes)
	if err == nil {
		err = a.cfg.Codec.Unmarshal(contentType, data, into)
	}
	if err != nil {
		return fmt.Errorf("%w: the answer of %q cannot be read as a %T: %w", task.ErrBadCheckpoint, name, into, err)
	}
	return nil
}

// otherWait returns the error of a name that Sleep used in place of Await, or Await in place of
// Sleep.
func otherWait(name string) error {
	return fmt.Errorf("%w: %q is stored by the other one of Sleep and Await; rename it", task.ErrBadCheckpoint, name)
}
