package tasktest_test

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/swarmiji/swarmiji/task"
)

// The sample program: a shop whose orders are charged and shipped. bug is the mistake that it is
// built with, see TestSeededBugs.
var bug = os.Getenv("TASKTEST_BUG")

const (
	lostRetry      = "lost retry"
	wrongQueue     = "wrong queue"
	ignoredContext = "handler that ignores its context"
	twice          = "step that runs twice"
)

type order struct {
	Number int
	Amount int
}

var (
	charge = task.New[order, string]("charge", task.WithMaxRetries(3), task.WithRetryDelay(time.Minute), task.WithTimeLimit(30*time.Second))
	ship   = task.New[int, task.None]("ship", task.WithQueue("warehouse"))
)

var errOverloaded = errors.New("the bank is overloaded")

// bank is the part of a bank that the shop needs.
type bank interface {
	Charge(ctx context.Context, o order) (receipt string, err error)
}

type shop struct {
	bank   bank
	submit task.Submitter
}

func (s *shop) register(r task.Registrar) error { return charge.Handle(r, s.charge) }

func (s *shop) registerWarehouse(r task.Registrar) error {
	return ship.Handle(r, func(context.Context, int) (task.None, error) { return task.None{}, nil })
}

func (s *shop) charge(ctx context.Context, o order) (string, error) {
	asking := ctx
	if bug == ignoredContext {
		asking = context.Background()
	}
	receipt, err := s.bank.Charge(asking, o)
	switch {
	case errors.Is(err, errOverloaded) && bug == lostRetry:
		return "", err
	case errors.Is(err, errOverloaded):
		return "", task.Retry(err)
	case err != nil:
		return "", task.Fail(err)
	}
	r, _ := task.FromContext(ctx)
	opts := []task.Option{task.WithID(task.Derive(r.ID, "ship"))} // the same task for each attempt
	if bug == twice {
		opts = nil
	}
	if bug == wrongQueue {
		opts = append(opts, task.WithQueue("default"))
	}
	_, err = ship.Submit(ctx, s.submit, o.Number, opts...)
	return receipt, err
}
