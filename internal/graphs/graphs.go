// Package graphs generates random workflows of tasks whose results can be computed without running
// them. Tests compare both.
package graphs

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/swarmiji/swarmiji/task"
)

// Graph is a workflow with a number as argument and result, so that any graph can follow any other.
// It is immutable.
type Graph struct {
	Part task.Part[int, int]
	eval func(n int, e *Expected) (int, bool) // false: the graph fails
}

// Range is the size of the range of numbers: 0 to Range-1.
const Range = 9973

// Expected holds facts about a graph's run, computed before the run.
type Expected struct {
	Steps int // tasks that run if no task fails permanently
	// error texts of the failing tasks; if the workflow fails, its error is one of them
	Failures []string
	Fails    bool // some step fails, so the number of other steps that run is left to chance
}

// Eval computes the result of a graph for n. If ok is false, the graph fails. e describes the
// expected run.
func (g Graph) Eval(n int) (value int, ok bool, e Expected) {
	value, ok = g.eval(n, &e)
	return value, ok, e
}

// The tasks of the random workflows.
var (
	mixTask    = task.New[int, int]("graph.mix")
	pickyTask  = task.New[int, int]("graph.picky") // fails for every seventh number
	spreadTask = task.New[int, []int]("graph.spread")
	foldTask   = task.New[[]int, int]("graph.fold")
	judgeTask  = task.New[[]task.Settled[int], int]("graph.judge")
)

func mix(n int) int { return (n*31 + 7) % Range }

func picky(n int) (int, error) {
	if n%7 == 0 {
		return 0, fmt.Errorf("%d is a seventh", n)
	}
	return (n*17 + 3) % Range, nil
}

// spread returns 0 to 3 numbers computed from n.
func spread(n int) []int {
	list := make([]int, n%4)
	for i := range list {
		list[i] = (n + 1000*i) % Range
	}
	return list
}

// fold computes a number that depends on the order of the list.
func fold(list []int) int {
	n := 1
	for _, v := range list {
		n = (n*131 + v + 1) % Range
	}
	return n
}

func judge(list []task.Settled[int]) int {
	n := 5
	for _, s := range list {
		v := s.Value
		if s.Failure != nil {
			v = 4242
		}
		n = (n*137 + v + 1) % Range
	}
	return n
}

// draw draws parts of a workflow.
type draw struct {
	*rand.Rand
	strict bool // see Strict
}

// Random returns a random workflow that is nested up to depth.
func Random(r *rand.Rand, depth int) Graph { return draw{r, false}.random(depth) }

// Strict returns a random workflow that is nested up to depth. None of its tasks fails by itself,
// and it fails if any task fails for another reason: all its groups fail with their members.
func Strict(r *rand.Rand, depth int) Graph { return draw{r, true}.random(depth) }

func (r draw) random(depth int) Graph {
	if depth == 0 {
		return r.leaf()
	}
	switch r.IntN(7) {
	case 0:
		return r.leaf()
	case 1, 2:
		return chainOf(r.random(depth-1), r.random(depth-1))
	case 3, 4:
		return r.chordOf(depth)
	default:
		return r.mapOf(r.random(depth - 1))
	}
}

func (r draw) leaf() Graph {
	if r.strict || r.IntN(8) > 0 {
		return Graph{mixTask, func(n int, e *Expected) (int, bool) {
			e.Steps++
			return mix(n), true
		}}
	}
	return Graph{pickyTask, func(n int, e *Expected) (int, bool) {
		e.Steps++
		v, err := picky(n)
		if err != nil {
			e.Failures, e.Fails = append(e.Failures, err.Error()), true
		}
		return v, err == nil
	}}
}

func chainOf(a, b Graph) Graph {
	return Graph{task.Chain(a.Part, b.Part), func(n int, e *Expected) (int, bool) {
		v, ok := a.eval(n, e)
		if !ok {
			return 0, false
		}
		return b.eval(v, e)
	}}
}

// ending completes a group with a random policy and a callback that depends on the order. It
// returns the workflow part and a function that computes the part's result from the members'
// outcomes.
func ending[A any](r draw, f task.Fan[A, int]) (task.Part[A, int], func([]end, *Expected) (int, bool)) {
	policy := 2
	if !r.strict {
		policy = r.IntN(4)
	}
	switch policy {
	case 0:
		return task.Chord(f.Collect(), judgeTask), func(ends []end, e *Expected) (int, bool) {
			e.Steps++
			list := make([]task.Settled[int], len(ends))
			for i, x := range ends {
				list[i].Value = x.value
				if !x.ok {
					list[i].Failure = &task.Failure{}
				}
			}
			return judge(list), true
		}
	case 1:
		return task.Chord(f.IgnoreFailures(), foldTask), func(ends []end, e *Expected) (int, bool) {
			e.Steps++
			return fold(values(ends)), true
		}
	}
	return task.Chord(f, foldTask), func(ends []end, e *Expected) (int, bool) {
		if slices.ContainsFunc(ends, func(x end) bool { return !x.ok }) {
			return 0, false
		}
		e.Steps++
		return fold(values(ends)), true
	}
}

// end is the outcome of a group's member.
type end struct {
	value int
	ok    bool
}

func values(ends []end) []int {
	var list []int
	for _, x := range ends {
		if x.ok {
			list = append(list, x.value)
		}
	}
	return list
}

func (r draw) chordOf(depth int) Graph {
	members := make([]Graph, 1+r.IntN(3))
	parts := make([]task.Part[int, int], len(members))
	for i := range members {
		members[i] = r.random(depth - 1)
		parts[i] = members[i].Part
	}
	part, finish := ending(r, task.Group(parts...))
	return Graph{part, func(n int, e *Expected) (int, bool) {
		ends := make([]end, len(members))
		for i, m := range members {
			ends[i].value, ends[i].ok = m.eval(n, e)
		}
		return finish(ends, e)
	}}
}

func (r draw) mapOf(each Graph) Graph {
	part, finish := ending(r, task.Map(each.Part))
	return Graph{task.Chain(spreadTask, part), func(n int, e *Expected) (int, bool) {
		e.Steps++
		list := spread(n)
		ends := make([]end, len(list))
		for i, v := range list {
			ends[i].value, ends[i].ok = each.eval(v, e)
		}
		return finish(ends, e)
	}}
}

// Handle registers the tasks. Each attempt first calls during with the handler's context. An error
// of during fails the task.
func Handle(r task.Registrar, during func(ctx context.Context) error) error {
	return errors.Join(
		handle(r, mixTask, during, func(n int) (int, error) { return mix(n), nil }),
		handle(r, pickyTask, during, picky),
		handle(r, spreadTask, during, func(n int) ([]int, error) { return spread(n), nil }),
		handle(r, foldTask, during, func(list []int) (int, error) { return fold(list), nil }),
		handle(r, judgeTask, during, func(list []task.Settled[int]) (int, error) { return judge(list), nil }),
	)
}

func handle[A, R any](r task.Registrar, t task.Task[A, R], during func(ctx context.Context) error, fn func(A) (R, error)) error {
	return t.Handle(r, func(ctx context.Context, a A) (R, error) {
		if err := during(ctx); err != nil {
			var none R
			return none, err
		}
		return fn(a)
	})
}

// IsFailure reports whether err is one of the failures with which the workflow may end. The error
// of a step that did not run because of a failure ends with the text of that failure.
func IsFailure(e *Expected, err error) bool {
	return slices.ContainsFunc(e.Failures, func(text string) bool { return strings.HasSuffix(err.Error(), text) })
}
