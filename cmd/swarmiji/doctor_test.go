package main

import (
	"bytes"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/connect/natsconnect"
	"github.com/swarmiji/swarmiji/internal/natsconn"
	"github.com/swarmiji/swarmiji/internal/testserver"
)

// doctored runs the doctor with args and returns its output and its status.
func doctored(t *testing.T, args ...string) (string, int) {
	t.Helper()
	var out bytes.Buffer
	args = append([]string{"doctor", "--collect", "50ms", "--timeout", patience.String()}, args...)
	status := run(t.Context(), args, cli.Surroundings{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out, Getenv: func(string) string { return "" }})
	return out.String(), status
}

func want(t *testing.T, out string, patterns ...string) {
	t.Helper()
	for _, p := range patterns {
		if !regexp.MustCompile("(?m)" + p).MatchString(out) {
			t.Errorf("the doctor does not say %q, but\n%s", p, out)
		}
	}
}

// TestDoctorRedis checks the warnings about a Redis server that may lose confirmed tasks.
func TestDoctorRedis(t *testing.T) {
	t.Parallel()
	srv := testserver.OwnRedis(t, testserver.RedisConfig{AOF: "off", Conf: "maxmemory-policy allkeys-lru"})
	out, status := doctored(t, "--broker", srv.URL())
	want(t, out, `settings +warning +redis: maxmemory-policy is "allkeys-lru"`, `settings +warning +redis: appendonly is "no"`)
	if status != 0 {
		t.Errorf("status %d\n%s", status, out)
	}
	srv.Kill()
	out, status = doctored(t, "--broker", srv.URL())
	want(t, out, `servers +FAILED +open: no Redis answers at`)
	if status != cli.ExitUnreachable {
		t.Errorf("without a server: status %d", status)
	}
}

// TestDoctorRabbit checks the warning about a queue that was declared as a classic one.
func TestDoctorRabbit(t *testing.T) {
	t.Parallel()
	url := testserver.RequireRabbit(t).URL() + "?namespace=" + testserver.Namespace()
	status := run(t.Context(), []string{"call", "x", "--declare", "--queue", "weak", "--broker", url + "&queue_type=classic"},
		cli.Surroundings{Stdin: strings.NewReader(""), Stdout: &bytes.Buffer{}, Stderr: &bytes.Buffer{}, Getenv: func(string) string { return "" }})
	if status != 0 {
		t.Fatalf("call: status %d", status)
	}
	out, status := doctored(t, "weak", "--broker", url)
	want(t, out, `settings +warning +amqp: the queue \S+\.weak was declared with other settings`, `results +warning +reply queues`)
	if status != 0 {
		t.Errorf("status %d\n%s", status, out)
	}
	out, _ = doctored(t, "--broker", url+"&queue_type=classic")
	want(t, out, `durability +warning +classic queues`)
}

// TestDoctorNATS checks the warning about a stream that drops its oldest tasks.
func TestDoctorNATS(t *testing.T) {
	t.Parallel()
	srv := testserver.RequireNATS(t)
	ns := testserver.Namespace()
	conn, err := natsconn.New(natsconnect.Config{URLs: []string{srv.URL()}}, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	url := srv.URL() + "?namespace=" + ns
	// this call makes the stream
	if out, status := doctored(t, "--broker", url); status != 0 || strings.Contains(out, "stream") {
		t.Errorf("status %d\n%s", status, out)
	}
	var info struct {
		Config map[string]any `json:"config"`
	}
	if err := conn.API(t.Context(), "STREAM.INFO.SWJ_"+ns, struct{}{}, &info); err != nil {
		t.Fatal(err)
	}
	info.Config["max_age"] = time.Hour
	if err := conn.API(t.Context(), "STREAM.UPDATE.SWJ_"+ns, info.Config, nil); err != nil {
		t.Fatal(err)
	}
	out, status := doctored(t, "--broker", url)
	want(t, out, `warning .*the stream has a limit of size or age`)
	if status != 0 {
		t.Errorf("status %d\n%s", status, out)
	}
}

// TestDoctorPGSSLMODE: PGSSLMODE counts as TLS unless the URL has its own sslmode.
func TestDoctorPGSSLMODE(t *testing.T) {
	t.Setenv("PGSSLMODE", "verify-full")
	for at, want := range map[string]int{"postgres://db/d": 0, "postgres://db/d?sslmode=disable": 1} {
		var f findings
		checkEncryption(&f, at)
		if len(f.list) != want {
			t.Errorf("%s: %+v, want %d warnings", at, f.list, want)
		}
	}
}

// TestDoctorPlainText: each remote server without TLS is reported.
func TestDoctorPlainText(t *testing.T) {
	for url, want := range map[string]int{
		"amqp://user:hunter2@rabbit.example:5672/":                                           1,
		"amqp://127.0.0.1?results=redis%3A%2F%2F:hunter2@other":                              1,
		"amqp://h?results=redis://a&events=nats://b":                                         3,
		"amqps://h?results=rediss://a&events=tls://b":                                        0,
		"nats://localhost:4222":                                                              0,
		"redis://[::1]:6379":                                                                 0,
		"redis-cluster://127.0.0.1,elsewhere":                                                1,
		"rediss://h?results=postgres%3A%2F%2Fu:hunter2%40db%2Fd":                             1,
		"rediss://h?results=postgres%3A%2F%2Fu:hunter2%40db:1%2Fd%3Fsslmode%3Dverify-full":   0,
		"rediss://h?results=postgres%3A%2F%2Fu:hunter2%40localhost%2Fd&events=redis://[::1]": 0,
		"rediss://h?results=sqlite:///var/lib/app.db":                                        0,
	} {
		a, n := &app{&cli.App{Broker: url}}, 0
		var f findings
		a.settings(&f)
		for _, one := range f.list {
			if one.Check == "encryption" {
				n++
			}
			if strings.Contains(one.Detail, "hunter2") {
				t.Errorf("%+v tells a password", one)
			}
		}
		if n != want {
			t.Errorf("%s: %d warnings of plain text, want %d: %+v", url, n, want, f.list)
		}
	}
}

// TestDoctorSQLite shows that the doctor examines all parts of a database file, and warns only that
// no consumer answers and that events are not kept.
func TestDoctorSQLite(t *testing.T) {
	url := "sqlite://" + filepath.Join(t.TempDir(), "app.db")
	migrated(t, url)
	out, status := doctored(t, "--broker", url)
	if status != 0 {
		t.Errorf("status %d", status)
	}
	want(t, out, `^results +ok`, `^events +ok +one came back`, `^consumers +warn.* no consumer answered`)
}
