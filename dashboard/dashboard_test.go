package dashboard_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/dashboard"
	"github.com/swarmiji/swarmiji/inspect"
	"github.com/swarmiji/swarmiji/inspect/httpinspect"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// system is an API whose methods succeed and note the name of the caller.
type system struct {
	inspect.API
	purged, actor string
	paused        bool
}

// newSystem returns a system without parts, so that its other methods are not supported.
func newSystem(t *testing.T) *system {
	t.Helper()
	api, err := inspect.New(inspect.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return &system{API: api}
}

func (s *system) PurgeQueue(ctx context.Context, p inspect.Purge) (inspect.Change, error) {
	s.purged, s.actor = p.Queue, inspect.ActorOf(ctx)
	return inspect.Change{Do: inspect.DoPurgeQueue}, nil
}

func (s *system) PauseQueue(context.Context, inspect.Pause) (inspect.Change, error) {
	s.paused = true
	return inspect.Change{Do: inspect.DoPauseQueue}, nil
}

func (s *system) ListQueues(context.Context, inspect.QueueQuery) (inspect.QueuePage, error) {
	return inspect.QueuePage{}, nil
}

// The original arguments have the word hush, and texts with hidden secrets the word preview.
var (
	original = []byte(`"hush"`)
	headers  = map[string]string{"h": "preview"}
)

func (s *system) GetTask(context.Context, inspect.TaskKey) (inspect.TaskDetail, error) {
	return inspect.TaskDetail{
		Original: original, Args: "preview", Result: "preview", Headers: headers, Dead: &inspect.DeadLetter{Args: original, Headers: headers},
	}, nil
}

func (s *system) GetDead(context.Context, inspect.DeadKey) (inspect.DeadLetter, error) {
	return inspect.DeadLetter{Args: original, Preview: "preview", Headers: headers}, nil
}

func (s *system) GetSchedule(context.Context, inspect.ScheduleKey) (inspect.Schedule, error) {
	return inspect.Schedule{Args: original, Headers: headers}, nil
}

func (s *system) ListSchedules(context.Context, inspect.ScheduleQuery) (inspect.SchedulePage, error) {
	return inspect.SchedulePage{Schedules: []inspect.Schedule{{Args: original, Headers: headers}}}, nil
}

func (s *system) GetJob(context.Context, int64) (inspect.JobDetail, error) {
	return inspect.JobDetail{Data: original, Answer: original}, nil
}

func (s *system) ListEvents(context.Context, inspect.EventQuery) (inspect.EventPage, error) {
	return inspect.EventPage{Events: []inspect.Event{{Args: "preview", Result: "preview", Fields: map[string]any{"h": "preview"}}}}, nil
}

const token = "a-token-of-a-program"

var users = []dashboard.User{
	{Name: "vera", Password: "pass-v", Role: dashboard.Viewer},
	{Name: "otto", Password: "pass-o", Role: dashboard.Operator},
	{Name: "ada", Password: "pass-a", Role: dashboard.Admin},
}

// start serves a dashboard on a loopback address.
func start(t *testing.T, c dashboard.Config) (*httptest.Server, *system) {
	t.Helper()
	s := newSystem(t)
	c.API = s
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	d, err := dashboard.New(c)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(d)
	t.Cleanup(func() {
		server.Close()
		if err := d.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return server, s
}

// send sends a request and returns the status and the body.
func send(t *testing.T, server *httptest.Server, method, path, body string, change ...func(*http.Request)) (int, string, http.Header) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range change {
		c(r)
	}
	resp, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(data), resp.Header
}

func header(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

func login(name, password string) func(*http.Request) {
	return func(r *http.Request) { r.SetBasicAuth(name, password) }
}

const (
	purge = "/api/v1/PurgeQueue"
	pause = "/api/v1/PauseQueue"
	drop  = "/api/v1/DropDead"
	list  = "/api/v1/ListQueues"
)

// TestAccess is the table of requests and their outcomes.
func TestAccess(t *testing.T) {
	closed := dashboard.Config{Users: users, Tokens: []dashboard.Token{{Name: "deploy", Secret: token, Role: dashboard.Operator}}}
	proxy := dashboard.Config{Proxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, ProxyHeader: "X-User", ProxyRole: dashboard.Operator}
	elsewhere := dashboard.Config{Proxies: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, ProxyHeader: "X-User", ProxyRole: dashboard.Admin}
	readOnly := closed
	readOnly.ReadOnly = true
	picky := closed
	picky.Authorize = func(_ *http.Request, _ inspect.Do, target string) error {
		if target == "orders" {
			return errors.New("not this queue")
		}
		return nil
	}
	own := dashboard.Config{Identify: func(r *http.Request) (string, dashboard.Role, error) {
		if r.Header.Get("X-Own") == "" {
			return "", 0, errors.New("who?")
		}
		return "own", dashboard.Admin, nil
	}}
	choosy := dashboard.Config{Authorize: func(_ *http.Request, _ inspect.Do, target string) error {
		if target == "1" || target == "" { // "" is several
			return errors.New("not this job")
		}
		return nil
	}}
	named := dashboard.Config{AllowedHosts: []string{"dash.example.org"}}
	for _, c := range []struct {
		name, method, path, body string
		config                   dashboard.Config
		change                   []func(*http.Request)
		status                   int
	}{
		{"this machine, no users", http.MethodPost, purge, `{"queue":"q"}`, dashboard.Config{}, nil, 200},
		{"through a proxy, no users", http.MethodPost, list, "", dashboard.Config{}, []func(*http.Request){header("X-Forwarded-For", "192.0.2.1")}, 403},
		{"another host name (rebinding)", http.MethodPost, list, "", dashboard.Config{}, []func(*http.Request){func(r *http.Request) { r.Host = "evil.example" }}, 421},
		{"an allowed host name", http.MethodPost, list, "", named, []func(*http.Request){func(r *http.Request) { r.Host = "dash.example.org:8080" }}, 200},
		{"a longer host name", http.MethodPost, list, "", named, []func(*http.Request){func(r *http.Request) { r.Host = "dash.example.org.evil.example" }}, 421},
		{"a host that begins with 127", http.MethodPost, list, "", dashboard.Config{}, []func(*http.Request){func(r *http.Request) { r.Host = "127.0.0.1.evil.example" }}, 421},
		{"another origin", http.MethodPost, purge, `{"queue":"q"}`, dashboard.Config{}, []func(*http.Request){header("Origin", "https://evil.example")}, 403},
		{"another site", http.MethodPost, list, "", dashboard.Config{}, []func(*http.Request){header("Sec-Fetch-Site", "cross-site")}, 403},
		{"the same origin", http.MethodPost, list, "", dashboard.Config{}, []func(*http.Request){header("Sec-Fetch-Site", "same-origin")}, 200},

		{"no password", http.MethodGet, "/", "", closed, nil, 401},
		{"no password, API", http.MethodPost, list, "", closed, nil, 401},
		{"wrong password", http.MethodGet, "/", "", closed, []func(*http.Request){login("ada", "pass-o")}, 401},
		{"wrong name", http.MethodGet, "/", "", closed, []func(*http.Request){login("eve", "pass-a")}, 401},
		{"right password", http.MethodGet, "/", "", closed, []func(*http.Request){login("vera", "pass-v")}, 200},
		{"token for a page", http.MethodGet, "/", "", closed, []func(*http.Request){header("Authorization", "Bearer "+token)}, 401},
		{"token for the API", http.MethodPost, list, "", closed, []func(*http.Request){header("Authorization", "bearer "+token)}, 200},
		{"wrong token", http.MethodPost, list, "", closed, []func(*http.Request){header("Authorization", "Bearer "+token+"x")}, 401},
		{"viewer pauses", http.MethodPost, pause, `{"queue":"q"}`, closed, []func(*http.Request){login("vera", "pass-v")}, 403},
		{"operator pauses", http.MethodPost, pause, `{"queue":"q"}`, closed, []func(*http.Request){login("otto", "pass-o")}, 200},
		{"operator purges", http.MethodPost, purge, `{"queue":"q"}`, closed, []func(*http.Request){login("otto", "pass-o")}, 403},
		{"token of an operator purges", http.MethodPost, purge, `{"queue":"q"}`, closed, []func(*http.Request){header("Authorization", "Bearer "+token)}, 403},
		{"viewer drops by a pattern", http.MethodPost, drop, `{"queue":"q","name":"?*"}`, closed, []func(*http.Request){login("vera", "pass-v")}, 403},
		{"operator drops by a pattern", http.MethodPost, drop, `{"queue":"q","name":"?*","confirm":"q"}`, closed, []func(*http.Request){login("otto", "pass-o")}, 403},
		{"admin drops by a pattern, not confirmed", http.MethodPost, drop, `{"queue":"q","name":"?*"}`, closed, []func(*http.Request){login("ada", "pass-a")}, 400},
		{"admin drops all, not confirmed", http.MethodPost, drop, `{"queue":"q","confirm":"*"}`, closed, []func(*http.Request){login("ada", "pass-a")}, 400},
		{"admin purges", http.MethodPost, purge, `{"queue":"q"}`, closed, []func(*http.Request){login("ada", "pass-a")}, 200},
		{"admin purges, read-only", http.MethodPost, purge, `{"queue":"q"}`, readOnly, []func(*http.Request){login("ada", "pass-a")}, 403},
		{"Authorize refuses a queue", http.MethodPost, purge, `{"queue":"orders"}`, picky, []func(*http.Request){login("ada", "pass-a")}, 403},
		{"Authorize lets another through", http.MethodPost, purge, `{"queue":"q"}`, picky, []func(*http.Request){login("ada", "pass-a")}, 200},

		{"user of a trusted proxy", http.MethodPost, pause, `{"queue":"q"}`, proxy, []func(*http.Request){header("X-User", "pia")}, 200},
		{"no user of a trusted proxy", http.MethodPost, list, "", proxy, nil, 401},
		{"two users in the header", http.MethodPost, list, "", proxy, []func(*http.Request){func(r *http.Request) { r.Header["X-User"] = []string{"pia", "ada"} }}, 401},
		{"the header from elsewhere", http.MethodPost, list, "", elsewhere, []func(*http.Request){header("X-User", "ada")}, 401},
		{"own authentication", http.MethodPost, purge, `{"queue":"q"}`, own, []func(*http.Request){header("X-Own", "1")}, 200},
		{"own authentication refuses", http.MethodPost, list, "", own, nil, 401},

		{"a long address", http.MethodGet, "/?q=" + strings.Repeat("x", 9000), "", dashboard.Config{}, nil, 414},
		{"a large body", http.MethodPost, list, strings.Repeat(" ", 1<<20+1), dashboard.Config{}, nil, 413},
		{"several jobs, of which Authorize refuses one", http.MethodPost, "/api/v1/RetryJobs", `{"ids":[1,2]}`, choosy, nil, 403},
		{"a path trick", http.MethodPost, "/api/v1/%2e%2e/%2e%2e/etc/passwd", "", dashboard.Config{}, nil, 404},
	} {
		t.Run(c.name, func(t *testing.T) {
			server, _ := start(t, c.config)
			status, body, h := send(t, server, c.method, c.path, c.body, c.change...)
			if status != c.status {
				t.Errorf("status %d, want %d: %s", status, c.status, body)
			}
			for name, want := range map[string]string{
				"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Cache-Control": "no-store",
			} {
				if h.Get(name) != want {
					t.Errorf("%s is %q, want %q", name, h.Get(name), want)
				}
			}
			if p := h.Get("Content-Security-Policy"); !strings.Contains(p, "default-src 'self'") || !strings.Contains(p, "frame-ancestors 'none'") {
				t.Errorf("Content-Security-Policy is %q", p)
			}
			if h.Get("Set-Cookie") != "" || strings.Contains(body, "pass-") || strings.Contains(body, token) {
				t.Errorf("a cookie or a secret: %v %s", h, body)
			}
		})
	}
}

// TestBodies sends bodies that have no length: one that does not end, and one that breaks off.
func TestBodies(t *testing.T) {
	for _, c := range []struct {
		path, body string
		status     string
	}{
		{pause, "100001\r\n" + strings.Repeat(" ", 1<<20+1), "413"},
		{"/act", "100001\r\n" + strings.Repeat("x", 1<<20+1), "413"},
		{pause, "no length\r\n", "400"},
		{"/act", "no length\r\n", "400"},
	} {
		server, s := start(t, dashboard.Config{})
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		head := "POST " + c.path + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\nTransfer-Encoding: chunked\r\n\r\n"
		if _, err := io.WriteString(conn, head+c.body); err != nil {
			t.Fatal(err)
		}
		status, err := bufio.NewReader(conn).ReadString('\n')
		if err != nil || !strings.HasPrefix(status, "HTTP/1.1 "+c.status) || s.paused {
			t.Errorf("%s with %.10q: %q, %v, want %s", c.path, c.body, status, err, c.status)
		}
	}
}

// TestActor shows that the audit log gets the authenticated name, and only on an open dashboard a
// name that the caller has claimed.
func TestActor(t *testing.T) {
	for _, c := range []struct {
		config dashboard.Config
		change func(*http.Request)
		want   string
	}{
		{dashboard.Config{Users: users}, login("ada", "pass-a"), "ada"},
		{dashboard.Config{}, func(*http.Request) {}, "claimed"},
		{dashboard.Config{Identify: func(*http.Request) (string, dashboard.Role, error) { return "", dashboard.Admin, nil }}, func(*http.Request) {}, ""},
	} {
		server, s := start(t, c.config)
		if status, body, _ := send(t, server, http.MethodPost, purge, `{"queue":"q"}`, header(httpinspect.ActorHeader, "claimed"), c.change); status != 200 {
			t.Fatal(status, body)
		}
		if s.actor != c.want || s.purged != "q" {
			t.Errorf("%q purged %q, want %q", s.actor, s.purged, c.want)
		}
	}
}

// TestGuessing shows that wrong passwords are slowed down, also for a guesser with a login of its
// own, and that the log has no password.
func TestGuessing(t *testing.T) {
	var log bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		d, err := dashboard.New(dashboard.Config{API: newSystem(t), Users: users, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close(t.Context())
		attempt := func(addr, name, password string) int {
			r := httptest.NewRequest(http.MethodGet, "http://localhost/", http.NoBody)
			r.RemoteAddr = addr
			r.SetBasicAuth(name, password)
			w := httptest.NewRecorder()
			d.ServeHTTP(w, r)
			return w.Code
		}
		tries := 0
		for range 1000 { // one guess each 100 ms, for 100 s
			if attempt("192.0.2.1:5", "ada", "guessed-password") == http.StatusUnauthorized {
				tries++
			}
			if got := attempt("192.0.2.1:5", "vera", "pass-v"); got != http.StatusOK {
				t.Fatalf("another user of the address: status %d", got)
			}
			synctestSleep(100)
		}
		if tries > 12 {
			t.Errorf("%d guesses in 100 s", tries)
		}
		tries = 0
		for i := range 1000 { // from one network of IPv6
			if attempt(fmt.Sprintf("[2001:db8::%x]:5", i+1), "ada", "guessed-password") == http.StatusUnauthorized {
				tries++
			}
		}
		if tries != 1 {
			t.Errorf("%d guesses at once from the addresses of one network", tries)
		}
		if got := attempt("192.0.2.1:9", "ada", "pass-a"); got != http.StatusTooManyRequests && got != http.StatusOK {
			t.Errorf("status %d", got)
		}
		if got := attempt("192.0.2.2:5", "ada", "pass-a"); got != http.StatusOK {
			t.Errorf("another address: status %d", got)
		}
	})
	if text := log.String(); strings.Contains(text, "guessed-password") || !strings.Contains(text, "192.0.2.1") {
		t.Errorf("log: %s", text)
	}
}

// TestRefusalText shows that the answer to a wrong login differs from that to none.
func TestRefusalText(t *testing.T) {
	server, _ := start(t, dashboard.Config{Users: []dashboard.User{{Name: "ada", Password: "pass-a"}}})
	for password, want := range map[string]string{"": "are needed", "guessed": "is wrong"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if password != "" {
			r.SetBasicAuth("ada", password)
		}
		resp, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusUnauthorized || !strings.Contains(string(body), want) {
			t.Errorf("%d %q, %v, want %q", resp.StatusCode, body, err, want)
		}
	}
}

// TestOldToken shows that a program with a wrong token does not hold up another one of its address,
// and that it is slowed down itself.
func TestOldToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, err := dashboard.New(dashboard.Config{
			API: newSystem(t), Tokens: []dashboard.Token{{Name: "deploy", Secret: token}}, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close(t.Context())
		attempt := func(token string) int {
			r := httptest.NewRequest(http.MethodPost, "http://localhost"+list, http.NoBody)
			r.Header.Set("Authorization", "Bearer "+token)
			w := httptest.NewRecorder()
			d.ServeHTTP(w, r)
			return w.Code
		}
		tries := 0
		for range 100 { // one attempt each second
			if attempt("an-old-token-of-a-program") == http.StatusUnauthorized {
				tries++
			}
			if got := attempt(token); got != http.StatusOK {
				t.Fatalf("the other program: status %d", got)
			}
			synctestSleep(1000)
		}
		if tries > 12 {
			t.Errorf("%d attempts with the old token in 100 s", tries)
		}
	})
}

// TestArguments is the table of roles and the arguments that they see, by the API and on the pages.
func TestArguments(t *testing.T) {
	for _, c := range []struct {
		user, password    string
		hide              bool
		original, preview bool
		withheld          string
	}{
		{"vera", "pass-v", false, false, true, "they need the role operator; you have viewer"},
		{"otto", "pass-o", false, true, true, ""},
		{"ada", "pass-a", false, true, true, ""},
		{"vera", "pass-v", true, false, false, "arguments are hidden here"},
		{"ada", "pass-a", true, false, false, "arguments are hidden here"},
	} {
		server, _ := start(t, dashboard.Config{Users: users, HideArguments: c.hide})
		who := fmt.Sprint(c.user, ", hidden ", c.hide)
		for _, m := range []struct {
			method, path, body string
			preview, withheld  bool // it has a preview, or a reason
			original           bool // it has originals
		}{
			{http.MethodPost, "/api/v1/GetTask", `{"id":"x"}`, true, false, true},
			{http.MethodPost, "/api/v1/GetTask", `{"id":"x","args":true}`, true, true, true},
			{http.MethodPost, "/api/v1/GetDead", `{"queue":"q","id":"x"}`, true, false, true},
			{http.MethodPost, "/api/v1/GetDead", `{"queue":"q","id":"x","args":true}`, true, true, true},
			{http.MethodPost, "/api/v1/GetSchedule", `{"id":"x","args":true}`, true, true, true},
			{http.MethodPost, "/api/v1/ListSchedules", "", true, false, true},
			{http.MethodPost, "/api/v1/GetJob", "1", false, true, true},
			{http.MethodPost, "/api/v1/ListEvents", "", true, false, false},
			{http.MethodGet, "/task?id=x", "", true, false, true},
			{http.MethodGet, "/letter?queue=q&id=x", "", true, false, true},
			{http.MethodGet, "/schedule?id=x", "", true, true, true},
			{http.MethodGet, "/job?id=1", "", false, true, true},
		} {
			status, answer, _ := send(t, server, m.method, m.path, m.body, login(c.user, c.password))
			if status != http.StatusOK {
				t.Fatalf("%s: %s: status %d: %s", who, m.path, status, answer)
			}
			if got, want := strings.Contains(answer, "hush"), m.original && c.original; got != want {
				t.Errorf("%s: %s %s has originals: %v, want %v: %s", who, m.path, m.body, got, want, answer)
			}
			if got, want := strings.Contains(answer, "preview"), m.preview && c.preview; got != want {
				t.Errorf("%s: %s %s has a preview: %v, want %v: %s", who, m.path, m.body, got, want, answer)
			}
			if m.withheld && !strings.Contains(answer, c.withheld) {
				t.Errorf("%s: %s does not say that %s: %s", who, m.path, c.withheld, answer)
			}
		}
		status, answer, _ := send(t, server, http.MethodPost, "/api/v1/ExportDead", `{"queue":"q"}`, login(c.user, c.password))
		if refused := status == http.StatusForbidden; refused != (c.hide || c.user != "ada") {
			t.Errorf("%s: ExportDead: %d %s", who, status, answer)
		}
	}
}

// TestArgumentsRemote shows that a client of the API gets the arguments of its token's role.
func TestArgumentsRemote(t *testing.T) {
	for role, want := range map[dashboard.Role]string{dashboard.Viewer: "", dashboard.Operator: string(original)} {
		server, _ := start(t, dashboard.Config{Tokens: []dashboard.Token{{Name: "look", Secret: token, Role: role}}})
		client, err := httpinspect.NewClient(httpinspect.ClientConfig{URL: server.URL + "/api/v1", Token: token})
		if err != nil {
			t.Fatal(err)
		}
		d, err := client.GetTask(t.Context(), inspect.TaskKey{ID: "x", Args: true})
		if err != nil || string(d.Original) != want || d.Args != "preview" || (d.Withheld == "") != (want != "") {
			t.Errorf("%v: task: %+v, %v", role, d, err)
		}
		l, err := client.GetDead(t.Context(), inspect.DeadKey{Queue: "q", ID: "x", Args: true})
		if err != nil || string(l.Args) != want || l.Preview != "preview" || (l.Withheld == "") != (want != "") {
			t.Errorf("%v: letter: %+v, %v", role, l, err)
		}
	}
}

// TestConfig is the table of configurations that New refuses.
func TestConfig(t *testing.T) {
	for name, c := range map[string]dashboard.Config{
		"no API":            {},
		"no password":       {Users: []dashboard.User{{Name: "ada"}}},
		"two of a name":     {Users: []dashboard.User{{Name: "a", Password: "hush1"}, {Name: "a", Password: "hush2"}}},
		"a short token":     {Tokens: []dashboard.Token{{Name: "a", Secret: "hush"}}},
		"one secret twice":  {Tokens: []dashboard.Token{{Name: "a", Secret: token}, {Name: "b", Secret: token, Role: dashboard.Admin}}},
		"an unknown role":   {Users: []dashboard.User{{Name: "a", Password: "hush", Role: 7}}},
		"a header alone":    {ProxyHeader: "X-User"},
		"Identify and more": {Identify: func(*http.Request) (string, dashboard.Role, error) { return "", 0, nil }, Users: users},
		"an empty host":     {AllowedHosts: []string{""}},
	} {
		if name != "no API" {
			c.API = newSystem(t)
		}
		if _, err := dashboard.New(c); err == nil || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if r, err := dashboard.ParseRole("operator"); r != dashboard.Operator || err != nil {
		t.Error(r, err)
	}
	if _, err := dashboard.ParseRole("root"); err == nil {
		t.Error("root is a role")
	}
}

// synctestSleep passes milliseconds of the bubble's time.
func synctestSleep(ms int) { <-time.After(time.Duration(ms) * time.Millisecond) }
