package consumer_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/control"
	"github.com/swarmiji/swarmiji/events/memevents"
)

// TestRemote (S75) shows that a consumer answers and executes commands until it ends.
func TestRemote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := memevents.New(memevents.Config{})
		h := newHolding(t, consumer.QueueConfig{Workers: 2, PrefetchMultiplier: 3}, func(c *consumer.Config) {
			c.Report.NodeID, c.Control = "n1", &control.Config{Bus: bus}
		})
		h.submit(0, 20)
		h.b.run()
		synctest.Wait()
		client, err := control.NewClient(control.ClientConfig{Bus: bus})
		must0(t, err)
		order := func(c control.Command) control.Reply {
			t.Helper()
			rs, err := client.Send(t.Context(), c, control.Wait{Replies: 1})
			if err != nil || rs[0].Node != "n1" {
				t.Fatalf("%s: %+v, %v", c.Do, rs, err)
			}
			synctest.Wait()
			return rs[0]
		}
		if r := order(control.Command{Do: control.DoRegistered}); len(r.Names) != 2 || r.Names[1] != "hold" {
			t.Errorf("registered: %+v", r)
		}
		if r := order(control.Command{Do: control.DoActive}); len(r.Tasks) != 2 || r.Tasks[0].Name != "hold" || r.Tasks[0].Attempt != 1 || r.Tasks[0].ID == "" || r.Tasks[0].Since.IsZero() {
			t.Errorf("active: %+v", r)
		}
		order(control.Command{Do: control.DoScale, Queues: []string{"default"}, Workers: 5})
		s := order(control.Command{Do: control.DoStats}).Stats
		if want := (control.QueueStats{Name: "default", Workers: 5, Prefetch: 15, Active: 5}); s == nil || s.Queues[0] != want || s.Totals["started"] != 5 {
			t.Errorf("stats after the scale: %+v, want %+v and 5 started", s, want)
		}
		order(control.Command{Do: control.DoPause})
		for range 5 {
			h.release <- struct{}{}
		}
		synctest.Wait()
		if s := order(control.Command{Do: control.DoStats}).Stats; s.Queues[0].Active != 0 || !s.Queues[0].Paused || s.Totals["succeeded"] != 5 {
			t.Errorf("stats after the pause: %+v", s)
		}
		order(control.Command{Do: control.DoResume})
		if n := len(h.runs()); n != 10 {
			t.Errorf("%d tasks have started after the resume, want 10", n)
		}
		if r := order(control.Command{Do: control.DoRateLimit, Task: "hold", Rate: "1/h"}); r.Error != "" {
			t.Errorf("rate limit: %+v", r)
		}
		if r := order(control.Command{Do: control.DoScale, Queues: []string{"default"}, Workers: 12}); r.Error != "" {
			t.Errorf("scale: %+v", r)
		}
		if n := len(h.runs()); n > 11 { // the bucket holds one token
			t.Errorf("%d tasks have started although the rate is 1/h", n)
		}
		if r := order(control.Command{Do: control.DoRateLimit, Task: "hold", Rate: control.RateDefault}); r.Error != "" {
			t.Errorf("rate limit taken back: %+v", r)
		}
		if n := len(h.runs()); n != 17 {
			t.Errorf("%d tasks have started when the rate was taken back, want 17", n)
		}
		if s := order(control.Command{Do: control.DoStats}).Stats; s.Stopping {
			t.Errorf("a consumer that runs is stopping: %+v", s)
		}
		order(control.Command{Do: control.DoShutdown})
		// it still runs tasks and answers
		if s := order(control.Command{Do: control.DoStats}).Stats; !s.Stopping || s.Queues[0].Active == 0 {
			t.Errorf("stats after the shutdown: %+v", s)
		}
		begin := time.Now()
		order(control.Command{Do: control.DoShutdown, Kill: true})
		if err := h.b.stop(); err == nil || !strings.Contains(err.Error(), "were running") {
			t.Errorf("Run after kill: %v, want that tasks were running", err)
		}
		if took := time.Since(begin); took > consumer.DefaultKillGrace {
			t.Errorf("the kill took %v", took)
		}
		if got := h.b.c.ControlCounts(); got.Obeyed != 14 {
			t.Errorf("%+v, want 14 commands obeyed", got)
		}
		h.b.stop = func() error { return nil }
		h.b.end()
	})
}

// TestRemoteAtTheStart shows that a consumer that waits for its broker does not answer commands,
// which it could not execute. It answers when it consumes.
func TestRemoteAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus, open := memevents.New(memevents.Config{}), make(chan struct{})
		h := newHolding(t, consumer.QueueConfig{}, func(c *consumer.Config) {
			c.Control = &control.Config{Bus: bus}
			c.Broker = refusing{c.Broker.(*membroker.Broker), func(ctx context.Context) error {
				select {
				case <-open:
					return nil
				case <-ctx.Done():
					return fmt.Errorf("%w: no route", broker.ErrUnavailable)
				}
			}}
		})
		client, err := control.NewClient(control.ClientConfig{Bus: bus})
		must0(t, err)
		pause := func() []control.Reply {
			t.Helper()
			rs, err := client.Send(t.Context(), control.Command{Do: control.DoPause}, control.Wait{})
			must0(t, err)
			return rs
		}
		h.b.run()
		if rs := pause(); len(rs) != 0 {
			t.Errorf("a consumer that does not consume answers %+v", rs)
		}
		close(open)
		h.submit(0, 1)
		h.release <- struct{}{} // a task runs
		synctest.Wait()
		if rs := pause(); len(rs) != 1 || rs[0].Error != "" || !h.b.c.Stats().Queues[0].Paused {
			t.Errorf("a consumer that consumes answers %+v", rs)
		}
		close(h.release)
		h.b.end()
	})
}

// TestRemoteOff shows that a consumer without Config.Control ignores commands, and that New refuses
// a wrong one.
func TestRemoteOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := memevents.New(memevents.Config{})
		h := newHolding(t, consumer.QueueConfig{}, func(c *consumer.Config) { c.Events = bus })
		h.b.run()
		synctest.Wait()
		client, err := control.NewClient(control.ClientConfig{Bus: bus})
		must0(t, err)
		rs, err := client.Send(t.Context(), control.Command{Do: control.DoShutdown}, control.Wait{})
		if err != nil || len(rs) != 0 {
			t.Errorf("%+v, %v; want no answer", rs, err)
		}
		if !h.b.c.Stats().Running || h.b.c.ControlCounts() != (control.Counts{}) {
			t.Error("the consumer has obeyed")
		}
		h.b.end()
	})
	_, err := consumer.New(consumer.Config{Broker: membroker.New(), Control: &control.Config{}})
	if err == nil || !strings.Contains(err.Error(), "Control: control: config: Bus is not set") {
		t.Errorf("New: %v", err)
	}
}
