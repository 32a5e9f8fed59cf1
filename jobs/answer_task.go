package jobs

import (
	"context"
	"time"

	"github.com/swarmiji/swarmiji/jobs/internal/txn"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// answerTask gives an answer to d, an open deferral: a task that waits for an answer. It saves d in
// t and returns the receipt Accepted. If the attempt of the task has ended, d becomes due now in
// phase DeferralDecided, and a consumer of its queue settles the task; one with an older fencing
// token changes nothing. If the attempt still runs, only the answer is stored.
//
// Returns the receipt Late if d has timed out, and Duplicate if d already has an answer or a
// refusal. d then stays unchanged. Returns the error of saving d; ignore the receipt then.
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
