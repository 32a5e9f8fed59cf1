package pages_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/swarmiji/swarmiji/inspect"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

// stream reads events of a live stream.
type stream struct {
	t    *testing.T
	body io.Closer
	scan *bufio.Scanner
}

type message struct{ id, kind, data string }

func connect(t *testing.T, s *httptest.Server, query, last string) *stream {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	r, _ := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/any/prefix/live?"+query, http.NoBody)
	if last != "" {
		r.Header.Set("Last-Event-ID", last)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%d %v", resp.StatusCode, resp.Header)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	st := &stream{t, resp.Body, bufio.NewScanner(resp.Body)}
	st.until(func(m message) bool { return m.kind == "" && m.id != "" }) // it is ready
	return st
}

// next returns the next message, with kind "" for a comment. ok is false at the end.
func (s *stream) next() (m message, ok bool) {
	for s.scan.Scan() {
		name, value, _ := strings.Cut(s.scan.Text(), ": ")
		switch name {
		case "":
			if s.scan.Text() == "" {
				return m, true
			}
		case "id":
			m.id = value
		case "event":
			m.kind = value
		case "data":
			m.data = value
		}
	}
	return m, false
}

// until returns the first message that fits.
func (s *stream) until(fits func(message) bool) message {
	s.t.Helper()
	for {
		m, ok := s.next()
		if !ok {
			s.t.Fatalf("the stream ended: %v", s.scan.Err())
		}
		if fits(m) {
			return m
		}
	}
}

func (s *stream) event() (seq, text, id string) {
	s.t.Helper()
	m := s.until(func(m message) bool { return m.kind == "event" })
	var row struct{ Seq, Text string }
	if err := json.Unmarshal([]byte(m.data), &row); err != nil {
		s.t.Fatal(err)
	}
	return row.Seq, row.Text, m.id
}

// TestLive reads a stream: it has ids, filters, resumes behind an id without a gap, reports lost
// events, and ends with Close.
func TestLive(t *testing.T) {
	api := hostile(t)
	s := serve(t, api, nil)
	first := connect(t, s, "all=1&type=task-failed", "")
	changed := connect(t, s, "", "")
	api.tell("task-sent", "a")
	api.tell("task-failed", "b<script>")
	seq, text, id := first.event()
	if seq != "2" || text != "b<script>" || id == "" {
		t.Errorf("the event is %s %q with the id %q", seq, text, id)
	}
	if m := changed.until(func(m message) bool { return m.kind != "" }); m.kind != "changed" || m.id == "" {
		t.Errorf("the message is %+v", m)
	}
	_ = first.body.Close()
	api.tell("task-failed", "c")
	api.tell("task-failed", "d")
	again := connect2(t, s, "all=1&type=task-failed", id)
	for _, want := range []string{"c", "d"} {
		if _, text, _ := again.event(); text != want {
			t.Errorf("after the interruption came %q, want %q", text, want)
		}
	}
	api.tell("task-failed", "e")
	if _, text, _ := again.event(); text != "e" {
		t.Errorf("then came %q", text)
	}
	lost := connect2(t, s, "all=1", "of another process")
	lost.until(func(m message) bool { return m.kind == "lost" })
	if n := api.subscriptions(); n != 1 {
		t.Errorf("%d goroutines wait for events, want 1", n)
	}
}

// connect2 is connect for a stream whose first messages are needed.
func connect2(t *testing.T, s *httptest.Server, query, last string) *stream {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	r, _ := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/any/prefix/live?"+query, http.NoBody)
	r.Header.Set("Last-Event-ID", last)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return &stream{t, resp.Body, bufio.NewScanner(resp.Body)}
}

// TestLiveEnds shows that Close ends open streams, and that there are no new ones. Other requests
// of the same client still work.
func TestLiveEnds(t *testing.T) {
	p, s := start(t, hostile(t), nil)
	one := connect(t, s, "all=1", "")
	for range 2 {
		if err := p.Close(testwait.Long(t)); err != nil {
			t.Fatal(err)
		}
	}
	if _, ok := one.next(); ok {
		t.Error("a stream goes on after Close")
	}
	if status, _ := get(t, s, "live"); status != http.StatusServiceUnavailable {
		t.Errorf("a stream after Close: %d", status)
	}
	if status, _ := get(t, s, "queues"); status != http.StatusServiceUnavailable {
		t.Errorf("a shared read after Close: %d", status)
	}
	if status, _ := get(t, s, "static/style.css"); status != http.StatusOK {
		t.Errorf("a file after Close: %d", status)
	}
}

// idle opens a stream of all events that reads nothing. The returned function reads it.
func idle(t *testing.T, s *httptest.Server) (read func() *stream) {
	t.Helper()
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.(*net.TCPConn).SetReadBuffer(16 << 10)
	if _, err := io.WriteString(c, "GET /any/prefix/live?all=1 HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	first := bufio.NewReaderSize(c, 16) // it reads the status and little more
	if _, err := first.Peek(1); err != nil {
		t.Fatal(err)
	}
	return func() *stream {
		_ = c.(*net.TCPConn).SetReadBuffer(1 << 20)
		_ = c.SetReadDeadline(time.Now().Add(2 * time.Minute))
		resp, err := http.ReadResponse(bufio.NewReader(first), nil)
		if err != nil {
			t.Fatal(err)
		}
		return &stream{t, resp.Body, bufio.NewScanner(resp.Body)}
	}
}

// flood tells events that are more than an idle stream and its connection hold. Another stream
// gets each of them.
func flood(t *testing.T, api *system, fast *stream, n int, text string) {
	t.Helper()
	for i := range n {
		api.tell("task-failed", fmt.Sprint(i, text))
		if _, got, _ := fast.event(); !strings.HasPrefix(got, fmt.Sprint(i, " ")) {
			t.Fatalf("event %d is %.20q", i, got)
		}
	}
}

// TestLiveSlow has a client that reads nothing for a while: others get all events, and it gets all
// events afterwards, each once.
func TestLiveSlow(t *testing.T) {
	api := hostile(t)
	s := serve(t, api, nil)
	read := idle(t, s)
	const n = 1000
	flood(t, api, connect(t, s, "all=1", ""), n, strings.Repeat(" x", 200))
	slow := read()
	for i := range n {
		m := slow.until(func(m message) bool { return m.kind != "" })
		if m.kind != "event" || !strings.Contains(m.data, fmt.Sprintf(`"text":"%d `, i)) {
			t.Fatalf("message %d is %q %.80q", i, m.kind, m.data)
		}
	}
}

// TestLiveMemory shows that a client that reads nothing holds little memory, and that Close ends
// its stream at once.
func TestLiveMemory(t *testing.T) {
	api := hostile(t)
	api.keep = 100
	p, s := start(t, api, nil)
	idle(t, s)
	fast := connect(t, s, "all=1", "")
	flood(t, api, fast, 300, " first")
	before := heap()
	flood(t, api, fast, 1000, strings.Repeat(" x", 32<<10))
	if grown := heap() - before; grown > 40<<20 {
		t.Errorf("the heap has grown by %d MiB for events of 62 MiB", grown>>20)
	}
	begin := time.Now()
	if err := p.Close(testwait.Long(t)); err != nil {
		t.Error(err)
	}
	if took := time.Since(begin); took > 25*time.Second { // a write may take 30 s
		t.Errorf("Close took %v", took)
	}
}

// heap returns the bytes in use.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestLiveMany opens 400 streams: 200 are served and the others are refused. Pages still work,
// and the places are free again afterwards.
func TestLiveMany(t *testing.T) {
	api := hostile(t)
	s := serve(t, api, nil)
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	const clients, places = 400, 200
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	open := make(chan io.ReadCloser, clients)
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			r, _ := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/any/prefix/live?all=1", http.NoBody)
			resp, err := client.Do(r)
			if err != nil {
				t.Error(err)
				return
			}
			if resp.StatusCode == http.StatusOK {
				open <- resp.Body
				return
			}
			if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
				t.Errorf("a refused stream: %d %v", resp.StatusCode, resp.Header)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		})
	}
	all.Wait()
	if n := len(open); n != places {
		t.Fatalf("%d streams are open, want %d", n, places)
	}
	if status, _ := get(t, s, "queues"); status != http.StatusOK {
		t.Errorf("a page beside the streams: %d", status)
	}
	api.tell("task-failed", "for all")
	for range places {
		body := <-open
		one := stream{t, body, bufio.NewScanner(body)}
		if _, text, _ := one.event(); text != "for all" {
			t.Errorf("the event is %q", text)
		}
		_ = body.Close()
	}
	cancel()
	if n := api.subscriptions(); n > 1 {
		t.Errorf("%d goroutines wait for events, want 1", n)
	}
	testwait.Until(t, "the places are free", func() bool {
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/any/prefix/live", http.NoBody)
		resp, err := client.Do(r)
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

// deaf is an API whose ListEvents does not end with its context.
type deaf struct {
	*system
	release chan struct{}
}

func (d *deaf) ListEvents(ctx context.Context, q inspect.EventQuery) (inspect.EventPage, error) {
	if q.Wait == 0 {
		return d.system.ListEvents(ctx, q)
	}
	<-d.release
	return inspect.EventPage{}, errors.New("released")
}

// TestLiveDeaf shows that Close obeys its context while the API does not.
func TestLiveDeaf(t *testing.T) {
	api := &deaf{hostile(t), make(chan struct{})}
	p, s := start(t, api, nil)
	one := connect(t, s, "", "")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Close(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Close returned %v", err)
	}
	if _, ok := one.next(); ok {
		t.Error("the stream goes on")
	}
	close(api.release)
}
