package jobs

import "context"

// purgePage is how many jobs are deleted in a transaction.
const purgePage = 500

// Purge deletes the jobs whose Expires has come, in batches, and returns how many these were; with an error too. Any process may call it at any time; runners do
// so by themselves. Early answers that nobody has claimed are told to Config.OnAnswer.
func (s *Service) Purge(ctx context.Context) (n int, err error) {
	for {
		var gone []Job
		err := s.c.Store.Update(ctx, func(ctx context.Context, tx Tx) error {
			now, err := tx.Now(ctx)
			if err != nil {
				return err
			}
			if gone, err = tx.Find(ctx, Query{Expired: now, Limit: purgePage}); err != nil || len(gone) == 0 {
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
		for i := range gone {
			if j := &gone[i]; j.Queue == earlyQueue {
				s.answered(Answer{Name: j.Name, Key: j.Key, Result: j.Answer, Refusal: j.Reason}, Receipt{Kind: Unknown}, goesOn)
			} else {
				n++
				s.count.purged.Add(1)
			}
		}
		if len(gone) < purgePage {
			return n, nil
		}
	}
}
