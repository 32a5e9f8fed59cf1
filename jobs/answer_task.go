package jobs

import (
	"context"
	"time"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// deferralOf returns the open deferral of a name and a key, which is locked then, else the one that
// was over last, else nil.
func (t *step) deferralOf(ctx context.Context, name, key string) (*jobstore.Deferral, error) {
	if t.batch != nil {
		for _, d := range t.batch.deferrals {
			if d.Name == name && d.Key == key && d.Open() {
				return new(*d), nil
			}
		}
	}
	d, err := t.tx.DeferralOf(ctx, name, key)
	if err != nil || d == nil || !d.Open() {
		return d, err
	}
	if t.batch != nil { // rows are locked in their order: from the start
		t.batch.missed = d.Task
		return nil, errLocks
	}
	found, err := t.tx.Deferrals(ctx, d.Task)
	if err != nil || len(found) == 0 || found[0].Name != name || found[0].Key != key {
		return nil, err
	}
	return &found[0], nil
}

// answerTask gives an answer to an open deferral. The consumers of its queue look at it, at once if
// its attempt has ended.
func (t *step) answerTask(ctx context.Context, d *jobstore.Deferral, a *Answer) (Receipt, error) {
	if d.Verdict != jobstore.NoVerdict {
		return Receipt{Kind: Duplicate, Task: d.Task}, nil
	}
	d.Verdict, d.Answer, d.Refusal = jobstore.VerdictAnswer, a.Result, ""
	if a.Refusal != "" {
		d.Verdict, d.Answer, d.Refusal = jobstore.VerdictRefusal, nil, a.Refusal
	}
	if d.Phase == jobstore.DeferralAwaiting {
		d.Phase, d.Deadline, d.Due = jobstore.DeferralDecided, time.Time{}, t.now
		d.Fence++ // whoever looks at it now has not seen the answer
	}
	r := Receipt{Kind: Accepted, Task: d.Task}
	if t.batch != nil {
		t.batch.pendingDeferral = d
		return r, nil
	}
	return r, t.tx.SaveDeferrals(ctx, d)
}
