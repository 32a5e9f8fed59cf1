package producer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/internal/utf"
	"github.com/swarmiji/swarmiji/internal/wake"
	"github.com/swarmiji/swarmiji/middleware"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

const (
	// claimTime is the time for which a submission reserves its key, also if its producer dies.
	claimTime = 30 * time.Second
	// sendTime limits the wait for the broker: the outcome must be stored before claimTime has
	// passed.
	sendTime = 20 * time.Second
	// outcomeTime limits the wait for the store of claims after the outcome is known. It also
	// applies if the caller's ctx has ended.
	outcomeTime = 5 * time.Second
	// claimsAtOnce limits the parallel calls of the store of claims for a batch.
	claimsAtOnce = 16
	maxUniqueKey = 255
)

// ErrDuplicate is the outcome that [middleware.OnConfirm] reports for a unique task that was not
// sent because an earlier one has its key. Submit does not return it.
var ErrDuplicate = errors.New("swarmiji: an earlier submission has the unique key")

var (
	errNoClaimer  = fmt.Errorf("%w: a unique key needs a store of claims: use a result store that is a resultstore.Claimer (memory, Redis, NATS, SQL), or set Config.Claimer", broker.ErrUnsupported)
	errUniqueStep = fmt.Errorf("%w: a workflow and its steps cannot have a unique key: submit the workflow in the handler of a unique task", broker.ErrUnsupported)
)

// UniqueError is the error of a unique task that got neither a confirm nor the id of an earlier,
// confirmed submission. It wraps
//
//   - [broker.ErrIndeterminate] if the outcome of Task is unknown. The key stays with Task for its
//     TTL. Query Task, or submit it again with its id ([task.WithID]): that is sent again, and its
//     confirm settles the key.
//   - [broker.ErrUnavailable] if the submission of Task was not finished when ctx ended. Nothing
//     was sent for this call.
type UniqueError struct {
	Key  string  // the unique key
	Task task.ID // the submission that has the key: this one or an earlier one
	err  error
}

// Error returns a text with the key and the task that has it.
func (e *UniqueError) Error() string {
	return fmt.Sprintf("unique key %q: task %s has it: %v", utf.Cut(e.Key, 128), e.Task, e.err)
}

// Unwrap returns the reason, an error that wraps [broker.ErrIndeterminate] or
// [broker.ErrUnavailable].
func (e *UniqueError) Unwrap() error { return e.err }

// claimer returns the store of the keys of unique tasks: Config.Claimer, else Config.Results if it
// can claim, else nil.
func (p *Producer) claimer() resultstore.Claimer {
	return resultstore.ClaimerOf(p.cfg.Claimer, p.cfg.Results)
}

// checkUnique returns an error if the task cannot have a unique key: the key or its TTL is out of
// range, the task is a step of a workflow, or no claimer is configured.
func (p *Producer) checkUnique(c *task.Call) error {
	u := c.Unique
	switch {
	case len(u.Key) == 0 || len(u.Key) > maxUniqueKey:
		return fmt.Errorf("%w: the unique key has %d bytes; need 1 to %d", task.ErrBadMetadata, len(u.Key), maxUniqueKey)
	case u.TTL <= 0 || u.TTL > resultstore.MaxClaimTTL:
		return fmt.Errorf("%w: the TTL of the unique key is %v; need more than 0 and at most %v", task.ErrBadMetadata, u.TTL, resultstore.MaxClaimTTL)
	case c.Member != nil:
		return errUniqueStep
	case p.claimer() == nil:
		return errNoClaimer
	}
	return nil
}

// States of a submission: the first byte of the holder of its key in the store of claims.
const (
	underWay  = '?' // followed by the task's id, a space, and a random number of this submission
	unknown   = '!' // followed by the task's id: the outcome is unknown
	confirmed = '=' // followed by the task's id
)

// holder returns the text that is stored as the holder of a key. It names the state and the id of
// the task that has the key.
func holder(state byte, id task.ID) string { return string(state) + string(id) }

// readHolder returns the state (underWay, unknown or confirmed) and the task id of the holder of a
// key. Returns [resultstore.ErrMalformed] for a malformed holder.
func readHolder(text string) (state byte, id task.ID, err error) {
	if len(text) > 1 {
		word, _, _ := strings.Cut(text[1:], " ")
		state, id = text[0], task.ID(word)
	}
	if state != underWay && state != unknown && state != confirmed || id.Check() != nil {
		return 0, "", fmt.Errorf("unique key: %w: its holder %q does not name a task", resultstore.ErrMalformed, utf.Cut(text, 64))
	}
	return state, id, nil
}

// claim is a unique task that is being submitted.
type claim struct {
	*staged
	key    string
	holder string  // the holder text during this submission
	won    bool    // the key is claimed: send the task
	again  bool    // an earlier message of the same id with an unknown outcome may be queued
	other  task.ID // the task whose submission has the key now; "": none
	err    error   // the error of the submission
}

// publishUnique submits unique tasks, blocks until each is confirmed or has failed, and returns the
// error of each. If an earlier task with the same key was confirmed, it sets first to the id of
// that task instead of sending, without an error.
//
// It waits for other submissions of the same keys within ctx. If ctx ends first, the error is a
// [*UniqueError]. While it waits for a key it holds none, so two calls cannot block each other.
func (p *Producer) publishUnique(ctx context.Context, all []*staged) []error {
	claims := make([]*claim, len(all))
	for i, s := range all {
		claims[i] = &claim{
			staged: s, key: "unique/" + s.envelope.Name + "/" + s.unique.Key,
			holder: holder(underWay, s.envelope.ID) + " " + strconv.FormatUint(rand.Uint64(), 36),
		}
	}
	slow := task.Backoff{Base: 5 * time.Millisecond, Max: 500 * time.Millisecond}
	left := claims
	for attempt := 0; len(left) > 0; attempt++ {
		n := min(len(left), firstBatch)
		busy := p.submitClaims(ctx, left[:n])
		if left = append(left[n:len(left):len(left)], busy...); len(left) > len(busy) || len(busy) == 0 {
			continue
		}
		if wake.Sleep(ctx, slow.Interval(attempt)) {
			continue
		}
		for _, c := range left {
			c.err = &UniqueError{c.unique.Key, c.other, fmt.Errorf("its submission has not ended: %w: %w", broker.ErrUnavailable, context.Cause(ctx))}
		}
		break
	}
	errs := make([]error, len(all))
	for i, c := range claims {
		errs[i] = c.err
	}
	return errs
}

// submitClaims claims the keys of some tasks, sends the tasks that got their key, and stores the
// outcome of each with its key. It sets err or first of each task that it has finished. It returns
// the tasks whose key belongs to a running submission, or to an earlier task of some: try them
// again. It sends for at most sendTime.
func (p *Producer) submitClaims(ctx context.Context, some []*claim) (busy []*claim) {
	until := time.Now().Add(sendTime)
	first := make(map[string]*claim, len(some))
	for _, c := range some {
		c.won, c.again, c.other = false, false, ""
		if f := first[c.key]; f != nil {
			c.other = f.envelope.ID
		} else {
			first[c.key] = c
		}
	}
	each(len(some), func(i int) {
		if c := some[i]; c.other == "" {
			c.err = c.claimKey(ctx, p.claimer())
		}
	})
	var won []*claim
	var tasks []*staged
	for _, c := range some {
		switch {
		case c.won:
			won, tasks = append(won, c), append(tasks, c.staged)
		case c.other != "":
			busy = append(busy, c)
		}
	}
	if len(won) == 0 {
		return busy
	}
	sending, cancel := context.WithDeadline(ctx, until)
	var errs []error
	if len(tasks) == 1 {
		errs = []error{p.publishOne(sending, tasks[0])}
	} else {
		errs = p.publishPlain(sending, tasks)
	}
	cancel()
	noting, cancel := context.WithTimeout(context.WithoutCancel(ctx), outcomeTime)
	defer cancel()
	each(len(won), func(i int) { won[i].storeOutcome(noting, p.claimer(), errs[i]) })
	return busy
}

// claimKey claims the key for this submission. It tries once. If it returns nil, exactly one of
// these is set: won, the task must be sent; first, an earlier submission was confirmed; other,
// another submission is running.
//
// If an earlier submission of the same id has an unknown outcome, it takes over the key and sets
// again too. Returns a [*UniqueError] if the outcome of another task, or of an at-most-once task,
// is unknown. Also returns errors of the store of claims, as notClaimed converts them.
func (c *claim) claimKey(ctx context.Context, store resultstore.Claimer) error {
	winner, err := store.Claim(ctx, c.key, c.holder, claimTime)
	if err != nil {
		return notClaimed(err)
	}
	if c.won = winner == c.holder; c.won {
		return nil
	}
	state, id, err := readHolder(winner)
	switch {
	case err != nil:
		return err
	case state == confirmed:
		c.first = id
		return nil
	case state == underWay:
		c.other = id
		return nil
	// an at-most-once task is not sent again
	case id != c.envelope.ID || !c.effective.Idempotent.Or(true):
		return &UniqueError{c.unique.Key, id, broker.ErrIndeterminate}
	}
	err = store.Pass(ctx, c.key, winner, c.holder, claimTime) // the same submission is repeated
	if errors.Is(err, resultstore.ErrStale) {
		c.other = id // another process repeats it too, or the claim has expired: try again
		return nil
	}
	c.won, c.again = err == nil, true
	return notClaimed(err)
}

// notClaimed converts an error of the store of claims to an error of the submission. nil stays nil.
// Errors that a repetition may change wrap [broker.ErrUnavailable]: nothing was sent.
func notClaimed(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, resultstore.ErrMalformed), errors.Is(err, resultstore.ErrClosed):
		return fmt.Errorf("unique key: %w", err)
	}
	return fmt.Errorf("unique key: nothing was sent: %w: %w", broker.ErrUnavailable, err)
}

// storeOutcome stores the outcome of the submission as the new holder of the key, and sets c.err.
// sent is the error of the publish.
//
//   - Confirmed: the key stays with the task for its TTL.
//   - Unknown outcome: the same, and c.err is a [*UniqueError].
//   - Refused: the key is freed. If an earlier message of the same id may be queued, the key stays
//     with the task as unknown.
//
// An error of the store is logged; the key is then free after claimTime.
func (c *claim) storeOutcome(ctx context.Context, store resultstore.Claimer, sent error) {
	id, u := c.envelope.ID, c.unique
	var err error
	switch {
	case sent == nil:
		err = store.Pass(ctx, c.key, c.holder, holder(confirmed, id), u.TTL)
	case errors.Is(sent, broker.ErrIndeterminate):
		err = store.Pass(ctx, c.key, c.holder, holder(unknown, id), u.TTL)
		sent = &UniqueError{u.Key, id, sent}
	case c.again: // refused this time, but the message of the earlier submission may run
		err = store.Pass(ctx, c.key, c.holder, holder(unknown, id), u.TTL)
	default:
		err = store.Release(ctx, c.key, c.holder)
	}
	c.err = sent
	if err != nil { // the outcome stays; the key expires after claimTime
		c.producer.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "the outcome of a submission was not stored; its unique key is free within 30 s",
			slog.String(middleware.LogTask, c.envelope.Name), slog.String(middleware.LogTaskID, string(id)), slog.Any("error", err))
	}
}

// duplicateOf ends a submission that was not sent because of its unique key or its burst. It tells
// middleware [ErrDuplicate] or [ErrJoined], releases the waiter of s, and returns the handle of the
// earlier task s.first. If that is the same task, its waiter stays and its handle is returned.
func (p *Producer) duplicateOf(s *staged) task.Pending {
	why := ErrDuplicate
	if s.burst != nil {
		why = ErrJoined
	}
	s.notifyEnd(fmt.Errorf("%w: task %s", why, s.first))
	if s.first == s.envelope.ID {
		return s.pending
	}
	s.releaseWaiter()
	name := s.effective.ResultStore.Or("")
	switch {
	case s.effective.IgnoreResult.Or(false):
		return &resolved{id: s.first}
	}
	store, err := p.store(name)
	if err != nil || store == nil {
		return &resolved{id: s.first, err: cmp.Or(err, task.ErrNoResult)}
	}
	o := &observed{id: s.first, inbox: p.inbox[store], codec: p.codec}
	if s.burst != nil && resultstore.RepliesOnly(store) { // an early reply would be lost
		_, _ = o.wait()
	}
	return o
}

// each calls fn for 0 to n-1 on other goroutines, at most claimsAtOnce at a time, and waits for all
// calls. It makes a single call on the calling goroutine.
func each(n int, fn func(i int)) {
	if n == 1 {
		fn(0)
		return
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, claimsAtOnce)
	for i := range n {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			fn(i)
		})
	}
	wg.Wait()
}
