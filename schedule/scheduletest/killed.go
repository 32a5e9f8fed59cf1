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
	killedRuns    = 60 // that begin from one kill to the next
)

// Killed has three processes share the schedule name at url, kills five of them with SIGKILL while they work, and replaces each.
// Every tick is run, of 500 one-shots and of an entry that is due each second; what runs again was held by a killed listener (or by
// one that was late for its lease), and has the same id. The schedule has to be empty, and its store a schedule.Lister.
//
// The processes are the test binary again, whose TestMain has to call [Child] with the same open. They die with the tests, however these end.
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
	k := &killing{t: t, ctx: ctx, sched: sched, crew: newCrew(t, url, name), once: map[task.ID]bool{}}
	k.add()
	k.work()
	k.check()
}

// killing is one such test.
type killing struct {
	t     *testing.T
	ctx   context.Context
	sched *schedule.Schedule
	crew  *crew

	once  map[task.ID]bool // the tasks of the one-shots
	every schedule.Added   // the entry that is due each second
}

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
	// All of its ticks are made up for, so that on a slow machine none may be missing either.
	k.every, err = k.sched.Add(k.ctx, schedule.ByCron("* * * * * * *"), work.Call(-1), schedule.WithMisfire(schedule.MisfireAll(1000)))
	if err != nil {
		k.t.Fatal(err)
	}
}

// until waits for something.
func (k *killing) until(what string, ok func() bool) {
	k.t.Helper()
	for !ok() {
		if odd := k.crew.complaints(); len(odd) > 0 {
			k.t.Fatalf("the children say %q", odd)
		}
		select {
		case <-k.ctx.Done():
			found, gap := k.seconds()
			k.t.Fatalf("%s: not in time; %d runs have begun, of them %d of the recurring entry, of which these are missing: %v",
				what, len(k.crew.said()), found, gap)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (k *killing) work() {
	k.t.Helper()
	alive := []*suite.Member{k.crew.Hire(), k.crew.Hire(), k.crew.Hire()}
	for i := range killedKills {
		k.until("runs of live listeners", func() bool { return len(k.crew.said()) >= killedRuns*(i+1) })
		alive[i%len(alive)].Kill()
		alive[i%len(alive)] = k.crew.Hire()
	}
	k.until("all one-shots", func() bool {
		ran := k.crew.ran()
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
		if err := p.Dismiss(); err != nil {
			k.t.Errorf("%s: %v", p.Node, err)
		}
	}
}

func (k *killing) check() {
	k.t.Helper()
	killed := map[string]bool{}
	for _, p := range k.crew.All() {
		killed[p.Node] = p.Killed
	}
	runs := map[task.ID][]string{}
	for _, r := range k.crew.said() {
		runs[r.id] = append(runs[r.id], r.node)
	}
	if odd := k.crew.complaints(); len(odd) > 0 {
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
		// A killed listener may have begun the run once in vain; what is left is to be one run.
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
	if taken > 0 && k.crew.late == 0 {
		k.t.Errorf("%d runs more than there were ticks and kills, and no listener was late for its lease", taken)
	}
	k.t.Logf("%d ticks, %d of them run again", len(runs), repeated)
}

// seconds returns how many ticks of the recurring entry have run, and which of those before the last of them have not.
func (k *killing) seconds() (found int, gap []time.Time) {
	ran := k.crew.ran()
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

func set(nodes []string) map[string]bool {
	m := map[string]bool{}
	for _, n := range nodes {
		m[n] = true
	}
	return m
}
