package control

import (
	"context"
	"encoding/json"
	"fmt"

	node "github.com/swarmiji/swarmiji/control"
)

// call is one execution of a command.
type call struct {
	service *Service
	node    node.Node
	args    map[string]any
	changes bool   // set by commands that change the node, which are logged
	after   func() // set by commands that end the node and have no reply
}

// command executes a command and returns its reply. The text of an error becomes the reply.
type command func(ctx context.Context, c *call) (any, error)

// missing is Python's error for an argument that is not given.
func missing(name string) error {
	return fmt.Errorf("TypeError(%s)", repr("missing 1 required positional argument: "+repr(name)))
}

// wrong is the error for an argument of a wrong type.
func wrong(name, want string) error {
	return fmt.Errorf("TypeError(%s)", repr(name+" must be "+want))
}

// text returns a required text argument.
func (c *call) text(name string) (string, error) {
	v, ok := c.args[name]
	if !ok {
		return "", missing(name)
	}
	s, ok := v.(string)
	if !ok {
		return "", wrong(name, "a text")
	}
	return s, nil
}

// optionalText returns a text argument, "" if it is absent or null.
func (c *call) optionalText(name string) (string, error) {
	if c.args[name] == nil {
		return "", nil
	}
	return c.text(name)
}

// number returns a whole number from 1 to most, and otherwise if it is absent or null. Python's
// clients also send numbers as text.
func (c *call) number(name string, otherwise, most int64) (int64, error) {
	v := c.args[name]
	if v == nil {
		return otherwise, nil
	}
	if s, ok := v.(string); ok {
		v = json.Number(s)
	}
	if n, ok := v.(json.Number); ok {
		if i, err := n.Int64(); err == nil && i >= 1 && i <= most {
			return i, nil
		}
	}
	return 0, wrong(name, fmt.Sprintf("a whole number from 1 to %d", most))
}

// flag returns a boolean argument, false if it is absent or null.
func (c *call) flag(name string) (bool, error) {
	v := c.args[name]
	if v == nil {
		return false, nil
	}
	b, ok := v.(bool)
	if !ok {
		return false, wrong(name, "true or false")
	}
	return b, nil
}

// list returns an argument that is a text or a list of at most most texts.
func (c *call) list(name string, most int) ([]string, error) {
	v, ok := c.args[name]
	if !ok {
		return nil, missing(name)
	}
	if v == nil {
		return nil, nil
	}
	if s, ok := v.(string); ok {
		return []string{s}, nil
	}
	all, ok := v.([]any)
	if !ok || len(all) > most {
		return nil, wrong(name, fmt.Sprintf("a text or a list of at most %d texts", most))
	}
	out := make([]string, 0, len(all))
	for _, x := range all {
		s, ok := x.(string)
		if !ok {
			return nil, wrong(name, "a text or a list of texts")
		}
		out = append(out, s)
	}
	return out, nil
}
