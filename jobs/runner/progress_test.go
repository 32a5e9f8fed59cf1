package runner_test

import (
	"encoding/json"
	"testing"
	"testing/synctest"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/jobs/runner"
	"github.com/swarmiji/swarmiji/task"
)

// TestTaskProgress shows that task.Progress stores its value under its own key in the job's data.
// Progress of this package replaces all data.
func TestTaskProgress(t *testing.T) {
	inShop(t, func(t *testing.T, s *shop) {
		steps := make(chan bool)
		r := s.runner(runner.Config{})
		handle(t, r, task.New[state, state]("feed"), func(c ctx, at state) (state, error) {
			task.Progress(c, 1, 4, "rows")
			<-steps
			if err := runner.Progress(c, state{50}); err != nil {
				t.Error(err)
			}
			<-steps
			task.Progress(c, 2, 4, "")
			<-steps
			return state{at.N + 1}, nil
		})
		defer s.run(r)()
		id := s.put(jobs.Spec{Name: "feed", Data: []byte(`{"n":7,"other":true}`)})
		data := func() (d struct {
			N        int                        `json:"n"`
			Other    bool                       `json:"other"`
			Progress map[string]json.RawMessage `json:"_progress"`
		},
		) {
			synctest.Wait()
			if err := json.Unmarshal(s.job(id).Data, &d); err != nil {
				t.Error(err)
			}
			return d
		}
		if d := data(); d.N != 7 || !d.Other || string(d.Progress["done"]) != "1" || string(d.Progress["total"]) != "4" || string(d.Progress["note"]) != `"rows"` {
			t.Errorf("after task.Progress: %+v", d)
		}
		steps <- true
		if d := data(); d.N != 50 || d.Other || d.Progress != nil {
			t.Errorf("after Progress of the runner: %+v", d)
		}
		steps <- true
		if d := data(); d.N != 50 {
			t.Errorf("after the second task.Progress: %+v", d)
		}
		steps <- true
		synctest.Wait()
	})
}
