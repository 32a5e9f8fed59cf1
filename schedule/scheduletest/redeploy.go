package scheduletest

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/swarmiji/swarmiji/schedule"
	"github.com/swarmiji/swarmiji/task"
)

// deployed is one run of the task of [world.redeploy].
type deployed struct {
	due  time.Time
	text string
}

// deployedRuns collects runs by their task ids. Safe for concurrent use.
type deployedRuns struct {
	mu   sync.Mutex
	runs map[task.ID][]deployed
}

// add adds a run. It takes r.mu.
func (r *deployedRuns) add(id task.ID, d deployed) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.runs[id] = append(r.runs[id], d)
}

// len returns the number of tasks that have run. It takes r.mu.
func (r *deployedRuns) len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.runs)
}

// redeployCases tests programs that restart with another cron in their code.
func redeployCases() []testCase {
	return []testCase{{
		Area: "listener", Name: "a deployment in any order", Needs: []need{needsChange},
		Explain: "Code changes a cron, and listeners restart in random order, old programs among them: each tick runs once, after the first new program by the new spec only.",
		Run:     func(w *world) { w.redeploy(10, 2) },
	}}
}

// program is one version of a program: the revision of its entries, and their definition.
type program struct {
	revision int64
	cron     string
	text     string
}

// start starts the program p: it calls Sync with its entry and runs a listener that adds its runs
// to r. stop ends the listener, waits for its end and closes the store. It fails the test after an
// error.
func (w *world) start(p program, r *deployedRuns) (stop func()) {
	w.Helper()
	s := w.Open()
	ctx, cancel := w.Ctx()
	defer cancel()
	synced, err := w.schedule(s).Sync(ctx, "app", p.revision, []schedule.Definition{{
		Name: "say", At: schedule.ByCron(p.cron), Call: say.Call(p.text), Options: []schedule.Option{schedule.WithMisfire(schedule.MisfireAll(1000))},
	}}, schedule.SyncOptions{})
	w.Must(err, "Sync")
	if synced.Outdated != (synced.Revision > p.revision) {
		w.Errorf("Sync to revision %d: %+v", p.revision, synced)
	}
	l, err := schedule.NewListener(schedule.ListenerConfig{
		Store: s, Name: named(s), Workers: 1, Poll: 50 * time.Millisecond, Logger: slog.New(slog.DiscardHandler), ShutdownTimeout: w.Patience,
	})
	w.Must(err, "NewListener")
	w.Must(say.Handle(l, func(ctx context.Context, text string) (task.None, error) {
		q, _ := task.FromContext(ctx)
		r.add(q.ID, deployed{q.SentAt, text})
		return task.None{}, nil
	}), "Handle")
	running, end := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- l.Run(running) }()
	return func() {
		end()
		w.Must(<-ended, "Run")
		w.Close(s)
	}
}

// redeploy starts n old programs, replaces them in random order by new ones, while old ones
// restart, and waits for ticks of the new spec. The old programs run at even seconds, the new at
// odd ones.
func (w *world) redeploy(n, ticks int) {
	w.Helper()
	before := program{1, "* * * * * * */2", "old"}
	after := program{2, "* * * * * * 1-59/2", "new"}
	r := &deployedRuns{runs: map[task.ID][]deployed{}}
	s := w.Open()
	stops := make([]func(), n)
	stops[0] = w.start(before, r)
	begin := w.now(s)
	for i := range n - 1 {
		stops[i+1] = w.start(before, r)
	}
	w.Until("a tick by the old spec", func() bool { return r.len() > 0 })
	var lastOld, firstNew time.Time
	order := rand.Perm(n)
	for at, i := range order {
		if at > 0 { // an old program restarts, such as after a crash
			j := order[at+rand.IntN(n-at)]
			stops[j]()
			stops[j] = w.start(before, r)
		}
		stops[i]()
		if at == 0 {
			lastOld = w.now(s)
		}
		stops[i] = w.start(after, r)
		if at == 0 {
			firstNew = w.now(s)
		}
		if at == n/2 { // let a tick come meanwhile
			count := r.len()
			w.Until("a tick during the deployment", func() bool { return r.len() > count })
		}
	}
	count := r.len()
	w.Until("ticks by the new spec", func() bool { return r.len() >= count+ticks })
	for _, stop := range stops {
		stop()
	}
	w.checkDeployed(s, r, begin, lastOld, firstNew)
}

// checkDeployed fails the test unless each tick ran once: up to lastOld those by the old spec, and
// after firstNew those by the new one.
func (w *world) checkDeployed(s Store, r *deployedRuns, begin, lastOld, firstNew time.Time) {
	w.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	ran := map[int64]bool{}
	last := begin
	id := schedule.NameID("say")
	for task, runs := range r.runs {
		d := runs[0]
		if len(runs) != 1 {
			w.Errorf("the tick at %v ran %d times", d.due, len(runs))
		}
		if want := schedule.TickID(named(s), id, d.due); task != want {
			w.Errorf("the tick at %v has the task %s, want %s", d.due, task, want)
		}
		ran[d.due.Unix()] = true
		if d.due.After(last) {
			last = d.due
		}
		odd := d.due.Unix()%2 == 1
		if d.due.After(firstNew) && (!odd || d.text != "new") || d.due.Before(lastOld) && odd {
			w.Errorf("the tick at %v ran as %q; the new program had started between %v and %v", d.due, d.text, lastOld, firstNew)
		}
	}
	var missing []string
	for at := begin.Truncate(time.Second).Add(time.Second); !at.After(last); at = at.Add(time.Second) {
		odd := at.Unix()%2 == 1
		if (at.Before(lastOld) && !odd || at.After(firstNew) && odd) && !ran[at.Unix()] {
			missing = append(missing, fmt.Sprint(at))
		}
	}
	slices.Sort(missing)
	if len(missing) > 0 {
		w.Errorf("these ticks never ran: %v", missing)
	}
}
