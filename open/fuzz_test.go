package open

import (
	"net/url"
	"strings"
	"testing"
)

// password is what no error may quote. Its capitals keep it from being taken for the name of a parameter or a scheme, which
// errors do quote.
const password = "Hunter2Hunter2"

// FuzzParse: whatever a URL looks like, and wherever a password went wrong in it, no error holds the password.
func FuzzParse(f *testing.F) {
	for _, name := range sqlSchemes() {
		f.Add(name, "user", "1/", "", "host:1234/db?namespace=a&sslmode=disable")
	}
	for _, s := range schemes() {
		for _, before := range []string{"", "1?", "1/", "1#", "1,", "1@", "%zz", "1?namespace=", "1?x=y&", "1,mem://"} {
			f.Add(s.name, "user", before, "", "host:1234/path?namespace=a")
		}
		f.Add(s.name, "", "", "", ",h2,h3/x?ca=/none&cert=x&db=a")
	}
	f.Add("amqp", "u", "", ":1", "h1,h2:x/v?results=redis://u:p%40h%2Ch2&events=nats://t%40h")
	f.Fuzz(func(t *testing.T, scheme, user, before, after, tail string) {
		raw := scheme + "://" + user + ":" + before + password + after + "@" + tail
		target, err := parse(raw, Options{})
		if err == nil {
			for _, p := range []string{paramResults, paramEvents} {
				if part, perr := target.part(p, ""); perr != nil {
					err = perr
				} else if part == nil {
					t.Fatalf("%q: no target of the %s", raw, p)
				}
			}
			if shown := target.String(); strings.Contains(shown, password) && !strings.Contains(tail+scheme, password) && target.scheme.where == servers {
				t.Errorf("%q: the servers' names hold the password: %s", raw, shown)
			}
			for _, s := range target.servers {
				if _, err := url.Parse(s.url); err != nil {
					t.Errorf("%q: a server's own URL is malformed", raw)
				}
			}
		}
		if err != nil && strings.Contains(err.Error(), password) && !strings.Contains(tail+scheme, password) {
			t.Errorf("%q: the error holds the password: %v", raw, err)
		}
	})
}
