package bedrock

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/swarmiji/swarmiji/jobs"
)

// TestWebPages shows that requests of browsers, with any host name, are refused and end the
// connection.
func TestWebPages(t *testing.T) {
	s := jobsServer(t, Config{})
	c := dial(t, s.addr)
	c.ask("CreateJob\nname: foo\n\n").wantStatus(t, ok)
	for _, method := range []string{"DeleteJob", "GetJob", "POST"} {
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.addr+"/", strings.NewReader("DeleteJob\njobID: 1\n\n"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("jobID", "1")
		r.Header.Set("name", "foo")
		r.Close = true
		answer, err := new(http.Client).Do(r)
		if err == nil { // the answer is not HTTP
			t.Errorf("%s was answered with %s", method, answer.Status)
			_ = answer.Body.Close()
		}
	}
	c.ask("QueryJob\njobID: 1\n\n").wantStatus(t, "200 OK")
	wantState(t, s, 1, jobs.Queued)

	for _, line := range []string{"DeleteJob / HTTP/1.1", "deletejob /a?b http/1.0", "DeleteJob * HTTP/2.0"} {
		page := dial(t, s.addr)
		page.ask(line+"\r\nHost: attacker.example\r\njobID: 1\r\n\r\nDeleteJob\njobID: 1\n\n").wantStatus(t, "430 Unrecognized command")
		page.wantEnd()
	}
	wantState(t, s, 1, jobs.Queued)
	// Such a header, or text after a command, does not identify a browser.
	c.ask("UpdateJob HTTP\nHost: me\njobID: 1\ndata: {\"v\":1}\n\n").wantStatus(t, "200 OK")
}

// TestPanicAfterATake shows that a panic gives back the claimed jobs at once.
func TestPanicAfterATake(t *testing.T) {
	s := jobsServer(t, Config{})
	dial(t, s.addr).ask("CreateJob\nname: foo\n\n").wantStatus(t, ok)
	s.commands = append(s.commands, command{name: "Panic", takes: true, do: func(ctx context.Context, c *call) error {
		if _, err := c.get(ctx, jobs.Request{Selector: jobs.Selector{Pattern: "*"}, Max: 1}); err != nil {
			return err
		}
		panic("oh")
	}})
	c := dial(t, s.addr)
	c.ask("Panic\n\n").wantStatus(t, "500 Internal error")
	c.wantEnd()
	wantState(t, s, 1, jobs.Queued)
}

// TestAllow shows that only clients with permitted addresses are served.
func TestAllow(t *testing.T) {
	for allow, served := range map[string]bool{"127.0.0.0/8": true, "192.0.2.0/24,127.0.0.1/32": true, "192.0.2.0/24": false, "::1/128": false, "::ffff:127.0.0.1/128": true} {
		var prefixes []netip.Prefix
		for text := range strings.SplitSeq(allow, ",") {
			prefixes = append(prefixes, netip.MustParsePrefix(text))
		}
		s := serve(t, Config{Allow: prefixes}, echo)
		c := dial(t, s.addr)
		if served {
			c.ask("Echo\n\n").wantStatus(t, "200 OK")
			continue
		}
		_, _ = c.Write([]byte("Echo\n\n"))
		if got, err := c.receive(); err == nil {
			t.Errorf("%s: %+v", allow, got)
		}
		if st := s.Stats(); st.Refused != 1 || st.Connections != 0 || st.Requests != 0 {
			t.Errorf("%s: %+v", allow, st)
		}
	}
	if _, err := New(Config{Service: new(jobs.Service), Allow: []netip.Prefix{}}); err == nil || !strings.Contains(err.Error(), "Allow is empty") {
		// as from an unset variable: it must not permit all clients
		t.Errorf("nobody is allowed: %v", err)
	}
	if _, err := New(Config{Service: new(jobs.Service), Allow: []netip.Prefix{{}}}); err == nil || !strings.Contains(err.Error(), "Allow") {
		t.Errorf("a prefix that is none: %v", err)
	}
}

// elsewhere is a listener that reports another address.
type elsewhere struct {
	net.Listener
	addr net.Addr
}

func (e elsewhere) Addr() net.Addr { return e.addr }

// TestWarnsBeyondLoopback shows that a server logs a warning if other machines can reach it and its
// clients are not limited.
func TestWarnsBeyondLoopback(t *testing.T) {
	all := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	for _, c := range []struct {
		addr  string
		allow []netip.Prefix
		warns bool
	}{
		{"127.0.0.1:1", nil, false},
		{"[::1]:1", nil, false},
		{"0.0.0.0:1", nil, true},
		{"[::]:1", nil, true},
		{"192.0.2.1:1", nil, true},
		{"192.0.2.1:1", all, false},
	} {
		var log syncBuffer
		s, err := New(Config{Service: new(jobs.Service), Listen: "127.0.0.1:0", Allow: c.allow, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ln, err := s.Listen(ctx)
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		if err := s.Serve(ctx, elsewhere{ln, net.TCPAddrFromAddrPort(netip.MustParseAddrPort(c.addr))}); err != nil {
			t.Fatal(err)
		}
		if warned := strings.Contains(log.String(), "level=WARN"); warned != c.warns {
			t.Errorf("%s, allowed %v: %q", c.addr, c.allow, log.String())
		}
	}
}

// syncBuffer is a buffer for several goroutines.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
