package scheduletest

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	diff "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/swarmiji/swarmiji/schedule"
)

// modelCases compares a store with a simple model of the rules.
func modelCases() []testCase {
	return []testCase{{
		Area: "change", Name: "as a list would do", Needs: []need{needsChange, needsList, needsPause},
		Explain: "After any changes by name and by revision, claims, crashes and pauses, a store holds the same entries and ticks as a simple list.",
		Run: func(w *world) {
			stores := []Store{w.Open(), w.Open()}
			round := 0
			rapid.Check(w.TB, func(t *rapid.T) {
				round++
				m := newModel(w, t, stores, round)
				defer m.clear()
				m.change()
				for range rapid.IntRange(1, 12).Draw(t, "steps") {
					m.step()
					m.compare()
				}
			})
		},
	}}
}

// modelClaim is a claim on a tick. leased is false after crash, and for a claim of NoOwner: the
// tick is then due.
type modelClaim struct {
	tick   schedule.Tick // as it was claimed
	due    int64
	owner  string
	leased bool
}

// modelEntry is an entry of the model. Times are Unix milliseconds; 0: none.
type modelEntry struct {
	payload, group, state string
	next                  int64
	paused                bool
	claims                []modelClaim
	runs                  []int64
}

// claim returns the claim on a tick; nil: the tick has no claim.
func (e *modelEntry) claim(due int64) *modelClaim {
	for i := range e.claims {
		if e.claims[i].due == due {
			return &e.claims[i]
		}
	}
	return nil
}

// unclaim removes the claim on a tick from e, if there is one.
func (e *modelEntry) unclaim(due int64) {
	e.claims = slices.DeleteFunc(e.claims, func(c modelClaim) bool { return c.due == due })
}

// model holds the expected content of a schedule, and performs random commands on it and on the
// stores. All times differ, and lie an hour or more before or after base, the time at the start.
type model struct {
	w      *world
	t      *rapid.T
	stores []Store
	base   int64
	serial int64
	ids    []string
	groups []string // the first is ""

	entries   map[string]*modelEntry
	revisions map[string]int64
	fresh     []schedule.Tick // due when the model was compared last
	stale     []schedule.Tick // due before
	started   map[string]bool // ticks that were claimed for the first time
}

// newModel returns a model of an empty schedule, with ids and names of groups that only this round
// uses. It stores nothing.
func newModel(w *world, t *rapid.T, stores []Store, round int) *model {
	m := &model{
		w: w, t: t, stores: stores, base: w.now(stores[0]).UnixMilli(),
		entries: map[string]*modelEntry{}, revisions: map[string]int64{}, started: map[string]bool{},
		groups: []string{"", fmt.Sprint("a", round), fmt.Sprint("b", round)},
	}
	for i := range 4 {
		m.ids = append(m.ids, schedule.NameID(fmt.Sprint(round, "-", i)))
	}
	return m
}

// store returns one of the two stores, drawn at random, as another process would use it.
func (m *model) store() Store { return m.stores[rapid.IntRange(0, 1).Draw(m.t, "store")] }

const day = int64(24 * time.Hour / time.Millisecond)

// past returns a time before base, in Unix milliseconds. No time is returned twice.
func (m *model) past() int64 { m.serial++; return m.base - day + m.serial*1000 }

// future returns a time after base, in Unix milliseconds. No time is returned twice.
func (m *model) future() int64 { m.serial++; return m.base + day + m.serial*1000 }

// at returns a time of the model as a time.Time; 0 becomes the zero time.
func at(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// payload returns a payload that differs from all others.
func (m *model) payload() string {
	m.serial++
	return fmt.Sprintf(`{"args":[%d],"cron":"* * * * 0 0 0","job":"suite"}`, m.serial)
}

// step draws a command at random and performs it.
func (m *model) step() {
	kinds := []func(){m.change, m.change, m.claim, m.claim, m.claim, m.done, m.crash, m.pause, m.resume, m.resume}
	kinds[rapid.IntRange(0, len(kinds)-1).Draw(m.t, "command")]()
}

// change draws a Change, executes it in a store and in the model, and fails the test if the answers
// differ.
func (m *model) change() {
	group := rapid.SampledFrom(m.groups).Draw(m.t, "group")
	c := schedule.Change{Group: group, DryRun: rapid.IntRange(0, 5).Draw(m.t, "dry") == 5}
	if group != "" {
		c.Revision = int64(rapid.IntRange(1, 4).Draw(m.t, "revision"))
	}
	for _, id := range m.ids {
		if !rapid.Bool().Draw(m.t, "wanted") {
			continue
		}
		e := schedule.Entry{ID: id, Payload: []byte(m.payload()), Next: at(m.future())}
		if old := m.entries[id]; old != nil && rapid.Bool().Draw(m.t, "same") {
			e.Payload = []byte(old.payload)
		}
		switch rapid.IntRange(0, 9).Draw(m.t, "time") {
		case 8:
			e.Next = at(m.past())
		case 9:
			e.Next = time.Time{}
		}
		c.Entries = append(c.Entries, e)
	}
	got, want := m.w.tryChange(m.store(), c), m.expect(&c)
	refused := slices.Contains(want.Outcomes, schedule.Late) || slices.Contains(want.Outcomes, schedule.Taken)
	if len(c.Entries) == 0 { // empty or nil
		got.Outcomes, got.Next, want.Outcomes, want.Next = nil, nil, nil, nil
	}
	if refused { // what else would happen is not promised
		got.Next, got.Removed, want.Next, want.Removed = nil, nil, nil, nil
	}
	if c.DryRun {
		got.Next, want.Next = nil, nil // a lost due time may not be known
	}
	for i := range got.Removed {
		got.Removed[i] = schedule.Entry{ID: got.Removed[i].ID, Payload: got.Removed[i].Payload}
	}
	if d := diff.Diff(want, got, diff.Comparer(sameTime), diff.Transformer("nil", func(list []schedule.Entry) string { return fmt.Sprint(list) })); d != "" {
		m.t.Fatalf("the answer to %+v (-want +got):\n%s", c, d)
	}
}

// expect returns the answer that a store must give to a change. It also makes the change in the
// model, unless it is a dry run or an outcome is Late or Taken.
func (m *model) expect(c *schedule.Change) schedule.Changed {
	var want schedule.Changed
	if c.Group != "" {
		if stored, ok := m.revisions[c.Group]; ok && stored > c.Revision {
			return schedule.Changed{Revision: stored}
		}
		want.Revision = c.Revision
	}
	want.Outcomes, want.Next = []schedule.Outcome{}, []time.Time{}
	var do []func()
	refused := c.DryRun
	wanted := map[string]bool{}
	for _, e := range c.Entries {
		outcome, next, act := m.expectEntry(c.Group, &e)
		want.Outcomes, want.Next = append(want.Outcomes, outcome), append(want.Next, at(next))
		do = append(do, act)
		refused = refused || outcome == schedule.Late || outcome == schedule.Taken
		wanted[e.ID] = true
	}
	ids := slices.Clone(m.ids)
	slices.Sort(ids)
	for _, id := range ids {
		if e := m.entries[id]; e != nil && c.Group != "" && e.group == c.Group && !wanted[id] {
			want.Removed = append(want.Removed, schedule.Entry{ID: id, Payload: []byte(e.payload)})
			do = append(do, func() { delete(m.entries, id) })
		}
	}
	if refused {
		return want
	}
	if c.Group != "" {
		m.revisions[c.Group] = c.Revision
	}
	for _, act := range do {
		act()
	}
	return want
}

// expectEntry returns the outcome that one entry of a change must have, its due time after the
// change (0: none), and a function that makes the change of this entry in the model. It changes
// nothing itself.
func (m *model) expectEntry(group string, e *schedule.Entry) (schedule.Outcome, int64, func()) {
	old, next, keep := m.entries[e.ID], int64(0), func() {}
	if !e.Next.IsZero() {
		next = e.Next.UnixMilli()
	}
	late := next < m.base
	if old == nil {
		switch {
		case next == 0:
			return schedule.EntryOver, 0, keep
		case late:
			return schedule.Late, 0, keep
		}
		return schedule.EntryAdded, next, func() {
			m.entries[e.ID] = &modelEntry{payload: string(e.Payload), group: group, next: next}
		}
	}
	if old.group != group {
		return schedule.Taken, old.next, keep
	}
	if old.payload == string(e.Payload) {
		if old.next == 0 && len(old.claims) == 0 && !old.paused {
			return schedule.EntryUnchanged, next, func() { old.next = next }
		}
		return schedule.EntryUnchanged, old.next, keep
	}
	if next == 0 {
		return schedule.EntryOver, 0, func() { delete(m.entries, e.ID) }
	}
	if old.paused {
		return schedule.EntryChanged, 0, func() { old.payload = string(e.Payload) }
	}
	if late {
		return schedule.Late, 0, keep
	}
	return schedule.EntryChanged, next, func() {
		if old.next != 0 && old.next < m.base {
			old.claims = append(old.claims, modelClaim{due: old.next, owner: schedule.NoOwner})
		}
		old.payload, old.next = string(e.Payload), next
	}
}

// claim draws a tick that was due at the last or at an earlier compare, and claims it in a store
// and in the model. It fails the test if the results differ. Without such a tick it does nothing.
func (m *model) claim() {
	ticks := m.fresh
	if rapid.IntRange(0, 2).Draw(m.t, "stale") == 2 {
		ticks = m.stale
	}
	if len(ticks) == 0 {
		return
	}
	k := rapid.SampledFrom(ticks).Draw(m.t, "tick")
	owner := rapid.SampledFrom([]string{"a", "b"}).Draw(m.t, "owner")
	next := rapid.SampledFrom([]int64{0, m.past(), m.future()}).Draw(m.t, "next")
	c := schedule.Claim{Tick: k, Next: at(next), Remember: rapid.Bool().Draw(m.t, "remember")}
	got, want := m.w.tryClaim(m.store(), owner, long, c)[0], m.expectClaim(owner, &c, next)
	if got != want {
		m.t.Fatalf("%s claims %v of %s: %v, want %v", owner, show([]schedule.Tick{k}), k.Payload, got, want)
	}
}

// expectClaim returns whether owner must get the tick of k, and claims it in the model. It fails
// the test if a tick is claimed for the first time twice.
func (m *model) expectClaim(owner string, k *schedule.Claim, next int64) bool {
	e, due := m.entries[k.ID], k.Due.UnixMilli()
	if e == nil {
		return false
	}
	c := e.claim(due)
	switch {
	case c != nil && c.owner == owner:
		c.leased = true
		return true
	case c != nil:
		if c.leased || c.owner != k.Owner {
			return false
		}
		c.tick, c.owner, c.leased = k.Tick, owner, true
		if e.next == 0 && !e.paused {
			e.next = next
		}
	default:
		if k.Owner != "" || e.next != due {
			return false
		}
		if name := fmt.Sprint(k.ID, due); m.started[name] {
			m.t.Fatalf("the tick %s was started twice", name)
		} else {
			m.started[name] = true
		}
		e.next = next
		e.claims = append(e.claims, modelClaim{tick: k.Tick, due: due, owner: owner, leased: true})
	}
	if k.Remember && !slices.Contains(e.runs, due) {
		e.runs = append(e.runs, due)
		slices.SortFunc(e.runs, func(a, b int64) int { return cmp.Compare(b, a) })
		e.runs = e.runs[:min(len(e.runs), schedule.KeptRuns)]
	}
	return true
}

// held returns a claim of an owner other than NoOwner, drawn at random, and its entry. It returns
// nil if there is no such claim.
func (m *model) held() (*modelEntry, *modelClaim) {
	var entries []*modelEntry
	var claims []*modelClaim
	for _, id := range m.ids {
		if e := m.entries[id]; e != nil {
			for i := range e.claims {
				if e.claims[i].owner != schedule.NoOwner {
					entries, claims = append(entries, e), append(claims, &e.claims[i])
				}
			}
		}
	}
	if len(claims) == 0 {
		return nil, nil
	}
	i := rapid.IntRange(0, len(claims)-1).Draw(m.t, "claim")
	return entries[i], claims[i]
}

// done ends a claim, drawn at random, in a store and in the model, with or without a state and the
// removal of its entry. It fails the test if the store does not hold the claim. Without a claim it
// does nothing.
func (m *model) done() {
	e, c := m.held()
	if e == nil {
		return
	}
	f := schedule.Finish{Tick: c.tick, Remove: rapid.Bool().Draw(m.t, "remove")}
	if rapid.Bool().Draw(m.t, "with state") {
		f.State = []byte(m.payload())
		e.state = string(f.State)
	}
	m.w.finish(m.store(), c.owner, f)
	e.unclaim(c.due)
	if f.Remove && e.next == 0 && len(e.claims) == 0 && e.payload == string(f.Payload) {
		delete(m.entries, f.ID)
	}
}

// crash releases a claim, drawn at random, so that its tick is due, as after the death of its
// owner. It fails the test if the store does not hold the claim. Without a claim it does nothing.
func (m *model) crash() {
	e, c := m.held()
	if e == nil {
		return
	}
	if !m.w.renew(m.store(), c.owner, 0, c.tick)[0] {
		m.t.Fatalf("%s had lost %v", c.owner, show([]schedule.Tick{c.tick}))
	}
	c.leased = false
}

// some returns an entry, drawn at random, and its id; nil if there is no entry.
func (m *model) some() (string, *modelEntry) {
	var ids []string
	for _, id := range m.ids {
		if m.entries[id] != nil {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return "", nil
	}
	id := rapid.SampledFrom(ids).Draw(m.t, "entry")
	return id, m.entries[id]
}

// pause pauses an entry, drawn at random, in a store and in the model. Without an entry it does
// nothing.
func (m *model) pause() {
	if id, e := m.some(); e != nil {
		m.w.pause(m.store(), id)
		e.paused, e.next = true, 0
	}
}

// resume draws an entry, often pauses it first, and resumes it in a store and in the model. Its new
// due time is in the past or in the future. Without an entry it does nothing.
func (m *model) resume() {
	id, e := m.some()
	if e == nil {
		return
	}
	if !e.paused && rapid.Bool().Draw(m.t, "pause") {
		m.w.pause(m.store(), id)
		e.paused = true
	}
	next := rapid.SampledFrom([]int64{m.past(), m.future()}).Draw(m.t, "next")
	m.w.resume(m.store(), id, at(next))
	if e.paused {
		e.paused, e.next = false, next
	}
}

// compare fails the test if the entries or the due ticks of a store differ from those of the model.
// It keeps the due ticks for claim.
func (m *model) compare() {
	s := m.store()
	var want, got []string
	for _, id := range m.ids {
		if e := m.entries[id]; e != nil {
			want = append(want, fmt.Sprintf("%.8s %s of %q, state %q, next %d, paused %v, runs %v", id, e.payload, e.group, e.state, e.next, e.paused, e.runs))
			if e.next != 0 && e.next < m.base {
				want = append(want, fmt.Sprintf("%.8s due %d of %q with %s", id, e.next, "", e.payload))
			}
			for _, c := range e.claims {
				if !c.leased {
					want = append(want, fmt.Sprintf("%.8s due %d of %q with %s", id, c.due, c.owner, e.payload))
				}
			}
		}
	}
	for id, e := range m.w.list(s, 100) {
		next := int64(0)
		if !e.Next.IsZero() {
			next = e.Next.UnixMilli()
		}
		var runs []int64
		for _, t := range e.Runs {
			runs = append(runs, t.UnixMilli())
		}
		got = append(got, fmt.Sprintf("%.8s %s of %q, state %q, next %d, paused %v, runs %v", id, e.Payload, e.Group, e.State, next, e.Paused, runs))
	}
	for _, k := range m.fresh {
		if k.Owner == "" { // of other ticks the store may know that they are older than its last answer
			m.stale = append(m.stale, k)
		}
	}
	m.fresh = m.w.due(s, 100).Ticks
	for _, k := range m.fresh {
		got = append(got, fmt.Sprintf("%.8s due %d of %q with %s", k.ID, k.Due.UnixMilli(), k.Owner, k.Payload))
	}
	slices.Sort(want)
	slices.Sort(got)
	if d := diff.Diff(want, got); d != "" {
		m.t.Fatalf("the schedule differs (-want +got):\n%s", d)
	}
}

// clear removes all entries from the store, so that the next run begins with an empty schedule.
func (m *model) clear() {
	for _, id := range m.ids {
		m.w.remove(m.stores[0], id)
	}
}
