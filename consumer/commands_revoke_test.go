package consumer_test

import (
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/control"
	"github.com/swarmiji/swarmiji/events/memevents"
	"github.com/swarmiji/swarmiji/revoke"
	"github.com/swarmiji/swarmiji/task"
)

// TestRemoteRevoke shows that a revoke command works on its consumer at once: it ends running tasks
// if asked, and waiting tasks do not start. Other consumers receive the revocation only over a bus
// of revocations.
func TestRemoteRevoke(t *testing.T) {
	for _, with := range []string{"a bus", "no bus", "a closed bus"} {
		t.Run("with "+with, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { remoteRevoke(t, with) })
		})
	}
}

func remoteRevoke(t *testing.T, with string) {
	bus, kept := memevents.New(memevents.Config{}), memevents.New(memevents.Config{Retain: revoke.Retention()})
	newList := func() *revoke.List {
		l, err := revoke.New(revoke.Config{Events: kept, Logger: slog.New(slog.DiscardHandler)})
		must0(t, err)
		return l
	}
	var list *revoke.List
	h := newHolding(t, consumer.QueueConfig{Workers: 2}, func(c *consumer.Config) {
		c.Report.NodeID, c.Control = "n1", &control.Config{Bus: bus}
		if with != "no bus" {
			list = newList()
			c.Revocations = list
		}
	})
	h.submit(0, 1, task.WithID("running"), task.WithIgnoreResult(false))
	h.submit(1, 1, task.WithID("spared"))
	h.b.run()
	h.want(2, 0)
	h.submit(2, 1, task.WithID("waiting"))
	h.submit(3, 1, task.WithID("other"))
	if with == "a closed bus" {
		must0(t, kept.Close(t.Context()))
		synctest.Wait()
	}

	client, err := control.NewClient(control.ClientConfig{Bus: bus})
	must0(t, err)
	revoked := func(terminate bool, ids ...task.ID) {
		t.Helper()
		rs, err := client.Send(t.Context(), control.Command{Do: control.DoRevoke, IDs: ids, Terminate: terminate}, control.Wait{Replies: 1, Timeout: time.Minute})
		if err != nil || (rs[0].Error != "") != (with == "a closed bus") {
			t.Fatalf("%+v, %v", rs, err)
		}
		synctest.Wait()
	}
	revoked(false, "spared", "waiting")
	h.want(2, 2) // running tasks continue
	revoked(true, "running")
	if rec, err := h.b.store.Load(t.Context(), "running"); err != nil || rec.State != task.StateRevoked {
		t.Errorf("the task that ran: %+v, %v; want that it is revoked", rec.State, err)
	}
	if diff := cmp.Diff([]int{0, 1, 3}, h.runs()); diff != "" {
		t.Errorf("what ran: %s", diff)
	}
	if with == "a bus" {
		late := newList()
		must0(t, late.Ready(t.Context()))
		for _, id := range []task.ID{"running", "spared", "waiting"} {
			if !late.Knows("default", &task.Envelope{ID: id}) {
				t.Errorf("a list that is made later does not know that %s is revoked", id)
			}
		}
		must0(t, late.Close(t.Context()))
	}
	for range 2 {
		h.release <- struct{}{}
	}
	synctest.Wait()
	h.b.end()
	if list != nil {
		must0(t, list.Close(t.Context()))
		if err := list.Revoke(t.Context(), revoke.Options{}, "x"); !errors.Is(err, revoke.ErrClosed) {
			t.Errorf("a closed list revokes: %v", err)
		}
	}
}

// TestRemoteRevokeDenied shows that a consumer that does not allow revoke commands makes no list of
// revocations.
func TestRemoteRevokeDenied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := memevents.New(memevents.Config{})
		h := newHolding(t, consumer.QueueConfig{Workers: 1}, func(c *consumer.Config) {
			c.Control = &control.Config{Bus: bus, Allow: []control.Action{control.DoPing}}
		})
		h.submit(0, 1, task.WithID("running"))
		h.b.run()
		h.want(1, 0)
		client, err := control.NewClient(control.ClientConfig{Bus: bus})
		must0(t, err)
		rs, err := client.Send(t.Context(), control.Command{Do: control.DoRevoke, IDs: []task.ID{"running"}, Terminate: true}, control.Wait{Replies: 1})
		if err != nil || rs[0].Error == "" {
			t.Errorf("%+v, %v; want an answer with an error", rs, err)
		}
		h.want(1, 0)
		h.release <- struct{}{}
		h.b.end()
	})
}
