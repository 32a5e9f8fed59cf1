package schedule_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/schedule"
	"github.com/swarmiji/swarmiji/schedule/memschedule"
	"github.com/swarmiji/swarmiji/task"
)

// TestADeploymentInAnyOrder changes a cron in code, and restarts ten listeners in random order, old
// programs among them, over hours. Each tick runs once, and after the first new program by the new
// spec only. The suite scheduletest does the same on each store, in real time.
func TestADeploymentInAnyOrder(t *testing.T) {
	seeds := uint64(4)
	if os.Getenv("SWARMIJI_THOROUGH") != "" {
		seeds = 10
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { deploy(t, rand.New(rand.NewPCG(seed, 0))) })
		})
	}
}

func deploy(t *testing.T, r *rand.Rand) {
	store, err := memschedule.New(memschedule.Config{Name: "app"})
	if err != nil {
		t.Fatal(err)
	}
	type run struct {
		text string
		n    int
	}
	var mu sync.Mutex
	runs := map[int64]*run{} // by the second
	var first time.Time      // when the first new program had started
	start := func(revision int64, cron, text string) (stop func()) {
		t.Helper()
		view := store.View()
		_, err := scheduled(t, schedule.Config{Store: view}).Sync(t.Context(), "app", revision, []schedule.Definition{
			{Name: "tell", At: schedule.ByCron(cron), Call: tell.Call(text)},
		}, schedule.SyncOptions{})
		if err != nil {
			t.Fatal(err)
		}
		l := listener(t, schedule.ListenerConfig{Store: view, Workers: 1})
		if err := tell.Handle(l, func(c context.Context, text string) (string, error) {
			mu.Lock()
			defer mu.Unlock()
			q, _ := task.FromContext(c)
			at := q.SentAt.Unix()
			if runs[at] == nil {
				runs[at] = &run{text: text}
			}
			runs[at].n++
			if want := schedule.TickID("app", schedule.NameID("tell"), q.SentAt); q.ID != want {
				t.Errorf("the tick at %v has the id %s, want %s", q.SentAt, q.ID, want)
			}
			return "", nil
		}); err != nil {
			t.Fatal(err)
		}
		return running(t, l)
	}
	before := func() func() { return start(1, "* * * * * */2 0", "old") }
	after := func() func() { return start(2, "* * * * * 1-59/3 0", "new") }
	begin := time.Now()
	stops := make([]func(), 10)
	for i := range stops {
		stops[i] = before()
	}
	for at, i := range r.Perm(len(stops)) {
		time.Sleep(time.Duration(r.IntN(600)) * time.Second)
		stops[i]()
		stops[i] = after()
		if at == 0 {
			first = time.Now()
		}
		if r.IntN(2) == 0 { // any program restarts, the old ones with their old code
			j := r.IntN(len(stops))
			time.Sleep(time.Duration(r.IntN(100)) * time.Second)
			stops[j]()
			stops[j] = before()
			time.Sleep(time.Duration(r.IntN(100)) * time.Second)
			stops[j]()
			stops[j] = after()
		}
	}
	time.Sleep(30 * time.Minute)
	for _, stop := range stops {
		stop()
	}
	for at := begin.Truncate(time.Minute).Add(time.Minute); !at.After(time.Now()); at = at.Add(time.Minute) {
		want := ""
		switch {
		case !at.After(first) && at.Minute()%2 == 0:
			want = "old"
		case at.After(first) && at.Minute()%3 == 1:
			want = "new"
		}
		got := runs[at.Unix()]
		delete(runs, at.Unix())
		switch {
		case want == "" && got != nil:
			t.Errorf("the tick at %v ran with %q; the first new program started at %v", at, got.text, first)
		case want != "" && (got == nil || got.n != 1 || got.text != want && at.Before(first.Add(-5*time.Second))):
			t.Errorf("the tick at %v: %+v, want one run with %q", at, got, want)
		}
	}
	for at := range runs {
		t.Errorf("a run at %v, which is no minute", at)
	}
}
