package open_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/consumer"
	"github.com/swarmiji/swarmiji/events"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/open"
	_ "github.com/swarmiji/swarmiji/open/all"
	"github.com/swarmiji/swarmiji/producer"
	"github.com/swarmiji/swarmiji/task"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(testserver.Reaper),
		goleak.IgnoreAnyFunction(testserver.ProxyPipe), goleak.IgnoreAnyFunction(testserver.ProxyRead))
}

const secret = "hunter2"

// TestRefused shows that each function refuses an invalid URL with a remedy and without its
// password.
func TestRefused(t *testing.T) {
	notPEM := filepath.Join(t.TempDir(), "not.pem")
	if err := os.WriteFile(notPEM, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	const at = "u:" + secret + "@host"
	for name, c := range map[string]struct {
		url  string
		o    open.Options
		want string
	}{
		"empty":                     {"", open.Options{}, "the URL is empty; write mem://, amqp://"},
		"blank":                     {" ", open.Options{}, "the URL is empty"},
		"no scheme":                 {at + ":5672", open.Options{}, "has no scheme"},
		"unknown scheme":            {"kafka://" + at, open.Options{}, "no adapter for kafka://; known are mem://, amqp://, nats://"},
		"password as scheme":        {secret + "!://host", open.Options{}, "malformed"},
		"no host":                   {"amqp:///vhost", open.Options{}, "names no host"},
		"two schemes":               {"amqp://" + at + ",amqps://" + at, open.Options{}, "URL 2: it is no amqp:// URL"},
		"comma in password":         {"amqp://u:hun," + secret + "@host", open.Options{}, "percent-encode"},
		"comma in path":             {"amqp://" + at + "/a,b", open.Options{}, "percent-encode"},
		"user at a further host":    {"amqp://" + at + ",u:" + secret + "@host", open.Options{}, "before the first host"},
		"a host is missing":         {"amqp://" + at + ",,host", open.Options{}, "names no host"},
		"bad port":                  {"amqp://" + at + ":" + secret, open.Options{}, "percent-encode"},
		"bad escape":                {"amqp://u:%zz" + secret + "@host", open.Options{}, "percent-encode"},
		"& in sentinel_password":    {"redis-sentinel://host/m?sentinel_password=1&" + secret, open.Options{}, "& is %26"},
		"hash in password":          {"amqp://u:1#" + secret + "@host", open.Options{}, "percent-encode"},
		"question mark in password": {"amqp://u:1?" + secret + "=x@host", open.Options{}, "percent-encode"},
		"slash in password":         {"amqp://u:1/" + secret + "@host", open.Options{}, "percent-encode"},
		"unknown parameter":         {"amqp://" + at + "?colour=red", open.Options{}, "unknown parameter colour; known are namespace, results, events, retain, queue_type"},
		"odd parameter":             {"amqp://" + at + "?Hunter%20" + secret + "!=red", open.Options{}, "no word"},
		"malformed query":           {"amqp://" + at + "?namespace=%zz" + secret, open.Options{}, "cannot be parsed"},
		"semicolons":                {"amqp://" + at + "?namespace=a;queue_type=classic", open.Options{}, "cannot be parsed"},
		"twice":                     {"amqp://" + at + "?namespace=a&namespace=b", open.Options{}, "parameter namespace is given twice"},
		"empty value":               {"amqp://" + at + "?namespace=", open.Options{}, "parameter namespace is empty"},
		"differs":                   {"amqp://" + at + "?namespace=a,amqp://" + at + "?namespace=b", open.Options{}, "differs between the URLs"},
		"verification off":          {"amqps://" + at + "?verify=verify_none", open.Options{}, "always verified"},
		"verification off, again":   {"amqps://" + at + "?insecure=true", open.Options{}, "always verified"},
		"verification off in code":  {"amqps://" + at, open.Options{TLS: &tls.Config{InsecureSkipVerify: true}}, "refused"},
		"the client's names":        {"amqps://" + at + "?cacertfile=x", open.Options{}, "use ca, cert, key"},
		"TLS without TLS":           {"amqp://" + at + "?ca=x", open.Options{}, "parameter ca has no meaning in amqp://; it belongs to amqps://"},
		"TLS without TLS in code":   {"amqp://" + at, open.Options{TLS: &tls.Config{}}, "write amqps://"},
		"TLS twice":                 {"amqps://" + at + "?server_name=x", open.Options{TLS: &tls.Config{}}, "use one of them"},
		"missing ca":                {"amqps://" + at + "?ca=" + notPEM + ".missing", open.Options{}, "parameter ca"},
		"ca is no certificate":      {"amqps://" + at + "?ca=" + notPEM, open.Options{}, "no certificate"},
		"cert without key":          {"amqps://" + at + "?cert=" + notPEM, open.Options{}, "belong together"},
		"cert is no certificate":    {"amqps://" + at + "?cert=" + notPEM + "&key=" + notPEM, open.Options{}, "parameters cert and key"},
		"namespace":                 {"amqp://" + at + "?namespace=a.b", open.Options{}, "amespace"},
		"two namespaces":            {"amqp://" + at + "?namespace=a", open.Options{Namespace: "b"}, `namespace "a" differs`},
		"heartbeat":                 {"amqp://" + at + "?heartbeat=soon", open.Options{}, "parameter is malformed"},
		"mem with host":             {"mem://here", open.Options{}, "neither host nor path"},
		"mem with path":             {"mem:///here", open.Options{}, "neither host nor path"},
		"mem twice":                 {"mem://,mem://", open.Options{}, "given once"},
		"retain":                    {"mem://?retain=long", open.Options{}, "parameter retain must be how long"},
		"retain differs":            {"mem://?retain=1m", open.Options{Retain: events.Retention{Age: time.Hour}}, "differs from the age"},
		"retain elsewhere":          {"mem://?retain=1m", open.Options{Events: "amqp://" + at}, "belongs to the URL of the events"},
		"results, unknown":          {"mem://?results=redis", open.Options{}, "URL of the results: the URL has no scheme"},
		"results, secret":           {"mem://?results=amqp://u:" + secret + "%2540host:port", open.Options{}, "URL of the results: the amqp:// URL cannot be parsed"},
		"results, not encoded":      {"amqp://" + at + "?results=redis://:" + secret + "@host", open.Options{}, "the value of results must be percent-encoded"},
		"events, not encoded":       {"mem://?namespace=a&events=redis://:" + secret + "@h1,h2", open.Options{}, "the value of events must be percent-encoded"},
		"results twice":             {"mem://?results=mem://", open.Options{Results: "mem://"}, "in the options and as parameter results"},
		"results of results":        {"mem://", open.Options{Results: "mem://?results=mem://"}, "belong to the broker's URL"},
		"events of results":         {"mem://", open.Options{Results: "amqp://" + at + "?events=mem://"}, "belong to the broker's URL"},
		"events":                    {"mem://", open.Options{Events: "amqp://" + at + "?colour=red"}, "URL of the events: unknown parameter"},
		"events, two namespaces":    {"mem://", open.Options{Namespace: "a", Events: "amqp://" + at + "?namespace=b"}, "URL of the events: its namespace"},
		"results, TLS without TLS":  {"amqps://" + at, open.Options{TLS: &tls.Config{}, Results: "amqp://" + at}, "URL of the results: the options set up TLS"},
		"nats, path":                {"nats://u:" + secret + "@host/x", open.Options{}, "more text after the host"},
		"nats, replicas":            {"nats://u:" + secret + "@host?replicas=6", open.Options{}, "parameter replicas must be a whole number from 1 to 5"},
		"dead letters, age":         {"amqp://" + at + "?dead_ttl=long", open.Options{}, "parameter dead_ttl must be how long"},
		"dead letters, number":      {"nats://host?dead_max=-1", open.Options{}, "parameter dead_max must be a whole number from 0"},
		"dead letters, elsewhere":   {"mem://?dead_max=1", open.Options{}, "parameter dead_max has no meaning in mem://"},
		"nats, two credentials":     {"nats://host?creds=a&nkey=b", open.Options{}, "use one of them"},
		"nats, TLS in code":         {"nats://u:" + secret + "@host", open.Options{TLS: &tls.Config{}}, "write tls://"},
		"nats, TLS":                 {"nats://u:" + secret + "@host?server_name=x", open.Options{}, "it belongs to amqps://, tls://"},
		"nats, mixed":               {"nats://u:" + secret + "@host,tls://host", open.Options{}, "URL 2: it is no nats:// URL"},
		"embedded, host":            {"nats-embedded://host/x", open.Options{}, "write nats-embedded:///directory with an absolute path"},
		"embedded, no directory":    {"nats-embedded://", open.Options{}, "names no directory"},
		"embedded, root":            {"nats-embedded:///", open.Options{}, "names no directory"},
		"embedded, twice":           {"nats-embedded:///a,nats-embedded:///b", open.Options{}, "given once"},
		"embedded, sync":            {"nats-embedded:///a?sync=often", open.Options{}, "parameter sync must be always"},
		"embedded, listen":          {"nats-embedded:///tmp?listen=0.0.0.0:1", open.Options{}, "loopback"},
		"embedded, escape":          {"nats-embedded:///%zz", open.Options{}, "percent-encode"},
		"redis, two servers":        {"redis://:" + secret + "@h1,h2", open.Options{}, "write redis-cluster:// for a cluster or redis-sentinel:// for Sentinel"},
		"redis, user alone":         {"redis://" + secret + "@host", open.Options{}, "a user and no password"},
		"redis, path":               {"redis://:" + secret + "@host/" + secret, open.Options{}, "the number of a database"},
		"redis, two databases":      {"redis://:" + secret + "@host/1?db=2", open.Options{}, "different databases"},
		"redis, database":           {"redis://:" + secret + "@host?db=x", open.Options{}, "parameter db must be a whole number"},
		"redis, pool":               {"redis://:" + secret + "@host?pool_size=0", open.Options{}, "parameter pool_size must be"},
		"redis, replicas":           {"redis://:" + secret + "@host?wait_replicas=-1", open.Options{}, "parameter wait_replicas must be"},
		"redis, TLS in code":        {"redis://:" + secret + "@host", open.Options{TLS: &tls.Config{}}, "write rediss://"},
		"redis, TLS":                {"redis://:" + secret + "@host?ca=x", open.Options{}, "it belongs to amqps://, tls://, rediss://"},
		"redis, go-redis' names":    {"redis://:" + secret + "@host?dial_timeout=3", open.Options{}, "unknown parameter dial_timeout"},
		"redis, verification off":   {"rediss://:" + secret + "@host?insecure_skip_verify=true", open.Options{}, "always verified"},
		"cluster, database":         {"redis-cluster://:" + secret + "@h1,h2/1", open.Options{}, "one database"},
		"cluster, db":               {"redis-cluster://:" + secret + "@h1,h2?db=1", open.Options{}, "parameter db has no meaning in redis-cluster://"},
		"cluster, users":            {"redis-cluster://a:" + secret + "@h1,redis-cluster://b:x@h2", open.Options{}, "differ in user, password or path"},
		"sentinel, no master":       {"redis-sentinel://:" + secret + "@h1,h2", open.Options{}, "does not name the master"},
		"hworker, cluster":          {"hworker+redis-cluster://:" + secret + "@h1,h2", open.Options{}, "no adapter for hworker+redis-cluster://"},
		"hworker, timeout":          {"hworker+redis://h?timeout=soon", open.Options{}, "parameter timeout must be"},
		"hworker, timeout is short": {"hworker+redis://h?timeout=1ms", open.Options{}, "parameter timeout must be"},
		"hworker, failed size":      {"hworker+redis://h?failed_size=0", open.Options{}, "parameter failed_size must be"},
		"hworker, heartbeat":        {"hworker+redis://h?heartbeat=5", open.Options{}, "parameter heartbeat must be"},
		"redis, timeout":            {"redis://h?timeout=1m", open.Options{}, "it belongs to hworker+redis"},
		"hworker, two servers":      {"hworker+redis://:" + secret + "@h1,h2", open.Options{}, "is one server"},
		"mem with queue type":       {"mem://?queue_type=classic", open.Options{}, "parameter queue_type has no meaning in mem://"},
	} {
		t.Run(name, func(t *testing.T) {
			for what, f := range map[string]func() error{
				"Open":    func() error { _, err := open.Open(t.Context(), c.url, c.o); return err },
				"Broker":  func() error { _, err := open.Broker(t.Context(), c.url, c.o); return err },
				"Results": func() error { _, err := open.Results(t.Context(), c.url, c.o); return err },
				"Events":  func() error { _, err := open.Events(t.Context(), c.url, c.o); return err },
			} {
				err := f()
				if err == nil {
					t.Fatalf("%s took the URL", what)
				}
				if strings.Contains(err.Error(), secret) {
					t.Errorf("%s: the error holds the password: %v", what, err)
				}
				if !strings.Contains(err.Error(), c.want) || strings.ContainsAny(err.Error(), "\n") {
					t.Errorf("%s: the error is %q, want one line with %q", what, err, c.want)
				}
			}
		})
	}
	if _, err := open.Broker(t.Context(), "mem://", open.Options{TLS: &tls.Config{}}); err != nil {
		t.Errorf("mem:// in a program that sets up TLS for another URL: %v", err)
	}
	if _, err := open.Broker(t.Context(), "amqp://"+at+"?queue_type=lazy", open.Options{}); err == nil || !strings.Contains(err.Error(), "lazy") {
		t.Errorf("an unknown queue type: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := open.Open(ended, "mem://", open.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("Open with a ctx that has ended: %v", err)
	}
}

// TestOpensWithoutServer shows that a URL is checked without a server, and that an unused Swarm can
// be closed.
func TestOpensWithoutServer(t *testing.T) {
	for _, url := range []string{
		"mem://", "mem://?namespace=a", "MEM://",
		"amqp://host", "amqp://u:" + secret + "@host:5672/vhost?namespace=a&queue_type=classic&heartbeat=5",
		"amqp://u:p%2C%40%23@h1/%2f, amqp://u:p@h2/%2f?namespace=a",
		"nats://host", "nats://token@h1,h2:4223?replicas=3&namespace=n", "tls://u:" + secret + "@host?server_name=other",
		"nats-embedded://" + t.TempDir() + "/a%20b?sync=always",
		"redis://host", "redis://:" + secret + "@[::1]:6380/5?pool_size=3&wait_replicas=1", "rediss://u:" + secret + "@host/0",
		"redis-cluster://u:" + secret + "@h1,h2:7000,h3", "rediss-cluster://h1", "redis-sentinel://h1, h2:26380/main?sentinel_password=" + secret,
		"rediss-sentinel://h/main?db=3", "hworker+redis://host/2", "hworker+rediss://:" + secret + "@host?namespace=results",
		"amqps://host?server_name=other", "amqps://host?auth_mechanism=external",
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		s, err := open.Open(ctx, url, open.Options{Name: "test", TLS: nil})
		if err != nil {
			t.Errorf("%s: %v", url, err)
		} else {
			for range 2 {
				if err := s.Close(ctx); err != nil {
					t.Errorf("%s: Close: %v", url, err)
				}
			}
		}
		cancel()
	}
}

func TestRedact(t *testing.T) {
	for url, want := range map[string]string{
		"mem://": "mem://",
		"amqp://u:" + secret + "@h1:1/v?namespace=a,amqp://h2": "amqp://h1:1,h2:5672",
		"redis-sentinel://:" + secret + "@h1,h2/main":          "redis-sentinel://h1:26379,h2:26379",
		"nats-embedded:///var/lib/x?sync=always":               "nats-embedded:///var/lib/x",
		"redis://" + secret + "@host":                          "unreadable",
	} {
		if got := open.Redact(url); got != want {
			t.Errorf("Redact(%q) is %q, want %q", url, got, want)
		}
	}
}

var double = task.New[int, int]("double")

// roundTrip runs one task between two Swarms and waits for its last event.
func roundTrip(t *testing.T, submits, runs *open.Swarm) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var sub events.Subscription
	if submits.Events != nil {
		var err error
		if sub, err = submits.Events.Subscribe(ctx, events.Filter{Types: []string{events.TaskSucceeded}}); err != nil {
			t.Fatal(err)
		}
	}
	p, err := producer.New(producer.Config{Broker: submits.Broker, Results: submits.Results, Events: submits.Events})
	if err != nil {
		t.Fatal(err)
	}
	c, err := consumer.New(consumer.Config{Broker: runs.Broker, Results: runs.Results, Events: runs.Events})
	if err != nil {
		t.Fatal(err)
	}
	if err := double.Handle(c, func(_ context.Context, n int) (int, error) { return 2 * n, nil }); err != nil {
		t.Fatal(err)
	}
	run, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- c.Run(run) }()
	f, err := double.Submit(ctx, p, 21)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := f.Get(ctx); n != 42 || err != nil {
		t.Errorf("result is %d, %v", n, err)
	}
	if sub != nil {
		if e, err := sub.Receive(ctx); err != nil || e.TaskID != f.ID() {
			t.Errorf("event is %+v, %v", e, err)
		}
		if err := sub.Close(ctx); err != nil {
			t.Error(err)
		}
	}
	stop()
	if err := errors.Join(<-ended, p.Close(ctx)); err != nil {
		t.Error(err)
	}
}

func opened(t *testing.T, url string, o open.Options) *open.Swarm {
	t.Helper()
	s, err := open.Open(t.Context(), url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// Promises: S1.
func TestMemory(t *testing.T) {
	s := opened(t, "mem://", open.Options{})
	roundTrip(t, s, s)
}

// TestRabbit shows that two Swarms with one URL exchange tasks through the server, and that
// parameters reach the adapters.
func TestRabbit(t *testing.T) {
	r := testserver.RequireRabbit(t)
	ns := testserver.Namespace()
	in := opened(t, r.URL()+"?queue_type=classic&namespace="+ns, open.Options{})
	out := opened(t, r.URL()+"?queue_type=classic", open.Options{Namespace: ns, Name: ns})
	roundTrip(t, out, in)
	queues, err := r.Ctl(t.Context(), "list_queues", "-q", "name", "arguments")
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for line := range strings.Lines(string(queues)) {
		found = found || strings.HasPrefix(line, "swj."+ns+".q.default\t") && strings.Contains(line, "classic")
	}
	if !found {
		t.Errorf("no classic queue of namespace %s: %s", ns, queues)
	}
}

// TestRabbitTLS reads a private authority and a client certificate from files. Without these files,
// the server is not trusted.
func TestRabbitTLS(t *testing.T) {
	files, err := testserver.NewTLSFiles(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var at, password string
	if testserver.IsThorough() {
		r := testserver.OwnRabbit(t, testserver.RabbitConfig{TLS: files, RequireClientCert: true})
		at, password = r.TLSURL(), r.Password()
	} else { // a second node costs as much as all other tests of this file
		r := testserver.RequireRabbit(t)
		at, password = "amqps"+strings.TrimPrefix(strings.Replace(r.URL(), r.Addr(), withTLS(t, files, r.Addr()), 1), "amqp"), r.Password()
	}
	url := at + "?namespace=" + testserver.Namespace() + "&ca=" + files.CA + "&cert=" + files.ClientCert + "&key=" + files.ClientKey
	roundTrip(t, opened(t, url, open.Options{}), opened(t, url+"&server_name=localhost", open.Options{}))

	stranger := opened(t, at, open.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	_, err = stranger.Events.Subscribe(ctx, events.Filter{})
	if err == nil {
		t.Fatal("a server of an unknown authority was trusted")
	}
	if strings.Contains(err.Error(), password) {
		t.Errorf("the error holds the password: %v", err)
	}
}

// withTLS listens with TLS, requires a certificate of each client, and passes all bytes on to a
// server without TLS. It returns the address of the listener, which ends with the test.
func withTLS(t *testing.T, files *testserver.TLSFiles, server string) string {
	t.Helper()
	client, err := files.ClientConfig(false)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{pair}, ClientCAs: client.RootCAs, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS12,
	})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	pass := func(to, from net.Conn) {
		_, _ = io.Copy(to, from)
		_ = errors.Join(to.Close(), from.Close())
	}
	all.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := new(net.Dialer).DialContext(t.Context(), "tcp", server)
			if err != nil {
				_ = in.Close()
				continue
			}
			all.Go(func() { pass(out, in) })
			all.Go(func() { pass(in, out) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		all.Wait() // the clients have closed their connections
	})
	return l.Addr().String()
}

// TestLongNamespace shows that the longest namespace leaves space for the additional buses.
func TestLongNamespace(t *testing.T) {
	longest := strings.Repeat("n", 64)
	for _, url := range []string{"amqp://h", "redis://h", "nats://h"} {
		s, err := open.Open(t.Context(), url+"?namespace="+longest, open.Options{Control: true, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		if err := s.Close(t.Context()); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
}
