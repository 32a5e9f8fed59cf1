package embedded_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/broker/natsbroker/embedded"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// The environment variables that make this test binary another process.
const (
	roleEnv = "SWARMIJI_EMBEDDED_ROLE" // its role
	dirEnv  = "SWARMIJI_EMBEDDED_DIR"  // its directory
)

func TestMain(m *testing.M) {
	switch os.Getenv(roleEnv) {
	case "":
		goleak.VerifyTestMain(m)
	case "publish":
		other(publishForEver)
	case "open":
		other(openAndHold)
	}
}

// other runs the role of another process and exits.
func other(part func(dir string) error) {
	if err := part(os.Getenv(dirEnv)); err != nil {
		say("error:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// say writes a line for the process that started this one.
func say(words ...any) { _, _ = fmt.Fprintln(os.Stdout, words...) }

// publishForEver stores messages one by one and writes a line for each acknowledged one.
func publishForEver(dir string) error {
	ctx := context.Background()
	srv, err := embedded.Open(ctx, dir, embedded.Options{Logger: quiet(), Listen: "127.0.0.1:0"})
	if err != nil {
		return err
	}
	conn, err := nats.Connect("", nats.InProcessServer(srv))
	if err != nil {
		return err
	}
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}}); err != nil {
		return err
	}
	for i := 1; ; i++ {
		if _, err := js.Publish(ctx, "s.x", []byte(fmt.Sprint(i))); err != nil {
			return err
		}
		say("acked", i)
	}
}

// openAndHold opens a directory, reports that, and holds it until its input ends.
func openAndHold(dir string) error {
	srv, err := embedded.Open(context.Background(), dir, embedded.Options{Logger: quiet(), Listen: os.Getenv("LISTEN")})
	if err != nil {
		return err
	}
	say("open")
	_, err = bufio.NewReader(os.Stdin).ReadString('\n')
	if err := srv.Close(context.Background()); err != nil {
		return err
	}
	return err
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// open opens dir and closes it at the end of the test.
func open(t testing.TB, dir string, o embedded.Options) *embedded.Server {
	t.Helper()
	if o.Logger == nil {
		o.Logger = quiet()
	}
	srv, err := embedded.Open(testwait.Long(t), dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeServer(t, srv) })
	return srv
}

func closeServer(t testing.TB, srv *embedded.Server) {
	t.Helper()
	if err := srv.Close(testwait.Long(t)); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// connect connects in the process, and closes the connection at the end of the test.
func connect(t testing.TB, srv *embedded.Server) jetstream.JetStream {
	t.Helper()
	return client(t, "", nats.InProcessServer(srv))
}

func client(t testing.TB, url string, opts ...nats.Option) jetstream.JetStream {
	t.Helper()
	conn, err := nats.Connect(url, opts...)
	if err != nil {
		t.Fatalf("Connect: %v", err)
	}
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func makeStream(t testing.TB, js jetstream.JetStream) {
	t.Helper()
	if _, err := js.CreateStream(testwait.Long(t), jetstream.StreamConfig{Name: "S", Subjects: []string{"s.>"}}); err != nil {
		t.Fatal(err)
	}
}

func publish(t testing.TB, js jetstream.JetStream, n int) {
	t.Helper()
	for range n {
		if _, err := js.Publish(testwait.Long(t), "s.x", []byte("body")); err != nil {
			t.Fatal(err)
		}
	}
}

func count(t testing.TB, js jetstream.JetStream) int {
	t.Helper()
	s, err := js.Stream(testwait.Long(t), "S")
	if err != nil {
		t.Fatal(err)
	}
	return int(s.CachedInfo().State.Msgs)
}

// process starts this binary as another process, which ends with the test.
func process(t *testing.T, role, dir string, env ...string) (lines *bufio.Scanner, stop func() error, cmd *exec.Cmd) {
	t.Helper()
	cmd = exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(append(os.Environ(), roleEnv+"="+role, dirEnv+"="+dir), env...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	stop = func() error {
		if _, err := in.Write([]byte("\n")); err != nil {
			return err
		}
		return cmd.Wait()
	}
	return bufio.NewScanner(out), stop, cmd
}

func TestMessagesOutliveTheServer(t *testing.T) {
	for name, o := range map[string]embedded.Options{"default": {}, "synced": {SyncAlways: true}} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "made", "by", "open")
			srv := open(t, dir, o)
			js := connect(t, srv)
			makeStream(t, js)
			publish(t, js, 100)
			js.Conn().Close()
			closeServer(t, srv)
			if n := count(t, connect(t, open(t, dir, o))); n != 100 {
				t.Errorf("%d messages after the directory was opened again, want 100", n)
			}
		})
	}
}

// TestAcknowledgedMessagesOutliveAKilledProcess shows that a killed process loses no acknowledged
// message, and that no clean-up is necessary after it.
func TestAcknowledgedMessagesOutliveAKilledProcess(t *testing.T) {
	dir := t.TempDir()
	acked := 0
	for round := range 3 {
		lines, _, cmd := process(t, "publish", dir)
		for fresh := 0; fresh < 500 && lines.Scan(); {
			if !strings.HasPrefix(lines.Text(), "acked ") {
				t.Fatalf("round %d: the other process says %q", round, lines.Text())
			}
			fresh++
			acked++
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() { // acknowledged before it was killed
			acked++
		}
		_ = cmd.Wait() // it was killed
	}
	if _, err := embedded.Address(dir); !errors.Is(err, embedded.ErrNotListening) {
		t.Errorf("Address after the server was killed: %v, want ErrNotListening", err)
	}
	got := count(t, connect(t, open(t, dir, embedded.Options{})))
	if got < acked || got > acked+3 { // in each round one may be stored whose acknowledgement is lost
		t.Errorf("%d messages are there, %d were acknowledged before the three kills", got, acked)
	}
}

func TestOneServerForADirectory(t *testing.T) {
	dir := t.TempDir()
	srv := open(t, dir, embedded.Options{})
	_, err := embedded.Open(testwait.Long(t), dir, embedded.Options{Logger: quiet()})
	wantText(t, err, embedded.ErrLocked, dir, fmt.Sprint("process ", os.Getpid()), "Options.Listen")
	closeServer(t, srv)
	listening := open(t, dir, embedded.Options{Listen: "localhost:0"})
	_, err = embedded.Open(testwait.Long(t), dir, embedded.Options{Logger: quiet()})
	wantText(t, err, embedded.ErrLocked, dir, "127.0.0.1:", "embedded.Address")
	if pass := password(t, listening); strings.Contains(err.Error(), pass) {
		t.Errorf("the error holds the password: %v", err)
	}
}

func TestOneServerForADirectoryOfTwoProcesses(t *testing.T) {
	dir := t.TempDir()
	lines, stop, cmd := process(t, "open", dir)
	if !lines.Scan() || lines.Text() != "open" {
		t.Fatalf("the other process says %q", lines.Text())
	}
	_, err := embedded.Open(testwait.Long(t), dir, embedded.Options{Logger: quiet()})
	wantText(t, err, embedded.ErrLocked, fmt.Sprint("process ", cmd.Process.Pid))
	if err := stop(); err != nil {
		t.Fatalf("the other process: %v", err)
	}
	open(t, dir, embedded.Options{})
}

func wantText(t *testing.T, err, class error, words ...string) {
	t.Helper()
	if !errors.Is(err, class) {
		t.Fatalf("got error %v, want %v", err, class)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("the error does not say %q: %v", w, err)
		}
	}
}

func password(t *testing.T, srv *embedded.Server) string {
	t.Helper()
	_, rest, ok := strings.Cut(srv.URL(), "swarmiji:")
	pass, _, at := strings.Cut(rest, "@")
	if !ok || !at || len(pass) < 16 {
		t.Fatal("the URL holds no password worth the name")
	}
	return pass
}

// TestJoin shows that another process joins with the address in the directory, and that no client
// can join without it.
func TestJoin(t *testing.T) {
	dir := t.TempDir()
	if _, err := embedded.Address(dir); !errors.Is(err, embedded.ErrNotListening) {
		t.Errorf("Address of a directory without a server: %v, want ErrNotListening", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "server.lock")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("asking for an address leaves a file: %v", err)
	}
	lines, stop, _ := process(t, "open", dir, "LISTEN=127.0.0.1:0")
	if !lines.Scan() || lines.Text() != "open" {
		t.Fatalf("the other process says %q", lines.Text())
	}
	url, err := embedded.Address(dir)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, "server.url"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file with the password has mode %v, %v; want 0600", info.Mode(), err)
	}
	js := client(t, url)
	makeStream(t, js)
	publish(t, js, 10)
	_, host, _ := strings.Cut(url, "@")
	for _, wrong := range []string{"nats://" + host, "nats://swarmiji:guess@" + host, "nats://swarmiji:@" + host} {
		if conn, err := nats.Connect(wrong); !errors.Is(err, nats.ErrAuthorization) {
			conn.Close()
			t.Errorf("Connect without the password: %v, want an authorization error", err)
		}
	}
	js.Conn().Close()
	if err := stop(); err != nil {
		t.Fatalf("the other process: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "server.url")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the address is still there after Close: %v", err)
	}
	again := open(t, dir, embedded.Options{Listen: "[::1]:0"})
	if now, err := embedded.Address(dir); err != nil || now != again.URL() || now == url {
		t.Errorf("Address after another Open: %v; it must be that of the new server", err)
	}
	if n := count(t, client(t, again.URL())); n != 10 {
		t.Errorf("%d messages, want the 10 of the process that joined", n)
	}
}

func TestOptionsNameEveryProblem(t *testing.T) {
	_, err := embedded.Open(testwait.Long(t), "", embedded.Options{Listen: "0.0.0.0:4222", SyncInterval: time.Millisecond, MaxBody: -1, StoreLimit: -1})
	if err == nil {
		t.Fatal("Open took options without a single good field")
	}
	for _, word := range []string{"directory", "Listen", "SyncInterval", "MaxBody", "StoreLimit"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("the error does not name %s: %v", word, err)
		}
	}
	for _, listen := range []string{"4222", "example.com:1", "127.0.0.1:99999", "127.0.0.1:x", ":4222", "192.168.1.1:4222"} {
		if _, err := embedded.Open(testwait.Long(t), t.TempDir(), embedded.Options{Listen: listen}); err == nil {
			t.Errorf("Open took the address %q", listen)
		}
	}
	for _, o := range []embedded.Options{{MaxBody: 1 << 30}, {SyncInterval: -1}} {
		if _, err := embedded.Open(testwait.Long(t), t.TempDir(), o); err == nil {
			t.Errorf("Open took %+v", o)
		}
	}
}

// TestPortInUse shows that a used port is an error, and that the directory is free afterwards.
func TestPortInUse(t *testing.T) {
	first := open(t, t.TempDir(), embedded.Options{Listen: "127.0.0.1:0"})
	_, port, _ := strings.Cut(first.URL(), "@127.0.0.1")
	dir := t.TempDir()
	if _, err := embedded.Open(testwait.Long(t), dir, embedded.Options{Listen: "127.0.0.1" + port, Logger: quiet()}); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("Open on a port that is taken: %v", err)
	}
	open(t, dir, embedded.Options{})
}

func TestNotADirectory(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := embedded.Open(testwait.Long(t), file, embedded.Options{Logger: quiet()}); err == nil {
		t.Error("Open took a file for a directory")
	}
}

// TestDamagedDefinition shows that a stream with a damaged definition is an error. The server
// itself would continue without the stream.
func TestDamagedDefinition(t *testing.T) {
	dir := t.TempDir()
	srv := open(t, dir, embedded.Options{})
	js := connect(t, srv)
	makeStream(t, js)
	publish(t, js, 10)
	js.Conn().Close()
	closeServer(t, srv)
	meta := filepath.Join(dir, "jetstream", "$G", "streams", "S", "meta.inf")
	good, err := os.ReadFile(meta)
	if err != nil {
		t.Fatal(err)
	}
	put := func(b []byte) {
		if err := os.WriteFile(meta, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, bad := range map[string][]byte{"another byte": bytes.Replace(good, []byte("limits"), []byte("limitz"), 1), "cut": good[:len(good)/2], "empty": {}} {
		put(bad)
		_, err := embedded.Open(testwait.Long(t), dir, embedded.Options{Logger: quiet()})
		if !errors.Is(err, embedded.ErrStore) || !strings.Contains(err.Error(), filepath.Dir(meta)) {
			t.Errorf("%s: Open returned %v, want ErrStore that says where", name, err)
		}
	}
	put(good)
	if n := count(t, connect(t, open(t, dir, embedded.Options{}))); n != 10 {
		t.Errorf("%d messages after the definition was put back, want all 10", n)
	}
}

// TestHalfMadeStream shows that a process that is killed while it creates a stream leaves a usable
// directory.
func TestHalfMadeStream(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "jetstream", "$G", "streams", "S", "msgs"), 0o700); err != nil {
		t.Fatal(err)
	}
	js := connect(t, open(t, dir, embedded.Options{}))
	makeStream(t, js)
	publish(t, js, 1)
}

func TestLargeBodies(t *testing.T) {
	js := connect(t, open(t, t.TempDir(), embedded.Options{}))
	makeStream(t, js)
	body := bytes.Repeat([]byte{1, 2, 3, 4}, embedded.DefaultMaxBody/4)
	for range 3 {
		if _, err := js.Publish(testwait.Long(t), "s.x", body); err != nil {
			t.Fatalf("a body of %d bytes: %v", len(body), err)
		}
	}
	s, err := js.Stream(testwait.Long(t), "S")
	if err != nil {
		t.Fatal(err)
	}
	msg, err := s.GetLastMsgForSubject(testwait.Long(t), "s.x")
	if err != nil || !bytes.Equal(msg.Data, body) {
		t.Errorf("the body came back as another one: %v", err)
	}
}

func TestStoreLimit(t *testing.T) {
	js := connect(t, open(t, t.TempDir(), embedded.Options{StoreLimit: 1 << 20}))
	makeStream(t, js)
	body := make([]byte, 64<<10)
	for i := range 64 {
		if _, err := js.Publish(testwait.Long(t), "s.x", body); err != nil {
			if i < 8 {
				t.Errorf("refused after %d messages of 64 KiB: %v", i, err)
			}
			return
		}
	}
	t.Error("4 MiB went into a store of 1 MiB")
}

func TestClose(t *testing.T) {
	srv := open(t, t.TempDir(), embedded.Options{})
	js := connect(t, srv)
	makeStream(t, js)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := srv.Close(ended); err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("Close with an ended context: %v", err)
			}
		})
	}
	wg.Wait()
	closeServer(t, srv)
	closeServer(t, srv)
	if _, err := srv.InProcessConn(); !errors.Is(err, embedded.ErrClosed) {
		t.Errorf("InProcessConn after Close: %v, want ErrClosed", err)
	}
}

func TestOpenEndsWithItsContext(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := embedded.Open(ctx, dir, embedded.Options{Logger: quiet()}); !errors.Is(err, context.Canceled) {
		t.Errorf("Open with an ended context: %v", err)
	}
	open(t, dir, embedded.Options{})
}

// TestLog shows that the server's lines go to the logger, without the password.
func TestLog(t *testing.T) {
	var log safeBuffer
	srv := open(t, t.TempDir(), embedded.Options{
		Listen: "127.0.0.1:0",
		Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.Level(-100)})),
	})
	pass := password(t, srv)
	if _, err := nats.Connect(strings.Replace(srv.URL(), pass, "wrong-"+pass, 1)); !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("Connect with a wrong password: %v", err)
	}
	client(t, srv.URL())
	closeServer(t, srv)
	text := log.String()
	if !strings.Contains(text, "level=DEBUG") || !strings.Contains(text, "level=ERROR") || !strings.Contains(text, "authentication error") {
		t.Errorf("the log lacks the server's lines:\n%s", text)
	}
	if strings.Contains(text, "level=WARN") || strings.Contains(text, "level=INFO") {
		t.Errorf("a usual start and stop is told above debug level:\n%s", text)
	}
	if strings.Contains(text, pass) {
		t.Error("the log holds the password")
	}
}

type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
