package consumer_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/memevents"
	"github.com/swarmiji/swarmiji/internal/wire"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/resultstore/memresults"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

type credentials struct {
	User     string
	Password string `task:"secret"`
}

const (
	password = "hunter2"
	visible  = "plain-text"
)

// heardOf runs a few tasks whose arguments, results, errors and headers hold the password. It
// returns the events that a listener received.
func heardOf(t *testing.T, change func(*producer.Config, *consumer.Config)) (heard string, all []events.Event) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server, bus, results := membroker.NewServer(membroker.Config{}), memevents.New(memevents.Config{}), memresults.New(memresults.Config{})
		quiet := slog.New(slog.DiscardHandler)
		pc := producer.Config{Broker: server.Connect(), Results: results, Events: bus, Report: events.Report{HeartbeatEvery: -1}, Logger: quiet}
		cc := consumer.Config{Broker: server.Connect(), Results: results, Events: bus, Report: events.Report{HeartbeatEvery: -1}, Logger: quiet, Tuning: consumer.Tuning{UnknownRetries: -1}}
		if change != nil {
			change(&pc, &cc)
		}
		sub, err := bus.Subscribe(t.Context(), events.Filter{})
		if err != nil {
			t.Fatal(err)
		}
		p, err := producer.New(pc)
		if err != nil {
			t.Fatal(err)
		}
		c, err := consumer.New(cc)
		if err != nil {
			t.Fatal(err)
		}
		login := task.New[credentials, credentials]("login", task.WithHeader("authorization", password))
		open := task.New[string, string]("open")
		crash := task.New[credentials, string]("crash")
		unknown := task.New[credentials, string]("unknown")
		pair := func(_ context.Context, c credentials) (credentials, error) { return c, nil }
		err = errors.Join(
			login.Handle(c, pair),
			open.Handle(c, func(_ context.Context, s string) (string, error) { return s + " result", nil }),
			crash.Handle(c, func(_ context.Context, c credentials) (string, error) { panic(c) }),
		)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- c.Run(ctx) }()
		secret := credentials{User: "ann", Password: password}
		call := login.Call(secret)
		call.Then = []task.Link{{Name: "login"}} // it gets the result
		if _, err := p.Submit(t.Context(), call); err != nil {
			t.Fatal(err)
		}
		opened := open.Call(visible, task.WithHeader("tenant", "42"))
		opened.Then = []task.Link{{Name: "unknown", ContentType: serializer.ContentJSON, Args: []byte(`"` + password + `"`), Feed: task.FeedNone}}
		_, err1 := p.Submit(t.Context(), opened)
		_, err2 := crash.Submit(t.Context(), p, secret)
		_, err3 := unknown.Submit(t.Context(), p, secret)
		if err := errors.Join(err1, err2, err3); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		stop()
		if err := errors.Join(<-done, p.Close(t.Context()), results.Close(t.Context())); err != nil {
			t.Error(err)
		}
		for {
			e, err := sub.Receive(ctx) // the context has ended: Receive returns the events that wait
			if err != nil {
				break
			}
			all = append(all, e)
		}
	})
	data, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 18 {
		t.Fatalf("only %d events: %s", len(all), data)
	}
	return string(data), all
}

// TestNothingSecretInEvents shows that events hold no arguments and no results by default. If
// payloads are configured, those of types with secrets are hidden (S31, reliability 5.6).
func TestNothingSecretInEvents(t *testing.T) {
	for name, change := range map[string]func(*producer.Config, *consumer.Config){
		"by default": nil,
		"json": func(p *producer.Config, _ *consumer.Config) {
			p.Wire.Serializers = []serializer.Serializer{serializer.JSON{}}
		},
		"payloads": func(p *producer.Config, c *consumer.Config) { p.Report.Payloads, c.Report.Payloads = true, true },
		"json payloads": func(p *producer.Config, c *consumer.Config) {
			p.Report.Payloads, c.Report.Payloads = true, true
			p.Wire.Serializers = []serializer.Serializer{serializer.JSON{}}
		},
		"a policy that panics": func(p *producer.Config, c *consumer.Config) {
			p.Report.Preview = func(p events.Payload) string { panic(string(p.Data)) }
			c.Report.Preview = p.Report.Preview
		},
	} {
		t.Run(name, func(t *testing.T) {
			heard, all := heardOf(t, change)
			if strings.Contains(heard, password) {
				t.Errorf("the password is in an event: %s", heard)
			}
			if shown := strings.Contains(heard, visible); shown != strings.Contains(name, "payloads") {
				t.Errorf("payloads shown: %v: %s", shown, heard)
			}
			if shown := strings.Contains(heard, visible+" result"); shown != strings.Contains(name, "payloads") {
				t.Errorf("results shown: %v: %s", shown, heard)
			}
			for _, e := range all {
				if e.Type == events.TaskSent && e.Name == "login" && !strings.Contains(e.Args, " bytes") {
					t.Errorf("the arguments are shown as %q, want type and size", e.Args)
				}
			}
			if !strings.Contains(heard, "[redacted]") {
				t.Errorf("the panic's value is not shown without its secret: %s", heard)
			}
		})
	}
}

// TestKeepArguments shows which messages a consumer adds to the events of first receipts: those
// that are small enough and whose type has no secrets, and none with a Sealer.
func TestKeepArguments(t *testing.T) {
	kept := func(most int, change func(*producer.Config, *consumer.Config)) (names []string) {
		t.Helper()
		_, all := heardOf(t, func(p *producer.Config, c *consumer.Config) {
			c.Report.KeepArguments = most
			if change != nil {
				change(p, c)
			}
		})
		for _, e := range all {
			i := e.Info()
			if len(i.Original) == 0 {
				continue
			}
			names = append(names, e.Type+" "+e.Name)
			got, err := wire.Original(e.TaskID, e.Name, i.Original, i.OriginalType)
			if err != nil || !strings.Contains(string(got.Args), visible) || got.Headers["tenant"] != "42" || strings.Contains(string(i.Original), password) {
				t.Errorf("the message of %s: %+v, %v", e.Name, got, err)
			}
		}
		return names
	}
	ring := testRing(t, "k")
	sealed := func(p *producer.Config, c *consumer.Config) { p.Wire.Sealer, c.Wire.Sealer = ring, ring }
	raw := func(p *producer.Config, _ *consumer.Config) {
		p.Wire.Formats = []serializer.Format{serializer.RawFormat{}}
	}
	for name, got := range map[string][]string{"none": kept(0, nil), "too small": kept(8, nil), "a sealer": kept(events.MaxOriginal, sealed)} {
		if len(got) > 0 {
			t.Errorf("%s: kept %v", name, got)
		}
	}
	for name, got := range map[string][]string{"compact": kept(events.MaxOriginal, nil), "raw": kept(events.MaxOriginal, raw)} {
		if !slices.Equal(got, []string{events.TaskReceived + " open"}) {
			t.Errorf("%s: kept %v, want the message of open alone", name, got)
		}
	}
	for _, n := range []int{-1, events.MaxOriginal + 1} {
		_, err := consumer.New(consumer.Config{Broker: membroker.NewServer(membroker.Config{}).Connect(), Report: events.Report{KeepArguments: n}})
		if err == nil || !strings.Contains(err.Error(), "KeepArguments") {
			t.Errorf("KeepArguments %d: %v", n, err)
		}
	}
}

// TestPreviewPolicy shows that the user's function decides which payloads are shown, and receives
// arguments and results.
func TestPreviewPolicy(t *testing.T) {
	policy := func(p events.Payload) string {
		if p.Task != "login" {
			return ""
		}
		return fmt.Sprintf("result=%v %s hidden=%d %s", p.Result, p.ContentType, strings.Count(string(p.Data), password), strings.Repeat("x", 2000))
	}
	_, all := heardOf(t, func(p *producer.Config, c *consumer.Config) {
		p.Report.Preview, c.Report.Preview = policy, policy
		p.Wire.Serializers = []serializer.Serializer{serializer.JSON{}}
	})
	n := 0
	for _, e := range all {
		for _, text := range []string{e.Args, e.Result} {
			if text == "" {
				continue
			}
			n++
			if want := fmt.Sprintf("result=%v application/json hidden=1 xx", text == e.Result); !strings.HasPrefix(text, want) || len(text) != events.MaxPreview {
				t.Errorf("%s shows %d bytes: %q", e.Type, len(text), text)
			}
		}
	}
	if n != 6 { // sent, received and succeeded, of the task and its successor
		t.Errorf("%d previews, want 6", n)
	}
}

// TestSealedReasons shows that events hide the reasons of failures if results are sealed, unless
// payloads are configured.
func TestSealedReasons(t *testing.T) {
	for _, shown := range []bool{false, true} {
		ring, err := serializer.NewKeyRing(serializer.Key{ID: "k1", Secret: []byte(strings.Repeat("k", 32))})
		if err != nil {
			t.Fatal(err)
		}
		heard, _ := heardOf(t, func(p *producer.Config, c *consumer.Config) {
			p.Wire.Sealer, c.Wire.Sealer, c.Report.Payloads = ring, ring, shown
		})
		if got := strings.Contains(heard, "panic"); got != shown {
			t.Errorf("Report.Payloads %v, and the reason is shown: %v: %s", shown, got, heard)
		}
		if got := strings.Contains(heard, "the reason is sealed"); got == shown {
			t.Errorf("Report.Payloads %v, and the reason is said to be sealed: %v: %s", shown, got, heard)
		}
	}
}
