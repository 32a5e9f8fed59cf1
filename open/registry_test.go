package open_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/broker/membroker"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/memevents"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/limit"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/open/amqp"
	"github.com/swarmiji/swarmiji/open/hworker"
	"github.com/swarmiji/swarmiji/open/nats"
	"github.com/swarmiji/swarmiji/open/natsembedded"
	"github.com/swarmiji/swarmiji/open/postgres"
	"github.com/swarmiji/swarmiji/open/redis"
	"github.com/swarmiji/swarmiji/open/sqlite"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/resultstore/memresults"
	"github.com/swarmiji/swarmiji/settings"
	"github.com/swarmiji/swarmiji/settings/memsettings"
)

var _ open.TLSConfig = (*tls.Config)(nil)

// schemes is a driver whose schemes have no adapters.
type schemes []string

func (s schemes) Schemes() (all []open.Scheme) {
	for _, name := range s {
		all = append(all, open.Scheme{Name: name, Form: name + "://", Place: open.PlaceNone})
	}
	return all
}

func (schemes) Parts(*open.Target) (open.Parts, error) { return open.Parts{}, nil }

// TestRegistry shows that a Registry opens only the schemes that were registered with it.
func TestRegistry(t *testing.T) {
	var r open.Registry
	if err := r.Register(redis.Driver{}); err != nil {
		t.Fatal(err)
	}
	s, err := r.Open(t.Context(), testserver.RequireRedis(t).URL()+"?namespace="+testserver.Namespace(), open.Options{})
	if err != nil {
		t.Fatal(err)
	}
	roundTrip(t, s, s)
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
	const want = `the Registry has no driver for amqp://; give it the Driver of package "github.com/swarmiji/swarmiji/open/amqp"`
	if _, err := r.Open(t.Context(), "amqp://host", open.Options{}); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
	if _, err := r.Open(t.Context(), "redis://host", open.Options{Results: "sqlite:app.db"}); err == nil || !strings.Contains(err.Error(), "open/sqlite") {
		t.Errorf("results without a driver: %v", err)
	}
}

// busless is a driver of another module whose server carries tasks and no events.
type busless struct{ schemes }

func (busless) Parts(*open.Target) (open.Parts, error) {
	return open.Parts{
		Broker:  func(string) (broker.Broker, error) { return membroker.NewServer(membroker.Config{}).Connect(), nil },
		Results: func(string) (resultstore.ResultStore, error) { return memresults.New(memresults.Config{}), nil },
	}, nil
}

// TestWithoutBus shows that a Swarm whose server carries no events runs tasks without them. Options
// that need a bus or a limiter are refused, and the URL of another server adds them.
func TestWithoutBus(t *testing.T) {
	var r open.Registry
	if err := r.Register(busless{schemes{"shop"}}); err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]open.Options{"alone": {Control: true}, "with a bus": {Control: true, Events: "mem://"}} {
		t.Run(name, func(t *testing.T) {
			s, err := r.Open(t.Context(), "shop://", o)
			if err != nil {
				t.Fatal(err)
			}
			with := o.Events != ""
			if (s.Events != nil) != with || (s.Control != nil) != with || (s.Replies != nil) != with || (s.Revocations != nil) != with {
				t.Errorf("buses: %v, %v, %v, %v", s.Events, s.Control, s.Replies, s.Revocations)
			}
			roundTrip(t, s, s)
			if _, err := s.Consumer(consumer.Config{}); err != nil {
				t.Error(err)
			}
			if err := s.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	limits := open.Options{Limits: map[string][]limit.Permit{"a": {{Key: "b", Max: 1}}}}
	for want, o := range map[string]open.Options{"carries no events": {Retain: events.Retention{Age: time.Hour}}, "Limits need": limits} {
		if _, err := r.Open(t.Context(), "shop://", o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// weak is a driver of another module, with and without a store of settings on its bus.
type weak struct {
	schemes
	settings bool
}

func (d weak) Parts(*open.Target) (open.Parts, error) {
	parts, err := busless{}.Parts(nil)
	parts.Events = func(string, events.Retention) (events.EventBus, error) { return memevents.New(memevents.Config{}), nil }
	if d.settings {
		parts.EventSettings = func(namespace string) (settings.Store, error) {
			if namespace != "shop_settings" {
				return nil, fmt.Errorf("the bus of the settings has the namespace %q", namespace)
			}
			return memsettings.New(), nil
		}
	}
	return parts, err
}

// TestEventSettings shows that settings on a bus have a namespace of their own and give way to
// those of another server. A server without any store of settings carries none.
func TestEventSettings(t *testing.T) {
	for _, c := range []struct {
		settings bool
		events   string
		want     bool
	}{{true, "", true}, {false, "", false}, {false, "mem://", true}} {
		var r open.Registry
		if err := r.Register(weak{schemes{"weak"}, c.settings}); err != nil {
			t.Fatal(err)
		}
		o := open.Options{Namespace: "shop", Events: c.events}
		swarm, err := r.Open(t.Context(), "weak://", o)
		if err != nil {
			t.Fatal(err)
		}
		if got := swarm.Settings != nil; got != c.want {
			t.Errorf("%+v: a swarm with settings: %t", c, got)
		}
		store, err := r.Settings(t.Context(), "weak://", o)
		if got := err == nil; got != c.want {
			t.Errorf("%+v: the settings alone: %v", c, err)
		}
		if err == nil && store.Close(t.Context()) != nil {
			t.Error("the settings cannot be closed")
		}
		if err := swarm.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// TestRegistryJobsAndSchedules shows that job stores and schedule stores use the same drivers, with
// all forms of URLs.
func TestRegistryJobsAndSchedules(t *testing.T) {
	var r, empty open.Registry
	if err := r.Register(sqlite.Driver{}); err != nil {
		t.Fatal(err)
	}
	for _, url := range []string{"mem://", "sqlite:" + filepath.Join(t.TempDir(), "app.db"), "sqlite://" + t.TempDir() + "/app.db"} {
		j, err := r.Jobs(t.Context(), url, open.JobsOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if found, err := oneJob(t.Context(), j); len(found) != 1 || err != nil {
			t.Errorf("%s: %d jobs, %v", url, len(found), err)
		}
		s, err := r.Schedule(t.Context(), url, open.ScheduleOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []interface{ Close(context.Context) error }{j, s} {
			if err := c.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
	for _, url := range []string{"sqlite:app.db", "SQLite:///app.db", "postgres://u:" + secret + "@host/db"} {
		_, jerr := empty.Jobs(t.Context(), url, open.JobsOptions{})
		_, serr := empty.Schedule(t.Context(), url, open.ScheduleOptions{})
		for _, err := range []error{jerr, serr} {
			if err == nil || !strings.Contains(err.Error(), "give it the Driver of package") || strings.Contains(err.Error(), secret) {
				t.Errorf("%s without a driver: %v", url, err)
			}
		}
	}
}

// TestRegisterRefuses shows that Register refuses invalid drivers and adds none of their schemes.
func TestRegisterRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		d    open.Driver
		want string
	}{
		"nil":            {nil, "the driver is nil"},
		"no scheme":      {schemes{}, "has no scheme"},
		"bad name":       {schemes{"new", "Bad Name"}, "malformed"},
		"memory":         {schemes{"mem"}, "scheme mem:// is registered already"},
		"twice":          {schemes{"new", "old"}, "scheme old:// is registered already"},
		"twice in a row": {schemes{"new", "new"}, "scheme new:// is registered already"},
	} {
		t.Run(name, func(t *testing.T) {
			var r open.Registry
			if err := r.Register(schemes{"old"}); err != nil {
				t.Fatal(err)
			}
			if err := r.Register(c.d); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if err := r.Register(schemes{"new"}); err != nil {
				t.Errorf("something was kept of it: %v", err)
			}
		})
	}
	defer func() {
		if p := recover(); p == nil || !strings.Contains(fmt.Sprint(p), "scheme redis:// is registered already") {
			t.Errorf("Register twice: %v", p)
		}
	}()
	open.Register(redis.Driver{})
}

// TestHomes shows that the table of imports for errors matches the drivers.
func TestHomes(t *testing.T) {
	homes := open.Homes()
	for pkg, d := range map[string]open.Driver{
		"amqp": amqp.Driver{}, "nats": nats.Driver{}, "natsembedded": natsembedded.Driver{},
		"redis": redis.Driver{}, "hworker": hworker.Driver{}, "postgres": postgres.Driver{}, "sqlite": sqlite.Driver{},
	} {
		for _, s := range d.Schemes() {
			if homes[s.Name] != pkg {
				t.Errorf("%s:// is of package %s, and errors name %q", s.Name, pkg, homes[s.Name])
			}
			delete(homes, s.Name)
		}
	}
	if len(homes) > 0 {
		t.Errorf("errors name schemes that no driver has: %v", homes)
	}
}

// TestNoParts shows that a driver without adapters gives an error of one sentence.
func TestNoParts(t *testing.T) {
	var r open.Registry
	if err := r.Register(schemes{"hollow"}); err != nil {
		t.Fatal(err)
	}
	for want, f := range map[string]func() error{
		"carries no tasks":   func() error { _, err := r.Broker(t.Context(), "hollow://", open.Options{}); return err },
		"keeps no results":   func() error { _, err := r.Results(t.Context(), "hollow://", open.Options{}); return err },
		"carries no events":  func() error { _, err := r.Events(t.Context(), "hollow://", open.Options{}); return err },
		"keeps no schedules": func() error { _, err := r.Schedule(t.Context(), "hollow://", open.ScheduleOptions{}); return err },
		"keeps no jobs":      func() error { _, err := r.Jobs(t.Context(), "hollow://", open.JobsOptions{}); return err },
		"has no outbox":      func() error { _, err := r.Outbox(t.Context(), "hollow://", open.OutboxOptions{}); return err },
		"has no history":     func() error { _, err := r.History(t.Context(), "hollow://", open.HistoryOptions{}); return err },
	} {
		if err := f(); err == nil || !strings.Contains(err.Error(), "hollow:// "+want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestUselessImport shows that an error about a scheme without a driver names the driver's package
// only if it serves the call.
func TestUselessImport(t *testing.T) {
	var r open.Registry
	schedule := func(url string) error { _, err := r.Schedule(t.Context(), url, open.ScheduleOptions{}); return err }
	jobs := func(url string) error { _, err := r.Jobs(t.Context(), url, open.JobsOptions{}); return err }
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"schedule in RabbitMQ": {schedule("amqp://user:hunter2@host"), "amqp:// keeps no schedules; write sqlite:app.db"},
		"schedule in Redis":    {schedule("redis://:hunter2@host"), "/open/redis"},
		"schedule in a file":   {schedule("sqlite:app.db"), "/open/sqlite"},
		"jobs in NATS":         {jobs("nats://user:hunter2@host"), "nats:// keeps no jobs; write sqlite:jobs.db"},
		"jobs in PostgreSQL":   {jobs("postgres://user:hunter2@host/db"), "/open/postgres"},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.want) || strings.Contains(c.err.Error(), "hunter2") {
			t.Errorf("%s: %v, want %q", name, c.err, c.want)
		}
	}
}

// TestNilTLS shows that a nil *tls.Config equals no TLS.
func TestNilTLS(t *testing.T) {
	var none *tls.Config
	opened(t, "redis://host", open.Options{TLS: none})
}

// ExampleRegistry uses a separate Registry, for a program without a global list of schemes.
func ExampleRegistry() {
	var r open.Registry
	if err := r.Register(redis.Driver{}); err != nil {
		fmt.Println(err)
		return
	}
	ctx := context.Background()
	swarm, err := r.Open(ctx, "redis://localhost:6379/0", open.Options{}) // does not connect yet
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(r.Redact("redis://:secret@localhost:6379/0"), swarm.Close(ctx))
	_, err = r.Open(ctx, "nats://localhost", open.Options{})
	fmt.Println(err)
	// Output:
	// redis://localhost:6379 <nil>
	// open: the Registry has no driver for nats://; give it the Driver of package "github.com/swarmiji/swarmiji/open/nats"
}

// ExampleOpen opens the server of a URL. A package below open must be imported for its scheme, here
//
//	import _ "github.com/swarmiji/swarmiji/open/redis"
func ExampleOpen() {
	ctx := context.Background()
	swarm, err := open.Open(ctx, "redis://localhost:6379/0?namespace=shop", open.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer swarm.Close(ctx)
	fmt.Println("opened", open.Redact("redis://localhost:6379/0"))
	// Output: opened redis://localhost:6379
}
