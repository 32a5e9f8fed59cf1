package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/control"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/revoke"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/serializer/compress"
	"github.com/swarmiji/swarmiji/task"
)

func TestMain(m *testing.M) {
	testscript.Main(leakless{m}, map[string]func(){"swarmiji": main})
}

// leakless fails if the tests left goroutines.
type leakless struct{ *testing.M }

// scriptsAtOnce is the number of scripts that run at once. They wait for answers, most of the time.
const scriptsAtOnce = 4

func (m leakless) Run() int {
	flag.Parse()
	if err := flag.Set("test.parallel", strconv.Itoa(scriptsAtOnce)); err != nil {
		_, _ = os.Stderr.WriteString(err.Error())
		return 1
	}
	code := m.M.Run()
	if err := goleak.Find(goleak.IgnoreAnyFunction(testserver.Reaper)); err != nil && code == 0 {
		_, _ = os.Stderr.WriteString(err.Error())
		return 1
	}
	return code
}

// patience bounds each wait of these tests, and pause is the time between two looks.
const (
	patience = 2 * time.Minute
	pause    = 50 * time.Millisecond
)

// swarmiji runs the program inside the test, with the script's directory, input and environment.
// Starting a process for each command would take most of the time.
func swarmiji(ts *testscript.TestScript, want int, args []string) {
	s := cli.Surroundings{Stdin: strings.NewReader(ts.Getenv("STDIN")), Terminal: ts.Getenv("TERMINAL") != "", Stdout: ts.Stdout(), Stderr: ts.Stderr(), Getenv: ts.Getenv}
	ctx, cancel := context.WithTimeout(context.Background(), 3*patience)
	defer cancel()
	if got := run(ctx, named(ts, patient(args)), s); got != want {
		ts.Fatalf("status %d, want %d", got, want)
	}
}

// named adds --name with the script's schedule, unless the script gives one.
func named(ts *testscript.TestScript, args []string) []string {
	if name := ts.Getenv("SCHEDULE"); name != "" && !slices.Contains(args, "--schedule") {
		args = append(args, "--schedule", name)
	}
	return args
}

// patient adds a long --timeout for busy machines, unless the script gives one.
func patient(args []string) []string {
	has := func(flag string) bool { return slices.Contains(args, flag) }
	if !has("--timeout") {
		args = append(args, "--timeout", patience.String())
	}
	if has("--replies") && !has("--collect") && !has("--listen") {
		args = append(args, "--collect", patience.String())
	}
	return args
}

// serving holds the functions that end the server of each script.
type serving struct {
	mu   sync.Mutex
	stop map[*testscript.TestScript]func() int
}

func (s *serving) put(ts *testscript.TestScript, stop func() int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop[ts] = stop
}

func (s *serving) get(ts *testscript.TestScript) func() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stop[ts]
}

// commands are the additional commands of scripts.
func commands() map[string]func(ts *testscript.TestScript, neg bool, args []string) {
	stops := serving{stop: map[*testscript.TestScript]func() int{}}
	return map[string]func(ts *testscript.TestScript, neg bool, args []string){
		// run ARGS: runs the program, which must succeed.
		"run": func(ts *testscript.TestScript, _ bool, args []string) { swarmiji(ts, 0, args) },
		// fails STATUS ARGS: runs the program, which must end with this status.
		"fails": func(ts *testscript.TestScript, _ bool, args []string) {
			status, err := strconv.Atoi(args[0])
			ts.Check(err)
			swarmiji(ts, status, args[1:])
		},
		// until TEXT ARGS: runs the program until it prints the text.
		"until": func(ts *testscript.TestScript, _ bool, args []string) {
			var out strings.Builder
			for end := time.Now().Add(patience); time.Now().Before(end); <-time.After(pause) {
				out.Reset()
				run(context.Background(), patient(args[1:]), cli.Surroundings{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out, Getenv: ts.Getenv})
				if strings.Contains(out.String(), args[0]) {
					_, err := ts.Stdout().Write([]byte(out.String()))
					ts.Check(err)
					return
				}
			}
			ts.Fatalf("%q was never printed; the last output is\n%s", args[0], out.String())
		},
		// recording: runs a recorder until the script ends. It has heard tasks when the command ends.
		"recording": func(ts *testscript.TestScript, _ bool, _ []string) {
			ctx, cancel := context.WithCancel(context.Background())
			ended := make(chan int, 1)
			quiet := func(out io.Writer) cli.Surroundings {
				return cli.Surroundings{Stdin: strings.NewReader(""), Stdout: out, Stderr: out, Getenv: ts.Getenv}
			}
			go func() { ended <- run(ctx, patient([]string{"history", "record"}), quiet(io.Discard)) }()
			ts.Defer(func() {
				cancel()
				if status := <-ended; status != 0 {
					ts.Fatalf("history record: status %d", status)
				}
			})
			var out strings.Builder
			for end := time.Now().Add(patience); time.Now().Before(end); <-time.After(pause) {
				out.Reset()
				run(context.Background(), patient([]string{"call", "math.add", "{}", "--queue", "work"}), quiet(io.Discard))
				run(context.Background(), patient([]string{"task", "ls", "--count", "name:math.add", "state:succeeded"}), quiet(&out))
				if n, err := strconv.Atoi(strings.TrimSpace(out.String())); err == nil && n > 1 {
					return
				}
			}
			ts.Fatalf("no task was recorded; the last output is\n%s", out.String())
		},
		// cmpjson TEXT...: the last output is the JSON list of these texts.
		"cmpjson": func(ts *testscript.TestScript, _ bool, args []string) {
			var got []string
			ts.Check(json.Unmarshal([]byte(ts.ReadFile("stdout")), &got))
			if got == nil || !slices.Equal(got, args) {
				ts.Fatalf("%q was printed, want %q", got, args)
			}
		},
		// entry TASK: sets $ENTRY to the beginning of the id of this task's entry in the list printed
		// last.
		"entry": func(ts *testscript.TestScript, _ bool, args []string) {
			var out strings.Builder
			if status := run(context.Background(), named(ts, []string{"schedule", "ls"}), cli.Surroundings{
				Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out, Getenv: ts.Getenv,
			}); status != 0 {
				ts.Fatalf("status %d: %s", status, out.String())
			}
			for line := range strings.Lines(out.String()) {
				if f := strings.Fields(line); len(f) > 1 && f[1] == args[0] {
					ts.Setenv("ENTRY", f[0][:12])
					return
				}
			}
			ts.Fatalf("there is no entry of %s:\n%s", args[0], out.String())
		},
		// serve COMMAND ARGS: runs a command that serves until the script ends or has "unserve". $SERVED
		// is its address.
		"serve": func(ts *testscript.TestScript, _ bool, args []string) {
			ctx, cancel := context.WithCancel(context.Background())
			r, w := io.Pipe()
			ended := make(chan int, 1)
			args = append([]string{args[0], "--listen", "127.0.0.1:0"}, patient(args[1:])...)
			go func() {
				ended <- run(ctx, args, cli.Surroundings{Stdin: strings.NewReader(""), Stdout: w, Stderr: ts.Stderr(), Getenv: ts.Getenv})
				_ = w.Close()
			}()
			line, err := bufio.NewReader(r).ReadString('\n')
			stop := sync.OnceValue(func() int { cancel(); return <-ended })
			ts.Defer(func() { stop() })
			if err != nil {
				ts.Fatalf("it does not serve: status %d", stop())
			}
			ts.Setenv("SERVED", line[strings.LastIndexByte(line, ' ')+1:len(line)-1])
			stops.put(ts, stop)
			_, _ = ts.Stdout().Write([]byte(line))
		},
		// unserve: ends the server, which must succeed.
		"unserve": func(ts *testscript.TestScript, _ bool, _ []string) {
			if status := stops.get(ts)(); status != 0 {
				ts.Fatalf("status %d", status)
			}
		},
		// get PATH: asks the server for a page and prints it.
		"get": func(ts *testscript.TestScript, _ bool, args []string) {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+ts.Getenv("SERVED")+args[0], nil)
			ts.Check(err)
			r.Close = true
			answer, err := http.DefaultClient.Do(r)
			ts.Check(err)
			page, err := io.ReadAll(answer.Body)
			ts.Check(errors.Join(err, answer.Body.Close()))
			_, err = fmt.Fprintf(ts.Stdout(), "%s\n%s", answer.Status, page)
			ts.Check(err)
		},
		// say LINE...: sends a request to the server of jobs and prints the answer, with line ends of
		// files.
		"say": func(ts *testscript.TestScript, _ bool, args []string) {
			nc, err := net.DialTimeout("tcp", ts.Getenv("SERVED"), patience)
			ts.Check(err)
			defer func() { _ = nc.Close() }()
			_ = nc.SetDeadline(time.Now().Add(patience))
			_, err = io.WriteString(nc, strings.Join(args, "\n")+"\n\n")
			ts.Check(err)
			ts.Check(nc.(*net.TCPConn).CloseWrite())
			answer, err := io.ReadAll(nc)
			ts.Check(err)
			_, err = io.WriteString(ts.Stdout(), strings.ReplaceAll(string(answer), "\r", "")+"\n")
			ts.Check(err)
		},
		// listen ID ARGS: runs the program, which ends by itself, and submits tasks with this id until it
		// does. For "-" each task has its own id.
		"listen": func(ts *testscript.TestScript, _ bool, args []string) {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			ended := make(chan int, 1)
			call := []string{"call", "math.add", "{}", "--queue", "work"}
			if args[0] != "-" {
				call = append(call, "--id", args[0])
			}
			go func() {
				ended <- run(ctx, args[1:], cli.Surroundings{Stdin: strings.NewReader(""), Stdout: ts.Stdout(), Stderr: ts.Stderr(), Getenv: ts.Getenv})
			}()
			for {
				select {
				case status := <-ended:
					if status != 0 || ctx.Err() != nil {
						ts.Fatalf("status %d, %v", status, ctx.Err())
					}
					return
				case <-time.After(20 * time.Millisecond): // it may not listen yet
				}
				run(context.Background(), call, cli.Surroundings{
					Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: io.Discard, Getenv: ts.Getenv,
				})
			}
		},
	}
}

// key signs the commands to the consumers of these tests. keyFile is the same as a file.
const (
	key     = "thirty-two bytes that nobody has"
	keyFile = "# keys\nk1 dGhpcnR5LXR3byBieXRlcyB0aGF0IG5vYm9keSBoYXM=\n"
)

// pair holds the arguments of add.
type pair struct {
	A int `json:"a"`
	B int `json:"b"`
}

var (
	add   = task.New[pair, int]("math.add")
	echo  = task.New[map[string]any, map[string]any]("echo")
	broke = task.New[string, string]("broken", task.WithMaxRetries(0))
	slow  = task.New[string, string]("slow")
)

// sealKeys is the key file of the queue "sealed".
const sealKeys = "# keys\ns2 c2VhbGluZyBrZXkgb2YgdGhpcnR5LXR3byBieXRlcyE= sign\ns1 YW5vdGhlciBrZXkgb2YgdGhpcnR5LXR3byBieXRlcy4=\n"

// sealing configures a consumer of the queue "sealed". Its results are also compressed.
func sealing(cfg consumer.Config) (consumer.Config, error) {
	zstd, err := compress.NewZstd()
	if err != nil {
		return cfg, err
	}
	ring, err := serializer.NewKeyRing(serializer.Key{ID: "s1", Secret: []byte("another key of thirty-two bytes.")},
		serializer.Key{ID: "s2", Secret: []byte("sealing key of thirty-two bytes!"), SignOnly: true})
	cfg.Report.NodeID, cfg.Control, cfg.Wire.Sealer = "node-2", nil, ring
	cfg.Wire.Compression = serializer.Compression{Compressors: []serializer.Compressor{zstd}, Use: zstd.Name(), Above: 1, Sealed: true}
	cfg.Queues = map[string]consumer.QueueConfig{"sealed": {Workers: 1}}
	return cfg, err
}

// worker runs consumers of the queues "work" and "sealed" until the script ends. The tasks "slow"
// end with the worker.
func worker(env *testscript.Env, url string) error {
	ctx, cancel := context.WithCancel(context.Background())
	logger := slog.New(slog.DiscardHandler)
	s, err := open.Open(ctx, url, open.Options{Control: true, Logger: logger})
	if err != nil {
		cancel()
		return err
	}
	list, err := revoke.New(revoke.Config{Events: s.Revocations, Logger: logger})
	if err != nil {
		cancel()
		return errors.Join(err, s.Close(context.Background()))
	}
	cfg := consumer.Config{
		Broker: s.Broker, Results: s.Results, Events: s.Events, Logger: logger, Report: events.Report{NodeID: "node-1"}, ShutdownTimeout: -1,
		Control: &control.Config{Bus: s.Control, Keys: &control.Keys{Active: "k1", ByID: map[string][]byte{"k1": []byte(key)}}},
		Queues:  map[string]consumer.QueueConfig{"work": {Workers: 2}}, Tuning: consumer.Tuning{UnknownRetries: -1}, Revocations: list,
	}
	protected, err := sealing(cfg)
	ended := make(chan error, 2)
	for _, one := range []consumer.Config{cfg, protected} {
		c, cerr := handling(one)
		if err = errors.Join(err, cerr); err == nil {
			go func() { ended <- c.Run(ctx) }()
		}
	}
	env.Defer(func() {
		cancel()
		for range 2 {
			<-ended // its error is ignored: it does not wait for slow tasks
		}
		closing, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := errors.Join(list.Close(closing), s.Close(closing)); err != nil {
			env.T().Log("closing the worker:", err)
		}
	})
	return err
}

// handling makes a consumer with all handlers.
func handling(cfg consumer.Config) (*consumer.Consumer, error) {
	c, err := consumer.New(cfg)
	if err != nil {
		return nil, err
	}
	return c, errors.Join(
		add.Handle(c, func(_ context.Context, p pair) (int, error) { return p.A + p.B, nil }),
		echo.Handle(c, func(_ context.Context, m map[string]any) (map[string]any, error) { return m, nil }),
		broke.Handle(c, func(context.Context, string) (string, error) { return "", errors.New("it is broken") }),
		slow.Handle(c, func(ctx context.Context, s string) (string, error) { <-ctx.Done(); return s, ctx.Err() }),
	)
}

// scripts returns the scripts of testdata/script that run against a broker: all against Redis, and
// against the others those whose output differs between brokers. The suites of the ports and
// TestOperate of package open show that the other commands find the same on each broker. With
// SWARMIJI_THOROUGH all scripts run against all brokers.
func scripts(t *testing.T, broker string) []string {
	t.Helper()
	all, err := filepath.Glob("testdata/script/*.txtar")
	if err != nil || len(all) == 0 {
		t.Fatal("no scripts:", err)
	}
	differ := append([]string{"call", "dead", "exporter", "inspect", "sight"}, map[string][]string{
		"rabbit":   {"control", "events", "result", "seal"},
		"postgres": {"history"},
	}[broker]...)
	if broker == "redis" || testserver.IsThorough() {
		return all
	}
	chosen := slices.DeleteFunc(all, func(path string) bool {
		return !slices.Contains(differ, strings.TrimSuffix(filepath.Base(path), ".txtar"))
	})
	if len(chosen) != len(differ) {
		t.Fatalf("of the scripts %q there are only %q", differ, chosen)
	}
	return chosen
}

// TestScripts runs the scripts of testdata/script against each broker, with a consumer.
func TestScripts(t *testing.T) {
	for name, server := range map[string]func(t *testing.T) string{
		"rabbit":   func(t *testing.T) string { return testserver.RequireRabbit(t).URL() + "?" },
		"redis":    func(t *testing.T) string { return testserver.RequireRedis(t).URL() + "?" },
		"nats":     func(t *testing.T) string { return testserver.RequireNATS(t).URL() + "?" },
		"sqlite":   func(t *testing.T) string { return "sqlite://" + filepath.Join(t.TempDir(), "app.db") + "?" },
		"postgres": func(t *testing.T) string { return testserver.RequirePostgres(t).URL() + "&" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := server(t)
			testscript.Run(t, testscript.Params{
				Files: scripts(t, name), Cmds: commands(), RequireUniqueNames: true,
				Condition: func(cond string) (bool, error) { return cond == name, nil },
				Setup: func(env *testscript.Env) error {
					raceEnv(env)
					with := url + "namespace=" + testserver.Namespace()
					env.Setenv("SWARMIJI_BROKER", with)
					env.Setenv("SWARMIJI_CONTROL_KEYS", env.WorkDir+"/keys")
					for name, text := range map[string]string{"keys": keyFile, "seal": sealKeys} {
						if err := os.WriteFile(env.WorkDir+"/"+name, []byte(text), 0o600); err != nil {
							return err
						}
					}
					return worker(env, with)
				},
			})
		})
	}
}

// TestSchedules runs each script of testdata/schedule against each store of schedules.
func TestSchedules(t *testing.T) {
	for name, store := range map[string]func(t *testing.T) string{
		"redis":    func(t *testing.T) string { return testserver.RequireRedis(t).URL() },
		"nats":     func(t *testing.T) string { return testserver.RequireNATS(t).URL() },
		"sqlite":   func(*testing.T) string { return "" },
		"postgres": func(t *testing.T) string { return testserver.RequirePostgres(t).URL() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := store(t)
			testscript.Run(t, testscript.Params{
				Dir: "testdata/schedule", Cmds: commands(), RequireUniqueNames: true,
				Condition: func(cond string) (bool, error) { return cond == name, nil },
				Setup: func(env *testscript.Env) error {
					raceEnv(env)
					at := url
					if at == "" {
						at = "sqlite://" + env.WorkDir + "/schedule.db"
					}
					env.Setenv("SWARMIJI_SCHEDULE", at)
					env.Setenv("SCHEDULE", testserver.Namespace())
					env.Setenv("SWARMIJI_BROKER", "")
					return nil
				},
			})
		})
	}
}

// TestJobs runs each script of testdata/jobs against each store of jobs. Each script has its own
// database, in which ids begin with 1.
func TestJobs(t *testing.T) {
	for name, store := range map[string]func(t *testing.T) func(env *testscript.Env) (string, error){
		"memory": func(*testing.T) func(*testscript.Env) (string, error) {
			return func(*testscript.Env) (string, error) { return "mem", nil }
		},
		"sqlite": func(*testing.T) func(*testscript.Env) (string, error) {
			return func(env *testscript.Env) (string, error) { return env.WorkDir + "/jobs.db", nil }
		},
		"postgres": func(t *testing.T) func(*testscript.Env) (string, error) {
			server := testserver.RequirePostgres(t)
			return func(*testscript.Env) (string, error) { return server.Database(t.Context(), testserver.Namespace()) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := store(t)
			testscript.Run(t, testscript.Params{
				Dir: "testdata/jobs", Cmds: commands(), RequireUniqueNames: true,
				Condition: func(cond string) (bool, error) { return cond == name, nil },
				Setup: func(env *testscript.Env) error {
					at, err := url(env)
					env.Setenv("SWARMIJI_JOBS", at)
					env.Setenv("SWARMIJI_BROKER", "")
					return err
				},
			})
		})
	}
}

// TestOffline runs the scripts that need no server, in processes of their own.
func TestOffline(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/offline", Cmds: commands(), RequireUniqueNames: true,
		Setup: func(env *testscript.Env) error { raceEnv(env); return nil },
	})
}

// raceEnv passes the settings of the race detector on. Without them each program sleeps for a
// second at its end.
func raceEnv(env *testscript.Env) { env.Setenv("GORACE", os.Getenv("GORACE")) }
