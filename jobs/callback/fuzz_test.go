package callback

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/swarmiji/swarmiji/broker"
	"github.com/swarmiji/swarmiji/jobs"
)

// readKey is a Read that uses the body as the key.
func readKey(_ *http.Request, body []byte) (jobs.Answer, error) {
	return jobs.Answer{Key: string(body)}, nil
}

// FuzzHandler shows that every request gets a documented status and a JSON body, and that no
// invalid answer reaches a job. A handler with a Signer accepts no unsigned request.
func FuzzHandler(f *testing.F) {
	for _, in := range [][3]string{
		{"/a/print/o-17", "", `{"pages":12}`},
		{"/a/print/%2e%2e", "", ""},
		{"/a", "name=x&key=y&error=z", "{"},
		{"/a/%2F/%00", "key=1;2", "1"},
		{"/a/print/o-17", "expires=99999999999&signature=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "null"},
		{"//a//b//", "&&&=", "\xff"},
	} {
		f.Add("POST", in[0], in[1], "application/json", in[2], true)
		f.Add("HEAD", in[0], in[1], "", in[2], false)
	}
	f.Fuzz(func(t *testing.T, method, path, query, kind, body string, plain bool) {
		unescaped, err := url.PathUnescape(path)
		if err != nil || method == "" {
			return // not a request line
		}
		b := newBook()
		c := Config{Open: true, Prefix: "/a", MaxBody: 1 << 10}
		if !plain {
			c.Read = readKey
		}
		signed := handler(t, newBook(), Config{Signer: signer(t, 0, secretA), Prefix: "/a", MaxBody: 1 << 10, Read: c.Read})
		open := handler(t, b, c)
		ask := func(h *Handler) int {
			r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body))
			r.Method = method
			r.URL.Path, r.URL.RawPath, r.URL.RawQuery = unescaped, path, query
			r.Header.Set("Content-Type", kind)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			if !json.Valid(w.Body.Bytes()) {
				t.Errorf("no JSON: %q", w.Body)
			}
			return w.Code
		}
		switch code := ask(open); code {
		case 200, 202, 410:
			if method != "POST" {
				t.Errorf("%d for %q", code, method)
			}
		case 400, 403, 404, 405, 413, 415:
			if len(b.kept()) > 0 {
				t.Errorf("%d, and %v", code, b.kept())
			}
		default:
			t.Errorf("status %d", code)
		}
		for _, a := range b.kept() {
			if err := checkAnswer(&a); err != nil {
				t.Error(err)
			}
			if a.Refusal == "" && a.Result != nil && !json.Valid(a.Result) || !utf8.ValidString(a.Refusal) {
				t.Errorf("%+v", a)
			}
		}
		if code := ask(signed); code < 400 {
			t.Errorf("unsigned, and answered with %d", code)
		}
	})
}

// FuzzMessage shows that ReadMessage returns a valid answer or an error.
func FuzzMessage(f *testing.F) {
	for _, in := range []string{`{"name":"n","key":"k","result":{"a":1}}`, `{"name":"n","key":"k","error":"no"}`, `{"name":"n","key":"k","error":null,"result":null}`, `[]`, `null`, `{"Name":"n","key":"k"}`, "{\"name\":\"n\",\"key\":\"\\u0000\"}"} {
		f.Add([]byte(in))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		a, err := ReadMessage(&broker.Message{Body: in})
		if err != nil {
			return
		}
		if err := checkAnswer(&a); err != nil {
			t.Error(err)
		}
		if a.Refusal != "" && a.Result != nil {
			t.Errorf("%+v", a)
		}
		var same struct{ Name, Key string }
		if err := json.Unmarshal(in, &same); err != nil {
			t.Errorf("%q is read as %+v, and is no object: %v", in, a, err)
		}
	})
}
