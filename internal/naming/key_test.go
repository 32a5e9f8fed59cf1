package naming_test

import (
	"strings"
	"testing"

	"github.com/swarmiji/swarmiji/internal/naming"
)

func TestValidKey(t *testing.T) {
	for key, want := range map[string]bool{
		"": true, "customer 7": true, "k\u00fc\u6f22": true, "\ufffd": true,
		strings.Repeat("k", naming.MaxKey): true, strings.Repeat("k", naming.MaxKey+1): false,
		"a\nb": false, "\x00": false, "\u0085": false, "\xff": false, "a\xc3": false,
	} {
		if naming.ValidKey(key) != want {
			t.Errorf("ValidKey(%q) is %v", key, !want)
		}
	}
}
