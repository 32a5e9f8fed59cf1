package callback

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/swarmiji/swarmiji/jobs"
)

// ask sends a request to a handler without a network.
func ask(h http.Handler, method, target, body string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestAnswersOverHTTP(t *testing.T) {
	long := strings.Repeat("k", jobs.MaxKey+1)
	for _, tt := range []struct {
		name, method, target, body string
		headers                    []string
		status                     int
		said                       string
		want                       *jobs.Answer
	}{
		{name: "a result", target: "/a/print/o-17", body: ` {"pages":12}`, status: 200, said: `{"status":"accepted","job":7}`, want: &jobs.Answer{Name: "print", Key: "o-17", Result: []byte(` {"pages":12}`)}},
		{name: "nothing", target: "/a/print/o-17", status: 200, want: &jobs.Answer{Name: "print", Key: "o-17"}},
		{name: "a type", target: "/a/print/o-17", body: "1", headers: []string{"Content-Type", "application/problem+json; charset=utf-8"}, status: 200, want: &jobs.Answer{Name: "print", Key: "o-17", Result: []byte("1")}},
		{name: "a refusal by header", target: "/a/print/o-17", body: "1", headers: []string{HeaderError, "no paper"}, status: 200, want: &jobs.Answer{Name: "print", Key: "o-17", Refusal: "no paper"}},
		{name: "a refusal by parameter", target: "/a/print/o-17?error=no+paper&x=y", status: 200, want: &jobs.Answer{Name: "print", Key: "o-17", Refusal: "no paper"}},
		{name: "a refusal without a reason", target: "/a/print/o-17?error", status: 200, want: &jobs.Answer{Name: "print", Key: "o-17", Refusal: "refused without a reason"}},
		{name: "a reason that is no text", target: "/a/print/o-17?error=%ff", status: 200, want: &jobs.Answer{Name: "print", Key: "o-17", Refusal: "\ufffd"}},
		{name: "escapes", target: "/a/print%2Forder/a%20%2E%2E%2Fb", status: 200, want: &jobs.Answer{Name: "print/order", Key: "a ../b"}},
		{name: "parameters", target: "/a?name=print%2Forder&key=../x", status: 200, want: &jobs.Answer{Name: "print/order", Key: "../x"}},
		{name: "a name and a parameter", target: "/a/print?key=..", status: 200, want: &jobs.Answer{Name: "print", Key: ".."}},
		// the path was not cleaned, so it is literal
		{name: "dots", target: "/a/print/..", status: 200, want: &jobs.Answer{Name: "print", Key: ".."}},
		{name: "early", target: "/a/print/early", status: 202, said: `{"status":"early"}`},
		{name: "late", target: "/a/print/late", status: 410, said: `{"status":"late","job":7}`},

		{name: "another path", target: "/b/print/o-17", status: 404, said: `{"error":"no such path"}`},
		{name: "a longer prefix", target: "/ab/print/o-17", status: 404},
		{name: "deeper", target: "/a/print/o/17", status: 404},
		{name: "no key", target: "/a/print", status: 400},
		{name: "no key after a slash", target: "/a/print/", status: 404},
		{name: "no name", target: "/a//o-17", status: 404},
		{name: "nothing", target: "/a/", status: 400},
		{name: "a NUL", target: "/a/print/%00", status: 400},
		{name: "no UTF-8", target: "/a/print/%ff", status: 400},
		{name: "a long key", target: "/a/print/" + long, status: 400},
		{name: "a long name", target: "/a/" + long + "/k", status: 400},
		{name: "a key twice", target: "/a/print/k?key=j", status: 400},
		{name: "a parameter twice", target: "/a/print?key=j&key=j", status: 400},
		{name: "a malformed query", target: "/a/print/k?%zz", status: 400},
		{name: "GET", method: "GET", target: "/a/print/o-17", status: 405},
		{name: "HEAD", method: "HEAD", target: "/a/print/o-17", status: 405},
		{name: "a method of its own", method: "ANSWER", target: "/a/print/o-17", status: 405},
		{name: "GET elsewhere", method: "GET", target: "/b", status: 404},
		{name: "bad JSON", target: "/a/print/o-17", body: `{"pages":`, status: 400},
		{name: "two values", target: "/a/print/o-17", body: `1 2`, status: 400},
		{name: "JSON that is no UTF-8", target: "/a/print/o-17", body: "\"\xff\"", status: 400},
		{name: "a form", target: "/a/print/o-17", body: "a=b", headers: []string{"Content-Type", "application/x-www-form-urlencoded"}, status: 415},
		{name: "compressed", target: "/a/print/o-17", body: "1", headers: []string{"Content-Encoding", "gzip"}, status: 415},
		{name: "large", target: "/a/print/o-17", body: `"` + strings.Repeat("x", 1000) + `"`, status: 413},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBook()
			h := handler(t, b, Config{Prefix: "/a/", Open: true, MaxBody: 1000})
			if tt.method == "" {
				tt.method = "POST"
			}
			w := ask(h, tt.method, tt.target, tt.body, tt.headers...)
			if w.Code != tt.status || tt.said != "" && w.Body.String() != tt.said {
				t.Errorf("%d %s, want %d %s", w.Code, w.Body, tt.status, tt.said)
			}
			if w.Code == 405 && w.Header().Get("Allow") != "POST" {
				t.Error("nobody says that POST would do")
			}
			want := map[string]jobs.Answer{}
			if tt.want != nil {
				want[tt.want.Name+"\x00"+tt.want.Key] = *tt.want
			}
			if diff := cmp.Diff(want, b.kept()); diff != "" {
				t.Error(diff)
			}
			s, bad := h.Stats(), int64(0)
			if tt.status >= 400 && tt.status != 410 {
				bad = 1
			}
			if s.Bad != bad || s.Accepted != int64(len(want)) {
				t.Errorf("%+v", s)
			}
		})
	}
}

// TestMounted shows that names and keys pass a ServeMux, which cleans paths, and StripPrefix
// unchanged.
func TestMounted(t *testing.T) {
	b := newBook()
	mux := http.NewServeMux()
	mux.Handle("/answers/", handler(t, b, Config{Prefix: "/answers", Open: true}))
	mux.Handle("/deep/er/", http.StripPrefix("/deep/er", handler(t, b, Config{Open: true})))
	server := httptest.NewServer(mux)
	defer server.Close()
	want := map[string]jobs.Answer{}
	for i, key := range []string{"o-17", "..", ".", "a/b", "a//b", "a%2Fb", "ö ?#&=+", "a\nb", "%"} {
		for j, base := range []string{"/answers", "/deep/er/", "/deep/er/?tenant=a%2Fb"} {
			name := fmt.Sprint("n", i, "-", j)
			u, err := URL(server.URL+base, name, key)
			if err != nil {
				t.Fatal(err)
			}
			res, err := server.Client().Post(u, "application/json", strings.NewReader("1"))
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close()
			if res.StatusCode != http.StatusOK {
				t.Errorf("%s: %s", u, res.Status)
			}
			want[name+"\x00"+key] = jobs.Answer{Name: name, Key: key, Result: []byte("1")}
		}
	}
	if diff := cmp.Diff(want, b.kept()); diff != "" {
		t.Error(diff)
	}
}

// TestDuplicatesAtOnce shows that one of many concurrent answers is accepted.
func TestDuplicatesAtOnce(t *testing.T) {
	h := handler(t, newBook(), Config{Open: true})
	codes := make([]int, 50)
	var all sync.WaitGroup
	for i := range codes {
		all.Go(func() { codes[i] = ask(h, "POST", "/print/o-17", "1").Code })
	}
	all.Wait()
	got := map[int]int{}
	for _, code := range codes {
		got[code]++
	}
	if diff := cmp.Diff(map[int]int{200: 1, 409: 49}, got); diff != "" {
		t.Error(diff)
	}
	if s := h.Stats(); s != (Stats{Accepted: 1, Duplicate: 49}) {
		t.Errorf("%+v", s)
	}
}

// TestStoreAway shows that a 503 contains the time of the next try, but not the cause.
func TestStoreAway(t *testing.T) {
	b := newBook()
	h := handler(t, b, Config{Open: true, RetryAfter: 1500 * time.Millisecond})
	b.failing(func([]jobs.Answer) error { return fmt.Errorf("dial secret@host: %w", jobs.ErrUnavailable) })
	w := ask(h, "POST", "/print/o-17", "1")
	if w.Code != 503 || w.Header().Get("Retry-After") != "2" || strings.Contains(w.Body.String(), "secret") {
		t.Errorf("%d %q %s", w.Code, w.Header(), w.Body)
	}
	b.failing(func([]jobs.Answer) error { return jobs.ErrBadJob })
	if w := ask(h, "POST", "/print/o-17", "1"); w.Code != 400 || w.Header().Get("Retry-After") != "" {
		t.Errorf("%d %q %s", w.Code, w.Header(), w.Body)
	}
	b.failing(nil)
	if w := ask(h, "POST", "/print/o-17", "1"); w.Code != 200 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if s := h.Stats(); s != (Stats{Accepted: 1, Failed: 1, Bad: 1}) {
		t.Errorf("%+v", s)
	}
}

// TestVerify shows that Verify gets the body, and that rejected requests reach no job.
func TestVerify(t *testing.T) {
	b := newBook()
	h := handler(t, b, Config{Verify: func(r *http.Request, body []byte) error {
		switch r.Header.Get("X-Signature") {
		case fmt.Sprint(len(body)):
			return nil
		case "panic":
			panic("boo")
		}
		return errors.New("the password is sesame")
	}})
	for _, tt := range []struct {
		signature string
		status    int
	}{{"", 403}, {"2", 403}, {"panic", 500}, {"3", 200}} {
		w := ask(h, "POST", "/print/o-17", "123", "X-Signature", tt.signature)
		if w.Code != tt.status || strings.Contains(w.Body.String(), "sesame") {
			t.Errorf("%q: %d %s", tt.signature, w.Code, w.Body)
		}
	}
	if s := h.Stats(); s != (Stats{Accepted: 1, Forbidden: 2, Bad: 1}) || len(b.kept()) != 1 {
		t.Errorf("%+v", s)
	}
}

// TestRead shows one URL for all jobs of a service with its own format.
func TestRead(t *testing.T) {
	b := newBook()
	h := handler(t, b, Config{Open: true, Prefix: "/hook", Read: func(r *http.Request, body []byte) (jobs.Answer, error) {
		kind, rest, _ := strings.Cut(string(body), " ")
		switch kind {
		case "ping":
			return jobs.Answer{}, fmt.Errorf("%w: a ping", ErrSkip)
		case "done":
			return jobs.Answer{Key: rest, Result: []byte("true")}, nil
		case "here":
			return jobs.Answer{Result: []byte(rest)}, nil
		case "refused":
			return jobs.Answer{Name: "other", Key: rest, Refusal: "no"}, nil
		case "panic":
			panic("boo")
		}
		return jobs.Answer{}, errors.New("the password is sesame")
	}})
	for _, tt := range []struct {
		target, body string
		status       int
	}{
		{"/hook", "ping", 200},
		{"/hook/print", "done o-1", 200},
		{"/hook?name=print", "done o-2", 200},
		{"/hook/print", "refused o-3", 200},
		{"/hook/print/o-4", "here {}", 200},
		{"/hook/print/o-5", "here {", 400},
		{"/hook/print", "here {}", 400}, // the key is missing
		{"/hook", "done o-6", 400},      // the name is missing
		{"/hook", "what", 400},
		{"/hook", "panic", 500},
	} {
		w := ask(h, "POST", tt.target, tt.body, "Content-Type", "text/plain")
		if w.Code != tt.status || strings.Contains(w.Body.String(), "sesame") {
			t.Errorf("%s %q: %d %s", tt.target, tt.body, w.Code, w.Body)
		}
	}
	want := map[string]jobs.Answer{
		"print\x00o-1": {Name: "print", Key: "o-1", Result: []byte("true")},
		"print\x00o-2": {Name: "print", Key: "o-2", Result: []byte("true")},
		"other\x00o-3": {Name: "other", Key: "o-3", Refusal: "no"},
		"print\x00o-4": {Name: "print", Key: "o-4", Result: []byte("{}")},
	}
	if diff := cmp.Diff(want, b.kept()); diff != "" {
		t.Error(diff)
	}
	if s := h.Stats(); s.Skipped != 1 {
		t.Errorf("%+v", s)
	}
}

// TestStatus shows that Config.Status can return 2xx, for services that repeat other requests.
func TestStatus(t *testing.T) {
	code := 204
	h := handler(t, newBook(), Config{Open: true, Status: func(jobs.Receipt) int {
		if code == 0 {
			panic("boo")
		}
		return code
	}})
	for _, tt := range []struct{ code, want int }{{204, 204}, {418, 418}, {99, 409}, {1000, 409}, {0, 409}} {
		code = tt.code
		if w := ask(h, "POST", "/print/o-17", ""); w.Code != tt.want || (w.Body.Len() == 0) != (tt.want == 204) {
			t.Errorf("%d: %d %s", tt.code, w.Code, w.Body)
		}
	}
}

// TestBodies shows that a body that is too large, too slow or incomplete is rejected, on a real
// connection.
func TestBodies(t *testing.T) {
	b := newBook()
	h := handler(t, b, Config{Open: true, MaxBody: 100})
	server, hasty := httptest.NewServer(h), httptest.NewUnstartedServer(h)
	defer server.Close()
	hasty.Config.ReadTimeout = 100 * time.Millisecond
	hasty.Start()
	defer hasty.Close()
	for _, tt := range []struct {
		name, text string
		cut        bool
		status     string
	}{
		{"large, as it says", "Content-Length: 1000000000\r\n\r\n", false, "413"},
		{"large, in chunks", "Transfer-Encoding: chunked\r\n\r\n80\r\n" + strings.Repeat(" ", 0x80) + "\r\n", false, "413"},
		{"slow", "Content-Length: 10\r\n\r\n12345", false, "408"},
		{"cut off", "Content-Length: 10\r\n\r\n12345", true, "400"},
		{"bad chunks", "Transfer-Encoding: chunked\r\n\r\nzz\r\n", false, "400"},
		{"whole", "Content-Length: 2\r\n\r\n12", false, "200"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			to := server
			if tt.name == "slow" {
				to = hasty
			}
			conn, err := net.Dial("tcp", to.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			_, _ = io.WriteString(conn, "POST /print/o-17 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"+tt.text)
			if tt.cut {
				_ = conn.(*net.TCPConn).CloseWrite()
			}
			_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
			status := make([]byte, len("HTTP/1.1 200"))
			if _, err := io.ReadFull(conn, status); err != nil || string(status[9:]) != tt.status {
				t.Errorf("%q, %v, want %s", status, err, tt.status)
			}
		})
	}
	if got := len(b.kept()); got != 1 {
		t.Errorf("%d answers", got)
	}
}

// TestClientGone shows that a complete answer is stored although the client has disconnected.
func TestClientGone(t *testing.T) {
	b := newBook()
	h := handler(t, b, Config{Open: true})
	written := make(chan struct{})
	inside, gone := make(chan struct{}), make(chan struct{})
	b.failing(func([]jobs.Answer) error {
		close(inside)
		<-gone
		return nil
	})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r)
		<-r.Context().Done() // the server has noticed the disconnection
		close(written)
	}))
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(conn, "POST /print/o-17 HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n1")
	<-inside
	_ = conn.Close()
	close(gone)
	<-written
	if len(b.kept()) != 1 || h.Stats().Accepted != 1 {
		t.Errorf("%v, %+v", b.kept(), h.Stats())
	}
}

func TestConfigProblems(t *testing.T) {
	_, err := NewHandler(Config{Prefix: "a b", MaxBody: -1, Timeout: -1, RetryAfter: time.Millisecond})
	for _, want := range []string{"Service", "Open", "Prefix", "MaxBody", "Timeout", "RetryAfter"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("nothing of %s in %v", want, err)
		}
	}
	s, err := NewSigner(SignerConfig{Secrets: [][]byte{make([]byte, 32)}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewHandler(Config{Service: new(jobs.Service), Signer: s, Open: true}); err == nil {
		t.Error("it is open and closed")
	}
	if _, err := NewHandler(Config{Service: new(jobs.Service), Signer: s}); err != nil {
		t.Error(err)
	}
}
