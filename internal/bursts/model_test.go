package bursts

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/task"
)

// values is a Swapper with the clock of the model.
type values struct {
	m       *model
	value   []byte
	expires time.Time
}

func (v *values) Value(context.Context, string) ([]byte, error) {
	if v.m.now.Before(v.expires) {
		return v.value, nil
	}
	return nil, nil
}

func (v *values) Swap(ctx context.Context, key string, old, next []byte, ttl time.Duration) ([]byte, error) {
	if err := resultstore.CheckSwap(key, old, next, ttl); err != nil {
		return nil, err
	}
	there, _ := v.Value(ctx, key)
	if resultstore.MaySwap(there, old, next) {
		v.value, v.expires = bytes.Clone(next), v.m.now.Add(ttl)
		return next, nil
	}
	return there, nil
}

// message is a message in the model's broker, at least once delivered.
type message struct {
	id   task.ID
	mark Mark
	args int // number of the submission whose arguments it has
	at   time.Time
	busy bool // a consumer holds it
	gen  int
}

// model has one key, producers, consumers and a broker. Each step of a process is a function in
// todo, so that other steps come in between and the process may die before it.
type model struct {
	rt        *rapid.T
	store     *Store
	burst     task.Burst
	now       time.Time
	queue     []*message
	todo      []step
	made      int             // submissions
	joined    int             // submissions that have joined
	order     map[int]int     // place of a submission among those that have joined
	confirmed int             // place of the newest confirmed submission
	ids       map[int]task.ID // of confirmed submissions
	runs      []int           // arguments of the handlers, by start
	ran       map[task.ID]bool
	ended     map[task.ID]bool // tasks with a final record
	running   int
	kills     int
	draining  bool // nothing fails any more
	compares  bool // the broker drops a message whose id and generation are queued
	once      bool // tasks are acknowledged before their start
	held      map[*message]Attempt
	kept      map[task.ID]time.Time // the last Keep of a task that is not acknowledged yet
	gaveUp    map[task.ID]bool      // superseded tasks that did not start within their lease
}

// chance returns a number from 0 to most, 0 while the model drains.
func (m *model) chance(what string, most int) int {
	if m.draining {
		return 0
	}
	return rapid.IntRange(0, most).Draw(m.rt, what)
}

type step struct {
	run  func()
	dead func() // the process dies before the step
}

func (m *model) next(run, dead func()) { m.todo = append(m.todo, step{run, dead}) }

// submit begins a submission: join, publish, store the outcome.
func (m *model) submit() {
	m.made++
	args := m.made
	data, _ := json.Marshal(args)
	sub := Submission{ID: task.ID(fmt.Sprint("t", args)), Name: "task", Mark: NewMark(&m.burst), Data: data, Once: m.once}
	died := func() { m.kills++ }
	var join func()
	join = func() {
		begin := m.now
		j, err := m.store.Join(context.Background(), sub, func(id task.ID, _ int) bool { return m.ended[id] })
		if err != nil {
			m.rt.Fatalf("Join: %v", err)
		}
		if !j.Busy { // the arguments replace those of the submissions that have joined before
			m.joined++
			m.order[args] = m.joined
		}
		switch {
		case j.Busy:
			m.next(join, died)
		case !j.Publish:
			m.confirm(args, j.ID)
		default:
			m.next(func() {
				o := Confirmed
				switch m.chance("publish", 9) {
				case 9:
					o = Refused
				case 8, 7:
					o = Unknown
				}
				if m.now.Sub(begin) > 20*time.Second { // the time limit of a producer
					o = Refused
				}
				if o != Refused {
					m.publish(&message{id: j.ID, mark: sub.Mark, args: args, at: j.At, gen: j.Generation})
				}
				m.next(func() {
					err := m.store.Opened(context.Background(), sub, j, o)
					if err != nil && !errors.Is(err, resultstore.ErrStale) {
						m.rt.Fatalf("Opened: %v", err)
					}
					if o == Confirmed && err == nil {
						m.confirm(args, j.ID)
					}
				}, died)
			}, died)
		}
	}
	m.next(join, died)
}

// confirm notes that a submission has returned.
func (m *model) confirm(args int, id task.ID) {
	m.ids[args] = id
	m.confirmed = max(m.confirmed, m.order[args])
}

func (m *model) publish(msg *message) {
	for _, q := range m.queue {
		if m.compares && q.id == msg.id && q.gen == msg.gen {
			return
		}
	}
	m.queue = append(m.queue, msg)
}

// remove acknowledges a message.
func (m *model) remove(msg *message) {
	for i, q := range m.queue {
		if q == msg {
			m.queue = append(m.queue[:i:i], m.queue[i+1:]...)
			return
		}
	}
}

// deliver takes a message that is due, the i-th of them.
func (m *model) deliver(i int) bool {
	var due []*message
	for _, msg := range m.queue {
		if !msg.busy && !msg.at.After(m.now) {
			due = append(due, msg)
		}
	}
	if len(due) == 0 {
		return false
	}
	msg := due[i%len(due)]
	msg.busy = true
	back := func() { m.kills++; msg.busy = false }
	a := Attempt{ID: msg.id, Name: "task", Mark: msg.mark}
	m.next(func() {
		t, err := m.store.Take(context.Background(), a)
		if err != nil {
			m.rt.Fatalf("Take: %v", err)
		}
		ack := func() { m.remove(msg) }
		switch {
		case t.Step == Start && m.ended[a.ID]:
			m.finish(a, back, ack)
		case t.Step == Start && m.once:
			m.handleOnce(a, msg, back)
		case t.Step == Start:
			m.handle(a, msg, back, ack)
		case t.Step == Drop && t.Ended:
			m.finish(a, back, ack)
		case t.Step == Drop:
			m.next(ack, back)
		case t.Step == Superseded:
			if kept, ok := m.kept[a.ID]; ok && m.now.Sub(kept) > leaseTime {
				m.gaveUp[a.ID] = true
			}
			for args, id := range m.ids { // of a task that has ended it is a duplicate
				if id == a.ID && args == msg.args && !m.ended[id] && !(m.once && m.ran[id]) && !m.gaveUp[id] {
					m.rt.Fatalf("the confirmed submission %d of task %s is superseded", args, id)
				}
			}
			m.next(ack, back)
		default:
			again := &message{id: msg.id, mark: t.Mark, args: msg.args, at: m.now.Add(t.Delay), gen: msg.gen + 1}
			if t.Data != nil {
				_ = json.Unmarshal(t.Data, &again.args)
			}
			m.next(func() { m.publish(again); m.next(ack, back) }, back)
		}
	}, back)
	return true
}

// handle runs the handler of a message and settles its task.
func (m *model) handle(a Attempt, msg *message, back, ack func()) {
	m.next(func() {
		m.running++
		if m.burst.Latest && m.running > 1 {
			m.rt.Fatalf("two tasks of the key run at once")
		}
		m.runs, m.ran[a.ID] = append(m.runs, msg.args), true
		m.next(func() {
			m.running--
			if m.chance("outcome", 4) == 4 { // a retry: a copy in the place of the message
				msg.busy, msg.at, msg.gen = false, m.now.Add(3*time.Second), msg.gen+1
				return
			}
			m.ended[a.ID] = true
			m.finish(a, back, ack)
		}, func() { m.running--; back() })
	}, back)
}

// handleOnce acknowledges a message, runs its handler and settles its task.
func (m *model) handleOnce(a Attempt, msg *message, back func()) {
	keep := func() {
		if err := m.store.Keep(context.Background(), a); err != nil {
			m.rt.Fatalf("Keep: %v", err)
		}
	}
	m.next(func() {
		keep()
		m.kept[a.ID] = m.now
		m.next(func() {
			m.remove(msg)
			m.held[msg] = a
			m.running++
			if m.running > 1 {
				m.rt.Fatalf("two tasks of the key run at once")
			}
			m.runs, m.ran[a.ID] = append(m.runs, msg.args), true
			stop := func() { m.running--; delete(m.held, msg) }
			m.next(func() {
				stop()
				died := func() { m.kills++ }
				if m.chance("outcome", 4) == 4 { // a retry
					again := &message{id: msg.id, mark: msg.mark, args: msg.args, at: m.now.Add(3 * time.Second), gen: msg.gen + 1}
					m.next(func() { m.publish(again) }, died)
					return
				}
				m.ended[a.ID] = true
				m.finish(a, died, func() {})
			}, func() { m.kills++; stop() })
		}, back)
	}, back)
}

// pass lets time pass, in which the consumers renew their leases.
func (m *model) pass(d time.Duration) {
	m.now = m.now.Add(d)
	for _, a := range m.held {
		if err := m.store.Keep(context.Background(), a); err != nil {
			m.rt.Fatalf("Keep: %v", err)
		}
	}
}

// finish ends the burst of a task whose end is recorded, and acknowledges its message.
func (m *model) finish(a Attempt, back, ack func()) {
	if !m.burst.Latest {
		m.next(ack, back)
		return
	}
	m.next(func() {
		n, err := m.store.Finish(context.Background(), a)
		if err != nil {
			m.rt.Fatalf("Finish: %v", err)
		}
		if n == nil {
			m.next(ack, back)
			return
		}
		msg := &message{id: n.ID, mark: n.Mark}
		_ = json.Unmarshal(n.Data, &msg.args)
		m.next(func() {
			m.publish(msg)
			m.next(func() {
				if err := m.store.Followed(context.Background(), a, n); err != nil {
					m.rt.Fatalf("Followed: %v", err)
				}
				m.next(ack, back)
			}, back)
		}, back)
	}, back)
}

// step does the i-th of the steps that processes want to do, or kills its process.
func (m *model) step(i int, kill bool) bool {
	if len(m.todo) == 0 {
		return false
	}
	i %= len(m.todo)
	s := m.todo[i]
	m.todo = append(m.todo[:i:i], m.todo[i+1:]...)
	if kill {
		s.dead()
	} else {
		s.run()
	}
	return true
}

// drain lets all processes end, without kills, and time pass.
func (m *model) drain() {
	m.draining = true
	for range 20000 {
		m.pass(10 * time.Millisecond)
		switch {
		case m.step(0, false):
		case m.deliver(0):
		case len(m.queue) == 0:
			return
		default:
			m.pass(time.Second)
		}
	}
	m.rt.Fatalf("messages are left: %d", len(m.queue))
}

// TestModel runs random steps of producers and consumers, with kills between them. In the end the
// newest confirmed arguments ran last, or a newer unconfirmed submission, and the key is usable.
func TestModel(t *testing.T) {
	for name, burst := range map[string]task.Burst{
		"debounce":             {Key: "k", Quiet: 5 * time.Second, Most: 20 * time.Second},
		"latest":               {Key: "k", Latest: true},
		"latest, at most once": {Key: "k", Latest: true},
	} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				m := &model{rt: rt, burst: burst, now: time.UnixMilli(1_000_000), ids: map[int]task.ID{}, order: map[int]int{}, ended: map[task.ID]bool{}, ran: map[task.ID]bool{}, held: map[*message]Attempt{}, kept: map[task.ID]time.Time{}, gaveUp: map[task.ID]bool{}, once: name == "latest, at most once"}
				m.store = &Store{&values{m: m}, func() time.Time { return m.now }}
				m.compares = rapid.Bool().Draw(rt, "the broker compares ids")
				for range rapid.IntRange(5, 150).Draw(rt, "steps") {
					switch rapid.IntRange(0, 11).Draw(rt, "kind") {
					case 0, 1:
						m.submit()
					case 2, 3, 4:
						m.deliver(rapid.IntRange(0, 5).Draw(rt, "message"))
					case 5:
						m.step(rapid.IntRange(0, 9).Draw(rt, "process"), true)
					case 6:
						m.pass(time.Duration(rapid.IntRange(1, 40000).Draw(rt, "ms")) * time.Millisecond)
					default:
						m.step(rapid.IntRange(0, 9).Draw(rt, "process"), false)
					}
				}
				m.drain()
				m.check()
				// no key stays blocked: a later submission runs
				m.now = m.now.Add(time.Hour)
				m.submit()
				m.drain()
				if m.confirmed < m.joined { // its publish was refused or unknown
					m.now = m.now.Add(time.Hour)
					m.submit()
					m.drain()
				}
				m.check()
			})
		})
	}
}

// check fails the test unless the newest confirmed arguments ran, and each task of a confirmed
// submission.
func (m *model) check() {
	m.rt.Helper()
	for args, id := range m.ids {
		if !m.ran[id] && !m.gaveUp[id] {
			m.rt.Fatalf("task %s of submission %d never ran; runs: %v", id, args, m.runs)
		}
	}
	if m.confirmed == 0 {
		return
	}
	for _, args := range m.runs {
		if m.order[args] >= m.confirmed {
			return
		}
	}
	m.rt.Fatalf("submission %d is confirmed, but the runs are %v", m.confirmed, m.runs)
}

// TestJoinLater shows that a submission during a requeued task asks for the end of its last life.
func TestJoinLater(t *testing.T) {
	m := &model{now: time.UnixMilli(1_000_000)}
	s := &Store{&values{m: m}, func() time.Time { return m.now }}
	mark := NewMark(&task.Burst{Key: "k", Latest: true})
	if taken, err := s.Take(t.Context(), Attempt{ID: "first", Name: "task", Mark: mark, Life: 2}); err != nil || taken.Step != Start {
		t.Fatalf("Take: %+v, %v", taken, err)
	}
	m.now = m.now.Add(time.Minute)
	asked := -1
	j, err := s.Join(t.Context(), Submission{ID: "second", Name: "task", Mark: mark, Data: []byte("1")}, func(id task.ID, life int) bool {
		asked = life
		return false
	})
	if err != nil || j.Publish || asked != 2 {
		t.Errorf("Join: %+v, %v; the end of life %d was looked up, want 2", j, err, asked)
	}
}
