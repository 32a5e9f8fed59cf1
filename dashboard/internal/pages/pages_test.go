package pages_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/dashboard/internal/pages"
	"github.com/swarmiji/swarmiji/inspect"
	"github.com/swarmiji/swarmiji/internal/testwait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// evil is in every text that the system returns. It is long, and it ends in a number beyond 2^53.
var evil = `<script>alert(1)</script>"'><img src=x onerror=alert(2)>` + "\x00\u202e{{.}} javascript:" + strings.Repeat("long", 2500) + ` 9007199254740993`

// serve serves pages over api; may refuses changes.
func serve(t *testing.T, api inspect.API, may func(do inspect.Do, target string) error) *httptest.Server {
	t.Helper()
	_, s := start(t, api, may)
	return s
}

func start(t *testing.T, api inspect.API, may func(do inspect.Do, target string) error) (*pages.Pages, *httptest.Server) {
	t.Helper()
	p, err := pages.New(pages.Config{
		API: api, User: func(*http.Request) string { return "ada<b>" }, Logger: slog.New(slog.DiscardHandler), Version: "v1",
		May: func(_ *http.Request, do inspect.Do, target string) error {
			if may == nil {
				return nil
			}
			return may(do, target)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.StripPrefix("/any/prefix", p))
	s.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		_ = c.(*net.TCPConn).SetWriteBuffer(16 << 10) // a client that reads nothing is soon noticed
		return ctx
	}
	s.Start()
	t.Cleanup(func() {
		if err := p.Close(testwait.Long(t)); err != nil {
			t.Error("Close:", err)
		}
		s.Close()
		http.DefaultClient.CloseIdleConnections()
	})
	return p, s
}

func get(t *testing.T, s *httptest.Server, path string) (status int, body string) {
	t.Helper()
	return send(t, s, http.MethodGet, path, nil)
}

func send(t *testing.T, s *httptest.Server, method, path string, form url.Values) (status int, body string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.URL+"/any/prefix/"+path, strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

// paths are all pages, with parameters.
func paths() []string {
	e := url.QueryEscape(`<script>"'`)
	return []string{
		"", "queues", "queue?name=" + e, "queue?name=q&place=dead", "tasks", "tasks?query=" + e, "task?id=" + e, "dead", "dead?queue=" + e + "&name=" + e,
		"letter?queue=" + e + "&id=" + e, "workflow?id=" + e, "schedules", "schedule?id=" + e, "workers", "worker?node=" + e, "jobs?name=" + e + "&state=FAILED",
		"job?id=9007199254740993", "events?type=" + e + "&task=" + e, "settings", "audit", "queues?cursor=" + e,
	}
}

var (
	tag       = regexp.MustCompile(`<[a-z][^>]*>`)
	attribute = regexp.MustCompile(`\s(on[a-z]+|style)\s*=`)
	address   = regexp.MustCompile(`\s(?:href|src|action)="([^"]*)"`)
	ids       = regexp.MustCompile(`\sid="([^"]*)"`)
	quoted    = regexp.MustCompile(`"[^"]*"`)
	labels    = regexp.MustCompile(`\s(?:aria-describedby|aria-labelledby|for)="([^"]*)"`)
)

// sound fails the test unless a page keeps the rules of all pages.
func sound(t *testing.T, body string) {
	t.Helper()
	for text, want := range map[string]int{"<h1>": 1, "<main ": 1, " · Swarmiji</title>": 1, "<script": 1, `<script src="static/app.js" defer></script>`: 1, "<style": 0, "<base": 0, "<img": 0, `class="skip"`: 1} {
		if n := strings.Count(body, text); n != want {
			t.Errorf("%d of %s, want %d", n, text, want)
		}
	}
	if strings.Contains(body, "ZgotmplZ") || strings.Contains(body, "<no value>") {
		t.Error("a template got an unsafe or a missing value")
	}
	known := map[string]bool{}
	for _, m := range ids.FindAllStringSubmatch(body, -1) {
		if known[m[1]] {
			t.Errorf("two elements have the id %q", m[1])
		}
		known[m[1]] = true
	}
	for _, m := range labels.FindAllStringSubmatch(body, -1) {
		if !known[m[1]] {
			t.Errorf("no element has the id %q", m[1])
		}
	}
	for _, one := range tag.FindAllString(body, -1) {
		bare := quoted.ReplaceAllString(one, `""`)
		if attribute.MatchString(bare) {
			t.Errorf("an attribute with a script or a style: %.200s", one)
		}
		for _, m := range address.FindAllStringSubmatch(one, -1) {
			u, err := url.Parse(strings.ReplaceAll(m[1], "&amp;", "&"))
			if err != nil || u.IsAbs() || u.Host != "" || strings.HasPrefix(u.Path, "/") {
				t.Errorf("an address that is not relative: %.200s", one)
			}
		}
	}
	for _, table := range strings.Split(body, "<table")[1:] {
		if !strings.Contains(table, "<caption") || strings.Contains(table, "<th>") {
			t.Errorf("a table without a caption or with a heading without a scope: %.200s", table)
		}
	}
}

// TestPages shows each page with hostile texts in every field of the system.
func TestPages(t *testing.T) {
	s := serve(t, hostile(t), nil)
	for _, path := range paths() {
		t.Run(path, func(t *testing.T) {
			status, body := get(t, s, path)
			if status != http.StatusOK {
				t.Errorf("status %d", status)
			}
			sound(t, body)
			if !strings.Contains(body, "&lt;script&gt;") && !strings.HasPrefix(path, "events") && path != "act" {
				t.Error("no hostile text is shown: the page shows nothing of the system")
			}
			if path == "job?id=9007199254740993" && !strings.Contains(body, `&#34;big&#34;: 9007199254740993`) {
				t.Error("a large number is changed")
			}
			if !strings.Contains(body, `class="cmd">swarmiji `) && path != "settings" {
				t.Error("no command")
			}
		})
	}
}

// TestEmpty shows each page of a system without any part: each has the sentence that helps.
func TestEmpty(t *testing.T) {
	l, err := inspect.New(inspect.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, l, nil)
	for _, path := range []string{"", "queues", "queue?name=q", "tasks", "dead?queue=q", "letter?queue=q&id=x", "workflows", "workflow?id=x", "schedules", "schedule?id=x", "workers", "worker?node=n", "jobs", "job?id=1", "events", "settings", "audit"} {
		status, body := get(t, s, path)
		if status != http.StatusOK || !strings.Contains(body, "cannot be shown or changed here") {
			t.Errorf("%s: %d without a sentence", path, status)
		}
		sound(t, body)
	}
	for path, want := range map[string]int{"task?id=x": 404, "nothing": 404, "job?id=x": 400, "static/app.js": 200, "static/style.css": 200, "live": 204} {
		if status, _ := get(t, s, path); status != want {
			t.Errorf("%s: %d, want %d", path, status, want)
		}
	}
}

// TestCommands shows that a line end in an address is quoted in the command. The page of a thing
// that does not exist has no command.
func TestCommands(t *testing.T) {
	s := serve(t, hostile(t), nil)
	if _, body := get(t, s, "events?task=x%0Dreboot"); !strings.Contains(body, "swarmiji events --task &#39;x\rreboot&#39;</code>") {
		t.Error("a line end is not quoted")
	}
	l, err := inspect.New(inspect.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	if status, body := get(t, serve(t, l, nil), "task?id=--broker=amqp://evil.example"); status != http.StatusNotFound || strings.Contains(body, "swarmiji task") {
		t.Errorf("a command for a task that does not exist: %d", status)
	}
}

// TestDisabled shows that forbidden changes are disabled with the reason.
func TestDisabled(t *testing.T) {
	s := serve(t, hostile(t), func(inspect.Do, string) error { return errors.New("this needs the role <operator>") })
	enabled := regexp.MustCompile(`(?s)<form class="do".*?</form>`)
	seen := 0
	for _, path := range paths() {
		_, body := get(t, s, path)
		sound(t, body)
		for _, form := range enabled.FindAllString(body, -1) {
			seen++
			if !strings.Contains(form, ` disabled title="this needs the role &lt;operator&gt;" aria-describedby="why-`) {
				t.Errorf("%s: an enabled button: %s", path, form)
			}
		}
	}
	if seen < 30 {
		t.Errorf("%d buttons were seen", seen)
	}
}

// changes are a form for each change, with its target and whether a page asks first.
var changes = []struct {
	do      inspect.Do
	form    string
	target  string
	asks    bool
	typed   bool
	counted bool
}{
	{inspect.DoPauseQueue, "queue=q&for=30m&reason=r", "q", false, false, false},
	{inspect.DoResumeQueue, "queue=q", "q", false, false, false},
	{inspect.DoPurgeQueue, "queue=q", "q", true, true, true},
	{inspect.DoCancelTask, "id=x&queue=q", "x", true, false, false},
	{inspect.DoRequeueDead, "queue=q&id=x", "q", false, false, false},
	{inspect.DoRequeueDead, "queue=q&name=n", "q", true, false, true},
	{inspect.DoDropDead, "queue=q&id=x", "q", true, false, true},
	{inspect.DoDropDead, "queue=q", "q", true, true, true},
	{inspect.DoDropDead, "queue=q&name=*", "q", true, true, true},
	{inspect.DoDropDead, "queue=q&name=?*", "q", true, true, true},
	{inspect.DoDropDead, "queue=q&name=**", "q", true, true, true},
	{inspect.DoDropDead, "queue=q&name=n&error=e&id=+", "q", true, true, true},
	{inspect.DoCancelWorkflow, "root=x", "x", true, false, false},
	{inspect.DoRetryWorkflow, "root=x", "x", false, false, false},
	{inspect.DoRunSchedule, "id=x", "x", false, false, false},
	{inspect.DoPauseSchedule, "id=x", "x", false, false, false},
	{inspect.DoResumeSchedule, "id=x", "x", false, false, false},
	{inspect.DoRemoveSchedule, "id=x", "x", true, true, false},
	{inspect.DoRetryJobs, "job=7", "7", false, false, false},
	{inspect.DoCancelJobs, "job=7", "7", true, false, false},
	{inspect.DoRemoveJobs, "job=7", "7", true, true, false},
	{inspect.DoPauseWorkers, "node=n", "n", false, false, false},
	{inspect.DoResumeWorkers, "node=n", "n", false, false, false},
	{inspect.DoScaleWorkers, "queue=q&workers=3", "q", false, false, false},
	{inspect.DoLimitWorkers, "node=n&name=m&rate=1/s", "m", false, false, false},
	{inspect.DoStopWorkers, "node=n", "n", true, true, false},
	{inspect.DoPauseTasks, "name=n", "n", false, false, false},
	{inspect.DoResumeTasks, "name=n", "n", false, false, false},
	{inspect.DoRunTask, "id=x&queue=q", "x", true, false, false},
	{inspect.DoSetLimit, "queue=q&concurrency=2", "q", false, false, false},
	{inspect.DoSetLimit, "name=n&rate=1/s", "n", false, false, false},
}

// TestAct makes each change: it is refused by May without a call, it is asked for, and it is made.
func TestAct(t *testing.T) {
	for _, c := range changes {
		t.Run(string(c.do)+" "+c.form, func(t *testing.T) {
			api := hostile(t)
			refuse, asked := true, ""
			s := serve(t, api, func(do inspect.Do, target string) error {
				if asked = fmt.Sprint(do, " ", target); refuse {
					return errors.New("no")
				}
				return nil
			})
			form, _ := url.ParseQuery(c.form + "&do=" + string(c.do) + "&back=" + url.QueryEscape("queue?name=q"))
			post := func(more ...string) (int, string) {
				for i := 0; i < len(more); i += 2 {
					form.Set(more[i], more[i+1])
				}
				status, body := send(t, s, http.MethodPost, "act", form)
				sound(t, body)
				return status, body
			}
			status, body := post("confirmed", "yes", "typed", c.target)
			if status != http.StatusForbidden || !strings.Contains(body, "You may not do this: no") || len(api.made()) != 0 {
				t.Fatalf("refused: %d, made %v", status, api.made())
			}
			if want := fmt.Sprint(c.do, " ", c.target); asked != want {
				t.Errorf("May was asked about %q, want %q", asked, want)
			}
			refuse = false
			form.Del("confirmed")
			form.Del("typed")
			status, body = post()
			if question := strings.Contains(body, `name="confirmed"`); question != c.asks || status != http.StatusOK {
				t.Fatalf("%d, asked %v, want %v", status, question, c.asks)
			}
			if c.asks {
				if counted := strings.Contains(body, "messages match"); counted != c.counted || len(api.made()) != 0 {
					t.Errorf("counted %v, want %v; made %v", counted, c.counted, api.made())
				}
				if c.typed {
					_, body = post("confirmed", "yes", "typed", "another")
					if !strings.Contains(body, "This is not the same text") || len(api.made()) != 0 {
						t.Errorf("another text was typed; made %v", api.made())
					}
				}
				status, body = post("confirmed", "yes", "typed", c.target)
			}
			if status != http.StatusOK || !strings.Contains(body, `href="queue?name=q"`) || !strings.Contains(body, "Done, with problems") || !strings.Contains(body, "&lt;script&gt;") {
				t.Errorf("the result: %d %s", status, body)
			}
			if made := api.made(); len(made) != 1 || made[0] != c.do {
				t.Errorf("made %v", made)
			}
		})
	}
}

// TestFindByID shows that a search for the id of a task leads to its page, and another search to a
// list.
func TestFindByID(t *testing.T) {
	s := serve(t, hostile(t), nil)
	c := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for query, status := range map[string]int{"order/7": http.StatusSeeOther, "id:order": http.StatusOK, "": http.StatusOK} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/any/prefix/tasks?query="+url.QueryEscape(query), http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		to := resp.Header.Get("Location")
		if resp.StatusCode != status || (status == http.StatusSeeOther) != strings.HasPrefix(to, "task?id=") {
			t.Errorf("%q: %d to %q", query, resp.StatusCode, to)
		}
	}
}

// TestActBad posts invalid forms, and addresses outside of the pages.
func TestActBad(t *testing.T) {
	api := hostile(t)
	s := serve(t, api, nil)
	for _, form := range []string{"", "do=drop-table", "do=pause-queue", "do=pause-queue&queue=q&for=soon", "do=scale-workers&queue=q&workers=many", "do=retry-jobs&job=x"} {
		f, _ := url.ParseQuery(form)
		if status, body := send(t, s, http.MethodPost, "act", f); status != http.StatusBadRequest {
			t.Errorf("%q: %d", form, status)
		} else if sound(t, body); strings.Contains(body, "<h1>Not found") {
			t.Errorf("%q: the title says that a page is missing", form)
		}
	}
	if made := api.made(); len(made) != 0 {
		t.Errorf("made %v", made)
	}
	for back, want := range map[string]string{
		"https://evil.example/": "./", "//evil.example": "./", "javascript:alert(1)": "./", "/etc": "./", "../queues": "./", `\\evil`: "./",
		"queues": "queues", "tasks?query=a+b": "tasks?query=a&#43;b", "./": "./", "": "./", "nothing": "./", "act": "./", "tasks#x": "tasks",
	} {
		_, body := send(t, s, http.MethodPost, "act", url.Values{"do": {"resume-queue"}, "queue": {"q"}, "back": {back}})
		if !strings.Contains(body, `class="button primary" href="`+want+`"`) {
			t.Errorf("back to %q is not %q", back, want)
		}
	}
	if status, _ := get(t, s, "act"); status == http.StatusOK {
		t.Error("a GET changes something")
	}
}

// TestShared shows that callers at the same time cost one read.
func TestShared(t *testing.T) {
	api := hostile(t)
	s := serve(t, api, nil)
	const callers = 20
	ended := make(chan int, callers)
	for range callers {
		go func() {
			resp, err := http.Get(s.URL + "/any/prefix/queues")
			if err != nil {
				ended <- 0
				return
			}
			_ = resp.Body.Close()
			ended <- resp.StatusCode
		}()
	}
	for range callers {
		if status := <-ended; status != http.StatusOK {
			t.Errorf("status %d", status)
		}
	}
	if n := api.reads("ListQueues"); n > callers/4 {
		t.Errorf("%d reads for %d callers", n, callers)
	}
}
