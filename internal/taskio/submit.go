package taskio

import (
	"context"
	"sync"

	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/task"
)

// Submit submits calls and waits until all are done. For each call it returns whether the
// submission was confirmed and, if the submitter provides it, the pending outcome.
//
// If s is a task.BatchSubmitter, err is the error of its SubmitAll. Otherwise up to parallel calls
// are in progress at a time. err is then the error of the first unconfirmed call.
func Submit(ctx context.Context, s task.Submitter, calls []task.Call, parallel int) (confirmed []bool, pending []task.Pending, err error) {
	confirmed, pending = make([]bool, len(calls)), make([]task.Pending, len(calls))
	if b, ok := capability.As[task.BatchSubmitter](s); ok {
		var all []task.Pending
		all, err = b.SubmitAll(ctx, calls)
		copy(pending, all)
		for i, p := range pending {
			confirmed[i] = p != nil
		}
		return confirmed, pending, err
	}
	errs := make([]error, len(calls))
	var wg sync.WaitGroup
	free := make(chan struct{}, max(parallel, 1))
	for i := range calls {
		free <- struct{}{}
		wg.Go(func() {
			pending[i], errs[i] = s.Submit(ctx, calls[i])
			confirmed[i] = errs[i] == nil
			<-free
		})
	}
	wg.Wait()
	for _, e := range errs {
		if e != nil {
			return confirmed, pending, e
		}
	}
	return confirmed, pending, nil
}
