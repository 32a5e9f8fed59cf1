package cli

import (
	"os/user"
	"strings"
	"testing"
)

// TestActor shows that changes have an author also where no variable names the user.
func TestActor(t *testing.T) {
	current, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ env, want string }{{"USER", "ada@"}, {"LOGNAME", "ada@"}, {"", current.Username + "@"}} {
		a := &App{Surroundings: Surroundings{Getenv: func(name string) string {
			if name == c.env {
				return "ada"
			}
			return ""
		}}}
		if got := a.Actor(); !strings.HasPrefix(got, c.want) {
			t.Errorf("with %q: %s, want %s", c.env, got, c.want)
		}
	}
}
