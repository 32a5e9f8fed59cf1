package jobs_test

import (
	"testing"

	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/task"
)

// TestDefaultsAreRules shows that fields set by SetDefaults have the effects of given fields, also
// within one CreateAll. The caller's specs stay unchanged.
func TestDefaultsAreRules(t *testing.T) {
	bubble(t, func(w *world) {
		parent := w.create(jobs.Spec{Name: "parent"})
		w.get("parent")
		for name, fn := range map[string]func(*jobs.Spec){
			"sequence": func(s *jobs.Spec) { s.SequenceKey = "k" },
			"unique":   func(s *jobs.Spec) { s.Unique = true },
			"key":      func(s *jobs.Spec) { s.Key = "k" },
			"only":     func(s *jobs.Spec) { s.UniqueKey = "k" },
			"child":    func(s *jobs.Spec) { s.Parent = parent },
			"other":    func(s *jobs.Spec) { s.Name, s.Unique, s.Priority = "unique", true, task.Set(3) },
		} {
			w.SetDefaults(name, fn)
		}
		one, two := w.create(jobs.Spec{Name: "sequence"}), w.create(jobs.Spec{Name: "sequence"})
		w.state(jobs.Queued, one)
		w.state(jobs.Waiting, two)

		for _, name := range []string{"key", "only"} {
			w.create(jobs.Spec{Name: name})
			w.is(second(w.Create(w.Context(), jobs.Spec{Name: name})), jobs.ErrKeyTaken)
			w.create(jobs.Spec{Name: name, NoDefaults: true})
		}

		all := []jobs.Spec{{Name: "unique"}, {Name: "unique"}, {Name: "other"}}
		made, err := w.CreateAll(w.Context(), all)
		w.ok(err)
		again, err := w.Create(w.Context(), jobs.Spec{Name: "unique"})
		w.ok(err)
		if made[0].Existed || !made[1].Existed || !made[2].Existed || !again.Existed || made[2].ID != made[0].ID || again.ID != made[0].ID {
			t.Errorf("unique jobs by default: %+v, %+v", made, again)
		}
		if all[0].Unique || all[2].Name != "other" {
			t.Errorf("the caller's specs have changed: %+v", all)
		}

		w.state(jobs.Paused, w.create(jobs.Spec{Name: "child"}))
		if !w.job(parent).HasChildren {
			t.Error("the parent by default does not know its child")
		}
	})
}
