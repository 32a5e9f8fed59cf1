package sqlhistory_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/history"
	"github.com/swarmiji/swarmiji/internal/suite"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/open"
	_ "github.com/swarmiji/swarmiji/open/redis"
	_ "github.com/swarmiji/swarmiji/open/sqlite"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/router"
	"github.com/swarmiji/swarmiji/task"
)

// Settings of a process with a recorder.
const (
	recorderBus       = "SWARMIJI_RECORDER_TEST_BUS"
	recorderStore     = "SWARMIJI_RECORDER_TEST_STORE"
	recorderNamespace = "SWARMIJI_RECORDER_TEST_NAMESPACE"
	recorderRetain    = "SWARMIJI_RECORDER_TEST_RETAIN"
)

// recorderProcess records the events of a bus until it is told to stop or killed.
func recorderProcess() error {
	ctx, stop := suite.UntilStopped()
	defer stop()
	quiet := slog.New(slog.DiscardHandler)
	age, err := time.ParseDuration(os.Getenv(recorderRetain))
	if err != nil {
		return err
	}
	o := open.Options{Namespace: os.Getenv(recorderNamespace), Retain: events.Retention{Age: age}, Logger: quiet}
	bus, err := open.Events(ctx, os.Getenv(recorderBus), o)
	if err != nil {
		return err
	}
	s, err := open.History(ctx, os.Getenv(recorderStore), open.HistoryOptions{Namespace: o.Namespace, Logger: quiet})
	if err != nil {
		return err
	}
	r, err := history.NewRecorder(history.RecorderConfig{Bus: bus, Store: s, Logger: quiet})
	if err != nil {
		return err
	}
	err = r.Run(ctx)
	if n := r.Stats().Dropped; err == nil && n > 0 {
		err = fmt.Errorf("the recorder has dropped %d events", n)
	}
	return errors.Join(err, s.Close(context.Background()), bus.Close(context.Background()))
}

// recorded is a Redis server with events, and the history of recorders in other processes.
type recorded struct {
	*testing.T
	options   open.Options
	url       string
	history   open.HistoryStore
	processes *suite.Processes
}

func newRecorded(t *testing.T, retain time.Duration) *recorded {
	url, file := testserver.RequireRedis(t).URL(), "sqlite://"+t.TempDir()+"/history.db"
	o := open.Options{Namespace: testserver.Namespace(), Retain: events.Retention{Age: retain}, Logger: slog.New(slog.DiscardHandler)}
	h, err := open.History(t.Context(), file, open.HistoryOptions{Namespace: o.Namespace, Logger: o.Logger})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(context.Background()); err != nil {
			t.Errorf("close the history: %v", err)
		}
	})
	heard := func(node, line string) { t.Logf("%s: %s", node, line) }
	ps := suite.NewProcesses(t, heard, recorderBus+"="+url, recorderStore+"="+file, recorderNamespace+"="+o.Namespace, recorderRetain+"="+retain.String())
	return &recorded{t, o, url, h, ps}
}

// count returns the number of recorded tasks that match a query.
func (r *recorded) count(query string) int {
	r.Helper()
	n, err := r.history.Count(testwait.Long(r), parse(r, query))
	if err != nil {
		r.Fatal(err)
	}
	return n.N
}

// gaps returns the gaps of the history.
func (r *recorded) gaps() []history.Gap {
	r.Helper()
	p, err := r.history.Page(testwait.Long(r), history.Query{}, history.PageOptions{Limit: 1})
	if err != nil {
		r.Fatal(err)
	}
	return p.Gaps
}

// TestKilledRecorder kills recorders while they write. The next one continues: it has all events,
// because the bus retains them, and no gap.
func TestKilledRecorder(t *testing.T) {
	r := newRecorded(t, time.Hour)
	bus, err := open.Events(t.Context(), r.url, r.options)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = bus.Close(context.Background()) }()
	sent := 0
	publish := func(n int) {
		for range n {
			sent++
			e := events.Event{Type: events.TaskSent, TaskID: task.ID(fmt.Sprint("t", sent)), Time: time.Now(), Name: "n", Queue: "q"}
			if err := bus.Publish(t.Context(), e); err != nil {
				t.Fatal(err)
			}
		}
	}
	const lives, each = 3, 600
	for range lives {
		p := r.processes.Start()
		before := r.count("")
		publish(each)
		testwait.Until(t, "the recorder has written some of the events", func() bool { return r.count("") > before })
		p.Kill()
		publish(each) // no recorder listens
	}
	p := r.processes.Start()
	testwait.Until(t, "all events are recorded", func() bool { return r.count("") == sent })
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
	if gaps := r.gaps(); len(gaps) > 0 {
		t.Errorf("gaps %+v", gaps)
	}
}

// TestRecorderCost measures the time from Submit to the start of the handler, at 1,200 tasks per
// second over Redis. Rounds without a recorder and with one take turns. The recorder runs in
// another process and writes to SQLite; it must have all tasks. The test prints the medians, and
// the median of the ratios of neighboring rounds, since the speed of a machine drifts.
func TestRecorderCost(t *testing.T) {
	testserver.Thorough(t)
	const rounds, perSecond, length = 45, 1200, 2 * time.Second
	r := newRecorded(t, 0)
	l := newLoad(t, r, rounds)
	l.round("probe", perSecond, time.Second) // the connections are open
	var without, with []time.Duration
	measure := func(i int, recorder bool) {
		if !recorder {
			without = append(without, l.round("silent", perSecond, length))
			return
		}
		p, before := r.processes.Start(), r.count("name:probe")
		testwait.Until(t, "the recorder listens", func() bool {
			l.round("probe", perSecond, 50*time.Millisecond)
			return r.count("name:probe") > before
		})
		name := loadName(i)
		with = append(with, l.round(name, perSecond, length))
		testwait.UntilNil(t, "all tasks are recorded", func() error {
			n, most := r.count("state:succeeded name:"+name), perSecond*int(length/time.Second)
			if n < most {
				return fmt.Errorf("%d of %d, gaps %+v", n, most, r.gaps())
			}
			return nil
		})
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	}
	for i := range rounds {
		measure(i, i%2 == 0)
		measure(i, i%2 == 1)
	}
	ratios := make([]float64, rounds)
	for i := range ratios {
		ratios[i] = float64(with[i]) / float64(without[i])
	}
	slices.Sort(without)
	slices.Sort(with)
	slices.Sort(ratios)
	t.Logf("p50 from Submit to start at %d tasks/s, medians of %d rounds: %s without a recorder, %s with one; median of the ratios %.3f, quarter of them below %.3f, quarter above %.3f",
		perSecond, rounds, without[rounds/2], with[rounds/2], ratios[rounds/2], ratios[rounds/4], ratios[3*rounds/4])
}

// load is a producer and a consumer that report events.
type load struct {
	*recorded
	producer *producer.Producer

	mu    sync.Mutex
	waits []time.Duration
	ran   sync.WaitGroup
}

// loadName returns the name of the tasks of a round.
func loadName(round int) string { return fmt.Sprint("round.", round) }

func newLoad(t *testing.T, r *recorded, rounds int) *load {
	l := &load{recorded: r}
	swarm, err := open.Open(t.Context(), r.url, r.options)
	if err != nil {
		t.Fatal(err)
	}
	c, err := swarm.Consumer(consumer.Config{Queues: map[string]consumer.QueueConfig{"work": {Workers: 16, Prefetch: 64}}})
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"probe", "silent"}
	for i := range rounds {
		names = append(names, loadName(i))
	}
	for _, name := range names {
		if err := task.New[int64, task.None](name).Handle(c, l.handle); err != nil {
			t.Fatal(err)
		}
	}
	if l.producer, err = swarm.Producer(producer.Config{Router: router.Static("work")}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := errors.Join(<-ended, l.producer.Close(context.Background()), swarm.Close(context.Background())); err != nil {
			t.Error(err)
		}
	})
	return l
}

// handle notes the time since Submit.
func (l *load) handle(_ context.Context, sent int64) (task.None, error) {
	wait := time.Since(time.Unix(0, sent))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waits = append(l.waits, wait)
	l.ran.Done()
	return task.None{}, nil
}

// round submits tasks at a rate for a time, however long each takes. It returns the median of their
// waits.
func (l *load) round(name string, perSecond int, length time.Duration) time.Duration {
	l.Helper()
	l.waits = nil
	def := task.New[int64, task.None](name, task.WithIgnoreResult(true))
	began := time.Now()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	most := int(length.Seconds() * float64(perSecond))
	for sent := 0; sent < most; <-ticker.C {
		for due := min(most, int(time.Since(began).Seconds()*float64(perSecond))+1); sent < due; sent++ {
			l.ran.Add(1)
			go func() {
				if _, err := def.Submit(context.Background(), l.producer, time.Now().UnixNano()); err != nil {
					l.Errorf("submit: %v", err)
					l.ran.Done()
				}
			}()
		}
	}
	l.ran.Wait()
	slices.Sort(l.waits)
	return l.waits[len(l.waits)/2]
}
