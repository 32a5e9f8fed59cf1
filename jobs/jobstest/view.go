package jobstest

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
)

// viewCases returns the cases about Store.View and pages.
func viewCases() []testCase {
	return []testCase{
		{
			Area: "view", Name: "only reads",
			Explain: "Save, Delete, ExpireJobs and Lock return ErrUnsupported in a View and change nothing. Otherwise a write in a View would be lost silently.",
			Run: func(w *world) {
				s := w.Open()
				kept := w.add(s, "kept")
				ctx, cancel := w.Ctx()
				defer cancel()
				for name, write := range map[string]txFunc{
					"Save":   func(ctx context.Context, tx jobstore.Tx) error { j := w.job(s, "new"); return tx.Save(ctx, &j) },
					"Delete": func(ctx context.Context, tx jobstore.Tx) error { return tx.Delete(ctx, kept.ID) },
					"ExpireJobs": func(ctx context.Context, tx jobstore.Tx) error {
						_, err := tx.ExpireJobs(ctx, time.Now(), 1)
						return err
					},
					"Lock": func(ctx context.Context, tx jobstore.Tx) error { return tx.Lock(ctx, "a") },
				} {
					w.WantIs(s.View(ctx, write), jobs.ErrUnsupported, "%s in a View", name)
				}
				w.wantIDs(w.find(s, Query{}), []jobs.Row{kept}, "what is there after all that")
			},
		},
		{
			Area: "view", Name: "sees what is on disk",
			Explain: "Each call of a View sees the commits before it and locks nothing: other transactions can change the jobs that it has read.",
			Run: func(w *world) {
				s, other := w.Open(), w.Open()
				j := w.add(s, "a")
				w.view(s, func(ctx context.Context, tx jobstore.Tx) error {
					for i := range 3 {
						got, err := tx.Get(ctx, j.ID)
						if err != nil {
							return err
						}
						found, err := only(tx.Named(ctx, "a", jobstore.Page{}))
						if err != nil {
							return err
						}
						if now, err := only(due("a", 1).Find(ctx, tx)); err != nil || now.Run != found.Run {
							return fmt.Errorf("what is due: run %d, %w", now.Run, err)
						}
						if got.Run != int64(i) || found.Run != int64(i) {
							return fmt.Errorf("after %d changes Get says %d and Find %d", i, got.Run, found.Run)
						}
						w.edit(other, j.ID, func(j *jobs.Row) { j.Run++ })
					}
					return nil
				})
			},
		},
		{
			Area: "view", Name: "pages",
			Explain: "All jobs can be read in pages, by After and Limit, while other jobs are added and deleted. A job that exists during all pages is returned once.",
			Run: func(w *world) {
				s := w.Open()
				var want []jobs.Row
				for i := range 23 {
					want = append(want, w.job(s, "page-"+strconv.Itoa(i)))
				}
				want = w.save(s, want...)
				var got []jobs.Row
				for after := jobs.ID(0); ; {
					page := w.find(s, Query{Page: jobstore.Page{After: after, Limit: 5}})
					if len(page) == 0 {
						break
					}
					got = append(got, page...)
					after = page[len(page)-1].ID
					if len(got) == 10 { // one job is added and deleted in between
						w.update(s, func(ctx context.Context, tx jobstore.Tx) error { return tx.Delete(ctx, want[2].ID) })
					}
				}
				w.wantIDs(got, want, "all pages")
			},
		},
	}
}
