package jobs

import (
	"context"
	"time"

	"github.com/swarmiji/swarmiji/jobs/internal/txn"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// answerTask gives an answer to the open deferral d and saves it in t. If the attempt of its task
// has ended, d becomes due, so that a consumer of its queue settles the task. Returns the receipt
// Late if d has timed out, and Duplicate if d already has an answer.
func (s *Service) answerTask(ctx context.Context, t *txn.Step, d *jobstore.Deferral, a *Answer) (Receipt, error) {
	switch {
	case d.Answered():
		return Receipt{Kind: Duplicate, Task: d.Task}, nil
	case d.Verdict == jobstore.VerdictTimeout:
		return Receipt{Kind: Late, Task: d.Task}, nil
	}
	d.Verdict, d.Answer, d.Refusal = jobstore.VerdictAnswer, a.Result, ""
	if a.Refusal != "" {
		d.Verdict, d.Answer, d.Refusal = jobstore.VerdictRefusal, nil, a.Refusal
	}
	if d.Phase == jobstore.DeferralAwaiting {
		d.Phase, d.Deadline, d.Due = jobstore.DeferralDecided, time.Time{}, t.Now
		d.Fence++ // a consumer that has claimed it does not know the answer
	}
	return Receipt{Kind: Accepted, Task: d.Task}, t.SaveDeferral(ctx, d)
}
