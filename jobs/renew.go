package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/jobs/internal/rules"
	"github.com/swarmiji/swarmiji/jobs/internal/txn"
)

// RenewAll renews the leases of several claimed jobs in one transaction, as [Service.Renew] does.
// It uses ID and Token of each job. lease must be positive; it is not checked.
//
// errs contains the result of each job in the order of held: nil, [ErrNotFound], [ErrStale] or
// [ErrNotRunning]. asked is a time of this process's clock: every renewed lease begins at asked or
// later. err is an error of the store: errs is then nil, and the leases may be renewed or not. A
// RUNQUEUED job, or one that awaits its answer, has no lease and stays unchanged. Each job counts
// as [Stats].Renewed, or as Stale after ErrStale.
func (s *Service) RenewAll(ctx context.Context, held []*Row, lease time.Duration) (errs []error, asked time.Time, err error) {
	ids := make([]ID, len(held))
	for i, h := range held {
		ids[i] = h.ID
	}
	var none txn.Locks
	err = s.txn.Do(ctx, &none, func(ctx context.Context, t *txn.Step) error {
		errs, asked = make([]error, len(held)), t.Asked
		found, err := t.Tx.Jobs(ctx, ids...)
		if err != nil {
			return err
		}
		byID := make(map[ID]*Row, len(found))
		for i := range found {
			byID[found[i].ID] = &found[i]
		}
		save := make([]*Row, 0, len(found))
		for i, h := range held {
			j := byID[h.ID]
			if j == nil {
				errs[i] = fmt.Errorf("%w: job %d", ErrNotFound, h.ID)
				continue
			}
			var changed bool
			if changed, errs[i] = rules.Renew(j, t.Now, h.Token, lease); changed {
				save = append(save, j)
			}
		}
		if len(save) == 0 {
			return nil
		}
		return t.Save(ctx, save...)
	})
	if err != nil {
		return nil, asked, err
	}
	for _, e := range errs {
		_ = s.counted(&s.count.renewed, e)
	}
	return errs, asked, nil
}
