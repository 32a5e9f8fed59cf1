package inspecttest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/deadletter"
	"github.com/swarmiji/swarmiji/inspect"
	"github.com/swarmiji/swarmiji/task"
)

// letters makes dead letters of a task without a handler, with ids from 0 on.
func (w *world) letters(name string, n int) {
	w.Helper()
	l, err := deadletter.New(deadletter.Config{Broker: w.swarm.Broker})
	w.no(err)
	var lines bytes.Buffer
	for i := range n {
		body := fmt.Sprintf(`{"task":%q,"id":"%s-%d","args":"secret %d","headers":{"tenant":"%d"}}`, name, name, i, i, i%2)
		message, err := json.Marshal(map[string]any{"v": 1, "id": fmt.Sprintf("%s-%d", name, i), "contentType": "application/json", "body": []byte(body), "priority": 100})
		w.no(err)
		_, _ = fmt.Fprintf(&lines, `{"swarmiji_dead":1,"queue":%q,"reason":"reason %d of %s","attempts":3,"message":%s}`+"\n", queue, i, name, message)
	}
	got, err := l.Import(w.ctx(), queue, &lines)
	w.no(err)
	if got != n {
		w.Fatalf("%d letters were imported, want %d", got, n)
	}
}

// deadIDs lists all letters that match, in pages of two.
func (w *world) deadIDs(api inspect.API, f inspect.DeadFilter) (ids []string) {
	w.Helper()
	f.Queue = queue
	for q := (inspect.DeadQuery{DeadFilter: f, Limit: 2}); ; {
		page, err := api.ListDead(w.ctx(), q)
		w.no(err)
		if len(page.Letters) > 2 {
			w.Fatalf("a page of %d letters", len(page.Letters))
		}
		for _, l := range page.Letters {
			if l.Args != nil || l.Stack != "" || l.Queue != queue {
				w.Errorf("a letter in a list: %+v", l)
			}
			ids = append(ids, l.ID)
		}
		if q.Cursor = page.Next; page.Next == "" {
			return ids
		}
	}
}

func testDead(w *world) {
	w.submit(okTask, "alive") // makes the queue
	w.letters("a", 3)
	w.letters("b", 2)
	api := w.api(0)
	for _, c := range []struct {
		f    inspect.DeadFilter
		want []string
	}{
		{inspect.DeadFilter{}, []string{"a-0", "a-1", "a-2", "b-0", "b-1"}},
		{inspect.DeadFilter{Name: "a"}, []string{"a-0", "a-1", "a-2"}},
		{inspect.DeadFilter{Name: "?", Error: "reason 1"}, []string{"a-1", "b-1"}},
		{inspect.DeadFilter{IDs: []task.ID{"b-0", "a-2", "none"}}, []string{"a-2", "b-0"}},
		{inspect.DeadFilter{YoungerThan: inspect.Duration(time.Hour), Name: "b*"}, []string{"b-0", "b-1"}},
		{inspect.DeadFilter{Headers: map[string]string{"tenant": "1"}}, []string{"a-1", "b-1"}},
		{inspect.DeadFilter{OlderThan: inspect.Duration(time.Hour)}, nil},
	} {
		if diff := cmp.Diff(c.want, w.deadIDs(api, c.f)); diff != "" {
			w.Errorf("letters of %+v: (-want +got)\n%s", c.f, diff)
		}
		c.f.Queue = queue
		n, err := api.SummarizeDead(w.ctx(), inspect.DeadCount{DeadFilter: c.f})
		w.no(err)
		if n.Count != (inspect.Count{N: len(c.want)}) {
			w.Errorf("%+v counts %v, want %d", c.f, n, len(c.want))
		}
	}
	sum, err := api.SummarizeDead(w.ctx(), inspect.DeadCount{DeadFilter: inspect.DeadFilter{Queue: queue}, Limit: 1})
	w.no(err)
	if sum.N != 1 || !sum.More {
		w.Errorf("a count with a limit of 1: %+v", sum)
	}
	sum, err = api.SummarizeDead(w.ctx(), inspect.DeadCount{DeadFilter: inspect.DeadFilter{Queue: queue}})
	w.no(err)
	if diff := cmp.Diff(map[string]int{"a": 3, "b": 2}, sum.Names); diff != "" || sum.Reasons["reason 1 of b"] != 1 || sum.Bytes == 0 || sum.Oldest.IsZero() {
		w.Errorf("a summary: %+v, names (-want +got)\n%s", sum, diff)
	}

	// one letter
	d, err := api.GetDead(w.ctx(), inspect.DeadKey{Queue: queue, ID: "a-1"})
	w.no(err)
	if d.Name != "a" || d.Args != nil || d.Headers["tenant"] != "1" || d.Attempts != 3 || d.At.IsZero() || d.Letters != 1 || d.Unread != "" {
		w.Errorf("a letter: %+v", d)
	}
	d, err = api.GetDead(w.ctx(), inspect.DeadKey{Queue: queue, ID: "a-1", Args: true})
	w.no(err)
	if string(d.Args) != `"secret 1"` {
		w.Errorf("its arguments: %s", d.Args)
	}
	_, err = api.GetDead(w.ctx(), inspect.DeadKey{Queue: queue, ID: "none"})
	w.is(err, inspect.ErrNotFound)
	_, err = api.ListDead(w.ctx(), inspect.DeadQuery{DeadFilter: inspect.DeadFilter{Queue: "suite-none"}})
	w.is(err, inspect.ErrNotFound)

	w.exported(api)

	// letters that are not named by their ids are dropped only with the name of the queue
	for _, f := range []inspect.DeadFilter{{}, {Name: "*"}, {Name: "?*"}, {Name: "a"}, {Error: "reason"}, {OlderThan: 1}} {
		for _, confirm := range []string{"", "*", "yes"} {
			f.Queue = queue
			_, err := api.DropDead(w.ctx(), inspect.DeadChange{DeadFilter: f, Confirm: confirm})
			w.is(err, inspect.ErrInvalid)
		}
	}
	_, err = api.DropDead(w.ctx(), inspect.DeadChange{})
	w.is(err, inspect.ErrInvalid)

	// a dry run changes nothing
	some := inspect.DeadFilter{Queue: queue, Name: "a"}
	for _, do := range []func() (inspect.Change, error){
		func() (inspect.Change, error) {
			return api.RequeueDead(w.ctx(), inspect.DeadChange{DeadFilter: some, DryRun: true})
		},
		func() (inspect.Change, error) {
			return api.DropDead(w.ctx(), inspect.DeadChange{DeadFilter: some, DryRun: true})
		},
	} {
		c, err := do()
		w.no(err)
		if c.Done != 3 || !c.DryRun || c.Target != queue {
			w.Errorf("a dry run for three letters: %+v", c)
		}
	}
	c, err := api.DropDead(w.ctx(), inspect.DeadChange{DeadFilter: inspect.DeadFilter{Queue: queue, Name: "b"}, Confirm: queue})
	w.no(err)
	if c.Done != 2 || c.More || c.Do != inspect.DoDropDead {
		w.Errorf("two letters are dropped: %+v", c)
	}
	if diff := cmp.Diff([]string{"a-0", "a-1", "a-2"}, w.deadIDs(api, inspect.DeadFilter{})); diff != "" {
		w.Errorf("letters after a drop: (-want +got)\n%s", diff)
	}
	c, err = api.RequeueDead(w.ctx(), inspect.DeadChange{DeadFilter: inspect.DeadFilter{Queue: queue, IDs: []task.ID{"a-1"}}})
	w.no(err)
	if c.Done != 1 || c.More || c.Refused != 0 {
		w.Errorf("a letter is requeued: %+v", c)
	}
	if diff := cmp.Diff([]string{"a-0", "a-2"}, w.deadIDs(api, inspect.DeadFilter{})); diff != "" {
		w.Errorf("letters after a requeue: (-want +got)\n%s", diff)
	}
}

// exported exports all letters in pages, and reads them back.
func (w *world) exported(api inspect.API) {
	w.Helper()
	var lines [][]byte
	for q := (inspect.DeadQuery{DeadFilter: inspect.DeadFilter{Queue: queue}, Limit: 2}); ; {
		page, err := api.ExportDead(w.ctx(), q)
		w.no(err)
		for _, line := range page.Lines {
			lines = append(lines, line)
		}
		if q.Cursor = page.Next; page.Next == "" {
			break
		}
	}
	if len(lines) != 5 || !strings.Contains(string(lines[0]), `"reason":"reason 0 of a"`) {
		w.Fatalf("%d exported lines, the first is %s", len(lines), lines[0])
	}
	l, err := deadletter.New(deadletter.Config{Broker: w.swarm.Broker})
	w.no(err)
	other := queue + "-copy"
	if d, ok := capability.As[broker.Declarer](w.swarm.Broker); ok {
		w.no(d.Declare(w.ctx(), broker.Queue{Name: other}))
	}
	n, err := l.Import(w.ctx(), other, bytes.NewReader(bytes.Join(lines, []byte("\n"))))
	w.no(err)
	if n != 5 {
		w.Errorf("%d of five exported letters can be imported", n)
	}
}

func testDeadBound(w *world) {
	w.submit(okTask, "alive")
	w.letters("a", 5)
	api := w.api(0)
	all := inspect.DeadFilter{Queue: queue}
	c, err := api.RequeueDead(w.ctx(), inspect.DeadChange{DeadFilter: all, Limit: 2})
	w.no(err)
	if c.Done != 2 || !c.More {
		w.Errorf("two of five letters are requeued: %+v", c)
	}
	c, err = api.DropDead(w.ctx(), inspect.DeadChange{DeadFilter: all, Limit: 2, Confirm: queue})
	w.no(err)
	if c.Done != 2 || !c.More {
		w.Errorf("two of three letters are dropped: %+v", c)
	}
	// RabbitMQ may put the letters that a scan has only looked at back in another order
	if left := w.deadIDs(api, inspect.DeadFilter{}); len(left) != 1 {
		w.Errorf("one letter is left: %v", left)
	}
	c, err = api.DropDead(w.ctx(), inspect.DeadChange{DeadFilter: all, Limit: 2, Confirm: queue})
	w.no(err)
	if c.Done != 1 || c.More {
		w.Errorf("the last letter is dropped: %+v", c)
	}
}
