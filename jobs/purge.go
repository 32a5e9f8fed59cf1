package jobs

import (
	"context"

	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// purgePage limits the number of records that one transaction deletes. purgeBytes limits the bytes
// of early answers in one transaction.
const (
	purgePage  = 500
	purgeBytes = 4 << 20
)

// Purge deletes all jobs, deferrals (tasks that wait for an answer) and early answers whose Expires
// has passed. It uses several transactions. It returns the number of deleted jobs and deferrals,
// which also count as [Stats].Purged. It stops at the first error of the store and returns the
// number of committed deletions with it.
//
// It counts each early answer as Unknown and passes it to Config.OnAnswer. Any process may call it
// at any time; runners call it once a minute.
func (s *Service) Purge(ctx context.Context) (n int, err error) {
	for {
		gone := 0
		err := s.c.Store.Update(ctx, func(ctx context.Context, tx jobstore.Tx) error {
			now, err := tx.Now(ctx)
			if err != nil {
				return err
			}
			gone, err = tx.ExpireJobs(ctx, now, purgePage)
			return err
		})
		if err != nil {
			return n, err
		}
		n += gone
		s.count.purged.Add(int64(gone))
		if gone < purgePage {
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
			early, err = tx.ExpireEarly(ctx, now, purgePage, purgeBytes)
			return err
		})
		if err != nil {
			return n, err
		}
		n += tasks
		s.count.purged.Add(int64(tasks))
		for i := range early {
			e := &early[i]
			s.reportAnswer(Answer{Name: e.Name, Key: e.Key, Result: e.Result, Refusal: e.Refusal}, Receipt{Kind: Unknown}, noEnd)
		}
		if tasks < purgePage && len(early) == 0 {
			return n, nil
		}
	}
}
