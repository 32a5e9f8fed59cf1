package httpinspect_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/swarmiji/swarmiji/inspect"
	"github.com/swarmiji/swarmiji/inspect/httpinspect"
	"github.com/swarmiji/swarmiji/inspect/inspecttest"
	"github.com/swarmiji/swarmiji/internal/testserver"
	"github.com/swarmiji/swarmiji/open"
	_ "github.com/swarmiji/swarmiji/open/sqlite"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(testserver.Reaper)) }

// serve serves an API and returns a client of it.
func serve(t *testing.T, api inspect.API, c httpinspect.Config) *httpinspect.Client {
	t.Helper()
	server := httptest.NewServer(http.StripPrefix("/api/v1", httpinspect.NewHandler(api, c)))
	t.Cleanup(server.Close)
	client, err := httpinspect.NewClient(httpinspect.ClientConfig{URL: server.URL + "/api/v1", HTTP: server.Client()})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// TestSuite runs the suite of inspect.API over HTTP.
func TestSuite(t *testing.T) {
	for name, target := range map[string]func(t *testing.T) string{
		"memory": func(*testing.T) string { return "mem://" },
		"sqlite": func(t *testing.T) string { return "sqlite://" + filepath.Join(t.TempDir(), "app.db") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inspecttest.Run(t, inspecttest.Harness{
				Swarm: func(t *testing.T) *open.Swarm {
					s, err := open.Open(t.Context(), target(t), open.Options{Control: true, Namespace: testserver.Namespace(), Logger: slog.New(slog.DiscardHandler)})
					if err != nil {
						t.Fatal(err)
					}
					return s
				},
				API: func(t *testing.T, c inspect.Config, run bool) inspect.API {
					return serve(t, inspecttest.Local(t, c, run), httpinspect.Config{Actor: httpinspect.Claimed})
				},
			})
		})
	}
}

// recorder is an API whose methods note the call and return an error.
type recorder struct {
	inspect.API
	answer inspect.JobDetail
	err    error
}

func (r recorder) GetJob(context.Context, int64) (inspect.JobDetail, error) { return r.answer, r.err }

// TestMethods shows that the server has each method of the interface, and that a change asks for
// permission.
func TestMethods(t *testing.T) {
	for method := range reflect.TypeFor[inspect.API]().Methods() {
		var asked inspect.Do
		denied := &inspect.Error{Code: inspect.CodeDenied, Text: "no"}
		h := httpinspect.NewHandler(recorder{}, httpinspect.Config{Allow: func(_ *http.Request, do inspect.Do, _ string) error {
			asked = do
			return denied
		}})
		reads := strings.HasPrefix(method.Name, "List") || strings.HasPrefix(method.Name, "Get") || strings.HasPrefix(method.Name, "Why") ||
			strings.HasPrefix(method.Name, "Count") || strings.HasPrefix(method.Name, "Summarize") || method.Name == "Check"
		if reads {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/"+method.Name, strings.NewReader("{")))
			if w.Code != http.StatusBadRequest || asked != "" {
				t.Errorf("%s with half an argument: status %d, asked for %q", method.Name, w.Code, asked)
			}
			continue
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/"+method.Name, http.NoBody))
		if w.Code != http.StatusForbidden || asked == "" {
			t.Errorf("%s: status %d, asked for %q", method.Name, w.Code, asked)
		}
	}
}

// TestRefused is the table of requests that reach no method.
func TestRefused(t *testing.T) {
	h := httpinspect.NewHandler(recorder{}, httpinspect.Config{})
	for name, c := range map[string]struct {
		method, path, body string
		status             int
	}{
		"a GET":              {http.MethodGet, "/GetJob", "", http.StatusMethodNotAllowed},
		"an unknown method":  {http.MethodPost, "/DropDatabase", "", http.StatusNotFound},
		"a path trick":       {http.MethodPost, "/GetJob/..", "", http.StatusNotFound},
		"no JSON":            {http.MethodPost, "/GetJob", "job", http.StatusBadRequest},
		"another type":       {http.MethodPost, "/GetJob", `"1"`, http.StatusBadRequest},
		"an unknown field":   {http.MethodPost, "/ListJobs", `{"quueue": "a"}`, http.StatusBadRequest},
		"two values":         {http.MethodPost, "/GetJob", "1 2", http.StatusBadRequest},
		"too large a number": {http.MethodPost, "/GetJob", "9223372036854775808", http.StatusBadRequest},
		"too much":           {http.MethodPost, "/ListJobs", `{"name": "` + strings.Repeat("x", httpinspect.MaxArgument) + `"}`, http.StatusRequestEntityTooLarge},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(c.method, c.path, strings.NewReader(c.body)))
		var e inspect.Error
		if w.Code != c.status || json.Unmarshal(w.Body.Bytes(), &e) != nil || e.Code == "" || e.Text == "" {
			t.Errorf("%s: status %d, want %d: %s", name, w.Code, c.status, w.Body)
		}
	}
}

// TestExact shows that large integers, times and errors arrive as they were sent.
func TestExact(t *testing.T) {
	want := inspect.JobDetail{
		Job:  inspect.Job{ID: 1<<62 + 1, Changed: time.Date(2026, 11, 28, 1, 2, 3, 4000, time.UTC)},
		Data: json.RawMessage(`{"n":9007199254740993}`),
	}
	got, err := serve(t, recorder{answer: want}, httpinspect.Config{}).GetJob(t.Context(), 1<<62+1)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("GetJob returned %+v, %v; want %+v", got, err, want)
	}
	for _, code := range []inspect.Code{
		inspect.CodeNotFound, inspect.CodeInvalid, inspect.CodeUnsupported, inspect.CodeConflict, inspect.CodeNoConsumer,
		inspect.CodeUnavailable, inspect.CodeDenied, inspect.CodeInternal,
	} {
		want := &inspect.Error{Code: code, Text: "it is so", Help: "do that"}
		_, err := serve(t, recorder{err: want}, httpinspect.Config{}).GetJob(t.Context(), 1)
		if got, ok := errors.AsType[*inspect.Error](err); !ok || *got != *want || inspect.CodeOf(err) != code {
			t.Errorf("the error %v arrived as %v", want, err)
		}
	}
}

// TestOtherServers shows the errors of a client for other servers.
func TestOtherServers(t *testing.T) {
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		want   error
	}{
		"a web page":   {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") }, inspect.ErrInternal},
		"no such path": {http.NotFound, inspect.ErrNotFound},
		"a login":      {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/login", http.StatusFound) }, inspect.ErrInternal},
		"no token":     {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }, inspect.ErrDenied},
		"too busy":     {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) }, inspect.ErrUnavailable},
		"broken off": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "{")
		}, inspect.ErrUnavailable},
	} {
		server := httptest.NewServer(c.answer)
		client, err := httpinspect.NewClient(httpinspect.ClientConfig{URL: server.URL, Token: "secret-token", HTTP: &http.Client{
			Transport: server.Client().Transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.ListQueues(t.Context(), inspect.QueueQuery{}); !errors.Is(err, c.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		} else if name == "too busy" && !strings.Contains(err.Error(), "wait some seconds") {
			t.Errorf("%s: %v", name, err)
		}
		server.Close()
		if _, err := client.ListQueues(t.Context(), inspect.QueueQuery{}); !errors.Is(err, inspect.ErrUnavailable) {
			t.Errorf("no server: %v", err)
		}
	}
	for _, bad := range []string{"", "localhost:8080", "ftp://host", "http://", "http://user:secret@host\x00/"} {
		if _, err := httpinspect.NewClient(httpinspect.ClientConfig{URL: bad}); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("the URL %q: %v", bad, err)
		}
	}
	if _, err := httpinspect.NewClient(httpinspect.ClientConfig{URL: "http://user:secret@host/", Token: "t"}); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("a password and a token: %v", err)
	}
}
