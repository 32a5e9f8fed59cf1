package jobs

import (
	"context"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// purgePage is how many jobs are deleted in a transaction.
const purgePage = 500

// Purge deletes the jobs whose Expires has come, and tasks that waited for answers, in batches, and returns how many these were; with an error too. Any process may call it at any time; runners do
// so by themselves. Early answers that nobody has claimed are told to Config.OnAnswer.
func (s *Service) Purge(ctx context.Context) (n int, err error) {
	for {
		var gone []Row
		err := s.c.Store.Update(ctx, func(ctx context.Context, tx jobstore.Tx) error {
			now, err := tx.Now(ctx)
			if err != nil {
				return err
			}
			if gone, err = tx.Expired(ctx, now, purgePage); err != nil || len(gone) == 0 {
				return err
			}
			ids := make([]ID, len(gone))
			for i := range gone {
				ids[i] = gone[i].ID
			}
			return tx.Delete(ctx, ids...)
		})
		if err != nil {
			return n, err
		}
		n += len(gone)
		s.count.purged.Add(int64(len(gone)))
		if len(gone) < purgePage {
			break
		}
	}
	for {
		tasks := 0
		var early []jobstore.EarlyAnswer
		err := s.c.Store.Update(ctx, func(ctx context.Context, tx jobstore.Tx) error {
			now, err := tx.Now(ctx)
			if err != nil {
				return err
			}
			if tasks, err = tx.ExpireDeferrals(ctx, now, purgePage); err != nil {
				return err
			}
			early, err = tx.ExpireEarly(ctx, now, purgePage)
			return err
		})
		if err != nil {
			return n, err
		}
		n += tasks
		s.count.purged.Add(int64(tasks))
		for i := range early {
			e := &early[i]
			s.answered(Answer{Name: e.Name, Key: e.Key, Result: e.Result, Refusal: e.Refusal}, Receipt{Kind: Unknown}, goesOn)
		}
		if tasks < purgePage && len(early) < purgePage {
			return n, nil
		}
	}
}
