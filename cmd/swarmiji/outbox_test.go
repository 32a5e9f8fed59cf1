package main

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/cmd/swarmiji/internal/cli"
	"github.com/swarmiji/swarmiji/internal/sqlconn/sqltest"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/internal/testwait"
	"github.com/swarmiji/swarmiji/open"
	"github.com/swarmiji/swarmiji/outbox"
)

// boxed is an outbox with the messages a and b.
type boxed struct {
	open.OutboxStore
	url string
}

func newBoxed(t *testing.T, namespace string) *boxed {
	t.Helper()
	url, ctx := "sqlite://"+filepath.Join(t.TempDir(), "app.db"), testwait.Long(t)
	s, err := open.Outbox(ctx, url, open.OutboxOptions{Namespace: namespace, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.Background()) })
	if err := s.Prepare(ctx); err != nil {
		t.Fatal(err)
	}
	u := sqltest.Begin(t, url)
	for _, id := range []string{"a", "b"} {
		if err := s.PublishTx(ctx, u.Tx, []broker.Outgoing{{Queue: "mail", OrderKey: "k", Message: &broker.Message{ID: id, Body: []byte("x")}}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := u.Commit(); err != nil {
		t.Fatal(err)
	}
	return &boxed{s, url}
}

// command runs the program on the outbox. It returns the status and both outputs.
func (b *boxed) command(ctx context.Context, args ...string) (status int, stdout, stderr string) {
	var out, err bytes.Buffer
	status = run(ctx, args, cli.Surroundings{
		Stdin: strings.NewReader(""), Stdout: &out, Stderr: &err, Getenv: func(name string) string {
			if name == "SWARMIJI_OUTBOX" {
				return b.url
			}
			return ""
		},
	})
	return status, out.String(), err.String()
}

// TestOutbox shows an outbox, and requeues and drops dead messages.
func TestOutbox(t *testing.T) {
	t.Parallel()
	b, ctx := newBoxed(t, ""), testwait.Long(t)
	rows, err := b.Read(ctx, all64(), false)
	if err != nil || len(rows) != 2 {
		t.Fatalf("%v, %v", rows, err)
	}
	dead := outbox.Settlement{Dead: []outbox.Failure{{Ref: rows[0].Ref(), Reason: "too large"}, {Ref: rows[1].Ref(), Reason: "too late"}}}
	if err := b.Settle(ctx, dead); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args   string
		status int
		says   string
	}{
		{"outbox show", cli.ExitOK, "WAITING"},
		{"outbox dead", cli.ExitOK, "too large"},
		{"outbox dead --limit 1 -o json", cli.ExitOK, `"key": "k"`},
		{"outbox dead --limit 0", cli.ExitUsage, "--limit"},
		{"outbox requeue c", cli.ExitNotFound, "no dead message"},
		{"outbox requeue a", cli.ExitOK, "1 requeued"},
		{"outbox drop b", cli.ExitUsage, "--yes"},
		{"outbox drop b --yes -o json", cli.ExitOK, `"dropped": 1`},
		{"outbox show --store redis://host", cli.ExitUsage, "sqlite://"},
		{"outbox", cli.ExitUsage, "outbox what"},
	} {
		status, stdout, stderr := b.command(ctx, strings.Fields(c.args)...)
		if status != c.status || !strings.Contains(stdout+stderr, c.says) {
			t.Errorf("%s: status %d, %s%s; want %d and %q", c.args, status, stdout, stderr, c.status, c.says)
		}
	}
	_, text, _ := b.command(ctx, "outbox", "show", "-o", "json")
	var got outboxOutput
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	if got.Oldest == "" {
		t.Error("the oldest message has no age")
	}
	got.Oldest = ""
	if diff := cmp.Diff(outboxOutput{Waiting: 1}, got); diff != "" {
		t.Errorf("outbox show:\n%s", diff)
	}
}

// TestDoctorOutbox shows the findings of the doctor for each state of an outbox.
func TestDoctorOutbox(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		stats outbox.Stats
		says  []string
	}{
		"fine":        {outbox.Stats{Waiting: 3, Oldest: time.Second, Relays: 2}, []string{"ok 3 waiting, 2 relays"}},
		"no relay":    {outbox.Stats{}, []string{"warning no relay runs; start 'swarmiji relay'"}},
		"none, waits": {outbox.Stats{Waiting: 3, Oldest: time.Hour}, []string{"warning no relay runs, and 3 messages wait, the oldest for 1h0m0s; start"}},
		"late":        {outbox.Stats{Waiting: 3, Oldest: time.Hour, Relays: 2}, []string{"warning 3 messages wait, the oldest for 1h0m0s, although 2 relays run"}},
		"several": {
			outbox.Stats{Waiting: 3, Failing: 2, Reason: "no such queue", Dead: 4, Relays: 1},
			[]string{"warning 2 messages fail and are tried again: no such queue", "warning has 4 dead messages: swarmiji outbox dead"},
		},
	} {
		var f findings
		checkStats(&f, c.stats)
		var got []string
		for _, one := range f.list {
			got = append(got, string(one.Outcome)+" "+one.Detail)
		}
		if !slices.EqualFunc(got, c.says, strings.HasPrefix) {
			t.Errorf("%s: %q, want %q", name, got, c.says)
		}
	}
	b, ctx := newBoxed(t, ""), testwait.Long(t)
	args := []string{"doctor", "--collect", "50ms", "--timeout", patience.String(), "--broker", b.url}
	status, stdout, stderr := b.command(ctx, args...)
	want(t, stdout, `^outbox +warning +no relay runs, and 2 messages wait`)
	if status != cli.ExitOK {
		t.Errorf("status %d, %s%s", status, stdout, stderr)
	}
	for url, want := range map[string]int{"redis://h": cli.ExitUsage, "sqlite:///none/app.db": cli.ExitUnreachable} {
		if status, stdout, stderr := b.command(ctx, append(args, "--outbox", url)...); status != want {
			t.Errorf("--outbox %s: status %d, want %d: %s%s", url, status, want, stdout, stderr)
		}
	}
}

func all64() []int {
	b := make([]int, outbox.Buckets)
	for i := range b {
		b[i] = i
	}
	return b
}

// TestRelay sends the messages of an outbox until it is interrupted.
func TestRelay(t *testing.T) {
	t.Parallel()
	namespace, url := testserver.Namespace(), testserver.RequireRedis(t).URL()
	b := newBoxed(t, namespace)
	swarm, err := open.Open(testwait.Long(t), url, open.Options{Namespace: namespace})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = swarm.Close(context.Background()) }()
	mail, err := swarm.Broker.Subscribe(testwait.Long(t), "mail", broker.SubscribeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, interrupt := context.WithCancel(testwait.Long(t))
	defer interrupt()
	ended := make(chan string, 1)
	go func() {
		if status, stdout, stderr := b.command(ctx, "relay", "--to", url, "--namespace", namespace); status != cli.ExitOK {
			ended <- stdout + stderr
		}
		close(ended)
	}()
	for _, id := range []string{"a", "b"} {
		d, err := mail.Receive(testwait.Long(t))
		if err != nil {
			t.Fatal(err)
		}
		if got := d.Message().ID; got != id {
			t.Errorf("received %s, want %s", got, id)
		}
		if err := d.Ack(testwait.Long(t)); err != nil {
			t.Error(err)
		}
	}
	interrupt()
	if said := <-ended; said != "" {
		t.Errorf("the relay ended with an error: %s", said)
	}
	for args, says := range map[string]string{
		"relay":                                "--to",
		"relay --to mem://":                    "reach",
		"relay --to redis://h --from redis://": "outbox",
	} {
		if status, stdout, stderr := b.command(testwait.Long(t), strings.Fields(args)...); status != cli.ExitUsage || !strings.Contains(stdout+stderr, says) {
			t.Errorf("%s: status %d, %s%s", args, status, stdout, stderr)
		}
	}
}
