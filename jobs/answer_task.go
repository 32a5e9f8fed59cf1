package jobs

import (
	"context"
	"time"

	"github.com/swarmiji/swarmiji/jobs/internal/txn"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// answerTask gives an answer to an open deferral. If its attempt has ended, the consumers of its
// queue handle it at once.
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
		d.Fence++ // a consumer that has claimed it has not seen the answer
	}
	return Receipt{Kind: Accepted, Task: d.Task}, t.SaveDeferral(ctx, d)
}
