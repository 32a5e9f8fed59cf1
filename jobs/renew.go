package jobs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/swarmiji/swarmiji/jobs/internal/rules"
	"github.com/swarmiji/swarmiji/jobs/internal/txn"
)

// RenewAll renews the leases of several claimed jobs, as [Service.Renew] does. It uses ID and Token
// of each job. One transaction renews the jobs that no other transaction has locked, a second one
// the others. lease must be positive; it is not checked.
//
// errs contains the result of each job in the order of held: nil, [ErrNotFound], [ErrStale] or
// [ErrNotRunning]. Any other error means that the lease may be renewed or not, such as
// [ErrUnavailable] for a job that another program has locked for long. asked is a time of this
// process's clock: every renewed lease begins at asked or later.
//
// err is an error of the store: errs is then nil, and the leases may be renewed or not. A RUNQUEUED
// job, or one that awaits its answer, has no lease and stays unchanged. Each job counts as
// [Stats].Renewed, or as Stale after ErrStale.
func (s *Service) RenewAll(ctx context.Context, held []*Row, lease time.Duration) (errs []error, asked time.Time, err error) {
	errs, asked, err = s.renewTogether(ctx, held, lease, true)
	if err != nil {
		return nil, asked, err
	}
	var missing []*Row // they do not exist, or another transaction has locked them
	for i, e := range errs {
		if errors.Is(e, ErrNotFound) {
			missing = append(missing, held[i])
		}
	}
	if len(missing) > 0 {
		// The other jobs must be renewed again in time.
		short, cancel := context.WithTimeout(ctx, min(lease/6, 10*time.Second))
		defer cancel()
		again, _, err := s.renewTogether(short, missing, lease, false)
		for i, e := range errs {
			switch {
			case !errors.Is(e, ErrNotFound):
			case err != nil:
				errs[i] = err
			default:
				errs[i], again = again[0], again[1:]
			}
		}
	}
	for _, e := range errs {
		_ = s.counted(&s.count.renewed, e)
	}
	return errs, asked, nil
}

// renewTogether renews the leases of jobs in one transaction and returns the results of RenewAll,
// without counting them. With free it skips jobs that another transaction has locked: their result
// is ErrNotFound. Without free it waits for these jobs.
func (s *Service) renewTogether(ctx context.Context, held []*Row, lease time.Duration, free bool) (errs []error, asked time.Time, err error) {
	ids := make([]ID, len(held))
	for i, h := range held {
		ids[i] = h.ID
	}
	var none txn.Locks
	err = s.txn.Do(ctx, &none, func(ctx context.Context, t *txn.Step) error {
		errs, asked = make([]error, len(held)), t.Asked
		read := t.Tx.Jobs
		if free {
			read = t.FreeJobs
		}
		found, err := read(ctx, ids...)
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
	return errs, asked, err
}
