package scheduletest

import (
	"context"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/internal/suite"
	"github.com/swarmiji/swarmiji/schedule"
	"github.com/swarmiji/swarmiji/task"
)

const (
	killedEntries = 500 // one-shots that are due at once
	killedKills   = 5
	killedRuns    = 60 // runs between two kills
)

// Killed starts three processes with listeners of the schedule name at url. It kills five of them
// with SIGKILL while they run tasks, and replaces each.
//
// It fails unless each tick runs: those of 500 one-shots and of an entry that is due each second. A
// tick may run again, with the same id, only if a killed or late listener held it. The schedule
// must be empty at the start, and its store must be a schedule.Lister.
//
// The processes run the test binary, whose TestMain must call [Child] with the same open. They end
// with the test.
func Killed(t *testing.T, url, name string, open func(url, name string) (Store, error)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	s, err := open(url, name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.WithoutCancel(ctx)); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	sched, err := schedule.New(schedule.Config{Store: s, Name: name})
	if err != nil {
		t.Fatal(err)
	}
	k := &killing{t: t, ctx: ctx, sched: sched, children: startChildren(t, url, name), once: map[task.ID]bool{}}
	k.add()
	k.work()
	k.check()
}

// killing is the state of one run of Killed.
type killing struct {
	t        *testing.T
	ctx      context.Context
	sched    *schedule.Schedule
	children *children

	once  map[task.ID]bool // the tasks of the one-shots
	every schedule.Added   // the entry that is due each second
}

// add adds the one-shots and the recurring entry. It keeps the task ids of the one-shots in k.once,
// and the recurring entry in k.every. It fails the test after an error.
func (k *killing) add() {
	k.t.Helper()
	calls := make([]task.Call, killedEntries)
	for i := range calls {
		calls[i] = work.Call(i)
	}
	added, err := k.sched.AddAll(k.ctx, schedule.Now(), calls)
	if err != nil {
		k.t.Fatal(err)
	}
	for _, a := range added {
		k.once[schedule.TickID(k.sched.Name(), a.ID, a.Next)] = true
	}
	// Run all missed ticks, so that none is missing on a slow machine.
	k.every, err = k.sched.Add(k.ctx, schedule.ByCron("* * * * * * *"), work.Call(-1), schedule.WithMisfire(schedule.MisfireAll(1000)))
	if err != nil {
		k.t.Fatal(err)
	}
}

// until waits until ok returns true. It fails the test if a child reports a problem or the time is
// up.
func (k *killing) until(what string, ok func() bool) {
	k.t.Helper()
	for !ok() {
		if odd := k.children.complaints(); len(odd) > 0 {
			k.t.Fatalf("the children say %q", odd)
		}
		select {
		case <-k.ctx.Done():
			found, gap := k.seconds()
			k.t.Fatalf("%s: not in time; %d runs have begun, of them %d of the recurring entry, of which these are missing: %v",
				what, len(k.children.said()), found, gap)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// work starts three children and, five times, waits for runs, kills one and starts another. Then it
// waits until all one-shots have run and are deleted, and until the recurring entry misses no tick.
// It stops the children.
func (k *killing) work() {
	k.t.Helper()
	alive := []*suite.Process{k.children.Start(), k.children.Start(), k.children.Start()}
	for i := range killedKills {
		k.until("runs of live listeners", func() bool { return len(k.children.said()) >= killedRuns*(i+1) })
		alive[i%len(alive)].Kill()
		alive[i%len(alive)] = k.children.Start()
	}
	k.until("all one-shots", func() bool {
		ran := k.children.ran()
		for id := range k.once {
			if !ran[id] {
				return false
			}
		}
		return true
	})
	k.until("one-shots that are done and gone", func() bool {
		left := 0
		for _, err := range k.sched.List(k.ctx) {
			if err != nil {
				k.t.Fatal(err)
			}
			left++
		}
		return left == 1
	})
	n, _ := k.seconds()
	k.until("each tick of the recurring entry, and two more of them", func() bool {
		found, gap := k.seconds()
		return found >= n+2 && len(gap) == 0
	})
	for _, p := range alive {
		if err := p.Stop(); err != nil {
			k.t.Errorf("%s: %v", p.Node, err)
		}
	}
}

// check fails the test if a run belongs to no tick, or if ticks ran again more often than killed or
// late listeners explain. It logs how many ran again.
func (k *killing) check() {
	k.t.Helper()
	killed := map[string]bool{}
	for _, p := range k.children.All() {
		killed[p.Node] = p.Killed
	}
	runs := map[task.ID][]string{}
	for _, r := range k.children.said() {
		runs[r.id] = append(runs[r.id], r.node)
	}
	if odd := k.children.complaints(); len(odd) > 0 {
		k.t.Errorf("the children say %q", odd)
	}
	if found, _ := k.seconds(); found+len(k.once) != len(runs) {
		k.t.Errorf("%d tasks are of no tick", len(runs)-len(k.once)-found)
	}
	repeated, taken := 0, 0
	for id, nodes := range runs {
		if len(nodes) > 1 {
			repeated++
		}
		// A killed listener may have started the run before. Without it, exactly one run must remain.
		once := len(nodes)
		for node := range set(nodes) {
			if killed[node] {
				once--
			}
		}
		if once > 1 {
			k.t.Logf("task %s ran on %v", id, nodes)
			taken += once - 1
		}
	}
	if taken > 0 && k.children.late == 0 {
		k.t.Errorf("%d runs more than there were ticks and kills, and no listener was late for its lease", taken)
	}
	k.t.Logf("%d ticks, %d of them run again", len(runs), repeated)
}

// seconds returns how many ticks of the recurring entry have run, and the times of the missing
// ticks before the last one.
func (k *killing) seconds() (found int, gap []time.Time) {
	ran := k.children.ran()
	var missing []time.Time
	for at, end := k.every.Next, time.Now().Add(time.Minute); at.Before(end); at = at.Add(time.Second) {
		if ran[schedule.TickID(k.sched.Name(), k.every.ID, at)] {
			found++
			gap = missing
		} else {
			missing = append(missing, at)
		}
	}
	return found, gap
}

// set returns a set of the given names.
func set(nodes []string) map[string]bool {
	m := map[string]bool{}
	for _, n := range nodes {
		m[n] = true
	}
	return m
}
