package producer

import (
	"slices"

	"github.com/swarmiji/swarmiji/task"
)

// own holds the names of the headers that single steps of a workflow set, and whether a step sets a
// correlation. A step would pass them to its successors, so the link of every step overrides them.
type own struct {
	headers     []string // names, sorted
	correlation bool     // some step has a correlation
}

// collect adds the headers and correlations of n and of all nodes below and behind it to o.
func (o *own) collect(n *task.Node) {
	for k := range n.Call.Headers {
		if at, found := slices.BinarySearch(o.headers, k); !found {
			o.headers = slices.Insert(o.headers, at, k)
		}
	}
	o.correlation = o.correlation || n.Call.Correlation != ""
	for _, list := range [...][]*task.Node{n.Members, n.Then, n.Else} {
		for _, m := range list {
			o.collect(m)
		}
	}
	if n.Next != nil {
		o.collect(n.Next)
	}
}

// set gives the link l of a step the step's own headers and correlation. Headers that only other
// steps have get the values of submit, the call of the workflow. If submit has no such header,
// l.Without names it, so that the step does not inherit it. The same holds for the correlation,
// which is then "".
func (o *own) set(l *task.Link, step, submit *task.Call) {
	for _, k := range o.headers {
		v, ok := step.Headers[k]
		if !ok {
			v, ok = submit.Headers[k]
		}
		if !ok {
			l.Without = append(l.Without, k)
			continue
		}
		if l.Headers == nil {
			l.Headers = make(map[string]string, len(o.headers))
		}
		l.Headers[k] = v
	}
	if o.correlation {
		c := step.Correlation
		if c == "" {
			c = submit.Correlation
		}
		l.Correlation = task.Set(c)
	}
}
