package callback

import (
	"errors"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/swarmiji/swarmiji/jobs"
)

func signer(t testing.TB, valid time.Duration, secrets ...string) *Signer {
	t.Helper()
	c := SignerConfig{Valid: valid}
	for _, s := range secrets {
		c.Secrets = append(c.Secrets, []byte(s))
	}
	s, err := NewSigner(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const (
	secretA = "a-secret-of-some-length"
	secretB = "b-secret-of-some-length"
	secretC = "c-secret-of-some-length"
)

// TestSigned shows that a signed URL is valid for its job and its time, under every accepted
// secret, and for nothing else.
func TestSigned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := signer(t, time.Hour, secretA, secretB)
		b := newBook()
		h := handler(t, b, Config{Signer: s, Prefix: "/a"})
		made := func(by *Signer, name, key string) string {
			u, err := by.URL("https://example.org/a", name, key)
			if err != nil {
				t.Fatal(err)
			}
			return u
		}
		good := made(s, "print", "o-1")
		old := made(signer(t, time.Hour, secretB, secretA), "print", "o-2")
		foreign := made(signer(t, time.Hour, secretC), "print", "o-3")
		part := func(u, param string) string {
			parsed, err := url.Parse(u)
			if err != nil {
				t.Fatal(err)
			}
			return parsed.Query().Get(param)
		}
		other := made(s, "print", "o-4")
		for _, tt := range []struct {
			what, url string
			status    int
		}{
			{"signed", good, 200},
			{"again", good, 409},
			{"by the other secret", old, 200},
			{"by nobody's secret", foreign, 403},
			{"refused by parameter", other + "&error=no", 200},
			{"no signature", "https://example.org/a/print/o-5", 403},
			{"for another key", strings.Replace(good, "o-1", "o-5", 1), 403},
			{"for another name", strings.Replace(good, "print", "bill", 1), 403},
			{"for longer", strings.Replace(good, "expires="+part(good, "expires"), "expires="+part(good, "expires")+"0", 1), 403},
			{"cut", good[:len(good)-1], 403},
			{"with a line break", good + "%0A", 403},
			{"empty", strings.Replace(good, part(good, "signature"), "", 1), 403},
			{"no time", strings.Replace(good, "expires="+part(good, "expires"), "expires=", 1), 403},
		} {
			w := ask(h, "POST", tt.url, "1")
			if w.Code != tt.status {
				t.Errorf("%s: %d %s", tt.what, w.Code, w.Body)
			}
			if strings.Contains(w.Body.String(), "secret") || strings.Contains(w.Body.String(), part(good, "signature")) {
				t.Errorf("%s: %s", tt.what, w.Body)
			}
		}
		last := made(s, "print", "o-6")
		time.Sleep(time.Hour)
		if w := ask(h, "POST", last, "1"); w.Code != 200 {
			t.Errorf("in its last second: %d %s", w.Code, w.Body)
		}
		time.Sleep(time.Second)
		if w := ask(h, "POST", last, "1"); w.Code != 403 || !strings.Contains(w.Body.String(), "expired") {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		if w := ask(h, "POST", foreign, "1"); strings.Contains(w.Body.String(), "no more") {
			t.Error("who has not signed it learns of its time")
		}
		if len(b.kept()) != 4 {
			t.Errorf("%v", b.kept())
		}
	})
}

// TestSignedRead shows that the body cannot name another job than the signed URL.
func TestSignedRead(t *testing.T) {
	s := signer(t, 0, secretA)
	b := newBook()
	h := handler(t, b, Config{Signer: s, Read: readKey})
	u, err := s.URL("https://example.org", "print", "o-1")
	if err != nil {
		t.Fatal(err)
	}
	for body, status := range map[string]int{"o-2": 403, "o-1": 200} {
		if w := ask(h, "POST", u, body); w.Code != status {
			t.Errorf("%s: %d %s", body, w.Code, w.Body)
		}
	}
	if w := ask(h, "POST", u, ""); w.Code != 409 { // the body names no job
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := ask(h, "POST", "https://example.org/print", "o-1"); w.Code != 400 {
		t.Errorf("without a key in the URL: %d %s", w.Code, w.Body)
	}
}

// TestURLs shows that URLs with any names and keys are parsed correctly, with and without
// signatures.
func TestURLs(t *testing.T) {
	s := signer(t, time.Hour, secretA)
	text := rapid.OneOf(
		rapid.StringMatching(`[a-z./%?&=#+ ]{1,20}`),
		rapid.SampledFrom([]string{".", "..", "/", "//", "a/../b", "%2F", "%", "ö", "a\nb", "~", " ", "\x7f"}),
		rapid.StringN(1, 40, 100).Filter(func(s string) bool { return !strings.Contains(s, "\x00") && s != "" }),
	)
	rapid.Check(t, func(t *rapid.T) {
		name, key := text.Draw(t, "name"), text.Draw(t, "key")
		raw, err := s.URL("http://example.org:81/x/y/?z=1", name, key)
		if err != nil {
			t.Fatal(err)
		}
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		a, err := parseAddress(u, "/x/y")
		if err != nil || a.name != name || a.key != key {
			t.Fatalf("%s: %+v, %v", raw, a, err)
		}
		if err := s.verify(&a, time.Now()); err != nil {
			t.Fatal(err)
		}
		a.key += "x"
		if err := s.verify(&a, time.Now()); !errors.Is(err, errForged) {
			t.Fatal(err)
		}
		if u.Query().Get("z") != "1" {
			t.Fatal("the base has lost its query")
		}
	})
}

func TestURLProblems(t *testing.T) {
	for _, tt := range []struct{ what, base, name, key string }{
		{"no base", "", "n", "k"},
		{"a path", "/answers", "n", "k"},
		{"another scheme", "ftp://example.org", "n", "k"},
		{"no URL", "http://us er:sesame@exa mple.org/%zz", "n", "k"},
		{"a parameter that is ours", "https://u:sesame@example.org?key=1", "n", "k"},
		{"a malformed query", "https://u:sesame@example.org?%zz", "n", "k"},
		{"no name", "https://u:sesame@example.org", "", "k"},
		{"no key", "https://u:sesame@example.org", "n", ""},
		{"a long key", "https://u:sesame@example.org", "n", strings.Repeat("k", jobs.MaxKey+1)},
	} {
		if u, err := URL(tt.base, tt.name, tt.key); err == nil || strings.Contains(err.Error(), "sesame") {
			t.Errorf("%s: %q, %v", tt.what, u, err)
		}
	}
}

func TestSignerProblems(t *testing.T) {
	_, err := NewSigner(SignerConfig{Secrets: [][]byte{[]byte("sesame")}, Valid: -1})
	if err == nil || !strings.Contains(err.Error(), "6 bytes") || !strings.Contains(err.Error(), "Valid") || strings.Contains(err.Error(), "sesame") {
		t.Error(err)
	}
	if _, err := NewSigner(SignerConfig{}); err == nil {
		t.Error("it signs with nothing")
	}
}
