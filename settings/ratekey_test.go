package settings_test

import (
	"strings"
	"testing"

	"github.com/swarmiji/swarmiji/settings"
)

// TestRateKey shows that equal rates have one key, in whatever form they were written.
func TestRateKey(t *testing.T) {
	key := func(rate string) string {
		l := settings.Limit{Rate: rate}
		if err := settings.CheckLimit(&l); err != nil {
			t.Fatal(err)
		}
		return l.RateKey(settings.QueueLimit("mails"))
	}
	if a, b := key("10/s"), key(strings.Repeat("0", 300)+"10/s"); a != b {
		t.Errorf("%s and %s", a, b)
	}
	if a, b := key("10/s"), key("10/m"); a == b {
		t.Errorf("both are %s", a)
	}
}
