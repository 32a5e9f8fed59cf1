package control_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/control"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/events/memevents"
	"github.com/swarmiji/swarmiji/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a node that records the calls of its methods.
type fake struct {
	id     string
	queues []string

	mu    sync.Mutex
	calls []string
	tasks []control.Task
	err   error
}

func (f *fake) note(format string, args ...any) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, fmt.Sprintf(format, args...))
	return f.err
}

func (f *fake) told() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string{}, f.calls...)
}

func (f *fake) NodeID() string   { return f.id }
func (f *fake) Queues() []string { return append([]string{}, f.queues...) }
func (f *fake) Stats() control.Stats {
	s := control.Stats{Totals: map[string]uint64{"processed": 7}}
	for _, q := range f.queues {
		s.Queues = append(s.Queues, control.QueueStats{Name: q, Workers: 3, Prefetch: 12, Active: 1})
	}
	return s
}
func (f *fake) Active() []control.Task               { return append([]control.Task{}, f.tasks...) }
func (f *fake) Reserved() []control.Task             { return nil }
func (f *fake) Names() []string                      { return []string{"mail.send", "report.make"} }
func (f *fake) Scale(queue string, n int) error      { return f.note("scale %s %d", queue, n) }
func (f *fake) Pause(queues ...string) error         { return f.note("pause %v", queues) }
func (f *fake) Resume(queues ...string) error        { return f.note("resume %v", queues) }
func (f *fake) SetRateLimit(name, rate string) error { return f.note("rate %s %s", name, rate) }
func (f *fake) Stop()                                { _ = f.note("stop") }
func (f *fake) Kill()                                { _ = f.note("kill") }

// revoker is a fake with a list of revoked tasks.
type revoker struct{ *fake }

func (r revoker) Revoke(_ context.Context, terminate bool, ids ...task.ID) error {
	return r.note("revoke %v %v", ids, terminate)
}

// serve runs a server until the test ends.
func serve(t *testing.T, c control.Config, n control.Node) *control.Server {
	t.Helper()
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	s, err := control.NewServer(c, n)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	synctest.Wait() // the server has subscribed
	return s
}

func client(t *testing.T, bus events.EventBus, keys *control.Keys) *control.Client {
	t.Helper()
	c, err := control.NewClient(control.ClientConfig{Bus: bus, Keys: keys, NodeID: "boss"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func send(t *testing.T, c *control.Client, cmd control.Command) []control.Reply {
	t.Helper()
	rs, err := c.Send(t.Context(), cmd, control.Wait{})
	if err != nil {
		t.Fatalf("%+v: %v", cmd, err)
	}
	return rs
}

func keys(active string, ids ...string) *control.Keys {
	k := &control.Keys{Active: active, ByID: map[string][]byte{}}
	for _, id := range append(ids, active) {
		k.ByID[id] = bytes.Repeat([]byte(id), 16)[:16]
	}
	return k
}

// TestActions shows that each action calls the node's method and returns its reply, with and
// without keys.
func TestActions(t *testing.T) {
	for name, k := range map[string]*control.Keys{"unsigned": nil, "signed": keys("k1")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bus := memevents.New(memevents.Config{})
				since := time.Now().UTC()
				n := &fake{id: "n1", queues: []string{"b", "a"}, tasks: []control.Task{
					{ID: "1", Name: "mail.send", Queue: "b", Since: since, Attempt: 1},
					{ID: "2", Name: "mail.send", Queue: "a", Since: since.Add(time.Second), Attempt: 2},
				}}
				serve(t, control.Config{Bus: bus, Keys: k}, revoker{n})
				c := client(t, bus, k)
				ab := []string{"a", "b"}
				for _, tc := range []struct {
					cmd  control.Command
					want control.Reply
					told string
				}{
					{control.Command{Do: control.DoPing}, control.Reply{Queues: ab}, ""},
					{control.Command{Do: control.DoPing, Nodes: []string{"n1", "n2"}, Queues: []string{"a", "c"}}, control.Reply{Queues: []string{"a"}}, ""},
					{control.Command{Do: control.DoStats, Queues: []string{"a"}}, control.Reply{Queues: []string{"a"}, Stats: &control.Stats{
						Queues: []control.QueueStats{{Name: "a", Workers: 3, Prefetch: 12, Active: 1}}, Totals: map[string]uint64{"processed": 7},
					}}, ""},
					{control.Command{Do: control.DoActive}, control.Reply{Queues: ab, Tasks: n.tasks}, ""},
					{control.Command{Do: control.DoActive, Queues: []string{"a"}}, control.Reply{Queues: []string{"a"}, Tasks: n.tasks[1:]}, ""},
					{control.Command{Do: control.DoReserved}, control.Reply{Queues: ab}, ""},
					{control.Command{Do: control.DoRegistered}, control.Reply{Queues: ab, Names: n.Names()}, ""},
					{control.Command{Do: control.DoRevoke, IDs: []task.ID{"x", "y"}, Terminate: true}, control.Reply{Queues: ab}, "revoke [x y] true"},
					{control.Command{Do: control.DoScale, Queues: []string{"a"}, Workers: 9}, control.Reply{Queues: []string{"a"}}, "scale a 9"},
					{control.Command{Do: control.DoPause}, control.Reply{Queues: ab}, "pause [a b]"},
					{control.Command{Do: control.DoResume, Queues: []string{"b"}}, control.Reply{Queues: []string{"b"}}, "resume [b]"},
					{control.Command{Do: control.DoRateLimit, Task: "mail.send", Rate: "10/m"}, control.Reply{Queues: ab}, "rate mail.send 10/m"},
					{control.Command{Do: control.DoShutdown}, control.Reply{Queues: ab}, "stop"},
					{control.Command{Do: control.DoShutdown, Kill: true}, control.Reply{Queues: ab}, "kill"},
				} {
					n.mu.Lock()
					n.calls = nil
					n.mu.Unlock()
					sent := time.Now()
					got := send(t, c, tc.cmd)
					tc.want.Node, tc.want.At = "n1", sent.UTC().Truncate(time.Millisecond)
					if d := cmp.Diff([]control.Reply{tc.want}, got); d != "" {
						t.Errorf("%+v: (-want +got)\n%s", tc.cmd, d)
					}
					if told := strings.Join(n.told(), ";"); told != tc.told {
						t.Errorf("%+v: the node was told %q, want %q", tc.cmd, told, tc.told)
					}
				}
			})
		})
	}
}

// TestConcerns shows that only concerned nodes reply, and that Send waits only as long as needed.
func TestConcerns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := memevents.New(memevents.Config{})
		var servers []*control.Server
		for id, queues := range map[string][]string{"n1": {"a"}, "n2": {"a", "b"}, "n3": {"c"}} {
			servers = append(servers, serve(t, control.Config{Bus: bus.View()}, &fake{id: id, queues: queues}))
		}
		c := client(t, bus, nil)
		for _, tc := range []struct {
			nodes, queues []string
			want          string
			wait          time.Duration
		}{
			{nil, nil, "n1 n2 n3", control.DefaultTimeout},
			{nil, []string{"a"}, "n1 n2", control.DefaultTimeout},
			{[]string{"n3", "n1"}, nil, "n1 n3", 0},
			{[]string{"n2", "n3"}, []string{"b"}, "n2", control.DefaultTimeout},
			{nil, []string{"nobody"}, "", control.DefaultTimeout},
		} {
			begin := time.Now()
			var got []string
			for _, r := range send(t, c, control.Command{Do: control.DoPing, Nodes: tc.nodes, Queues: tc.queues}) {
				got = append(got, r.Node)
			}
			if s := strings.Join(got, " "); s != tc.want {
				t.Errorf("nodes %v, queues %v: %q answer, want %q", tc.nodes, tc.queues, s, tc.want)
			}
			if took := time.Since(begin); took != tc.wait {
				t.Errorf("nodes %v, queues %v: took %v, want %v", tc.nodes, tc.queues, took, tc.wait)
			}
		}
		rs, err := c.Send(t.Context(), control.Command{Do: control.DoPing}, control.Wait{Replies: 4, Timeout: time.Minute})
		if !errors.Is(err, control.ErrMissing) || len(rs) != 3 {
			t.Errorf("4 replies of 3 nodes: %d, %v; want 3 and ErrMissing", len(rs), err)
		}
		var mine, others uint64
		for _, s := range servers {
			mine, others = mine+s.Counts().Obeyed, others+s.Counts().NotMine
		}
		if mine != 11 || others != 7 { // 3+2+2+1+0+3 replies to 6 commands
			t.Errorf("%d commands obeyed and %d ignored as others', want 11 and 7", mine, others)
		}
	})
}

// TestErrors shows that the errors of a node, and forbidden or unsupported actions, are in its
// reply.
func TestErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := memevents.New(memevents.Config{})
		n := &fake{id: "n1", queues: []string{"a"}, err: errors.New("no such thing")}
		s := serve(t, control.Config{Bus: bus, Allow: []control.Action{control.DoPing, control.DoPause, control.DoRevoke}}, n)
		c := client(t, bus, nil)
		for _, tc := range []struct {
			cmd  control.Command
			want string
		}{
			{control.Command{Do: control.DoPause}, "no such thing"},
			{control.Command{Do: control.DoRevoke, IDs: []task.ID{"x"}}, "this node cannot revoke tasks"},
			{control.Command{Do: control.DoShutdown}, "does not allow shutdown"},
		} {
			rs := send(t, c, tc.cmd)
			if len(rs) != 1 || !strings.Contains(rs[0].Error, tc.want) {
				t.Errorf("%s: %+v, want one reply with the error %q", tc.cmd.Do, rs, tc.want)
			}
		}
		if told := n.told(); len(told) != 1 {
			t.Errorf("the node was told %q, want the pause alone", told)
		}
		if got := s.Counts(); got.Denied != 1 || got.Obeyed != 2 {
			t.Errorf("counts %+v, want one denied and two obeyed", got)
		}
	})
}

// TestBadCommands shows that invalid commands are not sent.
func TestBadCommands(t *testing.T) {
	bus := memevents.New(memevents.Config{})
	c := client(t, bus, nil)
	for name, cmd := range map[string]control.Command{
		"nothing":      {},
		"unknown":      {Do: "format"},
		"node":         {Do: control.DoPing, Nodes: []string{"a b"}},
		"queues":       {Do: control.DoPing, Queues: make([]string, control.MaxTargets+1)},
		"scale":        {Do: control.DoScale, Workers: 1},
		"workers":      {Do: control.DoScale, Queues: []string{"a"}},
		"many workers": {Do: control.DoScale, Queues: []string{"a"}, Workers: control.MaxWorkers + 1},
		"rate":         {Do: control.DoRateLimit, Task: "a", Rate: "fast"},
		"rate of what": {Do: control.DoRateLimit, Rate: "1/s"},
		"no ids":       {Do: control.DoRevoke},
		"ids":          {Do: control.DoRevoke, IDs: []task.ID{"a\n"}},
		"many ids":     {Do: control.DoRevoke, IDs: make([]task.ID, control.MaxIDs+1)},
	} {
		if _, err := c.Send(t.Context(), cmd, control.Wait{}); !errors.Is(err, control.ErrCommand) {
			t.Errorf("%s: %v, want ErrCommand", name, err)
		}
	}
	big := control.Command{Do: control.DoRevoke}
	for i := range control.MaxIDs {
		big.IDs = append(big.IDs, task.ID(fmt.Sprintf("%0128d", i)))
	}
	for i := range control.MaxTargets {
		big.Nodes = append(big.Nodes, fmt.Sprintf("%0128d", i))
	}
	if _, err := c.Send(t.Context(), big, control.Wait{}); !errors.Is(err, control.ErrCommand) {
		t.Errorf("a command of more than 8 KiB: %v, want ErrCommand", err)
	}
}

// TestLargeReplies shows that a large reply is sent in parts, and that tasks beyond the limit are
// left out and counted.
func TestLargeReplies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := memevents.New(memevents.Config{})
		n := &fake{id: "n1", queues: []string{"a"}}
		for i := range control.MaxTasks + 5 {
			n.tasks = append(n.tasks, control.Task{
				ID: task.ID(fmt.Sprintf("%0100d", i)), Name: strings.Repeat("x", 120), Queue: "a", Since: time.UnixMilli(int64(i)).UTC(), Attempt: 1,
			})
		}
		k := keys("k1")
		serve(t, control.Config{Bus: bus, Keys: k}, n)
		rs := send(t, client(t, bus, k), control.Command{Do: control.DoActive, Nodes: []string{"n1"}})
		if len(rs) != 1 {
			t.Fatalf("%d replies, want 1", len(rs))
		}
		if d := cmp.Diff(n.tasks[:control.MaxTasks], rs[0].Tasks); d != "" || rs[0].More != 5 {
			t.Errorf("more %d, want 5; tasks (-want +got)\n%s", rs[0].More, d)
		}
	})
}

// refused is a bus that its user may not listen to. It has dropped an event.
type refused struct{ events.EventBus }

func (refused) Subscribe(context.Context, events.Filter) (events.Subscription, error) {
	return nil, errors.New("access refused")
}

func (refused) Dropped() uint64 { return 1 }

// TestBusForReplies shows that replies use the second bus if node and client have it and may use
// it, and otherwise the bus for commands. So versions before the second bus understand each other.
func TestBusForReplies(t *testing.T) {
	type access int
	const (
		has access = iota
		lacks
		mayNot
	)
	for name, c := range map[string]struct {
		node, client access // to the second bus
		want         string
	}{
		"both":                   {has, has, "replies"},
		"old node":               {lacks, has, "commands"},
		"old client":             {has, lacks, "commands"},
		"neither":                {lacks, lacks, "commands"},
		"node without rights":    {mayNot, has, "commands"},
		"client without rights":  {has, mayNot, "commands"},
		"neither has the rights": {mayNot, mayNot, "commands"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				buses := map[string]events.EventBus{"commands": memevents.New(memevents.Config{}), "replies": memevents.New(memevents.Config{})}
				var mu sync.Mutex
				seen := map[string]int{}
				for on, bus := range buses {
					sub, err := bus.Subscribe(t.Context(), events.Filter{Types: []string{control.ReplyEvent}})
					if err != nil {
						t.Fatal(err)
					}
					go func() {
						for {
							if _, err := sub.Receive(t.Context()); err != nil {
								return
							}
							mu.Lock()
							seen[on]++
							mu.Unlock()
						}
					}()
				}
				second := func(a access) events.EventBus {
					switch a {
					case has:
						return buses["replies"]
					case mayNot:
						return refused{buses["replies"]}
					}
					return nil
				}
				k := keys("k1")
				for _, id := range []string{"n1", "n2"} {
					serve(t, control.Config{Bus: buses["commands"], Replies: second(c.node), Keys: k}, &fake{id: id, queues: []string{"a"}})
				}
				sender, err := control.NewClient(control.ClientConfig{Bus: buses["commands"], Replies: second(c.client), Keys: k})
				if err != nil {
					t.Fatal(err)
				}
				for range 3 {
					if rs := send(t, sender, control.Command{Do: control.DoPing}); len(rs) != 2 {
						t.Errorf("replies: %+v, want two", rs)
					}
				}
				synctest.Wait()
				mu.Lock()
				defer mu.Unlock()
				if diff := cmp.Diff(map[string]int{c.want: 6}, seen); diff != "" {
					t.Errorf("replies by bus (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestConfig shows that all problems of a configuration are returned together.
func TestConfig(t *testing.T) {
	_, err := control.NewServer(control.Config{
		Allow: []control.Action{"sing"}, Window: -1, Keys: &control.Keys{Active: "b", ByID: map[string][]byte{"a a": []byte("short")}},
	}, nil)
	for _, want := range []string{"Bus is not set", "node is nil", `"sing"`, "Window", "Active is not in", "bad name", "has 5 bytes"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("NewServer: %v does not say %q", err, want)
		}
	}
	if err != nil && strings.Contains(err.Error(), "short") {
		t.Errorf("the error holds a key: %v", err)
	}
	_, err = control.NewClient(control.ClientConfig{NodeID: "a b", Keys: &control.Keys{}})
	for _, want := range []string{"Bus is not set", "NodeID", "Active"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("NewClient: %v does not say %q", err, want)
		}
	}
	s, err := control.NewServer(control.Config{Bus: memevents.New(memevents.Config{})}, &fake{id: "n"})
	if err != nil {
		t.Fatal(err)
	}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Run(done); err != nil {
		t.Errorf("Run with an ended ctx: %v", err)
	}
	if err := s.Run(done); !errors.Is(err, control.ErrRunning) {
		t.Errorf("second Run: %v", err)
	}
}

// TestBusEnds shows that a closed bus ends Run with an error, and that Run waits for an unavailable
// bus.
func TestBusEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := &away{EventBus: memevents.New(memevents.Config{})}
		bus.left.Store(3)
		var log bytes.Buffer
		s, err := control.NewServer(control.Config{Bus: bus, Logger: slog.New(slog.NewTextHandler(&log, nil))}, &fake{id: "n1"})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- s.Run(t.Context()) }()
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := strings.Count(log.String(), "subscribing to commands failed"); n != 1 {
			t.Errorf("%d lines about one interruption of the bus", n)
		}
		if rs := send(t, client(t, bus, nil), control.Command{Do: control.DoPing, Nodes: []string{"n1"}}); len(rs) != 1 {
			t.Errorf("%d replies after the bus came, want 1", len(rs))
		}
		if err := bus.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-done; !errors.Is(err, events.ErrClosed) {
			t.Errorf("Run on a closed bus: %v, want ErrClosed", err)
		}
	})
}

// TestStart shows that no command is lost between Start and serve. Start waits for a silent bus for
// a second. end ends a server that has not served.
func TestStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := memevents.New(memevents.Config{})
		start := func(b events.EventBus, id string) (serve, end func()) {
			t.Helper()
			s, err := control.NewServer(control.Config{Bus: b, Logger: slog.New(slog.DiscardHandler)}, &fake{id: id})
			if err != nil {
				t.Fatal(err)
			}
			return s.Start(t.Context())
		}
		serve, end := start(bus, "n1")
		_, endEarly := start(bus, "n2")
		replies := make(chan []control.Reply, 1)
		go func() { replies <- send(t, client(t, bus, nil), control.Command{Do: control.DoPing}) }()
		time.Sleep(time.Second)
		serve()
		if rs := <-replies; len(rs) != 1 || rs[0].Node != "n1" {
			t.Errorf("%+v, want the reply of n1", rs)
		}
		endEarly()
		end()
		began, silent := time.Now(), &away{EventBus: bus}
		silent.left.Store(1 << 40)
		_, end = start(silent, "n3")
		if took := time.Since(began); took != time.Second {
			t.Errorf("Start waited %v for a bus that fails", took)
		}
		end()
		if err := bus.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// away is a bus whose first subscriptions fail.
type away struct {
	events.EventBus
	left atomic.Int64
}

func (a *away) Subscribe(ctx context.Context, f events.Filter) (events.Subscription, error) {
	if a.left.Add(-1) >= 0 {
		return nil, events.ErrUnavailable
	}
	return a.EventBus.Subscribe(ctx, f)
}
