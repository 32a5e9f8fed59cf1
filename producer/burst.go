package producer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/internal/bursts"
	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// ErrJoined is the outcome that [middleware.OnConfirm] reports for a submission that has joined a
// burst ([task.Burst]): its arguments are stored, and no message was sent. Submit does not return
// it.
var ErrJoined = errors.New("swarmiji: the submission has joined a burst")

var (
	errNoBursts  = fmt.Errorf("%w: a burst needs a store that is a resultstore.Swapper (memory, Redis, NATS, SQL): use one for results, or set Config.Bursts", broker.ErrUnsupported)
	errBurstStep = fmt.Errorf("%w: a workflow and its steps cannot be in a burst: submit the workflow in the handler of a task with the burst", broker.ErrUnsupported)
	errBurstTx   = fmt.Errorf("%w: task.WithDebounce and task.WithLatest store the submission outside of the transaction: submit the task after the commit, or in the handler of a task of the transaction", broker.ErrUnsupported)
	errBurstWith = fmt.Errorf("%w: a task in a burst cannot also have an id of the caller, a delay, a unique key, conditions or following tasks: submit such a task in its handler", broker.ErrUnsupported)
)

// prepareBurst checks that the task can be in the burst of c, and writes the burst into the
// envelope. It does no I/O. Returns [task.ErrBadMetadata] for a burst that is out of range.
// Returns [broker.ErrUnsupported] without a store of bursts, and for options that have no meaning
// with a burst.
func (p *Producer) prepareBurst(c *task.Call, s *staged) error {
	switch {
	case p.bursts == nil:
		return errNoBursts
	case c.Member != nil:
		return errBurstStep
	case c.ID != "", c.Unique != nil, c.Conditions != nil, len(c.Then) > 0, len(c.Else) > 0, s.effective.NotBefore.IsSet():
		return errBurstWith
	}
	if err := bursts.Check(c.Burst); err != nil {
		return err
	}
	mark := bursts.NewMark(c.Burst)
	s.envelope.Burst, s.burst = mark.String(), &mark
	return nil
}

// publishBursts submits prepared tasks with bursts, blocks until each is confirmed or has failed,
// and returns the error of each. Of one key only the last task is submitted, since its arguments
// replace those of the others. If a task has joined a burst of another id, it sets first to that
// id.
func (p *Producer) publishBursts(ctx context.Context, all []*staged) []error {
	type key struct {
		name, key string
		latest    bool
	}
	at := make(map[key]int)
	var last []int // indices of the tasks to submit
	of := make([]int, len(all))
	for i, s := range all {
		k := key{s.envelope.Name, s.burst.Key, s.burst.Latest}
		n, there := at[k]
		if !there {
			n = len(last)
			at[k], last = n, append(last, i)
		}
		last[n], of[i] = i, n
	}
	ends := make([]error, len(last))
	each(len(last), func(n int) { ends[n] = p.publishBurst(ctx, all[last[n]]) })
	errs := make([]error, len(all))
	for i, s := range all {
		newest := all[last[of[i]]]
		errs[i] = ends[of[i]]
		switch {
		case errs[i] != nil || s == newest:
		case newest.first != "":
			s.first = newest.first
		default:
			s.first = newest.envelope.ID
		}
	}
	return errs
}

// publishBurst adds one prepared task to the burst of its key, and publishes a message if the burst
// needs one. It blocks until the submission is stored and the message confirmed. It sets s.first if
// the burst has another id.
//
// Returns an error that wraps [broker.ErrIndeterminate] if the arguments of s may run or not, and
// the errors of the publish.
func (p *Producer) publishBurst(ctx context.Context, s *staged) error {
	data, err := wire.Prepare(s.out.Queue, s.out.Message)
	if err != nil {
		return err
	}
	sub := bursts.Submission{ID: s.envelope.ID, Name: s.envelope.Name, Mark: *s.burst, Data: data, Once: !s.effective.Idempotent.Or(true)}
	if err := sub.Check(); err != nil {
		return fmt.Errorf("%w: %w", broker.ErrTooLarge, err)
	}
	until := time.Now().Add(sendTime)
	slow := task.Backoff{Base: 5 * time.Millisecond, Max: 500 * time.Millisecond}
	var j bursts.Joined
	for attempt := 0; ; attempt++ {
		j, err = p.bursts.Join(ctx, sub, func(id task.ID, life int) bool { return p.hasEnded(ctx, s, id, life) })
		switch {
		case errors.Is(err, resultstore.ErrMalformed), errors.Is(err, resultstore.ErrClosed), errors.Is(err, resultstore.ErrTooLarge):
			return err
		case errors.Is(err, resultstore.ErrUnsupported):
			return fmt.Errorf("%w: %w", broker.ErrUnsupported, err)
		case err != nil:
			return fmt.Errorf("the burst was not stored, or its answer was lost: %w: %w", broker.ErrIndeterminate, err)
		}
		if !j.Busy {
			break
		}
		if !wake.Sleep(ctx, slow.Interval(attempt)) {
			return fmt.Errorf("the first submission of the burst, %s, has not ended: %w: %w", j.ID, broker.ErrUnavailable, context.Cause(ctx))
		}
		until = time.Now().Add(sendTime)
	}
	if j.ID != s.envelope.ID {
		s.first = j.ID
	}
	if !j.Publish {
		return nil
	}
	out := s.out
	if _, ok := capability.As[broker.Delayer](p.cfg.Broker); ok { // otherwise the consumer waits
		out.At = j.At
	}
	if s.first != "" { // no message of the burst has come for long, or the message is a guard
		if out.Message, err = p.encodeAs(s, s.first); err != nil {
			return err
		}
		out.Message.Generation = j.Generation
	}
	sending, cancel := context.WithDeadline(ctx, until)
	err = broker.PublishAt(sending, p.cfg.Broker, out)
	cancel()
	return p.storePublished(ctx, s, sub, j, err)
}

// storePublished stores the outcome of the publish of a burst's message, and returns the error of
// the submission. sent is the error of the publish.
func (p *Producer) storePublished(ctx context.Context, s *staged, sub bursts.Submission, j bursts.Joined, sent error) error {
	outcome := bursts.Confirmed
	switch {
	case errors.Is(sent, broker.ErrIndeterminate):
		outcome = bursts.Unknown
	case sent != nil:
		outcome = bursts.Refused
		if s.first != "" { // an earlier message of the burst may run these arguments
			sent = fmt.Errorf("the submission is stored, its message was not sent: %w: %w", broker.ErrIndeterminate, sent)
		}
	}
	noting, cancel := context.WithTimeout(context.WithoutCancel(ctx), outcomeTime)
	defer cancel()
	if err := p.bursts.Opened(noting, sub, j, outcome); err != nil {
		if sent == nil {
			sent = fmt.Errorf("the message is sent, its burst was not stored: %w: %w", broker.ErrIndeterminate, err)
		}
		p.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "the outcome of a submission was not stored; other submissions of its burst wait for at most 30 s",
			slog.String(middleware.LogTask, s.envelope.Name), slog.String(middleware.LogTaskID, string(j.ID)), slog.Any("error", err))
	}
	return sent
}

// encodeAs returns the message of a task with another id.
func (p *Producer) encodeAs(s *staged, id task.ID) (*broker.Message, error) {
	e := *s.envelope
	e.ID = id
	m, err := p.codec.Encode(s.out.Queue, &e)
	if err != nil {
		return nil, fmt.Errorf("task %s: %w", e.Name, err)
	}
	m.Priority, m.Key, m.Weight, m.Expires = s.out.Message.Priority, s.out.Message.Key, s.out.Message.Weight, s.out.Message.Expires
	return m, nil
}

// hasEnded reports whether the end of a life of a task, or of a later one, is recorded in the
// result store of s. It waits for the store; after an error it returns false.
func (p *Producer) hasEnded(ctx context.Context, s *staged, id task.ID, life int) bool {
	store, err := p.store(s.effective.ResultStore.Or(""))
	if err != nil || store == nil {
		return false
	}
	r, err := store.Load(ctx, id)
	return err == nil && r.State.Terminal() && r.Life >= life
}
