package inspecttest

import (
	"fmt"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/capability"
	"github.com/swarmiji/swarmiji/inspect"
	"github.com/swarmiji/swarmiji/task"
)

func testQueues(w *world) {
	names := []string{"suite-a", "suite-b", "suite-c"}
	if d, ok := capability.As[broker.Declarer](w.swarm.Broker); ok {
		for _, name := range names {
			w.no(d.Declare(w.ctx(), broker.Queue{Name: name}))
		}
	}
	for i := range 3 {
		w.submit(okTask, task.ID(fmt.Sprintf("q-%d", i)))
	}
	w.submit(okTask, "q-later", task.WithDelay(waiting))
	idle := w.api(0)
	var q inspect.Queue
	w.until("three tasks wait", func() bool {
		var err error
		q, err = idle.GetQueue(w.ctx(), queue)
		w.no(err)
		return q.Ready == 3 || q.Ready == -1
	})
	if q.Name != queue || q.Consumers != 0 || q.Paused != 0 || q.Delayed != 1 && q.Delayed != -1 {
		w.Errorf("a queue without a consumer: %+v", q)
	}
	if q.Ready == 3 && q.Oldest.After(time.Now()) {
		w.Errorf("the oldest task waits since %v", q.Oldest)
	}
	_, err := idle.GetQueue(w.ctx(), "suite-none")
	w.is(err, inspect.ErrNotFound)

	// pages of named queues, and of all
	var got []string
	for query := (inspect.QueueQuery{Names: append(slices.Clone(names), "suite-none"), Limit: 2}); ; {
		page, err := idle.ListQueues(w.ctx(), query)
		w.no(err)
		for _, one := range page.Queues {
			got = append(got, one.Name)
		}
		if query.Cursor = page.Next; page.Next == "" {
			break
		}
	}
	if diff := cmp.Diff(names, got); diff != "" {
		w.Errorf("pages of queues: (-want +got)\n%s", diff)
	}
	page, err := idle.ListQueues(w.ctx(), inspect.QueueQuery{})
	w.no(err)
	if !slices.ContainsFunc(page.Queues, func(q inspect.Queue) bool { return q.Name == queue }) {
		w.Errorf("all queues are %+v, without %s", page.Queues, queue)
	}

	// purge counts first
	c, err := idle.PurgeQueue(w.ctx(), inspect.Purge{Queue: queue, DryRun: true})
	w.no(err)
	if c.Done != q.Ready || !c.DryRun || c.Do != inspect.DoPurgeQueue || c.Target != queue {
		w.Errorf("a dry run: %+v", c)
	}
	c, err = idle.PurgeQueue(w.ctx(), inspect.Purge{Queue: queue})
	w.no(err)
	if c.Done != 3 || c.DryRun {
		w.Errorf("a purge of three: %+v", c)
	}
	_, err = idle.PurgeQueue(w.ctx(), inspect.Purge{Queue: "suite-none"})
	w.is(err, inspect.ErrNotFound)

	// pause and resume
	_, err = idle.PauseQueue(w.ctx(), inspect.Pause{Queue: queue})
	w.is(err, inspect.ErrNoConsumer)
	w.consume()
	api := w.api(1)
	w.changedNode(api.PauseQueue(w.ctx(), inspect.Pause{Queue: queue, Reason: "deploy"}))
	q, err = api.GetQueue(w.ctx(), queue)
	w.no(err)
	if q.Consumers != 1 || q.Paused != 1 || q.Workers != 1 {
		w.Errorf("a paused queue: %+v", q)
	}
	w.changedNode(api.ResumeQueue(w.ctx(), queue))
	q, err = api.GetQueue(w.ctx(), queue)
	w.no(err)
	if q.Consumers != 1 || q.Paused != 0 {
		w.Errorf("a resumed queue: %+v", q)
	}
}

// changedNode fails the case unless the consumer has obeyed.
func (w *world) changedNode(c inspect.Change, err error) {
	w.Helper()
	w.no(err)
	if c.Done != 1 || len(c.Nodes) != 1 || c.Nodes[0].Node != node || c.Nodes[0].Error != "" {
		w.Errorf("a command to one consumer: %+v", c)
	}
}

// testKeys shows the keys of a fair queue in pages, and the errors for other queues.
func testKeys(w *world) {
	api := w.api(0)
	if _, lists := capability.As[broker.KeyLister](w.swarm.Broker); !lists {
		_, err := api.ListKeys(w.ctx(), inspect.KeyQuery{Queue: queue})
		w.is(err, inspect.ErrUnsupported)
		return
	}
	const fair = "suite-fair"
	w.no(broker.Declare(w.ctx(), w.swarm.Broker, broker.Queue{Name: fair, Fair: true}))
	for i, key := range []string{"b", "a", "b"} {
		w.no(w.swarm.Broker.Publish(w.ctx(), fair, &broker.Message{ID: fmt.Sprintf("k-%d", i), Key: key, Body: []byte("x")}))
	}
	var got []string
	for q := (inspect.KeyQuery{Queue: fair, Limit: 1}); ; {
		page, err := api.ListKeys(w.ctx(), q)
		w.no(err)
		for _, k := range page.Keys {
			got = append(got, fmt.Sprintf("%s %d", k.Key, k.Ready))
		}
		if q.Cursor = page.Next; page.Next == "" {
			break
		}
	}
	if diff := cmp.Diff([]string{"a 1", "b 2"}, got); diff != "" {
		w.Errorf("keys: (-want +got)\n%s", diff)
	}
	w.no(broker.Declare(w.ctx(), w.swarm.Broker, broker.Queue{Name: "suite-plain"}))
	_, err := api.ListKeys(w.ctx(), inspect.KeyQuery{Queue: "suite-plain"})
	w.is(err, inspect.ErrInvalid)
	_, err = api.ListKeys(w.ctx(), inspect.KeyQuery{Queue: "suite-none"})
	w.is(err, inspect.ErrNotFound)
}

func testMessages(w *world) {
	for i := range 3 {
		w.submit(okTask, task.ID(fmt.Sprintf("m-%d", i)))
	}
	w.submit(okTask, "m-later", task.WithDelay(waiting))
	api := w.api(0)
	list := func(place broker.Place) (ids []string) {
		w.Helper()
		for q := (inspect.MessageQuery{Queue: queue, Place: place, Limit: 2}); ; {
			page, err := api.ListMessages(w.ctx(), q)
			w.no(err)
			for _, m := range page.Messages {
				if m.Name != okTask.Name() || m.Place != place || m.Size == 0 || m.Unread != "" {
					w.Errorf("a message: %+v", m)
				}
				ids = append(ids, string(m.ID))
			}
			if q.Cursor = page.Next; page.Next == "" {
				return ids
			}
		}
	}
	_, err := api.ListMessages(w.ctx(), inspect.MessageQuery{Queue: queue, Place: "nowhere"})
	w.is(err, inspect.ErrInvalid)
	if _, lists := capability.As[broker.Lister](w.swarm.Broker); !lists {
		_, err := api.ListMessages(w.ctx(), inspect.MessageQuery{Queue: queue, Place: broker.PlaceWaiting})
		w.is(err, inspect.ErrUnsupported)
		return
	}
	w.until("the messages are listed", func() bool { return len(list(broker.PlaceWaiting)) == 3 })
	if diff := cmp.Diff([]string{"m-0", "m-1", "m-2"}, list(broker.PlaceWaiting)); diff != "" {
		w.Errorf("waiting: (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff([]string{"m-later"}, list(broker.PlaceDelayed)); diff != "" {
		w.Errorf("delayed: (-want +got)\n%s", diff)
	}
	_, err = api.ListMessages(w.ctx(), inspect.MessageQuery{Queue: "suite-none", Place: broker.PlaceWaiting})
	w.is(err, inspect.ErrNotFound)
}
