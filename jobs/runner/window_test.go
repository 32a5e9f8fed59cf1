package runner_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/jobstore"
	"github.com/swarmiji/swarmiji/jobs/queue"
	"github.com/swarmiji/swarmiji/jobs/runner"
)

// TestWindowsOfAnUnknownZone shows that a job whose windows this process cannot parse is held and
// reported, and starts when they can be parsed.
func TestWindowsOfAnUnknownZone(t *testing.T) {
	all := queue.ThrottlerFunc(func(_ ctx, l *queue.Admission) error {
		for j := range l.Due() {
			l.Start(j)
		}
		return nil
	})
	for name, throttler := range map[string]queue.Throttler{"limit": nil, "throttler": all} {
		t.Run(name, func(t *testing.T) {
			inShop(t, func(t *testing.T, s *shop) {
				var told told
				r := s.runner(runner.Config{Queue: &queue.Queue{Name: "q", Throttler: throttler}, OnReport: told.note})
				d := newDiary()
				handle(t, r, work, func(_ ctx, at state) (any, error) {
					d.note("%d", at.N)
					return nil, nil
				})
				held := s.put(jobs.Spec{Name: "work", Queue: "q", Data: []byte(`{"n":1}`)})
				window := func(text string) {
					t.Helper()
					if err := s.store.Update(t.Context(), func(c context.Context, tx jobstore.Tx) error {
						j, err := tx.Get(c, held)
						if err != nil {
							return err
						}
						j.Window = text
						return tx.Save(c, &j)
					}); err != nil {
						t.Fatal(err)
					}
				}
				window("WINDOWS Mars/Olympus_Mons 00:00-12:00")
				s.run(r)
				s.put(jobs.Spec{Name: "work", Queue: "q", Data: []byte(`{"n":2}`)})
				time.Sleep(90 * time.Second)
				d.about(t, "0s: 2")
				reports := told.all()
				if len(reports) != 2 { // at once and after a minute
					t.Errorf("%d reports: %v", len(reports), reports)
				}
				for _, r := range reports {
					if r.Problem != runner.ProblemWindow || r.Job.ID != held || !strings.Contains(r.Err.Error(), "Mars/Olympus_Mons") || !strings.Contains(r.Err.Error(), "time/tzdata") {
						t.Errorf("%s of job %d: %v", r.Problem, r.Job.ID, r.Err)
					}
				}
				why, err := s.Explain(t.Context(), held)
				if err != nil || why.Reasons[0].Kind != jobs.WhyWindow || !strings.Contains(why.String(), "Mars/Olympus_Mons") {
					t.Errorf("%v, %v", why, err)
				}
				if j := s.job(held); j.State != jobs.Queued || j.Attempt != 0 {
					t.Errorf("%s, attempt %d", j.State, j.Attempt)
				}
				window("WINDOWS 00:00-12:00") // the text that a process that knows the zone reads
				time.Sleep(time.Minute)
				d.about(t, "0s: 2", "2m0s: 1")
			})
		})
	}
}
