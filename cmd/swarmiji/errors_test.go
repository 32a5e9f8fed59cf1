package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/jobs"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/resultstore"
	"github.com/swarmiji/swarmiji/router"
	"github.com/swarmiji/swarmiji/schedule"
	"github.com/swarmiji/swarmiji/serializer"
	"github.com/swarmiji/swarmiji/task"
)

// mistake is one row of TestErrors: a mistake of a user, and the error that the user sees.
type mistake struct {
	name               string
	do                 func(t *testing.T) error
	tried, found, next string // the parts of the text
	is                 error  // the sentinel; nil: a *printed with the status
	status             int
}

// TestErrors makes the mistakes of newcomers, in the library and on the command line. Each error
// names the server, queue or task, its answer, and the next step. It contains no password and no
// phrase twice, and is short.
func TestErrors(t *testing.T) {
	rabbit, redis, nats, pg := testserver.RequireRabbit(t), testserver.RequireRedis(t), testserver.RequireNATS(t), testserver.RequirePostgres(t)
	wrong := func(raw string) string { return changed(t, raw, nil) }
	away := testserver.UnusedAddr(t)
	moved := func(raw, addr string) string {
		return changed(t, raw, func(u *url.URL) { u.Host = addr })
	}
	elsewhere := func(raw, path string) string {
		return changed(t, raw, func(u *url.URL) { u.User, u.Path = parsed(t, raw).User, path })
	}
	ns := "?namespace=" + testserver.Namespace()
	down, login := "connection refused", "correct user and password"
	results := func(url string) open.Options { return open.Options{Results: url} }
	calls := func(url string, more ...string) []string {
		return append([]string{"call", "math.add", "{}", "--broker", url}, more...)
	}
	wire := serializer.Wire{Serializers: []serializer.Serializer{serializer.JSON{DisallowUnknownFields: true}}}
	type fields = map[string]any

	rows := []mistake{
		// wrong URLs; their errors have no sentinel in the library
		{"unknown scheme", prints(2, "call", "x", "--broker", "amqb://u:"+password+"@h"), "amqb://", "there is no adapter", "correct the scheme", nil, 2},
		{"no scheme", prints(2, "call", "x", "--broker", "localhost:5672"), "URL", "no scheme", "write mem://, amqp://", nil, 2},
		{"path of a file", prints(2, "queue", "ls", "--broker", "app.db"), "URL", "no scheme", "write sqlite:// before", nil, 2},
		{"no host", prints(2, "call", "x", "--broker", "amqp://"), "URL", "names no host", "write amqp://user:password@host", nil, 2},
		{"@ in the password", prints(2, "call", "x", "--broker", "amqp://u:"+password+"@x@h/"), "amqp:// URL", "cannot be parsed", "@ is %40", nil, 2},
		{"port", prints(2, "call", "x", "--broker", "amqp://u:"+password+"@h:port/"), "amqp:// URL", "cannot be parsed", "a port is a number", nil, 2},
		{"parameter", prints(2, "call", "x", "--broker", "redis://h/0?dbb=1"), "dbb", "unknown parameter", "known are namespace", nil, 2},
		{"no broker", prints(2, "call", "x"), "no broker", "no broker", "give --broker or set SWARMIJI_BROKER", nil, 2},

		// a wrong password
		{"RabbitMQ, password", pings(wrong(rabbit.URL()), open.Options{}), "RabbitMQ at " + rabbit.Addr(), `login of user "guest" refused (Login was refused`, login, broker.ErrAccess, 0},
		{"Redis, password", pings(wrong(redis.URL()), open.Options{}), "Redis at " + redis.Addr(), "invalid username-password pair", login, broker.ErrAccess, 0},
		{"Redis, none", pings("redis://"+redis.Addr(), open.Options{}), "Redis at " + redis.Addr(), "Authentication required", "give user and password", broker.ErrAccess, 0},
		{"NATS, password", pings(wrong(nats.URL()), open.Options{}), "NATS at " + nats.Addr(), "Authorization Violation", login, broker.ErrAccess, 0},
		{"PostgreSQL, password", pings("mem://", results(wrong(pg.URL()))), "PostgreSQL at " + pg.Addr(), "password authentication failed", login, resultstore.ErrUnavailable, 0},
		{"RabbitMQ, password, submit", submits(wrong(rabbit.URL())), "RabbitMQ at " + rabbit.Addr(), "refused", login, broker.ErrAccess, 0},
		{"Redis, password, submit", submits(wrong(redis.URL())), "Redis at " + redis.Addr(), "invalid username-password pair", login, broker.ErrAccess, 0},
		{"NATS, password, submit", submits(wrong(nats.URL())), "NATS at " + nats.Addr(), "Authorization Violation", login, broker.ErrAccess, 0},
		{"PostgreSQL, password, submit", submits(wrong(pg.URL())), "PostgreSQL at " + pg.Addr(), "password authentication failed", login, broker.ErrAccess, 0},
		{"jobs, password", findsJob(wrong(pg.URL())), "PostgreSQL at " + pg.Addr(), "password authentication failed", login, jobs.ErrUnavailable, 0},
		{"schedule, password", ticks(wrong(redis.URL())), "Redis at " + redis.Addr(), "invalid username-password pair", login, schedule.ErrUnavailable, 0},
		{"command, password", prints(4, calls(wrong(rabbit.URL()))...), "RabbitMQ at " + rabbit.Addr(), "Login was refused", login, nil, 4},

		// a database that does not exist
		{"virtual host", pings(elsewhere(rabbit.URL(), "/nope"), open.Options{}), "RabbitMQ at " + rabbit.Addr(), `may not use virtual host "nope"`, "correct the path of the URL", broker.ErrAccess, 0},
		{"Redis database", pings(elsewhere(redis.URL(), "/999"), open.Options{}), "Redis at " + redis.Addr(), "DB index is out of range", "correct the number of the database", nil, -1},
		{"PostgreSQL database", pings("mem://", results(elsewhere(pg.URL(), "/nope"))), "PostgreSQL at " + pg.Addr(), `database "nope" does not exist`, "create the database", resultstore.ErrUnavailable, 0},
		{"directory", pings("mem://", results("sqlite:///none/app.db")), "sqlite:///none/app.db", "no such file or directory", "make its directory", resultstore.ErrUnavailable, 0},
		{"file of jobs", prints(3, "job", "ls", "--store", "/none/jobs.db"), "/none/jobs.db", "there is no file", "--store or SWARMIJI_JOBS names", nil, 3},

		// no server
		{"RabbitMQ down", pings(moved(rabbit.URL(), away), open.Options{}), "RabbitMQ answers at " + away, down, "start one", broker.ErrUnavailable, 0},
		{"Redis down", pings(moved(redis.URL(), away), open.Options{}), "Redis answers at " + away, down, "start one", broker.ErrUnavailable, 0},
		{"NATS down", pings(moved(nats.URL(), away), open.Options{}), "NATS server answers at " + away, down, "start one", broker.ErrUnavailable, 0},
		{"PostgreSQL down", pings("mem://", results(moved(pg.URL(), away))), "PostgreSQL answers at " + away, down, "start one", broker.ErrUnavailable, 0},
		{"host", pings("amqp://u:"+password+"@host.invalid", open.Options{}), "host.invalid:5672", "unknown host", "start one", broker.ErrUnavailable, 0},
		{"RabbitMQ down, submit", submits(moved(rabbit.URL(), away)), "RabbitMQ at " + away, down, "check that it runs", broker.ErrUnavailable, 0},
		{"Redis down, submit", submits(moved(redis.URL(), away)), "Redis at " + away, down, "check that it runs", broker.ErrUnavailable, 0},
		{"NATS down, submit", submits(moved(nats.URL(), away)), "NATS at " + away, down, "check that it runs", broker.ErrUnavailable, 0},
		{"PostgreSQL down, submit", submits(moved(pg.URL(), away)), "PostgreSQL at " + away, down, "check that it runs", broker.ErrUnavailable, 0},
		{"jobs down", findsJob(moved(pg.URL(), away)), "PostgreSQL at " + away, down, "check that it runs", jobs.ErrUnavailable, 0},
		{"schedule down", ticks(moved(pg.URL(), away)), "PostgreSQL at " + away, down, "check that it runs", schedule.ErrUnavailable, 0},
		{"jobs command, down", prints(4, "job", "ls", "--store", moved(pg.URL(), away)), "PostgreSQL at " + away, down, "check that it runs", nil, 4},

		// another server
		{"AMQP to Redis", pings(moved(rabbit.URL(), redis.Addr()), open.Options{}), "RabbitMQ at " + redis.Addr(), "no AMQP answer", "check scheme and port", broker.ErrUnavailable, 0},
		{"TLS to plain text", pings("amqps"+strings.TrimPrefix(wrong(rabbit.URL()), "amqp"), open.Options{}), "RabbitMQ at " + rabbit.Addr(), "does not speak TLS", "use an amqp:// URL", broker.ErrUnavailable, 0},
		{"Redis to AMQP", pings(moved(redis.URL(), rabbit.Addr()), open.Options{}), "Redis at " + rabbit.Addr(), "reset by peer", "scheme, host and port", broker.ErrUnavailable, 0},
		{"jobs at Redis", findsJob(moved(pg.URL(), redis.Addr())), "PostgreSQL at " + redis.Addr(), "no answer yet", "check scheme and port", jobs.ErrUnavailable, 0},

		// an unknown queue
		{"queue, RabbitMQ", submitsTo(rabbit.URL()+ns, "missing"), `"missing"`, "no such queue", "correct the queue's name", broker.ErrNoQueue, 0},
		{"queue, Redis", submitsTo(redis.URL()+ns, "missing"), `"missing"`, "no such queue", "correct the queue's name", broker.ErrNoQueue, 0},
		{"queue, PostgreSQL", submitsTo(pg.URL()+"&"+ns[1:], "missing"), `"missing"`, "no such queue", "correct the queue's name", broker.ErrNoQueue, 0},
		{"queue, NATS", submitsTo(nats.URL()+ns, "missing"), `"missing"`, "no such queue", "correct the queue's name", broker.ErrNoQueue, 0},
		{"queue, memory", submitsTo("mem://", "missing"), `"missing"`, "no such queue", "correct the queue's name", broker.ErrNoQueue, 0},
		{"queue, call", prints(3, calls(redis.URL()+ns, "--queue", "missing")...), `"missing"`, "no such queue", "see swarmiji queues", nil, 3},
		{"queue, list", prints(3, "queues", "missing", "--broker", redis.URL()+ns), "queue missing", "not found", "see swarmiji queues", nil, 3},

		// arguments
		{"a text for a struct", works[string, int](serializer.Wire{}, "math.add", "one"), `task "math.add"`, "msgpack: unexpected code", "a main.pair, or change its handler", task.ErrBadArgs, 0},
		{"a text for a struct, JSON", works[string, int](wire, "math.add", "one"), `task "math.add"`, "cannot unmarshal string", "a main.pair, or change its handler", task.ErrBadArgs, 0},
		{"a text for a number", works[fields, int](wire, "math.add", fields{"a": "one"}), `task "math.add"`, "cannot unmarshal string into Go struct field pair.a", "a main.pair, or change its handler", task.ErrBadArgs, 0},
		{"an unknown field", works[fields, int](wire, "math.add", fields{"first": 1}), `task "math.add"`, `unknown field "first"`, "a main.pair, or change its handler", task.ErrBadArgs, 0},
		{"another result", works[pair, string](wire, "math.add", pair{1, 2}), "result of ", "cannot unmarshal number", "ask for the type that its handler returns", serializer.ErrValue, 0},
		{"no JSON", prints(2, "call", "x", "{a:1}", "--broker", redis.URL()+ns), "the arguments", "are no JSON", `a text is written '"text"'`, nil, 2},

		// a task that no consumer runs
		{"no handler", works[pair, int](serializer.Wire{}, "math.sum", pair{1, 2}), `"math.sum" came to queue "work"`, "whose consumer has math.add", "register it there", task.ErrUnknownTask, 0},
		{"no consumer", prints(1, calls(redis.URL()+ns, "--declare", "--wait")...), "result of ", "no consumer has recorded the task", "check that a consumer serves its queue", nil, 1},
		{"no such task", prints(3, "result", "some-id", "--broker", redis.URL()+ns), "task some-id", "no record of this task", "check id and --namespace", nil, 3},
	}
	for _, m := range rows {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			m.check(t, m.do(t))
		})
	}
}

// check fails unless err is the error that the user must see.
func (m *mistake) check(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	text := err.Error()
	t.Log(text)
	for _, part := range []string{m.tried, m.found, m.next} {
		if !strings.Contains(text, part) {
			t.Errorf("%q does not say %q", text, part)
		}
	}
	if strings.Contains(text, password) || strings.Contains(text, "swarmiji-ping") {
		t.Errorf("%q contains a password or an internal name", text)
	}
	if len(text) > 330 {
		t.Errorf("%q has %d bytes", text, len(text))
	}
	if phrase := twice(text); phrase != "" {
		t.Errorf("%q says %q twice", text, phrase)
	}
	if p, ok := errors.AsType[*printed](err); ok && p.status != m.status {
		t.Errorf("status %d, want %d", p.status, m.status)
	}
	if m.is != nil && !errors.Is(err, m.is) {
		t.Errorf("%q is not %v", text, m.is)
	}
}

// twice returns a phrase of two words that text has twice, or "".
func twice(text string) string {
	words := strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return strings.ContainsRune(" \n:;,()\"_", r) })
	seen := make(map[string]bool)
	for i := 1; i < len(words); i++ {
		switch phrase := words[i-1] + " " + words[i]; phrase {
		case "of the", "in the", "the task", "its queue", "the url": // grammar, and the subject
		default:
			if seen[phrase] {
				return phrase
			}
			seen[phrase] = true
		}
	}
	return ""
}

// password is the password in the URLs of the table.
const password = "wrong-pa55word"

// short limits the wait for servers that do not answer.
const short = 3 * time.Second

func parsed(t *testing.T, raw string) *url.URL {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// changed returns a URL with a wrong password, and with the change.
func changed(t *testing.T, raw string, change func(u *url.URL)) string {
	t.Helper()
	u := parsed(t, raw)
	u.User = url.UserPassword("guest", password)
	if change != nil {
		change(u)
	}
	return u.String()
}

// swarm opens a Swarm for the duration of the test.
func swarm(t *testing.T, url string, o open.Options) *open.Swarm {
	t.Helper()
	o.Logger = slog.New(slog.DiscardHandler)
	s, err := open.Open(t.Context(), url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, s) })
	return s
}

func closed(t *testing.T, c interface {
	Close(ctx context.Context) error
},
) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := c.Close(ctx); err != nil {
		t.Log("Close:", err) // such as the end of a server that was never reached
	}
}

// pings returns the error of Ping.
func pings(url string, o open.Options) func(t *testing.T) error {
	return func(t *testing.T) error { return swarm(t, url, o).Ping(t.Context()) }
}

// submits returns the error of a producer that declares its queue.
func submits(url string) func(t *testing.T) error {
	return func(t *testing.T) error { return submit(t, url, router.Static("work")) }
}

// submitsTo returns the error of a producer that declares no queue.
func submitsTo(url, queue string) func(t *testing.T) error {
	return func(t *testing.T) error { return submit(t, url, existing{}, task.WithQueue(queue)) }
}

func submit(t *testing.T, url string, r router.Router, opts ...task.Option) error {
	t.Helper()
	p, err := swarm(t, url, open.Options{}).Producer(producer.Config{Router: r})
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, p)
	ctx, cancel := context.WithTimeout(t.Context(), short)
	defer cancel()
	_, err = add.Submit(ctx, p, pair{1, 2}, opts...)
	return err
}

// findsJob returns the error of a query for a job.
func findsJob(url string) func(t *testing.T) error {
	return func(t *testing.T) error {
		store, err := open.Jobs(t.Context(), url, open.JobsOptions{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			return err
		}
		defer closed(t, store)
		s, err := jobs.New(jobs.Config{Store: store, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			return err
		}
		defer closed(t, s)
		ctx, cancel := context.WithTimeout(t.Context(), short)
		defer cancel()
		_, err = s.Row(ctx, 1)
		return err
	}
}

// ticks returns the error of a query for due ticks.
func ticks(url string) func(t *testing.T) error {
	return func(t *testing.T) error {
		s, err := open.Schedule(t.Context(), url, open.ScheduleOptions{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			return err
		}
		defer closed(t, s)
		ctx, cancel := context.WithTimeout(t.Context(), short)
		defer cancel()
		_, err = s.Due(ctx, 1)
		return err
	}
}

// works submits a task to a consumer that has a handler for math.add alone, and returns the error
// of its future.
func works[A, R any](wire serializer.Wire, name string, args A) func(t *testing.T) error {
	return func(t *testing.T) error {
		s := swarm(t, "mem://", open.Options{})
		c, err := s.Consumer(consumer.Config{
			Wire: wire, Queues: map[string]consumer.QueueConfig{"work": {Workers: 1}},
			Tuning: consumer.Tuning{UnknownRetries: -1},
		})
		if err != nil {
			return err
		}
		if err := add.Handle(c, func(_ context.Context, p pair) (int, error) { return p.A + p.B, nil }); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		ended := make(chan error, 1)
		go func() { ended <- c.Run(ctx) }()
		defer func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error("Run:", err)
			}
		}()
		p, err := s.Producer(producer.Config{Wire: wire, Router: router.Static("work")})
		if err != nil {
			return err
		}
		defer closed(t, p)
		f, err := task.New[A, R](name).Submit(ctx, p, args)
		if err != nil {
			return fmt.Errorf("submit: %w", err)
		}
		_, err = f.Get(ctx)
		return err
	}
}

// printed is the output of the program, as an error.
type printed struct {
	text   string
	status int
}

func (p *printed) Error() string { return p.text }

// prints runs the program, which must end with the status, and returns its standard error.
func prints(status int, args ...string) func(t *testing.T) error {
	return func(t *testing.T) error {
		var out strings.Builder
		got := run(t.Context(), append(args, "--timeout", short.String()), cli.Surroundings{
			Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: &out, Getenv: func(string) string { return "" },
		})
		if got != status {
			t.Errorf("status %d, want %d", got, status)
		}
		return &printed{strings.TrimSpace(out.String()), got}
	}
}
