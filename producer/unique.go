package producer

import (
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
	// claimTime is how long a submission under way has its key, and so how long one of a dead
	// producer has it.
	claimTime = 30 * time.Second
	// sendTime is how long the broker is waited for: the outcome must be in the store before
	// claimTime is over.
	sendTime = 20 * time.Second
	// noteTime is how long the store is waited for when the outcome is known, also after the
	// caller's ctx has ended.
	noteTime = 5 * time.Second
	// claimsAtOnce is how many steps of a batch the store of claims is asked for at a time.
	claimsAtOnce = 16
	maxUniqueKey = 255
)

// ErrDuplicate is what [middleware.OnConfirm] tells of a unique task that was not sent, since an
// earlier one has its key. Submit does not return it.
var ErrDuplicate = errors.New("swarmiji: an earlier submission has the unique key")

var (
	errNoClaimer  = fmt.Errorf("%w: a unique key needs a store that can keep it: a result store that is a resultstore.Claimer (memory, Redis, NATS, SQL), or one as Config.Claimer", broker.ErrUnsupported)
	errUniqueStep = fmt.Errorf("%w: neither a workflow nor a step of one has a unique key: have the handler of a unique task submit it", broker.ErrUnsupported)
)

// UniqueError is why a unique task got neither a confirm nor the id of an earlier, confirmed
// submission. It wraps
//
//   - [broker.ErrIndeterminate] if the outcome of Task is unknown. The key stays with Task for its
//     TTL. Look for Task, or submit it again with its id ([task.WithID]): that is sent again, and
//     its confirm settles the key.
//   - [broker.ErrUnavailable] if the submission of Task was still under way when ctx ended. Nothing
//     was sent for this call.
type UniqueError struct {
	Key  string  // the unique key
	Task task.ID // the submission that has the key: this one, or an earlier one
	err  error
}

// Error names the key and the task that has it.
func (e *UniqueError) Error() string {
	return fmt.Sprintf("unique key %q: task %s has it: %v", utf.Cut(e.Key, 128), e.Task, e.err)
}

// Unwrap returns the reason.
func (e *UniqueError) Unwrap() error { return e.err }

func (p *Producer) claimer() resultstore.Claimer {
	return resultstore.ClaimerOf(p.cfg.Claimer, p.cfg.Results)
}

// checkUnique refuses a unique key that cannot be kept.
func (p *Producer) checkUnique(c *task.Call) error {
	u := c.Unique
	switch {
	case len(u.Key) == 0 || len(u.Key) > maxUniqueKey:
		return fmt.Errorf("%w: a unique key of %d bytes, 1 to %d are possible", task.ErrBadMetadata, len(u.Key), maxUniqueKey)
	case u.TTL <= 0 || u.TTL > resultstore.MaxClaimTTL:
		return fmt.Errorf("%w: a unique key for %v, above 0 and up to %v are possible", task.ErrBadMetadata, u.TTL, resultstore.MaxClaimTTL)
	case c.Member != nil:
		return errUniqueStep
	case p.claimer() == nil:
		return errNoClaimer
	}
	return nil
}

// The holder of a key begins with what is known of the submission that has it.
const (
	underWay  = '?' // and the task's id, a space, and a number that no other submission of this id has
	unknown   = '!' // and the task's id: the outcome is unknown
	confirmed = '=' // and the task's id
)

func holder(state byte, id task.ID) string { return string(state) + string(id) }

// readHolder returns what is known of a submission, and its id.
func readHolder(text string) (state byte, id task.ID, err error) {
	if len(text) > 1 {
		word, _, _ := strings.Cut(text[1:], " ")
		state, id = text[0], task.ID(word)
	}
	if state != underWay && state != unknown && state != confirmed || id.Check() != nil {
		return 0, "", fmt.Errorf("unique key: %w: its holder %q is no task", resultstore.ErrMalformed, utf.Cut(text, 64))
	}
	return state, id, nil
}

// claim is a unique task that is being submitted.
type claim struct {
	*staged
	key   string
	mine  string  // the holder while the submission is under way
	won   bool    // the task is to be sent
	again bool    // an earlier message of the same id may be queued: its outcome is unknown
	other task.ID // whose submission is under way; "" for none
	err   error   // why the task was not confirmed
}

// publishUnique submits unique tasks, and returns for each why it was not confirmed. A task of
// which an earlier one was confirmed gets that one's id in first, and no error. It waits for
// submissions under way elsewhere while it has no key itself, so that no two wait for each other.
func (p *Producer) publishUnique(ctx context.Context, all []*staged) []error {
	claims := make([]*claim, len(all))
	for i, s := range all {
		claims[i] = &claim{
			staged: s, key: "unique/" + s.envelope.Name + "/" + s.unique.Key,
			mine: holder(underWay, s.envelope.ID) + " " + strconv.FormatUint(rand.Uint64(), 36),
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
			c.err = &UniqueError{c.unique.Key, c.other, fmt.Errorf("its submission is under way: %w: %w", broker.ErrUnavailable, context.Cause(ctx))}
		}
		break
	}
	errs := make([]error, len(all))
	for i, c := range claims {
		errs[i] = c.err
	}
	return errs
}

// submitClaims claims keys, sends the tasks that got theirs, and notes how that ended. It returns
// those whose key belongs to a submission under way.
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
			c.err = c.take(ctx, p.claimer())
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
	noting, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteTime)
	defer cancel()
	each(len(won), func(i int) { won[i].note(noting, p.claimer(), errs[i]) })
	return busy
}

// take claims the key. If it returns nil, one of these is set: won, and the task is to be sent;
// first, an earlier submission that was confirmed; other, one that is under way.
func (c *claim) take(ctx context.Context, store resultstore.Claimer) error {
	winner, err := store.Claim(ctx, c.key, c.mine, claimTime)
	if err != nil {
		return notClaimed(err)
	}
	if c.won = winner == c.mine; c.won {
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
	case id != c.envelope.ID || !c.effective.Idempotent.Or(true): // a task that runs at most once is not sent again
		return &UniqueError{c.unique.Key, id, broker.ErrIndeterminate}
	}
	err = store.Pass(ctx, c.key, winner, c.mine, claimTime) // the same submission is repeated
	if errors.Is(err, resultstore.ErrStale) {
		c.other = id // somebody else repeats it as well, or its time is over: look again
		return nil
	}
	c.won, c.again = err == nil, true
	return notClaimed(err)
}

// notClaimed is an error of the store of claims as one of a submission.
func notClaimed(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, resultstore.ErrMalformed), errors.Is(err, resultstore.ErrClosed):
		return fmt.Errorf("unique key: %w", err)
	}
	return fmt.Errorf("unique key: nothing was sent: %w: %w", broker.ErrUnavailable, err)
}

// note says in the store how the task's submission has ended, and sets err.
func (c *claim) note(ctx context.Context, store resultstore.Claimer, sent error) {
	id, u := c.envelope.ID, c.unique
	var err error
	switch {
	case sent == nil:
		err = store.Pass(ctx, c.key, c.mine, holder(confirmed, id), u.TTL)
	case errors.Is(sent, broker.ErrIndeterminate):
		err = store.Pass(ctx, c.key, c.mine, holder(unknown, id), u.TTL)
		sent = &UniqueError{u.Key, id, sent}
	case c.again: // refused this time; the message of the earlier submission may run all the same
		err = store.Pass(ctx, c.key, c.mine, holder(unknown, id), u.TTL)
	default:
		err = store.Release(ctx, c.key, c.mine)
	}
	c.err = sent
	if err != nil { // the task is what it is; its key is free when claimTime is over
		c.producer.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "the end of a submission could not be noted; its unique key is free within 30 s",
			slog.String(middleware.LogTask, c.envelope.Name), slog.String(middleware.LogTaskID, string(id)), slog.Any("error", err))
	}
}

// answered ends a submission that was not sent, and returns the handle of the earlier one.
func (p *Producer) answered(s *staged) task.Pending {
	s.end(fmt.Errorf("%w: task %s", ErrDuplicate, s.first))
	if s.first == s.envelope.ID {
		return s.pending
	}
	s.forget()
	name := s.effective.ResultStore.Or("")
	switch {
	case s.effective.IgnoreResult.Or(false):
		return &settled{id: s.first}
	case name == "":
		return p.Pending(s.first)
	}
	return &observed{id: s.first, inbox: p.inbox[p.cfg.Stores[name]], codec: p.codec}
}

// each calls fn for 0 to n-1, some at a time, and waits for all.
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
