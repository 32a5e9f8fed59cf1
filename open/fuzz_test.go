package open_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/swarmiji/swarmiji/open"
)

// password must not appear in errors. Its capital letters distinguish it from parameters and
// schemes, which errors quote.
const password = "Hunter2Hunter2"

// FuzzParse shows that no error contains the password, whatever the URL and the position of the
// password.
func FuzzParse(f *testing.F) {
	for _, name := range open.Schemes() {
		f.Add(name, "user", "1/", "", "host:1234/db?namespace=a&sslmode=disable")
		for _, before := range []string{"", "1?", "1/", "1#", "1,", "1@", "%zz", "1?namespace=", "1?x=y&", "1,mem://"} {
			f.Add(name, "user", before, "", "host:1234/path?namespace=a")
		}
		f.Add(name, "", "", "", ",h2,h3/x?ca=/none&cert=x&db=a")
	}
	f.Add("amqp", "u", "", ":1", "h1,h2:x/v?results=redis://u:p%40h%2Ch2&events=nats://t%40h")
	f.Fuzz(func(t *testing.T, scheme, user, before, after, tail string) {
		raw := scheme + "://" + user + ":" + before + password + after + "@" + tail
		parsed, err := open.Parse(raw)
		if err == nil {
			if shown := parsed.Shown; strings.Contains(shown, password) && !strings.Contains(tail+scheme, password) && parsed.Hosts {
				t.Errorf("%q: the servers' names hold the password: %s", raw, shown)
			}
			for _, s := range parsed.URLs {
				if _, err := url.Parse(s); err != nil {
					t.Errorf("%q: a server's own URL is malformed", raw)
				}
			}
		}
		if err != nil && strings.Contains(err.Error(), password) && !strings.Contains(tail+scheme, password) {
			t.Errorf("%q: the error holds the password: %v", raw, err)
		}
	})
}
