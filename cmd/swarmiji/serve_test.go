package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/inspect"
	"github.com/swarmiji/swarmiji/inspect/httpinspect"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// output is a buffer for the streams of a running command.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// dashboardAt starts a command that serves the dashboard, and returns the dashboard's URL. When
// the test ends, the command is interrupted and must end with status 0.
func dashboardAt(t *testing.T, env map[string]string, args ...string) string {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	r, w := io.Pipe()
	var stderr output
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, args, cli.Surroundings{Stdin: strings.NewReader(""), Stdout: w, Stderr: &stderr, Getenv: func(k string) string { return env[k] }})
		_ = w.Close()
	}()
	t.Cleanup(func() {
		stop()
		if status := <-ended; status != 0 {
			t.Errorf("status %d: %s", status, stderr.String())
		}
	})
	line, err := bufio.NewReader(r).ReadString('\n')
	url, ok := strings.CutPrefix(strings.TrimSpace(line), "dashboard at ")
	if err != nil || !ok {
		t.Fatalf("%q, %v: %s", line, err, stderr.String())
	}
	go func() { _, _ = io.Copy(io.Discard, r) }()
	return url
}

// TestDev shows that dev runs tasks that succeed and fail, records them, and stops cleanly, twice
// over the same files. Its worker obeys commands. The broker of the environment gets nothing.
func TestDev(t *testing.T) {
	dir, used := t.TempDir(), filepath.Join(t.TempDir(), "used.db")
	url := "sqlite://" + filepath.ToSlash(used)
	env := map[string]string{"SWARMIJI_BROKER": url, "SWARMIJI_SCHEDULE": url, "SWARMIJI_JOBS": url, "SWARMIJI_HISTORY": url}
	for range 2 {
		t.Run("", func(t *testing.T) {
			url := dashboardAt(t, env, "dev", "--dir", dir, "--listen", "127.0.0.1:0")
			api, err := httpinspect.NewClient(httpinspect.ClientConfig{URL: url + "api/v1"})
			if err != nil {
				t.Fatal(err)
			}
			ctx := testwait.Long(t)
			for _, query := range []string{"state:succeeded name:demo.add", "state:failed name:demo.charge", "state:succeeded name:demo.sum"} {
				testwait.Until(t, query, func() bool {
					page, err := api.ListTasks(ctx, inspect.TaskQuery{Query: query})
					return err == nil && len(page.Tasks) > 0
				})
			}
			entries, err := api.ListSchedules(ctx, inspect.ScheduleQuery{})
			if err != nil || len(entries.Schedules) != 1 {
				t.Errorf("schedule: %+v, %v", entries, err)
			}
			testwait.Until(t, "two jobs exist, and one waits for an answer", func() bool {
				page, err := api.ListJobs(ctx, inspect.JobQuery{})
				states := map[string]bool{}
				for _, j := range page.Jobs {
					states[j.Name+" "+j.Phase] = true
				}
				return err == nil && len(page.Jobs) == 2 && states["demo.feed "] && states["demo.approve AWAITING"]
			})
			testwait.Until(t, "the sample worker obeys", func() bool {
				c, err := api.ScaleWorkers(ctx, inspect.Scale{Queue: "demo", Workers: 5})
				return err == nil && c.Done == 1
			})
			testwait.Until(t, "the queue has one consumer and dead letters", func() bool {
				queue, err := api.GetQueue(ctx, "demo") // a busy machine answers late
				return err == nil && queue.Consumers == 1 && queue.Dead > 0
			})
		})
	}
	if _, err := os.Stat(used); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file of $SWARMIJI_BROKER: %v", err)
	}
}

// TestServe shows that commands go over --api with a token, and that roles hold there.
func TestServe(t *testing.T) {
	dir := t.TempDir()
	tokens := filepath.Join(dir, "tokens")
	if err := os.WriteFile(tokens, []byte("# programs\nlook viewer viewer-token-0123456\nwork operator operator-token-0123\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	broker := "sqlite://" + filepath.ToSlash(filepath.Join(dir, "app.db"))
	url := dashboardAt(t, nil, "serve", "--broker", broker, "--listen", "127.0.0.1:0", "--tokens", tokens)
	call := func(token string, args ...string) (int, string) {
		var out, stderr output
		env := map[string]string{"SWARMIJI_API": url + "api/v1", "SWARMIJI_API_TOKEN": token}
		status := run(t.Context(), args, cli.Surroundings{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &stderr, Getenv: func(k string) string { return env[k] }})
		return status, out.String() + stderr.String()
	}
	for _, c := range []struct {
		token, args string
		status      int
		text        string
	}{
		{"viewer-token-0123456", "queue ls", 0, "QUEUE"},
		{"operator-token-0123", "schedule ls", 0, "NEXT"},
		{"operator-token-0123", "task show nosuch", cli.ExitNotFound, "nosuch"},
		{"operator-token-0123", "doctor --collect 100ms", 0, "all servers answer"},
		{"", "queue ls", cli.ExitUnreachable, "token"},
		{"wrong", "queue ls", cli.ExitUnreachable, ""},
		{"wrong", "doctor", cli.ExitUnreachable, "FAILED"},
		{"operator-token-0123", "ping", cli.ExitUsage, "does not go over --api"},
		{"operator-token-0123", "queue ls --broker redis://127.0.0.1:1", cli.ExitUnreachable, "no Redis answers"},
	} {
		status, text := call(c.token, strings.Fields(c.args)...)
		if status != c.status || !strings.Contains(text, c.text) || strings.Contains(text, "-token-") {
			t.Errorf("%s with %q: status %d, want %d: %s", c.args, c.token, status, c.status, text)
		}
		if strings.Contains(text, "unreadable") || status != 0 && strings.Contains(text, "all servers answer") {
			t.Errorf("%s with %q: %s", c.args, c.token, text)
		}
	}
}

// TestRoads shows that commands about dead letters and the history print the same with a broker and
// over --api, and that changes are made there.
func TestRoads(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return "sqlite://" + filepath.ToSlash(filepath.Join(dir, name)) }
	broker, records := at("app.db"), at("history.db")
	file := filepath.Join(dir, "letters")
	var letters strings.Builder
	for _, id := range []string{"l-1", "l-2"} {
		body := base64.StdEncoding.EncodeToString(fmt.Appendf(nil, `{"task":"member.task","id":%q,"args":{"n":1}}`, id))
		fmt.Fprintf(&letters, `{"swarmiji_dead":1,"queue":"work","reason":"why","message":{"v":1,"id":%q,"contentType":"application/json","body":%q}}`+"\n", id, body)
	}
	if err := os.WriteFile(file, []byte(letters.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	url := dashboardAt(t, nil, "serve", "--broker", broker, "--history", records, "--record", "--listen", "127.0.0.1:0")
	roads := []map[string]string{{"SWARMIJI_BROKER": broker, "SWARMIJI_HISTORY": records}, {"SWARMIJI_API": url + "api/v1"}}
	call := func(road int, args ...string) (status int, stdout, stderr string) {
		var out, errs output
		status = run(t.Context(), args, cli.Surroundings{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, Getenv: func(k string) string { return roads[road][k] }})
		return status, out.String(), errs.String()
	}
	if status, _, stderr := call(0, "dead", "import", "work", "--file", file); status != 0 {
		t.Fatalf("import: status %d: %s", status, stderr)
	}
	submit := func(name, id string) {
		if status, _, stderr := call(0, "call", name, "1", "--queue", "work", "--id", id); status != 0 {
			t.Fatalf("call: status %d: %s", status, stderr)
		}
	}
	recorded := func(id string) bool {
		status, out, _ := call(1, "task", "ls", "--count", "id:"+id)
		return status == 0 && out == "1\n"
	}
	submit("probe.task", "p-1") // serve prints its address when the recorder listens
	testwait.Until(t, "the first task is in the history", func() bool { return recorded("p-1") })
	submit("later.task", "t-1")
	testwait.Until(t, "the task is in the history", func() bool { return recorded("t-1") })
	for _, c := range []struct {
		args   string
		status int
		text   string
	}{
		{"task ls name:later.*", 0, "pending"},
		{"workflow show t-1", 0, "later.task"},
		{"workflow show t-1 -o json", 0, `"depth": 0`},
		{"workflow show nosuch", cli.ExitNotFound, "nosuch"},
		{"task ls name:later.* -o json --limit 1", 0, `"complete": true`},
		{"task ls --count -o json name:later.*", 0, `"n": 1`},
		{"task ls state:nosuch", cli.ExitUsage, "state"},
		{"task ls --after x", cli.ExitUsage, "cursor"},
		{"dead list work", 0, "member.task"},
		{"dead list work --limit 1 -o json", 0, "the oldest 1 of more"},
		{"dead list work --header tenant=1 -o csv", 0, "ID"},
		{"dead list nosuch", cli.ExitNotFound, "nosuch"},
		{"dead list a,b", cli.ExitUsage, "a,b"},
		{"dead show work l-2 --args -o json", 0, `"n": 1`},
		{"dead show work l-3", cli.ExitNotFound, "l-3"},
		{"dead requeue work --all --dry-run", 0, "a dry run"},
		{"dead requeue work --limit 1 --dry-run", 0, "--limit ends the count"},
		{"dead drop work --id l-3 --yes", cli.ExitNotFound, "has an id of --id"},
		{"dead drop work --all", cli.ExitUsage, "--yes"},
		{"dead export work", 0, `"swarmiji_dead":1`},
		{"dead export work --limit 1", 0, `"swarmiji_dead":1`},
	} {
		var outs, errs [2]string
		for road := range roads {
			var status int
			status, outs[road], errs[road] = call(road, strings.Fields(c.args)...)
			if text := outs[road] + errs[road]; status != c.status || !strings.Contains(text, c.text) {
				t.Errorf("%s with %v: status %d, want %d: %s", c.args, roads[road], status, c.status, text)
			}
		}
		if outs[0] != outs[1] {
			t.Errorf("%s prints with a broker:\n%s\nand over --api:\n%s", c.args, outs[0], outs[1])
		}
	}
	for _, args := range []string{"dead drop work --id l-1 --yes", "dead requeue work --error why", "dead list work -o json"} {
		if status, out, stderr := call(1, strings.Fields(args)...); status != 0 || !strings.Contains(out, map[string]string{"drop": "1 dropped", "requeue": "1 requeued", "list": "[]"}[strings.Fields(args)[1]]) {
			t.Errorf("%s: status %d: %s%s", args, status, out, stderr)
		}
	}
}

// TestServeRefused is the table of flags with which serve does not start.
func TestServeRefused(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	broker := "sqlite://" + filepath.ToSlash(filepath.Join(dir, "app.db"))
	for name, args := range map[string][]string{
		"an open address without users": {"--listen", "0.0.0.0:0"},
		"a role that is none":           {"--users", file("a", "ada root hush")},
		"a line without a password":     {"--users", file("b", "ada admin")},
		"an empty file":                 {"--users", file("c", "# nobody\n")},
		"a short token":                 {"--tokens", file("d", "ada admin hush")},
		"a proxy without a header":      {"--proxy", "10.0.0.0/8"},
		"a proxy that is no address":    {"--proxy", "proxy.example", "--proxy-header", "X-User"},
		"a recorder without a database": {"--record"},
	} {
		var out, stderr output
		status := run(t.Context(), append([]string{"serve", "--broker", broker, "--listen", "127.0.0.1:0"}, args...),
			cli.Surroundings{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &stderr, Getenv: func(string) string { return "" }})
		if status != cli.ExitUsage || strings.Contains(stderr.String(), "hush") {
			t.Errorf("%s: status %d: %s", name, status, stderr.String())
		}
	}
}
