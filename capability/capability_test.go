package capability_test

import (
	"fmt"
	"io"
	"testing"

	"github.com/swarmiji/swarmiji/capability"
)

// port is the interface of all adapters, and namer an optional one.
type (
	port  interface{ Do() }
	namer interface{ Name() string }
)

type adapter struct{ name string }

func (*adapter) Do()            {}
func (a *adapter) Name() string { return a.name }

// open passes capabilities on, shut does not, and named has its own.
type (
	open  struct{ port }
	shut  struct{ port }
	named struct{ open }
)

func (o open) Unwrap() any { return o.port }
func (named) Name() string { return "wrapper" }

func TestAs(t *testing.T) {
	a := &adapter{"adapter"}
	for what, c := range map[string]struct {
		v    any
		want string // "": not found
	}{
		"itself":                      {a, "adapter"},
		"through wrappers":            {open{open{a}}, "adapter"},
		"the outermost one":           {open{named{open{a}}}, "wrapper"},
		"not behind a shut wrapper":   {open{shut{a}}, ""},
		"a wrapper of nothing":        {open{}, ""},
		"nil":                         {nil, ""},
		"what has nothing to do with": {1, ""},
	} {
		n, ok := capability.As[namer](c.v)
		if ok != (c.want != "") || ok && n.Name() != c.want {
			t.Errorf("%s: %v, %t, want %q", what, n, ok, c.want)
		}
	}
	if _, ok := capability.As[io.Reader](open{a}); ok {
		t.Error("found what nobody has")
	}
}

// counting counts the calls of the wrapped value and hides none of its capabilities.
type counting struct {
	port
	calls int
}

func (c *counting) Do()         { c.calls++; c.port.Do() }
func (c *counting) Unwrap() any { return c.port }

// As finds the optional interfaces of an adapter behind a wrapper that has Unwrap.
func ExampleAs() {
	c := &counting{port: &adapter{"memory"}}
	c.Do()
	if n, ok := capability.As[namer](c); ok {
		fmt.Println(n.Name(), c.calls)
	}
	// Output: memory 1
}
