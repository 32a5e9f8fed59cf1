package open_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/schedule"
	"github.com/swarmiji/swarmiji/task"
)

// TestSchedule shows that every URL opens a store that stores schedule entries under its name.
func TestSchedule(t *testing.T) {
	for name, url := range map[string]string{
		"mem": "mem://", "redis": testserver.RequireRedis(t).URL(), "nats": testserver.RequireNATS(t).URL(), "embedded": "nats-embedded://" + t.TempDir(), "sqlite": "sqlite://" + t.TempDir() + "/s.db", "postgres": testserver.RequirePostgres(t).URL(),
	} {
		t.Run(name, func(t *testing.T) {
			store, err := open.Schedule(t.Context(), url, open.ScheduleOptions{Name: "{" + testserver.Namespace() + "}"})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := store.Close(t.Context()); err != nil {
					t.Error(err)
				}
			}()
			s, err := schedule.New(schedule.Config{Store: store})
			if err != nil {
				t.Fatal(err)
			}
			added, err := s.Add(t.Context(), schedule.ByCron("2090 11 21 * 19 0 0"), task.New[string, task.None]("mail").Call("x"))
			if err != nil {
				t.Fatal(err)
			}
			if e, err := store.Get(t.Context(), added.ID); err != nil || !strings.Contains(string(e.Payload), "2090 11 21") {
				t.Errorf("%q, %v", e.Payload, err)
			}
			if err := s.Pause(t.Context(), added.ID); err != nil {
				t.Errorf("Pause: %v", err)
			}
		})
	}
}

// TestScheduleRefused shows that an unsuitable URL gives an error of one sentence, without a
// secret.
func TestScheduleRefused(t *testing.T) {
	for url, want := range map[string]string{
		"amqp://user:hunter2@host":         "amqp:// keeps no schedules",
		"hworker+redis://:hunter2@host":    "keeps no schedules",
		"host:6379":                        "no scheme",
		"mysql://user:hunter2@host/db":     "there is no adapter for mysql://",
		"redis://:hunter2@host?colour=red": "unknown parameter colour",
		"redis-cluster://:hunter2@host":    "hash tag",
		"sqlite:":                          "",
		"sqlit:app.db":                     "unknown scheme sqlit; write sqlite:app.db",
	} {
		s, err := open.Schedule(t.Context(), url, open.ScheduleOptions{})
		if err == nil {
			_ = s.Close(t.Context())
			t.Errorf("%s is opened", url)
			continue
		}
		if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") || errors.Is(err, schedule.ErrUnavailable) {
			t.Errorf("%s: %v; want %q", url, err, want)
		}
	}
	for url, want := range map[string]string{
		"redis://:hunter2@host":                 "redis://host:6379",
		"postgres://user:hunter2@host:5/db?a=b": "postgres://host:5",
		"postgres://user:hunter2@host:5/%zz":    "unreadable",
		"sqlite:///var/app.db":                  "sqlite:///var/app.db",
		"sqlite:app.db":                         "sqlite:app.db",
	} {
		if got := open.RedactSchedule(url); got != want {
			t.Errorf("%s: %q, want %q", url, got, want)
		}
	}
}

// ExampleSchedule opens the schedule store of a URL, which a program can read from a flag or the
// environment.
func ExampleSchedule() {
	ctx := context.Background()
	store, err := open.Schedule(ctx, "mem://", open.ScheduleOptions{Name: "reports"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = store.Close(ctx) }()
	s, err := schedule.New(schedule.Config{Store: store})
	if err != nil {
		fmt.Println(err)
		return
	}
	added, err := s.Add(ctx, schedule.Every("weekday at 9am"), task.New[string, task.None]("report.make").Call("daily"))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(s.Name(), "has", added.Spec)
	// Output:
	// reports has * * * 1-5 9 0 0
}
