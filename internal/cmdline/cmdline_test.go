package cmdline_test

import (
	"os/exec"
	"testing"

	"github.com/swarmiji/swarmiji/internal/cmdline"
)

// TestSwarmiji gives each line to a shell, which must find the same words.
func TestSwarmiji(t *testing.T) {
	if got := cmdline.Swarmiji("task", "show", "a-1", "x y"); got != "swarmiji task show a-1 'x y'" {
		t.Error(got)
	}
	for _, word := range []string{"", "a", "sqlite:///var/a b.db", "it's", "$HOME `id` \\", "a;b", "*", "~", "é", "a\rb", "x\n"} {
		out, err := exec.CommandContext(t.Context(), "sh", "-c", "printf '%s.' "+cmdline.Quote(word)).Output()
		if err != nil || string(out) != word+"." {
			t.Errorf("%q arrived as %q, %v", word, out, err)
		}
	}
}
